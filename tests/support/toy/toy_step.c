/* SPDX-License-Identifier: Apache-2.0 */
/* One step of the toy model. A row's value depends on all that came before it in its stream, read
 * back through every kind of state: the version, the ring, the pool's last full row and the token
 * row a while ago. Streams are shared out over threads; the barrier is used once for its own sake.
 */
#include "toy.h"

static void run_stream(const struct glm_launch *l, int32_t stream, void *const *args)
{
    const struct glm_round *r = l->round;
    const struct glm_round_stream *s = &r->streams[stream];
    uint64_t *rows = args[0], *pairs = args[1], *acc = args[2], *ring = args[3];
    const float *weight = args[4];
    float *logits = args[5];
    uint64_t *sums = args[6], *replay = args[7];
    int32_t to = GLM_PREFILL ? s->version : s->version ^ 1;
    uint64_t a = acc[s->slot * 2 + s->version];
    for (int32_t i = 0; i < s->n_rows; i++) {
        const struct glm_row *row = &r->rows[s->first_row + i];
        int32_t p = row->position;
        a = toy_mix(a, (uint64_t)row->token + 1);
        if (p >= TOY_KEEP)
            a = toy_mix(a, ring[s->slot * GLM_RING + (p - TOY_KEEP) % GLM_RING]);
        if (p >= TOY_POOL)
            a = toy_mix(a, pairs[toy_pool_row(r, s, (p / TOY_POOL - 1) * TOY_POOL) / TOY_POOL]);
        if (p >= 100)
            a = toy_mix(a, rows[toy_pool_row(r, s, p - 100)]);
        ring[s->slot * GLM_RING + p % GLM_RING] = a + 1;
        rows[toy_pool_row(r, s, p)] = a + 2;
        if (p % TOY_POOL == TOY_POOL - 1)
            pairs[toy_pool_row(r, s, p) / TOY_POOL] = a + 3;
        sums[s->first_row + i] = a;
        if (replay)
            replay[s->first_row + i] = a;
        for (int32_t v = 0; row->out >= 0 && v < GLM_V; v++)
            logits[row->out * GLM_V + v] =
                weight[v] * (float)(toy_mix(a, (uint64_t)(GLM_FIRST + v)) >> 44);
    }
    acc[s->slot * 2 + to] = a;
}

void glm_kernel(const struct glm_launch *launch, void *const *args)
{
    uint64_t *seen = launch->scratch;
    seen[launch->thread * 8] = launch->thread;
    launch->barrier(launch->barrier_state);
    for (uint32_t t = 0; t < launch->n_threads; t++)
        if (seen[t * 8] != t)
            return; /* the barrier does not hold: nothing is computed and the test fails */
    for (int32_t s = (int32_t)launch->thread; s < launch->round->n_streams;
         s += (int32_t)launch->n_threads)
        run_stream(launch, s, args);
}
