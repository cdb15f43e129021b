/* SPDX-License-Identifier: Apache-2.0 */
/* The byte buffer, and whole files read into one or written from one. */
#include "spec/base/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void buf_release(struct buf *b)
{
    free(b->data);
    *b = (struct buf){0};
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->data != NULL)
        b->data[0] = '\0';
}

static bool reserve(struct buf *b, size_t more)
{
    if (b->failed)
        return false;
    if (more >= SIZE_MAX / 2 - b->len) {
        b->failed = true;
        return false;
    }
    size_t need = b->len + more + 1;
    if (need <= b->capacity)
        return true;
    size_t capacity = b->capacity < 256 ? 256 : b->capacity;
    while (capacity < need)
        capacity *= 2;
    char *data = realloc(b->data, capacity);
    if (data == NULL) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->capacity = capacity;
    return true;
}

void buf_add(struct buf *b, const void *bytes, size_t len)
{
    if (!reserve(b, len))
        return;
    if (len > 0)
        memcpy(b->data + b->len, bytes, len);
    b->len += len;
    b->data[b->len] = '\0';
}

void buf_str(struct buf *b, const char *text)
{
    buf_add(b, text, strlen(text));
}

void buf_char(struct buf *b, char c)
{
    buf_add(b, &c, 1);
}

void buf_printf(struct buf *b, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (len >= 0 && reserve(b, (size_t)len)) {
        vsnprintf(b->data + b->len, (size_t)len + 1, format, again);
        b->len += (size_t)len;
    }
    va_end(again);
}

/* Length of the well-formed UTF-8 sequence at p (RFC 3629), or 0. */
static size_t utf8_length(const unsigned char *p, size_t left)
{
    static const struct {
        unsigned char first, last, second_first, second_last, length;
    } rows[] = {
        {0x00, 0x7F, 0x00, 0x00, 1}, {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3},
        {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3},
        {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (p[0] < rows[i].first || p[0] > rows[i].last)
            continue;
        size_t length = rows[i].length;
        if (length > left)
            return 0;
        if (length > 1 && (p[1] < rows[i].second_first || p[1] > rows[i].second_last))
            return 0;
        for (size_t j = 2; j < length; j++)
            if (p[j] < 0x80 || p[j] > 0xBF)
                return 0;
        return length;
    }
    return 0;
}

void buf_json_string(struct buf *b, const char *text, size_t len)
{
    const unsigned char *p = (const unsigned char *)text;
    buf_char(b, '"');
    for (size_t i = 0; i < len;) {
        size_t n = utf8_length(p + i, len - i);
        if (n == 0) {
            buf_str(b, "\xEF\xBF\xBD");
            i++;
            continue;
        }
        if (n > 1)
            buf_add(b, p + i, n);
        else if (p[i] == '"' || p[i] == '\\')
            buf_printf(b, "\\%c", p[i]);
        else if (p[i] == '\n')
            buf_str(b, "\\n");
        else if (p[i] == '\r')
            buf_str(b, "\\r");
        else if (p[i] == '\t')
            buf_str(b, "\\t");
        else if (p[i] < 0x20)
            buf_printf(b, "\\u%04x", p[i]);
        else
            buf_char(b, (char)p[i]);
        i += n;
    }
    buf_char(b, '"');
}

const char *buf_text(const struct buf *b)
{
    return b->data == NULL ? "" : b->data;
}

static enum glm_status read_all(int fd, const char *path, size_t limit_bytes, struct buf *out,
                                struct glm_error *err)
{
    for (;;) {
        if (!reserve(out, 64 * 1024))
            return glm_fail(err, GLM_ENOMEM, "cannot read '%s': out of memory", path);
        ssize_t n = read(fd, out->data + out->len, out->capacity - out->len - 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return glm_fail(err, GLM_EIO, "cannot read '%s': %s", path, strerror(errno));
        if (n == 0)
            return GLM_OK;
        out->len += (size_t)n;
        out->data[out->len] = '\0';
        if (out->len > limit_bytes)
            return glm_fail(err, GLM_EINVAL, "'%s' is larger than %zu bytes", path, limit_bytes);
    }
}

enum glm_status glm_file_read(const char *path, size_t limit_bytes, struct buf *out,
                              struct glm_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return glm_fail(err, errno == ENOENT ? GLM_ENOTFOUND : GLM_EIO, "cannot open '%s': %s",
                        path, strerror(errno));
    buf_clear(out);
    enum glm_status status = read_all(fd, path, limit_bytes, out, err);
    close(fd);
    return status;
}

static int write_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, bytes, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        bytes += n;
        len -= (size_t)n;
    }
    return 0;
}

enum glm_status glm_file_write(const char *path, const void *bytes, size_t len, unsigned mode,
                               struct glm_error *err)
{
    struct buf temporary = {0};
    buf_printf(&temporary, "%s.XXXXXX", path);
    if (temporary.failed)
        return glm_fail(err, GLM_ENOMEM, "cannot write '%s': out of memory", path);
    enum glm_status status = GLM_OK;
    int fd = mkostemp(temporary.data, O_CLOEXEC);
    if (fd < 0) {
        status = glm_fail(err, GLM_EIO, "cannot write '%s': %s", path, strerror(errno));
        goto out;
    }
    if (fchmod(fd, mode) != 0 || write_all(fd, bytes, len) != 0 || fsync(fd) != 0) {
        status = glm_fail(err, GLM_EIO, "cannot write '%s': %s", path, strerror(errno));
        close(fd);
        unlink(temporary.data);
        goto out;
    }
    if (close(fd) != 0 || rename(temporary.data, path) != 0) {
        status = glm_fail(err, GLM_EIO, "cannot write '%s': %s", path, strerror(errno));
        unlink(temporary.data);
    }
out:
    buf_release(&temporary);
    return status;
}

enum glm_status glm_make_folders(const char *path, struct glm_error *err)
{
    char *copy = strdup(path);
    if (copy == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot create '%s': out of memory", path);
    enum glm_status status = GLM_OK;
    for (char *p = copy + 1; status == GLM_OK; p++) {
        char end = *p;
        if (end != '/' && end != '\0')
            continue;
        *p = '\0';
        if (mkdir(copy, 0700) != 0 && errno != EEXIST)
            status = glm_fail(err, GLM_EIO, "cannot create folder '%s': %s", copy, strerror(errno));
        *p = end;
        if (end == '\0')
            break;
    }
    free(copy);
    return status;
}
