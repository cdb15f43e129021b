/* SPDX-License-Identifier: Apache-2.0 */
/* Bench body: GLM_STEPS fused multiply-adds on each of 12 x 16 lanes in registers: the arithmetic
 * ceiling that prefill is compared with. */
#include "prelude.h"

const uint32_t glm_kernel_abi = GLM_HOST_ABI_VERSION;
void glm_kernel(const struct glm_launch *l, void *const *args);

void glm_kernel(const struct glm_launch *l, void *const *args)
{
    enum { N = GLM_NATIVE == 1 ? 12 : 6 };
    float *out = args[1];
    const float *x = args[0];
    glm_f32x16 a = glm_load(args[0]), s[N];
    GLM_UNROLL
    for (int j = 0; j < N; j++)
        s[j] = glm_load(x + 16 * j); /* all different, or one sum would stand for all */
    for (int i = 0; i < GLM_STEPS * 12 / N; i++) {
        GLM_UNROLL
        for (int j = 0; j < N; j++)
            s[j] = glm_fma(s[j], a, a);
    }
    GLM_UNROLL
    for (int j = 1; j < N; j++)
        s[0] = glm_add(s[0], s[j]);
    glm_store(out + l->thread * 16, s[0]);
}
