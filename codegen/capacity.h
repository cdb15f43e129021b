/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the plans of a lane fit their nodes, and how large the pool becomes. Private to codegen.
 */
#ifndef GLM_CODEGEN_CAPACITY_H
#define GLM_CODEGEN_CAPACITY_H

#include "codegen/builder.h"

struct glm_capacity_rank {
    struct glm_plan *plan;                /* all but pool_tokens and memory[] */
    const enum glm_weight_class *classes; /* of each weight */
    const struct glm_node *node;
};

/* Sets pool_tokens (the same on all ranks) and memory[] of every plan. Pool: what the lane asks, or
 * what the node with the least room leaves, at most streams * window, in whole extents.
 * Errors: GLM_ECAPACITY naming rank, node, need, have and the three largest parts. */
enum glm_status glm_capacity_settle(const struct glm_lane *lane, struct glm_capacity_rank *ranks,
                                    uint32_t n_ranks, struct arena *arena, struct glm_error *err);

#endif
