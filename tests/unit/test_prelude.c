/* SPDX-License-Identifier: Apache-2.0 */
/* The host prelude's functions: accuracy against libm in double, sixteen lanes against one, and one
 * set of bits on every compiler and instruction set. */
#include "tests/support/kernel.h"
#include "tests/support/reference_a.h"

#include "kernels-templates/prelude.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Distance in units of the last place of the float nearest to want. */
static double ulps(float got, double want)
{
    float near = (float)want;
    if (isinf(near) || near == 0)
        return got == near ? 0 : INFINITY;
    double unit = ldexp(1, ilogb(near) - 23);
    unit = unit < 0x1p-149 ? 0x1p-149 : unit;
    return fabs((double)got - want) / unit;
}

static void exp_and_log_stay_within_two_units(void **state)
{
    (void)state;
    double worst[5] = {0};
    for (int i = -104000; i <= 88700; i += 7) {
        float x = (float)i / 1000;
        worst[0] = fmax(worst[0], ulps(glm_exp(x), exp((double)x)));
        if (x > -87) /* below, a subnormal is flushed by the quotient's overflow */
            worst[1] = fmax(worst[1], ulps(glm_sigmoid(x), 1 / (1 + exp(-(double)x))));
    }
    for (uint32_t u = 1; u < 0x7f800000u; u += 10007) {
        float x = glm_bits_f32(u);
        worst[2] = fmax(worst[2], ulps(glm_log(x), log((double)x)));
        worst[3] = fmax(worst[3], ulps(glm_log1p(x), log1p((double)x)));
    }
    for (int i = -20000; i < 20000; i++) {
        float x = (float)i / 500;
        worst[4] = fmax(worst[4], ulps(glm_softplus(x), log1p(exp((double)x))));
    }
    static const double limit[5] = {1.5, 2.5, 1.5, 2.5, 3};
    for (int i = 0; i < 5; i++)
        if (worst[i] > limit[i])
            fail_msg("function %d is off by %g units, allowed are %g", i, worst[i], limit[i]);
}

static void edges_are_what_arithmetic_says(void **state)
{
    (void)state;
    assert_true(glm_exp(0) == 1 && glm_exp(1000) == INFINITY && glm_exp(-1000) == 0);
    assert_true(glm_exp(-INFINITY) == 0 && isnan(glm_exp(NAN)));
    assert_true(glm_log(1) == 0 && glm_log(0) == -INFINITY && isnan(glm_log(-1)));
    assert_true(glm_log(INFINITY) == INFINITY && glm_log1p(0) == 0);
    assert_true(glm_sigmoid(-1000) == 0 && glm_sigmoid(1000) == 1 && glm_sigmoid(0) == 0.5f);
    assert_true(glm_softplus(200) == 200 && glm_softplus(-1000) == 0);
    assert_int_equal(glm_f32_bf16(glm_bits_f32(0x3f808000)), 0x3f80); /* ties to even */
    assert_int_equal(glm_f32_bf16(glm_bits_f32(0x3f818000)), 0x3f82);
    assert_int_equal(glm_f32_bf16(GLM_FINITE_MAX), 0x7f80);
    assert_true(isnan(glm_bf16_f32(glm_f32_bf16(glm_bits_f32(0x7f800001)))));
}

enum { N = 1 << 14, FUNCTIONS = 16 };

/* Random bit patterns and moderate numbers → FUNCTIONS arrays of N (tests/kernels/scalars.c). */
static float *apply(const struct test_build *build)
{
    struct test_random r = {1};
    float *x = test_alloc(N * sizeof *x), *out = test_alloc(FUNCTIONS * N * sizeof *out);
    for (int i = 0; i < N; i++)
        x[i] = i % 2 ? glm_bits_f32((uint32_t)test_random_u64(&r))
                     : test_random_uniform(&r, -100, 100);
    struct test_kernel *k = test_kernel_file(build, "tests/kernels/scalars.c", "", "f32");
    struct test_round *round = test_round(N);
    test_kernel_run(k, &round->round, (void *[]){x, out}, 1);
    test_round_free(round);
    test_release(x);
    for (int i = 0; i < FUNCTIONS * N; i++)
        if (isnan(out[i]))
            out[i] = NAN; /* any NaN will do */
    return out;
}

static void sixteen_lanes_give_the_bits_of_one(void **state)
{
    (void)state;
    float *out = apply(&(struct test_build){0});
    for (int f = 0; f < 12; f += 2)
        test_same_bytes(out + (f + 1) * N, out + f * N, N * sizeof *out, "sixteen lanes");
    test_release(out);
}

static void compilers_and_instruction_sets_give_the_same_bits(void **state)
{
    (void)state;
    static const struct test_build builds[] = {
        {"gcc", "x86-64-v4"}, {"gcc", "x86-64-v3"}, {"clang", "x86-64-v4"}, {"clang", "x86-64-v3"}};
    float *want = apply(&(struct test_build){0});
    for (size_t b = 0; b < sizeof builds / sizeof *builds; b++) {
        if (!test_build_usable(&builds[b]))
            continue;
        float *out = apply(&builds[b]);
        test_same_bytes(out, want, FUNCTIONS * N * sizeof *out, builds[b].target);
        test_release(out);
    }
    test_release(want);
}

static void sums_have_one_order(void **state)
{
    (void)state;
    struct test_random r = {4};
    for (int n = 0; n < 1000; n++) {
        float v[4][16], out[4];
        for (int i = 0; i < 64; i++)
            v[i / 16][i % 16] = test_random_normal(&r);
        glm_sum16_4(glm_load(v[0]), glm_load(v[1]), glm_load(v[2]), glm_load(v[3]), out);
        for (int k = 0; k < 4; k++) {
            float e[8], f[4];
            for (int i = 0; i < 8; i++)
                e[i] = v[k][i] + v[k][i + 8];
            for (int i = 0; i < 4; i++)
                f[i] = e[i] + e[i + 4];
            float want = (f[0] + f[2]) + (f[1] + f[3]);
            assert_true(glm_sum16(glm_load(v[k])) == want);
            assert_true(out[k] == want);
        }
    }
}

static void hadamard_is_its_own_inverse_and_natural(void **state)
{
    (void)state;
    float v[128] = {0};
    glm_f32x16 b[8];
    v[3] = 1;
    for (int i = 0; i < 8; i++)
        b[i] = glm_load(v + 16 * i);
    glm_hadamard128(b);
    for (int i = 0; i < 8; i++)
        glm_store(v + 16 * i, b[i]);
    for (int j = 0; j < 128; j++)
        assert_true(v[j] ==
                    (__builtin_popcount(3u & (unsigned)j) & 1 ? -1 : 1) * 0.08838834764831845f);
    glm_hadamard128(b);
    for (int i = 0; i < 8; i++)
        glm_store(v + 16 * i, b[i]);
    for (int j = 0; j < 128; j++)
        assert_true(fabsf(v[j] - (j == 3)) < 1e-6f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_and_log_stay_within_two_units),
        cmocka_unit_test(edges_are_what_arithmetic_says),
        cmocka_unit_test(sixteen_lanes_give_the_bits_of_one),
        cmocka_unit_test(compilers_and_instruction_sets_give_the_same_bits),
        cmocka_unit_test(sums_have_one_order),
        cmocka_unit_test(hadamard_is_its_own_inverse_and_natural),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
