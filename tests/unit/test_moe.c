/* SPDX-License-Identifier: Apache-2.0 */
/* Router, experts and SwiGLU against double sums, with experts as bf16 and EXL3; the promise that a
 * row's bits do not depend on the rows beside it, the threads, compiler or instruction set. */
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

enum { E = 5, TOPK = 2, D = 256, I = 384, MAX_ROWS = 80 };

/* One matrix of every expert: device form, and values as the oracle wants them. */
struct matrices {
    size_t n, k;
    void *form;
    double *w;          /* bf16: [E][n][k] */
    struct ref_exl3 *e; /* exl3: [E] */
    double *wq;         /* exl3: [E][k][n] */
};

struct world {
    const char *form, *act;
    unsigned bits;
    const char *codebook;
    struct matrices gate, up, down;
    void *x, *h;  /* act [MAX_ROWS][D], [MAX_ROWS][TOPK * I] */
    int32_t *ids; /* [MAX_ROWS][TOPK] */
    float *weights, *shared;
};

static void *zeroed(size_t n, size_t size)
{
    void *p = calloc(n, size);
    assert_non_null(p);
    return p;
}

static void matrices_init(struct matrices *m, const struct world *w, size_t n, size_t k,
                          uint32_t seed)
{
    char name[32];
    bool exl3 = !strcmp(w->form, "exl3");
    snprintf(name, sizeof name, exl3 ? "exl3:%u:%s" : "bf16", w->bits, w->codebook);
    uint64_t bytes;
    assert_int_equal(glm_form_bytes(name, n, k, &bytes, NULL), GLM_OK);
    *m = (struct matrices){n, k, test_alloc(E * bytes), NULL, NULL, NULL};
    struct glm_plan_part part = {"t", n, k, {0, n, 1, 0}, {0, k, 1, 0}};
    m->w = zeroed(E * n * k, sizeof *m->w);
    m->wq = zeroed(E * n * k, sizeof *m->wq);
    m->e = zeroed(E, sizeof *m->e);
    for (uint32_t x = 0; x < E; x++) {
        char *out = (char *)m->form + x * bytes;
        if (exl3) {
            m->e[x] = ref_exl3_new(k, n, w->bits, w->codebook, seed + x);
            ref_exl3_inner(&m->e[x], m->wq + x * n * k);
            struct glm_exl3_source s = {m->e[x].trellis, m->e[x].suh, m->e[x].svh};
            assert_int_equal(glm_form_place_exl3(name, &part, &s, out, NULL), GLM_OK);
            continue;
        }
        struct test_random r = {seed + x};
        float *values = zeroed(n * k, sizeof *values);
        for (size_t i = 0; i < n * k; i++) {
            values[i] = glm_round_bf16(test_random_normal(&r) / 8);
            m->w[x * n * k + i] = (double)values[i];
        }
        assert_int_equal(glm_form_place(name, &part, values, GLM_F32, n, k, 0, out, NULL), GLM_OK);
        free(values);
    }
}

static void matrices_release(struct matrices *m)
{
    for (uint32_t x = 0; x < E; x++)
        ref_exl3_release(&m->e[x]);
    test_release(m->form);
    free(m->w);
    free(m->wq);
    free(m->e);
}

static void matrices_apply(const struct matrices *m, const struct world *w, int32_t expert,
                           const double *x, double *y)
{
    size_t at = (size_t)expert * m->n * m->k;
    if (!strcmp(w->form, "exl3"))
        ref_exl3_forward(&m->e[expert], m->wq + at, x, !strcmp(w->act, "bf16"), y);
    else
        ref_matvec(m->w + at, x, m->n, m->k, y);
}

/* Expert 2 takes part in most rows, expert 4 in none; one row is padding. */
static struct world world_new(const char *form, unsigned bits, const char *codebook,
                              const char *act)
{
    struct world w = {.form = form, .act = act, .bits = bits, .codebook = codebook};
    struct test_random r = {bits + 1};
    matrices_init(&w.gate, &w, I, D, 10);
    matrices_init(&w.up, &w, I, D, 20);
    matrices_init(&w.down, &w, D, I, 30);
    w.x = test_alloc(MAX_ROWS * D * test_act_bytes(act));
    w.h = test_alloc(MAX_ROWS * TOPK * I * test_act_bytes(act));
    w.ids = test_alloc(MAX_ROWS * TOPK * sizeof *w.ids);
    w.weights = test_alloc(MAX_ROWS * TOPK * sizeof *w.weights);
    w.shared = test_alloc(MAX_ROWS * D * sizeof *w.shared);
    for (size_t i = 0; i < MAX_ROWS * D; i++) {
        test_act_put(w.x, i, test_random_normal(&r), act);
        w.shared[i] = test_random_normal(&r);
    }
    for (size_t i = 0; i < MAX_ROWS * TOPK * I; i++)
        test_act_put(w.h, i, test_random_normal(&r), act);
    for (size_t i = 0; i < MAX_ROWS; i++) {
        bool two = test_random_u64(&r) % 8 != 0;
        int32_t other = (int32_t)(test_random_u64(&r) % 2);
        int32_t pair[2] = {two ? 2 : 3, other};
        for (size_t s = 0; s < TOPK; s++) {
            w.ids[i * TOPK + s] = i == 3 ? -1 : pair[(s + i) % 2];
            w.weights[i * TOPK + s] = i == 3 ? 0 : test_random_uniform(&r, 0.1f, 2.0f);
        }
    }
    return w;
}

static void world_release(struct world *w)
{
    matrices_release(&w->gate);
    matrices_release(&w->up);
    matrices_release(&w->down);
    test_release(w->x);
    test_release(w->h);
    test_release(w->ids);
    test_release(w->weights);
    test_release(w->shared);
}

static void params_of(const struct world *w, bool limit, char out[256])
{
    bool exl3 = !strcmp(w->form, "exl3");
    snprintf(out, 256, "E=%d TOPK=%d D=%d I=%d FORM=%s BITS=%u CODEBOOK=%s%s", E, TOPK, D, I,
             w->form, exl3 ? w->bits : 0, exl3 ? w->codebook : "none", limit ? " LIMIT=1.5" : "");
}

static void *gate_up(const struct test_build *build, const struct world *w, size_t first,
                     uint32_t rows, uint32_t n_threads)
{
    char params[256];
    params_of(w, true, params);
    struct test_kernel *k = test_kernel_with(build, "moe_gate_up", params, w->act);
    struct test_round *r = test_round(rows);
    size_t size = test_act_bytes(w->act);
    void *h = test_alloc(rows * TOPK * I * size);
    test_kernel_run(k, &r->round,
                    (void *[]){(char *)w->x + first * D * size, w->ids + first * TOPK, w->gate.form,
                               w->up.form, h},
                    n_threads);
    test_round_free(r);
    return h;
}

static float *down(const struct test_build *build, const struct world *w, size_t first,
                   uint32_t rows, uint32_t n_threads, bool shared)
{
    char params[256];
    params_of(w, false, params);
    struct test_kernel *k = test_kernel_with(build, "moe_down", params, w->act);
    struct test_round *r = test_round(rows);
    float *y = test_alloc(rows * D * sizeof *y);
    test_kernel_run(k, &r->round,
                    (void *[]){(char *)w->h + first * TOPK * I * test_act_bytes(w->act),
                               w->ids + first * TOPK, w->weights + first * TOPK, w->down.form,
                               shared ? w->shared + first * D : NULL, y},
                    n_threads);
    test_round_free(r);
    return y;
}

static const struct kind {
    const char *form;
    unsigned bits;
    const char *codebook;
} kinds[] = {{"bf16", 0, ""}, {"exl3", 4, "mcg"}, {"exl3", 3, "mul1"}, {"exl3", 6, "3inst"}};
static const char *const acts[] = {"f32", "bf16"};

static void check_gate_up(const struct world *w, uint32_t rows)
{
    bool bf16 = !strcmp(w->act, "bf16");
    void *h = gate_up(&(struct test_build){0}, w, 0, rows, 2);
    for (uint32_t m = 0; m < rows; m++) {
        double x[D], g[I], u[I], want[I];
        float got[I];
        for (size_t i = 0; i < D; i++)
            x[i] = (double)test_act_get(w->x, m * D + i, w->act);
        for (uint32_t s = 0; s < TOPK; s++) {
            int32_t expert = w->ids[m * TOPK + s];
            if (expert < 0)
                continue;
            matrices_apply(&w->gate, w, expert, x, g);
            matrices_apply(&w->up, w, expert, x, u);
            for (size_t i = 0; i < I; i++) {
                want[i] = ref_swiglu(g[i], u[i], 1.5, 0);
                got[i] = test_act_get(h, (m * TOPK + s) * I + i, w->act);
            }
            double l2 = test_relative_l2(got, want, I);
            if (l2 > (bf16 ? 3e-3 : 2e-6))
                fail_msg("%s:%u:%s act %s row %u slot %u: off by %g", w->form, w->bits, w->codebook,
                         w->act, m, s, l2);
        }
    }
    test_release(h);
}

static void check_down(const struct world *w, uint32_t rows, bool shared)
{
    float *y = down(&(struct test_build){0}, w, 0, rows, 2, shared);
    for (uint32_t m = 0; m < rows; m++) {
        double h[I], part[D], want[D];
        for (size_t i = 0; i < D; i++)
            want[i] = shared ? (double)w->shared[m * D + i] : 0;
        for (uint32_t s = 0; s < TOPK; s++) {
            if (w->ids[m * TOPK + s] < 0)
                continue;
            for (size_t i = 0; i < I; i++)
                h[i] = (double)test_act_get(w->h, (m * TOPK + s) * I + i, w->act);
            matrices_apply(&w->down, w, w->ids[m * TOPK + s], h, part);
            for (size_t i = 0; i < D; i++)
                want[i] += (double)w->weights[m * TOPK + s] * part[i];
        }
        double l2 = test_relative_l2(y + m * D, want, D);
        if (l2 > (strcmp(w->act, "bf16") ? 2e-6 : 2e-4))
            fail_msg("%s:%u:%s act %s row %u: off by %g", w->form, w->bits, w->codebook, w->act, m,
                     l2);
    }
    test_release(y);
}

static void experts_match_double_sums(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t a = 0; a < 2; a++) {
            struct world w = world_new(kinds[k].form, kinds[k].bits, kinds[k].codebook, acts[a]);
            check_gate_up(&w, 1);
            check_gate_up(&w, k < 2 ? MAX_ROWS : 9);
            check_down(&w, 1, false);
            check_down(&w, k < 2 ? MAX_ROWS : 9, true);
            world_release(&w);
        }
}

static void a_row_keeps_its_bits(void **state)
{
    (void)state;
    const struct test_build build = {0};
    for (size_t k = 0; k < 2; k++)
        for (size_t a = 0; a < 2; a++) {
            struct world w = world_new(kinds[k].form, kinds[k].bits, kinds[k].codebook, acts[a]);
            size_t h_row = TOPK * I * test_act_bytes(acts[a]), y_row = D * sizeof(float);
            char *h = gate_up(&build, &w, 0, MAX_ROWS, 1);
            char *y = (char *)down(&build, &w, 0, MAX_ROWS, 1, true);
            for (uint32_t rows = 1; rows <= MAX_ROWS; rows += rows < 6 ? 1 : 29)
                for (uint32_t first = 0; first + rows <= MAX_ROWS; first += 7)
                    for (uint32_t t = 1; t <= 3; t++) {
                        void *h2 = gate_up(&build, &w, first, rows, t);
                        void *y2 = down(&build, &w, first, rows, t, true);
                        test_same_bytes(h2, h + first * h_row, rows * h_row, "h of fewer rows");
                        test_same_bytes(y2, y + first * y_row, rows * y_row, "y of fewer rows");
                        test_release(h2);
                        test_release(y2);
                    }
            test_release(h);
            test_release(y);
            world_release(&w);
        }
}

static void compilers_and_instruction_sets_give_the_same_bits(void **state)
{
    (void)state;
    static const struct test_build builds[] = {
        {"gcc", "x86-64-v4"}, {"gcc", "x86-64-v3"}, {"clang", "x86-64-v4"}, {"clang", "x86-64-v3"}};
    enum { ROWS = 40 };
    for (size_t k = 0; k < 2; k++)
        for (size_t a = 0; a < 2; a++) {
            struct world w = world_new(kinds[k].form, kinds[k].bits, kinds[k].codebook, acts[a]);
            void *h = gate_up(&(struct test_build){0}, &w, 0, ROWS, 1);
            void *y = down(&(struct test_build){0}, &w, 0, ROWS, 1, true);
            for (size_t b = 0; b < sizeof builds / sizeof *builds; b++) {
                if (!test_build_usable(&builds[b]))
                    continue;
                void *h2 = gate_up(&builds[b], &w, 0, ROWS, 2);
                void *y2 = down(&builds[b], &w, 0, ROWS, 2, true);
                test_same_bytes(h2, h, ROWS * TOPK * I * test_act_bytes(acts[a]), builds[b].target);
                test_same_bytes(y2, y, ROWS * D * sizeof(float), builds[b].target);
                test_release(h2);
                test_release(y2);
            }
            test_release(h);
            test_release(y);
            world_release(&w);
        }
}

/* A padded row's slots are skipped, ids outside the experts are not followed. */
static void a_row_without_experts_is_the_shared_row_alone(void **state)
{
    (void)state;
    struct world w = world_new("bf16", 0, "", "f32");
    w.ids[0] = -1;
    w.ids[1] = E;
    float *y = down(&(struct test_build){0}, &w, 0, 1, 1, true);
    test_same_bytes(y, w.shared, D * sizeof *y, "shared alone");
    test_release(y);
    y = down(&(struct test_build){0}, &w, 0, 1, 2, false);
    for (size_t i = 0; i < D; i++)
        assert_true(y[i] == 0);
    test_release(y);
    world_release(&w);
}

/* ---- Router ---- */

static void route(const float *logits, const float *bias, uint32_t rows, int32_t *ids,
                  float *weights, int32_t padded)
{
    struct test_kernel *k = test_kernel("moe_route", "E=12 TOPK=4 SCALE=2.5", "f32");
    struct test_round *r = test_round(rows);
    if (padded >= 0)
        r->rows[padded].stream = -1;
    union {
        const float *in;
        void *out;
    } l = {logits}, b = {bias};
    test_kernel_run(k, &r->round, (void *[]){l.out, b.out, ids, weights}, 2);
    test_round_free(r);
}

static void routes_by_biased_score_and_weighs_without_bias(void **state)
{
    (void)state;
    enum { ROWS = 33 };
    struct test_random r = {5};
    float logits[ROWS * 12], bias[12];
    int32_t ids[ROWS * 4], want_ids[4];
    float weights[ROWS * 4];
    double want[4];
    for (int i = 0; i < ROWS * 12; i++)
        logits[i] = test_random_normal(&r) * 2;
    for (int i = 0; i < 12; i++)
        bias[i] = test_random_normal(&r) / 4;
    route(logits, bias, ROWS, ids, weights, 7);
    for (int m = 0; m < ROWS; m++) {
        if (m == 7) {
            for (int s = 0; s < 4; s++) {
                assert_int_equal(ids[m * 4 + s], -1);
                assert_true(weights[m * 4 + s] == 0);
            }
            continue;
        }
        ref_route(logits + m * 12, bias, 12, 4, 2.5, want_ids, want);
        for (int s = 0; s < 4; s++) {
            assert_int_equal(ids[m * 4 + s], want_ids[s]);
            assert_true(fabs((double)weights[m * 4 + s] - want[s]) < 1e-6 * want[s]);
        }
    }
}

static void ties_go_to_the_lower_id_and_nan_comes_last(void **state)
{
    (void)state;
    float logits[24], bias[12] = {0};
    int32_t ids[8];
    float weights[8];
    for (int i = 0; i < 24; i++)
        logits[i] = i < 12 ? 1.0f : NAN;
    logits[9] = 2.0f;
    route(logits, bias, 2, ids, weights, -1);
    static const int32_t want[] = {9, 0, 1, 2, 0, 1, 2, 3};
    for (int i = 0; i < 8; i++)
        assert_int_equal(ids[i], want[i]);
}

static void swiglu_clamps_the_gate_above_only(void **state)
{
    (void)state;
    for (size_t a = 0; a < 2; a++) {
        enum { N = 48, STRIDE = 112, ROWS = 5 };
        struct test_kernel *k = test_kernel("swiglu", "N=48 LIMIT=10.0 X_STRIDE=112", acts[a]);
        size_t size = test_act_bytes(acts[a]);
        void *x = test_alloc(ROWS * STRIDE * size), *y = test_alloc(ROWS * N * size);
        struct test_random random = {9};
        for (size_t m = 0; m < ROWS; m++)
            for (size_t i = 0; i < 2 * N; i++)
                test_act_put(x, m * STRIDE + i, test_random_normal(&random) * 12, acts[a]);
        struct test_round *r = test_round(ROWS);
        test_kernel_run(k, &r->round, (void *[]){x, y}, 3);
        for (size_t m = 0; m < ROWS; m++)
            for (size_t i = 0; i < N; i++) {
                double want =
                    ref_swiglu((double)test_act_get(x, m * STRIDE + i, acts[a]),
                               (double)test_act_get(x, m * STRIDE + N + i, acts[a]), 10, a == 1);
                double got = (double)test_act_get(y, m * N + i, acts[a]);
                assert_true(fabs(got - want) <= fabs(want) * (a ? 8e-3 : 1e-6) + 1e-30);
            }
        test_round_free(r);
        test_release(x);
        test_release(y);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_match_double_sums),
        cmocka_unit_test(a_row_keeps_its_bits),
        cmocka_unit_test(compilers_and_instruction_sets_give_the_same_bits),
        cmocka_unit_test(a_row_without_experts_is_the_shared_row_alone),
        cmocka_unit_test(routes_by_biased_score_and_weighs_without_bias),
        cmocka_unit_test(ties_go_to_the_lower_id_and_nan_comes_last),
        cmocka_unit_test(swiglu_clamps_the_gate_above_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
