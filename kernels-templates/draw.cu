/* SPDX-License-Identifier: Apache-2.0 */
/* One token a wanted row from the gathered candidates of all ranks: draw.h, the same on every rank.
 * A thread walks a row's lists; the walk is short and serial. */
#include "prelude.cuh"

#include "draw.h"

static_assert(GLM_WORLD <= GLM_DRAW_RANKS, "more ranks than a draw can walk");

GLM_KERNEL(launch)
{
    const int32_t o = glm_block_x(), n = launch.round->n_out;
    const int64_t record = GLM_DRAW_HEADER + 2 * (int64_t)GLM_C;
    if (o >= n || glm_thread() != 0)
        return;
    ((int32_t *)launch.args[1])[o] =
        glm_draw_token(&launch.round->draws[o], (const int32_t *)launch.args[0] + o * record,
                       n * record, GLM_WORLD);
}
