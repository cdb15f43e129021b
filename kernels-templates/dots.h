/* SPDX-License-Identifier: Apache-2.0 */
/* Dot products of activation rows with weight rows in the forms bf16, q4 and fp8, tile by tile: mr
 * rows times nr outputs share every load. An element has one order whatever the tile and whether
 * few rows stream the weights or many meet them converted: 16 lanes over k, k ascending in a lane,
 * then glm_sum16. Bodies call glm_dots_rows_FORM; threads and the walk over outputs are theirs.
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

/* Outputs of a call. Many rows: up to GLM_DOTS_ROWS at once meet the outputs' weights as floats,
 * GLM_DOTS_K inputs at a time, in the first cache; tiles of GLM_MANY_M rows. */
enum { GLM_DOTS_OUTPUTS = 8, GLM_DOTS_ROWS = 48, GLM_DOTS_K = 512 };
#if GLM_NATIVE == 1
enum { GLM_MANY_M = 6, GLM_MANY_N = 4, GLM_MANY_M_QUANT = 4 };
#else
enum { GLM_MANY_M = 2, GLM_MANY_N = 2, GLM_MANY_M_QUANT = 2 };
#endif

GLM_INLINE size_t glm_align64(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

enum glm_dots_form { GLM_DOTS_BF16, GLM_DOTS_Q4, GLM_DOTS_FP8 };

/* Where output n0's parts of a form begin. */
struct glm_dots_weight {
    const uint16_t *codes16; /* bf16 weights or q4 codes */
    const uint8_t *codes8;
    const uint16_t *scales, *biases;
    const float *scales32;
};

GLM_INLINE struct glm_dots_weight glm_dots_weight_at(enum glm_dots_form form, const void *w,
                                                     size_t n_rows, size_t n0, size_t k)
{
    struct glm_dots_weight r = {.codes16 = w, .codes8 = w};
    if (form == GLM_DOTS_BF16) {
        r.codes16 += n0 * k;
    } else if (form == GLM_DOTS_Q4) {
        const char *plane = (const char *)w + glm_align64(n_rows * k / 2);
        r.codes16 += n0 * (k / 4);
        r.scales = (const uint16_t *)(const void *)plane + n0 * (k / 64);
        plane += glm_align64(n_rows * (k / 64) * 2);
        r.biases = (const uint16_t *)(const void *)plane + n0 * (k / 64);
    } else {
        const char *plane = (const char *)w + glm_align64(n_rows * k);
        r.codes8 += n0 * k;
        r.scales32 = (const float *)(const void *)plane + n0 * (k / 128);
    }
    return r;
}

/* ---- Few rows: tiles that stream the weights ---- */

/* Sums the lanes of acc[mr][nr] into out[8 m + n]. */
GLM_INLINE void glm_dots_finish(glm_f32x16 acc[GLM_TILE_MAX][GLM_TILE_MAX], int mr, int nr,
                                float *out)
{
    GLM_UNROLL
    for (int m = 0; m < mr; m++) {
        if (nr == 4) {
            glm_sum16_4(acc[m][0], acc[m][1], acc[m][2], acc[m][3], out + GLM_DOTS_OUTPUTS * m);
        } else {
            GLM_UNROLL
            for (int n = 0; n < nr; n++)
                out[GLM_DOTS_OUTPUTS * m + n] = glm_sum16(acc[m][n]);
        }
    }
}

/* out[8 m + j] = x[m] · output n0 + j of w; k a multiple of 16. */
GLM_INLINE void glm_dots_bf16(const act_t *const *x, const struct glm_dots_weight *weight, int n0,
                              int k, int mr, int nr, float *out)
{
    const uint16_t *w = weight->codes16 + (size_t)n0 * (size_t)k;
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
        for (int n = 0; n < nr; n++) {
            v[n] = glm_load_bf16(w + (size_t)n * (size_t)k + i);
            /* short rows are no stream to the processor: name what comes next */
            __builtin_prefetch(w + (size_t)(n + nr) * (size_t)k + i);
        }
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

/* As above for q4; k a multiple of 64. A group adds s · (sum q x), then b · (sum x), each sum a
 * lane's four products or elements. */
GLM_INLINE void glm_dots_q4(const act_t *const *x, const struct glm_dots_weight *w, int n0, int k,
                            int mr, int nr, float *out)
{
    size_t groups = (size_t)k / 64;
    const uint16_t *codes = w->codes16 + (size_t)n0 * groups * 16;
    const uint16_t *scales = w->scales + (size_t)n0 * groups;
    const uint16_t *biases = w->biases + (size_t)n0 * groups;
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
            for (int n = 0; n < nr; n++) {
                c[n] = glm_load_u16(codes + ((size_t)n * groups + at) * 16);
                __builtin_prefetch(codes + ((size_t)(n + nr) * groups + at) * 16);
            }
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
GLM_INLINE void glm_dots_fp8(const act_t *const *x, const struct glm_dots_weight *w, int n0, int k,
                             int mr, int nr, float *out)
{
    size_t blocks = (size_t)k / 128;
    const uint8_t *codes = w->codes8 + (size_t)n0 * (size_t)k;
    const float *scales = w->scales32 + (size_t)n0 * blocks;
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
                if (j % 4 == 0)
                    __builtin_prefetch(codes + (size_t)(n + nr) * (size_t)k + i);
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

/* ---- Many rows ---- */

/* acc[m][n] += x[m][0..k) · w[n][0..k), lane by lane; w rows GLM_DOTS_K apart. */
GLM_INLINE void glm_many_tile(const act_t *const *x, size_t at, const float *w, int k, int mr,
                              int nr, glm_f32x16 (*acc)[GLM_DOTS_OUTPUTS], int n0)
{
    glm_f32x16 s[GLM_MANY_M][GLM_TILE_MAX];
    GLM_UNROLL
    for (int m = 0; m < mr; m++) {
        GLM_UNROLL
        for (int n = 0; n < nr; n++)
            s[m][n] = acc[m][n0 + n];
    }
    for (int i = 0; i < k; i += 16) {
        glm_f32x16 v[GLM_TILE_MAX];
        GLM_UNROLL
        for (int n = 0; n < nr; n++)
            v[n] = glm_load(w + (n0 + n) * GLM_DOTS_K + i);
        GLM_UNROLL
        for (int m = 0; m < mr; m++) {
            glm_f32x16 a = glm_load_act(x[m] + at + i);
            GLM_UNROLL
            for (int n = 0; n < nr; n++)
                s[m][n] = glm_fma(a, v[n], s[m][n]);
        }
    }
    GLM_UNROLL
    for (int m = 0; m < mr; m++) {
        GLM_UNROLL
        for (int n = 0; n < nr; n++)
            acc[m][n0 + n] = s[m][n];
    }
}

/* The same with codes in w: groups of `group` inputs whose sums take scale[n] and, when bias is
 * given, sums of x that take bias[n]; rows of both GLM_DOTS_K / 64 apart. */
GLM_INLINE void glm_many_quant(const act_t *const *x, size_t at, const float *w, int k, int group,
                               const float *scale, const float *bias, int mr, int nr,
                               glm_f32x16 (*acc)[GLM_DOTS_OUTPUTS], int n0)
{
    for (int g = 0; g < k / group; g++) {
        glm_f32x16 t[GLM_MANY_M_QUANT][GLM_TILE_MAX], xs[GLM_MANY_M_QUANT];
        GLM_UNROLL
        for (int j = 0; j < group / 16; j++) {
            int i = g * group + j * 16;
            glm_f32x16 v[GLM_TILE_MAX];
            GLM_UNROLL
            for (int n = 0; n < nr; n++)
                v[n] = glm_load(w + (n0 + n) * GLM_DOTS_K + i);
            GLM_UNROLL
            for (int m = 0; m < mr; m++) {
                glm_f32x16 a = glm_load_act(x[m] + at + i);
                if (bias)
                    xs[m] = j ? glm_add(xs[m], a) : a;
                GLM_UNROLL
                for (int n = 0; n < nr; n++)
                    t[m][n] = j ? glm_fma(a, v[n], t[m][n]) : glm_mul(a, v[n]);
            }
        }
        GLM_UNROLL
        for (int n = 0; n < nr; n++) {
            int of = (n0 + n) * (GLM_DOTS_K / 64) + g;
            GLM_UNROLL
            for (int m = 0; m < mr; m++) {
                glm_f32x16 s = glm_fma(glm_splat(scale[of]), t[m][n], acc[m][n0 + n]);
                acc[m][n0 + n] = bias ? glm_fma(glm_splat(bias[of]), xs[m], s) : s;
            }
        }
    }
}

/* Inputs [k0, k0 + some) of all outputs as floats: weights, or codes beside their scales. */
GLM_INLINE void glm_many_convert(enum glm_dots_form form, const struct glm_dots_weight *w, size_t k,
                                 size_t k0, int some, float *out, float *scale, float *bias)
{
    for (size_t n = 0; n < GLM_DOTS_OUTPUTS; n++, out += GLM_DOTS_K) {
        for (int i = 0; i < some; i += 64) {
            size_t at = n * k + k0 + (size_t)i;
            /* the next call's weights are on their way while this call multiplies */
            if (form == GLM_DOTS_BF16) {
                __builtin_prefetch(w->codes16 + at + GLM_DOTS_OUTPUTS * k);
                __builtin_prefetch(w->codes16 + at + GLM_DOTS_OUTPUTS * k + 32);
                for (int j = 0; j < 64 && i + j < some; j += 16)
                    glm_store(out + i + j, glm_load_bf16(w->codes16 + at + (size_t)j));
            } else if (form == GLM_DOTS_Q4) {
                __builtin_prefetch(w->codes16 + at / 4 + GLM_DOTS_OUTPUTS * k / 4);
                glm_u32x16 c = glm_load_u16(w->codes16 + at / 4);
                GLM_UNROLL
                for (int j = 0; j < 4; j++)
                    glm_store(out + i + 16 * j, glm_nibble(c, j));
                scale[n * (GLM_DOTS_K / 64) + (size_t)(i / 64)] = glm_bf16_f32(w->scales[at / 64]);
                bias[n * (GLM_DOTS_K / 64) + (size_t)(i / 64)] = glm_bf16_f32(w->biases[at / 64]);
            } else {
                __builtin_prefetch(w->codes8 + at + GLM_DOTS_OUTPUTS * k);
                for (int j = 0; j < 64; j += 16)
                    glm_store(out + i + j, glm_load_e4m3_256th(w->codes8 + at + (size_t)j));
                scale[n * (GLM_DOTS_K / 64) + (size_t)(i / 128)] = w->scales32[at / 128] * 256.0f;
            }
        }
    }
}

GLM_INLINE void glm_many_rows(enum glm_dots_form form, const act_t *const *x, int n_rows,
                              const struct glm_dots_weight *w, int k, float *out)
{
    float v[GLM_DOTS_OUTPUTS * GLM_DOTS_K] __attribute__((aligned(64)));
    float scale[GLM_DOTS_OUTPUTS * GLM_DOTS_K / 64], bias[GLM_DOTS_OUTPUTS * GLM_DOTS_K / 64];
    glm_f32x16 acc[GLM_DOTS_ROWS][GLM_DOTS_OUTPUTS];
    const int tile = form == GLM_DOTS_BF16 ? GLM_MANY_M : GLM_MANY_M_QUANT;
    const int group = form == GLM_DOTS_Q4 ? 64 : 128;
    const float *biases = form == GLM_DOTS_Q4 ? bias : NULL;
    for (int m = 0; m < n_rows; m++)
        for (int n = 0; n < GLM_DOTS_OUTPUTS; n++)
            acc[m][n] = glm_zero();
    for (int k0 = 0; k0 < k; k0 += GLM_DOTS_K) {
        int some = k - k0 < GLM_DOTS_K ? k - k0 : GLM_DOTS_K, m = 0;
        size_t at = (size_t)k0;
        glm_many_convert(form, w, (size_t)k, at, some, v, scale, bias);
        for (; m + tile <= n_rows; m += tile)
            for (int n = 0; n < GLM_DOTS_OUTPUTS; n += GLM_MANY_N) {
                if (form == GLM_DOTS_BF16)
                    glm_many_tile(x + m, at, v, some, GLM_MANY_M, GLM_MANY_N, acc + m, n);
                else
                    glm_many_quant(x + m, at, v, some, group, scale, biases, GLM_MANY_M_QUANT,
                                   GLM_MANY_N, acc + m, n);
            }
        for (; m < n_rows; m++)
            for (int n = 0; n < GLM_DOTS_OUTPUTS; n += GLM_MANY_N) {
                if (form == GLM_DOTS_BF16)
                    glm_many_tile(x + m, at, v, some, 1, GLM_MANY_N, acc + m, n);
                else
                    glm_many_quant(x + m, at, v, some, group, scale, biases, 1, GLM_MANY_N, acc + m,
                                   n);
            }
    }
    for (int m = 0; m < n_rows; m++)
        for (int n = 0; n < GLM_DOTS_OUTPUTS; n += 4)
            glm_sum16_4(acc[m][n], acc[m][n + 1], acc[m][n + 2], acc[m][n + 3],
                        out + GLM_DOTS_OUTPUTS * m + n);
}

/* ---- Rows, few or many ---- */

GLM_INLINE void glm_dots_tile(enum glm_dots_form form, const act_t *const *x,
                              const struct glm_dots_weight *w, int n, int k, int mr, int nr,
                              float *out)
{
    if (form == GLM_DOTS_BF16)
        glm_dots_bf16(x, w, n, k, mr, nr, out);
    else if (form == GLM_DOTS_Q4)
        glm_dots_q4(x, w, n, k, mr, nr, out);
    else
        glm_dots_fp8(x, w, n, k, mr, nr, out);
}

/* out[8 m + n] = x[m] · w[n0 + n] for n_rows <= GLM_DOTS_ROWS rows and nr <= GLM_DOTS_OUTPUTS
 * outputs of a weight of w_rows outputs and k inputs. form, w_rows and k are constants. */
GLM_INLINE void glm_dots_rows(enum glm_dots_form form, const act_t *const *x, int n_rows,
                              const void *weight, int w_rows, int64_t n0, int nr, int k, float *out)
{
    struct glm_dots_weight w =
        glm_dots_weight_at(form, weight, (size_t)w_rows, (size_t)n0, (size_t)k);
    /* converting pays off late for bf16, soon for fp8, and never where a nibble costs two moves */
    const int many = form == GLM_DOTS_FP8                     ? 4
                     : form == GLM_DOTS_Q4 && GLM_NATIVE == 1 ? GLM_DOTS_ROWS + 1
                                                              : 12;
    if (nr == GLM_DOTS_OUTPUTS && n_rows >= many) {
        glm_many_rows(form, x, n_rows, &w, k, out);
        return;
    }
    const bool quant = form != GLM_DOTS_BF16;
    const int tm = quant ? GLM_TILE_M_QUANT : GLM_TILE_M,
              tn = quant ? GLM_TILE_N_QUANT : GLM_TILE_N;
    int n = 0;
    for (; n + 4 <= nr; n += 4) {
        int m = 0;
        for (; tm > 1 && m + tm <= n_rows; m += tm)
            for (int j = n; j < n + 4; j += tn)
                glm_dots_tile(form, x + m, &w, j, k, tm, tn, out + GLM_DOTS_OUTPUTS * m + j);
        for (; m < n_rows; m++)
            glm_dots_tile(form, x + m, &w, n, k, 1, 4, out + GLM_DOTS_OUTPUTS * m + n);
    }
    for (; n < nr; n++)
        for (int m = 0; m < n_rows; m++)
            glm_dots_tile(form, x + m, &w, n, k, 1, 1, out + GLM_DOTS_OUTPUTS * m + n);
}

#endif
