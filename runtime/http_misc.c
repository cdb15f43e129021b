/* SPDX-License-Identifier: Apache-2.0 */
/* The routes beside completions: models, tokenize, detokenize, health, metrics
 * (reference/serving.md 1.9, 1.12, 5.1, 5.2). */
#include "runtime/chat.h"
#include "runtime/http_exchange.h"
#include "runtime/http_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_model(const struct http_exchange *x, struct buf *out)
{
    const char *name = http_launch(x)->served_name;
    const unsigned window = http_plan(x)->limits.window_tokens;
    buf_str(out, "{\"id\":");
    buf_json_string(out, name, strlen(name));
    buf_printf(
        out,
        ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"glmctl\",\"max_model_len\":%u,"
        "\"context_length\":%u}",
        (long long)http_started_s(x), window, window);
}

enum MHD_Result http_models(struct http_exchange *x)
{
    struct buf body = {0};
    const char *name = strcmp(x->path, "/models") == 0 ? NULL : x->path + strlen("/models/");
    if (name != NULL && strcmp(name, http_launch(x)->served_name) != 0) {
        char message[400];
        snprintf(message, sizeof message, "there is no model '%.150s', this server has '%.150s'",
                 name, http_launch(x)->served_name);
        return http_answer_error(x, &(struct http_error){.status = 404,
                                                         .type = "invalid_request_error",
                                                         .code = "model_not_found",
                                                         .param = "model",
                                                         .message = message});
    }
    if (name == NULL)
        buf_str(&body, "{\"object\":\"list\",\"data\":[");
    add_model(x, &body);
    if (name == NULL)
        buf_str(&body, "]}");
    return http_answer(x, 200, "application/json", &body);
}

static bool member_true(const struct glm_json *body, const char *key, bool absent)
{
    const struct glm_json *v = glm_json_get(body, key);
    return v != NULL && v->type == GLM_JSON_BOOL ? v->boolean : absent;
}

/* The prompt text of a tokenize body: `prompt` (or llama.cpp's `content`), or rendered messages. */
static enum glm_status tokenize_text(struct http_exchange *x, struct glm_json *body,
                                     struct buf *text, struct glm_error *err)
{
    const struct glm_json *prompt = glm_json_get(body, "prompt");
    if (prompt == NULL)
        prompt = glm_json_get(body, "content");
    if (prompt != NULL && prompt->type == GLM_JSON_STRING) {
        buf_add(text, prompt->text, prompt->len);
        return GLM_OK;
    }
    if (prompt != NULL)
        return glm_fail(err, GLM_EINVAL, "'prompt' must be a string");
    struct http_fields f;
    struct http_field_error error;
    http_fields_init(&f, http_launch(x)->thinking, http_launch(x)->effort);
    if (!http_fields_read(body, HTTP_CHAT, &x->arena, &f, &error))
        return glm_fail(err, GLM_EINVAL, "%s", error.message);
    struct glm_chat_options options = {
        .messages = f.messages,
        .tools = f.tools,
        .kwargs = f.kwargs,
        .effort = f.effort,
        .thinking = f.thinking,
        .no_effort_line = true,
        .generation_prompt = member_true(body, "add_generation_prompt", true),
    };
    return glm_chat_render(&options, text, err);
}

static void add_token_strings(const struct http_exchange *x, const struct glm_ids *ids,
                              struct buf *out)
{
    struct buf piece = {0};
    buf_char(out, '[');
    for (size_t i = 0; i < ids->n; i++) {
        buf_clear(&piece);
        glm_tokenizer_bytes(x->tokenizer, ids->ids[i], false, &piece);
        buf_str(out, i > 0 ? "," : "");
        buf_json_string(out, buf_text(&piece), piece.len);
    }
    buf_char(out, ']');
    buf_release(&piece);
}

static bool parse_body(struct http_exchange *x, struct glm_json **body, enum MHD_Result *answer)
{
    struct glm_error err = {0};
    if (glm_json_parse(buf_text(&x->body), x->body.len, &x->arena, body, &err) == GLM_OK) {
        if ((*body)->type == GLM_JSON_OBJECT)
            return true;
        *answer = http_answer_invalid(x, NULL, NULL, "the body must be a JSON object");
        return false;
    }
    char message[600];
    snprintf(message, sizeof message, "the body is not JSON: %.500s", err.message);
    *answer = http_answer_invalid(x, NULL, NULL, message);
    return false;
}

enum MHD_Result http_tokenize(struct http_exchange *x)
{
    struct glm_json *body;
    enum MHD_Result answer;
    if (!parse_body(x, &body, &answer))
        return answer;
    struct glm_error err = {0};
    struct buf text = {0};
    struct glm_ids ids = {0};
    enum glm_status status = tokenize_text(x, body, &text, &err);
    if (status == GLM_OK)
        status = glm_tokenizer_encode(x->tokenizer, buf_text(&text), text.len, true, &ids);
    if (status != GLM_OK) {
        answer = http_answer_invalid(x, NULL, NULL, err.message);
    } else {
        struct buf out = {0};
        buf_printf(&out, "{\"count\":%zu,\"max_model_len\":%u,\"tokens\":[", ids.n,
                   http_plan(x)->limits.window_tokens);
        for (size_t i = 0; i < ids.n; i++)
            buf_printf(&out, "%s%d", i > 0 ? "," : "", ids.ids[i]);
        buf_str(&out, "],\"token_strs\":");
        if (member_true(body, "return_token_strs", false))
            add_token_strings(x, &ids, &out);
        else
            buf_str(&out, "null");
        buf_char(&out, '}');
        answer = http_answer(x, 200, "application/json", &out);
    }
    glm_ids_release(&ids);
    buf_release(&text);
    return answer;
}

enum MHD_Result http_detokenize(struct http_exchange *x)
{
    struct glm_json *body;
    enum MHD_Result answer;
    if (!parse_body(x, &body, &answer))
        return answer;
    const struct glm_json *tokens = glm_json_get(body, "tokens");
    if (tokens == NULL || tokens->type != GLM_JSON_ARRAY)
        return http_answer_invalid(x, "tokens", NULL, "'tokens' must be an array of token ids");
    struct buf text = {0}, out = {0};
    for (const struct glm_json *t = tokens->first; t != NULL; t = t->next) {
        char *end = NULL;
        long id = t->type == GLM_JSON_NUMBER ? strtol(t->text, &end, 10) : -1;
        if (end != t->text + t->len || id < 0 || id > INT32_MAX ||
            !glm_tokenizer_bytes(x->tokenizer, (int32_t)id, false, &text)) {
            char message[128];
            snprintf(message, sizeof message, "'tokens' holds %.*s, which is no token id",
                     (int)(t->len < 40 ? t->len : 40), t->text != NULL ? t->text : "another value");
            buf_release(&text);
            return http_answer_invalid(x, "tokens", NULL, message);
        }
    }
    buf_str(&out, "{\"prompt\":");
    buf_json_string(&out, buf_text(&text), text.len);
    buf_char(&out, '}');
    buf_release(&text);
    return http_answer(x, 200, "application/json", &out);
}

enum MHD_Result http_health(struct http_exchange *x)
{
    struct buf out = {0};
    if (x->scheduler == NULL) {
        buf_str(&out, "{\"ok\":false,\"state\":");
        buf_json_string(&out, x->why, strlen(x->why));
        buf_char(&out, '}');
        return http_answer(x, 503, "application/json", &out);
    }
    const struct glm_scheduler_stats s = glm_scheduler_stats(x->scheduler);
    buf_printf(&out,
               "{\"ok\":%s,\"backend\":\"glmctl\",\"busy\":%s,\"requests_running\":%u,"
               "\"requests_waiting\":%u,\"requests_total\":%llu,\"prompt_tokens_total\":%llu,"
               "\"completion_tokens_total\":%llu,\"rounds_total\":%llu,"
               "\"prefill_seconds_total\":%.6f,\"decode_seconds_total\":%.6f,",
               s.broken ? "false" : "true", s.running + s.waiting > 0 ? "true" : "false", s.running,
               s.waiting, (unsigned long long)s.requests_total,
               (unsigned long long)s.prompt_tokens_total,
               (unsigned long long)s.completion_tokens_total, (unsigned long long)s.rounds_total,
               s.prefill_seconds_total, s.decode_seconds_total);
    buf_printf(&out,
               "\"streams\":{\"decoding\":%u,\"prefilling\":%u,\"max\":%u},\"context_length\":%u,"
               "\"pool_tokens\":%llu,\"pool_free_tokens\":%llu,\"iteration_s\":%.3f}",
               s.decoding, s.filling, s.max_streams, http_plan(x)->limits.window_tokens,
               (unsigned long long)s.pool_tokens, (unsigned long long)s.pool_free_tokens,
               s.step_age_s);
    return http_answer(x, s.broken ? 503 : 200, "application/json", &out);
}

enum MHD_Result http_metrics(struct http_exchange *x)
{
    struct glm_scheduler_stats s = {0};
    if (x->scheduler != NULL)
        s = glm_scheduler_stats(x->scheduler);
    const struct {
        const char *name, *type, *help;
        double value;
    } families[] = {
        {"up", "gauge", "1 while a lane is served", x->scheduler != NULL && !s.broken},
        {"requests_running", "gauge", "requests that hold a stream", s.running},
        {"requests_waiting", "gauge", "requests in the queue", s.waiting},
        {"streams_max", "gauge", "streams of the lane", s.max_streams},
        {"requests_total", "counter", "requests taken", (double)s.requests_total},
        {"requests_canceled_total", "counter", "requests whose client left",
         (double)s.canceled_total},
        {"requests_failed_total", "counter", "requests that ended with an error",
         (double)s.failed_total},
        {"prompt_tokens_total", "counter", "prompt tokens computed", (double)s.prompt_tokens_total},
        {"generation_tokens_total", "counter", "reply tokens", (double)s.completion_tokens_total},
        {"rounds_total", "counter", "rounds run", (double)s.rounds_total},
        {"prefill_seconds_total", "counter", "seconds in rounds of prompts alone",
         s.prefill_seconds_total},
        {"decode_seconds_total", "counter", "seconds in rounds with decoding",
         s.decode_seconds_total},
        {"pool_tokens", "gauge", "token rows of the pool", (double)s.pool_tokens},
        {"pool_free_tokens", "gauge", "token rows that are free", (double)s.pool_free_tokens},
    };
    struct buf out = {0};
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        buf_printf(&out, "# HELP glmctl_%s %s\n# TYPE glmctl_%s %s\nglmctl_%s %.17g\n",
                   families[i].name, families[i].help, families[i].name, families[i].type,
                   families[i].name, families[i].value);
    const double usage =
        s.pool_tokens > 0 ? 1.0 - (double)s.pool_free_tokens / (double)s.pool_tokens : 0.0;
    buf_printf(&out,
               "# HELP vllm:num_requests_running requests that hold a stream\n"
               "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running %u\n"
               "# HELP vllm:num_requests_waiting requests in the queue\n"
               "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting %u\n"
               "# HELP vllm:kv_cache_usage_perc share of the pool in use, 0 to 1\n"
               "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc %.6f\n",
               s.running, s.waiting, usage);
    return http_answer(x, 200, "text/plain; version=0.0.4; charset=utf-8", &out);
}
