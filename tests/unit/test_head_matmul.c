/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix-a-head kernel against double sums, and a row's bits. */
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

enum { H = 3, N = 52, K = 80, ROWS = 61, X_STRIDE = H * K + 16, Y_STRIDE = H * N + 4 };

static void *multiply(void *x, void *w, const char *act, uint32_t first, uint32_t rows,
                      uint32_t n_threads)
{
    char params[128];
    snprintf(params, sizeof params, "H=%d N=%d K=%d X_STRIDE=%d Y_STRIDE=%d", H, N, K, X_STRIDE,
             Y_STRIDE);
    struct test_kernel *k = test_kernel("head_matmul", params, act);
    struct test_round *r = test_round(rows);
    size_t size = test_act_bytes(act);
    void *y = test_alloc(rows * Y_STRIDE * size);
    test_kernel_run(k, &r->round, (void *[]){(char *)x + first * X_STRIDE * size, w, y}, n_threads);
    test_round_free(r);
    return y;
}

static void each_head_meets_its_own_matrix(void **state)
{
    (void)state;
    static const char *const acts[] = {"f32", "bf16"};
    for (size_t a = 0; a < 2; a++) {
        struct test_random random = {6};
        size_t size = test_act_bytes(acts[a]);
        uint16_t *w = test_alloc(H * N * K * sizeof *w);
        void *x = test_alloc(ROWS * X_STRIDE * size);
        for (size_t i = 0; i < H * N * K; i++)
            w[i] = glm_f32_bf16(test_random_normal(&random));
        for (size_t m = 0; m < ROWS; m++)
            for (size_t i = 0; i < H * K; i++)
                test_act_put(x, m * X_STRIDE + i, test_random_normal(&random), acts[a]);
        char *y = multiply(x, w, acts[a], 0, ROWS, 2);
        for (size_t m = 0; m < ROWS; m++)
            for (size_t h = 0; h < H; h++) {
                double wide[N * K], row[K], want[N];
                float got[N];
                for (size_t i = 0; i < N * K; i++)
                    wide[i] = ref_bf16(w[h * N * K + i]);
                for (size_t i = 0; i < K; i++)
                    row[i] = (double)test_act_get(x, m * X_STRIDE + h * K + i, acts[a]);
                ref_matvec(wide, row, N, K, want);
                for (size_t i = 0; i < N; i++)
                    got[i] = test_act_get(y, m * Y_STRIDE + h * N + i, acts[a]);
                assert_true(test_relative_l2(got, want, N) < (a ? 3e-3 : 1e-6));
            }
        for (uint32_t rows = 1; rows <= ROWS; rows += rows < 4 ? 1 : 13)
            for (uint32_t first = 0; first + rows <= ROWS; first += 9)
                for (uint32_t t = 1; t <= 3; t++) {
                    char *some = multiply(x, w, acts[a], first, rows, t);
                    for (uint32_t m = 0; m < rows; m++)
                        test_same_bytes(some + m * Y_STRIDE * size,
                                        y + (first + m) * Y_STRIDE * size, H * N * size, "a row");
                    test_release(some);
                }
        test_release(w);
        test_release(x);
        test_release(y);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_head_meets_its_own_matrix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
