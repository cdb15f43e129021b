/* SPDX-License-Identifier: Apache-2.0 */
/* Which expert a block works, and which picks are its: found by every block for itself from the
 * round's picks, so that no launch and no wait stands before the first weight. A pick is
 * row * TOPK + slot; an id outside [0, E), as padded rows carry, is none. */
#ifndef GLM_EXPERTS_CUH
#define GLM_EXPERTS_CUH

#include "prelude.cuh"

/* Members of an expert that are worked at once: GLM_MEMBERS, and what one more look adds. */
enum { GLM_MEMBERS = 32, GLM_MEMBER_ROOM = GLM_MEMBERS + GLM_BLOCK };

struct glm_expert {
    int32_t id;         /* -1: there are not so many distinct experts */
    int32_t n_distinct; /* in the round */
};

/* The n-th of the distinct experts, ids ascending. */
GLM_INLINE struct glm_expert glm_expert_find(const int32_t *ids, int32_t n_picks, int32_t n)
{
    enum { WORDS = (GLM_E + 31) / 32 };
    GLM_SHARED uint32_t present[WORDS];
    for (int i = glm_thread(); i < WORDS; i += GLM_BLOCK)
        present[i] = 0;
    glm_barrier();
    for (int32_t i = glm_thread(); i < n_picks; i += GLM_BLOCK)
        if (ids[i] >= 0 && ids[i] < GLM_E)
            glm_mark(&present[ids[i] / 32], 1u << ids[i] % 32);
    glm_barrier();
    struct glm_expert e = {-1, 0};
    for (int w = 0; w < WORDS; w++) {
        uint32_t word = present[w];
        const int32_t ones = glm_ones(word);
        if (n >= e.n_distinct && n < e.n_distinct + ones) {
            for (int32_t i = e.n_distinct; i < n; i++)
                word &= word - 1;
            e.id = w * 32 + glm_ones((word & (0u - word)) - 1);
        }
        e.n_distinct += ones;
    }
    return e;
}

/* The expert's next picks from *from on into members[], which all see; their number, and *from
 * moves on. At least GLM_MEMBERS of them unless there are no more. */
GLM_INLINE int32_t glm_expert_members(const int32_t *ids, int32_t n_picks, int32_t expert,
                                      int32_t *from, int32_t members[GLM_MEMBER_ROOM])
{
    GLM_SHARED uint32_t found[GLM_WARPS];
    int32_t n = 0;
    for (; *from < n_picks && n < GLM_MEMBERS; *from += GLM_BLOCK) {
        const int32_t i = *from + glm_thread();
        const uint32_t mine = glm_ballot(i < n_picks && ids[i] == expert);
        glm_barrier();
        if (glm_lane() == 0)
            found[glm_warp()] = mine;
        glm_barrier();
        int32_t at = n + glm_ones(mine & ((1u << glm_lane()) - 1));
        GLM_UNROLL
        for (int w = 0; w < GLM_WARPS; w++) {
            at += w < glm_warp() ? glm_ones(found[w]) : 0;
            n += glm_ones(found[w]);
        }
        if ((mine >> glm_lane() & 1u) != 0)
            members[at] = i;
    }
    glm_barrier();
    return n;
}

#endif
