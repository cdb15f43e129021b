/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over a row in the order of the host's sums.h, so that their bits are the host's. */
#ifndef GLM_SUMS_CUH
#define GLM_SUMS_CUH

#include "prelude.cuh"

enum { GLM_SQUARE_LANES = 64 };

/* In every thread of the block the sum of squares of n stored activations in shared memory, n a
 * multiple of 16; the block has 64 threads or more. As glm_square_sum: element i belongs to one of
 * 64 lanes, i ascending in a lane; lanes l of 16 are added (0 + 1) + (2 + 3), then as glm_sum16.
 * The row must be there for all (a barrier before); it may be written again after. */
GLM_INLINE float glm_square_sum(const act_t *row, int n)
{
    GLM_SHARED float half[2 * 16], sum;
    const int t = glm_thread();
    float v = 0.0f;
    if (t < GLM_SQUARE_LANES) {
        for (int i = t; i < n; i += GLM_SQUARE_LANES) {
            float x = glm_bf16_f32(row[i]);
            v = glm_fma1(x, x, v);
        }
        v += glm_shuffle_xor_f32(v, 16);
        if (t % 32 < 16)
            half[t / 32 * 16 + t % 16] = v;
    }
    glm_barrier();
    if (t < 32) {
        v = glm_sum16(half[t % 16] + half[16 + t % 16]);
        if (t == 0)
            sum = v;
    }
    glm_barrier();
    return sum;
}

/* y = w · (x · (mean x² + eps)^(-1/2)), the product in brackets stored as an activation before it
 * meets w (docs/model.md 2), for a row in shared memory, n a multiple of 16. */
GLM_INLINE void glm_rms_norm(act_t *y, const act_t *row, const uint16_t *w, int n, float eps)
{
    const float scale = glm_inverse_root(glm_square_sum(row, n) * (1.0f / (float)n) + eps);
    for (int i = glm_thread() * 8; i < n; i += GLM_BLOCK * 8) {
        float v[8], g[8];
        glm_load_act8(row + i, v);
        glm_unpack8(glm_load16_once(w + i), g);
        GLM_UNROLL
        for (int j = 0; j < 8; j++)
            v[j] = g[j] * glm_round_act(v[j] * scale);
        glm_store_act8(y + i, v);
    }
}

#endif
