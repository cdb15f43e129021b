/* SPDX-License-Identifier: Apache-2.0 */
/* Picks of a round grouped by expert, so that each distinct expert's weights are read once for all
 * its rows. A pick is row * TOPK + slot. */
#ifndef GLM_EXPERTS_H
#define GLM_EXPERTS_H

#include "prelude.h"

/* In shared scratch, written by thread 0. */
struct glm_groups {
    int32_t *picks;    /* [R * TOPK] grouped by expert ascending, rows ascending within */
    int32_t *ends;     /* [E]: end of expert e's picks, which start where e-1's end */
    int32_t *distinct; /* [E]: ids of experts with picks, ascending */
    int32_t *n_distinct;
};

/* Bytes: 4 * (R * TOPK + 2 * E + 1), rounded up to 64. */
GLM_INLINE char *glm_groups_at(void *scratch, int64_t n_picks, struct glm_groups *g)
{
    g->picks = scratch;
    g->ends = g->picks + n_picks;
    g->distinct = g->ends + GLM_E;
    g->n_distinct = g->distinct + GLM_E;
    size_t bytes = (size_t)(n_picks + 2 * GLM_E + 1) * sizeof(int32_t);
    return (char *)scratch + ((bytes + 63) & ~(size_t)63);
}

/* An id outside [0, E), as padded rows carry, belongs to no group. */
GLM_INLINE void glm_groups_build(const struct glm_groups *g, const int32_t *ids, int64_t n_picks)
{
    for (int e = 0; e < GLM_E; e++)
        g->ends[e] = 0;
    for (int64_t i = 0; i < n_picks; i++)
        if (ids[i] >= 0 && ids[i] < GLM_E)
            g->ends[ids[i]]++;
    int32_t at = 0, n = 0;
    for (int e = 0; e < GLM_E; e++) {
        int32_t count = g->ends[e];
        if (count)
            g->distinct[n++] = e;
        g->ends[e] = at; /* its start, until the picks below move it to its end */
        at += count;
    }
    *g->n_distinct = n;
    for (int64_t i = 0; i < n_picks; i++)
        if (ids[i] >= 0 && ids[i] < GLM_E)
            g->picks[g->ends[ids[i]]++] = (int32_t)i;
}

GLM_INLINE int32_t glm_groups_first(const struct glm_groups *g, int32_t expert)
{
    return expert ? g->ends[expert - 1] : 0;
}

#endif
