/* SPDX-License-Identifier: Apache-2.0 */
/* Bench body: decodes GLM_MEMBERS EXL3 matrices of GLM_N outputs and GLM_K inputs and multiplies
 * nothing: what the codec costs alone. */
#include "exl3.h"

const uint32_t glm_kernel_abi = GLM_HOST_ABI_VERSION;
void glm_kernel(const struct glm_launch *l, void *const *args);

void glm_kernel(const struct glm_launch *l, void *const *args)
{
    uint32_t *out = args[1];
    int64_t first, last;
    glm_part(l, (int64_t)GLM_MEMBERS * (GLM_N / 128), &first, &last);
    glm_u32x16 sum = glm_splat_u32(0);
    for (int64_t i = first; i < last; i++) {
        const char *matrix = (const char *)args[0];
        matrix += (size_t)(i / (GLM_N / 128)) * GLM_EXL3_BYTES(GLM_N, GLM_K);
        const uint16_t *words = (const uint16_t *)(const void *)matrix;
        words += (size_t)(i % (GLM_N / 128)) * (GLM_K / 16) * GLM_EXL3_STEP;
        for (int k = 0; k < GLM_K; k += 16, words += GLM_EXL3_STEP) {
            float w[16 * GLM_EXL3_BLOCK] __attribute__((aligned(64)));
            glm_exl3_steps(words, words + 8 * GLM_EXL3_STEP, 1, w);
            __asm__ volatile("" : : "r"(w) : "memory");
            sum = glm_xor_u32(sum, glm_bits(glm_load(w)));
        }
    }
    glm_store_u32(out + l->thread * 16, sum);
}
