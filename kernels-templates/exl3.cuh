/* SPDX-License-Identifier: Apache-2.0 */
/* EXL3 on tensor cores: 128 outputs of a matrix in its device form (exl3.h) times up to 16 rows. A
 * block of four warps; each walks its own contiguous quarter of the 128-blocks of inputs, turns the
 * rows' inputs into the weights' domain as it goes, and decodes trellis words straight into the
 * mma's left side: a lane's two words of a tile, each with the four values of one column, are its
 * fragment. The warps' sums are added in order.
 *
 * Words come 16 bytes a lane and are handed to the lanes that decode them through a slice of shared
 * memory of the warp's own. */
#ifndef GLM_EXL3_CUH
#define GLM_EXL3_CUH

#include "exl3_codec.cuh"

#define GLM_EXL3_BLOCK 128
#define GLM_EXL3_STEP  (8 * 16 * GLM_BITS) /* u16 of 16 inputs x 128 outputs */
#define GLM_EXL3_ROWS  16
#define GLM_EXL3_BYTES(n, k) \
    ((size_t)(n) * (size_t)(k) / 8 * GLM_BITS + 2 * (size_t)(n) + 2 * (size_t)(k))

static_assert(GLM_WARPS == 4, "the order of sums has four quarters");

/* Four fp16 of memory that is read once. */
GLM_INLINE void glm_exl3_scales(const uint16_t *p, float v[4])
{
    const glm_u32x2 u = glm_load8_once(p + 4 * glm_lane());
    GLM_UNROLL
    for (int i = 0; i < 4; i++)
        v[i] = glm_f16_f32((uint16_t)(u.v[i / 2] >> (i % 2 * 16)));
}

/* A matrix and the rows that meet it: index[i] / per is row i's number in x. */
struct glm_exl3 {
    const uint16_t *words; /* of the whole matrix */
    const uint16_t *suh, *svh;
    const act_t *x;
    int32_t k, block; /* inputs; which 128 outputs */
    const int32_t *index;
    int32_t per, n; /* rows, at most GLM_EXL3_ROWS */
};

/* n_out: outputs of the whole matrix. */
GLM_INLINE struct glm_exl3 glm_exl3_matrix(const char *matrix, int32_t n_out, int32_t k,
                                           int32_t block)
{
    const uint16_t *words = (const uint16_t *)matrix;
    const uint16_t *suh = words + (size_t)n_out * k / 16 * GLM_BITS;
    const struct glm_exl3 m = {words, suh, suh + k, nullptr, k, block, nullptr, 1, 0};
    return m;
}

/* What a warp keeps in shared memory. */
struct glm_exl3_warp {
    uint16_t words[8 * 40];                             /* vectors of 32, 80 bytes apart */
    uint16_t inputs[GLM_EXL3_ROWS][GLM_EXL3_BLOCK + 8]; /* rotated, fp16 */
};

/* Inputs [k0, k0 + 128) of all rows, times suh, rotated. */
GLM_INLINE void glm_exl3_rotate_in(const struct glm_exl3 *m, int32_t k0, struct glm_exl3_warp *w)
{
    float suh[4];
    glm_exl3_scales(m->suh + k0, suh);
    glm_warp_barrier();
    GLM_LOOP
    for (int32_t r = 0; r < m->n; r++) {
        const glm_u32x2 x =
            glm_load8(m->x + (size_t)(m->index[r] / m->per) * m->k + k0 + 4 * glm_lane());
        float v[4];
        GLM_UNROLL
        for (int i = 0; i < 4; i++)
            v[i] = glm_bits_f32(i % 2 == 0 ? x.v[i / 2] << 16 : x.v[i / 2] & 0xffff0000u) * suh[i];
        glm_hadamard128(v);
        const glm_u32x2 h = {{glm_pack_f16(v[0], v[1]), glm_pack_f16(v[2], v[3])}};
        glm_store8(&w->inputs[r][4 * glm_lane()], h);
    }
    glm_warp_barrier();
}

/* Half a step, 16 inputs times 64 outputs: four tiles. */
GLM_INLINE void glm_exl3_half(glm_u32x4 words, int step, const int eights, struct glm_exl3_warp *w,
                              float acc[4][2][4])
{
    const int32_t lane = glm_lane(), q = lane % 4, column = lane / 4;
    glm_warp_barrier();
    glm_store16(&w->words[lane / 4 * 40 + lane % 4 * 8], words);
    glm_warp_barrier();
    GLM_UNROLL
    for (int t = 0; t < 4; t++) {
        const uint32_t first = w->words[2 * q * 40 + t * 8 + column];
        const uint32_t second = w->words[(2 * q + 1) * 40 + t * 8 + column];
        /* a stream goes on from the lane before, the first lane's from the last */
        const uint32_t before = glm_shuffle(second, (lane + 31) % 32);
        const uint32_t s = before << 16 | first, u = first << 16 | second;
        const uint32_t a[4] = {glm_exl3_values(s >> 12, s >> 8), glm_exl3_values(u >> 12, u >> 8),
                               glm_exl3_values(s >> 4, s), glm_exl3_values(u >> 4, u)};
        GLM_UNROLL
        for (int e = 0; e < eights; e++) {
            const uint16_t *x = &w->inputs[8 * e + column][step * 16 + 2 * q];
            const uint32_t b[2] = {*(const uint32_t *)x, *(const uint32_t *)(x + 8)};
            glm_mma_f16(acc[t][e], a, b);
        }
    }
}

/* The block's 128 outputs of 8 · eights rows, not yet rotated, into z[row][output]. */
GLM_INLINE void glm_exl3_eights(const struct glm_exl3 *m, const int eights,
                                float z[GLM_EXL3_ROWS][GLM_EXL3_BLOCK])
{
    GLM_SHARED struct glm_exl3_warp warps[GLM_WARPS];
    const int32_t n_blocks = m->k / GLM_EXL3_BLOCK;
    const int32_t end = n_blocks * (glm_warp() + 1) / GLM_WARPS;
    const uint16_t *words =
        m->words + (size_t)m->block * (m->k / 16) * GLM_EXL3_STEP + 8 * glm_lane();
    struct glm_exl3_warp *w = &warps[glm_warp()];
    float acc[2][4][2][4];
    GLM_UNROLL
    for (int i = 0; i < 64; i++)
        acc[i / 32][i / 8 % 4][i / 4 % 2][i % 4] = 0.0f;
    for (int32_t b = n_blocks * glm_warp() / GLM_WARPS; b < end; b++) {
        const uint16_t *at = words + (size_t)b * 8 * GLM_EXL3_STEP;
        glm_u32x4 low = glm_load16_once(at), high = glm_load16_once(at + 256);
        glm_exl3_rotate_in(m, b * GLM_EXL3_BLOCK, w);
        GLM_LOOP
        for (int step = 0; step < 8; step++) {
            const glm_u32x4 now_low = low, now_high = high;
            if (step < 7) {
                low = glm_load16_once(at + (step + 1) * GLM_EXL3_STEP);
                high = glm_load16_once(at + (step + 1) * GLM_EXL3_STEP + 256);
            }
            glm_exl3_half(now_low, step, eights, w, acc[0]);
            glm_exl3_half(now_high, step, eights, w, acc[1]);
        }
    }
    const int32_t lane = glm_lane();
    for (int turn = 0; turn < GLM_WARPS; turn++) {
        glm_barrier();
        if (glm_warp() == turn) {
            GLM_UNROLL
            for (int i = 0; i < 32 * eights; i++) {
                const int half = i / (16 * eights), t = i / (4 * eights) % 4, e = i / 4 % eights;
                const int row = 8 * e + lane % 4 * 2 + i % 2;
                float *to = &z[row][half * 64 + t * 16 + i / 2 % 2 * 8 + lane / 4];
                *to = turn == 0 ? acc[half][t][e][i % 4] : *to + acc[half][t][e][i % 4];
            }
        }
    }
    glm_barrier();
}

GLM_INLINE void glm_exl3_block(const struct glm_exl3 *m, float z[GLM_EXL3_ROWS][GLM_EXL3_BLOCK])
{
    if (m->n <= 8)
        glm_exl3_eights(m, 1, z);
    else
        glm_exl3_eights(m, 2, z);
}

/* A warp's: a row of finished sums → (H z) ∘ svh, lane l outputs 4 l … 4 l + 3 of the block. */
GLM_INLINE void glm_exl3_rotate_out(const struct glm_exl3 *m, const float z[GLM_EXL3_BLOCK],
                                    float v[4])
{
    float svh[4];
    glm_exl3_scales(m->svh + m->block * GLM_EXL3_BLOCK, svh);
    GLM_UNROLL
    for (int i = 0; i < 4; i++)
        v[i] = z[4 * glm_lane() + i];
    glm_hadamard128(v);
    GLM_UNROLL
    for (int i = 0; i < 4; i++)
        v[i] *= svh[i];
}

#endif
