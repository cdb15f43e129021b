/* SPDX-License-Identifier: Apache-2.0 */
/* Any JSON object as {"messages", "tools", "kwargs"}, rendered with thinking on and off. */
#include "runtime/chat.h"
#include "runtime/unicode.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    arena_init(&arena, 16 << 20);
    struct glm_json *v = NULL;
    if (glm_json_parse((const char *)data, size, &arena, &v, NULL) == GLM_OK) {
        struct glm_chat_options o = {.messages = glm_json_get(v, "messages"),
                                     .tools = glm_json_get(v, "tools"),
                                     .kwargs = glm_json_get(v, "kwargs"),
                                     .generation_prompt = true};
        for (int thinking = 0; thinking < 2; thinking++) {
            struct buf out = {0};
            struct glm_error err = {0};
            o.thinking = thinking != 0;
            enum glm_status status = glm_chat_render(&o, &out, &err);
            if (status != GLM_OK && err.message[0] == '\0')
                abort();
            if (status == GLM_OK && glm_utf8_valid_bytes(out.data, out.len) != out.len)
                abort();
            buf_release(&out);
        }
    }
    arena_release(&arena);
    return 0;
}
