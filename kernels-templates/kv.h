/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the token and pool caches in the lane's KV form. A row of width w:
 *   fp32  4w bytes      bf16  2w bytes
 *   fp8   w e4m3 codes, an fp32 scale that is a power of two, zeros to w + 16 bytes; codes and
 * scale are made from the row rounded to bf16 and give back code · scale exactly
 * (docs/formats.md 6). A row's bytes depend on that row alone. */
#ifndef GLM_KV_H
#define GLM_KV_H

#include "prelude.h"

#if defined(GLM_KV_fp8)
#define GLM_KV_ROW_BYTES(w) ((size_t)(w) + 16)
#elif defined(GLM_KV_bf16)
#define GLM_KV_ROW_BYTES(w) ((size_t)(w)*2)
#else
#define GLM_KV_ROW_BYTES(w) ((size_t)(w)*4)
#endif

/* The bf16-rounded row's largest magnitude → exponent field E of the scale 2^(E - 127). */
GLM_INLINE uint32_t glm_kv_exponent(float largest)
{
    uint32_t a = glm_f32_bits(largest) & 0x7fffffffu;
    int32_t e = (int32_t)(a >> 23) + ((a & 0x7fffffu) != 0) - 8;
    return (uint32_t)(e < 1 ? 1 : e > 254 ? 254 : e);
}

/* Lanes → e4m3 codes, nearest, ties to even; magnitudes up to 448, a NaN stays one. */
GLM_INLINE void glm_store_e4m3(uint8_t *p, glm_f32x16 x)
{
    glm_u32x16 u = glm_bits(x), a = glm_and_u32(u, glm_splat_u32(0x7fffffffu));
    glm_u32x16 odd = glm_and_u32(glm_shr_u32(a, 20), glm_splat_u32(1));
    glm_u32x16 normal = glm_add_u32(a, glm_add_u32(odd, glm_splat_u32(0x7ffffu - 0x3c000000u)));
    normal = glm_shr_u32(normal, 20);
    /* below 2^-6 one addition rounds at 2^-9 */
    glm_u32x16 small = glm_bits(glm_add(glm_from_bits(a), glm_splat(16384.0f)));
    small = glm_sub_u32(small, glm_splat_u32(0x46800000u));
    glm_i32x16 is_normal = glm_ge(glm_from_bits(a), glm_splat(0x1p-6f));
    glm_u32x16 code = glm_select_u32(is_normal, normal, small);
    code = glm_select_u32(glm_eq(x, x), code, glm_splat_u32(0x7f));
    code = glm_or_u32(code, glm_and_u32(glm_shr_u32(u, 24), glm_splat_u32(0x80)));
    uint32_t t[16];
    glm_store_u32(t, code);
    for (int i = 0; i < 16; i++)
        p[i] = (uint8_t)t[i];
}

/* Stores w values, w a multiple of 16. */
GLM_INLINE void glm_kv_store(char *row, const float *values, int w)
{
#if defined(GLM_KV_fp8)
    glm_f32x16 largest = glm_zero();
    for (int i = 0; i < w; i += 16) {
        glm_u32x16 u = glm_bits(glm_round_bf16x16(glm_load(values + i)));
        largest = glm_max(largest, glm_from_bits(glm_and_u32(u, glm_splat_u32(0x7fffffffu))));
    }
    uint32_t e = glm_kv_exponent(glm_max16(largest));
    glm_f32x16 inverse = glm_splat(glm_bits_f32((254 - e) << 23));
    for (int i = 0; i < w; i += 16)
        glm_store_e4m3((uint8_t *)row + i,
                       glm_mul(glm_round_bf16x16(glm_load(values + i)), inverse));
    uint32_t tail[4] = {e << 23, 0, 0, 0};
    __builtin_memcpy(row + w, tail, sizeof tail);
#elif defined(GLM_KV_bf16)
    for (int i = 0; i < w; i += 16)
        glm_store_bf16((uint16_t *)(void *)row + i, glm_load(values + i));
#else
    __builtin_memcpy(row, values, (size_t)w * sizeof(float));
#endif
}

/* A row of width w as floats. */
GLM_INLINE void glm_kv_load(float *values, const char *row, int w)
{
#if defined(GLM_KV_fp8)
    float scale;
    __builtin_memcpy(&scale, row + w, sizeof scale);
    for (int i = 0; i < w; i += 16)
        glm_store(values + i, glm_mul(glm_load_e4m3((const uint8_t *)row + i), glm_splat(scale)));
#elif defined(GLM_KV_bf16)
    for (int i = 0; i < w; i += 16)
        glm_store(values + i, glm_load_bf16((const uint16_t *)(const void *)row + i));
#else
    __builtin_memcpy(values, row, (size_t)w * sizeof(float));
#endif
}

#endif
