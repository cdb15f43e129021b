/* SPDX-License-Identifier: Apache-2.0 */
/* y = x W^T for the forms bf16, q4 and fp8. Threads share the outputs; a thread walks its outputs
 * in fours, so that a decode round streams every weight row once, and its activation rows in panels
 * that stay in the cache while the outputs pass. Tiles and their order of sums: dots.h. */
#include "dots.h"

#if defined(GLM_OUT_f32)
typedef float out_t;
#define out_store(a) (a)
#else
typedef act_t out_t;
#define out_store(a) glm_f32_act(a)
#endif

#if defined(GLM_FORM_bf16)
#define TILE_M GLM_TILE_M
#define TILE_N GLM_TILE_N
#define dots(x, w, n0, mr, nr, out) \
    glm_dots_bf16(x, (const uint16_t *)(w) + (size_t)(n0)*GLM_K, GLM_K, mr, nr, out)
#else
#define TILE_M GLM_TILE_M_QUANT
#define TILE_N GLM_TILE_N_QUANT
#if defined(GLM_FORM_q4)
#define dots(x, w, n0, mr, nr, out) glm_dots_q4(x, w, GLM_N, n0, GLM_K, mr, nr, out)
#else
#define dots(x, w, n0, mr, nr, out) glm_dots_fp8(x, w, GLM_N, n0, GLM_K, mr, nr, out)
#endif
#endif

enum { OUTPUTS = 4, PANEL_BYTES = 512 << 10 };

const uint32_t glm_kernel_abi = GLM_HOST_ABI_VERSION;
void glm_kernel(const struct glm_launch *l, void *const *args);

/* Outputs [n0, n0 + nr) of mr rows from `row` on, as tiles of mr x tn. */
GLM_INLINE void tile(const act_t *x, const void *w, out_t *y, int64_t row, int n0, int mr, int nr,
                     int tn)
{
    const act_t *rows[GLM_TILE_MAX];
    for (int m = 0; m < mr; m++)
        rows[m] = x + (row + m) * GLM_X_STRIDE;
    for (int n = 0; n < nr; n += tn) {
        float out[4 * GLM_TILE_MAX];
        dots(rows, w, n0 + n, mr, tn, out);
        for (int m = 0; m < mr; m++)
            for (int j = 0; j < tn; j++)
                y[(row + m) * GLM_Y_STRIDE + n0 + n + j] = out_store(out[4 * m + j]);
    }
}

static void outputs(const act_t *x, const void *w, out_t *y, int64_t row, int64_t last, int n0,
                    int nr)
{
    if (nr == OUTPUTS) {
        for (; TILE_M > 1 && row + TILE_M <= last; row += TILE_M)
            tile(x, w, y, row, n0, TILE_M, OUTPUTS, TILE_N);
#if GLM_NATIVE == 1
        for (; TILE_M > 2 && row + 2 <= last; row += 2)
            tile(x, w, y, row, n0, 2, OUTPUTS, TILE_N);
#endif
        for (; row < last; row++)
            tile(x, w, y, row, n0, 1, OUTPUTS, OUTPUTS);
    }
    for (; row < last; row++)
        tile(x, w, y, row, n0, 1, nr, 1);
}

void glm_kernel(const struct glm_launch *l, void *const *args)
{
    const act_t *x = args[0];
    const void *w = args[1];
    out_t *y = args[2];
#if defined(GLM_ROWS_out)
    int64_t n_rows = l->round->n_out;
#else
    int64_t n_rows = l->round->n_rows;
#endif
    int64_t panel = PANEL_BYTES / ((int64_t)GLM_K * (int64_t)sizeof(act_t)) / 4 * 4;
    panel = panel < 8 ? 8 : panel;
    int64_t first, last;
    glm_part(l, (GLM_N + OUTPUTS - 1) / OUTPUTS, &first, &last);
    for (int64_t row = 0; row < n_rows; row += panel) {
        int64_t end = row + panel < n_rows ? row + panel : n_rows;
        for (int64_t b = first; b < last; b++) {
            int n0 = (int)b * OUTPUTS;
            outputs(x, w, y, row, end, n0, GLM_N - n0 < OUTPUTS ? GLM_N - n0 : OUTPUTS);
        }
    }
}
