/* SPDX-License-Identifier: Apache-2.0 */
/* candidates and draw: the token that a sort of the whole row gives, for any number of ranks, or
 * the honest answer that more candidates are needed; and the draw's own noise, log and exp. */
#include "tests/support/reference_b.h"
#include "tests/support/streams.h"

#include "kernels-templates/draw.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A vocabulary split over ranks in units of 64, as the design splits it. */
struct vocabulary {
    int32_t v, valid, ends[8], n_ends;
};

static int32_t share(int32_t v, int32_t world, int32_t rank, int32_t *first)
{
    int32_t units = (v + 63) / 64, each = units / world, more = units % world;
    int32_t from = rank * each + (rank < more ? rank : more);
    int32_t to = from + each + (rank < more);
    *first = from * 64 < v ? from * 64 : v;
    return (to * 64 < v ? to * 64 : v) - *first;
}

/* Draws rows of logits [n][v] on `world` ranks with c candidates a rank. */
static void draw_rows(const struct vocabulary *vocab, const float *logits,
                      const struct glm_draw *draws, int32_t n, int32_t world, int32_t c,
                      uint32_t threads, int32_t *tokens)
{
    struct test_round *r = test_round((uint32_t)n);
    size_t record = 4 + 2 * (size_t)c;
    int32_t *cands = test_alloc((size_t)(world * n) * record * 4);
    int32_t *drawn = test_alloc((size_t)n * 4);
    char params[160];
    r->round.draws = draws;
    for (int32_t rank = 0; rank < world; rank++) {
        int32_t first, v = share(vocab->v, world, rank, &first);
        float *mine = test_alloc((size_t)(n * v) * 4 + 4);
        for (int32_t o = 0; o < n; o++)
            memcpy(mine + (size_t)o * (size_t)v, logits + (size_t)o * (size_t)vocab->v + first,
                   (size_t)v * 4);
        int32_t ends[8], *cand = cands + (size_t)(rank * n) * record;
        memcpy(ends, vocab->ends, sizeof ends);
        snprintf(params, sizeof params, "V=%d FIRST=%d VALID=%d C=%d", v, first, vocab->valid, c);
        void *args[] = {mine, ends, cand};
        test_kernel_run(test_kernel("candidates", params, "f32"), &r->round, args, threads);
        test_release(mine);
    }
    snprintf(params, sizeof params, "WORLD=%d C=%d V=%d", world, c, vocab->v);
    void *args[] = {cands, drawn};
    test_kernel_run(test_kernel("draw", params, "f32"), &r->round, args, threads);
    memcpy(tokens, drawn, (size_t)n * 4);
    test_release(cands);
    test_release(drawn);
    test_round_free(r);
}

static const struct glm_draw settings[] = {
    {.temperature = 0, .top_p = 1},
    {.temperature = -1, .top_p = 0.5f, .top_k = 3},
    {.temperature = 1, .top_p = 1},
    {.temperature = 0.3f, .top_p = 1},
    {.temperature = 1.7f, .top_p = 1},
    {.temperature = 1, .top_p = 0.95f, .top_k = 20},
    {.temperature = 1, .top_p = 0.95f},
    {.temperature = 0.7f, .top_p = 0.5f},
    {.temperature = 2, .top_p = 0.999f},
    {.temperature = 1, .top_p = 1, .top_k = 1},
    {.temperature = 1, .top_p = 1, .top_k = 40},
    {.temperature = 1, .top_p = 1, .top_k = 100000},
    {.temperature = 1, .top_p = 0.9f, .top_k = 100000},
    {.temperature = 1, .top_p = 1, .min_p = 0.05f},
    {.temperature = 1.5f, .top_p = 1, .min_p = 1e-4f},
    {.temperature = 1, .top_p = 0.9f, .min_p = 0.02f},
    {.temperature = 1, .top_p = 0.9f, .top_k = 30, .min_p = 0.02f},
    {.temperature = 1, .top_p = 0.8f, .top_k = 10, .flags = GLM_DRAW_NO_END},
    {.temperature = 1, .top_p = 1, .flags = GLM_DRAW_NO_END},
    {.temperature = 0, .top_p = 1, .flags = GLM_DRAW_NO_END},
    {.temperature = 1e-9f, .top_p = 1},
    {.temperature = 1e-9f, .top_p = 0.9f},
};
enum { N_SETTINGS = sizeof settings / sizeof settings[0], SEEDS = 5, N_ROWS = N_SETTINGS * SEEDS };

/* Rows of logits, SEEDS a setting: shape 0 normal, 1 with many equal values, 2 nearly flat, 3
 * peaked; end ids stand high. */
static float *make_rows(const struct vocabulary *vocab, struct test_random *random, int shape)
{
    static const float scales[] = {3, 2, 0.05f, 8};
    float *rows = test_normals(random, (size_t)(N_ROWS * vocab->v), scales[shape], 0);
    for (int32_t i = 0; i < N_ROWS * vocab->v; i++) {
        if (shape == 1)
            rows[i] = rintf(rows[i] * 2) / 2;
        if (i % vocab->v >= vocab->valid)
            rows[i] = 50; /* would win, were it not masked */
    }
    for (int32_t e = 0; e < vocab->n_ends; e++)
        for (int32_t o = 0; o < N_ROWS; o++)
            rows[o * vocab->v + vocab->ends[e]] += 4;
    return rows;
}

/* One case: rows, how to draw them, and the tokens that the whole rows give. */
struct problem {
    const struct vocabulary *vocab;
    float *rows;
    struct glm_draw draws[N_ROWS];
    int32_t want[N_ROWS];
};

static void make_problem(struct problem *p, const struct vocabulary *vocab,
                         struct test_random *random, int shape)
{
    p->vocab = vocab;
    p->rows = make_rows(vocab, random, shape);
    for (int32_t i = 0; i < N_ROWS; i++) {
        p->draws[i] = settings[i % N_SETTINGS];
        p->draws[i].seed = test_random_u64(random);
        p->draws[i].position = (int32_t)(test_random_u64(random) % 100000);
        p->want[i] = reference_draw(&p->draws[i], p->rows + i * vocab->v, vocab->valid, vocab->ends,
                                    vocab->n_ends);
    }
}

/* Draws every row and compares; returns how many asked for more than c candidates. */
static int compare(const struct problem *p, int32_t world, int32_t c, uint32_t threads)
{
    int32_t tokens[N_ROWS];
    int n_wider = 0;
    draw_rows(p->vocab, p->rows, p->draws, N_ROWS, world, c, threads, tokens);
    for (int32_t i = 0; i < N_ROWS; i++)
        if (tokens[i] == GLM_DRAW_WIDER)
            n_wider++;
        else
            assert_int_equal(tokens[i], p->want[i]);
    return n_wider;
}

static void draws_the_token_of_the_whole_row_on_any_number_of_ranks(void **state)
{
    (void)state;
    const struct vocabulary vocab = {640, 631, {3, 200, 629, -1}, 3};
    struct test_random random = {9};
    int n_wider = 0, n_rows = 0;
    for (int repeat = 0; repeat < 12; repeat++) {
        struct problem p;
        make_problem(&p, &vocab, &random, repeat % 4);
        for (int32_t world = 1; world <= 4; world++) {
            n_wider += compare(&p, world, 48, 1 + (uint32_t)(repeat + world) % 3);
            n_rows += N_ROWS;
        }
        /* whole shares decide every row */
        assert_int_equal(compare(&p, 1, vocab.v, 2), 0);
        assert_int_equal(compare(&p, 3, vocab.v, 1), 0);
        free(p.rows);
    }
    print_message("%d of %d rows needed more than 48 candidates a rank\n", n_wider, n_rows);
    assert_true(n_wider > 0 && n_wider < n_rows / 3);
}

static void large_shards_are_worked_in_blocks(void **state)
{
    (void)state;
    const struct vocabulary vocab = {5000, 4990, {4989, 2048, -1}, 2};
    struct test_random random = {10};
    for (int shape = 0; shape < 4; shape++) {
        struct problem p;
        make_problem(&p, &vocab, &random, shape);
        assert_true(compare(&p, 1, 256, 3) < N_ROWS / 2);
        assert_int_equal(compare(&p, 2, vocab.v, 2), 0);
        free(p.rows);
    }
}

static void a_rank_without_ids_offers_nothing(void **state)
{
    (void)state;
    const struct vocabulary vocab = {128, 100, {-1}, 0}; /* rank 1: ids 64..99; ranks 2, 3: none */
    struct test_random random = {11};
    struct problem p;
    make_problem(&p, &vocab, &random, 0);
    assert_int_equal(compare(&p, 4, 64, 2), 0);
    free(p.rows);
}

/* Probabilities 0.4, 0.3, 0.2, 0.1 for ids 7, 5, 6, 4: over many seeds exactly the kept ids are
 * drawn. */
static void cuts_keep_exactly_what_the_rules_say(void **state)
{
    (void)state;
    static const struct {
        struct glm_draw draw;
        unsigned ids; /* bit i: id i is drawn */
    } cases[] = {
        {{.temperature = 1, .top_p = 1}, 0xf0},
        {{.temperature = 1, .top_p = 0.95f}, 0xf0},
        {{.temperature = 1, .top_p = 0.85f}, 0xe0},
        {{.temperature = 1, .top_p = 0.69f}, 0xa0},
        {{.temperature = 1, .top_p = 0.39f}, 0x80},
        {{.temperature = 1, .top_p = 0.72f}, 0xe0},
        {{.temperature = 1, .top_p = 1, .top_k = 3}, 0xe0},
        {{.temperature = 1, .top_p = 1, .top_k = 4}, 0xf0},
        {{.temperature = 1, .top_p = 0.56f, .top_k = 2}, 0x80}, /* 0.4 of 0.7 is 0.571 */
        {{.temperature = 1, .top_p = 0.58f, .top_k = 2}, 0xa0},
        {{.temperature = 1, .top_p = 1, .min_p = 0.3f}, 0xe0}, /* 0.1 / 0.4 is 0.25 */
        {{.temperature = 1, .top_p = 1, .min_p = 0.74f}, 0xa0},
        {{.temperature = 1, .top_p = 1, .min_p = 0.76f}, 0x80},
        {{.temperature = 0.5f, .top_p = 0.5f}, 0x80}, /* squared: 0.533, 0.3, 0.133, 0.033 */
        {{.temperature = 0.5f, .top_p = 0.6f}, 0xa0},
    };
    float row[8];
    for (int i = 0; i < 8; i++)
        row[i] = -100;
    row[7] = logf(0.4f), row[5] = logf(0.3f), row[6] = logf(0.2f), row[4] = logf(0.1f);
    const struct vocabulary vocab = {8, 8, {-1}, 0};
    enum { TRIES = 400 };
    float *rows = calloc(TRIES * 8, sizeof *rows);
    struct glm_draw *draws = calloc(TRIES, sizeof *draws);
    int32_t *tokens = calloc(TRIES, sizeof *tokens);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned drawn = 0;
        for (uint64_t t = 0; t < TRIES; t++) {
            memcpy(rows + 8 * t, row, sizeof row);
            draws[t] = cases[i].draw;
            draws[t].seed = t;
        }
        draw_rows(&vocab, rows, draws, TRIES, 1, 8, 1, tokens);
        for (size_t t = 0; t < TRIES; t++)
            drawn |= 1u << tokens[t];
        assert_int_equal(drawn, cases[i].ids);
    }
    free(rows);
    free(draws);
    free(tokens);
}

static void too_few_candidates_are_never_guessed(void **state)
{
    (void)state;
    /* Two shards; the first holds the 40 best logits, so 8 of them do not settle a top 20. */
    const struct vocabulary vocab = {128, 128, {-1}, 0};
    float row[128];
    for (int i = 0; i < 128; i++)
        row[i] = (float)-i * 0.01f;
    const struct glm_draw draw = {.seed = 5, .temperature = 1, .top_p = 1, .top_k = 20};
    int32_t token;
    draw_rows(&vocab, row, &draw, 1, 2, 8, 1, &token);
    assert_int_equal(token, GLM_DRAW_WIDER);
    draw_rows(&vocab, row, &draw, 1, 2, 20, 1, &token);
    assert_int_equal(token, reference_draw(&draw, row, 128, NULL, 0));
}

static void odd_logits_are_drawn_without_harm(void **state)
{
    (void)state;
    const struct vocabulary vocab = {128, 128, {-1}, 0};
    for (size_t s = 0; s < N_SETTINGS; s++) {
        float row[128];
        int32_t token;
        for (int i = 0; i < 128; i++)
            row[i] = i % 3 == 0 ? NAN : -INFINITY;
        draw_rows(&vocab, row, &settings[s], 1, 2, 128, 1, &token);
        assert_in_range(token, 0, 127);
        row[77] = INFINITY; /* nothing is far enough behind it to be drawn */
        draw_rows(&vocab, row, &settings[s], 1, 2, 128, 1, &token);
        assert_int_equal(token, 77);
    }
}

static void noise_has_the_published_check_values(void **state)
{
    (void)state;
    const double first = glm_draw_uniform(glm_draw_key(1234, 7), 13041);
    assert_true(first == 0.14603305540252304);
    assert_true(fabs(glm_draw_gumbel(glm_draw_key(1234, 7), 13041) - -0.6543659543554786) < 2e-16);
    assert_true(glm_draw_uniform(glm_draw_key(0, 0), 0) == 0.20310281705476102);
    assert_true(glm_draw_uniform(glm_draw_key(INT64_MAX, 100000), 154879) == 0.09906811859403425);
}

static void log_and_exp_are_within_two_units(void **state)
{
    (void)state;
    struct test_random random = {12};
    double worst_log = 0, worst_exp = 0;
    for (int i = 0; i < 300000; i++) {
        double u = (double)(test_random_u64(&random) >> 11) * 0x1p-53 + 0x1p-54;
        double x = i % 3 == 0 ? u : i % 3 == 1 ? 1 - u * 0x1p-20 : ldexp(u, i % 200 - 100);
        double want = log(x);
        if (want != 0)
            worst_log = fmax(worst_log, fabs(glm_draw_log(x) - want) / fabs(want));
        double y = -700 * u * u;
        worst_exp = fmax(worst_exp, fabs(glm_draw_exp(y) - exp(y)) / exp(y));
    }
    print_message("worst relative error: log %.2g, exp %.2g\n", worst_log, worst_exp);
    assert_true(worst_log < 2 * DBL_EPSILON);
    assert_true(worst_exp < 2 * DBL_EPSILON);
    assert_true(glm_draw_exp(0) == 1 && glm_draw_log(1) == 0);
    assert_true(glm_draw_exp(-1e9) < 1e-300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_the_token_of_the_whole_row_on_any_number_of_ranks),
        cmocka_unit_test(large_shards_are_worked_in_blocks),
        cmocka_unit_test(a_rank_without_ids_offers_nothing),
        cmocka_unit_test(cuts_keep_exactly_what_the_rules_say),
        cmocka_unit_test(too_few_candidates_are_never_guessed),
        cmocka_unit_test(odd_logits_are_drawn_without_harm),
        cmocka_unit_test(noise_has_the_published_check_values),
        cmocka_unit_test(log_and_exp_are_within_two_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
