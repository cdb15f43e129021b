/* SPDX-License-Identifier: Apache-2.0 */
/* The books of a rank: which streams and kept states exist, how far each has come, which pool
 * extents it holds, and which operations are allowed now. No rows are touched here: an operation
 * that must copy rows says which extents. Every rank keeps the same books from the same lists.
 *
 * Owner: the round thread. Only glm_book_init allocates (from the arena). */
#ifndef GLM_RUNTIME_BOOK_H
#define GLM_RUNTIME_BOOK_H

#include "runtime/engine.h"
#include "runtime/pool.h"

/* A stream or a kept state; its slot in the per-stream planes is its index in holders[]. */
struct glm_holder {
    bool active;
    uint32_t version;   /* the committed one of states that have two */
    uint32_t n_context; /* committed tokens */
    uint32_t n_pending; /* rows decoded and not yet committed or dropped */
    uint32_t n_room;    /* tokens claimed */
    uint32_t n_extents;
    int32_t *extents; /* [table] */
};

/* Rows of extents from[i] must come to to[i], where i counts extents of the holder. */
struct glm_extent_copies {
    uint32_t first; /* index within the holder's extents of the first copy */
    uint32_t n;
    const int32_t *from, *to;
};

struct glm_book {
    const struct glm_plan *plan;
    uint32_t n_streams, n_kept;
    uint32_t table;                 /* extents of a holder at most */
    int32_t min_offset, max_offset; /* of token and pool states' position offsets, 0 included */
    uint32_t n_outs_prefill, n_rows_decode;
    bool has_replay;   /* a partial commit can be replayed */
    bool has_snapshot; /* some state knows only all or nothing */
    struct glm_pool pool;
    struct glm_holder *holders;        /* [n_streams + n_kept] */
    int32_t *old_extents;              /* [table] those that a MOVE gave up */
    uint32_t list_fills, list_decodes; /* groups of the list being applied */
    uint32_t list_rows;                /* decode rows of it */
    bool list_stopped;
};

/* Errors: GLM_EPLAN when limits or rollbacks do not go together, GLM_ENOMEM. */
enum glm_status glm_book_init(struct glm_book *b, const struct glm_plan *plan, struct arena *arena,
                              struct glm_error *err);
/* Makes *to equal to `from`; both were initialised from the same plan. */
void glm_book_copy(struct glm_book *to, const struct glm_book *from);

/* Starts a list: at most one FILL and one run of DECODEs may follow. */
void glm_book_begin(struct glm_book *b);
/* Checks ops[i] against the rules of engine.h and enters it. GLM_EINVAL names operation and rule,
 * GLM_EAGAIN the extents wanted and free; then *b is half changed and must not be used further.
 * copies: what must be copied now; may be NULL for a trial. */
enum glm_status glm_book_apply(struct glm_book *b, const struct glm_op *ops, uint32_t n_ops,
                               uint32_t i, struct glm_extent_copies *copies, struct glm_error *err);

/* Extents that hold n_tokens positions of every plane. */
uint32_t glm_book_extents(const struct glm_book *b, uint32_t n_tokens);

const char *glm_op_text(enum glm_op_kind kind);

#endif
