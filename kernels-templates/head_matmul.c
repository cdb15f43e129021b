/* SPDX-License-Identifier: Apache-2.0 */
/* A matrix a head: y[r, h] = x[r, h] W[h]^T. Threads share (head, four outputs); tiles and their
 * order of sums as in dots.h. */
#include "dots.h"

enum { OUTPUTS = 4, BLOCKS = (GLM_N + OUTPUTS - 1) / OUTPUTS };

const uint32_t glm_kernel_abi = GLM_HOST_ABI_VERSION;
void glm_kernel(const struct glm_launch *l, void *const *args);

GLM_INLINE void tile(const act_t *x, const uint16_t *w, act_t *y, int64_t row, int mr, int nr,
                     int tn)
{
    const act_t *rows[GLM_TILE_MAX];
    for (int m = 0; m < mr; m++)
        rows[m] = x + (row + m) * GLM_X_STRIDE;
    for (int n = 0; n < nr; n += tn) {
        float out[4 * GLM_TILE_MAX];
        glm_dots_bf16(rows, w + (size_t)n * GLM_K, GLM_K, mr, tn, out);
        for (int m = 0; m < mr; m++)
            for (int j = 0; j < tn; j++)
                y[(row + m) * GLM_Y_STRIDE + n + j] = glm_f32_act(out[4 * m + j]);
    }
}

void glm_kernel(const struct glm_launch *l, void *const *args)
{
    int64_t n_rows = l->round->n_rows, first, last;
    glm_part(l, (int64_t)GLM_H * BLOCKS, &first, &last);
    for (int64_t i = first; i < last; i++) {
        int64_t head = i / BLOCKS, n0 = i % BLOCKS * OUTPUTS, row = 0;
        int nr = GLM_N - n0 < OUTPUTS ? (int)(GLM_N - n0) : OUTPUTS;
        const act_t *x = (const act_t *)args[0] + head * GLM_K;
        const uint16_t *w = (const uint16_t *)args[1] + (head * GLM_N + n0) * GLM_K;
        act_t *y = (act_t *)args[2] + head * GLM_N + n0;
        if (nr == OUTPUTS) {
            for (; row + GLM_TILE_M <= n_rows; row += GLM_TILE_M)
                tile(x, w, y, row, GLM_TILE_M, OUTPUTS, GLM_TILE_N);
            for (; row < n_rows; row++)
                tile(x, w, y, row, 1, OUTPUTS, OUTPUTS);
        }
        for (; row < n_rows; row++)
            tile(x, w, y, row, 1, nr, 1);
    }
}
