/* SPDX-License-Identifier: Apache-2.0 */
/* mla_attend against a softmax in double precision over the same cache rows, and a row's bits
 * against how its heads and chunks were divided. */
#include "tests/support/dsa_world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const acts[] = {"f32", "bf16"};
static const char *const forms[] = {"fp32", "bf16", "fp8"};

/* Positions that row t attends to: its selected pools, then the tail. */
static size_t positions(const struct dsa_run *r, size_t s, int32_t t, int32_t *p)
{
    const int32_t *sel = r->sel[s] + (size_t)t * (1 + r->world->topk);
    size_t n = 0;
    for (int32_t i = 0; i < sel[0]; i++)
        for (int32_t j = 0; j < DSA_POOL; j++)
            p[n++] = sel[1 + i] * DSA_POOL + j;
    for (int32_t i = (t + 1) / DSA_POOL * DSA_POOL; i <= t; i++)
        p[n++] = i;
    return n;
}

static double row_distance(const struct dsa_run *r, size_t s, int32_t t)
{
    const struct dsa_world *w = r->world;
    int32_t *p = calloc(w->n_tokens + DSA_POOL, sizeof *p);
    size_t n = positions(r, s, t, p);
    float *keys = calloc(n * DSA_C, sizeof *keys);
    double want[DSA_C], worst = 0;
    for (size_t j = 0; j < n; j++)
        dsa_decode_row(w, dsa_latent_row(r, s, p[j]), DSA_C, keys + j * DSA_C);
    for (size_t h = 0; h < DSA_HEADS; h++) {
        size_t at = ((size_t)t * DSA_HEADS + h) * DSA_C;
        reference_attend(want, w->q[s] + at, keys, n, DSA_C, (double)DSA_SCALE);
        worst = fmax(worst, test_acts_distance(r->out[s], at, want, DSA_C, w->act));
    }
    free(keys);
    free(p);
    return worst;
}

static void attends_to_selected_pools_and_tail(void **state)
{
    (void)state;
    for (int a = 0; a < 2; a++)
        for (int f = 0; f < 3; f++) {
            struct dsa_world w;
            struct dsa_run r;
            dsa_world_init(&w, NULL, 200, 8, forms[f], acts[a]);
            dsa_run_init(&r, &w);
            static const int32_t rounds[][DSA_STREAMS] = {{1, 2},  {1, 1}, {1, 1}, {1, 40},
                                                          {64, 0}, {5, 5}, {70, 1}};
            for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++)
                dsa_round(&r, rounds[i], rounds[i], i % 2, 1 + (uint32_t)i % 4);
            for (size_t s = 0; s < DSA_STREAMS; s++)
                for (int32_t t = 0; t < r.n_context[s]; t++)
                    assert_true(row_distance(&r, s, t) < (a == 0 ? 3e-6 : 6e-3));
            dsa_run_release(&r);
            dsa_world_release(&w);
        }
}

static void a_complete_pool_that_is_not_selected_hides_its_own_row(void **state)
{
    (void)state;
    struct dsa_world w;
    struct dsa_run r;
    dsa_world_init(&w, NULL, 64, 1, "fp32", "f32");
    dsa_run_init(&r, &w);
    const int32_t all[] = {64, 0};
    dsa_round(&r, all, all, 0, 1);
    int n_hidden = 0;
    for (int32_t t = 7; t < 64; t += 4) { /* the row is the last of a complete pool: no tail */
        int32_t p[8];
        size_t n = positions(&r, 0, t, p);
        assert_int_equal(n, 4);
        n_hidden += p[3] != t;
        assert_true(row_distance(&r, 0, t) < 3e-6);
    }
    assert_true(n_hidden > 5);
    dsa_run_release(&r);
    dsa_world_release(&w);
}

static void peaked_and_flat_scores_stay_accurate(void **state)
{
    (void)state;
    static const float scales[] = {0, 1e-3f, 30};
    for (size_t i = 0; i < 3; i++) {
        struct dsa_world w;
        struct dsa_run r;
        dsa_world_init(&w, NULL, 100, 256, "fp32", "f32");
        for (size_t j = 0; j < 100 * DSA_HEADS * DSA_C; j++)
            w.q[0][j] *= scales[i];
        dsa_run_init(&r, &w);
        const int32_t all[] = {100, 0};
        dsa_round(&r, all, all, 0, 2);
        for (int32_t t = 0; t < 100; t++)
            assert_true(row_distance(&r, 0, t) < 2e-5);
        dsa_run_release(&r);
        dsa_world_release(&w);
    }
}

/* Long lists of keys: one row alone on more threads than it has heads goes by chunks. */
static void a_row_keeps_its_bits_however_it_is_divided(void **state)
{
    (void)state;
    for (int f = 0; f < 3; f++) {
        struct dsa_world w;
        struct dsa_run whole, alone;
        dsa_world_init(&w, NULL, 1400, 256, forms[f], acts[f % 2]);
        dsa_run_init(&whole, &w);
        dsa_run_init(&alone, &w);
        const int32_t all[] = {1396, 9}, most[] = {1388, 0}, one[] = {1, 1}, two[] = {2, 2};
        dsa_round(&whole, all, all, 0, 1);
        dsa_round(&alone, most, most, 0, 3);
        for (uint32_t i = 0; i < 6; i++) {
            const int32_t *n = i == 3 ? two : one;
            const int32_t only[] = {n[0], 0};
            dsa_round(&alone, i < 3 ? only : n, i < 3 ? only : n, 0, 1 + 2 * i);
        }
        assert_int_equal(whole.sel[0][1390 * 257], 256);
        whole.n_context[0] = alone.n_context[0];
        dsa_same(&whole, &alone, 0, "one row on many threads");
        assert_true(row_distance(&whole, 0, 1390) < (f % 2 == 0 ? 3e-6 : 6e-3));
        dsa_run_release(&whole);
        dsa_run_release(&alone);
        dsa_world_release(&w);
    }
}

static void every_build_gives_the_same_bits(void **state)
{
    (void)state;
    static const struct test_build builds[] = {
        {"clang", NULL}, {NULL, "x86-64-v3"}, {"clang", "x86-64-v3"}};
    for (int f = 0; f < 3; f++) {
        struct dsa_world w, other;
        struct dsa_run usual, built;
        const int32_t n[] = {150, 21};
        dsa_world_init(&w, NULL, 160, 8, forms[f], acts[f % 2]);
        dsa_run_init(&usual, &w);
        dsa_round(&usual, n, n, 0, 1);
        for (size_t b = 0; b < sizeof builds / sizeof *builds; b++) {
            if (!test_build_usable(&builds[b]))
                continue;
            dsa_world_init(&other, &builds[b], 160, 8, forms[f], acts[f % 2]);
            dsa_run_init(&built, &other);
            dsa_round(&built, n, n, 0, 2);
            dsa_same(&usual, &built, 0, "another build");
            dsa_run_release(&built);
            dsa_world_release(&other);
        }
        dsa_run_release(&usual);
        dsa_world_release(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attends_to_selected_pools_and_tail),
        cmocka_unit_test(a_complete_pool_that_is_not_selected_hides_its_own_row),
        cmocka_unit_test(peaked_and_flat_scores_stay_accurate),
        cmocka_unit_test(a_row_keeps_its_bits_however_it_is_divided),
        cmocka_unit_test(every_build_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
