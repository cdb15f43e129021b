/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's worker: the thread that links to the other ranks, opens the engine and then follows
 * rank 0 or, on rank 0, owns the server. The control thread steers it and reads its status; it is
 * told of news through a descriptor that turns readable.
 *
 * Owner: the control thread calls everything here. */
#ifndef GLM_RUNTIME_WORKER_H
#define GLM_RUNTIME_WORKER_H

#include "runtime/serve.h"

enum glm_worker_phase {
    GLM_WORKER_LISTENING, /* has an address, waits for those of the others */
    GLM_WORKER_LINKING,
    GLM_WORKER_LOADING,
    GLM_WORKER_READY,   /* rank 0: waits for serve. Others: follow */
    GLM_WORKER_SERVING, /* rank 0 */
    GLM_WORKER_ENDED,   /* error says why; status GLM_OK: it was asked to, or rank 0 said stop */
};
const char *glm_worker_phase_text(enum glm_worker_phase phase);

struct glm_worker_status {
    enum glm_worker_phase phase;
    struct glm_error error; /* why it ends; set before other ranks can see that it does */
    uint64_t done_bytes, total_bytes, memory_bytes;
    uint64_t rounds;              /* lists run so far */
    struct glm_serve_watch watch; /* rank 0 while serving */
};

struct glm_worker;

/* Makes the listening end; *address is what the other ranks need. lane and secret are borrowed. */
enum glm_status glm_worker_new(const struct glm_lane_info *lane, const uint8_t secret[32],
                               struct glm_worker **out, struct glm_link_address *address,
                               struct glm_error *err);
/* Starts the thread with everybody's addresses[world]. */
enum glm_status glm_worker_go(struct glm_worker *w, const struct glm_link_address *addresses,
                              struct glm_error *err);
/* Rank 0, once READY and the others too: serve. */
void glm_worker_serve(struct glm_worker *w);
/* Turns readable when the status changed; reading the status makes it unreadable again. */
int glm_worker_fd(const struct glm_worker *w);
void glm_worker_status(struct glm_worker *w, struct glm_worker_status *out);
/* The server's statistics as a JSON object, "{}" while none serves. */
void glm_worker_stats(struct glm_worker *w, struct buf *json);
/* This rank heard of `peer` now, or on ranks above 0 of the head that watches all peers. A data
 * path that waits longer than dead_ms without such news gives up. */
void glm_worker_heard(struct glm_worker *w, uint32_t peer);

/* Rank 0: ends the server in order, and so the others' follow. Others: waits for that. */
void glm_worker_stop(struct glm_worker *w);
/* A rank is lost: ends waits in the data path; the server's requests end with an error. */
void glm_worker_abort(struct glm_worker *w);
/* Joins a worker that ENDED, or never went, and frees it. One that is still running is GLM_EBUSY:
 * nothing is freed, the process cannot be used for another set. */
enum glm_status glm_worker_free(struct glm_worker *w);

#endif
