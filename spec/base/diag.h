/* SPDX-License-Identifier: Apache-2.0 */
/* Diagnostics: spec problems are data. They are collected in source order, at most
 * GLM_DIAG_MAX, then rendered as text with the source line and a caret, or as JSON. */
#ifndef GLM_BASE_DIAG_H
#define GLM_BASE_DIAG_H

#include "spec/base/arena.h"
#include "spec/base/buf.h"

#include <stdbool.h>

enum { GLM_DIAG_MAX = 20 };

enum diag_level { DIAG_ERROR, DIAG_WARNING, DIAG_NOTE };

/* 1-based; col and len count characters (Unicode scalar values). line 0: no place known. */
struct src_span {
    const char *file;
    uint32_t line, col, len;
};

struct diag {
    enum diag_level level;
    struct src_span at;
    const char *id;      /* stable and greppable: "spec.unknown-node" */
    const char *message; /* what is wrong, with both values */
    const char *hint;    /* what to change, or NULL */
};

/* Owner: the compiling thread. Texts live in the arena. */
struct diag_list {
    struct arena *arena;
    const char *source; /* whole text of the file the spans point into, or NULL */
    size_t source_len;
    struct diag items[GLM_DIAG_MAX];
    size_t n_items;
    size_t n_errors;  /* errors met, also those past GLM_DIAG_MAX */
    size_t n_dropped; /* diagnostics past GLM_DIAG_MAX */
};

void diag_list_init(struct diag_list *list, struct arena *arena);
/* hint may be NULL. A note belongs to the diagnostic before it. */
void diag_add(struct diag_list *list, enum diag_level level, struct src_span at, const char *id,
              const char *hint, const char *format, ...) __attribute__((format(printf, 6, 7)));
/* Text form: `file:line:col: error: message [id]`, the line, the caret, `= hint: …`. */
void diag_render_text(const struct diag_list *list, bool colour, struct buf *out);
/* A JSON array of {level, id, message, hint, file, line, column, length}. */
void diag_render_json(const struct diag_list *list, struct buf *out);

#endif
