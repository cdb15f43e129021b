/* SPDX-License-Identifier: Apache-2.0 */
/* Gather and sum over all ranks of a lane, above links.
 *   gather  every rank's `bytes` bytes, in rank order, on every rank
 *   sum     fp32, added in rank order (0 first) for every element: all ranks hold the same bits.
 * Large sums go by owner rows (each rank adds and redistributes its part), chosen by size alone and
 * with the same bits (design 6; reference/cluster.md 4.4). Every rank calls the same collectives in
 * the same order with the same sizes.
 *
 * Owner: the round thread. Only prepare allocates. */
#ifndef GLM_RUNTIME_COLLECTIVE_H
#define GLM_RUNTIME_COLLECTIVE_H

#include "runtime/link.h"

struct glm_collective;

struct glm_collective_stats {
    uint64_t n_gather, n_sum;
    uint64_t bytes_sent, bytes_received;
    uint64_t wait_ns;
};

/* alive: asked when a deadline (ms) in the data path passes; false ends the wait with GLM_EPEER.
 * links[world] are taken. world 1 needs no links. max_bytes: the largest contribution of a rank. */
enum glm_status glm_collective_new(uint32_t rank, uint32_t world, struct glm_link *const *links,
                                   size_t max_bytes, uint32_t deadline_ms,
                                   int (*alive)(void *context, uint32_t peer), void *context,
                                   struct glm_collective **out, struct glm_error *err);
void glm_collective_free(struct glm_collective *c);

/* One step's collective, with its buffers, set up while loading. */
enum glm_collective_kind { GLM_GATHER, GLM_SUM };
struct glm_collective_step;
enum glm_status glm_collective_prepare(struct glm_collective *c, enum glm_collective_kind kind,
                                       const void *from, void *to, size_t max_bytes,
                                       struct glm_collective_step **out, struct glm_error *err);
/* Starts it with `bytes` from this rank (a multiple of 4 for sum), then progress until GLM_OK.
 * GLM_EAGAIN: still going. GLM_EPEER: a rank is lost, named in err; all later calls fail too. */
enum glm_status glm_collective_enqueue(struct glm_collective_step *s, size_t bytes,
                                       struct glm_error *err);
enum glm_status glm_collective_progress(struct glm_collective_step *s, struct glm_error *err);
/* enqueue and progress to the end, waiting as the links allow. */
enum glm_status glm_collective_run(struct glm_collective_step *s, size_t bytes,
                                   struct glm_error *err);
/* Ends a wait from another thread. */
void glm_collective_abort(struct glm_collective *c);

/* Rank 0's operation list to all: `bytes` from rank 0, received whole by the others into `to`
 * (capacity max). Others block until it comes; idle waits sleep. *len on all ranks. */
enum glm_status glm_collective_broadcast(struct glm_collective *c, void *bytes, size_t max,
                                         size_t *len, struct glm_error *err);

struct glm_collective_stats glm_collective_stats(const struct glm_collective *c);

#endif
