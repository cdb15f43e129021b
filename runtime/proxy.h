/* SPDX-License-Identifier: Apache-2.0 */
/* A thread of the host that runs exchanges for a GPU's stream, so that a whole program is one graph
 * (design 6). The stream rings when an exchange's bytes lie in page-locked memory and waits; the
 * proxy, told beforehand which exchanges come in which order, runs each over the links and lets the
 * stream go on. It sleeps while nothing is expected, and knows neither GPUs nor programs.
 *
 * Owner: the round thread. While anything is expected, the collective and the buffers of the steps
 * are the proxy's; glm_proxy_wait and glm_proxy_forget give them back. Only new allocates. */
#ifndef GLM_RUNTIME_PROXY_H
#define GLM_RUNTIME_PROXY_H

#include "runtime/collective.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Where stream and proxy meet: page-locked, zero before the first exchange. A graph's values are
 * constants, so the words hold no number of a round but go through four states, each change made by
 * the one side that the state before leaves free to move:
 *   rung done
 *     0    0   the stream computes
 *     1    0   it rang, and waits             (stream)
 *     0    1   exchanged, it may go on        (proxy: rung back to 0, then done)
 *     0    0   it has gone on                 (stream)
 * The stream's next ring follows its own reset of done in the stream's order, and the proxy sets
 * done only after a ring: no done can be that of another exchange, and none can be lost. */
struct glm_proxy_words {
    alignas(64) _Atomic uint32_t rung;
    alignas(64) _Atomic uint32_t done;
};

struct glm_proxy;

/* words: borrowed. capacity: exchanges that may be expected at once. GLM_ENOMEM. */
enum glm_status glm_proxy_new(struct glm_proxy_words *words, uint32_t capacity,
                              struct glm_proxy **out, struct glm_error *err);
/* Forgets what is expected. NULL: nothing. */
void glm_proxy_free(struct glm_proxy *p);

/* How many more exchanges may be expected now. */
uint32_t glm_proxy_room(struct glm_proxy *p);
bool glm_proxy_is_idle(struct glm_proxy *p); /* nothing is expected */
/* The stream will ring for this one after all those expected before it; called before it can. 0
 * bytes: nothing is exchanged, the stream goes on. */
void glm_proxy_expect(struct glm_proxy *p, struct glm_collective_step *step, size_t bytes);
/* Until all that is expected is over; *ns grows by the time that collectives took. Errors: the
 * first of a collective. From it on every exchange is over as soon as the stream rings, with
 * whatever lies in the buffers, and every wait says so: the stream ends, its results are lost. */
enum glm_status glm_proxy_wait(struct glm_proxy *p, uint64_t *ns, struct glm_error *err);
/* The stream failed, and will not ring: nothing is expected any more. */
void glm_proxy_forget(struct glm_proxy *p);

#endif
