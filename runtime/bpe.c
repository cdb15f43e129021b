/* SPDX-License-Identifier: Apache-2.0 */
/* Merging: the bytes of a piece are symbols in a list; the pair with the lowest rank, leftmost
 * first, is joined until no pair has a merge. A heap holds the candidates, so a long piece costs
 * n log n; one that an earlier join has overtaken is recognised by its rank and dropped. */
#include "runtime/bpe.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { NO_SYMBOL = -1 };

struct glm_bpe_symbol {
    int32_t id; /* -1: joined to its left neighbour */
    int32_t left, right;
};

/* At least twice n, so that probing stays short; n is bounded by the header's limits. */
static uint32_t table_size(uint32_t n)
{
    uint32_t size = 16;
    while (size < 2 * n)
        size *= 2;
    return size;
}

enum glm_status glm_bpe_init(struct glm_bpe *b, uint32_t n_ids, uint32_t n_vocab, uint32_t n_merges)
{
    *b = (struct glm_bpe){.n_ids = n_ids};
    GLM_ASSERT(n_ids <= GLM_BPE_MAX_TOKENS && n_vocab <= GLM_BPE_MAX_TOKENS &&
               n_merges <= GLM_BPE_MAX_MERGES);
    uint32_t n_by_bytes = table_size(n_vocab), n_pairs = table_size(n_merges);
    b->tokens = malloc((n_ids + (size_t)1) * sizeof *b->tokens);
    b->by_bytes = malloc(n_by_bytes * sizeof *b->by_bytes);
    b->merges = malloc(n_pairs * sizeof *b->merges);
    if (b->tokens == NULL || b->by_bytes == NULL || b->merges == NULL) {
        glm_bpe_release(b);
        return GLM_ENOMEM;
    }
    memset(b->tokens, 0xFF, (n_ids + (size_t)1) * sizeof *b->tokens);
    memset(b->by_bytes, 0xFF, n_by_bytes * sizeof *b->by_bytes);
    memset(b->merges, 0xFF, n_pairs * sizeof *b->merges);
    b->by_bytes_mask = n_by_bytes - 1;
    b->merges_mask = n_pairs - 1;
    return GLM_OK;
}

void glm_bpe_release(struct glm_bpe *b)
{
    free(b->bytes);
    free(b->tokens);
    free(b->by_bytes);
    free(b->merges);
    *b = (struct glm_bpe){0};
}

static uint32_t slot_of(const struct glm_bpe *b, const char *bytes, size_t len)
{
    uint32_t slot = (uint32_t)XXH3_64bits(bytes, len) & b->by_bytes_mask;
    for (; b->by_bytes[slot] >= 0; slot = (slot + 1) & b->by_bytes_mask) {
        const struct glm_bpe_token *token = &b->tokens[b->by_bytes[slot]];
        if (token->len == len && memcmp(b->bytes + token->offset, bytes, len) == 0)
            break;
    }
    return slot;
}

bool glm_bpe_set(struct glm_bpe *b, uint32_t id, const char *bytes, size_t len, bool listed)
{
    if (len > UINT32_MAX - 1 - b->n_bytes)
        return false;
    if (b->n_bytes + len > b->capacity_bytes || b->bytes == NULL) {
        size_t capacity = b->capacity_bytes * 2 + len + 4096;
        char *grown = realloc(b->bytes, capacity);
        if (grown == NULL)
            return false;
        b->bytes = grown;
        b->capacity_bytes = capacity;
    }
    if (len > 0)
        memcpy(b->bytes + b->n_bytes, bytes, len);
    b->tokens[id] = (struct glm_bpe_token){.offset = (uint32_t)b->n_bytes, .len = (uint32_t)len};
    if (listed)
        b->by_bytes[slot_of(b, b->bytes + b->n_bytes, len)] = (int32_t)id;
    b->n_bytes += len;
    return true;
}

int32_t glm_bpe_find(const struct glm_bpe *b, const char *bytes, size_t len)
{
    return b->by_bytes[slot_of(b, bytes, len)];
}

static struct glm_bpe_merge *merge_of(const struct glm_bpe *b, uint64_t pair)
{
    uint64_t mixed = pair * 0x9E3779B97F4A7C15u;
    uint32_t slot = (uint32_t)(mixed >> 32) & b->merges_mask;
    while (b->merges[slot].pair != pair && b->merges[slot].pair != UINT64_MAX)
        slot = (slot + 1) & b->merges_mask;
    return &b->merges[slot];
}

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

void glm_bpe_add_merge(struct glm_bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    uint64_t pair = pair_of(left, right);
    *merge_of(b, pair) = (struct glm_bpe_merge){.pair = pair, .rank = rank, .id = id};
}

void glm_bpe_scratch_release(struct glm_bpe_scratch *s)
{
    free(s->symbols);
    free(s->heap);
    *s = (struct glm_bpe_scratch){0};
}

/* Room for n symbols and the candidates there can be at once: n - 1 to begin with; each of the
 * n - 1 joins takes one away and brings two. */
static bool reserve(struct glm_bpe_scratch *s, size_t n)
{
    if (n <= s->n_symbols)
        return true;
    size_t capacity = n < 64 ? 64 : n;
    struct glm_bpe_symbol *symbols = realloc(s->symbols, capacity * sizeof *symbols);
    if (symbols != NULL)
        s->symbols = symbols;
    uint64_t *heap = realloc(s->heap, 2 * capacity * sizeof *heap);
    if (heap != NULL)
        s->heap = heap;
    if (symbols == NULL || heap == NULL)
        return false;
    s->n_symbols = capacity;
    return true;
}

static void heap_push(struct glm_bpe_scratch *s, uint64_t candidate)
{
    size_t at = s->n_heap++;
    while (at > 0 && s->heap[(at - 1) / 2] > candidate) {
        s->heap[at] = s->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    s->heap[at] = candidate;
}

static uint64_t heap_pop(struct glm_bpe_scratch *s)
{
    uint64_t top = s->heap[0], last = s->heap[--s->n_heap];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= s->n_heap)
            break;
        if (child + 1 < s->n_heap && s->heap[child + 1] < s->heap[child])
            child++;
        if (s->heap[child] >= last)
            break;
        s->heap[at] = s->heap[child];
        at = child;
    }
    s->heap[at] = last;
    return top;
}

/* The merge of a symbol with its right neighbour, or NULL. */
static const struct glm_bpe_merge *merge_at(const struct glm_bpe *b,
                                            const struct glm_bpe_scratch *s, int32_t left)
{
    if (left < 0 || s->symbols[left].id < 0 || s->symbols[left].right < 0)
        return NULL;
    uint64_t pair = pair_of(s->symbols[left].id, s->symbols[s->symbols[left].right].id);
    const struct glm_bpe_merge *merge = merge_of(b, pair);
    return merge->pair == pair ? merge : NULL;
}

/* A candidate is rank << 32 | position of its left symbol: the smallest is joined next. */
static void offer(const struct glm_bpe *b, struct glm_bpe_scratch *s, int32_t left)
{
    const struct glm_bpe_merge *merge = merge_at(b, s, left);
    if (merge != NULL)
        heap_push(s, (uint64_t)merge->rank << 32 | (uint32_t)left);
}

static void join(const struct glm_bpe *b, struct glm_bpe_scratch *s, uint64_t candidate)
{
    int32_t left = (int32_t)(uint32_t)candidate;
    const struct glm_bpe_merge *merge = merge_at(b, s, left);
    if (merge == NULL || merge->rank != candidate >> 32)
        return;
    struct glm_bpe_symbol *symbol = &s->symbols[left], *gone = &s->symbols[symbol->right];
    symbol->id = merge->id;
    symbol->right = gone->right;
    if (gone->right >= 0)
        s->symbols[gone->right].left = left;
    gone->id = NO_SYMBOL;
    offer(b, s, symbol->left);
    offer(b, s, left);
}

enum glm_status glm_bpe_encode(const struct glm_bpe *b, const char *bytes, size_t len,
                               struct glm_bpe_scratch *s, struct glm_ids *out)
{
    GLM_ASSERT(len > 0 && len <= GLM_BPE_MAX_PIECE_BYTES);
    if (b->ignore_merges) {
        int32_t id = glm_bpe_find(b, bytes, len);
        if (id >= 0)
            return glm_ids_add(out, id) ? GLM_OK : GLM_ENOMEM;
    }
    if (!reserve(s, len))
        return GLM_ENOMEM;
    for (size_t i = 0; i < len; i++)
        s->symbols[i] = (struct glm_bpe_symbol){.id = b->byte_ids[(uint8_t)bytes[i]],
                                                .left = (int32_t)i - 1,
                                                .right = i + 1 < len ? (int32_t)i + 1 : -1};
    s->n_heap = 0;
    for (size_t i = 0; i + 1 < len; i++)
        offer(b, s, (int32_t)i);
    while (s->n_heap > 0)
        join(b, s, heap_pop(s));
    for (int32_t i = 0; i >= 0; i = s->symbols[i].right)
        if (!glm_ids_add(out, s->symbols[i].id))
            return GLM_ENOMEM;
    return GLM_OK;
}
