/* SPDX-License-Identifier: Apache-2.0 */
/* The EXL3 codec on a GPU, for any rate: states to values of the codebook, and the transform of 128
 * values (docs/formats.md 3), with the bits of exl3.h. */
#ifndef GLM_EXL3_CODEC_CUH
#define GLM_EXL3_CODEC_CUH

#include "prelude.cuh"

/* Two states, in the low 16 bits, as two fp16. */
GLM_INLINE uint32_t glm_exl3_values(uint32_t a, uint32_t b)
{
#if defined(GLM_CODEBOOK_mul1)
    uint32_t x[2] = {(a & 0xffffu) * 0x83dcd12du, (b & 0xffffu) * 0x83dcd12du};
    GLM_UNROLL
    for (int i = 0; i < 2; i++) { /* 1024 + the sum of the four bytes, as fp16 */
        const uint32_t pairs = (x[i] & 0x00ff00ffu) + (x[i] >> 8 & 0x00ff00ffu);
        x[i] = 0x6400u + (pairs & 0xffffu) + (pairs >> 16);
    }
    return glm_fma_f16x2(x[0] | x[1] << 16, 0x1eee1eeeu, 0xc931c931u);
#else
#if defined(GLM_CODEBOOK_mcg)
    uint32_t x = (a & 0xffffu) * 0xcbac1fedu, y = (b & 0xffffu) * 0xcbac1fedu;
#else
    uint32_t x = (a & 0xffffu) * 89226354u + 64248484u, y = (b & 0xffffu) * 89226354u + 64248484u;
#endif
    x = (x & 0x8fff8fffu) ^ 0x3b603b60u;
    y = (y & 0x8fff8fffu) ^ 0x3b603b60u;
    return glm_add_f16x2((x & 0xffffu) | y << 16, x >> 16 | (y & 0xffff0000u));
#endif
}

/* The transform of 128 values of a warp, lane l has 4 l … 4 l + 3. */
GLM_INLINE void glm_hadamard128(float v[4])
{
    GLM_UNROLL
    for (int s = 1; s < 4; s *= 2) {
        GLM_UNROLL
        for (int i = 0; i < 4; i++)
            if ((i & s) == 0) {
                const float a = v[i], b = v[i + s];
                v[i] = a + b;
                v[i + s] = a - b;
            }
    }
    GLM_UNROLL
    for (int s = 1; s < GLM_WARP; s *= 2) {
        GLM_UNROLL
        for (int i = 0; i < 4; i++) {
            const float other = glm_shuffle_xor_f32(v[i], s);
            v[i] = (glm_lane() & s) == 0 ? v[i] + other : other - v[i];
        }
    }
    GLM_UNROLL
    for (int i = 0; i < 4; i++)
        v[i] *= 0.08838834764831845f;
}

#endif
