/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as request JSON: what parses must print, and what was printed must parse to the same.
 */
#include "runtime/json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    arena_init(&arena, 16 << 20);
    struct glm_json *v = NULL, *again = NULL;
    struct buf compact = {0}, python = {0}, second = {0};
    if (glm_json_parse((const char *)data, size, &arena, &v, NULL) == GLM_OK) {
        glm_json_print(v, true, &compact);
        glm_json_print(v, false, &python);
        if (glm_json_parse(compact.data, compact.len, &arena, &again, NULL) != GLM_OK)
            abort();
        glm_json_print(again, true, &second);
        if (second.len != compact.len || memcmp(second.data, compact.data, second.len) != 0)
            abort();
    }
    buf_release(&compact);
    buf_release(&python);
    buf_release(&second);
    arena_release(&arena);
    return 0;
}
