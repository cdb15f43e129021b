/* SPDX-License-Identifier: Apache-2.0 */
/* What the converters of weights share: their unit (load.h), its cuts, the bytes between planes. */
#ifndef GLM_LOAD_CUH
#define GLM_LOAD_CUH

#include "prelude.cuh"

#include "load.h"

/* A block's copy of its unit, which lies in the host's memory and is read once. */
GLM_INLINE void glm_load_unit(void *shared, const void *unit, int32_t bytes)
{
    for (int32_t i = glm_thread() * 8; i < bytes; i += GLM_BLOCK * 8)
        glm_store8((char *)shared + i, glm_load8((const char *)unit + i));
    glm_barrier();
}

/* Index in the uncut dimension of element i of the cut. */
GLM_INLINE uint64_t glm_load_at(const struct glm_load_cut *c, uint64_t i)
{
    return c->first + i / c->take * c->stride + i % c->take;
}

/* Planes begin at multiples of 64 bytes. */
GLM_INLINE uint64_t glm_load_align(uint64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}
/* By the block, fewer bytes than it has threads. */
GLM_INLINE void glm_load_zero(char *at, uint64_t n)
{
    if ((uint64_t)glm_thread() < n)
        at[glm_thread()] = 0;
}

#endif
