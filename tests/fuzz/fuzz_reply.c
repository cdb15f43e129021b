/* SPDX-License-Identifier: Apache-2.0 */
/* Any ids as a reply. A byte below 16 of the input is an added token, another one is the byte's
 * own token; the first byte picks the options. Delivered text must be whole characters, arguments
 * JSON objects, and no text may appear or vanish by the bulk. */
#include "runtime/reply.h"
#include "runtime/unicode.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char tools_text[] =
    "[{\"name\":\"a\",\"parameters\":{\"properties\":{\"b\":{\"type\":\"string\"},\"c\":{\"type\":"
    "[\"integer\",\"null\"]},\"d\":{\"type\":\"object\"}}}},{\"function\":{\"name\":\"get\"}}]";

static void check(void *context, const struct glm_reply_event *event)
{
    size_t *delivered = context;
    if (event->kind == GLM_REPLY_TOOL_CALL) {
        struct arena arena;
        arena_init(&arena, 16 << 20);
        struct glm_json *v = NULL;
        if (glm_json_parse(event->arguments, event->arguments_len, &arena, &v, NULL) != GLM_OK ||
            v->type != GLM_JSON_OBJECT || event->name[0] == '\0')
            abort();
        arena_release(&arena);
        return;
    }
    if (event->len == 0 || glm_utf8_valid_bytes(event->text, event->len) != event->len)
        abort();
    *delivered += event->len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct glm_tokenizer *t;
    static struct glm_json *tools;
    static struct arena arena;
    static int32_t byte_ids[256];
    if (t == NULL) {
        arena_init(&arena, 1 << 20);
        if (glm_tokenizer_open("clusters/demo/exl3/tokenizer.json", &t, NULL) != GLM_OK ||
            glm_json_parse(tools_text, sizeof tools_text - 1, &arena, &tools, NULL) != GLM_OK)
            abort();
        for (int i = 0; i < 256; i++) {
            struct glm_ids ids = {0};
            char byte = (char)i;
            if (glm_tokenizer_encode(t, &byte, 1, false, &ids) != GLM_OK || ids.n != 1)
                abort();
            byte_ids[i] = ids.ids[0];
            glm_ids_release(&ids);
        }
    }
    if (size == 0)
        return 0;
    static const char *const stops[] = {"stop", "\n\n", "</tool_call>x"};
    struct glm_reply_options o = {.in_reasoning = (data[0] & 1) != 0,
                                  .parse_calls = (data[0] & 2) != 0,
                                  .tools = tools,
                                  .raw = (data[0] & 12) == 12,
                                  .stops = stops,
                                  .n_stops = (data[0] & 16) != 0 ? 3 : 0};
    struct glm_reply *r = NULL;
    size_t delivered = 0, n_bytes = 0;
    if (glm_reply_new(t, &o, &r, NULL) != GLM_OK)
        abort();
    for (size_t i = 1; i < size && glm_reply_stop(r) == NULL; i++) {
        static const char first_added[] = "<think>";
        int32_t id =
            data[i] < 16 ? glm_tokenizer_added(t, first_added) + data[i] : byte_ids[data[i]];
        struct buf bytes = {0};
        glm_tokenizer_bytes(t, id, false, &bytes);
        n_bytes += bytes.len;
        buf_release(&bytes);
        glm_reply_feed(r, id, check, &delivered);
    }
    glm_reply_finish(r, (data[0] & 32) != 0, check, &delivered);
    /* A byte that begins no character becomes three; an unclosed block comes twice. */
    if (delivered > 6 * n_bytes || glm_reply_failed(r))
        abort();
    if (o.raw && o.n_stops == 0 && delivered < n_bytes / 4)
        abort();
    glm_reply_free(r);
    return 0;
}
