/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's offer to the draw of each wanted row, from its shard of the logits (record: draw.h):
 * masks, the largest logits in order and their share of the log-sum-exp, or where nothing cuts the
 * largest logit / T + G. The order of sums is the host body's, and so are the bits.
 *
 * A block works IDS ids of a row and leaves its best entries in scratch; the last of a row's blocks
 * puts them together. */
#include "prelude.cuh"

#include "draw.h"

#define IDS      2048
#define BLOCKS   (GLM_V > IDS ? (GLM_V + IDS - 1) / IDS : 1)
#define PER      (GLM_C < IDS ? GLM_C : IDS) /* entries that a block may hand on */
#define SLOTS    (BLOCKS * PER)
#define RECORD   (GLM_DRAW_HEADER + 2 * GLM_C)
#define MAX_ENDS 8

struct entry {
    uint32_t key; /* ordered logit; 0: none */
    int32_t id;
};

struct head {
    int32_t n, n_valid;
    uint32_t most; /* the largest key */
    int32_t spare;
    double number; /* as in the record, relative to the block's best */
};

/* A row's part of scratch. */
struct row {
    struct head heads[BLOCKS];
    struct entry slots[SLOTS]; /* PER a block, ids ascending, the rest none */
    struct entry room[2][SLOTS];
};

struct offer {
    const struct glm_draw *draw;
    const float *logits;
    const int32_t *ends;
    int32_t *record;
    struct row *row;
};

/* ---- Over the block ---- */

/* In every thread the sum over the block. */
GLM_INLINE int32_t block_sum(int32_t v)
{
    GLM_SHARED int32_t part[GLM_WARPS];
    GLM_UNROLL
    for (int mask = 16; mask > 0; mask /= 2)
        v += (int32_t)glm_shuffle_xor((uint32_t)v, mask);
    glm_barrier();
    if (glm_lane() == 0)
        part[glm_warp()] = v;
    glm_barrier();
    v = 0;
    GLM_UNROLL
    for (int w = 0; w < GLM_WARPS; w++)
        v += part[w];
    return v;
}

/* An id among others: by x, then by key, then the lower id; id < 0: none. */
struct best {
    double x;
    uint32_t key;
    int32_t id;
};

GLM_INLINE struct best better(struct best a, struct best b)
{
    if (a.id < 0 || b.id < 0)
        return a.id < 0 ? b : a;
    if (a.x != b.x)
        return a.x > b.x ? a : b;
    if (a.key != b.key)
        return a.key > b.key ? a : b;
    return a.id < b.id ? a : b;
}

GLM_INLINE struct best best_of_block(struct best mine)
{
    GLM_SHARED struct best part[GLM_WARPS];
    GLM_UNROLL
    for (int mask = 16; mask > 0; mask /= 2) {
        const uint64_t x = glm_draw_bits(mine.x);
        const uint64_t low = glm_shuffle_xor((uint32_t)x, mask);
        const uint64_t high = glm_shuffle_xor((uint32_t)(x >> 32), mask);
        const struct best other = {glm_draw_double(low | high << 32),
                                   glm_shuffle_xor(mine.key, mask),
                                   (int32_t)glm_shuffle_xor((uint32_t)mine.id, mask)};
        mine = better(mine, other);
    }
    glm_barrier();
    if (glm_lane() == 0)
        part[glm_warp()] = mine;
    glm_barrier();
    mine = part[0];
    GLM_UNROLL
    for (int w = 1; w < GLM_WARPS; w++)
        mine = better(mine, part[w]);
    return mine;
}

/* ---- The largest of a list ---- */

/* The take-th largest key of n entries that hold more than take keys, bit by bit from the highest;
 * *n_equal: how many of those equal to it are among the take largest. */
GLM_INLINE uint32_t take_largest(const struct entry *list, int32_t n, int32_t take,
                                 int32_t *n_equal)
{
    uint32_t least = 0;
    int32_t n_more = 0;
    for (int bit = 31; bit >= 0; bit--) {
        const uint32_t tried = least | 1u << bit;
        int32_t count = 0;
        for (int32_t i = glm_thread(); i < n; i += GLM_BLOCK)
            count += list[i].key >= tried;
        count = block_sum(count);
        if (count >= take)
            least = tried;
        else
            n_more = count; /* of the last refusal: keys above what least ends as */
    }
    *n_equal = take - n_more;
    return least;
}

/* The entries with keys above `least` and the first n_equal equal to it, in order; their number. */
GLM_INLINE int32_t collect(const struct entry *list, int32_t n, uint32_t least, int32_t n_equal,
                           struct entry *out)
{
    GLM_SHARED uint32_t more[GLM_WARPS], equal[GLM_WARPS];
    int32_t kept = 0;
    for (int32_t first = 0; first < n; first += GLM_BLOCK) {
        const int32_t i = first + glm_thread();
        const struct entry none = {0, 0}, e = i < n ? list[i] : none;
        const uint32_t before = (1u << glm_lane()) - 1;
        const uint32_t m = glm_ballot(e.key > least), q = glm_ballot(e.key == least && e.key != 0);
        if (glm_lane() == 0) {
            more[glm_warp()] = m;
            equal[glm_warp()] = q;
        }
        glm_barrier();
        int32_t n_m = 0, n_q = 0, all_m = 0, all_q = 0;
        for (int w = 0; w < GLM_WARPS; w++) {
            n_m += w < glm_warp() ? glm_ones(more[w]) : 0;
            n_q += w < glm_warp() ? glm_ones(equal[w]) : 0;
            all_m += glm_ones(more[w]);
            all_q += glm_ones(equal[w]);
        }
        n_m += glm_ones(m & before);
        n_q += glm_ones(q & before);
        /* of equal ones before this, those that are kept */
        const int32_t kept_q = n_q < n_equal ? n_q : n_equal;
        const bool is_more = (m >> glm_lane() & 1u) != 0;
        if (is_more || ((q >> glm_lane() & 1u) != 0 && n_q < n_equal))
            out[kept + n_m + kept_q] = e;
        kept += all_m + (all_q < n_equal ? all_q : n_equal);
        n_equal -= all_q < n_equal ? all_q : n_equal;
        glm_barrier();
    }
    return kept;
}

/* Sorts by key, descending; equal keys stay in order. Each pass merges pairs of runs: an entry
 * counts those of the other run that come before it. Returns where the result is. */
GLM_INLINE struct entry *sort_entries(struct entry *from, struct entry *other, int32_t n)
{
    for (int32_t width = 1; width < n; width *= 2) {
        glm_barrier();
        for (int32_t i = glm_thread(); i < n; i += GLM_BLOCK) {
            const int32_t first = i / (2 * width) * (2 * width);
            const int32_t middle = first + width < n ? first + width : n;
            const int32_t end = middle + width < n ? middle + width : n;
            const bool is_left = i < middle;
            int32_t low = is_left ? middle : first, high = is_left ? end : middle;
            const int32_t start = low;
            while (low < high) {
                const int32_t at = low + (high - low) / 2;
                const bool before =
                    is_left ? from[at].key > from[i].key : from[at].key >= from[i].key;
                low = before ? at + 1 : low;
                high = before ? high : at;
            }
            other[(is_left ? i : first + i - middle) + low - start] = from[i];
        }
        struct entry *t = from;
        from = other;
        other = t;
    }
    glm_barrier();
    return from;
}

/* ---- Logits as integers of the same order ---- */

GLM_INLINE uint32_t ordered(float x)
{
    x = x == x ? glm_max1(glm_min1(x, GLM_FINITE_MAX), -GLM_FINITE_MAX) : -GLM_FINITE_MAX;
    const uint32_t u = glm_f32_bits(x + 0.0f);
    return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}
GLM_INLINE float logit_of(uint32_t key)
{
    return glm_bits_f32((key & 0x80000000u) != 0 ? key ^ 0x80000000u : ~key);
}

/* ---- A block of ids ---- */

GLM_SHARED struct entry ids[IDS];

/* Fills ids[] from `first` of the shard on; the number that may be drawn. */
GLM_INLINE int32_t take_keys(const struct offer *a, int32_t first, int32_t n)
{
    GLM_SHARED int32_t n_valid;
    for (int32_t i = glm_thread(); i < IDS; i += GLM_BLOCK) {
        ids[i].key = i < n ? ordered(a->logits[first + i]) : 0;
        ids[i].id = GLM_FIRST + first + i;
    }
    glm_barrier();
    if (glm_thread() == 0) {
        n_valid = n;
        for (int i = 0; (a->draw->flags & GLM_DRAW_NO_END) != 0 && i < MAX_ENDS && a->ends[i] >= 0;
             i++) {
            const int32_t at = a->ends[i] - GLM_FIRST - first;
            if (at >= 0 && at < n && ids[at].key != 0) {
                ids[at].key = 0;
                n_valid--;
            }
        }
    }
    glm_barrier();
    return n_valid;
}

/* The largest key, or where nothing cuts the largest logit / T + G. */
GLM_INLINE struct best best_of_ids(const struct glm_draw *d, int32_t n, bool noisy)
{
    const double t = glm_draw_temperature(d);
    const uint64_t noise = glm_draw_key(d->seed, d->position);
    struct best best = {0.0, 0, -1};
    for (int32_t i = glm_thread(); i < n; i += GLM_BLOCK) {
        const struct entry e = ids[i];
        const struct best next = {
            noisy ? (double)logit_of(e.key) / t + glm_draw_gumbel(noise, e.id) : 0.0, e.key, e.id};
        if (e.key != 0)
            best = better(best, next);
    }
    return best_of_block(best);
}

/* Σ exp(l - l of the key `most`) over the block's ids, masked ones left out, in 8 lanes. */
GLM_INLINE double sum_of_ids(const struct glm_draw *d, uint32_t most)
{
    GLM_SHARED double terms[IDS], lanes[8];
    const double t = glm_draw_temperature(d), first = (double)logit_of(most) / t;
    for (int32_t i = glm_thread(); i < IDS; i += GLM_BLOCK)
        terms[i] = ids[i].key != 0 ? glm_draw_exp((double)logit_of(ids[i].key) / t - first) : 0.0;
    glm_barrier();
    if (glm_thread() < 8) {
        double sum = 0.0;
        for (int32_t i = glm_thread(); i < IDS; i += 8)
            sum += terms[i];
        lanes[glm_thread()] = sum;
    }
    glm_barrier();
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
           ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

/* Leaves the block's head and entries in scratch. */
GLM_INLINE void work_block(const struct offer *a, int32_t block)
{
    const int32_t first = block * IDS;
    int32_t n = GLM_VALID - GLM_FIRST;
    n = (n < 0 ? 0 : n < GLM_V ? n : GLM_V) - first;
    n = n < 0 ? 0 : n < IDS ? n : IDS;
    struct entry *slots = a->row->slots + block * PER;
    struct head h = {0, take_keys(a, first, n), 0, 0, 0.0};
    const enum glm_draw_mode mode = glm_draw_mode(a->draw);
    const struct best best = best_of_ids(a->draw, n, mode == GLM_DRAW_FREE);
    h.most = best.key;
    if (mode == GLM_DRAW_CUT && h.n_valid > 0) {
        int32_t take = glm_draw_offers(a->draw, PER), n_equal = 0;
        uint32_t least = 0;
        if (h.n_valid > take)
            least = take_largest(ids, n, take, &n_equal);
        h.n = collect(ids, n, least, n_equal, slots);
        if (a->draw->top_k <= 0 && glm_draw_has_top_p(a->draw))
            h.number = sum_of_ids(a->draw, h.most);
    } else if (best.id >= 0) {
        h.n = 1;
        h.number = best.x;
        if (glm_thread() == 0) {
            slots[0].key = best.key;
            slots[0].id = best.id;
        }
    }
    for (int32_t i = h.n + glm_thread(); i < PER; i += GLM_BLOCK)
        slots[i].key = 0;
    if (glm_thread() == 0)
        a->row->heads[block] = h;
}

/* ---- A row ---- */

/* The blocks' sums relative to the row's best, blocks in order. */
GLM_INLINE double sum_of_row(const struct offer *a, uint32_t most)
{
    GLM_SHARED double total;
    struct head *heads = a->row->heads;
    const double t = glm_draw_temperature(a->draw), first = (double)logit_of(most) / t;
    for (int32_t b = glm_thread(); b < BLOCKS; b += GLM_BLOCK)
        heads[b].number *=
            heads[b].n > 0 ? glm_draw_exp((double)logit_of(heads[b].most) / t - first) : 0.0;
    glm_barrier();
    if (glm_thread() == 0) {
        double sum = 0.0;
        for (int32_t b = 0; b < BLOCKS; b++)
            sum += heads[b].number;
        total = sum;
    }
    glm_barrier();
    return total;
}

GLM_INLINE void give_record(const struct offer *a, int32_t n, int32_t n_valid, double number,
                            const struct entry *list)
{
    const uint64_t bits = glm_draw_bits(number);
    for (int32_t i = glm_thread(); i < RECORD; i += GLM_BLOCK) {
        const int32_t at = (i - GLM_DRAW_HEADER) / 2;
        int32_t word = 0;
        if (i < GLM_DRAW_HEADER)
            word = i == 0 ? n : i == 1 ? n_valid : (int32_t)(uint32_t)(i == 2 ? bits : bits >> 32);
        else if (at < n)
            word = i % 2 == 0 ? (int32_t)glm_f32_bits(logit_of(list[at].key)) : list[at].id;
        a->record[i] = word;
    }
}

GLM_INLINE void give_row(const struct offer *a)
{
    struct row *row = a->row;
    const bool cut = glm_draw_mode(a->draw) == GLM_DRAW_CUT;
    int32_t n = 0, n_valid = 0;
    struct best best = {0.0, 0, -1};
    for (int32_t b = glm_thread(); b < BLOCKS; b += GLM_BLOCK) {
        const struct head h = row->heads[b];
        const struct entry e = row->slots[b * PER];
        const struct best next = {cut ? 0.0 : h.number, cut ? h.most : e.key, e.id};
        n += h.n;
        n_valid += h.n_valid;
        if (h.n > 0)
            best = better(best, next);
    }
    n = block_sum(n);
    n_valid = block_sum(n_valid);
    best = best_of_block(best);
    if (best.id < 0) {
        give_record(a, 0, 0, 0.0, nullptr);
        return;
    }
    if (!cut) {
        if (glm_thread() == 0) {
            row->room[0][0].key = best.key;
            row->room[0][0].id = best.id;
        }
        glm_barrier();
        give_record(a, 1, n_valid, best.x, row->room[0]);
        return;
    }
    const int32_t take = glm_draw_offers(a->draw, GLM_C);
    int32_t n_equal = 0;
    uint32_t least = 0;
    if (n > take)
        least = take_largest(row->slots, SLOTS, take, &n_equal);
    n = collect(row->slots, SLOTS, least, n_equal, row->room[0]);
    const struct entry *list = sort_entries(row->room[0], row->room[1], n);
    give_record(a, n, n_valid, sum_of_row(a, best.key), list);
}

GLM_KERNEL(launch)
{
    const int32_t block = glm_block_x(), o = glm_block_y();
    if (o >= launch.round->n_out)
        return;
    const struct offer a = {
        &launch.round->draws[o],          (const float *)launch.args[0] + (size_t)o * GLM_V,
        (const int32_t *)launch.args[1],  (int32_t *)launch.args[2] + (size_t)o * RECORD,
        (struct row *)launch.scratch + o,
    };
    work_block(&a, block);
    if (glm_last_block(&launch.tickets[o], BLOCKS))
        give_row(&a);
}
