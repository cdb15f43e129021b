/* SPDX-License-Identifier: Apache-2.0 */
/* Chunked gated delta rule for prompt rows (docs/model.md 3), in place on the committed version:
 * the groups of 16 rows on the absolute grid and the arithmetic of the host body, and so its bits.
 * With a_t the decay of row t, P_t = a_1 ... a_t, S the state that enters a group of n rows and
 * w_t[s] = k_s a_{s+1} ... a_t:
 *   A[t][s] = k_t · w_t[s]    B[t][s] = q_t · w_t[s]                          s <= t
 *   δ_t = β_t (v_t - (k_t P_t) S - Σ_{s<t} A[t][s] δ_s)
 *   o_t = (q_t P_t) S + Σ_{s<=t} B[t][s] δ_s          S := P_n S + Σ_s w_n[s] δ_s
 *
 * A block keeps its slice of the state in shared memory, in fp32, from the round's first group to
 * the last. A warp has the rows ROWS / 4 · warp and on of a group, a lane a column. */
#include "kda.cuh"

#define ROWS 16
#define OWN  (ROWS / 4) /* rows of a warp */

/* q, k and decay; then q P, k P and w_n. */
GLM_SHARED float q[ROWS][GLM_KDA_STRIDE], k[ROWS][GLM_KDA_STRIDE], decay[ROWS][GLM_KDA_STRIDE];
GLM_SHARED float state[GLM_D][GLM_KDA_SLICE], whole[GLM_D]; /* S, P_n */
GLM_SHARED float delta[ROWS][GLM_KDA_SLICE];
GLM_SHARED float pair[2][ROWS][ROWS]; /* A, B */

/* The slice of the stream's state to shared memory; zero before position 0. */
GLM_INLINE void load_state(const struct glm_kda *a, const float *s)
{
    for (int i = glm_warp(); i < GLM_D; i += GLM_WARPS)
        if (glm_lane() < a->n_columns)
            state[i][glm_lane()] = a->stream->n_context == 0 ? 0.0f : s[i * GLM_D];
}

/* q, k, decay of the rows [i, i + n) of the round. */
GLM_INLINE void prepare_rows(const struct glm_kda *a, int i, int n)
{
    glm_kda_channels(a, i, n, q, k, decay);
    glm_barrier();
    for (int t = glm_thread() / 16; t < ROWS; t += GLM_BLOCK / 16) {
        float by_q, by_k;
        glm_kda_norms(q[t], k[t], &by_q, &by_k);
        for (int c = glm_lane() % 16; t < n && c < GLM_D; c += 16) {
            q[t][c] *= by_q;
            k[t][c] *= by_k;
        }
    }
    glm_barrier();
}

/* A by the warp's first 16 lanes, B by the others, a lane one s: even channels, odd channels, then
 * their sum. w runs from w_0[s] on. */
GLM_INLINE void pair_rows(void)
{
    const int s = glm_lane() % ROWS, which = glm_lane() / ROWS, first = glm_warp() * OWN;
    const float(*left)[GLM_KDA_STRIDE] = which == 0 ? k : q;
    float sum[OWN][2];
    GLM_UNROLL
    for (int u = 0; u < OWN; u++)
        sum[u][0] = sum[u][1] = 0.0f;
    GLM_LOOP
    for (int i = 0; i < GLM_D; i += 4) {
        float own[4], w[4] = {0.0f, 0.0f, 0.0f, 0.0f}, x[4], y[4];
        glm_load_f32x4(&k[s][i], own);
        GLM_LOOP
        for (int t = 0; t < first; t++) {
            glm_load_f32x4(&decay[t][i], x);
            GLM_UNROLL
            for (int j = 0; j < 4; j++)
                w[j] = t == s ? own[j] : w[j] * x[j];
        }
        GLM_UNROLL
        for (int u = 0; u < OWN; u++) {
            glm_load_f32x4(&decay[first + u][i], x);
            glm_load_f32x4(&left[first + u][i], y);
            GLM_UNROLL
            for (int j = 0; j < 4; j++) {
                w[j] = first + u == s ? own[j] : w[j] * x[j];
                sum[u][j % 2] = glm_fma1(y[j], w[j], sum[u][j % 2]);
            }
        }
    }
    GLM_UNROLL
    for (int u = 0; u < OWN; u++)
        pair[which][first + u][s] = sum[u][0] + sum[u][1];
    glm_barrier();
}

/* A channel's q_t P_t, k_t P_t and w_n[t] in place of q, k and decay. */
GLM_INLINE void decay_rows(int n)
{
    for (int c = glm_thread(); c < GLM_D; c += GLM_BLOCK) {
        float p = 1.0f, w[ROWS];
        GLM_UNROLL
        for (int t = 0; t < ROWS; t++)
            if (t < n) {
                const float by = decay[t][c], own = k[t][c];
                p *= by;
                GLM_UNROLL
                for (int s = 0; s < t; s++)
                    w[s] *= by;
                w[t] = own;
                k[t][c] = own * p;
                q[t][c] *= p;
            }
        GLM_UNROLL
        for (int t = 0; t < ROWS; t++)
            if (t < n)
                decay[t][c] = w[t];
        whole[c] = p;
    }
    glm_barrier();
}

/* r = (k P) S and o = (q P) S of the warp's rows, the lane's column. */
GLM_INLINE void read_state(float r[OWN], float o[OWN])
{
    const int first = glm_warp() * OWN, lane = glm_lane();
    GLM_UNROLL
    for (int u = 0; u < OWN; u++)
        r[u] = o[u] = 0.0f;
    GLM_LOOP
    for (int i = 0; i < GLM_D; i += 4) {
        float s[4], x[4], y[4];
        GLM_UNROLL
        for (int j = 0; j < 4; j++)
            s[j] = state[i + j][lane];
        GLM_UNROLL
        for (int u = 0; u < OWN; u++) {
            glm_load_f32x4(&k[first + u][i], x);
            glm_load_f32x4(&q[first + u][i], y);
            GLM_UNROLL
            for (int j = 0; j < 4; j++) {
                r[u] = glm_fma1(x[j], s[j], r[u]);
                o[u] = glm_fma1(y[j], s[j], o[u]);
            }
        }
    }
}

/* δ of each row by forward substitution, and the rest of its read-out, which goes to out. A warp
 * waits for the rows of those before it. i: the group's first row in the round. */
GLM_INLINE void solve_rows(const struct glm_kda *a, int i, int n, const float v[OWN],
                           const float beta[OWN], float r[OWN], float o[OWN])
{
    const int lane = glm_lane();
    for (int w = 0; w < GLM_WARPS; w++) {
        if (w == glm_warp()) {
            GLM_UNROLL
            for (int u = 0; u < OWN; u++) {
                const int t = w * OWN + u;
                GLM_LOOP
                for (int s = 0; s < t; s++) {
                    const float d = delta[s][lane];
                    r[u] = glm_fma1(pair[0][t][s], d, r[u]);
                    o[u] = glm_fma1(pair[1][t][s], d, o[u]);
                }
                const float d = beta[u] * (v[u] - r[u]);
                delta[t][lane] = d;
                if (t < n && lane < a->n_columns)
                    glm_kda_out(a, i + t)[a->column + lane] =
                        glm_f32_act(glm_fma1(pair[1][t][t], d, o[u]));
            }
        }
        glm_barrier();
    }
}

/* S := P_n S + Σ_s w_n[s] δ_s; a warp has four key channels in sixteen. */
GLM_INLINE void advance_state(int n)
{
    const int lane = glm_lane();
    float d[ROWS];
    GLM_UNROLL
    for (int t = 0; t < ROWS; t++)
        d[t] = delta[t][lane];
    GLM_LOOP
    for (int i = glm_warp() * 4; i < GLM_D; i += GLM_WARPS * 4) {
        float x[4];
        GLM_UNROLL
        for (int j = 0; j < 4; j++)
            x[j] = whole[i + j] * state[i + j][lane];
        GLM_UNROLL
        for (int t = 0; t < ROWS; t++)
            if (t < n) {
                float w[4];
                glm_load_f32x4(&decay[t][i], w);
                GLM_UNROLL
                for (int j = 0; j < 4; j++)
                    x[j] = glm_fma1(w[j], d[t], x[j]);
            }
        GLM_UNROLL
        for (int j = 0; j < 4; j++)
            state[i + j][lane] = x[j];
    }
    glm_barrier();
}

/* The group of n rows from row i of the round on. */
GLM_INLINE void group(const struct glm_kda *a, int i, int n)
{
    const int first = glm_warp() * OWN;
    float v[OWN], beta[OWN], r[OWN], o[OWN];
    prepare_rows(a, i, n);
    pair_rows();
    decay_rows(n);
    GLM_UNROLL
    for (int u = 0; u < OWN; u++) {
        const bool live = first + u < n && glm_lane() < a->n_columns;
        v[u] = live ? glm_kda_value(a, i + first + u, a->column + glm_lane()) : 0.0f;
        beta[u] = first + u < n ? glm_kda_beta(a, i + first + u) : 0.0f;
    }
    read_state(r, o);
    solve_rows(a, i, n, v, beta, r, o);
    advance_state(n);
}

GLM_KERNEL(launch)
{
    struct glm_kda a = {};
    glm_kda_take(launch.args, &a);
    a.out = (act_t *)launch.args[10];
    const bool here = glm_kda_place(launch.round, &a);
    glm_kda_padding(launch.round, &a);
    if (!here)
        return;
    const struct glm_round_stream *stream = a.stream;
    /* a group begins in every 16 rows, and one more at either end of a stream */
    const int tickets = stream->first_row / ROWS + 2 * glm_block_z();
    float *s = glm_kda_state(a.s, stream, stream->version, a.h) + a.column + glm_lane();
    load_state(&a, s);
    for (int i = 0, n, g = 0; i < stream->n_rows; i += n, g++) {
        n = ROWS - (stream->n_context + i) % ROWS;
        n = n < stream->n_rows - i ? n : stream->n_rows - i;
        group(&a, i, n);
        if (glm_last_block(&launch.tickets[(size_t)(tickets + g) * GLM_H + a.h], GLM_KDA_SLICES)) {
            glm_kda_finish(&a, i, n);
            if (i + n == stream->n_rows)
                glm_kda_keep(&a);
        }
    }
    for (int i = glm_warp(); i < GLM_D; i += GLM_WARPS)
        if (glm_lane() < a.n_columns)
            s[i * GLM_D] = state[i][glm_lane()];
}
