/* SPDX-License-Identifier: Apache-2.0 */
/* y = silu(min(gate, LIMIT)) * clip(up, LIMIT) of rows that hold gate, then up
 * (docs/model.md 5). A thread has eight columns of a row. */
#include "prelude.cuh"

static_assert(GLM_N % 8 == 0 && GLM_X_STRIDE % 8 == 0, "rows are read 16 bytes at a time");

GLM_KERNEL(launch)
{
    const int32_t row = glm_block_y(), at = (glm_block_x() * GLM_BLOCK + glm_thread()) * 8;
    if (row >= launch.round->n_rows || at >= GLM_N)
        return;
    const act_t *x = (const act_t *)launch.args[0] + (size_t)row * GLM_X_STRIDE + at;
    act_t *y = (act_t *)launch.args[1] + (size_t)row * GLM_N + at;
    float gate[8], up[8];
    glm_load_act8(x, gate);
    glm_load_act8(x + GLM_N, up);
    GLM_UNROLL
    for (int i = 0; i < 8; i++)
        gate[i] = glm_swiglu(gate[i], up[i], GLM_LIMIT);
    glm_store_act8(y, gate);
}
