/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8 as RFC 3629 defines it, and the white space that Python's str.strip removes. */
#ifndef GLM_RUNTIME_UNICODE_H
#define GLM_RUNTIME_UNICODE_H

#include "spec/base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum glm_utf8_kind {
    GLM_UTF8_WHOLE,   /* a well-formed character */
    GLM_UTF8_PARTIAL, /* the text ends inside a character that more bytes may complete */
    GLM_UTF8_INVALID, /* bytes that begin no character */
};

/* What text starts with and how many bytes that takes (for an invalid one the maximal subpart, as
 * Unicode's U+FFFD practice counts it). len > 0. */
enum glm_utf8_kind glm_utf8_scan(const char *text, size_t len, size_t *n_bytes);
/* Bytes before the first place that is not well-formed; len when all is. */
size_t glm_utf8_valid_bytes(const char *text, size_t len);
/* The code point of a well-formed character of n_bytes. */
uint32_t glm_utf8_decode(const char *text, size_t n_bytes);

/* Bytes that arrive in pieces → whole characters. */
struct glm_utf8_stream {
    char held[4];
    size_t n_held;
};
/* Appends to out what became whole; bytes that begin no character become U+FFFD. */
void glm_utf8_push(struct glm_utf8_stream *s, const char *bytes, size_t len, struct buf *out);
/* The text ends here: an incomplete character becomes U+FFFD. */
void glm_utf8_end(struct glm_utf8_stream *s, struct buf *out);

/* Narrows (*text, *len), well-formed UTF-8, as Python's str.strip() does: the characters with
 * str.isspace(), U+3000 and U+0085 among them, U+200B and U+FEFF not. */
void glm_python_strip(const char **text, size_t *len);

#endif
