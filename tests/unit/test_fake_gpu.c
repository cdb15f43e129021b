/* SPDX-License-Identifier: Apache-2.0 */
/* A plan's CUDA kernels without a GPU: built through the NVRTC back end, kept in the cache, loaded
 * and launched through the driver, all real but for the two libraries of tests/fake. What the
 * kernels compute is test_device's; here it is that this way gives the host's numbers, and that a
 * kernel's mistake comes up as an error of the launch. */
#include "codegen/kernels.h"
#include "codegen/templates.h"
#include "runtime/cuda.h"
#include "tests/support/folder.h"
#include "tests/support/gpu.h"
#include "tests/support/simt.h"
#include "tests/support/streams.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_ROWS = 3, MAX_KERNELS = 4, N_IN = 64, N_OUT = 40 };

struct fixture {
    struct arena arena;
    struct glm_error err;
    char *cache, *templates;
    struct glm_kernel_build *builds;
    struct glm_cuda *gpu;
    glm_cuda_stream stream;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    arena_init(&f->arena, 64 << 20);
    f->cache = folder_new();
    setenv("GLM_CACHE_DIR", f->cache, 1);
    unsetenv("FAKE_CUDA");
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    glm_cuda_stream_free(f->gpu, f->stream);
    glm_cuda_close(f->gpu);
    unsetenv("GLM_TEMPLATES");
    folder_remove(f->templates);
    folder_remove(f->cache);
    arena_release(&f->arena);
    free(f);
    return 0;
}

#define WORKS(call)                           \
    do {                                      \
        if ((call) != GLM_OK)                 \
            fail_msg("%s", (f)->err.message); \
    } while (0)

static void open_gpu(struct fixture *f, uint32_t index)
{
    WORKS(glm_cuda_open(index, &f->gpu, &f->err));
    WORKS(glm_cuda_stream_new(f->gpu, &f->stream, &f->err));
}

/* rows: template, parameters. */
static void build(struct fixture *f, const char *const rows[][2], uint32_t n)
{
    static struct glm_plan_param params[MAX_KERNELS][TEST_MAX_PARAMS];
    static char texts[MAX_KERNELS][256];
    struct glm_plan_kernel kernels[MAX_KERNELS];
    struct glm_manifest *manifests;
    uint32_t n_manifests;
    WORKS(glm_manifests_load(&f->arena, &manifests, &n_manifests, &f->err));
    for (uint32_t i = 0; i < n; i++) {
        const struct glm_manifest *m = glm_manifest_find(manifests, n_manifests, rows[i][0]);
        snprintf(texts[i], sizeof texts[i], "%s", rows[i][1]);
        kernels[i] = (struct glm_plan_kernel){rows[i][0], rows[i][0], params[i], 0};
        kernels[i].n_params = test_params(m, texts[i], params[i]);
    }
    const struct glm_plan plan = {
        .target = "sm_90", .act = "bf16", .kernels = kernels, .n_kernels = n};
    WORKS(glm_kernels_build(&plan, 2, &f->arena, NULL, NULL, &f->builds, &f->err));
}

static struct glm_cuda_kernel load(struct fixture *f, uint32_t i, uint32_t shared)
{
    struct glm_cuda_kernel k = {0};
    const struct glm_kernel_build *b = &f->builds[i];
    WORKS(glm_cuda_kernel_load(f->gpu, b->name, b->path, b->digest, shared, &k, &f->err));
    return k;
}

static glm_cuda_address place(struct fixture *f, const void *from, size_t bytes)
{
    glm_cuda_address at = 0;
    WORKS(glm_cuda_alloc(f->gpu, "a test's", bytes, &at, &f->err));
    if (from != NULL)
        WORKS(glm_cuda_copy_in(f->gpu, f->stream, at, from, bytes, &f->err));
    return at;
}

static void *on_gpu(glm_cuda_address address)
{
    return (void *)(uintptr_t)address;
}

/* ---- Two kernels, one after the other ---- */

#define SWIGLU "N=64 LIMIT=2 X_STRIDE=128"
#define MATMUL "N=40 K=64 FORM=bf16 X_STRIDE=64 Y_STRIDE=40 OUT=f32 ROWS=round"

/* x, what swiglu makes of it, a weight, its product with that. */
struct numbers {
    uint16_t x[N_ROWS * 2 * N_IN], h[N_ROWS * N_IN], w[N_OUT * N_IN];
    float y[N_ROWS * N_OUT];
};

/* The inputs and what the host's kernels make of them. */
static struct numbers host_numbers(struct test_round *r)
{
    struct numbers n;
    struct test_random random = {7};
    for (size_t i = 0; i < sizeof n.x / sizeof n.x[0]; i++)
        test_act_put(n.x, i, test_random_normal(&random), "bf16");
    for (size_t i = 0; i < sizeof n.w / sizeof n.w[0]; i++)
        test_act_put(n.w, i, test_random_normal(&random), "bf16");
    void *args[] = {test_alloc(sizeof n.x), test_alloc(sizeof n.h), test_alloc(sizeof n.w),
                    test_alloc(sizeof n.y)};
    memcpy(args[0], n.x, sizeof n.x);
    memcpy(args[2], n.w, sizeof n.w);
    test_kernel_run(test_kernel("swiglu", SWIGLU, "bf16"), &r->round, args, 1);
    test_kernel_run(test_kernel("matmul", MATMUL, "bf16"), &r->round,
                    (void *[]){args[1], args[2], args[3]}, 1);
    memcpy(n.h, args[1], sizeof n.h);
    memcpy(n.y, args[3], sizeof n.y);
    for (size_t i = 0; i < 4; i++)
        test_release(args[i]);
    return n;
}

/* The same on a GPU, inputs from the host and outputs to it included. */
struct pair {
    struct glm_cuda_kernel kernels[2];
    struct glm_cuda_launch launches[2];
    glm_cuda_address x, h, w, y, rows, round;
};

static struct pair new_pair(struct fixture *f, const struct numbers *n, const struct test_round *r)
{
    struct pair p = {.kernels = {load(f, 0, 0), load(f, 1, 0)},
                     .x = place(f, NULL, sizeof n->x),
                     .h = place(f, NULL, sizeof n->h),
                     .w = place(f, n->w, sizeof n->w),
                     .y = place(f, NULL, sizeof n->y),
                     .rows = place(f, r->rows, N_ROWS * sizeof *r->rows)};
    const struct glm_round round = {.n_rows = N_ROWS, .rows = on_gpu(p.rows)};
    p.round = place(f, &round, sizeof round);
    p.launches[0] = (struct glm_cuda_launch){
        .name = "swiglu",
        .grid = {1, N_ROWS, 1},
        .block = 128,
        .args = {.round = on_gpu(p.round), .args = {on_gpu(p.x), on_gpu(p.h)}}};
    p.launches[1] = (struct glm_cuda_launch){
        .name = "matmul",
        .grid = {3, 1, 1},
        .block = 128,
        .args = {.round = on_gpu(p.round), .args = {on_gpu(p.h), on_gpu(p.w), on_gpu(p.y)}}};
    return p;
}

static void free_pair(struct fixture *f, struct pair *p)
{
    const glm_cuda_address all[] = {p->x, p->h, p->w, p->y, p->rows, p->round};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        glm_cuda_free(f->gpu, all[i]);
    for (size_t i = 0; i < 2; i++)
        glm_cuda_kernel_unload(f->gpu, &p->kernels[i]);
}

/* x and the outputs are NaN between two runs. */
static void put(struct fixture *f, struct pair *p, const struct numbers *in, struct numbers *out)
{
    WORKS(glm_cuda_fill(f->gpu, f->stream, p->h, 0xff, sizeof in->h, &f->err));
    WORKS(glm_cuda_copy_in(f->gpu, f->stream, p->x, in->x, sizeof in->x, &f->err));
    for (size_t i = 0; i < 2; i++) {
        p->launches[i].kernel = &p->kernels[i];
        WORKS(glm_cuda_launch(f->gpu, f->stream, &p->launches[i], &f->err));
    }
    WORKS(glm_cuda_copy_out(f->gpu, f->stream, out->h, p->h, sizeof out->h, &f->err));
    WORKS(glm_cuda_copy_out(f->gpu, f->stream, out->y, p->y, sizeof out->y, &f->err));
    WORKS(glm_cuda_fill(f->gpu, f->stream, p->y, 0xff, sizeof in->y, &f->err));
}

static void same_numbers(const struct numbers *got, const struct numbers *want)
{
    double y[N_ROWS * N_OUT];
    assert_memory_equal(got->h, want->h, sizeof got->h);
    for (size_t i = 0; i < N_ROWS * N_OUT; i++)
        y[i] = (double)want->y[i];
    assert_true(test_relative_l2(got->y, y, N_ROWS * N_OUT) < 1e-6);
}

static const char *const two[][2] = {{"swiglu", SWIGLU}, {"matmul", MATMUL}};

static void a_plans_kernels_give_the_hosts_numbers_plainly_and_from_a_graph(void **state)
{
    NEED_DEVICE();
    struct fixture *f = *state;
    struct test_round *r = test_round(N_ROWS);
    struct numbers host = host_numbers(r), in = host, got = {0};
    glm_cuda_graph graph = NULL;
    build(f, two, 2);
    open_gpu(f, 0);
    struct pair p = new_pair(f, &host, r);
    put(f, &p, &in, &got);
    WORKS(glm_cuda_stream_wait(f->gpu, f->stream, &f->err));
    same_numbers(&got, &host);

    memset(&got, 0, sizeof got);
    WORKS(glm_cuda_capture_begin(f->gpu, f->stream, &f->err));
    put(f, &p, &in, &got);
    WORKS(glm_cuda_capture_end(f->gpu, f->stream, &graph, &f->err));
    for (size_t i = 0; i < N_ROWS * N_OUT; i++)
        assert_true(got.y[i] == 0); /* nothing has run */
    for (int again = 0; again < 2; again++) {
        memset(&got, 0, sizeof got);
        WORKS(glm_cuda_graph_launch(f->gpu, graph, f->stream, &f->err));
        WORKS(glm_cuda_stream_wait(f->gpu, f->stream, &f->err));
        same_numbers(&got, &host);
    }
    glm_cuda_graph_free(f->gpu, graph);
    free_pair(f, &p);
    test_round_free(r);
}

static void a_built_kernel_stays_in_the_cache_and_is_the_same_bytes_again(void **state)
{
    NEED_DEVICE();
    struct fixture *f = *state;
    size_t bytes[2];
    char *objects[2];
    for (int i = 0; i < 2; i++) {
        build(f, two, 2);
        assert_true(f->builds[1].compiled);
        assert_true(f->builds[1].resources.known);
        assert_int_equal(f->builds[1].resources.spill_store_bytes, 0);
        assert_int_equal(f->builds[1].resources.shared_bytes, 4 * 8 * (16 + 4) * 4); /* quarter[] */
        objects[i] = folder_read("", f->builds[1].path, &bytes[i]);
        assert_non_null(objects[i]);
        build(f, two, 2);
        assert_false(f->builds[1].compiled);
        folder_remove(f->cache);
        f->cache = folder_new();
        setenv("GLM_CACHE_DIR", f->cache, 1);
    }
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(objects[0], objects[1], bytes[0]);
    free(objects[0]);
    free(objects[1]);
}

/* ---- Ranks as threads ---- */

struct rank {
    struct fixture fixture;
    const struct numbers *host;
    struct test_round *round;
    bool agrees;
};

static void *rank_main(void *context)
{
    struct rank *rank = context;
    struct fixture *f = &rank->fixture;
    struct numbers got;
    struct pair p = new_pair(f, rank->host, rank->round);
    rank->agrees = true;
    for (int i = 0; i < 20; i++) {
        memset(&got, 0, sizeof got);
        put(f, &p, rank->host, &got);
        rank->agrees &= glm_cuda_stream_wait(f->gpu, f->stream, &f->err) == GLM_OK;
        rank->agrees &= memcmp(got.h, rank->host->h, sizeof got.h) == 0;
    }
    free_pair(f, &p);
    return NULL;
}

static void *use_and_run(void *context)
{
    struct rank *rank = context;
    return glm_cuda_use(rank->fixture.gpu, &rank->fixture.err) == GLM_OK ? rank_main(rank) : NULL;
}

static void ranks_that_are_threads_do_not_disturb_each_other(void **state)
{
    NEED_DEVICE();
    struct fixture *f = *state;
    struct test_round *r = test_round(N_ROWS);
    struct numbers host = host_numbers(r);
    struct rank ranks[3];
    pthread_t threads[3];
    setenv("FAKE_CUDA", "gpus=2", 1);
    build(f, two, 2);
    for (uint32_t i = 0; i < 3; i++) {
        ranks[i] = (struct rank){{.builds = f->builds}, &host, r, false};
        open_gpu(&ranks[i].fixture, i % 2);
        assert_int_equal(pthread_create(&threads[i], NULL, use_and_run, &ranks[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        assert_true(ranks[i].agrees);
        glm_cuda_use(ranks[i].fixture.gpu, NULL);
        glm_cuda_stream_free(ranks[i].fixture.gpu, ranks[i].fixture.stream);
        glm_cuda_close(ranks[i].fixture.gpu);
    }
    test_round_free(r);
}

/* ---- Mistakes ---- */

static const char manifest[] =
    "{\"name\":\"toy\",\"help\":\"a mistake\",\n"
    " \"args\":[{\"name\":\"x\",\"dtype\":\"f32\",\"direction\":\"inout\",\"shape\":\"R\"}],\n"
    " \"params\":[{\"name\":\"N\",\"type\":\"int\",\"values\":\"0..9\",\"help\":\"which\"}],\n"
    " \"scratch\":\"0\",\"read\":\"4*R\",\"write\":\"4*R\",\"ops\":\"R\",\"reduction\":\"none\",\n"
    " \"oracle\":\"itself\",\"tolerance\":0,\"spill_limit_bytes\":0,\n"
    " \"launch\":{\"block\":\"64\",\"grid\":[\"1\",\"1\",\"1\"],\"min_blocks\":1}}\n";

static const char body[] = "#include \"prelude.cuh\"\n"
                           "GLM_SHARED float s[64];\n"
                           "GLM_KERNEL(launch)\n"
                           "{\n"
                           "    float *x = (float *)launch.args[0];\n"
                           "    const int t = glm_thread();\n"
                           "    s[t] = 1;\n"
                           "    if (GLM_N != 1 || t < 32)\n"
                           "        glm_barrier();\n"
                           "    x[t + (GLM_N == 2)] = s[t + (GLM_N == 3)];\n"
                           "}\n";

/* The project's headers with one template of the test's own. */
static void own_templates(struct fixture *f)
{
    f->templates = folder_new();
    for (int i = 0; i < 2; i++) {
        const char **names;
        uint32_t n;
        WORKS(glm_template_names(i == 0 ? ".h" : ".cuh", &f->arena, &names, &n, &f->err));
        for (uint32_t j = 0; j < n; j++) {
            size_t len;
            const char *text = glm_template_source(names[j], &len);
            folder_write(f->templates, names[j], arena_strndup(&f->arena, text, len));
        }
    }
    folder_write(f->templates, "toy.json", manifest);
    folder_write(f->templates, "toy.cu", body);
    setenv("GLM_TEMPLATES", f->templates, 1);
}

static void has(const char *message, const char *words)
{
    if (strstr(message, words) == NULL)
        fail_msg("'%s' has no '%s'", message, words);
}

/* The emulator's words for mistake i of the toy, NULL for none. */
static void mistake(struct fixture *f, uint32_t i, const char *words)
{
    float x[64];
    open_gpu(f, 0);
    struct glm_cuda_kernel k = load(f, i, 0);
    glm_cuda_address at = place(f, NULL, sizeof x);
    struct glm_cuda_launch l = {.name = "toy", .kernel = &k, .grid = {1, 1, 1}, .block = 64};
    l.args.args[0] = on_gpu(at);
    WORKS(glm_cuda_launch(f->gpu, f->stream, &l, &f->err));
    if (words == NULL) {
        WORKS(glm_cuda_stream_wait(f->gpu, f->stream, &f->err));
        WORKS(glm_cuda_copy_out(f->gpu, f->stream, x, at, sizeof x, &f->err));
        assert_true(x[63] == 1);
    } else {
        assert_int_equal(glm_cuda_stream_wait(f->gpu, f->stream, &f->err), GLM_EKERNEL);
        has(f->err.message, "CUDA_ERROR_LAUNCH_FAILED (719)");
        has(f->err.message, words);
        f->err = (struct glm_error){0}; /* and so it stays */
        assert_int_equal(glm_cuda_launch(f->gpu, f->stream, &l, &f->err), GLM_EKERNEL);
        has(f->err.message, words);
        f->err = (struct glm_error){0};
    }
    glm_cuda_free(f->gpu, at);
    glm_cuda_kernel_unload(f->gpu, &k);
    glm_cuda_stream_free(f->gpu, f->stream);
    glm_cuda_close(f->gpu);
    f->stream = NULL;
    f->gpu = NULL;
}

static void a_kernels_mistake_is_an_error_with_the_emulators_words(void **state)
{
    static const char *const toys[][2] = {
        {"toy", "N=0"}, {"toy", "N=1"}, {"toy", "N=2"}, {"toy", "N=3"}};
    NEED_DEVICE();
    struct fixture *f = *state;
    own_templates(f);
    build(f, toys, 4);
    mistake(f, 0, NULL);
    mistake(f, 1, "others wait at the barrier at line 9");
    mistake(f, 2, "bytes behind an allocation of 256 were written");
    mistake(f, 3, "index 64 is outside its array");
    mistake(f, 0, NULL);
}

static void an_address_of_the_host_is_none_of_the_gpus(void **state)
{
    static const char *const toys[][2] = {{"toy", "N=0"}};
    static float x[64];
    NEED_DEVICE();
    struct fixture *f = *state;
    own_templates(f);
    build(f, toys, 1);
    open_gpu(f, 0);
    struct glm_cuda_kernel k = load(f, 0, 0);
    glm_cuda_address at = place(f, x, sizeof x);
    assert_int_equal(glm_cuda_copy_in(f->gpu, f->stream, at + 4, x, sizeof x, &f->err),
                     GLM_EKERNEL);
    assert_int_equal(glm_cuda_copy_out(f->gpu, f->stream, x, (uintptr_t)x, 4, &f->err),
                     GLM_EKERNEL);
    struct glm_cuda_launch l = {.name = "toy", .kernel = &k, .grid = {1, 1, 1}, .block = 64};
    l.args.args[0] = x;
    WORKS(glm_cuda_launch(f->gpu, f->stream, &l, &f->err));
    f->err = (struct glm_error){0};
    assert_int_equal(glm_cuda_stream_wait(f->gpu, f->stream, &f->err), GLM_EKERNEL);
    has(f->err.message, "argument 0: not an address of this GPU");
    assert_true(x[63] == 0);
    glm_cuda_free(f->gpu, at);
    glm_cuda_kernel_unload(f->gpu, &k);
}

static void a_word_of_the_hosts_own_is_none_that_a_stream_can_wait_for(void **state)
{
    struct fixture *f = *state;
    static uint32_t own[2] = {0, 1};
    void *locked;
    open_gpu(f, 0);
    WORKS(glm_cuda_host_alloc(f->gpu, "words", 8, &locked, &f->err));
    memset(locked, 0, 8);
    char *words = locked;
    assert_int_equal(glm_cuda_meet(f->gpu, f->stream, own, own + 1, &f->err), GLM_EKERNEL);
    assert_int_equal(glm_cuda_meet(f->gpu, f->stream, words, words + 2, &f->err), GLM_EKERNEL);
    ((uint32_t *)locked)[1] = 1; /* done before it rings: it does not wait */
    WORKS(glm_cuda_meet(f->gpu, f->stream, words, words + 4, &f->err));
    assert_int_equal(((uint32_t *)locked)[0], 1);
    assert_int_equal(((uint32_t *)locked)[1], 0);
    glm_cuda_host_free(f->gpu, locked);
}

static void new_memory_is_nan_and_belongs_to_no_capture(void **state)
{
    struct fixture *f = *state;
    uint32_t x[64];
    glm_cuda_address at = 0;
    glm_cuda_graph graph = NULL;
    open_gpu(f, 0);
    at = place(f, NULL, sizeof x);
    WORKS(glm_cuda_copy_out(f->gpu, f->stream, x, at, sizeof x, &f->err));
    assert_int_equal(x[63], 0xffffffffu);
    glm_cuda_free(f->gpu, at);
    WORKS(glm_cuda_capture_begin(f->gpu, f->stream, &f->err));
    assert_int_equal(glm_cuda_alloc(f->gpu, "late", 4, &at, &f->err), GLM_EKERNEL);
    has(f->err.message, "CAPTURE");
    assert_int_equal(glm_cuda_stream_wait(f->gpu, f->stream, &f->err), GLM_EKERNEL);
    WORKS(glm_cuda_capture_end(f->gpu, f->stream, &graph, &f->err));
    glm_cuda_graph_free(f->gpu, graph);
}

int main(int argc, char **argv)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_plans_kernels_give_the_hosts_numbers_plainly_and_from_a_graph),
        CASE(a_built_kernel_stays_in_the_cache_and_is_the_same_bytes_again),
        CASE(ranks_that_are_threads_do_not_disturb_each_other),
        CASE(a_kernels_mistake_is_an_error_with_the_emulators_words),
        CASE(an_address_of_the_host_is_none_of_the_gpus),
        CASE(a_word_of_the_hosts_own_is_none_that_a_stream_can_wait_for),
        CASE(new_memory_is_nan_and_belongs_to_no_capture),
    };
    (void)argc;
    test_gpu_fake(argv[0]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
