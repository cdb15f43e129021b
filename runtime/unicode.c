/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8 checking, one character at a time or in a stream, and Python's idea of white space.
 * Character classes for pre-tokenising are PCRE2's business (tokenizer.c). */
#include "runtime/unicode.h"

#include <string.h>

/* RFC 3629, section 4: lead bytes and the range of the byte after each. */
struct utf8_row {
    uint8_t first, last, second_first, second_last, n_bytes;
};
static const struct utf8_row utf8_rows[] = {
    {0x00, 0x7F, 0x00, 0x00, 1}, {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3},
    {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3},
    {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4},
};

static const struct utf8_row *row_of(uint8_t lead)
{
    for (size_t i = 0; i < sizeof utf8_rows / sizeof utf8_rows[0]; i++)
        if (lead >= utf8_rows[i].first && lead <= utf8_rows[i].last)
            return &utf8_rows[i];
    return NULL;
}

enum glm_utf8_kind glm_utf8_scan(const char *text, size_t len, size_t *n_bytes)
{
    const uint8_t *p = (const uint8_t *)text;
    *n_bytes = 1;
    const struct utf8_row *row = row_of(p[0]);
    if (row == NULL)
        return GLM_UTF8_INVALID;
    for (size_t i = 1; i < row->n_bytes; i++) {
        *n_bytes = i;
        if (i == len)
            return GLM_UTF8_PARTIAL;
        uint8_t low = i == 1 ? row->second_first : 0x80;
        uint8_t high = i == 1 ? row->second_last : 0xBF;
        if (p[i] < low || p[i] > high)
            return GLM_UTF8_INVALID;
    }
    *n_bytes = row->n_bytes;
    return GLM_UTF8_WHOLE;
}

size_t glm_utf8_valid_bytes(const char *text, size_t len)
{
    size_t at = 0;
    while (at < len) {
        uint64_t word;
        if (len - at >= sizeof word) {
            memcpy(&word, text + at, sizeof word);
            if ((word & 0x8080808080808080u) == 0) {
                at += sizeof word;
                continue;
            }
        }
        size_t n = 0;
        if (glm_utf8_scan(text + at, len - at, &n) != GLM_UTF8_WHOLE)
            return at;
        at += n;
    }
    return len;
}

uint32_t glm_utf8_decode(const char *text, size_t n_bytes)
{
    const uint8_t *p = (const uint8_t *)text;
    static const uint8_t lead_mask[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t code = p[0] & lead_mask[n_bytes];
    for (size_t i = 1; i < n_bytes; i++)
        code = code << 6 | (p[i] & 0x3Fu);
    return code;
}

static void push_some(struct glm_utf8_stream *s, const char *bytes, size_t len, struct buf *out)
{
    size_t at = 0;
    while (at < len) {
        size_t whole = glm_utf8_valid_bytes(bytes + at, len - at);
        buf_add(out, bytes + at, whole);
        at += whole;
        if (at == len)
            return;
        size_t n = 0;
        if (glm_utf8_scan(bytes + at, len - at, &n) == GLM_UTF8_PARTIAL) {
            memcpy(s->held, bytes + at, n);
            s->n_held = n;
            return;
        }
        buf_str(out, "\xEF\xBF\xBD");
        at += n;
    }
}

void glm_utf8_push(struct glm_utf8_stream *s, const char *bytes, size_t len, struct buf *out)
{
    /* Byte by byte while a character is incomplete: at most 3 bytes are ever held. */
    size_t at = 0;
    while (at < len && s->n_held > 0) {
        char joined[4];
        size_t n = s->n_held;
        memcpy(joined, s->held, n);
        joined[n] = bytes[at++];
        s->n_held = 0;
        push_some(s, joined, n + 1, out);
    }
    push_some(s, bytes + at, len - at, out);
}

void glm_utf8_end(struct glm_utf8_stream *s, struct buf *out)
{
    if (s->n_held > 0)
        buf_str(out, "\xEF\xBF\xBD");
    s->n_held = 0;
}

/* str.isspace(): Unicode category Zs, or bidirectional class WS, B or S. */
static bool is_python_space(uint32_t code)
{
    static const struct {
        uint32_t first, last;
    } spaces[] = {
        {0x09, 0x0D},     {0x1C, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
        {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000},
    };
    for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; i++)
        if (code >= spaces[i].first && code <= spaces[i].last)
            return true;
    return false;
}

void glm_python_strip(const char **text, size_t *len)
{
    while (*len > 0) {
        size_t n = 0;
        if (glm_utf8_scan(*text, *len, &n) != GLM_UTF8_WHOLE ||
            !is_python_space(glm_utf8_decode(*text, n)))
            break;
        *text += n;
        *len -= n;
    }
    while (*len > 0) {
        size_t start = *len - 1;
        while (start > 0 && *len - start < 4 && ((uint8_t)(*text)[start] & 0xC0) == 0x80)
            start--;
        size_t n = 0;
        if (glm_utf8_scan(*text + start, *len - start, &n) != GLM_UTF8_WHOLE || n != *len - start ||
            !is_python_space(glm_utf8_decode(*text + start, n)))
            break;
        *len = start;
    }
}
