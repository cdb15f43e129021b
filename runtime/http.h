/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP server of rank 0: routes, framing, keys, error objects (docs/api.md).
 * It opens its port before the lane is live and answers 503 until a lane is attached, so that a
 * port that is taken is found before any weight is read and a restart keeps the address.
 * Bound to the launch document's address only. */
#ifndef GLM_RUNTIME_HTTP_H
#define GLM_RUNTIME_HTTP_H

#include "codegen/launch.h"
#include "runtime/scheduler.h"
#include "runtime/tokenizer.h"

struct glm_http;

/* Binds launch->listen_host:listen_port (0: any free port; *port is the one bound) and reads the
 * API key file. launch and plan are borrowed until _free.
 * Errors: GLM_EBUSY when the port is taken, GLM_EIO. */
enum glm_status glm_http_start(const struct glm_launch_file *launch, const struct glm_plan *plan,
                               struct glm_http **out, uint16_t *port, struct glm_error *err);
struct glm_http_limits {
    uint32_t keepalive_ms; /* silence of a stream before a comment is written; 0: none ever */
    uint32_t idle_ms;      /* between requests, and for the headers of one */
    uint32_t body_ms;      /* for a body, plus a second for each 64 KiB of it */
    uint32_t stall_s;      /* for a client to take a part of its answer */
    uint64_t held_bytes;   /* bodies and what is read from them, over all requests */
};
/* 15 s, 2 min, 1 min, 2 min; what the plan counts for requests. */
struct glm_http_limits glm_http_default_limits(const struct glm_launch_file *launch,
                                               const struct glm_plan *plan);
/* As glm_http_start, with other limits. */
enum glm_status glm_http_start_with(const struct glm_launch_file *launch,
                                    const struct glm_plan *plan,
                                    const struct glm_http_limits *limits, struct glm_http **out,
                                    uint16_t *port, struct glm_error *err);
/* From now on requests are served by this scheduler and tokenizer, borrowed until _detach. */
void glm_http_attach(struct glm_http *h, struct glm_scheduler *s, const struct glm_tokenizer *t);
/* New requests get 503 with `why` (loading, restarting, stopping). Returns when no request uses
 * the scheduler any more; call glm_scheduler_stop first so that running ones end with their error.
 * A client that has not read its answer after a second is cut. */
void glm_http_detach(struct glm_http *h, const char *why);
/* Detaches if need be; NULL is allowed. */
void glm_http_free(struct glm_http *h);

#endif
