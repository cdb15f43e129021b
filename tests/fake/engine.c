/* SPDX-License-Identifier: Apache-2.0 */
/* The books and the rules of engine.h without any computing. A list that breaks a rule is
 * GLM_EINVAL and remembered, so that a test sees it even when the caller hides it. */
#include "tests/fake/engine.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { END_ID = 2019, D_VOCAB = 2048, FIRST_TEXT_ID = 256, N_TEXT_IDS = 1600 };

struct stream {
    bool live, complete; /* complete: its prompt is filled */
    uint32_t n_room, n_context, n_decoded, n_prompt;
    uint64_t prompt_hash;
    bool named; /* its first token is in the counts */
};

struct glm_engine {
    struct glm_plan plan;
    uint32_t end_ids[1];
    uint32_t n_extents;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct stream streams[GLM_ROUND_STREAMS];
    int32_t tokens[GLM_ROUND_STREAMS + 1];
    int32_t *script;
    uint32_t n_script, round_us;
    bool held, waiting;
    int64_t fail_after; /* -1: never */
    struct fake_engine_counts counts;
};

struct glm_engine *fake_engine_new(const struct fake_options *options)
{
    struct glm_engine *e = calloc(1, sizeof *e);
    if (e == NULL)
        abort();
    const uint32_t n_streams = options->n_streams > 0 ? options->n_streams : 4;
    e->n_extents = options->n_extents > 0 ? options->n_extents : n_streams;
    e->end_ids[0] = END_ID;
    e->plan = (struct glm_plan){
        .world = 1,
        .d_vocab = D_VOCAB,
        .end_ids = e->end_ids,
        .n_end_ids = 1,
        .limits = {.n_streams = n_streams,
                   .n_slots = n_streams,
                   .window_tokens = options->window > 0 ? options->window : 512,
                   .pool_tokens = (uint64_t)e->n_extents * GLM_EXTENT_ROWS,
                   .verify_rows = 1,
                   .prefill_rows = options->prefill_rows > 0 ? options->prefill_rows : 128},
    };
    e->fail_after = -1;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    return e;
}

void fake_engine_free(struct glm_engine *e)
{
    if (e == NULL)
        return;
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->lock);
    free(e->script);
    free(e);
}

const struct glm_plan *fake_engine_plan(const struct glm_engine *e)
{
    return &e->plan;
}

void fake_engine_script(struct glm_engine *e, const int32_t *ids, uint32_t n)
{
    pthread_mutex_lock(&e->lock);
    free(e->script);
    e->script = NULL;
    e->n_script = n;
    if (ids != NULL) {
        e->script = calloc(n + 1, sizeof ids[0]);
        if (e->script == NULL)
            abort();
        memcpy(e->script, ids, n * sizeof ids[0]);
    }
    pthread_mutex_unlock(&e->lock);
}

void fake_engine_slow(struct glm_engine *e, uint32_t round_us)
{
    pthread_mutex_lock(&e->lock);
    e->round_us = round_us;
    pthread_mutex_unlock(&e->lock);
}

void fake_engine_hold(struct glm_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->held = true;
    pthread_mutex_unlock(&e->lock);
}

void fake_engine_wait_held(struct glm_engine *e)
{
    pthread_mutex_lock(&e->lock);
    while (!e->waiting)
        pthread_cond_wait(&e->changed, &e->lock);
    pthread_mutex_unlock(&e->lock);
}

void fake_engine_let_go(struct glm_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->held = false;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

void fake_engine_fail_after(struct glm_engine *e, uint32_t n_lists)
{
    pthread_mutex_lock(&e->lock);
    e->fail_after = n_lists;
    pthread_mutex_unlock(&e->lock);
}

struct fake_engine_counts fake_engine_counts(struct glm_engine *e)
{
    pthread_mutex_lock(&e->lock);
    const struct fake_engine_counts counts = e->counts;
    pthread_mutex_unlock(&e->lock);
    return counts;
}

/* ---- tokens ---- */

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 29);
}

/* Ends after 4 to 35 tokens, unless ends are masked. */
static int32_t draw_token(uint64_t prompt_hash, uint64_t seed, uint32_t reply_i, bool no_end)
{
    const uint64_t key = mix(prompt_hash, seed);
    if (!no_end && reply_i >= 4 + key % 32)
        return END_ID;
    return (int32_t)(FIRST_TEXT_ID + mix(key, reply_i) % N_TEXT_IDS);
}

uint32_t fake_engine_reply(const int32_t *prompt, uint32_t n, uint64_t seed, int32_t *ids,
                           uint32_t max)
{
    uint64_t hash = 0;
    uint32_t n_reply = 0;
    for (uint32_t i = 0; i < n; i++)
        hash = mix(hash, (uint64_t)prompt[i] + 1);
    while (n_reply < max) {
        ids[n_reply] = draw_token(hash, seed, n_reply, false);
        if (ids[n_reply++] == END_ID)
            break;
    }
    return n_reply;
}

static int32_t next_token(const struct glm_engine *e, const struct stream *s,
                          const struct glm_draw *draw)
{
    const uint32_t reply_i = (uint32_t)draw->position - s->n_prompt;
    if (e->script != NULL)
        return reply_i < e->n_script ? e->script[reply_i] : END_ID;
    return draw_token(s->prompt_hash, draw->seed, reply_i, (draw->flags & GLM_DRAW_NO_END) != 0);
}

/* ---- lists ---- */

static uint32_t extents_of(uint32_t n_tokens)
{
    return (n_tokens + GLM_EXTENT_ROWS - 1) / GLM_EXTENT_ROWS;
}

static uint32_t free_extents(const struct glm_engine *e)
{
    uint32_t n = e->n_extents;
    for (uint32_t i = 0; i < e->plan.limits.n_streams; i++)
        if (e->streams[i].live)
            n -= extents_of(e->streams[i].n_room);
    return n;
}

static bool check(struct glm_engine *e, bool holds, const char *rule)
{
    if (!holds && !e->counts.broke_rules) {
        e->counts.broke_rules = true;
        snprintf(e->counts.rule, sizeof e->counts.rule, "%s", rule);
    }
    return holds;
}

static bool admit(struct glm_engine *e, const struct glm_op *op)
{
    struct stream *s = &e->streams[op->stream];
    if (!check(e, !s->live, "ADMIT into a live stream") ||
        !check(e, op->n_tokens <= e->plan.limits.window_tokens, "ADMIT over the window") ||
        !check(e, extents_of(op->n_tokens) <= free_extents(e), "ADMIT that does not fit"))
        return false;
    *s = (struct stream){.live = true, .n_room = op->n_tokens};
    e->counts.n_admitted++;
    e->counts.n_live++;
    if (e->counts.n_live > e->counts.most_live)
        e->counts.most_live = e->counts.n_live;
    return true;
}

static bool fill(struct glm_engine *e, const struct glm_op *op, struct glm_round_result *result)
{
    struct stream *s = &e->streams[op->stream];
    if (!check(e, s->live && !s->complete, "FILL of a stream that is not filling") ||
        !check(e, op->n > 0 && op->n <= e->plan.limits.prefill_rows, "FILL of too many rows") ||
        !check(e, s->n_context % GLM_BLOCK_ROWS == 0, "FILL off the grid") ||
        !check(e, s->n_context + op->n <= s->n_room, "FILL over the room"))
        return false;
    if (!s->named && e->counts.n_filled < 256)
        e->counts.first_tokens[e->counts.n_filled++] = (uint32_t)op->tokens[0];
    s->named = true;
    for (uint32_t i = 0; i < op->n; i++)
        s->prompt_hash = mix(s->prompt_hash, (uint64_t)op->tokens[i] + 1);
    s->n_context += op->n;
    if (op->out_from == op->n)
        return check(e, op->n % GLM_BLOCK_ROWS == 0, "FILL that ends off the grid");
    if (!check(e, op->out_from == op->n - 1 && op->draws != NULL, "FILL that wants other rows"))
        return false;
    s->complete = true;
    s->n_prompt = s->n_context;
    if (!check(e, op->draws[0].position == (int32_t)s->n_prompt, "first draw off its position"))
        return false;
    e->tokens[result->n_out++] = next_token(e, s, op->draws);
    return true;
}

static bool decode(struct glm_engine *e, const struct glm_op *op, struct glm_round_result *result)
{
    struct stream *s = &e->streams[op->stream];
    if (!check(e, s->live && s->complete && s->n_decoded == 0, "DECODE of a stream not ready") ||
        !check(e, op->n == 1 && op->draws != NULL, "DECODE of other than one row") ||
        !check(e, s->n_context < s->n_room, "DECODE over the room") ||
        !check(e, op->draws[0].position == (int32_t)s->n_context + 1, "draw off its position"))
        return false;
    s->n_decoded = 1;
    e->counts.n_rows++;
    e->tokens[result->n_out++] = next_token(e, s, op->draws);
    return true;
}

static bool run_op(struct glm_engine *e, const struct glm_op *op, struct glm_round_result *result)
{
    if (op->kind == GLM_OP_STOP) {
        e->counts.n_stops++;
        return true;
    }
    if (!check(e, op->stream < e->plan.limits.n_streams, "a stream that is none"))
        return false;
    struct stream *s = &e->streams[op->stream];
    switch ((int)op->kind) {
    case GLM_OP_ADMIT:
        return admit(e, op);
    case GLM_OP_FILL:
        return fill(e, op, result);
    case GLM_OP_DECODE:
        return decode(e, op, result);
    case GLM_OP_COMMIT:
        if (!check(e, s->live && op->n <= s->n_decoded, "COMMIT of rows not decoded"))
            return false;
        s->n_context += op->n;
        s->n_decoded = 0;
        return true;
    case GLM_OP_FINISH:
        if (!check(e, s->live, "FINISH of a stream that is not live"))
            return false;
        *s = (struct stream){0};
        e->counts.n_finished++;
        e->counts.n_live--;
        return true;
    default:
        return check(e, false, "an operation the scheduler does not use");
    }
}

enum glm_status glm_engine_run(struct glm_engine *e, const struct glm_op *ops, uint32_t n_ops,
                               struct glm_round_result *result, struct glm_error *err)
{
    pthread_mutex_lock(&e->lock);
    const uint32_t round_us = e->round_us;
    e->waiting = e->held;
    pthread_cond_broadcast(&e->changed);
    while (e->held)
        pthread_cond_wait(&e->changed, &e->lock);
    e->waiting = false;
    pthread_mutex_unlock(&e->lock);
    if (round_us > 0)
        usleep(round_us);
    pthread_mutex_lock(&e->lock);
    enum glm_status status = GLM_OK;
    e->counts.n_lists++;
    *result = (struct glm_round_result){.tokens = e->tokens};
    if (e->fail_after == 0)
        status = glm_fail(err, GLM_EPEER, "rank 1 was lost");
    if (e->fail_after > 0)
        e->fail_after--;
    for (uint32_t i = 0; status == GLM_OK && i < n_ops; i++)
        if (!run_op(e, &ops[i], result))
            status = glm_fail(err, GLM_EINVAL, "list breaks a rule: %s", e->counts.rule);
    for (uint32_t i = 0; status == GLM_OK && i < e->plan.limits.n_streams; i++)
        if (!check(e, e->streams[i].n_decoded == 0, "rows left without a COMMIT"))
            status = glm_fail(err, GLM_EINVAL, "list breaks a rule: %s", e->counts.rule);
    pthread_mutex_unlock(&e->lock);
    return status;
}

bool glm_engine_fits(const struct glm_engine *e, uint32_t n_tokens)
{
    return n_tokens <= e->plan.limits.window_tokens && extents_of(n_tokens) <= free_extents(e);
}

uint64_t glm_engine_pool_tokens(const struct glm_engine *e)
{
    return e->plan.limits.pool_tokens;
}

uint64_t glm_engine_pool_free_tokens(const struct glm_engine *e)
{
    return (uint64_t)free_extents(e) * GLM_EXTENT_ROWS;
}
