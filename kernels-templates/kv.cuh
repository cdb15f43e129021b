/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the token and pool caches in the lane's KV form, made by a whole block. The layouts and
 * their bits are those of kv.h. */
#ifndef GLM_KV_CUH
#define GLM_KV_CUH

#include "prelude.cuh"

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
    const uint32_t a = glm_f32_bits(largest) & 0x7fffffffu;
    const int32_t e = (int32_t)(a >> 23) + ((a & 0x7fffffu) != 0) - 8;
    return (uint32_t)(e < 1 ? 1 : e > 254 ? 254 : e);
}

/* In every thread of the block the largest v; a NaN is none. */
GLM_INLINE float glm_block_max(float v)
{
    GLM_SHARED float part[GLM_WARPS];
    GLM_UNROLL
    for (int mask = 16; mask > 0; mask /= 2)
        v = glm_max1(v, glm_shuffle_xor_f32(v, mask));
    glm_barrier();
    if (glm_lane() == 0)
        part[glm_warp()] = v;
    glm_barrier();
    v = part[0];
    GLM_UNROLL
    for (int w = 1; w < GLM_WARPS; w++)
        v = glm_max1(v, part[w]);
    return v;
}

/* Stores w stored activations, in shared memory for all to see, as a cache row. */
GLM_INLINE void glm_kv_store(char *row, const act_t *values, int w)
{
#if defined(GLM_KV_fp8)
    float largest = 0.0f;
    for (int i = glm_thread(); i < w; i += GLM_BLOCK)
        largest =
            glm_max1(largest, glm_bits_f32(glm_f32_bits(glm_act_f32(values[i])) & 0x7fffffffu));
    const uint32_t e = glm_kv_exponent(glm_block_max(largest));
    const float inverse = glm_bits_f32((254 - e) << 23);
    for (int i = glm_thread(); i < w; i += GLM_BLOCK)
        ((uint8_t *)row)[i] = glm_f32_e4m3(glm_act_f32(values[i]) * inverse);
    if (glm_thread() < 4)
        ((uint32_t *)(row + w))[glm_thread()] = glm_thread() == 0 ? e << 23 : 0;
#else
    for (int i = glm_thread(); i < w; i += GLM_BLOCK)
#if defined(GLM_KV_bf16)
        ((uint16_t *)row)[i] = values[i];
#else
        ((float *)row)[i] = glm_act_f32(values[i]);
#endif
#endif
}

#endif
