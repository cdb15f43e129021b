/* SPDX-License-Identifier: Apache-2.0 */
/* A matrix a head: y[r, h] = x[r, h] W[h]^T. Threads share (head, eight outputs); tiles and their
 * order of sums as in dots.h. */
#include "dots.h"

enum { OUTPUTS = GLM_DOTS_OUTPUTS, BLOCKS = (GLM_N + OUTPUTS - 1) / OUTPUTS };

const uint32_t glm_kernel_abi = GLM_HOST_ABI_VERSION;
void glm_kernel(const struct glm_launch *l, void *const *args);

void glm_kernel(const struct glm_launch *l, void *const *args)
{
    int64_t n_rows = l->round->n_rows, first, last;
    glm_part(l, (int64_t)GLM_H * BLOCKS, &first, &last);
    for (int64_t i = first; i < last; i++) {
        int64_t head = i / BLOCKS, n0 = i % BLOCKS * OUTPUTS;
        int nr = GLM_N - n0 < OUTPUTS ? (int)(GLM_N - n0) : OUTPUTS;
        const act_t *x = (const act_t *)args[0] + head * GLM_K;
        act_t *y = (act_t *)args[2] + head * GLM_N + n0;
        for (int64_t row = 0; row < n_rows; row += GLM_DOTS_ROWS) {
            int n = (int)(n_rows - row < GLM_DOTS_ROWS ? n_rows - row : GLM_DOTS_ROWS);
            const act_t *rows[GLM_DOTS_ROWS];
            float out[OUTPUTS * GLM_DOTS_ROWS];
            for (int m = 0; m < n; m++)
                rows[m] = x + (row + m) * GLM_X_STRIDE;
            glm_dots_rows(GLM_DOTS_BF16, rows, n, args[1], GLM_H * GLM_N, head * GLM_N + n0, nr,
                          GLM_K, out);
            for (int m = 0; m < n; m++)
                for (int j = 0; j < nr; j++)
                    y[(row + m) * GLM_Y_STRIDE + j] = glm_f32_act(out[OUTPUTS * m + j]);
        }
    }
}
