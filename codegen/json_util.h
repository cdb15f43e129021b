/* SPDX-License-Identifier: Apache-2.0 */
/* Reading checked values out of cJSON trees: every getter knows where it is and says so. All texts
 * land in the reader's arena. The first problem is recorded in err and sticks: later getters do
 * nothing, so a reader checks json_ok once a loop and once at the end. */
#ifndef GLM_CODEGEN_JSON_UTIL_H
#define GLM_CODEGEN_JSON_UTIL_H

#include "spec/base/arena.h"
#include "spec/base/error.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_MAX_DEPTH = 24, JSON_MAX_TEXT = 4096 };
#define JSON_MAX_INTEGER 9007199254740992.0 /* 2^53: what a double holds exactly */

struct json_reader {
    const char *subject;     /* "manifest 'matmul'", first in every message */
    enum glm_status status;  /* GLM_OK until the first problem */
    enum glm_status failure; /* the class of every problem but memory */
    struct arena *arena;
    struct glm_error *err;
    char path[256]; /* "kernels[3].params.N" */
    size_t path_len;
};

void json_reader_init(struct json_reader *r, const char *subject, enum glm_status failure,
                      struct arena *arena, struct glm_error *err);
static inline bool json_ok(const struct json_reader *r)
{
    return r->status == GLM_OK;
}

/* The tree of len bytes, freed by the caller with cJSON_Delete; NULL after recording the problem:
 * too long, too deep, a NUL in a string, bytes after the end. */
cJSON *json_parse(struct json_reader *r, const char *json, size_t len, size_t limit_bytes);

/* Records a problem at the reader's place. */
void json_fail(struct json_reader *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void json_no_memory(struct json_reader *r);

/* Place bookkeeping: json_enter returns what json_leave needs. */
size_t json_enter(struct json_reader *r, const char *key);
size_t json_enter_item(struct json_reader *r, uint32_t i);
void json_leave(struct json_reader *r, size_t mark);

/* An object whose keys are all in the NULL-terminated list, none twice. */
bool json_object(struct json_reader *r, const cJSON *item, const char *const *keys);
/* The value of a key, NULL when absent; `required` records its absence. */
const cJSON *json_get(struct json_reader *r, const cJSON *object, const char *key, bool required);

/* Values of keys. The `_or` forms give `otherwise` when the key is absent. */
const char *json_text(struct json_reader *r, const cJSON *object, const char *key);
const char *json_text_or(struct json_reader *r, const cJSON *object, const char *key,
                         const char *otherwise);
uint64_t json_u64(struct json_reader *r, const cJSON *object, const char *key, uint64_t min,
                  uint64_t max);
uint64_t json_u64_or(struct json_reader *r, const cJSON *object, const char *key, uint64_t min,
                     uint64_t max, uint64_t otherwise);
int64_t json_i64_or(struct json_reader *r, const cJSON *object, const char *key, int64_t min,
                    int64_t max, int64_t otherwise);
double json_double(struct json_reader *r, const cJSON *object, const char *key, double min,
                   double max);
bool json_bool_or(struct json_reader *r, const cJSON *object, const char *key, bool otherwise);
/* An array of at most max items; *n its length; NULL when absent (and then *n is 0). */
const cJSON *json_list(struct json_reader *r, const cJSON *object, const char *key, uint32_t max,
                       bool required, uint32_t *n);
/* 64 lower-case hex digits; `empty_too`: or "". */
void json_digest(struct json_reader *r, const cJSON *object, const char *key, bool empty_too,
                 char digest[65]);

/* Values of items themselves. */
const char *json_item_text(struct json_reader *r, const cJSON *item);
/* Any whole number that a double holds exactly. */
int64_t json_item_i64(struct json_reader *r, const cJSON *item);
uint64_t json_item_u64(struct json_reader *r, const cJSON *item, uint64_t min, uint64_t max);

/* n zeroed elements from the arena, or NULL after recording the lack of memory (n 0: never NULL).
 */
void *json_alloc(struct json_reader *r, uint32_t n, size_t size);
#define JSON_ALLOC(r, n, type) ((type *)json_alloc((r), (n), sizeof(type)))

#endif
