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

#define NEED_GPU()                                 \
    do {                                           \
        const char *missing = pico_gpu_missing();  \
        (void)state;                               \
        if (missing) {                             \
            print_message("# %s\n", missing);      \
            skip();                                \
        }                                          \
    } while (0)

/* The emulator runs a small part of what a GPU does in the same time. */
static uint32_t few(uint32_t on_a_gpu, uint32_t emulated)
{
    return test_gpu_chosen() ? on_a_gpu : emulated;
}

static void random_ids(const struct pico *p, uint32_t seed, int32_t *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (int32_t)((seed >> 8) % pico_plan(p, 0)->n_valid_ids);
    }
}

/* ---- every step against the host's ---- */

enum { MAX_IDS = 2048, STREAMS = 3, VERIFY = 4 };

/* Prompts in slices, then rounds of several rows a stream of which some are kept. */
static void run_some_of_everything(struct pico *p)
{
    static int32_t ids[MAX_IDS];
    const uint32_t lens[STREAMS] = {few(1300, 70), few(200, 9), few(64, 3)};
    int32_t tokens[STREAMS][VERIFY];
    struct glm_draw draws[VERIFY];
    for (uint32_t s = 0; s < STREAMS; s++) {
        struct glm_draw draw = {.seed = 7 + s, .top_p = 0.9f, .temperature = s == 0 ? 0 : 1};
        random_ids(p, s, ids, lens[s]);
        draw.position = (int32_t)lens[s];
        pico_admit(p, s, lens[s] + 64);
        tokens[s][0] = pico_fill(p, s, ids, lens[s], 512, &draw);
    }
    for (uint32_t round = 0; round < few(8, 2); round++) {
        struct glm_op ops[STREAMS];
        for (uint32_t s = 0; s < STREAMS; s++) {
            uint32_t n = 1 + (round + s) % VERIFY;
            for (uint32_t i = 0; i < n; i++) {
                draws[i] = (struct glm_draw){.seed = s, .top_p = 1, .temperature = s == 1 ? 1 : 0};
                tokens[s][i] = i == 0 ? tokens[s][0] : (int32_t)(100 * s + round + i);
            }
            ops[s] = (struct glm_op){
                .kind = GLM_OP_DECODE, .stream = s, .n = n, .tokens = tokens[s], .draws = draws};
        }
        struct glm_round_result result = pico_run(p, ops, STREAMS);
        for (uint32_t s = 0, row = 0; s < STREAMS; s++) {
            uint32_t n = ops[s].n, kept = 1 + round % n;
            int32_t next = result.tokens[row + kept - 1];
            row += n;
            ops[s] = (struct glm_op){.kind = GLM_OP_COMMIT, .stream = s, .n = kept};
            tokens[s][0] = next;
        }
        pico_run(p, ops, STREAMS);
    }
}

static void check_steps(const struct pico_options *options)
{
    struct pico_options on_host = *options, on_gpu = *options;
    struct glm_selftest *tests[GLM_LINK_MAX_WORLD];
    struct glm_error err = {0};
    enum glm_status status;
    on_host.formats.act = GLM_ACT_BF16;
    on_host.formats.kv = options->formats.kv == GLM_KV_FP32 ? GLM_KV_BF16 : options->formats.kv;
    on_host.verify_rows = on_gpu.verify_rows = VERIFY;
    on_gpu.gpu = on_gpu.twin = true;
    struct pico *host = pico_open(&on_host), *gpu = pico_open(&on_gpu);
    uint32_t world = pico_plan(host, 0)->world;
    for (uint32_t r = 0; r < world; r++) {
        if (glm_selftest_new(pico_engine(host, r), pico_engine(gpu, r), &tests[r], &err) != GLM_OK)
            fail_msg("%s", err.message);
        if (glm_selftest_weights(tests[r], &err) != GLM_OK)
            fail_msg("%s", err.message);
    }
    run_some_of_everything(host);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_step_is_the_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
