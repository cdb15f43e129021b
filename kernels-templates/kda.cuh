/* SPDX-License-Identifier: Apache-2.0 */
/* What decode, replay and prefill of the gated delta rule share (docs/model.md 3; kda.h is the
 * host's half, and every sum here has its order). The state is [head][key][value]. Its value
 * columns are independent until the output norm: a block works GLM_KDA_SLICE columns of one head
 * and stream, and the last of a head's blocks finishes the rows. */
#ifndef GLM_KDA_CUH
#define GLM_KDA_CUH

#include "prelude.cuh"

#define GLM_KDA_NORM_EPS 1e-6f               /* under the root of the q and k norms */
#define GLM_KDA_WIDTH    (3 * GLM_H * GLM_D) /* of a projected row: q, k, v of all heads */
#define GLM_KDA_REPLAY   (3 * GLM_D + 1)     /* of a row and head: k, value, decay, β */
#define GLM_KDA_SLICE    32                  /* columns of a block, one a lane */
#define GLM_KDA_SLICES   ((GLM_D + GLM_KDA_SLICE - 1) / GLM_KDA_SLICE)
/* Of a row of channels in shared memory: rows begin four banks apart. */
#define GLM_KDA_STRIDE (GLM_D % 32 == 0 ? GLM_D + 4 : GLM_D)

static_assert(GLM_D % 16 == 0 && GLM_D <= 128, "a column of the state is in registers");
static_assert(GLM_WARPS == 4, "rows and slices are dealt to four warps");

GLM_INLINE void glm_load_f32x4(const float *p, float v[4])
{
    const glm_u32x4 u = glm_load16(p);
    GLM_UNROLL
    for (int i = 0; i < 4; i++)
        v[i] = glm_bits_f32(u.v[i]);
}

/* A head's state, [key][value]. */
GLM_INLINE float *glm_kda_state(float *s, const struct glm_round_stream *stream, int version, int h)
{
    char *row = glm_state_stream(s, stream, 2, version, sizeof(float) * GLM_H * GLM_D * GLM_D);
    return (float *)row + (size_t)h * GLM_D * GLM_D;
}

/* Moves a column of the state by one row. ka, qa: k and q times the decay a. Returns the read-out
 * when read_out, a constant of the caller, is true; the column's bits do not depend on it. */
GLM_INLINE float glm_kda_step(float s[GLM_D], const float *k, const float *a, const float *ka,
                              const float *qa, float qk, float v, float beta, bool read_out)
{
    float r = 0.0f, p = 0.0f;
    GLM_UNROLL
    for (int i = 0; i < GLM_D; i += 4) {
        float x[4], y[4];
        glm_load_f32x4(ka + i, x);
        if (read_out)
            glm_load_f32x4(qa + i, y);
        GLM_UNROLL
        for (int j = 0; j < 4; j++) {
            r = glm_fma1(x[j], s[i + j], r);
            if (read_out)
                p = glm_fma1(y[j], s[i + j], p);
        }
    }
    const float d = beta * (v - r);
    GLM_UNROLL
    for (int i = 0; i < GLM_D; i += 4) {
        float x[4], y[4];
        glm_load_f32x4(k + i, x);
        glm_load_f32x4(a + i, y);
        GLM_UNROLL
        for (int j = 0; j < 4; j++)
            s[i + j] = glm_fma1(x[j], d, y[j] * s[i + j]);
    }
    return glm_fma1(qk, d, p);
}

#if defined(GLM_TAPS)

struct glm_kda {
    const act_t *proj, *b, *f, *g;
    const uint16_t *conv_w;
    const float *a_log, *dt_bias;
    const uint16_t *o_norm;
    act_t *conv;
    float *s, *replay; /* replay: of decode alone */
    act_t *out;
    const struct glm_round_stream *stream;
    int32_t h;
    int32_t column, n_columns; /* of the block, live ones */
};

/* What decode and prefill have at the same place among their arguments. */
GLM_INLINE void glm_kda_take(void *const *args, struct glm_kda *a)
{
    a->proj = (const act_t *)args[0];
    a->b = (const act_t *)args[1];
    a->f = (const act_t *)args[2];
    a->g = (const act_t *)args[3];
    a->conv_w = (const uint16_t *)args[4];
    a->a_log = (const float *)args[5];
    a->dt_bias = (const float *)args[6];
    a->o_norm = (const uint16_t *)args[7];
    a->conv = (act_t *)args[8];
    a->s = (float *)args[9];
}

/* The block's place: slice, head, stream. False when nothing of the round is here. */
GLM_INLINE bool glm_kda_place(const struct glm_round *round, struct glm_kda *a)
{
    a->h = glm_block_y();
    a->column = glm_block_x() * GLM_KDA_SLICE;
    a->n_columns = GLM_D - a->column < GLM_KDA_SLICE ? GLM_D - a->column : GLM_KDA_SLICE;
    if (glm_block_z() >= round->n_streams)
        return false;
    a->stream = &round->streams[glm_block_z()];
    return a->stream->n_rows > 0;
}

/* Rows that belong to no stream give zeros; the blocks of a slice share them. */
GLM_INLINE void glm_kda_padding(const struct glm_round *round, const struct glm_kda *a)
{
    const int shares = round->n_streams > 0 ? round->n_streams : 1;
    if (glm_block_z() >= shares)
        return;
    for (int r = glm_block_z() * GLM_BLOCK + glm_thread(); r < round->n_rows;
         r += shares * GLM_BLOCK)
        if (round->rows[r].stream < 0)
            for (int c = 0; c < a->n_columns; c++)
                a->out[((size_t)r * GLM_H + (size_t)a->h) * GLM_D + a->column + c] = 0;
}

/* ---- A channel's convolution over consecutive rows ---- */

struct glm_kda_taps {
    float w[GLM_TAPS], x[GLM_TAPS]; /* x: the last rows, oldest first */
    size_t at;                      /* the channel in a projected row */
};

/* What the stream's row i of this round projected; before the round from the ring, before the
 * sequence nothing. */
GLM_INLINE float glm_kda_input(const struct glm_kda *a, int i, size_t at)
{
    const struct glm_round_stream *s = a->stream;
    if (i >= 0)
        return glm_act_f32(a->proj[(size_t)(s->first_row + i) * GLM_PROJ_STRIDE + at]);
    if (s->n_context + i < 0)
        return 0.0f;
    const char *row =
        glm_state_ring(a->conv, s, GLM_RING, s->n_context + i, sizeof(act_t) * GLM_KDA_WIDTH);
    return glm_act_f32(((const act_t *)row)[at]);
}

/* Channel c of part 0..2 (q, k, v), so that row i comes next. */
GLM_INLINE void glm_kda_taps_start(const struct glm_kda *a, int part, int c, int i,
                                   struct glm_kda_taps *t)
{
    t->at = ((size_t)part * GLM_H + (size_t)a->h) * GLM_D + (size_t)c;
    GLM_UNROLL
    for (int j = 0; j < GLM_TAPS; j++) {
        t->w[j] = glm_bf16_f32(a->conv_w[t->at * GLM_TAPS + j]);
        t->x[j] = j == 0 ? 0.0f : glm_kda_input(a, i + j - GLM_TAPS, t->at);
    }
}

/* Taps in order, the last one is the row itself; then SiLU. */
GLM_INLINE float glm_kda_taps_next(const struct glm_kda *a, int i, struct glm_kda_taps *t)
{
    float z = 0.0f;
    GLM_UNROLL
    for (int j = 0; j < GLM_TAPS; j++) {
        t->x[j] = j + 1 < GLM_TAPS ? t->x[j + 1] : glm_kda_input(a, i, t->at);
        z = glm_fma1(t->w[j], t->x[j], z);
    }
    return glm_round_act(glm_silu(z));
}

/* ---- Rows of the head, ready for the state ---- */

/* q, k and decay of rows [i, i + n), the first two not yet normed; a thread has a channel. */
GLM_INLINE void glm_kda_channels(const struct glm_kda *a, int i, int n, float (*q)[GLM_KDA_STRIDE],
                                 float (*k)[GLM_KDA_STRIDE], float (*decay)[GLM_KDA_STRIDE])
{
    const float by = glm_exp(a->a_log[a->h]);
    for (int c = glm_thread(); c < GLM_D; c += GLM_BLOCK) {
        const act_t *f =
            a->f + (size_t)(a->stream->first_row + i) * GLM_F_STRIDE + a->h * GLM_D + c;
        const float dt = a->dt_bias[a->h * GLM_D + c];
        struct glm_kda_taps tq, tk;
        glm_kda_taps_start(a, 0, c, i, &tq);
        glm_kda_taps_start(a, 1, c, i, &tk);
        GLM_LOOP
        for (int t = 0; t < n; t++) {
            const float rate = by * (glm_act_f32(f[(size_t)t * GLM_F_STRIDE]) + dt);
            q[t][c] = glm_kda_taps_next(a, i + t, &tq);
            k[t][c] = glm_kda_taps_next(a, i + t, &tk);
            decay[t][c] = glm_exp(GLM_LOWER * glm_sigmoid(rate));
        }
    }
}

/* The factors that norm a row's q and k; 16 lanes work a row, all 32 of a warp call. */
GLM_INLINE void glm_kda_norms(const float *q, const float *k, float *by_q, float *by_k)
{
    float qq = 0.0f, kk = 0.0f;
    GLM_UNROLL
    for (int c = glm_lane() % 16; c < GLM_D; c += 16) {
        qq = glm_fma1(q[c], q[c], qq);
        kk = glm_fma1(k[c], k[c], kk);
    }
    *by_q = glm_inverse_root(glm_sum16(qq) + GLM_KDA_NORM_EPS) * glm_inverse_root((float)GLM_D);
    *by_k = glm_inverse_root(glm_sum16(kk) + GLM_KDA_NORM_EPS);
}

/* Column c of row i's value. */
GLM_INLINE float glm_kda_value(const struct glm_kda *a, int i, int c)
{
    struct glm_kda_taps t;
    glm_kda_taps_start(a, 2, c, i, &t);
    return glm_kda_taps_next(a, i, &t);
}

GLM_INLINE float glm_kda_beta(const struct glm_kda *a, int i)
{
    const size_t r = (size_t)(a->stream->first_row + i);
    return glm_round_act(glm_sigmoid(glm_act_f32(a->b[r * GLM_B_STRIDE + a->h])));
}

/* ---- After the state: the last of a head's blocks ---- */

GLM_INLINE act_t *glm_kda_out(const struct glm_kda *a, int i)
{
    return a->out + ((size_t)(a->stream->first_row + i) * GLM_H + (size_t)a->h) * GLM_D;
}

/* Rows [i, i + n): out = w · o · (mean o² + eps)^(-1/2) · σ(gate), one rounding at the end. The
 * blocks of the head left o, rounded, in out. */
GLM_INLINE void glm_kda_finish(const struct glm_kda *a, int i, int n)
{
    enum { HALVES = GLM_BLOCK / 16 }; /* a row each */
    GLM_SHARED act_t o[HALVES][GLM_D];
    const int half = glm_thread() / 16, lane = glm_thread() % 16;
    for (int t = 0; t < n; t += HALVES) {
        const int here = n - t < HALVES ? n - t : HALVES;
        glm_barrier();
        for (int j = glm_thread(); j < here * (GLM_D / 8); j += GLM_BLOCK)
            glm_store16(
                &o[j / (GLM_D / 8)][j % (GLM_D / 8) * 8],
                glm_load16_fresh(glm_kda_out(a, i + t + j / (GLM_D / 8)) + j % (GLM_D / 8) * 8));
        glm_barrier();
        float squares = 0.0f;
        for (int c = lane; c < GLM_D; c += 16) {
            const float v = glm_act_f32(o[half][c]);
            squares = glm_fma1(v, v, squares);
        }
        const float by =
            glm_inverse_root(glm_sum16(squares) * (1.0f / (float)GLM_D) + GLM_NORM_EPS);
        if (half >= here)
            continue;
        const size_t r = (size_t)(a->stream->first_row + i + t + half);
        const act_t *gate = a->g + r * GLM_F_STRIDE + a->h * GLM_D;
        for (int c = lane; c < GLM_D; c += 16) {
            const float v = glm_bf16_f32(a->o_norm[c]) * (glm_act_f32(o[half][c]) * by);
            glm_kda_out(a, i + t + half)[c] = glm_f32_act(v * glm_sigmoid(glm_act_f32(gate[c])));
        }
    }
}

/* Keeps the head's channels of the round's last rows, at most RING of them, for later
 * convolutions: only when no block reads the ring any more. */
GLM_INLINE void glm_kda_keep(const struct glm_kda *a)
{
    const struct glm_round_stream *s = a->stream;
    const int first = s->n_rows > GLM_RING ? s->n_rows - GLM_RING : 0;
    for (int j = glm_thread(); j < (s->n_rows - first) * 3 * GLM_D; j += GLM_BLOCK) {
        const int i = first + j / (3 * GLM_D), part = j / GLM_D % 3;
        const size_t at = ((size_t)part * GLM_H + (size_t)a->h) * GLM_D + j % GLM_D;
        char *row =
            glm_state_ring(a->conv, s, GLM_RING, s->n_context + i, sizeof(act_t) * GLM_KDA_WIDTH);
        ((act_t *)row)[at] = a->proj[(size_t)(s->first_row + i) * GLM_PROJ_STRIDE + at];
    }
}

#endif
#endif
