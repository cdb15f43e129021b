/* SPDX-License-Identifier: Apache-2.0 */
/* Measures a machine the way the price model sees it: reads from memory and cache, multiply-adds,
 * the EXL3 codec alone, a chain of the smallest matmul for the gap between dependent kernels, a
 * chain of small sums for an exchange. Medians of many short calls, as what they are compared with.
 * The bodies that only measure are bench/kernels/; the gap's is the real matmul. */
#include "bench/calibrate.h"

#include "bench/measure.h"
#include "codegen/kernels.h"
#include "runtime/kernel_load.h"
#include "runtime/threads.h"
#include "tests/support/kernel.h"
#include "tests/support/ranks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    GAP_WIDTH = 256,
    GAP_LAYERS = 48,
    GAP_SETUPS = 7,
    MAX_SAMPLES = 100,
    PASSES = 15, /* of an exchange, each of SUMS */
    SUMS = 200,
    CODEC_BYTES = 64 << 20, /* more than a core's own cache */
    CALL_BYTES = 128 << 20, /* read by one call at least */
};

static void give_up(const char *what)
{
    fprintf(stderr, "cannot calibrate: %s\n", what);
    exit(1);
}

/* Memory as the engine's: huge pages where the system gives them. */
static void *map_huge(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        give_up("out of memory");
    madvise(at, bytes, MADV_HUGEPAGE);
    return at;
}

/* ---- kernels alone ---- */

/* Median seconds of a bench body, whose constants make one call take milliseconds: threads need a
 * part of one to wake up. */
static double body_seconds(struct test_threads *t, const char *body, const char *constants,
                           void **args)
{
    struct test_round *r = test_round(1);
    struct test_kernel *k = test_kernel_file(&(struct test_build){0}, body, constants, "f32");
    double s[MAX_SAMPLES], sum = 0;
    size_t n = 0;
    test_threads_run(t, k, &r->round, args, NULL);
    while (n < MAX_SAMPLES && (sum < 0.5 || n < 7)) {
        s[n] = test_threads_run(t, k, &r->round, args, NULL);
        sum += s[n++];
    }
    test_round_free(r);
    return measure_median(s, n);
}

/* Bytes a second of all threads over the first `bytes`, again and again. */
static double read_rate(struct test_threads *t, void **args, size_t bytes)
{
    char constants[96];
    size_t times = CALL_BYTES / bytes + 1;
    snprintf(constants, sizeof constants, "BYTES=%zu AHEAD=512 STREAMS=8 TIMES=%zu", bytes, times);
    return (double)(bytes * times) / body_seconds(t, "bench/kernels/stream.c", constants, args);
}

static int64_t param(const struct glm_plan_kernel *k, const char *name)
{
    for (uint32_t i = 0; i < k->n_params; i++)
        if (strcmp(k->params[i].name, name) == 0)
            return k->params[i].value;
    return 0;
}

static const char *word(const struct glm_plan_kernel *k, const char *name)
{
    for (uint32_t i = 0; i < k->n_params; i++)
        if (strcmp(k->params[i].name, name) == 0 && k->params[i].text)
            return k->params[i].text;
    return "";
}

/* The codec alone at the shape of this rank's experts; 0 without such a kernel. */
static double exl3_rate(struct test_threads *t, const struct glm_plan *p, void **args, size_t total)
{
    for (uint32_t i = 0; i < p->n_kernels; i++) {
        const struct glm_plan_kernel *k = &p->kernels[i];
        if (strcmp(k->template_name, "moe_gate_up") != 0 || strcmp(word(k, "FORM"), "exl3") != 0)
            continue;
        char constants[160], form[48];
        uint64_t bytes, n = (uint64_t)param(k, "I"), d = (uint64_t)param(k, "D");
        snprintf(form, sizeof form, "exl3:%d:%s", (int)param(k, "BITS"), word(k, "CODEBOOK"));
        if (glm_form_bytes(form, n, d, &bytes, NULL) != GLM_OK || bytes == 0)
            give_up("an EXL3 expert without a size");
        uint64_t members = total / bytes + 1;
        snprintf(constants, sizeof constants, "N=%u K=%u BITS=%d CODEBOOK_%s=1 MEMBERS=%u",
                 (unsigned)n, (unsigned)d, (int)param(k, "BITS"), word(k, "CODEBOOK"),
                 (unsigned)members);
        double s = body_seconds(t, "bench/kernels/decode.c", constants, args);
        return (double)(members * n * d) / s;
    }
    return 0;
}

/* ---- the gap between dependent kernels ---- */

/* A chain of real kernels as a layer has them: mix, matmul, activation, matmul, each reading what
 * the one before it wrote, at a width where the gap weighs more than the bytes. */
enum { W = GAP_WIDTH, STREAMS = 4, MIX = 2 * STREAMS + STREAMS * STREAMS, N_GAP = 4 };
enum { FN_BYTES = MIX * STREAMS * W * 2, UP_BYTES = 2 * W * W * 2, DOWN_BYTES = W * W * 2 };
enum { LAYER_BYTES = FN_BYTES + UP_BYTES + DOWN_BYTES };

#define INT(n, v)                                \
    {                                            \
        .name = n, .value = v, .origin = "bench" \
    }
#define TEXT(n, v)                              \
    {                                           \
        .name = n, .text = v, .origin = "bench" \
    }
static struct glm_plan_param mix_params[] = {INT("D", W),         INT("S", STREAMS),
                                             INT("WRITE", 1),     INT("ITERS", 20),
                                             TEXT("EPS", "1e-6"), TEXT("NORM_EPS", "1e-5")};
static struct glm_plan_param up_params[] = {
    INT("N", 2 * W),        INT("K", W),        TEXT("FORM", "bf16"), INT("X_STRIDE", W),
    INT("Y_STRIDE", 2 * W), TEXT("OUT", "act"), TEXT("ROWS", "round")};
static struct glm_plan_param act_params[] = {INT("N", W), TEXT("LIMIT", "10.0"),
                                             INT("X_STRIDE", 2 * W)};
static struct glm_plan_param down_params[] = {
    INT("N", W),        INT("K", W),        TEXT("FORM", "bf16"), INT("X_STRIDE", W),
    INT("Y_STRIDE", W), TEXT("OUT", "f32"), TEXT("ROWS", "round")};
static struct glm_plan_kernel gap_kernels[N_GAP] = {{"gap.mix", "hc_mix", mix_params, 6},
                                                    {"gap.up", "matmul", up_params, 7},
                                                    {"gap.act", "swiglu", act_params, 3},
                                                    {"gap.down", "matmul", down_params, 7}};

struct chain {
    struct glm_team *team;
    struct glm_kernel_code kernels[N_GAP];
    const struct glm_round *round;
    char *weights; /* GAP_LAYERS of them: more than a core's own cache */
    float *x, *y, *mix, *u, *up, *h, *vectors, *scratch;
};

static void run_chain(void *context, uint32_t thread)
{
    struct chain *c = context;
    struct glm_launch launch = {thread,     glm_team_threads(c->team), c->round,
                                c->scratch, glm_team_barrier,          c->team};
    for (int i = 0; i < GAP_LAYERS; i++) {
        char *fn = c->weights + (size_t)i * LAYER_BYTES, *up = fn + FN_BYTES;
        void *args[N_GAP][8] = {
            {c->y, c->mix, c->x, fn, c->vectors, c->vectors + 64, c->vectors + 128, c->u},
            {c->u, up, c->up},
            {c->up, c->h},
            {c->h, up + UP_BYTES, c->y},
        };
        for (int k = 0; k < N_GAP; k++) {
            c->kernels[k].run(&launch, args[k]);
            glm_team_barrier(c->team);
        }
    }
}

static void load_gap_kernels(struct chain *c)
{
    struct glm_error err = {0};
    struct arena arena;
    struct glm_plan plan = {
        .target = glm_host_target(), .act = "f32", .kernels = gap_kernels, .n_kernels = N_GAP};
    struct glm_kernel_build *builds;
    arena_init(&arena, (size_t)16 << 20);
    enum glm_status st = glm_kernels_build(&plan, 2, &arena, NULL, NULL, &builds, &err);
    for (int k = 0; k < N_GAP && st == GLM_OK; k++)
        st = glm_kernel_load(gap_kernels[k].name, builds[k].path, &c->kernels[k], &err);
    if (st != GLM_OK)
        give_up(err.message);
    arena_release(&arena);
}

/* Zeroed floats for the chain, all from one allocation. */
static float *carve(float **at, size_t n)
{
    float *p = *at;
    *at += (n + 15) / 16 * 16;
    return p;
}

struct chain_rank {
    uint32_t n_threads, host_threads;
    atomic_bool *stop; /* set by the measuring rank */
    bool measures;
    double seconds; /* of one chain */
    pthread_t thread;
};

static void *run_chains(void *argument)
{
    enum { FLOATS = 64 * 1024 };
    struct chain_rank *me = argument;
    struct glm_error err = {0};
    struct chain c = {.weights = map_huge((size_t)GAP_LAYERS * LAYER_BYTES)};
    float *floats = test_alloc(FLOATS * sizeof *floats), *at = floats;
    struct test_round *r = test_round(1);
    load_gap_kernels(&c);
    if (glm_team_new(me->n_threads, me->host_threads, &c.team, &err) != GLM_OK)
        give_up(err.message);
    memset(c.weights, 0, (size_t)GAP_LAYERS * LAYER_BYTES); /* touched before it is timed */
    memset(floats, 0, FLOATS * sizeof *floats);
    c.round = &r->round;
    c.x = carve(&at, STREAMS * W);
    c.y = carve(&at, W);
    c.mix = carve(&at, MIX);
    c.u = carve(&at, W);
    c.up = carve(&at, 2 * W);
    c.h = carve(&at, W);
    c.vectors = carve(&at, 128 + W);
    c.scratch = carve(&at, (size_t)2 * me->n_threads * 16 * (MIX + 1) * 16);
    if (at - floats > FLOATS)
        give_up("too many threads");
    double s[MAX_SAMPLES];
    for (int i = -100; me->measures ? i < MAX_SAMPLES : !atomic_load(me->stop); i++) {
        double start = measure_seconds();
        glm_team_run(c.team, run_chain, &c);
        if (me->measures)
            s[i < 0 ? 0 : i] = measure_seconds() - start;
    }
    atomic_store(me->stop, true);
    me->seconds = me->measures ? measure_median(s, MAX_SAMPLES) : 0;
    glm_team_free(c.team);
    for (int k = 0; k < N_GAP; k++)
        glm_kernel_unload(&c.kernels[k]);
    test_round_free(r);
    munmap(c.weights, (size_t)GAP_LAYERS * LAYER_BYTES);
    test_release(floats);
    return NULL;
}

/* Seconds of a launch in the chain, less its weights' at the cache's rate, while every rank of the
 * machine runs such a chain. */
static double gap_seconds(uint32_t world, uint32_t n_threads, double cache_bytes_s)
{
    struct chain_rank ranks[GLM_LINK_MAX_WORLD];
    atomic_bool stop = false;
    for (uint32_t i = 0; i < world; i++) {
        ranks[i] = (struct chain_rank){.n_threads = n_threads,
                                       .host_threads = n_threads * world,
                                       .stop = &stop,
                                       .measures = i == 0};
        if (i > 0 && pthread_create(&ranks[i].thread, NULL, run_chains, &ranks[i]) != 0)
            give_up("no thread");
    }
    run_chains(&ranks[0]);
    for (uint32_t i = 1; i < world; i++)
        pthread_join(ranks[i].thread, NULL);
    double gap = (ranks[0].seconds / GAP_LAYERS - LAYER_BYTES / cache_bytes_s) / N_GAP;
    return gap > 0 ? gap : 0;
}

/* ---- an exchange ---- */

struct exchange {
    uint32_t rank, world;
    size_t bytes;
    struct glm_link **links;
    pthread_t thread;
    double seconds; /* of one sum; 0 when it failed */
};

static void *sum_often(void *argument)
{
    struct exchange *x = argument;
    struct glm_collective *c;
    struct glm_collective_step *step;
    struct glm_error err = {0};
    float *values = calloc(1, x->bytes);
    double s[PASSES];
    if (!values || glm_collective_new(x->rank, x->world, x->links, x->bytes, 0, NULL, NULL, &c,
                                      &err) != GLM_OK)
        give_up(err.message);
    if (glm_collective_prepare(c, GLM_SUM, values, values, x->bytes, &step, &err) != GLM_OK)
        give_up(err.message);
    for (int pass = 0; pass < PASSES; pass++) {
        double start = measure_seconds();
        for (int i = 0; i < SUMS; i++)
            if (glm_collective_run(step, x->bytes, &err) != GLM_OK)
                give_up(err.message);
        s[pass] = (measure_seconds() - start) / SUMS;
    }
    x->seconds = measure_median(s, PASSES);
    glm_collective_free(c);
    free(values);
    return NULL;
}

static double exchange_seconds(const char *transport, uint32_t world, bool spin, size_t bytes)
{
    struct glm_link *links[GLM_LINK_MAX_WORLD][GLM_LINK_MAX_WORLD] = {{0}};
    struct exchange all[GLM_LINK_MAX_WORLD];
    test_links_connect(transport, world, bytes, links);
    for (uint32_t i = 0; i < world; i++) {
        for (uint32_t k = 0; k < world; k++)
            if (links[i][k])
                links[i][k]->spin = spin;
        all[i] = (struct exchange){.rank = i, .world = world, .bytes = bytes, .links = links[i]};
        if (i > 0 && pthread_create(&all[i].thread, NULL, sum_often, &all[i]) != 0)
            give_up("no thread");
    }
    sum_often(&all[0]);
    for (uint32_t i = 1; i < world; i++)
        pthread_join(all[i].thread, NULL);
    return all[0].seconds;
}

/* Columns of what the ranks sum: the hidden width. */
static size_t exchange_bytes(const struct glm_plan *p)
{
    for (uint32_t b = 0; b < p->n_programs; b++)
        for (uint32_t i = 0; i < p->programs[b].n_steps; i++)
            if (p->programs[b].steps[i].kind == GLM_STEP_SUM)
                return glm_plan_buffer(p, p->programs[b].steps[i].from)->n_cols * sizeof(float);
    for (uint32_t b = 0; b < p->n_blocks; b++)
        for (uint32_t i = 0; i < p->blocks[b].n_steps; i++)
            if (p->blocks[b].steps[i].kind == GLM_STEP_SUM)
                return glm_plan_buffer(p, p->blocks[b].steps[i].from)->n_cols * sizeof(float);
    return 1024;
}

void calibrate(const struct calibrate_options *o, struct glm_device_figures *out)
{
    const struct glm_plan *p = o->plan;
    uint32_t world = p->world, all = o->n_threads * world;
    struct test_threads *t = test_threads_new(all);
    struct test_random random = {1};
    char *buffer = map_huge(o->memory_bytes);
    void *args[8] = {buffer, test_alloc(64 * 64 + 64 * all)};
    for (size_t i = 0; i + 8 <= o->memory_bytes; i += 8) { /* moderate as bf16, fp16 and scales */
        uint64_t v = (test_random_u64(&random) & 0x807f807f807f807fu) | 0x3f003f003f003f00u;
        memcpy(buffer + i, &v, 8);
    }
    *out = (struct glm_device_figures){.cache_bytes = 4 * (double)o->cache_bytes};
    out->read_bytes_s = read_rate(t, args, o->memory_bytes) / world;
    out->cache_bytes_s = read_rate(t, args, o->cache_bytes * world) / world;
    out->ops_s = 4e6 * 12 * 32 * o->n_threads /
                 body_seconds(t, "bench/kernels/fma.c", "STEPS=4000000", args);
    size_t codec_bytes = o->cache_bytes > CODEC_BYTES ? o->cache_bytes : CODEC_BYTES;
    if (codec_bytes > o->memory_bytes / 2)
        codec_bytes = o->memory_bytes / 2;
    out->exl3_weights_s = exl3_rate(t, p, args, codec_bytes) / world;
    test_threads_free(t);
    munmap(buffer, o->memory_bytes);
    test_release(args[1]);
    double gaps[GAP_SETUPS]; /* where memory comes to lie makes a difference */
    for (int i = 0; i < GAP_SETUPS; i++)
        gaps[i] = gap_seconds(world, o->n_threads, out->cache_bytes_s);
    out->kernel_gap_s = measure_median(gaps, GAP_SETUPS);
    if (world == 1)
        return;
    size_t small = exchange_bytes(p), large = 16 * small;
    bool spin = all <= glm_cores();
    out->exchange_s = exchange_seconds(o->transport, world, spin, small);
    double more = exchange_seconds(o->transport, world, spin, large) - out->exchange_s;
    if (more > 0) {
        out->exchange_bytes_s = (world - 1) * (double)(large - small) / more;
        out->exchange_s -= (world - 1) * (double)small / out->exchange_bytes_s;
    }
}

void calibrate_print(const struct glm_device_figures *f)
{
    printf("# memory %.2f GB/s, cache %.2f GB/s, %.0f GFLOP/s, EXL3 %.2f G weights/s, kernel gap "
           "%.2f us, exchange %.2f us + %.2f GB/s\n",
           f->read_bytes_s / 1e9, f->cache_bytes_s / 1e9, f->ops_s / 1e9, f->exl3_weights_s / 1e9,
           1e6 * f->kernel_gap_s, 1e6 * f->exchange_s, f->exchange_bytes_s / 1e9);
}
