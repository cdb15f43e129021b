/* SPDX-License-Identifier: Apache-2.0 */
/* Byte-level BPE from tokenizer.json (docs/model.md 9): added tokens matched first, the
 * file's pre-tokenizer regex by PCRE2, merges by rank. Immutable after open; any thread. */
#ifndef GLM_RUNTIME_TOKENIZER_H
#define GLM_RUNTIME_TOKENIZER_H

#include "spec/base/buf.h"

#include <stdbool.h>

struct glm_tokenizer;

/* Errors: GLM_ECHECKPOINT naming the part of the file that is missing or not supported. */
enum glm_status glm_tokenizer_open(const char *path, struct glm_tokenizer **out,
                                   struct glm_error *err);
enum glm_status glm_tokenizer_parse(const char *json, size_t len, struct glm_tokenizer **out,
                                    struct glm_error *err);
void glm_tokenizer_free(struct glm_tokenizer *t);

struct glm_ids {
    int32_t *ids;
    size_t n, capacity;
};
void glm_ids_release(struct glm_ids *ids);
/* False: out of memory, ids as before. */
bool glm_ids_add(struct glm_ids *ids, int32_t id);

/* Appends the ids of text. Nothing is lost: a run of bytes that is not UTF-8 is a pre-token of its
 * own, so the ids' bytes are always the text's. A pre-token of more than 1 MiB is cut there, which
 * bounds the memory a text can ask for. parse_special: added tokens are recognised. GLM_ENOMEM
 * only. */
enum glm_status glm_tokenizer_encode(const struct glm_tokenizer *t, const char *text, size_t len,
                                     bool parse_special, struct glm_ids *out);
/* Appends the bytes of one id; false when the id has no token. skip_special: added special tokens
 * give no bytes. */
bool glm_tokenizer_bytes(const struct glm_tokenizer *t, int32_t id, bool skip_special,
                         struct buf *out);
/* Id of an added token by its exact text, or -1. */
int32_t glm_tokenizer_added(const struct glm_tokenizer *t, const char *text);
bool glm_tokenizer_is_special(const struct glm_tokenizer *t, int32_t id);
/* The largest id that has a token, plus one. */
uint32_t glm_tokenizer_size(const struct glm_tokenizer *t);

#endif
