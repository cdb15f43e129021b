/* SPDX-License-Identifier: Apache-2.0 */
/* The KDA kernels: recurrent and chunked form against the recurrence in double precision, states
 * after a partly kept round against serial rounds, and bits against rows, threads and chunks. */
#include "tests/support/kda_world.h"

#include <stdlib.h>
#include <string.h>

static const char *const acts[] = {"f32", "bf16"};

static double limit(const char *act)
{
    return strcmp(act, "bf16") ? 3e-6 : 6e-3;
}

static void decode_follows_the_recurrence(void **state)
{
    (void)state;
    static const int32_t rounds[][KDA_STREAMS] = {{1, 3, 0}, {5, 1, 2},  {0, 16, 1},
                                                  {2, 2, 9}, {16, 0, 1}, {1, 1, 1}};
    static const size_t shapes[][2] = {{2, 64}, {3, 48}, {1, 128}};
    for (int a = 0; a < 2; a++)
        for (size_t i = 0; i < 3; i++) {
            struct kda_world w;
            struct kda_run r;
            kda_world_init(&w, NULL, shapes[i][0], shapes[i][1], 32, 0, acts[a]);
            kda_run_init(&r, &w);
            for (size_t j = 0; j < sizeof rounds / sizeof *rounds; j++)
                kda_decode(&r, rounds[j], rounds[j], j % 3, 1 + (uint32_t)j % 4);
            for (size_t s = 0; s < KDA_STREAMS; s++) {
                assert_true(r.n_context[s] >= 14);
                assert_true(kda_out_distance(&r, s) < limit(acts[a]));
                assert_true(kda_state_distance(&r, s) < (a == 0 ? 3e-6 : 1e-3));
            }
            kda_run_release(&r);
            kda_world_release(&w);
        }
}

/* r rows of which k are kept, beside other streams, then one more row: everything as in rounds of
 * one row. */
static void a_partly_kept_round_leaves_the_state_of_serial_rounds(void **state)
{
    (void)state;
    for (int a = 0; a < 2; a++) {
        struct kda_world w;
        kda_world_init(&w, NULL, 2, 64, 40, 0, acts[a]);
        for (int32_t before = 0; before <= 6; before += 3)
            for (int32_t rows = 1; rows <= KDA_VERIFY; rows++)
                for (int32_t keep = 0; keep <= rows; keep += rows > 6 ? 3 : 1) {
                    struct kda_run serial, drafted;
                    kda_run_init(&serial, &w);
                    kda_run_init(&drafted, &w);
                    const int32_t one[] = {1, 0, 0}, two[] = {0, 1, 0};
                    for (int32_t i = 0; i < before + keep + 1; i++)
                        kda_decode(&serial, one, one, 0, 1);
                    for (int32_t i = 0; i < 4; i++)
                        kda_decode(&serial, two, two, 0, 1);
                    for (int32_t i = 0; i < before; i++)
                        kda_decode(&drafted, one, one, 0, 2);
                    const int32_t n[] = {rows, 4, 2}, k[] = {keep, 3, 0};
                    kda_decode(&drafted, n, k, 1, 3);
                    const int32_t next[] = {1, 1, 0};
                    kda_decode(&drafted, next, next, 0, 1);
                    for (size_t s = 0; s < 2; s++)
                        kda_same(&serial, &drafted, s, "drafted and serial rounds");
                    kda_run_release(&serial);
                    kda_run_release(&drafted);
                }
        kda_world_release(&w);
    }
}

static void prefill_follows_the_recurrence(void **state)
{
    (void)state;
    static const float decays[] = {-2, 0, 6}; /* 6: e^-5 a row in most channels */
    static const size_t shapes[][2] = {{2, 64}, {3, 48}, {1, 128}};
    for (int a = 0; a < 2; a++)
        for (size_t i = 0; i < 3; i++)
            for (size_t d = 0; d < 3; d++) {
                struct kda_world w;
                struct kda_run r;
                kda_world_init(&w, NULL, shapes[i][0], shapes[i][1], 160, decays[d], acts[a]);
                kda_run_init(&r, &w);
                kda_prefill(&r, 0, 64, 2);
                kda_prefill(&r, 0, 91, 1); /* ends within a block */
                const int32_t one[] = {1, 0, 0};
                for (int j = 0; j < 3; j++) /* decode goes on from it */
                    kda_decode(&r, one, one, 0, 1);
                assert_int_equal(r.n_context[0], 158);
                assert_true(kda_out_distance(&r, 0) < limit(acts[a]));
                assert_true(kda_state_distance(&r, 0) < (a == 0 ? 3e-6 : 1e-3));
                kda_run_release(&r);
                kda_world_release(&w);
            }
}

static void chunking_on_the_grid_changes_no_bits(void **state)
{
    (void)state;
    static const int32_t cuts[][6] = {
        {64, 64, 64, 64, 21}, {192, 64, 21}, {64, 213}, {128, 128, 21}};
    for (int a = 0; a < 2; a++) {
        struct kda_world w;
        struct kda_run whole;
        kda_world_init(&w, NULL, 4, 64, 288, 0, acts[a]);
        kda_run_init(&whole, &w);
        kda_prefill(&whole, 1, 277, 1);
        for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
            struct kda_run cut;
            kda_run_init(&cut, &w);
            for (size_t j = 0; cuts[i][j] > 0; j++) {
                kda_prefill(&cut, 1, cuts[i][j], 1 + (uint32_t)(i + j) % 4);
                const int32_t other[] = {2, 0, 1};
                kda_decode(&cut, other, other, 0, 2);
            }
            kda_same(&whole, &cut, 1, "one chunk and several");
            kda_run_release(&cut);
        }
        kda_run_release(&whole);
        kda_world_release(&w);
    }
}

static void a_row_of_a_partial_block_has_the_bits_of_a_full_one(void **state)
{
    (void)state;
    struct kda_world w;
    struct kda_run full;
    kda_world_init(&w, NULL, 2, 64, 128, 0, "f32");
    kda_run_init(&full, &w);
    kda_prefill(&full, 2, 128, 1);
    for (int32_t n = 1; n < 128; n += n < 20 || (n > 60 && n < 70) ? 1 : 7) {
        struct kda_run part;
        kda_run_init(&part, &w);
        kda_prefill(&part, 2, n, 2);
        test_same_bytes(part.out[2], full.out[2], (size_t)n * w.out_bytes, "partial block");
        assert_true(kda_state_distance(&part, 2) < 3e-6);
        kda_run_release(&part);
    }
    kda_run_release(&full);
    kda_world_release(&w);
}

static void a_reused_slot_starts_from_zero(void **state)
{
    (void)state;
    struct kda_world w;
    struct kda_run r, fresh;
    kda_world_init(&w, NULL, 2, 64, 96, 0, "f32");
    kda_run_init(&r, &w);
    kda_run_init(&fresh, &w);
    kda_prefill(&r, 0, 70, 1);
    const int32_t one[] = {1, 0, 0};
    kda_decode(&r, one, one, 0, 1);
    r.n_context[0] = fresh.n_context[0] = 0;
    for (int i = 0; i < 2; i++) {
        kda_decode(&r, one, one, 0, 1);
        kda_decode(&fresh, one, one, 0, 1);
    }
    kda_same(&r, &fresh, 0, "reused slot");
    kda_run_release(&r);
    kda_run_release(&fresh);
    kda_world_release(&w);
}

static void every_build_gives_the_same_bits(void **state)
{
    (void)state;
    static const struct test_build builds[] = {
        {"clang", NULL}, {NULL, "x86-64-v3"}, {"clang", "x86-64-v3"}};
    struct kda_world w, other;
    struct kda_run usual, built;
    kda_world_init(&w, NULL, 2, 64, 96, 0, "bf16");
    kda_run_init(&usual, &w);
    const int32_t n[] = {3, 2, 0};
    kda_prefill(&usual, 0, 77, 1);
    kda_decode(&usual, n, n, 0, 1);
    for (size_t b = 0; b < sizeof builds / sizeof *builds; b++) {
        if (!test_build_usable(&builds[b]))
            continue;
        kda_world_init(&other, &builds[b], 2, 64, 96, 0, "bf16");
        kda_run_init(&built, &other);
        kda_prefill(&built, 0, 77, 1);
        kda_decode(&built, n, n, 0, 1);
        kda_same(&usual, &built, 0, "another build");
        kda_same(&usual, &built, 1, "another build");
        kda_run_release(&built);
        kda_world_release(&other);
    }
    kda_run_release(&usual);
    kda_world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_follows_the_recurrence),
        cmocka_unit_test(a_partly_kept_round_leaves_the_state_of_serial_rounds),
        cmocka_unit_test(prefill_follows_the_recurrence),
        cmocka_unit_test(chunking_on_the_grid_changes_no_bits),
        cmocka_unit_test(a_row_of_a_partial_block_has_the_bits_of_a_full_one),
        cmocka_unit_test(a_reused_slot_starts_from_zero),
        cmocka_unit_test(every_build_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
