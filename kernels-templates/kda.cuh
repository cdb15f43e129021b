/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the gated delta rule on a GPU, shared by decode and replay (docs/model.md 3; the
 * equations are in kda.h). A block has a head of a stream; a thread has one value column of its
 * state in registers, all keys of it, for as long as the rows of the round last. A column needs
 * nothing of another, and its sums ascend over keys as the host's do: the bits are the host's. */
#ifndef GLM_KDA_CUH
#define GLM_KDA_CUH

#include "prelude.cuh"

#define GLM_KDA_REPLAY (3 * GLM_D + 1) /* of a row and head: k, value, decay, β */

static_assert(GLM_BLOCK == GLM_D, "a thread has a value column");
static_assert(GLM_D % GLM_WARP == 0 && GLM_D <= 128, "a column must fit a thread's registers");

/* A head's state of a stream, [key][value]. */
GLM_INLINE float *glm_kda_state(void *s, const struct glm_round_stream *stream, int32_t version,
                                int32_t head)
{
    const size_t bytes = sizeof(float) * GLM_H * GLM_D * GLM_D;
    return (float *)glm_state_stream(s, stream, 2, version, bytes) + (size_t)head * GLM_D * GLM_D;
}

GLM_INLINE void glm_kda_load(float column[GLM_D], const float *state)
{
    GLM_UNROLL
    for (int i = 0; i < GLM_D; i++)
        column[i] = state[i * GLM_D + glm_thread()];
}
GLM_INLINE void glm_kda_store(const float column[GLM_D], float *state)
{
    GLM_UNROLL
    for (int i = 0; i < GLM_D; i++)
        state[i * GLM_D + glm_thread()] = column[i];
}

/* What all columns share of a row, in shared memory. */
struct glm_kda_keys {
    float k[GLM_D], decay[GLM_D];
    float ka[GLM_D], qa[GLM_D]; /* times decay */
};

/* Moves the column by one row and gives what is read out of it; keys->qa and qk may be anything
 * where that is not used. */
GLM_INLINE float glm_kda_step(float column[GLM_D], const struct glm_kda_keys *keys, float value,
                              float beta, float qk)
{
    float r = 0.0f, p = 0.0f;
    GLM_UNROLL
    for (int i = 0; i < GLM_D; i++) {
        r = glm_fma1(keys->ka[i], column[i], r);
        p = glm_fma1(keys->qa[i], column[i], p);
    }
    const float delta = beta * (value - r);
    GLM_UNROLL
    for (int i = 0; i < GLM_D; i++)
        column[i] = glm_fma1(keys->k[i], delta, keys->decay[i] * column[i]);
    return glm_fma1(qk, delta, p);
}

#endif
