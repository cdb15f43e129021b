/* SPDX-License-Identifier: Apache-2.0 */
/* State planes alone: memory from malloc, rows written by the test at the addresses plan.h gives.
 */
#include "runtime/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROW = 8, N_SLOTS = 3, EXTENTS = 4, RING = 8, KEEP = 3 };

static struct glm_plan_state states[] = {
    {.name = "rows",
     .unit = GLM_UNIT_TOKEN,
     .per = 1,
     .versions = 1,
     .row_bytes = ROW,
     .dtype = "f32",
     .rollback = "position"},
    {.name = "late",
     .unit = GLM_UNIT_TOKEN,
     .per = 1,
     .versions = 1,
     .row_bytes = ROW,
     .dtype = "f32",
     .rollback = "position",
     .position_offset = -1},
    {.name = "pairs",
     .unit = GLM_UNIT_POOL,
     .per = 4,
     .versions = 1,
     .row_bytes = ROW,
     .dtype = "f32",
     .rollback = "position"},
    {.name = "acc",
     .unit = GLM_UNIT_STREAM,
     .per = 1,
     .versions = 2,
     .row_bytes = ROW,
     .dtype = "f32",
     .rollback = "position"},
    {.name = "last",
     .unit = GLM_UNIT_RING,
     .per = 1,
     .ring = RING,
     .keep = KEEP,
     .versions = 1,
     .row_bytes = ROW,
     .dtype = "f32",
     .rollback = "position"},
};
enum { ROWS, LATE, PAIRS, ACC, LAST, N_STATES };

static const struct glm_plan plan = {
    .limits = {.n_streams = 2,
               .n_slots = N_SLOTS,
               .window_tokens = 8192,
               .pool_tokens = EXTENTS * 2048,
               .verify_rows = 1,
               .prefill_rows = 64},
    .states = states,
    .n_states = N_STATES,
};

struct planes {
    struct arena arena;
    struct glm_states states;
};

static int open_planes(void **state)
{
    static struct planes p;
    memset(&p, 0, sizeof p);
    arena_init(&p.arena, 1 << 20);
    struct glm_error err = {0};
    assert_int_equal(glm_states_init(&p.states, &plan, &p.arena, &err), GLM_OK);
    assert_int_equal(glm_device_open_host(1, 0, &p.states.device, &err), GLM_OK);
    assert_int_equal(p.states.n_planes, N_STATES);
    for (uint32_t i = 0; i < N_STATES; i++) {
        p.states.planes[i].base = malloc(p.states.planes[i].bytes);
        assert_non_null(p.states.planes[i].base);
        memset(p.states.planes[i].base, 0x5a, p.states.planes[i].bytes);
    }
    *state = &p;
    return 0;
}

static int close_planes(void **state)
{
    struct planes *p = *state;
    for (uint32_t i = 0; i < N_STATES; i++)
        free(p->states.planes[i].base);
    glm_device_free(p->states.device);
    arena_release(&p->arena);
    return 0;
}

static struct glm_hash hash(const struct planes *p, uint32_t slot, const struct glm_holder *h)
{
    struct glm_hash out = {0};
    assert_int_equal(glm_states_hash(&p->states, slot, h, &out, NULL), GLM_OK);
    return out;
}

static void put(struct planes *p, uint32_t plane, uint64_t row, uint64_t value)
{
    assert_true((row + 1) * ROW <= p->states.planes[plane].bytes);
    memcpy(p->states.planes[plane].base + row * ROW, &value, sizeof value);
}

static uint64_t get(const struct planes *p, uint32_t plane, uint64_t row)
{
    uint64_t value;
    memcpy(&value, p->states.planes[plane].base + row * ROW, sizeof value);
    return value;
}

/* A stream of n tokens whose rows hold values of their position alone. */
static void write_stream(struct planes *p, uint32_t slot, const struct glm_holder *h)
{
    for (uint64_t t = 0; t < h->n_context; t++) {
        put(p, ROWS, (uint64_t)h->extents[t / 2048] * 2048 + t % 2048, 1000 + t);
        if (t > 0)
            put(p, LATE, (uint64_t)h->extents[(t - 1) / 2048] * 2048 + (t - 1) % 2048, 2000 + t);
        if (t % 4 == 3)
            put(p, PAIRS, (uint64_t)h->extents[t / 2048] * 512 + t / 4 % 512, 3000 + t);
        put(p, LAST, slot * RING + t % RING, 4000 + t);
    }
    put(p, ACC, slot * 2 + h->version, 5000 + h->n_context);
}

static void planes_have_the_plans_sizes(void **state)
{
    const struct planes *p = *state;
    assert_int_equal(p->states.planes[ROWS].bytes, EXTENTS * 2048 * ROW);
    assert_int_equal(p->states.planes[PAIRS].bytes, EXTENTS * 512 * ROW);
    assert_int_equal(p->states.planes[ACC].bytes, N_SLOTS * 2 * ROW);
    assert_int_equal(p->states.planes[LAST].bytes, N_SLOTS * RING * ROW);
}

static void hash_is_that_of_live_rows_wherever_they_lie(void **state)
{
    struct planes *p = *state;
    int32_t here[] = {0, 3}, there[] = {2, 1};
    struct glm_holder a = {.active = true, .n_context = 2055, .n_extents = 2, .extents = here};
    struct glm_holder b = {
        .active = true, .n_context = 2055, .version = 1, .n_extents = 2, .extents = there};
    write_stream(p, 0, &a);
    write_stream(p, 2, &b);
    struct glm_hash ha = hash(p, 0, &a), hb = hash(p, 2, &b);
    assert_int_equal(ha.low, hb.low);
    assert_int_equal(ha.high, hb.high);
}

static void hash_does_not_count_dead_rows(void **state)
{
    struct planes *p = *state;
    int32_t extents[] = {1};
    struct glm_holder h = {.active = true, .n_context = 102, .n_extents = 1, .extents = extents};
    write_stream(p, 1, &h);
    struct glm_hash before = hash(p, 1, &h);
    put(p, ROWS, 2048 + 102, 1);           /* beyond the context */
    put(p, LATE, 2048 + 101, 1);           /* the row of position 102 */
    put(p, PAIRS, 512 + 25, 1);            /* tokens 100..103 are not all there */
    put(p, ACC, 1 * 2 + 1, 1);             /* the other version */
    put(p, LAST, 1 * RING + 98 % RING, 1); /* older than keep */
    struct glm_hash after = hash(p, 1, &h);
    assert_int_equal(before.low, after.low);
    assert_int_equal(before.high, after.high);
}

static void hash_counts_every_live_row(void **state)
{
    struct planes *p = *state;
    int32_t extents[] = {1};
    struct glm_holder h = {.active = true, .n_context = 102, .n_extents = 1, .extents = extents};
    const struct {
        uint32_t plane;
        uint64_t row;
    } live[] = {
        {ROWS, 2048},      {ROWS, 2048 + 101}, {LATE, 2048 + 100},        {LATE, 2048},
        {PAIRS, 512 + 24}, {ACC, 2},           {LAST, RING + 101 % RING}, {LAST, RING + 99 % RING}};
    for (size_t i = 0; i < sizeof live / sizeof live[0]; i++) {
        write_stream(p, 1, &h);
        struct glm_hash before = hash(p, 1, &h);
        put(p, live[i].plane, live[i].row, 77);
        struct glm_hash after = hash(p, 1, &h);
        assert_int_not_equal(before.low, after.low);
    }
}

static void copied_slot_and_extents_hash_the_same(void **state)
{
    struct planes *p = *state;
    int32_t here[] = {0, 1}, there[] = {3, 2};
    struct glm_holder a = {
        .active = true, .n_context = 3001, .version = 1, .n_extents = 2, .extents = here};
    write_stream(p, 0, &a);
    for (uint32_t i = 0; i < 2; i++)
        glm_states_copy_extent(&p->states, a.n_context, i, here[i], there[i]);
    glm_states_copy_slot(&p->states, 0, &a, 2);
    struct glm_holder b = {.active = true, .n_context = 3001, .n_extents = 2, .extents = there};
    struct glm_hash ha = hash(p, 0, &a), hb = hash(p, 2, &b);
    assert_int_equal(ha.low, hb.low);
    assert_int_equal(ha.high, hb.high);
    /* rows that nobody needs were not moved */
    assert_int_equal(get(p, ROWS, 2 * 2048 + 3001 - 2048), UINT64_C(0x5a5a5a5a5a5a5a5a));
}

static void a_cleared_slot_is_zero_and_its_neighbours_are_not(void **state)
{
    struct planes *p = *state;
    memset(p->states.planes[ACC].base, 0x5a, p->states.planes[ACC].bytes);
    memset(p->states.planes[LAST].base, 0x5a, p->states.planes[LAST].bytes);
    glm_states_clear_slot(&p->states, 1);
    assert_int_equal(get(p, ACC, 2), 0);
    assert_int_equal(get(p, LAST, RING), 0);
    assert_int_equal(get(p, LAST, 2 * RING - 1), 0);
    assert_int_equal(get(p, ACC, 1), UINT64_C(0x5a5a5a5a5a5a5a5a));
    assert_int_equal(get(p, LAST, RING - 1), UINT64_C(0x5a5a5a5a5a5a5a5a));
    assert_int_equal(get(p, LAST, 2 * RING), UINT64_C(0x5a5a5a5a5a5a5a5a));
}

static void refuses_states_that_cannot_be(void **state)
{
    struct planes *p = *state;
    static const struct glm_plan_state wrong[] = {
        {.name = "a", .unit = GLM_UNIT_POOL, .per = 3, .row_bytes = 8},
        {.name = "b", .unit = GLM_UNIT_POOL, .per = 0, .row_bytes = 8},
        {.name = "c", .unit = GLM_UNIT_STREAM, .versions = 3, .row_bytes = 8},
        {.name = "d", .unit = GLM_UNIT_RING, .ring = 4, .keep = 5, .row_bytes = 8},
        {.name = "e", .unit = GLM_UNIT_TOKEN, .row_bytes = 0},
        {.name = "f", .unit = GLM_UNIT_TOKEN, .row_bytes = UINT64_MAX / 2},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct glm_plan_state one = wrong[i];
        struct glm_plan bad = plan;
        struct glm_states s;
        struct glm_error err = {0};
        bad.states = &one;
        bad.n_states = 1;
        assert_int_equal(glm_states_init(&s, &bad, &p->arena, &err), GLM_EPLAN);
        assert_non_null(strstr(err.message, wrong[i].name));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(planes_have_the_plans_sizes, open_planes, close_planes),
        cmocka_unit_test_setup_teardown(hash_is_that_of_live_rows_wherever_they_lie, open_planes,
                                        close_planes),
        cmocka_unit_test_setup_teardown(hash_does_not_count_dead_rows, open_planes, close_planes),
        cmocka_unit_test_setup_teardown(hash_counts_every_live_row, open_planes, close_planes),
        cmocka_unit_test_setup_teardown(copied_slot_and_extents_hash_the_same, open_planes,
                                        close_planes),
        cmocka_unit_test_setup_teardown(a_cleared_slot_is_zero_and_its_neighbours_are_not,
                                        open_planes, close_planes),
        cmocka_unit_test_setup_teardown(refuses_states_that_cannot_be, open_planes, close_planes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
