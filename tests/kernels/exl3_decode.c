/* SPDX-License-Identifier: Apache-2.0 */
/* Test body: a matrix in its EXL3 device form → the decoded weights, f32 [K][N]. */
#include "exl3.h"

const uint32_t glm_kernel_abi = GLM_HOST_ABI_VERSION;
void glm_kernel(const struct glm_launch *l, void *const *args);

void glm_kernel(const struct glm_launch *l, void *const *args)
{
    const uint16_t *words = args[0];
    float *out = args[1];
    if (l->thread != 0)
        return;
    for (int block = 0; block < GLM_N / 128; block++)
        for (int kt = 0; kt < GLM_K / 16; kt++, words += GLM_EXL3_STEP) {
            float w[16 * GLM_EXL3_BLOCK];
            glm_exl3_steps(words, NULL, 1, w);
            for (int r = 0; r < 16; r++)
                glm_exl3_natural(w + r * GLM_EXL3_BLOCK,
                                 out + (size_t)(kt * 16 + r) * GLM_N + block * 128);
        }
}
