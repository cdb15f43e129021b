/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the body of both completion routes: parsed, read by the field table and, for a chat,
 * rendered. What is refused must say why; what is taken must lie in the ranges of the table. */
#include "runtime/http_fields.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)  \
    do {                  \
        if (!(condition)) \
            abort();      \
    } while (0)

static void check_fields(const struct http_fields *f, enum http_route_kind kind)
{
    CHECK(f->temperature <= 2 && f->top_p >= 0 && f->top_p <= 1 && f->min_p >= 0 && f->min_p <= 1);
    CHECK(f->top_k >= 0 && f->top_k <= INT32_MAX);
    CHECK(f->max_tokens == -1 || (f->max_tokens >= 1 && f->max_tokens <= INT32_MAX));
    CHECK(f->min_tokens >= 0 && f->min_tokens <= INT32_MAX);
    CHECK(f->n_stops <= GLM_REPLY_MAX_STOPS);
    for (uint32_t i = 0; i < f->n_stops; i++)
        CHECK(*f->stops[i] != '\0' && strlen(f->stops[i]) <= GLM_REPLY_MAX_STOP_BYTES);
    if (kind == HTTP_CHAT)
        CHECK(f->messages != NULL && f->messages->type == GLM_JSON_ARRAY &&
              f->messages->n_children > 0);
    else
        CHECK(f->prompt != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int k = 0; k < 4; k++) {
        const enum http_route_kind kind = k % 2 == 0 ? HTTP_CHAT : HTTP_COMPLETION;
        struct arena arena;
        struct glm_json *body;
        struct http_fields f;
        struct http_field_error error;
        struct glm_error err = {0};
        arena_init(&arena, 16 << 20);
        if (glm_json_parse((const char *)data, size, &arena, &body, NULL) == GLM_OK) {
            struct buf text = {0};
            arena.limit_bytes = arena.used_bytes + (k < 2 ? 256 << 10 : 256);
            http_fields_init(&f, k < 2, k < 2 ? "low" : NULL);
            if (!http_fields_read(body, kind, &arena, &f, &error)) {
                CHECK(error.message[0] != '\0');
            } else {
                check_fields(&f, kind);
                if (kind == HTTP_CHAT && http_fields_render(&f, k < 2, &text, &err) != GLM_OK)
                    CHECK(err.message[0] != '\0');
            }
            buf_release(&text);
        }
        arena_release(&arena);
    }
    return 0;
}
