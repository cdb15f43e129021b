/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the start of a safetensors file whose size is 1 MiB more: accepted tensors lie
 * inside the file and do not overlap; a refusal has a message. The same bytes are tried as a
 * config.json. */
#include "spec/checkpoint.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    struct glm_error err = {0};
    struct glm_tensor *tensors = NULL;
    uint32_t n = 0;
    uint64_t file_bytes = size + (1u << 20);
    /* Random bytes rarely state their own length, so a header without one is framed here. */
    uint8_t *framed = malloc(size + 8);
    size_t len = size;
    if (framed == NULL)
        return 0;
    if (size > 0 && data[0] == '{') {
        uint64_t header = size;
        memcpy(framed, &header, 8);
        memcpy(framed + 8, data, size);
        len = size + 8;
        file_bytes += 8;
    } else if (size > 0) {
        memcpy(framed, data, size);
    }
    arena_init(&arena, 64u << 20);
    enum glm_status status =
        glm_safetensors_header("fuzz", framed, len, file_bytes, &arena, &tensors, &n, &err);
    if (status != GLM_OK && err.message[0] == '\0')
        abort();
    for (uint32_t i = 0; status == GLM_OK && i < n; i++)
        if (tensors[i].offset > file_bytes ||
            tensors[i].size_bytes > file_bytes - tensors[i].offset)
            abort();
    struct glm_model model;
    err = (struct glm_error){0};
    status = glm_model_parse((const char *)data, size, &model, &err);
    if (status != GLM_OK && err.message[0] == '\0')
        abort();
    free(framed);
    arena_release(&arena);
    return 0;
}
