/* SPDX-License-Identifier: Apache-2.0 */
/* Router logits → the TOPK experts of each row and their weights (docs/model.md 5): picked
 * by sigmoid + bias, best first, ties to the lower id; weighted by the unbiased sigmoids over their
 * sum in pick order, times SCALE. A padded row picks -1 with weight 0. A row is one warp's; a lane
 * has every 32nd expert in registers. */
#include "prelude.cuh"

static_assert(GLM_TOPK <= GLM_E, "more picks than experts");

enum { EACH = (GLM_E + GLM_WARP - 1) / GLM_WARP };

struct pick {
    float key;
    int32_t id;
};

/* An expert that is taken, or none: behind every other, whose keys are finite or larger. */
#define TAKEN glm_bits_f32(0xff800000u)

GLM_INLINE struct pick better(struct pick a, struct pick b)
{
    return a.key > b.key || (a.key == b.key && a.id < b.id) ? a : b;
}

GLM_INLINE struct pick best_of_warp(const float key[EACH])
{
    struct pick best = {key[0], glm_lane()};
    GLM_UNROLL
    for (int i = 1; i < EACH; i++) {
        const struct pick next = {key[i], i * GLM_WARP + glm_lane()};
        best = better(best, next);
    }
    GLM_UNROLL
    for (int mask = 16; mask > 0; mask /= 2) {
        const struct pick other = {glm_shuffle_xor_f32(best.key, mask),
                                   (int32_t)glm_shuffle_xor((uint32_t)best.id, mask)};
        best = better(best, other);
    }
    return best;
}

GLM_KERNEL(launch)
{
    const int32_t row = glm_block_x() * GLM_WARPS + glm_warp();
    if (row >= launch.round->n_rows)
        return;
    const float *logits = (const float *)launch.args[0] + (size_t)row * GLM_E;
    const float *bias = (const float *)launch.args[1];
    int32_t *ids = (int32_t *)launch.args[2] + (size_t)row * GLM_TOPK;
    float *weights = (float *)launch.args[3] + (size_t)row * GLM_TOPK;
    if (launch.round->rows[row].stream < 0) {
        for (int s = glm_lane(); s < GLM_TOPK; s += GLM_WARP) {
            ids[s] = -1;
            weights[s] = 0.0f;
        }
        return;
    }
    float score[EACH], key[EACH], sum = 0.0f;
    GLM_UNROLL
    for (int i = 0; i < EACH; i++) {
        const int32_t e = i * GLM_WARP + glm_lane();
        score[i] = e < GLM_E ? glm_sigmoid(logits[e]) : 0.0f;
        /* picks must stay distinct ids whatever the logits are: a NaN comes last */
        const float k = e < GLM_E ? score[i] + bias[e] : 0.0f;
        key[i] = e >= GLM_E ? TAKEN : k > -GLM_FINITE_MAX ? k : -GLM_FINITE_MAX;
    }
    /* a pick's score waits in its place until their sum is known, for the lane that left it there
     */
    for (int s = 0; s < GLM_TOPK; s++) {
        const struct pick best = best_of_warp(key);
        float mine = 0.0f;
        GLM_UNROLL
        for (int i = 0; i < EACH; i++)
            if (best.id == i * GLM_WARP + glm_lane()) {
                mine = score[i];
                key[i] = TAKEN;
            }
        mine = glm_bits_f32(glm_shuffle(glm_f32_bits(mine), best.id % GLM_WARP));
        sum += mine;
        if (s % GLM_WARP == glm_lane()) {
            ids[s] = best.id;
            weights[s] = mine;
        }
    }
    for (int s = glm_lane(); s < GLM_TOPK; s += GLM_WARP)
        weights[s] = weights[s] / (sum + 1e-20f) * GLM_SCALE;
}
