/* SPDX-License-Identifier: Apache-2.0 */
/* Reads spans of tensors. Owns files and their checks while loading (short, gone, changed); which
 * spans a rank needs is weights.c's. Never mmap: a mapped file that is truncated kills the process,
 * and its pages would count twice on a machine whose device shares its memory. */
#include "runtime/tensor_read.h"

#include "kernels-templates/synthetic.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum glm_status open_file(struct glm_tensor_files *f, uint32_t i, struct glm_error *err)
{
    const struct glm_checkpoint *c = f->checkpoint;
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", c->folder ? c->folder : ".", c->files[i]);
    if (n < 0 || (size_t)n >= sizeof path)
        return glm_fail(err, GLM_ECHECKPOINT, "cannot open '%s': its path is too long",
                        c->files[i]);
    f->fds[i] = open(path, O_RDONLY | O_CLOEXEC);
    if (f->fds[i] < 0)
        return glm_fail(err, GLM_ECHECKPOINT, "cannot open '%s': %s", path, strerror(errno));
    struct stat st;
    if (fstat(f->fds[i], &st) != 0)
        return glm_fail(err, GLM_EIO, "cannot look at '%s': %s", path, strerror(errno));
    if ((uint64_t)st.st_size != c->file_bytes[i])
        return glm_fail(err, GLM_ECHECKPOINT,
                        "cannot read '%s': it changed since the plan, found %lld bytes, want %llu",
                        path, (long long)st.st_size, (unsigned long long)c->file_bytes[i]);
    f->changed[i] =
        (struct glm_file_time){.seconds = st.st_mtim.tv_sec, .nanoseconds = st.st_mtim.tv_nsec};
    return GLM_OK;
}

enum glm_status glm_tensor_files_open(struct glm_tensor_files *f, const struct glm_checkpoint *c,
                                      struct glm_error *err)
{
    *f = (struct glm_tensor_files){.checkpoint = c};
    if (c->kind == GLM_CHECKPOINT_SYNTHETIC || c->n_files == 0)
        return GLM_OK;
    f->fds = calloc(c->n_files, sizeof *f->fds);
    f->changed = calloc(c->n_files, sizeof *f->changed);
    for (uint32_t i = 0; f->fds && i < c->n_files; i++)
        f->fds[i] = -1;
    enum glm_status st = GLM_OK;
    if (!f->fds || !f->changed)
        st = glm_fail(err, GLM_ENOMEM, "cannot open %u weight files: out of memory", c->n_files);
    for (uint32_t i = 0; st == GLM_OK && i < c->n_files; i++)
        st = open_file(f, i, err);
    if (st != GLM_OK)
        glm_tensor_files_close(f);
    return st;
}

enum glm_status glm_tensor_files_check(const struct glm_tensor_files *f, struct glm_error *err)
{
    for (uint32_t i = 0; f->fds && i < f->checkpoint->n_files; i++) {
        struct stat st;
        if (fstat(f->fds[i], &st) != 0)
            return glm_fail(err, GLM_EIO, "cannot look at '%s': %s", f->checkpoint->files[i],
                            strerror(errno));
        if ((uint64_t)st.st_size != f->checkpoint->file_bytes[i] ||
            st.st_mtim.tv_sec != f->changed[i].seconds ||
            st.st_mtim.tv_nsec != f->changed[i].nanoseconds)
            return glm_fail(err, GLM_ECHECKPOINT, "cannot use '%s': it changed while it was read",
                            f->checkpoint->files[i]);
    }
    return GLM_OK;
}

void glm_tensor_files_close(struct glm_tensor_files *f)
{
    for (uint32_t i = 0; f->fds && i < f->checkpoint->n_files; i++)
        if (f->fds[i] >= 0)
            close(f->fds[i]);
    free(f->fds);
    free(f->changed);
    f->fds = NULL;
    f->changed = NULL;
}

enum glm_status glm_tensor_read(const struct glm_tensor_files *f, const struct glm_tensor *t,
                                uint64_t first, uint64_t n, void *out, struct glm_error *err)
{
    uint32_t width = glm_dtype_bytes(t->dtype);
    if (first > t->size_bytes / width || n > t->size_bytes / width - first)
        return glm_fail(err, GLM_EPLAN, "cannot read '%s': elements %llu to %llu, it has %llu",
                        t->name, (unsigned long long)first, (unsigned long long)(first + n),
                        (unsigned long long)(t->size_bytes / width));
    if (f->checkpoint->kind == GLM_CHECKPOINT_SYNTHETIC) {
        struct glm_synthetic_values s = glm_synthetic_of(t);
        glm_synthetic_fill(&s, first, n, out);
        return GLM_OK;
    }
    const char *file = f->checkpoint->files[t->file];
    unsigned char *to = out;
    uint64_t at = t->offset + first * width, left = n * width;
    while (left > 0) {
        ssize_t got = pread(f->fds[t->file], to, left, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return glm_fail(err, GLM_EIO, "cannot read '%s' of '%s': %s", t->name, file,
                            strerror(errno));
        if (got == 0)
            return glm_fail(err, GLM_ECHECKPOINT,
                            "cannot read '%s' of '%s': the file ends at byte %llu, want %llu more",
                            t->name, file, (unsigned long long)at, (unsigned long long)left);
        to += got;
        at += (uint64_t)got;
        left -= (uint64_t)got;
    }
    return GLM_OK;
}

enum glm_status glm_tensor_read_rows(const struct glm_tensor_files *f, const struct glm_tensor *t,
                                     uint64_t row, uint64_t n_rows, uint64_t n_cols,
                                     const struct glm_slice *cols, void *out, struct glm_error *err)
{
    uint32_t width = glm_dtype_bytes(t->dtype);
    if (cols->take == 0 || cols->groups == 0 || n_rows == 0)
        return GLM_OK;
    uint64_t span = (cols->groups - 1) * cols->stride + cols->take;
    uint64_t first = row * n_cols + cols->first;
    unsigned char *to = (unsigned char *)out + cols->first * width;
    if (cols->first > n_cols || span > n_cols - cols->first)
        return glm_fail(err, GLM_EPLAN, "cannot read '%s': columns %llu to %llu of %llu", t->name,
                        (unsigned long long)cols->first, (unsigned long long)(cols->first + span),
                        (unsigned long long)n_cols);
    /* Half the bytes for one call a run of rows is cheaper than a call a row. */
    if (span >= n_cols / 2)
        return glm_tensor_read(f, t, first, (n_rows - 1) * n_cols + span, to, err);
    enum glm_status st = GLM_OK;
    for (uint64_t i = 0; st == GLM_OK && i < n_rows; i++)
        st = glm_tensor_read(f, t, first + i * n_cols, span, to + i * n_cols * width, err);
    return st;
}
