/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of a self-test. Owns which operations come in which order; what they are compared with
 * is selftest.c's. */
#include "runtime/selftest.h"

#include <stdlib.h>

enum { STREAMS = 3, VERIFY = 4 };

struct load {
    const struct glm_plan *plan;
    enum glm_status (*run)(void *context, const struct glm_op *ops, uint32_t n_ops,
                           struct glm_round_result *result, struct glm_error *err);
    void *context;
    struct glm_error *err;
    uint32_t seed, n_streams, n_verify;
    int32_t next[STREAMS]; /* token that each stream goes on with */
};

/* A linear congruential generator's upper bits (Numerical Recipes, 2nd edition, 7.1). */
static int32_t random_token(struct load *l)
{
    l->seed = l->seed * 1664525u + 1013904223u;
    return (int32_t)((l->seed >> 8) % l->plan->n_valid_ids);
}

/* Greedy, warm, and warm within a nucleus. */
static struct glm_draw draw_of(uint32_t stream)
{
    return (struct glm_draw){.seed = 7 + stream,
                             .top_p = stream == 2 ? 0.9f : 1.0f,
                             .temperature = stream == 0 ? 0.0f : 1.0f};
}

static enum glm_status fill(struct load *l, uint32_t stream, int32_t *ids, uint32_t n)
{
    struct glm_op admit = {.kind = GLM_OP_ADMIT, .stream = stream, .n_tokens = n + 64};
    struct glm_draw draw = draw_of(stream);
    enum glm_status st = l->run(l->context, &admit, 1, NULL, l->err);
    for (uint32_t at = 0, rows = 0; st == GLM_OK && at < n; at += rows) {
        rows = n - at < l->plan->limits.prefill_rows ? n - at : l->plan->limits.prefill_rows;
        bool last = at + rows == n;
        for (uint32_t i = 0; i < rows; i++)
            ids[i] = random_token(l);
        struct glm_op op = {.kind = GLM_OP_FILL,
                            .stream = stream,
                            .n = rows,
                            .out_from = last ? rows - 1 : rows,
                            .tokens = ids,
                            .draws = last ? &draw : NULL};
        struct glm_round_result result;
        st = l->run(l->context, &op, 1, &result, l->err);
        if (st == GLM_OK && last)
            l->next[stream] = result.tokens[0];
    }
    return st;
}

static enum glm_status round_of_all(struct load *l, uint32_t round)
{
    struct glm_op ops[STREAMS];
    int32_t tokens[STREAMS][VERIFY];
    struct glm_draw draws[STREAMS][VERIFY];
    struct glm_round_result result;
    for (uint32_t s = 0; s < l->n_streams; s++) {
        uint32_t n = 1 + (round + s) % l->n_verify;
        for (uint32_t i = 0; i < n; i++) {
            tokens[s][i] = i == 0 && l->next[s] >= 0 ? l->next[s] : random_token(l);
            draws[s][i] = draw_of(s);
        }
        ops[s] = (struct glm_op){
            .kind = GLM_OP_DECODE, .stream = s, .n = n, .tokens = tokens[s], .draws = draws[s]};
    }
    enum glm_status st = l->run(l->context, ops, l->n_streams, &result, l->err);
    if (st != GLM_OK)
        return st;
    for (uint32_t s = 0, row = 0; s < l->n_streams; s++) {
        uint32_t n = ops[s].n, n_kept = 1 + round % n;
        l->next[s] = result.tokens[row + n_kept - 1];
        row += n;
        ops[s] = (struct glm_op){.kind = GLM_OP_COMMIT, .stream = s, .n = n_kept};
    }
    return l->run(l->context, ops, l->n_streams, NULL, l->err);
}

enum glm_status glm_selftest_run(const struct glm_plan *plan, const struct glm_selftest_load *load,
                                 enum glm_status (*run)(void *context, const struct glm_op *ops,
                                                        uint32_t n_ops,
                                                        struct glm_round_result *result,
                                                        struct glm_error *err),
                                 void *context, struct glm_error *err)
{
    static const uint32_t divisors[STREAMS] = {1, 6, 20};
    const struct glm_plan_limits *limits = &plan->limits;
    const uint32_t n_streams = limits->n_streams < STREAMS ? limits->n_streams : STREAMS;
    struct load l = {.plan = plan, .run = run, .context = context, .err = err, .seed = 1};
    l.n_streams = n_streams;
    l.n_verify = limits->verify_rows < VERIFY ? limits->verify_rows : VERIFY;
    int32_t *ids = calloc(limits->prefill_rows, sizeof *ids);
    if (!ids)
        return glm_fail(err, GLM_ENOMEM, "cannot make a prompt: out of memory");
    enum glm_status st = GLM_OK;
    for (uint32_t s = 0; st == GLM_OK && s < n_streams; s++)
        st = fill(&l, s, ids, load->prompt_rows / divisors[s] + 1);
    for (uint32_t round = 0; st == GLM_OK && round < load->n_rounds; round++)
        st = round_of_all(&l, round);
    free(ids);
    return st;
}
