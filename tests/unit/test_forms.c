/* SPDX-License-Identifier: Apache-2.0 */
/* Converters of stored weights: the worked groups of docs/formats.md 5, slices of
 * uncut tensors, and what must be refused. */
#include "runtime/forms.h"
#include "tests/support/kernel.h"
#include "tests/support/reference_a.h"

#include "kernels-templates/prelude.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static unsigned code_at(const uint16_t codes[16], int i)
{
    return ((unsigned)codes[i % 16] >> (4 * (i / 16))) & 15u;
}

static void quantizes_the_worked_group_with_mse_ranges(void **state)
{
    (void)state;
    float g[64];
    for (int i = 0; i < 64; i++)
        g[i] = glm_round_bf16((float)(29 * i % 64 - 30) / 640);
    uint16_t codes[16], scale, bias;
    glm_q4_group(g, codes, &scale, &bias);
    assert_true(ref_bf16(scale) == 0.00616455078125);
    assert_true(ref_bf16(bias) == -0.0439453125);
    uint32_t word = 0; /* as MLX packs it */
    for (int i = 0; i < 8; i++)
        word |= code_at(codes, i) << (4 * i);
    assert_int_equal(word, 0x2b4d5e70);
}

static void quantizes_constant_and_hostile_groups(void **state)
{
    (void)state;
    float g[64];
    uint16_t codes[16], scale, bias;
    for (int i = 0; i < 64; i++)
        g[i] = 0.5f;
    glm_q4_group(g, codes, &scale, &bias);
    for (int i = 0; i < 64; i++)
        assert_true(fabs(ref_bf16(scale) * code_at(codes, i) + ref_bf16(bias) - 0.5) < 1e-6);
    for (int i = 0; i < 64; i++)
        g[i] = i % 3 ? NAN : INFINITY;
    glm_q4_group(g, codes, &scale, &bias); /* any codes, no undefined conversion */
}

static void mse_groups_are_no_worse_than_published(void **state)
{
    (void)state;
    struct test_random r = {1};
    double error = 0, size = 0;
    for (int n = 0; n < 500; n++) {
        float g[64];
        uint16_t codes[16], scale, bias;
        for (int i = 0; i < 64; i++)
            g[i] = glm_round_bf16(test_random_normal(&r));
        glm_q4_group(g, codes, &scale, &bias);
        for (int i = 0; i < 64; i++) {
            double d = ref_bf16(scale) * code_at(codes, i) + ref_bf16(bias) - (double)g[i];
            error += d * d;
            size += (double)g[i] * (double)g[i];
        }
    }
    assert_true(error / size < 0.0076); /* docs/formats.md 5: 0.0073 */
}

static void fp8_blocks_reach_448_and_round_to_even(void **state)
{
    (void)state;
    struct test_random r = {2};
    double error = 0, size = 0;
    for (int n = 0; n < 200; n++) {
        float v[128], scale;
        uint8_t codes[128];
        float largest = 0;
        for (int i = 0; i < 128; i++) {
            v[i] = glm_round_bf16(test_random_normal(&r));
            largest = fmaxf(largest, fabsf(v[i]));
        }
        glm_fp8_block(v, codes, &scale);
        assert_true(scale == largest / 448);
        double top = 0;
        for (int i = 0; i < 128; i++) {
            double q = ref_e4m3(codes[i]), d = q * (double)scale - (double)v[i];
            top = fmax(top, fabs(q));
            error += d * d;
            size += (double)v[i] * (double)v[i];
        }
        assert_true(top == 448);
    }
    assert_true(error / size < 0.0007); /* docs/formats.md 5: 0.00066 */
    float zeros[128] = {0}, scale;
    uint8_t codes[128];
    glm_fp8_block(zeros, codes, &scale);
    assert_true(scale == 1e-30f);
    assert_int_equal(codes[0] | codes[127], 0);
}

static void every_e4m3_code_survives_and_neighbours_round_to_even(void **state)
{
    (void)state;
    /* docs/formats.md 6: 3.0, -0.7109375, 0.0019989, 5.25 over 2^-5 */
    assert_int_equal(glm_f32_e4m3(96.0f), 0x6c);
    assert_int_equal(glm_f32_e4m3(-0.7109375f * 32), 0xdb);
    assert_int_equal(glm_f32_e4m3(glm_round_bf16(0.0019989f) * 32), 0x18);
    assert_int_equal(glm_f32_e4m3(168.0f), 0x72);
    for (int c = 0; c < 256; c++) {
        if ((c & 0x7f) == 0x7f)
            continue;
        float v = (float)ref_e4m3((uint8_t)c);
        assert_int_equal(glm_f32_e4m3(v), c);
        assert_true((double)glm_e4m3_f32((uint8_t)c) == ref_e4m3((uint8_t)c));
        if ((c & 0x7f) < 0x7e) {
            double next = ref_e4m3((uint8_t)(c + 1)), middle = ((double)v + next) / 2;
            int even = c & 1 ? c + 1 : c;
            assert_int_equal(glm_f32_e4m3((float)middle), even);
            assert_int_equal(glm_f32_e4m3((float)((double)v * 0.25 + next * 0.75)), c + 1);
        }
    }
    assert_int_equal(glm_f32_e4m3(1e9f), 0x7e);
    assert_int_equal(glm_f32_e4m3(-INFINITY), 0xfe);
    assert_int_equal(glm_f32_e4m3(NAN) & 0x7f, 0x7f);
}

static void every_f16_survives_and_rounds_to_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        if ((h & 0x7c00) == 0x7c00)
            continue;
        double v = ref_f16((uint16_t)h);
        assert_true((double)glm_f16_f32((uint16_t)h) == v);
        assert_int_equal(glm_f32_f16((float)v), h);
        if ((h & 0x7fff) < 0x7bff) {
            double middle = (v + ref_f16((uint16_t)(h + 1))) / 2;
            assert_int_equal(glm_f32_f16((float)middle), h & 1 ? h + 1 : h);
        }
    }
    assert_int_equal(glm_f32_f16(65519.0f), 0x7bff);
    assert_int_equal(glm_f32_f16(65520.0f), 0x7c00);
}

/* ---- Slices ---- */

static const uint64_t N_ROWS = 10, N_COLS = 512;

static uint16_t *tensor(void)
{
    struct test_random r = {3};
    uint16_t *t = malloc(N_ROWS * N_COLS * sizeof *t);
    assert_non_null(t);
    for (uint64_t i = 0; i < N_ROWS * N_COLS; i++)
        t[i] = glm_f32_bf16(test_random_normal(&r));
    return t;
}

/* Rows 1, 2, 5, 6; columns 128..255 and 384..511. */
static struct glm_plan_part two_by_two(void)
{
    return (struct glm_plan_part){"t", N_ROWS, N_COLS, {1, 2, 2, 4}, {128, 128, 2, 256}};
}
static uint64_t source_index(uint64_t row, uint64_t col)
{
    static const uint64_t rows[] = {1, 2, 5, 6};
    return rows[row] * N_COLS + (col < 128 ? 128 + col : 256 + col);
}

static void places_slices_row_by_row(void **state)
{
    (void)state;
    uint16_t *t = tensor();
    struct glm_plan_part part = two_by_two();
    uint16_t *b = test_alloc(6 * 256 * 2);
    float *f = test_alloc(6 * 256 * 4);
    /* an odd address: sources have no alignment */
    char *moved = malloc(N_ROWS * N_COLS * 2 + 1);
    assert_non_null(moved);
    memcpy(moved + 1, t, N_ROWS * N_COLS * 2);
    assert_int_equal(glm_form_place("bf16", &part, moved + 1, GLM_BF16, 6, 256, 2, b, NULL),
                     GLM_OK);
    assert_int_equal(glm_form_place("f32", &part, t, GLM_BF16, 6, 256, 0, f, NULL), GLM_OK);
    for (uint64_t r = 0; r < 4; r++)
        for (uint64_t c = 0; c < 256; c++) {
            assert_int_equal(b[(r + 2) * 256 + c], t[source_index(r, c)]);
            assert_true(f[r * 256 + c] == glm_bf16_f32(t[source_index(r, c)]));
        }
    for (uint64_t i = 0; i < 512; i++) { /* the rows of other parts */
        assert_int_equal(b[i], 0xffff);
        assert_true(isnan(f[4 * 256 + i]));
    }
    free(moved);
    test_release(b);
    test_release(f);
    free(t);
}

static void transposes_each_row_group(void **state)
{
    (void)state;
    uint16_t *t = tensor();
    struct glm_plan_part part = two_by_two();
    uint16_t *b = test_alloc(4 * 256 * 2);
    assert_int_equal(glm_form_place("bf16_t", &part, t, GLM_BF16, 512, 2, 0, b, NULL), GLM_OK);
    for (uint64_t g = 0; g < 2; g++)
        for (uint64_t c = 0; c < 256; c++)
            for (uint64_t i = 0; i < 2; i++)
                assert_int_equal(b[(g * 256 + c) * 2 + i], t[source_index(2 * g + i, c)]);
    test_release(b);
    free(t);
}

/* Quantizing after the cut gives the codes of the same groups quantized before it. */
static void quantized_slices_equal_slices_of_the_quantized(void **state)
{
    (void)state;
    uint16_t *t = tensor();
    static const char *const forms[] = {"q4", "fp8"};
    for (int i = 0; i < 2; i++) {
        struct glm_plan_part part = two_by_two(), all = part;
        all.rows = (struct glm_slice){0, N_ROWS, 1, 0};
        all.cols = (struct glm_slice){0, N_COLS, 1, 0};
        uint64_t bytes, cut_bytes;
        assert_int_equal(glm_form_bytes(forms[i], N_ROWS, N_COLS, &bytes, NULL), GLM_OK);
        assert_int_equal(glm_form_bytes(forms[i], 5, 256, &cut_bytes, NULL), GLM_OK);
        void *whole = test_alloc(bytes), *cut = test_alloc(cut_bytes);
        assert_int_equal(
            glm_form_place(forms[i], &all, t, GLM_BF16, N_ROWS, N_COLS, 0, whole, NULL), GLM_OK);
        assert_int_equal(glm_form_place(forms[i], &part, t, GLM_BF16, 5, 256, 0, cut, NULL),
                         GLM_OK);
        part.rows = (struct glm_slice){9, 1, 1, 0};
        assert_int_equal(glm_form_place(forms[i], &part, t, GLM_BF16, 5, 256, 4, cut, NULL),
                         GLM_OK);
        static double a[10 * 512], b[5 * 256];
        void (*values)(const void *, size_t, size_t, double *) = i ? ref_fp8_values : ref_q4_values;
        values(whole, N_ROWS, N_COLS, a);
        values(cut, 5, 256, b);
        for (uint64_t r = 0; r < 5; r++)
            for (uint64_t c = 0; c < 256; c++) {
                uint64_t at =
                    r < 4 ? source_index(r, c) : 9 * N_COLS + (c < 128 ? 128 + c : 256 + c);
                assert_true(b[r * 256 + c] == a[at]);
                assert_true(fabs(b[r * 256 + c] - ref_bf16(t[at])) < (i ? 0.15 : 0.4));
            }
        test_release(whole);
        test_release(cut);
    }
    free(t);
}

static void writes_every_byte_of_a_form(void **state)
{
    (void)state;
    uint16_t *t = tensor();
    static const char *const forms[] = {"q4", "fp8"};
    for (int i = 0; i < 2; i++) {
        struct glm_plan_part part = {"t", N_ROWS, N_COLS, {0, 3, 1, 0}, {0, 128, 1, 0}};
        uint64_t bytes;
        assert_int_equal(glm_form_bytes(forms[i], 3, 128, &bytes, NULL), GLM_OK);
        void *a = test_alloc(bytes), *b = test_alloc(bytes);
        memset(b, 0x55, bytes);
        assert_int_equal(glm_form_place(forms[i], &part, t, GLM_BF16, 3, 128, 0, a, NULL), GLM_OK);
        assert_int_equal(glm_form_place(forms[i], &part, t, GLM_BF16, 3, 128, 0, b, NULL), GLM_OK);
        test_same_bytes(a, b, bytes, forms[i]);
        test_release(a);
        test_release(b);
    }
    free(t);
}

static void refuses_slices_outside_the_tensor_and_unknown_forms(void **state)
{
    (void)state;
    uint16_t *t = tensor();
    void *out = test_alloc(1 << 16);
    struct glm_plan_part part = two_by_two();
    struct glm_error err = {0};
    assert_int_equal(glm_form_place("q5", &part, t, GLM_BF16, 4, 256, 0, out, &err), GLM_EPLAN);
    assert_string_equal(err.message, "cannot place 't' as 'q5': no such form for 256 columns");
    assert_int_equal(glm_form_place("bf16", &part, t, GLM_I16, 4, 256, 0, out, NULL), GLM_EPLAN);
    assert_int_equal(glm_form_place("bf16", &part, t, GLM_BF16, 4, 255, 0, out, NULL), GLM_EPLAN);
    assert_int_equal(glm_form_place("bf16", &part, t, GLM_BF16, 4, 256, 1, out, NULL), GLM_EPLAN);
    assert_int_equal(glm_form_place("bf16", &part, t, GLM_BF16, 4, 256, UINT64_MAX, out, NULL),
                     GLM_EPLAN);
    static const struct glm_slice bad[] = {
        {0, 11, 1, 0},         {9, 2, 1, 0}, {0, 2, 4, 3}, {0, 1, 2, UINT64_MAX},
        {UINT64_MAX, 1, 1, 0}, {0, 0, 1, 0}, {0, 1, 0, 0}, {0, UINT64_MAX / 2, 4, 0}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        part = two_by_two();
        part.rows = bad[i];
        assert_int_equal(glm_form_place("bf16", &part, t, GLM_BF16, 1 << 20, 256, 0, out, NULL),
                         GLM_EPLAN);
    }
    part = two_by_two();
    part.cols = (struct glm_slice){0, 100, 1, 0};
    assert_int_equal(glm_form_place("q4", &part, t, GLM_BF16, 4, 100, 0, out, NULL), GLM_EPLAN);
    assert_int_equal(glm_form_place("fp8", &part, t, GLM_BF16, 4, 100, 0, out, NULL), GLM_EPLAN);
    test_release(out);
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantizes_the_worked_group_with_mse_ranges),
        cmocka_unit_test(quantizes_constant_and_hostile_groups),
        cmocka_unit_test(mse_groups_are_no_worse_than_published),
        cmocka_unit_test(fp8_blocks_reach_448_and_round_to_even),
        cmocka_unit_test(every_e4m3_code_survives_and_neighbours_round_to_even),
        cmocka_unit_test(every_f16_survives_and_rounds_to_even),
        cmocka_unit_test(places_slices_row_by_row),
        cmocka_unit_test(transposes_each_row_group),
        cmocka_unit_test(quantized_slices_equal_slices_of_the_quantized),
        cmocka_unit_test(writes_every_byte_of_a_form),
        cmocka_unit_test(refuses_slices_outside_the_tensor_and_unknown_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
