/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the manifests of kernels-templates/ and holds plan kernels against them. A manifest's value
 * lists ("1..64,128", "64..4096/64", "bf16|q4") are checked for form when it is read, so that a
 * kernel's check only compares. Cost expressions are evaluated in expression.c; the texts come from
 * templates.c. Schema: docs/schema/manifest.json. */
#include "codegen/manifest.h"

#include "codegen/json_util.h"
#include "codegen/templates.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANIFEST_MAX_BYTES = 256 * 1024, MANIFEST_MAX_PARAMS = 48, MAX_SPILL_BYTES = 65536 };
/* What every GPU from compute capability 8.9 takes (CUDA C programming guide, compute
 * capabilities). */
enum { WARP = 32, MAX_BLOCK = 1024, MAX_MIN_BLOCKS = 32, MAX_SHARED_BYTES = 101376 };
enum { MAX_GRID_X = 0x7fffffff, MAX_GRID_YZ = 65535, MAX_TICKETS = 1 << 20, MAX_ROWS = 1 << 20 };
#define MAX_SCRATCH_BYTES 1099511627776.0 /* 2^40 */

static const char *const dtypes[] = {"act", "f32", "bf16", "i32", "form", "state", "any", NULL};
static const char *const directions[] = {"in", "out", "inout", NULL};
static const char *const types[] = {"int", "float", "word", NULL};

static bool listed(const char *const *list, const char *text)
{
    for (; *list != NULL; list++)
        if (strcmp(*list, text) == 0)
            return true;
    return false;
}

static bool lower_name(const char *s)
{
    size_t n = strlen(s);
    return n > 0 && n <= 64 && islower((unsigned char)s[0]) &&
           strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == n;
}

static bool upper_name(const char *s)
{
    size_t n = strlen(s);
    return n > 0 && n <= 32 && isupper((unsigned char)s[0]) &&
           strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == n;
}

/* One entry of a number list: low..high/step; a single number has low == high. */
struct value_range {
    double low, high;
    int64_t step; /* 0: any */
};

/* strtod would take the first dot of "1..8" into the number; so its end is found first. */
static bool take_number(const char **p, double *v)
{
    char text[40], *end;
    const char *s = *p;
    size_t n = 0;
    while (strchr("+-0123456789eE.", s[n]) != NULL && s[n] != '\0' &&
           !(s[n] == '.' && s[n + 1] == '.'))
        n++;
    if (n == 0 || n >= sizeof text)
        return false;
    memcpy(text, s, n);
    text[n] = '\0';
    *v = strtod(text, &end);
    *p = s + n;
    return *end == '\0' && isfinite(*v);
}

/* Parses the entry at *p and moves *p past it and its comma; false when it is malformed. */
static bool next_range(const char **p, struct value_range *range)
{
    const char *at = *p;
    *range = (struct value_range){0};
    if (!take_number(&at, &range->low))
        return false;
    range->high = range->low;
    if (at[0] == '.' && at[1] == '.') {
        at += 2;
        if (!take_number(&at, &range->high) || range->high < range->low)
            return false;
        if (*at == '/') {
            char *end;
            errno = 0;
            range->step = strtoll(at + 1, &end, 10);
            if (end == at + 1 || errno != 0 || range->step <= 0)
                return false;
            at = end;
        }
    }
    if (*at == ',' && at[1] != '\0')
        at++;
    else if (*at != '\0')
        return false;
    *p = at;
    return true;
}

static bool number_list_ok(const char *values)
{
    struct value_range range;
    while (*values != '\0')
        if (!next_range(&values, &range))
            return false;
    return true;
}

static bool number_allowed(const char *values, double v)
{
    if (*values == '\0')
        return true;
    struct value_range range;
    while (*values != '\0' && next_range(&values, &range))
        if (v >= range.low && v <= range.high &&
            (range.step == 0 || fmod(v, (double)range.step) == 0.0))
            return true;
    return false;
}

static bool word_ok(const char *word, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)word[i]) && word[i] != '_')
            return false;
    return len > 0 && len <= 32;
}

static bool word_list_ok(const char *values)
{
    while (*values != '\0') {
        size_t len = strcspn(values, "|");
        if (!word_ok(values, len))
            return false;
        values += len;
        if (*values == '|' && *++values == '\0')
            return false;
    }
    return true;
}

static bool word_allowed(const char *values, const char *word)
{
    size_t n = strlen(word);
    if (*values == '\0')
        return word_ok(word, n);
    while (*values != '\0') {
        size_t len = strcspn(values, "|");
        if (len == n && memcmp(values, word, n) == 0)
            return true;
        values += len;
        if (*values == '|')
            values++;
    }
    return false;
}

static void parse_arg(struct json_reader *r, const cJSON *item, struct glm_manifest *m, uint32_t i)
{
    static const char *const keys[] = {"name", "dtype", "direction", "shape", "optional", NULL};
    struct glm_manifest_arg *a = &m->args[i];
    if (!json_object(r, item, keys))
        return;
    *a = (struct glm_manifest_arg){
        .name = json_text(r, item, "name"),
        .dtype = json_text(r, item, "dtype"),
        .direction = json_text(r, item, "direction"),
        .shape = json_text(r, item, "shape"),
        .optional = json_bool_or(r, item, "optional", false),
    };
    if (!json_ok(r))
        return;
    if (!lower_name(a->name))
        json_fail(r, "has the name '%.64s', not a-z 0-9 _", a->name);
    if (!listed(dtypes, a->dtype))
        json_fail(r, "has the dtype '%.64s', not act, f32, bf16, i32, form, state or any",
                  a->dtype);
    if (!listed(directions, a->direction))
        json_fail(r, "has the direction '%.64s', not in, out or inout", a->direction);
    for (uint32_t j = 0; j < i; j++)
        if (strcmp(m->args[j].name, a->name) == 0)
            json_fail(r, "has the name '%s' of argument %u", a->name, j);
}

static void parse_param(struct json_reader *r, const cJSON *item, struct glm_manifest *m,
                        uint32_t i)
{
    static const char *const keys[] = {"name", "type", "values", "help", NULL};
    struct glm_manifest_param *p = &m->params[i];
    if (!json_object(r, item, keys))
        return;
    *p = (struct glm_manifest_param){
        .name = json_text(r, item, "name"),
        .type = json_text(r, item, "type"),
        .values = json_text(r, item, "values"),
        .help = json_text(r, item, "help"),
    };
    if (!json_ok(r))
        return;
    if (!upper_name(p->name))
        json_fail(r, "has the name '%.64s', not A-Z 0-9 _", p->name);
    if (!listed(types, p->type))
        json_fail(r, "has the type '%.64s', not int, float or word", p->type);
    else if (strcmp(p->type, "word") == 0 ? !word_list_ok(p->values) : !number_list_ok(p->values))
        json_fail(r, "has the values '%.64s', not a list of %ss", p->values, p->type);
    for (uint32_t j = 0; j < i; j++)
        if (strcmp(m->params[j].name, p->name) == 0)
            json_fail(r, "has the name '%s' of parameter %u", p->name, j);
}

static void parse_args(struct json_reader *r, const cJSON *tree, struct glm_manifest *m)
{
    const cJSON *list = json_list(r, tree, "args", GLM_PLAN_MAX_ARGS, true, &m->n_args);
    m->args = JSON_ALLOC(r, m->n_args, struct glm_manifest_arg);
    size_t mark = json_enter(r, "args");
    const cJSON *item = list == NULL ? NULL : list->child;
    for (uint32_t i = 0; json_ok(r) && item != NULL; i++, item = item->next) {
        size_t inner = json_enter_item(r, i);
        parse_arg(r, item, m, i);
        json_leave(r, inner);
    }
    json_leave(r, mark);
}

static void parse_params(struct json_reader *r, const cJSON *tree, struct glm_manifest *m)
{
    const cJSON *list = json_list(r, tree, "params", MANIFEST_MAX_PARAMS, true, &m->n_params);
    m->params = JSON_ALLOC(r, m->n_params, struct glm_manifest_param);
    size_t mark = json_enter(r, "params");
    const cJSON *item = list == NULL ? NULL : list->child;
    for (uint32_t i = 0; json_ok(r) && item != NULL; i++, item = item->next) {
        size_t inner = json_enter_item(r, i);
        parse_param(r, item, m, i);
        json_leave(r, inner);
    }
    json_leave(r, mark);
}

/* A parameter's first allowed value, for trying the expressions when a manifest is read. */
static void sample_param(struct json_reader *r, const struct glm_manifest_param *p,
                         struct glm_plan_param *out)
{
    struct value_range range = {.low = 1};
    const char *values = p->values;
    *out = (struct glm_plan_param){.name = p->name, .origin = ""};
    if (strcmp(p->type, "word") == 0) {
        out->text =
            *values == '\0' ? "word" : arena_strndup(r->arena, values, strcspn(values, "|"));
        if (out->text == NULL)
            json_no_memory(r);
        return;
    }
    if (*values != '\0')
        next_range(&values, &range);
    if (strcmp(p->type, "int") == 0) {
        out->value = (int64_t)fmax(fmin(range.low, 1e15), -1e15);
        return;
    }
    out->text = arena_printf(r->arena, "%.17g", range.low);
    if (out->text == NULL)
        json_no_memory(r);
}

static void parse_grid(struct json_reader *r, const cJSON *tree, struct glm_manifest_launch *l)
{
    uint32_t n;
    const cJSON *list = json_list(r, tree, "grid", 3, true, &n);
    size_t mark = json_enter(r, "grid");
    if (json_ok(r) && n != 3)
        json_fail(r, "has %u expressions, not those of x, y and z", n);
    const cJSON *item = list == NULL ? NULL : list->child;
    for (uint32_t i = 0; json_ok(r) && item != NULL; i++, item = item->next) {
        size_t inner = json_enter_item(r, i);
        l->grid[i] = json_item_text(r, item);
        json_leave(r, inner);
    }
    json_leave(r, mark);
}

static void parse_launch(struct json_reader *r, const cJSON *tree, struct glm_manifest *m)
{
    static const char *const keys[] = {"block",   "grid",    "min_blocks", "shared",
                                       "scratch", "tickets", "rows",       NULL};
    const cJSON *item = json_get(r, tree, "launch", false);
    if (item == NULL)
        return;
    struct glm_manifest_launch *l = JSON_ALLOC(r, 1, struct glm_manifest_launch);
    size_t mark = json_enter(r, "launch");
    if (l != NULL && json_object(r, item, keys)) {
        l->block = json_text(r, item, "block");
        parse_grid(r, item, l);
        l->min_blocks = (uint32_t)json_u64_or(r, item, "min_blocks", 1, MAX_MIN_BLOCKS, 1);
        l->shared = json_text_or(r, item, "shared", "0");
        l->scratch = json_text_or(r, item, "scratch", "0");
        l->tickets = json_text_or(r, item, "tickets", "0");
        l->rows = json_text_or(r, item, "rows", "0");
    }
    json_leave(r, mark);
    m->launch = l;
}

/* Every expression must parse and every name in it resolve before a plan relies on it. */
static void try_expressions(struct json_reader *r, const struct glm_manifest *m)
{
    static const struct glm_manifest_launch none = {"0", {"0", "0", "0"}, "0", "0", "0", "0", 0};
    const struct glm_manifest_launch *l = m->launch == NULL ? &none : m->launch;
    const struct {
        const char *key, *text;
    } rows[] = {{"scratch", m->scratch},
                {"read", m->read},
                {"write", m->write},
                {"ops", m->ops},
                {"launch.block", l->block},
                {"launch.grid", l->grid[0]},
                {"launch.grid", l->grid[1]},
                {"launch.grid", l->grid[2]},
                {"launch.shared", l->shared},
                {"launch.scratch", l->scratch},
                {"launch.tickets", l->tickets},
                {"launch.rows", l->rows}};
    const struct glm_cost_context ones = {1, 1, 1, 1, 1, 1, 1};
    struct glm_plan_param *params = JSON_ALLOC(r, m->n_params, struct glm_plan_param);
    for (uint32_t i = 0; json_ok(r) && i < m->n_params; i++)
        sample_param(r, &m->params[i], &params[i]);
    for (size_t i = 0; json_ok(r) && i < sizeof rows / sizeof rows[0]; i++) {
        double value;
        struct glm_error why = {0};
        if (glm_expression_eval(rows[i].text, params, m->n_params, &ones, &value, &why) != GLM_OK)
            json_fail(r, "has '%s': %s", rows[i].key, why.message);
    }
}

static void parse_tree(struct json_reader *r, const char *name, const cJSON *tree,
                       struct glm_manifest *m)
{
    static const char *const keys[] = {
        "name", "help",      "args",   "params",    "scratch",           "read",   "write",
        "ops",  "reduction", "oracle", "tolerance", "spill_limit_bytes", "launch", NULL};
    if (!json_object(r, tree, keys))
        return;
    m->name = json_text(r, tree, "name");
    m->help = json_text(r, tree, "help");
    parse_args(r, tree, m);
    parse_params(r, tree, m);
    m->scratch = json_text(r, tree, "scratch");
    m->read = json_text(r, tree, "read");
    m->write = json_text(r, tree, "write");
    m->ops = json_text(r, tree, "ops");
    m->reduction = json_text(r, tree, "reduction");
    m->oracle = json_text(r, tree, "oracle");
    m->tolerance = json_double(r, tree, "tolerance", 0, 1);
    m->spill_limit_bytes = (uint32_t)json_u64(r, tree, "spill_limit_bytes", 0, MAX_SPILL_BYTES);
    parse_launch(r, tree, m);
    if (json_ok(r) && !lower_name(m->name))
        json_fail(r, "has the name '%.64s', not a-z 0-9 _", m->name);
    if (json_ok(r) && strcmp(m->name, name) != 0)
        json_fail(r, "has the name '%s', but its file is '%.64s.json'", m->name, name);
    if (json_ok(r))
        try_expressions(r, m);
}

enum glm_status glm_manifest_parse(const char *name, const char *json, size_t len,
                                   struct arena *arena, struct glm_manifest *out,
                                   struct glm_error *err)
{
    char subject[128];
    struct json_reader r;
    struct glm_manifest m = {0};
    snprintf(subject, sizeof subject, "manifest '%.96s'", name);
    json_reader_init(&r, subject, GLM_EPLAN, arena, err);
    cJSON *tree = json_parse(&r, json, len, MANIFEST_MAX_BYTES);
    if (tree != NULL)
        parse_tree(&r, name, tree, &m);
    cJSON_Delete(tree);
    if (json_ok(&r))
        *out = m;
    return r.status;
}

enum glm_status glm_manifests_load(struct arena *arena, struct glm_manifest **out, uint32_t *n,
                                   struct glm_error *err)
{
    const char **names;
    uint32_t n_names;
    enum glm_status status = glm_template_names(".json", arena, &names, &n_names, err);
    if (status != GLM_OK)
        return status;
    struct glm_manifest *all = ARENA_ARRAY(arena, n_names == 0 ? 1 : n_names, struct glm_manifest);
    if (all == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot load the manifests: out of memory");
    for (uint32_t i = 0; i < n_names; i++) {
        size_t len;
        const char *text = glm_template_source(names[i], &len);
        const char *name = arena_strndup(arena, names[i], strlen(names[i]) - strlen(".json"));
        if (name == NULL)
            return glm_fail(err, GLM_ENOMEM, "cannot load the manifests: out of memory");
        if (text == NULL)
            return glm_fail(err, GLM_EPLAN, "cannot read manifest '%s'", name);
        status = glm_manifest_parse(name, text, len, arena, &all[i], err);
        if (status != GLM_OK)
            return status;
    }
    *out = all;
    *n = n_names;
    return GLM_OK;
}

const struct glm_manifest *glm_manifest_find(const struct glm_manifest *all, uint32_t n,
                                             const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(all[i].name, name) == 0)
            return &all[i];
    return NULL;
}

static enum glm_status check_param(const struct glm_manifest *m, const struct glm_plan_kernel *k,
                                   const struct glm_manifest_param *mp,
                                   const struct glm_plan_param *p, struct glm_error *err)
{
    const char *allowed = mp->values[0] == '\0' ? "any" : mp->values;
    bool is_int = strcmp(mp->type, "int") == 0;
    if (is_int != (p->text == NULL))
        return glm_fail(err, GLM_EPLAN,
                        "cannot use kernel '%s': parameter '%s' of manifest '%s' is %s, the plan "
                        "gives %s%s",
                        k->name, mp->name, m->name, is_int ? "an int" : mp->type,
                        is_int ? "the text " : "an int", is_int ? p->text : "");
    if (is_int) {
        if (number_allowed(mp->values, (double)p->value))
            return GLM_OK;
        return glm_fail(err, GLM_EPLAN,
                        "cannot use kernel '%s': parameter '%s' of manifest '%s' is %" PRId64
                        ", allowed: %s",
                        k->name, mp->name, m->name, p->value, allowed);
    }
    bool good;
    if (strcmp(mp->type, "float") == 0) {
        char *end;
        double v = strtod(p->text, &end);
        good = end != p->text && *end == '\0' && isfinite(v) && number_allowed(mp->values, v) &&
               strspn(p->text, "+-0123456789.eE") == strlen(p->text);
    } else {
        good = word_allowed(mp->values, p->text);
    }
    if (good)
        return GLM_OK;
    return glm_fail(err, GLM_EPLAN,
                    "cannot use kernel '%s': parameter '%s' of manifest '%s' is '%s', allowed: %s",
                    k->name, mp->name, m->name, p->text, allowed);
}

enum glm_status glm_manifest_check(const struct glm_manifest *m, const struct glm_plan_kernel *k,
                                   struct glm_error *err)
{
    uint64_t seen = 0;
    for (uint32_t i = 0; i < k->n_params; i++) {
        const struct glm_plan_param *p = &k->params[i];
        uint32_t j = 0;
        while (j < m->n_params && strcmp(m->params[j].name, p->name) != 0)
            j++;
        if (j == m->n_params)
            return glm_fail(err, GLM_EPLAN,
                            "cannot use kernel '%s': manifest '%s' has no parameter '%s'", k->name,
                            m->name, p->name);
        if (seen >> j & 1)
            return glm_fail(err, GLM_EPLAN, "cannot use kernel '%s': parameter '%s' is given twice",
                            k->name, p->name);
        seen |= UINT64_C(1) << j;
        enum glm_status status = check_param(m, k, &m->params[j], p, err);
        if (status != GLM_OK)
            return status;
    }
    for (uint32_t j = 0; j < m->n_params; j++)
        if (!(seen >> j & 1))
            return glm_fail(err, GLM_EPLAN,
                            "cannot use kernel '%s': it lacks parameter '%s' of manifest '%s' (%s)",
                            k->name, m->params[j].name, m->name, m->params[j].help);
    return GLM_OK;
}

/* Two contexts, in which an expression must have one value. */
struct launch_context {
    const struct glm_cost_context *at, *other; /* NULL: any value */
    const char *differs;
};

/* One expression of a launch as a whole number in [low, high]. */
static enum glm_status launch_number(const struct glm_manifest *m, const struct glm_plan_kernel *k,
                                     const char *key, const char *text,
                                     const struct launch_context *context, double low, double high,
                                     double *out, struct glm_error *err)
{
    double again;
    enum glm_status status =
        glm_expression_eval(text, k->params, k->n_params, context->at, out, err);
    if (status == GLM_OK && context->other != NULL) {
        status = glm_expression_eval(text, k->params, k->n_params, context->other, &again, err);
        if (status == GLM_OK && again != *out)
            return glm_fail(err, GLM_EPLAN,
                            "cannot launch kernel '%s': '%s' of manifest '%s' depends on %s: %s",
                            k->name, key, m->name, context->differs, text);
    }
    if (status == GLM_OK && (*out < low || *out > high || *out != floor(*out)))
        return glm_fail(err, GLM_EPLAN,
                        "cannot launch kernel '%s': '%s' of manifest '%s' is %g, allowed: whole "
                        "numbers from %.0f to %.0f",
                        k->name, key, m->name, *out, low, high);
    return status;
}

enum glm_status glm_manifest_shape(const struct glm_manifest *m, const struct glm_plan_kernel *k,
                                   const struct glm_cost_context *bucket,
                                   struct glm_launch_shape *out, struct glm_error *err)
{
    static const struct glm_cost_context unlike = {3, 5, 7, 11, 13, 17, 2};
    const struct glm_manifest_launch *l = m->launch;
    if (l == NULL)
        return glm_fail(err, GLM_EPLAN, "cannot launch kernel '%s': manifest '%s' has no 'launch'",
                        k->name, m->name);
    struct glm_cost_context part = *bucket, outs = *bucket;
    const struct launch_context fixed = {bucket, &unlike, "the rows of a round"};
    struct launch_context sized = {&part, NULL, "the wanted rows, which 'rows' does not divide"};
    double most;
    enum glm_status status = launch_number(m, k, "rows", l->rows, &fixed, 0, MAX_ROWS, &most, err);
    if (status == GLM_OK && most > 0) {
        part.R = outs.R = fmin(part.R, most);
        outs.O += 1;
        sized.other = &outs;
    }
    const struct {
        const char *key, *text;
        const struct launch_context *context;
        double low, high;
    } rows[] = {
        {"block", l->block, &fixed, WARP, MAX_BLOCK},
        {"grid[0]", l->grid[0], &sized, 1, MAX_GRID_X},
        {"grid[1]", l->grid[1], &sized, 1, MAX_GRID_YZ},
        {"grid[2]", l->grid[2], &sized, 1, MAX_GRID_YZ},
        {"shared", l->shared, &fixed, 0, MAX_SHARED_BYTES},
        {"tickets", l->tickets, &sized, 0, MAX_TICKETS},
        {"scratch", l->scratch, &sized, 0, MAX_SCRATCH_BYTES},
    };
    enum { N_ROWS = sizeof rows / sizeof rows[0] };
    double v[N_ROWS] = {0};
    for (size_t i = 0; i < N_ROWS && status == GLM_OK; i++)
        status = launch_number(m, k, rows[i].key, rows[i].text, rows[i].context, rows[i].low,
                               rows[i].high, &v[i], err);
    if (status != GLM_OK)
        return status;
    if (fmod(v[0], WARP) != 0)
        return glm_fail(err, GLM_EPLAN,
                        "cannot launch kernel '%s': 'block' of manifest '%s' is %g, which is no "
                        "multiple of %d",
                        k->name, m->name, v[0], WARP);
    *out = (struct glm_launch_shape){
        .block = (uint32_t)v[0],
        .grid = {(uint32_t)v[1], (uint32_t)v[2], (uint32_t)v[3]},
        .min_blocks = l->min_blocks,
        .shared_bytes = (uint32_t)v[4],
        .n_tickets = (uint32_t)v[5],
        .scratch_bytes = (uint64_t)v[6],
        .rows = (uint32_t)most,
        .n_launches = most > 0 ? (uint32_t)fmax(1, ceil(bucket->R / most)) : 1,
    };
    return GLM_OK;
}
