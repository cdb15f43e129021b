/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that looks whether all ranks are still there while a GPU's stream may wait for them in
 * exchanges that it runs itself: the host waits in none of those and would not see one go. It
 * sleeps in between, and knows neither GPUs nor programs.
 *
 * Owner: the round thread. Between begin and end the collective is the thread's. */
#ifndef GLM_RUNTIME_WATCH_H
#define GLM_RUNTIME_WATCH_H

#include "runtime/collective.h"

#include <stdbool.h>

/* give_up: called once, on the thread of the watch, when a rank is lost, free at the latest: ends
 * the stream's wait. It may itself wait until the graphs are freed. look: more that can go wrong,
 * or NULL. */
struct glm_watch_ops {
    void (*give_up)(void *context);
    enum glm_status (*look)(void *context, struct glm_error *err);
    void *context;
};

struct glm_watch;

/* collective: borrowed. GLM_ENOMEM. */
enum glm_status glm_watch_new(struct glm_collective *collective, struct glm_watch_ops ops,
                              struct glm_watch **out, struct glm_error *err);
void glm_watch_free(struct glm_watch *w); /* NULL: nothing */

/* One more exchange of the stream, of that many bytes of this rank, before begin. */
void glm_watch_note(struct glm_watch *w, enum glm_collective_kind kind, size_t bytes);
void glm_watch_begin(struct glm_watch *w);
/* The stream is through, or it failed. GLM_EPEER once a rank is lost: results are lost too. */
enum glm_status glm_watch_end(struct glm_watch *w, bool failed, struct glm_error *err);
/* Where begin has seen no end: the stream's results are wanted no more. */
void glm_watch_give_up(struct glm_watch *w);

#endif
