/* SPDX-License-Identifier: Apache-2.0 */
/* Commit: when a stream keeps fewer rows than its round computed, runs the kept ones again from the
 * committed state into the other version, with the step of kda_decode, so that what is left is the
 * state of as many serial rounds. All rows kept: the other version is right already. None kept: the
 * committed version stays. */
#include "kda.cuh"

#define BATCH 8

GLM_SHARED float k[BATCH][GLM_KDA_STRIDE], decay[BATCH][GLM_KDA_STRIDE];
GLM_SHARED float ka[BATCH][GLM_KDA_STRIDE], value[BATCH][GLM_KDA_SLICE], beta[BATCH];

/* n rows that kda_decode kept, from `row` on, to shared memory. */
GLM_INLINE void load_rows(const float *row, int column, int n_columns, int n)
{
    const size_t stride = (size_t)GLM_H * GLM_KDA_REPLAY;
    for (int j = glm_thread(); j < n * GLM_D; j += GLM_BLOCK) {
        const int t = j / GLM_D, c = j % GLM_D;
        const float *from = row + (size_t)t * stride;
        k[t][c] = from[c];
        decay[t][c] = from[2 * GLM_D + c];
        ka[t][c] = from[c] * from[2 * GLM_D + c];
    }
    for (int t = glm_warp(); t < n; t += GLM_WARPS)
        if (glm_lane() < n_columns)
            value[t][glm_lane()] = row[(size_t)t * stride + GLM_D + column + glm_lane()];
    if (glm_thread() < n)
        beta[glm_thread()] = row[(size_t)glm_thread() * stride + 3 * GLM_D];
    glm_barrier();
}

GLM_KERNEL(launch)
{
    const int h = glm_block_y(), column = glm_block_x() * GLM_KDA_SLICE, lane = glm_lane();
    const int n_columns = GLM_D - column < GLM_KDA_SLICE ? GLM_D - column : GLM_KDA_SLICE;
    const bool holds = glm_warp() == glm_block_x() && lane < n_columns;
    if (glm_block_z() >= launch.round->n_streams)
        return;
    const struct glm_round_stream *stream = &launch.round->streams[glm_block_z()];
    if (stream->n_commit <= 0 || stream->n_commit >= stream->n_rows)
        return;
    float *base = (float *)launch.args[0];
    const float *from = glm_kda_state(base, stream, stream->version, h) + column + lane;
    float *to = glm_kda_state(base, stream, stream->version ^ 1, h) + column + lane;
    float s[GLM_D];
    GLM_UNROLL
    for (int i = 0; i < GLM_D; i++)
        s[i] = holds ? from[i * GLM_D] : 0.0f;
    for (int i = 0; i < stream->n_commit; i += BATCH) {
        const int n = stream->n_commit - i < BATCH ? stream->n_commit - i : BATCH;
        load_rows((const float *)launch.args[1] +
                      ((size_t)(stream->first_row + i) * GLM_H + (size_t)h) * GLM_KDA_REPLAY,
                  column, n_columns, n);
        GLM_LOOP
        for (int t = 0; holds && t < n; t++)
            glm_kda_step(s, k[t], decay[t], ka[t], ka[t], 0.0f, value[t][lane], beta[t], false);
        glm_barrier();
    }
    GLM_UNROLL
    for (int i = 0; i < GLM_D; i++)
        if (holds)
            to[i * GLM_D] = s[i];
}
