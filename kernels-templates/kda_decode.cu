/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent gated delta rule: the rows of a stream in order, from its committed state (version v)
 * to version v^1, which holds the state after the last row (model.md d.4). What kda_replay needs to
 * stop after fewer rows is kept when REPLAY is 1. */
#include "kda_rows.cuh"

static_assert(GLM_RING >= GLM_VERIFY + GLM_TAPS - 1,
              "the ring must keep the rows before a round while the round's rows are written");

GLM_KERNEL(launch)
{
    const int32_t head = glm_block_x(), stream = glm_block_y();
    const struct glm_round *round = launch.round;
    act_t *out = (act_t *)launch.args[11];
    give_padding(round, stream, head, out);
    if (stream >= round->n_streams || round->streams[stream].n_rows == 0)
        return;
    const struct kda a = {
        (const act_t *)launch.args[0],
        (const act_t *)launch.args[1],
        (const act_t *)launch.args[2],
        (const act_t *)launch.args[3],
        (const uint16_t *)launch.args[4],
        (const float *)launch.args[5],
        (const float *)launch.args[6],
        (const uint16_t *)launch.args[7],
        launch.args[8],
        launch.args[9],
        (float *)launch.args[10],
        out,
        &round->streams[stream],
        head,
    };
    stream_head(&a, a.stream->version ^ 1);
}
