/* SPDX-License-Identifier: Apache-2.0 */
#include "toy.h"

void glm_kernel(const struct glm_launch *launch, void *const *args)
{
    uint64_t *acc = args[0];
    const uint64_t *replay = args[1];
    const struct glm_round *r = launch->round;
    for (int32_t i = 0; launch->thread == 0 && i < r->n_streams; i++) {
        const struct glm_round_stream *s = &r->streams[i];
        acc[s->slot * 2 + (s->version ^ 1)] = replay[s->first_row + s->n_commit - 1];
    }
}
