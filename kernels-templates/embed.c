/* SPDX-License-Identifier: Apache-2.0 */
/* The first residual streams of a round's rows: a token's embedding, or the override row that a
 * picture put there, copied S times. Padding rows and ids outside the table become zeros, so that
 * nothing after them reads what a former round left. */
#include "prelude.h"

const uint32_t glm_kernel_abi = GLM_HOST_ABI_VERSION;

GLM_INLINE glm_f32x16 embedding(const struct glm_row *row, const uint16_t *table,
                                const act_t *override, int d)
{
    if (row->stream < 0)
        return glm_zero();
    if (row->override >= 0 && override != NULL)
        return glm_load_act(override + (size_t)row->override * GLM_D + d);
    if (row->token < 0 || row->token >= GLM_V)
        return glm_zero();
    return glm_load_bf16(table + (size_t)row->token * GLM_D + d);
}

void glm_kernel(const struct glm_launch *launch, void *const *args)
{
    const uint16_t *table = args[0];
    const act_t *override = args[1];
    act_t *x = args[2];
    int64_t first, last;
    glm_part(launch, launch->round->n_rows, &first, &last);
    for (int64_t r = first; r < last; r++) {
        act_t *out = x + (size_t)r * GLM_S * GLM_D;
        for (int d = 0; d < GLM_D; d += 16) {
            glm_f32x16 e = embedding(&launch->round->rows[r], table, override, d);
            for (int s = 0; s < GLM_S; s++)
                glm_store_act(out + s * GLM_D + d, e);
        }
    }
}
