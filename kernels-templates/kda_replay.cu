/* SPDX-License-Identifier: Apache-2.0 */
/* Commit: when a stream keeps fewer rows than its round computed, runs the kept ones again from the
 * committed state into the other version, with the arithmetic of kda_decode. All rows kept: the
 * other version is right already. None kept: the committed version stays. */
#include "kda.cuh"

GLM_KERNEL(launch)
{
    const int32_t head = glm_block_x(), stream = glm_block_y(), t = glm_thread();
    if (stream >= launch.round->n_streams)
        return;
    const struct glm_round_stream *s = &launch.round->streams[stream];
    if (s->n_commit <= 0 || s->n_commit >= s->n_rows)
        return;
    GLM_SHARED struct glm_kda_keys keys;
    float column[GLM_D];
    glm_kda_load(column, glm_kda_state(launch.args[0], s, s->version, head));
    for (int32_t i = 0; i < s->n_commit; i++) {
        const float *row = (const float *)launch.args[1] +
                           ((size_t)(s->first_row + i) * GLM_H + head) * GLM_KDA_REPLAY;
        glm_barrier();
        keys.k[t] = row[t];
        keys.decay[t] = row[2 * GLM_D + t];
        keys.ka[t] = row[t] * row[2 * GLM_D + t];
        keys.qa[t] = 0.0f;
        glm_barrier();
        glm_kda_step(column, &keys, row[GLM_D + t], row[3 * GLM_D], 0.0f);
    }
    glm_kda_store(column, glm_kda_state(launch.args[0], s, s->version ^ 1, head));
}
