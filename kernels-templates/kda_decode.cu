/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent gated delta rule: the rows of a stream in order, from its committed state (version v)
 * to version v^1, which holds the state after the last row (docs/model.md 3). What kda_replay needs to
 * stop after fewer rows is kept when REPLAY is 1. A block has a head of a stream; the state is read
 * once and written once, however many rows there are between (kda.cuh). */
#include "kda.cuh"

#define WIDTH    (3 * GLM_H * GLM_D) /* of a projected row: q, k, v of all heads */
#define NORM_EPS 1e-6f               /* under the root of the q and k norms */

static_assert(GLM_RING >= GLM_VERIFY + GLM_TAPS - 1,
              "the ring must keep the rows before a round while the round's rows are written");

struct kda {
    const act_t *proj, *b, *f, *g;
    const uint16_t *conv_w;
    const float *a_log, *dt_bias;
    const uint16_t *o_norm;
    void *conv, *s;
    float *replay;
    act_t *out;
    const struct glm_round_stream *stream;
    int32_t head;
};

/* What a thread keeps of its channel of q, k and v. */
struct channel {
    float taps[3][GLM_TAPS];
    float before[3][GLM_TAPS]; /* inputs of the rows before; the last one is the row itself */
    float rate, dt;            /* exp(A_log), bias of the decay's input */
};

/* Where the channel's part of q, k or v lies in a projected row. */
GLM_INLINE size_t channel_at(const struct kda *a, int part)
{
    return (size_t)((part * GLM_H + a->head) * GLM_D + glm_thread());
}

GLM_INLINE act_t *ring_row(const struct kda *a, int32_t position)
{
    return (act_t *)glm_state_ring(a->conv, a->stream, GLM_RING, position, sizeof(act_t) * WIDTH);
}

/* Weights, and the inputs of the rows before the round from the ring. */
GLM_INLINE void take_channel(const struct kda *a, struct channel *c)
{
    GLM_UNROLL
    for (int part = 0; part < 3; part++) {
        GLM_UNROLL
        for (int j = 0; j < GLM_TAPS; j++) {
            const int32_t position = a->stream->n_context + j - GLM_TAPS;
            c->taps[part][j] = glm_bf16_f32(a->conv_w[channel_at(a, part) * GLM_TAPS + j]);
            c->before[part][j] =
                position >= 0 ? glm_act_f32(ring_row(a, position)[channel_at(a, part)]) : 0.0f;
        }
    }
    c->rate = glm_exp(a->a_log[a->head]);
    c->dt = a->dt_bias[a->head * GLM_D + glm_thread()];
}

/* The next row's q, k or v of the channel: taps in order, none before the sequence; then SiLU. */
GLM_INLINE float convolve(const struct kda *a, struct channel *c, int part, int32_t i)
{
    const act_t *row = a->proj + (size_t)(a->stream->first_row + i) * GLM_PROJ_STRIDE;
    float *x = c->before[part], z = 0.0f;
    GLM_UNROLL
    for (int j = 0; j + 1 < GLM_TAPS; j++)
        x[j] = x[j + 1];
    x[GLM_TAPS - 1] = glm_act_f32(row[channel_at(a, part)]);
    GLM_UNROLL
    for (int j = 0; j < GLM_TAPS; j++)
        if (a->stream->n_context + i + j - (GLM_TAPS - 1) >= 0)
            z = glm_fma1(c->taps[part][j], x[j], z);
    return glm_round_act(glm_silu(z));
}

/* Σ x[c] y[c] over the head in 16 lanes, then as glm_sum16, in every lane of the warp. */
GLM_INLINE float lane_dot(const float *x, const float *y)
{
    float sum = 0.0f;
    for (int c = glm_lane() % 16; c < GLM_D; c += 16)
        sum = glm_fma1(x[c], y[c], sum);
    return glm_sum16(sum);
}

/* Shared by the block: a row's keys, and what its warps find for each other. */
struct row {
    struct glm_kda_keys keys;
    float q[GLM_D], o[GLM_D];
    float q_scale, k_scale, qk, o_scale;
};

/* Fills the row's keys; gives the thread's value and the head's β. */
GLM_INLINE float start_row(const struct kda *a, struct channel *c, int32_t i, struct row *row,
                           float *beta)
{
    const int t = glm_thread();
    const size_t r = (size_t)(a->stream->first_row + i);
    const float q = convolve(a, c, 0, i), k = convolve(a, c, 1, i), v = convolve(a, c, 2, i);
    const float f = glm_act_f32(a->f[r * GLM_F_STRIDE + a->head * GLM_D + t]);
    const float decay = glm_exp(GLM_LOWER * glm_sigmoid(c->rate * (f + c->dt)));
    *beta = glm_round_act(glm_sigmoid(glm_act_f32(a->b[r * GLM_B_STRIDE + a->head])));
    row->q[t] = q;
    row->keys.k[t] = k;
    row->keys.decay[t] = decay;
    glm_barrier();
    if (glm_warp() == 0) {
        const float qq = lane_dot(row->q, row->q), kk = lane_dot(row->keys.k, row->keys.k);
        if (t == 0) {
            row->q_scale = glm_inverse_root(qq + NORM_EPS) * glm_inverse_root((float)GLM_D);
            row->k_scale = glm_inverse_root(kk + NORM_EPS);
        }
    }
    glm_barrier();
    row->q[t] = q * row->q_scale;
    row->keys.k[t] = k * row->k_scale;
    row->keys.qa[t] = row->q[t] * decay;
    row->keys.ka[t] = row->keys.k[t] * decay;
    glm_barrier();
    if (glm_warp() == 0) {
        const float qk = lane_dot(row->q, row->keys.k);
        if (t == 0)
            row->qk = qk;
    }
    glm_barrier();
#if GLM_REPLAY
    float *to = a->replay + (r * GLM_H + a->head) * GLM_KDA_REPLAY;
    to[t] = row->keys.k[t];
    to[GLM_D + t] = v;
    to[2 * GLM_D + t] = decay;
    if (t == 0)
        to[3 * GLM_D] = *beta;
#endif
    return v;
}

/* out = w · o · (mean o² + eps)^(-1/2) · σ(gate), one rounding at the end; o is rounded before. */
GLM_INLINE void give_row(const struct kda *a, int32_t i, struct row *row, float o)
{
    const int t = glm_thread();
    const size_t r = (size_t)(a->stream->first_row + i);
    o = glm_round_act(o);
    row->o[t] = o;
    glm_barrier();
    if (glm_warp() == 0) {
        const float squares = lane_dot(row->o, row->o);
        if (t == 0)
            row->o_scale = glm_inverse_root(squares * (1.0f / GLM_D) + GLM_NORM_EPS);
    }
    glm_barrier();
    const float gate = glm_act_f32(a->g[r * GLM_F_STRIDE + a->head * GLM_D + t]);
    const float v = glm_bf16_f32(a->o_norm[t]) * (o * row->o_scale);
    a->out[(r * GLM_H + a->head) * GLM_D + t] = glm_f32_act(v * glm_sigmoid(gate));
}

/* Keeps the channel's inputs of the round's last rows, at most RING of them. */
GLM_INLINE void keep_channel(const struct kda *a)
{
    const int32_t n = a->stream->n_rows;
    for (int32_t i = n > GLM_RING ? n - GLM_RING : 0; i < n; i++) {
        const act_t *row = a->proj + (size_t)(a->stream->first_row + i) * GLM_PROJ_STRIDE;
        act_t *to = ring_row(a, a->stream->n_context + i);
        GLM_UNROLL
        for (int part = 0; part < 3; part++)
            to[channel_at(a, part)] = row[channel_at(a, part)];
    }
}

GLM_INLINE void stream_head(const struct kda *a)
{
    GLM_SHARED struct row row;
    const struct glm_round_stream *s = a->stream;
    float *committed = glm_kda_state(a->s, s, s->version, a->head), column[GLM_D];
    struct channel c;
    take_channel(a, &c);
    if (s->n_context == 0) { /* whatever the slot held */
        GLM_UNROLL
        for (int i = 0; i < GLM_D; i++)
            column[i] = 0.0f;
        glm_kda_store(column, committed);
    } else {
        glm_kda_load(column, committed);
    }
    for (int32_t i = 0; i < s->n_rows; i++) {
        float beta, value = start_row(a, &c, i, &row, &beta);
        const float o = glm_kda_step(column, &row.keys, value, beta, row.qk);
        give_row(a, i, &row, o);
    }
    glm_kda_store(column, glm_kda_state(a->s, s, s->version ^ 1, a->head));
    keep_channel(a);
}

GLM_KERNEL(launch)
{
    const int32_t head = glm_block_x(), stream = glm_block_y();
    const struct glm_round *round = launch.round;
    act_t *out = (act_t *)launch.args[11];
    if (stream == 0) /* rows that belong to no stream give zeros */
        for (int32_t r = 0; r < round->n_rows; r++)
            if (round->rows[r].stream < 0)
                out[((size_t)r * GLM_H + head) * GLM_D + glm_thread()] = 0;
    if (stream >= round->n_streams || round->streams[stream].n_rows == 0)
        return;
    const struct kda a = {
        (const act_t *)launch.args[0],
        (const act_t *)launch.args[1],
        (const act_t *)launch.args[2],
        (const act_t *)launch.args[3],
        (const uint16_t *)launch.args[4],
        (const float *)launch.args[5],
        (const float *)launch.args[6],
        (const uint16_t *)launch.args[7],
        launch.args[8],
        launch.args[9],
        (float *)launch.args[10],
        out,
        &round->streams[stream],
        head,
    };
    stream_head(&a);
}
