/* SPDX-License-Identifier: Apache-2.0 */
/* The only include of a CUDA body but for headers of this folder. What touches the machine is
 * device.cuh, or tests/simt on a CPU; here is what is made of it. Compiled with -fmad=false: a
 * product joins a sum without rounding only where a body says `fma`, so that a row has the bits of
 * the host body wherever the order of sums is the same. */
#ifndef GLM_PRELUDE_CUH
#define GLM_PRELUDE_CUH

#ifdef GLM_SIMT
#include GLM_SIMT
#else
#include "device.cuh"
#endif

#include "cuda_abi.h"
#include "scalar.h"
#include "state.h"

#if !defined(GLM_ACT_BF16)
#error "CUDA kernels store activations as bf16"
#endif

#define GLM_WARP  32
#define GLM_WARPS (GLM_BLOCK / GLM_WARP)

GLM_INLINE int32_t glm_lane(void)
{
    return glm_thread() % GLM_WARP;
}
GLM_INLINE int32_t glm_warp(void)
{
    return glm_thread() / GLM_WARP;
}

/* ---- Eight elements, 16 bytes of bf16 ---- */

GLM_INLINE void glm_unpack8(glm_u32x4 u, float v[8])
{
    GLM_UNROLL
    for (int i = 0; i < 4; i++) {
        v[2 * i] = glm_bits_f32(u.v[i] << 16);
        v[2 * i + 1] = glm_bits_f32(u.v[i] & 0xffff0000u);
    }
}
/* Rounded. */
GLM_INLINE glm_u32x4 glm_pack8(const float v[8])
{
    glm_u32x4 u;
    GLM_UNROLL
    for (int i = 0; i < 4; i++)
        u.v[i] = glm_pack_bf16(v[2 * i], v[2 * i + 1]);
    return u;
}
GLM_INLINE void glm_load_act8(const act_t *p, float v[8])
{
    glm_unpack8(glm_load16(p), v);
}
GLM_INLINE void glm_store_act8(act_t *p, const float v[8])
{
    glm_store16(p, glm_pack8(v));
}
GLM_INLINE void glm_load_f32x8(const float *p, float v[8])
{
    glm_u32x4 a = glm_load16(p), b = glm_load16(p + 4);
    GLM_UNROLL
    for (int i = 0; i < 4; i++) {
        v[i] = glm_bits_f32(a.v[i]);
        v[4 + i] = glm_bits_f32(b.v[i]);
    }
}

GLM_INLINE void glm_store_f32x8(float *p, const float v[8])
{
    glm_u32x4 a, b;
    GLM_UNROLL
    for (int i = 0; i < 4; i++) {
        a.v[i] = glm_f32_bits(v[i]);
        b.v[i] = glm_f32_bits(v[4 + i]);
    }
    glm_store16(p, a);
    glm_store16(p + 4, b);
}

/* ---- Over lanes and blocks ---- */

GLM_INLINE float glm_shuffle_xor_f32(float v, int32_t mask)
{
    return glm_bits_f32(glm_shuffle_xor(glm_f32_bits(v), mask));
}
/* In every lane of 16 neighbours their sum, in the order of the host's glm_sum16: lanes i and
 * i + 8, then + 4, + 2, + 1. */
GLM_INLINE float glm_sum16(float v)
{
    GLM_UNROLL
    for (int32_t mask = 8; mask > 0; mask /= 2)
        v += glm_shuffle_xor_f32(v, mask);
    return v;
}

/* Of n blocks that call it with this counter: true in every thread of the one that comes last,
 * which reads what the others wrote with the _fresh loads. The counter is zero again. */
GLM_INLINE bool glm_last_block(uint32_t *counter, uint32_t n)
{
    GLM_SHARED uint32_t last;
    glm_fence();
    glm_barrier();
    if (glm_thread() == 0) {
        last = glm_count(counter) == n - 1;
        if (last)
            *counter = 0;
        glm_fence();
    }
    glm_barrier();
    return last != 0;
}

#endif
