/* SPDX-License-Identifier: Apache-2.0 */
/* Renders a conversation as the released GLM chat template does (docs/model.md 10), byte for
 * byte. What requests have that the template does not know (further efforts, developer messages) is
 * mapped by the HTTP routes before it comes here. */
#include "runtime/chat.h"

#include "runtime/unicode.h"
#include "spec/base/log.h"

#include <stdlib.h>
#include <string.h>

/* Bytes printed and members looked at for references to tools, in one conversation. */
enum { MAX_REFERENCE_WORK = 16 << 20 };

struct text {
    const char *bytes;
    size_t len;
};

/* One result of a run of tool messages. */
struct result {
    const struct glm_json *id; /* NULL: none */
    const struct glm_json *content;
    bool left_out;
};

struct renderer {
    const struct glm_chat_options *o;
    struct buf *out;
    struct glm_error *err;
    struct arena arena; /* parsed arguments and lists of one run */
    struct buf scratch;
    const struct glm_json *calls; /* of the assistant turn directly before; NULL: none */
    bool *rendered;               /* [calls->n_children], false: left out */
    size_t last_user;             /* index + 1; 0: none */
    size_t message_i;
    size_t n_left_out;
    size_t reference_work;
};

/* Python's truth of a value that json.loads made; absent is false. */
static bool is_truthy(const struct glm_json *v)
{
    if (v == NULL)
        return false;
    switch (v->type) {
    case GLM_JSON_NULL:
        return false;
    case GLM_JSON_BOOL:
        return v->boolean;
    case GLM_JSON_NUMBER:
        return strtod(v->text, NULL) != 0;
    case GLM_JSON_STRING:
        return v->len > 0;
    case GLM_JSON_ARRAY:
    case GLM_JSON_OBJECT:
        return v->n_children > 0;
    }
    return false;
}

static bool is_null(const struct glm_json *v)
{
    return v == NULL || v->type == GLM_JSON_NULL;
}

static bool is_type(const struct glm_json *v, enum glm_json_type type)
{
    return v != NULL && v->type == type;
}

static void render_effort(const struct renderer *r)
{
    const struct glm_json *sent = glm_json_get(r->o->kwargs, "reasoning_effort");
    const char *effort = r->o->effort;
    if (effort == NULL && is_type(sent, GLM_JSON_STRING))
        effort = sent->text;
    const char *line = "Max";
    if (effort != NULL && strcmp(effort, "low") == 0)
        line = "Low";
    else if (effort != NULL && strcmp(effort, "high") == 0)
        line = "High";
    buf_str(r->out, "<|system|>Reasoning Effort: ");
    buf_str(r->out, line);
}

/* ---- Tools ---- */

static const struct glm_json *function_of(const struct glm_json *tool)
{
    const struct glm_json *function = glm_json_get(tool, "function");
    return is_type(function, GLM_JSON_OBJECT) ? function : tool;
}

/* One tool without the two keys that are meant for the server. */
static void render_tool(const struct renderer *r, const struct glm_json *function)
{
    const char *separator = "{";
    for (const struct glm_json *v = function->first; v != NULL; v = v->next) {
        if ((v->key_len == 6 && memcmp(v->key, "strict", 6) == 0) ||
            (v->key_len == 13 && memcmp(v->key, "defer_loading", 13) == 0))
            continue;
        buf_str(r->out, separator);
        glm_json_print_string(v->key, v->key_len, r->out);
        buf_str(r->out, ": ");
        glm_json_print(v, false, r->out);
        separator = ", ";
    }
    buf_str(r->out, *separator == '{' ? "{}\n" : "}\n");
}

static enum glm_status render_tools(const struct renderer *r)
{
    const struct glm_json *tools = r->o->tools;
    if (is_null(tools))
        return GLM_OK;
    if (tools->type != GLM_JSON_ARRAY)
        return glm_fail(r->err, GLM_EINVAL, "'tools' is not an array");
    if (tools->n_children == 0)
        return GLM_OK;
    buf_str(r->out, "<|system|>\n# Tools\n\n"
                    "You may call one or more functions to assist with the user query.\n\n"
                    "You are provided with function signatures within <tools></tools> XML tags:\n"
                    "<tools>\n");
    size_t i = 0;
    for (const struct glm_json *tool = tools->first; tool != NULL; tool = tool->next, i++) {
        if (tool->type != GLM_JSON_OBJECT)
            return glm_fail(r->err, GLM_EINVAL, "'tools[%zu]' is not an object", i);
        const struct glm_json *function = function_of(tool);
        if (!is_truthy(glm_json_get(function, "defer_loading")))
            render_tool(r, function);
    }
    buf_str(r->out,
            "</tools>\n\nFor each function call, output the function name and arguments within the "
            "following XML format:\n<tool_call>{function-name}<arg_key>{arg-key-1}</arg_key>"
            "<arg_value>{arg-value-1}</arg_value><arg_key>{arg-key-2}</arg_key>"
            "<arg_value>{arg-value-2}</arg_value>...</tool_call>");
    return GLM_OK;
}

/* ---- Content ---- */

/* Kinds of parts other than text; the template knows no further ones and drops them. */
static const struct {
    const char *type, *markers;
} media[] = {
    {"image", "<|begin_of_image|><|image|><|end_of_image|>"},
    {"image_url", "<|begin_of_image|><|image|><|end_of_image|>"},
    {"video", "<|begin_of_video|><|video|><|end_of_video|>"},
    {"video_url", "<|begin_of_video|><|video|><|end_of_video|>"},
    {"audio", "<|begin_of_audio|><|end_of_audio|>"},
    {"audio_url", "<|begin_of_audio|><|end_of_audio|>"},
    {"input_audio", "<|begin_of_audio|><|end_of_audio|>"},
};

static void add_part(const struct glm_json *part, struct buf *out)
{
    if (part->type == GLM_JSON_STRING) {
        buf_add(out, part->text, part->len);
        return;
    }
    const struct glm_json *type = glm_json_get(part, "type");
    const struct glm_json *text = glm_json_get(part, "text");
    if (glm_json_is_string(type, "text") && is_type(text, GLM_JSON_STRING))
        buf_add(out, text->text, text->len);
    for (size_t i = 0; i < sizeof media / sizeof media[0]; i++)
        if (glm_json_is_string(type, media[i].type))
            buf_str(out, media[i].markers);
}

/* The visible text of a message's content, into out. */
static enum glm_status add_content(const struct renderer *r, const struct glm_json *content,
                                   struct buf *out)
{
    if (is_null(content))
        return GLM_OK;
    if (content->type == GLM_JSON_STRING) {
        buf_add(out, content->text, content->len);
        return GLM_OK;
    }
    if (content->type != GLM_JSON_ARRAY)
        return glm_fail(r->err, GLM_EINVAL,
                        "'messages[%zu].content' is neither a string nor an array of parts",
                        r->message_i);
    for (const struct glm_json *part = content->first; part != NULL; part = part->next)
        add_part(part, out);
    return GLM_OK;
}

/* ---- Assistant turns ---- */

static struct text find(struct text in, const char *what, bool last)
{
    struct text found = {0};
    size_t n = strlen(what);
    for (struct text rest = in; rest.len >= n;) {
        const char *at = memmem(rest.bytes, rest.len, what, n);
        if (at == NULL)
            break;
        found = (struct text){at, n};
        if (!last)
            break;
        rest = (struct text){at + n, in.len - (size_t)(at + n - in.bytes)};
    }
    return found;
}

/* Reasoning is what stands before the first </think>, after the last <think> in that; the answer
 * what stands after the last </think>. */
static void split_content(struct text content, struct text *reasoning, struct text *answer)
{
    struct text first = find(content, "</think>", false);
    *answer = content;
    if (first.bytes == NULL)
        return;
    struct text last = find(content, "</think>", true);
    *answer = (struct text){last.bytes + last.len,
                            content.len - (size_t)(last.bytes + last.len - content.bytes)};
    *reasoning = (struct text){content.bytes, (size_t)(first.bytes - content.bytes)};
    struct text open = find(*reasoning, "<think>", true);
    if (open.bytes != NULL)
        *reasoning =
            (struct text){open.bytes + open.len, (size_t)(first.bytes - (open.bytes + open.len))};
}

static const struct glm_json *calls_of(const struct glm_json *message)
{
    const struct glm_json *calls = glm_json_get(message, "tool_calls");
    return is_type(calls, GLM_JSON_ARRAY) ? calls : NULL;
}

/* A call's arguments as an object: parsed when they are text. NULL: there is none. Absent, null and
 * "" are an empty object. */
static const struct glm_json *arguments_of(struct renderer *r, const struct glm_json *call)
{
    static const struct glm_json empty = {.type = GLM_JSON_OBJECT};
    if (!is_type(glm_json_get(function_of(call), "name"), GLM_JSON_STRING))
        return NULL;
    const struct glm_json *arguments = glm_json_get(function_of(call), "arguments");
    if (is_null(arguments) || glm_json_is_string(arguments, ""))
        return &empty;
    if (arguments->type == GLM_JSON_STRING) {
        struct glm_json *parsed = NULL;
        if (glm_json_parse(arguments->text, arguments->len, &r->arena, &parsed, NULL) != GLM_OK)
            return NULL;
        arguments = parsed;
    }
    return arguments->type == GLM_JSON_OBJECT ? arguments : NULL;
}

static void render_call(const struct renderer *r, const struct glm_json *call,
                        const struct glm_json *arguments)
{
    const struct glm_json *name = glm_json_get(function_of(call), "name");
    buf_str(r->out, "<tool_call>");
    buf_add(r->out, name->text, name->len);
    for (const struct glm_json *v = arguments->first; v != NULL; v = v->next) {
        buf_str(r->out, "<arg_key>");
        buf_add(r->out, v->key, v->key_len);
        buf_str(r->out, "</arg_key><arg_value>");
        if (v->type == GLM_JSON_STRING)
            buf_add(r->out, v->text, v->len);
        else
            glm_json_print(v, false, r->out);
        buf_str(r->out, "</arg_value>");
    }
    buf_str(r->out, "</tool_call>");
}

static enum glm_status render_calls(struct renderer *r, const struct glm_json *calls)
{
    r->calls = calls;
    r->rendered = ARENA_ARRAY(&r->arena, calls->n_children + 1, bool);
    if (r->rendered == NULL)
        return glm_fail(r->err, GLM_ENOMEM, "cannot render the conversation: out of memory");
    size_t i = 0;
    for (const struct glm_json *v = calls->first; v != NULL; v = v->next, i++) {
        const struct glm_json *arguments = arguments_of(r, v);
        r->rendered[i] = arguments != NULL;
        if (arguments != NULL)
            render_call(r, v, arguments);
        else
            r->n_left_out++;
    }
    return GLM_OK;
}

static enum glm_status render_assistant(struct renderer *r, const struct glm_json *message)
{
    r->calls = NULL;
    buf_clear(&r->scratch);
    enum glm_status status = add_content(r, glm_json_get(message, "content"), &r->scratch);
    if (status != GLM_OK)
        return status;
    struct text content = {buf_text(&r->scratch), r->scratch.len};
    struct text reasoning = {0}, answer = content;
    const struct glm_json *sent = glm_json_get(message, "reasoning_content");
    if (!is_type(sent, GLM_JSON_STRING))
        sent = glm_json_get(message, "reasoning");
    if (is_type(sent, GLM_JSON_STRING))
        reasoning = (struct text){sent->text, sent->len};
    else
        split_content(content, &reasoning, &answer);
    bool cleared =
        is_truthy(glm_json_get(r->o->kwargs, "clear_thinking")) && r->message_i + 1 < r->last_user;
    buf_str(r->out, "<|assistant|><think>");
    if (!cleared)
        buf_add(r->out, reasoning.bytes, reasoning.len);
    buf_str(r->out, "</think>");
    glm_python_strip(&answer.bytes, &answer.len);
    buf_add(r->out, answer.bytes, answer.len);
    const struct glm_json *calls = calls_of(message);
    return calls == NULL ? GLM_OK : render_calls(r, calls);
}

/* ---- Tool results ---- */

/* Compared as text: 2 and "2" are the same id. NULL and "" are none. */
static bool same_id(const struct glm_json *a, const struct glm_json *b)
{
    return a != NULL && b != NULL && a->len == b->len && memcmp(a->text, b->text, a->len) == 0;
}

static const struct glm_json *id_of(const struct glm_json *v, const char *key)
{
    const struct glm_json *id = glm_json_get(v, key);
    bool text = is_type(id, GLM_JSON_STRING) || is_type(id, GLM_JSON_NUMBER);
    return text && id->len > 0 ? id : NULL;
}

static const struct glm_json *result_id(const struct glm_json *v)
{
    const struct glm_json *id = id_of(v, "tool_call_id");
    return id != NULL ? id : id_of(v, "id");
}

/* A list of {"tool_call_id", "output"}: several results in one message. */
static bool holds_results(const struct glm_json *content)
{
    return is_type(content, GLM_JSON_ARRAY) && content->first != NULL &&
           glm_json_get(content->first, "output") != NULL;
}

static size_t count_results(const struct glm_json *message)
{
    const struct glm_json *content = glm_json_get(message, "content");
    return holds_results(content) ? content->n_children : 1;
}

static size_t collect_results(const struct glm_json *message, struct result *out)
{
    const struct glm_json *content = glm_json_get(message, "content");
    if (!holds_results(content)) {
        out[0] = (struct result){.id = result_id(message), .content = content};
        return 1;
    }
    size_t n = 0;
    for (const struct glm_json *v = content->first; v != NULL; v = v->next)
        out[n++] = (struct result){.id = result_id(v), .content = glm_json_get(v, "output")};
    return n;
}

struct order {
    const struct glm_json *id;
    size_t place;
};

/* A run of results and the memory to sort it in. */
struct run {
    struct result *results; /* [n] */
    size_t n;
    struct order *ids;       /* [n_calls] */
    struct result *by_place; /* [n_calls] */
    bool *taken;             /* [n_calls] */
};

static int compare_ids(const void *a, const void *b)
{
    const struct glm_json *x = ((const struct order *)a)->id, *y = ((const struct order *)b)->id;
    size_t shorter = x->len < y->len ? x->len : y->len;
    int order = memcmp(x->text, y->text, shorter);
    return order != 0 ? order : (x->len > y->len) - (x->len < y->len);
}

/* The results of calls that are not rendered: by id, or by place where a call has none. */
static void leave_out_results(const struct renderer *r, struct run *run)
{
    size_t place = 0, n_ids = 0;
    for (const struct glm_json *v = r->calls->first; v != NULL; v = v->next, place++) {
        if (r->rendered[place])
            continue;
        const struct glm_json *id = id_of(v, "id");
        if (id != NULL)
            run->ids[n_ids++] = (struct order){.id = id};
        else if (run->n == r->calls->n_children)
            run->results[place].left_out = true;
    }
    if (n_ids == 0)
        return;
    qsort(run->ids, n_ids, sizeof *run->ids, compare_ids);
    for (size_t i = 0; i < run->n; i++) {
        struct order key = {.id = run->results[i].id};
        if (key.id != NULL && bsearch(&key, run->ids, n_ids, sizeof *run->ids, compare_ids) != NULL)
            run->results[i].left_out = true;
    }
}

/* Sorts results into the order of their calls if every id, of calls and results, is there, unique
 * and known; otherwise leaves them as received. */
static void sort_results(const struct glm_json *calls, struct run *run)
{
    size_t n_calls = 0;
    for (const struct glm_json *v = calls->first; v != NULL; v = v->next, n_calls++) {
        run->ids[n_calls] = (struct order){.id = id_of(v, "id"), .place = n_calls};
        if (run->ids[n_calls].id == NULL)
            return;
    }
    qsort(run->ids, n_calls, sizeof *run->ids, compare_ids);
    for (size_t i = 1; i < n_calls; i++)
        if (same_id(run->ids[i - 1].id, run->ids[i].id))
            return;
    for (size_t i = 0; i < run->n; i++) {
        struct order key = {.id = run->results[i].id};
        const struct order *found =
            key.id == NULL ? NULL : bsearch(&key, run->ids, n_calls, sizeof *run->ids, compare_ids);
        if (found == NULL || run->taken[found->place])
            return;
        run->by_place[found->place] = run->results[i];
        run->taken[found->place] = true;
    }
    size_t at = 0;
    for (size_t i = 0; i < n_calls; i++)
        if (run->taken[i])
            run->results[at++] = run->by_place[i];
}

static bool holds_references(const struct glm_json *content)
{
    return is_type(content, GLM_JSON_ARRAY) && content->first != NULL &&
           glm_json_is_string(glm_json_get(content->first, "type"), "tool_reference");
}

/* References to tools that were deferred: prints them now. The one place where a prompt can grow,
 * or take time, by more than a factor of its request, so that has a limit. */
static enum glm_status render_references(struct renderer *r, const struct glm_json *content)
{
    const struct glm_json *tools = is_type(r->o->tools, GLM_JSON_ARRAY) ? r->o->tools : NULL;
    buf_str(r->out, "<tools>\n");
    for (const struct glm_json *v = content->first; v != NULL; v = v->next) {
        const struct glm_json *wanted = glm_json_get(v, "name");
        if (!is_type(wanted, GLM_JSON_STRING) || wanted->len == 0 || tools == NULL)
            continue;
        for (const struct glm_json *tool = tools->first; tool != NULL; tool = tool->next) {
            const struct glm_json *function = function_of(tool);
            size_t before = r->out->len;
            if (same_id(glm_json_get(function, "name"), wanted))
                render_tool(r, function);
            r->reference_work += r->out->len - before + tool->n_children + function->n_children;
            if (r->reference_work > MAX_REFERENCE_WORK)
                return glm_fail(r->err, GLM_EINVAL,
                                "'messages[%zu]' refers to more tools, or longer ones, than are "
                                "looked up (%d bytes)",
                                r->message_i, MAX_REFERENCE_WORK);
        }
    }
    buf_str(r->out, "</tools>");
    return GLM_OK;
}

static enum glm_status render_result(struct renderer *r, const struct result *result)
{
    buf_str(r->out, "<tool_response>");
    enum glm_status status = holds_references(result->content)
                                 ? render_references(r, result->content)
                                 : add_content(r, result->content, r->out);
    buf_str(r->out, "</tool_response>");
    return status;
}

static bool has_role(const struct glm_json *message, const char *role)
{
    return message != NULL && glm_json_is_string(glm_json_get(message, "role"), role);
}

/* A run of tool messages, from its first; *end is the message after it. */
static enum glm_status render_run(struct renderer *r, const struct glm_json *first,
                                  const struct glm_json **end)
{
    size_t n_messages = 0, n_calls = r->calls == NULL ? 0 : r->calls->n_children;
    struct run run = {0};
    for (*end = first; has_role(*end, "tool"); *end = (*end)->next, n_messages++)
        run.n += count_results(*end);
    run.results = ARENA_ARRAY(&r->arena, run.n, struct result);
    run.ids = ARENA_ARRAY(&r->arena, n_calls, struct order);
    run.by_place = ARENA_ARRAY(&r->arena, n_calls, struct result);
    run.taken = ARENA_ARRAY(&r->arena, n_calls, bool);
    if (run.results == NULL || run.ids == NULL || run.by_place == NULL || run.taken == NULL)
        return glm_fail(r->err, GLM_ENOMEM, "cannot render the conversation: out of memory");
    size_t at = 0;
    for (const struct glm_json *v = first; v != *end; v = v->next)
        at += collect_results(v, run.results + at);
    if (n_calls > 0) {
        leave_out_results(r, &run);
        sort_results(r->calls, &run);
    }
    bool opened = false;
    for (size_t i = 0; i < run.n; i++) {
        if (run.results[i].left_out)
            continue;
        if (!opened)
            buf_str(r->out, "<|observation|>");
        opened = true;
        enum glm_status status = render_result(r, &run.results[i]);
        if (status != GLM_OK)
            return status;
    }
    r->message_i += n_messages - 1;
    return GLM_OK;
}

/* ---- The conversation ---- */

static enum glm_status render_message(struct renderer *r, const struct glm_json *message,
                                      const struct glm_json **next)
{
    const struct glm_json *content = glm_json_get(message, "content");
    *next = message->next;
    if (message->type != GLM_JSON_OBJECT)
        return glm_fail(r->err, GLM_EINVAL, "'messages[%zu]' is not an object", r->message_i);
    if (has_role(message, "user")) {
        buf_str(r->out, "<|user|>");
        return add_content(r, content, r->out);
    }
    if (has_role(message, "system")) {
        buf_str(r->out, "<|system|>");
        return add_content(r, content, r->out);
    }
    if (has_role(message, "assistant"))
        return render_assistant(r, message);
    return has_role(message, "tool") ? render_run(r, message, next) : GLM_OK;
}

static enum glm_status render_messages(struct renderer *r, const struct glm_json *messages)
{
    size_t i = 0;
    for (const struct glm_json *v = messages->first; v != NULL; v = v->next, i++)
        if (has_role(v, "user"))
            r->last_user = i + 1;
    const struct glm_json *next = NULL;
    for (const struct glm_json *v = messages->first; v != NULL; v = next, r->message_i++) {
        enum glm_status status = render_message(r, v, &next);
        if (status != GLM_OK)
            return status;
        if (!has_role(v, "assistant"))
            r->calls = NULL;
    }
    return GLM_OK;
}

/* Parsed arguments need a few times the bytes of their text; the text is in the request. */
static size_t memory_limit(const struct glm_json *messages)
{
    size_t limit = 1 << 20;
    for (const struct glm_json *v = messages->first; v != NULL; v = v->next) {
        limit += 256 + 256 * count_results(v);
        const struct glm_json *calls = calls_of(v);
        for (const struct glm_json *call = calls == NULL ? NULL : calls->first; call != NULL;
             call = call->next) {
            const struct glm_json *arguments = glm_json_get(function_of(call), "arguments");
            limit += 512 + (is_type(arguments, GLM_JSON_STRING) ? 64 * arguments->len : 0);
        }
    }
    return limit;
}

enum glm_status glm_chat_render(const struct glm_chat_options *o, struct buf *out,
                                struct glm_error *err)
{
    if (!is_type(o->messages, GLM_JSON_ARRAY))
        return glm_fail(err, GLM_EINVAL, "'messages' is %s, want an array",
                        o->messages == NULL ? "missing" : "not an array");
    struct renderer r = {.o = o, .out = out, .err = err};
    arena_init(&r.arena, memory_limit(o->messages));
    buf_str(out, "[gMASK]<sop>");
    if (o->thinking || !o->no_effort_line)
        render_effort(&r);
    enum glm_status status = render_tools(&r);
    if (status == GLM_OK)
        status = render_messages(&r, o->messages);
    if (status == GLM_OK && o->generation_prompt)
        buf_str(out, o->thinking ? "<|assistant|><think>" : "<|assistant|><think></think>");
    if (status == GLM_OK && (out->failed || r.scratch.failed))
        status = glm_fail(err, GLM_ENOMEM, "cannot render the conversation: out of memory");
    if (r.n_left_out > 0)
        glm_log(GLM_LOG_WARN, "left past tool calls out, their arguments are no objects calls=%zu",
                r.n_left_out);
    arena_release(&r.arena);
    buf_release(&r.scratch);
    return status;
}
