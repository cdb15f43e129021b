/* SPDX-License-Identifier: Apache-2.0 */
/* The exact k largest of many numbers by a whole block: floats as integers of the same order, the
 * k-th largest by radix passes, and who is above it. */
#ifndef GLM_SELECT_CUH
#define GLM_SELECT_CUH

#include "prelude.cuh"

/* As an integer of the same order; both zeros are one, and no number becomes 0. */
GLM_INLINE uint32_t glm_ordered(float x)
{
    const uint32_t u = glm_f32_bits(x + 0.0f);
    return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}
GLM_INLINE float glm_ordered_f32(uint32_t key)
{
    return glm_bits_f32((key & 0x80000000u) != 0 ? key ^ 0x80000000u : ~key);
}

/* In every thread the sum over the block. */
GLM_INLINE int32_t glm_block_sum(int32_t v)
{
    GLM_SHARED int32_t part[GLM_WARPS];
    GLM_UNROLL
    for (int mask = 16; mask > 0; mask /= 2)
        v += (int32_t)glm_shuffle_xor((uint32_t)v, mask);
    glm_barrier();
    if (glm_lane() == 0)
        part[glm_warp()] = v;
    glm_barrier();
    v = 0;
    GLM_UNROLL
    for (int w = 0; w < GLM_WARPS; w++)
        v += part[w];
    return v;
}

/* Who is among the take largest: keys above least, and the first n_equal of those equal to it. */
struct glm_cut {
    uint32_t least;
    int32_t n_equal;
};

enum { GLM_SELECT_BINS = 2048, GLM_SELECT_EACH = GLM_SELECT_BINS / GLM_BLOCK };

/* The bin in which the take-th largest lies, counted from the highest; *take: its place in it. By
 * one thread, over sums of warps, of threads and bins. */
GLM_INLINE uint32_t glm_select_bin(const uint32_t *count, const uint32_t *of_thread,
                                   const uint32_t *of_warp, int32_t *take)
{
    int32_t left = *take, w = GLM_WARPS - 1;
    for (; w > 0 && (int32_t)of_warp[w] < left; w--)
        left -= (int32_t)of_warp[w];
    int32_t t = w * GLM_WARP + GLM_WARP - 1;
    for (; t > w * GLM_WARP && (int32_t)of_thread[t] < left; t--)
        left -= (int32_t)of_thread[t];
    int32_t b = t * GLM_SELECT_EACH + GLM_SELECT_EACH - 1;
    for (; b > t * GLM_SELECT_EACH && (int32_t)count[b] < left; b--)
        left -= (int32_t)count[b];
    *take = left;
    return (uint32_t)b;
}

/* Of n keys, `stride` words apart; 1 <= take <= n. */
GLM_INLINE struct glm_cut glm_select_largest(const uint32_t *key, size_t stride, int32_t n,
                                             int32_t take)
{
    GLM_SHARED uint32_t count[GLM_SELECT_BINS], of_thread[GLM_BLOCK], of_warp[GLM_WARPS];
    GLM_SHARED uint32_t bin;
    GLM_SHARED int32_t left;
    uint32_t prefix = 0, known = 0;
    for (int pass = 0; pass < 3; pass++) {
        const int shift = pass == 0 ? 21 : pass == 1 ? 10 : 0;
        const uint32_t last = pass < 2 ? 2047 : 1023;
        glm_barrier();
        for (int i = glm_thread(); i < GLM_SELECT_BINS; i += GLM_BLOCK)
            count[i] = 0;
        glm_barrier();
        for (int32_t i = glm_thread(); i < n; i += GLM_BLOCK) {
            const uint32_t k = key[(size_t)i * stride];
            if ((k & known) == prefix)
                glm_count(&count[(k >> shift) & last]);
        }
        glm_barrier();
        uint32_t sum = 0;
        GLM_UNROLL
        for (int i = 0; i < GLM_SELECT_EACH; i++)
            sum += count[glm_thread() * GLM_SELECT_EACH + i];
        of_thread[glm_thread()] = sum;
        GLM_UNROLL
        for (int mask = 16; mask > 0; mask /= 2)
            sum += glm_shuffle_xor(sum, mask);
        if (glm_lane() == 0)
            of_warp[glm_warp()] = sum;
        glm_barrier();
        if (glm_thread() == 0) {
            left = take;
            bin = glm_select_bin(count, of_thread, of_warp, &left);
        }
        glm_barrier();
        take = left;
        prefix |= bin << shift;
        known |= last << shift;
    }
    const struct glm_cut cut = {prefix, take};
    return cut;
}

/* The place of this thread's key among those taken, or -1; called by the whole block for one key a
 * thread, in order. *n_taken: how many there were before, and then with these. A key of 0 is none.
 */
GLM_INLINE int32_t glm_select_place(struct glm_cut *cut, uint32_t key, int32_t *n_taken)
{
    GLM_SHARED uint32_t more[GLM_WARPS], equal[GLM_WARPS];
    const uint32_t before = (1u << glm_lane()) - 1;
    const uint32_t m = glm_ballot(key > cut->least), q = glm_ballot(key == cut->least && key != 0);
    if (glm_lane() == 0) {
        more[glm_warp()] = m;
        equal[glm_warp()] = q;
    }
    glm_barrier();
    int32_t n_more = glm_ones(m & before), n_equal = glm_ones(q & before);
    int32_t all_more = 0, all_equal = 0;
    GLM_UNROLL
    for (int w = 0; w < GLM_WARPS; w++) {
        n_more += w < glm_warp() ? glm_ones(more[w]) : 0;
        n_equal += w < glm_warp() ? glm_ones(equal[w]) : 0;
        all_more += glm_ones(more[w]);
        all_equal += glm_ones(equal[w]);
    }
    int32_t place = -1;
    if ((m >> glm_lane() & 1u) != 0 || ((q >> glm_lane() & 1u) != 0 && n_equal < cut->n_equal))
        place = *n_taken + n_more + (n_equal < cut->n_equal ? n_equal : cut->n_equal);
    all_equal = all_equal < cut->n_equal ? all_equal : cut->n_equal;
    *n_taken += all_more + all_equal;
    cut->n_equal -= all_equal;
    glm_barrier();
    return place;
}

#endif
