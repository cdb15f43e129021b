/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's offer to the draw of each wanted row, from its shard of the logits (record: draw.h):
 * masks, the largest logits in order and their share of the log-sum-exp, or where nothing cuts the
 * largest logit / T + G.
 *
 * Rows go in batches. Of a batch, blocks of BLOCK ids are worked by all threads, then the blocks of
 * a row are put together by one: sums in 8 lanes of a block, blocks in order. */
#include "draw.h"
#include "select.h"

const uint32_t glm_kernel_abi = GLM_HOST_ABI_VERSION;

#define BLOCK    2048
#define BLOCKS   (GLM_V > BLOCK ? (GLM_V + BLOCK - 1) / BLOCK : 1)
#define PER      (GLM_C < BLOCK ? GLM_C : BLOCK) /* entries that a block may hand on */
#define BATCH    (BLOCKS * PER <= 8192 ? 8 : 1)  /* rows a thread */
#define RECORD   (GLM_DRAW_HEADER + 2 * GLM_C)
#define MAX_ENDS 8

struct entry {
    uint32_t key; /* ordered logit */
    int32_t id;
};

struct block {
    int32_t n, n_valid;
    double number;             /* as in the record, relative to the block's best */
    struct entry entries[PER]; /* ids ascending */
};

struct offer {
    const float *logits;
    const int32_t *ends;
    int32_t *cand;
    const struct glm_round *round;
};

/* Ids of the shard that are no padding of the vocabulary. */
GLM_INLINE int32_t shard_ids(void)
{
    int32_t n = GLM_VALID - GLM_FIRST;
    return n < 0 ? 0 : n < GLM_V ? n : GLM_V;
}

/* Ordered logits of ids [first, first + n) of the shard, n <= BLOCK; NaN counts as the smallest. A
 * masked id has key 0. Returns the number of those that are left. */
static int32_t take_keys(const struct offer *a, int64_t o, int32_t first, int32_t n, uint32_t *key)
{
    const float *logits = a->logits + (size_t)o * GLM_V + first;
    const glm_f32x16 most = glm_splat(GLM_FINITE_MAX), least = glm_splat(-GLM_FINITE_MAX);
    for (int32_t i = 0; i < n; i += 16) {
        glm_f32x16 x = n - i >= 16 ? glm_load(logits + i) : glm_load_n(logits + i, n - i);
        x = glm_select(glm_eq(x, x), glm_max(glm_min(x, most), least), least);
        glm_store_u32(key + i, glm_ordered16(x));
    }
    int32_t n_valid = n;
    if ((a->round->draws[o].flags & GLM_DRAW_NO_END) == 0)
        return n_valid;
    for (int i = 0; i < MAX_ENDS && a->ends[i] >= 0; i++) {
        int32_t at = a->ends[i] - GLM_FIRST - first;
        if (at >= 0 && at < n && key[at] != 0) {
            key[at] = 0;
            n_valid--;
        }
    }
    return n_valid;
}

/* The largest key, the lowest id among equals. */
static void best_of_block(const uint32_t *key, int32_t first, int32_t n, struct block *b)
{
    uint32_t most = 0;
    for (int32_t i = 0; i < n; i++)
        most = key[i] > most ? key[i] : most;
    int32_t at = 0;
    while (key[at] != most)
        at++;
    b->n = 1;
    b->entries[0] = (struct entry){most, GLM_FIRST + first + at};
}

/* The largest logit / T + G, equal ones in the order of their logits and ids. */
static void free_of_block(const struct glm_draw *d, const uint32_t *key, int32_t first, int32_t n,
                          struct block *b)
{
    const double t = glm_draw_temperature(d);
    const uint64_t noise = glm_draw_key(d->seed, d->position);
    int32_t best = -1;
    for (int32_t i = 0; i < n; i += 16) {
        double x[16];
        for (int32_t j = 0; j < 16; j++)
            x[j] = (double)glm_ordered_f32(key[i + j]) / t +
                   glm_draw_gumbel(noise, GLM_FIRST + first + i + j);
        for (int32_t j = 0; j < 16 && i + j < n; j++)
            if (key[i + j] != 0 &&
                (best < 0 || x[j] > b->number || (x[j] == b->number && key[i + j] > key[best]))) {
                best = i + j;
                b->number = x[j];
            }
    }
    b->n = 1;
    b->entries[0] = (struct entry){key[best], GLM_FIRST + first + best};
}

/* Σ exp(l - l of the key `most`) over a block, masked ids left out. */
static double sum_of_block(const struct glm_draw *d, const uint32_t *key, int32_t n, uint32_t most)
{
    const double t = glm_draw_temperature(d), first = (double)glm_ordered_f32(most) / t;
    double sum[8] = {0};
    for (int32_t i = 0; i < n; i += 8)
        for (int32_t j = 0; j < 8; j++) {
            double e = glm_draw_exp((double)glm_ordered_f32(key[i + j]) / t - first);
            sum[j] += key[i + j] != 0 ? e : 0.0;
        }
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

static void list_of_block(const struct glm_draw *d, const uint32_t *key, int32_t first, int32_t n,
                          struct block *b)
{
    int32_t n_equal, take = glm_draw_offers(d, PER);
    take = take < b->n_valid ? take : b->n_valid;
    uint32_t least = glm_select_largest(key, 1, n, take, &n_equal), most = 0;
    b->n = 0;
    for (int32_t i = 0; i < n && b->n < take; i++)
        if (key[i] > least || (key[i] == least && n_equal-- > 0)) {
            b->entries[b->n++] = (struct entry){key[i], GLM_FIRST + first + i};
            most = key[i] > most ? key[i] : most;
        }
    if (d->top_k <= 0 && glm_draw_has_top_p(d))
        b->number = sum_of_block(d, key, n, most);
}

static void work_block(const struct offer *a, int64_t o, int32_t block, struct block *b)
{
    uint32_t key[BLOCK];
    const struct glm_draw *d = &a->round->draws[o];
    int32_t first = block * BLOCK, n = shard_ids() - first;
    n = n < 0 ? 0 : n < BLOCK ? n : BLOCK;
    b->n = 0;
    b->number = 0.0;
    b->n_valid = take_keys(a, o, first, n, key);
    for (int32_t i = n; i < (n + 15) / 16 * 16; i++)
        key[i] = 0;
    if (b->n_valid == 0)
        return;
    switch (glm_draw_mode(d)) {
    case GLM_DRAW_GREEDY:
        best_of_block(key, first, n, b);
        break;
    case GLM_DRAW_FREE:
        free_of_block(d, key, first, n, b);
        break;
    case GLM_DRAW_CUT:
        list_of_block(d, key, first, n, b);
        break;
    }
}

/* Sorts by key, descending; equal keys stay in order. Uses `other`; returns where the result is. */
static struct entry *sort_entries(struct entry *from, struct entry *other, int32_t n)
{
    for (int32_t width = 1; width < n; width *= 2) {
        for (int32_t i = 0; i < n; i += 2 * width) {
            int32_t middle = i + width < n ? i + width : n;
            int32_t end = middle + width < n ? middle + width : n;
            for (int32_t l = i, r = middle, to = i; to < end; to++)
                other[to] =
                    r >= end || (l < middle && from[l].key >= from[r].key) ? from[l++] : from[r++];
        }
        struct entry *t = from;
        from = other;
        other = t;
    }
    return from;
}

/* Entries of a row's blocks, the `take` largest of them if there are more, in order. */
static struct entry *list_of_row(const struct block *blocks, int32_t take, struct entry *room,
                                 int32_t *n)
{
    int32_t m = 0, n_equal, kept = 0;
    for (int b = 0; b < BLOCKS; b++)
        for (int32_t i = 0; i < blocks[b].n; i++)
            room[m++] = blocks[b].entries[i];
    if (m > take) {
        uint32_t least = glm_select_largest(&room[0].key, 2, m, take, &n_equal);
        for (int32_t i = 0; i < m; i++)
            if (room[i].key > least || (room[i].key == least && n_equal-- > 0))
                room[kept++] = room[i];
        m = kept;
    }
    *n = m;
    return sort_entries(room, room + BLOCKS * PER, m);
}

/* The best block's number (no cut), or the sums of all blocks relative to the row's best. */
static double number_of_row(const struct glm_draw *d, const struct block *blocks, int best,
                            uint32_t most)
{
    if (glm_draw_mode(d) != GLM_DRAW_CUT)
        return blocks[best].number;
    const double t = glm_draw_temperature(d), first = (double)glm_ordered_f32(most) / t;
    double sum = 0.0;
    for (int b = 0; b < BLOCKS; b++) {
        uint32_t key = 0;
        for (int32_t i = 0; i < blocks[b].n; i++)
            key = blocks[b].entries[i].key > key ? blocks[b].entries[i].key : key;
        if (blocks[b].n > 0)
            sum += blocks[b].number * glm_draw_exp((double)glm_ordered_f32(key) / t - first);
    }
    return sum;
}

/* Is block b's one entry before that of block `best`? Ids ascend with blocks. */
GLM_INLINE int better(const struct glm_draw *d, const struct block *b, const struct block *best)
{
    if (glm_draw_mode(d) == GLM_DRAW_FREE && b->number != best->number)
        return b->number > best->number;
    return b->entries[0].key > best->entries[0].key;
}

static void give_row(const struct offer *a, int64_t o, const struct block *blocks,
                     struct entry *room)
{
    const struct glm_draw *d = &a->round->draws[o];
    int32_t *record = a->cand + (size_t)o * RECORD, n = 0, n_valid = 0, best = -1;
    __builtin_memset(record, 0, RECORD * sizeof *record);
    for (int b = 0; b < BLOCKS; b++) {
        n_valid += blocks[b].n_valid;
        if (blocks[b].n > 0 && (best < 0 || better(d, &blocks[b], &blocks[best])))
            best = b;
    }
    if (best < 0)
        return;
    const struct entry *list = blocks[best].entries;
    if (glm_draw_mode(d) == GLM_DRAW_CUT)
        list = list_of_row(blocks, glm_draw_offers(d, GLM_C), room, &n);
    else
        n = 1;
    uint64_t number = glm_draw_bits(number_of_row(d, blocks, best, list[0].key));
    record[0] = n;
    record[1] = n_valid;
    record[2] = (int32_t)(uint32_t)number;
    record[3] = (int32_t)(uint32_t)(number >> 32);
    for (int32_t i = 0; i < n; i++) {
        record[GLM_DRAW_HEADER + 2 * i] = (int32_t)glm_f32_bits(glm_ordered_f32(list[i].key));
        record[GLM_DRAW_HEADER + 2 * i + 1] = list[i].id;
    }
}

void glm_kernel(const struct glm_launch *launch, void *const *args)
{
    const struct offer a = {args[0], args[1], args[2], launch->round};
    const int64_t batch = (int64_t)launch->n_threads * BATCH, n_rows = launch->round->n_out;
    struct block(*blocks)[BLOCKS] = launch->scratch;
    struct entry *room = (void *)(blocks + batch);
    room += (size_t)launch->thread * 2 * BLOCKS * PER;
    for (int64_t o = 0; o < n_rows; o += batch) {
        int64_t n = n_rows - o < batch ? n_rows - o : batch, first, last;
        glm_part(launch, n * BLOCKS, &first, &last);
        for (int64_t i = first; i < last; i++)
            work_block(&a, o + i / BLOCKS, (int32_t)(i % BLOCKS), &blocks[i / BLOCKS][i % BLOCKS]);
        glm_barrier(launch);
        glm_part(launch, n, &first, &last);
        for (int64_t i = first; i < last; i++)
            give_row(&a, o + i, blocks[i], room);
        if (o + batch < n_rows)
            glm_barrier(launch);
    }
}
