/* SPDX-License-Identifier: Apache-2.0 */
/* What the toy kernels share: a stream's chain value and the addresses of its state rows. */
#ifndef GLM_TOY_H
#define GLM_TOY_H

#include "host_abi.h"

#include <stddef.h>

enum { TOY_POOL = 4, TOY_KEEP = 3 };

static inline uint64_t toy_mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

static inline size_t toy_pool_row(const struct glm_round *r, const struct glm_round_stream *s,
                                  int32_t position)
{
    int32_t extent = r->extents[s->first_extent + position / GLM_EXTENT_ROWS];
    return (size_t)extent * GLM_EXTENT_ROWS + (size_t)(position % GLM_EXTENT_ROWS);
}

const uint32_t glm_kernel_abi = GLM_HOST_ABI_VERSION;
void glm_kernel(const struct glm_launch *launch, void *const *args);

#endif
