/* SPDX-License-Identifier: Apache-2.0 */
/* JSON text → tree through libyajl's callbacks, and the tree back to text as Python prints it.
 * What yajl takes too easily is checked here first: UTF-8 and surrogate escapes. Plans, manifests
 * and configurations are read by cJSON elsewhere. */
#include "runtime/json.h"

#include "runtime/unicode.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yajl/yajl_parse.h>

struct level {
    struct glm_json *container, *last;
};

struct parser {
    struct arena *arena;
    struct level levels[GLM_JSON_MAX_DEPTH];
    size_t depth;
    struct glm_json *root;
    const char *key;
    size_t key_len;
    bool too_deep, no_memory;
};

/* ---- Reading ---- */

static const char *copy_text(struct parser *p, const void *text, size_t len)
{
    char *copy = arena_alloc(p->arena, len + 1);
    if (copy == NULL)
        p->no_memory = true;
    else if (len > 0)
        memcpy(copy, text, len);
    return copy;
}

static struct glm_json *add_value(struct parser *p, enum glm_json_type type)
{
    struct glm_json *v = ARENA_NEW(p->arena, struct glm_json);
    if (v == NULL) {
        p->no_memory = true;
        return NULL;
    }
    v->type = type;
    v->key = p->key;
    v->key_len = p->key_len;
    p->key = NULL;
    p->key_len = 0;
    if (p->depth == 0) {
        p->root = v;
        return v;
    }
    struct level *level = &p->levels[p->depth - 1];
    if (level->last == NULL)
        level->container->first = v;
    else
        level->last->next = v;
    level->last = v;
    level->container->n_children++;
    return v;
}

static int add_text(struct parser *p, enum glm_json_type type, const void *text, size_t len)
{
    struct glm_json *v = add_value(p, type);
    if (v == NULL)
        return 0;
    v->text = copy_text(p, text, len);
    v->len = len;
    return v->text != NULL;
}

static int open_container(struct parser *p, enum glm_json_type type)
{
    if (p->depth == GLM_JSON_MAX_DEPTH) {
        p->too_deep = true;
        return 0;
    }
    struct glm_json *v = add_value(p, type);
    if (v == NULL)
        return 0;
    p->levels[p->depth++] = (struct level){.container = v};
    return 1;
}

static int on_null(void *context)
{
    return add_value(context, GLM_JSON_NULL) != NULL;
}

static int on_boolean(void *context, int value)
{
    struct glm_json *v = add_value(context, GLM_JSON_BOOL);
    if (v != NULL)
        v->boolean = value != 0;
    return v != NULL;
}

static int on_number(void *context, const char *text, size_t len)
{
    return add_text(context, GLM_JSON_NUMBER, text, len);
}

static int on_string(void *context, const unsigned char *text, size_t len)
{
    return add_text(context, GLM_JSON_STRING, text, len);
}

static int on_start_map(void *context)
{
    return open_container(context, GLM_JSON_OBJECT);
}

static int on_key(void *context, const unsigned char *text, size_t len)
{
    struct parser *p = context;
    p->key = copy_text(p, text, len);
    p->key_len = len;
    return p->key != NULL;
}

struct member {
    struct glm_json *value;
    size_t place;
};

static int compare_members(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    size_t shorter = x->value->key_len < y->value->key_len ? x->value->key_len : y->value->key_len;
    int order = memcmp(x->value->key, y->value->key, shorter);
    if (order != 0)
        return order;
    if (x->value->key_len != y->value->key_len)
        return x->value->key_len < y->value->key_len ? -1 : 1;
    return x->place < y->place ? -1 : 1;
}

static bool same_key(const struct glm_json *a, const struct glm_json *b)
{
    return a->key_len == b->key_len && memcmp(a->key, b->key, a->key_len) == 0;
}

/* Sorted, so that an object of a million keys does not cost a million squared. */
static int drop_repeated_keys(struct parser *p, struct glm_json *object)
{
    size_t n = object->n_children;
    struct member *members = n == 0 ? NULL : calloc(n, sizeof *members);
    if (members == NULL) {
        p->no_memory = p->no_memory || n > 0;
        return n == 0;
    }
    size_t i = 0;
    for (struct glm_json *v = object->first; v != NULL; v = v->next, i++)
        members[i] = (struct member){.value = v, .place = i};
    qsort(members, n, sizeof *members, compare_members);
    size_t n_dropped = 0;
    for (size_t start = 0, end = 0; start < n; start = end) {
        for (end = start + 1; end < n && same_key(members[start].value, members[end].value); end++)
            members[end].value->key = NULL; /* marks it for unlinking */
        if (end - start > 1) {
            struct glm_json *kept = members[start].value, *next = kept->next;
            const char *key = kept->key;
            *kept = *members[end - 1].value;
            kept->key = key;
            kept->next = next;
            n_dropped += end - start - 1;
        }
    }
    free(members);
    if (n_dropped == 0)
        return 1;
    for (struct glm_json *v = object->first; v != NULL; v = v->next)
        while (v->next != NULL && v->next->key == NULL)
            v->next = v->next->next;
    object->n_children -= n_dropped;
    return 1;
}

static int on_end_map(void *context)
{
    struct parser *p = context;
    struct glm_json *object = p->levels[--p->depth].container;
    return object->n_children < 2 || drop_repeated_keys(p, object);
}

static int on_start_array(void *context)
{
    return open_container(context, GLM_JSON_ARRAY);
}

static int on_end_array(void *context)
{
    struct parser *p = context;
    p->depth--;
    return 1;
}

static const yajl_callbacks callbacks = {
    .yajl_null = on_null,
    .yajl_boolean = on_boolean,
    .yajl_number = on_number,
    .yajl_string = on_string,
    .yajl_start_map = on_start_map,
    .yajl_map_key = on_key,
    .yajl_end_map = on_end_map,
    .yajl_start_array = on_start_array,
    .yajl_end_array = on_end_array,
};

/* The code unit of "\uXXXX" at text, or -1. */
static int escaped_unit(const char *text, size_t len)
{
    if (len < 6 || text[0] != '\\' || text[1] != 'u')
        return -1;
    int unit = 0;
    for (size_t i = 2; i < 6; i++) {
        int c = (unsigned char)text[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        unit = unit * 16 + digit;
    }
    return unit;
}

/* yajl loses a character after an unpaired surrogate, and joins a pair without looking at its
 * second half. *text becomes a copy with each lone one spelled \ufffd, of the same length. */
static enum glm_status replace_lone_surrogates(const char **text, size_t len, struct arena *arena)
{
    static const char replacement[] = "\\ufffd";
    char *copy = NULL;
    for (size_t i = 0; i < len;) {
        const char *escape = memchr(*text + i, '\\', len - i);
        if (escape == NULL)
            break;
        i = (size_t)(escape - *text);
        int unit = escaped_unit(escape, len - i);
        if (unit < 0xD800 || unit > 0xDFFF) {
            i += 2; /* also skips the backslash of an escaped backslash */
            continue;
        }
        int second = escaped_unit(escape + 6, len - i - 6);
        if (unit <= 0xDBFF && second >= 0xDC00 && second <= 0xDFFF) {
            i += 12;
            continue;
        }
        if (copy == NULL) {
            copy = arena_strndup(arena, *text, len);
            if (copy == NULL)
                return GLM_ENOMEM;
            *text = copy;
        }
        memcpy(copy + i, replacement, sizeof replacement - 1);
        i += 6;
    }
    return GLM_OK;
}

static enum glm_status describe_failure(const struct parser *p, yajl_handle yajl, size_t at,
                                        const char *bytes, size_t len, struct glm_error *err)
{
    if (p->no_memory)
        return glm_fail(err, GLM_ENOMEM, "cannot read JSON: it needs more than %zu bytes of memory",
                        p->arena->limit_bytes);
    if (p->too_deep)
        return glm_fail(err, GLM_EINVAL,
                        "cannot read JSON: nested deeper than %d levels at byte %zu",
                        GLM_JSON_MAX_DEPTH, at);
    unsigned char *text = yajl_get_error(yajl, 0, (const unsigned char *)bytes, len);
    const char *reason = text == NULL ? "not valid" : (const char *)text;
    size_t reason_len = strcspn(reason, "\n");
    if (reason_len > 0 && reason[reason_len - 1] == '.')
        reason_len--;
    enum glm_status result = glm_fail(err, GLM_EINVAL, "cannot read JSON: %.*s at byte %zu",
                                      (int)reason_len, reason, at);
    if (text != NULL)
        yajl_free_error(yajl, text);
    return result;
}

enum glm_status glm_json_parse(const char *bytes, size_t len, struct arena *arena,
                               struct glm_json **out, struct glm_error *err)
{
    size_t valid = glm_utf8_valid_bytes(bytes, len);
    if (valid != len)
        return glm_fail(err, GLM_EINVAL, "cannot read JSON: not valid UTF-8 at byte %zu", valid);
    if (replace_lone_surrogates(&bytes, len, arena) != GLM_OK)
        return glm_fail(err, GLM_ENOMEM, "cannot read JSON: it needs more than %zu bytes of memory",
                        arena->limit_bytes);
    struct parser p = {.arena = arena};
    yajl_handle yajl = yajl_alloc(&callbacks, NULL, &p);
    if (yajl == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot read JSON: out of memory");
    enum glm_status result = GLM_OK;
    if (yajl_parse(yajl, (const unsigned char *)bytes, len) != yajl_status_ok)
        result = describe_failure(&p, yajl, yajl_get_bytes_consumed(yajl), bytes, len, err);
    else if (yajl_complete_parse(yajl) != yajl_status_ok)
        result = describe_failure(&p, yajl, len, bytes, len, err);
    yajl_free(yajl);
    if (result == GLM_OK)
        *out = p.root;
    return result;
}

const struct glm_json *glm_json_get(const struct glm_json *object, const char *key)
{
    if (object == NULL || object->type != GLM_JSON_OBJECT)
        return NULL;
    size_t len = strlen(key);
    for (const struct glm_json *v = object->first; v != NULL; v = v->next)
        if (v->key_len == len && memcmp(v->key, key, len) == 0)
            return v;
    return NULL;
}

bool glm_json_is_string(const struct glm_json *v, const char *text)
{
    return v != NULL && v->type == GLM_JSON_STRING && v->len == strlen(text) &&
           memcmp(v->text, text, v->len) == 0;
}

/* ---- Printing ---- */

void glm_json_print_string(const char *text, size_t len, struct buf *out)
{
    static const char *const short_escapes[0x20] = {
        ['\b'] = "\\b", ['\t'] = "\\t", ['\n'] = "\\n", ['\f'] = "\\f", ['\r'] = "\\r",
    };
    buf_char(out, '"');
    size_t plain = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        buf_add(out, text + plain, i - plain);
        plain = i + 1;
        if (c >= 0x20)
            buf_printf(out, "\\%c", c);
        else if (short_escapes[c] != NULL)
            buf_str(out, short_escapes[c]);
        else
            buf_printf(out, "\\u%04x", c);
    }
    buf_add(out, text + plain, len - plain);
    buf_char(out, '"');
}

/* value > 0 as "d.ddde±x" with n digits, rounded correctly; up: the next larger such number. */
static void spell(double value, int n_digits, bool up, char out[40])
{
    snprintf(out, 40, "%.*e", n_digits - 1, value);
    if (!up)
        return;
    char *e = strchr(out, 'e');
    for (char *p = e - 1; p >= out; p--) {
        if (*p == '.')
            continue;
        if (*p != '9') {
            (*p)++;
            return;
        }
        *p = '0';
    }
}

/* The fewest digits that read back as value, as repr() has them. 15 always suffice to find a
 * spelling of at most 15 digits of a normal number; a power of two has a wider gap above it, where
 * a 16-digit spelling may lie that is not the nearest one. */
static void shortest(double value, char out[40])
{
    int first = value < DBL_MIN ? 1 : 15;
    for (int n = first; n <= 17; n++)
        for (int up = 0; up < (n == 16 ? 2 : 1); up++) {
            spell(value, n, up != 0, out);
            if (strtod(out, NULL) == value)
                return;
        }
}

static void print_double(double value, struct buf *out)
{
    if (signbit(value)) {
        buf_char(out, '-');
        value = -value;
    }
    if (isinf(value)) {
        buf_str(out, "Infinity");
        return;
    }
    if (value == 0) {
        buf_str(out, "0.0");
        return;
    }
    char text[40], digits[40];
    shortest(value, text);
    int n = 0;
    const char *p = text;
    for (; *p != 'e'; p++)
        if (*p != '.')
            digits[n++] = *p;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    int exponent = (int)strtol(p + 1, NULL, 10);
    if (exponent < -4 || exponent >= 16) {
        buf_add(out, digits, 1);
        if (n > 1) {
            buf_char(out, '.');
            buf_add(out, digits + 1, (size_t)n - 1);
        }
        buf_printf(out, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        return;
    }
    if (exponent < 0) {
        buf_printf(out, "0.%.*s", -exponent - 1, "000");
        buf_add(out, digits, (size_t)n);
        return;
    }
    for (int i = 0; i <= exponent; i++)
        buf_char(out, i < n ? digits[i] : '0');
    buf_char(out, '.');
    if (n > exponent + 1)
        buf_add(out, digits + exponent + 1, (size_t)(n - exponent - 1));
    else
        buf_char(out, '0');
}

void glm_json_print_number(const char *text, struct buf *out)
{
    if (strpbrk(text, ".eE") != NULL)
        print_double(strtod(text, NULL), out);
    else
        buf_str(out, strcmp(text, "-0") == 0 ? "0" : text);
}

static void print_children(const struct glm_json *v, bool compact, struct buf *out)
{
    for (const struct glm_json *child = v->first; child != NULL; child = child->next) {
        if (child != v->first)
            buf_str(out, compact ? "," : ", ");
        if (v->type == GLM_JSON_OBJECT) {
            glm_json_print_string(child->key, child->key_len, out);
            buf_str(out, compact ? ":" : ": ");
        }
        glm_json_print(child, compact, out);
    }
}

void glm_json_print(const struct glm_json *v, bool compact, struct buf *out)
{
    switch (v->type) {
    case GLM_JSON_NULL:
        buf_str(out, "null");
        break;
    case GLM_JSON_BOOL:
        buf_str(out, v->boolean ? "true" : "false");
        break;
    case GLM_JSON_NUMBER:
        if (compact)
            buf_add(out, v->text, v->len);
        else
            glm_json_print_number(v->text, out);
        break;
    case GLM_JSON_STRING:
        glm_json_print_string(v->text, v->len, out);
        break;
    case GLM_JSON_ARRAY:
        buf_char(out, '[');
        print_children(v, compact, out);
        buf_char(out, ']');
        break;
    case GLM_JSON_OBJECT:
        buf_char(out, '{');
        print_children(v, compact, out);
        buf_char(out, '}');
        break;
    }
}
