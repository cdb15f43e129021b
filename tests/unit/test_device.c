/* SPDX-License-Identifier: Apache-2.0 */
/* Every CUDA body, executed on the CPU, against its host body with bf16 activations: the same
 * numbers, a row's bits wherever it stands, rows beyond the round untouched, and a mistake of one
 * planted in a copy is noticed. */
#include "codegen/verified.h"
#include "runtime/forms.h"
#include "tests/support/gpu.h"
#include "tests/support/simt.h"
#include "tests/support/streams.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_ROWS = 19, MAX_ARGS = 9 };

enum type { ACT, F32, BF16, I32, Q4, FP8 };
enum direction { IN, OUT, INOUT };
enum per { ROW, WANTED, ONCE }; /* the round's rows, the wanted rows, one array */

static const size_t element_bytes[] = {2, 4, 2, 4, 0, 0};
static const char *const form_names[] = {NULL, NULL, NULL, NULL, "q4", "fp8"};

struct arg {
    enum type type;
    enum direction direction;
    enum per per;
    size_t n; /* elements a row, or in all */
    float scale, shift;
    float step; /* > 0: multiples of it, so that some are equal */
    size_t k;   /* inputs of a row of a weight in a form of its own */
};

struct kernel_case {
    const char *name, *params;
    struct arg args[MAX_ARGS];
    size_t n_args;
    const char *was, *is; /* the planted mistake */
    bool near;            /* its sums have another order than the host's: close is enough */
};

#define COUNT(...) (sizeof((const struct arg[]){__VA_ARGS__}) / sizeof(struct arg))
/* One whose bits are the host's; one whose sums have another order. */
#define EXACT(name, params, was, is, ...)                               \
    {                                                                   \
        name, params, {__VA_ARGS__}, COUNT(__VA_ARGS__), was, is, false \
    }
#define NEAR(name, params, was, is, ...)                               \
    {                                                                  \
        name, params, {__VA_ARGS__}, COUNT(__VA_ARGS__), was, is, true \
    }
#define TAKES(type, per, n, scale, shift)    \
    {                                        \
        type, IN, per, n, scale, shift, 0, 0 \
    }
#define KEEPS(type, per, n, scale, shift)       \
    {                                           \
        type, INOUT, per, n, scale, shift, 0, 0 \
    }
#define GIVES(type, per, n)           \
    {                                 \
        type, OUT, per, n, 0, 0, 0, 0 \
    }

#define WEIGHT(form, rows, k)                               \
    {                                                       \
        form, IN, ONCE, (size_t)(rows) * (k), 0.1f, 0, 0, k \
    }

/* y, mix, x, norm */
#define HC_ARGS(d, s)                                                          \
    TAKES(F32, ROW, d, 0.5f, 0), TAKES(F32, ROW, (s) + (s) * (s), 0.2f, 0.4f), \
        KEEPS(ACT, ROW, (size_t)(s) * (d), 1, 0.1f), TAKES(BF16, ONCE, d, 0.2f, 1)
/* y, mix, x, fn, base, scale, norm, out */
#define MIX_ARGS(d, s)                                                                \
    TAKES(F32, ROW, d, 0.5f, 0), KEEPS(F32, ROW, (s) + (s) * (s), 0.2f, 0.4f),        \
        KEEPS(ACT, ROW, (size_t)(s) * (d), 1, 0.1f),                                  \
        TAKES(BF16, ONCE, (size_t)(2 * (s) + (s) * (s)) * (s) * (d), 0.05f, 0.01f),   \
        TAKES(F32, ONCE, 2 * (s) + (s) * (s), 0.7f, 0), TAKES(F32, ONCE, 3, 0.3f, 1), \
        TAKES(BF16, ONCE, d, 0.2f, 1), GIVES(ACT, ROW, d)
/* logits, bias, ids, weights */
#define ROUTE_ARGS(e, k, step)                                                                  \
    {F32, IN, ROW, e, 1, 0, step, 0}, {F32, IN, ONCE, e, 0.1f, 0, step, 0}, GIVES(I32, ROW, k), \
        GIVES(F32, ROW, k)

static const struct kernel_case cases[] = {
    EXACT("swiglu", "N=96 LIMIT=2 X_STRIDE=200", "glm_load_act8(x + GLM_N, up)",
          "glm_load_act8(x + GLM_N + 8, up)", TAKES(ACT, ROW, 200, 2, 0), GIVES(ACT, ROW, 96)),
    EXACT("swiglu", "N=1040 LIMIT=10 X_STRIDE=2080", "row >= launch.round->n_rows",
          "row > launch.round->n_rows", TAKES(ACT, ROW, 2080, 4, 0), GIVES(ACT, ROW, 1040)),
    EXACT("pick_rows", "D=1032", "out_rows[o]", "out_rows[o] + 1", TAKES(ACT, ROW, 1032, 1, 0),
          GIVES(ACT, WANTED, 1032)),
    EXACT("embed", "D=48 S=4 V=40", "s < GLM_S", "s < GLM_S - 1", TAKES(BF16, ONCE, 40 * 48, 1, 0),
          TAKES(ACT, ONCE, 2 * 48, 1, 0), GIVES(ACT, ROW, 4 * 48)),
    EXACT("hc_final", "D=80 S=4 NORM_EPS=1e-5", "glm_load_act8(x + s * GLM_D + d, v[s]);",
          "glm_load_act8(x + s * GLM_D, v[s]);", HC_ARGS(80, 4), GIVES(ACT, ROW, 80)),
    EXACT("hc_final", "D=1040 S=3 NORM_EPS=1e-5", "sum[i] *= 1.0f / GLM_S",
          "sum[i] *= 1.0f / (GLM_S + 1)", HC_ARGS(1040, 3), GIVES(ACT, ROW, 1040)),
    EXACT("hc_mix", "D=256 S=4 WRITE=1 ITERS=20 EPS=1e-6 NORM_EPS=1e-5", "it < GLM_ITERS",
          "it < GLM_ITERS - 1", MIX_ARGS(256, 4)),
    EXACT("hc_mix", "D=80 S=4 WRITE=0 ITERS=20 EPS=1e-6 NORM_EPS=1e-5", "glm_copy_wait(1);",
          "glm_copy_wait(2);", MIX_ARGS(80, 4)),
    EXACT("hc_mix", "D=1040 S=2 WRITE=1 ITERS=5 EPS=1e-6 NORM_EPS=1e-5", "b < BLOCKS",
          "b < BLOCKS - 1", MIX_ARGS(1040, 2)),
    EXACT("hc_mix", "D=4096 S=4 WRITE=1 ITERS=3 EPS=1e-6 NORM_EPS=1e-5", "start_stage(a, i + 2)",
          "start_stage(a, i + 1)", MIX_ARGS(4096, 4)),
    NEAR("matmul", "N=40 K=80 FORM=bf16 X_STRIDE=96 Y_STRIDE=44 OUT=act ROWS=round",
         "GLM_DOTS_UNITS * (glm_warp() + 1) / GLM_WARPS * unit",
         "GLM_DOTS_UNITS * (glm_warp() + 1) / (GLM_WARPS + 1) * unit", TAKES(ACT, ROW, 96, 1, 0),
         WEIGHT(BF16, 40, 80), GIVES(ACT, ROW, 44)),
    NEAR("matmul", "N=4100 K=64 FORM=bf16 X_STRIDE=64 Y_STRIDE=4100 OUT=f32 ROWS=out",
         "wanted < n_last", "wanted < n_last - 40", TAKES(ACT, WANTED, 64, 1, 0),
         WEIGHT(BF16, 4100, 64), GIVES(F32, WANTED, 4100)),
    NEAR("matmul", "N=24 K=320 FORM=q4 X_STRIDE=320 Y_STRIDE=24 OUT=act ROWS=round", "0xc300c300u",
         "0xc301c301u", TAKES(ACT, ROW, 320, 1, 0.5f), WEIGHT(Q4, 24, 320), GIVES(ACT, ROW, 24)),
    NEAR("matmul", "N=16 K=64 FORM=q4 X_STRIDE=64 Y_STRIDE=16 OUT=f32 ROWS=round",
         "x + k + 16 * j + 4 * q", "x + k + 16 * j + 4 * (q ^ 1)", TAKES(ACT, ROW, 64, 1, 0),
         WEIGHT(Q4, 16, 64), GIVES(F32, ROW, 16)),
    NEAR("matmul", "N=33 K=384 FORM=fp8 X_STRIDE=384 Y_STRIDE=40 OUT=f32 ROWS=round",
         "k + 16 * q + 8 * h", "k + 16 * q + 4 * h", TAKES(ACT, ROW, 384, 1, 0),
         WEIGHT(FP8, 33, 384), GIVES(F32, ROW, 40)),
    NEAR("head_matmul", "H=3 N=24 K=48 X_STRIDE=144 Y_STRIDE=72", "head * GLM_K,", "head * 8,",
         TAKES(ACT, ROW, 144, 1, 0), WEIGHT(BF16, 72, 48), GIVES(ACT, ROW, 72)),
    EXACT("moe_route", "E=16 TOPK=4 SCALE=2.5", "a.id < b.id", "a.id > b.id",
          ROUTE_ARGS(16, 4, 0.5f)),
    EXACT("moe_route", "E=288 TOPK=8 SCALE=2.5", "mask = 16; mask > 0", "mask = 16; mask > 1",
          ROUTE_ARGS(288, 8, 0)),
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

/* Rows [first, first + n) of all that there are, as a round. */
struct window {
    size_t first, n, n_outs;
    struct test_round *round;
};

static bool is_wanted(size_t row)
{
    return row % 3 != 1;
}

/* What a row is depends on its number alone. A row in seven is padding, one in three unwanted. */
static struct window new_window(size_t first, size_t n)
{
    struct window w = {first, n, 0, test_round((uint32_t)n)};
    for (size_t i = 0; i < n; i++) {
        const size_t at = first + i;
        struct glm_row *row = &w.round->rows[i];
        row->position = (int32_t)at;
        row->token = (int32_t)(at * 7 % 43) - 1; /* also ids outside the table */
        row->override = at % 5 == 3 ? (int32_t)(at % 2) : -1;
        row->stream = at % 7 == 5 ? -1 : 0;
        row->out = is_wanted(at) ? (int32_t)w.n_outs : -1;
        if (row->out >= 0)
            w.round->out_rows[w.n_outs++] = (int32_t)i;
    }
    w.round->round.n_out = (int32_t)w.n_outs;
    return w;
}

/* ---- Arguments ---- */

/* All rows' inputs of a case. */
struct inputs {
    const struct kernel_case *c;
    char *bytes[MAX_ARGS]; /* NULL for outputs */
};

static size_t row_bytes(const struct arg *a)
{
    uint64_t bytes = a->n * element_bytes[a->type];
    if (form_names[a->type] != NULL)
        assert_int_equal(glm_form_bytes(form_names[a->type], a->n / a->k, a->k, &bytes, NULL),
                         GLM_OK);
    return bytes;
}

/* A weight in its device form. */
static char *place_weight(const struct arg *a, const float *values)
{
    const size_t rows = a->n / a->k;
    const struct glm_plan_part part = {"w", rows, a->k, {0, rows, 1, 0}, {0, a->k, 1, 0}};
    char *bytes = aligned_alloc(64, (row_bytes(a) + 63) / 64 * 64);
    assert_non_null(bytes);
    assert_int_equal(
        glm_form_place(form_names[a->type], &part, values, GLM_F32, rows, a->k, 0, bytes, NULL),
        GLM_OK);
    return bytes;
}

static struct inputs new_inputs(const struct kernel_case *c)
{
    struct inputs in = {.c = c};
    struct test_random random = {strlen(c->params)};
    for (size_t i = 0; i < c->n_args; i++) {
        const struct arg *a = &c->args[i];
        const size_t n = a->n * (a->per == ONCE ? 1 : N_ROWS);
        if (a->direction == OUT)
            continue;
        float *values = test_normals(&random, n, a->scale, a->shift);
        for (size_t j = 0; a->step > 0 && j < n; j++)
            values[j] = rintf(values[j] / a->step) * a->step;
        if (form_names[a->type] != NULL) {
            in.bytes[i] = place_weight(a, values);
            free(values);
            continue;
        }
        in.bytes[i] = calloc(n, element_bytes[a->type]);
        for (size_t j = 0; j < n; j++)
            if (a->type == F32)
                ((float *)(void *)in.bytes[i])[j] = values[j];
            else
                test_act_put(in.bytes[i], j, values[j], "bf16");
        free(values);
    }
    return in;
}

static void free_inputs(struct inputs *in)
{
    for (size_t i = 0; i < MAX_ARGS; i++)
        free(in->bytes[i]);
}

/* The window's arguments with room for a bucket; what no row fills is NaN. */
struct memory {
    void *args[MAX_ARGS];
};

static size_t n_of(const struct arg *a, const struct window *w)
{
    return a->per == ONCE ? 1 : a->per == WANTED ? w->n_outs : w->n;
}

/* Where the window's part of an argument begins among all rows'. */
static size_t first_of(const struct arg *a, const struct window *w)
{
    size_t n_wanted = 0;
    for (size_t at = 0; at < w->first; at++)
        n_wanted += is_wanted(at);
    return a->per == ONCE ? 0 : a->per == WANTED ? n_wanted : w->first;
}

static struct memory new_memory(const struct inputs *in, const struct window *w, size_t bucket)
{
    struct memory m = {{NULL}};
    for (size_t i = 0; i < in->c->n_args; i++) {
        const struct arg *a = &in->c->args[i];
        const size_t bytes = row_bytes(a);
        m.args[i] = test_alloc(bytes * (a->per == ONCE ? 1 : bucket));
        if (in->bytes[i] != NULL)
            memcpy(m.args[i], in->bytes[i] + first_of(a, w) * bytes, bytes * n_of(a, w));
    }
    return m;
}

static void free_memory(struct memory *m)
{
    for (size_t i = 0; i < MAX_ARGS; i++)
        test_release(m->args[i]);
}

static struct memory run_host(const struct inputs *in, const struct window *w)
{
    struct memory m = new_memory(in, w, w->n);
    test_kernel_run(test_kernel(in->c->name, in->c->params, "bf16"), &w->round->round, m.args, 1);
    return m;
}

/* ---- Comparing ---- */

static float value(enum type type, const void *p, size_t i)
{
    return type == F32 ? ((const float *)p)[i] : test_act_get(p, i, "bf16");
}

static bool same_bits(enum type type, const void *a, const void *b, size_t i)
{
    const size_t n = element_bytes[type];
    return memcmp((const char *)a + i * n, (const char *)b + i * n, n) == 0;
}

/* The same bits, or where sums have another order: stored activations one unit in the last place of
 * bf16 at the larger of the value and the row's root mean square. Floats: the manifest's relative
 * L2 distance, at most 1e-5. Integers: equal. */
static bool row_agrees(const struct kernel_case *c, enum type type, const void *got,
                       const void *want, size_t n)
{
    double square = 0, error = 0;
    if (!c->near || type == I32)
        return memcmp(got, want, n * element_bytes[type]) == 0;
    for (size_t i = 0; i < n; i++) {
        double v = (double)value(type, want, i), d = (double)value(type, got, i) - v;
        if (same_bits(type, got, want, i))
            d = 0;
        if (d == 0 && isnan(v)) /* neither of them wrote it */
            continue;
        square += v * v;
        error += d * d;
    }
    if (type == F32)
        return sqrt(error) <= fmin(test_manifest(c->name)->tolerance, 1e-5) * sqrt(square);
    for (size_t i = 0; i < n; i++) {
        if (same_bits(type, got, want, i))
            continue;
        double v = fabs((double)value(type, want, i)), at = fmax(v, sqrt(square / (double)n));
        double d = fabs((double)value(type, got, i) - (double)value(type, want, i));
        if (!(d <= ldexp(1, (at > 0 ? ilogb(at) : -126) - 7)))
            return false;
    }
    return true;
}

static bool is_poison(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != (char)0xff)
            return false;
    return true;
}

/* NULL, or what differs between a device's memory and the host's. */
static const char *difference(const struct kernel_case *c, const struct window *w, size_t bucket,
                              const struct memory *got, const struct memory *want)
{
    static char text[160];
    for (size_t i = 0; i < c->n_args; i++) {
        const struct arg *a = &c->args[i];
        const size_t bytes = row_bytes(a), n = n_of(a, w);
        const char *g = got->args[i], *t = want->args[i];
        if (a->direction == IN && memcmp(g, t, bytes * n) != 0)
            return "an input was written";
        for (size_t r = 0; r < n; r++)
            if (a->direction != IN && !row_agrees(c, a->type, g + r * bytes, t + r * bytes, a->n)) {
                snprintf(text, sizeof text, "%s %s, %zu rows: row %zu of argument %zu", c->name,
                         c->params, w->n, r, i);
                return text;
            }
        if (a->per != ONCE && !is_poison(g + n * bytes, (bucket - n) * bytes))
            return "a row beyond the round was written";
    }
    return NULL;
}

/* Runs a device kernel and compares; NULL or what went wrong. */
static const char *try_window(const struct test_device_kernel *k, const struct inputs *in,
                              size_t first, size_t n, size_t bucket, uint64_t order)
{
    struct window w = new_window(first, n);
    struct memory want = run_host(in, &w), got = new_memory(in, &w, bucket);
    const char *why = test_device_run(k, &w.round->round, (uint32_t)bucket, (uint32_t)bucket,
                                      got.args, in->c->n_args, order);
    if (why == NULL)
        why = difference(in->c, &w, bucket, &got, &want);
    free_memory(&want);
    free_memory(&got);
    test_round_free(w.round);
    return why;
}

/* ---- The tests ---- */

/* $GLM_TEST_CASE: one case alone, by its number in --list. */
static bool is_chosen(size_t c)
{
    const char *number = getenv("GLM_TEST_CASE");
    return number == NULL || strtoul(number, NULL, 10) == c;
}

static void bodies_agree_with_the_host_at_every_row_count(void **state)
{
    static const size_t counts[] = {1, 2, 3, 8, 16, N_ROWS};
    NEED_DEVICE();
    for (size_t c = 0; c < N_CASES; c++) {
        if (!is_chosen(c))
            continue;
        struct inputs in = new_inputs(&cases[c]);
        const struct test_device_kernel *k = test_device_kernel(cases[c].name, cases[c].params);
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            const size_t n = counts[i], first = i < N_ROWS - n ? i : N_ROWS - n;
            const char *why = try_window(k, &in, first, n, 32, i * 5);
            if (why != NULL)
                fail_msg("%s: %s", cases[c].name, why);
        }
        free_inputs(&in);
    }
}

/* Rows of `some` against the same rows of `all`, bit by bit. */
static void same_rows(const struct kernel_case *c, const struct window *some,
                      const struct memory *got, const struct memory *all)
{
    for (size_t i = 0; i < c->n_args; i++) {
        const struct arg *a = &c->args[i];
        if (a->direction == IN || a->per == ONCE)
            continue;
        test_same_bytes(got->args[i], (const char *)all->args[i] + first_of(a, some) * row_bytes(a),
                        n_of(a, some) * row_bytes(a), c->name);
    }
}

static void a_row_keeps_its_bits_whatever_is_beside_it(void **state)
{
    static const size_t windows[][2] = {{0, 1}, {4, 1}, {18, 1}, {1, 6}, {9, 10}};
    NEED_DEVICE();
    for (size_t c = 0; c < N_CASES; c++) {
        if (!is_chosen(c))
            continue;
        struct inputs in = new_inputs(&cases[c]);
        const struct test_device_kernel *k = test_device_kernel(cases[c].name, cases[c].params);
        struct window every = new_window(0, N_ROWS);
        struct memory all = new_memory(&in, &every, N_ROWS);
        assert_null(
            test_device_run(k, &every.round->round, N_ROWS, N_ROWS, all.args, in.c->n_args, 0));
        for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
            struct window some = new_window(windows[i][0], windows[i][1]);
            struct memory got = new_memory(&in, &some, 64);
            assert_null(
                test_device_run(k, &some.round->round, 64, 64, got.args, in.c->n_args, i + 1));
            same_rows(in.c, &some, &got, &all);
            free_memory(&got);
            test_round_free(some.round);
        }
        free_memory(&all);
        test_round_free(every.round);
        free_inputs(&in);
    }
}

static void a_planted_mistake_is_noticed(void **state)
{
    NEED_DEVICE();
    for (size_t c = 0; c < N_CASES; c++) {
        if (!is_chosen(c))
            continue;
        struct inputs in = new_inputs(&cases[c]);
        const struct test_device_kernel *k =
            test_device_kernel_with(cases[c].name, cases[c].params, cases[c].was, cases[c].is);
        if (try_window(k, &in, 0, N_ROWS - 1, 32, 0) == NULL)
            fail_msg("%s %s: '%s' passes as '%s'", cases[c].name, cases[c].params, cases[c].is,
                     cases[c].was);
        free_inputs(&in);
    }
}

/* Every template that has a CUDA body, with its digest as the register of what GPUs passed has it.
 */
static void print_bodies(void)
{
    struct arena arena;
    struct glm_error err = {0};
    struct glm_manifest *all;
    uint32_t n = 0;
    arena_init(&arena, 64 << 20);
    if (glm_manifests_load(&arena, &all, &n, &err) != GLM_OK)
        fprintf(stderr, "%s\n", err.message);
    for (uint32_t i = 0; i < n; i++) {
        char digest[65] = "";
        if (all[i].launch == NULL)
            continue;
        if (glm_body_digest(&all[i], &arena, digest, &err) != GLM_OK)
            fprintf(stderr, "%s\n", err.message);
        printf("%s %s\n", all[i].name, digest);
    }
    arena_release(&arena);
}

/* For tests/gpu: the GPU that $GLM_TEST_GPU names; the cases; what may go into the register; the
 * cases' oracles built and no more. */
static int answer(const char *what)
{
    if (strcmp(what, "--facts") == 0)
        test_gpu_print_facts();
    if (strcmp(what, "--bodies") == 0)
        print_bodies();
    for (size_t c = 0; c < N_CASES; c++)
        if (strcmp(what, "--list") == 0)
            printf("%zu %s %s\n", c, cases[c].name, cases[c].params);
        else if (strcmp(what, "--oracles") == 0)
            test_kernel(cases[c].name, cases[c].params, "bf16");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return answer(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_agree_with_the_host_at_every_row_count),
        cmocka_unit_test(a_row_keeps_its_bits_whatever_is_beside_it),
        cmocka_unit_test(a_planted_mistake_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
