/* SPDX-License-Identifier: Apache-2.0 */
/* Filling the `round` table (kernels-templates/round.h) from operations and the books. One table a
 * kind of program: the decode step's stays as it is until its rows are committed.
 *
 * Owner: the round thread. Only glm_round_table_init allocates (from the arena). */
#ifndef GLM_RUNTIME_ROUND_TABLE_H
#define GLM_RUNTIME_ROUND_TABLE_H

#include "runtime/book.h"

struct glm_round_table {
    struct glm_round round; /* points at the arrays below */
    struct glm_row *rows;
    struct glm_round_stream *streams;
    int32_t *extents;
    int32_t *out_rows;
    struct glm_draw *draws;
    uint32_t max_rows, max_streams, max_extents, max_outs;
    uint32_t stream_ids[GLM_ROUND_STREAMS]; /* which stream each entry of streams[] is */
    bool any_draw;
};

/* max_extents: entries of the extent table over all its streams. Errors: GLM_ENOMEM. */
enum glm_status glm_round_table_init(struct glm_round_table *t, uint32_t max_rows,
                                     uint32_t max_streams, uint32_t max_extents, uint32_t max_outs,
                                     struct arena *arena, struct glm_error *err);
void glm_round_table_clear(struct glm_round_table *t);
/* Adds the rows of a FILL or DECODE whose stream `h` has n_context committed tokens. */
void glm_round_table_add(struct glm_round_table *t, const struct glm_op *op,
                         const struct glm_holder *h, uint32_t n_context);
/* The rows of stream_i (index in from->streams) with n_commit of them to keep. The rows keep their
 * places, so `to` must be cleared with glm_round_table_begin_commit first. */
void glm_round_table_begin_commit(struct glm_round_table *to, const struct glm_round_table *from);
void glm_round_table_add_commit(struct glm_round_table *to, const struct glm_round_table *from,
                                uint32_t stream_i, uint32_t n_commit);
/* Index in streams[] of a stream, or -1. */
int32_t glm_round_table_find(const struct glm_round_table *t, uint32_t stream);

#endif
