/* SPDX-License-Identifier: Apache-2.0 */
/* EXL3 on tensor cores: 128 outputs of a matrix in its device form (exl3.h) times up to 16 rows. A
 * block of four warps; each walks its own contiguous quarter of the 128-blocks of inputs, turns the
 * rows' inputs into the weights' domain as it goes, and decodes trellis words straight into the
 * mma's left side: a lane's eight values of a tile are its fragment. The warps' sums are added in
 * order.
 *
 * Words come 16 bytes a lane and are handed to the lanes that decode them through a slice of shared
 * memory of the warp's own. At 4 bits, two words hold a lane's values, and the device form is made
 * for that; at other rates a lane cuts them out of its tile's stream. */
#ifndef GLM_EXL3_CUH
#define GLM_EXL3_CUH

#include "exl3_codec.cuh"

#define GLM_EXL3_BLOCK 128
#define GLM_EXL3_STEP  (8 * 16 * GLM_BITS)  /* u16 of 16 inputs x 128 outputs */
#define GLM_EXL3_LOADS ((GLM_BITS + 1) / 2) /* 16 bytes a lane, of a step */
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
#if GLM_BITS == 4
    uint16_t words[8 * 40]; /* of half a step: vectors of 32, 80 bytes apart */
#else
    uint32_t words[8 * 8 * GLM_BITS]; /* the streams of a step's tiles, the first bit on top */
#endif
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

/* Is this lane in a step's i-th load? At odd rates half of them are in the last. */
GLM_INLINE bool glm_exl3_loads(int i)
{
    return 2 * i + 1 < GLM_BITS || glm_lane() < 16;
}

/* What a lane loads of a step's words. */
GLM_INLINE void glm_exl3_load(const uint16_t *words, glm_u32x4 v[GLM_EXL3_LOADS])
{
    GLM_UNROLL
    for (int i = 0; i < GLM_EXL3_LOADS; i++)
        if (glm_exl3_loads(i))
            v[i] = glm_load16_once(words + 256 * i + 8 * glm_lane());
}

/* A tile's fragment times the step's inputs. */
GLM_INLINE void glm_exl3_tile(const uint32_t a[4], int step, const int eights,
                              const struct glm_exl3_warp *w, float acc[2][4])
{
    const int32_t q = glm_lane() % 4, column = glm_lane() / 4;
    GLM_UNROLL
    for (int e = 0; e < eights; e++) {
        const uint16_t *x = &w->inputs[8 * e + column][step * 16 + 2 * q];
        const uint32_t b[2] = {*(const uint32_t *)x, *(const uint32_t *)(x + 8)};
        glm_mma_f16(acc[e], a, b);
    }
}

/* A step: 16 inputs times 128 outputs, eight tiles. */
#if GLM_BITS == 4
GLM_INLINE void glm_exl3_step(const glm_u32x4 *words, int step, const int eights,
                              struct glm_exl3_warp *w, float acc[8][2][4])
{
    const int32_t lane = glm_lane(), q = lane % 4, column = lane / 4;
    GLM_UNROLL
    for (int tile = 0; tile < 8; tile++) {
        const int t = tile % 4;
        if (t == 0) { /* half of the tiles at a time */
            glm_warp_barrier();
            glm_store16(&w->words[lane / 4 * 40 + lane % 4 * 8], words[tile / 4]);
            glm_warp_barrier();
        }
        const uint32_t first = w->words[2 * q * 40 + t * 8 + column];
        const uint32_t second = w->words[(2 * q + 1) * 40 + t * 8 + column];
        /* a stream goes on from the lane before, the first lane's from the last */
        const uint32_t before = glm_shuffle(second, (lane + 31) % 32);
        const uint32_t s = before << 16 | first, u = first << 16 | second;
        const uint32_t a[4] = {glm_exl3_values(s >> 12, s >> 8), glm_exl3_values(u >> 12, u >> 8),
                               glm_exl3_values(s >> 4, s), glm_exl3_values(u >> 4, u)};
        glm_exl3_tile(a, step, eights, w, acc[tile]);
    }
}
#else
/* The 32 bits that end `back` bits before the end of two words. */
GLM_INLINE uint32_t glm_exl3_cut(uint32_t high, uint32_t low, int32_t back)
{
    return (uint32_t)(((uint64_t)high << 32 | low) >> back);
}

GLM_INLINE void glm_exl3_step(const glm_u32x4 *words, int step, const int eights,
                              struct glm_exl3_warp *w, float acc[8][2][4])
{
    enum { N = 8 * GLM_BITS };
    const int32_t lane = glm_lane(), end = (lane + 1) * 8 * GLM_BITS; /* of its last value */
    const int32_t last = (end - 1) / 32, back = (last + 1) * 32 - end;
    glm_warp_barrier();
    GLM_UNROLL
    for (int i = 0; i < GLM_EXL3_LOADS; i++) {
        glm_u32x4 v = words[i];
        GLM_UNROLL
        for (int j = 0; j < 4; j++)
            v.v[j] = v.v[j] << 16 | v.v[j] >> 16;
        if (glm_exl3_loads(i))
            glm_store16(&w->words[128 * i + 4 * lane], v);
    }
    glm_warp_barrier();
    GLM_UNROLL
    for (int tile = 0; tile < 8; tile++) {
        /* up to 72 bits are a lane's; the first lane's begin at the end of the stream */
        const uint32_t *stream = w->words + tile * N;
        const uint32_t x[3] = {stream[(last + N - 2) % N], stream[(last + N - 1) % N],
                               stream[last]};
        const uint32_t z[3] = {x[0] >> back, glm_exl3_cut(x[0], x[1], back),
                               glm_exl3_cut(x[1], x[2], back)};
        uint32_t s[8];
        GLM_UNROLL
        for (int j = 0; j < 8; j++) {
            const int after = (7 - j) * GLM_BITS; /* bits of the values behind it */
            s[j] = glm_exl3_cut(z[1 - after / 32], z[2 - after / 32], after % 32);
        }
        const uint32_t a[4] = {glm_exl3_values(s[0], s[1]), glm_exl3_values(s[4], s[5]),
                               glm_exl3_values(s[2], s[3]), glm_exl3_values(s[6], s[7])};
        glm_exl3_tile(a, step, eights, w, acc[tile]);
    }
}
#endif

/* The block's 128 outputs of 8 · eights rows, not yet rotated, into z[row][output]. */
GLM_INLINE void glm_exl3_eights(const struct glm_exl3 *m, const int eights,
                                float z[GLM_EXL3_ROWS][GLM_EXL3_BLOCK])
{
    GLM_SHARED struct glm_exl3_warp warps[GLM_WARPS];
    const int32_t n_blocks = m->k / GLM_EXL3_BLOCK;
    const int32_t end = n_blocks * (glm_warp() + 1) / GLM_WARPS;
    const uint16_t *words = m->words + (size_t)m->block * (m->k / 16) * GLM_EXL3_STEP;
    struct glm_exl3_warp *w = &warps[glm_warp()];
    float acc[8][2][4];
    GLM_UNROLL
    for (int i = 0; i < 64; i++)
        acc[i / 8][i / 4 % 2][i % 4] = 0.0f;
    for (int32_t b = n_blocks * glm_warp() / GLM_WARPS; b < end; b++) {
        const uint16_t *at = words + (size_t)b * 8 * GLM_EXL3_STEP;
        glm_u32x4 next[GLM_EXL3_LOADS], now[GLM_EXL3_LOADS];
        glm_exl3_load(at, next);
        glm_exl3_rotate_in(m, b * GLM_EXL3_BLOCK, w);
        GLM_LOOP
        for (int step = 0; step < 8; step++) {
            GLM_UNROLL
            for (int i = 0; i < GLM_EXL3_LOADS; i++)
                now[i] = next[i];
            if (step < 7)
                glm_exl3_load(at + (step + 1) * GLM_EXL3_STEP, next);
            glm_exl3_step(now, step, eights, w, acc);
        }
    }
    const int32_t lane = glm_lane();
    for (int turn = 0; turn < GLM_WARPS; turn++) {
        glm_barrier();
        if (glm_warp() == turn) {
            GLM_UNROLL
            for (int i = 0; i < 32 * eights; i++) {
                const int t = i / (4 * eights), e = i / 4 % eights;
                const int row = 8 * e + lane % 4 * 2 + i % 2;
                float *to = &z[row][t * 16 + i / 2 % 2 * 8 + lane / 4];
                *to = turn == 0 ? acc[t][e][i % 4] : *to + acc[t][e][i % 4];
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
