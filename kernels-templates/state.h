/* SPDX-License-Identifier: Apache-2.0 */
/* Where rows of state lie (codegen/plan.h), for host and CUDA bodies. Included by the preludes,
 * which define GLM_INLINE. */
#ifndef GLM_STATE_H
#define GLM_STATE_H

#include "round.h"

GLM_INLINE char *glm_state_pool(void *base, const struct glm_round *r,
                                const struct glm_round_stream *s, int32_t position, int32_t per,
                                size_t row_bytes)
{
    int64_t extent = r->extents[s->first_extent + position / GLM_EXTENT_ROWS];
    int64_t row = extent * (GLM_EXTENT_ROWS / per) + position % GLM_EXTENT_ROWS / per;
    return (char *)base + (size_t)row * row_bytes;
}
GLM_INLINE char *glm_state_token(void *base, const struct glm_round *r,
                                 const struct glm_round_stream *s, int32_t position,
                                 size_t row_bytes)
{
    return glm_state_pool(base, r, s, position, 1, row_bytes);
}
GLM_INLINE char *glm_state_stream(void *base, const struct glm_round_stream *s, int32_t versions,
                                  int32_t version, size_t row_bytes)
{
    return (char *)base + ((size_t)s->slot * (size_t)versions + (size_t)version) * row_bytes;
}
GLM_INLINE char *glm_state_ring(void *base, const struct glm_round_stream *s, int32_t ring,
                                int32_t position, size_t row_bytes)
{
    return (char *)base + ((size_t)s->slot * (size_t)ring + (size_t)(position % ring)) * row_bytes;
}

#endif
