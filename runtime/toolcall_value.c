/* SPDX-License-Identifier: Apache-2.0 */
/* The value of one argument, typed by the tool's schema (docs/model.md 11). The
 * layout writes strings as they are and everything else as JSON, so the schema must say which of
 * the two a value like 123 was. */
#include "runtime/toolcall.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    T_STRING = 1,
    T_INTEGER = 2,
    T_NUMBER = 4,
    T_BOOLEAN = 8,
    T_NULL = 16,
    T_ARRAY = 32,
    T_OBJECT = 64,
    MAX_SCHEMA_DEPTH = 8,
    MAX_SCHEMA_VISITS = 1024, /* references can multiply what a schema says at each level */
};

static const struct {
    const char *name;
    unsigned types;
} type_names[] = {
    {"string", T_STRING},   {"integer", T_INTEGER}, {"number", T_NUMBER | T_INTEGER},
    {"boolean", T_BOOLEAN}, {"null", T_NULL},       {"array", T_ARRAY},
    {"object", T_OBJECT},
};

static bool is_integral(const struct glm_json *v)
{
    return strpbrk(v->text, ".eE") == NULL;
}

static unsigned type_of(const struct glm_json *v)
{
    switch (v->type) {
    case GLM_JSON_NULL:
        return T_NULL;
    case GLM_JSON_BOOL:
        return T_BOOLEAN;
    case GLM_JSON_NUMBER:
        return is_integral(v) ? T_INTEGER : T_NUMBER;
    case GLM_JSON_STRING:
        return T_STRING;
    case GLM_JSON_ARRAY:
        return T_ARRAY;
    case GLM_JSON_OBJECT:
        return T_OBJECT;
    }
    return 0;
}

static unsigned named_type(const struct glm_json *name)
{
    for (size_t i = 0; i < sizeof type_names / sizeof type_names[0]; i++)
        if (glm_json_is_string(name, type_names[i].name))
            return type_names[i].types;
    return 0;
}

/* "#/$defs/NAME" and the like; escapes (~0, ~1) are not worth following. */
static const struct glm_json *follow_reference(const struct glm_json *root,
                                               const struct glm_json *reference)
{
    if (reference == NULL || reference->type != GLM_JSON_STRING || reference->text[0] != '#')
        return NULL;
    const struct glm_json *at = root;
    for (const char *p = reference->text + 1; *p == '/' && at != NULL;) {
        size_t n = strcspn(p + 1, "/");
        char key[128];
        if (n >= sizeof key)
            return NULL;
        memcpy(key, p + 1, n);
        key[n] = '\0';
        at = glm_json_get(at, key);
        p += n + 1;
    }
    return at;
}

/* The set of types a schema allows; 0: it does not say, or not within *visits. */
static unsigned schema_types(const struct glm_json *root, const struct glm_json *schema, int depth,
                             unsigned *visits)
{
    if (schema == NULL || schema->type != GLM_JSON_OBJECT || depth > MAX_SCHEMA_DEPTH ||
        *visits == 0)
        return 0;
    (*visits)--;
    unsigned types = 0;
    const struct glm_json *type = glm_json_get(schema, "type");
    if (type != NULL && type->type == GLM_JSON_STRING)
        types = named_type(type);
    if (type != NULL && type->type == GLM_JSON_ARRAY)
        for (const struct glm_json *v = type->first; v != NULL; v = v->next)
            types |= named_type(v);
    if (types == 0)
        types = schema_types(root, follow_reference(root, glm_json_get(schema, "$ref")), depth + 1,
                             visits);
    static const char *const unions[] = {"anyOf", "oneOf", "allOf"};
    for (size_t i = 0; i < 3 && types == 0; i++) {
        const struct glm_json *list = glm_json_get(schema, unions[i]);
        if (list != NULL && list->type == GLM_JSON_ARRAY)
            for (const struct glm_json *v = list->first; v != NULL && *visits > 0; v = v->next)
                types |= schema_types(root, v, depth + 1, visits);
    }
    const struct glm_json *constant = glm_json_get(schema, "const");
    const struct glm_json *choices = glm_json_get(schema, "enum");
    if (types == 0 && constant != NULL)
        types = type_of(constant);
    if (types == 0 && choices != NULL && choices->type == GLM_JSON_ARRAY)
        for (const struct glm_json *v = choices->first; v != NULL; v = v->next)
            types |= type_of(v);
    if (types == 0 && glm_json_get(schema, "properties") != NULL)
        types = T_OBJECT;
    if (types == 0 && glm_json_get(schema, "items") != NULL)
        types = T_ARRAY;
    return types;
}

/* 5.0 and 1e3, but not 5.5, where the type is integer. */
static bool is_whole_float(const struct glm_json *v)
{
    if (v->type != GLM_JSON_NUMBER || is_integral(v))
        return false;
    double value = strtod(v->text, NULL);
    return fabs(value) < 9007199254740992.0 && value == floor(value);
}

static void print_value(const struct glm_json *v, unsigned types, struct buf *out)
{
    if ((types & (T_INTEGER | T_NUMBER)) == T_INTEGER && is_whole_float(v))
        buf_printf(out, "%.0f", strtod(v->text, NULL));
    else
        glm_json_print(v, true, out);
}

/* Text that lacks one closing bracket, with that bracket. False: it lacks none, or more. */
static bool close_bracket(const char *text, size_t len, struct buf *out)
{
    char open[GLM_JSON_MAX_DEPTH + 1];
    size_t depth = 0, missing_at = len, n_missing = 0;
    char missing = 0;
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (depth == sizeof open)
                return false;
            open[depth++] = c == '{' ? '}' : ']';
        } else if (c == '}' || c == ']') {
            if (depth > 1 && open[depth - 1] != c && open[depth - 2] == c) {
                missing = open[--depth];
                missing_at = i;
                n_missing++;
            }
            if (depth == 0 || open[depth - 1] != c)
                return false;
            depth--;
        }
    }
    if (depth == 1 && !in_string) {
        missing = open[0];
        missing_at = len;
        n_missing++;
    }
    if (n_missing != 1 || depth > 1)
        return false;
    buf_add(out, text, missing_at);
    buf_char(out, missing);
    buf_add(out, text + missing_at, len - missing_at);
    return true;
}

static const struct glm_json *parse(const char *text, size_t len, struct arena *arena)
{
    struct glm_json *v = NULL;
    return glm_json_parse(text, len, arena, &v, NULL) == GLM_OK ? v : NULL;
}

/* The value that a text without a string type stands for, or NULL: it is no JSON. */
static const struct glm_json *read_value(const char *text, size_t len, unsigned types,
                                         struct arena *arena)
{
    const struct glm_json *v = parse(text, len, arena);
    struct buf closed = {0};
    if (v == NULL && (types == 0 || (types & (T_ARRAY | T_OBJECT)) != 0) &&
        close_bracket(text, len, &closed))
        v = parse(buf_text(&closed), closed.len, arena);
    buf_release(&closed);
    if (v == NULL || types == 0 || v->type != GLM_JSON_STRING)
        return v;
    /* A quoted number, boolean, list or object where the type asks for one. */
    const struct glm_json *inner = parse(v->text, v->len, arena);
    bool fits = inner != NULL && ((type_of(inner) & types) != 0 || is_whole_float(inner));
    return fits ? inner : v;
}

void glm_call_type_value(const struct glm_json *parameters, const struct glm_json *schema,
                         const char *text, size_t len, struct buf *out)
{
    unsigned visits = MAX_SCHEMA_VISITS;
    unsigned types = schema_types(parameters, schema, 0, &visits);
    if (types == T_STRING) {
        glm_json_print_string(text, len, out);
        return;
    }
    struct arena arena;
    arena_init(&arena, len * 128 + 65536);
    const struct glm_json *v;
    if ((types & T_STRING) != 0) {
        /* Text, unless it is exactly one of the other types allowed: "123" stays text beside null.
         */
        v = parse(text, len, &arena);
        if (v != NULL && (v->type == GLM_JSON_STRING || (type_of(v) & types) == 0))
            v = NULL;
    } else {
        v = read_value(text, len, types, &arena);
    }
    if (v != NULL)
        print_value(v, types, out);
    else
        glm_json_print_string(text, len, out);
    arena_release(&arena);
}
