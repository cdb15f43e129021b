/* SPDX-License-Identifier: Apache-2.0 */
/* The exact k largest of many numbers: floats as integers of the same order, and the k-th largest
 * of those by radix passes. */
#ifndef GLM_SELECT_H
#define GLM_SELECT_H

#include "prelude.h"

/* Lanes as integers of the same order; both zeros are one, and no number becomes 0. */
GLM_INLINE glm_u32x16 glm_ordered16(glm_f32x16 x)
{
    glm_u32x16 u = glm_bits(glm_add(x, glm_zero()));
    glm_u32x16 negative = glm_i32_as_u32(glm_shr_i32(glm_u32_as_i32(u), 31));
    return glm_xor_u32(u, glm_or_u32(negative, glm_splat_u32(0x80000000u)));
}
GLM_INLINE float glm_ordered_f32(uint32_t key)
{
    return glm_bits_f32((key & 0x80000000u) != 0 ? key ^ 0x80000000u : ~key);
}

/* The take-th largest of n keys, `stride` words apart; 1 <= take <= n. *n_equal: how many of those
 * equal to it are among the take largest. */
static inline uint32_t glm_select_largest(const uint32_t *key, size_t stride, int32_t n,
                                          int32_t take, int32_t *n_equal)
{
    static const int shifts[] = {21, 10, 0};
    uint32_t count[2048], prefix = 0, known = 0;
    for (int pass = 0; pass < 3; pass++) {
        int shift = shifts[pass];
        uint32_t last = pass < 2 ? 2047 : 1023, b = last;
        __builtin_memset(count, 0, sizeof count);
        for (int32_t i = 0; i < n; i++) {
            uint32_t k = key[(size_t)i * stride];
            if ((k & known) == prefix)
                count[(k >> shift) & last]++;
        }
        while (b > 0 && (int32_t)count[b] < take)
            take -= (int32_t)count[b--];
        prefix |= b << shift;
        known |= last << shift;
    }
    *n_equal = take;
    return prefix;
}

#endif
