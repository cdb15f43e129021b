/* SPDX-License-Identifier: Apache-2.0 */
/* Bounded parsing and checked getters over cJSON for the files that codegen reads: manifests,
 * rank plans, launch files. What the keys mean is for their readers. */
#include "codegen/json_util.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void json_reader_init(struct json_reader *r, const char *subject, enum glm_status failure,
                      struct arena *arena, struct glm_error *err)
{
    *r = (struct json_reader){.subject = subject, .failure = failure, .arena = arena, .err = err};
}

void json_fail(struct json_reader *r, const char *format, ...)
{
    if (r->status != GLM_OK)
        return;
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (r->path_len == 0)
        r->status = glm_fail(r->err, r->failure, "cannot read %s: %s", r->subject, text);
    else
        r->status =
            glm_fail(r->err, r->failure, "cannot read %s: '%s' %s", r->subject, r->path, text);
}

void json_no_memory(struct json_reader *r)
{
    if (r->status == GLM_OK)
        r->status = glm_fail(r->err, GLM_ENOMEM, "cannot read %s: out of memory", r->subject);
}

/* cJSON recurses a level a bracket and turns \u0000 into the end of a string: both are refused
 * here, before it sees the bytes. */
static bool scan(struct json_reader *r, const char *json, size_t len)
{
    unsigned depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        char c = json[i];
        if (c == '\0') {
            json_fail(r, "a NUL byte at byte %zu", i);
            return false;
        }
        if (in_string) {
            if (c == '\\' && len - i > 5 && memcmp(json + i + 1, "u0000", 5) == 0) {
                json_fail(r, "a NUL character in a string at byte %zu", i);
                return false;
            }
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > JSON_MAX_DEPTH) {
                json_fail(r, "nested deeper than %d levels at byte %zu", JSON_MAX_DEPTH, i);
                return false;
            }
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        }
    }
    return true;
}

cJSON *json_parse(struct json_reader *r, const char *json, size_t len, size_t limit_bytes)
{
    if (len > limit_bytes) {
        json_fail(r, "%zu bytes, at most %zu are read", len, limit_bytes);
        return NULL;
    }
    if (!scan(r, json, len))
        return NULL;
    const char *end = NULL;
    cJSON *tree = cJSON_ParseWithLengthOpts(json, len, &end, 0);
    if (tree == NULL) {
        json_fail(r, "not JSON at byte %zu", end == NULL ? (size_t)0 : (size_t)(end - json));
        return NULL;
    }
    while (end < json + len && strchr(" \t\r\n", *end) != NULL)
        end++;
    if (end != json + len) {
        json_fail(r, "more bytes after the end at byte %zu", (size_t)(end - json));
        cJSON_Delete(tree);
        return NULL;
    }
    return tree;
}

static void append_path(struct json_reader *r, const char *separator, const char *text)
{
    size_t room = sizeof r->path - r->path_len;
    int n = snprintf(r->path + r->path_len, room, "%s%s", separator, text);
    if (n > 0)
        r->path_len += (size_t)n < room ? (size_t)n : room - 1;
}

size_t json_enter(struct json_reader *r, const char *key)
{
    size_t mark = r->path_len;
    append_path(r, mark == 0 ? "" : ".", key);
    return mark;
}

size_t json_enter_item(struct json_reader *r, uint32_t i)
{
    char text[16];
    size_t mark = r->path_len;
    snprintf(text, sizeof text, "[%u]", i);
    append_path(r, "", text);
    return mark;
}

void json_leave(struct json_reader *r, size_t mark)
{
    r->path_len = mark;
    r->path[mark] = '\0';
}

bool json_object(struct json_reader *r, const cJSON *item, const char *const *keys)
{
    if (!cJSON_IsObject(item)) {
        json_fail(r, "is not an object");
        return false;
    }
    uint64_t seen = 0;
    for (const cJSON *child = item->child; child != NULL; child = child->next) {
        size_t i = 0;
        while (keys[i] != NULL && strcmp(keys[i], child->string) != 0)
            i++;
        if (keys[i] == NULL || i >= 64) {
            json_fail(r, "has the unknown key '%.64s'", child->string);
            return false;
        }
        if (seen >> i & 1) {
            json_fail(r, "has the key '%.64s' twice", child->string);
            return false;
        }
        seen |= UINT64_C(1) << i;
    }
    return json_ok(r);
}

const cJSON *json_get(struct json_reader *r, const cJSON *object, const char *key, bool required)
{
    if (!json_ok(r))
        return NULL;
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (item == NULL && required)
        json_fail(r, "has no key '%s'", key);
    return item;
}

const char *json_item_text(struct json_reader *r, const cJSON *item)
{
    if (!json_ok(r))
        return "";
    if (!cJSON_IsString(item)) {
        json_fail(r, "is not a string");
        return "";
    }
    size_t len = strlen(item->valuestring);
    if (len > JSON_MAX_TEXT) {
        json_fail(r, "is %zu bytes long, at most %d are read", len, JSON_MAX_TEXT);
        return "";
    }
    const char *text = arena_strndup(r->arena, item->valuestring, len);
    if (text == NULL)
        json_no_memory(r);
    return text == NULL ? "" : text;
}

static const char *text_at(struct json_reader *r, const cJSON *item, const char *key)
{
    size_t mark = json_enter(r, key);
    const char *text = json_item_text(r, item);
    json_leave(r, mark);
    return text;
}

const char *json_text(struct json_reader *r, const cJSON *object, const char *key)
{
    const cJSON *item = json_get(r, object, key, true);
    return item == NULL ? "" : text_at(r, item, key);
}

const char *json_text_or(struct json_reader *r, const cJSON *object, const char *key,
                         const char *otherwise)
{
    const cJSON *item = json_get(r, object, key, false);
    return item == NULL ? otherwise : text_at(r, item, key);
}

/* Whole and in [min, max], both within what a double holds exactly. */
static bool whole_number(struct json_reader *r, const cJSON *item, double min, double max)
{
    if (!json_ok(r))
        return false;
    if (!cJSON_IsNumber(item)) {
        json_fail(r, "is not a number");
        return false;
    }
    double v = item->valuedouble;
    if (!(v >= -JSON_MAX_INTEGER && v <= JSON_MAX_INTEGER) || floor(v) != v) {
        json_fail(r, "is %g, not a whole number", v);
        return false;
    }
    if (v < min || v > max) {
        json_fail(r, "is %.0f, outside %.0f..%.0f", v, min, max);
        return false;
    }
    return true;
}

uint64_t json_item_u64(struct json_reader *r, const cJSON *item, uint64_t min, uint64_t max)
{
    return whole_number(r, item, (double)min, (double)max) ? (uint64_t)item->valuedouble : min;
}

int64_t json_item_i64(struct json_reader *r, const cJSON *item)
{
    return whole_number(r, item, -JSON_MAX_INTEGER, JSON_MAX_INTEGER) ? (int64_t)item->valuedouble
                                                                      : 0;
}

static uint64_t u64_at(struct json_reader *r, const cJSON *item, const char *key, uint64_t min,
                       uint64_t max)
{
    size_t mark = json_enter(r, key);
    uint64_t v = json_item_u64(r, item, min, max);
    json_leave(r, mark);
    return v;
}

uint64_t json_u64(struct json_reader *r, const cJSON *object, const char *key, uint64_t min,
                  uint64_t max)
{
    const cJSON *item = json_get(r, object, key, true);
    return item == NULL ? min : u64_at(r, item, key, min, max);
}

uint64_t json_u64_or(struct json_reader *r, const cJSON *object, const char *key, uint64_t min,
                     uint64_t max, uint64_t otherwise)
{
    const cJSON *item = json_get(r, object, key, false);
    return item == NULL ? otherwise : u64_at(r, item, key, min, max);
}

int64_t json_i64_or(struct json_reader *r, const cJSON *object, const char *key, int64_t min,
                    int64_t max, int64_t otherwise)
{
    const cJSON *item = json_get(r, object, key, false);
    if (item == NULL)
        return otherwise;
    size_t mark = json_enter(r, key);
    bool ok = whole_number(r, item, (double)min, (double)max);
    json_leave(r, mark);
    return ok ? (int64_t)item->valuedouble : otherwise;
}

double json_double(struct json_reader *r, const cJSON *object, const char *key, double min,
                   double max)
{
    const cJSON *item = json_get(r, object, key, true);
    if (item == NULL)
        return min;
    size_t mark = json_enter(r, key);
    if (!cJSON_IsNumber(item))
        json_fail(r, "is not a number");
    else if (!(item->valuedouble >= min && item->valuedouble <= max))
        json_fail(r, "is %g, outside %g..%g", item->valuedouble, min, max);
    json_leave(r, mark);
    return json_ok(r) ? item->valuedouble : min;
}

bool json_bool_or(struct json_reader *r, const cJSON *object, const char *key, bool otherwise)
{
    const cJSON *item = json_get(r, object, key, false);
    if (item == NULL)
        return otherwise;
    size_t mark = json_enter(r, key);
    if (!cJSON_IsBool(item))
        json_fail(r, "is not true or false");
    json_leave(r, mark);
    return cJSON_IsTrue(item) != 0;
}

const cJSON *json_list(struct json_reader *r, const cJSON *object, const char *key, uint32_t max,
                       bool required, uint32_t *n)
{
    *n = 0;
    const cJSON *item = json_get(r, object, key, required);
    if (item == NULL)
        return NULL;
    size_t mark = json_enter(r, key);
    uint32_t count = 0;
    if (!cJSON_IsArray(item)) {
        json_fail(r, "is not a list");
    } else {
        for (const cJSON *child = item->child; child != NULL && count <= max; child = child->next)
            count++;
        if (count > max)
            json_fail(r, "has more than %u entries", max);
    }
    json_leave(r, mark);
    if (!json_ok(r))
        return NULL;
    *n = count;
    return item;
}

void json_digest(struct json_reader *r, const cJSON *object, const char *key, bool empty_too,
                 char digest[65])
{
    digest[0] = '\0';
    const char *text = json_text(r, object, key);
    size_t len = strlen(text);
    if (!json_ok(r) || (empty_too && len == 0))
        return;
    if (len != 64 || strspn(text, "0123456789abcdef") != 64) {
        json_fail(r, "has '%s' '%.80s', not 64 hex digits", key, text);
        return;
    }
    memcpy(digest, text, 65);
}

void *json_alloc(struct json_reader *r, uint32_t n, size_t size)
{
    if (!json_ok(r))
        return NULL;
    void *p = arena_array(r->arena, n == 0 ? 1 : n, size);
    if (p == NULL)
        json_no_memory(r);
    return p;
}
