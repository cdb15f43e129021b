/* SPDX-License-Identifier: Apache-2.0 */
/* One error's text, filled once by the function that first classifies it. */
#ifndef GLM_BASE_ERROR_H
#define GLM_BASE_ERROR_H

#include "spec/base/status.h"

/* message: failure first, lower case, no full stop, subject in single quotes, both values.
 * hint: what to change or the next command; empty when there is none. */
struct glm_error {
    enum glm_status status;
    char message[1024];
    char hint[256];
};

/* Fills *err (which may be NULL) and returns status, so that a caller can `return glm_fail(...)`.
 * An error already recorded in *err is kept: the first classification wins. */
enum glm_status glm_fail(struct glm_error *err, enum glm_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The analyzer sees one file at a time, and would follow paths on which a failure returns GLM_OK.
 */
#ifdef __clang_analyzer__
#define glm_fail(err, status, ...) (glm_fail(err, status, __VA_ARGS__), (status))
#endif

/* Makes a text fit to be shown: control characters but line breaks and tabs become '?', since names
 * in it may be a file's or a peer's and terminals obey some. glm_fail and diag_add do it. */
void glm_text_make_plain(char *text);

/* Adds the hint to an error just recorded. */
void glm_error_hint(struct glm_error *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A broken invariant of the program itself: prints the text with its place and aborts. Never for
 * input, memory or a lost peer. */
void glm_bug(const char *file, int line, const char *text) __attribute__((noreturn));
#define GLM_BUG(text) glm_bug(__FILE__, __LINE__, (text))
#define GLM_ASSERT(condition)                         \
    do {                                              \
        if (!(condition))                             \
            GLM_BUG("broken invariant: " #condition); \
    } while (0)

#endif
