/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of a lane in one process. Rank 0 runs in the test's thread; the others follow it, each in
 * its own, and count the lists they have done so that the test may look at them in between. */
#include "tests/support/pico.h"

#include "codegen/graph.h"
#include "codegen/kernels.h"
#include "codegen/process.h"
#include "runtime/link.h"
#include "runtime/cuda.h"
#include "runtime/threads.h"
#include "tests/support/gpu.h"
#include "tests/support/ranks.h"
#include "tests/support/simt.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#elif __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif

enum { ARENA_BYTES = 512 << 20 };

struct rank {
    struct pico *set;
    uint32_t rank;
    bool killed;
    pthread_t thread;
    struct glm_link *links[GLM_LINK_MAX_WORLD];
    struct glm_collective *collective;
    struct glm_engine *engine;
    const char **kernels, **digests;
    enum glm_status status;
    struct glm_error err;
};

struct pico {
    struct arena arena;
    struct pico_options options;
    struct diag_list diags;
    struct glm_checkpoint *checkpoint;
    struct glm_plan **plans;
    struct rank ranks[GLM_LINK_MAX_WORLD];
    struct glm_link_listener *listeners[GLM_LINK_MAX_WORLD];
    struct glm_link_address addresses[GLM_LINK_MAX_WORLD];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t n_done; /* lists that followers have done, all together */
    uint32_t n_open, n_failed;
    bool lost; /* ranks may fail */
    uint64_t n_lists;
    uint64_t n_allowed; /* lists that followers may wait for: what the test read lies before */
    float *logits;      /* [d_vocab] */
};

/* ---- from checkpoint to kernels ---- */

static uint32_t number(const char *name, uint32_t otherwise)
{
    const char *text = getenv(name);
    return text && text[0] ? (uint32_t)strtoul(text, NULL, 10) : otherwise;
}

static void settle_options(struct pico_options *o)
{
    o->checkpoint = o->checkpoint ? o->checkpoint : "clusters/demo/exl3";
    o->transport = o->transport ? o->transport : "shm";
    o->world = o->world ? o->world : 1;
    o->n_threads = o->n_threads ? o->n_threads : o->world > 1 ? 1 : 2;
    o->n_streams = o->n_streams ? o->n_streams : 8;
    o->window = o->window ? o->window : 8192;
    o->prefill_rows = o->prefill_rows ? o->prefill_rows : 512;
    o->verify_rows = o->verify_rows ? o->verify_rows : 1;
    o->pool_tokens = o->pool_tokens ? o->pool_tokens : 16 * 2048;
    o->gpus = o->gpus ? o->gpus : test_gpu_chosen() ? number("GLM_TEST_GPUS", 1) : 1;
    o->gpu = o->gpu || (test_gpu_chosen() && !o->host && !o->plans);
    if (o->gpu) {
        o->formats.act = GLM_ACT_BF16;
        o->formats.kv = o->formats.kv == GLM_KV_FP32 ? GLM_KV_BF16 : o->formats.kv;
    }
}

static struct glm_cluster *new_cluster(struct pico *p)
{
    static const char *const names[GLM_MAX_NODES] = {"node0", "node1", "node2", "node3",
                                                     "node4", "node5", "node6", "node7"};
    const struct pico_options *o = &p->options;
    struct glm_cluster *c = ARENA_NEW(&p->arena, struct glm_cluster);
    assert_non_null(c);
    *c = (struct glm_cluster){.name = "test",
                              .spec_path = "test.yaml",
                              .spec_text = "",
                              .checkpoint_where = o->checkpoint,
                              .checkpoint_path = o->checkpoint,
                              .served_name = "test",
                              .checkpoint = p->checkpoint,
                              .transport = strcmp(o->transport, "nccl") == 0 ? GLM_TRANSPORT_NCCL
                                           : strcmp(o->transport, "shm") == 0 && !o->proxy
                                               ? GLM_TRANSPORT_SHM
                                               : GLM_TRANSPORT_TCP,
                              .n_nodes = o->world,
                              .n_lanes = 1};
    struct glm_lane *lane = &c->lanes[0];
    *lane = (struct glm_lane){.name = "main",
                              .is_default = true,
                              .n_ranks = o->world,
                              .listen_host = "127.0.0.1",
                              .n_streams = o->n_streams,
                              .window_tokens = o->window,
                              .pool_tokens = o->pool_tokens,
                              .prefill_rows = o->prefill_rows,
                              .verify_rows = o->verify_rows,
                              .formats = o->formats,
                              .rotate_uneven = o->rotate_uneven,
                              .effort = "",
                              .api_key_file = ""};
    lane->formats.experts =
        p->checkpoint->experts_exl3 && !o->decoded_experts ? GLM_EXPERTS_EXL3 : GLM_EXPERTS_BF16;
    for (uint32_t i = 0; i < o->world; i++) {
        c->nodes[i] = (struct glm_node){.name = names[i],
                                        .host = "local",
                                        .control = "local",
                                        .device = o->gpu ? GLM_DEVICE_CUDA : GLM_DEVICE_CPU,
                                        .device_index = i % o->gpus,
                                        .threads = o->n_threads};
        lane->ranks[i] = i;
    }
    return c;
}

/* The first of the GPUs. */
static uint32_t gpu_index(void)
{
    return number("GLM_TEST_GPU", 0);
}

const char *pico_gpu_missing(void)
{
    char program[400];
    if (test_gpu_chosen())
        return NULL;
    if (!test_device_usable())
        return "no GPU, and no C++ compiler for the fake one, or a sanitizer";
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    assert_true(n > 0);
    program[n] = '\0';
    test_gpu_fake(program);
    return NULL;
}

const char *pico_gpus_missing(uint32_t n)
{
    const char *missing = pico_gpu_missing();
    if (missing)
        return missing;
    if (!test_gpu_chosen())
        setenv("FAKE_CUDA", "gpus=8", 1);
    return !test_gpu_chosen() || number("GLM_TEST_GPUS", 1) >= n ? NULL
                                                                 : "GLM_TEST_GPUS names fewer GPUs";
}

static const char *gpu_target(void)
{
    static char target[16];
    struct glm_cuda *gpu = NULL;
    struct glm_error err = {0};
    if (glm_cuda_open(gpu_index(), &gpu, &err) != GLM_OK)
        fail_msg("%s", err.message);
    snprintf(target, sizeof target, "%s", glm_cuda_facts(gpu)->target);
    glm_cuda_close(gpu);
    return target;
}

static void plan_lane(struct pico *p)
{
    struct glm_error err = {0};
    struct buf text = {0};
    if (p->options.plans) {
        p->plans = p->options.plans;
        p->checkpoint = p->options.plans_checkpoint;
        return;
    }
    diag_list_init(&p->diags, &p->arena);
    enum glm_status st =
        glm_checkpoint_open(p->options.checkpoint, &p->arena, &p->diags, &p->checkpoint);
    if (st == GLM_OK)
        st = glm_plan_build(new_cluster(p), 0, p->options.gpu ? gpu_target() : glm_host_target(),
                            &p->arena, &p->diags, &p->plans, &err);
    if (st != GLM_OK) {
        diag_render_text(&p->diags, false, &text);
        fail_msg("%s: %s\n%s", p->options.checkpoint, err.message, buf_text(&text));
    }
}

void pico_environment(void)
{
    char cwd[400], path[512];
    assert_non_null(getcwd(cwd, sizeof cwd));
    snprintf(path, sizeof path, "%s/build/cache", cwd);
    setenv("GLM_CACHE_DIR", path, 0);
#if defined(__SANITIZE_ADDRESS__)
    setenv("GLM_HOST_CFLAGS", "-fsanitize=address,undefined", 0);
#elif defined(__SANITIZE_THREAD__)
    setenv("GLM_HOST_CFLAGS", "-fsanitize=thread", 0);
#endif
}

bool pico_slow(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#else
    return false;
#endif
}

static void build_kernels(struct pico *p)
{
    struct glm_error err = {0};
    pico_environment();
    for (uint32_t r = 0; r < p->options.world; r++) {
        struct glm_kernel_build *builds;
        if (glm_kernels_build(p->plans[r], 2, &p->arena, NULL, NULL, &builds, &err) != GLM_OK)
            fail_msg("rank %u: %s\n%s", r, err.message, err.hint);
        p->ranks[r].kernels = ARENA_ARRAY(&p->arena, p->plans[r]->n_kernels, const char *);
        p->ranks[r].digests = ARENA_ARRAY(&p->arena, p->plans[r]->n_kernels, const char *);
        assert_non_null(p->ranks[r].kernels);
        assert_non_null(p->ranks[r].digests);
        for (uint32_t i = 0; i < p->plans[r]->n_kernels; i++) {
            p->ranks[r].kernels[i] = builds[i].path;
            p->ranks[r].digests[i] = builds[i].digest;
        }
    }
}

/* ---- ranks ---- */

static void open_rank(struct rank *r)
{
    struct pico *p = r->set;
    const struct pico_options *o = &p->options;
    if (o->world > 1 && !o->twin) {
        r->status = glm_link_connect(p->listeners[r->rank], p->addresses, 20000, r->links, &r->err);
        for (uint32_t i = 0; r->status == GLM_OK && i < o->world; i++)
            if (r->links[i])
                r->links[i]->spin = o->n_threads * o->world <= glm_cores();
        if (r->status == GLM_OK)
            r->status = glm_collective_new(r->rank, o->world, r->links,
                                           (size_t)glm_message_bytes(p->plans[r->rank]), 0, NULL,
                                           NULL, &r->collective, &r->err);
    }
    if (r->status != GLM_OK)
        return;
    struct glm_engine_config config = {.plan = p->plans[r->rank],
                                       .checkpoint = p->checkpoint,
                                       .kernel_paths = r->kernels,
                                       .kernel_digests = r->digests,
                                       .on_gpu = o->gpu,
                                       .gpu = gpu_index() + r->rank % o->gpus,
                                       .gpu_is_shared = o->world > o->gpus,
                                       .is_alone = o->twin,
                                       .n_threads = o->n_threads,
                                       .host_threads = o->n_threads * o->world,
                                       .collective = r->collective,
                                       .memory_limit_bytes = o->memory_limit_bytes};
    r->status = glm_engine_open(&config, &r->engine, &r->err);
}

static void *follow(void *argument)
{
    struct rank *r = argument;
    struct pico *p = r->set;
    open_rank(r);
    pthread_mutex_lock(&p->lock);
    p->n_open++;
    p->n_failed += r->status != GLM_OK;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    bool stopped = false;
    for (uint64_t n = 0; r->status == GLM_OK && !stopped; n++) {
        pthread_mutex_lock(&p->lock);
        while (!p->options.eager && p->n_allowed <= n)
            pthread_cond_wait(&p->changed, &p->lock);
        pthread_mutex_unlock(&p->lock);
        struct glm_error err = {0};
        enum glm_status st = glm_engine_follow_once(r->engine, &stopped, &err);
        pthread_mutex_lock(&p->lock);
        r->status = st;
        r->err = err;
        p->n_done++;
        p->n_failed += st != GLM_OK;
        pthread_cond_broadcast(&p->changed);
        pthread_mutex_unlock(&p->lock);
    }
    return NULL;
}

static void check_ranks(struct pico *p)
{
    pthread_mutex_lock(&p->lock);
    for (uint32_t i = 0; i < p->options.world; i++)
        if (p->ranks[i].status != GLM_OK)
            fail_msg("rank %u: %s", i, p->ranks[i].err.message);
    pthread_mutex_unlock(&p->lock);
}

static void wait_done(struct pico *p)
{
    uint64_t want = p->n_lists * (p->options.world - 1);
    pthread_mutex_lock(&p->lock);
    while (p->n_done < want && p->n_failed == 0)
        pthread_cond_wait(&p->changed, &p->lock);
    bool failed = p->n_failed > 0 && !p->lost;
    pthread_mutex_unlock(&p->lock);
    if (failed)
        check_ranks(p);
}

struct pico *pico_open(const struct pico_options *options)
{
    struct pico *p = calloc(1, sizeof *p);
    struct glm_error err = {0};
    assert_non_null(p);
    p->options = options ? *options : (struct pico_options){0};
    settle_options(&p->options);
    arena_init(&p->arena, ARENA_BYTES);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    plan_lane(p);
    build_kernels(p);
    uint32_t world = p->options.world;
    const char *links = strcmp(p->options.transport, "nccl") == 0 ? "shm" : p->options.transport;
    for (uint32_t i = 0; i < world; i++) {
        p->ranks[i].set = p;
        p->ranks[i].rank = i;
        if (world > 1 && !p->options.twin &&
            glm_link_listen(links, "127.0.0.1", i, world, (size_t)glm_message_bytes(p->plans[i]),
                            test_secret, &p->listeners[i], &p->addresses[i], &err) != GLM_OK)
            fail_msg("rank %u: %s", i, err.message);
    }
    for (uint32_t i = 1; i < world; i++) {
        if (p->options.twin)
            open_rank(&p->ranks[i]);
        else
            assert_int_equal(pthread_create(&p->ranks[i].thread, NULL, follow, &p->ranks[i]), 0);
    }
    open_rank(&p->ranks[0]);
    pthread_mutex_lock(&p->lock);
    while (!p->options.twin && p->n_open < world - 1)
        pthread_cond_wait(&p->changed, &p->lock);
    pthread_mutex_unlock(&p->lock);
    check_ranks(p);
    p->logits = calloc(p->plans[0]->d_vocab, sizeof *p->logits);
    assert_non_null(p->logits);
    return p;
}

void pico_close(struct pico *p)
{
    if (!p)
        return;
    struct glm_op stop = {.kind = GLM_OP_STOP};
    bool follows = p->options.world > 1 && !p->options.twin;
    if (follows && !p->lost)
        pico_run(p, &stop, 1);
    for (uint32_t i = 1; follows && i < p->options.world; i++)
        if (!p->ranks[i].killed)
            pthread_join(p->ranks[i].thread, NULL);
    for (uint32_t i = 0; i < p->options.world; i++) {
        glm_engine_free(p->ranks[i].engine);
        glm_collective_free(p->ranks[i].collective);
    }
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->changed);
    arena_release(&p->arena);
    free(p->logits);
    free(p);
}

void pico_kill(struct pico *p, uint32_t rank)
{
    struct rank *r = &p->ranks[rank];
    pthread_mutex_lock(&p->lock);
    p->lost = true;
    pthread_mutex_unlock(&p->lock);
    glm_collective_abort(r->collective);
    pthread_join(r->thread, NULL);
    r->killed = true;
    /* Links first: a driver frees page-locked memory when all GPUs of the process rest, and the
     * other rank's rests when it knows. Ranks of a lane are processes. */
    glm_collective_free(r->collective);
    glm_engine_free(r->engine);
    r->engine = NULL;
    r->collective = NULL;
}

uint64_t pico_exchanges(const struct pico *p, uint32_t rank)
{
    struct glm_collective_stats s = glm_collective_stats(p->ranks[rank].collective);
    return s.n_gather + s.n_sum;
}

struct glm_engine *pico_engine(const struct pico *p, uint32_t rank)
{
    return p->ranks[rank].engine;
}

const struct glm_plan *pico_plan(const struct pico *p, uint32_t rank)
{
    return p->plans[rank];
}

const struct glm_checkpoint *pico_checkpoint(const struct pico *p)
{
    return p->checkpoint;
}

const char *const *pico_kernels(const struct pico *p, uint32_t rank)
{
    return p->ranks[rank].kernels;
}

/* ---- lists ---- */

enum glm_status pico_try(struct pico *p, const struct glm_op *ops, uint32_t n_ops,
                         struct glm_round_result *result, struct glm_error *err)
{
    pthread_mutex_lock(&p->lock);
    p->n_allowed = p->n_lists + 1;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    enum glm_status st = glm_engine_run(p->ranks[0].engine, ops, n_ops, result, err);
    if (st == GLM_OK) {
        p->n_lists++;
        wait_done(p);
    }
    pthread_mutex_lock(&p->lock);
    p->lost = p->lost || st == GLM_EPEER || st == GLM_EKERNEL;
    pthread_mutex_unlock(&p->lock);
    return st;
}

struct glm_round_result pico_run(struct pico *p, const struct glm_op *ops, uint32_t n_ops)
{
    struct glm_round_result result = {0};
    struct glm_error err = {0};
    if (pico_try(p, ops, n_ops, &result, &err) != GLM_OK)
        fail_msg("%s", err.message);
    return result;
}

const float *pico_logits(struct pico *p, uint32_t out_i)
{
    uint32_t n_all = 0;
    for (uint32_t r = 0; r < p->options.world; r++) {
        uint32_t first, n;
        const float *shard = glm_engine_logits(p->ranks[r].engine, out_i, &first, &n);
        assert_non_null(shard);
        assert_true(first + n <= p->plans[0]->d_vocab);
        memcpy(p->logits + first, shard, n * sizeof *shard);
        n_all += n;
    }
    assert_int_equal(n_all, p->plans[0]->d_vocab);
    return p->logits;
}

struct glm_hash pico_logits_hash(struct pico *p, uint32_t out_i)
{
    const float *row = pico_logits(p, out_i);
    XXH128_hash_t h = XXH3_128bits(row, p->plans[0]->d_vocab * sizeof *row);
    return (struct glm_hash){.low = h.low64, .high = h.high64};
}

struct glm_hash pico_state_hash(struct pico *p, uint32_t stream)
{
    struct glm_hash all[GLM_LINK_MAX_WORLD];
    for (uint32_t r = 0; r < p->options.world; r++)
        all[r] = glm_engine_state_hash(p->ranks[r].engine, stream);
    XXH128_hash_t h = XXH3_128bits(all, p->options.world * sizeof *all);
    return (struct glm_hash){.low = h.low64, .high = h.high64};
}

bool hash_equal(struct glm_hash a, struct glm_hash b)
{
    return a.low == b.low && a.high == b.high;
}

void pico_admit(struct pico *p, uint32_t stream, uint32_t n_tokens)
{
    struct glm_op op = {.kind = GLM_OP_ADMIT, .stream = stream, .n_tokens = n_tokens};
    pico_run(p, &op, 1);
}

void pico_finish(struct pico *p, uint32_t stream)
{
    struct glm_op op = {.kind = GLM_OP_FINISH, .stream = stream};
    pico_run(p, &op, 1);
}

int32_t pico_fill(struct pico *p, uint32_t stream, const int32_t *ids, uint32_t n, uint32_t slice,
                  const struct glm_draw *draw)
{
    int32_t token = -1;
    for (uint32_t at = 0; at < n; at += slice) {
        uint32_t rows = n - at < slice ? n - at : slice;
        bool last = at + rows == n;
        struct glm_op op = {.kind = GLM_OP_FILL,
                            .stream = stream,
                            .n = rows,
                            .out_from = last ? rows - 1 : rows,
                            .tokens = ids + at,
                            .draws = last ? draw : NULL};
        struct glm_round_result result = pico_run(p, &op, 1);
        if (last)
            token = result.tokens[0];
    }
    return token;
}

void pico_decode(struct pico *p, const uint32_t *streams, int32_t *tokens,
                 const struct glm_draw *draws, uint32_t n)
{
    struct glm_op ops[2 * GLM_ROUND_STREAMS] = {0};
    int32_t in[GLM_ROUND_STREAMS];
    for (uint32_t i = 0; i < n; i++) {
        in[i] = tokens[i];
        ops[i] = (struct glm_op){.kind = GLM_OP_DECODE,
                                 .stream = streams[i],
                                 .n = 1,
                                 .tokens = &in[i],
                                 .draws = draws ? &draws[i] : NULL};
        ops[n + i] = (struct glm_op){.kind = GLM_OP_COMMIT, .stream = streams[i], .n = 1};
    }
    struct glm_round_result result = pico_run(p, ops, 2 * n);
    assert_int_equal(result.n_out, n);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = result.tokens[i];
}

struct glm_draw pico_greedy(void)
{
    return (struct glm_draw){.top_p = 1};
}
