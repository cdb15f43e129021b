/* SPDX-License-Identifier: Apache-2.0 */
/* A linked step, as the executor (exec.c) makes it and the devices run it. */
#ifndef GLM_RUNTIME_EXEC_STEP_H
#define GLM_RUNTIME_EXEC_STEP_H

#include "runtime/exec.h"

/* What an argument of a kernel is: one of the three, and where all of it begins. */
struct glm_exec_target {
    void *address; /* as the kernel gets it: base, or a column of a buffer */
    unsigned char *base;
    const struct glm_plan_weight *weight;
    const struct glm_state_plane *plane;
    const struct glm_plan_buffer *buffer;
};

struct glm_exec_step {
    enum glm_step_kind kind; /* never GLM_STEP_BLOCK */
    const char *name;        /* kernel or mark */
    uint32_t layer;
    /* kernel */
    uint32_t kernel_i; /* in plan order */
    const struct glm_manifest *manifest;
    void **args;                        /* [manifest->n_args] the device's addresses, or NULL */
    struct glm_exec_target *targets;    /* [manifest->n_args] */
    uint64_t fixed_read;                /* bytes of its whole weights */
    uint64_t picked_row;                /* of them a row, when it only looks rows up; else 0 */
    uint64_t stream_read, stream_write; /* bytes a stream of the round */
    uint64_t row_write;                 /* bytes a row */
    uint64_t member_read;               /* bytes of one stacked member, all its weights */
    const int32_t *ids;                 /* which members the rows touch */
    uint32_t n_ids, n_members;
    bool out_rows; /* works on wanted rows only */
    /* sum, gather */
    uint64_t max_bytes; /* of the exchange, at the arena's maxima */
    void *from, *to;
    uint64_t row_bytes;
    enum glm_buffer_per per;
    struct glm_collective_step *collective; /* the device's, NULL when world is 1 */
};

/* Bytes of an exchange over n_rows rows with n_out of them wanted. */
uint64_t glm_exec_exchange_bytes(const struct glm_exec_step *s, uint64_t n_rows, uint64_t n_out);

/* Prepares a sum's or gather's collective between those addresses of the host. */
enum glm_status glm_exec_prepare_exchange(struct glm_exec *x, struct glm_exec_step *s,
                                          const void *from, void *to, struct glm_error *err);

/* Adds what a step touches to x->counts. Members are counted where the host can see their ids. */
void glm_exec_count(struct glm_exec *x, const struct glm_exec_step *s,
                    const struct glm_round *round);

#endif
