/* SPDX-License-Identifier: Apache-2.0 */
/* One tool call as the model wrote it: the text of its block, with the places of its markup tokens,
 * → names and typed arguments (docs/model.md 11). When a block begins and what becomes of
 * one that does not parse is reply.c's business. */
#ifndef GLM_RUNTIME_TOOLCALL_H
#define GLM_RUNTIME_TOOLCALL_H

#include "runtime/json.h"

enum glm_mark_kind {
    GLM_MARK_CALL,
    GLM_MARK_CALL_END,
    GLM_MARK_KEY,
    GLM_MARK_KEY_END,
    GLM_MARK_VALUE,
    GLM_MARK_VALUE_END,
    GLM_N_MARKS
};
extern const char *const glm_mark_text[GLM_N_MARKS];

struct glm_mark {
    enum glm_mark_kind kind;
    bool structural;   /* false: part of a value */
    size_t start, end; /* in the block's text */
};
struct glm_block {
    struct buf text; /* from the opening token on */
    struct glm_mark *marks;
    size_t n_marks, capacity;
    enum { GLM_BLOCK_BETWEEN, GLM_BLOCK_VALUE, GLM_BLOCK_VALUE_CLOSED, GLM_BLOCK_ENDED } state;
    bool failed; /* memory ran out: marks are missing, it is text and takes no more */
};
void glm_block_release(struct glm_block *b);
/* Empties it and puts the opening token's text and mark. */
void glm_block_open(struct glm_block *b);
/* Appends a markup token and decides whether it is structure or part of a value: a value runs to
 * the end token that a key, or the end of the block, follows. */
void glm_block_mark(struct glm_block *b, enum glm_mark_kind kind);
/* Would an opening token here start another call (true) or be part of a value? */
bool glm_block_may_open(const struct glm_block *b);
/* The reply ended here on an end token: as if the closing token had come. */
void glm_block_close(struct glm_block *b);

/* Is it a call? Undecided for 512 bytes at most. */
enum glm_verdict { GLM_UNDECIDED, GLM_IS_CALL, GLM_IS_TEXT };
enum glm_verdict glm_block_decide(const struct glm_block *b);

struct glm_call {
    char *name, *arguments; /* arguments: compact JSON text of an object */
    size_t arguments_len;
};
struct glm_calls {
    struct glm_call *items;
    size_t n, capacity;
};
void glm_calls_release(struct glm_calls *c);
/* The calls of an ended block, appended to calls. False, calls as before: it is malformed.
 * only_offered: every name must be one of the tools'. */
bool glm_block_parse(const struct glm_block *b, const struct glm_json *tools, bool only_offered,
                     struct glm_calls *calls);
/* A whole answer that is bare JSON, every name offered. */
bool glm_calls_parse_bare(const char *text, size_t len, const struct glm_json *tools,
                          struct glm_calls *calls);
/* May text be the beginning of such an answer? Decided with the first key, and its value if that
 * is the name. */
enum glm_verdict glm_calls_decide_bare(const char *text, size_t len, const struct glm_json *tools);

/* One value as written → JSON text, typed by its schema. parameters: what "$ref" refers into. */
void glm_call_type_value(const struct glm_json *parameters, const struct glm_json *schema,
                         const char *text, size_t len, struct buf *out);

#endif
