/* SPDX-License-Identifier: Apache-2.0 */
/* Requests over one engine, on rank 0: admission in arrival order (what does not fit waits at the
 * head of the queue), prompt slices between decode rounds, one round for all decoding streams,
 * end ids, token limits, cancellation. One worker thread owns the engine; HTTP threads submit and
 * read from a per-request mailbox. Ids in, ids out: no text here. */
#ifndef GLM_RUNTIME_SCHEDULER_H
#define GLM_RUNTIME_SCHEDULER_H

#include "runtime/engine.h"
#include "runtime/latency.h"

struct glm_scheduler;
struct glm_request; /* counted reference */

enum glm_finish {
    GLM_FINISH_NONE,
    GLM_FINISH_END_ID,
    GLM_FINISH_LENGTH,
    GLM_FINISH_STOPPED,
    GLM_FINISH_CANCELED,
    GLM_FINISH_FAILED
};

struct glm_request_params {
    const int32_t *ids; /* prompt, borrowed for the call; 1..window-1 */
    uint32_t n_ids;
    uint32_t max_tokens; /* prompt + max_tokens <= window: checked by the caller */
    uint32_t min_tokens;
    bool ignore_end; /* end ids do not finish and stay in the reply */
    uint64_t seed;
    float temperature, top_p, min_p;
    int32_t top_k;
    /* Called by the worker, with its lock held, when something new is in the mailbox: must not
     * block and must not call into the scheduler. Never called again after glm_request_release. */
    void (*notify)(void *context);
    void *context;
};

enum glm_status glm_scheduler_new(struct glm_engine *e, const struct glm_plan *plan,
                                  struct glm_scheduler **out, struct glm_error *err);
/* Ends every request with GLM_FINISH_FAILED ("the server is stopping"), tells the other ranks to
 * stop and joins the worker. Requests stay readable until released; submit refuses. Called once
 * from the owner's thread before readers are stopped. */
void glm_scheduler_stop(struct glm_scheduler *s);
/* Stops if need be; every request must have been released. */
void glm_scheduler_free(struct glm_scheduler *s);

/* GLM_EINVAL when it can never fit; GLM_EPEER after a rank was lost. */
enum glm_status glm_scheduler_submit(struct glm_scheduler *s, const struct glm_request_params *p,
                                     struct glm_request **out, struct glm_error *err);
/* Any thread. Takes ids that arrived since the last call (at most max). *finish is set once all
 * were taken and the reply is over. The end id that finished a reply is the last id. */
uint32_t glm_request_take(struct glm_request *r, int32_t *ids, uint32_t max,
                          enum glm_finish *finish, struct glm_error *err);
/* Ends the reply after the current round: the caller found a stop string. */
void glm_request_stop(struct glm_request *r);
/* The client left. */
void glm_request_cancel(struct glm_request *r);
void glm_request_release(struct glm_request *r);
/* Seconds on the monotonic clock: arrival, admitted, first token, last token; 0 = not yet. */
struct glm_request_times {
    double arrived, admitted, first, last;
};
struct glm_request_times glm_request_times(const struct glm_request *r);

/* A consistent snapshot for /health, /metrics and status; never waits for the engine. */
struct glm_scheduler_stats {
    uint32_t running, waiting, filling, decoding, max_streams;
    uint64_t requests_total, prompt_tokens_total, completion_tokens_total, rounds_total;
    uint64_t canceled_total, failed_total;
    uint64_t pool_tokens, pool_free_tokens;
    double prefill_seconds_total, decode_seconds_total;
    double step_age_s; /* age of the round that runs now, 0 when idle */
    bool broken;       /* a rank was lost or an engine fault: nothing is served any more */
    struct glm_latency_histogram latency[GLM_N_LATENCIES];
};
struct glm_scheduler_stats glm_scheduler_stats(struct glm_scheduler *s);

#endif
