/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of absorbed queries over latent rows, which are key and value at once: a row's selected
 * pools, then the tokens behind its last complete pool, in ascending position (docs/model.md 4).
 * A complete pool that was not selected is not attended to, even if it holds the row itself.
 *
 * A row's keys are cut into chunks of CHUNK by their number in its own list. In a chunk an online
 * softmax goes by tiles; chunks are merged in order. Heads do not meet, so work is divided by (row,
 * heads), or for few heads and long contexts by (row, head, chunk), with equal bits. */
#include "kv.h"
#include "sums.h"

const uint32_t glm_kernel_abi = GLM_HOST_ABI_VERSION;

#define TILE   (GLM_POOL > 32 ? GLM_POOL : 32) /* keys */
#define CHUNK  512                             /* keys: a multiple of TILE */
#define UNITS  (TILE / GLM_POOL)               /* pools of a tile */
#define GROUP  8                               /* heads that share a converted tile */
#define COLS   (GLM_C % 128 == 0 ? 8 : GLM_C % 64 == 0 ? 4 : 1) /* value vectors in registers */
#define CHUNKS ((GLM_TOPK * GLM_POOL + GLM_POOL - 1 + CHUNK - 1) / CHUNK)
#define FEW    (1 << 18) /* products below which one thread is faster than a barrier */

_Static_assert(32 % GLM_POOL == 0 || GLM_POOL % 32 == 0, "pools must fill tiles");

/* Softmax of part of a head's keys: out = acc / Σ l, both relative to exp(m). */
struct part {
    float m, spare[15];
    float l[16];
    float acc[GLM_C];
};

struct attend {
    const act_t *q;
    char *latent;
    const int32_t *sel;
    act_t *out;
    const struct glm_round *round;
};

/* The keys of a row: unit u is pool ids[u], the last one the tail. */
struct keys {
    const struct glm_round_stream *stream;
    const int32_t *ids;
    int32_t n_pools, tail, n; /* tail: number of the pool that is not complete yet */
};

static struct keys row_keys(const struct attend *a, int64_t r)
{
    const struct glm_row *row = &a->round->rows[r];
    struct keys k = {NULL, a->sel + (size_t)r * (1 + GLM_TOPK) + 1, 0, 0, 0};
    if (row->stream < 0)
        return k;
    k.stream = &a->round->streams[row->stream];
    k.n_pools = k.ids[-1];
    k.tail = (row->position + 1) / GLM_POOL;
    k.n = k.n_pools * GLM_POOL + (row->position + 1) % GLM_POOL;
    return k;
}

/* Where the latents of the units of a tile lie; `room` takes them when they must be converted. */
static void find_tile(const struct attend *a, const struct keys *k, int32_t first, int n,
                      const float **unit, float *room)
{
    const size_t bytes = GLM_KV_ROW_BYTES(GLM_C);
    for (int u = 0; u < UNITS; u++) {
        int32_t at = first / GLM_POOL + (u * GLM_POOL < n ? u : 0);
        int32_t pool = at < k->n_pools ? k->ids[at] : k->tail;
        const char *row = glm_state_token(a->latent, a->round, k->stream, pool * GLM_POOL, bytes);
#if defined(GLM_KV_fp32)
        (void)room;
        unit[u] = (const float *)(const void *)row;
#else
        unit[u] = room + u * GLM_POOL * GLM_C;
        for (int i = 0; i < GLM_POOL && u * GLM_POOL + i < n; i++)
            glm_kv_load(room + (u * GLM_POOL + i) * GLM_C, row + (size_t)i * bytes, GLM_C);
#endif
    }
}

GLM_INLINE const float *tile_row(const float *const *unit, int j)
{
    return unit[j / GLM_POOL] + j % GLM_POOL * GLM_C;
}

/* Scores of 16 keys; those that are not there are anything. */
GLM_INLINE glm_f32x16 score_keys(const float *q, const float *const *unit, int j0)
{
    glm_f32x16 dot[16];
    GLM_UNROLL
    for (int j = 0; j < 16; j++)
        dot[j] = glm_zero();
    for (int c = 0; c < GLM_C; c += 16) {
        glm_f32x16 x = glm_load(q + c);
        GLM_UNROLL
        for (int j = 0; j < 16; j++)
            dot[j] = glm_fma(x, glm_load(tile_row(unit, j0 + j) + c), dot[j]);
    }
    return glm_mul(glm_sum16_each(dot), glm_splat(GLM_SCALE));
}

/* acc += Σ_j p[j] key_j, j ascending. */
static void add_values(float *acc, const float *p, const float *const *unit, int n)
{
    for (int c = 0; c < GLM_C; c += 16 * COLS) {
        glm_f32x16 v[COLS];
        GLM_UNROLL
        for (int i = 0; i < COLS; i++)
            v[i] = glm_load(acc + c + 16 * i);
        for (int j = 0; j < n; j++) {
            const float *row = tile_row(unit, j) + c;
            glm_f32x16 w = glm_splat(p[j]);
            GLM_UNROLL
            for (int i = 0; i < COLS; i++)
                v[i] = glm_fma(w, glm_load(row + 16 * i), v[i]);
        }
        GLM_UNROLL
        for (int i = 0; i < COLS; i++)
            glm_store(acc + c + 16 * i, v[i]);
    }
}

GLM_INLINE void scale_floats(float *x, float by, int n)
{
    for (int i = 0; i < n; i += 16)
        glm_store(x + i, glm_mul(glm_load(x + i), glm_splat(by)));
}

static void attend_tile(struct part *part, const float *q, const float *const *unit, int n)
{
    static const int32_t lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    glm_f32x16 score[TILE / 16], most = glm_splat(part->m), l = glm_load(part->l);
    float p[TILE];
    for (int g = 0; g < TILE / 16; g++) {
        glm_i32x16 there = glm_gt_i32(glm_splat_i32(n - 16 * g), glm_load_i32(lanes));
        score[g] = glm_select(there, score_keys(q, unit, 16 * g), glm_splat(-GLM_FINITE_MAX));
        most = glm_max(most, score[g]);
    }
    float m = glm_max16(most);
    if (m > part->m) {
        float by = glm_exp(part->m - m);
        scale_floats(part->acc, by, GLM_C);
        l = glm_mul(l, glm_splat(by));
        part->m = m;
    }
    for (int g = 0; g < TILE / 16; g++) {
        glm_i32x16 there = glm_gt_i32(glm_splat_i32(n - 16 * g), glm_load_i32(lanes));
        glm_f32x16 e = glm_exp16(glm_sub(score[g], glm_splat(m)));
        e = glm_select(there, e, glm_zero());
        l = glm_add(l, e);
        glm_store(p + 16 * g, glm_round_act16(e));
    }
    glm_store(part->l, l);
    add_values(part->acc, p, unit, n);
}

/* Keys [first, last) of a row for n_heads heads from h on. */
static void attend_chunk(const struct attend *a, int64_t r, const struct keys *k, int32_t first,
                         int32_t last, int h, int n_heads, struct part *part)
{
    float q[GROUP][GLM_C];
#if defined(GLM_KV_fp32)
    float *room = NULL;
#else
    float room[TILE * GLM_C];
#endif
    for (int i = 0; i < n_heads; i++) {
        const act_t *from = a->q + ((size_t)r * GLM_H + (size_t)(h + i)) * GLM_C;
        for (int c = 0; c < GLM_C; c += 16)
            glm_store(&q[i][c], glm_load_act(from + c));
        __builtin_memset(&part[i], 0, sizeof part[i]);
        part[i].m = -GLM_FINITE_MAX;
    }
    for (; first < last; first += TILE) {
        const float *unit[UNITS];
        int n = last - first < TILE ? last - first : TILE;
        find_tile(a, k, first, n, unit, room);
        for (int i = 0; i < n_heads; i++)
            attend_tile(&part[i], q[i], unit, n);
    }
}

/* total := total and next together. */
static void merge(struct part *total, const struct part *next)
{
    float m = glm_max1(total->m, next->m), x = glm_exp(total->m - m), y = glm_exp(next->m - m);
    glm_f32x16 by = glm_splat(x), other = glm_splat(y);
    total->m = m;
    glm_store(total->l, glm_fma(glm_load(next->l), other, glm_mul(glm_load(total->l), by)));
    for (int c = 0; c < GLM_C; c += 16)
        glm_store(total->acc + c,
                  glm_fma(glm_load(next->acc + c), other, glm_mul(glm_load(total->acc + c), by)));
}

static void give(const struct attend *a, int64_t r, int h, const struct part *total)
{
    act_t *out = a->out + ((size_t)r * GLM_H + (size_t)h) * GLM_C;
    glm_f32x16 by = glm_splat(1.0f / glm_sum16(glm_load(total->l)));
    for (int c = 0; c < GLM_C; c += 16)
        glm_store_act(out + c, glm_mul(glm_load(total->acc + c), by));
}

static void give_nothing(const struct attend *a, int64_t r, int h, int n_heads)
{
    __builtin_memset(a->out + ((size_t)r * GLM_H + (size_t)h) * GLM_C, 0,
                     (size_t)n_heads * GLM_C * sizeof(act_t));
}

static void attend_heads(const struct attend *a, int64_t r, int h, int n_heads)
{
    struct keys k = row_keys(a, r);
    struct part total[GROUP], next[GROUP];
    if (k.n == 0) {
        give_nothing(a, r, h, n_heads);
        return;
    }
    for (int32_t first = 0; first < k.n; first += CHUNK) {
        int32_t last = first + CHUNK < k.n ? first + CHUNK : k.n;
        attend_chunk(a, r, &k, first, last, h, n_heads, first == 0 ? total : next);
        for (int i = 0; first > 0 && i < n_heads; i++)
            merge(&total[i], &next[i]);
    }
    for (int i = 0; i < n_heads; i++)
        give(a, r, h + i, &total[i]);
}

/* Fewer (row, head)s than threads: their chunks over all threads, kept in scratch. */
static void attend_by_chunk(const struct glm_launch *launch, const struct attend *a)
{
    struct part(*parts)[CHUNKS] = launch->scratch;
    int64_t n_items = (int64_t)launch->round->n_rows * GLM_H, first, last;
    glm_part(launch, n_items * CHUNKS, &first, &last);
    for (int64_t i = first; i < last; i++) {
        int64_t item = i / CHUNKS;
        struct keys k = row_keys(a, item / GLM_H);
        int32_t from = (int32_t)(i % CHUNKS) * CHUNK, to = from + CHUNK < k.n ? from + CHUNK : k.n;
        if (from < k.n)
            attend_chunk(a, item / GLM_H, &k, from, to, (int)(item % GLM_H), 1,
                         &parts[item][i % CHUNKS]);
    }
    glm_barrier(launch);
    glm_part(launch, n_items, &first, &last);
    for (int64_t i = first; i < last; i++) {
        struct keys k = row_keys(a, i / GLM_H);
        for (int32_t j = 1; j * CHUNK < k.n; j++)
            merge(&parts[i][0], &parts[i][j]);
        if (k.n > 0)
            give(a, i / GLM_H, (int)(i % GLM_H), &parts[i][0]);
        else
            give_nothing(a, i / GLM_H, (int)(i % GLM_H), 1);
    }
}

void glm_kernel(const struct glm_launch *launch, void *const *args)
{
    const struct attend a = {args[0], args[1], args[2], args[3], launch->round};
    int64_t n_rows = launch->round->n_rows, n_threads = launch->n_threads, longest = 0, first, last;
    for (int64_t r = 0; n_rows * GLM_H < n_threads && r < n_rows; r++) {
        int64_t n = row_keys(&a, r).n;
        longest = n > longest ? n : longest;
    }
    if (longest > CHUNK && longest * GLM_H * GLM_C > FEW) {
        attend_by_chunk(launch, &a);
        return;
    }
    int by = n_rows * ((GLM_H + GROUP - 1) / GROUP) < 2 * n_threads ? 1 : GROUP;
    int64_t groups = (GLM_H + by - 1) / by;
    glm_part(launch, n_rows * groups, &first, &last);
    for (int64_t i = first; i < last; i++) {
        int h = (int)(i % groups) * by;
        attend_heads(&a, i / groups, h, h + by < GLM_H ? by : GLM_H - h);
    }
}
