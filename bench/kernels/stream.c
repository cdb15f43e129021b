/* SPDX-License-Identifier: Apache-2.0 */
/* Bench body: reads args[0], GLM_BYTES long, GLM_TIMES times, at GLM_STREAMS places at once and
 * naming to the caches what comes GLM_AHEAD bytes later, as the matmuls do: the rate at which bytes
 * can be had. */
#include "prelude.h"

const uint32_t glm_kernel_abi = GLM_HOST_ABI_VERSION;
void glm_kernel(const struct glm_launch *l, void *const *args);

void glm_kernel(const struct glm_launch *l, void *const *args)
{
    enum { LINE = 16, LINES = 2 }; /* u32 of a cache line; lines of a stream at a time */
    const uint32_t *p = args[0];
    uint32_t *out = args[1];
    int64_t first, last;
    glm_part(l, (int64_t)GLM_BYTES / (LINES * 64 * GLM_STREAMS), &first, &last);
    p += first * LINES * LINE * GLM_STREAMS;
    int64_t n = last - first;
    glm_u32x16 s[LINES] = {{{{0}}}, {{{0}}}};
    for (int64_t t = 0; t < GLM_TIMES; t++) {
        for (int64_t i = 0; i < n; i++) {
            GLM_UNROLL
            for (int64_t k = 0; k < GLM_STREAMS; k++) {
                const uint32_t *at = p + (k * n + i) * LINES * LINE;
                GLM_UNROLL
                for (int j = 0; j < LINES; j++) {
                    __builtin_prefetch(at + j * LINE + GLM_AHEAD / 4);
                    s[j] = glm_xor_u32(s[j], glm_load_u32(at + j * LINE));
                }
            }
        }
        __asm__ volatile("" : : : "memory");
    }
    glm_store_u32(out + l->thread * 16, glm_xor_u32(s[0], s[1]));
}
