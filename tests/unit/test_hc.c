/* SPDX-License-Identifier: Apache-2.0 */
/* hc_mix and hc_final against the equations in double precision, and a row's bits against the
 * number of rows and threads. */
#include "tests/support/reference_b.h"
#include "tests/support/streams.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const acts[] = {"f32", "bf16"};

/* Weights and inputs of one site; values as the kernel reads them. */
struct site {
    size_t d, s, n;
    const char *act;
    float *y, *mix, *x, *fn, *base, *scale, *norm;
    void *fn_bits, *norm_bits;
    char params[160];
    struct test_kernel *kernel;
};

enum { ITERATIONS = 20 };

static struct reference_hc parameters(const struct site *t)
{
    return (struct reference_hc){t->d, t->s, ITERATIONS, 1e-6, 1e-5, !strcmp(t->act, "bf16")};
}

static struct site new_site(size_t d, size_t s, int write, size_t n, const char *act)
{
    struct test_random random = {d + s + n};
    size_t mixes = 2 * s + s * s;
    struct site t = {d, s, n, act, .y = NULL};
    t.y = test_normals(&random, n * d, 0.5f, 0);
    t.mix = test_normals(&random, n * (s + s * s), 0.2f, 0.4f);
    t.x = test_normals(&random, n * s * d, 1, 0.1f);
    t.fn = test_normals(&random, mixes * s * d, 0.05f, 0.01f);
    t.base = test_normals(&random, mixes, 0.7f, 0);
    t.scale = test_normals(&random, 3, 0.3f, 1);
    t.norm = test_normals(&random, d, 0.2f, 1);
    t.fn_bits = test_bf16s(t.fn, mixes * s * d);
    t.norm_bits = test_bf16s(t.norm, d);
    test_release(test_acts(t.x, n * s * d, act));
    snprintf(t.params, sizeof t.params, "D=%zu S=%zu WRITE=%d ITERS=%d EPS=1e-6 NORM_EPS=1e-5", d,
             s, write, ITERATIONS);
    t.kernel = test_kernel("hc_mix", t.params, act);
    return t;
}

static void free_site(struct site *t)
{
    float *const owned[] = {t->y, t->mix, t->x, t->fn, t->base, t->scale, t->norm};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free(owned[i]);
    test_release(t->fn_bits);
    test_release(t->norm_bits);
}

/* What a run leaves: rows [first, first + n) of the site. */
struct result {
    void *mix, *x, *out;
};

static struct result run(const struct site *t, size_t first, size_t n, uint32_t threads)
{
    size_t streams = t->s * t->d, mix = t->s + t->s * t->s, bytes = test_act_bytes(t->act);
    struct result out = {test_alloc(n * mix * 4),
                         test_acts(t->x + first * streams, n * streams, t->act),
                         test_alloc(n * t->d * bytes)};
    memcpy(out.mix, t->mix + first * mix, n * mix * 4);
    void *y = test_alloc(n * t->d * 4);
    memcpy(y, t->y + first * t->d, n * t->d * 4);
    void *args[] = {y, out.mix, out.x, t->fn_bits, t->base, t->scale, t->norm_bits, out.out};
    struct test_round *r = test_round((uint32_t)n);
    test_kernel_run(t->kernel, &r->round, args, threads);
    test_round_free(r);
    test_release(y);
    return out;
}

static void free_result(struct result *r)
{
    test_release(r->mix);
    test_release(r->x);
    test_release(r->out);
}

static void check_row(const struct site *t, const struct result *got, size_t row, int write)
{
    struct reference_hc p = parameters(t);
    size_t streams = t->s * t->d, n_mix = t->s + t->s * t->s;
    double *x = calloc(streams, 8), *y = calloc(t->d, 8), *out = calloc(t->d, 8), mix[64];
    for (size_t i = 0; i < streams; i++)
        x[i] = (double)t->x[row * streams + i];
    for (size_t i = 0; i < t->d; i++)
        y[i] = (double)t->y[row * t->d + i];
    for (size_t i = 0; i < n_mix; i++)
        mix[i] = (double)t->mix[row * n_mix + i];
    if (write)
        reference_hc_write(&p, x, y, mix);
    reference_hc_mix(&p, x, t->fn, t->base, t->scale, t->norm, mix, out);
    double limit = p.bf16 ? 2e-3 : 1e-6;
    assert_true(test_acts_distance(got->x, row * streams, x, streams, t->act) < limit);
    assert_true(test_acts_distance(got->mix, row * n_mix, mix, n_mix, "f32") <
                (p.bf16 ? 2e-4 : 2e-6));
    assert_true(test_acts_distance(got->out, row * t->d, out, t->d, t->act) <
                (p.bf16 ? 4e-3 : 3e-6));
    free(x);
    free(y);
    free(out);
}

static void mixes_as_the_equations_say(void **state)
{
    (void)state;
    static const struct {
        size_t d, s;
        int write;
    } shapes[] = {{256, 4, 1}, {256, 4, 0}, {80, 4, 1}, {192, 2, 1}, {64, 1, 0}, {1040, 3, 1}};
    for (int a = 0; a < 2; a++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            struct site t = new_site(shapes[i].d, shapes[i].s, shapes[i].write, 5, acts[a]);
            struct result got = run(&t, 0, 5, 1);
            for (size_t row = 0; row < 5; row++)
                check_row(&t, &got, row, shapes[i].write);
            free_result(&got);
            free_site(&t);
        }
}

static void a_row_keeps_its_bits_beside_others_and_over_threads(void **state)
{
    (void)state;
    static const size_t widths[] = {256, 4096}; /* the second one spreads a row over threads */
    for (int a = 0; a < 2; a++)
        for (size_t w = 0; w < 2; w++) {
            enum { N = 11 };
            struct site t = new_site(widths[w], 4, 1, N, acts[a]);
            struct result all = run(&t, 0, N, 1);
            size_t bytes = t.d * test_act_bytes(acts[a]);
            check_row(&t, &all, N - 1, 1);
            for (size_t first = 0; first < N; first += 4)
                for (size_t n = 1; n <= N - first; n += 3)
                    for (uint32_t threads = 1; threads <= 4; threads += w == 0 ? 1 : 3) {
                        struct result some = run(&t, first, n, threads);
                        test_same_bytes(some.out, (char *)all.out + first * bytes, n * bytes,
                                        "out");
                        test_same_bytes(some.x, (char *)all.x + first * 4 * bytes, n * 4 * bytes,
                                        "streams");
                        test_same_bytes(some.mix, (char *)all.mix + first * 80, n * 80, "mix");
                        free_result(&some);
                    }
            free_result(&all);
            free_site(&t);
        }
}

static void sinkhorn_gives_the_published_check_value(void **state)
{
    (void)state;
    static const float c[16] = {0.5f, -1, 2, 0, 1,    1,    -0.5f, 0.25f,
                                -2,   0,  0, 3, 0.1f, 0.2f, 0.3f,  0.4f};
    static const float want[16] = {0.247313f, 0.058013f, 0.649903f, 0.044770f, 0.430464f, 0.452528f,
                                   0.056320f, 0.060688f, 0.017426f, 0.135339f, 0.075488f, 0.771746f,
                                   0.304797f, 0.354119f, 0.218288f, 0.122796f};
    struct site t = new_site(64, 4, 0, 1, "f32");
    memset(t.scale, 0, 3 * sizeof *t.scale);
    memcpy(t.base + 8, c, sizeof c);
    struct result got = run(&t, 0, 1, 1);
    for (size_t i = 0; i < 16; i++)
        assert_float_equal(test_act_get(got.mix, 4 + i, "f32"), want[i], 1e-6);
    free_result(&got);
    free_site(&t);
}

static void final_row_is_the_normed_mean_of_the_streams(void **state)
{
    (void)state;
    for (int a = 0; a < 2; a++) {
        struct site t = new_site(256, 4, 1, 3, acts[a]);
        struct reference_hc p = parameters(&t);
        struct test_kernel *k = test_kernel("hc_final", "D=256 S=4 NORM_EPS=1e-5", acts[a]);
        void *x = test_acts(t.x, 3 * 1024, acts[a]), *out = test_alloc(3 * 256 * 4);
        void *args[] = {t.y, t.mix, x, t.norm_bits, out};
        struct test_round *r = test_round(3);
        test_kernel_run(k, &r->round, args, 2);
        for (size_t row = 0; row < 3; row++) {
            double streams[1024], y[256], mix[20], want[256];
            for (size_t i = 0; i < 1024; i++)
                streams[i] = (double)t.x[row * 1024 + i];
            for (size_t i = 0; i < 256; i++)
                y[i] = (double)t.y[row * 256 + i];
            for (size_t i = 0; i < 20; i++)
                mix[i] = (double)t.mix[row * 20 + i];
            reference_hc_write(&p, streams, y, mix);
            reference_hc_final(&p, streams, t.norm, want);
            assert_true(test_acts_distance(x, row * 1024, streams, 1024, acts[a]) <
                        (p.bf16 ? 2e-3 : 1e-6));
            assert_true(test_acts_distance(out, row * 256, want, 256, acts[a]) <
                        (p.bf16 ? 4e-3 : 2e-6));
        }
        test_round_free(r);
        test_release(x);
        test_release(out);
        free_site(&t);
    }
}

static void every_build_gives_the_same_bits(void **state)
{
    (void)state;
    static const struct test_build builds[] = {
        {"clang", NULL}, {NULL, "x86-64-v3"}, {"clang", "x86-64-v3"}};
    for (int a = 0; a < 2; a++) {
        struct site t = new_site(256, 4, 1, 5, acts[a]);
        struct result usual = run(&t, 0, 5, 1);
        for (size_t b = 0; b < sizeof builds / sizeof *builds; b++) {
            if (!test_build_usable(&builds[b]))
                continue;
            t.kernel = test_kernel_with(&builds[b], "hc_mix", t.params, acts[a]);
            struct result other = run(&t, 0, 5, 1);
            test_same_bytes(other.out, usual.out, 5 * 256 * test_act_bytes(acts[a]), "out");
            test_same_bytes(other.mix, usual.mix, 5 * 80, "mix");
            free_result(&other);
        }
        free_result(&usual);
        free_site(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixes_as_the_equations_say),
        cmocka_unit_test(a_row_keeps_its_bits_beside_others_and_over_threads),
        cmocka_unit_test(sinkhorn_gives_the_published_check_value),
        cmocka_unit_test(final_row_is_the_normed_mean_of_the_streams),
        cmocka_unit_test(every_build_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
