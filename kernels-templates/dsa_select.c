/* SPDX-License-Identifier: Apache-2.0 */
/* Which pools a row attends to: scores of the complete pools it may see, the exact TOPK largest,
 * ties to the lower pool (docs/model.md 4). While all fit there is nothing to score.
 *
 * Keys are turned once for up to GROUP rows of a stream, so that 16 pools lie in a vector and a
 * score's sum has one order: channels, then heads. Few rows are spread over all threads by spans of
 * pools; many by row. A score is kept as an integer of the same order. */
#include "kv.h"
#include "select.h"
#include "sums.h"

const uint32_t glm_kernel_abi = GLM_HOST_ABI_VERSION;

#define GROUP  8   /* rows that share a turned tile */
#define TILE   32  /* pools of a tile */
#define SPAN   512 /* pools of a work item when rows are spread; a multiple of TILE */
#define HEADS  (GLM_H % 4 == 0 ? 4 : GLM_H % 2 == 0 ? 2 : 1)
#define PADDED ((GLM_MAXPOOLS + TILE - 1) / TILE * TILE)

/* A thread's own memory behind the score rows. */
struct thread_memory {
    float q[GROUP][GLM_H * GLM_D];
    float w[GROUP][GLM_H];
    float keys[GLM_D][TILE];
};

struct select {
    const act_t *iq, *w;
    char *pooled;
    int32_t *sel;
    const struct glm_round *round;
    uint32_t (*scores)[PADDED]; /* [GROUP * threads] */
    struct thread_memory *memory;
};

/* Complete pools that row r may see. */
GLM_INLINE int32_t visible(const struct select *a, int64_t r)
{
    const struct glm_row *row = &a->round->rows[r];
    if (row->stream < 0)
        return 0;
    int32_t n = (row->position + 1) / GLM_POOL;
    return n < GLM_MAXPOOLS ? n : GLM_MAXPOOLS;
}

/* Queries and head weights of n rows from r on as floats. */
static void take_queries(const struct select *a, int64_t r, int n, struct thread_memory *m)
{
    float by = glm_inverse_root((float)GLM_H);
    for (int i = 0; i < n; i++) {
        const act_t *iq = a->iq + (size_t)(r + i) * GLM_H * GLM_D;
        const act_t *w = a->w + (size_t)(r + i) * GLM_W_STRIDE;
        for (int c = 0; c < GLM_H * GLM_D; c += 16)
            glm_store(&m->q[i][c], glm_load_act(iq + c));
        for (int h = 0; h < GLM_H; h++)
            m->w[i][h] = glm_act_f32(w[h]) * by;
    }
}

/* Keys of pools [p, p + TILE), those from `limit` on a repeat of the last: keys[channel][pool]. */
static void turn_keys(const struct select *a, const struct glm_round_stream *s, int32_t p,
                      int32_t limit, struct thread_memory *m)
{
    float rows[16][GLM_D];
    for (int t = 0; t < TILE; t += 16) {
        for (int i = 0; i < 16; i++) {
            int32_t pool = p + t + i < limit ? p + t + i : limit - 1;
            glm_kv_load(rows[i],
                        glm_state_pool(a->pooled, a->round, s, pool * GLM_POOL, GLM_POOL,
                                       GLM_KV_ROW_BYTES(GLM_D)),
                        GLM_D);
        }
        for (int c = 0; c < GLM_D; c += 16) {
            glm_f32x16 v[16];
            for (int i = 0; i < 16; i++)
                v[i] = glm_load(rows[i] + c);
            glm_transpose16(v);
            for (int i = 0; i < 16; i++)
                glm_store(&m->keys[c + i][t], v[i]);
        }
    }
}

/* Scores of a turned tile for one row: Σ_h w_h max(0, D^(-1/2) q_h · key). */
static void score_tile(const float *q, const float *w, const struct thread_memory *m, uint32_t *out)
{
    glm_f32x16 score[2] = {glm_zero(), glm_zero()};
    glm_f32x16 by = glm_splat(glm_inverse_root((float)GLM_D));
    for (int h = 0; h < GLM_H; h += HEADS) {
        glm_f32x16 dot[2 * HEADS];
        GLM_UNROLL
        for (int j = 0; j < 2 * HEADS; j++)
            dot[j] = glm_zero();
        for (int c = 0; c < GLM_D; c++) {
            glm_f32x16 k0 = glm_load(m->keys[c]), k1 = glm_load(m->keys[c] + 16);
            GLM_UNROLL
            for (int j = 0; j < HEADS; j++) {
                glm_f32x16 x = glm_splat(q[(h + j) * GLM_D + c]);
                dot[2 * j] = glm_fma(x, k0, dot[2 * j]);
                dot[2 * j + 1] = glm_fma(x, k1, dot[2 * j + 1]);
            }
        }
        GLM_UNROLL
        for (int j = 0; j < 2 * HEADS; j++)
            score[j % 2] = glm_fma(glm_splat(w[h + j / 2]),
                                   glm_max(glm_mul(dot[j], by), glm_zero()), score[j % 2]);
    }
    glm_store_u32(out, glm_ordered16(score[0]));
    glm_store_u32(out + 16, glm_ordered16(score[1]));
}

/* Pools [p, end) of n rows of one stream from r on, each as far as it sees; scores[i] is row r + i.
 */
static void score_rows(const struct select *a, int64_t r, int n, int32_t p, int32_t end,
                       struct thread_memory *m, uint32_t (*scores)[PADDED])
{
    const struct glm_round_stream *s = &a->round->streams[a->round->rows[r].stream];
    int32_t limit = visible(a, r + n - 1); /* positions ascend */
    end = end < limit ? end : limit;
    take_queries(a, r, n, m);
    for (; p < end; p += TILE) {
        turn_keys(a, s, p, limit, m);
        for (int i = 0; i < n; i++)
            if (p < visible(a, r + i) && visible(a, r + i) > GLM_TOPK)
                score_tile(m->q[i], m->w[i], m, scores[i] + p);
    }
}

/* The TOPK largest of n > TOPK keys: all above the last of them and the first of those equal to it,
 * ascending. */
static void select_top(const uint32_t *key, int32_t n, int32_t *ids)
{
    int32_t n_equal;
    uint32_t least = glm_select_largest(key, 1, n, GLM_TOPK, &n_equal);
    for (int32_t i = 0, m = 0; i < n && m < GLM_TOPK; i++)
        if (key[i] > least || (key[i] == least && n_equal-- > 0))
            ids[m++] = i;
}

static void finish_row(const struct select *a, int64_t r, const uint32_t *scores)
{
    int32_t *sel = a->sel + (size_t)r * (1 + GLM_TOPK), n = visible(a, r);
    sel[0] = n < GLM_TOPK ? n : GLM_TOPK;
    if (n > GLM_TOPK)
        select_top(scores, n, sel + 1);
    else
        for (int32_t i = 0; i < n; i++)
            sel[1 + i] = i;
}

/* Few rows: spans of pools over all threads, then rows. */
static void spread_rows(const struct glm_launch *launch, const struct select *a, int64_t n_rows)
{
    int64_t n_spans = 0, first, last;
    for (int64_t r = 0; r < n_rows; r++) {
        int64_t n = visible(a, r) > GLM_TOPK ? (visible(a, r) + SPAN - 1) / SPAN : 0;
        n_spans = n > n_spans ? n : n_spans;
    }
    glm_part(launch, n_spans * n_rows, &first, &last);
    for (int64_t i = first; i < last; i++) {
        int64_t r = i / n_spans;
        int32_t p = (int32_t)(i % n_spans) * SPAN;
        if (visible(a, r) > GLM_TOPK && p < visible(a, r))
            score_rows(a, r, 1, p, p + SPAN, a->memory, a->scores + r);
    }
    if (n_spans > 0)
        glm_barrier(launch);
    glm_part(launch, n_rows, &first, &last);
    for (int64_t r = first; r < last; r++)
        finish_row(a, r, a->scores[r]);
}

void glm_kernel(const struct glm_launch *launch, void *const *args)
{
    struct select a = {args[0], args[1], args[2], args[3], launch->round, launch->scratch, NULL};
    struct thread_memory *memory = (void *)(a.scores + (size_t)GROUP * launch->n_threads);
    int64_t n_rows = launch->round->n_rows, first, last;
    a.memory = memory + launch->thread;
    if (n_rows <= 2 * (int64_t)launch->n_threads) {
        spread_rows(launch, &a, n_rows);
        return;
    }
    a.scores += (size_t)GROUP * launch->thread;
    glm_part(launch, n_rows, &first, &last);
    while (first < last) {
        int n = 1;
        while (n < GROUP && first + n < last &&
               launch->round->rows[first + n].stream == launch->round->rows[first].stream)
            n++;
        if (visible(&a, first + n - 1) > GLM_TOPK)
            score_rows(&a, first, n, 0, GLM_MAXPOOLS, a.memory, a.scores);
        for (int i = 0; i < n; i++)
            finish_row(&a, first + i, a.scores[i]);
        first += n;
    }
}
