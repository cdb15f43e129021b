/* SPDX-License-Identifier: Apache-2.0 */
/* y = x W^T for the forms bf16, q4 and fp8: a block has 16 outputs, 32 of a large matrix, for up to
 * 32 rows (dots.cuh). */
#if defined(GLM_FORM_bf16)
#define GLM_DOTS_FORM GLM_DOTS_BF16
#elif defined(GLM_FORM_q4)
#define GLM_DOTS_FORM GLM_DOTS_Q4
#else
#define GLM_DOTS_FORM GLM_DOTS_FP8
#endif
#define GLM_DOTS_K     GLM_K
#define GLM_DOTS_TILES (GLM_N >= 4096 ? 2 : 1) /* as launch.grid has it */
#if defined(GLM_OUT_f32)
#define GLM_DOTS_F32 1
#else
#define GLM_DOTS_F32 0
#endif
#include "dots.cuh"

static_assert(GLM_X_STRIDE % 8 == 0, "rows are read 16 bytes at a time");

GLM_KERNEL(launch)
{
#if defined(GLM_ROWS_out)
    const int32_t n_rows = launch.round->n_out;
#else
    const int32_t n_rows = launch.round->n_rows;
#endif
    const int32_t n0 = glm_block_x() * GLM_DOTS_OUTPUTS, row = glm_block_y() * GLM_DOTS_ROWS;
    if (row >= n_rows)
        return;
    const struct glm_dots_weight w = glm_dots_planes(launch.args[1], GLM_N);
    const int32_t left = n_rows - row;
    const struct glm_dots_rows x = {(const act_t *)launch.args[0] + (size_t)row * GLM_X_STRIDE,
                                    left < GLM_DOTS_ROWS ? left : GLM_DOTS_ROWS, GLM_X_STRIDE};
    glm_dots_block(&w, n0, GLM_N - n0 < GLM_DOTS_OUTPUTS ? GLM_N - n0 : GLM_DOTS_OUTPUTS, &x,
                   (glm_dots_out_t *)launch.args[2] + (size_t)row * GLM_Y_STRIDE + n0,
                   GLM_Y_STRIDE);
}
