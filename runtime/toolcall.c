/* SPDX-License-Identifier: Apache-2.0 */
/* The block of a tool call: which of its markup tokens are structure, whether it is a call at all,
 * and its three spellings (the layout's own, function tags, JSON) → names and arguments.
 * Values are typed in toolcall_value.c. */
#include "runtime/toolcall.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *const glm_mark_text[GLM_N_MARKS] = {
    [GLM_MARK_CALL] = "<tool_call>",  [GLM_MARK_CALL_END] = "</tool_call>",
    [GLM_MARK_KEY] = "<arg_key>",     [GLM_MARK_KEY_END] = "</arg_key>",
    [GLM_MARK_VALUE] = "<arg_value>", [GLM_MARK_VALUE_END] = "</arg_value>",
};

enum { DECIDE_BYTES = 512, MAX_NAME_BYTES = 64 };

/* ---- The block while it arrives ---- */

void glm_block_release(struct glm_block *b)
{
    buf_release(&b->text);
    free(b->marks);
    *b = (struct glm_block){0};
}

static void add_mark(struct glm_block *b, enum glm_mark_kind kind, bool structural)
{
    if (b->n_marks == b->capacity) {
        size_t capacity = b->capacity * 2 + 16;
        struct glm_mark *marks = realloc(b->marks, capacity * sizeof *marks);
        if (marks == NULL) {
            b->failed = true;
            return;
        }
        b->marks = marks;
        b->capacity = capacity;
    }
    size_t start = b->text.len;
    buf_str(&b->text, glm_mark_text[kind]);
    b->failed = b->failed || b->text.failed;
    b->marks[b->n_marks++] = (struct glm_mark){
        .kind = kind, .structural = structural, .start = start, .end = b->text.len};
}

void glm_block_open(struct glm_block *b)
{
    b->failed = b->failed || b->text.failed;
    buf_clear(&b->text);
    b->n_marks = 0;
    b->state = GLM_BLOCK_BETWEEN;
    add_mark(b, GLM_MARK_CALL, true);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Letters of names and keys: any script's, since tools are named in any. */
static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == ':' || c == '-' || (unsigned char)c >= 0x80;
}

static void trim(const char **text, size_t *len)
{
    while (*len > 0 && is_space((*text)[*len - 1]))
        (*len)--;
    while (*len > 0 && is_space(**text)) {
        (*text)++;
        (*len)--;
    }
}

static bool is_word_only(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!is_word(text[i]))
            return false;
    return len > 0;
}

/* The text between the last mark and here, which is only looked at behind a value's end. */
static bool only_space_since_mark(const struct glm_block *b)
{
    const char *text = buf_text(&b->text) + b->marks[b->n_marks - 1].end;
    size_t len = b->text.len - b->marks[b->n_marks - 1].end;
    trim(&text, &len);
    return len == 0;
}

/* Behind a value's end token: does a mark of this kind confirm it? A key's end counts when only the
 * key's opening token is missing. */
static bool confirms_value_end(const struct glm_block *b, enum glm_mark_kind kind)
{
    if (kind == GLM_MARK_KEY || kind == GLM_MARK_CALL_END || kind == GLM_MARK_CALL)
        return only_space_since_mark(b);
    if (kind != GLM_MARK_KEY_END)
        return false;
    const char *text = buf_text(&b->text) + b->marks[b->n_marks - 1].end;
    size_t len = b->text.len - b->marks[b->n_marks - 1].end;
    trim(&text, &len);
    return is_word_only(text, len);
}

bool glm_block_may_open(const struct glm_block *b)
{
    return b->state == GLM_BLOCK_BETWEEN ||
           (b->state == GLM_BLOCK_VALUE_CLOSED && confirms_value_end(b, GLM_MARK_CALL));
}

void glm_block_mark(struct glm_block *b, enum glm_mark_kind kind)
{
    if (b->failed)
        return;
    if (b->state == GLM_BLOCK_VALUE_CLOSED && kind != GLM_MARK_VALUE_END) {
        bool confirmed = confirms_value_end(b, kind);
        b->marks[b->n_marks - 1].structural = confirmed;
        b->state = confirmed ? GLM_BLOCK_BETWEEN : GLM_BLOCK_VALUE;
    }
    if (b->state == GLM_BLOCK_BETWEEN) {
        add_mark(b, kind, true);
        if (kind == GLM_MARK_VALUE)
            b->state = GLM_BLOCK_VALUE;
        if (kind == GLM_MARK_CALL_END)
            b->state = GLM_BLOCK_ENDED;
        return;
    }
    add_mark(b, kind, false);
    if (kind == GLM_MARK_VALUE_END)
        b->state = GLM_BLOCK_VALUE_CLOSED;
}

void glm_block_close(struct glm_block *b)
{
    if (b->state == GLM_BLOCK_BETWEEN || b->state == GLM_BLOCK_VALUE_CLOSED)
        glm_block_mark(b, GLM_MARK_CALL_END);
}

/* Text that starts at text, up to the first mark behind the opener (next; GLM_N_MARKS: none yet).
 */
static enum glm_verdict decide(const char *text, size_t len, enum glm_mark_kind next)
{
    static const char function[] = "<function=";
    const char *end = text + len;
    enum glm_verdict more = next == GLM_N_MARKS ? GLM_UNDECIDED : GLM_IS_TEXT;
    bool closes = next == GLM_MARK_KEY || next == GLM_MARK_CALL_END;
    while (text < end && is_space(*text))
        text++;
    if (text == end)
        return more;
    if (*text == '{' || *text == '[')
        return GLM_IS_CALL;
    size_t left = (size_t)(end - text), n = sizeof function - 1;
    if (memcmp(text, function, left < n ? left : n) == 0)
        return left >= n ? GLM_IS_CALL : more;
    const char *name = text;
    while (text < end && is_word(*text))
        text++;
    if (text == name)
        return GLM_IS_TEXT;
    while (text < end && is_space(*text))
        text++;
    if (text == end)
        return closes ? GLM_IS_CALL : more;
    /* name, space, key: only with the key's end token next */
    while (text < end && is_word(*text))
        text++;
    if (text != end)
        return GLM_IS_TEXT;
    return next == GLM_MARK_KEY_END ? GLM_IS_CALL : more;
}

enum glm_verdict glm_block_decide(const struct glm_block *b)
{
    if (b->failed) /* perhaps without the opener's mark */
        return GLM_IS_TEXT;
    size_t start = b->marks[0].end, end = b->text.len;
    enum glm_mark_kind next = GLM_N_MARKS;
    if (b->n_marks > 1) {
        next = b->marks[1].kind;
        end = b->marks[1].start;
    }
    enum glm_verdict verdict = decide(buf_text(&b->text) + start, end - start, next);
    return verdict == GLM_UNDECIDED && end - start > DECIDE_BYTES ? GLM_IS_TEXT : verdict;
}

/* ---- Names and argument lists ---- */

void glm_calls_release(struct glm_calls *c)
{
    for (size_t i = 0; i < c->n; i++) {
        free(c->items[i].name);
        free(c->items[i].arguments);
    }
    free(c->items);
    *c = (struct glm_calls){0};
}

static const struct glm_json *function_of(const struct glm_json *tool)
{
    const struct glm_json *function = glm_json_get(tool, "function");
    return function != NULL && function->type == GLM_JSON_OBJECT ? function : tool;
}

/* The offered tool of that name, exactly or else without regard to case; NULL: none. */
static const struct glm_json *offered_tool(const struct glm_json *tools, const char *name,
                                           size_t len)
{
    const struct glm_json *alike = NULL;
    if (tools == NULL || tools->type != GLM_JSON_ARRAY)
        return NULL;
    for (const struct glm_json *tool = tools->first; tool != NULL; tool = tool->next) {
        const struct glm_json *offered = glm_json_get(function_of(tool), "name");
        if (offered == NULL || offered->type != GLM_JSON_STRING || offered->len != len)
            continue;
        if (memcmp(offered->text, name, len) == 0)
            return function_of(tool);
        if (alike == NULL && strncasecmp(offered->text, name, len) == 0)
            alike = function_of(tool);
    }
    return alike;
}

static bool may_go_out_unoffered(const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)name[i] >= 0x80 || name[i] == '.' || name[i] == ':' || !is_word(name[i]))
            return false;
    return len > 0 && len <= MAX_NAME_BYTES;
}

static bool is_finite(const struct glm_json *v)
{
    if (v->type == GLM_JSON_NUMBER)
        return isfinite(strtod(v->text, NULL));
    for (const struct glm_json *child = v->first; child != NULL; child = child->next)
        if (!is_finite(child))
            return false;
    return true;
}

/* A call under construction: its name resolved, its arguments as pairs of spans. */
struct argument {
    const char *key;
    size_t key_len;
    size_t value_start, value_len; /* in values */
};
struct builder {
    const struct glm_json *tools, *tool; /* tool NULL: not offered */
    const char *name;
    size_t name_len;
    struct argument *arguments;
    size_t n, capacity;
    struct buf values;
};

static void builder_release(struct builder *b)
{
    free(b->arguments);
    buf_release(&b->values);
}

static bool set_name(struct builder *b, const char *name, size_t len, bool only_offered)
{
    trim(&name, &len);
    b->tool = offered_tool(b->tools, name, len);
    const struct glm_json *offered = glm_json_get(b->tool, "name");
    b->name = offered != NULL ? offered->text : name;
    b->name_len = len;
    return b->tool != NULL || (!only_offered && may_go_out_unoffered(name, len));
}

static bool add_argument(struct builder *b, const char *key, size_t key_len, const char *value,
                         size_t value_len)
{
    trim(&key, &key_len);
    if (key_len == 0)
        return false;
    const struct glm_json *parameters = glm_json_get(b->tool, "parameters");
    const struct glm_json *schema = NULL, *properties = glm_json_get(parameters, "properties");
    for (const struct glm_json *v = properties == NULL ? NULL : properties->first; v != NULL;
         v = v->next)
        if (v->key != NULL && v->key_len == key_len && memcmp(v->key, key, key_len) == 0)
            schema = v;
    struct argument argument = {.key = key, .key_len = key_len, .value_start = b->values.len};
    glm_call_type_value(parameters, schema, value, value_len, &b->values);
    argument.value_len = b->values.len - argument.value_start;
    for (size_t i = 0; i < b->n; i++)
        if (b->arguments[i].key_len == key_len && memcmp(b->arguments[i].key, key, key_len) == 0) {
            b->arguments[i] = argument;
            return true;
        }
    if (b->n == b->capacity) {
        size_t capacity = b->capacity * 2 + 8;
        struct argument *grown = realloc(b->arguments, capacity * sizeof *grown);
        if (grown == NULL)
            return false;
        b->arguments = grown;
        b->capacity = capacity;
    }
    b->arguments[b->n++] = argument;
    return true;
}

/* Takes the arguments' text. */
static bool add_call(struct glm_calls *calls, const char *name, size_t name_len,
                     struct buf *arguments)
{
    struct glm_call call = {.name = strndup(name, name_len),
                            .arguments = arguments->data,
                            .arguments_len = arguments->len};
    bool ok = call.name != NULL && call.arguments != NULL && !arguments->failed;
    if (ok && calls->n == calls->capacity) {
        size_t capacity = calls->capacity * 2 + 4;
        struct glm_call *items = realloc(calls->items, capacity * sizeof *items);
        if (items != NULL) {
            calls->items = items;
            calls->capacity = capacity;
        }
        ok = items != NULL;
    }
    *arguments = (struct buf){0};
    if (ok) {
        calls->items[calls->n++] = call;
    } else {
        free(call.name);
        free(call.arguments);
    }
    return ok;
}

static bool arguments_are_finite(const struct buf *arguments)
{
    struct arena arena;
    arena_init(&arena, arguments->len * 64 + 65536);
    struct glm_json *v = NULL;
    bool ok = glm_json_parse(buf_text(arguments), arguments->len, &arena, &v, NULL) == GLM_OK &&
              is_finite(v);
    arena_release(&arena);
    return ok;
}

static bool builder_finish(struct builder *b, struct glm_calls *calls)
{
    struct buf text = {0};
    buf_char(&text, '{');
    for (size_t i = 0; i < b->n; i++) {
        if (i > 0)
            buf_char(&text, ',');
        glm_json_print_string(b->arguments[i].key, b->arguments[i].key_len, &text);
        buf_char(&text, ':');
        buf_add(&text, b->values.data + b->arguments[i].value_start, b->arguments[i].value_len);
    }
    buf_char(&text, '}');
    if (b->values.failed || text.failed || (b->tool == NULL && !arguments_are_finite(&text))) {
        buf_release(&text);
        return false;
    }
    return add_call(calls, b->name, b->name_len, &text);
}

/* ---- The three spellings ---- */

/* Walks the structural marks: NAME (<arg_key> K </arg_key> <arg_value> V </arg_value>)*. */
struct walk {
    const struct glm_block *block;
    size_t mark_i; /* the mark the text read last ended at */
};

/* Text from the current mark's end to the next structural mark, which becomes the current one. */
static enum glm_mark_kind next_text(struct walk *w, const char **text, size_t *len)
{
    size_t start = w->block->marks[w->mark_i].end;
    do
        w->mark_i++;
    while (w->mark_i < w->block->n_marks && !w->block->marks[w->mark_i].structural);
    bool more = w->mark_i < w->block->n_marks;
    size_t end = more ? w->block->marks[w->mark_i].start : w->block->text.len;
    *text = w->block->text.data + start;
    *len = end - start;
    return more ? w->block->marks[w->mark_i].kind : GLM_N_MARKS;
}

static bool is_blank(const char *text, size_t len)
{
    trim(&text, &len);
    return len == 0;
}

static bool parse_layout(const struct glm_block *block, bool only_offered, struct builder *b)
{
    struct walk w = {.block = block};
    const char *text = NULL, *key = NULL, *value = NULL;
    size_t len = 0, key_len = 0, value_len = 0;
    enum glm_mark_kind kind = next_text(&w, &text, &len);
    size_t name_len = len;
    if (kind == GLM_MARK_KEY_END) { /* NAME KEY </arg_key>: the key's opening token is missing */
        trim(&text, &len);
        name_len = 0;
        while (name_len < len && is_word(text[name_len]))
            name_len++;
    }
    if (!set_name(b, text, name_len, only_offered))
        return false;
    text += name_len;
    len -= name_len;
    while (kind != GLM_MARK_CALL_END) {
        if (kind == GLM_MARK_KEY) {
            kind = next_text(&w, &key, &key_len);
        } else {
            key = text;
            key_len = len;
        }
        if (kind != GLM_MARK_KEY_END || next_text(&w, &text, &len) != GLM_MARK_VALUE ||
            !is_blank(text, len) || next_text(&w, &value, &value_len) != GLM_MARK_VALUE_END ||
            !add_argument(b, key, key_len, value, value_len))
            return false;
        kind = next_text(&w, &text, &len);
        if (kind != GLM_MARK_KEY_END && !is_blank(text, len))
            return false;
    }
    return true;
}

static bool skip_text(const char **at, const char *end, const char *what)
{
    size_t n = strlen(what);
    if ((size_t)(end - *at) < n || memcmp(*at, what, n) != 0)
        return false;
    *at += n;
    return true;
}

static void skip_space(const char **at, const char *end)
{
    while (*at < end && is_space(**at))
        (*at)++;
}

/* The end of a parameter's value: the end tag that another tag of this spelling follows. */
static const char *parameter_end(const char *at, const char *end)
{
    static const char tag[] = "</parameter>";
    for (;;) {
        const char *found = memmem(at, (size_t)(end - at), tag, sizeof tag - 1);
        if (found == NULL)
            return NULL;
        const char *after = found + sizeof tag - 1, *p = after;
        skip_space(&p, end);
        if (skip_text(&p, end, "<parameter=") || skip_text(&p, end, "</function>"))
            return found;
        at = after;
    }
}

/* <function=NAME><parameter=K>V</parameter>…</function>, V between one newline a side. */
static bool parse_tags(const char *at, const char *end, bool only_offered, struct builder *b)
{
    const char *close;
    if (!skip_text(&at, end, "<function=") ||
        (close = memchr(at, '>', (size_t)(end - at))) == NULL ||
        !set_name(b, at, (size_t)(close - at), only_offered))
        return false;
    at = close + 1;
    for (;;) {
        skip_space(&at, end);
        if (skip_text(&at, end, "</function>"))
            break;
        if (!skip_text(&at, end, "<parameter=") ||
            (close = memchr(at, '>', (size_t)(end - at))) == NULL)
            return false;
        const char *key = at, *value = close + 1, *stop = parameter_end(value, end);
        if (stop == NULL)
            return false;
        const char *value_end = stop;
        if (value < value_end && *value == '\n')
            value++;
        if (value < value_end && value_end[-1] == '\n')
            value_end--;
        if (!add_argument(b, key, (size_t)(close - key), value, (size_t)(value_end - value)))
            return false;
        at = stop;
        skip_text(&at, end, "</parameter>");
    }
    skip_space(&at, end);
    return at == end;
}

static const struct glm_json *json_arguments(const struct glm_json *call)
{
    static const char *const keys[] = {"arguments", "args", "parameters"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const struct glm_json *v = glm_json_get(call, keys[i]);
        if (v != NULL)
            return v;
    }
    return NULL;
}

static bool add_json_call(const struct glm_json *call, const struct glm_json *tools,
                          bool only_offered, struct arena *arena, struct glm_calls *calls)
{
    static const struct glm_json empty = {.type = GLM_JSON_OBJECT};
    struct builder b = {.tools = tools};
    call = function_of(call);
    const struct glm_json *name = glm_json_get(call, "name");
    const struct glm_json *arguments = json_arguments(call);
    if (name == NULL || name->type != GLM_JSON_STRING ||
        !set_name(&b, name->text, name->len, only_offered))
        return false;
    struct glm_json *parsed = NULL;
    if (arguments == NULL || arguments->type == GLM_JSON_NULL) {
        arguments = &empty;
    } else if (arguments->type == GLM_JSON_STRING) {
        if (glm_json_parse(arguments->text, arguments->len, arena, &parsed, NULL) != GLM_OK)
            return false;
        arguments = parsed;
    }
    if (arguments->type != GLM_JSON_OBJECT || (b.tool == NULL && !is_finite(arguments)))
        return false;
    struct buf text = {0};
    glm_json_print(arguments, true, &text);
    return add_call(calls, b.name, b.name_len, &text);
}

/* Drops the calls added since there were n. */
static bool back_to(struct glm_calls *calls, size_t n)
{
    while (calls->n > n) {
        calls->n--;
        free(calls->items[calls->n].name);
        free(calls->items[calls->n].arguments);
    }
    return false;
}

/* One call, or a list of them. */
static bool parse_json(const char *text, size_t len, const struct glm_json *tools,
                       bool only_offered, struct glm_calls *calls)
{
    struct arena arena;
    arena_init(&arena, len * 128 + 65536);
    struct glm_json *v = NULL;
    size_t n = calls->n;
    bool ok = glm_json_parse(text, len, &arena, &v, NULL) == GLM_OK;
    if (ok && v->type == GLM_JSON_ARRAY) {
        ok = v->n_children > 0;
        for (const struct glm_json *call = v->first; ok && call != NULL; call = call->next)
            ok = add_json_call(call, tools, only_offered, &arena, calls);
    } else if (ok) {
        ok = add_json_call(v, tools, only_offered, &arena, calls);
    }
    arena_release(&arena);
    return ok || back_to(calls, n);
}

bool glm_block_parse(const struct glm_block *block, const struct glm_json *tools, bool only_offered,
                     struct glm_calls *calls)
{
    if (block->failed || block->state != GLM_BLOCK_ENDED)
        return false;
    const char *text = block->text.data + block->marks[0].end;
    const char *end = block->text.data + block->marks[block->n_marks - 1].start;
    skip_space(&text, end);
    if (text < end && (*text == '{' || *text == '['))
        return parse_json(text, (size_t)(end - text), tools, only_offered, calls);
    struct builder b = {.tools = tools};
    const char *at = text;
    bool ok = skip_text(&at, end, "<function=") ? parse_tags(text, end, only_offered, &b)
                                                : parse_layout(block, only_offered, &b);
    ok = ok && builder_finish(&b, calls);
    builder_release(&b);
    return ok;
}

/* ---- Bare JSON ---- */

bool glm_calls_parse_bare(const char *text, size_t len, const struct glm_json *tools,
                          struct glm_calls *calls)
{
    return parse_json(text, len, tools, true, calls);
}

/* A JSON string without escapes from *at. GLM_IS_CALL: read; undecided: it has no end yet. */
static enum glm_verdict read_string(const char **at, const char *end, const char **text,
                                    size_t *len)
{
    skip_space(at, end);
    if (*at == end)
        return GLM_UNDECIDED;
    if (**at != '"')
        return GLM_IS_TEXT;
    const char *close = memchr(*at + 1, '"', (size_t)(end - *at) - 1);
    if (close == NULL)
        return end - *at > DECIDE_BYTES ? GLM_IS_TEXT : GLM_UNDECIDED;
    *text = *at + 1;
    *len = (size_t)(close - *text);
    *at = close + 1;
    return GLM_IS_CALL;
}

enum glm_verdict glm_calls_decide_bare(const char *text, size_t len, const struct glm_json *tools)
{
    static const char *const keys[] = {"name",      "function", "type",
                                       "arguments", "args",     "parameters"};
    const char *at = text, *end = text + len, *word = NULL;
    size_t word_len = 0;
    skip_space(&at, end);
    if (at < end && *at == '[')
        at++;
    skip_space(&at, end);
    if (at == end)
        return GLM_UNDECIDED;
    if (*at++ != '{')
        return GLM_IS_TEXT;
    enum glm_verdict verdict = read_string(&at, end, &word, &word_len);
    if (verdict != GLM_IS_CALL)
        return verdict;
    size_t key = 0, n_keys = sizeof keys / sizeof keys[0];
    while (key < n_keys &&
           (strlen(keys[key]) != word_len || memcmp(keys[key], word, word_len) != 0))
        key++;
    if (key == n_keys)
        return GLM_IS_TEXT;
    if (key > 0)
        return GLM_IS_CALL;
    skip_space(&at, end);
    if (at < end && *at != ':')
        return GLM_IS_TEXT;
    at += at < end;
    verdict = read_string(&at, end, &word, &word_len);
    if (verdict == GLM_IS_CALL && offered_tool(tools, word, word_len) == NULL)
        return GLM_IS_TEXT;
    return verdict;
}
