/* SPDX-License-Identifier: Apache-2.0 */
#include "codegen/graph.h"
#include "tests/support/geometry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* The published model, rank by rank, as the rule of docs/architecture.md 4 gives by hand. */
struct row {
    uint32_t world;
    uint32_t heads[8], dense[8], expert[8], vocab[8];
};
static const struct row table[] = {
    {1, {64}, {12288}, {2048}, {154880}},
    {2, {32, 32}, {6144, 6144}, {1024, 1024}, {77440, 77440}},
    {3, {22, 21, 21}, {4096, 4096, 4096}, {768, 640, 640}, {51648, 51648, 51584}},
    {4,
     {16, 16, 16, 16},
     {3072, 3072, 3072, 3072},
     {512, 512, 512, 512},
     {38720, 38720, 38720, 38720}},
    {5,
     {13, 13, 13, 13, 12},
     {2560, 2432, 2432, 2432, 2432},
     {512, 384, 384, 384, 384},
     {30976, 30976, 30976, 30976, 30976}},
    {6,
     {11, 11, 11, 11, 10, 10},
     {2048, 2048, 2048, 2048, 2048, 2048},
     {384, 384, 384, 384, 256, 256},
     {25856, 25856, 25792, 25792, 25792, 25792}},
    {7,
     {10, 9, 9, 9, 9, 9, 9},
     {1792, 1792, 1792, 1792, 1792, 1664, 1664},
     {384, 384, 256, 256, 256, 256, 256},
     {22144, 22144, 22144, 22144, 22144, 22080, 22080}},
    {8,
     {8, 8, 8, 8, 8, 8, 8, 8},
     {1536, 1536, 1536, 1536, 1536, 1536, 1536, 1536},
     {256, 256, 256, 256, 256, 256, 256, 256},
     {19392, 19392, 19392, 19392, 19328, 19328, 19328, 19328}},
};

static void splits_the_model_as_the_reference_table(void **state)
{
    (void)state;
    struct glm_model m = geometry_full();
    for (size_t t = 0; t < sizeof table / sizeof table[0]; t++) {
        struct glm_lane lane = {.n_ranks = table[t].world};
        struct glm_shares next = {0};
        for (uint32_t r = 0; r < lane.n_ranks; r++) {
            struct glm_shares s = glm_layer_shares(&m, &lane, r, 7);
            assert_int_equal(s.heads.count, table[t].heads[r]);
            assert_int_equal(s.kda_heads.count, table[t].heads[r]);
            assert_int_equal(s.dense.count, table[t].dense[r]);
            assert_int_equal(s.expert.count, table[t].expert[r]);
            assert_int_equal(s.shared.count, table[t].expert[r]);
            assert_int_equal(s.vocab.count, table[t].vocab[r]);
            /* No gap and no overlap: each rank begins where the one before it ended. */
            assert_int_equal(s.heads.first, next.heads.first);
            assert_int_equal(s.expert.first, next.expert.first);
            assert_int_equal(s.vocab.first, next.vocab.first);
            next.heads.first += s.heads.count;
            next.expert.first += s.expert.count;
            next.vocab.first += s.vocab.count;
        }
        assert_int_equal(next.heads.first, 64);
        assert_int_equal(next.expert.first, 2048);
        assert_int_equal(next.vocab.first, 154880);
    }
}

static void rotation_moves_the_extra_unit_by_one_rank_a_layer(void **state)
{
    (void)state;
    struct glm_model m = geometry_full();
    struct glm_lane lane = {.n_ranks = 3, .rotate_uneven = true};
    for (uint32_t layer = 0; layer < 6; layer++) {
        uint32_t heads = 0, first = 0;
        for (uint32_t r = 0; r < 3; r++) {
            struct glm_shares s = glm_layer_shares(&m, &lane, r, layer);
            assert_int_equal(s.heads.count, r == layer % 3 ? 22 : 21);
            assert_int_equal(s.expert.count, r == layer % 3 ? 768 : 640);
            assert_int_equal(s.dense.count, 4096);
            assert_int_equal(s.heads.first, first);
            assert_int_equal(s.vocab.count, r < 2 ? 51648 : 51584); /* no layer: not rotated */
            first += s.heads.count;
            heads += s.heads.count;
        }
        assert_int_equal(heads, 64);
    }
}

static void names_dimension_unit_and_tp_of_what_cannot_be_split(void **state)
{
    (void)state;
    struct arena arena;
    struct diag_list diags;
    struct glm_model m = geometry_pico();
    struct glm_lane lane = {.name = "wide", .n_ranks = 5};
    arena_init(&arena, 1 << 20);
    diag_list_init(&diags, &arena);
    assert_int_equal(glm_split_check(&m, &lane, &diags), GLM_ESPEC);
    /* heads, KDA heads, dense, expert, shared; 2048 ids are 32 units of 64: enough for 5 */
    assert_int_equal(diags.n_errors, 5);
    assert_string_equal(diags.items[0].id, "lane.split-too-fine");
    assert_string_equal(diags.items[0].message,
                        "lane 'wide' cannot split the attention heads at TP 5: 4 is 4 units of 1");
    assert_string_equal(diags.items[3].message,
                        "lane 'wide' cannot split the routed expert width at TP 5: 512 is 4 units "
                        "of 128");
    assert_string_equal(diags.items[3].hint, "name at most 4 ranks in this lane");
    arena_release(&arena);
}

static void refuses_a_width_that_is_not_whole_units(void **state)
{
    (void)state;
    struct arena arena;
    struct diag_list diags;
    struct glm_model m = geometry_pico();
    struct glm_lane lane = {.name = "odd", .n_ranks = 1};
    arena_init(&arena, 1 << 20);
    diag_list_init(&diags, &arena);
    assert_int_equal(glm_split_check(&m, &lane, &diags), GLM_OK);
    m.d_dense = 576;
    assert_int_equal(glm_split_check(&m, &lane, &diags), GLM_ESPEC);
    assert_int_equal(diags.n_errors, 1);
    assert_string_equal(diags.items[0].message,
                        "lane 'odd' cannot split the dense MLP width: 576 is not a multiple of the "
                        "unit 128");
    arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_the_model_as_the_reference_table),
        cmocka_unit_test(rotation_moves_the_extra_unit_by_one_rank_a_layer),
        cmocka_unit_test(names_dimension_unit_and_tp_of_what_cannot_be_split),
        cmocka_unit_test(refuses_a_width_that_is_not_whole_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
