/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a checkpoint: config.json, the index, every safetensors header, the digest; or a
 * synthetic one from a geometry. Headers are parsed in safetensors.c, checked against the model in
 * check.c; which folder a hub id means is resolve.c's. */
#include "spec/base/digest.h"
#include "spec/check.h"
#include "spec/geometries.h"
#include "spec/names.h"

#include <cjson/cJSON.h>
#include <openssl/evp.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    CONFIG_LIMIT = 4 << 20,
    INDEX_LIMIT = 100 << 20,
    HEADER_LIMIT = 100 * 1000 * 1000,
    MAX_FILES = 4096,
    MAX_TENSORS = 1 << 24,
};

/* Everything that lives while one folder is being opened. */
struct opening {
    struct arena *arena;
    struct diag_list *diags;
    struct glm_checkpoint *c;
    struct buf config, index;
    cJSON *index_json; /* NULL: no index */
    char method[40];   /* the config's quant_method */
    EVP_MD_CTX *sha;
    uint64_t *file_bytes;
    struct glm_tensor **lists; /* tensors of each file */
    uint32_t *n_list;
};

static struct src_span in_file(const char *file)
{
    return (struct src_span){.file = file};
}

static void add_error(struct opening *o, const char *file, const char *id,
                      const struct glm_error *err)
{
    diag_add(o->diags, DIAG_ERROR, in_file(file), id, err->hint[0] != '\0' ? err->hint : NULL, "%s",
             err->message);
}

static enum glm_status out_of_memory(struct opening *o)
{
    diag_add(o->diags, DIAG_ERROR, in_file(o->c->folder), "checkpoint.memory", NULL,
             "out of memory while reading the checkpoint's headers");
    return GLM_ENOMEM;
}

/* ---- config ---- */

/* quant_method and what else identifies the scheme; "" for none. MLX names no method. */
static enum glm_status read_method(struct opening *o, const cJSON *root)
{
    static const char *const keys[] = {"quantization", "quantization_config"};
    const cJSON *places[] = {root, cJSON_GetObjectItemCaseSensitive(root, "text_config")};
    for (size_t i = 0; i < 4; i++) {
        const cJSON *block = cJSON_GetObjectItemCaseSensitive(places[i / 2], keys[i % 2]);
        if (!cJSON_IsObject(block))
            continue;
        const cJSON *method = cJSON_GetObjectItemCaseSensitive(block, "quant_method");
        bool named = cJSON_IsString(method);
        snprintf(o->method, sizeof o->method, "%s", named ? method->valuestring : "mlx");
        const cJSON *algo = cJSON_GetObjectItemCaseSensitive(block, "quant_algo");
        if (strcmp(o->method, "exl3") != 0) {
            diag_add(o->diags, DIAG_ERROR, in_file("config.json"), "checkpoint.quantization",
                     "serve an EXL3 pack of this model, or its BF16 release",
                     "this checkpoint is quantized with %.30s (%.30s), supported: EXL3 on routed "
                     "experts, or plain BF16",
                     o->method,
                     cJSON_IsString(algo) ? algo->valuestring
                     : named              ? "no algorithm"
                                          : "affine");
            return GLM_ECHECKPOINT;
        }
        return GLM_OK;
    }
    return GLM_OK;
}

static enum glm_status read_config(struct opening *o)
{
    struct glm_error err = {0};
    const char *path = arena_printf(o->arena, "%s/config.json", o->c->folder);
    if (path == NULL)
        return out_of_memory(o);
    enum glm_status status = glm_file_read(path, CONFIG_LIMIT, &o->config, &err);
    if (status == GLM_OK)
        status = glm_model_parse(o->config.data, o->config.len, &o->c->model, &err);
    if (status != GLM_OK) {
        if (status == GLM_ENOTFOUND)
            glm_error_hint(&err, "'model.checkpoint' must name a folder with config.json and "
                                 "safetensors files");
        add_error(o, o->c->folder, "checkpoint.config", &err);
        return GLM_ECHECKPOINT;
    }
    cJSON *root = cJSON_ParseWithLength(o->config.data, o->config.len);
    status = read_method(o, root);
    cJSON_Delete(root);
    return status;
}

/* ---- which files ---- */

static bool plain_file_name(const char *name)
{
    return name[0] != '\0' && name[0] != '.' && strchr(name, '/') == NULL && strlen(name) < 256;
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum glm_status take_files(struct opening *o, const char **names, uint32_t n)
{
    const char **files = ARENA_ARRAY(o->arena, n > 0 ? n : 1, const char *);
    uint64_t *sizes = ARENA_ARRAY(o->arena, n > 0 ? n : 1, uint64_t);
    o->lists = calloc(n > 0 ? n : 1, sizeof(void *));
    o->n_list = calloc(n > 0 ? n : 1, sizeof(uint32_t));
    if (files == NULL || sizes == NULL || o->lists == NULL || o->n_list == NULL)
        return out_of_memory(o);
    for (uint32_t i = 0; i < n; i++)
        files[i] = names[i];
    qsort(files, n, sizeof(char *), compare_text);
    o->c->files = files;
    o->c->file_bytes = o->file_bytes = sizes;
    o->c->n_files = n;
    return GLM_OK;
}

/* The distinct file names of the index. Shards follow each other in it, so the last hit is tried
 * first. */
static enum glm_status files_of_index(struct opening *o)
{
    static const char index_name[] = "model.safetensors.index.json";
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(o->index_json, "weight_map");
    if (!cJSON_IsObject(map)) {
        diag_add(o->diags, DIAG_ERROR, in_file(index_name), "checkpoint.index", NULL,
                 "'%s' has no object 'weight_map'", index_name);
        return GLM_ECHECKPOINT;
    }
    const char **names = ARENA_ARRAY(o->arena, MAX_FILES, const char *);
    uint32_t n = 0;
    uint32_t last = 0;
    if (names == NULL)
        return out_of_memory(o);
    const cJSON *item;
    cJSON_ArrayForEach(item, map)
    {
        if (!cJSON_IsString(item) || !plain_file_name(item->valuestring)) {
            diag_add(o->diags, DIAG_ERROR, in_file(index_name), "checkpoint.index", NULL,
                     "the index gives tensor '%.100s' a value that is no file name of this folder",
                     item->string);
            return GLM_ECHECKPOINT;
        }
        if (n > 0 && strcmp(names[last], item->valuestring) == 0)
            continue;
        for (last = 0; last < n && strcmp(names[last], item->valuestring) != 0;)
            last++;
        if (last < n)
            continue;
        if (n == MAX_FILES) {
            diag_add(o->diags, DIAG_ERROR, in_file(index_name), "checkpoint.index", NULL,
                     "the index names more than %d files", MAX_FILES);
            return GLM_ECHECKPOINT;
        }
        names[n] = arena_strdup(o->arena, item->valuestring);
        if (names[n] == NULL)
            return out_of_memory(o);
        n++;
    }
    return take_files(o, names, n);
}

static enum glm_status files_of_folder(struct opening *o)
{
    DIR *folder = opendir(o->c->folder);
    if (folder == NULL) {
        diag_add(o->diags, DIAG_ERROR, in_file(o->c->folder), "checkpoint.folder", NULL,
                 "cannot open folder '%s': %s", o->c->folder, strerror(errno));
        return GLM_ECHECKPOINT;
    }
    const char *names[256];
    uint32_t n = 0;
    bool failed = false;
    bool single = false;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        size_t len = strlen(entry->d_name);
        if (len < 13 || strcmp(entry->d_name + len - 12, ".safetensors") != 0 ||
            entry->d_name[0] == '.' || n == 256)
            continue;
        names[n] = arena_strdup(o->arena, entry->d_name);
        failed |= names[n] == NULL;
        single |= strcmp(entry->d_name, "model.safetensors") == 0;
        n++;
    }
    closedir(folder);
    if (failed)
        return out_of_memory(o);
    if (single) {
        names[0] = "model.safetensors";
        n = 1;
    }
    if (n == 0) {
        diag_add(o->diags, DIAG_ERROR, in_file(o->c->folder), "checkpoint.folder",
                 "the download is incomplete, or this is another kind of folder",
                 "'%s' holds no *.safetensors file", o->c->folder);
        return GLM_ECHECKPOINT;
    }
    return take_files(o, names, n);
}

static enum glm_status list_files(struct opening *o)
{
    struct glm_error err = {0};
    const char *path = arena_printf(o->arena, "%s/model.safetensors.index.json", o->c->folder);
    if (path == NULL)
        return out_of_memory(o);
    enum glm_status status = glm_file_read(path, INDEX_LIMIT, &o->index, &err);
    if (status == GLM_ENOTFOUND)
        return files_of_folder(o);
    if (status == GLM_OK) {
        o->index_json = cJSON_ParseWithLength(o->index.data, o->index.len);
        if (o->index_json == NULL)
            status = glm_fail(&err, GLM_ECHECKPOINT,
                              "'model.safetensors.index.json' is not valid JSON (%zu bytes)",
                              o->index.len);
    }
    if (status != GLM_OK) {
        add_error(o, "model.safetensors.index.json", "checkpoint.index", &err);
        return GLM_ECHECKPOINT;
    }
    return files_of_index(o);
}

/* ---- headers ---- */

static void report_missing_shard(struct opening *o, const char *file)
{
    uint32_t n = 0;
    const char *example = "";
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(o->index_json, "weight_map"))
    {
        if (strcmp(item->valuestring, file) != 0)
            continue;
        if (n++ == 0)
            example = item->string;
    }
    diag_add(
        o->diags, DIAG_ERROR, in_file("model.safetensors.index.json"), "checkpoint.missing-shard",
        "the download is incomplete: fetch the missing file",
        "model.safetensors.index.json needs '%s' (holding %u tensors, e.g. '%.100s'), which is "
        "missing from '%s'",
        file, n, example, o->c->folder);
}

static bool read_exactly(int fd, char *bytes, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = pread(fd, bytes + done, len - done, (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

/* The first 8 + N bytes of an open file; fewer when the file is shorter or N absurd, which the
 * header check then reports. */
static enum glm_status read_header(int fd, const char *file, uint64_t file_bytes, struct buf *out,
                                   struct glm_error *err)
{
    unsigned char length[8] = {0};
    size_t have = file_bytes < 8 ? (size_t)file_bytes : 8;
    if (!read_exactly(fd, (char *)length, have))
        return glm_fail(err, GLM_EIO, "cannot read '%s': %s", file, strerror(errno));
    uint64_t n = 0;
    for (unsigned i = 0; i < 8; i++)
        n |= (uint64_t)length[i] << (8 * i);
    size_t want = have;
    if (have == 8 && file_bytes >= 8)
        want = n <= HEADER_LIMIT && n <= file_bytes - 8 ? (size_t)(8 + n)
               : file_bytes < 64                        ? (size_t)file_bytes
                                                        : 64;
    char *bytes = malloc(want > 0 ? want : 1);
    if (bytes == NULL)
        return glm_fail(err, GLM_ENOMEM, "'%s': out of memory for its header", file);
    enum glm_status status = GLM_OK;
    if (!read_exactly(fd, bytes, want))
        status = glm_fail(err, GLM_EIO, "cannot read '%s': %s", file, strerror(errno));
    else
        buf_add(out, bytes, want);
    free(bytes);
    if (status == GLM_OK && out->failed)
        status = glm_fail(err, GLM_ENOMEM, "'%s': out of memory for its header", file);
    return status;
}

static void hash_bytes(struct opening *o, const void *bytes, size_t len)
{
    /* The length first, so that two parts cannot trade bytes. */
    uint64_t n = len;
    EVP_DigestUpdate(o->sha, &n, sizeof n);
    EVP_DigestUpdate(o->sha, bytes, len);
}

static enum glm_status load_header(struct opening *o, uint32_t i)
{
    const char *file = o->c->files[i];
    struct glm_error err = {0};
    char path[4096];
    int len = snprintf(path, sizeof path, "%s/%s", o->c->folder, file);
    errno = ENAMETOOLONG;
    int fd =
        len < 0 || (size_t)len >= sizeof path ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT && o->index_json != NULL) {
        report_missing_shard(o, file);
        return GLM_ECHECKPOINT;
    }
    struct buf header = {0};
    struct stat st = {0};
    enum glm_status status = GLM_OK;
    if (fd < 0 || fstat(fd, &st) != 0)
        status = glm_fail(&err, GLM_EIO, "cannot open '%s': %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        status = glm_fail(&err, GLM_EIO, "cannot read '%s': it is not a regular file", path);
    uint64_t file_bytes = (uint64_t)st.st_size;
    if (status == GLM_OK)
        status = read_header(fd, file, file_bytes, &header, &err);
    if (status == GLM_OK)
        status = glm_safetensors_header(file, buf_text(&header), header.len, file_bytes, o->arena,
                                        &o->lists[i], &o->n_list[i], &err);
    if (status == GLM_OK) {
        o->file_bytes[i] = file_bytes;
        hash_bytes(o, file, strlen(file));
        hash_bytes(o, &file_bytes, sizeof file_bytes);
        hash_bytes(o, header.data, header.len);
    } else {
        add_error(o, file, "checkpoint.header", &err);
    }
    buf_release(&header);
    if (fd >= 0)
        close(fd);
    return status == GLM_OK || status == GLM_ENOMEM ? status : GLM_ECHECKPOINT;
}

/* ---- tensors of all files ---- */

static enum glm_status index_tensors(struct opening *o, uint32_t n)
{
    struct glm_checkpoint *c = o->c;
    struct glm_error err = {0};
    struct name_index index;
    uint32_t first, second;
    c->n_tensors = n;
    enum glm_status status = names_sort(c->tensors, n, &err);
    if (status == GLM_OK)
        status = name_index_build(&index, o->arena, c->tensors, n, &first, &second, &err);
    if (status != GLM_OK)
        return out_of_memory(o);
    c->slots = index.slots;
    c->n_slots = index.n_slots;
    if (second != 0) {
        diag_add(o->diags, DIAG_ERROR, in_file(c->folder), "checkpoint.duplicate", NULL,
                 "tensor '%s' is in both '%s' and '%s'", c->tensors[first].name,
                 c->files[c->tensors[first].file], c->files[c->tensors[second].file]);
        return GLM_ECHECKPOINT;
    }
    return GLM_OK;
}

static enum glm_status join_tensors(struct opening *o)
{
    struct glm_checkpoint *c = o->c;
    uint64_t n = 0;
    for (uint32_t i = 0; i < c->n_files; i++)
        n += o->n_list[i];
    if (n > MAX_TENSORS) {
        diag_add(o->diags, DIAG_ERROR, in_file(c->folder), "checkpoint.header", NULL,
                 "the files hold %llu tensors, more than %d", (unsigned long long)n, MAX_TENSORS);
        return GLM_ECHECKPOINT;
    }
    c->tensors = ARENA_ARRAY(o->arena, n > 0 ? (size_t)n : 1, struct glm_tensor);
    if (c->tensors == NULL)
        return out_of_memory(o);
    uint32_t at = 0;
    for (uint32_t i = 0; i < c->n_files; i++) {
        for (uint32_t j = 0; j < o->n_list[i]; j++) {
            c->tensors[at] = o->lists[i][j];
            c->tensors[at++].file = i;
        }
    }
    return index_tensors(o, at);
}

/* The index's claims against the headers. */
static void check_index(struct opening *o)
{
    struct glm_checkpoint *c = o->c;
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(o->index_json, "weight_map"))
    {
        uint32_t i = name_index_find(c->slots, c->n_slots, c->tensors, item->string);
        if (i == UINT32_MAX || strcmp(c->files[c->tensors[i].file], item->valuestring) != 0)
            diag_add(o->diags, DIAG_ERROR, in_file("model.safetensors.index.json"),
                     "checkpoint.index", "download index and shards of one revision",
                     "index says '%.200s' is in '%s', but that file does not contain it: index and "
                     "shards come from different revisions",
                     item->string, item->valuestring);
    }
    const cJSON *metadata = cJSON_GetObjectItemCaseSensitive(o->index_json, "metadata");
    const cJSON *total = cJSON_GetObjectItemCaseSensitive(metadata, "total_size");
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < c->n_tensors; i++)
        bytes += c->tensors[i].size_bytes;
    if (cJSON_IsNumber(total) && total->valuedouble != (double)bytes)
        diag_add(o->diags, DIAG_WARNING, in_file("model.safetensors.index.json"),
                 "checkpoint.total-size", NULL, "index total_size %.0f, headers say %llu",
                 total->valuedouble, (unsigned long long)bytes);
}

/* Ids without a token have rows in embedding and head, which a draw must not return. */
static enum glm_status read_token_ids(struct opening *o)
{
    struct glm_error err = {0};
    struct glm_model *m = &o->c->model;
    uint32_t n = 0;
    uint64_t file_bytes = 0;
    const char *path = arena_printf(o->arena, "%s/tokenizer.json", o->c->folder);
    if (path == NULL)
        return out_of_memory(o);
    enum glm_status status = checkpoint_token_ids(path, &n, &file_bytes, &err);
    if (status == GLM_ENOTFOUND)
        return GLM_OK;
    if (status == GLM_OK && n > m->d_vocab)
        status = glm_fail(&err, GLM_ECHECKPOINT,
                          "'%s' has the token id %u, but config.json's 'vocab_size' is %u", path,
                          n - 1, m->d_vocab);
    for (uint32_t i = 0; i < m->n_end_ids && status == GLM_OK; i++)
        if (m->end_ids[i] >= n)
            status = glm_fail(&err, GLM_ECHECKPOINT,
                              "config.json's 'eos_token_id' %u has no token: the largest id in "
                              "'%s' is %u",
                              m->end_ids[i], path, n - 1);
    if (status != GLM_OK) {
        add_error(o, "tokenizer.json", "checkpoint.tokenizer", &err);
        return status == GLM_ENOMEM ? status : GLM_ECHECKPOINT;
    }
    m->n_valid_ids = n;
    hash_bytes(o, &file_bytes, sizeof file_bytes);
    hash_bytes(o, &n, sizeof n);
    return GLM_OK;
}

static void finish_digest(EVP_MD_CTX *sha, char *text)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    EVP_DigestFinal_ex(sha, digest, &len);
    glm_hex(digest, len, text);
}

static enum glm_status open_files(struct opening *o)
{
    size_t errors = o->diags->n_errors;
    enum glm_status status = read_config(o);
    if (status != GLM_OK)
        return status;
    status = list_files(o);
    if (status != GLM_OK)
        return status;
    o->sha = EVP_MD_CTX_new();
    if (o->sha == NULL || EVP_DigestInit_ex(o->sha, EVP_sha256(), NULL) != 1)
        return out_of_memory(o);
    hash_bytes(o, o->config.data, o->config.len);
    if (read_token_ids(o) == GLM_ENOMEM)
        return GLM_ENOMEM;
    for (uint32_t i = 0; i < o->c->n_files; i++)
        if (load_header(o, i) == GLM_ENOMEM)
            return GLM_ENOMEM;
    if (o->diags->n_errors > errors)
        return GLM_ECHECKPOINT; /* what else is missing would only follow from it */
    status = join_tensors(o);
    if (status != GLM_OK)
        return status;
    check_index(o);
    checkpoint_check(o->c, o->method, o->diags);
    finish_digest(o->sha, o->c->digest);
    return o->diags->n_errors > errors ? GLM_ECHECKPOINT : GLM_OK;
}

static void opening_release(struct opening *o)
{
    buf_release(&o->config);
    buf_release(&o->index);
    cJSON_Delete(o->index_json);
    EVP_MD_CTX_free(o->sha);
    free(o->lists);
    free(o->n_list);
}

/* ---- synthetic ---- */

static enum glm_status count_tensor(void *context, const struct glm_expected_tensor *t)
{
    (void)t;
    (*(uint32_t *)context)++;
    return GLM_OK;
}

static enum glm_status add_tensor(void *context, const struct glm_expected_tensor *e)
{
    struct opening *o = context;
    struct glm_tensor *t = &o->c->tensors[o->c->n_tensors++];
    *t = (struct glm_tensor){.name = arena_strdup(o->arena, e->name),
                             .dtype = e->dtype,
                             .n_dims = e->n_dims,
                             .size_bytes = glm_dtype_bytes(e->dtype),
                             .role = e->role,
                             .fan_in = e->fan_in};
    memcpy(t->shape, e->shape, sizeof t->shape);
    for (uint32_t i = 0; i < e->n_dims; i++)
        t->size_bytes *= e->shape[i];
    return t->name == NULL ? GLM_ENOMEM : GLM_OK;
}

static enum glm_status open_geometry(struct opening *o, const char *name)
{
    struct glm_checkpoint *c = o->c;
    if (!glm_geometry_find(name, &c->model, &c->exl3_bits))
        return GLM_ENOTFOUND;
    c->kind = GLM_CHECKPOINT_SYNTHETIC;
    c->folder = NULL;
    c->experts_exl3 = c->exl3_bits > 0;
    snprintf(c->exl3_codebook, sizeof c->exl3_codebook, "%s", c->experts_exl3 ? "mcg" : "");
    uint32_t n = 0;
    glm_model_tensors(&c->model, c->exl3_bits, count_tensor, &n);
    glm_vision_tensors(&c->model, count_tensor, &n);
    c->tensors = ARENA_ARRAY(o->arena, n, struct glm_tensor);
    if (c->tensors == NULL || glm_model_tensors(&c->model, c->exl3_bits, add_tensor, o) != GLM_OK ||
        glm_vision_tensors(&c->model, add_tensor, o) != GLM_OK)
        return out_of_memory(o);
    o->sha = EVP_MD_CTX_new();
    if (o->sha == NULL || EVP_DigestInit_ex(o->sha, EVP_sha256(), NULL) != 1)
        return out_of_memory(o);
    hash_bytes(o, "synthetic", 9);
    hash_bytes(o, name, strlen(name));
    finish_digest(o->sha, c->digest);
    return index_tensors(o, n);
}

/* A folder's checkpoint whose values are made up: the digest differs from the real one's. */
static enum glm_status make_synthetic(struct opening *o)
{
    struct glm_checkpoint *c = o->c;
    c->kind = GLM_CHECKPOINT_SYNTHETIC;
    for (uint32_t i = 0; i < c->n_tensors; i++)
        c->tensors[i].offset = 0;
    if (EVP_DigestInit_ex(o->sha, EVP_sha256(), NULL) != 1)
        return out_of_memory(o);
    hash_bytes(o, "synthetic", 9);
    hash_bytes(o, c->digest, sizeof c->digest - 1);
    finish_digest(o->sha, c->digest);
    return GLM_OK;
}

/* ---- the public face ---- */

enum glm_status glm_checkpoint_open(const char *where, struct arena *arena, struct diag_list *diags,
                                    struct glm_checkpoint **out)
{
    static const char scheme[] = "synthetic:";
    struct opening o = {
        .arena = arena, .diags = diags, .c = ARENA_NEW(arena, struct glm_checkpoint)};
    if (o.c == NULL)
        return GLM_ENOMEM;
    bool synthetic = strncmp(where, scheme, sizeof scheme - 1) == 0;
    const char *rest = synthetic ? where + sizeof scheme - 1 : where;
    o.c->folder = arena_strdup(arena, rest);
    enum glm_status status = o.c->folder == NULL ? GLM_ENOMEM : GLM_ENOTFOUND;
    if (synthetic && status == GLM_ENOTFOUND)
        status = open_geometry(&o, rest);
    if (synthetic && status == GLM_ENOTFOUND && strchr(rest, '/') == NULL &&
        access(rest, F_OK) != 0) {
        diag_add(diags, DIAG_ERROR, in_file(where), "checkpoint.geometry", NULL,
                 "there is no built-in geometry and no folder '%s', built in: %s", rest,
                 glm_geometry_names());
        status = GLM_ECHECKPOINT;
    } else if (status == GLM_ENOTFOUND) {
        status = open_files(&o);
        if (status == GLM_OK && synthetic)
            status = make_synthetic(&o);
    }
    opening_release(&o);
    if (status == GLM_OK)
        *out = o.c;
    return status;
}

const struct glm_tensor *glm_checkpoint_find(const struct glm_checkpoint *c, const char *name)
{
    uint32_t i = name_index_find(c->slots, c->n_slots, c->tensors, name);
    return i == UINT32_MAX ? NULL : &c->tensors[i];
}
