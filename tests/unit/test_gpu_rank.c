/* SPDX-License-Identifier: Apache-2.0 */
/* Whole ranks on a GPU (the one that $GLM_TEST_GPU names, else the fake one of tests/fake, whose
 * kernels the emulator runs): every step against the host's with the same inputs, and what does not
 * depend on a step's numbers: rows alone or together, in any bucket, chunks, moves, rollback. */
#include "runtime/selftest.h"
#include "tests/support/gpu.h"
#include "tests/support/pico.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NEED_GPU()                                \
    do {                                          \
        const char *missing = pico_gpu_missing(); \
        (void)state;                              \
        if (missing) {                            \
            print_message("# %s\n", missing);     \
            skip();                               \
        }                                         \
    } while (0)

/* The emulator runs a small part of what a GPU does in the same time. */
static uint32_t few(uint32_t on_a_gpu, uint32_t emulated)
{
    return test_gpu_chosen() ? on_a_gpu : emulated;
}

/* ---- every step against the host's ---- */

static enum glm_status run_list(void *context, const struct glm_op *ops, uint32_t n_ops,
                                struct glm_round_result *result, struct glm_error *err)
{
    return pico_try(context, ops, n_ops, result, err);
}

static void check_steps(const struct pico_options *options)
{
    struct pico_options on_host = *options, on_gpu = *options;
    struct glm_selftest *tests[GLM_LINK_MAX_WORLD];
    struct glm_error err = {0};
    enum glm_status status;
    on_host.formats.act = GLM_ACT_BF16;
    on_host.formats.kv = options->formats.kv == GLM_KV_FP32 ? GLM_KV_BF16 : options->formats.kv;
    on_host.verify_rows = on_gpu.verify_rows = 4;
    on_host.host = on_gpu.gpu = on_gpu.twin = true;
    struct pico *host = pico_open(&on_host), *gpu = pico_open(&on_gpu);
    uint32_t world = pico_plan(host, 0)->world;
    for (uint32_t r = 0; r < world; r++) {
        if (glm_selftest_new(pico_engine(host, r), pico_engine(gpu, r), &tests[r], &err) != GLM_OK)
            fail_msg("%s", err.message);
        if (glm_selftest_weights(tests[r], &err) != GLM_OK)
            fail_msg("%s", err.message);
    }
    struct glm_selftest_load load = {.prompt_rows = few(1300, 70), .n_rounds = few(8, 2)};
    if (glm_selftest_run(pico_plan(host, 0), &load, run_list, host, &err) != GLM_OK)
        fail_msg("%s", err.message);
    bool passed = true;
    for (uint32_t r = 0; r < world; r++) {
        uint32_t n;
        const struct glm_selftest_row *rows = glm_selftest_rows(tests[r], &n, &status, &err);
        if (status != GLM_OK)
            fail_msg("rank %u: %s", r, err.message);
        assert_true(n > 0);
        for (uint32_t i = 0; i < n; i++) {
            const struct glm_selftest_row *row = &rows[i];
            bool ok = glm_selftest_passed(row);
            passed = passed && ok;
            print_message("    rank %u %-14s %6llu steps, %.3f ulp, %.1e, %llu of %llu codes %s\n",
                          r, row->template_name, (unsigned long long)row->n_steps, row->worst_ulp,
                          row->worst_l2, (unsigned long long)row->n_other_codes,
                          (unsigned long long)row->n_codes, ok ? "" : row->where);
        }
        glm_selftest_free(tests[r]);
    }
    pico_close(gpu);
    pico_close(host);
    assert_true(passed);
}

static void every_step_is_the_hosts(void **state)
{
    NEED_GPU();
    check_steps(&(struct pico_options){.window = few(8192, 2048)});
}

/* On the emulator one rank and one cache stand for the combinations that a GPU runs. */
static void every_step_is_the_hosts_with_quantized_weights(void **state)
{
    NEED_GPU();
    check_steps(&(struct pico_options){
        .window = few(8192, 2048),
        .formats = {.dense = GLM_FORM_Q4, .head = GLM_FORM_FP8, .kv = GLM_KV_FP8}});
    if (!test_gpu_chosen())
        return;
    check_steps(&(struct pico_options){.formats = {.dense = GLM_FORM_FP8}});
    check_steps(&(struct pico_options){.formats = {.kv = GLM_KV_FP8}});
}

static void every_step_is_the_hosts_with_bf16_experts(void **state)
{
    NEED_GPU();
    const char *folder = getenv("GLM_PICO_BF16");
    if (!folder || !folder[0]) {
        print_message("# $GLM_PICO_BF16 does not name the bf16 checkpoint\n");
        skip();
    }
    check_steps(&(struct pico_options){.checkpoint = folder, .window = few(8192, 2048)});
}

static void every_step_is_the_hosts_on_two_and_four_ranks(void **state)
{
    NEED_GPU();
    check_steps(&(struct pico_options){.world = 2, .window = few(8192, 2048)});
    if (test_gpu_chosen())
        check_steps(&(struct pico_options){.world = 4});
}

/* One layer of each kind at its real widths, as one rank and as one of two has them. */
static void every_step_is_the_hosts_at_the_full_models_widths(void **state)
{
    NEED_GPU();
    if (!test_gpu_chosen()) {
        print_message("# the emulator is too slow for the full model's widths\n");
        skip();
    }
    check_steps(&(struct pico_options){
        .checkpoint = "synthetic:glm-5.3-flash:5", .n_threads = 16, .formats = {.kv = GLM_KV_FP8}});
    check_steps(&(struct pico_options){.checkpoint = "synthetic:glm-5.3-flash:5",
                                       .world = 2,
                                       .n_threads = 8,
                                       .prefill_rows = 256,
                                       .formats = {.dense = GLM_FORM_Q4, .head = GLM_FORM_FP8}});
}

/* ---- replies and bits ---- */

static void random_ids(const struct pico *p, uint32_t seed, int32_t *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (int32_t)((seed >> 8) % pico_plan(p, 0)->n_valid_ids);
    }
}

enum { MAX_REPLY = 256 };

static void greedy_reply(struct pico *p, const struct golden_case *c, uint32_t n, int32_t *reply)
{
    struct glm_draw draw = pico_greedy();
    uint32_t stream = 0;
    pico_admit(p, 0, c->n_ids + n);
    reply[0] = pico_fill(p, 0, c->ids, c->n_ids, 512, &draw);
    for (uint32_t i = 1; i < n; i++) {
        reply[i] = reply[i - 1];
        pico_decode(p, &stream, &reply[i], &draw, 1);
    }
    pico_finish(p, 0);
}

/* Prompts whose margin leaves no doubt about what bf16's rounding can do. */
static void replies_are_those_of_the_host(const struct pico_options *options)
{
    struct pico_options on_host = *options, on_gpu = *options;
    on_gpu.gpu = on_host.host = true;
    on_host.formats.act = GLM_ACT_BF16;
    on_host.formats.kv = options->formats.kv == GLM_KV_FP32 ? GLM_KV_BF16 : options->formats.kv;
    struct golden *g = golden_open("exl3");
    struct pico *host = pico_open(&on_host), *gpu = pico_open(&on_gpu);
    uint32_t n_checked = 0;
    for (uint32_t i = 0; i < golden_count(g) && n_checked < few(1000, 1); i++) {
        struct golden_case c = golden_case(g, i);
        int32_t want[MAX_REPLY], got[MAX_REPLY];
        uint32_t n = c.n_reply < few(MAX_REPLY, 6) ? c.n_reply : few(MAX_REPLY, 6);
        if (c.smallest_margin <= 0.1 || c.n_ids > few(8192, 64))
            continue;
        greedy_reply(host, &c, n, want);
        greedy_reply(gpu, &c, n, got);
        for (uint32_t k = 0; k < n; k++)
            if (got[k] != want[k])
                fail_msg("%s: token %u is %d, the host's %d", c.name, k, got[k], want[k]);
        n_checked++;
    }
    print_message("    %u replies equal on %u ranks\n", n_checked, pico_plan(gpu, 0)->world);
    assert_true(n_checked > 0);
    pico_close(gpu);
    pico_close(host);
    golden_free(g);
}

static void replies_are_the_bf16_hosts(void **state)
{
    NEED_GPU();
    replies_are_those_of_the_host(
        &(struct pico_options){.world = 2, .window = few(8192, 2048), .transport = "tcp"});
    if (!test_gpu_chosen())
        return;
    replies_are_those_of_the_host(&(struct pico_options){.world = 1});
    replies_are_those_of_the_host(&(struct pico_options){.formats = {.kv = GLM_KV_FP8}});
}

/* A row has its bits whatever bucket it is in and whoever is beside it; what is left of a round
 * that keeps k rows is what k rounds leave. What test_exact shows at length on a GPU. */
static void a_row_keeps_its_bits_beside_others(void **state)
{
    NEED_GPU();
    enum { N = 5, ROUNDS = 3 };
    static int32_t ids[N][128];
    struct pico *p = pico_open(&(struct pico_options){.gpu = true, .window = 2048});
    struct glm_hash rows[N][ROUNDS], states[N];
    const uint32_t lens[N] = {70, 3, 12, 1, 65};
    for (uint32_t s = 0; s < N; s++) {
        random_ids(p, 77 + s, ids[s], lens[s]);
        pico_admit(p, s, 256);
        pico_fill(p, s, ids[s], lens[s], 512, NULL);
        rows[s][0] = pico_logits_hash(p, 0);
        for (uint32_t k = 1; k < ROUNDS; k++) {
            int32_t token = (int32_t)(10 * s + k);
            pico_decode(p, &s, &token, NULL, 1);
            rows[s][k] = pico_logits_hash(p, 0);
        }
        states[s] = pico_state_hash(p, s);
        pico_finish(p, s);
    }
    for (uint32_t s = 0; s < N; s++) {
        pico_admit(p, N - 1 - s, 256);
        pico_fill(p, N - 1 - s, ids[s], lens[s], 64, NULL);
        assert_hash_equal(pico_logits_hash(p, 0), rows[s][0]);
    }
    for (uint32_t k = 1; k < ROUNDS; k++) {
        uint32_t streams[N];
        int32_t tokens[N];
        for (uint32_t s = 0; s < N; s++) {
            streams[s] = N - 1 - s;
            tokens[s] = (int32_t)(10 * s + k);
        }
        pico_decode(p, streams, tokens, NULL, N);
        for (uint32_t s = 0; s < N; s++)
            assert_hash_equal(pico_logits_hash(p, s), rows[s][k]);
    }
    for (uint32_t s = 0; s < N; s++)
        assert_hash_equal(pico_state_hash(p, N - 1 - s), states[s]);
    pico_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_step_is_the_hosts),
        cmocka_unit_test(every_step_is_the_hosts_with_quantized_weights),
        cmocka_unit_test(every_step_is_the_hosts_with_bf16_experts),
        cmocka_unit_test(every_step_is_the_hosts_on_two_and_four_ranks),
        cmocka_unit_test(every_step_is_the_hosts_at_the_full_models_widths),
        cmocka_unit_test(replies_are_the_bf16_hosts),
        cmocka_unit_test(a_row_keeps_its_bits_beside_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
