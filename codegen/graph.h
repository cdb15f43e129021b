/* SPDX-License-Identifier: Apache-2.0 */
/* A lane of a resolved cluster → the plans of its ranks, their memory and price. */
#ifndef GLM_CODEGEN_GRAPH_H
#define GLM_CODEGEN_GRAPH_H

#include "codegen/manifest.h"
#include "codegen/plan.h"
#include "spec/cluster.h"

/* One rank's part of a dimension, in elements. */
struct glm_share {
    uint32_t first, count;
};

/* Dimension `total` in whole `unit`s over `world` ranks, remainders to the lowest ranks (design 4).
 * rotate: the first rank that gets a remainder unit moves by one a layer. */
struct glm_share glm_split(uint32_t total, uint32_t unit, uint32_t world, uint32_t rank,
                           uint32_t rotate);

/* All shares of one layer and rank. */
struct glm_shares {
    struct glm_share heads, kda_heads, dense, expert, shared, vocab;
};
/* GLM_ESPEC naming dimension, unit and TP when the geometry cannot be split so. */
enum glm_status glm_split_check(const struct glm_model *m, const struct glm_lane *lane,
                                struct diag_list *diags);
struct glm_shares glm_layer_shares(const struct glm_model *m, const struct glm_lane *lane,
                                   uint32_t rank, uint32_t layer);

/* Builds and seals the plans of all ranks of a lane for a kernel target; pool_tokens of the lane 0
 * is settled from the smallest node's memory. Problems that the user can fix are diags; what does
 * not fit is GLM_ECAPACITY, naming rank, node, both sums and the three largest parts. */
enum glm_status glm_plan_build(const struct glm_cluster *c, uint32_t lane_i, const char *target,
                               struct arena *arena, struct diag_list *diags,
                               struct glm_plan ***plans, struct glm_error *err);

/* Whether all ranks of the lane that take from one memory fit in it together; each rank alone was
 * held against its own node when the plans were built. node: index of a node in that memory (the
 * one of any rank; glm_node_shares_memory). has_bytes: all that the machine, or the cuda:N, has.
 * Errors: GLM_ECAPACITY naming ranks, GPU and host, what they need and reserve, what they declare,
 * and what there is. */
enum glm_status glm_plan_check_host(const struct glm_cluster *c, const struct glm_lane *lane,
                                    struct glm_plan *const *plans, uint32_t node,
                                    uint64_t has_bytes, struct glm_error *err);

/* Equal in all but the name: one build serves both. */
bool glm_kernels_equal(const struct glm_plan_kernel *a, const struct glm_plan_kernel *b);

/* Device figures that prices are made of (price.c has those of a GB10). */
struct glm_device_figures {
    double read_bytes_s;  /* streaming read bandwidth */
    double cache_bytes_s; /* the same when the bytes fit in cache_bytes */
    double cache_bytes;
    double ops_s;          /* fp32 or tensor operations */
    double exl3_weights_s; /* EXL3 decode rate; 0: free */
    double kernel_gap_s;   /* between dependent kernels */
    double exchange_s;     /* one gather of small size over all ranks */
    double exchange_bytes_s;
};
struct glm_device_figures glm_gb10_figures(uint32_t world, enum glm_topology topology);

/* read_bytes and write_bytes are memory traffic as the manifests state it; up to 64 rows of
 * activations stay in the cache and do not count. weight_bytes (weights, and of stacked members
 * the distinct ones touched) and state_bytes (per-stream rows, both ways) are what the executor
 * counts too. */
struct glm_price {
    double read_bytes, write_bytes, weight_bytes, state_bytes, ops, exl3_weights;
    uint32_t n_kernels, n_exchanges;
    double exchange_bytes;
    double seconds;
    double floor_seconds; /* bytes alone at read_bytes_s */
};
/* Price of one run of a program at the given rows and context. per_kernel (may be NULL): one entry
 * a plan kernel, summed over its launches. */
enum glm_status glm_price_program(const struct glm_plan *p, const char *program,
                                  const struct glm_cost_context *at,
                                  const struct glm_device_figures *figures, struct glm_price *total,
                                  struct glm_price *per_kernel, struct glm_error *err);

/* What `glmctl plan` prints, text or JSON; nothing detected, no time, no absolute path in it.
 * Golden files hold this text. */
enum glm_status glm_plan_print(const struct glm_cluster *c, uint32_t lane_i,
                               struct glm_plan *const *plans, bool json, struct buf *out,
                               struct glm_error *err);

#endif
