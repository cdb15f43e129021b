/* SPDX-License-Identifier: Apache-2.0 */
/* One number at a time, for host and CUDA bodies alike, so that both give the same bits: stored
 * forms, exp, log and what is made of them. Included by the preludes, which define before it
 * GLM_INLINE, glm_f32_bits, glm_bits_f32, glm_fma1 (rounded once) and glm_sqrt1. Plain C and C++;
 * a product is fused with a sum only where it says so. */
#ifndef GLM_SCALAR_H
#define GLM_SCALAR_H

#define GLM_FINITE_MAX 3.402823466e+38f

GLM_INLINE float glm_min1(float a, float b)
{
    return a > b ? b : a;
}
GLM_INLINE float glm_max1(float a, float b)
{
    return b > a ? b : a;
}

/* ---- bf16: round to nearest, ties to even; a NaN stays one ---- */

GLM_INLINE float glm_bf16_f32(uint16_t h)
{
    return glm_bits_f32((uint32_t)h << 16);
}
GLM_INLINE uint16_t glm_f32_bf16(float a)
{
    uint32_t u = glm_f32_bits(a);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
GLM_INLINE float glm_round_bf16(float a)
{
    return glm_bf16_f32(glm_f32_bf16(a));
}

/* ---- fp16: IEEE, subnormals included ---- */

GLM_INLINE float glm_f16_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = (h >> 10) & 31u, m = h & 0x3ffu;
    if (e == 31)
        return glm_bits_f32(sign | 0x7f800000u | (m ? (m << 13) | 0x400000u : 0));
    if (e == 0)
        return glm_bits_f32(sign | glm_f32_bits((float)m * 0x1p-24f));
    return glm_bits_f32(sign | ((e + 112u) << 23) | (m << 13));
}
GLM_INLINE uint16_t glm_f32_f16(float a)
{
    uint32_t u = glm_f32_bits(a), sign = (u >> 16) & 0x8000u;
    u &= 0x7fffffffu;
    if (u > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | ((u >> 13) & 0x1ffu));
    if (u >= 0x477ff000u) /* from 65520 on */
        return (uint16_t)(sign | 0x7c00u);
    if (u < 0x38800000u) { /* below 2^-14: one addition rounds at 2^-24 */
        uint32_t t = glm_f32_bits(glm_bits_f32(u) + 0.5f);
        return (uint16_t)(sign | (t - 0x3f000000u));
    }
    u += 0xfffu + ((u >> 13) & 1u);
    return (uint16_t)(sign | ((u - 0x38000000u) >> 13));
}

/* ---- e4m3, the finite variant: largest 448, 0x7f and 0xff NaN ---- */

GLM_INLINE float glm_e4m3_f32(uint8_t c)
{
    uint32_t sign = (uint32_t)(c & 0x80u) << 24, m = c & 0x7fu;
    if (m == 0x7f)
        return glm_bits_f32(sign | 0x7fc00000u);
    /* the code as bits of a float that is 2^120 too small, subnormals included */
    return glm_bits_f32(sign | glm_f32_bits(glm_bits_f32(m << 20) * 0x1p120f));
}
/* Nearest, ties to even; beyond 448 saturates. */
GLM_INLINE uint8_t glm_f32_e4m3(float a)
{
    uint32_t u = glm_f32_bits(a), sign = (u >> 24) & 0x80u;
    u &= 0x7fffffffu;
    if (u > 0x7f800000u)
        return (uint8_t)(sign | 0x7fu);
    if (u >= 0x43e00000u) /* 448 */
        return (uint8_t)(sign | 0x7eu);
    if (u < 0x3c800000u) { /* below 2^-6: one addition rounds at 2^-9 */
        uint32_t t = glm_f32_bits(glm_bits_f32(u) + 16384.0f);
        return (uint8_t)(sign | (t - 0x46800000u));
    }
    u += 0x7ffffu + ((u >> 20) & 1u);
    return (uint8_t)(sign | ((u - 0x3c000000u) >> 20));
}

/* ---- Activations as stored ---- */

#if defined(GLM_ACT_BF16)
typedef uint16_t act_t;
#define glm_act_f32(a) glm_bf16_f32(a)
#define glm_f32_act(a) glm_f32_bf16(a)
/* A value rounded as activations are stored, still a float. */
#define glm_round_act(a) glm_round_bf16(a)
#else
typedef float act_t;
#define glm_act_f32(a)   (a)
#define glm_f32_act(a)   (a)
#define glm_round_act(a) (a)
#endif

/* ---- exp, log: within 1.5 units in the last place, gradual underflow ---- */

#define GLM_LOG2E  1.44269504f
#define GLM_LN2_HI 0.693145752f /* 16 bits: n * hi is exact */
#define GLM_LN2_LO 1.42860677e-6f
#define GLM_MAGIC  12582912.0f /* 1.5 * 2^23: adding it rounds to an integer */

GLM_INLINE float glm_exp(float x)
{
    x = glm_min1(x, 89.0f);
    x = glm_max1(x, -105.0f);
    float t = glm_fma1(x, GLM_LOG2E, GLM_MAGIC);
    float n = t - GLM_MAGIC;
    float r = glm_fma1(n, -GLM_LN2_LO, glm_fma1(n, -GLM_LN2_HI, x));
    float q = 1.0f / 5040;
    q = glm_fma1(q, r, 1.0f / 720);
    q = glm_fma1(q, r, 1.0f / 120);
    q = glm_fma1(q, r, 1.0f / 24);
    q = glm_fma1(q, r, 1.0f / 6);
    q = glm_fma1(q, r, 0.5f);
    float p = glm_fma1(q, r * r, r) + 1.0f;
    int32_t e = (int32_t)(glm_f32_bits(t) - glm_f32_bits(GLM_MAGIC)), half = e >> 1;
    float a = glm_bits_f32((uint32_t)(half + 127) << 23);
    float b = glm_bits_f32((uint32_t)(e - half + 127) << 23);
    return p * a * b;
}

/* Natural logarithm; 0 gives -inf, a negative number NaN. */
GLM_INLINE float glm_log(float x)
{
    if (!(x > 0))
        return x == 0 ? glm_bits_f32(0xff800000u) : glm_bits_f32(0x7fc00000u);
    if (x > GLM_FINITE_MAX)
        return x;
    int32_t e = 0;
    if (x < 0x1p-126f) {
        x *= 0x1p25f;
        e = -25;
    }
    uint32_t u = glm_f32_bits(x);
    int32_t shift = (int32_t)(u - 0x3f3504f3u) >> 23; /* mantissa into [sqrt(1/2), sqrt 2) */
    e += shift;
    float f = glm_bits_f32(u - ((uint32_t)shift << 23)) - 1.0f;
    float s = f / (2.0f + f), z = s * s;
    float r = 2.0f / 11;
    r = glm_fma1(r, z, 2.0f / 9);
    r = glm_fma1(r, z, 2.0f / 7);
    r = glm_fma1(r, z, 2.0f / 5);
    r = glm_fma1(r, z, 2.0f / 3);
    r = r * z;
    float h = 0.5f * f * f, n = (float)e;
    float low = glm_fma1(n, GLM_LN2_LO, s * (h + r));
    return glm_fma1(n, GLM_LN2_HI, f - (h - low));
}

/* log(1 + x), x > -1. */
GLM_INLINE float glm_log1p(float x)
{
    float u = 1.0f + x, d = u - 1.0f;
    if (d == 0)
        return x;
    if (u > 0x1p30f)
        return glm_log(u);
    return glm_log(u) * (x / d);
}

GLM_INLINE float glm_sigmoid(float x)
{
    return 1.0f / (1.0f + glm_exp(-x));
}
GLM_INLINE float glm_silu(float x)
{
    return x / (1.0f + glm_exp(-x));
}
/* log(1 + exp(x)), also for large x. */
GLM_INLINE float glm_softplus(float x)
{
    return glm_max1(x, 0.0f) + glm_log1p(glm_exp(x > 0 ? -x : x));
}

/* ---- SwiGLU with the gate clamped above only (docs/model.md 5) ---- */

/* silu(min(gate, limit)) * clip(up): still to be stored as an activation, which rounds it. */
GLM_INLINE float glm_swiglu_fused(float gate, float up, float limit)
{
    return glm_silu(glm_min1(gate, limit)) * glm_max1(glm_min1(up, limit), -limit);
}
/* The same of stored activations: silu is rounded as one. */
GLM_INLINE float glm_swiglu(float gate, float up, float limit)
{
    gate = glm_round_act(glm_silu(glm_min1(gate, limit)));
    return gate * glm_max1(glm_min1(up, limit), -limit);
}

/* x^(-1/2), of a mean square and its epsilon. */
GLM_INLINE float glm_inverse_root(float x)
{
    return 1.0f / glm_sqrt1(x);
}

#endif
