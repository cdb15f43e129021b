/* SPDX-License-Identifier: Apache-2.0 */
/* Text → ids and ids → bytes: cuts at added tokens, then at bytes that are not UTF-8, then by the
 * file's regex into pre-tokens, which bpe.c merges. Reading the file is tokenizer_file.c's. */
#include "runtime/tokenizer.h"

#include "runtime/tokenizer_file.h"
#include "runtime/unicode.h"

#include <stdlib.h>
#include <string.h>

struct encoder {
    const struct glm_tokenizer *t;
    pcre2_match_data *match;
    struct glm_bpe_scratch scratch;
    struct glm_ids *out;
};

void glm_ids_release(struct glm_ids *ids)
{
    free(ids->ids);
    *ids = (struct glm_ids){0};
}

bool glm_ids_add(struct glm_ids *ids, int32_t id)
{
    if (ids->n == ids->capacity) {
        size_t capacity = ids->capacity < 64 ? 64 : ids->capacity * 2;
        if (capacity > SIZE_MAX / sizeof *ids->ids)
            return false;
        int32_t *grown = realloc(ids->ids, capacity * sizeof *grown);
        if (grown == NULL)
            return false;
        ids->ids = grown;
        ids->capacity = capacity;
    }
    ids->ids[ids->n++] = id;
    return true;
}

static enum glm_status encode_piece(struct encoder *e, const char *text, size_t len)
{
    while (len > 0) {
        size_t n = len < GLM_BPE_MAX_PIECE_BYTES ? len : GLM_BPE_MAX_PIECE_BYTES;
        enum glm_status status = glm_bpe_encode(&e->t->bpe, text, n, &e->scratch, e->out);
        if (status != GLM_OK)
            return status;
        text += n;
        len -= n;
    }
    return GLM_OK;
}

/* Well-formed text without added tokens → pre-tokens: each match, and what lies between matches.
 * Where the regex gives up (its limits bound a hostile pattern), the rest is one pre-token. */
static enum glm_status encode_text(struct encoder *e, const char *text, size_t len)
{
    enum glm_status status = GLM_OK;
    size_t at = 0;
    while (e->match != NULL && at < len && status == GLM_OK) {
        uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
        int n =
            pcre2_match(e->t->regex, (PCRE2_SPTR)text, len, at, options, e->match, e->t->limits);
        if (n == PCRE2_ERROR_JIT_STACKLIMIT)
            n = pcre2_match(e->t->regex, (PCRE2_SPTR)text, len, at, options | PCRE2_NO_JIT,
                            e->match, e->t->limits);
        if (n < 0)
            break;
        const PCRE2_SIZE *span = pcre2_get_ovector_pointer(e->match);
        /* \K in a pattern can put a start behind the last end. */
        if (span[0] < at || span[1] <= span[0] || span[1] > len)
            break;
        if (span[0] > at)
            status = encode_piece(e, text + at, span[0] - at);
        if (status == GLM_OK)
            status = encode_piece(e, text + span[0], span[1] - span[0]);
        at = span[1];
    }
    return status == GLM_OK && at < len ? encode_piece(e, text + at, len - at) : status;
}

/* Text without added tokens: well-formed stretches, and runs of bytes that are not. */
static enum glm_status encode_stretch(struct encoder *e, const char *text, size_t len)
{
    enum glm_status status = GLM_OK;
    while (len > 0 && status == GLM_OK) {
        size_t n = glm_utf8_valid_bytes(text, len);
        if (n > 0) {
            status = encode_text(e, text, n);
        } else {
            size_t bad = 0;
            while (n < len && glm_utf8_scan(text + n, len - n, &bad) != GLM_UTF8_WHOLE)
                n += bad;
            status = encode_piece(e, text, n);
        }
        text += n;
        len -= n;
    }
    return status;
}

/* The longest added token that text starts with, or NULL. */
static const struct glm_added_token *added_at(const struct glm_tokenizer *t, const char *text,
                                              size_t len)
{
    uint8_t first = (uint8_t)text[0];
    for (uint32_t i = t->added_first[first]; i < t->added_first[first + 1]; i++)
        if (t->added[i].len <= len && memcmp(t->added[i].text, text, t->added[i].len) == 0)
            return &t->added[i];
    return NULL;
}

static enum glm_status encode_all(struct encoder *e, const char *text, size_t len,
                                  bool parse_special)
{
    size_t start = 0, at = 0;
    while (parse_special && at < len) {
        const struct glm_added_token *added = added_at(e->t, text + at, len - at);
        if (added == NULL) {
            at++;
            continue;
        }
        enum glm_status status = encode_stretch(e, text + start, at - start);
        if (status != GLM_OK)
            return status;
        if (!glm_ids_add(e->out, added->id))
            return GLM_ENOMEM;
        at += added->len;
        start = at;
    }
    return encode_stretch(e, text + start, len - start);
}

enum glm_status glm_tokenizer_encode(const struct glm_tokenizer *t, const char *text, size_t len,
                                     bool parse_special, struct glm_ids *out)
{
    struct encoder e = {.t = t, .out = out};
    if (t->regex != NULL) {
        e.match = pcre2_match_data_create(1, NULL);
        if (e.match == NULL)
            return GLM_ENOMEM;
    }
    enum glm_status status = encode_all(&e, text, len, parse_special);
    glm_bpe_scratch_release(&e.scratch);
    pcre2_match_data_free(e.match);
    return status;
}

bool glm_tokenizer_bytes(const struct glm_tokenizer *t, int32_t id, bool skip_special,
                         struct buf *out)
{
    if (id < 0 || (uint32_t)id >= t->bpe.n_ids || t->bpe.tokens[id].offset == UINT32_MAX)
        return false;
    if (!skip_special || !t->special[id])
        buf_add(out, t->bpe.bytes + t->bpe.tokens[id].offset, t->bpe.tokens[id].len);
    return true;
}

int32_t glm_tokenizer_added(const struct glm_tokenizer *t, const char *text)
{
    for (uint32_t i = 0; i < t->n_added; i++)
        if (strcmp(t->added[i].text, text) == 0)
            return t->added[i].id;
    return -1;
}

bool glm_tokenizer_is_special(const struct glm_tokenizer *t, int32_t id)
{
    return id >= 0 && (uint32_t)id < t->bpe.n_ids && t->special[id];
}

uint32_t glm_tokenizer_size(const struct glm_tokenizer *t)
{
    return t->bpe.n_ids;
}
