/* SPDX-License-Identifier: Apache-2.0 */
/* Reads pico's golden values: ids and margins from JSON, rows from the safetensors file beside it.
 * These files are our own and small: they are read whole. */
#include "spec/base/buf.h"
#include "spec/checkpoint.h"
#include "tests/support/pico.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_BYTES = 256 << 20 };

struct golden {
    cJSON *json;
    struct buf file;
    struct arena arena;
    struct glm_tensor *tensors;
    uint32_t n_tensors;
    struct golden_case *cases;
    uint32_t n_cases;
};

static int32_t *read_ids(const cJSON *array, uint32_t *n)
{
    *n = (uint32_t)cJSON_GetArraySize(array);
    int32_t *ids = calloc(*n + 1, sizeof *ids);
    uint32_t i = 0;
    const cJSON *item;
    assert_non_null(ids);
    cJSON_ArrayForEach(item, array) ids[i++] = item->valueint;
    return ids;
}

struct golden *golden_open(const char *name)
{
    struct golden *g = calloc(1, sizeof *g);
    struct buf text = {0};
    struct glm_error err = {0};
    char path[256];
    assert_non_null(g);
    arena_init(&g->arena, MAX_BYTES);
    snprintf(path, sizeof path, "tests/golden/pico/%s.json", name);
    if (glm_file_read(path, MAX_BYTES, &text, &err) != GLM_OK)
        fail_msg("%s", err.message);
    g->json = cJSON_ParseWithLength(text.data, text.len);
    assert_non_null(g->json);
    buf_release(&text);
    snprintf(path, sizeof path, "tests/golden/pico/%s.safetensors", name);
    if (glm_file_read(path, MAX_BYTES, &g->file, &err) != GLM_OK)
        fail_msg("%s", err.message);
    if (glm_safetensors_header(path, g->file.data, g->file.len, g->file.len, &g->arena, &g->tensors,
                               &g->n_tensors, &err) != GLM_OK)
        fail_msg("%s", err.message);
    g->cases = calloc((size_t)cJSON_GetArraySize(g->json), sizeof *g->cases);
    assert_non_null(g->cases);
    const cJSON *item;
    cJSON_ArrayForEach(item, g->json)
    {
        struct golden_case *c = &g->cases[g->n_cases++];
        c->name = item->string;
        c->ids = read_ids(cJSON_GetObjectItem(item, "ids"), &c->n_ids);
        c->reply = read_ids(cJSON_GetObjectItem(item, "reply_ids"), &c->n_reply);
        c->smallest_margin = cJSON_GetObjectItem(item, "smallest_margin")->valuedouble;
    }
    return g;
}

void golden_free(struct golden *g)
{
    if (!g)
        return;
    for (uint32_t i = 0; i < g->n_cases; i++) {
        free(g->cases[i].ids);
        free(g->cases[i].reply);
    }
    free(g->cases);
    cJSON_Delete(g->json);
    buf_release(&g->file);
    arena_release(&g->arena);
    free(g);
}

uint32_t golden_count(const struct golden *g)
{
    return g->n_cases;
}

struct golden_case golden_case(const struct golden *g, uint32_t i)
{
    assert_true(i < g->n_cases);
    return g->cases[i];
}

const float *golden_tensor(const struct golden *g, const char *name, const char *suffix,
                           uint64_t *n)
{
    char full[128];
    snprintf(full, sizeof full, "%s.%s", name, suffix);
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        if (strcmp(g->tensors[i].name, full) != 0)
            continue;
        assert_int_equal(g->tensors[i].dtype, GLM_F32);
        *n = g->tensors[i].size_bytes / sizeof(float);
        const void *at = g->file.data + g->tensors[i].offset;
        assert_int_equal((uintptr_t)at % sizeof(float), 0);
        return at;
    }
    return NULL;
}

double relative_l2(const float *got, const float *want, uint64_t n)
{
    double error = 0, norm = 0;
    for (uint64_t i = 0; i < n; i++) {
        double d = (double)got[i] - (double)want[i];
        error += d * d;
        norm += (double)want[i] * (double)want[i];
    }
    return norm > 0 ? sqrt(error / norm) : sqrt(error);
}
