/* SPDX-License-Identifier: Apache-2.0 */
/* y = x W^T for the forms bf16, q4 and fp8. Threads share the outputs; a thread walks its outputs
 * in eights, so that a decode round streams every weight row once, and its activation rows in
 * panels that stay in the cache while the outputs pass. Tiles and their order of sums: dots.h. */
#include "dots.h"

#if defined(GLM_OUT_f32)
typedef float out_t;
#define out_store(a) (a)
#else
typedef act_t out_t;
#define out_store(a) glm_f32_act(a)
#endif

#if defined(GLM_FORM_bf16)
#define FORM GLM_DOTS_BF16
#elif defined(GLM_FORM_q4)
#define FORM GLM_DOTS_Q4
#else
#define FORM GLM_DOTS_FP8
#endif

enum { OUTPUTS = GLM_DOTS_OUTPUTS, PANEL_BYTES = 768 << 10 };

const uint32_t glm_kernel_abi = GLM_HOST_ABI_VERSION;
void glm_kernel(const struct glm_launch *l, void *const *args);

void glm_kernel(const struct glm_launch *l, void *const *args)
{
    const act_t *x = args[0];
    out_t *y = args[2];
#if defined(GLM_ROWS_out)
    int64_t n_rows = l->round->n_out;
#else
    int64_t n_rows = l->round->n_rows;
#endif
    int64_t panel = PANEL_BYTES / ((int64_t)GLM_K * (int64_t)sizeof(act_t)) / 12 * 12;
    panel = panel < 12 ? 12 : panel < GLM_DOTS_ROWS ? panel : GLM_DOTS_ROWS;
    int64_t first, last;
    glm_part(l, (GLM_N + OUTPUTS - 1) / OUTPUTS, &first, &last);
    for (int64_t row = 0; row < n_rows; row += panel) {
        int n = (int)(row + panel < n_rows ? panel : n_rows - row);
        const act_t *rows[GLM_DOTS_ROWS];
        for (int m = 0; m < n; m++)
            rows[m] = x + (row + m) * GLM_X_STRIDE;
        for (int64_t n0 = first * OUTPUTS; n0 < last * OUTPUTS; n0 += OUTPUTS) {
            int nr = GLM_N - n0 < OUTPUTS ? (int)(GLM_N - n0) : OUTPUTS;
            float out[OUTPUTS * GLM_DOTS_ROWS];
            glm_dots_rows(FORM, rows, n, args[1], GLM_N, n0, nr, GLM_K, out);
            for (int m = 0; m < n; m++)
                for (int j = 0; j < nr; j++)
                    y[(row + m) * GLM_Y_STRIDE + n0 + j] = out_store(out[OUTPUTS * m + j]);
        }
    }
}
