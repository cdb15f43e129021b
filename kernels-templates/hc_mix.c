/* SPDX-License-Identifier: Apache-2.0 */
/* A hyper-connection's boundary: writes the pending sub-layer back into the streams, computes the
 * next site's weights (2S+S² dots over all streams, sigmoid, Sinkhorn), reads the mixed input and
 * norms it (docs/model.md 2).
 *
 * The dots run over fixed blocks of columns, all streams of a block together, whose 16-lane sums
 * are added in block order. A block of a row needs nothing of another block, so few rows of a wide
 * model are spread over all threads by block; many rows by row. Both give the same bits. */
#include "hc.h"

const uint32_t glm_kernel_abi = GLM_HOST_ABI_VERSION;

#define MIXES (2 * GLM_S + GLM_S * GLM_S)
#define SUMS  (MIXES + 1) /* the dots, then the sum of squares */
#define COLS                                                                            \
    (GLM_D > 1024 ? (GLM_D + 255) / 256 * 16 : 64) /* of a block, the last may be short \
                                                    */
#define BLOCKS ((GLM_D + COLS - 1) / COLS)
#define TILE   4                       /* rows that share the conversion of fn */
#define SPREAD (GLM_S * GLM_D >= 4096) /* a row's dots are worth a barrier */

struct site {
    const float *y;
    float *mix;
    act_t *x;
    const uint16_t *fn;
    const float *base, *scale;
    const uint16_t *norm;
    act_t *out;
};

/* The streams of columns [d0, d0 + n), written back, in memory and as floats in v[s * COLS + d]. */
GLM_INLINE glm_f32x16 take_block(const struct site *a, int64_t r, int d0, int n, float *v)
{
    act_t *x = a->x + (size_t)r * GLM_S * GLM_D + d0;
    glm_f32x16 squares = glm_zero();
    for (int d = 0; d < n; d += 16) {
        glm_f32x16 t[GLM_S];
        for (int s = 0; s < GLM_S; s++)
            t[s] = glm_load_act(x + s * GLM_D + d);
#if GLM_WRITE
        glm_f32x16 y = glm_round_act16(glm_load(a->y + (size_t)r * GLM_D + d0 + d));
        glm_hc_write(t, y, a->mix + (size_t)r * GLM_HC_MIX);
#endif
        for (int s = 0; s < GLM_S; s++) {
#if GLM_WRITE
            glm_store_act(x + s * GLM_D + d, t[s]);
#endif
            glm_store(v + s * COLS + d, t[s]);
            squares = glm_fma(t[s], t[s], squares);
        }
    }
    return squares;
}

/* k_n dots from k0 on of n_rows rows over one block; lane sums to sums[row][k]. */
GLM_INLINE void block_dots(const uint16_t *fn, int n, float (*v)[GLM_S * COLS],
                           glm_f32x16 (*sums)[SUMS], int n_rows, int k0, int k_n)
{
    glm_f32x16 acc[TILE * 8];
    for (int i = 0; i < n_rows * k_n; i++)
        acc[i] = glm_zero();
    for (int s = 0; s < GLM_S; s++)
        for (int d = 0; d < n; d += 16) {
            glm_f32x16 x[TILE];
            for (int r = 0; r < n_rows; r++)
                x[r] = glm_load(&v[r][s * COLS + d]);
            for (int k = 0; k < k_n; k++) {
                glm_f32x16 w = glm_load_bf16(fn + (size_t)(k0 + k) * GLM_S * GLM_D + s * GLM_D + d);
                for (int r = 0; r < n_rows; r++)
                    acc[r * k_n + k] = glm_fma(w, x[r], acc[r * k_n + k]);
            }
        }
    for (int r = 0; r < n_rows; r++)
        for (int k = 0; k < k_n; k++)
            sums[r][k0 + k] = acc[r * k_n + k];
}

/* All sums of block b for n_rows rows from r on, n_rows a constant of the caller. */
GLM_INLINE void block_sums(const struct site *a, int64_t r, int n_rows, int b,
                           glm_f32x16 (*sums)[SUMS])
{
    float v[TILE][GLM_S * COLS];
    int d0 = b * COLS, n = GLM_D - d0 < COLS ? GLM_D - d0 : COLS, k = 0;
    int group = n_rows > 1 ? 4 : 8;
    for (int i = 0; i < n_rows; i++)
        sums[i][MIXES] = take_block(a, r + i, d0, n, v[i]);
    for (; k + group <= MIXES; k += group)
        block_dots(a->fn + d0, n, v, sums, n_rows, k, group);
    for (; k < MIXES; k++)
        block_dots(a->fn + d0, n, v, sums, n_rows, k, 1);
}

/* Row softmax + eps, a column pass, then ITERS - 1 times rows and columns (docs/model.md 2). */
static void sinkhorn(float m[GLM_S][GLM_S])
{
    for (int it = 0; it < GLM_ITERS; it++) {
        for (int i = 0; it > 0 && i < GLM_S; i++) {
            float sum = m[i][0];
            for (int j = 1; j < GLM_S; j++)
                sum += m[i][j];
            float by = 1.0f / (sum + GLM_EPS);
            for (int j = 0; j < GLM_S; j++)
                m[i][j] *= by;
        }
        float by[GLM_S];
        for (int j = 0; j < GLM_S; j++) {
            float sum = m[0][j];
            for (int i = 1; i < GLM_S; i++)
                sum += m[i][j];
            by[j] = 1.0f / (sum + GLM_EPS);
        }
        for (int i = 0; i < GLM_S; i++)
            for (int j = 0; j < GLM_S; j++)
                m[i][j] *= by[j];
    }
}

/* Dots and the sum of squares of a row → read weights, post and comb. */
static void site_weights(const struct site *a, const float *dots, float *read, float *mix)
{
    float r = glm_inverse_root(dots[MIXES] * (1.0f / (GLM_S * GLM_D)) + GLM_NORM_EPS);
    float z[32] = {0}, gate[16], m[GLM_S][GLM_S];
    for (int k = 0; k < MIXES; k++)
        z[k] = a->scale[k < GLM_S ? 0 : k < 2 * GLM_S ? 1 : 2] * (r * dots[k]) + a->base[k];
    glm_store(gate, glm_sigmoid16(glm_load(z)));
    for (int s = 0; s < GLM_S; s++) {
        read[s] = gate[s] + GLM_EPS;
        mix[s] = 2.0f * gate[GLM_S + s];
    }
    float c[16], e[16];
    for (int i = 0; i < 16; i++) {
        const float *row = z + 2 * GLM_S + i / GLM_S * GLM_S;
        float most = row[0];
        for (int j = 1; j < GLM_S; j++)
            most = glm_max1(most, row[j]);
        c[i] = i < GLM_S * GLM_S ? row[i % GLM_S] - most : 0.0f;
    }
    glm_store(e, glm_exp16(glm_load(c)));
    for (int i = 0; i < GLM_S; i++) {
        float sum = e[i * GLM_S];
        for (int j = 1; j < GLM_S; j++)
            sum += e[i * GLM_S + j];
        for (int j = 0; j < GLM_S; j++)
            m[i][j] = e[i * GLM_S + j] / sum + GLM_EPS;
    }
    sinkhorn(m);
    for (int i = 0; i < GLM_S * GLM_S; i++)
        mix[GLM_S + i] = m[i / GLM_S][i % GLM_S];
}

/* Lane sums of a row → the site's weights, then the normed input. */
static void finish_row(const struct site *a, int64_t r, const glm_f32x16 *sums)
{
    glm_f32x16 pad[32];
    float dots[32], read[GLM_S];
    for (int k = 0; k < 32; k++)
        pad[k] = k < SUMS ? sums[k] : glm_zero();
    glm_store(dots, glm_sum16_each(pad));
    glm_store(dots + 16, glm_sum16_each(pad + 16));
    site_weights(a, dots, read, a->mix + (size_t)r * GLM_HC_MIX);
    const act_t *x = a->x + (size_t)r * GLM_S * GLM_D;
    act_t *out = a->out + (size_t)r * GLM_D;
    for (int d = 0; d < GLM_D; d += 16) {
        glm_f32x16 u = glm_mul(glm_splat(read[0]), glm_load_act(x + d));
        for (int s = 1; s < GLM_S; s++)
            u = glm_fma(glm_splat(read[s]), glm_load_act(x + s * GLM_D + d), u);
        glm_store_act(out + d, u);
    }
    glm_rms_norm(out, out, a->norm, GLM_D, GLM_NORM_EPS);
}

GLM_INLINE void add_sums(glm_f32x16 *total, const glm_f32x16 *sums)
{
    for (int k = 0; k < SUMS; k++)
        total[k] = glm_add(total[k], sums[k]);
}

GLM_INLINE void whole_rows(const struct site *a, int64_t r, int n_rows)
{
    glm_f32x16 total[TILE][SUMS], sums[TILE][SUMS];
    block_sums(a, r, n_rows, 0, total);
    for (int b = 1; b < BLOCKS; b++) {
        block_sums(a, r, n_rows, b, sums);
        for (int i = 0; i < n_rows; i++)
            add_sums(total[i], sums[i]);
    }
    for (int i = 0; i < n_rows; i++)
        finish_row(a, r + i, total[i]);
}

/* Blocks of rows over all threads, sums in scratch[row][block][SUMS][16]. */
static void spread_rows(const struct glm_launch *launch, const struct site *a, int64_t n_rows)
{
    float(*kept)[BLOCKS][SUMS][16] = launch->scratch;
    int64_t first, last;
    glm_part(launch, n_rows * BLOCKS, &first, &last);
    for (int64_t i = first; i < last; i++) {
        glm_f32x16 sums[1][SUMS];
        block_sums(a, i % n_rows, 1, (int)(i / n_rows), sums);
        for (int k = 0; k < SUMS; k++)
            glm_store(kept[i % n_rows][i / n_rows][k], sums[0][k]);
    }
    glm_barrier(launch);
    glm_part(launch, n_rows, &first, &last);
    for (int64_t r = first; r < last; r++) {
        glm_f32x16 total[SUMS], sums[SUMS];
        for (int k = 0; k < SUMS; k++)
            total[k] = glm_load(kept[r][0][k]);
        for (int b = 1; b < BLOCKS; b++) {
            for (int k = 0; k < SUMS; k++)
                sums[k] = glm_load(kept[r][b][k]);
            add_sums(total, sums);
        }
        finish_row(a, r, total);
    }
}

void glm_kernel(const struct glm_launch *launch, void *const *args)
{
    const struct site a = {args[0], args[1], args[2], args[3], args[4], args[5], args[6], args[7]};
    int64_t n_rows = launch->round->n_rows, first, last;
    if (SPREAD && launch->n_threads > 1 && n_rows < 2 * (int64_t)launch->n_threads) {
        spread_rows(launch, &a, n_rows);
        return;
    }
    glm_part(launch, n_rows, &first, &last);
    for (; first + TILE <= last; first += TILE)
        whole_rows(&a, first, TILE);
    for (; first < last; first++)
        whole_rows(&a, first, 1);
}
