/* SPDX-License-Identifier: Apache-2.0 */
/* Sums that several bodies share: 16 lane sums at once, sums of squares, RMS norm of a row. Each
 * has one order, whatever the instruction set. */
#ifndef GLM_SUMS_H
#define GLM_SUMS_H

#include "prelude.h"

#define GLM_UNPACK(...) __VA_ARGS__
#define GLM_HALVES(a, b, low, high) \
    (__builtin_shufflevector(a, b, GLM_UNPACK low) + __builtin_shufflevector(a, b, GLM_UNPACK high))

/* Lane i of the result is glm_sum16(a[i]), the same bits: each level adds the two halves of what is
 * left of two sums and packs the results, so 16 sums cost as many additions as one needs shuffles.
 */
GLM_INLINE glm_f32x16 glm_sum16_each(const glm_f32x16 a[16])
{
    glm_f32x16 r;
#if GLM_NATIVE == 1
    glm_nf e[8], f[4], g[2];
    for (int i = 0; i < 8; i++) /* lanes i + (i + 8) */
        e[i] = GLM_HALVES(a[2 * i].v[0], a[2 * i + 1].v[0],
                          (0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
                          (8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31));
    for (int i = 0; i < 4; i++) /* + 4 */
        f[i] = GLM_HALVES(e[2 * i], e[2 * i + 1],
                          (0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27),
                          (4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31));
    for (int i = 0; i < 2; i++) /* + 2 */
        g[i] = GLM_HALVES(f[2 * i], f[2 * i + 1],
                          (0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29),
                          (2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31));
    r.v[0] = GLM_HALVES(g[0], g[1], (0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
                        (1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31));
#elif GLM_NATIVE == 2
    glm_nf f[8], g[4];
    for (int i = 0; i < 8; i++)
        f[i] = GLM_HALVES(a[2 * i].v[0] + a[2 * i].v[1], a[2 * i + 1].v[0] + a[2 * i + 1].v[1],
                          (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15));
    for (int i = 0; i < 4; i++)
        g[i] = GLM_HALVES(f[2 * i], f[2 * i + 1], (0, 1, 4, 5, 8, 9, 12, 13),
                          (2, 3, 6, 7, 10, 11, 14, 15));
    for (int i = 0; i < 2; i++)
        r.v[i] = GLM_HALVES(g[2 * i], g[2 * i + 1], (0, 2, 4, 6, 8, 10, 12, 14),
                            (1, 3, 5, 7, 9, 11, 13, 15));
#else
    glm_nf f[16], g[8];
    for (int i = 0; i < 16; i++)
        f[i] = (a[i].v[0] + a[i].v[2]) + (a[i].v[1] + a[i].v[3]);
    for (int i = 0; i < 8; i++)
        g[i] = GLM_HALVES(f[2 * i], f[2 * i + 1], (0, 1, 4, 5), (2, 3, 6, 7));
    for (int i = 0; i < 4; i++)
        r.v[i] = GLM_HALVES(g[2 * i], g[2 * i + 1], (0, 2, 4, 6), (1, 3, 5, 7));
#endif
    return r;
}

/* Transposes 16 vectors of 16 lanes: each step swaps one bit of the vector's number with one of the
 * lane's. */
#if GLM_NATIVE == 1
#define GLM_SWAP(a, b, low, high)                                        \
    do {                                                                 \
        glm_nf swap_low = __builtin_shufflevector(a, b, GLM_UNPACK low); \
        b = __builtin_shufflevector(a, b, GLM_UNPACK high);              \
        a = swap_low;                                                    \
    } while (0)
#else
#define GLM_SWAP(a, b, low, high)                                                        \
    do {                                                                                 \
        for (int part = 0; part < GLM_NATIVE; part++) {                                  \
            glm_nf swap_low = __builtin_shufflevector(a[part], b[part], GLM_UNPACK low); \
            b[part] = __builtin_shufflevector(a[part], b[part], GLM_UNPACK high);        \
            a[part] = swap_low;                                                          \
        }                                                                                \
    } while (0)
#endif
GLM_INLINE void glm_transpose16(glm_f32x16 a[16])
{
#if GLM_NATIVE == 1
    for (int i = 0; i < 8; i++)
        GLM_SWAP(a[i].v[0], a[i + 8].v[0], (0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
                 (8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31));
    for (int i = 0; i < 16; i++)
        if ((i & 4) == 0)
            GLM_SWAP(a[i].v[0], a[i + 4].v[0],
                     (0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27),
                     (4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31));
    for (int i = 0; i < 16; i++)
        if ((i & 2) == 0)
            GLM_SWAP(a[i].v[0], a[i + 2].v[0],
                     (0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),
                     (2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31));
    for (int i = 0; i < 16; i += 2)
        GLM_SWAP(a[i].v[0], a[i + 1].v[0],
                 (0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30),
                 (1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31));
#else
    const int lanes = GLM_NATIVE_LANES;
    for (int step = 8; step >= lanes; step /= 2) /* whole registers change places */
        for (int pair = 0; pair < 16; pair += 2 * step)
            for (int i = pair; i < pair + step; i++)
                for (int part = 0; part < GLM_NATIVE; part++)
                    if ((part & (step / lanes)) == 0) {
                        glm_nf t = a[i].v[part + step / lanes];
                        a[i].v[part + step / lanes] = a[i + step].v[part];
                        a[i + step].v[part] = t;
                    }
#if GLM_NATIVE == 2
    for (int i = 0; i < 16; i++)
        if ((i & 4) == 0)
            GLM_SWAP(a[i].v, a[i + 4].v, (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15));
    for (int i = 0; i < 16; i++)
        if ((i & 2) == 0)
            GLM_SWAP(a[i].v, a[i + 2].v, (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15));
    for (int i = 0; i < 16; i += 2)
        GLM_SWAP(a[i].v, a[i + 1].v, (0, 8, 2, 10, 4, 12, 6, 14), (1, 9, 3, 11, 5, 13, 7, 15));
#else
    for (int i = 0; i < 16; i++)
        if ((i & 2) == 0)
            GLM_SWAP(a[i].v, a[i + 2].v, (0, 1, 4, 5), (2, 3, 6, 7));
    for (int i = 0; i < 16; i += 2)
        GLM_SWAP(a[i].v, a[i + 1].v, (0, 4, 2, 6), (1, 5, 3, 7));
#endif
#endif
}

/* Sum of squares of n stored activations, n a multiple of 16: four 16-lane sums taken in turns of
 * 16, added (0 + 1) + (2 + 3). */
GLM_INLINE float glm_square_sum(const act_t *x, int n)
{
    glm_f32x16 s[4] = {glm_zero(), glm_zero(), glm_zero(), glm_zero()};
    int i = 0;
    for (; i + 64 <= n; i += 64)
        for (int j = 0; j < 4; j++) {
            glm_f32x16 v = glm_load_act(x + i + 16 * j);
            s[j] = glm_fma(v, v, s[j]);
        }
    for (int j = 0; i < n; i += 16, j++) {
        glm_f32x16 v = glm_load_act(x + i);
        s[j] = glm_fma(v, v, s[j]);
    }
    return glm_sum16(glm_add(glm_add(s[0], s[1]), glm_add(s[2], s[3])));
}

/* y = w · (x · (mean x² + eps)^(-1/2)), the product in brackets stored as an activation before it
 * meets w (docs/model.md 2). y may be x. n a multiple of 16. */
GLM_INLINE void glm_rms_norm(act_t *y, const act_t *x, const uint16_t *w, int n, float eps)
{
    glm_f32x16 scale = glm_splat(glm_inverse_root(glm_square_sum(x, n) * (1.0f / (float)n) + eps));
    for (int i = 0; i < n; i += 16) {
        glm_f32x16 v = glm_round_act16(glm_mul(glm_load_act(x + i), scale));
        glm_store_act(y + i, glm_mul(glm_load_bf16(w + i), v));
    }
}

#endif
