/* SPDX-License-Identifier: Apache-2.0 */
/* What a person wants to know of a lane's plans, as numbers: print.c renders the same struct as
 * text and as JSON. Nothing detected, no time, no absolute path. */
#ifndef GLM_CODEGEN_SUMMARY_H
#define GLM_CODEGEN_SUMMARY_H

#include "codegen/graph.h"

/* A share that may differ by layer when the uneven unit rotates. */
struct glm_range {
    uint32_t low, high;
};

struct glm_summary_rank {
    const struct glm_node *node;
    struct glm_range heads, experts; /* attention heads; expert width */
    uint64_t weight_bytes, pool_bytes, stream_bytes, buffer_bytes;
    uint64_t process_bytes; /* exchanges among it */
    uint64_t request_bytes; /* set aside for requests */
    uint64_t total_bytes;
    uint64_t room_bytes;     /* declared memory less reserve; 0: not declared */
    struct glm_price decode; /* one row, program decode and sample */
};

/* Two ranks without a cable between them on a ring reach each other through a neighbour. */
struct glm_summary_link {
    uint32_t a, b;     /* ranks, a < b */
    uint32_t n_cables; /* 0: relayed */
};

struct glm_summary {
    const struct glm_cluster *cluster;
    const struct glm_lane *lane;
    const struct glm_plan *plan; /* rank 0's */
    struct glm_summary_rank ranks[GLM_MAX_RANKS];
    uint32_t n_ranks, busiest; /* the rank that reads the most a token */
    struct glm_summary_link links[GLM_MAX_RANKS * (GLM_MAX_RANKS - 1) / 2];
    uint32_t n_links;
    uint32_t n_kernels;                /* to build for all ranks, equal ones once */
    uint32_t n_launches, n_exchanges;  /* of rank 0: a decode round */
    uint32_t context_tokens;           /* that prices hold for */
    bool has_figures;                  /* the devices' speed is known: the following are set */
    double decode_s, decode_floor_s;   /* a token of one stream */
    double round_s;                    /* a round of all streams, one row each */
    double prefill_s, prefill_floor_s; /* a whole slice */
};

/* Errors: those of pricing. */
enum glm_status glm_summarise(const struct glm_cluster *c, uint32_t lane_i,
                              struct glm_plan *const *plans, struct glm_summary *out,
                              struct glm_error *err);

/* A checkpoint as it may be printed: as written, of an absolute path the last part. */
const char *glm_shown_checkpoint(const struct glm_cluster *c);

#endif
