/* SPDX-License-Identifier: Apache-2.0 */
/* How many token ids a checkpoint's tokenizer.json knows: the vocabulary's rows behind them were
 * never trained and must not be drawn. The file is read as a stream and no further than needed (the
 * merges, most of it, come last); whether the tokenizer is one that we can run is the runtime's to
 * say (runtime/tokenizer_file.c). */
#include "spec/check.h"

#include <yajl/yajl_parse.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_LIMIT = 256 << 20, CHUNK_BYTES = 64 * 1024, MAX_DEPTH = 64, MAX_IDS = 1 << 22 };

/* Which member of the file's object the stream is in. */
enum part { PART_OTHER, PART_ADDED, PART_MODEL };

struct walk {
    unsigned depth; /* open objects and lists */
    enum part part;
    bool in_vocab; /* of PART_MODEL: the member is the vocabulary */
    bool at_id;    /* of PART_ADDED: the token's member is its id */
    bool vocab_seen, added_seen;
    uint32_t n_ids; /* the largest id so far, plus one */
    const char *path;
    struct glm_error *err;
    enum glm_status status;
};

static int refuse(struct walk *w, const char *what)
{
    w->status = glm_fail(w->err, GLM_ECHECKPOINT, "cannot use '%s': %s", w->path, what);
    return 0;
}

/* 0 ends the reading: all that is wanted has been seen. */
static int go_on(const struct walk *w)
{
    return !(w->vocab_seen && w->added_seen);
}

static int on_null(void *context)
{
    struct walk *w = context;
    w->added_seen |= w->depth == 1 && w->part == PART_ADDED;
    return go_on(w);
}

static int on_number(void *context, const char *text, size_t len)
{
    struct walk *w = context;
    bool id = w->depth == 3 &&
              ((w->part == PART_MODEL && w->in_vocab) || (w->part == PART_ADDED && w->at_id));
    uint32_t value = 0;
    if (!id)
        return 1;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9' || value >= MAX_IDS)
            return refuse(w, "a token's id is not a whole number below 4194304");
        value = value * 10 + (uint32_t)(text[i] - '0');
    }
    if (value >= MAX_IDS)
        return refuse(w, "a token's id is not a whole number below 4194304");
    w->n_ids = value >= w->n_ids ? value + 1 : w->n_ids;
    return 1;
}

static int on_key(void *context, const unsigned char *text, size_t len)
{
    struct walk *w = context;
    if (w->depth == 1)
        w->part = len == 12 && memcmp(text, "added_tokens", 12) == 0 ? PART_ADDED
                  : len == 5 && memcmp(text, "model", 5) == 0        ? PART_MODEL
                                                                     : PART_OTHER;
    else if (w->depth == 2)
        w->in_vocab = len == 5 && memcmp(text, "vocab", 5) == 0;
    else if (w->depth == 3)
        w->at_id = len == 2 && memcmp(text, "id", 2) == 0;
    return 1;
}

static int on_open(void *context)
{
    struct walk *w = context;
    return ++w->depth <= MAX_DEPTH ? 1 : refuse(w, "it is nested deeper than 64 levels");
}

static int on_close(void *context)
{
    struct walk *w = context;
    w->depth--;
    w->vocab_seen |= w->depth == 2 && w->part == PART_MODEL && w->in_vocab;
    w->added_seen |= w->depth == 1 && w->part == PART_ADDED;
    return go_on(w);
}

static const yajl_callbacks callbacks = {
    .yajl_null = on_null,
    .yajl_number = on_number,
    .yajl_start_map = on_open,
    .yajl_map_key = on_key,
    .yajl_end_map = on_close,
    .yajl_start_array = on_open,
    .yajl_end_array = on_close,
};

static enum glm_status feed(struct walk *w, int fd)
{
    unsigned char bytes[CHUNK_BYTES];
    yajl_handle parser = yajl_alloc(&callbacks, NULL, w);
    yajl_status got = yajl_status_ok;
    ssize_t n = 1;
    uint64_t total = 0;
    if (parser == NULL)
        return glm_fail(w->err, GLM_ENOMEM, "cannot read '%s': out of memory", w->path);
    while (got == yajl_status_ok && n > 0) {
        n = read(fd, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR) {
            n = 1;
            continue;
        }
        total += n > 0 ? (uint64_t)n : 0;
        if (n < 0)
            w->status = glm_fail(w->err, GLM_EIO, "cannot read '%s': %s", w->path, strerror(errno));
        else if (total > FILE_LIMIT)
            refuse(w, "it is larger than 256 MiB");
        if (w->status != GLM_OK)
            break;
        got = n > 0 ? yajl_parse(parser, bytes, (size_t)n) : yajl_complete_parse(parser);
    }
    if (w->status == GLM_OK && got != yajl_status_ok && go_on(w))
        refuse(w, "it is not valid JSON");
    yajl_free(parser);
    return w->status;
}

enum glm_status checkpoint_token_ids(const char *path, uint32_t *n_ids, uint64_t *file_bytes,
                                     struct glm_error *err)
{
    struct walk w = {.path = path, .err = err};
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO would wait for a writer */
    if (fd < 0)
        return glm_fail(err, errno == ENOENT ? GLM_ENOTFOUND : GLM_EIO, "cannot open '%s': %s",
                        path, strerror(errno));
    if (fstat(fd, &st) != 0)
        w.status = glm_fail(err, GLM_EIO, "cannot read '%s': %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        refuse(&w, "it is not a regular file");
    if (w.status == GLM_OK)
        feed(&w, fd);
    close(fd);
    if (w.status == GLM_OK && w.n_ids == 0)
        refuse(&w, "it has no object 'model.vocab' of token ids");
    if (w.status != GLM_OK)
        return w.status;
    *n_ids = w.n_ids;
    *file_bytes = (uint64_t)st.st_size;
    return GLM_OK;
}
