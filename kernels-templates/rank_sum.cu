/* SPDX-License-Identifier: Apache-2.0 */
/* What a library of collectives gathered into rows of a bucket, to where a step wants it: all
 * ranks' live bytes one after the other, or their sum in rank order. `second` is rank 1's bytes, as
 * far from `first`, rank 0's, as every other rank's from the one before. Four bytes a thread: a
 * rank's begin at any multiple of four. */
#include "peer.cuh"

GLM_KERNEL(launch)
{
    uint32_t *to = (uint32_t *)launch.args[0];
    const uint32_t *first = (const uint32_t *)launch.args[1];
    const uint64_t stride = (uint64_t)((const uint32_t *)launch.args[2] - first);
    const struct glm_peer_exchange *x = (const struct glm_peer_exchange *)launch.args[3];
    const uint64_t n = glm_peer_bytes(x, launch.round) / 4;
    const uint64_t step = (uint64_t)glm_grid_x() * GLM_BLOCK;
    for (uint64_t i = (uint64_t)glm_block_x() * GLM_BLOCK + (uint64_t)glm_thread(); i < n;
         i += step) {
        uint32_t v[GLM_WORLD];
        GLM_UNROLL
        for (int32_t r = 0; r < GLM_WORLD; r++)
            v[r] = first[(uint64_t)r * stride + i];
        if (x->is_sum != 0) {
            float sum = glm_bits_f32(v[0]);
            GLM_UNROLL
            for (int32_t r = 1; r < GLM_WORLD; r++)
                sum = sum + glm_bits_f32(v[r]);
            to[i] = glm_f32_bits(sum);
            continue;
        }
        GLM_UNROLL
        for (int32_t r = 0; r < GLM_WORLD; r++)
            to[(uint64_t)r * n + i] = v[r];
    }
}
