/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of dot products of activation rows with weight rows in the forms bf16, q4 and fp8: mr rows
 * times nr outputs share every load. An element has one order whatever the tile: 16 lanes over k,
 * k ascending in a lane, then glm_sum16. Owns no threads and no blocking: bodies choose tiles.
 *
 * The forms (README.md, runtime/forms.h), k inputs a row:
 *   bf16  [n][k]
 *   q4    codes u16 [n][k/64][16]: nibble j of code l is element 16 j + l of the group; then, each
 *         64-byte aligned, scales bf16 [n][k/64] and biases bf16 [n][k/64]
 *   fp8   codes e4m3 [n][k], then scales f32 [n][k/128], 64-byte aligned */
#ifndef GLM_DOTS_H
#define GLM_DOTS_H

#include "prelude.h"

/* Largest tiles that the registers hold, for more than one row. */
#if GLM_NATIVE == 1
enum { GLM_TILE_M = 4, GLM_TILE_N = 4, GLM_TILE_M_QUANT = 2, GLM_TILE_N_QUANT = 4 };
#else
enum { GLM_TILE_M = 2, GLM_TILE_N = 2, GLM_TILE_M_QUANT = 1, GLM_TILE_N_QUANT = 2 };
#endif
enum { GLM_TILE_MAX = 4 };

GLM_INLINE size_t glm_align64(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* Sums the lanes of acc[mr][nr] into out, row m at out[m * 4]. */
GLM_INLINE void glm_dots_finish(glm_f32x16 acc[GLM_TILE_MAX][GLM_TILE_MAX], int mr, int nr,
                                float *out)
{
    GLM_UNROLL
    for (int m = 0; m < mr; m++) {
        if (nr == 4) {
            glm_sum16_4(acc[m][0], acc[m][1], acc[m][2], acc[m][3], out + 4 * m);
        } else {
            GLM_UNROLL
            for (int n = 0; n < nr; n++)
                out[4 * m + n] = glm_sum16(acc[m][n]);
        }
    }
}

/* out[4 m + n] = x[m] · w[n], w the first weight row of the tile; k a multiple of 16. */
GLM_INLINE void glm_dots_bf16(const act_t *const *x, const uint16_t *w, int k, int mr, int nr,
                              float *out)
{
    glm_f32x16 acc[GLM_TILE_MAX][GLM_TILE_MAX];
    GLM_UNROLL
    for (int m = 0; m < mr; m++) {
        GLM_UNROLL
        for (int n = 0; n < nr; n++)
            acc[m][n] = glm_zero();
    }
    for (int i = 0; i < k; i += 16) {
        glm_f32x16 v[GLM_TILE_MAX];
        GLM_UNROLL
        for (int n = 0; n < nr; n++)
            v[n] = glm_load_bf16(w + (size_t)n * (size_t)k + i);
        GLM_UNROLL
        for (int m = 0; m < mr; m++) {
            glm_f32x16 a = glm_load_act(x[m] + i);
            GLM_UNROLL
            for (int n = 0; n < nr; n++)
                acc[m][n] = glm_fma(a, v[n], acc[m][n]);
        }
    }
    glm_dots_finish(acc, mr, nr, out);
}

/* bf16 scales of n <= 16 groups, as floats to broadcast from. */
GLM_INLINE void glm_dots_scales(const uint16_t *p, int n, float out[16])
{
    if (n == 16) {
        glm_store(out, glm_load_bf16(p));
        return;
    }
    for (int i = 0; i < n; i++)
        out[i] = glm_bf16_f32(p[i]);
}

/* As above for outputs n0.. of a q4 weight of n_rows rows; k a multiple of 64. A group adds
 * s · (sum q x), then b · (sum x), each sum a lane's four products or elements. */
GLM_INLINE void glm_dots_q4(const act_t *const *x, const void *w, int n_rows, int n0, int k, int mr,
                            int nr, float *out)
{
    size_t groups = (size_t)k / 64;
    const uint16_t *codes = (const uint16_t *)w + (size_t)n0 * groups * 16;
    const char *planes = (const char *)w + glm_align64((size_t)n_rows * groups * 32);
    const uint16_t *scales = (const uint16_t *)(const void *)planes + (size_t)n0 * groups;
    planes += glm_align64((size_t)n_rows * groups * 2);
    const uint16_t *biases = (const uint16_t *)(const void *)planes + (size_t)n0 * groups;
    glm_f32x16 acc[GLM_TILE_MAX][GLM_TILE_MAX];
    GLM_UNROLL
    for (int m = 0; m < mr; m++) {
        GLM_UNROLL
        for (int n = 0; n < nr; n++)
            acc[m][n] = glm_zero();
    }
    for (size_t g0 = 0; g0 < groups; g0 += 16) {
        float s[GLM_TILE_MAX][16], b[GLM_TILE_MAX][16];
        int some = groups - g0 < 16 ? (int)(groups - g0) : 16;
        GLM_UNROLL
        for (int n = 0; n < nr; n++) {
            glm_dots_scales(scales + (size_t)n * groups + g0, some, s[n]);
            glm_dots_scales(biases + (size_t)n * groups + g0, some, b[n]);
        }
        for (int g = 0; g < some; g++) {
            size_t at = g0 + (size_t)g;
            glm_f32x16 t[GLM_TILE_MAX][GLM_TILE_MAX], xs[GLM_TILE_MAX];
            glm_u32x16 c[GLM_TILE_MAX];
            GLM_UNROLL
            for (int n = 0; n < nr; n++)
                c[n] = glm_load_u16(codes + ((size_t)n * groups + at) * 16);
            GLM_UNROLL
            for (int j = 0; j < 4; j++) {
                glm_f32x16 a[GLM_TILE_MAX];
                GLM_UNROLL
                for (int m = 0; m < mr; m++) {
                    a[m] = glm_load_act(x[m] + at * 64 + (size_t)j * 16);
                    xs[m] = j ? glm_add(xs[m], a[m]) : a[m];
                }
                GLM_UNROLL
                for (int n = 0; n < nr; n++) {
                    glm_f32x16 q = glm_nibble(c[n], j);
                    GLM_UNROLL
                    for (int m = 0; m < mr; m++)
                        t[m][n] = j ? glm_fma(a[m], q, t[m][n]) : glm_mul(a[m], q);
                }
            }
            GLM_UNROLL
            for (int n = 0; n < nr; n++) {
                GLM_UNROLL
                for (int m = 0; m < mr; m++) {
                    acc[m][n] = glm_fma(glm_splat(s[n][g]), t[m][n], acc[m][n]);
                    acc[m][n] = glm_fma(glm_splat(b[n][g]), xs[m], acc[m][n]);
                }
            }
        }
    }
    glm_dots_finish(acc, mr, nr, out);
}

/* As above for fp8; k a multiple of 128. A lane sums its eight products of a block, then the block
 * times its scale joins the lane. */
GLM_INLINE void glm_dots_fp8(const act_t *const *x, const void *w, int n_rows, int n0, int k,
                             int mr, int nr, float *out)
{
    size_t blocks = (size_t)k / 128;
    const uint8_t *codes = (const uint8_t *)w + (size_t)n0 * (size_t)k;
    const char *plane = (const char *)w + glm_align64((size_t)n_rows * (size_t)k);
    const float *scales = (const float *)(const void *)plane + (size_t)n0 * blocks;
    glm_f32x16 acc[GLM_TILE_MAX][GLM_TILE_MAX];
    GLM_UNROLL
    for (int m = 0; m < mr; m++) {
        GLM_UNROLL
        for (int n = 0; n < nr; n++)
            acc[m][n] = glm_zero();
    }
    for (size_t g = 0; g < blocks; g++) {
        glm_f32x16 t[GLM_TILE_MAX][GLM_TILE_MAX];
        GLM_UNROLL
        for (int j = 0; j < 8; j++) {
            glm_f32x16 a[GLM_TILE_MAX];
            size_t i = g * 128 + (size_t)j * 16;
            GLM_UNROLL
            for (int m = 0; m < mr; m++)
                a[m] = glm_load_act(x[m] + i);
            GLM_UNROLL
            for (int n = 0; n < nr; n++) {
                glm_f32x16 q = glm_load_e4m3_256th(codes + (size_t)n * (size_t)k + i);
                GLM_UNROLL
                for (int m = 0; m < mr; m++)
                    t[m][n] = j ? glm_fma(a[m], q, t[m][n]) : glm_mul(a[m], q);
            }
        }
        GLM_UNROLL
        for (int n = 0; n < nr; n++) {
            glm_f32x16 s = glm_splat(scales[(size_t)n * blocks + g] * 256.0f);
            GLM_UNROLL
            for (int m = 0; m < mr; m++)
                acc[m][n] = glm_fma(s, t[m][n], acc[m][n]);
        }
    }
    glm_dots_finish(acc, mr, nr, out);
}

#endif
