/* SPDX-License-Identifier: Apache-2.0 */
/* Test body: the prelude's functions over an array, scalar and sixteen at a time.
 * args: x f32 [n] (n a multiple of 16), out f32 [FUNCTIONS][2][n]; n = rows of the round. */
#include "prelude.h"

const uint32_t glm_kernel_abi = GLM_HOST_ABI_VERSION;
void glm_kernel(const struct glm_launch *l, void *const *args);

static float identity_bf16(float a)
{
    return glm_round_bf16(a);
}
static float through_f16(float a)
{
    return glm_f16_f32(glm_f32_f16(a));
}
static float through_e4m3(float a)
{
    return glm_e4m3_f32(glm_f32_e4m3(a));
}

void glm_kernel(const struct glm_launch *l, void *const *args)
{
    const float *x = args[0];
    float *out = args[1];
    size_t n = (size_t)l->round->n_rows;
    if (l->thread != 0)
        return;
    for (size_t i = 0; i < n; i++) {
        out[0 * n + i] = glm_exp(x[i]);
        out[2 * n + i] = glm_sigmoid(x[i]);
        out[4 * n + i] = glm_silu(x[i]);
        out[6 * n + i] = identity_bf16(x[i]);
        out[8 * n + i] = through_f16(x[i]);
        out[10 * n + i] = through_e4m3(x[i]);
        out[12 * n + i] = glm_log(x[i]);
        out[13 * n + i] = glm_log1p(x[i]);
        out[14 * n + i] = glm_softplus(x[i]);
        out[15 * n + i] = glm_sqrt1(x[i]);
    }
    for (size_t i = 0; i < n; i += 16) {
        glm_f32x16 a = glm_load(x + i);
        glm_store(out + 1 * n + i, glm_exp16(a));
        glm_store(out + 3 * n + i, glm_sigmoid16(a));
        glm_store(out + 5 * n + i, glm_silu16(a));
        glm_store(out + 7 * n + i, glm_round_bf16x16(a));
        glm_store(out + 9 * n + i, glm_round_f16x16(a));
        uint8_t codes[16];
        for (size_t j = 0; j < 16; j++)
            codes[j] = glm_f32_e4m3(x[i + j]);
        glm_store(out + 11 * n + i, glm_load_e4m3(codes));
    }
}
