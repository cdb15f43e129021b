/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of absorbed queries over latent rows, which are key and value at once: a row's selected
 * pools, then the tokens behind its last complete pool, in ascending position (docs/model.md 4).
 * A complete pool that was not selected is not attended to, even if it holds the row itself.
 *
 * A block has a chunk of 512 keys of a row for all heads: a tile of keys is converted once, into
 * shared memory, then the warps take heads in turns, two keys at a time in half a warp each. In a
 * chunk an online softmax goes by tiles; the last of a row's blocks merges the chunks in order. The
 * order of sums is the host body's, and so are the bits. */
#include "kv.cuh"

#define TILE   32  /* keys: a lane has one's weight */
#define CHUNK  512 /* keys of a block */
#define CHUNKS ((GLM_TOPK * GLM_POOL + GLM_POOL - 1 + CHUNK - 1) / CHUNK)
#define EACH   ((GLM_H + GLM_WARPS - 1) / GLM_WARPS) /* heads of a warp */
#define PAIRS  (GLM_C / 64)                          /* of channels that a lane has */
#define STRIDE (GLM_C + 16) /* of a tile's key: neighbours lie in other banks */

static_assert(TILE % GLM_POOL == 0, "pools must fill tiles");
static_assert(GLM_C % 64 == 0, "a lane has pairs of channels");

/* Softmax of part of a head's keys: out = acc / Σ l, both relative to exp(m). */
struct part {
    float m, spare[15];
    float l[16];
    float acc[GLM_C];
};

/* The same in a warp: lane l has l[l % 16], and of acc channels 2 l, 2 l + 1 of every 64. */
struct held {
    float m, l;
    float acc[PAIRS][2];
};

struct attend {
    const act_t *q;
    void *latent;
    act_t *out;
    const struct glm_round *round;
    const struct glm_round_stream *stream;
    struct part (*parts)[CHUNKS]; /* by head, of this row */
    /* unit u of the keys is pool ids[u], the last one the tail */
    const int32_t *ids;
    int32_t n_pools, tail, n, row;
};

GLM_SHARED act_t tile[TILE][STRIDE];

/* Where the latent of key t of the row's list lies. */
GLM_INLINE const char *key_row(const struct attend *a, int32_t t)
{
    const int32_t unit = t / GLM_POOL, pool = unit < a->n_pools ? a->ids[unit] : a->tail;
    const size_t bytes = GLM_KV_ROW_BYTES(GLM_C);
    return glm_state_token(a->latent, a->round, a->stream, pool * GLM_POOL, bytes) +
           (size_t)(t % GLM_POOL) * bytes;
}

/* Keys [first, first + n) as bf16, which holds them exactly in every form of the cache. */
GLM_INLINE void take_tile(const struct attend *a, int32_t first, int32_t n)
{
    glm_barrier();
    for (int32_t i = glm_thread(); i < n * (GLM_C / 16); i += GLM_BLOCK) {
        const int32_t key = i / (GLM_C / 16), c = i % (GLM_C / 16) * 16;
        float v[16];
        glm_kv_load16(v, key_row(a, first + key), c, GLM_C);
        glm_store_act8(&tile[key][c], v);
        glm_store_act8(&tile[key][c + 8], v + 8);
    }
    glm_barrier();
}

/* In lane k the score of key k of the tile; of keys that are not there it is anything. */
GLM_INLINE float score_keys(const act_t *q)
{
    const int32_t lane = glm_lane() % 16, half = glm_lane() / 16;
    float x[GLM_C / 16], score = 0.0f;
    GLM_UNROLL
    for (int i = 0; i < GLM_C / 16; i++)
        x[i] = glm_act_f32(q[16 * i + lane]);
    GLM_LOOP
    for (int j = 0; j < TILE / 2; j++) {
        const act_t *key = tile[2 * j + half];
        float dot = 0.0f;
        GLM_UNROLL
        for (int i = 0; i < GLM_C / 16; i++)
            dot = glm_fma1(x[i], glm_act_f32(key[16 * i + lane]), dot);
        dot = glm_sum16(dot) * GLM_SCALE;
        const uint32_t mine = glm_shuffle(glm_f32_bits(dot), glm_lane() % 2 * 16);
        score = glm_lane() / 2 == j ? glm_bits_f32(mine) : score;
    }
    return score;
}

GLM_INLINE float shuffle_f32(float v, int32_t lane)
{
    return glm_bits_f32(glm_shuffle(glm_f32_bits(v), lane));
}

/* acc += Σ_j p[j] key_j, j ascending; p in lane j. */
GLM_INLINE void add_values(struct held *h, float p, int32_t n)
{
    GLM_LOOP
    for (int32_t j = 0; j < n; j++) {
        const float w = shuffle_f32(p, j);
        GLM_UNROLL
        for (int i = 0; i < PAIRS; i++) {
            const uint32_t two = *(const uint32_t *)&tile[j][64 * i + 2 * glm_lane()];
            h->acc[i][0] = glm_fma1(w, glm_bits_f32(two << 16), h->acc[i][0]);
            h->acc[i][1] = glm_fma1(w, glm_bits_f32(two & 0xffff0000u), h->acc[i][1]);
        }
    }
}

GLM_INLINE void attend_tile(struct held *h, const act_t *q, int32_t n)
{
    const bool there = glm_lane() < n;
    const float any = score_keys(q), score = there ? any : -GLM_FINITE_MAX;
    float most = glm_max1(h->m, score);
    GLM_UNROLL
    for (int mask = 16; mask > 0; mask /= 2)
        most = glm_max1(most, glm_shuffle_xor_f32(most, mask));
    if (most > h->m) {
        const float by = glm_exp(h->m - most);
        GLM_UNROLL
        for (int i = 0; i < PAIRS; i++) {
            h->acc[i][0] *= by;
            h->acc[i][1] *= by;
        }
        h->l *= by;
        h->m = most;
    }
    const float e = there ? glm_exp(score - h->m) : 0.0f;
    h->l += shuffle_f32(e, glm_lane() % 16);
    h->l += shuffle_f32(e, glm_lane() % 16 + 16);
    add_values(h, glm_round_act(e), n);
}

GLM_INLINE void attend_chunk(const struct attend *a, int32_t chunk)
{
    const int32_t last = (chunk + 1) * CHUNK < a->n ? (chunk + 1) * CHUNK : a->n;
    struct held held[EACH];
    GLM_UNROLL
    for (int i = 0; i < EACH; i++) {
        held[i].m = -GLM_FINITE_MAX;
        held[i].l = 0.0f;
        GLM_UNROLL
        for (int c = 0; c < 2 * PAIRS; c++)
            held[i].acc[c / 2][c % 2] = 0.0f;
    }
    for (int32_t first = chunk * CHUNK; first < last; first += TILE) {
        const int32_t n = last - first < TILE ? last - first : TILE;
        take_tile(a, first, n);
        GLM_UNROLL
        for (int i = 0; i < EACH; i++) {
            const int32_t head = i * GLM_WARPS + glm_warp();
            if (head < GLM_H)
                attend_tile(&held[i], a->q + ((size_t)a->row * GLM_H + head) * GLM_C, n);
        }
    }
    GLM_UNROLL
    for (int i = 0; i < EACH; i++) {
        const int32_t head = i * GLM_WARPS + glm_warp();
        if (head >= GLM_H)
            break;
        struct part *p = &a->parts[head][chunk];
        if (glm_lane() == 0)
            p->m = held[i].m;
        if (glm_lane() < 16)
            p->l[glm_lane()] = held[i].l;
        GLM_UNROLL
        for (int c = 0; c < 2 * PAIRS; c++)
            p->acc[c / 2 * 64 + 2 * glm_lane() + c % 2] = held[i].acc[c / 2][c % 2];
    }
}

/* Merges a head's chunks in order and gives its row; a warp's work. */
GLM_INLINE void give_head(const struct attend *a, int32_t head)
{
    const struct part *p = a->parts[head];
    float m = p[0].m, l = p[0].l[glm_lane() % 16], acc[GLM_C / GLM_WARP];
    GLM_UNROLL
    for (int i = 0; i < GLM_C / GLM_WARP; i++)
        acc[i] = p[0].acc[i * GLM_WARP + glm_lane()];
    for (int32_t j = 1; j * CHUNK < a->n; j++) {
        const float most = glm_max1(m, p[j].m);
        const float x = glm_exp(m - most), y = glm_exp(p[j].m - most);
        m = most;
        l = glm_fma1(p[j].l[glm_lane() % 16], y, l * x);
        GLM_UNROLL
        for (int i = 0; i < GLM_C / GLM_WARP; i++)
            acc[i] = glm_fma1(p[j].acc[i * GLM_WARP + glm_lane()], y, acc[i] * x);
    }
    const float by = 1.0f / glm_sum16(l);
    act_t *out = a->out + ((size_t)a->row * GLM_H + head) * GLM_C;
    GLM_UNROLL
    for (int i = 0; i < GLM_C / GLM_WARP; i++)
        out[i * GLM_WARP + glm_lane()] = glm_f32_act(acc[i] * by);
}

GLM_KERNEL(launch)
{
    const int32_t chunk = glm_block_x(), place = glm_block_y(), r = launch.first_row + place;
    if (r >= launch.round->n_rows)
        return;
    const struct glm_row *row = &launch.round->rows[r];
    const bool live = row->stream >= 0;
    const int32_t *sel = (const int32_t *)launch.args[2] + (size_t)r * (1 + GLM_TOPK);
    const int32_t n_pools = live ? sel[0] : 0, n_seen = live ? row->position + 1 : 0;
    const struct attend a = {
        (const act_t *)launch.args[0],
        launch.args[1],
        (act_t *)launch.args[3],
        launch.round,
        launch.round->streams + (live ? row->stream : 0),
        (struct part(*)[CHUNKS])launch.scratch + (size_t)place * GLM_H,
        sel + 1,
        n_pools,
        n_seen / GLM_POOL,
        n_pools * GLM_POOL + n_seen % GLM_POOL,
        r,
    };
    if (a.n == 0 && chunk == 0)
        for (int32_t i = glm_thread(); i < GLM_H * GLM_C; i += GLM_BLOCK)
            a.out[(size_t)r * GLM_H * GLM_C + i] = 0;
    if (chunk * CHUNK >= a.n)
        return;
    attend_chunk(&a, chunk);
    if (glm_last_block(&launch.tickets[place], (uint32_t)((a.n + CHUNK - 1) / CHUNK)))
        for (int32_t head = glm_warp(); head < GLM_H; head += GLM_WARPS)
            give_head(&a, head);
}
