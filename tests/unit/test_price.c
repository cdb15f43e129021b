/* SPDX-License-Identifier: Apache-2.0 */
/* Prices of a plan against a byte budget of the published model made from its shapes
 * alone: EXL3 experts of 4 bits, q4 dense, fp8 head and cache, one row at a context of 8k. */
#include "codegen/graph.h"
#include "tests/support/geometry.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct glm_plan **build(struct fixture *f)
{
    struct glm_plan **plans = NULL;
    struct glm_error err = {0};
    if (glm_plan_build(&f->cluster, 0, "sm_121a", &f->arena, &f->diags, &plans, &err) != GLM_OK)
        fail_msg("%s", err.message);
    return plans;
}

static struct glm_price price(const struct glm_plan *p, const char *program,
                              struct glm_cost_context at, const struct glm_device_figures *figures,
                              struct glm_price *per_kernel)
{
    struct glm_price total = {0};
    struct glm_error err = {0};
    if (glm_price_program(p, program, &at, figures, &total, per_kernel, &err) != GLM_OK)
        fail_msg("%s", err.message);
    return total;
}

static void assert_near(const char *what, double got, double want, double relative)
{
    if (fabs(got - want) > relative * fabs(want))
        fail_msg("%s: got %.6g, want %.6g within %.3g", what, got, want, relative);
}

static const struct glm_cost_context one_row = {.R = 1, .O = 1, .C = 8192, .S = 1, .T = 1, .U = 8};

/* Most loaded rank, R = 1, U = 8, context 8k: 9.87 / 5.10 / 3.74 / 2.71 GB at TP 1 to 4. */
static void bytes_a_token_match_the_reference_to_one_percent(void **state)
{
    (void)state;
    static const double table[] = {9.87e9, 5.10e9, 3.74e9, 2.71e9};
    for (uint32_t world = 1; world <= 4; world++) {
        struct fixture f;
        fixture_full(&f, world);
        struct glm_plan **plans = build(&f);
        double most = 0;
        for (uint32_t r = 0; r < world; r++) {
            struct glm_price p = price(plans[r], "decode", one_row, NULL, NULL);
            most = fmax(most, p.read_bytes + p.write_bytes);
        }
        assert_near("bytes a token", most, table[world - 1], 0.01);
        fixture_free(&f);
    }
}

static double kernels(const struct glm_plan *p, const struct glm_price *prices, const char *prefix)
{
    double bytes = 0;
    for (uint32_t i = 0; i < p->n_kernels; i++) {
        if (strncmp(p->kernels[i].name, prefix, strlen(prefix)) == 0)
            bytes += prices[i].read_bytes + prices[i].write_bytes;
    }
    return bytes;
}

/* The same table by part, TP 2. */
static void parts_match_the_reference_table(void **state)
{
    (void)state;
    struct fixture f;
    struct glm_price k[128];
    fixture_full(&f, 2);
    struct glm_plan *p = build(&f)[0];
    assert_true(p->n_kernels <= 128);
    price(p, "decode", one_row, NULL, k);
    assert_near("routed experts", kernels(p, k, "moe_gate_up") + kernels(p, k, "moe_down"), 2.123e9,
                0.01);
    assert_near("shared experts", kernels(p, k, "mm.shared"), 0.297e9, 0.01);
    assert_near("KDA projections", kernels(p, k, "mm.kda"), 1.306e9 + 0.020e9, 0.01);
    /* state 0.143; beside it conv weights and rows, and the fp32 vectors */
    assert_near("KDA state", kernels(p, k, "kda_decode"), 0.143e9, 0.10);
    assert_near("q_b and o", kernels(p, k, "mm.dsa.q_b") + kernels(p, k, "mm.dsa.o"), 0.285e9,
                0.01);
    assert_near("kv_b", kernels(p, k, "dsa_absorb") + kernels(p, k, "dsa_expand"), 0.185e9, 0.01);
    assert_near("low-rank and indexer",
                kernels(p, k, "mm.dsa.in") + kernels(p, k, "mm.dsa.gate") +
                    kernels(p, k, "mm.dsa.wq_b"),
                0.106e9, 0.015);
    assert_near("dense MLP", kernels(p, k, "mm.dense"), 0.127e9, 0.01);
    assert_near("router", kernels(p, k, "mm.moe.router"), 0.099e9, 0.01);
    assert_near("head", kernels(p, k, "mm.head"), 0.317e9, 0.04); /* the table leaves scales out */
    assert_near("latents and pools", kernels(p, k, "mla_attend") + kernels(p, k, "dsa_select"),
                0.015e9, 0.10);
    fixture_free(&f);
}

/* More experts cost their bytes: 12.58 MB a layer and expert, over TP. */
static void each_further_expert_costs_its_bytes(void **state)
{
    (void)state;
    struct fixture f;
    fixture_full(&f, 2);
    struct glm_plan *p = build(&f)[0];
    struct glm_cost_context at = one_row;
    double base = price(p, "decode", at, NULL, NULL).read_bytes;
    at.U = 9;
    assert_near("an expert", price(p, "decode", at, NULL, NULL).read_bytes - base, 12.58e6 * 42 / 2,
                0.01);
    fixture_free(&f);
}

static void seconds_are_bytes_gaps_and_exchanges(void **state)
{
    (void)state;
    struct fixture f;
    fixture_full(&f, 2);
    struct glm_plan *p = build(&f)[0];
    struct glm_device_figures figures = {.read_bytes_s = 235e9};
    struct glm_price floor = price(p, "decode", one_row, &figures, NULL);
    assert_near("floor", floor.floor_seconds, (floor.read_bytes + floor.write_bytes) / 235e9, 1e-9);
    assert_near("bytes alone", floor.seconds, floor.floor_seconds, 1e-9);
    assert_int_equal(floor.n_exchanges, 90);
    assert_near("exchanged", floor.exchange_bytes, 90 * 16384, 1e-9);
    figures.kernel_gap_s = 1e-6;
    figures.exchange_s = 10e-6;
    figures.exchange_bytes_s = 1e9;
    struct glm_price all = price(p, "decode", one_row, &figures, NULL);
    assert_near("with gaps", all.seconds,
                floor.seconds + floor.n_kernels * 1e-6 + 90 * (10e-6 + 16384 / 1e9), 1e-9);
    fixture_free(&f);
}

static void a_program_that_fits_the_cache_streams_at_its_rate(void **state)
{
    (void)state;
    struct fixture f;
    fixture_pico(&f, 1);
    struct glm_plan *p = build(&f)[0];
    struct glm_cost_context at = {.R = 1, .O = 1, .C = 100, .S = 1, .T = 1, .U = 2};
    struct glm_device_figures figures = {.read_bytes_s = 10e9, .cache_bytes_s = 40e9};
    double memory = price(p, "decode", at, &figures, NULL).seconds;
    figures.cache_bytes = 1e9;
    assert_near("cached", price(p, "decode", at, &figures, NULL).seconds, memory / 4, 1e-9);
    figures.cache_bytes = 1000;
    assert_near("too large", price(p, "decode", at, &figures, NULL).seconds, memory, 1e-9);
    fixture_free(&f);
}

/* Weights and states alone: every weight of the rank once, of the experts U of E. */
static void weight_bytes_are_the_weights_the_round_touches(void **state)
{
    (void)state;
    struct fixture f;
    fixture_pico(&f, 2);
    struct glm_plan *p = build(&f)[1];
    struct glm_cost_context at = {.R = 3, .O = 3, .C = 100, .S = 3, .T = 1, .U = 4};
    double want = 0;
    for (uint32_t i = 0; i < p->n_weights; i++) {
        const struct glm_plan_weight *w = &p->weights[i];
        double n = w->n_layers ? w->n_layers : 1, bytes = (double)w->bytes;
        if (strcmp(w->name, "embed") == 0)
            bytes = 3 * 256 * 2;
        want += n * bytes * (w->n_members == 8 ? 0.5 : 1);
    }
    struct glm_price got = price(p, "decode", at, NULL, NULL);
    assert_near("weights", got.weight_bytes, want, 0.01);
    assert_near("states", got.state_bytes, 3.0 * 4 * 2 * (2 * 64 * 64 * 4), 1e-9);
    fixture_free(&f);
}

static void prefill_is_bound_by_operations(void **state)
{
    (void)state;
    struct fixture f;
    fixture_full(&f, 2);
    struct glm_plan *p = build(&f)[0];
    struct glm_device_figures figures = glm_gb10_figures(2, GLM_TOPOLOGY_DIRECT);
    struct glm_cost_context at = {.R = 2048, .O = 1, .C = 8192, .S = 1, .T = 1, .U = 288};
    struct glm_price slice = price(p, "prefill", at, &figures, NULL);
    /* 15.5 G active parameters of the layers, 2 operations each, half on each rank; attention and
     * the delta rule come on top */
    assert_true(slice.ops > 2048 * 15.0e9 && slice.ops < 2048 * 15.0e9 * 1.5);
    assert_true(slice.seconds > slice.ops / figures.ops_s);
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_a_token_match_the_reference_to_one_percent),
        cmocka_unit_test(parts_match_the_reference_table),
        cmocka_unit_test(each_further_expert_costs_its_bytes),
        cmocka_unit_test(seconds_are_bytes_gaps_and_exchanges),
        cmocka_unit_test(a_program_that_fits_the_cache_streams_at_its_rate),
        cmocka_unit_test(weight_bytes_are_the_weights_the_round_touches),
        cmocka_unit_test(prefill_is_bound_by_operations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
