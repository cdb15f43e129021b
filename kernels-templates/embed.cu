/* SPDX-License-Identifier: Apache-2.0 */
/* The first residual streams of a round's rows: a token's embedding, or the override row that a
 * picture put there, copied S times. Padding rows and ids outside the table become zeros, so that
 * nothing after them reads what a former round left. A thread has eight columns of a row. */
#include "prelude.cuh"

static_assert(GLM_D % 8 == 0, "rows are read 16 bytes at a time");

GLM_INLINE glm_u32x4 embedding(const struct glm_row *row, const uint16_t *table,
                               const act_t *override, int32_t at)
{
    const glm_u32x4 zero = {{0, 0, 0, 0}};
    if (row->stream < 0)
        return zero;
    if (row->override >= 0 && override != nullptr)
        return glm_load16(override + (size_t)row->override * GLM_D + at);
    if (row->token < 0 || row->token >= GLM_V)
        return zero;
    return glm_load16_once(table + (size_t)row->token * GLM_D + at);
}

GLM_KERNEL(launch)
{
    const int32_t row = glm_block_y(), at = (glm_block_x() * GLM_BLOCK + glm_thread()) * 8;
    if (row >= launch.round->n_rows || at >= GLM_D)
        return;
    const uint16_t *table = (const uint16_t *)launch.args[0];
    const act_t *override = (const act_t *)launch.args[1];
    act_t *x = (act_t *)launch.args[2] + (size_t)row * GLM_S * GLM_D + at;
    const glm_u32x4 e = embedding(&launch.round->rows[row], table, override, at);
    GLM_UNROLL
    for (int s = 0; s < GLM_S; s++)
        glm_store16(x + s * GLM_D, e);
}
