/* SPDX-License-Identifier: Apache-2.0 */
/* Gather and sum over all ranks of a lane, above links.
 *   gather  every rank's `bytes` bytes, in rank order, on every rank
 *   sum     fp32, added in rank order (0 first) for every element: all ranks hold the same bits.
 * Large sums go by owner rows (each rank adds and redistributes its part), chosen by size alone and
 * with the same bits (design 6). Every rank calls the same collectives in
 * the same order with the same sizes, one at a time.
 *
 * Owner: the round thread, or the proxy while exchanges are expected of it (proxy.h); abort and
 * stats are for any thread. Only new and prepare allocate. */
#ifndef GLM_RUNTIME_COLLECTIVE_H
#define GLM_RUNTIME_COLLECTIVE_H

#include "runtime/link.h"

struct glm_collective;

struct glm_collective_stats {
    uint64_t n_gather, n_sum, n_lists;
    uint64_t bytes_sent, bytes_received;
    uint64_t wait_ns;
};

/* A sum of at least this many bytes goes by owner rows. */
enum { GLM_SUM_OWNER_BYTES = 64 * 1024 };

/* alive: asked when a deadline (ms) in the data path passes; false ends the wait with GLM_EPEER.
 * NULL: such a peer is waited for as long as its link stands. deadline_ms 0: never asked.
 * links[world] are taken, also on failure. world 1 needs no links. max_bytes: the largest
 * contribution of a rank; sums need about world * max(GLM_SUM_OWNER_BYTES, max_bytes / world). */
enum glm_status glm_collective_new(uint32_t rank, uint32_t world, struct glm_link *const *links,
                                   size_t max_bytes, uint32_t deadline_ms,
                                   int (*alive)(void *context, uint32_t peer), void *context,
                                   struct glm_collective **out, struct glm_error *err);
void glm_collective_free(struct glm_collective *c);

/* One step's collective, with its buffers, set up while loading. Steps are freed with c.
 *   gather  from [max_bytes], to [world][bytes]; from may lie at its place in `to`
 *   sum     from [max_bytes], to [max_bytes]; they may be the same buffer */
enum glm_collective_kind { GLM_GATHER, GLM_SUM };
struct glm_collective_step;
enum glm_status glm_collective_prepare(struct glm_collective *c, enum glm_collective_kind kind,
                                       const void *from, void *to, size_t max_bytes,
                                       struct glm_collective_step **out, struct glm_error *err);
/* Starts it with `bytes` from this rank (a multiple of 4 for sum), then progress until GLM_OK.
 * GLM_EAGAIN: still going, or another step is. GLM_EINVAL: bytes is more than prepared for.
 * GLM_EPEER: a rank is lost, named in err; all later calls fail too. */
enum glm_status glm_collective_enqueue(struct glm_collective_step *s, size_t bytes,
                                       struct glm_error *err);
enum glm_status glm_collective_progress(struct glm_collective_step *s, struct glm_error *err);
/* enqueue and progress to the end, waiting as the links allow. */
enum glm_status glm_collective_run(struct glm_collective_step *s, size_t bytes,
                                   struct glm_error *err);
/* Ends a wait from another thread within 0.1 s: it and all later calls are GLM_EPEER. */
void glm_collective_abort(struct glm_collective *c);

/* For exchanges that a GPU runs itself. note: one of them has begun, of `bytes` from this rank to
 * each other; every rank notes the same ones. look: GLM_EPEER when the set was aborted or a link
 * says without being used that its rank is gone; all later calls fail then. Whoever may run a step
 * may call them. */
void glm_collective_note(struct glm_collective *c, enum glm_collective_kind kind, size_t bytes);
enum glm_status glm_collective_look(struct glm_collective *c, struct glm_error *err);

/* Rank 0's operation list to all: *len of `bytes` from rank 0, received whole by the others into
 * `bytes` (capacity max), who get *len. Others block until it comes; idle waits sleep. It carries
 * the number of collectives run so far: a rank that counts another one is out of step, GLM_EPEER
 * naming both numbers. A list longer than max is GLM_EPEER too. */
enum glm_status glm_collective_broadcast(struct glm_collective *c, void *bytes, size_t max,
                                         size_t *len, struct glm_error *err);

struct glm_collective_stats glm_collective_stats(const struct glm_collective *c);

#endif
