/* SPDX-License-Identifier: Apache-2.0 */
/* What a daemon drives, as a table: how a rank's engine is opened and followed and how the API is
 * served on rank 0. serve.c fills it from launch.json, plan, engine, scheduler and HTTP; tests fill
 * it with fakes, so that supervision is shown without a model. */
#ifndef GLM_RUNTIME_SERVE_H
#define GLM_RUNTIME_SERVE_H

#include "runtime/collective.h"
#include "runtime/link.h"
#include "spec/base/buf.h"

#include <stdbool.h>

enum { GLM_URL_BYTES = 256, GLM_DIGEST_CHARS = 64 };

struct glm_open_config {
    struct glm_collective *collective; /* borrowed until close; NULL when world is 1 */
    void (*progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);
    void *progress_context;
};

struct glm_serve_watch {
    uint64_t rounds; /* rounds begun */
    bool busy;       /* one runs now */
    bool broken;     /* a rank was lost or the engine failed: nothing is served any more */
};

/* bind and unbind: the control thread of rank 0, before any rank starts and after all ended, so
 * that a port that is taken is found before a weight is read and a restart keeps the address.
 * Requests get 503 while nothing is started. The rest comes from the worker thread of a rank, in
 * this order: open, then follow (ranks above 0) or start and stop (rank 0), then close. watch and
 * stats come from the control thread between start and stop and never wait for a round. */
struct glm_service {
    void *context;
    /* GLM_EBUSY names a port that is taken. */
    enum glm_status (*bind)(void *context, char url[GLM_URL_BYTES], struct glm_error *err);
    void (*unbind)(void *context);
    enum glm_status (*open)(void *context, const struct glm_open_config *config, void **engine,
                            uint64_t *memory_bytes, struct glm_error *err);
    enum glm_status (*follow)(void *engine, struct glm_error *err); /* until rank 0 says stop */
    void (*close)(void *engine);
    enum glm_status (*start)(void *context, void *engine, void **server, struct glm_error *err);
    void (*watch)(void *server, struct glm_serve_watch *out);
    void (*stats)(void *server, struct buf *json); /* one JSON object */
    /* Ends requests in flight with an error and tells the other ranks to leave follow unless the
     * set is broken. why: what later requests are told, "it is restarting". */
    void (*stop)(void *server, const char *why);
};

struct glm_supervise_times {
    uint32_t beat_ms, dead_ms; /* 1000, 10000 */
    uint32_t join_ms;          /* ranks must have joined and linked after this */
    uint32_t link_ms;          /* connecting all links */
    uint32_t stop_ms;          /* a set that ends is killed after this */
    uint32_t stuck_ms;         /* a round or a load without progress: 300000 */
    uint32_t back_off_ms[8];   /* before restart i; n_restarts of them */
    uint32_t n_restarts;
    uint32_t healthy_ms; /* live this long: restarts count anew */
};
struct glm_supervise_times glm_supervise_defaults(void);

/* A rank's view of its lane, read before anything starts. Texts live as long as `service.context`.
 */
struct glm_lane_info {
    uint32_t rank, world;
    const char *devices[GLM_LINK_MAX_WORLD]; /* of each rank, for status: "cpu", "cuda:0" */
    const char *transport;                   /* of its links: "shm", "tcp" */
    const char *control;                     /* host that rank 0's control binds */
    const char *link_host;                   /* host that this rank's tcp links bind */
    size_t max_message;                      /* largest contribution to a collective, bytes */
    bool spin;                               /* threads of all ranks here <= cores */
    char set_digest[GLM_DIGEST_CHARS + 1];
    char kernels_digest[GLM_DIGEST_CHARS + 1];
    char settings_digest[GLM_DIGEST_CHARS + 1];
    struct glm_supervise_times times;
    struct glm_service service;
};

/* Reads DIR/launch.json and this rank's plan and checks that they belong together. */
enum glm_status glm_lane_load(const char *launch_path, uint32_t rank, struct glm_lane_info *out,
                              struct glm_error *err);
void glm_lane_release(struct glm_lane_info *lane);

#endif
