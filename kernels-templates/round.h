/* SPDX-License-Identifier: Apache-2.0 */
/* The device `round` table: every run-time value a kernel may read. Filled by the runtime before a
 * program runs, the same on every rank; kernel arguments themselves are constants or fixed
 * addresses (design 1). Included by host and CUDA bodies and by the runtime: plain C, no headers
 * beyond stdint.
 *
 * Rows are ordered by stream: the rows of stream i are [first_row, first_row + n_rows), their
 * positions consecutive from n_context. A row with stream < 0 is padding and routes nowhere. */
#ifndef GLM_ROUND_H
#define GLM_ROUND_H

#ifndef __CUDACC_RTC__
#include <stdint.h>
#endif

#define GLM_EXTENT_ROWS   2048 /* token rows of a pool extent */
#define GLM_BLOCK_ROWS    64   /* the absolute prefill grid */
#define GLM_ROUND_STREAMS 16   /* streams of a round at most */

struct glm_row {
    int32_t stream;   /* index into streams[], or -1 */
    int32_t position; /* absolute position in prompt + reply */
    int32_t token;    /* token id */
    int32_t override; /* row of the override-embedding table, or -1 */
    int32_t verify_i; /* index among its stream's rows of this round */
    int32_t out;      /* index among the rows whose logits are wanted, or -1 */
};

struct glm_round_stream {
    int32_t slot;      /* slot of the per-stream state planes */
    int32_t version;   /* committed version of states that have two */
    int32_t n_context; /* committed tokens before this round */
    int32_t first_row, n_rows;
    int32_t n_commit;     /* rows to keep: read by the commit program alone */
    int32_t first_extent; /* offset of its extents in extents[]: pool extent of position p is
                             extents[first_extent + p / GLM_EXTENT_ROWS] */
    int32_t n_extents;
};

/* How one wanted logits row is turned into a token (docs/model.md 8). */
struct glm_draw {
    uint64_t seed;
    int32_t position;  /* of the token to be drawn */
    int32_t top_k;     /* 0: off */
    float temperature; /* <= 0: greedy */
    float top_p;       /* 1: off */
    float min_p;       /* 0: off */
    int32_t flags;     /* GLM_DRAW_* */
};
#define GLM_DRAW_NO_END 1 /* end ids are masked */

/* Among drawn tokens: this row needs the next larger sampling program. */
#define GLM_DRAW_WIDER (-2)

struct glm_round {
    int32_t n_rows; /* rows, padding included */
    int32_t n_streams;
    int32_t n_out; /* rows whose logits are wanted */
    int32_t reserved;
    const struct glm_row *rows;             /* [n_rows] */
    const struct glm_round_stream *streams; /* [n_streams] */
    const int32_t *extents;
    const int32_t *out_rows;      /* [n_out] row indices, ascending */
    const struct glm_draw *draws; /* [n_out] */
};

#endif
