/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA bodies of moe_gate_up and moe_down, executed on the CPU, against the host bodies with
 * experts as bf16 and EXL3 at every rate; a row's bits whatever rows are beside it. */
#include "tests/support/simt.h"
#include "tests/support/streams.h"

#include "kernels-templates/prelude.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { E = 5, TOPK = 2, D = 256, I = 384, N_ROWS = 23 };

struct world {
    char up_params[160], down_params[160];
    void *gate, *up, *down; /* [E] in the device form */
    uint16_t *x, *h;        /* [N_ROWS][D], [N_ROWS][TOPK * I] */
    int32_t *ids;
    float *weights, *shared;
};

/* Random words are as good a trellis as any; the scales behind them keep values moderate. */
static void *new_matrices(const char *form, int bits, size_t n, size_t k,
                          struct test_random *random)
{
    uint64_t bytes;
    const size_t n_words = n * k / 16 * (size_t)bits;
    assert_int_equal(glm_form_bytes(form, n, k, &bytes, NULL), GLM_OK);
    char *all = test_alloc(E * bytes);
    for (size_t e = 0; e < E; e++) {
        uint16_t *w = (uint16_t *)(void *)(all + e * bytes);
        if (bits == 0)
            for (size_t i = 0; i < n * k; i++)
                w[i] = glm_f32_bf16(test_random_normal(random) / 8);
        else
            for (size_t i = 0; i < n_words + k + n; i++)
                w[i] = i < n_words ? (uint16_t)test_random_u64(random)
                                   : glm_f32_f16(test_random_normal(random) / 4);
    }
    return all;
}

/* Expert 2 takes part in most rows, expert 4 in none; one row is padding. bits 0: bf16. */
static struct world new_world(int bits, const char *codebook)
{
    struct world w;
    struct test_random random = {(uint64_t)bits * 8 + strlen(codebook)};
    char name[32], common[128];
    if (bits > 0)
        snprintf(name, sizeof name, "exl3:%d:%s", bits, codebook);
    else
        snprintf(name, sizeof name, "bf16");
    snprintf(common, sizeof common, "E=%d TOPK=%d D=%d I=%d FORM=%s BITS=%d CODEBOOK=%s", E, TOPK,
             D, I, bits > 0 ? "exl3" : "bf16", bits, codebook);
    snprintf(w.up_params, sizeof w.up_params, "%s LIMIT=1.5", common);
    snprintf(w.down_params, sizeof w.down_params, "%s", common);
    w.gate = new_matrices(name, bits, I, D, &random);
    w.up = new_matrices(name, bits, I, D, &random);
    w.down = new_matrices(name, bits, D, I, &random);
    w.x = test_alloc(N_ROWS * D * 2);
    w.h = test_alloc(N_ROWS * TOPK * I * 2);
    w.ids = test_alloc(N_ROWS * TOPK * 4);
    w.weights = test_alloc(N_ROWS * TOPK * 4);
    w.shared = test_alloc(N_ROWS * D * 4);
    for (size_t i = 0; i < N_ROWS * D; i++) {
        w.x[i] = glm_f32_bf16(test_random_normal(&random));
        w.shared[i] = test_random_normal(&random);
    }
    for (size_t i = 0; i < N_ROWS * TOPK * I; i++)
        w.h[i] = glm_f32_bf16(test_random_normal(&random));
    for (size_t i = 0; i < N_ROWS; i++) {
        const int32_t pair[2] = {i % 8 != 1 ? 2 : 3, (int32_t)(test_random_u64(&random) % 2)};
        for (size_t s = 0; s < TOPK; s++) {
            w.ids[i * TOPK + s] = i == 3 ? -1 : pair[(s + i) % 2];
            w.weights[i * TOPK + s] = test_random_uniform(&random, 0.1f, 2.0f);
        }
    }
    return w;
}

static void free_world(struct world *w)
{
    void *const owned[] = {w->gate, w->up, w->down, w->x, w->h, w->ids, w->weights, w->shared};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        test_release(owned[i]);
}

/* h and y of rows [first, first + n), with room for a bucket. */
struct result {
    uint16_t *h;
    float *y;
    const char *why; /* what the device complained of */
};

/* n elements from `first` on in memory of their own: a GPU is given whole allocations. */
static void *slice(const void *from, size_t first, size_t n, size_t bytes)
{
    void *p = test_alloc(n * bytes);
    memcpy(p, (const char *)from + first * bytes, n * bytes);
    return p;
}

static struct result run(const struct world *w, const struct test_device_kernel *up,
                         const struct test_device_kernel *down, size_t first, size_t n,
                         size_t bucket, uint64_t order)
{
    struct result r = {test_alloc(bucket * TOPK * I * 2), test_alloc(bucket * D * 4), NULL};
    struct test_round *round = test_round((uint32_t)n);
    void *own[] = {slice(w->x, first, n, D * 2), slice(w->ids, first, n, TOPK * 4),
                   slice(w->h, first, n, TOPK * I * 2), slice(w->weights, first, n, TOPK * 4),
                   slice(w->shared, first, n, D * 4)};
    void *up_args[] = {own[0], own[1], w->gate, w->up, r.h};
    void *down_args[] = {own[2], own[1], own[3], w->down, own[4], r.y};
    if (up == NULL) {
        test_kernel_run(test_kernel("moe_gate_up", w->up_params, "bf16"), &round->round, up_args,
                        1);
        test_kernel_run(test_kernel("moe_down", w->down_params, "bf16"), &round->round, down_args,
                        1);
    } else {
        r.why = test_device_run(up, &round->round, (uint32_t)bucket, 1, up_args, 5, order);
        if (r.why == NULL)
            r.why = test_device_run(down, &round->round, (uint32_t)bucket, 1, down_args, 6, order);
    }
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        test_release(own[i]);
    test_round_free(round);
    return r;
}

static void free_result(struct result *r)
{
    test_release(r->h);
    test_release(r->y);
}

/* Within a unit in the last place at the larger of the value and the row's root mean square. What
 * neither wrote is the same NaN. */
static bool h_agrees(const uint16_t *got, const uint16_t *want)
{
    double square = 0;
    for (size_t i = 0; i < I; i++)
        if (want[i] != 0xffff)
            square += (double)glm_bf16_f32(want[i]) * (double)glm_bf16_f32(want[i]);
    for (size_t i = 0; i < I; i++) {
        const double v = (double)glm_bf16_f32(want[i]);
        const double at = fmax(fabs(v), sqrt(square / I));
        if (got[i] != want[i] &&
            !(fabs((double)glm_bf16_f32(got[i]) - v) <= ldexp(1, ilogb(at) - 7)))
            return false;
    }
    return true;
}

static bool y_agrees(const float *got, const float *want)
{
    double want_row[D];
    for (size_t i = 0; i < D; i++)
        want_row[i] = (double)want[i];
    return test_relative_l2(got, want_row, D) <= 1e-5;
}

/* NULL, or what differs. */
static const char *compare(const struct result *got, const struct result *want, size_t n,
                           size_t bucket)
{
    static char text[80];
    if (got->why != NULL)
        return got->why;
    for (size_t p = 0; p < n * TOPK; p++)
        if (!h_agrees(got->h + p * I, want->h + p * I)) {
            snprintf(text, sizeof text, "gate and up of pick %zu of %zu", p, n * TOPK);
            return text;
        }
    for (size_t r = 0; r < n; r++)
        if (!y_agrees(got->y + r * D, want->y + r * D)) {
            snprintf(text, sizeof text, "down of row %zu of %zu", r, n);
            return text;
        }
    for (size_t i = n * TOPK * I; i < bucket * TOPK * I; i++)
        if (got->h[i] != 0xffff)
            return "a row beyond the round was written";
    return NULL;
}

static const struct form {
    int bits; /* 0: bf16 */
    const char *codebook;
} forms[] = {{4, "mcg"},   {0, "none"}, {4, "mul1"}, {4, "3inst"}, {1, "mcg"}, {2, "mul1"},
             {3, "3inst"}, {5, "mcg"},  {6, "mul1"}, {7, "3inst"}, {8, "mcg"}};

static void experts_agree_with_the_host_and_keep_a_rows_bits(void **state)
{
    static const size_t windows[][2] = {{0, 1}, {3, 1}, {1, 7}, {5, 18}};
    NEED_DEVICE();
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
        struct world w = new_world(forms[f].bits, forms[f].codebook);
        const struct test_device_kernel *up = test_device_kernel("moe_gate_up", w.up_params);
        const struct test_device_kernel *down = test_device_kernel("moe_down", w.down_params);
        struct result want = run(&w, NULL, NULL, 0, N_ROWS, N_ROWS, 0);
        struct result all = run(&w, up, down, 0, N_ROWS, 32, 1);
        const char *why = compare(&all, &want, N_ROWS, 32);
        if (why != NULL)
            fail_msg("%d bits, %s: %s", forms[f].bits, forms[f].codebook, why);
        for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
            const size_t first = windows[i][0], n = windows[i][1];
            struct result some = run(&w, up, down, first, n, n + 2, i);
            assert_null(some.why);
            test_same_bytes(some.h, all.h + first * TOPK * I, n * TOPK * I * 2, "h");
            test_same_bytes(some.y, all.y + first * D, n * D * 4, "y");
            free_result(&some);
        }
        free_result(&want);
        free_result(&all);
        free_world(&w);
    }
}

struct change {
    const char *name, *was, *is;
};

static void notices(int bits, const char *codebook, const struct change *changes, size_t n)
{
    struct world w = new_world(bits, codebook);
    struct result want = run(&w, NULL, NULL, 0, N_ROWS, N_ROWS, 0);
    for (const struct change *c = changes; c < changes + n; c++) {
        const bool is_up = strcmp(c->name, "moe_gate_up") == 0;
        const struct test_device_kernel *up =
            is_up ? test_device_kernel_with(c->name, w.up_params, c->was, c->is)
                  : test_device_kernel("moe_gate_up", w.up_params);
        const struct test_device_kernel *down =
            is_up ? test_device_kernel("moe_down", w.down_params)
                  : test_device_kernel_with(c->name, w.down_params, c->was, c->is);
        struct result got = run(&w, up, down, 0, N_ROWS, 32, 0);
        if (compare(&got, &want, N_ROWS, 32) == NULL)
            fail_msg("%d bits: '%s' passes as '%s'", bits, c->is, c->was);
        free_result(&got);
    }
    free_result(&want);
    free_world(&w);
}

static void planted_mistakes_are_noticed(void **state)
{
    static const struct change at_4_bits[] = {
        {"moe_gate_up", "(lane + 31) % 32", "(lane + 30) % 32"},
        {"moe_gate_up", "n_blocks * (glm_warp() + 1) / GLM_WARPS",
         "n_blocks * (glm_warp() + 1) / (GLM_WARPS + 1)"},
        {"moe_gate_up", "m[i].per = GLM_TOPK;", "m[i].per = GLM_TOPK + 1;"},
        {"moe_down", "s < GLM_TOPK; s++", "s < GLM_TOPK - 1; s++"},
        {"moe_down", "m->svh + m->block * GLM_EXL3_BLOCK", "m->svh"},
        {"moe_down", "(uint32_t)expert.n_distinct", "(uint32_t)expert.n_distinct - 1"},
    };
    static const struct change at_7_bits[] = {
        {"moe_gate_up", "stream[(last + N - 2) % N]", "stream[last == 1 ? 0 : last - 2]"},
        {"moe_gate_up", "glm_lane() < 16", "glm_lane() < 15"},
        {"moe_down", "(7 - j) * GLM_BITS", "(7 - j) * GLM_BITS + (j == 0)"},
    };
    NEED_DEVICE();
    notices(4, "mcg", at_4_bits, sizeof at_4_bits / sizeof at_4_bits[0]);
    notices(7, "mul1", at_7_bits, sizeof at_7_bits / sizeof at_7_bits[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_agree_with_the_host_and_keep_a_rows_bits),
        cmocka_unit_test(planted_mistakes_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
