/* SPDX-License-Identifier: Apache-2.0 */
#include "toy.h"

void glm_kernel(const struct glm_launch *launch, void *const *args)
{
    const int32_t *cands = args[0];
    int32_t *tokens = args[1];
    int32_t n_out = launch->round->n_out;
    for (int32_t o = 0; launch->thread == 0 && o < n_out; o++) {
        int32_t best = 0;
        for (int32_t w = 1; w < GLM_WORLD; w++)
            if (cands[(w * n_out + o) * 2 + 1] > cands[(best * n_out + o) * 2 + 1])
                best = w;
        tokens[o] = cands[(best * n_out + o) * 2];
        if (!GLM_WIDE && launch->round->draws[o].top_k > 1)
            tokens[o] = GLM_DRAW_WIDER;
    }
}
