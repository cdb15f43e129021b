/* SPDX-License-Identifier: Apache-2.0 */
/* One token a wanted row from the gathered candidates of all ranks: draw.h, the same on every rank.
 */
#include "prelude.h"

#include "draw.h"

const uint32_t glm_kernel_abi = GLM_HOST_ABI_VERSION;

_Static_assert(GLM_WORLD <= GLM_DRAW_RANKS, "more ranks than a draw can walk");

void glm_kernel(const struct glm_launch *launch, void *const *args)
{
    const int32_t *cands = args[0];
    int32_t *tokens = args[1];
    const int64_t record = GLM_DRAW_HEADER + 2 * (int64_t)GLM_C, n = launch->round->n_out;
    int64_t first, last;
    glm_part(launch, n, &first, &last);
    for (int64_t o = first; o < last; o++)
        tokens[o] =
            glm_draw_token(&launch->round->draws[o], cands + o * record, n * record, GLM_WORLD);
}
