/* SPDX-License-Identifier: Apache-2.0 */
/* Counted extents of the pool. Owns who holds what; the rows themselves are state.c's and the rules
 * of when to claim are streams' (book.c).
 * Lowest first keeps the memory that was ever touched dense, so a lightly used pool stays small. */
#include "runtime/pool.h"

#include "spec/base/error.h"

#include <string.h>

void glm_pool_init(struct glm_pool *p, uint16_t *counts, uint32_t n_extents)
{
    *p = (struct glm_pool){.counts = counts, .n_extents = n_extents, .n_free = n_extents};
    if (n_extents > 0)
        memset(counts, 0, n_extents * sizeof *counts);
}

void glm_pool_copy(struct glm_pool *to, const struct glm_pool *from)
{
    GLM_ASSERT(to->n_extents == from->n_extents);
    if (from->n_extents > 0)
        memcpy(to->counts, from->counts, from->n_extents * sizeof *to->counts);
    to->n_free = from->n_free;
}

bool glm_pool_claim(struct glm_pool *p, uint32_t n, int32_t *extents)
{
    if (n > p->n_free)
        return false;
    uint32_t found = 0;
    for (uint32_t i = 0; found < n && i < p->n_extents; i++) {
        if (p->counts[i] > 0)
            continue;
        p->counts[i] = 1;
        extents[found++] = (int32_t)i;
    }
    GLM_ASSERT(found == n);
    p->n_free -= n;
    return true;
}

void glm_pool_share(struct glm_pool *p, int32_t extent)
{
    GLM_ASSERT(extent >= 0 && (uint32_t)extent < p->n_extents && p->counts[extent] > 0);
    GLM_ASSERT(p->counts[extent] < UINT16_MAX);
    p->counts[extent]++;
}

void glm_pool_drop(struct glm_pool *p, int32_t extent)
{
    GLM_ASSERT(extent >= 0 && (uint32_t)extent < p->n_extents && p->counts[extent] > 0);
    if (--p->counts[extent] == 0)
        p->n_free++;
}
