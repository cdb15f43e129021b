/* SPDX-License-Identifier: Apache-2.0 */
/* Bench body: reads args[0], GLM_BYTES long, once, naming to the caches what comes GLM_AHEAD bytes
 * later, as the matmuls do: the rate at which bytes of a cache can be had. */
#include "prelude.h"

const uint32_t glm_kernel_abi = GLM_HOST_ABI_VERSION;
void glm_kernel(const struct glm_launch *l, void *const *args);

void glm_kernel(const struct glm_launch *l, void *const *args)
{
    const uint32_t *p = args[0];
    uint32_t *out = args[1];
    int64_t first, last;
    glm_part(l, (int64_t)GLM_BYTES / 256, &first, &last);
    glm_u32x16 s[4] = {{{{0}}}, {{{0}}}, {{{0}}}, {{{0}}}};
    for (int64_t i = first; i < last; i++) {
        GLM_UNROLL
        for (int j = 0; j < 4; j++)
            __builtin_prefetch(p + i * 64 + j * 16 + GLM_AHEAD / 4);
        GLM_UNROLL
        for (int j = 0; j < 4; j++)
            s[j] = glm_xor_u32(s[j], glm_load_u32(p + i * 64 + j * 16));
    }
    glm_store_u32(out + l->thread * 16,
                  glm_xor_u32(glm_xor_u32(s[0], s[1]), glm_xor_u32(s[2], s[3])));
}
