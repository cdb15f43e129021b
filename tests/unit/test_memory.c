/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes a rank takes, the pool's size, and refusal of what does not fit. */
#include "codegen/graph.h"
#include "codegen/memory.h"
#include "codegen/process.h"
#include "runtime/memory.h"
#include "tests/support/geometry.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define GIB (UINT64_C(1) << 30)

static enum glm_status plan(struct fixture *f, struct glm_plan ***plans, struct glm_error *err)
{
    return glm_plan_build(&f->cluster, 0, "x86-64-v3", &f->arena, &f->diags, plans, err);
}

static struct glm_plan **build(struct fixture *f)
{
    struct glm_plan **plans = NULL;
    struct glm_error err = {0};
    if (plan(f, &plans, &err) != GLM_OK)
        fail_msg("%s", err.message);
    return plans;
}

static uint64_t part(const struct glm_plan *p, const char *name)
{
    for (uint32_t i = 0; i < p->n_memory; i++) {
        if (strcmp(p->memory[i].part, name) == 0)
            return p->memory[i].bytes;
    }
    fail_msg("no part '%s'", name);
    return 0;
}

static void assert_near(double got, double want, double relative)
{
    if (fabs(got - want) > relative * fabs(want))
        fail_msg("got %.6g, want %.6g within %.3g", got, want, relative);
}

/* Trellis bytes of a rank's experts (the table's 4 bits a weight) and their fp16 scales. */
static void expert_bytes(const struct glm_plan *p, double *trellis, double *scales)
{
    *trellis = *scales = 0;
    for (uint32_t i = 0; i < p->n_weights; i++) {
        const struct glm_plan_weight *w = &p->weights[i];
        double n = (double)w->n_members * w->n_layers;
        if (strcmp(w->form, "exl3:4:mcg") != 0)
            continue;
        *trellis += n * (double)w->n_rows * (double)w->n_cols / 2;
        *scales += n * 2 * (double)(w->n_rows + w->n_cols);
    }
}

/* GiB of EXL3 codes of the published model's experts (288 a layer, of 2,048 columns in units of
 * 128) at 4 bits, a rank, from those shapes alone. */
static void expert_bytes_match_the_reference_table(void **state)
{
    (void)state;
    static const double table[8][8] = {
        {141.8},
        {70.9, 70.9},
        {53.2, 44.3, 44.3},
        {35.4, 35.4, 35.4, 35.4},
        {35.4, 26.6, 26.6, 26.6, 26.6},
        {26.6, 26.6, 26.6, 26.6, 17.7, 17.7},
        {26.6, 26.6, 17.7, 17.7, 17.7, 17.7, 17.7},
        {17.7, 17.7, 17.7, 17.7, 17.7, 17.7, 17.7, 17.7},
    };
    for (uint32_t world = 1; world <= 8; world++) {
        struct fixture f;
        fixture_full(&f, world);
        struct glm_plan **plans = build(&f);
        for (uint32_t r = 0; r < world; r++) {
            double trellis, scales;
            expert_bytes(plans[r], &trellis, &scales);
            assert_near(trellis / (double)GIB, table[world - 1][r], 0.01);
            assert_near((double)part(plans[r], "experts"), trellis + scales, 1e-9);
        }
        fixture_free(&f);
    }
}

/* docs/formats.md 6: the published model's eleven layers. */
static void cache_bytes_a_token_match_the_reference_table(void **state)
{
    (void)state;
    struct fixture f;
    fixture_full(&f, 2);
    assert_near(glm_token_bytes(build(&f)[0]), 6204, 1e-9);
    fixture_free(&f);
    fixture_full(&f, 1);
    f.cluster.lanes[0].formats.kv = GLM_KV_BF16;
    assert_near(glm_token_bytes(build(&f)[0]), 11968, 1e-9);
    fixture_free(&f);
    fixture_pico(&f, 1); /* 2 layers of 128 + 64 / 4 fp32 values */
    assert_near(glm_token_bytes(build(&f)[0]), 2 * (128 + 16) * 4, 1e-9);
    fixture_free(&f);
}

static void undeclared_memory_gives_every_stream_its_window(void **state)
{
    (void)state;
    struct fixture f;
    fixture_full(&f, 2);
    struct glm_plan **plans = build(&f);
    assert_int_equal(plans[0]->limits.pool_tokens, 8 * 262144);
    assert_int_equal(part(plans[0], "pool"), UINT64_C(8) * 262144 * 6204);
    fixture_free(&f);
    fixture_pico(&f, 1);
    f.cluster.lanes[0].window_tokens = 2112; /* two extents a window */
    f.cluster.lanes[0].n_streams = 3;
    assert_int_equal(build(&f)[0]->limits.pool_tokens, 3 * 4096);
    fixture_free(&f);
}

static uint64_t total_without_pool(const struct glm_plan *p)
{
    return glm_plan_total_bytes(p) - part(p, "pool");
}

static void the_smallest_node_decides_the_pool_of_all_ranks(void **state)
{
    (void)state;
    struct fixture f;
    fixture_full(&f, 2);
    uint64_t fixed = total_without_pool(build(&f)[1]);
    fixture_free(&f);
    fixture_full(&f, 2);
    /* rank 1 keeps room for 300 extents and a bit; one window is 128 */
    f.cluster.nodes[0].memory_bytes = 4 * fixed;
    f.cluster.nodes[1].memory_bytes = fixed + 10 * GIB + UINT64_C(300) * 2048 * 6204 + 5000;
    f.cluster.nodes[1].reserve_bytes = 10 * GIB;
    struct glm_plan **plans = build(&f);
    assert_int_equal(plans[0]->limits.pool_tokens, 300 * 2048);
    assert_int_equal(plans[1]->limits.pool_tokens, 300 * 2048);
    assert_true(glm_plan_total_bytes(plans[1]) <=
                f.cluster.nodes[1].memory_bytes - f.cluster.nodes[1].reserve_bytes);
    fixture_free(&f);
}

static void an_asked_pool_is_taken_in_whole_extents(void **state)
{
    (void)state;
    struct fixture f;
    fixture_pico(&f, 1);
    f.cluster.lanes[0].pool_tokens = 8193;
    assert_int_equal(build(&f)[0]->limits.pool_tokens, 10240);
    fixture_free(&f);
}

static void refuses_what_does_not_fit_naming_rank_node_and_parts(void **state)
{
    (void)state;
    struct fixture f;
    struct glm_plan **plans = NULL;
    struct glm_error err = {0};
    fixture_full(&f, 2);
    f.cluster.nodes[0].memory_bytes = 128 * GIB;
    f.cluster.nodes[1].memory_bytes = 64 * GIB;
    f.cluster.nodes[1].reserve_bytes = 4 * GIB;
    assert_int_equal(plan(&f, &plans, &err), GLM_ECAPACITY);
    assert_null(plans);
    assert_non_null(
        strstr(err.message, "cannot fit rank 1 of lane 'main' on node 'node1': it needs "));
    assert_non_null(strstr(err.message, "the node has 60.00 GiB (64.00 less 4.00 reserve)"));
    assert_non_null(strstr(err.message, "largest parts in GiB: experts 71."));
    assert_non_null(strstr(err.hint, "window, streams, pool or prefill"));
    fixture_free(&f);
}

static void needs_room_for_one_window_at_least(void **state)
{
    (void)state;
    struct fixture f;
    struct glm_plan **plans = NULL;
    struct glm_error err = {0};
    fixture_pico(&f, 1);
    uint64_t fixed = total_without_pool(build(&f)[0]), extent = 2048 * 1152;
    fixture_free(&f);
    fixture_pico(&f, 1);
    f.cluster.nodes[0].memory_bytes = fixed + 4 * extent; /* window 8192 = 4 extents */
    assert_int_equal(build(&f)[0]->limits.pool_tokens, 8192);
    fixture_free(&f);
    fixture_pico(&f, 1);
    f.cluster.nodes[0].memory_bytes = fixed + 4 * extent - 1;
    assert_int_equal(plan(&f, &plans, &err), GLM_ECAPACITY);
    fixture_free(&f);
}

static void counts_a_buffer_in_each_arena_that_names_it(void **state)
{
    (void)state;
    struct fixture f;
    fixture_pico(&f, 1);
    f.cluster.lanes[0].verify_rows = 4; /* 32 rows */
    struct glm_plan *p = build(&f)[0];
    uint64_t decode, prefill, replay = UINT64_C(4) * 32 * 4 * (3 * 64 + 1) * 4;
    struct glm_error err = {0};
    assert_int_equal(glm_arena_bytes(p, 0, &decode, &err), GLM_OK);
    assert_int_equal(glm_arena_bytes(p, 1, &prefill, &err), GLM_OK);
    assert_int_equal(decode, part(p, "decode buffers"));
    assert_int_equal(prefill, part(p, "prefill buffers"));
    /* the same plan without replay differs by the replay buffers of four layers, in decode alone */
    struct fixture g;
    fixture_pico(&g, 1);
    g.cluster.lanes[0].n_streams = 16;
    g.cluster.lanes[0].verify_rows = 1;
    struct glm_plan *q = build(&g)[0];
    q->arenas[0].n_rows = q->arenas[0].n_outs = 32;
    uint64_t plain;
    assert_int_equal(glm_arena_bytes(q, 0, &plain, &err), GLM_OK);
    assert_int_equal(decode - plain, replay);
    assert_int_equal(prefill, part(q, "prefill buffers"));
    fixture_free(&f);
    fixture_free(&g);
}

static void ranks_of_one_host_must_fit_together(void **state)
{
    (void)state;
    struct fixture f;
    struct glm_error err = {0};
    fixture_pico(&f, 4);
    for (uint32_t i = 0; i < 4; i++) {
        f.cluster.nodes[i].memory_bytes = UINT64_C(1) << 30;
        f.cluster.nodes[i].reserve_bytes = UINT64_C(64) << 20;
    }
    f.cluster.nodes[2].host = "other";
    f.cluster.nodes[3].device = GLM_DEVICE_CUDA; /* its memory is its own */
    struct glm_plan **plans = build(&f);
    const struct glm_lane *lane = &f.cluster.lanes[0];
    uint64_t alone = glm_plan_total_bytes(plans[2]) + (UINT64_C(64) << 20);
    uint64_t both =
        glm_plan_total_bytes(plans[0]) + glm_plan_total_bytes(plans[1]) + (UINT64_C(128) << 20);
    for (uint32_t node = 0; node < 2; node++) {
        assert_int_equal(glm_plan_check_host(&f.cluster, lane, plans, node, both, &err), GLM_OK);
        err = (struct glm_error){0};
        assert_int_equal(glm_plan_check_host(&f.cluster, lane, plans, node, both - 1, &err),
                         GLM_ECAPACITY);
        assert_non_null(
            strstr(err.message, "cannot fit ranks 0, 1 of lane 'main' on host 'local'"));
        assert_non_null(strstr(err.message, "reserve 0.12 (their nodes declare 2.00), it has"));
        err = (struct glm_error){0};
    }
    assert_int_equal(glm_plan_check_host(&f.cluster, lane, plans, 2, alone, &err), GLM_OK);
    assert_int_equal(glm_plan_check_host(&f.cluster, lane, plans, 2, alone - 1, &err),
                     GLM_ECAPACITY);
    assert_non_null(strstr(err.message, "cannot fit rank 2 of lane 'main' on host 'other'"));
    alone = glm_plan_total_bytes(plans[3]) + (UINT64_C(64) << 20);
    err = (struct glm_error){0};
    assert_int_equal(glm_plan_check_host(&f.cluster, lane, plans, 3, alone, &err), GLM_OK);
    assert_int_equal(glm_plan_check_host(&f.cluster, lane, plans, 3, alone - 1, &err),
                     GLM_ECAPACITY);
    assert_non_null(
        strstr(err.message, "cannot fit rank 3 of lane 'main' on cuda:0 of host 'local'"));
    fixture_free(&f);
}

static void a_head_has_more_of_a_process_than_other_ranks(void **state)
{
    (void)state;
    struct fixture f;
    fixture_pico(&f, 2);
    f.cluster.lanes[0].max_body_bytes = 3 << 20;
    struct glm_plan **plans = build(&f);
    assert_true(part(plans[0], "process") ==
                part(plans[1], "process") +
                    GLM_PROCESS_HEAD_THREADS * (uint64_t)GLM_PROCESS_THREAD_BYTES +
                    2048 * (uint64_t)GLM_PROCESS_TOKEN_BYTES);
    assert_int_equal(part(plans[0], "requests"), glm_request_bytes(3 << 20, 8192));
    assert_int_equal(part(plans[1], "requests"), 0);
    fixture_free(&f);
}

static void a_rank_alone_exchanges_nothing(void **state)
{
    (void)state;
    struct fixture f;
    fixture_pico(&f, 1);
    assert_int_equal(part(build(&f)[0], "exchanges"), 0);
    fixture_free(&f);
    fixture_pico(&f, 4);
    struct glm_plan *p = build(&f)[3];
    uint64_t message = 512 * 256 * 4; /* a prefill slice of hidden rows */
    assert_int_equal(glm_message_bytes(p), message);
    assert_in_range(part(p, "exchanges"), 2 * 3 * GLM_RING_BYTES + message,
                    2 * 3 * GLM_RING_BYTES + message + 4096);
    fixture_free(&f);
}

/* A GB10 rank pays for its CUDA context twice over, one on a GPU with its own memory on the device
 * alone. */
static void a_gpu_rank_has_a_context(void **state)
{
    (void)state;
    uint64_t bytes[3];
    static const enum glm_device_kind devices[] = {GLM_DEVICE_CPU, GLM_DEVICE_GB10,
                                                   GLM_DEVICE_CUDA};
    for (int i = 0; i < 3; i++) {
        struct fixture f;
        fixture_full(&f, 2);
        f.cluster.nodes[1].device = devices[i];
        struct glm_plan *p = build(&f)[1];
        bytes[i] = part(p, "process");
        assert_int_equal(part(p, "exchanges") > 0, devices[i] != GLM_DEVICE_CUDA);
        fixture_free(&f);
    }
    assert_true(bytes[0] < 64 << 20);
    assert_true(bytes[1] > 640 << 20 && bytes[1] < 700 << 20);
    assert_int_equal(bytes[2], GLM_PROCESS_CUDA_DEVICE_BYTES);
}

/* The published model on two GPUs at 2,048 prefill rows: the products of the picked experts (8 of a
 * row, 4096 wide) are the largest scratch, a layer of 32 heads the most tickets. At 64 rows it is
 * the entries that a draw from all of 77,440 ids looks at, in blocks of 2,048. */
static void scratch_of_a_cuda_plan_is_that_of_its_launches(void **state)
{
    (void)state;
    struct fixture f;
    struct glm_plan **plans;
    struct glm_error err = {0};
    struct glm_manifest *manifests;
    uint32_t n_manifests;
    uint64_t scratch, tickets, host;
    fixture_full(&f, 2);
    f.cluster.lanes[0].prefill_rows = 2048;
    assert_int_equal(glm_manifests_load(&f.arena, &manifests, &n_manifests, &err), GLM_OK);
    host = part(build(&f)[0], "scratch");
    assert_int_equal(glm_plan_build(&f.cluster, 0, "sm_121a", &f.arena, &f.diags, &plans, &err),
                     GLM_OK);
    if (glm_cuda_scratch(plans[0], manifests, n_manifests, &scratch, &tickets, &err) != GLM_OK)
        fail_msg("%s", err.message);
    assert_int_equal(scratch, UINT64_C(2048) * 8 * 4096 * 4);
    assert_int_equal(tickets, 32 * (2048 / 16 + 2 * 8) * 4);
    assert_int_equal(part(plans[0], "scratch"), scratch + tickets);
    assert_int_not_equal(part(plans[0], "scratch"), host);
    f.cluster.lanes[0].prefill_rows = 64;
    assert_int_equal(glm_plan_build(&f.cluster, 0, "sm_121a", &f.arena, &f.diags, &plans, &err),
                     GLM_OK);
    assert_int_equal(part(plans[0], "scratch"),
                     UINT64_C(64) * 38 * 24 * (1 + 2048) + 32 * (64 / 16 + 2 * 8) * 4);
    fixture_free(&f);
}

/* What the plan prints is what the runtime will lay out, byte for byte. */
static void the_table_is_what_the_runtime_lays_out(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct fixture f;
        struct glm_error err = {0};
        struct glm_manifest *manifests;
        struct glm_states states;
        struct glm_memory m;
        uint32_t n_manifests;
        if (i < 2)
            fixture_pico(&f, 1 + (uint32_t)i);
        else
            fixture_full(&f, 3);
        f.cluster.nodes[0].device = GLM_DEVICE_CPU; /* two threads */
        f.cluster.lanes[0].verify_rows = i % 2 ? 16 : 1;
        f.cluster.lanes[0].rotate_uneven = i == 3;
        struct glm_plan *p = build(&f)[0];
        assert_int_equal(glm_manifests_load(&f.arena, &manifests, &n_manifests, &err), GLM_OK);
        assert_int_equal(glm_states_init(&states, p, &f.arena, &err), GLM_OK);
        if (glm_memory_lay_out(&m, p, &states, manifests, n_manifests, 2, &f.arena, &err) != GLM_OK)
            fail_msg("%s", err.message);
        assert_int_equal(m.weight_bytes, part(p, "experts") + part(p, "dense") + part(p, "head") +
                                             part(p, "embedding") + part(p, "other weights"));
        assert_int_equal(m.state_bytes, part(p, "pool") + part(p, "streams"));
        assert_int_equal(m.buffer_bytes, part(p, "decode buffers") + part(p, "prefill buffers"));
        assert_int_equal(m.scratch_bytes, part(p, "scratch"));
        assert_int_equal(m.bytes + part(p, "exchanges") + part(p, "process") + part(p, "requests"),
                         glm_plan_total_bytes(p));
        fixture_free(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expert_bytes_match_the_reference_table),
        cmocka_unit_test(cache_bytes_a_token_match_the_reference_table),
        cmocka_unit_test(a_head_has_more_of_a_process_than_other_ranks),
        cmocka_unit_test(a_rank_alone_exchanges_nothing),
        cmocka_unit_test(a_gpu_rank_has_a_context),
        cmocka_unit_test(undeclared_memory_gives_every_stream_its_window),
        cmocka_unit_test(the_smallest_node_decides_the_pool_of_all_ranks),
        cmocka_unit_test(an_asked_pool_is_taken_in_whole_extents),
        cmocka_unit_test(refuses_what_does_not_fit_naming_rank_node_and_parts),
        cmocka_unit_test(needs_room_for_one_window_at_least),
        cmocka_unit_test(counts_a_buffer_in_each_arena_that_names_it),
        cmocka_unit_test(ranks_of_one_host_must_fit_together),
        cmocka_unit_test(scratch_of_a_cuda_plan_is_that_of_its_launches),
        cmocka_unit_test(the_table_is_what_the_runtime_lays_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
