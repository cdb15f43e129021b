/* SPDX-License-Identifier: Apache-2.0 */
/* A matrix a head: y[r, h] = x[r, h] W[h]^T. A block has 16 outputs of one head for up to 32 rows
 * (dots.cuh). */
#define GLM_DOTS_FORM  GLM_DOTS_BF16
#define GLM_DOTS_K     GLM_K
#define GLM_DOTS_TILES 1
#define GLM_DOTS_F32   0
#include "dots.cuh"

static_assert(GLM_X_STRIDE % 8 == 0 && GLM_K % 8 == 0, "rows are read 16 bytes at a time");

GLM_KERNEL(launch)
{
    const int32_t head = glm_block_y(), n0 = glm_block_x() * GLM_DOTS_OUTPUTS;
    const int32_t row = glm_block_z() * GLM_DOTS_ROWS, left = launch.round->n_rows - row;
    if (left <= 0)
        return;
    const struct glm_dots_weight w = glm_dots_planes(launch.args[1], (size_t)GLM_H * GLM_N);
    const struct glm_dots_rows x = {(const act_t *)launch.args[0] + (size_t)row * GLM_X_STRIDE +
                                        head * GLM_K,
                                    left < GLM_DOTS_ROWS ? left : GLM_DOTS_ROWS, GLM_X_STRIDE};
    glm_dots_block(
        &w, head * GLM_N + n0, GLM_N - n0 < GLM_DOTS_OUTPUTS ? GLM_N - n0 : GLM_DOTS_OUTPUTS, &x,
        (act_t *)launch.args[2] + (size_t)row * GLM_Y_STRIDE + head * GLM_N + n0, GLM_Y_STRIDE);
}
