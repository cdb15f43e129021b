/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints made on the fly; see pack.h. A failure here is the machine's or the test's own, so it
 * ends the test program. */
#include "tests/support/pack.h"

#include "spec/base/buf.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void must(bool good, const char *what)
{
    if (!good) {
        perror(what);
        exit(2);
    }
}

static struct pack_tensor *append(struct pack *p)
{
    if (p->n == p->capacity) {
        p->capacity = p->capacity == 0 ? 1024 : 2 * p->capacity;
        p->tensors = realloc(p->tensors, p->capacity * sizeof *p->tensors);
        must(p->tensors != NULL, "pack");
    }
    struct pack_tensor *t = &p->tensors[p->n++];
    *t = (struct pack_tensor){0};
    return t;
}

static enum glm_status add_expected(void *context, const struct glm_expected_tensor *e)
{
    struct pack_tensor *t = append(context);
    snprintf(t->name, sizeof t->name, "%s", e->name);
    snprintf(t->dtype, sizeof t->dtype, "%s", glm_dtype_text(e->dtype));
    memcpy(t->shape, e->shape, sizeof t->shape);
    t->n_dims = e->n_dims;
    return GLM_OK;
}

void pack_init(struct pack *p, const struct glm_model *m, uint32_t exl3_bits, uint32_t n_files)
{
    *p = (struct pack){.n_files = n_files, .total_size = -1};
    glm_model_tensors(m, exl3_bits, add_expected, p);
    glm_vision_tensors(m, add_expected, p);
    for (uint32_t i = 0; i < p->n; i++)
        p->tensors[i].file = (uint32_t)((uint64_t)i * n_files / p->n);
}

void pack_release(struct pack *p)
{
    free(p->tensors);
    *p = (struct pack){0};
}

struct pack_tensor *pack_get(struct pack *p, const char *name)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (strcmp(p->tensors[i].name, name) == 0)
            return &p->tensors[i];
    fprintf(stderr, "pack: no tensor '%s'\n", name);
    exit(2);
}

struct pack_tensor *pack_add(struct pack *p, const char *name, const char *dtype, uint32_t n_dims,
                             uint64_t d0, uint64_t d1, uint64_t d2)
{
    struct pack_tensor *t = append(p);
    snprintf(t->name, sizeof t->name, "%s", name);
    snprintf(t->dtype, sizeof t->dtype, "%s", dtype);
    t->n_dims = n_dims;
    t->shape[0] = d0;
    t->shape[1] = d1;
    t->shape[2] = d2;
    return t;
}

static uint64_t tensor_bytes(const struct pack_tensor *t)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } sizes[] = {
#define SIZE_ROW(name, text, bytes) {text, bytes},
        GLM_DTYPE_MAP(SIZE_ROW)
#undef SIZE_ROW
    };
    uint64_t bytes = 1;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (strcmp(sizes[i].text, t->dtype) == 0)
            bytes = sizes[i].bytes;
    for (uint32_t i = 0; i < t->n_dims; i++)
        bytes *= t->shape[i];
    return bytes;
}

static void file_name(const struct pack *p, uint32_t file, char *name, size_t size)
{
    if (p->n_files == 1)
        snprintf(name, size, "model.safetensors");
    else
        snprintf(name, size, "model-%05u-of-%05u.safetensors", file + 1, p->n_files);
}

static void add_entry(struct buf *header, const struct pack_tensor *t, uint64_t begin, uint64_t end)
{
    buf_printf(header, "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[", header->len == 0 ? '{' : ',',
               t->name, t->dtype);
    for (uint32_t i = 0; i < t->n_dims; i++)
        buf_printf(header, "%s%llu", i > 0 ? "," : "", (unsigned long long)t->shape[i]);
    buf_printf(header, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)begin,
               (unsigned long long)end);
}

void pack_write_raw(const char *path, const char *header, uint64_t data_bytes)
{
    uint64_t n = strlen(header);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    must(fd >= 0 && write(fd, &n, sizeof n) == (ssize_t)sizeof n &&
             write(fd, header, n) == (ssize_t)n &&
             ftruncate(fd, (off_t)(8 + n + data_bytes)) == 0 && close(fd) == 0,
         path);
}

void pack_write_text(const char *folder, const char *file, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    must(glm_file_write(path, text, strlen(text), 0600, NULL) == GLM_OK, path);
}

static void write_index(const struct pack *p, const char *folder, uint64_t total)
{
    struct buf index = {0};
    char name[64];
    long long said = p->total_size >= 0 ? (long long)p->total_size : (long long)total;
    buf_printf(&index, "{\"metadata\":{\"total_size\":%lld},\"weight_map\":{", said);
    bool first = true;
    for (uint32_t i = 0; i < p->n; i++) {
        const struct pack_tensor *t = &p->tensors[i];
        if (t->dropped)
            continue;
        file_name(p, t->file, name, sizeof name);
        buf_printf(&index, "%s\"%s\":\"%s\"", first ? "" : ",", t->name, name);
        first = false;
    }
    buf_str(&index, "}}");
    must(!index.failed, "pack");
    pack_write_text(folder, "model.safetensors.index.json", index.data);
    buf_release(&index);
}

void pack_write(const struct pack *p, const char *folder)
{
    uint64_t total = 0;
    for (uint32_t file = 0; file < p->n_files; file++) {
        struct buf header = {0};
        uint64_t at = 0;
        for (uint32_t i = 0; i < p->n; i++) {
            const struct pack_tensor *t = &p->tensors[i];
            if (t->dropped || t->hidden || t->file != file)
                continue;
            add_entry(&header, t, at, at + tensor_bytes(t));
            at += tensor_bytes(t);
        }
        buf_str(&header, header.len == 0 ? "{}" : "}");
        while (header.len % 8 != 0)
            buf_char(&header, ' ');
        must(!header.failed, "pack");
        char name[64];
        char path[512];
        file_name(p, file, name, sizeof name);
        snprintf(path, sizeof path, "%s/%s", folder, name);
        pack_write_raw(path, header.data, at);
        buf_release(&header);
        total += at;
    }
    if (p->n_files > 1)
        write_index(p, folder, total);
}

const char *pack_folder(char *path, size_t size)
{
    const char *base = getenv("TMPDIR");
    snprintf(path, size, "%s/glm-pack-XXXXXX", base != NULL ? base : "/tmp");
    must(mkdtemp(path) != NULL, path);
    return path;
}

/* Files of one level, as pack_write makes them, and folders below. */
void pack_remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    for (struct dirent *e; folder != NULL && (e = readdir(folder)) != NULL;) {
        char child[1024];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        snprintf(child, sizeof child, "%s/%s", path, e->d_name);
        if (unlink(child) != 0)
            pack_remove_folder(child);
    }
    if (folder != NULL)
        closedir(folder);
    rmdir(path);
}
