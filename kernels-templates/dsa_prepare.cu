/* SPDX-License-Identifier: Apache-2.0 */
/* What a round's rows leave in the sparse attention's caches: the normed latent, the indexer's
 * normed key and gate in a ring, and the pooled key of each pool that a row completes; also the
 * normed query input of the next products (docs/model.md 4). Bits are the host body's.
 *
 * A row is one block's. The block whose row completes a pool norms the pool's other keys of this
 * round once more, so that no block waits for another; the ring, whose rows some may still read, is
 * written by the block that comes last. */
#include "kv.cuh"
#include "sums.cuh"

static_assert(GLM_RING >= GLM_POOL - 1, "the ring must keep the members of an unfinished pool");

#define WIDEST (GLM_Q > GLM_C ? GLM_Q : GLM_C)

struct prepare {
    const act_t *qkv, *ik, *ig;
    const uint16_t *q_norm, *kv_norm, *k_norm, *k_bias, *ape;
    void *latent, *keys, *pooled;
    act_t *ikn, *qr;
    const struct glm_round *round;
};

/* Copies a row of n elements to shared memory; all see it after. */
GLM_INLINE void take_row(act_t *to, const act_t *from, int n)
{
    glm_barrier();
    for (int i = glm_thread(); i < n; i += GLM_BLOCK)
        to[i] = from[i];
    glm_barrier();
}

/* In every thread the sum of (x - less)^power over a key in 16 lanes, then as glm_sum16. */
GLM_INLINE float key_sum(const act_t *x, float less, bool squared)
{
    GLM_SHARED float total;
    if (glm_warp() == 0) {
        float sum = 0.0f;
        for (int i = glm_lane() % 16; i < GLM_D; i += 16) {
            const float v = glm_act_f32(x[i]);
            sum = squared ? glm_fma1(v - less, v - less, sum) : sum + v;
        }
        sum = glm_sum16(sum);
        if (glm_lane() == 0)
            total = sum;
    }
    glm_barrier();
    const float sum = total;
    glm_barrier();
    return sum;
}

/* Mean-subtracting norm with weight and bias of the key of row r, into y for all to see. */
GLM_INLINE void layer_norm(const struct prepare *a, int32_t r, act_t *y)
{
    take_row(y, a->ik + (size_t)r * GLM_IK_STRIDE, GLM_D);
    const float mean = key_sum(y, 0.0f, false) * (1.0f / GLM_D);
    const float scale = glm_inverse_root(key_sum(y, mean, true) * (1.0f / GLM_D) + GLM_K_EPS);
    for (int i = glm_thread(); i < GLM_D; i += GLM_BLOCK) {
        const float d = (glm_act_f32(y[i]) - mean) * scale;
        y[i] = glm_f32_act(glm_fma1(d, glm_bf16_f32(a->k_norm[i]), glm_bf16_f32(a->k_bias[i])));
    }
    glm_barrier();
}

GLM_INLINE act_t *ring_row(const struct prepare *a, const struct glm_round_stream *s,
                           int32_t position)
{
    return (act_t *)glm_state_ring(a->keys, s, GLM_RING, position, 2 * GLM_D * sizeof(act_t));
}

/* The key of the pool that ends at `position`: per channel a softmax over the members' gates + ape,
 * members in order. key[POOL - 1] is there. */
GLM_INLINE void pool_key(const struct prepare *a, const struct glm_round_stream *s,
                         int32_t position, act_t key[GLM_POOL][GLM_D])
{
    GLM_SHARED act_t pooled[GLM_D];
    const act_t *gate[GLM_POOL];
    GLM_UNROLL
    for (int j = 0; j < GLM_POOL; j++) {
        const int32_t at = position - GLM_POOL + 1 + j, r = s->first_row + at - s->n_context;
        const act_t *ring = ring_row(a, s, at);
        gate[j] = at >= s->n_context ? a->ig + (size_t)r * GLM_IG_STRIDE : ring + GLM_D;
        if (j == GLM_POOL - 1)
            break;
        if (at >= s->n_context)
            layer_norm(a, r, key[j]);
        else
            take_row(key[j], ring, GLM_D);
    }
    for (int c = glm_thread(); c < GLM_D; c += GLM_BLOCK) {
        float e[GLM_POOL], most = 0.0f, sum = 0.0f, total = 0.0f;
        GLM_UNROLL
        for (int j = 0; j < GLM_POOL; j++) {
            e[j] = glm_act_f32(gate[j][c]) + glm_bf16_f32(a->ape[j * GLM_D + c]);
            most = j == 0 ? e[0] : glm_max1(most, e[j]);
        }
        GLM_UNROLL
        for (int j = 0; j < GLM_POOL; j++) {
            e[j] = glm_exp(e[j] - most);
            sum += e[j];
        }
        GLM_UNROLL
        for (int j = 0; j < GLM_POOL; j++)
            total += glm_round_act(glm_round_act(e[j] / sum) * glm_act_f32(key[j][c]));
        pooled[c] = glm_f32_act(total);
    }
    glm_barrier();
    glm_kv_store(
        glm_state_pool(a->pooled, a->round, s, position, GLM_POOL, GLM_KV_ROW_BYTES(GLM_D)), pooled,
        GLM_D);
}

GLM_INLINE void work_row(const struct prepare *a, int32_t r)
{
    GLM_SHARED act_t raw[WIDEST], latent[GLM_C], key[GLM_POOL][GLM_D];
    const struct glm_row *row = &a->round->rows[r];
    const act_t *qkv = a->qkv + (size_t)r * GLM_QKV_STRIDE;
    act_t *qr = a->qr + (size_t)r * GLM_Q, *ikn = a->ikn + (size_t)r * GLM_D;
    if (row->stream < 0) {
        for (int i = glm_thread(); i < GLM_Q; i += GLM_BLOCK)
            qr[i] = 0;
        for (int i = glm_thread(); i < GLM_D; i += GLM_BLOCK)
            ikn[i] = 0;
        return;
    }
    const struct glm_round_stream *s = &a->round->streams[row->stream];
    take_row(raw, qkv, GLM_Q);
    glm_rms_norm(qr, raw, a->q_norm, GLM_Q, GLM_NORM_EPS);
    take_row(raw, qkv + GLM_Q, GLM_C);
    glm_rms_norm(latent, raw, a->kv_norm, GLM_C, GLM_NORM_EPS);
    glm_barrier();
    glm_kv_store(glm_state_token(a->latent, a->round, s, row->position, GLM_KV_ROW_BYTES(GLM_C)),
                 latent, GLM_C);
    layer_norm(a, r, key[GLM_POOL - 1]);
    for (int i = glm_thread(); i < GLM_D; i += GLM_BLOCK)
        ikn[i] = key[GLM_POOL - 1][i];
    if (row->position % GLM_POOL == GLM_POOL - 1)
        pool_key(a, s, row->position, key);
}

/* Keeps each stream's last RING rows. */
GLM_INLINE void keep_rows(const struct prepare *a)
{
    for (int32_t r = 0; r < a->round->n_rows; r++) {
        const struct glm_row *row = &a->round->rows[r];
        if (row->stream < 0)
            continue;
        const struct glm_round_stream *s = &a->round->streams[row->stream];
        if (row->position < s->n_context + s->n_rows - GLM_RING)
            continue;
        act_t *to = ring_row(a, s, row->position);
        for (int i = glm_thread(); i < GLM_D; i += GLM_BLOCK) {
            to[i] = a->ikn[(size_t)r * GLM_D + i];
            to[GLM_D + i] = a->ig[(size_t)r * GLM_IG_STRIDE + i];
        }
    }
}

GLM_KERNEL(launch)
{
    const int32_t r = glm_block_x(), n_rows = launch.round->n_rows;
    if (r >= n_rows)
        return;
    const struct prepare a = {
        (const act_t *)launch.args[0],
        (const act_t *)launch.args[1],
        (const act_t *)launch.args[2],
        (const uint16_t *)launch.args[3],
        (const uint16_t *)launch.args[4],
        (const uint16_t *)launch.args[5],
        (const uint16_t *)launch.args[6],
        (const uint16_t *)launch.args[7],
        launch.args[8],
        launch.args[9],
        launch.args[10],
        (act_t *)launch.args[11],
        (act_t *)launch.args[12],
        launch.round,
    };
    work_row(&a, r);
    if (glm_last_block(launch.tickets, (uint32_t)n_rows))
        keep_rows(&a);
}
