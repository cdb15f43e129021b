/* SPDX-License-Identifier: Apache-2.0 */
/* Request JSON as a tree that keeps key order and the text of every number (exact big integers,
 * -0, 2.0), read by libyajl from an arena with limits on depth and size. */
#ifndef GLM_RUNTIME_JSON_H
#define GLM_RUNTIME_JSON_H

#include "spec/base/arena.h"
#include "spec/base/buf.h"

#include <stdbool.h>

enum { GLM_JSON_MAX_DEPTH = 64 };

enum glm_json_type {
    GLM_JSON_NULL,
    GLM_JSON_BOOL,
    GLM_JSON_NUMBER,
    GLM_JSON_STRING,
    GLM_JSON_ARRAY,
    GLM_JSON_OBJECT
};

struct glm_json {
    enum glm_json_type type;
    bool boolean;
    const char *text; /* string's bytes (may hold NUL; see len) or number's text; NUL follows */
    size_t len;
    const char *key; /* set for members of an object */
    size_t key_len;
    struct glm_json *first, *next; /* children in order; siblings */
    size_t n_children;
};

/* Depth at most GLM_JSON_MAX_DEPTH, whole input one value, well-formed UTF-8. A repeated key keeps
 * its first place and its last value; an escaped lone surrogate becomes U+FFFD (clients that cut
 * text in the middle of a pair send them for ever). The tree lives in the arena and borrows
 * nothing from bytes. Errors: GLM_EINVAL "… at byte N", the bytes read up to and with the token
 * that was not expected; GLM_ENOMEM when the arena's limit is reached. */
enum glm_status glm_json_parse(const char *bytes, size_t len, struct arena *arena,
                               struct glm_json **out, struct glm_error *err);
/* Member of an object by key, NULL if absent or not an object. */
const struct glm_json *glm_json_get(const struct glm_json *object, const char *key);
bool glm_json_is_string(const struct glm_json *v, const char *text);
/* Python's json.dumps(v, ensure_ascii=False) with separators (", ", ": "), as the chat template
 * prints it (docs/model.md 10); compact: without the spaces, numbers as sent. */
void glm_json_print(const struct glm_json *v, bool compact, struct buf *out);
/* A string literal with its quotes, as json.dumps(ensure_ascii=False) escapes it. */
void glm_json_print_string(const char *text, size_t len, struct buf *out);
/* The text of a number in the spelling of Python: 1.50 → 1.5, 1E5 → 100000.0, -0 → 0. */
void glm_json_print_number(const char *text, struct buf *out);

#endif
