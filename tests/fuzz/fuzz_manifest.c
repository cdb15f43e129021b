/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests from hostile bytes; their expressions are evaluated while they are read. */
#include "codegen/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    struct glm_manifest m;
    struct glm_error err = {0};
    arena_init(&arena, 16 << 20);
    if (glm_manifest_parse("toy", (const char *)data, size, &arena, &m, &err) == GLM_OK) {
        static struct glm_plan_param params[] = {{.name = "N", .value = 64, .origin = ""},
                                                 {.name = "EPS", .text = "0.5", .origin = ""},
                                                 {.name = "FORM", .text = "q4", .origin = ""}};
        const struct glm_plan_kernel k = {"k", "toy", params, 3};
        const struct glm_cost_context bucket = {.R = 64, .O = 8, .C = 8192, .S = 4};
        struct glm_launch_shape shape;
        (void)glm_manifest_check(&m, &k, &err);
        (void)glm_manifest_shape(&m, &k, &bucket, &shape, &err);
    }
    arena_release(&arena);
    return 0;
}
