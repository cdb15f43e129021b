/* SPDX-License-Identifier: Apache-2.0 */
/* Builds, loads and runs CUDA bodies on a GPU (see the header). */
#include "tests/support/gpu.h"

#include "codegen/compiler.h"
#include "spec/base/digest.h"
#include "codegen/includes.h"
#include "codegen/kernels.h"
#include "runtime/cuda.h"
#include "tests/support/kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GUARD_BYTES = 256,
    GUARD = 0x3c,
    MAX_FILES = 33,
    MAX_TABLE = 64,
    MAX_BUFFERS = GLM_CUDA_MAX_ARGS + 8
};

struct test_gpu_kernel {
    const char *name;
    char digest[65];
    const char *path;
};

static struct glm_cuda *gpu;
static glm_cuda_stream stream;
static struct glm_compiler compiler;
static const char *cache;
static struct arena arena;
static bool is_lost; /* a kernel took the whole context with it */

static _Noreturn void broken(const char *what, const struct glm_error *err)
{
    fprintf(stderr, "GPU test: %s: %s%s%s\n", what, err->message, err->hint[0] ? "; " : "",
            err->hint);
    exit(1);
}

bool test_gpu_chosen(void)
{
    const char *index = getenv("GLM_TEST_GPU");
    return index != NULL && index[0] != '\0';
}

void test_gpu_fake(const char *program)
{
    static const char *const rows[][2] = {
        {"GLM_CUDA_DRIVER", "cuda_driver.so"}, {"GLM_NVRTC", "nvrtc.so"}, {"GLM_NCCL", "nccl.so"}};
    const char *slash = strrchr(program, '/');
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char path[512], *whole;
        snprintf(path, sizeof path, "%.*s/fake/%s", slash == NULL ? 1 : (int)(slash - program),
                 slash == NULL ? "." : program, rows[i][1]);
        whole = realpath(path, NULL);
        setenv(rows[i][0], whole == NULL ? path : whole, 1);
        free(whole);
    }
}

static void open_gpu(void)
{
    struct glm_error err = {0};
    if (gpu != NULL)
        return;
    arena_init(&arena, 256 << 20);
    if (glm_cuda_open((uint32_t)strtoul(getenv("GLM_TEST_GPU"), NULL, 10), &gpu, &err) != GLM_OK ||
        glm_cuda_stream_new(gpu, &stream, &err) != GLM_OK)
        broken("the GPU", &err);
    if (glm_backend_cuda.init(glm_cuda_facts(gpu)->target, &arena, &compiler, &err) != GLM_OK ||
        glm_cache_open(&arena, &cache, &err) != GLM_OK)
        broken("the compiler", &err);
}

void test_gpu_print_facts(void)
{
    open_gpu();
    const struct glm_cuda_facts *f = glm_cuda_facts(gpu);
    printf("gpu: %s\ntarget: %s\nmemory: %llu bytes, %u multiprocessors\ndriver: CUDA %u.%u\n"
           "compiler: %s\n",
           f->name, f->target, (unsigned long long)f->memory_bytes, f->n_sms,
           f->driver_version / 1000, f->driver_version % 1000 / 10, compiler.version);
}

/* ---- Building ---- */

static enum glm_status build(struct test_gpu_kernel *k, const char *entry,
                             const struct glm_cache_file *files, uint32_t n, struct glm_error *err)
{
    struct glm_kernel_resources resources;
    const char *stage, *about = arena_printf(&arena, "  \"template\": \"%s\",\n", k->name);
    bool usable = false;
    enum glm_status status =
        glm_cache_check(entry, k->digest, glm_backend_cuda.object, &usable, err);
    if (status != GLM_OK || usable)
        return status;
    status = glm_cache_stage(cache, files, n, &arena, &stage, err);
    if (status == GLM_OK)
        status = glm_backend_cuda.compile(&compiler, stage, files, n, &resources, err);
    if (status == GLM_OK)
        status = glm_cache_publish(stage, entry, k->digest, glm_backend_cuda.object, about, err);
    return status;
}

struct test_gpu_kernel *test_gpu_kernel(const char *name, const char *text)
{
    struct test_gpu_kernel *k = calloc(1, sizeof *k);
    struct glm_cache_file files[MAX_FILES];
    struct glm_error err = {0};
    struct buf all = {0};
    uint32_t n = 1;
    open_gpu();
    if (k == NULL)
        abort();
    files[0] = (struct glm_cache_file){glm_backend_cuda.source, text, strlen(text)};
    if (glm_includes_add(name, &arena, files, &n, MAX_FILES, &err) != GLM_OK)
        broken(name, &err);
    buf_printf(&all, "glmctl test kernel 1\n%s\n%s\n", compiler.command, compiler.version);
    for (uint32_t i = 0; i < n; i++) {
        buf_printf(&all, "%s %zu\n", files[i].name, files[i].len);
        buf_add(&all, files[i].text, files[i].len);
    }
    if (glm_sha256_hex(all.data, all.len, k->digest, &err) != GLM_OK)
        broken(name, &err);
    buf_release(&all);
    k->name = arena_strdup(&arena, name);
    const char *entry = arena_printf(&arena, "%s/%s.%s", cache, name, k->digest);
    k->path = arena_printf(&arena, "%s/%s", entry, glm_backend_cuda.object);
    if (build(k, entry, files, n, &err) != GLM_OK)
        broken(name, &err);
    return k;
}

/* ---- Running ---- */

/* One piece of device memory and what it starts as. */
struct buffer {
    const char *what;
    const void *host; /* NULL: every byte is `fill` */
    void *home;       /* an argument's: where it goes back to */
    int fill;
    size_t bytes;
    glm_cuda_address at;
    char *got[2]; /* after the plain launches, after the graph's; guard included */
};

struct run {
    struct buffer buffers[MAX_BUFFERS];
    size_t n;
    struct glm_round round;
    struct glm_cuda_launch launch;
    uint32_t n_launches, n_rows; /* of each */
    struct glm_error err;
};

static void *add_buffer(struct run *r, const char *what, const void *host, int fill, size_t bytes)
{
    struct buffer *b = &r->buffers[r->n++];
    *b = (struct buffer){.what = what, .host = host, .fill = fill, .bytes = bytes};
    if (glm_cuda_alloc(gpu, what, bytes + GUARD_BYTES, &b->at, &r->err) != GLM_OK)
        broken(what, &r->err);
    for (int i = 0; i < 2; i++)
        if ((b->got[i] = malloc(bytes + GUARD_BYTES)) == NULL)
            abort();
    return (void *)(uintptr_t)b->at;
}

/* The whole allocation that the argument lies in, once however many do. */
static void *add_argument(struct run *r, const char *what, void *argument)
{
    size_t bytes, i = 0;
    char *home = test_alloc_around(argument, &bytes);
    while (i < r->n && r->buffers[i].home != home)
        i++;
    if (i == r->n) {
        add_buffer(r, what, home, 0, bytes);
        r->buffers[i].home = home;
    }
    return (char *)(uintptr_t)r->buffers[i].at + ((char *)argument - home);
}

static size_t n_extents(const struct glm_round *round)
{
    int32_t n = 0;
    for (int32_t i = 0; i < round->n_streams; i++) {
        const struct glm_round_stream *s = &round->streams[i];
        n = s->first_extent + s->n_extents > n ? s->first_extent + s->n_extents : n;
    }
    return (size_t)n;
}

/* The round table with the device's addresses, and the table itself. */
static void add_round(struct run *r, const struct glm_round *round)
{
    const size_t n_out = (size_t)round->n_out;
    r->round = *round;
    r->round.rows = add_buffer(r, "rows of the round", round->rows, 0,
                               (size_t)round->n_rows * sizeof *round->rows);
    r->round.streams = add_buffer(r, "streams of the round", round->streams, 0,
                                  (size_t)round->n_streams * sizeof *round->streams);
    if (round->extents != NULL)
        r->round.extents = add_buffer(r, "extents of the round", round->extents, 0,
                                      n_extents(round) * sizeof *round->extents);
    if (round->out_rows != NULL)
        r->round.out_rows = add_buffer(r, "wanted rows of the round", round->out_rows, 0,
                                       n_out * sizeof *round->out_rows);
    if (round->draws != NULL)
        r->round.draws =
            add_buffer(r, "draws of the round", round->draws, 0, n_out * sizeof *round->draws);
    r->launch.args.round = add_buffer(r, "the round", &r->round, 0, sizeof r->round);
}

/* A small argument may hold addresses of other arguments' memory: a copy with the device's. */
static const void *relocated(const struct run *r, const struct buffer *b, uint64_t copy[MAX_TABLE])
{
    if (b->home == NULL || b->bytes > MAX_TABLE * sizeof *copy || b->bytes % sizeof *copy != 0)
        return b->host;
    memcpy(copy, b->host, b->bytes);
    for (size_t i = 0; i < b->bytes / sizeof *copy; i++)
        for (size_t j = 0; j < r->n; j++) {
            const struct buffer *to = &r->buffers[j];
            const uint64_t offset = copy[i] - (uint64_t)(uintptr_t)to->home;
            if (to->home != NULL && copy[i] != 0 && offset < to->bytes) {
                copy[i] = to->at + offset;
                break;
            }
        }
    return copy;
}

static enum glm_status upload(struct run *r)
{
    uint64_t table[MAX_TABLE];
    enum glm_status status = GLM_OK;
    for (size_t i = 0; status == GLM_OK && i < r->n; i++) {
        const struct buffer *b = &r->buffers[i];
        status = glm_cuda_fill(gpu, stream, b->at + b->bytes, GUARD, GUARD_BYTES, &r->err);
        if (status == GLM_OK && b->bytes > 0)
            status = b->host == NULL
                         ? glm_cuda_fill(gpu, stream, b->at, (uint8_t)b->fill, b->bytes, &r->err)
                         : glm_cuda_copy_in(gpu, stream, b->at, relocated(r, b, table), b->bytes,
                                            &r->err);
    }
    return status;
}

static enum glm_status download(struct run *r, int which)
{
    enum glm_status status = glm_cuda_stream_wait(gpu, stream, &r->err);
    for (size_t i = 0; status == GLM_OK && i < r->n; i++) {
        const struct buffer *b = &r->buffers[i];
        status =
            glm_cuda_copy_out(gpu, stream, b->got[which], b->at, b->bytes + GUARD_BYTES, &r->err);
    }
    return status == GLM_OK ? glm_cuda_stream_wait(gpu, stream, &r->err) : status;
}

static enum glm_status launch_all(struct run *r)
{
    enum glm_status status = GLM_OK;
    for (uint32_t i = 0; status == GLM_OK && i < r->n_launches; i++) {
        r->launch.args.first_row = (int32_t)(i * r->n_rows);
        status = glm_cuda_launch(gpu, stream, &r->launch, &r->err);
    }
    return status;
}

static enum glm_status run_plain(struct run *r)
{
    enum glm_status status = upload(r);
    if (status == GLM_OK)
        status = launch_all(r);
    return status == GLM_OK ? download(r, 0) : status;
}

static enum glm_status run_graph(struct run *r)
{
    glm_cuda_graph graph = NULL;
    enum glm_status status = upload(r);
    if (status == GLM_OK)
        status = glm_cuda_capture_begin(gpu, stream, &r->err);
    if (status == GLM_OK) {
        status = launch_all(r);
        enum glm_status ended = glm_cuda_capture_end(gpu, stream, &graph, &r->err);
        status = status == GLM_OK ? ended : status;
    }
    if (status == GLM_OK)
        status = glm_cuda_graph_launch(gpu, graph, stream, &r->err);
    if (status == GLM_OK)
        status = download(r, 1);
    glm_cuda_graph_free(gpu, graph);
    return status;
}

static bool all_bytes(const char *p, char byte, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != byte)
            return false;
    return true;
}

/* What both runs must have left alone or made equal. Scratch is nobody's. */
static const char *judge(const struct run *r, const void *scratch, const void *tickets)
{
    static char text[160];
    for (size_t i = 0; i < r->n; i++) {
        const struct buffer *b = &r->buffers[i];
        const void *at = (const void *)(uintptr_t)b->at;
        const char *why = NULL;
        if (!all_bytes(b->got[0] + b->bytes, GUARD, GUARD_BYTES) ||
            !all_bytes(b->got[1] + b->bytes, GUARD, GUARD_BYTES))
            why = "bytes behind its end were written";
        else if (at == tickets && !all_bytes(b->got[0], 0, b->bytes))
            why = "a ticket is left";
        else if (at != scratch && memcmp(b->got[0], b->got[1], b->bytes) != 0)
            why = "a captured graph leaves other bits than a plain launch";
        if (why == NULL)
            continue;
        snprintf(text, sizeof text, "%s: %s", b->what, why);
        return text;
    }
    return NULL;
}

const char *test_gpu_run(const struct test_gpu_kernel *k, const struct glm_launch_shape *shape,
                         const struct glm_round *round, void *const *args, size_t n_args)
{
    static char text[sizeof((struct glm_error *)0)->message];
    static char names[GLM_CUDA_MAX_ARGS][32];
    struct glm_cuda_kernel kernel = {0};
    struct run *r = calloc(1, sizeof *r);
    const char *why = NULL;
    if (r == NULL || n_args > GLM_CUDA_MAX_ARGS)
        abort();
    if (is_lost)
        broken(k->name, &(struct glm_error){.message = "an earlier kernel took the GPU with it"});
    if (glm_cuda_kernel_load(gpu, k->name, k->path, k->digest, shape->shared_bytes, &kernel,
                             &r->err) != GLM_OK)
        broken(k->name, &r->err);
    r->launch = (struct glm_cuda_launch){
        .name = k->name,
        .kernel = &kernel,
        .grid = {shape->grid[0], shape->grid[1], shape->grid[2]},
        .block = shape->block,
        .shared_bytes = shape->shared_bytes,
    };
    r->n_launches = shape->n_launches;
    r->n_rows = shape->rows;
    for (size_t i = 0; i < n_args; i++) {
        snprintf(names[i], sizeof names[i], "argument %zu", i);
        if (args[i] != NULL)
            r->launch.args.args[i] = add_argument(r, names[i], args[i]);
    }
    const size_t n_arg_buffers = r->n;
    add_round(r, round);
    void *scratch = add_buffer(r, "scratch", NULL, 0xff, shape->scratch_bytes);
    void *tickets = add_buffer(r, "tickets", NULL, 0, shape->n_tickets * sizeof(uint32_t));
    r->launch.args.scratch = scratch;
    r->launch.args.tickets = tickets;
    if (run_plain(r) != GLM_OK || run_graph(r) != GLM_OK) {
        is_lost = true;
        snprintf(text, sizeof text, "%s", r->err.message);
        why = text;
    } else {
        why = judge(r, scratch, tickets);
    }
    for (size_t b = 0; why == NULL && b < n_arg_buffers; b++)
        memcpy(r->buffers[b].home, r->buffers[b].got[0], r->buffers[b].bytes);
    for (size_t i = 0; i < r->n; i++) {
        glm_cuda_free(gpu, r->buffers[i].at);
        free(r->buffers[i].got[0]);
        free(r->buffers[i].got[1]);
    }
    glm_cuda_kernel_unload(gpu, &kernel);
    if (why != NULL)
        fprintf(stderr, "%s: %s\n", k->name, why);
    free(r);
    return why;
}
