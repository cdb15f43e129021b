/* SPDX-License-Identifier: Apache-2.0 */
/* EXL3 on the host: decodes 128-column blocks of a matrix in its device form and multiplies rows by
 * them (docs/formats.md 3). Owns the codec, the rotations' rounding points and the product's
 * order; which rows meet which matrix is the body's work.
 *
 * Device form of k inputs and n outputs: for each 128 outputs, for each 16 inputs, the eight tiles
 * side by side (16 * bits u16 each); then suh fp16 [k], svh fp16 [n]. At 4 bits the chunks of four
 * tiles are interleaved to 32 lanes (runtime/forms.c); else a tile's chunks follow its bit stream.
 *
 * A product's order: one fused sum a column, from zero, tiles of 16 inputs ascending, in a tile as
 * its words give them: 0 1 8 9, 2 3 10 11, 4 5 12 13, 6 7 14 15; then the output rotation. */
#ifndef GLM_EXL3_H
#define GLM_EXL3_H

#include "prelude.h"

enum {
    GLM_EXL3_BLOCK = 128,
    GLM_EXL3_TILE = 16,
    GLM_EXL3_STEP = 8 * 16 * GLM_BITS, /* u16 of 16 inputs x 128 outputs */
    GLM_EXL3_ROWS = 24                 /* rows rotated at once */
};

/* Bytes of one member. */
#define GLM_EXL3_BYTES(n, k) \
    ((size_t)(n) * (size_t)(k) / 8 * GLM_BITS + 2 * (size_t)(n) + 2 * (size_t)(k))

/* v rounded to fp16: |v| is 0 or within fp16's normal range. The multiple of its power of two that
 * is added and taken away leaves 11 bits, ties to even. */
GLM_INLINE glm_f32x16 glm_exl3_round(glm_f32x16 v)
{
    glm_f32x16 power = glm_from_bits(glm_and_u32(glm_bits(v), glm_splat_u32(0xff800000u)));
    glm_f32x16 big = glm_fma(power, glm_splat(12288.0f), v);
    return glm_fma(power, glm_splat(-12288.0f), big);
}

/* 32 states → the low and high half of the codebook's product. */
GLM_INLINE void glm_exl3_product(glm_u16x32 s, glm_u16x32 *low, glm_u16x32 *high)
{
#if defined(GLM_CODEBOOK_mul1)
    enum { MULTIPLIER_LOW = 0xd12d, MULTIPLIER_HIGH = 0x83dc };
#elif defined(GLM_CODEBOOK_mcg)
    enum { MULTIPLIER_LOW = 0x1fed, MULTIPLIER_HIGH = 0xcbac };
#else
    enum { MULTIPLIER_LOW = 89226354 & 0xffff, MULTIPLIER_HIGH = 89226354 >> 16 };
    enum { ADDEND_LOW = 64248484 & 0xffff, ADDEND_HIGH = 64248484 >> 16 };
#endif
    glm_u16x32 m = glm_splat_u16(MULTIPLIER_LOW);
    *low = glm_mul_u16(s, m);
    *high = glm_add_u16(glm_mul_high_u16(s, m), glm_mul_u16(s, glm_splat_u16(MULTIPLIER_HIGH)));
#if defined(GLM_CODEBOOK_3inst)
    *low = glm_add_u16(*low, glm_splat_u16(ADDEND_LOW));
    glm_u16x32 carry = glm_below_u16(*low, glm_splat_u16(ADDEND_LOW));
    *high = glm_sub_u16(glm_add_u16(*high, glm_splat_u16(ADDEND_HIGH)), carry);
#endif
#if defined(GLM_CODEBOOK_mul1) /* 1024 + the sum of the four bytes, as fp16, in low */
    glm_u16x32 byte = glm_splat_u16(0xff);
    glm_u16x32 sum = glm_add_u16(glm_and_u16(*low, byte), glm_shr_u16(*low, 8));
    sum = glm_add_u16(sum, glm_add_u16(glm_and_u16(*high, byte), glm_shr_u16(*high, 8)));
    *low = glm_add_u16(sum, glm_splat_u16(0x6400));
#else /* two fp16 to be added */
    glm_u16x32 mask = glm_splat_u16(0x8fff), flip = glm_splat_u16(0x3b60);
    *low = glm_xor_u16(glm_and_u16(*low, mask), flip);
    *high = glm_xor_u16(glm_and_u16(*high, mask), flip);
#endif
}

/* 32 states → their codebook values. */
GLM_INLINE void glm_exl3_values(glm_u16x32 s, glm_f32x16 a[2])
{
    glm_u16x32 low, high;
    glm_f32x16 b[2];
    glm_exl3_product(s, &low, &high);
    glm_f16x32_f32(low, a);
#if defined(GLM_CODEBOOK_mul1)
    (void)b;
    GLM_UNROLL
    for (int i = 0; i < 2; i++)
        a[i] = glm_fma(a[i], glm_splat(0.00676727294921875f), glm_splat(-10.3828125f));
#else
    glm_f16x32_f32(high, b);
    GLM_UNROLL
    for (int i = 0; i < 2; i++)
        a[i] = glm_add(a[i], b[i]);
#endif
    a[0] = glm_exl3_round(a[0]);
    a[1] = glm_exl3_round(a[1]);
}
GLM_INLINE void glm_exl3_put(glm_u16x32 s, float *w)
{
    glm_f32x16 a[2];
    glm_exl3_values(s, a);
    glm_store(w, a[0]);
    glm_store(w + 16, a[1]);
}

#if defined(GLM_HAVE_FP16)
/* The same with one addition or multiply-add in fp16, which rounds as the definition does. */
GLM_FP16_CODE GLM_INLINE void glm_exl3_values_fp16(glm_u16x32 s, glm_f32x16 a[2])
{
    glm_u16x32 low, high;
    glm_exl3_product(s, &low, &high);
#if defined(GLM_CODEBOOK_mul1)
    low = glm_fma_f16x32(low, glm_splat_u16(0x1eee), glm_splat_u16(0xc931));
#else
    low = glm_add_f16x32(low, high);
#endif
    glm_f16x32_f32(low, a);
}
GLM_FP16_CODE GLM_INLINE void glm_exl3_put_fp16(glm_u16x32 s, float *w)
{
    glm_f32x16 a[2];
    glm_exl3_values_fp16(s, a);
    glm_store(w, a[0]);
    glm_store(w + 16, a[1]);
}
#endif

/* Names words to the caches before they are decoded: a block is too short, and its pages too many,
 * for the processor to see a stream in them. */
GLM_INLINE void glm_exl3_prefetch(const uint16_t *words, int n)
{
    for (int i = 0; i < n; i += 32)
        __builtin_prefetch(words + i);
}

/* One step is 16 inputs times 128 outputs, w[16][128]. */
#if GLM_BITS == 4
#define GLM_EXL3_STATE(before, now, n) \
    glm_or_u16(glm_shl_u16(before, n), glm_shr_u16(now, 16 - (n)))
/* Vector v of four tiles continues the streams of vector v - 1; the first continues the last, one
 * column before. */
#define GLM_EXL3_STEP_4BIT(JOIN, PUT)                                          \
    for (int half = 0; half < 2; half++, words += 256, w += 64) {              \
        glm_u16x32 before = glm_turn8_u16(glm_load_u16x32(words + 7 * 32));    \
        for (int v = 0; v < 8; v++) {                                          \
            glm_u16x32 now = glm_load_u16x32(words + v * 32);                  \
            float *at = w + (size_t)(v / 2 * 2) * GLM_EXL3_BLOCK + v % 2 * 32; \
            PUT(JOIN(before, now, 4), at);                                     \
            PUT(JOIN(before, now, 8), at + GLM_EXL3_BLOCK);                    \
            PUT(JOIN(before, now, 12), at + 8 * GLM_EXL3_BLOCK);               \
            PUT(now, at + 9 * GLM_EXL3_BLOCK);                                 \
            before = now;                                                      \
        }                                                                      \
    }
static inline void glm_exl3_step_base(const uint16_t *words,
                                      float *w){GLM_EXL3_STEP_4BIT(GLM_EXL3_STATE, glm_exl3_put)}
#if defined(GLM_HAVE_FP16)
GLM_FP16_CODE static inline void glm_exl3_step_fp16(const uint16_t *words, float *w)
{
    GLM_EXL3_STEP_4BIT(glm_join_u16, glm_exl3_put_fp16)
}
#endif
/* n steps for one row: values go from the codec's registers into the sums z of 64 columns. */
#define GLM_EXL3_ADD(VALUES, STATE, ROW)                                    \
    do {                                                                    \
        glm_f32x16 value[2], factor = glm_splat(x[ROW]);                    \
        VALUES(STATE, value);                                               \
        acc[v % 2 * 2] = glm_fma(factor, value[0], acc[v % 2 * 2]);         \
        acc[v % 2 * 2 + 1] = glm_fma(factor, value[1], acc[v % 2 * 2 + 1]); \
    } while (0)
#define GLM_EXL3_ONE_4BIT(JOIN, VALUES)                                            \
    for (int half = 0; half < 2; half++, words += 256, z += 64) {                  \
        glm_f32x16 acc[4];                                                         \
        GLM_UNROLL                                                                 \
        for (int i = 0; i < 4; i++)                                                \
            acc[i] = glm_load(z + i * 16);                                         \
        for (int step = 0; step < n; step++) {                                     \
            const uint16_t *at = words + step * GLM_EXL3_STEP;                     \
            const float *x = rows + step * 16;                                     \
            if (ahead)                                                             \
                glm_exl3_prefetch(ahead + step * GLM_EXL3_STEP + half * 256, 256); \
            glm_u16x32 before = glm_turn8_u16(glm_load_u16x32(at + 7 * 32));       \
            GLM_UNROLL                                                             \
            for (int v = 0; v < 8; v++) {                                          \
                glm_u16x32 now = glm_load_u16x32(at + v * 32);                     \
                GLM_EXL3_ADD(VALUES, JOIN(before, now, 4), v / 2 * 2);             \
                GLM_EXL3_ADD(VALUES, JOIN(before, now, 8), v / 2 * 2 + 1);         \
                GLM_EXL3_ADD(VALUES, JOIN(before, now, 12), v / 2 * 2 + 8);        \
                GLM_EXL3_ADD(VALUES, now, v / 2 * 2 + 9);                          \
                before = now;                                                      \
            }                                                                      \
        }                                                                          \
        GLM_UNROLL                                                                 \
        for (int i = 0; i < 4; i++)                                                \
            glm_store(z + i * 16, acc[i]);                                         \
    }
static inline void glm_exl3_one_base(const uint16_t *words, const uint16_t *ahead,
                                     const float *rows, int n,
                                     float *z){GLM_EXL3_ONE_4BIT(GLM_EXL3_STATE, glm_exl3_values)}
#if defined(GLM_HAVE_FP16)
GLM_FP16_CODE static inline void glm_exl3_one_fp16(const uint16_t *words, const uint16_t *ahead,
                                                   const float *rows, int n, float *z)
{
    GLM_EXL3_ONE_4BIT(glm_join_u16, glm_exl3_values_fp16)
}
#endif
#else
/* Any rate: states one by one, then their values together. */
static inline void glm_exl3_states(const uint16_t *words, uint16_t *states)
{
    enum { CHUNKS = 16 * GLM_BITS };
    for (int t = 0; t < 8; t++, words += CHUNKS)
        for (int p = 0; p < 256; p++) {
            int end = (p + 1) * GLM_BITS, at = (end + 15) / 16 - 1, back = (at + 1) * 16 - end;
            uint32_t pair = (uint32_t)words[(at + CHUNKS - 1) % CHUNKS] << 16 | words[at];
            int lane = p / 8, j = p % 8;
            int row = 2 * (lane % 4) + j % 2 + 8 * (j / 2 % 2);
            states[row * GLM_EXL3_BLOCK + t / 4 * 64 + j / 4 * 32 + t % 4 * 8 + lane / 4] =
                (uint16_t)(pair >> back);
        }
}
static inline void glm_exl3_step_base(const uint16_t *words, float *w)
{
    uint16_t states[16 * GLM_EXL3_BLOCK];
    glm_exl3_states(words, states);
    for (int i = 0; i < 16 * GLM_EXL3_BLOCK; i += 32)
        glm_exl3_put(glm_load_u16x32(states + i), w + i);
}
#if defined(GLM_HAVE_FP16)
GLM_FP16_CODE static inline void glm_exl3_step_fp16(const uint16_t *words, float *w)
{
    uint16_t states[16 * GLM_EXL3_BLOCK];
    glm_exl3_states(words, states);
    for (int i = 0; i < 16 * GLM_EXL3_BLOCK; i += 32)
        glm_exl3_put_fp16(glm_load_u16x32(states + i), w + i);
}
#endif
#endif

/* n steps that follow each other; `ahead`: n steps that will be decoded after them, or NULL. */
GLM_INLINE void glm_exl3_steps(const uint16_t *words, const uint16_t *ahead, int n, float *w)
{
    for (int i = 0; i < n; i++, words += GLM_EXL3_STEP, w += 16 * GLM_EXL3_BLOCK) {
        if (ahead)
            glm_exl3_prefetch(ahead + i * GLM_EXL3_STEP, GLM_EXL3_STEP);
#if defined(GLM_HAVE_FP16)
        if (glm_fp16_usable()) {
            glm_exl3_step_fp16(words, w);
            continue;
        }
#endif
        glm_exl3_step_base(words, w);
    }
}

/* The row of a tile that its words give i-th. */
GLM_INLINE int glm_exl3_row(int i)
{
    return (i & ~15) | (i & 12) >> 1 | (i & 1) | (i & 2) << 2;
}

/* A block's columns lie as [2][2][4][8]: half, eight, tile, column of the eight. */
GLM_INLINE void glm_exl3_natural(const float *z, float *out)
{
    for (int half = 0; half < 2; half++)
        for (int eight = 0; eight < 2; eight++)
            for (int t = 0; t < 4; t++)
                __builtin_memcpy(out + half * 64 + t * 16 + eight * 8,
                                 z + half * 64 + eight * 32 + t * 8, 8 * sizeof *out);
}

/* x ∘ suh, rotated: one block of 128 inputs of one row. */
GLM_INLINE void glm_exl3_rotate_in(const act_t *x, const uint16_t *suh, float *out)
{
    glm_f32x16 v[8];
    GLM_UNROLL
    for (int i = 0; i < 8; i++)
        v[i] = glm_mul(glm_load_act(x + 16 * i), glm_load_f16(suh + 16 * i));
    glm_hadamard128(v);
    GLM_UNROLL
    for (int i = 0; i < 8; i++) {
#if defined(GLM_ACT_BF16)
        v[i] = glm_round_f16x16(v[i]);
#endif
        glm_store(out + 16 * i, v[i]);
    }
}

/* A block's finished sums z → (H z) ∘ svh, natural column order. */
GLM_INLINE void glm_exl3_rotate_out(const float *z, const uint16_t *svh, glm_f32x16 out[8])
{
    float natural[GLM_EXL3_BLOCK];
    glm_exl3_natural(z, natural);
    GLM_UNROLL
    for (int i = 0; i < 8; i++)
        out[i] = glm_load(natural + 16 * i);
    glm_hadamard128(out);
    GLM_UNROLL
    for (int i = 0; i < 8; i++)
        out[i] = glm_mul(out[i], glm_load_f16(svh + 16 * i));
}

/* z[m][0..16 nc) += x[m][0..k) w[k][..], mr rows, k in the words' order; x rows 128 apart, z rows
 * at z[m]. */
GLM_INLINE void glm_exl3_tile(const float *x, const float *w, float *const *z, int column, int k,
                              int mr, int nc)
{
    glm_f32x16 acc[6][8];
    GLM_UNROLL
    for (int m = 0; m < mr; m++) {
        GLM_UNROLL
        for (int n = 0; n < nc; n++)
            acc[m][n] = glm_load(z[m] + column + 16 * n);
    }
    for (int step = 0; step < k; step++) {
        int i = glm_exl3_row(step);
        glm_f32x16 v[8];
        GLM_UNROLL
        for (int n = 0; n < nc; n++)
            v[n] = glm_load(w + (size_t)i * GLM_EXL3_BLOCK + column + 16 * n);
        GLM_UNROLL
        for (int m = 0; m < mr; m++) {
            glm_f32x16 a = glm_splat(x[m * GLM_EXL3_BLOCK + i]);
            GLM_UNROLL
            for (int n = 0; n < nc; n++)
                acc[m][n] = glm_fma(a, v[n], acc[m][n]);
        }
    }
    GLM_UNROLL
    for (int m = 0; m < mr; m++) {
        GLM_UNROLL
        for (int n = 0; n < nc; n++)
            glm_store(z[m] + column + 16 * n, acc[m][n]);
    }
}

/* Register tiles: rows x sixteens of columns. */
#if GLM_NATIVE == 1
enum { GLM_EXL3_TILE_M = 6, GLM_EXL3_TILE_N = 4, GLM_EXL3_ONE_N = 8 };
#else
enum { GLM_EXL3_TILE_M = 2, GLM_EXL3_TILE_N = 2, GLM_EXL3_ONE_N = 4 };
#endif

GLM_INLINE void glm_exl3_multiply(const float *x, const float *w, float *const *z, int n_rows,
                                  int k)
{
    int m = 0;
    for (; m + GLM_EXL3_TILE_M <= n_rows; m += GLM_EXL3_TILE_M)
        for (int c = 0; c < GLM_EXL3_BLOCK; c += 16 * GLM_EXL3_TILE_N)
            glm_exl3_tile(x + m * GLM_EXL3_BLOCK, w, z + m, c, k, GLM_EXL3_TILE_M, GLM_EXL3_TILE_N);
    for (; m + 2 <= n_rows; m += 2)
        for (int c = 0; c < GLM_EXL3_BLOCK; c += 16 * GLM_EXL3_TILE_N)
            glm_exl3_tile(x + m * GLM_EXL3_BLOCK, w, z + m, c, k, 2, GLM_EXL3_TILE_N);
    for (; m < n_rows; m++)
        for (int c = 0; c < GLM_EXL3_BLOCK; c += 16 * GLM_EXL3_ONE_N)
            glm_exl3_tile(x + m * GLM_EXL3_BLOCK, w, z + m, c, k, 1, GLM_EXL3_ONE_N);
}

/* Rows of one matrix that multiply one 128-column block. Every weight is decoded once. Sums start
 * at zero and end in z, still to be rotated. */
struct glm_exl3_rows {
    const int32_t *index; /* [n] */
    int n;
    const act_t *x; /* row i at x + index[i] / x_per * x_stride */
    int32_t x_per;
    size_t x_stride;
    float *z; /* row i at z + index[i] * z_stride */
    size_t z_stride;
    const uint16_t *next; /* the words that this thread decodes after this block, or NULL */
};

/* The first words of a block. */
GLM_INLINE const uint16_t *glm_exl3_words(const void *matrix, int k, int block)
{
    return (const uint16_t *)matrix + (size_t)block * (size_t)(k / 16) * GLM_EXL3_STEP;
}

#if GLM_BITS == 4
/* The only row of an expert: no weight is stored. */
static inline void glm_exl3_block_one(const struct glm_exl3_rows *r, const uint16_t *words,
                                      const uint16_t *suh, int k)
{
    enum { N = GLM_EXL3_BLOCK / GLM_EXL3_TILE };
    float xh[GLM_EXL3_BLOCK] __attribute__((aligned(64)));
    float *z = r->z + (size_t)r->index[0] * r->z_stride;
    const act_t *x = r->x + (size_t)(r->index[0] / r->x_per) * r->x_stride;
    for (int k0 = 0; k0 < k; k0 += GLM_EXL3_BLOCK, words += N * GLM_EXL3_STEP) {
        const uint16_t *ahead = k0 + GLM_EXL3_BLOCK < k ? words + N * GLM_EXL3_STEP : r->next;
        glm_exl3_rotate_in(x + k0, suh + k0, xh);
#if defined(GLM_HAVE_FP16)
        if (glm_fp16_usable()) {
            glm_exl3_one_fp16(words, ahead, xh, N, z);
            continue;
        }
#endif
        glm_exl3_one_base(words, ahead, xh, N, z);
    }
}
#endif

static inline void glm_exl3_block(const struct glm_exl3_rows *r, const void *matrix, int n_out,
                                  int k, int block)
{
    const uint16_t *trellis = matrix;
    const uint16_t *suh = trellis + (size_t)n_out * (size_t)k / 16 * GLM_BITS;
    const uint16_t *words = glm_exl3_words(matrix, k, block);
    float w[GLM_EXL3_BLOCK * GLM_EXL3_BLOCK] __attribute__((aligned(64)));
    float xh[GLM_EXL3_ROWS * GLM_EXL3_BLOCK] __attribute__((aligned(64)));
    /* few rows keep decoded weights in the first cache; many decode a rotation's block at once */
    bool few = r->n <= GLM_EXL3_ROWS;
    int panel = few ? 64 : GLM_EXL3_BLOCK;
    for (int i = 0; i < r->n; i++)
        __builtin_memset(r->z + (size_t)r->index[i] * r->z_stride, 0,
                         GLM_EXL3_BLOCK * sizeof(float));
#if GLM_BITS == 4
    if (r->n == 1) {
        glm_exl3_block_one(r, words, suh, k);
        return;
    }
#endif
    for (int k0 = 0; k0 < k; k0 += panel) {
        const int n_steps = panel / GLM_EXL3_TILE;
        const uint16_t *after = words + n_steps * GLM_EXL3_STEP;
        glm_exl3_steps(words, k0 + panel < k ? after : r->next, n_steps, w);
        words = after;
        int inside = k0 % GLM_EXL3_BLOCK;
        for (int row = 0; row < r->n; row += GLM_EXL3_ROWS) {
            int n = r->n - row < GLM_EXL3_ROWS ? r->n - row : GLM_EXL3_ROWS;
            float *z[GLM_EXL3_ROWS];
            for (int i = 0; i < n; i++) {
                int32_t index = r->index[row + i];
                z[i] = r->z + (size_t)index * r->z_stride;
                if (inside == 0)
                    glm_exl3_rotate_in(r->x + (size_t)(index / r->x_per) * r->x_stride + k0,
                                       suh + k0, xh + i * GLM_EXL3_BLOCK);
            }
            glm_exl3_multiply(xh + inside, w, z, n, panel);
        }
    }
}

#endif
