/* SPDX-License-Identifier: Apache-2.0 */
/* The gated delta rule over the rows of a prompt's chunk, the state in place in the committed
 * version (model.md d.4). Rows go one after the other as in kda_decode, so that a row's bits do not
 * know where the chunks were cut. */
#define GLM_REPLAY 0
#include "kda_rows.cuh"

GLM_KERNEL(launch)
{
    const int32_t head = glm_block_x(), stream = glm_block_y();
    const struct glm_round *round = launch.round;
    act_t *out = (act_t *)launch.args[10];
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
        nullptr,
        out,
        &round->streams[stream],
        head,
    };
    stream_head(&a, a.stream->version);
}
