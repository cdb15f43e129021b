/* SPDX-License-Identifier: Apache-2.0 */
/* embed and pick_rows: which row goes where, and what padding and foreign ids give. */
#include "tests/support/reference_b.h"
#include "tests/support/streams.h"

#include <stdlib.h>

enum { D = 48, V = 40 };

static const char *const acts[] = {"f32", "bf16"};

static void copies_a_row_of_the_table_into_every_stream(void **state)
{
    (void)state;
    for (int a = 0; a < 2; a++) {
        struct test_random random = {1};
        float *table = test_normals(&random, V * D, 1, 0);
        float *pictures = test_normals(&random, 2 * D, 1, 0);
        void *args[3] = {test_bf16s(table, V * D), test_acts(pictures, 2 * D, acts[a]),
                         test_alloc(7 * 4 * D * test_act_bytes(acts[a]))};
        struct test_stream s[] = {{.n_rows = 3}, {.slot = 1, .n_context = 9, .n_rows = 3}};
        struct test_round *r = test_streams(s, 2, 1);
        const int32_t tokens[] = {0, V - 1, 7, V, -1, 5, 3};
        for (int i = 0; i < 7; i++)
            r->rows[i].token = tokens[i];
        r->rows[5].override = 1;
        for (uint32_t threads = 1; threads <= 3; threads++) {
            test_kernel_run(test_kernel("embed", "D=48 S=4 V=40", acts[a]), &r->round, args,
                            threads);
            for (size_t i = 0; i < 7; i++)
                for (size_t at = 0; at < 4 * D; at++) {
                    float want = table[(size_t)(tokens[i] < 0 ? 0 : tokens[i]) % V * D + at % D];
                    if (i == 3 || i == 4 || i == 6) /* outside the table, padding */
                        want = 0;
                    if (i == 5)
                        want = pictures[D + at % D];
                    assert_float_equal(test_act_get(args[2], i * 4 * D + at, acts[a]), want, 0);
                }
        }
        for (int i = 0; i < 3; i++)
            test_release(args[i]);
        test_round_free(r);
        free(table);
        free(pictures);
    }
}

static void packs_the_wanted_rows(void **state)
{
    (void)state;
    struct test_random random = {2};
    float *x = test_normals(&random, 9 * D, 1, 0);
    for (int a = 0; a < 2; a++) {
        void *args[2] = {test_acts(x, 9 * D, acts[a]), test_alloc(3 * D * test_act_bytes(acts[a]))};
        struct test_round *r = test_round(9);
        r->round.n_out = 3;
        r->out_rows[0] = 1, r->out_rows[1] = 4, r->out_rows[2] = 8;
        test_kernel_run(test_kernel("pick_rows", "D=48", acts[a]), &r->round, args, 2);
        for (size_t o = 0; o < 3; o++)
            for (size_t d = 0; d < D; d++)
                assert_float_equal(test_act_get(args[1], o * D + d, acts[a]),
                                   x[(size_t)r->out_rows[o] * D + d], 0);
        test_release(args[0]);
        test_release(args[1]);
        test_round_free(r);
    }
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_a_row_of_the_table_into_every_stream),
        cmocka_unit_test(packs_the_wanted_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
