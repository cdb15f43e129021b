/* SPDX-License-Identifier: Apache-2.0 */
/* The elements of a synthetic checkpoint's tensors, for whoever makes them: spec/synthetic.c and
 * the converters of weights on a GPU, which get the same bits. Element i is a hash of (tensor name,
 * i) mapped to a range, so that it is alike for every split and device. Plain C and C++; on a GPU
 * included after the prelude. */
#ifndef GLM_SYNTHETIC_H
#define GLM_SYNTHETIC_H

#ifndef GLM_SCALAR_H
#include "host_scalar.h"
#endif

#define GLM_SYNTHETIC_UNIFORM 0 /* low + step * u for u in 0..65535 */
#define GLM_SYNTHETIC_SIGNED  1 /* the same as a magnitude, with either sign */
#define GLM_SYNTHETIC_BITS    2 /* the hash itself */
#define GLM_SYNTHETIC_MARKER  3 /* of the mcg codebook */

/* As enum glm_dtype numbers them. Others have no range: their elements are the hash's bits. */
#define GLM_SYNTHETIC_F32  3
#define GLM_SYNTHETIC_F16  6
#define GLM_SYNTHETIC_BF16 7

#define GLM_MCG_MARKER 0xCBAC1FEDu

struct glm_synthetic_values {
    uint64_t seed;
    double low, step;
    int32_t kind, dtype;
};

/* splitmix64's finaliser over a counter: cheap, and good enough that neighbours are unrelated. */
GLM_INLINE uint64_t glm_synthetic_mix(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Raw bits of the element whose 16 bits of the hash are u. */
GLM_INLINE uint32_t glm_synthetic_encode(const struct glm_synthetic_values *s, uint32_t u)
{
    if (s->kind == GLM_SYNTHETIC_BITS)
        return u;
    if (s->kind == GLM_SYNTHETIC_MARKER)
        return GLM_MCG_MARKER;
    const double part = s->step * (s->kind == GLM_SYNTHETIC_SIGNED ? (u & 0xFFFEu) : u);
    double value = s->low + part;
    if (s->kind == GLM_SYNTHETIC_SIGNED && (u & 1) != 0)
        value = -value;
    if (s->dtype == GLM_SYNTHETIC_BF16)
        return glm_f32_bf16((float)value);
    if (s->dtype == GLM_SYNTHETIC_F16)
        return glm_f32_f16((float)value);
    if (s->dtype == GLM_SYNTHETIC_F32)
        return glm_f32_bits((float)value);
    return u;
}

/* Four consecutive elements share one hash. */
GLM_INLINE uint32_t glm_synthetic_bits(const struct glm_synthetic_values *s, uint64_t i)
{
    const uint64_t hash = glm_synthetic_mix(s->seed, i / 4);
    return glm_synthetic_encode(s, (uint32_t)(hash >> (16 * (i % 4))) & 0xFFFFu);
}

#endif
