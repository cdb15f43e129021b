/* SPDX-License-Identifier: Apache-2.0 */
/* A completion from request body to last byte: fields, prompt ids, the scheduler's request, and the
 * reply as one JSON object or as server-sent events (docs/api.md). The two
 * routes differ in how a prompt becomes ids and in the shape of a piece of reply. */
#include "runtime/clock.h"
#include "runtime/http_exchange.h"
#include "runtime/http_fields.h"
#include "spec/base/digest.h"

#include <openssl/sha.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum { TAKE_IDS = 64, STREAM_BLOCK_BYTES = 16 << 10, ID_BYTES = 40 };

struct generation {
    struct http_exchange *exchange;
    enum http_route_kind kind;
    struct http_fields fields;
    struct glm_ids prompt;
    bool in_reasoning;
    struct glm_request *request;
    struct glm_reply *reply;

    uint32_t n_reply, n_calls;
    bool over;
    enum glm_finish finish;
    bool stop_matched;
    struct glm_error error;
    struct glm_request_times times; /* once over */

    struct buf reasoning, content, calls; /* not streamed: what the message will hold */
    struct buf ids;                       /* "1,2,3" when asked for */
    struct buf out;                       /* streamed: events not yet sent */
    size_t n_sent;
    bool ended; /* the last event is in `out` */
    _Atomic uint64_t last_write_ms;
    _Atomic uint64_t keepalive_ms; /* silence after which a comment is due; 0: not now */
    atomic_bool client_gone;

    char id[ID_BYTES];
    int64_t created;
};

static void random_id(const char *prefix, char out[ID_BYTES])
{
    unsigned char bytes[12];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        GLM_BUG("no random bytes"); /* so few always come at once */
    char hex[2 * sizeof bytes + 1];
    glm_hex(bytes, sizeof bytes, hex);
    snprintf(out, ID_BYTES, "%.12s%s", prefix, hex);
}

static const char *served_name(const struct generation *g)
{
    return http_launch(g->exchange)->served_name;
}

/* ---- JSON of a reply ---- */

static const char *finish_reason(const struct generation *g)
{
    if (g->n_calls > 0)
        return "tool_calls";
    return g->finish == GLM_FINISH_LENGTH ? "length" : "stop";
}

static void add_usage(const struct generation *g, struct buf *out)
{
    buf_printf(out,
               "\"usage\":{\"prompt_tokens\":%zu,\"completion_tokens\":%u,\"total_tokens\":%zu,"
               "\"prompt_tokens_details\":{\"cached_tokens\":0},"
               "\"completion_tokens_details\":{\"reasoning_tokens\":%u}}",
               g->prompt.n, g->n_reply, g->prompt.n + g->n_reply,
               glm_reply_reasoning_tokens(g->reply));
}

/* Our vendor block, and the timings that dashboards read from llama.cpp's servers. */
static void add_timings(const struct generation *g, struct buf *out)
{
    const struct glm_request_times t = g->times;
    double prefill = t.first > t.admitted ? t.first - t.admitted : 0;
    double decode = t.last > t.first ? t.last - t.first : 0;
    buf_printf(out, "\"glmctl\":{\"queue_s\":%.6f,\"prefill_s\":%.6f,\"decode_s\":%.6f",
               t.admitted > t.arrived ? t.admitted - t.arrived : 0, prefill, decode);
    if (g->fields.return_token_ids)
        buf_printf(out, ",\"token_ids\":[%s]", buf_text(&g->ids));
    buf_printf(out,
               "},\"timings\":{\"cache_n\":0,\"prompt_n\":%zu,\"prompt_ms\":%.3f,\"prompt_per_"
               "second\":%.3f,"
               "\"predicted_n\":%u,\"predicted_ms\":%.3f,\"predicted_per_second\":%.3f}",
               g->prompt.n, 1e3 * prefill, prefill > 0 ? (double)g->prompt.n / prefill : 0,
               g->n_reply, 1e3 * decode, decode > 0 ? (double)(g->n_reply - 1) / decode : 0);
}

static void add_stop_sequence(const struct generation *g, struct buf *out)
{
    const char *stop = g->stop_matched ? glm_reply_stop(g->reply) : NULL;
    if (stop == NULL)
        return;
    buf_str(out, ",\"stop_sequence\":");
    buf_json_string(out, stop, strlen(stop));
}

static void add_head(const struct generation *g, const char *object, struct buf *out)
{
    buf_printf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", g->id, object,
               (long long)g->created);
    buf_json_string(out, served_name(g), strlen(served_name(g)));
}

static void add_call(const struct generation *g, const struct glm_reply_event *e, bool with_index,
                     struct buf *out)
{
    char id[ID_BYTES];
    random_id("call_", id);
    buf_char(out, '{');
    if (with_index)
        buf_printf(out, "\"index\":%u,", g->n_calls);
    buf_printf(out, "\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":", id);
    buf_json_string(out, e->name, strlen(e->name));
    buf_str(out, ",\"arguments\":");
    buf_json_string(out, e->arguments, e->arguments_len);
    buf_str(out, "}}");
}

static void add_message(const struct generation *g, struct buf *out)
{
    buf_str(out, "\"message\":{\"role\":\"assistant\",\"content\":");
    if (g->content.len == 0 && g->n_calls > 0)
        buf_str(out, "null");
    else
        buf_json_string(out, buf_text(&g->content), g->content.len);
    if (g->reasoning.len > 0) {
        buf_str(out, ",\"reasoning_content\":");
        buf_json_string(out, buf_text(&g->reasoning), g->reasoning.len);
    }
    if (g->n_calls > 0)
        buf_printf(out, ",\"tool_calls\":[%s]", buf_text(&g->calls));
    buf_char(out, '}');
}

static void whole_reply(const struct generation *g, struct buf *out)
{
    const bool chat = g->kind == HTTP_CHAT;
    add_head(g, chat ? "chat.completion" : "text_completion", out);
    buf_str(out, ",\"choices\":[{\"index\":0,");
    if (chat) {
        add_message(g, out);
    } else {
        buf_str(out, "\"text\":");
        buf_json_string(out, buf_text(&g->content), g->content.len);
    }
    buf_printf(out, ",\"logprobs\":null,\"finish_reason\":\"%s\"}],", finish_reason(g));
    add_usage(g, out);
    add_stop_sequence(g, out);
    buf_char(out, ',');
    add_timings(g, out);
    buf_char(out, '}');
}

/* ---- server-sent events ---- */

static void begin_event(struct generation *g)
{
    buf_str(&g->out, "data: ");
    add_head(g, g->kind == HTTP_CHAT ? "chat.completion.chunk" : "text_completion", &g->out);
}

static void end_event(struct generation *g)
{
    if (g->fields.include_usage)
        buf_str(&g->out, ",\"usage\":null");
    buf_str(&g->out, "}\n\n");
}

/* A piece of text under a delta key ("content"), or of a completion (key "text"). */
static void text_event(struct generation *g, const char *key, const char *text, size_t len)
{
    const bool chat = g->kind == HTTP_CHAT;
    begin_event(g);
    buf_printf(&g->out, ",\"choices\":[{\"index\":0,%s\"%s\":", chat ? "\"delta\":{" : "", key);
    buf_json_string(&g->out, text, len);
    buf_printf(&g->out, "%s,\"logprobs\":null,\"finish_reason\":null}]", chat ? "}" : "");
    end_event(g);
}

static void call_event(struct generation *g, const struct glm_reply_event *e)
{
    begin_event(g);
    buf_str(&g->out, ",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[");
    add_call(g, e, true, &g->out);
    buf_str(&g->out, "]},\"logprobs\":null,\"finish_reason\":null}]");
    end_event(g);
}

static void last_events(struct generation *g)
{
    begin_event(g);
    buf_printf(&g->out,
               ",\"choices\":[{\"index\":0,%s,\"logprobs\":null,\"finish_reason\":\"%s\"}]",
               g->kind == HTTP_CHAT ? "\"delta\":{}" : "\"text\":\"\"", finish_reason(g));
    add_stop_sequence(g, &g->out);
    buf_char(&g->out, ',');
    add_timings(g, &g->out);
    if (g->fields.include_usage) {
        end_event(g);
        begin_event(g);
        buf_str(&g->out, ",\"choices\":[],");
    } else {
        buf_char(&g->out, ',');
    }
    add_usage(g, &g->out);
    buf_str(&g->out, "}\n\ndata: [DONE]\n\n");
    g->ended = true;
}

static void error_event(struct generation *g)
{
    const struct http_error e = http_failure(&g->error);
    buf_str(&g->out, "data: ");
    http_error_object(e.type, e.code, NULL, e.message, &g->out);
    buf_str(&g->out, "\n\ndata: [DONE]\n\n");
    g->ended = true;
}

/* ---- from ids to pieces ---- */

static void on_piece(void *context, const struct glm_reply_event *e)
{
    struct generation *g = context;
    const bool stream = g->fields.stream;
    switch (e->kind) {
    case GLM_REPLY_REASONING:
        if (stream)
            text_event(g, "reasoning_content", e->text, e->len);
        else
            buf_add(&g->reasoning, e->text, e->len);
        return;
    case GLM_REPLY_CONTENT:
        if (e->repeats_reasoning) /* an answer inside a block that never closed */
            buf_clear(&g->reasoning);
        if (stream)
            text_event(g, g->kind == HTTP_CHAT ? "content" : "text", e->text, e->len);
        else
            buf_add(&g->content, e->text, e->len);
        return;
    case GLM_REPLY_TOOL_CALL:
        if (g->n_calls > 0 && !g->fields.parallel_tool_calls)
            return;
        if (stream) {
            call_event(g, e);
        } else {
            buf_str(&g->calls, g->n_calls > 0 ? "," : "");
            add_call(g, e, false, &g->calls);
        }
        g->n_calls++;
        return;
    }
}

static void feed(struct generation *g, const int32_t *ids, uint32_t n, bool last_is_end)
{
    for (uint32_t i = 0; i < n && !g->stop_matched; i++) {
        g->n_reply++;
        if (g->fields.return_token_ids)
            buf_printf(&g->ids, "%s%d", g->ids.len > 0 ? "," : "", ids[i]);
        if (i + 1 == n && last_is_end)
            return;
        g->stop_matched = glm_reply_feed(g->reply, ids[i], on_piece, g);
    }
}

static bool out_of_memory(const struct generation *g)
{
    return glm_reply_failed(g->reply) || g->reasoning.failed || g->content.failed ||
           g->calls.failed || g->ids.failed;
}

/* Takes what the mailbox holds. Sets `over` once the reply is. */
static void pump(struct generation *g)
{
    int32_t ids[TAKE_IDS];
    while (!g->over) {
        enum glm_finish finish;
        uint32_t n = glm_request_take(g->request, ids, TAKE_IDS, &finish, &g->error);
        feed(g, ids, n, finish == GLM_FINISH_END_ID);
        if (g->stop_matched) {
            glm_request_stop(g->request);
            finish = GLM_FINISH_STOPPED;
        }
        g->over = finish != GLM_FINISH_NONE;
        g->finish = finish;
        if (n == 0 || g->over)
            break;
    }
    if (!g->over)
        return;
    if ((g->finish == GLM_FINISH_END_ID || g->finish == GLM_FINISH_LENGTH) &&
        glm_reply_finish(g->reply, g->finish == GLM_FINISH_END_ID, on_piece, g)) {
        g->stop_matched = true;
        g->finish = GLM_FINISH_STOPPED;
    }
    if (out_of_memory(g) && g->finish != GLM_FINISH_CANCELED) {
        g->finish = GLM_FINISH_FAILED;
        glm_fail(&g->error, GLM_ENOMEM, "the reply does not fit in memory");
    }
    g->times = glm_request_times(g->request);
}

/* A comment is due only while nothing else was written: the watcher's word may be old. */
static bool keepalive_due(struct generation *g)
{
    const uint64_t after_ms = atomic_exchange(&g->keepalive_ms, 0);
    return after_ms > 0 && glm_now_ms() - atomic_load(&g->last_write_ms) >= after_ms;
}

static ssize_t read_stream(void *context, uint64_t position, char *bytes, size_t max)
{
    struct generation *g = context;
    (void)position;
    for (;;) {
        if (atomic_load(&g->client_gone) || g->out.failed)
            return MHD_CONTENT_READER_END_WITH_ERROR;
        size_t n = g->out.len - g->n_sent;
        if (n > 0) {
            n = n < max ? n : max;
            memcpy(bytes, g->out.data + g->n_sent, n);
            g->n_sent += n;
            if (g->n_sent == g->out.len) {
                buf_clear(&g->out);
                g->n_sent = 0;
            }
            atomic_store(&g->last_write_ms, glm_now_ms());
            return (ssize_t)n;
        }
        if (g->ended)
            return MHD_CONTENT_READER_END_OF_STREAM;
        pump(g);
        if (g->over && g->finish == GLM_FINISH_FAILED)
            error_event(g);
        else if (g->over && g->finish == GLM_FINISH_CANCELED)
            return MHD_CONTENT_READER_END_WITH_ERROR;
        else if (g->over)
            last_events(g);
        else if (g->out.len == 0 && keepalive_due(g))
            buf_str(&g->out, ": keepalive\n\n");
        else if (g->out.len == 0 && http_sleep(g->exchange))
            return 0;
    }
}

static enum MHD_Result start_stream(struct generation *g)
{
    if (g->kind == HTTP_CHAT) {
        begin_event(g);
        buf_str(&g->out,
                ",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                "\"logprobs\":null,\"finish_reason\":null}]");
        end_event(g);
    }
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, STREAM_BLOCK_BYTES, read_stream, g, NULL);
    if (response == NULL)
        return MHD_NO;
    MHD_add_response_header(response, "Content-Type", "text/event-stream");
    MHD_add_response_header(response, "Cache-Control", "no-cache");
    MHD_add_response_header(response, "Connection", "close");
    http_add_headers(response);
    g->exchange->status = 200;
    enum MHD_Result result = MHD_queue_response(g->exchange->connection, 200, response);
    MHD_destroy_response(response);
    return result;
}

enum MHD_Result generation_continue(struct http_exchange *x)
{
    struct generation *g = x->generation;
    for (;;) {
        if (atomic_load(&g->client_gone))
            return MHD_NO;
        pump(g);
        if (g->over)
            break;
        /* Once suspended the connection must not be touched: it may run again at any moment. */
        if (http_sleep(x))
            return MHD_YES;
    }
    if (g->finish == GLM_FINISH_CANCELED)
        return MHD_NO;
    if (g->finish == GLM_FINISH_FAILED)
        return http_answer_failure(x, &g->error);
    struct buf body = {0};
    whole_reply(g, &body);
    return http_answer(x, 200, "application/json", &body);
}

/* ---- from body to request ---- */

static void on_notify(void *context)
{
    struct generation *g = context;
    http_wake(g->exchange);
}

/* Default seed: the first 8 bytes, little endian, of SHA-256 over the ids joined by commas, "|" and
 * salt 0, masked to 63 bits, so that the same request has the same reply.
 */
static uint64_t prompt_seed(const struct glm_ids *ids)
{
    struct buf text = {0};
    for (size_t i = 0; i < ids->n; i++)
        buf_printf(&text, "%s%d", i > 0 ? "," : "", ids->ids[i]);
    buf_str(&text, "|0");
    unsigned char digest[SHA256_DIGEST_LENGTH];
    SHA256((const unsigned char *)buf_text(&text), text.len, digest);
    buf_release(&text);
    uint64_t seed = 0;
    for (size_t i = 0; i < 8; i++)
        seed |= (uint64_t)digest[i] << (8 * i);
    return seed & INT64_MAX;
}

static const char *prompt_field(const struct generation *g)
{
    return g->kind == HTTP_CHAT ? "messages" : "prompt";
}

static enum MHD_Result answer_no_memory(struct http_exchange *x)
{
    struct glm_error err = {0};
    glm_fail(&err, GLM_ENOMEM, "out of memory while reading the prompt");
    return http_answer_failure(x, &err);
}

/* What a prompt and its reply can hold. */
static uint64_t window_of(const struct http_exchange *x)
{
    const struct glm_plan_limits *l = &http_plan(x)->limits;
    return l->window_tokens < l->pool_tokens ? l->window_tokens : l->pool_tokens;
}

static enum MHD_Result answer_too_long(struct generation *g, const char *n_prompt,
                                       bool shorter_reply)
{
    const int64_t asked = g->fields.max_tokens;
    char message[400], reply[80] = "";
    if (asked > 0)
        snprintf(reply, sizeof reply, " and the reply was asked to have up to %lld",
                 (long long)asked);
    snprintf(message, sizeof message,
             "this model's maximum context length is %llu tokens: the prompt has %s%s. Shorten the "
             "prompt%s",
             (unsigned long long)window_of(g->exchange), n_prompt, reply,
             shorter_reply ? " or lower max_tokens" : "");
    return http_answer_invalid(g->exchange, prompt_field(g), "context_length_exceeded", message);
}

/* Settles the reply's length against the window. True: *max_tokens is set. */
static bool settle_length(struct generation *g, uint32_t *max_tokens, enum MHD_Result *answer)
{
    const uint64_t window = window_of(g->exchange);
    const uint64_t left = g->prompt.n < window ? window - g->prompt.n : 0;
    const int64_t asked = g->fields.max_tokens;
    const uint64_t wanted = asked > 0 ? (uint64_t)asked : http_launch(g->exchange)->max_tokens;
    if (g->prompt.n == 0) {
        *answer = http_answer_invalid(g->exchange, prompt_field(g), NULL, "the prompt is empty");
        return false;
    }
    if (left == 0 || (asked > 0 && wanted > left)) {
        char n_prompt[32];
        snprintf(n_prompt, sizeof n_prompt, "%zu", g->prompt.n);
        *answer = answer_too_long(g, n_prompt, left > 0);
        return false;
    }
    *max_tokens = (uint32_t)(wanted < left ? wanted : left);
    return true;
}

/* Ids of the prompt's text. One that cannot fit, however long its tokens are, is refused before
 * minutes of tokenizing. False: *answer has been given. */
static bool encode_prompt(struct generation *g, const char *text, size_t len,
                          enum MHD_Result *answer)
{
    struct http_exchange *x = g->exchange;
    const size_t least = len / x->longest_token_bytes;
    if (least > window_of(x)) {
        char n_prompt[48];
        snprintf(n_prompt, sizeof n_prompt, "at least %zu", least);
        *answer = answer_too_long(g, n_prompt, false);
        return false;
    }
    if (glm_tokenizer_encode(x->tokenizer, text, len, true, &g->prompt) == GLM_OK)
        return true;
    *answer = answer_no_memory(x);
    return false;
}

static enum MHD_Result submit(struct generation *g)
{
    struct http_exchange *x = g->exchange;
    const struct http_fields *f = &g->fields;
    struct glm_error err = {0};
    enum MHD_Result answer = MHD_NO;
    uint32_t max_tokens;
    if (!settle_length(g, &max_tokens, &answer))
        return answer;
    struct glm_reply_options reply = {
        .in_reasoning = g->in_reasoning,
        .tools = f->tools,
        .parse_calls = f->tools != NULL && !glm_json_is_string(f->tool_choice, "none"),
        .raw = g->kind == HTTP_COMPLETION,
        .stops = f->stops,
        .n_stops = f->n_stops,
    };
    enum glm_status status = glm_reply_new(x->tokenizer, &reply, &g->reply, &err);
    if (status == GLM_EINVAL)
        return http_answer_invalid(x, "stop", NULL, err.message);
    if (status != GLM_OK)
        return http_answer_failure(x, &err);
    struct glm_request_params params = {
        .ids = g->prompt.ids,
        .n_ids = (uint32_t)g->prompt.n,
        .max_tokens = max_tokens,
        .min_tokens = (uint32_t)(f->min_tokens < max_tokens ? f->min_tokens : max_tokens),
        .ignore_end = f->ignore_end,
        .seed = f->has_seed ? (uint64_t)f->seed : prompt_seed(&g->prompt),
        .temperature = f->temperature > 0 ? (float)f->temperature : 0.0f,
        .top_p = (float)f->top_p,
        .min_p = (float)f->min_p,
        .top_k = (int32_t)f->top_k,
        .notify = on_notify,
        .context = g,
    };
    status = glm_scheduler_submit(x->scheduler, &params, &g->request, &err);
    if (status == GLM_EINVAL)
        return http_answer_invalid(x, prompt_field(g), NULL, err.message);
    if (status != GLM_OK) {
        struct http_error e = http_failure(&err);
        e.status = 503; /* nothing was lost: the next try may find the lane restarted */
        e.header = "Retry-After";
        e.header_value = "5";
        return http_answer_error(x, &e);
    }
    atomic_store(&g->last_write_ms, glm_now_ms());
    http_client_watch(x->client, x);
    return f->stream ? start_stream(g) : generation_continue(x);
}

/* NULL: *answer has been given. */
static struct generation *new_generation(struct http_exchange *x, enum http_route_kind kind,
                                         enum MHD_Result *answer)
{
    struct glm_json *body;
    struct http_field_error error;
    if (!http_parse_body(x, &body, answer))
        return NULL;
    struct generation *g = calloc(1, sizeof *g);
    if (g == NULL) {
        *answer = MHD_NO;
        return NULL;
    }
    g->exchange = x;
    g->kind = kind;
    g->created = (int64_t)time(NULL);
    random_id(kind == HTTP_CHAT ? "chatcmpl-" : "cmpl-", g->id);
    http_fields_init(&g->fields, http_launch(x)->thinking, http_launch(x)->effort);
    if (http_fields_read(body, kind, &x->arena, &g->fields, &error)) {
        x->generation = g;
        return g;
    }
    *answer = http_answer_invalid(x, error.field, error.code, error.message);
    generation_free(g);
    return NULL;
}

/* The reply starts inside the think block when the last think tag after the last assistant token
 * opens one; decided on ids. */
static bool starts_in_reasoning(const struct glm_tokenizer *t, const struct glm_ids *ids)
{
    const int32_t open = glm_tokenizer_added(t, "<think>"),
                  close = glm_tokenizer_added(t, "</think>"),
                  assistant = glm_tokenizer_added(t, "<|assistant|>");
    for (size_t i = ids->n; i > 0 && ids->ids[i - 1] != assistant; i--) {
        if (ids->ids[i - 1] == open)
            return true;
        if (ids->ids[i - 1] == close)
            return false;
    }
    return false;
}

static enum MHD_Result finish_setup(struct http_exchange *x, struct generation *g,
                                    enum MHD_Result answer)
{
    /* A refused request has no scheduler request and keeps no generation. */
    if (g->request == NULL) {
        x->generation = NULL;
        generation_free(g);
    }
    return answer;
}

enum MHD_Result http_chat_completions(struct http_exchange *x)
{
    enum MHD_Result answer;
    struct generation *g = new_generation(x, HTTP_CHAT, &answer);
    if (g == NULL)
        return answer;
    struct glm_error err = {0};
    struct buf text = {0};
    const enum glm_status status = http_fields_render(&g->fields, true, &text, &err);
    if (status == GLM_EINVAL) {
        answer = http_answer_invalid(x, "messages", NULL, err.message);
    } else if (status != GLM_OK) {
        answer = answer_no_memory(x);
    } else if (encode_prompt(g, buf_text(&text), text.len, &answer)) {
        g->in_reasoning = starts_in_reasoning(x->tokenizer, &g->prompt);
        answer = submit(g);
    }
    buf_release(&text);
    return finish_setup(x, g, answer);
}

static enum glm_status read_ids(const struct glm_json *prompt, uint32_t d_vocab,
                                struct glm_ids *ids, struct glm_error *err)
{
    for (const struct glm_json *id = prompt->first; id != NULL; id = id->next) {
        char *end = NULL;
        const long value = id->type == GLM_JSON_NUMBER ? strtol(id->text, &end, 10) : -1;
        if (value < 0 || value >= (long)d_vocab || end != id->text + id->len)
            return glm_fail(err, GLM_EINVAL, "entry %zu of 'prompt' is not a token id below %u",
                            ids->n, d_vocab);
        if (!glm_ids_add(ids, (int32_t)value))
            return GLM_ENOMEM;
    }
    return GLM_OK;
}

/* A string, an array of ids, or an array that holds one of either. False: *answer was given. */
static bool read_prompt(struct generation *g, enum MHD_Result *answer)
{
    struct http_exchange *x = g->exchange;
    const struct glm_json *prompt = g->fields.prompt;
    struct glm_error err = {0};
    enum glm_status status = GLM_OK;
    if (prompt->type == GLM_JSON_ARRAY && prompt->first != NULL &&
        (prompt->first->type == GLM_JSON_STRING || prompt->first->type == GLM_JSON_ARRAY)) {
        if (prompt->n_children > 1)
            status = glm_fail(&err, GLM_EINVAL, "'prompt' holds %zu prompts: send one a request",
                              prompt->n_children);
        prompt = prompt->first;
    }
    if (status == GLM_OK && prompt->type == GLM_JSON_STRING)
        return encode_prompt(g, prompt->text, prompt->len, answer);
    if (status == GLM_OK && prompt->type == GLM_JSON_ARRAY)
        status = read_ids(prompt, http_plan(x)->d_vocab, &g->prompt, &err);
    else if (status == GLM_OK)
        status = glm_fail(&err, GLM_EINVAL, "'prompt' must be a string or an array of token ids");
    if (status == GLM_EINVAL)
        *answer = http_answer_invalid(x, "prompt", NULL, err.message);
    else if (status != GLM_OK)
        *answer = answer_no_memory(x);
    return status == GLM_OK;
}

enum MHD_Result http_completions(struct http_exchange *x)
{
    enum MHD_Result answer;
    struct generation *g = new_generation(x, HTTP_COMPLETION, &answer);
    if (g == NULL)
        return answer;
    if (read_prompt(g, &answer))
        answer = submit(g);
    return finish_setup(x, g, answer);
}

/* ---- from the watcher's thread and the connection's end ---- */

void generation_client_gone(struct generation *g)
{
    atomic_store(&g->client_gone, true);
    glm_request_cancel(g->request);
    http_wake(g->exchange);
}

void generation_tick(struct http_exchange *x, uint64_t now_ms, uint32_t keepalive_ms)
{
    struct generation *g = x->generation;
    const uint64_t written_ms = atomic_load(&g->last_write_ms);
    if (!g->fields.stream || now_ms < written_ms + keepalive_ms)
        return;
    atomic_store(&g->keepalive_ms, keepalive_ms);
    http_wake(x);
}

void generation_log(const struct generation *g, struct buf *line)
{
    const struct glm_request_times t =
        g->request == NULL ? g->times : glm_request_times(g->request);
    buf_printf(line, " prompt=%zu cached=0 completion=%u", g->prompt.n, g->n_reply);
    if (t.admitted > 0)
        buf_printf(line, " queue_ms=%.1f", 1e3 * (t.admitted - t.arrived));
    if (t.first > 0)
        buf_printf(line, " ttft_ms=%.1f", 1e3 * (t.first - t.arrived));
    if (t.last > t.first && g->n_reply > 1)
        buf_printf(line, " decode_tok_s=%.1f", (double)(g->n_reply - 1) / (t.last - t.first));
    const char *finish = g->finish == GLM_FINISH_FAILED ? "error" : finish_reason(g);
    buf_printf(line, " finish=%s", g->over && g->finish != GLM_FINISH_CANCELED ? finish : "left");
}

void generation_free(struct generation *g)
{
    if (g == NULL)
        return;
    if (g->request != NULL && !g->over)
        glm_request_cancel(g->request);
    glm_request_release(g->request);
    glm_reply_free(g->reply);
    glm_ids_release(&g->prompt);
    buf_release(&g->reasoning);
    buf_release(&g->content);
    buf_release(&g->calls);
    buf_release(&g->ids);
    buf_release(&g->out);
    free(g);
}
