/* SPDX-License-Identifier: Apache-2.0 */
/* The matmul kernel in its three forms against double sums, and the promise that a row's bits do
 * not depend on the rows beside it, its place, the threads, the compiler or the instruction set. */
#include "runtime/forms.h"
#include "tests/support/kernel.h"
#include "tests/support/reference_a.h"

#include "kernels-templates/prelude.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct problem {
    const char *form, *act, *out;
    uint32_t n, k, rows, x_stride, y_stride;
    void *w; /* device form */
    void *x; /* act [rows][x_stride], gaps NaN */
};

static const char *const form_names[] = {"bf16", "q4", "fp8"};
static const char *const acts[] = {"f32", "bf16"};

static struct problem problem_new(const char *form, const char *act, const char *out, uint32_t n,
                                  uint32_t k, uint32_t rows, uint32_t x_gap, uint32_t y_gap)
{
    struct problem p = {form, act, out, n, k, rows, k + x_gap, n + y_gap, NULL, NULL};
    struct test_random r = {n * 31 + k};
    uint16_t *stored = malloc((size_t)n * k * 2);
    assert_non_null(stored);
    for (size_t i = 0; i < (size_t)n * k; i++)
        stored[i] = glm_f32_bf16(test_random_normal(&r) / 16);
    uint64_t bytes;
    assert_int_equal(glm_form_bytes(form, n, k, &bytes, NULL), GLM_OK);
    p.w = test_alloc(bytes);
    struct glm_plan_part part = {"w", n, k, {0, n, 1, 0}, {0, k, 1, 0}};
    assert_int_equal(glm_form_place(form, &part, stored, GLM_BF16, n, k, 0, p.w, NULL), GLM_OK);
    free(stored);
    p.x = test_alloc((size_t)rows * p.x_stride * test_act_bytes(act));
    for (uint32_t m = 0; m < rows; m++)
        for (uint32_t i = 0; i < k; i++)
            test_act_put(p.x, (size_t)m * p.x_stride + i, test_random_normal(&r), act);
    return p;
}

static void problem_release(struct problem *p)
{
    test_release(p->w);
    test_release(p->x);
}

static size_t out_bytes(const struct problem *p)
{
    return strcmp(p->out, "f32") ? test_act_bytes(p->act) : 4;
}

/* y of rows [first, first + rows) of p, tightly packed. */
static void *multiply(const struct test_build *build, const struct problem *p, uint32_t first,
                      uint32_t rows, uint32_t n_threads)
{
    char params[256];
    snprintf(params, sizeof params, "N=%u K=%u FORM=%s X_STRIDE=%u Y_STRIDE=%u OUT=%s ROWS=round",
             p->n, p->k, p->form, p->x_stride, p->y_stride, p->out);
    struct test_kernel *k = test_kernel_with(build, "matmul", params, p->act);
    struct test_round *r = test_round(rows);
    size_t row_bytes = p->y_stride * out_bytes(p);
    void *y = test_alloc(rows * row_bytes);
    char *x = (char *)p->x + (size_t)first * p->x_stride * test_act_bytes(p->act);
    test_kernel_run(k, &r->round, (void *[]){x, p->w, y}, n_threads);
    test_round_free(r);
    return y;
}

static void check_against_double(const struct problem *p)
{
    double *w = calloc((size_t)p->n * p->k, sizeof *w), *x = calloc(p->k, sizeof *x);
    double *want = calloc(p->n, sizeof *want);
    float *got = calloc(p->n, sizeof *got);
    assert_true(w && x && want && got);
    if (!strcmp(p->form, "q4"))
        ref_q4_values(p->w, p->n, p->k, w);
    else if (!strcmp(p->form, "fp8"))
        ref_fp8_values(p->w, p->n, p->k, w);
    else
        for (size_t i = 0; i < (size_t)p->n * p->k; i++)
            w[i] = ref_bf16(((const uint16_t *)p->w)[i]);
    void *y = multiply(&(struct test_build){0}, p, 0, p->rows, 2);
    const char *stored = strcmp(p->out, "f32") ? p->act : "f32";
    for (uint32_t m = 0; m < p->rows; m++) {
        for (uint32_t i = 0; i < p->k; i++)
            x[i] = (double)test_act_get(p->x, (size_t)m * p->x_stride + i, p->act);
        ref_matvec(w, x, p->n, p->k, want);
        for (uint32_t i = 0; i < p->y_stride; i++) {
            float v = test_act_get(y, (size_t)m * p->y_stride + i, stored);
            if (i < p->n)
                got[i] = v;
            else
                assert_true(isnan(v)); /* the gap between rows stays untouched */
        }
        double l2 = test_relative_l2(got, want, p->n);
        if (l2 > (strcmp(stored, "f32") ? 3e-3 : 5e-6))
            fail_msg("%s act %s %ux%u row %u of %u: off by %g", p->form, p->act, p->n, p->k, m,
                     p->rows, l2);
    }
    test_release(y);
    free(w);
    free(x);
    free(want);
    free(got);
}

static void matches_double_sums_in_every_form(void **state)
{
    (void)state;
    static const struct {
        uint32_t n, k, rows;
    } shapes[] = {{64, 128, 1}, {5, 256, 3}, {131, 384, 7}, {256, 1024, 17}, {1, 128, 2}};
    for (size_t f = 0; f < 3; f++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            for (size_t a = s % 2; a < 2; a += 2) {
                struct problem p =
                    problem_new(form_names[f], acts[a], s % 2 ? "f32" : "act", shapes[s].n,
                                shapes[s].k, shapes[s].rows, 16 * (s % 3 == 1), s % 3 == 2 ? 8 : 0);
                check_against_double(&p);
                problem_release(&p);
            }
        }
}

static void takes_small_inputs_that_are_no_whole_group(void **state)
{
    (void)state;
    struct problem p = problem_new("bf16", "f32", "act", 24, 16, 5, 0, 0);
    check_against_double(&p);
    problem_release(&p);
    p = problem_new("bf16", "bf16", "act", 8, 48, 5, 0, 0);
    check_against_double(&p);
    problem_release(&p);
    p = problem_new("q4", "f32", "act", 8, 64, 5, 0, 0);
    check_against_double(&p);
    problem_release(&p);
}

/* Rows in panels, when a row is so long that only a few fit the cache. */
static void long_rows_pass_in_panels(void **state)
{
    (void)state;
    struct problem p = problem_new("bf16", "f32", "f32", 4, 16384, 19, 0, 0);
    check_against_double(&p);
    problem_release(&p);
}

static void a_row_keeps_its_bits(void **state)
{
    (void)state;
    const struct test_build build = {0};
    for (size_t f = 0; f < 3; f++)
        for (size_t a = 0; a < 2; a++) {
            struct problem p = problem_new(form_names[f], acts[a], "act", 70, 256, 64, 0, 0);
            size_t row = p.n * out_bytes(&p);
            char *all = multiply(&build, &p, 0, 64, 1);
            for (uint32_t rows = 1; rows <= 64; rows += rows < 9 ? 1 : 11)
                for (uint32_t first = 0; first + rows <= 64; first += 1 + rows / 2)
                    for (uint32_t t = 1; t <= 3; t++) {
                        void *y = multiply(&build, &p, first, rows, t);
                        test_same_bytes(y, all + first * row, rows * row, "rows of a smaller call");
                        test_release(y);
                    }
            test_release(all);
            problem_release(&p);
        }
}

static void compilers_and_instruction_sets_give_the_same_bits(void **state)
{
    (void)state;
    static const struct test_build builds[] = {
        {"gcc", "x86-64-v4"}, {"gcc", "x86-64-v3"}, {"clang", "x86-64-v4"}, {"clang", "x86-64-v3"}};
    for (size_t f = 0; f < 3; f++)
        for (size_t a = 0; a < (f ? 1 : 2); a++) {
            struct problem p = problem_new(form_names[f], acts[a], "act", 37, 384, 30, 0, 0);
            void *want = multiply(&(struct test_build){0}, &p, 0, 30, 1);
            for (size_t b = 0; b < sizeof builds / sizeof *builds; b++) {
                if (!test_build_usable(&builds[b]))
                    continue;
                void *y = multiply(&builds[b], &p, 0, 30, 2);
                test_same_bytes(y, want, 30 * p.n * out_bytes(&p), builds[b].target);
                test_release(y);
            }
            test_release(want);
            problem_release(&p);
        }
}

static void wanted_rows_are_counted_by_n_out(void **state)
{
    (void)state;
    struct problem p = problem_new("bf16", "f32", "f32", 32, 64, 5, 0, 0);
    struct test_kernel *k = test_kernel(
        "matmul", "N=32 K=64 FORM=bf16 X_STRIDE=64 Y_STRIDE=32 OUT=f32 ROWS=out", "f32");
    struct test_round *r = test_round(9);
    r->round.n_out = 5;
    float *want = multiply(&(struct test_build){0}, &p, 0, 5, 1);
    float *y = test_alloc(5 * 32 * 4); /* guarded: a sixth row would be seen */
    test_kernel_run(k, &r->round, (void *[]){p.x, p.w, y}, 2);
    test_same_bytes(y, want, 5 * 32 * 4, "wanted rows");
    test_release(y);
    test_release(want);
    test_round_free(r);
    problem_release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_double_sums_in_every_form),
        cmocka_unit_test(takes_small_inputs_that_are_no_whole_group),
        cmocka_unit_test(long_rows_pass_in_panels),
        cmocka_unit_test(a_row_keeps_its_bits),
        cmocka_unit_test(compilers_and_instruction_sets_give_the_same_bits),
        cmocka_unit_test(wanted_rows_are_counted_by_n_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
