/* SPDX-License-Identifier: Apache-2.0 */
/* Commit: when a stream keeps fewer rows than its round computed, runs the kept ones again from the
 * committed state into the other version, with the arithmetic of kda_decode, so that what is left
 * is the state of as many serial rounds. All rows kept: the other version is right already. None
 * kept: the committed version stays. */
#include "kda.h"

const uint32_t glm_kernel_abi = GLM_HOST_ABI_VERSION;

static void stream_head(float *s, const float *replay, const struct glm_round_stream *stream, int h)
{
    const float *in = glm_kda_state(s, stream, stream->version, h);
    float *out = glm_kda_state(s, stream, stream->version ^ 1, h);
    for (int i = 0; i < stream->n_commit; i++) {
        const float *row =
            replay + ((size_t)(stream->first_row + i) * GLM_H + (size_t)h) * GLM_KDA_REPLAY;
        glm_kda_step(in, out, row, NULL, row + GLM_D, row + 2 * GLM_D, row[3 * GLM_D], NULL, 0);
        in = out;
    }
}

void glm_kernel(const struct glm_launch *launch, void *const *args)
{
    float *s = args[0];
    const float *replay = args[1];
    const struct glm_round *round = launch->round;
    int64_t first, last;
    glm_part(launch, (int64_t)GLM_H * round->n_streams, &first, &last);
    for (int64_t i = first; i < last; i++) {
        const struct glm_round_stream *stream = &round->streams[i % round->n_streams];
        if (stream->n_commit > 0 && stream->n_commit < stream->n_rows)
            stream_head(s, replay, stream, (int)(i / round->n_streams));
    }
}
