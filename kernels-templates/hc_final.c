/* SPDX-License-Identifier: Apache-2.0 */
/* After the last layer: writes the pending sub-layer back, then the unweighted mean of the streams
 * and the final norm (docs/model.md 2, 6). A row is one thread's. */
#include "hc.h"

const uint32_t glm_kernel_abi = GLM_HOST_ABI_VERSION;

void glm_kernel(const struct glm_launch *launch, void *const *args)
{
    const float *y = args[0], *mix = args[1];
    act_t *x = args[2];
    const uint16_t *norm = args[3];
    act_t *out = args[4];
    int64_t first, last;
    glm_part(launch, launch->round->n_rows, &first, &last);
    for (int64_t r = first; r < last; r++) {
        act_t *row = x + (size_t)r * GLM_S * GLM_D, *h = out + (size_t)r * GLM_D;
        for (int d = 0; d < GLM_D; d += 16) {
            glm_f32x16 v[GLM_S];
            for (int s = 0; s < GLM_S; s++)
                v[s] = glm_load_act(row + s * GLM_D + d);
            glm_hc_write(v, glm_round_act16(glm_load(y + (size_t)r * GLM_D + d)),
                         mix + (size_t)r * GLM_HC_MIX);
            glm_f32x16 sum = v[0];
            for (int s = 0; s < GLM_S; s++) {
                glm_store_act(row + s * GLM_D + d, v[s]);
                sum = s == 0 ? sum : glm_add(sum, v[s]);
            }
            glm_store_act(h + d, glm_mul(sum, glm_splat(1.0f / GLM_S)));
        }
        glm_rms_norm(h, h, norm, GLM_D, GLM_NORM_EPS);
    }
}
