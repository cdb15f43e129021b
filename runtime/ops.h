/* SPDX-License-Identifier: Apache-2.0 */
/* Operation lists as bytes, the way rank 0 sends them to the other ranks. Ranks of a set run the
 * same binary on the same byte order, so structs travel as they are; counts and kinds do not have
 * to be trusted.
 *
 * Owner: the round thread. Only glm_op_list_init allocates (from the arena). */
#ifndef GLM_RUNTIME_OPS_H
#define GLM_RUNTIME_OPS_H

#include "runtime/engine.h"

struct glm_op_list {
    unsigned char *bytes; /* [capacity] the list as sent, aligned */
    size_t capacity, len;
    struct glm_op *ops; /* [GLM_MAX_OPS] pointing into bytes, after glm_ops_read */
    uint32_t n_ops;
    uint32_t max_tokens, max_draws; /* in one list */
};

/* Sized for one FILL slice and one decode step of all streams. Errors: GLM_ENOMEM. */
enum glm_status glm_op_list_init(struct glm_op_list *l, const struct glm_plan *plan,
                                 struct arena *arena, struct glm_error *err);
/* ops → bytes. Errors: GLM_EINVAL for a list that is too long. */
enum glm_status glm_ops_write(struct glm_op_list *l, const struct glm_op *ops, uint32_t n_ops,
                              struct glm_error *err);
/* bytes[len] → ops. Errors: GLM_EINVAL for bytes that are no list. */
enum glm_status glm_ops_read(struct glm_op_list *l, struct glm_error *err);

/* Logits rows that an operation wants. */
uint32_t glm_op_outs(const struct glm_op *op);

#endif
