/* SPDX-License-Identifier: Apache-2.0 */
/* The rows whose logits are wanted, packed in the order of the round's out_rows. A thread copies
 * eight columns. */
#include "prelude.cuh"

static_assert(GLM_D % 8 == 0, "rows are read 16 bytes at a time");

GLM_KERNEL(launch)
{
    const int32_t o = glm_block_y(), at = (glm_block_x() * GLM_BLOCK + glm_thread()) * 8;
    if (o >= launch.round->n_out || at >= GLM_D)
        return;
    const act_t *x = (const act_t *)launch.args[0];
    act_t *y = (act_t *)launch.args[1];
    const int32_t row = launch.round->out_rows[o];
    glm_store16(y + (size_t)o * GLM_D + at, glm_load16(x + (size_t)row * GLM_D + at));
}
