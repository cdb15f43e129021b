/* SPDX-License-Identifier: Apache-2.0 */
/* JSON → plan: the shape of the document and the range of every single value. What needs two
 * entries to be judged (references, slices against shapes, sums) is plan_check.c. Unknown and
 * repeated keys are errors, so that nothing can hide in a file whose digest is right. */
#include "codegen/plan.h"

#include "codegen/json_util.h"
#include "codegen/plan_check.h"
#include "kernels-templates/round.h"
#include "spec/cluster.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads one entry of a list into out. */
typedef void (*read_item)(struct json_reader *r, const cJSON *item, void *out);

/* The list `key` of the object as n elements of `size` bytes. */
static void *read_list(struct json_reader *r, const cJSON *object, const char *key, uint32_t max,
                       size_t size, read_item read, uint32_t *n)
{
    const cJSON *list = json_list(r, object, key, max, true, n);
    char *items = json_alloc(r, *n, size);
    size_t mark = json_enter(r, key);
    const cJSON *item = list == NULL ? NULL : list->child;
    for (uint32_t i = 0; json_ok(r) && item != NULL; i++, item = item->next) {
        size_t inner = json_enter_item(r, i);
        read(r, item, items + i * size);
        json_leave(r, inner);
    }
    json_leave(r, mark);
    return items;
}

/* "3..44" or "0,1,3": ascending values below GLM_MAX_LAYERS. */
static void read_layers(struct json_reader *r, const cJSON *object, const uint32_t **out,
                        uint32_t *n)
{
    *n = 0;
    const char *text = json_text_or(r, object, "layers", "");
    if (!json_ok(r) || text[0] == '\0')
        return;
    uint32_t *layers = JSON_ALLOC(r, GLM_MAX_LAYERS, uint32_t);
    unsigned long next = 0; /* the least value that may follow */
    while (json_ok(r)) {
        char *end;
        unsigned long first = strtoul(text, &end, 10), last = first;
        bool ok = *text >= '0' && *text <= '9';
        if (ok && end[0] == '.' && end[1] == '.') {
            text = end + 2;
            last = strtoul(text, &end, 10);
            ok = *text >= '0' && *text <= '9';
        }
        if (!ok || first < next || last < first || last >= GLM_MAX_LAYERS ||
            (*end != '\0' && *end != ',')) {
            json_fail(r,
                      "has the layers '%.64s', not ascending like \"3..44\" or \"0,1,3\", below %d",
                      json_text(r, object, "layers"), GLM_MAX_LAYERS);
            return;
        }
        for (; first <= last; first++)
            layers[(*n)++] = (uint32_t)first;
        next = last + 1;
        if (*end == '\0')
            break;
        text = end + 1;
    }
    *out = layers;
}

static void read_shape(struct json_reader *r, const cJSON *object, uint64_t *rows, uint64_t *cols)
{
    uint32_t n;
    const cJSON *list = json_list(r, object, "shape", 2, true, &n);
    size_t mark = json_enter(r, "shape");
    if (json_ok(r) && n != 2)
        json_fail(r, "has %u entries, not 2", n);
    if (json_ok(r)) {
        *rows = json_item_u64(r, list->child, 0, PLAN_MAX_DIMENSION);
        *cols = json_item_u64(r, list->child->next, 0, PLAN_MAX_DIMENSION);
    }
    json_leave(r, mark);
}

/* [first, take], [first, take, groups, stride], or absent: all of n. */
static void read_slice(struct json_reader *r, const cJSON *object, const char *key, uint64_t n,
                       struct glm_slice *out)
{
    *out = (struct glm_slice){.take = n, .groups = 1, .stride = n};
    uint32_t count;
    const cJSON *list = json_list(r, object, key, 4, false, &count);
    if (list == NULL)
        return;
    size_t mark = json_enter(r, key);
    if (count != 2 && count != 4)
        json_fail(r, "has %u entries, not 2 or 4", count);
    uint64_t v[4] = {0, 0, 1, 0};
    const cJSON *item = list->child;
    for (uint32_t i = 0; json_ok(r) && i < count; i++, item = item->next)
        v[i] = json_item_u64(r, item, i == 2 ? 1 : 0, PLAN_MAX_DIMENSION);
    if (count == 2)
        v[3] = v[1];
    *out = (struct glm_slice){v[0], v[1], v[2], v[3]};
    /* The canonical form alone: what is written has one spelling. */
    if (json_ok(r) && count == 4 && v[2] == 1)
        json_fail(r, "has one group: write [first,take]");
    if (json_ok(r) && count == 2 && v[0] == 0 && v[1] == n)
        json_fail(r, "takes all %" PRIu64 ": leave it out", n);
    json_leave(r, mark);
}

static void read_part(struct json_reader *r, const cJSON *item, void *out)
{
    static const char *const keys[] = {"tensor", "shape", "rows", "cols", NULL};
    struct glm_plan_part *p = out;
    if (!json_object(r, item, keys))
        return;
    p->tensor = json_text(r, item, "tensor");
    read_shape(r, item, &p->n_rows, &p->n_cols);
    read_slice(r, item, "rows", p->n_rows, &p->rows);
    read_slice(r, item, "cols", p->n_cols, &p->cols);
}

static void read_weight(struct json_reader *r, const cJSON *item, void *out)
{
    static const char *const keys[] = {"name", "layers", "members", "stored", "form",
                                       "load", "shape",  "bytes",   "parts",  NULL};
    struct glm_plan_weight *w = out;
    if (!json_object(r, item, keys))
        return;
    w->name = json_text(r, item, "name");
    read_layers(r, item, &w->layers, &w->n_layers);
    w->n_members = (uint32_t)json_u64_or(r, item, "members", 1, 65536, 1);
    w->stored = json_text(r, item, "stored");
    w->form = json_text(r, item, "form");
    if (cJSON_HasObjectItem(item, "load"))
        w->load = json_text(r, item, "load");
    read_shape(r, item, &w->n_rows, &w->n_cols);
    w->bytes = json_u64(r, item, "bytes", 0, PLAN_MAX_TOTAL_BYTES);
    w->parts =
        read_list(r, item, "parts", PLAN_MAX_PARTS, sizeof *w->parts, read_part, &w->n_parts);
}

/* Index of the text in a NULL-terminated list; records what was found otherwise. */
static uint32_t read_choice(struct json_reader *r, const cJSON *object, const char *key,
                            const char *const *choices)
{
    const char *text = json_text(r, object, key);
    for (uint32_t i = 0; json_ok(r) && choices[i] != NULL; i++)
        if (strcmp(text, choices[i]) == 0)
            return i;
    json_fail(r, "has '%s' '%.64s', not one of the known ('%s', …)", key, text, choices[0]);
    return 0;
}

static void read_state(struct json_reader *r, const cJSON *item, void *out)
{
    static const char *const keys[] = {"name",
                                       "layers",
                                       "unit",
                                       "per",
                                       "ring",
                                       "keep",
                                       "versions",
                                       "row_bytes",
                                       "dtype",
                                       "split",
                                       "position_offset",
                                       "rollback",
                                       NULL};
    static const char *const units[] = {"token", "pool", "stream", "ring", NULL};
    static const char *const dtypes[] = {"f32", "bf16", "fp8", NULL};
    struct glm_plan_state *s = out;
    if (!json_object(r, item, keys))
        return;
    s->name = json_text(r, item, "name");
    read_layers(r, item, &s->layers, &s->n_layers);
    s->unit = (enum glm_state_unit)read_choice(r, item, "unit", units);
    s->per = (uint32_t)json_u64_or(r, item, "per", 1, GLM_EXTENT_ROWS, 0);
    s->ring = (uint32_t)json_u64_or(r, item, "ring", 1, PLAN_MAX_ROWS, 0);
    s->keep = (uint32_t)json_u64_or(r, item, "keep", 1, PLAN_MAX_ROWS, 0);
    s->versions = (uint32_t)json_u64_or(r, item, "versions", 2, 2, 1);
    s->row_bytes = json_u64(r, item, "row_bytes", 0, PLAN_MAX_DIMENSION);
    s->dtype = dtypes[read_choice(r, item, "dtype", dtypes)];
    s->split = json_bool_or(r, item, "split", false);
    s->position_offset = (int32_t)json_i64_or(r, item, "position_offset", -4096, 4096, 0);
    s->rollback = json_text(r, item, "rollback");
}

static void read_buffer(struct json_reader *r, const cJSON *item, void *out)
{
    static const char *const keys[] = {"name", "dtype", "cols", "per", NULL};
    static const char *const dtypes[] = {"act", "f32", "i32", NULL};
    static const char *const pers[] = {"row", "out", "once", NULL};
    struct glm_plan_buffer *b = out;
    if (!json_object(r, item, keys))
        return;
    b->name = json_text(r, item, "name");
    b->dtype = dtypes[read_choice(r, item, "dtype", dtypes)];
    b->n_cols = json_u64(r, item, "cols", 0, PLAN_MAX_DIMENSION);
    b->per = (enum glm_buffer_per)read_choice(r, item, "per", pers);
}

static void read_arena(struct json_reader *r, const cJSON *item, void *out)
{
    static const char *const keys[] = {"name", "rows", "outs", NULL};
    struct glm_plan_arena *a = out;
    if (!json_object(r, item, keys))
        return;
    a->name = json_text(r, item, "name");
    a->n_rows = (uint32_t)json_u64(r, item, "rows", 0, PLAN_MAX_ROWS);
    a->n_outs = (uint32_t)json_u64(r, item, "outs", 0, PLAN_MAX_ROWS);
}

static void read_memory(struct json_reader *r, const cJSON *item, void *out)
{
    static const char *const keys[] = {"part", "bytes", NULL};
    struct glm_plan_memory *m = out;
    if (!json_object(r, item, keys))
        return;
    m->part = json_text(r, item, "part");
    m->bytes = json_u64(r, item, "bytes", 0, PLAN_MAX_TOTAL_BYTES);
}

/* A value, or [value, origin]; numbers are int parameters, texts float and word ones. */
static void read_param(struct json_reader *r, const cJSON *item, struct glm_plan_param *p)
{
    const cJSON *value = item;
    p->name = arena_strdup(r->arena, item->string);
    p->origin = "";
    if (p->name == NULL) {
        json_no_memory(r);
        return;
    }
    if (cJSON_IsArray(item)) {
        value = item->child;
        if (value == NULL || value->next == NULL || value->next->next != NULL) {
            json_fail(r, "is not [value, origin]");
            return;
        }
        p->origin = json_item_text(r, value->next);
        if (json_ok(r) && p->origin[0] == '\0')
            json_fail(r, "has an empty origin: leave it out");
    }
    if (cJSON_IsString(value))
        p->text = json_item_text(r, value);
    else
        p->value = json_item_i64(r, value);
}

static void read_kernel(struct json_reader *r, const cJSON *item, void *out)
{
    static const char *const keys[] = {"name", "template", "params", NULL};
    struct glm_plan_kernel *k = out;
    if (!json_object(r, item, keys))
        return;
    k->name = json_text(r, item, "name");
    k->template_name = json_text(r, item, "template");
    const cJSON *params = json_get(r, item, "params", true);
    if (!json_ok(r))
        return;
    size_t mark = json_enter(r, "params");
    if (!cJSON_IsObject(params))
        json_fail(r, "is not an object");
    else if (cJSON_GetArraySize(params) > PLAN_MAX_PARAMS)
        json_fail(r, "has more than %d entries", PLAN_MAX_PARAMS);
    k->params = JSON_ALLOC(r, PLAN_MAX_PARAMS, struct glm_plan_param);
    for (const cJSON *p = json_ok(r) ? params->child : NULL; json_ok(r) && p; p = p->next) {
        size_t inner = json_enter(r, p->string);
        for (uint32_t i = 0; i < k->n_params; i++)
            if (strcmp(k->params[i].name, p->string) == 0)
                json_fail(r, "is there twice");
        if (json_ok(r))
            read_param(r, p, &k->params[k->n_params++]);
        json_leave(r, inner);
    }
    json_leave(r, mark);
}

static void read_kernel_step(struct json_reader *r, const cJSON *item, struct glm_plan_step *s)
{
    uint32_t n = (uint32_t)cJSON_GetArraySize(item) - 1;
    s->name = json_item_text(r, item->child);
    if (n > GLM_PLAN_MAX_ARGS)
        json_fail(r, "has %u arguments, at most %d", n, GLM_PLAN_MAX_ARGS);
    s->args = JSON_ALLOC(r, n, struct glm_plan_arg);
    for (const cJSON *a = item->child->next; json_ok(r) && a != NULL; a = a->next) {
        size_t mark = json_enter(r, a->string);
        for (uint32_t i = 0; i < s->n_args; i++)
            if (strcmp(s->args[i].name, a->string) == 0)
                json_fail(r, "is there twice");
        struct glm_plan_arg arg = {arena_strdup(r->arena, a->string), json_item_text(r, a)};
        if (arg.name == NULL)
            json_no_memory(r);
        else if (json_ok(r))
            s->args[s->n_args++] = arg;
        json_leave(r, mark);
    }
}

/* The first key says what a step is. */
static void read_step(struct json_reader *r, const cJSON *item, void *out)
{
    static const char *const exchange_keys[] = {"sum", "gather", "to", NULL};
    static const char *const block_keys[] = {"block", "L", NULL};
    static const char *const mark_keys[] = {"mark", NULL};
    struct glm_plan_step *s = out;
    const char *first = cJSON_IsObject(item) && item->child != NULL ? item->child->string : "";
    if (strcmp(first, "kernel") == 0) {
        s->kind = GLM_STEP_KERNEL;
        read_kernel_step(r, item, s);
    } else if (strcmp(first, "sum") == 0 || strcmp(first, "gather") == 0) {
        s->kind = first[0] == 's' ? GLM_STEP_SUM : GLM_STEP_GATHER;
        if (!json_object(r, item, exchange_keys))
            return;
        s->from = json_text(r, item, first);
        s->to = json_text(r, item, "to");
        if (json_ok(r) && cJSON_GetArraySize(item) != 2)
            json_fail(r, "has both 'sum' and 'gather'");
    } else if (strcmp(first, "block") == 0) {
        s->kind = GLM_STEP_BLOCK;
        if (!json_object(r, item, block_keys))
            return;
        s->name = json_text(r, item, "block");
        s->layer = (uint32_t)json_u64(r, item, "L", 0, GLM_MAX_LAYERS - 1);
    } else if (strcmp(first, "mark") == 0) {
        s->kind = GLM_STEP_MARK;
        if (json_object(r, item, mark_keys))
            s->name = json_text(r, item, "mark");
    } else {
        json_fail(r,
                  "is not a step: its first key is '%.64s', not kernel, sum, gather, block or "
                  "mark",
                  first);
    }
}

static void read_block(struct json_reader *r, const cJSON *item, void *out)
{
    static const char *const keys[] = {"name", "steps", NULL};
    struct glm_plan_block *b = out;
    if (!json_object(r, item, keys))
        return;
    b->name = json_text(r, item, "name");
    b->steps =
        read_list(r, item, "steps", PLAN_MAX_STEPS, sizeof *b->steps, read_step, &b->n_steps);
}

static void read_name(struct json_reader *r, const cJSON *item, void *out)
{
    const char **name = out;
    *name = json_item_text(r, item);
}

static void read_program(struct json_reader *r, const cJSON *item, void *out)
{
    static const char *const keys[] = {"name", "arena", "inputs", "outputs", "steps", NULL};
    struct glm_plan_program *g = out;
    if (!json_object(r, item, keys))
        return;
    g->name = json_text(r, item, "name");
    g->arena = json_text(r, item, "arena");
    g->inputs =
        read_list(r, item, "inputs", PLAN_MAX_NAMES, sizeof *g->inputs, read_name, &g->n_inputs);
    g->outputs =
        read_list(r, item, "outputs", PLAN_MAX_NAMES, sizeof *g->outputs, read_name, &g->n_outputs);
    g->steps =
        read_list(r, item, "steps", PLAN_MAX_STEPS, sizeof *g->steps, read_step, &g->n_steps);
}

static void read_end_id(struct json_reader *r, const cJSON *item, void *out)
{
    uint32_t *id = out;
    *id = (uint32_t)json_item_u64(r, item, 0, PLAN_MAX_DIMENSION - 1);
}

static void read_limits(struct json_reader *r, const cJSON *tree, struct glm_plan_limits *l)
{
    static const char *const keys[] = {
        "streams", "slots", "window_tokens", "pool_tokens", "verify_rows", "prefill_rows", NULL};
    const cJSON *item = json_get(r, tree, "limits", true);
    if (!json_ok(r))
        return;
    size_t mark = json_enter(r, "limits");
    if (json_object(r, item, keys)) {
        l->n_streams = (uint32_t)json_u64(r, item, "streams", 1, GLM_ROUND_STREAMS);
        l->n_slots = (uint32_t)json_u64(r, item, "slots", 1, 65536);
        l->window_tokens = (uint32_t)json_u64(r, item, "window_tokens", 1, 1 << 24);
        l->pool_tokens = json_u64(r, item, "pool_tokens", 0, UINT64_C(1) << 31);
        l->verify_rows = (uint32_t)json_u64(r, item, "verify_rows", 1, 1024);
        l->prefill_rows = (uint32_t)json_u64(r, item, "prefill_rows", 0, PLAN_MAX_ROWS);
    }
    json_leave(r, mark);
}

static void read_plan(struct json_reader *r, const cJSON *tree, struct glm_plan *p)
{
    static const char *const keys[] = {
        "format_version", "set_digest", "model",   "rank",   "world",    "target", "act",
        "d_vocab",        "valid_ids",  "end_ids", "limits", "memory",   "arenas", "weights",
        "states",         "buffers",    "kernels", "blocks", "programs", NULL};
    static const char *const acts[] = {"f32", "bf16", NULL};
    if (!json_object(r, tree, keys))
        return;
    p->format_version =
        (uint32_t)json_u64(r, tree, "format_version", GLM_PLAN_FORMAT, GLM_PLAN_FORMAT);
    json_digest(r, tree, "set_digest", true, p->set_digest);
    p->model = json_text(r, tree, "model");
    p->rank = (uint32_t)json_u64(r, tree, "rank", 0, GLM_MAX_RANKS - 1);
    p->world = (uint32_t)json_u64(r, tree, "world", 1, GLM_MAX_RANKS);
    p->target = json_text(r, tree, "target");
    p->act = acts[read_choice(r, tree, "act", acts)];
    p->d_vocab = (uint32_t)json_u64(r, tree, "d_vocab", 1, PLAN_MAX_DIMENSION - 1);
    p->n_valid_ids = (uint32_t)json_u64(r, tree, "valid_ids", 1, PLAN_MAX_DIMENSION - 1);
    p->end_ids = read_list(r, tree, "end_ids", GLM_MAX_END_IDS, sizeof(uint32_t), read_end_id,
                           &p->n_end_ids);
    read_limits(r, tree, &p->limits);
    p->memory =
        read_list(r, tree, "memory", PLAN_MAX_MEMORY, sizeof *p->memory, read_memory, &p->n_memory);
    p->arenas =
        read_list(r, tree, "arenas", PLAN_MAX_ARENAS, sizeof *p->arenas, read_arena, &p->n_arenas);
    p->weights = read_list(r, tree, "weights", PLAN_MAX_WEIGHTS, sizeof *p->weights, read_weight,
                           &p->n_weights);
    p->states =
        read_list(r, tree, "states", PLAN_MAX_STATES, sizeof *p->states, read_state, &p->n_states);
    p->buffers = read_list(r, tree, "buffers", PLAN_MAX_BUFFERS, sizeof *p->buffers, read_buffer,
                           &p->n_buffers);
    p->kernels = read_list(r, tree, "kernels", PLAN_MAX_KERNELS, sizeof *p->kernels, read_kernel,
                           &p->n_kernels);
    p->blocks =
        read_list(r, tree, "blocks", PLAN_MAX_BLOCKS, sizeof *p->blocks, read_block, &p->n_blocks);
    p->programs = read_list(r, tree, "programs", PLAN_MAX_PROGRAMS, sizeof *p->programs,
                            read_program, &p->n_programs);
}

/* Also for saved plans, whose tree holds several plans. */
enum glm_status glm_plan_from_tree(const cJSON *tree, const char *subject, struct arena *arena,
                                   struct glm_plan **out, struct glm_error *err)
{
    struct json_reader r;
    json_reader_init(&r, subject, GLM_EPLAN, arena, err);
    struct glm_plan *p = JSON_ALLOC(&r, 1, struct glm_plan);
    if (p != NULL)
        read_plan(&r, tree, p);
    if (json_ok(&r))
        glm_plan_check(&r, p);
    if (json_ok(&r))
        *out = p;
    return r.status;
}

enum glm_status glm_plan_read(const char *json, size_t len, struct arena *arena,
                              struct glm_plan **out, struct glm_error *err)
{
    struct json_reader r;
    json_reader_init(&r, "the rank plan", GLM_EPLAN, arena, err);
    cJSON *tree = json_parse(&r, json, len, PLAN_MAX_BYTES);
    if (tree == NULL)
        return r.status;
    enum glm_status status = glm_plan_from_tree(tree, "the rank plan", arena, out, err);
    cJSON_Delete(tree);
    return status;
}
