/* SPDX-License-Identifier: Apache-2.0 */
/* One safetensors header → tensors, with every claim of the file checked (docs/formats.md 1).
 * The JSON is read as a stream, since a full pack has 20 MB of it and 150,000 names. Which tensors
 * a model needs is the business of tensors.c and checkpoint.c. */
#include "spec/checkpoint.h"
#include "spec/names.h"

#include <yajl/yajl_parse.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_LIMIT = 100 * 1000 * 1000 };

static const struct {
    const char *text;
    uint32_t bytes;
} dtypes[] = {
#define DTYPE_ROW(name, text, bytes) [name] = {text, bytes},
    GLM_DTYPE_MAP(DTYPE_ROW)
#undef DTYPE_ROW
};
enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0] };

uint32_t glm_dtype_bytes(enum glm_dtype dtype)
{
    return dtypes[dtype].bytes;
}

const char *glm_dtype_text(enum glm_dtype dtype)
{
    return dtypes[dtype].text;
}

/* Where the stream stands: `depth` counts open objects, `key` says which value comes next. */
enum key { KEY_NONE, KEY_DTYPE, KEY_SHAPE, KEY_OFFSETS, KEY_OTHER };

struct reader {
    const char *file_name;
    struct arena *arena;
    struct glm_error *err;
    enum glm_status status;
    struct glm_tensor *tensors; /* malloc'ed; n of capacity are used */
    size_t n, capacity;
    uint64_t data_start, file_bytes;
    unsigned depth;
    bool metadata; /* inside __metadata__ */
    enum key key;
    bool in_list;
    /* the tensor being read */
    const char *name;
    bool has_dtype, has_shape, has_offsets;
    enum glm_dtype dtype;
    uint32_t n_dims, n_offsets;
    uint64_t shape[GLM_MAX_DIMS];
    uint64_t offsets[2];
};

static int refuse(struct reader *r, enum glm_status status)
{
    r->status = status;
    return 0;
}

static int refuse_range(struct reader *r)
{
    return refuse(r, glm_fail(r->err, GLM_ECHECKPOINT,
                              "'%s': tensor '%s' has an invalid shape or byte range", r->file_name,
                              r->name != NULL ? r->name : ""));
}

static int refuse_form(struct reader *r, const char *found)
{
    return refuse(r, glm_fail(r->err, GLM_ECHECKPOINT,
                              "'%s': unreadable safetensors header: found %s where tensor '%s' has "
                              "its dtype, shape or data_offsets",
                              r->file_name, found, r->name != NULL ? r->name : ""));
}

static int on_null(void *context)
{
    return refuse_form(context, "null");
}

static int on_boolean(void *context, int value)
{
    struct reader *r = context;
    if (r->depth == 2 && r->key == KEY_OTHER && !r->in_list && !r->metadata)
        return 1;
    return refuse_form(r, value ? "true" : "false");
}

/* Offsets and axes are plain decimal integers: "1.0", "1e3" and "-1" are refused. */
static bool read_integer(const char *text, size_t len, uint64_t *out)
{
    uint64_t value = 0;
    if (len == 0 || len > 19)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    *out = value;
    return true;
}

static int on_number(void *context, const char *text, size_t len)
{
    struct reader *r = context;
    if (r->depth != 2 || r->metadata)
        return refuse_form(r, "a number");
    if (r->key == KEY_OTHER)
        return 1;
    if (!r->in_list)
        return refuse_form(r, "a number");
    uint64_t value;
    if (!read_integer(text, len, &value))
        return refuse_range(r);
    if (r->key == KEY_SHAPE) {
        if (r->n_dims == GLM_MAX_DIMS)
            return refuse_range(r);
        r->shape[r->n_dims++] = value;
        return 1;
    }
    if (r->key != KEY_OFFSETS || r->n_offsets == 2)
        return refuse_range(r);
    r->offsets[r->n_offsets++] = value;
    return 1;
}

static int on_string(void *context, const unsigned char *text, size_t len)
{
    struct reader *r = context;
    if (r->depth == 2 && (r->metadata || r->key == KEY_OTHER))
        return 1;
    if (r->depth != 2 || r->key != KEY_DTYPE || r->in_list)
        return refuse_form(r, "a string");
    for (size_t i = 0; i < N_DTYPES; i++) {
        if (strlen(dtypes[i].text) == len && memcmp(dtypes[i].text, text, len) == 0) {
            r->dtype = (enum glm_dtype)i;
            r->has_dtype = true;
            return 1;
        }
    }
    return refuse(r, glm_fail(r->err, GLM_ECHECKPOINT,
                              "'%s': tensor '%s' has the unknown dtype '%.*s'", r->file_name,
                              r->name, len > 40 ? 40 : (int)len, (const char *)text));
}

static int on_map(void *context)
{
    struct reader *r = context;
    if (r->depth >= 2 || r->in_list)
        return refuse_form(r, "an object");
    r->depth++;
    if (r->depth == 2 && !r->metadata) {
        r->has_dtype = r->has_shape = r->has_offsets = false;
        r->n_dims = r->n_offsets = 0;
        r->key = KEY_NONE;
    }
    return 1;
}

static int on_key(void *context, const unsigned char *text, size_t len)
{
    static const struct {
        const char *text;
        enum key key;
    } keys[] = {{"dtype", KEY_DTYPE}, {"shape", KEY_SHAPE}, {"data_offsets", KEY_OFFSETS}};
    struct reader *r = context;
    if (r->depth == 1) {
        r->metadata = len == 12 && memcmp(text, "__metadata__", 12) == 0;
        if (memchr(text, '\0', len) != NULL || len == 0 || len > 1024) {
            r->name = NULL;
            return refuse_form(r, "a name that is empty, too long or holds a NUL");
        }
        r->name = arena_strndup(r->arena, (const char *)text, len);
        return r->name != NULL ? 1 : refuse(r, glm_fail(r->err, GLM_ENOMEM, "out of memory"));
    }
    if (r->metadata)
        return 1;
    r->key = KEY_OTHER;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strlen(keys[i].text) == len && memcmp(keys[i].text, text, len) == 0)
            r->key = keys[i].key;
    if ((r->key == KEY_DTYPE && r->has_dtype) || (r->key == KEY_SHAPE && r->has_shape) ||
        (r->key == KEY_OFFSETS && r->has_offsets))
        return refuse_form(r, "a key twice");
    return 1;
}

static int on_list(void *context)
{
    struct reader *r = context;
    bool wanted = r->key == KEY_SHAPE || r->key == KEY_OFFSETS || r->key == KEY_OTHER;
    if (r->depth != 2 || r->metadata || r->in_list || !wanted)
        return refuse_form(r, "a list");
    r->in_list = true;
    return 1;
}

static int on_list_end(void *context)
{
    struct reader *r = context;
    r->in_list = false;
    r->has_shape |= r->key == KEY_SHAPE;
    r->has_offsets |= r->key == KEY_OFFSETS;
    return 1;
}

/* "[2048, 256]" into text, cut where it does not fit. */
void glm_shape_text(const uint64_t *shape, uint32_t n_dims, char *text, size_t size)
{
    size_t len = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < n_dims && len < size; i++)
        len += (size_t)snprintf(text + len, size - len, "%s%llu", i == 0 ? "[" : ", ",
                                (unsigned long long)shape[i]);
    if (len < size)
        snprintf(text + len, size - len, n_dims == 0 ? "[]" : "]");
}

static int finish_tensor(struct reader *r)
{
    if (!r->has_dtype || !r->has_shape || !r->has_offsets || r->n_offsets != 2)
        return refuse_range(r);
    uint64_t begin = r->offsets[0];
    uint64_t end = r->offsets[1];
    uint64_t bytes = glm_dtype_bytes(r->dtype);
    for (uint32_t i = 0; i < r->n_dims; i++)
        if (__builtin_mul_overflow(bytes, r->shape[i], &bytes))
            return refuse_range(r);
    uint64_t file_end;
    if (end < begin || __builtin_add_overflow(end, r->data_start, &file_end))
        return refuse_range(r);
    if (file_end > r->file_bytes) {
        glm_fail(r->err, GLM_ECHECKPOINT,
                 "'%s': tensor '%s' ends at byte %llu but the file has %llu bytes: the file is "
                 "truncated",
                 r->file_name, r->name, (unsigned long long)file_end,
                 (unsigned long long)r->file_bytes);
        glm_error_hint(r->err, "download it again");
        return refuse(r, GLM_ECHECKPOINT);
    }
    if (end - begin != bytes) {
        char shape[96];
        glm_shape_text(r->shape, r->n_dims, shape, sizeof shape);
        return refuse(r, glm_fail(r->err, GLM_ECHECKPOINT,
                                  "'%s': tensor '%s': shape %s of %s needs %llu bytes, the file "
                                  "gives %llu",
                                  r->file_name, r->name, shape, glm_dtype_text(r->dtype),
                                  (unsigned long long)bytes, (unsigned long long)(end - begin)));
    }
    if (r->n == r->capacity) {
        size_t capacity = r->capacity == 0 ? 256 : r->capacity * 2;
        struct glm_tensor *grown = realloc(r->tensors, capacity * sizeof *grown);
        if (grown == NULL)
            return refuse(r, glm_fail(r->err, GLM_ENOMEM, "out of memory"));
        r->tensors = grown;
        r->capacity = capacity;
    }
    struct glm_tensor *t = &r->tensors[r->n++];
    *t = (struct glm_tensor){.name = r->name,
                             .dtype = r->dtype,
                             .n_dims = r->n_dims,
                             .offset = r->data_start + begin,
                             .size_bytes = bytes,
                             .role = ""};
    memcpy(t->shape, r->shape, r->n_dims * sizeof r->shape[0]);
    return 1;
}

static int on_map_end(void *context)
{
    struct reader *r = context;
    r->depth--;
    if (r->depth != 1)
        return 1;
    if (!r->metadata)
        return finish_tensor(r);
    r->metadata = false;
    return 1;
}

static const yajl_callbacks callbacks = {
    .yajl_null = on_null,
    .yajl_boolean = on_boolean,
    .yajl_number = on_number,
    .yajl_string = on_string,
    .yajl_start_map = on_map,
    .yajl_map_key = on_key,
    .yajl_end_map = on_map_end,
    .yajl_start_array = on_list,
    .yajl_end_array = on_list_end,
};

static enum glm_status check_frame(const char *file_name, const unsigned char *bytes,
                                   size_t header_len, uint64_t file_bytes, uint64_t *n,
                                   struct glm_error *err)
{
    static const char lfs[] = "version https://git-lfs";
    if (header_len >= sizeof lfs - 1 && memcmp(bytes, lfs, sizeof lfs - 1) == 0) {
        glm_fail(err, GLM_ECHECKPOINT, "'%s' is a Git LFS pointer, not weights", file_name);
        glm_error_hint(err, "fetch it with git lfs or the hub client");
        return GLM_ECHECKPOINT;
    }
    *n = 0;
    for (unsigned i = 0; i < 8 && i < header_len; i++)
        *n |= (uint64_t)bytes[i] << (8 * i);
    if (header_len < 8 || file_bytes < 8 || *n == 0 || *n > HEADER_LIMIT || *n > file_bytes - 8 ||
        *n > header_len - 8) {
        glm_fail(err, GLM_ECHECKPOINT,
                 "'%s': not a complete safetensors file (header says %llu bytes, file has %llu)",
                 file_name, (unsigned long long)*n, (unsigned long long)file_bytes);
        glm_error_hint(err, "download it again");
        return GLM_ECHECKPOINT;
    }
    if (bytes[8] != '{')
        return glm_fail(err, GLM_ECHECKPOINT,
                        "'%s': unreadable safetensors header at byte 8: it does not start with '{'",
                        file_name);
    return GLM_OK;
}

/* yajl's text has several lines and a picture of the place; the first line is the reason. */
static enum glm_status fail_json(struct reader *r, yajl_handle parser, const unsigned char *json,
                                 size_t len)
{
    unsigned char *text = yajl_get_error(parser, 0, json, len);
    size_t at = 8 + yajl_get_bytes_consumed(parser);
    int n = text == NULL ? 0 : (int)strcspn((const char *)text, "\n");
    enum glm_status status =
        glm_fail(r->err, GLM_ECHECKPOINT, "'%s': unreadable safetensors header at byte %zu: %.*s",
                 r->file_name, at, n, text == NULL ? "" : (const char *)text);
    yajl_free_error(parser, text);
    return status;
}

static enum glm_status parse_json(struct reader *r, const unsigned char *json, size_t len)
{
    yajl_handle parser = yajl_alloc(&callbacks, NULL, r);
    if (parser == NULL)
        return glm_fail(r->err, GLM_ENOMEM, "out of memory");
    yajl_status got = yajl_parse(parser, json, len);
    if (got == yajl_status_ok)
        got = yajl_complete_parse(parser);
    if (r->status == GLM_OK && got != yajl_status_ok)
        r->status = fail_json(r, parser, json, len);
    if (r->status == GLM_OK && r->depth != 0)
        r->status =
            glm_fail(r->err, GLM_ECHECKPOINT,
                     "'%s': unreadable safetensors header: it is not one object", r->file_name);
    yajl_free(parser);
    return r->status;
}

static int by_offset(const void *a, const void *b)
{
    const struct glm_tensor *x = *(const struct glm_tensor *const *)a;
    const struct glm_tensor *y = *(const struct glm_tensor *const *)b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->size_bytes < y->size_bytes ? -1 : x->size_bytes > y->size_bytes;
}

static enum glm_status check_overlaps(const struct reader *r)
{
    bool in_order = true;
    for (size_t i = 1; i < r->n && in_order; i++)
        in_order = r->tensors[i].offset >= r->tensors[i - 1].offset + r->tensors[i - 1].size_bytes;
    if (in_order)
        return GLM_OK;
    const struct glm_tensor **order = malloc(r->n * sizeof(void *));
    if (order == NULL)
        return glm_fail(r->err, GLM_ENOMEM, "out of memory");
    for (size_t i = 0; i < r->n; i++)
        order[i] = &r->tensors[i];
    qsort(order, r->n, sizeof(void *), by_offset);
    enum glm_status status = GLM_OK;
    for (size_t i = 1; i < r->n && status == GLM_OK; i++)
        if (order[i]->offset < order[i - 1]->offset + order[i - 1]->size_bytes)
            status = glm_fail(r->err, GLM_ECHECKPOINT, "'%s': tensors '%s' and '%s' overlap",
                              r->file_name, order[i - 1]->name, order[i]->name);
    free(order);
    return status;
}

static enum glm_status check_duplicates(const struct reader *r)
{
    struct name_index index;
    uint32_t first, second;
    enum glm_status status =
        name_index_build(&index, NULL, r->tensors, (uint32_t)r->n, &first, &second, r->err);
    if (status == GLM_OK && second != 0)
        status = glm_fail(r->err, GLM_ECHECKPOINT,
                          "'%s': unreadable safetensors header: tensor '%s' is named twice",
                          r->file_name, r->tensors[second].name);
    name_index_release(&index);
    return status;
}

enum glm_status glm_safetensors_header(const char *file_name, const void *bytes, size_t header_len,
                                       uint64_t file_bytes, struct arena *arena,
                                       struct glm_tensor **tensors, uint32_t *n_tensors,
                                       struct glm_error *err)
{
    uint64_t n;
    enum glm_status status = check_frame(file_name, bytes, header_len, file_bytes, &n, err);
    if (status != GLM_OK)
        return status;
    struct reader r = {.file_name = file_name,
                       .arena = arena,
                       .err = err,
                       .data_start = 8 + n,
                       .file_bytes = file_bytes};
    status = parse_json(&r, (const unsigned char *)bytes + 8, (size_t)n);
    if (status == GLM_OK)
        status = check_duplicates(&r);
    if (status == GLM_OK)
        status = check_overlaps(&r);
    if (status == GLM_OK) {
        struct glm_tensor *kept = ARENA_ARRAY(arena, r.n, struct glm_tensor);
        if (kept == NULL) {
            status =
                glm_fail(err, GLM_ENOMEM, "'%s': out of memory for %zu tensors", file_name, r.n);
        } else {
            if (r.n > 0)
                memcpy(kept, r.tensors, r.n * sizeof *kept);
            *tensors = kept;
            *n_tensors = (uint32_t)r.n;
        }
    }
    free(r.tensors);
    return status;
}
