/* SPDX-License-Identifier: Apache-2.0 */
/* A growing byte buffer, always NUL-terminated. After a failed allocation it keeps what it has and
 * `failed` stays set, so a writer checks once at the end. */
#ifndef GLM_BASE_BUF_H
#define GLM_BASE_BUF_H

#include "spec/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    char *data;
    size_t len;
    size_t capacity;
    bool failed;
};

void buf_release(struct buf *b);
void buf_clear(struct buf *b);
void buf_add(struct buf *b, const void *bytes, size_t len);
void buf_str(struct buf *b, const char *text);
void buf_char(struct buf *b, char c);
void buf_printf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The text as a JSON string literal with its quotes; invalid UTF-8 becomes U+FFFD. */
void buf_json_string(struct buf *b, const char *text, size_t len);
/* The contents, or "" when nothing was ever added. */
const char *buf_text(const struct buf *b);

/* Whole file into *out. limit_bytes bounds what is read; a larger file is GLM_EINVAL.
 * Errors: GLM_ENOTFOUND, GLM_EIO, GLM_EINVAL, GLM_ENOMEM. */
enum glm_status glm_file_read(const char *path, size_t limit_bytes, struct buf *out,
                              struct glm_error *err);
/* Writes through a temporary file in the same folder, fsync and rename, with the given mode
 * (0600 for secrets): a reader sees the old file or the new one. */
enum glm_status glm_file_write(const char *path, const void *bytes, size_t len, unsigned mode,
                               struct glm_error *err);
/* mkdir -p with mode 0700 for what is made. */
enum glm_status glm_make_folders(const char *path, struct glm_error *err);

#endif
