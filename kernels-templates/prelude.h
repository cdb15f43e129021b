/* SPDX-License-Identifier: Apache-2.0 */
/* The only include of a host kernel body: 16-lane vectors, conversions, exp and log (scalar.h),
 * fixed sums, state addresses. Intrinsics live here and nowhere else. Every operation gives the
 * same bits on every instruction set: sums have one order, products are fused only where a body
 * says `fma`, and nothing calls libm. Compiled with -ffp-contract=off.
 *
 * A 16-lane value is 1, 2 or 4 native registers (AVX-512, AVX2, NEON and the rest). */
#ifndef GLM_PRELUDE_H
#define GLM_PRELUDE_H

#include "host_abi.h"

#include <stdbool.h>
#include <stddef.h>

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#define GLM_INLINE static inline __attribute__((always_inline, unused))
/* Before a loop whose count is a constant and whose arrays must stay in registers. */
#if defined(__clang__)
#define GLM_UNROLL      _Pragma("clang loop unroll(full)")
#define GLM_UNROLL_MANY GLM_UNROLL
#else
#define GLM_UNROLL      _Pragma("GCC unroll 16")
#define GLM_UNROLL_MANY _Pragma("GCC unroll 64")
#endif

/* ---- Native registers ---- */

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__)
#define GLM_AVX512       1
#define GLM_NATIVE       1
#define GLM_NATIVE_LANES 16
typedef float glm_nf __attribute__((vector_size(64)));
typedef uint32_t glm_nu __attribute__((vector_size(64)));
typedef int32_t glm_ni __attribute__((vector_size(64)));
#define GLM_FILL(a) a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define GLM_AVX2         1
#define GLM_NATIVE       2
#define GLM_NATIVE_LANES 8
typedef float glm_nf __attribute__((vector_size(32)));
typedef uint32_t glm_nu __attribute__((vector_size(32)));
typedef int32_t glm_ni __attribute__((vector_size(32)));
#define GLM_FILL(a)      a, a, a, a, a, a, a, a
#else
#define GLM_NATIVE       4
#define GLM_NATIVE_LANES 4
#if defined(__ARM_NEON)
#define GLM_NEON 1
typedef float32x4_t glm_nf;
typedef uint32x4_t glm_nu;
typedef int32x4_t glm_ni;
#else
typedef float glm_nf __attribute__((vector_size(16)));
typedef uint32_t glm_nu __attribute__((vector_size(16)));
typedef int32_t glm_ni __attribute__((vector_size(16)));
#endif
#define GLM_FILL(a) a, a, a, a
#endif

typedef struct {
    glm_nf v[GLM_NATIVE];
} glm_f32x16;
typedef struct {
    glm_nu v[GLM_NATIVE];
} glm_u32x16;
typedef struct {
    glm_ni v[GLM_NATIVE];
} glm_i32x16; /* also the result of a comparison: -1 or 0 a lane */

GLM_INLINE glm_nf glm_native_fma(glm_nf a, glm_nf b, glm_nf c)
{
#if defined(GLM_AVX512)
    return _mm512_fmadd_ps(a, b, c);
#elif defined(GLM_AVX2)
    return _mm256_fmadd_ps(a, b, c);
#elif defined(GLM_NEON)
    return vfmaq_f32(c, a, b);
#else
    glm_nf r;
    GLM_UNROLL
    for (int i = 0; i < GLM_NATIVE_LANES; i++)
        r[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return r;
#endif
}

GLM_INLINE glm_nf glm_native_sqrt(glm_nf a)
{
#if defined(GLM_AVX512)
    return _mm512_sqrt_ps(a);
#elif defined(GLM_AVX2)
    return _mm256_sqrt_ps(a);
#elif defined(GLM_NEON)
    return vsqrtq_f32(a);
#else
    GLM_UNROLL
    for (int i = 0; i < GLM_NATIVE_LANES; i++)
        a[i] = __builtin_sqrtf(a[i]);
    return a;
#endif
}

/* ---- Lanes ---- */

#define GLM_LANES_BINARY(NAME, TYPE, OP)     \
    GLM_INLINE TYPE NAME(TYPE a, TYPE b)     \
    {                                        \
        TYPE r;                              \
        GLM_UNROLL                           \
        for (int i = 0; i < GLM_NATIVE; i++) \
            r.v[i] = a.v[i] OP b.v[i];       \
        return r;                            \
    }
#define GLM_LANES_COMPARE(NAME, TYPE, OP)        \
    GLM_INLINE glm_i32x16 NAME(TYPE a, TYPE b)   \
    {                                            \
        glm_i32x16 r;                            \
        GLM_UNROLL                               \
        for (int i = 0; i < GLM_NATIVE; i++)     \
            r.v[i] = (glm_ni)(a.v[i] OP b.v[i]); \
        return r;                                \
    }
#define GLM_LANES_SHIFT(NAME, TYPE, OP)      \
    GLM_INLINE TYPE NAME(TYPE a, int n)      \
    {                                        \
        TYPE r;                              \
        GLM_UNROLL                           \
        for (int i = 0; i < GLM_NATIVE; i++) \
            r.v[i] = a.v[i] OP n;            \
        return r;                            \
    }
#define GLM_LANES_CAST(NAME, FROM, TO, NATIVE_TO) \
    GLM_INLINE TO NAME(FROM a)                    \
    {                                             \
        TO r;                                     \
        GLM_UNROLL                                \
        for (int i = 0; i < GLM_NATIVE; i++)      \
            r.v[i] = (NATIVE_TO)a.v[i];           \
        return r;                                 \
    }
#define GLM_LANES_SPLAT(NAME, TYPE, NATIVE_TYPE, SCALAR) \
    GLM_INLINE TYPE NAME(SCALAR a)                       \
    {                                                    \
        NATIVE_TYPE n = {GLM_FILL(a)};                   \
        TYPE r;                                          \
        GLM_UNROLL                                       \
        for (int i = 0; i < GLM_NATIVE; i++)             \
            r.v[i] = n;                                  \
        return r;                                        \
    }
#define GLM_LANES_MEMORY(LOAD, STORE, TYPE, SCALAR, LANES)             \
    GLM_INLINE TYPE LOAD(const SCALAR *p)                              \
    {                                                                  \
        TYPE r;                                                        \
        GLM_UNROLL                                                     \
        for (int i = 0; i < GLM_NATIVE; i++)                           \
            __builtin_memcpy(&r.v[i], p + i * (LANES), sizeof r.v[i]); \
        return r;                                                      \
    }                                                                  \
    GLM_INLINE void STORE(SCALAR *p, TYPE a)                           \
    {                                                                  \
        GLM_UNROLL                                                     \
        for (int i = 0; i < GLM_NATIVE; i++)                           \
            __builtin_memcpy(p + i * (LANES), &a.v[i], sizeof a.v[i]); \
    }

GLM_LANES_MEMORY(glm_load, glm_store, glm_f32x16, float, GLM_NATIVE_LANES)
GLM_LANES_MEMORY(glm_load_u32, glm_store_u32, glm_u32x16, uint32_t, GLM_NATIVE_LANES)
GLM_LANES_MEMORY(glm_load_i32, glm_store_i32, glm_i32x16, int32_t, GLM_NATIVE_LANES)
GLM_LANES_SPLAT(glm_splat, glm_f32x16, glm_nf, float)
GLM_LANES_SPLAT(glm_splat_u32, glm_u32x16, glm_nu, uint32_t)
GLM_LANES_SPLAT(glm_splat_i32, glm_i32x16, glm_ni, int32_t)
GLM_LANES_BINARY(glm_add, glm_f32x16, +)
GLM_LANES_BINARY(glm_sub, glm_f32x16, -)
GLM_LANES_BINARY(glm_mul, glm_f32x16, *)
GLM_LANES_BINARY(glm_div, glm_f32x16, /)
GLM_LANES_BINARY(glm_add_u32, glm_u32x16, +)
GLM_LANES_BINARY(glm_sub_u32, glm_u32x16, -)
GLM_LANES_BINARY(glm_mul_u32, glm_u32x16, *)
GLM_LANES_BINARY(glm_and_u32, glm_u32x16, &)
GLM_LANES_BINARY(glm_or_u32, glm_u32x16, |)
GLM_LANES_BINARY(glm_xor_u32, glm_u32x16, ^)
GLM_LANES_BINARY(glm_add_i32, glm_i32x16, +)
GLM_LANES_BINARY(glm_sub_i32, glm_i32x16, -)
GLM_LANES_BINARY(glm_and_i32, glm_i32x16, &)
GLM_LANES_COMPARE(glm_gt, glm_f32x16, >)
GLM_LANES_COMPARE(glm_ge, glm_f32x16, >=)
GLM_LANES_COMPARE(glm_eq, glm_f32x16, ==)
GLM_LANES_COMPARE(glm_gt_i32, glm_i32x16, >)
GLM_LANES_COMPARE(glm_eq_i32, glm_i32x16, ==)
GLM_LANES_SHIFT(glm_shl_u32, glm_u32x16, <<)
GLM_LANES_SHIFT(glm_shr_u32, glm_u32x16, >>)
GLM_LANES_SHIFT(glm_shr_i32, glm_i32x16, >>)
GLM_LANES_CAST(glm_bits, glm_f32x16, glm_u32x16, glm_nu)
GLM_LANES_CAST(glm_from_bits, glm_u32x16, glm_f32x16, glm_nf)
GLM_LANES_CAST(glm_u32_as_i32, glm_u32x16, glm_i32x16, glm_ni)
GLM_LANES_CAST(glm_i32_as_u32, glm_i32x16, glm_u32x16, glm_nu)

/* a * b + c, rounded once. */
GLM_INLINE glm_f32x16 glm_fma(glm_f32x16 a, glm_f32x16 b, glm_f32x16 c)
{
    glm_f32x16 r;
    GLM_UNROLL
    for (int i = 0; i < GLM_NATIVE; i++)
        r.v[i] = glm_native_fma(a.v[i], b.v[i], c.v[i]);
    return r;
}

GLM_INLINE glm_f32x16 glm_sqrt16(glm_f32x16 a)
{
    GLM_UNROLL
    for (int i = 0; i < GLM_NATIVE; i++)
        a.v[i] = glm_native_sqrt(a.v[i]);
    return a;
}

/* mask ? a : b, a lane. */
GLM_INLINE glm_f32x16 glm_select(glm_i32x16 mask, glm_f32x16 a, glm_f32x16 b)
{
    glm_f32x16 r;
    GLM_UNROLL
    for (int i = 0; i < GLM_NATIVE; i++)
        r.v[i] = (glm_nf)((mask.v[i] & (glm_ni)a.v[i]) | (~mask.v[i] & (glm_ni)b.v[i]));
    return r;
}

GLM_INLINE glm_u32x16 glm_select_u32(glm_i32x16 mask, glm_u32x16 a, glm_u32x16 b)
{
    glm_u32x16 r;
    GLM_UNROLL
    for (int i = 0; i < GLM_NATIVE; i++)
        r.v[i] = ((glm_nu)mask.v[i] & a.v[i]) | (~(glm_nu)mask.v[i] & b.v[i]);
    return r;
}

/* A NaN in `a` stays; in `b` it is ignored. */
GLM_INLINE glm_f32x16 glm_min(glm_f32x16 a, glm_f32x16 b)
{
    return glm_select(glm_gt(a, b), b, a);
}
GLM_INLINE glm_f32x16 glm_max(glm_f32x16 a, glm_f32x16 b)
{
    return glm_select(glm_gt(b, a), b, a);
}

GLM_INLINE glm_f32x16 glm_i32_to_f32(glm_i32x16 a)
{
    glm_f32x16 r;
    GLM_UNROLL
    for (int i = 0; i < GLM_NATIVE; i++)
        r.v[i] = __builtin_convertvector(a.v[i], glm_nf);
    return r;
}

GLM_INLINE glm_f32x16 glm_zero(void)
{
    return glm_splat(0.0f);
}

/* The first n lanes from memory, the rest zero; n 0..16. */
GLM_INLINE glm_f32x16 glm_load_n(const float *p, int n)
{
    float t[16] = {0};
    for (int i = 0; i < n; i++)
        t[i] = p[i];
    return glm_load(t);
}
GLM_INLINE void glm_store_n(float *p, glm_f32x16 a, int n)
{
    float t[16];
    glm_store(t, a);
    for (int i = 0; i < n; i++)
        p[i] = t[i];
}

/* The one order in which 16 lanes are summed: i + (i+8), then + 4, + 2, + 1. */
typedef float glm_f32x4 __attribute__((vector_size(16)));
#define GLM_SHUFFLE __builtin_shufflevector

/* The first two steps: lane i of 4 holds lanes i, i+4, i+8, i+12. */
GLM_INLINE glm_f32x4 glm_sum16_quarter(glm_f32x16 a)
{
#if GLM_NATIVE == 4
    return (glm_f32x4)((a.v[0] + a.v[2]) + (a.v[1] + a.v[3]));
#else
#if GLM_NATIVE == 2
    glm_nf e = a.v[0] + a.v[1];
#else
    typedef float half __attribute__((vector_size(32)));
    half e = GLM_SHUFFLE(a.v[0], a.v[0], 0, 1, 2, 3, 4, 5, 6, 7) +
             GLM_SHUFFLE(a.v[0], a.v[0], 8, 9, 10, 11, 12, 13, 14, 15);
#endif
    return GLM_SHUFFLE(e, e, 0, 1, 2, 3) + GLM_SHUFFLE(e, e, 4, 5, 6, 7);
#endif
}
GLM_INLINE float glm_sum16(glm_f32x16 a)
{
    glm_f32x4 f = glm_sum16_quarter(a);
    return (f[0] + f[2]) + (f[1] + f[3]);
}
/* Four such sums at once, each with the bits that glm_sum16 gives. */
GLM_INLINE void glm_sum16_4(glm_f32x16 a, glm_f32x16 b, glm_f32x16 c, glm_f32x16 d, float out[4])
{
    glm_f32x4 p = glm_sum16_quarter(a), q = glm_sum16_quarter(b);
    glm_f32x4 r = glm_sum16_quarter(c), s = glm_sum16_quarter(d);
    glm_f32x4 pq = GLM_SHUFFLE(p, q, 0, 4, 1, 5) + GLM_SHUFFLE(p, q, 2, 6, 3, 7);
    glm_f32x4 rs = GLM_SHUFFLE(r, s, 0, 4, 1, 5) + GLM_SHUFFLE(r, s, 2, 6, 3, 7);
    glm_f32x4 sum = GLM_SHUFFLE(pq, rs, 0, 1, 4, 5) + GLM_SHUFFLE(pq, rs, 2, 3, 6, 7);
    __builtin_memcpy(out, &sum, sizeof sum);
}

GLM_INLINE float glm_max16(glm_f32x16 a)
{
    float t[16];
    glm_store(t, a);
    float m = t[0];
    for (int i = 1; i < 16; i++)
        m = t[i] > m ? t[i] : m;
    return m;
}

/* ---- Scalars ---- */

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
#if defined(GLM_AVX512) || defined(GLM_AVX2)
    return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(a)));
#elif defined(GLM_NEON) && defined(__aarch64__)
    return vget_lane_f32(vsqrt_f32(vdup_n_f32(a)), 0);
#else
    return __builtin_sqrtf(a);
#endif
}
#include "scalar.h"

/* ---- bf16 ---- */

GLM_INLINE glm_u32x16 glm_load_u16(const uint16_t *p)
{
    glm_u32x16 r;
#if defined(GLM_AVX512)
    r.v[0] = (glm_nu)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
#elif defined(GLM_AVX2)
    for (int i = 0; i < 2; i++)
        r.v[i] = (glm_nu)_mm256_cvtepu16_epi32(
            _mm_loadu_si128((const __m128i *)(const void *)(p + 8 * i)));
#elif defined(GLM_NEON)
    for (int i = 0; i < 4; i++)
        r.v[i] = vmovl_u16(vld1_u16(p + 4 * i));
#else
    for (int i = 0; i < 16; i++)
        r.v[i / 4][i % 4] = p[i];
#endif
    return r;
}
/* Stores the low 16 bits of each lane. */
GLM_INLINE void glm_store_u16(uint16_t *p, glm_u32x16 a)
{
#if defined(GLM_AVX512)
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16((__m512i)a.v[0]));
#else
    GLM_UNROLL
    for (int i = 0; i < GLM_NATIVE; i++)
        for (int j = 0; j < GLM_NATIVE_LANES; j++)
            p[i * GLM_NATIVE_LANES + j] = (uint16_t)a.v[i][j];
#endif
}
GLM_INLINE glm_f32x16 glm_load_bf16(const uint16_t *p)
{
    return glm_from_bits(glm_shl_u32(glm_load_u16(p), 16));
}
/* The bits of the lanes rounded to bf16, in the high half of each lane. */
GLM_INLINE glm_u32x16 glm_bf16_high(glm_f32x16 a)
{
    glm_u32x16 u = glm_bits(a);
    glm_u32x16 odd = glm_and_u32(glm_shr_u32(u, 16), glm_splat_u32(1));
    glm_u32x16 r = glm_add_u32(u, glm_add_u32(odd, glm_splat_u32(0x7fff)));
    glm_u32x16 quiet = glm_or_u32(u, glm_splat_u32(0x400000));
    r = glm_select_u32(glm_eq(a, a), r, quiet);
    return glm_and_u32(r, glm_splat_u32(0xffff0000u));
}
GLM_INLINE glm_f32x16 glm_round_bf16x16(glm_f32x16 a)
{
    return glm_from_bits(glm_bf16_high(a));
}
GLM_INLINE void glm_store_bf16(uint16_t *p, glm_f32x16 a)
{
    glm_store_u16(p, glm_shr_u32(glm_bf16_high(a), 16));
}

/* ---- fp16 ---- */

GLM_INLINE glm_f32x16 glm_load_f16(const uint16_t *p)
{
    glm_f32x16 r;
#if defined(GLM_AVX512)
    r.v[0] = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
#elif defined(GLM_AVX2)
    for (int i = 0; i < 2; i++)
        r.v[i] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + 8 * i)));
#else
    for (int i = 0; i < 16; i++)
        r.v[i / 4][i % 4] = glm_f16_f32(p[i]);
#endif
    return r;
}
/* Each lane rounded to fp16 and back. */
GLM_INLINE glm_f32x16 glm_round_f16x16(glm_f32x16 a)
{
#if defined(GLM_AVX512)
    a.v[0] = _mm512_cvtph_ps(_mm512_cvtps_ph(a.v[0], _MM_FROUND_TO_NEAREST_INT));
#elif defined(GLM_AVX2)
    for (int i = 0; i < 2; i++)
        a.v[i] = _mm256_cvtph_ps(_mm256_cvtps_ph(a.v[i], _MM_FROUND_TO_NEAREST_INT));
#else
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            a.v[i][j] = glm_f16_f32(glm_f32_f16(a.v[i][j]));
#endif
    return a;
}

/* ---- 32 lanes of 16 bits: states of the EXL3 codec ---- */

typedef uint16_t glm_nh __attribute__((vector_size(4 * GLM_NATIVE_LANES)));
typedef struct {
    glm_nh v[GLM_NATIVE];
} glm_u16x32;

GLM_LANES_MEMORY(glm_load_u16x32, glm_store_u16x32, glm_u16x32, uint16_t, 2 * GLM_NATIVE_LANES)
GLM_LANES_BINARY(glm_add_u16, glm_u16x32, +)
GLM_LANES_BINARY(glm_sub_u16, glm_u16x32, -)
GLM_LANES_BINARY(glm_mul_u16, glm_u16x32, *)
GLM_LANES_BINARY(glm_and_u16, glm_u16x32, &)
GLM_LANES_BINARY(glm_or_u16, glm_u16x32, |)
GLM_LANES_BINARY(glm_xor_u16, glm_u16x32, ^)
GLM_LANES_SHIFT(glm_shl_u16, glm_u16x32, <<)
GLM_LANES_SHIFT(glm_shr_u16, glm_u16x32, >>)

GLM_INLINE glm_u16x32 glm_splat_u16(uint16_t a)
{
    glm_nh n = {GLM_FILL(a), GLM_FILL(a)};
    glm_u16x32 r;
    GLM_UNROLL
    for (int i = 0; i < GLM_NATIVE; i++)
        r.v[i] = n;
    return r;
}
/* The high half of each lane's product. */
GLM_INLINE glm_u16x32 glm_mul_high_u16(glm_u16x32 a, glm_u16x32 b)
{
    glm_u16x32 r;
#if defined(GLM_AVX512)
    r.v[0] = (glm_nh)_mm512_mulhi_epu16((__m512i)a.v[0], (__m512i)b.v[0]);
#elif defined(GLM_AVX2)
    GLM_UNROLL
    for (int i = 0; i < 2; i++)
        r.v[i] = (glm_nh)_mm256_mulhi_epu16((__m256i)a.v[i], (__m256i)b.v[i]);
#elif defined(GLM_NEON)
    GLM_UNROLL
    for (int i = 0; i < 4; i++) {
        uint16x8_t x = (uint16x8_t)a.v[i], y = (uint16x8_t)b.v[i];
        uint32x4_t low = vmull_u16(vget_low_u16(x), vget_low_u16(y));
        uint32x4_t high = vmull_u16(vget_high_u16(x), vget_high_u16(y));
        r.v[i] = (glm_nh)vcombine_u16(vshrn_n_u32(low, 16), vshrn_n_u32(high, 16));
    }
#else
    for (int i = 0; i < GLM_NATIVE; i++)
        for (int j = 0; j < 2 * GLM_NATIVE_LANES; j++)
            r.v[i][j] = (uint16_t)((uint32_t)a.v[i][j] * b.v[i][j] >> 16);
#endif
    return r;
}
/* -1 where a < b, unsigned. */
GLM_INLINE glm_u16x32 glm_below_u16(glm_u16x32 a, glm_u16x32 b)
{
    glm_u16x32 r;
    GLM_UNROLL
    for (int i = 0; i < GLM_NATIVE; i++)
        r.v[i] = (glm_nh)(a.v[i] < b.v[i]);
    return r;
}
/* Lane 8 t + q takes lane 8 t + (q - 1) mod 8. */
GLM_INLINE glm_u16x32 glm_turn8_u16(glm_u16x32 a)
{
#if defined(GLM_AVX512)
    a.v[0] = (glm_nh)_mm512_alignr_epi8((__m512i)a.v[0], (__m512i)a.v[0], 14);
#elif defined(GLM_AVX2)
    GLM_UNROLL
    for (int i = 0; i < 2; i++)
        a.v[i] = (glm_nh)_mm256_alignr_epi8((__m256i)a.v[i], (__m256i)a.v[i], 14);
#else
    GLM_UNROLL
    for (int i = 0; i < GLM_NATIVE; i++)
        a.v[i] = GLM_SHUFFLE(a.v[i], a.v[i], 7, 0, 1, 2, 3, 4, 5, 6);
#endif
    return a;
}
/* Lanes as fp16, which are never subnormal, infinite or NaN: the first and the last sixteen. */
GLM_INLINE void glm_f16x32_f32(glm_u16x32 a, glm_f32x16 out[2])
{
#if defined(GLM_AVX512)
    out[0].v[0] = _mm512_cvtph_ps(_mm512_castsi512_si256((__m512i)a.v[0]));
    out[1].v[0] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64((__m512i)a.v[0], 1));
#elif defined(GLM_AVX2)
    GLM_UNROLL
    for (int i = 0; i < 2; i++) {
        out[i].v[0] = _mm256_cvtph_ps(_mm256_castsi256_si128((__m256i)a.v[i]));
        out[i].v[1] = _mm256_cvtph_ps(_mm256_extracti128_si256((__m256i)a.v[i], 1));
    }
#elif defined(GLM_NEON)
    GLM_UNROLL
    for (int i = 0; i < 4; i++) {
        float16x8_t h = (float16x8_t)a.v[i];
        out[i / 2].v[i % 2 * 2] = vcvt_f32_f16(vget_low_f16(h));
        out[i / 2].v[i % 2 * 2 + 1] = vcvt_f32_f16(vget_high_f16(h));
    }
#else
    for (int i = 0; i < 32; i++)
        out[i / 16].v[i % 16 / 4][i % 4] = glm_f16_f32(a.v[i / 8][i % 8]);
#endif
}

/* ---- Instructions beyond the target that change speed and no bit, asked for at run time ---- */

/* x86-64-v4 machines with fp16 arithmetic and double shifts (Sapphire Rapids and later). */
#if defined(GLM_AVX512) && !defined(GLM_NO_FP16) && (__GNUC__ >= 12 || __clang_major__ >= 14)
#include <cpuid.h>
#define GLM_HAVE_FP16 1
#define GLM_FP16_CODE __attribute__((target("avx512fp16,avx512vbmi2")))
static inline bool glm_fp16_usable(void)
{
    static int known; /* 0: not asked yet; every thread finds the same */
    int k = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (k == 0) {
        unsigned a, b, c, d;
        bool yes = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 23 & 1) && (c >> 6 & 1);
        k = yes ? 1 : -1;
        __atomic_store_n(&known, k, __ATOMIC_RELAXED);
    }
    return k > 0;
}
/* The n last-come bits of `before`, then the 16 - n first of `now`. */
#define glm_join_u16(before, now, n) \
    ((glm_u16x32){{(glm_nh)_mm512_shldi_epi16((__m512i)(before).v[0], (__m512i)(now).v[0], n)}})
/* By name of the instruction: clang 14 knows it and has no intrinsic in reach of a v4 target. */
GLM_FP16_CODE GLM_INLINE glm_u16x32 glm_add_f16x32(glm_u16x32 a, glm_u16x32 b)
{
    __asm__("vaddph %1, %0, %0" : "+v"(a.v[0]) : "v"(b.v[0]));
    return a;
}
/* a * b + c */
GLM_FP16_CODE GLM_INLINE glm_u16x32 glm_fma_f16x32(glm_u16x32 a, glm_u16x32 b, glm_u16x32 c)
{
    __asm__("vfmadd213ph %2, %1, %0" : "+v"(a.v[0]) : "v"(b.v[0]), "v"(c.v[0]));
    return a;
}
#endif

/* ---- e4m3 ---- */

/* 16 codes, one a lane. */
GLM_INLINE glm_u32x16 glm_load_u8(const uint8_t *p)
{
    glm_u32x16 c;
#if defined(GLM_AVX512)
    c.v[0] = (glm_nu)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
#elif defined(GLM_AVX2)
    for (int i = 0; i < 2; i++)
        c.v[i] = (glm_nu)_mm256_cvtepu8_epi32(
            _mm_loadl_epi64((const __m128i *)(const void *)(p + 8 * i)));
#else
    for (int i = 0; i < 16; i++)
        c.v[i / 4][i % 4] = p[i];
#endif
    return c;
}
/* Codes that are no NaN, times `scale` / 2^120. */
GLM_INLINE glm_f32x16 glm_e4m3_scaled(glm_u32x16 c, float scale)
{
    glm_u32x16 sign = glm_shl_u32(glm_and_u32(c, glm_splat_u32(0x80)), 24);
    glm_u32x16 m = glm_shl_u32(glm_and_u32(c, glm_splat_u32(0x7f)), 20);
    glm_f32x16 r = glm_mul(glm_from_bits(m), glm_splat(scale));
    return glm_from_bits(glm_or_u32(glm_bits(r), sign));
}
GLM_INLINE glm_f32x16 glm_load_e4m3(const uint8_t *p)
{
    glm_u32x16 c = glm_load_u8(p);
    glm_u32x16 m = glm_and_u32(c, glm_splat_u32(0x7f));
    glm_i32x16 nan = glm_eq_i32(glm_u32_as_i32(m), glm_splat_i32(0x7f));
    glm_u32x16 r = glm_bits(glm_e4m3_scaled(c, 0x1p120f));
    return glm_from_bits(glm_select_u32(nan, glm_or_u32(r, glm_splat_u32(0x7fc00000u)), r));
}
/* The value times 2^-8, which is the fp16 with the code's bits: for weights, whose scale takes the
 * 2^8 and whose codes are never NaN. */
GLM_INLINE glm_f32x16 glm_load_e4m3_256th(const uint8_t *p)
{
#if defined(GLM_AVX512)
    __m256i c = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
    c = _mm256_and_si256(_mm256_slli_epi16(c, 7), _mm256_set1_epi16((short)0xbf80));
    return (glm_f32x16){{_mm512_cvtph_ps(c)}};
#else
    return glm_e4m3_scaled(glm_load_u8(p), 0x1p112f);
#endif
}

/* ---- 4-bit codes: nibble n of each lane's low 16 bits, as a float ---- */

GLM_INLINE glm_f32x16 glm_nibble(glm_u32x16 u, int n)
{
#if defined(GLM_AVX512)
    const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return (glm_f32x16){
        {_mm512_permutexvar_ps(_mm512_srli_epi32((__m512i)u.v[0], (unsigned)(4 * n)), codes)}};
#else
    u = glm_and_u32(glm_shr_u32(u, 4 * n), glm_splat_u32(15));
    return glm_i32_to_f32(glm_u32_as_i32(u));
#endif
}

/* ---- Activations as stored ---- */

#if defined(GLM_ACT_BF16)
#define glm_load_act(p)     glm_load_bf16(p)
#define glm_store_act(p, a) glm_store_bf16((p), (a))
#define glm_round_act16(a)  glm_round_bf16x16(a)
#else
#define glm_load_act(p)     glm_load(p)
#define glm_store_act(p, a) glm_store((p), (a))
#define glm_round_act16(a)  (a)
#endif

/* ---- exp and what is made of it, the bits of scalar.h in every lane ---- */

GLM_INLINE glm_f32x16 glm_exp16(glm_f32x16 x)
{
    x = glm_min(x, glm_splat(89.0f));
    x = glm_max(x, glm_splat(-105.0f));
    glm_f32x16 t = glm_fma(x, glm_splat(GLM_LOG2E), glm_splat(GLM_MAGIC));
    glm_f32x16 n = glm_sub(t, glm_splat(GLM_MAGIC));
    glm_f32x16 r = glm_fma(n, glm_splat(-GLM_LN2_LO), glm_fma(n, glm_splat(-GLM_LN2_HI), x));
    glm_f32x16 q = glm_splat(1.0f / 5040);
    q = glm_fma(q, r, glm_splat(1.0f / 720));
    q = glm_fma(q, r, glm_splat(1.0f / 120));
    q = glm_fma(q, r, glm_splat(1.0f / 24));
    q = glm_fma(q, r, glm_splat(1.0f / 6));
    q = glm_fma(q, r, glm_splat(0.5f));
    glm_f32x16 p = glm_add(glm_fma(q, glm_mul(r, r), r), glm_splat(1.0f));
    glm_i32x16 e = glm_u32_as_i32(glm_sub_u32(glm_bits(t), glm_bits(glm_splat(GLM_MAGIC))));
    glm_i32x16 half = glm_shr_i32(e, 1);
    glm_u32x16 bias = glm_splat_u32(127);
    glm_u32x16 a = glm_shl_u32(glm_add_u32(glm_i32_as_u32(half), bias), 23);
    glm_u32x16 b = glm_shl_u32(glm_add_u32(glm_i32_as_u32(glm_sub_i32(e, half)), bias), 23);
    return glm_mul(glm_mul(p, glm_from_bits(a)), glm_from_bits(b));
}

GLM_INLINE glm_f32x16 glm_sigmoid16(glm_f32x16 x)
{
    glm_f32x16 one = glm_splat(1.0f);
    return glm_div(one, glm_add(one, glm_exp16(glm_sub(glm_zero(), x))));
}
GLM_INLINE glm_f32x16 glm_silu16(glm_f32x16 x)
{
    return glm_div(x, glm_add(glm_splat(1.0f), glm_exp16(glm_sub(glm_zero(), x))));
}
/* ---- Sums over memory: 16 lanes over k, then glm_sum16 ---- */

/* a · b, n elements; a tail joins the first lanes last. */
GLM_INLINE float glm_dot(const float *a, const float *b, int n)
{
    glm_f32x16 s = glm_zero();
    int i = 0;
    for (; i + 16 <= n; i += 16)
        s = glm_fma(glm_load(a + i), glm_load(b + i), s);
    if (i < n)
        s = glm_fma(glm_load_n(a + i, n - i), glm_load_n(b + i, n - i), s);
    return glm_sum16(s);
}

/* ---- The 128-point Hadamard transform, natural order, divided by sqrt(128) ---- */

/* partner ± own inside one native register for a stride below its lanes. */
GLM_INLINE glm_nf glm_butterfly(glm_nf a, int stride)
{
#if GLM_NATIVE_LANES == 16
    const glm_nf s1 = {1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1};
    const glm_nf s2 = {1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1};
    const glm_nf s4 = {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1};
    const glm_nf s8 = {1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1};
    if (stride == 1)
        return glm_native_fma(
            a, s1, GLM_SHUFFLE(a, a, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
    if (stride == 2)
        return glm_native_fma(
            a, s2, GLM_SHUFFLE(a, a, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
    if (stride == 4)
        return glm_native_fma(
            a, s4, GLM_SHUFFLE(a, a, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
    return glm_native_fma(a, s8,
                          GLM_SHUFFLE(a, a, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
#elif GLM_NATIVE_LANES == 8
    const glm_nf s1 = {1, -1, 1, -1, 1, -1, 1, -1}, s2 = {1, 1, -1, -1, 1, 1, -1, -1};
    const glm_nf s4 = {1, 1, 1, 1, -1, -1, -1, -1};
    if (stride == 1)
        return glm_native_fma(a, s1, GLM_SHUFFLE(a, a, 1, 0, 3, 2, 5, 4, 7, 6));
    if (stride == 2)
        return glm_native_fma(a, s2, GLM_SHUFFLE(a, a, 2, 3, 0, 1, 6, 7, 4, 5));
    return glm_native_fma(a, s4, GLM_SHUFFLE(a, a, 4, 5, 6, 7, 0, 1, 2, 3));
#else
    const glm_nf s1 = {1, -1, 1, -1}, s2 = {1, 1, -1, -1};
    if (stride == 1)
        return glm_native_fma(a, s1, GLM_SHUFFLE(a, a, 1, 0, 3, 2));
    return glm_native_fma(a, s2, GLM_SHUFFLE(a, a, 2, 3, 0, 1));
#endif
}

/* In place. Butterflies of stride 1, 2, 4 ... 64, then the factor. */
GLM_INLINE void glm_hadamard128(glm_f32x16 block[8])
{
    enum { N = 8 * GLM_NATIVE };
    glm_nf r[N];
    GLM_UNROLL
    for (int i = 0; i < 8; i++) {
        GLM_UNROLL
        for (int j = 0; j < GLM_NATIVE; j++)
            r[i * GLM_NATIVE + j] = block[i].v[j];
    }
    GLM_UNROLL
    for (int s = 1; s < GLM_NATIVE_LANES; s *= 2) {
        GLM_UNROLL_MANY
        for (int i = 0; i < N; i++)
            r[i] = glm_butterfly(r[i], s);
    }
    GLM_UNROLL
    for (int s = 1; s < N; s *= 2) {
        GLM_UNROLL_MANY
        for (int i = 0; i < N; i++) {
            if ((i & s) == 0) {
                glm_nf a = r[i], b = r[i + s];
                r[i] = a + b;
                r[i + s] = a - b;
            }
        }
    }
    const glm_nf scale = {GLM_FILL(0.08838834764831845f)};
    GLM_UNROLL
    for (int i = 0; i < 8; i++) {
        GLM_UNROLL
        for (int j = 0; j < GLM_NATIVE; j++)
            block[i].v[j] = r[i * GLM_NATIVE + j] * scale;
    }
}

/* ---- SwiGLU, as scalar.h has it ---- */

GLM_INLINE glm_f32x16 glm_swiglu16_fused(glm_f32x16 gate, glm_f32x16 up, float limit)
{
    up = glm_max(glm_min(up, glm_splat(limit)), glm_splat(-limit));
    return glm_mul(glm_silu16(glm_min(gate, glm_splat(limit))), up);
}
GLM_INLINE glm_f32x16 glm_swiglu16(glm_f32x16 gate, glm_f32x16 up, float limit)
{
    up = glm_max(glm_min(up, glm_splat(limit)), glm_splat(-limit));
    return glm_mul(glm_round_act16(glm_silu16(glm_min(gate, glm_splat(limit)))), up);
}

/* ---- Threads ---- */

/* This thread's part of n items: [*first, *last), as even as it goes. */
GLM_INLINE void glm_part(const struct glm_launch *l, int64_t n, int64_t *first, int64_t *last)
{
    *first = n * (int64_t)l->thread / (int64_t)l->n_threads;
    *last = n * (int64_t)(l->thread + 1) / (int64_t)l->n_threads;
}

GLM_INLINE void glm_barrier(const struct glm_launch *l)
{
    if (l->n_threads > 1)
        l->barrier(l->barrier_state);
}

#include "state.h"

#endif
