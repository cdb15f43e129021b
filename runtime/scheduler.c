/* SPDX-License-Identifier: Apache-2.0 */
/* The worker that turns requests into operation lists, one list a round: finished streams out,
 * waiting requests in (in arrival order), one prompt slice of the oldest filling stream, one decode
 * step of all decoding streams. Owns requests and their mailboxes; ids only, text is http's.
 * Execution is engine.h's. Lock order: `lock` first, then what a notify callback takes. */
#include "runtime/scheduler.h"

#include "spec/base/log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum phase { PHASE_QUEUED, PHASE_FILLING, PHASE_DECODING, PHASE_OVER };

struct glm_request {
    struct glm_scheduler *scheduler;
    struct glm_request *next; /* in the queue */
    unsigned n_references;
    enum phase phase;
    enum glm_finish finish;
    struct glm_error error;
    bool stop_asked, cancel_asked;

    int32_t *ids; /* prompt, then the reply: what a replay would need */
    uint32_t n_prompt, n_reply, max_tokens, min_tokens;
    uint32_t n_filled, n_taken;
    bool ignore_end;
    uint32_t stream;
    struct glm_draw draw; /* position is set a round */
    uint64_t order;       /* of arrival */
    struct glm_request_times times;
    void (*notify)(void *context);
    void *context;
};

struct glm_scheduler {
    struct glm_engine *engine;
    const struct glm_plan *plan;
    pthread_t worker;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stopping;

    struct glm_request *first_queued, *last_queued;
    struct glm_request *streams[GLM_ROUND_STREAMS];
    bool finish_due[GLM_ROUND_STREAMS]; /* the engine still holds a stream whose request is over */
    struct glm_op ops[GLM_MAX_OPS];
    uint32_t n_ops;
    struct glm_draw draws[GLM_ROUND_STREAMS + 1];
    struct glm_request *outs[GLM_ROUND_STREAMS + 1]; /* whose logits row each result is */
    uint32_t n_outs;
    uint32_t filled; /* rows of this round's prompt slice */
    uint32_t decoded;

    struct glm_scheduler_stats stats;
    double step_began;
    uint64_t n_arrived;
    struct glm_error broken;
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void drop_reference(struct glm_request *r)
{
    if (--r->n_references > 0)
        return;
    free(r->ids);
    free(r);
}

/* Under the lock, so that release can cut the reader off: its callback takes no lock of ours. */
static void notify(struct glm_request *r)
{
    if (r->notify != NULL)
        r->notify(r->context);
}

static void over(struct glm_scheduler *s, struct glm_request *r, enum glm_finish finish)
{
    r->phase = PHASE_OVER;
    r->finish = finish;
    if (finish == GLM_FINISH_CANCELED)
        s->stats.canceled_total++;
    if (finish == GLM_FINISH_FAILED)
        s->stats.failed_total++;
    if (finish == GLM_FINISH_CANCELED || finish == GLM_FINISH_FAILED || r->times.first == 0)
        return;
    const struct glm_request_times *t = &r->times;
    glm_latency_observe(s->stats.latency, GLM_LATENCY_TOTAL, t->last - t->arrived);
    glm_latency_observe(s->stats.latency, GLM_LATENCY_DECODE, t->last - t->first);
    glm_latency_observe(s->stats.latency, GLM_LATENCY_INFERENCE, t->last - t->admitted);
}

static bool is_end_id(const struct glm_plan *plan, int32_t id)
{
    for (uint32_t i = 0; i < plan->n_end_ids; i++)
        if ((int32_t)plan->end_ids[i] == id)
            return true;
    return false;
}

/* ---- building a list ---- */

static struct glm_op *push(struct glm_scheduler *s, enum glm_op_kind kind, uint32_t stream)
{
    GLM_ASSERT(s->n_ops < GLM_MAX_OPS);
    struct glm_op *op = &s->ops[s->n_ops++];
    *op = (struct glm_op){.kind = kind, .stream = stream};
    return op;
}

static const struct glm_draw *push_draw(struct glm_scheduler *s, struct glm_request *r)
{
    struct glm_draw *draw = &s->draws[s->n_outs];
    *draw = r->draw;
    draw->position = (int32_t)(r->n_prompt + r->n_reply);
    draw->flags = r->n_reply < r->min_tokens ? GLM_DRAW_NO_END : 0;
    s->outs[s->n_outs++] = r;
    return draw;
}

static void push_finishes(struct glm_scheduler *s)
{
    for (uint32_t i = 0; i < s->plan->limits.n_streams; i++) {
        struct glm_request *r = s->streams[i];
        if (r != NULL && (r->cancel_asked || r->stop_asked)) {
            over(s, r, r->stop_asked ? GLM_FINISH_STOPPED : GLM_FINISH_CANCELED);
            notify(r);
            s->streams[i] = NULL;
            s->finish_due[i] = true;
            drop_reference(r);
        }
        if (s->finish_due[i])
            push(s, GLM_OP_FINISH, i);
    }
}

static uint32_t free_stream(const struct glm_scheduler *s)
{
    uint32_t i = 0;
    while (i < s->plan->limits.n_streams && (s->streams[i] != NULL || s->finish_due[i]))
        i++;
    return i;
}

/* Only the head of the queue is asked: nobody overtakes it. One a list,
 * because the pool's answer counts what the list has not claimed yet. */
static void push_admission(struct glm_scheduler *s)
{
    struct glm_request *r = s->first_queued;
    uint32_t stream = free_stream(s);
    if (r == NULL || stream == s->plan->limits.n_streams)
        return;
    uint32_t room = r->n_prompt + r->max_tokens;
    if (!glm_engine_fits(s->engine, room))
        return;
    s->first_queued = r->next;
    if (s->first_queued == NULL)
        s->last_queued = NULL;
    r->next = NULL;
    r->phase = PHASE_FILLING;
    r->stream = stream;
    r->times.admitted = now_s();
    glm_latency_observe(s->stats.latency, GLM_LATENCY_QUEUE, r->times.admitted - r->times.arrived);
    s->streams[stream] = r;
    push(s, GLM_OP_ADMIT, stream)->n_tokens = room;
}

static void push_fill(struct glm_scheduler *s)
{
    struct glm_request *oldest = NULL;
    for (uint32_t i = 0; i < s->plan->limits.n_streams; i++) {
        struct glm_request *r = s->streams[i];
        if (r != NULL && r->phase == PHASE_FILLING && (oldest == NULL || r->order < oldest->order))
            oldest = r;
    }
    s->filled = 0;
    if (oldest == NULL)
        return;
    uint32_t left = oldest->n_prompt - oldest->n_filled;
    uint32_t n = left < s->plan->limits.prefill_rows ? left : s->plan->limits.prefill_rows;
    struct glm_op *op = push(s, GLM_OP_FILL, oldest->stream);
    op->tokens = oldest->ids + oldest->n_filled;
    op->n = n;
    op->out_from = n;
    if (n == left) {
        op->out_from = n - 1;
        op->draws = push_draw(s, oldest);
    }
    oldest->n_filled += n;
    s->filled = n;
}

static void push_decodes(struct glm_scheduler *s)
{
    s->decoded = 0;
    for (uint32_t i = 0; i < s->plan->limits.n_streams; i++) {
        struct glm_request *r = s->streams[i];
        if (r == NULL || r->phase != PHASE_DECODING)
            continue;
        struct glm_op *op = push(s, GLM_OP_DECODE, i);
        op->tokens = r->ids + r->n_prompt + r->n_reply - 1;
        op->n = 1;
        op->draws = push_draw(s, r);
        s->decoded++;
    }
    for (uint32_t i = 0; i < s->plan->limits.n_streams; i++)
        if (s->streams[i] != NULL && s->streams[i]->phase == PHASE_DECODING)
            push(s, GLM_OP_COMMIT, i)->n = 1;
}

static void build_list(struct glm_scheduler *s)
{
    s->n_ops = 0;
    s->n_outs = 0;
    push_finishes(s);
    push_admission(s);
    push_fill(s);
    push_decodes(s);
}

/* ---- taking results ---- */

static void take_token(struct glm_scheduler *s, struct glm_request *r, int32_t id)
{
    r->ids[r->n_prompt + r->n_reply++] = id;
    double before = r->times.last;
    r->times.last = now_s();
    if (r->phase == PHASE_FILLING) {
        r->phase = PHASE_DECODING;
        r->times.first = r->times.last;
        glm_latency_observe(s->stats.latency, GLM_LATENCY_FIRST, r->times.first - r->times.arrived);
        glm_latency_observe(s->stats.latency, GLM_LATENCY_PREFILL,
                            r->times.first - r->times.admitted);
        s->stats.prompt_tokens_total += r->n_prompt;
    } else {
        glm_latency_observe(s->stats.latency, GLM_LATENCY_NEXT, r->times.last - before);
    }
    s->stats.completion_tokens_total++;
    if (is_end_id(s->plan, id) && !r->ignore_end)
        over(s, r, GLM_FINISH_END_ID);
    else if (r->n_reply == r->max_tokens)
        over(s, r, GLM_FINISH_LENGTH);
    notify(r);
}

static void take_results(struct glm_scheduler *s, const struct glm_round_result *result,
                         double seconds)
{
    for (uint32_t i = 0; i < s->plan->limits.n_streams; i++)
        s->finish_due[i] = false;
    for (uint32_t i = 0; i < s->n_outs; i++)
        take_token(s, s->outs[i], result->tokens[i]);
    s->stats.rounds_total++;
    if (s->filled > 0 && s->decoded == 0)
        s->stats.prefill_seconds_total += seconds;
    else
        s->stats.decode_seconds_total += seconds;
    s->stats.pool_free_tokens = glm_engine_pool_free_tokens(s->engine);
}

/* Retires the streams whose requests take_results ended. */
static void retire(struct glm_scheduler *s)
{
    for (uint32_t i = 0; i < s->n_outs; i++) {
        struct glm_request *r = s->outs[i];
        if (r->phase != PHASE_OVER)
            continue;
        s->streams[r->stream] = NULL;
        s->finish_due[r->stream] = true;
        drop_reference(r);
    }
}

static void fail_request(struct glm_scheduler *s, struct glm_request *r,
                         const struct glm_error *error)
{
    r->error = *error;
    over(s, r, GLM_FINISH_FAILED);
    notify(r);
    drop_reference(r);
}

/* Ends every request: the engine is lost or the server stops. */
static void fail_all(struct glm_scheduler *s, const struct glm_error *error)
{
    for (uint32_t i = 0; i < s->plan->limits.n_streams; i++) {
        if (s->streams[i] != NULL)
            fail_request(s, s->streams[i], error);
        s->streams[i] = NULL;
    }
    while (s->first_queued != NULL) {
        struct glm_request *r = s->first_queued;
        s->first_queued = r->next;
        fail_request(s, r, error);
    }
    s->last_queued = NULL;
}

static void break_down(struct glm_scheduler *s, const struct glm_error *error)
{
    glm_log(GLM_LOG_ERROR, "engine failed: %s", error->message);
    pthread_mutex_lock(&s->lock);
    s->broken = *error;
    s->stats.broken = true;
    s->step_began = 0;
    fail_all(s, error);
    pthread_mutex_unlock(&s->lock);
}

static void *work(void *argument)
{
    struct glm_scheduler *s = argument;
    struct glm_error error = {0};
    for (;;) {
        pthread_mutex_lock(&s->lock);
        build_list(s);
        while (s->n_ops == 0 && !s->stopping) {
            pthread_cond_wait(&s->wake, &s->lock);
            build_list(s);
        }
        bool stopping = s->stopping;
        const double began = now_s();
        s->step_began = stopping ? 0 : began;
        pthread_mutex_unlock(&s->lock);
        if (stopping)
            break;

        struct glm_round_result result;
        error = (struct glm_error){0};
        enum glm_status status = glm_engine_run(s->engine, s->ops, s->n_ops, &result, &error);
        if (status != GLM_OK) {
            break_down(s, &error);
            return NULL;
        }
        pthread_mutex_lock(&s->lock);
        take_results(s, &result, now_s() - began);
        s->step_began = 0;
        retire(s);
        pthread_mutex_unlock(&s->lock);
    }
    error = (struct glm_error){0};
    glm_fail(&error, GLM_ECANCELED, "the server is stopping");
    pthread_mutex_lock(&s->lock);
    fail_all(s, &error);
    pthread_mutex_unlock(&s->lock);
    struct glm_op stop = {.kind = GLM_OP_STOP};
    struct glm_round_result result;
    error = (struct glm_error){0};
    if (glm_engine_run(s->engine, &stop, 1, &result, &error) != GLM_OK)
        glm_log(GLM_LOG_WARN, "cannot tell the other ranks to stop: %s", error.message);
    return NULL;
}

/* ---- the public side ---- */

enum glm_status glm_scheduler_new(struct glm_engine *e, const struct glm_plan *plan,
                                  struct glm_scheduler **out, struct glm_error *err)
{
    struct glm_scheduler *s = calloc(1, sizeof *s);
    if (s == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot start the scheduler: out of memory");
    GLM_ASSERT(plan->limits.n_streams <= GLM_ROUND_STREAMS);
    s->engine = e;
    s->plan = plan;
    s->stats.max_streams = plan->limits.n_streams;
    s->stats.pool_tokens = glm_engine_pool_tokens(e);
    s->stats.pool_free_tokens = glm_engine_pool_free_tokens(e);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    int rc = pthread_create(&s->worker, NULL, work, s);
    if (rc != 0) {
        enum glm_status status =
            glm_fail(err, GLM_EIO, "cannot start the scheduler's thread: %s", strerror(rc));
        pthread_cond_destroy(&s->wake);
        pthread_mutex_destroy(&s->lock);
        free(s);
        return status;
    }
    *out = s;
    return GLM_OK;
}

void glm_scheduler_stop(struct glm_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    bool first = !s->stopping;
    s->stopping = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    if (first)
        pthread_join(s->worker, NULL);
}

void glm_scheduler_free(struct glm_scheduler *s)
{
    if (s == NULL)
        return;
    glm_scheduler_stop(s);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static enum glm_status check_params(const struct glm_scheduler *s,
                                    const struct glm_request_params *p, struct glm_error *err)
{
    const struct glm_plan_limits *limits = &s->plan->limits;
    uint64_t room = (uint64_t)p->n_ids + p->max_tokens;
    if (p->n_ids == 0)
        return glm_fail(err, GLM_EINVAL, "the prompt is empty: at least one token is needed");
    if (p->max_tokens == 0)
        return glm_fail(err, GLM_EINVAL, "'max_tokens' is 0: at least 1 is needed");
    if (room > limits->window_tokens)
        return glm_fail(err, GLM_EINVAL,
                        "prompt of %u and reply of %u tokens exceed the window of %u tokens",
                        p->n_ids, p->max_tokens, limits->window_tokens);
    if (room > limits->pool_tokens)
        return glm_fail(err, GLM_EINVAL,
                        "prompt of %u and reply of %u tokens exceed the pool of %llu tokens",
                        p->n_ids, p->max_tokens, (unsigned long long)limits->pool_tokens);
    for (uint32_t i = 0; i < p->n_ids; i++)
        if (p->ids[i] < 0 || (uint32_t)p->ids[i] >= s->plan->d_vocab)
            return glm_fail(err, GLM_EINVAL, "token id %d at %u is outside the vocabulary of %u",
                            p->ids[i], i, s->plan->d_vocab);
    return GLM_OK;
}

static struct glm_request *new_request(struct glm_scheduler *s, const struct glm_request_params *p)
{
    struct glm_request *r = calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    r->ids = malloc(((size_t)p->n_ids + p->max_tokens) * sizeof r->ids[0]);
    if (r->ids == NULL) {
        free(r);
        return NULL;
    }
    memcpy(r->ids, p->ids, p->n_ids * sizeof r->ids[0]);
    r->scheduler = s;
    r->n_references = 2;
    r->n_prompt = p->n_ids;
    r->max_tokens = p->max_tokens;
    r->min_tokens = p->min_tokens;
    r->ignore_end = p->ignore_end;
    r->draw = (struct glm_draw){
        .seed = p->seed,
        .top_k = p->top_k,
        .temperature = p->temperature,
        .top_p = p->top_p,
        .min_p = p->min_p,
    };
    r->notify = p->notify;
    r->context = p->context;
    r->times.arrived = now_s();
    return r;
}

enum glm_status glm_scheduler_submit(struct glm_scheduler *s, const struct glm_request_params *p,
                                     struct glm_request **out, struct glm_error *err)
{
    enum glm_status status = check_params(s, p, err);
    if (status != GLM_OK)
        return status;
    struct glm_request *r = new_request(s, p);
    if (r == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot take the request: out of memory");
    pthread_mutex_lock(&s->lock);
    if (s->stats.broken || s->stopping) {
        status = s->stats.broken ? glm_fail(err, GLM_EPEER, "%s", s->broken.message)
                                 : glm_fail(err, GLM_ECANCELED, "the server is stopping");
        pthread_mutex_unlock(&s->lock);
        free(r->ids);
        free(r);
        return status;
    }
    r->order = s->n_arrived++;
    s->stats.requests_total++;
    if (s->last_queued == NULL)
        s->first_queued = r;
    else
        s->last_queued->next = r;
    s->last_queued = r;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    *out = r;
    return GLM_OK;
}

uint32_t glm_request_take(struct glm_request *r, int32_t *ids, uint32_t max,
                          enum glm_finish *finish, struct glm_error *err)
{
    pthread_mutex_lock(&r->scheduler->lock);
    uint32_t n = r->n_reply - r->n_taken;
    if (n > max)
        n = max;
    memcpy(ids, r->ids + r->n_prompt + r->n_taken, n * sizeof ids[0]);
    r->n_taken += n;
    *finish = r->n_taken == r->n_reply ? r->finish : GLM_FINISH_NONE;
    if (*finish == GLM_FINISH_FAILED)
        glm_fail(err, r->error.status, "%s", r->error.message);
    pthread_mutex_unlock(&r->scheduler->lock);
    return n;
}

void glm_request_stop(struct glm_request *r)
{
    pthread_mutex_lock(&r->scheduler->lock);
    r->stop_asked = true;
    pthread_cond_signal(&r->scheduler->wake);
    pthread_mutex_unlock(&r->scheduler->lock);
}

static void unqueue(struct glm_scheduler *s, struct glm_request *r)
{
    struct glm_request *before = NULL;
    for (struct glm_request *q = s->first_queued; q != NULL && q != r; q = q->next)
        before = q;
    if (before == NULL)
        s->first_queued = r->next;
    else
        before->next = r->next;
    if (s->last_queued == r)
        s->last_queued = before;
    r->next = NULL;
}

void glm_request_cancel(struct glm_request *r)
{
    struct glm_scheduler *s = r->scheduler;
    pthread_mutex_lock(&s->lock);
    if (r->phase == PHASE_QUEUED) {
        unqueue(s, r);
        over(s, r, GLM_FINISH_CANCELED);
        notify(r);
        drop_reference(r);
    } else if (r->phase != PHASE_OVER) {
        r->cancel_asked = true;
        pthread_cond_signal(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
}

void glm_request_release(struct glm_request *r)
{
    if (r == NULL)
        return;
    pthread_mutex_t *lock = &r->scheduler->lock;
    pthread_mutex_lock(lock);
    r->notify = NULL;
    drop_reference(r);
    pthread_mutex_unlock(lock);
}

struct glm_request_times glm_request_times(const struct glm_request *r)
{
    pthread_mutex_lock(&r->scheduler->lock);
    struct glm_request_times times = r->times;
    pthread_mutex_unlock(&r->scheduler->lock);
    return times;
}

struct glm_scheduler_stats glm_scheduler_stats(struct glm_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    struct glm_scheduler_stats stats = s->stats;
    for (uint32_t i = 0; i < s->plan->limits.n_streams; i++) {
        if (s->streams[i] == NULL)
            continue;
        stats.running++;
        stats.filling += s->streams[i]->phase == PHASE_FILLING;
        stats.decoding += s->streams[i]->phase == PHASE_DECODING;
    }
    for (const struct glm_request *r = s->first_queued; r != NULL; r = r->next)
        stats.waiting++;
    stats.step_age_s = s->step_began > 0 ? now_s() - s->step_began : 0;
    pthread_mutex_unlock(&s->lock);
    return stats;
}
