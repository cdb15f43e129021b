/* SPDX-License-Identifier: Apache-2.0 */
/* dsa_prepare and dsa_select: cache rows and pooled keys against the equations in double precision,
 * the selection against a sort, and bits against rounds, threads and rejected rows. */
#include "tests/support/dsa_world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const acts[] = {"f32", "bf16"};
static const char *const forms[] = {"fp32", "bf16", "fp8"};

static double *row_of(const float *from, size_t row, size_t width)
{
    double *p = calloc(width, sizeof *p);
    for (size_t i = 0; i < width; i++)
        p[i] = (double)from[row * width + i];
    return p;
}

static double distance(const float *got, const double *want, size_t n)
{
    return test_relative_l2(got, want, n);
}

/* How far a cache row may be from the unrounded oracle: the form's own error on top. */
static double form_limit(const char *kv, const char *act)
{
    if (strcmp(kv, "fp8") == 0)
        return 4e-2;
    return strcmp(kv, "bf16") == 0 || strcmp(act, "bf16") == 0 ? 3e-3 : 2e-6;
}

static void check_latent(const struct dsa_run *r, size_t s, int32_t p)
{
    const struct dsa_world *w = r->world;
    bool bf16 = strcmp(w->act, "bf16") == 0;
    double *in = row_of(w->qkv[s], (size_t)p, DSA_Q + DSA_C), q[DSA_Q], c[DSA_C];
    float got[DSA_C];
    reference_rms_norm(q, in, w->q_norm, DSA_Q, 1e-5, bf16);
    reference_rms_norm(c, in + DSA_Q, w->kv_norm, DSA_C, 1e-5, bf16);
    assert_true(test_acts_distance(r->qr[s], (size_t)p * DSA_Q, q, DSA_Q, w->act) <
                (bf16 ? 4e-3 : 2e-6));
    dsa_decode_row(w, dsa_latent_row(r, s, p), DSA_C, got);
    assert_true(distance(got, c, DSA_C) < form_limit(w->kv, w->act));
    free(in);
}

static void check_pool(const struct dsa_run *r, size_t s, int32_t pool)
{
    const struct dsa_world *w = r->world;
    bool bf16 = strcmp(w->act, "bf16") == 0;
    double ik[DSA_POOL * DSA_D], ig[DSA_POOL * DSA_D], want[DSA_D];
    float got[DSA_D];
    for (size_t j = 0; j < DSA_POOL; j++) {
        size_t p = (size_t)pool * DSA_POOL + j;
        double *key = row_of(w->ik[s], p, DSA_D), *gate = row_of(w->ig[s], p, DSA_D);
        reference_layer_norm(ik + j * DSA_D, key, w->k_norm, w->k_bias, DSA_D, 1e-6, bf16);
        memcpy(ig + j * DSA_D, gate, sizeof *ig * DSA_D);
        free(key);
        free(gate);
    }
    reference_pool_key(want, ik, ig, w->ape, DSA_POOL, DSA_D, bf16);
    dsa_decode_row(w, dsa_pooled_row(r, s, pool), DSA_D, got);
    assert_true(distance(got, want, DSA_D) < form_limit(w->kv, w->act) * 2);
}

static void caches_hold_what_the_equations_say(void **state)
{
    (void)state;
    static const int32_t rounds[][DSA_STREAMS] = {{1, 3},  {1, 1}, {1, 7}, {5, 0},
                                                  {2, 16}, {9, 1}, {64, 5}};
    for (int a = 0; a < 2; a++)
        for (int f = 0; f < 3; f++) {
            struct dsa_world w;
            struct dsa_run r;
            dsa_world_init(&w, NULL, 100, 8, forms[f], acts[a]);
            dsa_run_init(&r, &w);
            for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++)
                dsa_round(&r, rounds[i], rounds[i], i % 2, 1 + (uint32_t)i % 3);
            for (size_t s = 0; s < DSA_STREAMS; s++) {
                for (int32_t p = 0; p < r.n_context[s]; p++)
                    check_latent(&r, s, p);
                for (int32_t p = 0; p < r.n_context[s] / DSA_POOL; p++)
                    check_pool(&r, s, p);
            }
            dsa_run_release(&r);
            dsa_world_release(&w);
        }
}

/* Oracle's ids from the pooled keys as they lie in the cache. Returns the gap at the cut. */
static double expected_pools(const struct dsa_run *r, size_t s, int32_t t, int32_t *count,
                             int32_t *ids)
{
    const struct dsa_world *w = r->world;
    size_t n = (size_t)(t + 1) / DSA_POOL, n_iq = DSA_INDEX_HEADS * DSA_D;
    float *keys = calloc(n * DSA_D + 1, sizeof *keys);
    double *scores = calloc(n + 1, sizeof *scores), last = INFINITY, next = -INFINITY;
    for (size_t p = 0; p < n; p++)
        dsa_decode_row(w, dsa_pooled_row(r, s, (int32_t)p), DSA_D, keys + p * DSA_D);
    reference_scores(scores, w->iq[s] + (size_t)t * n_iq, w->w[s] + (size_t)t * DSA_INDEX_HEADS,
                     keys, n, DSA_INDEX_HEADS, DSA_D);
    *count = (int32_t)(n < w->topk ? n : w->topk);
    reference_top(scores, n, w->topk, ids);
    for (size_t p = 0, i = 0; p < n; p++)
        if (i < (size_t)*count && ids[i] == (int32_t)p)
            last = fmin(last, scores[p]), i++;
        else
            next = fmax(next, scores[p]);
    free(keys);
    free(scores);
    return last - next;
}

static void check_selection(const struct dsa_run *r, size_t s, int32_t t, int *n_near)
{
    int32_t count, *ids = calloc(r->world->topk + 1, sizeof *ids);
    const int32_t *sel = r->sel[s] + (size_t)t * (1 + r->world->topk);
    double gap = expected_pools(r, s, t, &count, ids);
    assert_int_equal(sel[0], count);
    if (gap != 0 && gap < 3e-6) /* another order of summation may pick the other pool */
        ++*n_near;
    else
        for (int32_t i = 0; i < count; i++)
            assert_int_equal(sel[1 + i], ids[i]);
    free(ids);
}

static void selects_the_best_complete_pools(void **state)
{
    (void)state;
    static const size_t topks[] = {1, 3, 8};
    int n_near = 0, n_rows = 0;
    for (int a = 0; a < 2; a++)
        for (int f = 0; f < 3; f++)
            for (size_t k = 0; k < 3; k++) {
                if (topks[k] != 8 && (a + f) % 3 != 0) /* two forms are enough for these */
                    continue;
                struct dsa_world w;
                struct dsa_run r;
                dsa_world_init(&w, NULL, 160, topks[k], forms[f], acts[a]);
                dsa_run_init(&r, &w);
                const int32_t chunk[] = {64, 0}, one[] = {1, 2};
                dsa_round(&r, chunk, chunk, 0, 2);
                for (int i = 0; i < 60; i++)
                    dsa_round(&r, one, one, 1, 1 + (uint32_t)i % 4);
                for (size_t s = 0; s < DSA_STREAMS; s++)
                    for (int32_t t = 0; t < r.n_context[s]; t++, n_rows++)
                        check_selection(&r, s, t, &n_near);
                dsa_run_release(&r);
                dsa_world_release(&w);
            }
    print_message("%d of %d rows left out: gap below 3e-6\n", n_near, n_rows);
    assert_true(n_near < n_rows / 50);
}

static void a_pool_is_seen_from_its_last_token_on(void **state)
{
    (void)state;
    struct dsa_world w;
    struct dsa_run r;
    dsa_world_init(&w, NULL, 60, 8, "fp32", "f32");
    dsa_run_init(&r, &w);
    const int32_t all[] = {60, 0};
    dsa_round(&r, all, all, 0, 1);
    for (int32_t t = 0; t < 60; t++) {
        int32_t n = (t + 1) / 4, *sel = r.sel[0] + t * 9;
        assert_int_equal(sel[0], n < 8 ? n : 8);
        for (int32_t i = 0; i < n && t <= 34; i++) /* up to here all fit, in order */
            assert_int_equal(sel[1 + i], i);
    }
    dsa_run_release(&r);
    dsa_world_release(&w);
}

static void equal_scores_go_to_the_lower_pool(void **state)
{
    (void)state;
    struct dsa_world w;
    struct dsa_run r;
    dsa_world_init(&w, NULL, 64, 3, "fp32", "f32");
    for (size_t i = 4; i < 64; i++) { /* every pool holds the same keys and gates */
        memcpy(w.ik[0] + i * DSA_D, w.ik[0] + i % 4 * DSA_D, DSA_D * sizeof(float));
        memcpy(w.ig[0] + i * DSA_D, w.ig[0] + i % 4 * DSA_D, DSA_D * sizeof(float));
    }
    dsa_run_init(&r, &w);
    const int32_t all[] = {64, 0};
    dsa_round(&r, all, all, 0, 1);
    for (size_t t = 15; t < 64; t++)
        for (int32_t i = 0; i < 3; i++)
            assert_int_equal(r.sel[0][t * 4 + 1 + (size_t)i], i);
    dsa_run_release(&r);
    dsa_world_release(&w);
}

static void a_row_keeps_its_bits_over_rounds_threads_and_chunks(void **state)
{
    (void)state;
    for (int f = 0; f < 3; f++) {
        struct dsa_world w;
        struct dsa_run whole;
        dsa_world_init(&w, NULL, 300, 8, forms[f], acts[f % 2]);
        dsa_run_init(&whole, &w);
        const int32_t all[] = {277, 0};
        dsa_round(&whole, all, all, 0, 1);
        static const int32_t patterns[][4] = {
            {64, 64, 64, 85}, {1, 1, 30, 245}, {5, 62, 201, 9}, {270, 3, 3, 1}};
        for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
            struct dsa_run cut;
            dsa_run_init(&cut, &w);
            for (size_t j = 0; j < 4; j++) {
                const int32_t n[] = {patterns[i][j], (int32_t)j};
                dsa_round(&cut, n, n, j % 2, 1 + (uint32_t)(i + j) % 4);
            }
            dsa_same(&whole, &cut, 0, "rounds cut differently");
            dsa_run_release(&cut);
        }
        dsa_run_release(&whole);
        dsa_world_release(&w);
    }
}

static void rejected_rows_leave_no_trace(void **state)
{
    (void)state;
    struct dsa_world w;
    dsa_world_init(&w, NULL, 80, 8, "fp32", "f32");
    for (int32_t before = 1; before < 6; before += 2)
        for (int32_t rows = 1; rows <= 16; rows += rows > 4 ? 5 : 1)
            for (int32_t keep = 0; keep <= rows; keep += rows > 5 ? 5 : 1) {
                struct dsa_run serial, drafted;
                dsa_run_init(&serial, &w);
                dsa_run_init(&drafted, &w);
                const int32_t one[] = {1, 0}, head[] = {before, 0}, n[] = {rows, 3},
                              k[] = {keep, 1}, tail[] = {7, 0};
                for (int32_t i = 0; i < before + keep + 7; i++)
                    dsa_round(&serial, one, one, 0, 1);
                dsa_round(&drafted, head, head, 0, 1);
                /* what is rejected had other tokens: move the stream's inputs and back */
                float *real = w.ik[0], *wrong = calloc(80 * DSA_D, sizeof *wrong);
                memcpy(wrong, real, (size_t)(before + keep) * DSA_D * sizeof *wrong);
                w.ik[0] = wrong;
                dsa_round(&drafted, n, k, 0, 2);
                w.ik[0] = real;
                dsa_round(&drafted, tail, tail, 0, 1);
                dsa_same(&serial, &drafted, 0, "drafted and serial rounds");
                free(wrong);
                dsa_run_release(&serial);
                dsa_run_release(&drafted);
            }
    dsa_world_release(&w);
}

static void contexts_cross_extents(void **state)
{
    (void)state;
    struct dsa_world w;
    struct dsa_run r;
    int n_near = 0;
    dsa_world_init(&w, NULL, 2600, 256, "fp8", "f32");
    dsa_run_init(&r, &w);
    static const int32_t chunks[] = {1024, 1024, 448, 100, 1, 1, 1};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        const int32_t n[] = {chunks[i], 0};
        dsa_round(&r, n, n, 0, 1 + (uint32_t)i % 3);
    }
    for (int32_t t = 1000; t < r.n_context[0]; t += 311)
        check_selection(&r, 0, t, &n_near);
    for (int32_t t = 2030; t < 2060; t++)
        check_selection(&r, 0, t, &n_near);
    assert_true(n_near < 3);
    dsa_run_release(&r);
    dsa_world_release(&w);
}

static void fp8_rows_have_the_published_bytes(void **state)
{
    (void)state;
    /* docs/formats.md 6's row, repeated to the kernel's width; the norms are made the identity. */
    static const float row[4] = {3.0f, -0.7109375f, 0.0019989f, 5.25f};
    static const uint8_t codes[4] = {0x6c, 0xdb, 0x18, 0x72};
    struct dsa_world w;
    struct dsa_run r;
    dsa_world_init(&w, NULL, 8, 8, "fp8", "f32");
    double squares = 0;
    for (size_t c = 0; c < DSA_C; c++) {
        w.qkv[0][DSA_Q + c] = row[c % 4];
        squares += (double)row[c % 4] * (double)row[c % 4] / DSA_C;
    }
    /* norm weight that undoes the division by the root of the mean square, as far as bf16 can */
    float weight = (float)sqrt(squares + 1e-5);
    for (size_t c = 0; c < DSA_C; c++)
        w.kv_norm[c] = weight;
    test_release(w.kv_norm_bits);
    w.kv_norm_bits = test_bf16s(w.kv_norm, DSA_C);
    float by = w.kv_norm[0] / weight; /* what the rounding of the weight left */
    for (size_t c = 0; c < DSA_C; c++)
        w.qkv[0][DSA_Q + c] = row[c % 4];
    dsa_run_init(&r, &w);
    const int32_t one[] = {1, 0};
    dsa_round(&r, one, one, 0, 1);
    float values[DSA_C];
    uint8_t bytes[DSA_C + 16];
    for (size_t c = 0; c < DSA_C; c++)
        values[c] = row[c % 4] * by;
    reference_fp8_row(values, bytes, DSA_C);
    test_same_bytes(dsa_latent_row(&r, 0, 0), bytes, DSA_C + 16, "fp8 row");
    float exact[4] = {row[0], row[1], row[2], row[3]};
    uint8_t small[20];
    reference_fp8_row(exact, small, 4);
    test_same_bytes(small, codes, 4, "the published codes");
    dsa_run_release(&r);
    dsa_world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(caches_hold_what_the_equations_say),
        cmocka_unit_test(selects_the_best_complete_pools),
        cmocka_unit_test(a_pool_is_seen_from_its_last_token_on),
        cmocka_unit_test(equal_scores_go_to_the_lower_pool),
        cmocka_unit_test(a_row_keeps_its_bits_over_rounds_threads_and_chunks),
        cmocka_unit_test(rejected_rows_leave_no_trace),
        cmocka_unit_test(contexts_cross_extents),
        cmocka_unit_test(fp8_rows_have_the_published_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
