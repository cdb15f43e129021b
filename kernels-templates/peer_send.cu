/* SPDX-License-Identifier: Apache-2.0 */
/* This rank's bytes into its slot at every rank, then the parts' flags (peer.h). A block takes a
 * part at a time. Whole 16 bytes are copied: buffers and slots are at least so long. */
#include "peer.cuh"

GLM_KERNEL(launch)
{
    const unsigned char *from = (const unsigned char *)launch.args[0];
    const struct glm_peers *p = (const struct glm_peers *)launch.args[1];
    const uint64_t bytes =
        glm_peer_bytes((const struct glm_peer_exchange *)launch.args[2], launch.round);
    const uint64_t n = p->epoch + 1, slot = glm_peer_slot(p, n, (int32_t)p->rank);
    for (uint64_t part = (uint64_t)glm_block_x(); part * GLM_PEER_PART_BYTES < bytes;
         part += (uint64_t)glm_grid_x()) {
        const uint64_t first = part * GLM_PEER_PART_BYTES, end = glm_peer_end(first, bytes);
        for (uint64_t at = first + (uint64_t)glm_thread() * 16; at < end; at += GLM_BLOCK * 16) {
            const glm_u32x4 v = glm_load16(from + at);
            GLM_UNROLL
            for (int32_t r = 0; r < GLM_WORLD; r++)
                glm_store16(p->inbox[r] + slot + at, v);
        }
        glm_barrier(); /* with the release: what all threads wrote is seen before the flag */
        if (glm_thread() < GLM_WORLD)
            glm_store_release_system(p->flags[glm_thread()] + p->rank * p->n_parts + part, n);
    }
}
