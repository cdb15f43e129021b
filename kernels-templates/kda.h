/* SPDX-License-Identifier: Apache-2.0 */
/* What decode, replay and prefill of the gated delta rule share (docs/model.md 3): a row's inputs
 * of one head (convolution, norms, decay), one step of the state, and the gated output norm. The
 * state is [head][key][value]; a head is worked by one thread.
 *
 * One step, with a = decay of a key channel:
 *   r[v] = Σ_i k[i] a[i] S[i][v]      δ[v] = β (value[v] - r[v])      S'[i][v] = a[i] S[i][v] +
 * k[i] δ[v] o[v] = Σ_i q[i] S'[i][v] = Σ_i q[i] a[i] S[i][v] + (Σ_i q[i] k[i]) δ[v] so that the
 * state is read twice and written once. Sums over i ascend, in 16 lanes of v. */
#ifndef GLM_KDA_H
#define GLM_KDA_H

#include "sums.h"

#define GLM_KDA_NORM_EPS 1e-6f               /* under the root of the q and k norms */
#define GLM_KDA_WIDTH    (3 * GLM_H * GLM_D) /* of a projected row: q, k, v of all heads */
#define GLM_KDA_REPLAY   (3 * GLM_D + 1)     /* of a row and head: k, value, decay, β */
/* Vectors of v held in registers: two sums each in half of the registers. */
#define GLM_KDA_VECS (GLM_NATIVE == 1 && GLM_D % 64 == 0 ? 4 : GLM_D % 32 == 0 ? 2 : 1)

/* A row of one head, ready for the state. */
struct glm_kda_row {
    float q[GLM_D], k[GLM_D], v[GLM_D], decay[GLM_D];
    float beta;
};

/* Moves `in` to `out` (they may be the same state) by one row; o[D] is written when read_out, a
 * constant of the caller, is 1. The state's bits do not depend on read_out. */
GLM_INLINE void glm_kda_step(const float *in, float *out, const float *k, const float *q,
                             const float *v, const float *decay, float beta, float *o, int read_out)
{
    float ka[GLM_D], qa[GLM_D], qk = 0.0f;
    for (int i = 0; i < GLM_D; i += 16) {
        glm_f32x16 a = glm_load(decay + i);
        glm_store(ka + i, glm_mul(glm_load(k + i), a));
        if (read_out)
            glm_store(qa + i, glm_mul(glm_load(q + i), a));
    }
    if (read_out)
        qk = glm_dot(q, k, GLM_D);
    for (int v0 = 0; v0 < GLM_D; v0 += 16 * GLM_KDA_VECS) {
        glm_f32x16 r[GLM_KDA_VECS], p[GLM_KDA_VECS];
        GLM_UNROLL
        for (int j = 0; j < GLM_KDA_VECS; j++)
            r[j] = p[j] = glm_zero();
        for (int i = 0; i < GLM_D; i++) {
            glm_f32x16 kb = glm_splat(ka[i]), qb = glm_splat(read_out ? qa[i] : 0.0f);
            GLM_UNROLL
            for (int j = 0; j < GLM_KDA_VECS; j++) {
                glm_f32x16 s = glm_load(in + i * GLM_D + v0 + 16 * j);
                r[j] = glm_fma(kb, s, r[j]);
                if (read_out)
                    p[j] = glm_fma(qb, s, p[j]);
            }
        }
        GLM_UNROLL
        for (int j = 0; j < GLM_KDA_VECS; j++) {
            r[j] = glm_mul(glm_splat(beta), glm_sub(glm_load(v + v0 + 16 * j), r[j]));
            if (read_out)
                glm_store(o + v0 + 16 * j, glm_fma(glm_splat(qk), r[j], p[j]));
        }
        for (int i = 0; i < GLM_D; i++) {
            glm_f32x16 kb = glm_splat(k[i]), a = glm_splat(decay[i]);
            GLM_UNROLL
            for (int j = 0; j < GLM_KDA_VECS; j++) {
                size_t at = (size_t)(i * GLM_D + v0 + 16 * j);
                glm_store(out + at, glm_fma(kb, r[j], glm_mul(a, glm_load(in + at))));
            }
        }
    }
}

GLM_INLINE float *glm_kda_state(float *s, const struct glm_round_stream *stream, int version, int h)
{
    char *row = glm_state_stream(s, stream, 2, version, sizeof(float) * GLM_H * GLM_D * GLM_D);
    return (float *)(void *)row + (size_t)h * GLM_D * GLM_D;
}

#if defined(GLM_TAPS)

struct glm_kda {
    const act_t *proj, *b, *f, *g;
    const uint16_t *conv_w;
    const float *a_log, *dt_bias;
    const uint16_t *o_norm;
    act_t *conv;
    float *s;
    float *replay;
    act_t *out;
};

/* A head's weights as its rows use them: taps of channel c at [tap][c], q, k, v channels in turn.
 */
struct glm_kda_head {
    int h;
    float taps[GLM_TAPS][3 * GLM_D];
    float rate; /* exp(A_log) */
};

static inline void glm_kda_head_load(const struct glm_kda *a, int h, struct glm_kda_head *w)
{
    w->h = h;
    w->rate = glm_exp(a->a_log[h]);
    for (int part = 0; part < 3; part++) {
        const uint16_t *from = a->conv_w + ((size_t)part * GLM_H + (size_t)h) * GLM_D * GLM_TAPS;
        for (int c = 0; c < GLM_D; c++)
            for (int j = 0; j < GLM_TAPS; j++)
                w->taps[j][part * GLM_D + c] = glm_bf16_f32(from[c * GLM_TAPS + j]);
    }
}

/* The projected row of the stream's row i of this round; before the round from the ring, before the
 * sequence nothing. */
GLM_INLINE const act_t *glm_kda_input(const struct glm_kda *a, const struct glm_round_stream *s,
                                      int i)
{
    if (i >= 0)
        return a->proj + (size_t)(s->first_row + i) * GLM_PROJ_STRIDE;
    if (s->n_context + i < 0)
        return NULL;
    return (const act_t *)(const void *)glm_state_ring(a->conv, s, GLM_RING, s->n_context + i,
                                                       sizeof(act_t) * GLM_KDA_WIDTH);
}

/* 16 channels from c on of part 0..2: taps in order, the last one is the row itself; then SiLU. */
GLM_INLINE glm_f32x16 glm_kda_conv(const struct glm_kda_head *w, const act_t *const *x, int part,
                                   int c)
{
    size_t at = ((size_t)part * GLM_H + (size_t)w->h) * GLM_D + (size_t)c;
    glm_f32x16 z = glm_zero();
    for (int j = 0; j < GLM_TAPS; j++)
        if (x[j] != NULL)
            z = glm_fma(glm_load(&w->taps[j][part * GLM_D + c]), glm_load_act(x[j] + at), z);
    return glm_round_act16(glm_silu16(z));
}

/* Row i of the stream's rows of this round, head w->h. */
static inline void glm_kda_row(const struct glm_kda *a, const struct glm_kda_head *w,
                               const struct glm_round_stream *s, int i, struct glm_kda_row *row)
{
    const act_t *x[GLM_TAPS];
    for (int j = 0; j < GLM_TAPS; j++)
        x[j] = glm_kda_input(a, s, i + j - (GLM_TAPS - 1));
    const act_t *f = a->f + (size_t)(s->first_row + i) * GLM_F_STRIDE + w->h * GLM_D;
    const float *dt = a->dt_bias + w->h * GLM_D;
    glm_f32x16 qq = glm_zero(), kk = glm_zero();
    for (int c = 0; c < GLM_D; c += 16) {
        glm_f32x16 q = glm_kda_conv(w, x, 0, c), k = glm_kda_conv(w, x, 1, c);
        qq = glm_fma(q, q, qq);
        kk = glm_fma(k, k, kk);
        glm_store(row->q + c, q);
        glm_store(row->k + c, k);
        glm_store(row->v + c, glm_kda_conv(w, x, 2, c));
        glm_f32x16 rate =
            glm_mul(glm_splat(w->rate), glm_add(glm_load_act(f + c), glm_load(dt + c)));
        glm_store(row->decay + c, glm_exp16(glm_mul(glm_splat(GLM_LOWER), glm_sigmoid16(rate))));
    }
    glm_f32x16 q_scale = glm_splat(glm_inverse_root(glm_sum16(qq) + GLM_KDA_NORM_EPS) *
                                   glm_inverse_root((float)GLM_D));
    glm_f32x16 k_scale = glm_splat(glm_inverse_root(glm_sum16(kk) + GLM_KDA_NORM_EPS));
    for (int c = 0; c < GLM_D; c += 16) {
        glm_store(row->q + c, glm_mul(glm_load(row->q + c), q_scale));
        glm_store(row->k + c, glm_mul(glm_load(row->k + c), k_scale));
    }
    const act_t *b = a->b + (size_t)(s->first_row + i) * GLM_B_STRIDE;
    row->beta = glm_round_act(glm_sigmoid(glm_act_f32(b[w->h])));
}

/* out = w · o · (mean o² + eps)^(-1/2) · σ(gate), one rounding at the end; o is rounded before. */
static inline void glm_kda_output(const struct glm_kda *a, const struct glm_round_stream *s, int i,
                                  int h, const float *o)
{
    size_t r = (size_t)(s->first_row + i);
    const act_t *gate = a->g + r * GLM_F_STRIDE + h * GLM_D;
    act_t *out = a->out + (r * GLM_H + (size_t)h) * GLM_D;
    glm_f32x16 squares = glm_zero();
    for (int c = 0; c < GLM_D; c += 16) {
        glm_f32x16 v = glm_round_act16(glm_load(o + c));
        squares = glm_fma(v, v, squares);
    }
    glm_f32x16 scale =
        glm_splat(glm_inverse_root(glm_sum16(squares) * (1.0f / GLM_D) + GLM_NORM_EPS));
    for (int c = 0; c < GLM_D; c += 16) {
        glm_f32x16 v = glm_mul(glm_round_act16(glm_load(o + c)), scale);
        v = glm_mul(glm_load_bf16(a->o_norm + c), v);
        glm_store_act(out + c, glm_mul(v, glm_sigmoid16(glm_load_act(gate + c))));
    }
}

/* Keeps a head's channels of the round's last rows, at most RING of them, for later convolutions.
 */
static inline void glm_kda_keep(const struct glm_kda *a, const struct glm_round_stream *s, int h)
{
    int first = s->n_rows > GLM_RING ? s->n_rows - GLM_RING : 0;
    for (int i = first; i < s->n_rows; i++) {
        const act_t *from = a->proj + (size_t)(s->first_row + i) * GLM_PROJ_STRIDE;
        act_t *to = (act_t *)(void *)glm_state_ring(a->conv, s, GLM_RING, s->n_context + i,
                                                    sizeof(act_t) * GLM_KDA_WIDTH);
        for (int part = 0; part < 3; part++) {
            size_t at = ((size_t)part * GLM_H + (size_t)h) * GLM_D;
            __builtin_memcpy(to + at, from + at, GLM_D * sizeof(act_t));
        }
    }
}

/* The state before position 0 is zero whatever the slot held. */
GLM_INLINE void glm_kda_start(const struct glm_kda *a, const struct glm_round_stream *s, int h)
{
    if (s->n_context == 0)
        __builtin_memset(glm_kda_state(a->s, s, s->version, h), 0, sizeof(float) * GLM_D * GLM_D);
}

/* Rows that belong to no stream give zeros. */
static inline void glm_kda_padding(const struct glm_launch *launch, act_t *out)
{
    int64_t first, last;
    glm_part(launch, launch->round->n_rows, &first, &last);
    for (int64_t r = first; r < last; r++)
        if (launch->round->rows[r].stream < 0)
            __builtin_memset(out + (size_t)r * GLM_H * GLM_D, 0, sizeof(act_t) * GLM_H * GLM_D);
}

#endif
#endif
