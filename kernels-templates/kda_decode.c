/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent gated delta rule: the rows of a stream in order, from its committed state (version v)
 * to version v^1, which holds the state after the last row (docs/model.md 3). What kda_replay needs
 * to stop after fewer rows is kept when REPLAY is 1. Work is divided by (head, stream): nothing is
 * summed across threads. */
#include "kda.h"

const uint32_t glm_kernel_abi = GLM_HOST_ABI_VERSION;

_Static_assert(GLM_RING >= GLM_VERIFY + GLM_TAPS - 1,
               "the ring must keep the rows before a round while the round's rows are written");

#if GLM_REPLAY
GLM_INLINE void keep_for_replay(const struct glm_kda *a, size_t r, int h,
                                const struct glm_kda_row *row)
{
    float *to = a->replay + (r * GLM_H + (size_t)h) * GLM_KDA_REPLAY;
    __builtin_memcpy(to, row->k, sizeof row->k);
    __builtin_memcpy(to + GLM_D, row->v, sizeof row->v);
    __builtin_memcpy(to + 2 * GLM_D, row->decay, sizeof row->decay);
    to[3 * GLM_D] = row->beta;
}
#endif

static void stream_head(const struct glm_kda *a, const struct glm_kda_head *w,
                        const struct glm_round_stream *s)
{
    glm_kda_start(a, s, w->h);
    const float *in = glm_kda_state(a->s, s, s->version, w->h);
    float *out = glm_kda_state(a->s, s, s->version ^ 1, w->h);
    for (int i = 0; i < s->n_rows; i++) {
        struct glm_kda_row row;
        float o[GLM_D];
        glm_kda_row(a, w, s, i, &row);
        glm_kda_step(in, out, row.k, row.q, row.v, row.decay, row.beta, o, 1);
        glm_kda_output(a, s, i, w->h, o);
#if GLM_REPLAY
        keep_for_replay(a, (size_t)(s->first_row + i), w->h, &row);
#endif
        in = out;
    }
    glm_kda_keep(a, s, w->h);
}

void glm_kernel(const struct glm_launch *launch, void *const *args)
{
    const struct glm_kda a = {args[0], args[1], args[2], args[3], args[4],  args[5],
                              args[6], args[7], args[8], args[9], args[10], args[11]};
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
