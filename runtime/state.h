/* SPDX-License-Identifier: Apache-2.0 */
/* The planes of the plan's state table: their addresses, and everything that is done to rows of
 * streams between programs: clear, copy, hash. Walks the table and knows no state by name.
 *
 * Owner: the round thread. Only glm_states_init allocates (from the arena). */
#ifndef GLM_RUNTIME_STATE_H
#define GLM_RUNTIME_STATE_H

#include "runtime/book.h"
#include "runtime/device.h"

struct glm_state_plane {
    const struct glm_plan_state *state;
    uint32_t layer_i; /* index in state->layers */
    uint64_t bytes;
    unsigned char *base; /* the device's address, set once memory is laid out */
};

struct glm_states {
    const struct glm_plan *plan;
    struct glm_device *device; /* set by the owner: what clear, copy and hash go through */
    struct glm_state_plane *planes;
    uint32_t n_planes;
};

/* One plane a state and layer, with its bytes; base stays NULL. Errors: GLM_EPLAN, GLM_ENOMEM. */
enum glm_status glm_states_init(struct glm_states *s, const struct glm_plan *plan,
                                struct arena *arena, struct glm_error *err);

/* A new stream's slot: stream rows of version 0 and the ring are zero. */
void glm_states_clear_slot(const struct glm_states *s, uint32_t slot);
/* Per-stream planes of `from` (slot from_slot) into slot to_slot, whose version becomes 0: the
 * committed rows and the ring rows that still matter. */
void glm_states_copy_slot(const struct glm_states *s, uint32_t from_slot,
                          const struct glm_holder *from, uint32_t to_slot);
/* Live rows, up to n_context tokens, of extent `index` of a holder from one pool extent to
 * another. */
void glm_states_copy_extent(const struct glm_states *s, uint32_t n_context, uint32_t index,
                            int32_t from, int32_t to);
/* XXH3-128 over the live rows of every plane, in table order, rows in position order: where they
 * lie in pool, ring and versions does not matter. Errors: the device's. */
enum glm_status glm_states_hash(const struct glm_states *s, uint32_t slot,
                                const struct glm_holder *h, struct glm_hash *out,
                                struct glm_error *err);

#endif
