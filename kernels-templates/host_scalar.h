/* SPDX-License-Identifier: Apache-2.0 */
/* scalar.h for a host: what it asks of its includer. */
#ifndef GLM_HOST_SCALAR_H
#define GLM_HOST_SCALAR_H

#include <stdint.h>

#if defined(__SSE__)
#include <xmmintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#define GLM_INLINE static inline __attribute__((always_inline, unused))

GLM_INLINE uint32_t glm_f32_bits(float a)
{
    uint32_t u;
    __builtin_memcpy(&u, &a, sizeof u);
    return u;
}
GLM_INLINE float glm_bits_f32(uint32_t u)
{
    float a;
    __builtin_memcpy(&a, &u, sizeof a);
    return a;
}
GLM_INLINE float glm_fma1(float a, float b, float c)
{
    return __builtin_fmaf(a, b, c);
}
GLM_INLINE float glm_sqrt1(float a)
{
#if defined(__SSE__)
    return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(a)));
#elif defined(__ARM_NEON) && defined(__aarch64__)
    return vget_lane_f32(vsqrt_f32(vdup_n_f32(a)), 0);
#else
    return __builtin_sqrtf(a);
#endif
}

#include "scalar.h"

#endif
