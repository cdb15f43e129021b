/* SPDX-License-Identifier: Apache-2.0 */
/* One table of request fields: name, routes, kind, range, place. Numbers may come as JSON numbers
 * or numeric strings; null is the same as absent; what is not supported yet is refused by name
 * instead of ignored when ignoring it would change the reply. */
#include "runtime/http_fields.h"

#include "runtime/chat.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum field_kind {
    FIELD_NUMBER,
    FIELD_INTEGER,
    FIELD_SEED,
    FIELD_BOOL,
    FIELD_STRING,
    FIELD_EFFORT,
    FIELD_ARRAY,
    FIELD_OBJECT,
    FIELD_ANY,
    FIELD_STOP,
    FIELD_STREAM_OPTIONS,
    FIELD_TOOL_CHOICE,
    FIELD_TEXT_FORMAT,
    FIELD_MODALITIES,
    FIELD_UNSUPPORTED, /* any value but null, false, 0, 1 where given, "" or empty is refused */
};

struct field {
    const char *name;
    int routes;
    enum field_kind kind;
    size_t offset;
    double min, max;
};

enum { BOTH = HTTP_CHAT | HTTP_COMPLETION };
#define AT(member) offsetof(struct http_fields, member)

static const struct field fields[] = {
    {"model", BOTH, FIELD_STRING, AT(model), 0, 0},
    {"messages", HTTP_CHAT, FIELD_ARRAY, AT(messages), 0, 0},
    {"prompt", HTTP_COMPLETION, FIELD_ANY, AT(prompt), 0, 0},
    {"max_tokens", BOTH, FIELD_INTEGER, AT(max_tokens), 1, 1e9},
    {"max_completion_tokens", BOTH, FIELD_INTEGER, AT(max_completion_tokens), 1, 1e9},
    {"min_tokens", BOTH, FIELD_INTEGER, AT(min_tokens), 0, 1e9},
    {"temperature", BOTH, FIELD_NUMBER, AT(temperature), -1e9, 2},
    {"top_p", BOTH, FIELD_NUMBER, AT(top_p), 0, 1},
    {"top_k", BOTH, FIELD_INTEGER, AT(top_k), -1e9, 1e9},
    {"min_p", BOTH, FIELD_NUMBER, AT(min_p), 0, 1},
    {"seed", BOTH, FIELD_SEED, AT(seed), 0, 0},
    {"stop", BOTH, FIELD_STOP, AT(stop), 0, 0},
    {"ignore_eos", BOTH, FIELD_BOOL, AT(ignore_end), 0, 0},
    {"stream", BOTH, FIELD_BOOL, AT(stream), 0, 0},
    {"stream_options", BOTH, FIELD_STREAM_OPTIONS, 0, 0, 0},
    {"return_token_ids", BOTH, FIELD_BOOL, AT(return_token_ids), 0, 0},
    {"tools", HTTP_CHAT, FIELD_ARRAY, AT(tools), 0, 0},
    {"tool_choice", HTTP_CHAT, FIELD_TOOL_CHOICE, AT(tool_choice), 0, 0},
    {"parallel_tool_calls", HTTP_CHAT, FIELD_BOOL, AT(parallel_tool_calls), 0, 0},
    {"reasoning_effort", HTTP_CHAT, FIELD_EFFORT, AT(effort), 0, 0},
    {"chat_template_kwargs", HTTP_CHAT, FIELD_OBJECT, AT(kwargs), 0, 0},
    {"response_format", BOTH, FIELD_TEXT_FORMAT, 0, 0, 0},
    {"n", BOTH, FIELD_UNSUPPORTED, 0, 1, 0},
    {"best_of", HTTP_COMPLETION, FIELD_UNSUPPORTED, 0, 1, 0},
    {"echo", HTTP_COMPLETION, FIELD_UNSUPPORTED, 0, 0, 0},
    {"suffix", HTTP_COMPLETION, FIELD_UNSUPPORTED, 0, 0, 0},
    {"logprobs", BOTH, FIELD_UNSUPPORTED, 0, 0, 0},
    {"top_logprobs", HTTP_CHAT, FIELD_UNSUPPORTED, 0, 0, 0},
    {"structured_outputs", BOTH, FIELD_UNSUPPORTED, 0, 0, 0},
    {"guided_json", BOTH, FIELD_UNSUPPORTED, 0, 0, 0},
    {"guided_regex", BOTH, FIELD_UNSUPPORTED, 0, 0, 0},
    {"guided_choice", BOTH, FIELD_UNSUPPORTED, 0, 0, 0},
    {"guided_grammar", BOTH, FIELD_UNSUPPORTED, 0, 0, 0},
    {"modalities", BOTH, FIELD_MODALITIES, 0, 0, 0},
    {"thinking_budget", HTTP_CHAT, FIELD_UNSUPPORTED, 0, 0, 0},
    {"audio", HTTP_CHAT, FIELD_UNSUPPORTED, 0, 0, 0},
    {"image", HTTP_CHAT, FIELD_UNSUPPORTED, 0, 0, 0},
    {"video", HTTP_CHAT, FIELD_UNSUPPORTED, 0, 0, 0},
    /* Checked and without effect: clients send them with every request (docs/api.md says so). */
    {"presence_penalty", BOTH, FIELD_NUMBER, AT(ignored_number), -2, 2},
    {"frequency_penalty", BOTH, FIELD_NUMBER, AT(ignored_number), -2, 2},
    {"repetition_penalty", BOTH, FIELD_NUMBER, AT(ignored_number), 0, 1e9},
    {"logit_bias", BOTH, FIELD_OBJECT, AT(ignored), 0, 0},
    /* Speed or bookkeeping only, like every field that is not in this table: the reply is the same
     * without them. */
};

static bool complain(struct http_field_error *error, const char *field, const char *code,
                     const char *format, ...) __attribute__((format(printf, 4, 5)));
static bool complain(struct http_field_error *error, const char *field, const char *code,
                     const char *format, ...)
{
    va_list args;
    error->field = field;
    error->code = code;
    va_start(args, format);
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    return false;
}

static const char *type_name(const struct glm_json *v)
{
    static const char *const names[] = {
        [GLM_JSON_NULL] = "null",       [GLM_JSON_BOOL] = "a boolean",
        [GLM_JSON_NUMBER] = "a number", [GLM_JSON_STRING] = "a string",
        [GLM_JSON_ARRAY] = "an array",  [GLM_JSON_OBJECT] = "an object"};
    return names[v->type];
}

/* Text of a JSON number or of a string that is one, in the arena; NULL otherwise. */
static const char *number_text(const struct glm_json *v, struct arena *arena)
{
    if (v->type != GLM_JSON_NUMBER && v->type != GLM_JSON_STRING)
        return NULL;
    if (v->len == 0 || v->len > 64 || memchr(v->text, '\0', v->len) != NULL ||
        strspn(v->text, "+-.0123456789eE") < v->len)
        return NULL;
    return arena_strndup(arena, v->text, v->len);
}

static bool read_number(const struct field *d, const struct glm_json *v, struct arena *arena,
                        double *out, struct http_field_error *error)
{
    const char *text = number_text(v, arena);
    char *end = NULL;
    double value = text == NULL ? NAN : strtod(text, &end);
    if (text == NULL || *end != '\0' || !isfinite(value))
        return complain(error, d->name, NULL, "'%s' must be a number, got %s", d->name,
                        type_name(v));
    if (value < d->min || value > d->max)
        return complain(error, d->name, NULL, "'%s' is %s, it must lie between %g and %g", d->name,
                        text, d->min, d->max);
    *out = value;
    return true;
}

static bool read_integer(const struct field *d, const struct glm_json *v, struct arena *arena,
                         int64_t *out, struct http_field_error *error)
{
    double value = 0;
    if (!read_number(d, v, arena, &value, error))
        return false;
    if (value != floor(value))
        return complain(error, d->name, NULL, "'%s' must be a whole number, got %.*s", d->name,
                        (int)v->len, v->text);
    *out = (int64_t)value;
    return true;
}

/* 64 bits, signed or not; doubles would lose the low ones. */
static bool read_seed(const struct field *d, const struct glm_json *v, struct arena *arena,
                      struct http_fields *f, struct http_field_error *error)
{
    const char *text = number_text(v, arena);
    char *end = NULL;
    errno = 0;
    if (text != NULL)
        f->seed = text[0] == '-' ? strtoll(text, &end, 10) : (int64_t)strtoull(text, &end, 10);
    if (text == NULL || *end != '\0' || errno != 0)
        return complain(error, d->name, NULL, "'%s' must be a whole number of 64 bits", d->name);
    f->has_seed = true;
    return true;
}

static bool read_string(const struct field *d, const struct glm_json *v, struct arena *arena,
                        const char **out, struct http_field_error *error)
{
    if (v->type != GLM_JSON_STRING)
        return complain(error, d->name, NULL, "'%s' must be a string, got %s", d->name,
                        type_name(v));
    *out = arena_strndup(arena, v->text, v->len);
    return *out != NULL || complain(error, d->name, NULL, "'%s' is too large", d->name);
}

/* The table of docs/api.md, Thinking. */
static bool read_effort(const struct field *d, const struct glm_json *v, struct http_fields *f,
                        struct http_field_error *error)
{
    static const char *const table[][2] = {
        {"none", NULL},   {"minimal", "low"}, {"low", "low"}, {"medium", "high"},
        {"high", "high"}, {"xhigh", "max"},   {"max", "max"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (!glm_json_is_string(v, table[i][0]))
            continue;
        f->effort_none = table[i][1] == NULL;
        if (table[i][1] != NULL)
            f->effort = table[i][1];
        return true;
    }
    return complain(error, d->name, NULL,
                    "'%s' must be one of none, minimal, low, medium, high, xhigh, max", d->name);
}

static bool add_stop(const struct glm_json *v, struct arena *arena, struct http_fields *f,
                     struct http_field_error *error)
{
    if (v->type != GLM_JSON_STRING || v->len == 0)
        return complain(error, "stop", NULL, "'stop' must hold strings that are not empty");
    if (memchr(v->text, '\0', v->len) != NULL)
        return complain(error, "stop", NULL, "a string of 'stop' holds a NUL character");
    if (v->len > GLM_REPLY_MAX_STOP_BYTES)
        return complain(error, "stop", NULL,
                        "a string of 'stop' has %zu bytes, at most %d are allowed", v->len,
                        GLM_REPLY_MAX_STOP_BYTES);
    if (f->n_stops == GLM_REPLY_MAX_STOPS)
        return complain(error, "stop", NULL, "'stop' holds more than %d strings",
                        GLM_REPLY_MAX_STOPS);
    f->stops[f->n_stops] = arena_strndup(arena, v->text, v->len);
    return f->stops[f->n_stops++] != NULL || complain(error, "stop", NULL, "'stop' is too large");
}

static bool read_stop(const struct glm_json *v, struct arena *arena, struct http_fields *f,
                      struct http_field_error *error)
{
    f->n_stops = 0;
    if (v->type != GLM_JSON_ARRAY)
        return add_stop(v, arena, f, error);
    for (const struct glm_json *s = v->first; s != NULL; s = s->next)
        if (!add_stop(s, arena, f, error))
            return false;
    return true;
}

static bool read_bool(const char *name, const struct glm_json *v, bool *out,
                      struct http_field_error *error)
{
    if (v->type != GLM_JSON_BOOL)
        return complain(error, name, NULL, "'%s' must be true or false, got %s", name,
                        type_name(v));
    *out = v->boolean;
    return true;
}

static bool read_stream_options(const struct glm_json *v, struct http_fields *f,
                                struct http_field_error *error)
{
    if (v->type != GLM_JSON_OBJECT)
        return complain(error, "stream_options", NULL, "'stream_options' must be an object, got %s",
                        type_name(v));
    const struct glm_json *usage = glm_json_get(v, "include_usage");
    if (usage == NULL || usage->type == GLM_JSON_NULL)
        return true;
    return read_bool("stream_options.include_usage", usage, &f->include_usage, error);
}

static bool read_tool_choice(const struct glm_json *v, struct http_fields *f,
                             struct http_field_error *error)
{
    f->tool_choice = v;
    if (glm_json_is_string(v, "none") || glm_json_is_string(v, "auto"))
        return true;
    if (glm_json_is_string(v, "required") || v->type == GLM_JSON_OBJECT)
        return complain(error, "tool_choice", "unsupported_parameter",
                        "a forced 'tool_choice' is not supported yet: use \"auto\" or \"none\"");
    return complain(error, "tool_choice", NULL,
                    "'tool_choice' must be \"none\", \"auto\", \"required\" or a named function");
}

static bool read_modalities(const struct glm_json *v, struct http_field_error *error)
{
    bool text = v->type == GLM_JSON_ARRAY;
    for (const struct glm_json *m = text ? v->first : NULL; m != NULL; m = m->next)
        text = text && glm_json_is_string(m, "text");
    return text || complain(error, "modalities", "unsupported_parameter",
                            "only [\"text\"] is supported as 'modalities'");
}

static bool is_default(const struct field *d, const struct glm_json *v)
{
    switch (v->type) {
    case GLM_JSON_NULL:
        return true;
    case GLM_JSON_BOOL:
        return !v->boolean;
    case GLM_JSON_NUMBER:
        return strtod(v->text, NULL) == d->min;
    case GLM_JSON_STRING:
        return v->len == 0;
    case GLM_JSON_ARRAY:
    case GLM_JSON_OBJECT:
        return v->n_children == 0;
    }
    return false;
}

static bool read_field(const struct field *d, const struct glm_json *v, struct arena *arena,
                       struct http_fields *f, struct http_field_error *error)
{
    void *place = (char *)f + d->offset;
    switch (d->kind) {
    case FIELD_NUMBER:
        return read_number(d, v, arena, place, error);
    case FIELD_INTEGER:
        return read_integer(d, v, arena, place, error);
    case FIELD_SEED:
        return read_seed(d, v, arena, f, error);
    case FIELD_BOOL:
        return read_bool(d->name, v, place, error);
    case FIELD_STRING:
        return read_string(d, v, arena, place, error);
    case FIELD_EFFORT:
        return read_effort(d, v, f, error);
    case FIELD_ARRAY:
    case FIELD_OBJECT: {
        const enum glm_json_type wanted = d->kind == FIELD_ARRAY ? GLM_JSON_ARRAY : GLM_JSON_OBJECT;
        if (v->type != wanted)
            return complain(error, d->name, NULL, "'%s' must be %s, got %s", d->name,
                            wanted == GLM_JSON_ARRAY ? "an array" : "an object", type_name(v));
        *(const struct glm_json **)place = v;
        return true;
    }
    case FIELD_ANY:
        *(const struct glm_json **)place = v;
        return true;
    case FIELD_STOP:
        return read_stop(v, arena, f, error);
    case FIELD_STREAM_OPTIONS:
        return read_stream_options(v, f, error);
    case FIELD_TOOL_CHOICE:
        return read_tool_choice(v, f, error);
    case FIELD_TEXT_FORMAT:
        return glm_json_is_string(glm_json_get(v, "type"), "text") ||
               complain(error, d->name, "unsupported_parameter",
                        "only {\"type\": \"text\"} is supported as '%s' yet", d->name);
    case FIELD_MODALITIES:
        return read_modalities(v, error);
    case FIELD_UNSUPPORTED:
        return is_default(d, v) || complain(error, d->name, "unsupported_parameter",
                                            "'%s' is not supported yet", d->name);
    }
    return true;
}

const char *http_fields_name(size_t i)
{
    return i < sizeof fields / sizeof fields[0] ? fields[i].name : NULL;
}

void http_fields_init(struct http_fields *f, bool thinking, const char *effort)
{
    *f = (struct http_fields){
        .temperature = 1.0,
        .top_p = 0.95,
        .max_tokens = -1,
        .max_completion_tokens = -1,
        .parallel_tool_calls = true,
        .thinking = thinking,
        .effort = effort != NULL && *effort != '\0' ? effort : NULL,
    };
}

/* Tools must be objects with a named function, bare or wrapped. */
static bool check_tools(const struct http_fields *f, struct http_field_error *error)
{
    const struct glm_json *first = f->tools == NULL ? NULL : f->tools->first;
    for (const struct glm_json *t = first; t != NULL; t = t->next) {
        const struct glm_json *function = glm_json_get(t, "function");
        const struct glm_json *name = glm_json_get(function == NULL ? t : function, "name");
        if (name == NULL || name->type != GLM_JSON_STRING || name->len == 0)
            return complain(error, "tools", NULL,
                            "every entry of 'tools' needs a function with a name");
    }
    return true;
}

/* On or off (docs/api.md): an explicit switch wins, then the effort, then the default.
 */
static void settle_thinking(struct http_fields *f)
{
    if (f->effort_none)
        f->thinking = false;
    else if (f->effort != NULL)
        f->thinking = true;
    const struct glm_json *thinking = glm_json_get(f->kwargs, "thinking");
    if (thinking != NULL && thinking->type == GLM_JSON_BOOL)
        f->thinking = thinking->boolean;
    else if (glm_json_is_string(glm_json_get(thinking, "type"), "enabled"))
        f->thinking = true;
    else if (glm_json_is_string(glm_json_get(thinking, "type"), "disabled"))
        f->thinking = false;
    const struct glm_json *enable = glm_json_get(f->kwargs, "enable_thinking");
    if (enable != NULL && enable->type == GLM_JSON_BOOL)
        f->thinking = enable->boolean;
}

static bool is_media(const struct glm_json *part)
{
    static const char *const types[] = {"image_url", "image", "input_image", "video_url",
                                        "video",     "audio", "audio_url",   "input_audio"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (glm_json_is_string(glm_json_get(part, "type"), types[i]))
            return true;
    return false;
}

/* A picture cannot be answered without vision; one in a tool's result is rendered as the template's
 * marker, so that an agent's session goes on. */
static bool check_content(const struct glm_json *message, size_t i, struct http_field_error *error)
{
    const struct glm_json *content = glm_json_get(message, "content");
    if (glm_json_is_string(glm_json_get(message, "role"), "tool") || content == NULL ||
        content->type != GLM_JSON_ARRAY)
        return true;
    for (const struct glm_json *part = content->first; part != NULL; part = part->next)
        if (is_media(part))
            return complain(
                error, "messages", "unsupported_parameter",
                "messages[%zu] holds a picture, video or sound, and this lane has no vision", i);
    return true;
}

/* Roles are checked; `developer` becomes `system` before the template sees it. */
static bool settle_messages(struct glm_json *messages, struct http_field_error *error)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    size_t i = 0;
    for (struct glm_json *m = messages->first; m != NULL; m = m->next, i++) {
        struct glm_json *role = m->type == GLM_JSON_OBJECT ? m->first : NULL;
        while (role != NULL && !(role->key_len == 4 && memcmp(role->key, "role", 4) == 0))
            role = role->next;
        size_t r = 0;
        while (r < sizeof roles / sizeof roles[0] &&
               (role == NULL || !glm_json_is_string(role, roles[r])))
            r++;
        if (r == sizeof roles / sizeof roles[0])
            return complain(
                error, "messages", NULL,
                "messages[%zu] needs a role: system, developer, user, assistant or tool", i);
        if (strcmp(roles[r], "developer") == 0) {
            role->text = "system";
            role->len = strlen("system");
        }
        if (!check_content(m, i, error))
            return false;
    }
    return true;
}

bool http_fields_read(struct glm_json *body, enum http_route_kind kind, struct arena *arena,
                      struct http_fields *f, struct http_field_error *error)
{
    *error = (struct http_field_error){0};
    if (body->type != GLM_JSON_OBJECT)
        return complain(error, NULL, NULL, "the body must be a JSON object, got %s",
                        type_name(body));
    const char *default_effort = f->effort;
    f->effort = NULL;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const struct field *d = &fields[i];
        const struct glm_json *v = d->routes & (int)kind ? glm_json_get(body, d->name) : NULL;
        if (v != NULL && v->type != GLM_JSON_NULL && !read_field(d, v, arena, f, error))
            return false;
    }
    if (kind == HTTP_CHAT && (f->messages == NULL || f->messages->n_children == 0))
        return complain(error, "messages", NULL, "'messages' must be an array that is not empty");
    if (kind == HTTP_COMPLETION && f->prompt == NULL)
        return complain(error, "prompt", NULL, "'prompt' is missing");
    if (!check_tools(f, error))
        return false;
    for (struct glm_json *m = body->first; m != NULL; m = m->next)
        if (m == f->messages && !settle_messages(m, error))
            return false;
    settle_thinking(f);
    if (f->effort == NULL && glm_json_get(f->kwargs, "reasoning_effort") == NULL)
        f->effort = default_effort;
    if (f->top_k < 0)
        f->top_k = 0;
    if (f->max_completion_tokens > 0 &&
        (f->max_tokens < 0 || f->max_completion_tokens < f->max_tokens))
        f->max_tokens = f->max_completion_tokens;
    return true;
}

enum glm_status http_fields_render(const struct http_fields *f, bool generation_prompt,
                                   struct buf *out, struct glm_error *err)
{
    const struct glm_chat_options options = {
        .messages = f->messages,
        .tools = glm_json_is_string(f->tool_choice, "none") ? NULL : f->tools,
        .kwargs = f->kwargs,
        .effort = f->effort,
        .thinking = f->thinking,
        .no_effort_line = true,
        .generation_prompt = generation_prompt,
    };
    return glm_chat_render(&options, out, err);
}
