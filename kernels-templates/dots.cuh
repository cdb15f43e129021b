/* SPDX-License-Identifier: Apache-2.0 */
/* Dot products of activation rows with weight rows in the forms bf16, q4 and fp8 on tensor cores,
 * for up to 32 rows at a time. A block of four warps has 16 or 32 outputs; each warp walks its own
 * contiguous quarter of the inputs and the quarters are added in warp order, so that an element's
 * bits depend on nothing but its row, its output and K.
 *
 * Weights go from memory to the tensor core's registers without a stop: an mma does not care which
 * 16 inputs it is given as long as both sides agree, so a lane takes the consecutive inputs that
 * one wide load gives and activations are taken alike. Weights are the left side: its 16 rows cost
 * the same at one activation row as at eight.
 *
 * Whoever includes this defines GLM_DOTS_FORM (below), GLM_DOTS_K, the inputs of a weight row,
 * GLM_DOTS_TILES, the sixteens of outputs of a block, and GLM_DOTS_F32, whether results are stored
 * as floats or as activations. Layouts: dots.h. */
#ifndef GLM_DOTS_CUH
#define GLM_DOTS_CUH

#include "prelude.cuh"

#define GLM_DOTS_BF16 0
#define GLM_DOTS_Q4   1
#define GLM_DOTS_FP8  2

#define GLM_DOTS_STEP    64 /* inputs: a group of q4, half a block of fp8 */
#define GLM_DOTS_ROWS    32 /* of a block, in eights: more would cost every round its registers */
#define GLM_DOTS_OUTPUTS (16 * GLM_DOTS_TILES)
/* Steps that belong together, and how many of those there are. */
#define GLM_DOTS_UNIT (GLM_DOTS_FORM == GLM_DOTS_FP8 ? 2 : 1)
#define GLM_DOTS_UNITS \
    ((GLM_DOTS_K + GLM_DOTS_STEP * GLM_DOTS_UNIT - 1) / (GLM_DOTS_STEP * GLM_DOTS_UNIT))
/* Words of a weight row that a lane has of a step. */
#define GLM_DOTS_WORDS (GLM_DOTS_FORM == GLM_DOTS_BF16 ? 8 : GLM_DOTS_FORM == GLM_DOTS_Q4 ? 2 : 4)

static_assert(GLM_WARPS == 4, "the order of sums has four quarters");
static_assert(GLM_DOTS_K % (GLM_DOTS_FORM == GLM_DOTS_BF16 ? 16
                            : GLM_DOTS_FORM == GLM_DOTS_Q4 ? 64
                                                           : 128) ==
                  0,
              "rows hold whole groups");

#if GLM_DOTS_F32
typedef float glm_dots_out_t;
GLM_INLINE void glm_dots_put(float *p, float v)
{
    *p = v;
}
#else
typedef act_t glm_dots_out_t;
GLM_INLINE void glm_dots_put(act_t *p, float v)
{
    *p = glm_f32_act(v);
}
#endif

/* The planes of a weight, each 64-byte aligned. */
struct glm_dots_weight {
    const uint8_t *codes;
    const uint16_t *scales, *biases; /* q4: [n][k / 64] */
    const float *scales32;           /* fp8: [n][k / 128] */
};

/* w: where the whole weight begins; n_rows: of it. */
GLM_INLINE struct glm_dots_weight glm_dots_planes(const void *w, size_t n_rows)
{
    const size_t k = GLM_DOTS_K;
    struct glm_dots_weight r = {(const uint8_t *)w, nullptr, nullptr, nullptr};
    if (GLM_DOTS_FORM == GLM_DOTS_Q4) {
        const uint8_t *plane = r.codes + (n_rows * k / 2 + 63) / 64 * 64;
        r.scales = (const uint16_t *)plane;
        r.biases = (const uint16_t *)(plane + (n_rows * (k / 64) * 2 + 63) / 64 * 64);
    } else if (GLM_DOTS_FORM == GLM_DOTS_FP8) {
        r.scales32 = (const float *)(r.codes + (n_rows * k + 63) / 64 * 64);
    }
    return r;
}

/* What a lane has of a step: of each tile rows g and g + 8, g = lane / 4. */
struct glm_dots_step {
    uint32_t words[GLM_DOTS_TILES][2][GLM_DOTS_WORDS];
    float scale[GLM_DOTS_TILES][2], bias[GLM_DOTS_TILES][2];
};

/* Of inputs [k, k + 64) of one weight row. */
GLM_INLINE void glm_dots_words(const struct glm_dots_weight *w, size_t n, int32_t k,
                               uint32_t words[GLM_DOTS_WORDS])
{
    const int32_t q = glm_lane() % 4;
    const size_t at = n * GLM_DOTS_K + (size_t)k;
    if (GLM_DOTS_FORM == GLM_DOTS_Q4) { /* codes 4 q … 4 q + 3, a nibble a sixteen of inputs */
        const glm_u32x2 u = glm_load8_once(w->codes + at / 2 + q * 8);
        words[0] = u.v[0];
        words[1] = u.v[1];
        return;
    }
    GLM_UNROLL
    for (int h = 0; h < GLM_DOTS_WORDS / 4; h++) {
        glm_u32x4 u = {{0, 0, 0, 0}};
        if (GLM_DOTS_FORM == GLM_DOTS_FP8)
            u = glm_load16_once(w->codes + at + q * 16);
        else if (GLM_DOTS_K % GLM_DOTS_STEP == 0 || k + 32 * h + 8 * q < GLM_DOTS_K)
            u = glm_load16_once(w->codes + 2 * (at + (size_t)(32 * h + 8 * q)));
        GLM_UNROLL
        for (int i = 0; i < 4; i++)
            words[4 * h + i] = u.v[i];
    }
}

/* Rows beyond the weight are read as its last one and thrown away at the end. */
GLM_INLINE void glm_dots_load(const struct glm_dots_weight *w, int32_t n0, int32_t n_last,
                              int32_t k, struct glm_dots_step *s)
{
    GLM_UNROLL
    for (int i = 0; i < 2 * GLM_DOTS_TILES; i++) {
        const int32_t wanted = n0 + 8 * i + glm_lane() / 4;
        const size_t n = (size_t)(wanted < n_last ? wanted : n_last);
        glm_dots_words(w, n, k, s->words[i / 2][i % 2]);
        if (GLM_DOTS_FORM == GLM_DOTS_Q4) {
            const size_t at = n * (GLM_DOTS_K / 64) + (size_t)(k / 64);
            s->scale[i / 2][i % 2] = glm_bf16_f32(w->scales[at]);
            s->bias[i / 2][i % 2] = glm_bf16_f32(w->biases[at]);
        } else if (GLM_DOTS_FORM == GLM_DOTS_FP8) {
            s->scale[i / 2][i % 2] = w->scales32[n * (GLM_DOTS_K / 128) + (size_t)(k / 128)];
        }
    }
}

/* Words as eight pairs of bf16, in the order in which the mmas of a step take them. */
GLM_INLINE void glm_dots_expand(const uint32_t words[GLM_DOTS_WORDS], uint32_t pairs[8])
{
    GLM_UNROLL
    for (int i = 0; i < 8; i++) {
        if (GLM_DOTS_FORM == GLM_DOTS_Q4) {
            /* 128 + code is a bf16 with the code in its last bits */
            const uint32_t u = (words[i % 2] >> (i / 2 * 4) & 0x000f000fu) | 0x43004300u;
            pairs[i] = glm_fma_bf16x2(u, 0x3f803f80u, 0xc300c300u);
        } else if (GLM_DOTS_FORM == GLM_DOTS_FP8) {
            /* the code as bits of a bf16 that is 2^120 too small, subnormals included */
            const uint32_t two = words[i / 2 % GLM_DOTS_WORDS] >> (i % 2 * 16);
            const uint32_t u = (two & 0xffu) << 8 | (two & 0xff00u) << 16;
            pairs[i] = glm_fma_bf16x2((u & 0x80008000u) | (u >> 4 & 0x07f007f0u), 0x7b807b80u,
                                      0x80008000u);
        } else {
            pairs[i] = words[i % GLM_DOTS_WORDS];
        }
    }
}

/* The same inputs of one activation row. */
GLM_INLINE void glm_dots_inputs(const act_t *x, int32_t k, uint32_t pairs[8])
{
    const int32_t q = glm_lane() % 4;
    if (GLM_DOTS_FORM == GLM_DOTS_Q4) {
        GLM_UNROLL
        for (int j = 0; j < 4; j++) {
            const glm_u32x2 u = glm_load8(x + k + 16 * j + 4 * q);
            pairs[2 * j] = u.v[0];
            pairs[2 * j + 1] = u.v[1];
        }
        return;
    }
    GLM_UNROLL
    for (int h = 0; h < 2; h++) {
        const int32_t at = GLM_DOTS_FORM == GLM_DOTS_FP8 ? k + 16 * q + 8 * h : k + 32 * h + 8 * q;
        glm_u32x4 u = {{0, 0, 0, 0}};
        if (GLM_DOTS_K % GLM_DOTS_STEP == 0 || at < GLM_DOTS_K)
            u = glm_load16(x + at);
        GLM_UNROLL
        for (int i = 0; i < 4; i++)
            pairs[4 * h + i] = u.v[i];
    }
}

/* d += weights · activations over a step. */
GLM_INLINE void glm_dots_mma(float d[4], const uint32_t low[8], const uint32_t high[8],
                             const uint32_t x[8])
{
    GLM_UNROLL
    for (int m = 0; m < 4; m++) {
        const uint32_t a[4] = {low[2 * m], high[2 * m], low[2 * m + 1], high[2 * m + 1]};
        glm_mma_bf16(d, a, x + 2 * m);
    }
}

/* Eight activation rows over a step: acc += scale · (codes · x) + bias · (sum of x). */
GLM_INLINE void glm_dots_eight(const struct glm_dots_step *s,
                               const uint32_t w[GLM_DOTS_TILES][2][8], const uint32_t x[8],
                               float acc[GLM_DOTS_TILES][4])
{
    float sum[4] = {0, 0, 0, 0}; /* a row of ones as weights */
    const uint32_t ones[8] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u,
                              0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
    if (GLM_DOTS_FORM == GLM_DOTS_Q4)
        glm_dots_mma(sum, ones, ones, x);
    GLM_UNROLL
    for (int i = 0; i < GLM_DOTS_TILES; i++) {
        if (GLM_DOTS_FORM == GLM_DOTS_BF16) {
            glm_dots_mma(acc[i], w[i][0], w[i][1], x);
            continue;
        }
        float p[4] = {0, 0, 0, 0};
        glm_dots_mma(p, w[i][0], w[i][1], x);
        GLM_UNROLL
        for (int j = 0; j < 4; j++) {
            acc[i][j] = glm_fma1(s->scale[i][j / 2], p[j], acc[i][j]);
            if (GLM_DOTS_FORM == GLM_DOTS_Q4)
                acc[i][j] = glm_fma1(s->bias[i][j / 2], sum[j], acc[i][j]);
        }
    }
}

/* Up to 32 activation rows. */
struct glm_dots_rows {
    const act_t *x;
    int32_t n, stride;
};

/* This warp's quarter for 8 · eights rows. Rows that are not there are read as the last one and
 * thrown away at the end. */
GLM_INLINE void glm_dots_walk(const struct glm_dots_weight *w, int32_t n0, int32_t n_last,
                              const struct glm_dots_rows *x, const int eights,
                              float acc[GLM_DOTS_ROWS / 8][GLM_DOTS_TILES][4])
{
    const int32_t unit = GLM_DOTS_STEP * GLM_DOTS_UNIT;
    const int32_t end = GLM_DOTS_UNITS * (glm_warp() + 1) / GLM_WARPS * unit;
    int32_t k = GLM_DOTS_UNITS * glm_warp() / GLM_WARPS * unit;
    struct glm_dots_step now, next;
    if (k >= end)
        return;
    glm_dots_load(w, n0, n_last, k, &now);
    GLM_LOOP
    for (; k < end; k += GLM_DOTS_STEP) {
        uint32_t pairs[GLM_DOTS_TILES][2][8];
        if (k + GLM_DOTS_STEP < end)
            glm_dots_load(w, n0, n_last, k + GLM_DOTS_STEP, &next);
        GLM_UNROLL
        for (int i = 0; i < 2 * GLM_DOTS_TILES; i++)
            glm_dots_expand(now.words[i / 2][i % 2], pairs[i / 2][i % 2]);
        GLM_UNROLL
        for (int e = 0; e < eights; e++) {
            uint32_t inputs[8];
            const int32_t row = 8 * e + glm_lane() / 4;
            glm_dots_inputs(x->x + (row < x->n ? row : x->n - 1) * x->stride, k, inputs);
            glm_dots_eight(&now, pairs, inputs, acc[e]);
        }
        now = next;
    }
}

/* Adds the warps' quarters and stores what there is of 8 · eights rows and the block's outputs. */
GLM_INLINE void glm_dots_store(float acc[GLM_DOTS_ROWS / 8][GLM_DOTS_TILES][4], const int eights,
                               int32_t n_rows, int32_t n_outputs, glm_dots_out_t *y,
                               size_t y_stride)
{
    GLM_SHARED float quarter[GLM_WARPS][8][GLM_DOTS_OUTPUTS + 4];
    const int32_t column = glm_lane() % 4 * 2, output = glm_lane() / 4;
    GLM_UNROLL
    for (int e = 0; e < eights; e++) {
        glm_barrier();
        GLM_UNROLL
        for (int i = 0; i < 4 * GLM_DOTS_TILES; i++)
            quarter[glm_warp()][column + i % 2][i / 2 * 8 + output] = acc[e][i / 4][i % 4];
        glm_barrier();
        for (int i = glm_thread(); i < 8 * GLM_DOTS_OUTPUTS; i += GLM_BLOCK) {
            const int32_t r = i / GLM_DOTS_OUTPUTS, n = i % GLM_DOTS_OUTPUTS;
            float v = quarter[0][r][n];
            GLM_UNROLL
            for (int w = 1; w < GLM_WARPS; w++)
                v += quarter[w][r][n];
            if (8 * e + r < n_rows && n < n_outputs)
                glm_dots_put(y + (size_t)(8 * e + r) * y_stride + n, v);
        }
    }
}

GLM_INLINE void glm_dots_eights(const struct glm_dots_weight *w, int32_t n0, int32_t n_outputs,
                                const struct glm_dots_rows *x, const int eights, glm_dots_out_t *y,
                                size_t y_stride)
{
    float acc[GLM_DOTS_ROWS / 8][GLM_DOTS_TILES][4];
    GLM_UNROLL
    for (int i = 0; i < 4 * GLM_DOTS_TILES * eights; i++)
        acc[i / (4 * GLM_DOTS_TILES)][i / 4 % GLM_DOTS_TILES][i % 4] = 0.0f;
    glm_dots_walk(w, n0, n0 + n_outputs - 1, x, eights, acc);
    glm_dots_store(acc, eights, x->n, n_outputs, y, y_stride);
}

/* y[row][i] = x[row] · output n0 + i of the weight for at most GLM_DOTS_OUTPUTS outputs. The whole
 * block calls it. */
GLM_INLINE void glm_dots_block(const struct glm_dots_weight *w, int32_t n0, int32_t n_outputs,
                               const struct glm_dots_rows *x, glm_dots_out_t *y, size_t y_stride)
{
    if (x->n <= 8)
        glm_dots_eights(w, n0, n_outputs, x, 1, y, y_stride);
    else if (x->n <= 16)
        glm_dots_eights(w, n0, n_outputs, x, 2, y, y_stride);
    else
        glm_dots_eights(w, n0, n_outputs, x, 4, y, y_stride);
}

#endif
