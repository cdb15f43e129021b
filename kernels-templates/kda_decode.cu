/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent gated delta rule: the rows of a stream in order, from its committed state (version v)
 * to version v^1, which holds the state after the last row (docs/model.md 3). What kda_replay needs
 * to stop after fewer rows is kept when REPLAY is 1. The order of sums is the host body's, and so
 * are the bits.
 *
 * One warp of a block, its slice's number, holds the state's columns in registers for the whole
 * window, so that it is read and written once however many rows there are; all warps make BATCH
 * rows ready for it in shared memory. */
#include "kda.cuh"

#define BATCH 8

/* Of a row: k and decay, both times k and q, and what is one number. */
GLM_SHARED float k[BATCH][GLM_KDA_STRIDE], decay[BATCH][GLM_KDA_STRIDE];
GLM_SHARED float ka[BATCH][GLM_KDA_STRIDE], qa[BATCH][GLM_KDA_STRIDE];
GLM_SHARED float value[BATCH][GLM_KDA_SLICE], beta[BATCH], qk[BATCH];

static_assert(GLM_BLOCK / 16 == BATCH, "sixteen lanes norm a row");

#if GLM_REPLAY
/* The block's share: its channels, its columns. */
GLM_INLINE void keep_for_replay(const struct glm_kda *a, int i, int n)
{
    const size_t row = (size_t)(a->stream->first_row + i);
    for (int t = glm_warp(); t < n; t += GLM_WARPS) {
        const int lane = glm_lane(), c = a->column + lane;
        float *to = a->replay + ((row + (size_t)t) * GLM_H + (size_t)a->h) * GLM_KDA_REPLAY;
        if (lane < a->n_columns) {
            to[c] = k[t][c];
            to[GLM_D + c] = value[t][lane];
            to[2 * GLM_D + c] = decay[t][c];
        }
        if (c == 0)
            to[3 * GLM_D] = beta[t];
    }
}
#endif

/* Rows [i, i + n), n at most BATCH, to shared memory. */
GLM_INLINE void prepare_rows(const struct glm_kda *a, int i, int n)
{
    const int t = glm_thread() / 16;
    float by_q, by_k, dot = 0.0f;
    glm_kda_channels(a, i, n, qa, k, decay);
    for (int u = glm_warp(); u < n; u += GLM_WARPS)
        if (glm_lane() < a->n_columns)
            value[u][glm_lane()] = glm_kda_value(a, i + u, a->column + glm_lane());
    if (glm_thread() < n)
        beta[glm_thread()] = glm_kda_beta(a, i + glm_thread());
    glm_barrier();
    glm_kda_norms(qa[t], k[t], &by_q, &by_k);
    for (int c = glm_lane() % 16; t < n && c < GLM_D; c += 16) {
        const float q1 = qa[t][c] * by_q, k1 = k[t][c] * by_k;
        dot = glm_fma1(q1, k1, dot);
        k[t][c] = k1;
        ka[t][c] = k1 * decay[t][c];
        qa[t][c] = q1 * decay[t][c];
    }
    dot = glm_sum16(dot);
    if (t < n && glm_lane() % 16 == 0)
        qk[t] = dot;
    glm_barrier();
}

GLM_INLINE void load_column(const struct glm_kda *a, float s[GLM_D])
{
    float *from = glm_kda_state(a->s, a->stream, a->stream->version, a->h) + a->column + glm_lane();
    const bool before = a->stream->n_context == 0; /* zero whatever the slot holds */
    GLM_UNROLL
    for (int i = 0; i < GLM_D; i++) {
        if (before)
            from[i * GLM_D] = 0.0f;
        s[i] = before ? 0.0f : from[i * GLM_D];
    }
}

GLM_INLINE void window(const struct glm_kda *a)
{
    const int lane = glm_lane(), n_rows = a->stream->n_rows;
    const bool holds = glm_warp() == glm_block_x() && lane < a->n_columns;
    float s[GLM_D];
    if (holds)
        load_column(a, s);
    for (int i = 0; i < n_rows; i += BATCH) {
        const int n = n_rows - i < BATCH ? n_rows - i : BATCH;
        prepare_rows(a, i, n);
#if GLM_REPLAY
        keep_for_replay(a, i, n);
#endif
        GLM_LOOP
        for (int t = 0; holds && t < n; t++)
            glm_kda_out(a, i + t)[a->column + lane] = glm_f32_act(glm_kda_step(
                s, k[t], decay[t], ka[t], qa[t], qk[t], value[t][lane], beta[t], true));
        glm_barrier();
    }
    float *to = glm_kda_state(a->s, a->stream, a->stream->version ^ 1, a->h) + a->column + lane;
    GLM_UNROLL
    for (int i = 0; i < GLM_D; i++)
        if (holds)
            to[i * GLM_D] = s[i];
}

GLM_KERNEL(launch)
{
    struct glm_kda a = {};
    glm_kda_take(launch.args, &a);
    a.replay = (float *)launch.args[10];
    a.out = (act_t *)launch.args[11];
    const bool here = glm_kda_place(launch.round, &a);
    glm_kda_padding(launch.round, &a);
    if (!here)
        return;
    window(&a);
    if (glm_last_block(&launch.tickets[glm_block_z() * GLM_H + a.h], GLM_KDA_SLICES)) {
        glm_kda_finish(&a, 0, a.stream->n_rows);
        glm_kda_keep(&a);
    }
}
