/* SPDX-License-Identifier: Apache-2.0 */
/* Router logits → the TOPK experts of each row and their weights (docs/model.md 5): picked
 * by sigmoid + bias, best first, ties to the lower id; weighted by the unbiased sigmoids over their
 * sum in pick order, times SCALE. A padded row picks -1 with weight 0. */
#include "prelude.h"

_Static_assert(GLM_TOPK <= GLM_E, "more picks than experts");

const uint32_t glm_kernel_abi = GLM_HOST_ABI_VERSION;
void glm_kernel(const struct glm_launch *l, void *const *args);

static void route(const float *logits, const float *bias, int32_t *ids, float *weights)
{
    float score[GLM_E], key[GLM_E], sum = 0;
    for (int e = 0; e < GLM_E; e++) {
        score[e] = glm_sigmoid(logits[e]);
        float k = score[e] + bias[e];
        /* picks must stay distinct ids whatever the logits are: a NaN comes last */
        key[e] = k > -GLM_FINITE_MAX ? k : -GLM_FINITE_MAX;
    }
    for (int s = 0; s < GLM_TOPK; s++) {
        int best = 0;
        for (int e = 1; e < GLM_E; e++)
            best = key[e] > key[best] ? e : best;
        ids[s] = best;
        sum += score[best];
        key[best] = -__builtin_inff();
    }
    for (int s = 0; s < GLM_TOPK; s++)
        weights[s] = score[ids[s]] / (sum + 1e-20f) * GLM_SCALE;
}

void glm_kernel(const struct glm_launch *l, void *const *args)
{
    const float *logits = args[0], *bias = args[1];
    int32_t *ids = args[2];
    float *weights = args[3];
    int64_t first, last;
    glm_part(l, l->round->n_rows, &first, &last);
    for (int64_t r = first; r < last; r++) {
        int32_t *row_ids = ids + r * GLM_TOPK;
        float *row_weights = weights + r * GLM_TOPK;
        if (l->round->rows[r].stream >= 0) {
            route(logits + r * GLM_E, bias, row_ids, row_weights);
            continue;
        }
        for (int s = 0; s < GLM_TOPK; s++) {
            row_ids[s] = -1;
            row_weights[s] = 0;
        }
    }
}
