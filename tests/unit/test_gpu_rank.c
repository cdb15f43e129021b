/* SPDX-License-Identifier: Apache-2.0 */
/* Whole ranks on a GPU (the one that $GLM_TEST_GPU names, else the fake one of tests/fake, whose
 * kernels the emulator runs): every step against the host's with the same inputs, and what does not
 * depend on a step's numbers: rows alone or together, in any bucket, chunks, moves, rollback; and
 * where exchanges are run. $GLM_TEST_GPUS: how many GPUs there are from that one on. */
#include "runtime/clock.h"
#include "runtime/cuda.h"
#include "runtime/nccl.h"
#include "runtime/proxy.h"
#include "runtime/selftest.h"
#include "tests/support/gpu.h"
#include "tests/support/pico.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Skips the test with the reason, where there is one. */
#define SKIP_FOR(why)                         \
    do {                                      \
        const char *missing = (why);          \
        (void)state;                          \
        if (missing) {                        \
            print_message("# %s\n", missing); \
            skip();                           \
        }                                     \
    } while (0)
#define NEED_GPU()   SKIP_FOR(pico_gpu_missing())
#define NEED_GPUS(n) SKIP_FOR(pico_gpus_missing(n))

/* The emulator runs a small part of what a GPU does in the same time. */
static uint32_t few(uint32_t on_a_gpu, uint32_t emulated)
{
    return test_gpu_chosen() ? on_a_gpu : emulated;
}

/* ---- every step against the host's ---- */

static enum glm_status run_list(void *context, const struct glm_op *ops, uint32_t n_ops,
                                struct glm_round_result *result, struct glm_error *err)
{
    return pico_try(context, ops, n_ops, result, err);
}

static void check_steps(const struct pico_options *options)
{
    struct pico_options on_host = *options, on_gpu = *options;
    struct glm_selftest *tests[GLM_LINK_MAX_WORLD];
    struct glm_error err = {0};
    enum glm_status status;
    on_host.formats.act = GLM_ACT_BF16;
    on_host.formats.kv = options->formats.kv == GLM_KV_FP32 ? GLM_KV_BF16 : options->formats.kv;
    on_host.verify_rows = on_gpu.verify_rows = 4;
    on_host.host = on_gpu.gpu = on_gpu.twin = true;
    struct pico *host = pico_open(&on_host), *gpu = pico_open(&on_gpu);
    uint32_t world = pico_plan(host, 0)->world;
    for (uint32_t r = 0; r < world; r++) {
        if (glm_selftest_new(pico_engine(host, r), pico_engine(gpu, r), &tests[r], &err) != GLM_OK)
            fail_msg("%s", err.message);
        if (glm_selftest_weights(tests[r], &err) != GLM_OK)
            fail_msg("%s", err.message);
    }
    struct glm_selftest_load load = {.prompt_rows = few(1300, 70), .n_rounds = few(8, 2)};
    if (glm_selftest_run(pico_plan(host, 0), &load, run_list, host, &err) != GLM_OK)
        fail_msg("%s", err.message);
    bool passed = true;
    for (uint32_t r = 0; r < world; r++) {
        uint32_t n;
        const struct glm_selftest_row *rows = glm_selftest_rows(tests[r], &n, &status, &err);
        if (status != GLM_OK)
            fail_msg("rank %u: %s", r, err.message);
        assert_true(n > 0);
        for (uint32_t i = 0; i < n; i++) {
            const struct glm_selftest_row *row = &rows[i];
            bool ok = glm_selftest_passed(row);
            passed = passed && ok;
            print_message("    rank %u %-14s %6llu steps, %.3f ulp, %.1e, %llu of %llu codes %s\n",
                          r, row->template_name, (unsigned long long)row->n_steps, row->worst_ulp,
                          row->worst_l2, (unsigned long long)row->n_other_codes,
                          (unsigned long long)row->n_codes, ok ? "" : row->where);
        }
        glm_selftest_free(tests[r]);
    }
    pico_close(gpu);
    pico_close(host);
    assert_true(passed);
}

static void every_step_is_the_hosts(void **state)
{
    NEED_GPU();
    check_steps(&(struct pico_options){.window = few(8192, 2048)});
}

/* On the emulator one rank and one cache stand for the combinations that a GPU runs. */
static void every_step_is_the_hosts_with_quantized_weights(void **state)
{
    NEED_GPU();
    check_steps(&(struct pico_options){
        .window = few(8192, 2048),
        .formats = {.dense = GLM_FORM_Q4, .head = GLM_FORM_FP8, .kv = GLM_KV_FP8}});
    if (!test_gpu_chosen())
        return;
    check_steps(&(struct pico_options){.formats = {.dense = GLM_FORM_FP8}});
    check_steps(&(struct pico_options){.formats = {.kv = GLM_KV_FP8}});
}

static void every_step_is_the_hosts_with_bf16_experts(void **state)
{
    NEED_GPU();
    const char *folder = getenv("GLM_PICO_BF16");
    if (!folder || !folder[0]) {
        print_message("# $GLM_PICO_BF16 does not name the bf16 checkpoint\n");
        skip();
    }
    check_steps(&(struct pico_options){.checkpoint = folder, .window = few(8192, 2048)});
}

static void every_step_is_the_hosts_with_exl3_experts_decoded(void **state)
{
    NEED_GPU();
    check_steps(&(struct pico_options){.decoded_experts = true, .window = few(8192, 2048)});
}

static void every_step_is_the_hosts_on_two_and_four_ranks(void **state)
{
    NEED_GPU();
    check_steps(&(struct pico_options){.world = 2, .window = few(8192, 2048)});
    if (test_gpu_chosen())
        check_steps(&(struct pico_options){.world = 4});
}

/* One layer of each kind at its real widths, as one rank and as one of two has them. */
static void every_step_is_the_hosts_at_the_full_models_widths(void **state)
{
    NEED_GPU();
    if (!test_gpu_chosen()) {
        print_message("# the emulator is too slow for the full model's widths\n");
        skip();
    }
    check_steps(&(struct pico_options){
        .checkpoint = "synthetic:glm-5.3-flash:5", .n_threads = 16, .formats = {.kv = GLM_KV_FP8}});
    check_steps(&(struct pico_options){.checkpoint = "synthetic:glm-5.3-flash:5",
                                       .world = 2,
                                       .n_threads = 8,
                                       .prefill_rows = 256,
                                       .formats = {.dense = GLM_FORM_Q4, .head = GLM_FORM_FP8}});
}

/* ---- replies and bits ---- */

static void random_ids(const struct pico *p, uint32_t seed, int32_t *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (int32_t)((seed >> 8) % pico_plan(p, 0)->n_valid_ids);
    }
}

enum { MAX_REPLY = 256 };

static void greedy_reply(struct pico *p, const struct golden_case *c, uint32_t n, int32_t *reply)
{
    struct glm_draw draw = pico_greedy();
    uint32_t stream = 0;
    pico_admit(p, 0, c->n_ids + n);
    reply[0] = pico_fill(p, 0, c->ids, c->n_ids, 512, &draw);
    for (uint32_t i = 1; i < n; i++) {
        reply[i] = reply[i - 1];
        pico_decode(p, &stream, &reply[i], &draw, 1);
    }
    pico_finish(p, 0);
}

/* Prompts whose margin leaves no doubt about what bf16's rounding can do. */
static void replies_are_those_of_the_host(const struct pico_options *options)
{
    struct pico_options on_host = *options, on_gpu = *options;
    on_gpu.gpu = on_host.host = true;
    on_host.formats.act = GLM_ACT_BF16;
    on_host.formats.kv = options->formats.kv == GLM_KV_FP32 ? GLM_KV_BF16 : options->formats.kv;
    struct golden *g = golden_open("exl3");
    struct pico *host = pico_open(&on_host), *gpu = pico_open(&on_gpu);
    uint32_t n_checked = 0;
    for (uint32_t i = 0; i < golden_count(g) && n_checked < few(1000, 1); i++) {
        struct golden_case c = golden_case(g, i);
        int32_t want[MAX_REPLY], got[MAX_REPLY];
        uint32_t n = c.n_reply < few(MAX_REPLY, 6) ? c.n_reply : few(MAX_REPLY, 6);
        if (c.smallest_margin <= 0.1 || c.n_ids > few(8192, 64))
            continue;
        greedy_reply(host, &c, n, want);
        greedy_reply(gpu, &c, n, got);
        for (uint32_t k = 0; k < n; k++)
            if (got[k] != want[k])
                fail_msg("%s: token %u is %d, the host's %d", c.name, k, got[k], want[k]);
        n_checked++;
    }
    print_message("    %u replies equal on %u ranks\n", n_checked, pico_plan(gpu, 0)->world);
    assert_true(n_checked > 0);
    pico_close(gpu);
    pico_close(host);
    golden_free(g);
}

static void replies_are_the_bf16_hosts(void **state)
{
    NEED_GPU();
    replies_are_those_of_the_host(
        &(struct pico_options){.world = 2, .window = few(8192, 2048), .transport = "tcp"});
    if (!test_gpu_chosen())
        return;
    replies_are_those_of_the_host(&(struct pico_options){.world = 1});
    replies_are_those_of_the_host(&(struct pico_options){.decoded_experts = true});
    replies_are_those_of_the_host(&(struct pico_options){.formats = {.kv = GLM_KV_FP8}});
    replies_are_those_of_the_host(
        &(struct pico_options){.decoded_experts = true, .formats = {.kv = GLM_KV_FP8}});
}

/* A row has its bits whatever bucket it is in and whoever is beside it; what is left of a round
 * that keeps k rows is what k rounds leave. What test_exact shows at length on a GPU. */
static void a_row_keeps_its_bits_beside_others(void **state)
{
    NEED_GPU();
    enum { N = 5, ROUNDS = 3 };
    static int32_t ids[N][128];
    struct pico *p = pico_open(&(struct pico_options){.gpu = true, .window = 2048});
    struct glm_hash rows[N][ROUNDS], states[N];
    const uint32_t lens[N] = {70, 3, 12, 1, 65};
    for (uint32_t s = 0; s < N; s++) {
        random_ids(p, 77 + s, ids[s], lens[s]);
        pico_admit(p, s, 256);
        pico_fill(p, s, ids[s], lens[s], 512, NULL);
        rows[s][0] = pico_logits_hash(p, 0);
        for (uint32_t k = 1; k < ROUNDS; k++) {
            int32_t token = (int32_t)(10 * s + k);
            pico_decode(p, &s, &token, NULL, 1);
            rows[s][k] = pico_logits_hash(p, 0);
        }
        states[s] = pico_state_hash(p, s);
        pico_finish(p, s);
    }
    for (uint32_t s = 0; s < N; s++) {
        pico_admit(p, N - 1 - s, 256);
        pico_fill(p, N - 1 - s, ids[s], lens[s], 64, NULL);
        assert_hash_equal(pico_logits_hash(p, 0), rows[s][0]);
    }
    for (uint32_t k = 1; k < ROUNDS; k++) {
        uint32_t streams[N];
        int32_t tokens[N];
        for (uint32_t s = 0; s < N; s++) {
            streams[s] = N - 1 - s;
            tokens[s] = (int32_t)(10 * s + k);
        }
        pico_decode(p, streams, tokens, NULL, N);
        for (uint32_t s = 0; s < N; s++)
            assert_hash_equal(pico_logits_hash(p, s), rows[s][k]);
    }
    for (uint32_t s = 0; s < N; s++)
        assert_hash_equal(pico_state_hash(p, N - 1 - s), states[s]);
    pico_close(p);
}

/* ---- exchanges within graphs ---- */

enum { MAX_HASHES = 64, MAX_IDS = 1024, STREAMS = 3, VERIFY = 4 };

/* Graphs launched and nodes in them, of the fake driver; none of a GPU's. */
static void count_graphs(unsigned long *launches, unsigned long *nodes)
{
    int (*counts)(unsigned long *, unsigned long *) = NULL;
    const char *driver = getenv("GLM_CUDA_DRIVER");
    void *handle = test_gpu_chosen() ? NULL : dlopen(driver, RTLD_NOW | RTLD_NOLOAD);
    *launches = *nodes = 0;
    if (!handle)
        return;
    void *symbol = dlsym(handle, "fakeGraphCounts");
    memcpy(&counts, &symbol, sizeof counts);
    counts(launches, nodes);
    dlclose(handle);
}

/* Hashes of logits and states: prompts of several slices, rounds of one row to all streams' (three
 * rows in a bucket of four), a round that keeps a part of its rows. */
static uint32_t run_rounds(struct pico *p, struct glm_hash *hashes)
{
    static int32_t ids[MAX_IDS];
    const uint32_t lens[STREAMS] = {few(900, 70), few(100, 5), 3};
    uint32_t streams[STREAMS], n_hashes = 0;
    int32_t tokens[STREAMS];
    struct glm_draw draws[STREAMS];
    for (uint32_t s = 0; s < STREAMS; s++) {
        streams[s] = s;
        draws[s] = pico_greedy();
        random_ids(p, 5 + s, ids, lens[s]);
        pico_admit(p, s, lens[s] + 64);
        tokens[s] = pico_fill(p, s, ids, lens[s], 64, &draws[s]);
        hashes[n_hashes++] = pico_logits_hash(p, 0);
    }
    for (uint32_t round = 0; round < few(12, 3); round++) {
        uint32_t n = STREAMS - round % STREAMS;
        pico_decode(p, streams, tokens, draws, n);
        for (uint32_t i = 0; i < n; i++)
            hashes[n_hashes++] = pico_logits_hash(p, i);
    }
    int32_t rows[VERIFY] = {tokens[0], 17, 18};
    struct glm_op verify = {.kind = GLM_OP_DECODE, .stream = 0, .n = 3, .tokens = rows};
    struct glm_op keep = {.kind = GLM_OP_COMMIT, .stream = 0, .n = 2};
    pico_run(p, &verify, 1);
    hashes[n_hashes++] = pico_logits_hash(p, 2);
    pico_run(p, &keep, 1);
    for (uint32_t s = 0; s < STREAMS; s++)
        hashes[n_hashes++] = pico_state_hash(p, s);
    assert_true(n_hashes <= MAX_HASHES);
    return n_hashes;
}

/* Who runs the exchanges of ranks with a GPU each: the GPUs in each other's memory, the host over
 * either link, or NCCL. */
static const struct way {
    const char *name, *transport;
    bool proxy, on_host;
} ways[] = {{"peers", "shm", false, false},
            {"proxy", "shm", true, true},
            {"tcp", "tcp", false, true},
            {"nccl", "nccl", false, false}};
enum { PEERS, PROXY, TCP, NCCL, N_WAYS };

/* Why that way cannot be gone here, or NULL. */
static const char *way_missing(int way)
{
    static struct glm_error err;
    int version;
    return way == NCCL && glm_nccl_library(&version, &err) != GLM_OK ? err.message : NULL;
}

static bool way_is_open(int way)
{
    const char *missing = way_missing(way);
    if (missing)
        print_message("# %s\n", missing);
    return !missing;
}

static struct pico *open_ranks(const struct way *way, uint32_t world, uint32_t gpus)
{
    return pico_open(&(struct pico_options){.gpu = true,
                                            .gpus = gpus,
                                            .world = world,
                                            .window = 2048,
                                            .prefill_rows = 64,
                                            .verify_rows = VERIFY,
                                            .transport = way->transport,
                                            .proxy = way->proxy});
}

/* Of the host: none where the GPUs do it. */
static bool host_exchanged(const struct pico *p)
{
    return glm_engine_stats(pico_engine(p, 0)).exchange_ns > 0;
}

/* A chain of exchanges of one rank, whose sum is what it sends: only the way there and back. */
enum { CHAIN = 3, FLOATS = 1000 };

struct chain {
    struct glm_cuda *gpu;
    glm_cuda_stream stream;
    glm_cuda_address x; /* [CHAIN + 1][FLOATS] */
    void *send, *receive, *words;
    struct glm_collective *collective;
    struct glm_collective_step *sum;
    struct glm_proxy *proxy;
    struct glm_error err;
};

#define WORKS(call)                         \
    do {                                    \
        if ((call) != GLM_OK)               \
            fail_msg("%s", c->err.message); \
    } while (0)

static void open_chain(struct chain *c)
{
    const char *index = getenv("GLM_TEST_GPU");
    const uint64_t bytes = FLOATS * sizeof(float);
    *c = (struct chain){0};
    WORKS(glm_cuda_open(index ? (uint32_t)atoi(index) : 0, &c->gpu, &c->err));
    WORKS(glm_cuda_stream_new(c->gpu, &c->stream, &c->err));
    WORKS(glm_cuda_alloc(c->gpu, "a chain", (CHAIN + 1) * bytes, &c->x, &c->err));
    WORKS(glm_cuda_host_alloc(c->gpu, "a slot", bytes, &c->send, &c->err));
    WORKS(glm_cuda_host_alloc(c->gpu, "a slot", bytes, &c->receive, &c->err));
    WORKS(glm_cuda_host_alloc(c->gpu, "words", sizeof(struct glm_proxy_words), &c->words, &c->err));
    WORKS(glm_collective_new(0, 1, NULL, bytes, 0, NULL, NULL, &c->collective, &c->err));
    WORKS(glm_collective_prepare(c->collective, GLM_SUM, c->send, c->receive, bytes, &c->sum,
                                 &c->err));
    WORKS(glm_proxy_new(c->words, CHAIN, &c->proxy, &c->err));
}

static void close_chain(struct chain *c)
{
    glm_proxy_free(c->proxy);
    glm_collective_free(c->collective);
    glm_cuda_host_free(c->gpu, c->words);
    glm_cuda_host_free(c->gpu, c->receive);
    glm_cuda_host_free(c->gpu, c->send);
    glm_cuda_free(c->gpu, c->x);
    glm_cuda_stream_free(c->gpu, c->stream);
    glm_cuda_close(c->gpu);
}

static void put_chain(struct chain *c)
{
    struct glm_proxy_words *words = c->words;
    const uint64_t bytes = FLOATS * sizeof(float);
    for (uint64_t i = 0; i < CHAIN; i++) {
        WORKS(glm_cuda_copy_out(c->gpu, c->stream, c->send, c->x + i * bytes, bytes, &c->err));
        WORKS(glm_cuda_meet(c->gpu, c->stream, &words->rung, &words->done, &c->err));
        WORKS(glm_cuda_copy_in(c->gpu, c->stream, c->x + (i + 1) * bytes, c->receive, bytes,
                               &c->err));
    }
}

static void a_stream_meets_the_host_plainly_and_from_a_graph(void **state)
{
    NEED_GPU();
    struct chain chain, *c = &chain;
    glm_cuda_graph graph = NULL;
    uint64_t ns = 0, began = 0;
    open_chain(c);
    WORKS(glm_cuda_capture_begin(c->gpu, c->stream, &c->err));
    put_chain(c);
    WORKS(glm_cuda_capture_end(c->gpu, c->stream, &graph, &c->err));
    const uint32_t launches = few(2000, 20);
    for (uint32_t round = 0; round <= launches; round++) {
        static float from[FLOATS], to[FLOATS];
        for (uint32_t i = 0; i < FLOATS; i++)
            from[i] = (float)(round * 1001 + i);
        WORKS(glm_cuda_copy_in(c->gpu, c->stream, c->x, from, sizeof from, &c->err));
        for (int i = 0; i < CHAIN; i++)
            glm_proxy_expect(c->proxy, c->sum, sizeof from);
        if (round == 0)
            put_chain(c);
        else
            WORKS(glm_cuda_graph_launch(c->gpu, graph, c->stream, &c->err));
        WORKS(glm_cuda_copy_out(c->gpu, c->stream, to, c->x + CHAIN * sizeof from, sizeof to,
                                &c->err));
        WORKS(glm_cuda_stream_wait(c->gpu, c->stream, &c->err));
        WORKS(glm_proxy_wait(c->proxy, &ns, &c->err));
        assert_memory_equal(to, from, sizeof to);
        began = round == 0 ? glm_now_ns() : began;
    }
    print_message("    %.1f us an exchange of %d bytes, copies and checks included\n",
                  (double)(glm_now_ns() - began) * 1e-3 / launches / CHAIN,
                  (int)(FLOATS * sizeof(float)));
    glm_cuda_graph_free(c->gpu, graph);
    close_chain(c);
}

static void check_bits(uint32_t world)
{
    struct glm_hash want[MAX_HASHES], got[MAX_HASHES];
    struct pico *p = open_ranks(&ways[1], world, 1);
    uint32_t n = run_rounds(p, want);
    pico_close(p);
    for (int i = 0; i < N_WAYS; i++) {
        if (!way_is_open(i))
            continue;
        p = open_ranks(&ways[i], world, world);
        assert_int_equal(run_rounds(p, got), n);
        for (uint32_t k = 0; k < n; k++)
            assert_hash_equal(got[k], want[k]);
        assert_int_equal(host_exchanged(p), ways[i].on_host);
        pico_close(p);
    }
}

static void exchanges_in_graphs_leave_the_bits_of_those_on_the_host(void **state)
{
    NEED_GPUS(2);
    check_bits(2);
}

static void four_gpus_leave_the_bits_of_those_on_the_host(void **state)
{
    NEED_GPUS(4);
    check_bits(4);
}

/* One that cannot is enough: all ranks take the same way. */
static void gpus_that_cannot_meet_have_the_host_exchange(void **state)
{
    static const char *const failures[] = {"cuDeviceCanAccessPeer", "cuCtxEnablePeerAccess"};
    NEED_GPUS(2);
    if (test_gpu_chosen())
        skip();
    for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++) {
        char setting[64];
        uint32_t stream = 0;
        int32_t token = 5;
        snprintf(setting, sizeof setting, "gpus=8 fail=%s", failures[i]);
        setenv("FAKE_CUDA", setting, 1);
        struct pico *p = open_ranks(&ways[0], 2, 2);
        setenv("FAKE_CUDA", "gpus=8", 1);
        pico_admit(p, 0, 64);
        pico_fill(p, 0, &token, 1, 64, NULL);
        pico_decode(p, &stream, &token, NULL, 1);
        assert_true(host_exchanged(p));
        pico_close(p);
    }
}

static void with_a_gpu_a_rank_a_decode_is_one_graph(void **state)
{
    NEED_GPUS(2);
    static const int each[] = {PROXY, PROXY, PEERS, NCCL};
    for (uint32_t i = 0; i < sizeof each / sizeof each[0]; i++) {
        const uint32_t gpus = i == 0 ? 1 : 2;
        if (!way_is_open(each[i]))
            continue;
        struct pico *p = open_ranks(&ways[each[i]], 2, gpus);
        uint32_t stream = 0;
        int32_t token = 5;
        unsigned long launches[2], nodes[2];
        pico_admit(p, 0, 64);
        pico_fill(p, 0, &token, 1, 64, NULL);
        uint64_t before = pico_exchanges(p, 0);
        count_graphs(&launches[0], &nodes[0]);
        pico_decode(p, &stream, &token, NULL, 1);
        count_graphs(&launches[1], &nodes[1]);
        uint64_t exchanges = pico_exchanges(p, 0) - before;
        if (!test_gpu_chosen()) /* the fake one counts */
            print_message("    %u GPUs: %lu graphs of %lu nodes a rank, %llu exchanges\n", gpus,
                          (launches[1] - launches[0]) / 2, (nodes[1] - nodes[0]) / 2,
                          (unsigned long long)exchanges);
        assert_true(exchanges > 0);
        if (!test_gpu_chosen())
            assert_int_equal(launches[1] - launches[0], gpus == 2 ? 2 : 2 * (exchanges + 1));
        pico_close(p);
    }
}

struct killer {
    struct pico *p;
    uint64_t at; /* exchanges of rank 1 */
};

static void *kill_rank_1(void *context)
{
    struct killer *k = context;
    while (pico_exchanges(k->p, 1) < k->at)
        usleep(100);
    pico_kill(k->p, 1);
    return NULL;
}

/* Prompts until it happens, since a GPU may be through with one before the killer sees it. */
static void a_peer_that_dies_in_a_round_ends_it(void **state)
{
    NEED_GPUS(2);
    for (int i = 0; i < N_WAYS; i++) {
        if (!way_is_open(i))
            continue;
        struct pico *p = open_ranks(&ways[i], 2, 2);
        static int32_t ids[64];
        const struct glm_op ops[] = {
            {.kind = GLM_OP_ADMIT, .stream = 0, .n_tokens = 64},
            {.kind = GLM_OP_FILL, .stream = 0, .n = 64, .out_from = 63, .tokens = ids},
            {.kind = GLM_OP_FINISH, .stream = 0}};
        struct glm_round_result result;
        struct glm_error err = {0};
        pthread_t thread;
        random_ids(p, 3, ids, 64);
        struct killer killer = {p, pico_exchanges(p, 1) + 3};
        assert_int_equal(pthread_create(&thread, NULL, kill_rank_1, &killer), 0);
        enum glm_status st = GLM_OK;
        for (uint32_t turn = 0; st == GLM_OK && turn < 10000; turn++)
            st = pico_try(p, ops, 3, &result, &err);
        pthread_join(thread, NULL);
        assert_int_equal(st, GLM_EPEER);
        assert_non_null(strstr(err.message, "rank 1"));
        assert_int_equal(pico_try(p, ops, 3, &result, &err), GLM_EPEER);
        pico_close(p);
    }
}

static void a_launch_that_fails_leaves_nobody_waiting(void **state)
{
    NEED_GPUS(2);
    if (test_gpu_chosen())
        skip();
    struct pico *p = open_ranks(&ways[0], 2, 2);
    int32_t token = 5;
    struct glm_op fill = {
        .kind = GLM_OP_FILL, .stream = 0, .n = 1, .out_from = 0, .tokens = &token};
    struct glm_round_result result;
    struct glm_error err = {0};
    pico_admit(p, 0, 64);
    setenv("FAKE_CUDA", "gpus=8 fail=cuGraphLaunch", 1);
    assert_int_equal(pico_try(p, &fill, 1, &result, &err), GLM_EKERNEL);
    pico_close(p);
    setenv("FAKE_CUDA", "gpus=8", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_step_is_the_hosts),
        cmocka_unit_test(every_step_is_the_hosts_with_quantized_weights),
        cmocka_unit_test(every_step_is_the_hosts_with_bf16_experts),
        cmocka_unit_test(every_step_is_the_hosts_with_exl3_experts_decoded),
        cmocka_unit_test(every_step_is_the_hosts_on_two_and_four_ranks),
        cmocka_unit_test(every_step_is_the_hosts_at_the_full_models_widths),
        cmocka_unit_test(replies_are_the_bf16_hosts),
        cmocka_unit_test(a_row_keeps_its_bits_beside_others),
        cmocka_unit_test(a_stream_meets_the_host_plainly_and_from_a_graph),
        cmocka_unit_test(with_a_gpu_a_rank_a_decode_is_one_graph),
        cmocka_unit_test(exchanges_in_graphs_leave_the_bits_of_those_on_the_host),
        cmocka_unit_test(four_gpus_leave_the_bits_of_those_on_the_host),
        cmocka_unit_test(gpus_that_cannot_meet_have_the_host_exchange),
        cmocka_unit_test(a_peer_that_dies_in_a_round_ends_it),
        cmocka_unit_test(a_launch_that_fails_leaves_nobody_waiting),
    };
    cmocka_set_test_filter(getenv("GLM_TEST_ONLY")); /* a pattern of names, for slow runners */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
