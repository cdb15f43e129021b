/* SPDX-License-Identifier: Apache-2.0 */
#include "toy.h"

void glm_kernel(const struct glm_launch *launch, void *const *args)
{
    const float *logits = args[0];
    const int32_t *ends = args[1];
    int32_t *cand = args[2];
    for (int32_t o = 0; launch->thread == 0 && o < launch->round->n_out; o++) {
        int32_t best = 0;
        for (int32_t v = 1; v < GLM_V; v++)
            if (logits[o * GLM_V + v] > logits[o * GLM_V + best])
                best = v;
        cand[o * 2] = GLM_FIRST + best;
        if ((launch->round->draws[o].flags & GLM_DRAW_NO_END) && cand[o * 2] == ends[0])
            cand[o * 2] = ends[0] + 1;
        cand[o * 2 + 1] = (int32_t)logits[o * GLM_V + best];
    }
}
