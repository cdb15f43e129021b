/* SPDX-License-Identifier: Apache-2.0 */
/* State planes: sizes, addresses of rows, clear, copy, hash. Owns what a row's address is on the
 * runtime's side (the kernels' side is the prelude's); which extents and slots belong to whom is
 * book.c's. Every function is a loop over planes, and over runs of rows that lie together. */
#include "runtime/state.h"

#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* the state on the stack: nothing allocates here */
#include <xxhash.h>

enum { MAX_RING_ROWS = 1 << 24 };

/* Rows [first, first + n) of a plane that count for a context of n tokens. */
struct live_rows {
    uint64_t first, n;
};

static uint64_t extent_rows(const struct glm_plan_state *s)
{
    return s->unit == GLM_UNIT_POOL ? GLM_EXTENT_ROWS / s->per : GLM_EXTENT_ROWS;
}

/* A pool row is live once all its tokens are there: until then its value is not written, or was
 * written by rows that a rollback dropped. */
static struct live_rows live_rows(const struct glm_plan_state *s, uint32_t n_context)
{
    int64_t end = (int64_t)n_context + s->position_offset;
    int64_t first = s->position_offset > 0 ? s->position_offset : 0;
    if (n_context == 0 || end <= first)
        return (struct live_rows){0, 0};
    switch (s->unit) {
    case GLM_UNIT_TOKEN:
        return (struct live_rows){(uint64_t)first, (uint64_t)(end - first)};
    case GLM_UNIT_POOL:
        first = (first + s->per - 1) / s->per;
        end = end / s->per;
        return (struct live_rows){(uint64_t)first, end > first ? (uint64_t)(end - first) : 0};
    case GLM_UNIT_RING:
        if (end - first > s->keep)
            first = end - s->keep;
        return (struct live_rows){(uint64_t)first, (uint64_t)(end - first)};
    case GLM_UNIT_STREAM:
        break;
    }
    return (struct live_rows){0, 1};
}

/* Rows of a plane that lie together. */
struct row_run {
    unsigned char *at;
    uint64_t n;
};

static unsigned char *stream_row(const struct glm_state_plane *p, uint32_t slot, uint32_t version)
{
    const struct glm_plan_state *s = p->state;
    uint64_t row = (uint64_t)slot * s->versions + (s->versions > 1 ? version : 0);
    return p->base + row * s->row_bytes;
}

static struct row_run ring_run(const struct glm_state_plane *p, uint32_t slot, uint64_t row,
                               uint64_t n)
{
    const struct glm_plan_state *s = p->state;
    uint64_t in_ring = row % s->ring, left = s->ring - in_ring;
    return (struct row_run){p->base + ((uint64_t)slot * s->ring + in_ring) * s->row_bytes,
                            n < left ? n : left};
}

static struct row_run pool_run(const struct glm_state_plane *p, const int32_t *extents,
                               uint64_t row, uint64_t n)
{
    uint64_t per_extent = extent_rows(p->state), in_extent = row % per_extent;
    uint64_t at = (uint64_t)extents[row / per_extent] * per_extent + in_extent;
    uint64_t left = per_extent - in_extent;
    return (struct row_run){p->base + at * p->state->row_bytes, n < left ? n : left};
}

static enum glm_status check_state(const struct glm_plan_state *s, struct glm_error *err)
{
    bool ok = s->row_bytes > 0;
    switch (s->unit) {
    case GLM_UNIT_POOL:
        ok = ok && s->per > 0 && GLM_EXTENT_ROWS % s->per == 0;
        break;
    case GLM_UNIT_STREAM:
        ok = ok && (s->versions == 1 || s->versions == 2);
        break;
    case GLM_UNIT_RING:
        ok = ok && s->ring > 0 && s->ring <= MAX_RING_ROWS && s->keep <= s->ring;
        break;
    case GLM_UNIT_TOKEN:
        break;
    }
    if (ok)
        return GLM_OK;
    return glm_fail(err, GLM_EPLAN,
                    "cannot lay out state '%s': rows of %llu bytes, per %u, ring %u, keep %u, "
                    "versions %u",
                    s->name, (unsigned long long)s->row_bytes, s->per, s->ring, s->keep,
                    s->versions);
}

static uint64_t plane_rows(const struct glm_plan_state *s, const struct glm_plan_limits *l)
{
    switch (s->unit) {
    case GLM_UNIT_TOKEN:
        return l->pool_tokens;
    case GLM_UNIT_POOL:
        return l->pool_tokens / s->per;
    case GLM_UNIT_STREAM:
        return (uint64_t)l->n_slots * s->versions;
    case GLM_UNIT_RING:
        return (uint64_t)l->n_slots * s->ring;
    }
    return 0;
}

enum glm_status glm_states_init(struct glm_states *s, const struct glm_plan *plan,
                                struct arena *arena, struct glm_error *err)
{
    *s = (struct glm_states){.plan = plan};
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n_states; i++)
        n += plan->states[i].n_layers > 0 ? plan->states[i].n_layers : 1;
    s->planes = ARENA_ARRAY(arena, n > 0 ? n : 1, struct glm_state_plane);
    if (!s->planes)
        return glm_fail(err, GLM_ENOMEM, "cannot list %u state planes: out of memory", n);
    for (uint32_t i = 0; i < plan->n_states; i++) {
        const struct glm_plan_state *state = &plan->states[i];
        enum glm_status st = check_state(state, err);
        if (st != GLM_OK)
            return st;
        uint64_t bytes;
        if (__builtin_mul_overflow(plane_rows(state, &plan->limits), state->row_bytes, &bytes))
            return glm_fail(err, GLM_EPLAN, "cannot lay out state '%s': its size overflows",
                            state->name);
        uint32_t n_layers = state->n_layers > 0 ? state->n_layers : 1;
        for (uint32_t layer_i = 0; layer_i < n_layers; layer_i++)
            s->planes[s->n_planes++] =
                (struct glm_state_plane){.state = state, .layer_i = layer_i, .bytes = bytes};
    }
    return GLM_OK;
}

void glm_states_clear_slot(const struct glm_states *s, uint32_t slot)
{
    for (uint32_t i = 0; i < s->n_planes; i++) {
        const struct glm_state_plane *p = &s->planes[i];
        uint64_t row_bytes = p->state->row_bytes;
        if (p->state->unit == GLM_UNIT_STREAM)
            s->device->ops->fill(s->device, stream_row(p, slot, 0), 0, row_bytes);
        else if (p->state->unit == GLM_UNIT_RING)
            s->device->ops->fill(s->device, ring_run(p, slot, 0, 1).at, 0,
                                 p->state->ring * row_bytes);
    }
}

/* Both slots have a position's row at the same place in their rings. */
static void copy_ring(const struct glm_states *s, const struct glm_state_plane *p,
                      uint32_t from_slot, uint32_t n_context, uint32_t to_slot)
{
    struct live_rows live = live_rows(p->state, n_context);
    uint64_t row_bytes = p->state->row_bytes;
    s->device->ops->fill(s->device, ring_run(p, to_slot, 0, 1).at, 0, p->state->ring * row_bytes);
    while (live.n > 0) {
        struct row_run run = ring_run(p, from_slot, live.first, live.n);
        s->device->ops->copy(s->device, ring_run(p, to_slot, live.first, live.n).at, run.at,
                             run.n * row_bytes);
        live.first += run.n;
        live.n -= run.n;
    }
}

void glm_states_copy_slot(const struct glm_states *s, uint32_t from_slot,
                          const struct glm_holder *from, uint32_t to_slot)
{
    for (uint32_t i = 0; i < s->n_planes; i++) {
        const struct glm_state_plane *p = &s->planes[i];
        if (p->state->unit == GLM_UNIT_STREAM)
            s->device->ops->copy(s->device, stream_row(p, to_slot, 0),
                                 stream_row(p, from_slot, from->version), p->state->row_bytes);
        else if (p->state->unit == GLM_UNIT_RING)
            copy_ring(s, p, from_slot, from->n_context, to_slot);
    }
}

void glm_states_copy_extent(const struct glm_states *s, uint32_t n_context, uint32_t index,
                            int32_t from, int32_t to)
{
    for (uint32_t i = 0; i < s->n_planes; i++) {
        const struct glm_state_plane *p = &s->planes[i];
        if (p->state->unit != GLM_UNIT_TOKEN && p->state->unit != GLM_UNIT_POOL)
            continue;
        uint64_t per_extent = extent_rows(p->state), row_bytes = p->state->row_bytes;
        struct live_rows live = live_rows(p->state, n_context);
        uint64_t first = index * per_extent, end = first + per_extent;
        if (first < live.first)
            first = live.first;
        if (end > live.first + live.n)
            end = live.first + live.n;
        if (first >= end)
            continue;
        uint64_t in_extent = first % per_extent;
        s->device->ops->copy(s->device,
                             p->base + ((uint64_t)to * per_extent + in_extent) * row_bytes,
                             p->base + ((uint64_t)from * per_extent + in_extent) * row_bytes,
                             (end - first) * row_bytes);
    }
}

static struct row_run live_run(const struct glm_state_plane *p, uint32_t slot,
                               const struct glm_holder *h, struct live_rows live)
{
    switch (p->state->unit) {
    case GLM_UNIT_TOKEN:
    case GLM_UNIT_POOL:
        return pool_run(p, h->extents, live.first, live.n);
    case GLM_UNIT_RING:
        return ring_run(p, slot, live.first, live.n);
    case GLM_UNIT_STREAM:
        break;
    }
    return (struct row_run){stream_row(p, slot, h->version), 1};
}

enum glm_status glm_states_hash(const struct glm_states *s, uint32_t slot,
                                const struct glm_holder *h, struct glm_hash *out,
                                struct glm_error *err)
{
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, &h->n_context, sizeof h->n_context);
    for (uint32_t i = 0; i < s->n_planes; i++) {
        const struct glm_state_plane *p = &s->planes[i];
        struct live_rows live = live_rows(p->state, h->n_context);
        while (live.n > 0) {
            struct row_run run = live_run(p, slot, h, live);
            const void *bytes;
            enum glm_status st =
                s->device->ops->view(s->device, run.at, run.n * p->state->row_bytes, &bytes, err);
            if (st != GLM_OK)
                return st;
            XXH3_128bits_update(&state, bytes, run.n * p->state->row_bytes);
            live.first += run.n;
            live.n -= run.n;
        }
    }
    XXH128_hash_t hash = XXH3_128bits_digest(&state);
    *out = (struct glm_hash){.low = hash.low64, .high = hash.high64};
    return GLM_OK;
}
