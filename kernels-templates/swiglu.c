/* SPDX-License-Identifier: Apache-2.0 */
/* y = silu(min(gate, LIMIT)) * clip(up, LIMIT) of rows that hold gate, then up
 * (docs/model.md 5). Threads share sixteens of columns over all rows. */
#include "prelude.h"

enum { SIXTEENS = GLM_N / 16 };

const uint32_t glm_kernel_abi = GLM_HOST_ABI_VERSION;
void glm_kernel(const struct glm_launch *l, void *const *args);

void glm_kernel(const struct glm_launch *l, void *const *args)
{
    const act_t *x = args[0];
    act_t *y = args[1];
    int64_t first, last;
    glm_part(l, (int64_t)l->round->n_rows * SIXTEENS, &first, &last);
    for (int64_t i = first; i < last; i++) {
        const act_t *gate = x + i / SIXTEENS * GLM_X_STRIDE + i % SIXTEENS * 16;
        glm_store_act(y + i / SIXTEENS * GLM_N + i % SIXTEENS * 16,
                      glm_swiglu16(glm_load_act(gate), glm_load_act(gate + GLM_N), GLM_LIMIT));
    }
}
