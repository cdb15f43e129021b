/* SPDX-License-Identifier: Apache-2.0 */
/* A byte-level vocabulary and its merges: one pre-token's bytes → ids. Filled once, then read by
 * any thread. The file's form and the cutting into pre-tokens are tokenizer_file.c's and
 * tokenizer.c's. */
#ifndef GLM_RUNTIME_BPE_H
#define GLM_RUNTIME_BPE_H

#include "runtime/tokenizer.h"

/* GLM_BPE_MAX_PIECE_BYTES: the longest piece glm_bpe_encode takes. */
enum {
    GLM_BPE_MAX_TOKENS = 1 << 22,
    GLM_BPE_MAX_MERGES = 1 << 23,
    GLM_BPE_MAX_PIECE_BYTES = 1 << 20
};

struct glm_bpe_token {
    uint32_t offset, len; /* into bytes; offset UINT32_MAX: this id has no token */
};
struct glm_bpe_merge {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX: empty */
    uint32_t rank;
    int32_t id;
};
struct glm_bpe {
    char *bytes; /* of all tokens */
    size_t n_bytes, capacity_bytes;
    struct glm_bpe_token *tokens; /* [n_ids] */
    uint32_t n_ids;
    int32_t *by_bytes; /* hash table of ids, -1 empty; power of two */
    uint32_t by_bytes_mask;
    struct glm_bpe_merge *merges; /* hash table */
    uint32_t merges_mask;
    int32_t byte_ids[256];
    bool ignore_merges; /* a piece that is a token is not merged up */
};

/* Zeroed tables for ids < n_ids, n_vocab listed tokens and n_merges. GLM_ENOMEM. */
enum glm_status glm_bpe_init(struct glm_bpe *b, uint32_t n_ids, uint32_t n_vocab,
                             uint32_t n_merges);
void glm_bpe_release(struct glm_bpe *b);
/* Gives an id its bytes; listed: found by glm_bpe_find. False: out of memory. */
bool glm_bpe_set(struct glm_bpe *b, uint32_t id, const char *bytes, size_t len, bool listed);
int32_t glm_bpe_find(const struct glm_bpe *b, const char *bytes, size_t len);
/* A later merge of the same pair replaces the earlier. */
void glm_bpe_add_merge(struct glm_bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t id);

/* Working memory of one encoding, grown as needed; zero to begin with. */
struct glm_bpe_scratch {
    struct glm_bpe_symbol *symbols;
    uint64_t *heap;
    size_t n_symbols, n_heap; /* room for n_symbols and twice as many candidates */
};
void glm_bpe_scratch_release(struct glm_bpe_scratch *s);
/* Appends the ids of one piece, 1..GLM_BPE_MAX_PIECE_BYTES bytes, in n log n. GLM_ENOMEM only. */
enum glm_status glm_bpe_encode(const struct glm_bpe *b, const char *bytes, size_t len,
                               struct glm_bpe_scratch *s, struct glm_ids *out);

#endif
