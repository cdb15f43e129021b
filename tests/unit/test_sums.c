/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels' shared sums, transpose, selection and fp8 rows, compiled into the test itself: for
 * the machine's plainest instruction set, or under emulation for another one. */
#include "tests/support/reference_b.h"
#include "tests/support/streams.h"

#define GLM_ACT_F32 1
#define GLM_KV_fp8  1
#include "kernels-templates/kv.h"
#include "kernels-templates/select.h"
#include "kernels-templates/sums.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void sixteen_sums_at_once_have_the_bits_of_one(void **state)
{
    (void)state;
    struct test_random random = {1};
    for (int repeat = 0; repeat < 200; repeat++) {
        glm_f32x16 a[16];
        float lanes[16], sums[16];
        for (int i = 0; i < 16; i++) {
            for (int j = 0; j < 16; j++)
                lanes[j] = test_random_normal(&random);
            a[i] = glm_load(lanes);
        }
        glm_store(sums, glm_sum16_each(a));
        for (int i = 0; i < 16; i++)
            assert_int_equal(glm_f32_bits(sums[i]), glm_f32_bits(glm_sum16(a[i])));
    }
}

static void transpose_moves_row_i_lane_j_to_row_j_lane_i(void **state)
{
    (void)state;
    glm_f32x16 a[16];
    float lanes[16];
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < 16; j++)
            lanes[j] = (float)(100 * i + j);
        a[i] = glm_load(lanes);
    }
    glm_transpose16(a);
    for (int i = 0; i < 16; i++) {
        glm_store(lanes, a[i]);
        for (int j = 0; j < 16; j++)
            assert_float_equal(lanes[j], (float)(100 * j + i), 0);
    }
}

static int descending(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return *x < *y ? 1 : *x > *y ? -1 : 0;
}

static void selection_finds_the_kth_largest_and_its_equals(void **state)
{
    (void)state;
    struct test_random random = {2};
    uint32_t key[300], sorted[300];
    for (int repeat = 0; repeat < 300; repeat++) {
        int32_t n = 1 + (int32_t)(test_random_u64(&random) % 300);
        int32_t take = 1 + (int32_t)(test_random_u64(&random) % (uint64_t)n), n_equal, first = 0;
        for (int32_t i = 0; i < n; i++) /* full range, or few values */
            key[i] = (uint32_t)test_random_u64(&random) >> (repeat % 3 == 0 ? 28 : repeat % 3 * 7);
        memcpy(sorted, key, sizeof key);
        qsort(sorted, (size_t)n, sizeof *sorted, descending);
        assert_int_equal(glm_select_largest(key, 1, n, take, &n_equal), sorted[take - 1]);
        while (sorted[first] != sorted[take - 1])
            first++;
        assert_int_equal(n_equal, take - first);
    }
}

static void ordered_integers_compare_as_the_floats(void **state)
{
    (void)state;
    const float values[16] = {-INFINITY, -3e38f, -1, -1e-40f, -0.0f, 0,     1e-40f,   1e-30f,
                              0.5f,      1,      2,  3,       1e10f, 3e38f, INFINITY, INFINITY};
    uint32_t key[16];
    glm_store_u32(key, glm_ordered16(glm_load(values)));
    for (int i = 0; i < 16; i++) {
        assert_int_not_equal(key[i], 0);
        assert_float_equal(glm_ordered_f32(key[i]), values[i], 0);
        for (int j = 0; j < 16; j++)
            assert_int_equal(key[i] < key[j], values[i] < values[j]);
    }
}

static void fp8_rows_are_those_of_the_format(void **state)
{
    (void)state;
    struct test_random random = {3};
    for (int repeat = 0; repeat < 100; repeat++) {
        float row[64], back[64];
        uint8_t want[80];
        char got[80];
        float scale = ldexpf(1, repeat * 2 - 100);
        for (int i = 0; i < 64; i++)
            row[i] = repeat == 7 ? 0 : scale * test_random_normal(&random) / (float)(1 + i % 9);
        glm_kv_store(got, row, 64);
        reference_fp8_row(row, want, 64); /* row becomes what the codes mean */
        test_same_bytes(got, want, 80, "fp8 row");
        glm_kv_load(back, got, 64);
        for (int i = 0; i < 64; i++)
            assert_float_equal(back[i], row[i], 0);
    }
}

static void every_e4m3_code_survives(void **state)
{
    (void)state;
    uint8_t codes[16], back[16];
    for (int c = 0; c < 256; c += 16) {
        for (int i = 0; i < 16; i++)
            codes[i] = (uint8_t)(c + i);
        glm_store_e4m3(back, glm_load_e4m3(codes));
        for (int i = 0; i < 16; i++)
            assert_int_equal(back[i], codes[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixteen_sums_at_once_have_the_bits_of_one),
        cmocka_unit_test(transpose_moves_row_i_lane_j_to_row_j_lane_i),
        cmocka_unit_test(selection_finds_the_kth_largest_and_its_equals),
        cmocka_unit_test(ordered_integers_compare_as_the_floats),
        cmocka_unit_test(fp8_rows_are_those_of_the_format),
        cmocka_unit_test(every_e4m3_code_survives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
