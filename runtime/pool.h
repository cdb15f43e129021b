/* SPDX-License-Identifier: Apache-2.0 */
/* Which extents of the pool are taken, and by how many. An extent is GLM_EXTENT_ROWS token rows of
 * every token and pool plane; streams and kept states hold it by count. Plain data: a copy of the
 * struct and its counts is a snapshot, which is how an operation list is tried before it runs.
 *
 * Owner: the round thread. Nothing allocates. */
#ifndef GLM_RUNTIME_POOL_H
#define GLM_RUNTIME_POOL_H

#include <stdbool.h>
#include <stdint.h>

struct glm_pool {
    uint16_t *counts; /* [n_extents] holders of each extent; the caller's memory */
    uint32_t n_extents;
    uint32_t n_free;
};

/* counts: caller's memory for n_extents; all free. */
void glm_pool_init(struct glm_pool *p, uint16_t *counts, uint32_t n_extents);
/* Makes *to equal to `from`, keeping its own counts memory of the same size. */
void glm_pool_copy(struct glm_pool *to, const struct glm_pool *from);
/* Claims n free extents, lowest first, into extents[]. All or nothing: false when there are not n.
 */
bool glm_pool_claim(struct glm_pool *p, uint32_t n, int32_t *extents);
/* One more holder of a claimed extent. */
void glm_pool_share(struct glm_pool *p, int32_t extent);
/* One holder less; the last one frees it. */
void glm_pool_drop(struct glm_pool *p, int32_t extent);

#endif
