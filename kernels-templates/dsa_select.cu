/* SPDX-License-Identifier: Apache-2.0 */
/* Which pools a row attends to: scores of the complete pools it may see, the exact TOPK largest,
 * ties to the lower pool (docs/model.md 4). While all fit there is nothing to score.
 *
 * A block scores SPAN pools of a row, a thread a pool: its key stays in registers while the heads
 * pass. A score's sum has the host's order, channels then heads, so that the selection is the
 * host's, near ties too. The last of a row's blocks selects. The grid has spans for the bucket's
 * longest context; how many is nothing to a row but the stride of the scores. */
#include "kv.cuh"
#include "select.cuh"

#define SPAN GLM_BLOCK /* pools of a block */

static_assert(GLM_D % 16 == 0, "keys are read 16 bytes at a time");

struct select {
    const act_t *iq, *w;
    void *pooled;
    int32_t *sel;
    const struct glm_round *round;
    uint32_t *scores; /* of the row, as integers of the same order */
    int32_t row, n;   /* complete pools that the row may see */
};

/* Queries of the row in shared memory, and its heads' weights. */
GLM_SHARED float queries[GLM_H][GLM_D], weights[GLM_H];

GLM_INLINE void take_queries(const struct select *a)
{
    const act_t *iq = a->iq + (size_t)a->row * GLM_H * GLM_D;
    const act_t *w = a->w + (size_t)a->row * GLM_W_STRIDE;
    const float by = glm_inverse_root((float)GLM_H);
    for (int i = glm_thread(); i < GLM_H * GLM_D; i += GLM_BLOCK)
        queries[i / GLM_D][i % GLM_D] = glm_act_f32(iq[i]);
    for (int h = glm_thread(); h < GLM_H; h += GLM_BLOCK)
        weights[h] = glm_act_f32(w[h]) * by;
    glm_barrier();
}

/* The score of one pool: Σ_h w_h max(0, D^(-1/2) q_h · key). */
GLM_INLINE float score_pool(const struct select *a, int32_t pool)
{
    const struct glm_round_stream *s = &a->round->streams[a->round->rows[a->row].stream];
    const char *row =
        glm_state_pool(a->pooled, a->round, s, pool * GLM_POOL, GLM_POOL, GLM_KV_ROW_BYTES(GLM_D));
    const float by = glm_inverse_root((float)GLM_D);
    float key[GLM_D], score = 0.0f;
    GLM_UNROLL
    for (int c = 0; c < GLM_D; c += 16)
        glm_kv_load16(key + c, row, c, GLM_D);
    GLM_LOOP
    for (int h = 0; h < GLM_H; h++) {
        float dot = 0.0f;
        GLM_UNROLL
        for (int c = 0; c < GLM_D; c++)
            dot = glm_fma1(queries[h][c], key[c], dot);
        score = glm_fma1(weights[h], glm_max1(dot * by, 0.0f), score);
    }
    return score;
}

/* The TOPK largest, ascending; all where no more are there. */
GLM_INLINE void select_row(const struct select *a)
{
    int32_t *sel = a->sel + (size_t)a->row * (1 + GLM_TOPK), n_taken = 0;
    if (glm_thread() == 0)
        sel[0] = a->n < GLM_TOPK ? a->n : GLM_TOPK;
    if (a->n <= GLM_TOPK) {
        for (int32_t i = glm_thread(); i < a->n; i += GLM_BLOCK)
            sel[1 + i] = i;
        return;
    }
    struct glm_cut cut = glm_select_largest(a->scores, 1, a->n, GLM_TOPK);
    for (int32_t first = 0; first < a->n; first += GLM_BLOCK) {
        const int32_t i = first + glm_thread();
        const int32_t place = glm_select_place(&cut, i < a->n ? a->scores[i] : 0, &n_taken);
        if (place >= 0)
            sel[1 + place] = i;
    }
}

GLM_KERNEL(launch)
{
    const int32_t span = glm_block_x(), place = glm_block_y(), r = launch.first_row + place;
    if (r >= launch.round->n_rows)
        return;
    const struct glm_row *row = &launch.round->rows[r];
    const int32_t n = row->stream < 0 ? 0 : (row->position + 1) / GLM_POOL;
    const int32_t padded = glm_grid_x() * SPAN,
                  most = padded < GLM_MAXPOOLS ? padded : GLM_MAXPOOLS;
    const struct select a = {
        (const act_t *)launch.args[0],
        (const act_t *)launch.args[1],
        launch.args[2],
        (int32_t *)launch.args[3],
        launch.round,
        (uint32_t *)launch.scratch + (size_t)place * padded,
        r,
        n < most ? n : most,
    };
    if (a.n <= GLM_TOPK) { /* nothing to score: the first block gives them all */
        if (span == 0)
            select_row(&a);
        return;
    }
    if (span * SPAN >= a.n)
        return;
    const int32_t pool = span * SPAN + glm_thread();
    take_queries(&a);
    if (pool < a.n)
        a.scores[pool] = glm_ordered(score_pool(&a, pool));
    if (glm_last_block(&launch.tickets[place], (uint32_t)((a.n + SPAN - 1) / SPAN)))
        select_row(&a);
}
