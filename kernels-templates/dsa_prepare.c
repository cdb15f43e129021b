/* SPDX-License-Identifier: Apache-2.0 */
/* What a round's rows leave in the sparse attention's caches: the normed latent, the indexer's
 * normed key and gate in a ring, and the pooled key of each pool that a row completes; also the
 * normed query input of the next products (docs/model.md 4).
 *
 * Three phases: norms by row; pools, whose members are rows of this round or, before it, of the
 * ring; the ring. The ring waits for the pools only where a chunk is so long that it would
 * overwrite the members of the pool that the round begins in. */
#include "kv.h"
#include "sums.h"

const uint32_t glm_kernel_abi = GLM_HOST_ABI_VERSION;

_Static_assert(GLM_RING >= GLM_POOL - 1, "the ring must keep the members of an unfinished pool");

#define RING_BYTES (2 * GLM_D * sizeof(act_t))

struct prepare {
    const act_t *qkv, *ik, *ig;
    const uint16_t *q_norm, *kv_norm, *k_norm, *k_bias, *ape;
    char *latent, *keys, *pooled;
    act_t *ikn, *qr;
    const struct glm_round *round;
};

/* Mean-subtracting norm with weight and bias; two passes over the row, as in double precision. */
static void layer_norm(act_t *y, const act_t *x, const uint16_t *w, const uint16_t *bias)
{
    glm_f32x16 sum = glm_zero(), squares = glm_zero();
    for (int i = 0; i < GLM_D; i += 16)
        sum = glm_add(sum, glm_load_act(x + i));
    glm_f32x16 mean = glm_splat(glm_sum16(sum) * (1.0f / GLM_D));
    for (int i = 0; i < GLM_D; i += 16) {
        glm_f32x16 d = glm_sub(glm_load_act(x + i), mean);
        squares = glm_fma(d, d, squares);
    }
    glm_f32x16 scale = glm_splat(glm_inverse_root(glm_sum16(squares) * (1.0f / GLM_D) + GLM_K_EPS));
    for (int i = 0; i < GLM_D; i += 16) {
        glm_f32x16 d = glm_mul(glm_sub(glm_load_act(x + i), mean), scale);
        glm_store_act(y + i, glm_fma(d, glm_load_bf16(w + i), glm_load_bf16(bias + i)));
    }
}

static void norm_row(const struct prepare *a, int64_t r)
{
    const struct glm_row *row = &a->round->rows[r];
    const act_t *qkv = a->qkv + (size_t)r * GLM_QKV_STRIDE;
    act_t *qr = a->qr + (size_t)r * GLM_Q, *ikn = a->ikn + (size_t)r * GLM_D;
    if (row->stream < 0) {
        __builtin_memset(qr, 0, GLM_Q * sizeof *qr);
        __builtin_memset(ikn, 0, GLM_D * sizeof *ikn);
        return;
    }
    act_t latent[GLM_C];
    float values[GLM_C];
    glm_rms_norm(qr, qkv, a->q_norm, GLM_Q, GLM_NORM_EPS);
    glm_rms_norm(latent, qkv + GLM_Q, a->kv_norm, GLM_C, GLM_NORM_EPS);
    for (int i = 0; i < GLM_C; i += 16)
        glm_store(values + i, glm_load_act(latent + i));
    glm_kv_store(glm_state_token(a->latent, a->round, &a->round->streams[row->stream],
                                 row->position, GLM_KV_ROW_BYTES(GLM_C)),
                 values, GLM_C);
    layer_norm(ikn, a->ik + (size_t)r * GLM_IK_STRIDE, a->k_norm, a->k_bias);
}

/* Normed key and gate of a position that is in this round or in the ring. */
GLM_INLINE void member(const struct prepare *a, const struct glm_round_stream *s, int32_t position,
                       const act_t **key, const act_t **gate)
{
    if (position >= s->n_context) {
        size_t r = (size_t)(s->first_row + position - s->n_context);
        *key = a->ikn + r * GLM_D;
        *gate = a->ig + r * GLM_IG_STRIDE;
    } else {
        *key = (const act_t *)(void *)glm_state_ring(a->keys, s, GLM_RING, position, RING_BYTES);
        *gate = *key + GLM_D;
    }
}

/* The key of the pool that ends at `position`: per channel a softmax over the members' gates + ape,
 * members in order. */
static void pool_key(const struct prepare *a, const struct glm_round_stream *s, int32_t position)
{
    const act_t *key[GLM_POOL], *gate[GLM_POOL];
    float values[GLM_D];
    for (int j = 0; j < GLM_POOL; j++)
        member(a, s, position - GLM_POOL + 1 + j, &key[j], &gate[j]);
    for (int c = 0; c < GLM_D; c += 16) {
        glm_f32x16 e[GLM_POOL], most, sum = glm_zero(), pooled = glm_zero();
        for (int j = 0; j < GLM_POOL; j++) {
            e[j] = glm_add(glm_load_act(gate[j] + c), glm_load_bf16(a->ape + j * GLM_D + c));
            most = j == 0 ? e[0] : glm_max(most, e[j]);
        }
        for (int j = 0; j < GLM_POOL; j++) {
            e[j] = glm_exp16(glm_sub(e[j], most));
            sum = glm_add(sum, e[j]);
        }
        for (int j = 0; j < GLM_POOL; j++) {
            glm_f32x16 share = glm_round_act16(glm_div(e[j], sum));
            pooled = glm_add(pooled, glm_round_act16(glm_mul(share, glm_load_act(key[j] + c))));
        }
        glm_store(values + c, glm_round_act16(pooled));
    }
    glm_kv_store(
        glm_state_pool(a->pooled, a->round, s, position, GLM_POOL, GLM_KV_ROW_BYTES(GLM_D)), values,
        GLM_D);
}

/* The ring keeps a stream's last RING rows. */
static void keep_row(const struct prepare *a, int64_t r)
{
    const struct glm_row *row = &a->round->rows[r];
    if (row->stream < 0)
        return;
    const struct glm_round_stream *s = &a->round->streams[row->stream];
    if (row->position < s->n_context + s->n_rows - GLM_RING)
        return;
    char *to = glm_state_ring(a->keys, s, GLM_RING, row->position, RING_BYTES);
    __builtin_memcpy(to, a->ikn + (size_t)r * GLM_D, RING_BYTES / 2);
    __builtin_memcpy(to + RING_BYTES / 2, a->ig + (size_t)r * GLM_IG_STRIDE, RING_BYTES / 2);
}

/* Would writing the ring overwrite a row that a pool of this round still reads? */
static int ring_must_wait(const struct glm_round *round)
{
    for (int32_t i = 0; i < round->n_streams; i++) {
        const struct glm_round_stream *s = &round->streams[i];
        if (s->n_context % GLM_POOL != 0 && s->n_rows > GLM_RING - (GLM_POOL - 1))
            return 1;
    }
    return 0;
}

void glm_kernel(const struct glm_launch *launch, void *const *args)
{
    const struct glm_round *round = launch->round;
    const struct prepare a = {args[0], args[1], args[2], args[3],  args[4],  args[5],  args[6],
                              args[7], args[8], args[9], args[10], args[11], args[12], round};
    int64_t first, last;
    glm_part(launch, round->n_rows, &first, &last);
    for (int64_t r = first; r < last; r++)
        norm_row(&a, r);
    glm_barrier(launch);
    for (int64_t r = first; r < last; r++) {
        const struct glm_row *row = &round->rows[r];
        if (row->stream >= 0 && row->position % GLM_POOL == GLM_POOL - 1)
            pool_key(&a, &round->streams[row->stream], row->position);
    }
    if (ring_must_wait(round))
        glm_barrier(launch);
    for (int64_t r = first; r < last; r++)
        keep_row(&a, r);
}
