/* SPDX-License-Identifier: Apache-2.0 */
/* What the executor counts of a decode round is what the plan's price says: weights, members that
 * rows picked, stream planes, launches; to the byte, at several contexts and row counts. And a
 * rank's memory is that of its plan. */
#include "codegen/graph.h"
#include "tests/support/pico.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_STREAMS = 8, VERIFY = 4, N_IDS = 2000 };

/* Picks of a round, seen after each layer: distinct members, summed over layers. */
struct picks {
    const struct glm_model *model;
    uint32_t n_rows, n_layers, n_distinct;
};

static void on_mark(void *context, const struct glm_engine *e, const char *program,
                    const char *mark, uint32_t layer)
{
    struct picks *p = context;
    uint64_t n_cols;
    const char *dtype;
    bool end = strcmp(mark, "hidden") == 0;
    uint32_t before = end ? p->model->n_layers : layer; /* the layer that has just run, plus 1 */
    if (strcmp(program, "decode") != 0 || (!end && strcmp(mark, "layer") != 0) || before == 0 ||
        p->model->ffn[before - 1] != GLM_FFN_MOE)
        return;
    const int32_t *ids = glm_engine_buffer(e, "moe.ids", &n_cols, &dtype);
    bool seen[256] = {false};
    assert_non_null(ids);
    p->n_layers++;
    for (uint64_t i = 0; i < p->n_rows * n_cols; i++) {
        assert_in_range(ids[i], 0, p->model->n_experts - 1);
        p->n_distinct += !seen[ids[i]];
        seen[ids[i]] = true;
    }
}

static struct glm_price price(const struct glm_plan *plan, const struct glm_cost_context *at)
{
    struct glm_price total = {0};
    struct glm_error err = {0};
    if (glm_price_program(plan, "decode", at, NULL, &total, NULL, &err) != GLM_OK)
        fail_msg("%s", err.message);
    return total;
}

/* One round of `rows` rows in each of n streams that stand at `context` tokens. */
static void check_round(struct pico *p, uint32_t world, uint32_t n, uint32_t rows, uint32_t context)
{
    struct glm_op ops[2 * MAX_STREAMS] = {0};
    struct glm_engine_stats before[8], after;
    int32_t *ids = calloc(context, sizeof *ids);
    struct picks picks = {.model = &pico_checkpoint(p)->model, .n_rows = n * rows};
    assert_non_null(ids);
    for (uint32_t s = 0; s < n; s++) {
        for (uint32_t i = 0; i < context; i++)
            ids[i] = (int32_t)((i * 7 + s * 131 + context) % N_IDS);
        pico_admit(p, s, context + rows);
        pico_fill(p, s, ids, context, 512, NULL);
        ops[s] = (struct glm_op){
            .kind = GLM_OP_DECODE, .stream = s, .n = rows, .tokens = ids + s % (context - rows)};
        ops[n + s] = (struct glm_op){.kind = GLM_OP_COMMIT, .stream = s, .n = rows};
    }
    for (uint32_t r = 0; r < world; r++)
        before[r] = glm_engine_stats(pico_engine(p, r));
    glm_engine_set_mark_hook(pico_engine(p, 0), on_mark, &picks);
    pico_run(p, ops, 2 * n);
    glm_engine_set_mark_hook(pico_engine(p, 0), NULL, NULL);
    struct glm_cost_context at = {.R = n * rows,
                                  .O = n * rows,
                                  .C = context,
                                  .S = n,
                                  .T = 1,
                                  .U = (double)picks.n_distinct / picks.n_layers};
    for (uint32_t r = 0; r < world; r++) {
        struct glm_price want = price(pico_plan(p, r), &at);
        after = glm_engine_stats(pico_engine(p, r));
        assert_int_equal(after.weight_bytes - before[r].weight_bytes, (uint64_t)want.weight_bytes);
        assert_int_equal(after.state_bytes - before[r].state_bytes, (uint64_t)want.state_bytes);
        assert_int_equal(after.kernel_launches - before[r].kernel_launches, want.n_kernels);
    }
    for (uint32_t s = 0; s < n; s++)
        pico_finish(p, s);
    free(ids);
}

static void counted_bytes_are_the_price(const char *checkpoint, uint32_t world)
{
    static const uint32_t streams[] = {1, 3}, rows[] = {1, VERIFY}, contexts[] = {5, 300, 1100};
    struct pico *p = pico_open(
        &(struct pico_options){.checkpoint = checkpoint, .world = world, .verify_rows = VERIFY});
    for (size_t s = 0; s < 2; s++)
        for (size_t r = 0; r < 2; r++)
            for (size_t c = 0; c < (world > 1 ? 2 : 3); c++)
                check_round(p, world, streams[s], rows[r], contexts[c]);
    check_round(p, world, MAX_STREAMS, VERIFY, contexts[0]);
    pico_close(p);
}

static void counted_bytes_of_exl3_are_the_price(void **state)
{
    (void)state;
    counted_bytes_are_the_price("clusters/demo/exl3", 1);
}

static void counted_bytes_of_each_of_two_ranks_are_the_price(void **state)
{
    (void)state;
    counted_bytes_are_the_price("clusters/demo/exl3", 2);
}

static void counted_bytes_of_three_uneven_ranks_are_the_price(void **state)
{
    (void)state;
    counted_bytes_are_the_price("clusters/demo/exl3", 3);
}

static void counted_bytes_of_bf16_are_the_price(void **state)
{
    (void)state;
    const char *folder = getenv("GLM_PICO_BF16");
    if (!folder) {
        print_message("skipped: GLM_PICO_BF16 is unset\n");
        skip();
    }
    counted_bytes_are_the_price(folder, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counted_bytes_of_exl3_are_the_price),
        cmocka_unit_test(counted_bytes_of_each_of_two_ranks_are_the_price),
        cmocka_unit_test(counted_bytes_of_three_uneven_ranks_are_the_price),
        cmocka_unit_test(counted_bytes_of_bf16_are_the_price),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
