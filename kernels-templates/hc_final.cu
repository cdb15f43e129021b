/* SPDX-License-Identifier: Apache-2.0 */
/* After the last layer: writes the pending sub-layer back, then the unweighted mean of the streams
 * and the final norm (docs/model.md 2, 6). A row is one block's. */
#include "hc.cuh"

GLM_KERNEL(launch)
{
    const int32_t row = glm_block_x();
    if (row >= launch.round->n_rows)
        return;
    GLM_SHARED float mix[GLM_HC_MIX];
    GLM_SHARED act_t mean[GLM_D];
    const float *y = (const float *)launch.args[0] + (size_t)row * GLM_D;
    act_t *x = (act_t *)launch.args[2] + (size_t)row * GLM_S * GLM_D;
    if (glm_thread() < GLM_HC_MIX)
        mix[glm_thread()] = ((const float *)launch.args[1])[row * GLM_HC_MIX + glm_thread()];
    glm_barrier();
    for (int d = glm_thread() * 8; d < GLM_D; d += GLM_BLOCK * 8) {
        float v[GLM_S][8], branch[8], sum[8];
        glm_load_f32x8(y + d, branch);
        GLM_UNROLL
        for (int s = 0; s < GLM_S; s++)
            glm_load_act8(x + s * GLM_D + d, v[s]);
        glm_hc_write(v, branch, mix);
        GLM_UNROLL
        for (int s = 0; s < GLM_S; s++) {
            glm_store_act8(x + s * GLM_D + d, v[s]);
            GLM_UNROLL
            for (int i = 0; i < 8; i++)
                sum[i] = s == 0 ? v[0][i] : sum[i] + v[s][i];
        }
        GLM_UNROLL
        for (int i = 0; i < 8; i++)
            sum[i] *= 1.0f / GLM_S;
        glm_store_act8(mean + d, sum);
    }
    glm_barrier();
    glm_rms_norm((act_t *)launch.args[4] + (size_t)row * GLM_D, mean,
                 (const uint16_t *)launch.args[3], GLM_D, GLM_NORM_EPS);
}
