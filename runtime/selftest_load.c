/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of a self-test. Owns which operations come in which order; what they are compared with
 * is selftest.c's. */
#include "runtime/selftest.h"

#include <stdlib.h>

enum { STREAMS = 3, VERIFY = 4, REPLY = 64 };

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

/* Greedy, warm, and warm within a nucleus, by turns. */
static struct glm_draw draw_of(uint32_t turn)
{
    return (struct glm_draw){.seed = 7 + turn,
                             .top_p = turn % 3 == 2 ? 0.9f : 1.0f,
                             .temperature = turn % 3 == 0 ? 0.0f : 1.0f};
}

/* Tokens that a stream claims: its prompt and the rounds. */
static uint32_t room_of(const struct glm_plan *plan, uint32_t n)
{
    uint32_t window = plan->limits.window_tokens;
    return n + REPLY < window ? n + REPLY : window;
}

/* Rows of a stream's prompt: at most half of its window. */
static uint32_t prompt_of(const struct glm_plan *plan, const struct glm_selftest_load *load,
                          uint32_t stream)
{
    static const uint32_t divisors[STREAMS] = {1, 6, 20};
    uint32_t n = load->prompt_rows / divisors[stream] + 1, most = plan->limits.window_tokens / 2;
    return n < most ? n : most;
}

/* As many streams as the pool holds, each with an extent to spare for rows that lie offset. */
static uint32_t count_streams(const struct glm_plan *plan, const struct glm_selftest_load *load)
{
    uint64_t n_free = plan->limits.pool_tokens / GLM_EXTENT_ROWS;
    uint32_t n = 0;
    while (n < STREAMS && n < plan->limits.n_streams) {
        uint64_t wants = room_of(plan, prompt_of(plan, load, n)) / GLM_EXTENT_ROWS + 1;
        if (n > 0 && wants > n_free)
            break;
        n_free -= wants < n_free ? wants : n_free;
        n++;
    }
    return n;
}

static enum glm_status fill(struct load *l, uint32_t stream, int32_t *ids, uint32_t n)
{
    struct glm_op admit = {.kind = GLM_OP_ADMIT, .stream = stream, .n_tokens = room_of(l->plan, n)};
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
            draws[s][i] = draw_of(round + s);
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
    const struct glm_plan_limits *limits = &plan->limits;
    const uint32_t n_streams = count_streams(plan, load);
    struct load l = {.plan = plan, .run = run, .context = context, .err = err, .seed = 1};
    l.n_streams = n_streams;
    l.n_verify = limits->verify_rows < VERIFY ? limits->verify_rows : VERIFY;
    int32_t *ids = calloc(limits->prefill_rows, sizeof *ids);
    if (!ids)
        return glm_fail(err, GLM_ENOMEM, "cannot make a prompt: out of memory");
    enum glm_status st = GLM_OK;
    for (uint32_t s = 0; st == GLM_OK && s < n_streams; s++)
        st = fill(&l, s, ids, prompt_of(plan, load, s));
    for (uint32_t round = 0; st == GLM_OK && round < load->n_rounds; round++)
        st = round_of_all(&l, round);
    free(ids);
    return st;
}
