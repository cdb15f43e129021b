/* SPDX-License-Identifier: Apache-2.0 */
/* Chunked gated delta rule for prompt rows (docs/model.md 3), in place on the committed version. A
 * head is walked in groups of 16 rows that begin at multiples of 16, so that a prompt cut anywhere
 * on the grid of 64 goes through the same groups. In a group, with a_t the decay of row t, P_t =
 * a_1 ... a_t and S the state that enters: w_t[s]  = k_s a_{s+1} ... a_t                 s <= t,
 * per key channel A[t][s] = k_t · w_t[s]    B[t][s] = q_t · w_t[s] δ_t     = β_t (v_t - (k_t P_t) S
 * - Σ_{s<t} A[t][s] δ_s) o_t     = (q_t P_t) S + Σ_{s<=t} B[t][s] δ_s S       := P_n S + Σ_s w_n[s]
 * δ_s Decays are multiplied, never divided, so nothing leaves the range of a float: no factor
 * exceeds 1 and none is smaller than e^(16 LOWER). A row uses rows before it alone: one in a group
 * that ends early has the bits that it has in a full one. */
#include "kda.h"

const uint32_t glm_kernel_abi = GLM_HOST_ABI_VERSION;

#define ROWS 16
#define VECS GLM_KDA_VECS
#define PAIR (GLM_NATIVE == 1 && GLM_D % 32 == 0 ? 2 : 1) /* vectors of v in a tile of 4 rows */

struct group {
    struct glm_kda_row row[ROWS];
    float kp[ROWS][GLM_D], qp[ROWS][GLM_D]; /* k_t P_t, q_t P_t */
    float p[GLM_D];                         /* P_n */
    float w[GLM_D][ROWS];
    float a[ROWS][ROWS], b[ROWS][ROWS];
    float r[ROWS][GLM_D]; /* (k_t P_t) S, then δ_t */
    float o[ROWS][GLM_D];
};

/* A and B, all s of a row t in one vector: lanes above t are zero. */
static void pair_rows(struct group *g, int n)
{
    static const int32_t lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (int i = 0; i < GLM_D; i++)
        glm_store(g->w[i], glm_zero());
    for (int t = 0; t < n; t++) {
        const struct glm_kda_row *row = &g->row[t];
        glm_i32x16 here = glm_eq_i32(glm_load_i32(lanes), glm_splat_i32(t));
        glm_f32x16 a[2] = {glm_zero(), glm_zero()}, b[2] = {glm_zero(), glm_zero()};
        for (int i = 0; i < GLM_D; i += 2) {
            GLM_UNROLL
            for (int j = 0; j < 2; j++) {
                glm_f32x16 k = glm_splat(row->k[i + j]);
                glm_f32x16 w = glm_mul(glm_load(g->w[i + j]), glm_splat(row->decay[i + j]));
                w = glm_select(here, k, w);
                glm_store(g->w[i + j], w);
                a[j] = glm_fma(k, w, a[j]);
                b[j] = glm_fma(glm_splat(row->q[i + j]), w, b[j]);
            }
        }
        glm_store(g->a[t], glm_add(a[0], a[1]));
        glm_store(g->b[t], glm_add(b[0], b[1]));
    }
}

/* k_t P_t and q_t P_t, zero for rows that fill the last tile. */
static void decay_rows(struct group *g, int n)
{
    for (int i = 0; i < GLM_D; i += 16) {
        glm_f32x16 p = glm_splat(1.0f);
        for (int t = 0; t < n; t++) {
            p = glm_mul(p, glm_load(g->row[t].decay + i));
            glm_store(g->kp[t] + i, glm_mul(glm_load(g->row[t].k + i), p));
            glm_store(g->qp[t] + i, glm_mul(glm_load(g->row[t].q + i), p));
        }
        glm_store(g->p + i, p);
    }
    for (int t = n; t < (n + 3) / 4 * 4; t++) {
        __builtin_memset(g->kp[t], 0, sizeof g->kp[t]);
        __builtin_memset(g->qp[t], 0, sizeof g->qp[t]);
    }
}

/* Four rows from t on of r = (k P) S and o = (q P) S, PAIR vectors of v from v0 on. */
GLM_INLINE void state_tile(struct group *g, const float *s, int t, int v0)
{
    glm_f32x16 r[4 * PAIR], o[4 * PAIR];
    GLM_UNROLL
    for (int j = 0; j < 4 * PAIR; j++)
        r[j] = o[j] = glm_zero();
    for (int i = 0; i < GLM_D; i++) {
        glm_f32x16 x[PAIR];
        GLM_UNROLL
        for (int j = 0; j < PAIR; j++)
            x[j] = glm_load(s + i * GLM_D + v0 + 16 * j);
        GLM_UNROLL
        for (int u = 0; u < 4; u++) {
            glm_f32x16 k = glm_splat(g->kp[t + u][i]), q = glm_splat(g->qp[t + u][i]);
            GLM_UNROLL
            for (int j = 0; j < PAIR; j++) {
                r[u * PAIR + j] = glm_fma(k, x[j], r[u * PAIR + j]);
                o[u * PAIR + j] = glm_fma(q, x[j], o[u * PAIR + j]);
            }
        }
    }
    GLM_UNROLL
    for (int j = 0; j < 4 * PAIR; j++) {
        glm_store(g->r[t + j / PAIR] + v0 + 16 * (j % PAIR), r[j]);
        glm_store(g->o[t + j / PAIR] + v0 + 16 * (j % PAIR), o[j]);
    }
}

/* δ of each row by forward substitution, and the rest of its read-out. */
static void solve_rows(struct group *g, int n)
{
    for (int v0 = 0; v0 < GLM_D; v0 += 16 * VECS)
        for (int t = 0; t < n; t++) {
            glm_f32x16 r[VECS], o[VECS];
            GLM_UNROLL
            for (int j = 0; j < VECS; j++) {
                r[j] = glm_load(g->r[t] + v0 + 16 * j);
                o[j] = glm_load(g->o[t] + v0 + 16 * j);
            }
            for (int s = 0; s < t; s++) {
                glm_f32x16 a = glm_splat(g->a[t][s]), b = glm_splat(g->b[t][s]);
                GLM_UNROLL
                for (int j = 0; j < VECS; j++) {
                    glm_f32x16 d = glm_load(g->r[s] + v0 + 16 * j);
                    r[j] = glm_fma(a, d, r[j]);
                    o[j] = glm_fma(b, d, o[j]);
                }
            }
            glm_f32x16 beta = glm_splat(g->row[t].beta), b = glm_splat(g->b[t][t]);
            GLM_UNROLL
            for (int j = 0; j < VECS; j++) {
                r[j] = glm_mul(beta, glm_sub(glm_load(g->row[t].v + v0 + 16 * j), r[j]));
                glm_store(g->r[t] + v0 + 16 * j, r[j]);
                glm_store(g->o[t] + v0 + 16 * j, glm_fma(b, r[j], o[j]));
            }
        }
}

/* S := P_n S + Σ_s w[s] δ_s, four key channels at a time. */
static void advance_state(const struct group *g, float *s, int n)
{
    for (int i = 0; i < GLM_D; i += 4)
        for (int v0 = 0; v0 < GLM_D; v0 += 16 * VECS) {
            glm_f32x16 x[4 * VECS];
            GLM_UNROLL
            for (int j = 0; j < 4 * VECS; j++)
                x[j] = glm_mul(glm_splat(g->p[i + j / VECS]),
                               glm_load(s + (i + j / VECS) * GLM_D + v0 + 16 * (j % VECS)));
            for (int t = 0; t < n; t++) {
                glm_f32x16 d[VECS];
                GLM_UNROLL
                for (int j = 0; j < VECS; j++)
                    d[j] = glm_load(g->r[t] + v0 + 16 * j);
                GLM_UNROLL
                for (int j = 0; j < 4 * VECS; j++)
                    x[j] = glm_fma(glm_splat(g->w[i + j / VECS][t]), d[j % VECS], x[j]);
            }
            GLM_UNROLL
            for (int j = 0; j < 4 * VECS; j++)
                glm_store(s + (i + j / VECS) * GLM_D + v0 + 16 * (j % VECS), x[j]);
        }
}

static void stream_head(const struct glm_kda *a, const struct glm_kda_head *w,
                        const struct glm_round_stream *s)
{
    struct group g;
    float *state = glm_kda_state(a->s, s, s->version, w->h);
    glm_kda_start(a, s, w->h);
    for (int first = 0, n; first < s->n_rows; first += n) {
        n = ROWS - (s->n_context + first) % ROWS;
        n = n < s->n_rows - first ? n : s->n_rows - first;
        for (int t = 0; t < n; t++)
            glm_kda_row(a, w, s, first + t, &g.row[t]);
        pair_rows(&g, n);
        decay_rows(&g, n);
        for (int t = 0; t < n; t += 4)
            for (int v0 = 0; v0 < GLM_D; v0 += 16 * PAIR)
                state_tile(&g, state, t, v0);
        solve_rows(&g, n);
        advance_state(&g, state, n);
        for (int t = 0; t < n; t++)
            glm_kda_output(a, s, first + t, w->h, g.o[t]);
    }
    glm_kda_keep(a, s, w->h);
}

void glm_kernel(const struct glm_launch *launch, void *const *args)
{
    const struct glm_kda a = {args[0], args[1], args[2], args[3], args[4], args[5],
                              args[6], args[7], args[8], args[9], NULL,    args[10]};
    const struct glm_round *round = launch->round;
    struct glm_kda_head w = {.h = -1};
    int64_t first, last;
    glm_part(launch, (int64_t)GLM_H * round->n_streams, &first, &last);
    for (int64_t i = first; i < last; i++) {
        const struct glm_round_stream *s = &round->streams[i % round->n_streams];
        if (s->n_rows == 0)
            continue;
        if (w.h != i / round->n_streams)
            glm_kda_head_load(&a, (int)(i / round->n_streams), &w);
        stream_head(&a, &w, s);
    }
    glm_kda_padding(launch, a.out);
}
