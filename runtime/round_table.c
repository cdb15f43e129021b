/* SPDX-License-Identifier: Apache-2.0 */
/* Operations → round table. Owns the order of rows (that of the operations, a stream's rows
 * together) and of wanted rows (the same). Operations were checked by book.c, so sizes hold. */
#include "runtime/round_table.h"

#include "runtime/ops.h"

#include <string.h>

enum glm_status glm_round_table_init(struct glm_round_table *t, uint32_t max_rows,
                                     uint32_t max_streams, uint32_t max_extents, uint32_t max_outs,
                                     struct arena *arena, struct glm_error *err)
{
    *t = (struct glm_round_table){.max_rows = max_rows,
                                  .max_streams = max_streams,
                                  .max_extents = max_extents,
                                  .max_outs = max_outs};
    t->rows = ARENA_ARRAY(arena, max_rows, struct glm_row);
    t->streams = ARENA_ARRAY(arena, max_streams, struct glm_round_stream);
    t->extents = ARENA_ARRAY(arena, max_extents + 1, int32_t);
    t->out_rows = ARENA_ARRAY(arena, max_outs + 1, int32_t);
    t->draws = ARENA_ARRAY(arena, max_outs + 1, struct glm_draw);
    if (!t->rows || !t->streams || !t->extents || !t->out_rows || !t->draws)
        return glm_fail(err, GLM_ENOMEM, "cannot keep a round table of %u rows: out of memory",
                        max_rows);
    t->round.rows = t->rows;
    t->round.streams = t->streams;
    t->round.extents = t->extents;
    t->round.out_rows = t->out_rows;
    t->round.draws = t->draws;
    return GLM_OK;
}

void glm_round_table_clear(struct glm_round_table *t)
{
    t->round.n_rows = 0;
    t->round.n_streams = 0;
    t->round.n_out = 0;
    t->any_draw = false;
}

void glm_round_table_add(struct glm_round_table *t, const struct glm_op *op,
                         const struct glm_holder *h, uint32_t n_context)
{
    uint32_t row = (uint32_t)t->round.n_rows, s = (uint32_t)t->round.n_streams;
    uint32_t first_extent = 0, n_outs = glm_op_outs(op), out_from = op->n - n_outs;
    if (s > 0)
        first_extent = (uint32_t)(t->streams[s - 1].first_extent + t->streams[s - 1].n_extents);
    GLM_ASSERT(op->n <= t->max_rows - row && s < t->max_streams);
    GLM_ASSERT(h->n_extents <= t->max_extents - first_extent);
    GLM_ASSERT(n_outs <= t->max_outs - (uint32_t)t->round.n_out);
    t->stream_ids[s] = op->stream;
    t->streams[s] = (struct glm_round_stream){.slot = (int32_t)op->stream,
                                              .version = (int32_t)h->version,
                                              .n_context = (int32_t)n_context,
                                              .first_row = (int32_t)row,
                                              .n_rows = (int32_t)op->n,
                                              .first_extent = (int32_t)first_extent,
                                              .n_extents = (int32_t)h->n_extents};
    memcpy(t->extents + first_extent, h->extents, h->n_extents * sizeof *h->extents);
    for (uint32_t i = 0; i < op->n; i++) {
        int32_t out = -1;
        if (i >= out_from) {
            out = t->round.n_out++;
            t->out_rows[out] = (int32_t)(row + i);
            t->draws[out] = op->draws ? op->draws[i - out_from] : (struct glm_draw){.top_p = 1};
        }
        t->rows[row + i] = (struct glm_row){.stream = (int32_t)s,
                                            .position = (int32_t)(n_context + i),
                                            .token = op->tokens[i],
                                            .override = -1,
                                            .verify_i = (int32_t)i,
                                            .out = out};
    }
    t->any_draw = t->any_draw || (op->draws && n_outs > 0);
    t->round.n_rows += (int32_t)op->n;
    t->round.n_streams++;
}

void glm_round_table_begin_commit(struct glm_round_table *to, const struct glm_round_table *from)
{
    glm_round_table_clear(to);
    GLM_ASSERT((uint32_t)from->round.n_rows <= to->max_rows);
    to->round.n_rows = from->round.n_rows;
    for (int32_t i = 0; i < from->round.n_rows; i++) {
        to->rows[i] = from->rows[i];
        to->rows[i].stream = -1;
        to->rows[i].out = -1;
    }
}

void glm_round_table_add_commit(struct glm_round_table *to, const struct glm_round_table *from,
                                uint32_t stream_i, uint32_t n_commit)
{
    uint32_t s = (uint32_t)to->round.n_streams++;
    GLM_ASSERT(s < to->max_streams && stream_i < (uint32_t)from->round.n_streams);
    struct glm_round_stream stream = from->streams[stream_i];
    uint32_t first_extent = 0;
    if (s > 0)
        first_extent = (uint32_t)(to->streams[s - 1].first_extent + to->streams[s - 1].n_extents);
    GLM_ASSERT((uint32_t)stream.n_extents <= to->max_extents - first_extent);
    memcpy(to->extents + first_extent, from->extents + stream.first_extent,
           (uint32_t)stream.n_extents * sizeof *to->extents);
    for (int32_t i = 0; i < stream.n_rows; i++)
        to->rows[stream.first_row + i].stream = (int32_t)s;
    stream.n_commit = (int32_t)n_commit;
    stream.first_extent = (int32_t)first_extent;
    to->streams[s] = stream;
    to->stream_ids[s] = from->stream_ids[stream_i];
}

int32_t glm_round_table_find(const struct glm_round_table *t, uint32_t stream)
{
    for (int32_t i = 0; i < t->round.n_streams; i++)
        if (t->stream_ids[i] == stream)
            return i;
    return -1;
}
