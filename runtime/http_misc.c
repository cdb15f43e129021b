/* SPDX-License-Identifier: Apache-2.0 */
/* The routes beside completions: models, tokenize, detokenize, health, metrics
 * (docs/api.md). */
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

/* The prompt text of a tokenize body: `prompt` (or llama.cpp's `content`), or messages rendered as
 * the chat route does. */
static enum glm_status tokenize_text(struct http_exchange *x, struct glm_json *body,
                                     struct buf *text, struct http_field_error *error)
{
    const struct glm_json *prompt = glm_json_get(body, "prompt");
    if (prompt == NULL || prompt->type == GLM_JSON_NULL)
        prompt = glm_json_get(body, "content");
    if (prompt != NULL && prompt->type == GLM_JSON_STRING) {
        buf_add(text, prompt->text, prompt->len);
        return text->failed ? GLM_ENOMEM : GLM_OK;
    }
    if (prompt != NULL && prompt->type != GLM_JSON_NULL) {
        *error =
            (struct http_field_error){.field = "prompt", .message = "'prompt' must be a string"};
        return GLM_EINVAL;
    }
    if (glm_json_get(body, "messages") == NULL) {
        *error = (struct http_field_error){.message = "'prompt' or 'messages' is missing"};
        return GLM_EINVAL;
    }
    struct http_fields f;
    struct glm_error err = {0};
    http_fields_init(&f, http_launch(x)->thinking, http_launch(x)->effort);
    if (!http_fields_read(body, HTTP_CHAT, &x->arena, &f, error))
        return GLM_EINVAL;
    const enum glm_status status =
        http_fields_render(&f, member_true(body, "add_generation_prompt", true), text, &err);
    error->field = "messages";
    snprintf(error->message, sizeof error->message, "%.500s", err.message);
    return status;
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

static void add_tokens(const struct http_exchange *x, const struct glm_ids *ids, bool with_strings,
                       struct buf *out)
{
    buf_printf(out, "{\"count\":%zu,\"max_model_len\":%u,\"tokens\":[", ids->n,
               http_plan(x)->limits.window_tokens);
    for (size_t i = 0; i < ids->n; i++)
        buf_printf(out, "%s%d", i > 0 ? "," : "", ids->ids[i]);
    buf_str(out, "],\"token_strs\":");
    if (with_strings)
        add_token_strings(x, ids, out);
    else
        buf_str(out, "null");
    buf_char(out, '}');
}

enum MHD_Result http_tokenize(struct http_exchange *x)
{
    struct glm_json *body;
    enum MHD_Result answer;
    if (!http_parse_body(x, &body, &answer))
        return answer;
    struct glm_error err = {0};
    struct http_field_error error = {0};
    struct buf text = {0}, out = {0};
    struct glm_ids ids = {0};
    enum glm_status status = tokenize_text(x, body, &text, &error);
    if (status == GLM_OK)
        status = glm_tokenizer_encode(x->tokenizer, buf_text(&text), text.len, true, &ids);
    buf_release(&text);
    if (status == GLM_EINVAL) {
        answer = http_answer_invalid(x, error.field, error.code, error.message);
    } else if (status != GLM_OK) {
        glm_fail(&err, GLM_ENOMEM, "out of memory while tokenizing");
        answer = http_answer_failure(x, &err);
    } else {
        add_tokens(x, &ids, member_true(body, "return_token_strs", false), &out);
        answer = http_answer(x, 200, "application/json", &out);
    }
    glm_ids_release(&ids);
    return answer;
}

enum MHD_Result http_detokenize(struct http_exchange *x)
{
    struct glm_json *body;
    enum MHD_Result answer;
    if (!http_parse_body(x, &body, &answer))
        return answer;
    const struct glm_json *tokens = glm_json_get(body, "tokens");
    if (tokens == NULL || tokens->type != GLM_JSON_ARRAY)
        return http_answer_invalid(x, "tokens", NULL, "'tokens' must be an array of token ids");
    struct buf text = {0}, out = {0};
    size_t i = 0;
    for (const struct glm_json *t = tokens->first; t != NULL; t = t->next, i++) {
        char *end = NULL;
        const long id = t->type == GLM_JSON_NUMBER ? strtol(t->text, &end, 10) : -1;
        if (id < 0 || id > INT32_MAX || end != t->text + t->len ||
            !glm_tokenizer_bytes(x->tokenizer, (int32_t)id, false, &text)) {
            char message[128];
            snprintf(message, sizeof message, "entry %zu of 'tokens' is no token id", i);
            buf_release(&text);
            return http_answer_invalid(x, "tokens", NULL, message);
        }
    }
    buf_str(&out, "{\"prompt\":");
    buf_json_string(&out, buf_text(&text), text.len);
    buf_char(&out, '}');
    out.failed |= text.failed;
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

struct family {
    const char *name, *type, *help;
    double value;
};

static void add_head(const char *prefix, const char *name, const char *help, const char *type,
                     struct buf *out)
{
    buf_printf(out, "# HELP %s%s %s\n# TYPE %s%s %s\n", prefix, name, help, prefix, name, type);
}

/* Under our own prefix and, where tools know the name, under vLLM's with its label (name="value",
 * without braces; "": none). */
static void add_family(const struct family *f, const char *prefix, const char *label,
                       struct buf *out)
{
    const bool bare = label[0] == '\0';
    add_head(prefix, f->name, f->help, f->type, out);
    buf_printf(out, "%s%s%s%s%s %.17g\n", prefix, f->name, bare ? "" : "{", label, bare ? "" : "}",
               f->value);
}

static void add_histogram(const struct glm_latency_family *f, const struct glm_latency_histogram *h,
                          const char *prefix, const char *label, struct buf *out)
{
    const bool bare = label[0] == '\0';
    uint64_t n = 0;
    add_head(prefix, f->name, f->help, "histogram", out);
    for (uint32_t i = 0; i <= f->n_bounds; i++) {
        char le[32] = "+Inf";
        if (i < f->n_bounds)
            snprintf(le, sizeof le, "%g", f->bounds[i]);
        n += h->counts[i];
        buf_printf(out, "%s%s_bucket{%s%sle=\"%s\"} %llu\n", prefix, f->name, label,
                   bare ? "" : ",", le, (unsigned long long)n);
    }
    const struct family ends[] = {{.name = "sum", .value = h->sum_s},
                                  {.name = "count", .value = (double)n}};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        buf_printf(out, "%s%s_%s%s%s%s %.17g\n", prefix, f->name, ends[i].name, bare ? "" : "{",
                   label, bare ? "" : "}", ends[i].value);
}

/* model_name="…" with the value escaped as Prometheus' text form wants. */
static void model_label(const struct http_exchange *x, struct buf *out)
{
    buf_str(out, "model_name=\"");
    for (const char *c = http_launch(x)->served_name; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\')
            buf_char(out, '\\');
        buf_char(out, *c == '\n' ? ' ' : *c);
    }
    buf_str(out, "\"");
}

/* Without a lane only `up` is known: what cannot be measured is left out, not shown as 0. */
enum MHD_Result http_metrics(struct http_exchange *x)
{
    static const char type[] = "text/plain; version=0.0.4; charset=utf-8";
    struct glm_scheduler_stats s = {.broken = true};
    struct buf out = {0}, label = {0};
    if (x->scheduler != NULL)
        s = glm_scheduler_stats(x->scheduler);
    add_family(&(struct family){"up", "gauge", "1 while a lane is served", !s.broken}, "glmctl_",
               "", &out);
    if (x->scheduler == NULL)
        return http_answer(x, 200, type, &out);
    const double used = (double)(s.pool_tokens - s.pool_free_tokens);
    const struct family families[] = {
        {"requests_running", "gauge", "requests that hold a stream", s.running},
        {"requests_waiting", "gauge", "requests in the queue", s.waiting},
        {"streams_max", "gauge", "streams of the lane", s.max_streams},
        {"requests_total", "counter", "requests taken", (double)s.requests_total},
        {"client_disconnections_total", "counter", "requests whose client left",
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
    const struct family known[] = {
        {"num_requests_running", "gauge", "requests that hold a stream", s.running},
        {"num_requests_waiting", "gauge", "requests in the queue", s.waiting},
        {"kv_cache_usage_perc", "gauge", "share of the pool in use, 0 to 1",
         s.pool_tokens > 0 ? used / (double)s.pool_tokens : 0},
        {"prompt_tokens_total", "counter", "prompt tokens computed", (double)s.prompt_tokens_total},
        {"generation_tokens_total", "counter", "reply tokens", (double)s.completion_tokens_total},
    };
    model_label(x, &label);
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        add_family(&families[i], "glmctl_", "", &out);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        add_family(&known[i], "vllm:", buf_text(&label), &out);
    for (size_t i = 0; i < GLM_N_LATENCIES; i++) {
        add_histogram(&glm_latency_families[i], &s.latency[i], "glmctl_", "", &out);
        add_histogram(&glm_latency_families[i], &s.latency[i], "vllm:", buf_text(&label), &out);
    }
    buf_release(&label);
    return http_answer(x, 200, type, &out);
}
