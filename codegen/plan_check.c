/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of a rank plan across its entries, so that the executor can follow every name, slice
 * and count without asking again. Whether a kernel's arguments and parameters suit its manifest is
 * the manifest's to say (glm_manifest_check, the runtime's link step). */
#include "codegen/plan_check.h"

#include "codegen/forms.h"
#include "codegen/memory.h"
#include "kernels-templates/round.h"
#include "spec/model.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(GLM_EXTENT_ROWS == GLM_POOL_EXTENT_TOKENS, "one size of extent");

/* What a step's argument may name: weights, states and buffers share one namespace. */
enum object_kind { OBJECT_WEIGHT, OBJECT_STATE, OBJECT_BUFFER };
struct object {
    const char *name;
    enum object_kind kind;
    uint32_t i;
};

struct layer_set {
    uint64_t bits[GLM_MAX_LAYERS / 64];
};

struct checker {
    struct json_reader *r;
    const struct glm_plan *p;
    struct object *objects; /* sorted by name */
    uint32_t n_objects;
    struct layer_set *block_layers; /* by block: the layers it is called with */
};

static void add_layer(struct layer_set *set, uint32_t layer)
{
    set->bits[layer / 64] |= UINT64_C(1) << layer % 64;
}

/* The first layer of `part` that `whole` lacks, or -1. */
static int missing_layer(const struct layer_set *part, const struct layer_set *whole)
{
    for (int i = 0; i < GLM_MAX_LAYERS / 64; i++) {
        uint64_t lacking = part->bits[i] & ~whole->bits[i];
        if (lacking != 0)
            return i * 64 + __builtin_ctzll(lacking);
    }
    return -1;
}

static struct layer_set layers_of(const uint32_t *layers, uint32_t n)
{
    struct layer_set set = {{0}};
    for (uint32_t i = 0; i < n; i++)
        add_layer(&set, layers[i]);
    return set;
}

/* Letters, digits and ._-, and `{L}` exactly when the entry has layers. */
static void check_name(struct json_reader *r, const char *name, bool layered)
{
    size_t len = strlen(name);
    const char *place = strstr(name, "{L}");
    for (const char *c = name; *c != '\0'; c++) {
        if (c == place) {
            c += 2;
            continue;
        }
        if (!isalnum((unsigned char)*c) && strchr("._-", *c) == NULL) {
            json_fail(r, "has the name '%.64s', not of A-Z a-z 0-9 . _ -", name);
            return;
        }
    }
    if (len == 0 || len > PLAN_MAX_NAME || strcmp(name, "-") == 0)
        json_fail(r, "has a name of %zu bytes, not 1 to %d, or '-'", len, PLAN_MAX_NAME);
    else if (layered != (place != NULL))
        json_fail(r, "has the name '%.64s' %s", name,
                  layered ? "without {L}, but layers" : "with {L}, but no layers");
}

static int compare_objects(const void *a, const void *b)
{
    const struct object *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static const char *const section_of[] = {
    [OBJECT_WEIGHT] = "weights", [OBJECT_STATE] = "states", [OBJECT_BUFFER] = "buffers"};

static void collect_objects(struct checker *c)
{
    const struct glm_plan *p = c->p;
    uint32_t n = 0;
    c->objects = JSON_ALLOC(c->r, p->n_weights + p->n_states + p->n_buffers, struct object);
    if (c->objects == NULL)
        return;
    for (uint32_t i = 0; i < p->n_weights; i++)
        c->objects[n++] = (struct object){p->weights[i].name, OBJECT_WEIGHT, i};
    for (uint32_t i = 0; i < p->n_states; i++)
        c->objects[n++] = (struct object){p->states[i].name, OBJECT_STATE, i};
    for (uint32_t i = 0; i < p->n_buffers; i++)
        c->objects[n++] = (struct object){p->buffers[i].name, OBJECT_BUFFER, i};
    c->n_objects = n;
    if (n > 1)
        qsort(c->objects, n, sizeof *c->objects, compare_objects);
    for (uint32_t i = 1; i < n; i++)
        if (strcmp(c->objects[i - 1].name, c->objects[i].name) == 0)
            json_fail(c->r, "'%.64s' is the name of two entries, in '%s' and '%s'",
                      c->objects[i].name, section_of[c->objects[i - 1].kind],
                      section_of[c->objects[i].kind]);
}

static const struct object *find_object(const struct checker *c, const char *name)
{
    const struct object key = {.name = name};
    return c->n_objects == 0 ? NULL
                             : bsearch(&key, c->objects, c->n_objects, sizeof key, compare_objects);
}

/* ---- weights ---- */

static void check_slice(struct json_reader *r, const char *key, const struct glm_slice *s,
                        uint64_t n, uint64_t unit)
{
    size_t mark = json_enter(r, key);
    uint64_t last, end;
    if (s->groups > PLAN_MAX_GROUPS || (s->groups > 1 && s->take == 0))
        json_fail(r, "has %" PRIu64 " groups of %" PRIu64 ": at most %d, of 1 or more", s->groups,
                  s->take, PLAN_MAX_GROUPS);
    else if (s->groups > 1 && s->stride < s->take)
        json_fail(r, "has groups of %" PRIu64 " every %" PRIu64 ": they overlap", s->take,
                  s->stride);
    else if (__builtin_mul_overflow(s->groups - 1, s->stride, &last) ||
             __builtin_add_overflow(last, s->first + s->take, &end) || end > n)
        json_fail(r, "ends behind the tensor's %" PRIu64, n);
    else if (s->first % unit != 0 || s->take % unit != 0 ||
             (s->groups > 1 && s->stride % unit != 0))
        json_fail(r, "does not lie on multiples of %" PRIu64, unit);
    json_leave(r, mark);
}

static void check_parts(struct json_reader *r, const struct glm_plan_weight *w)
{
    /* EXL3 rotates blocks of 128: a share cannot begin inside one. */
    uint64_t unit = strncmp(w->stored, "exl3:", 5) == 0 ? 128 : 1, n_rows = 0;
    size_t mark = json_enter(r, "parts");
    for (uint32_t i = 0; json_ok(r) && i < w->n_parts; i++) {
        const struct glm_plan_part *p = &w->parts[i];
        size_t inner = json_enter_item(r, i);
        check_slice(r, "rows", &p->rows, p->n_rows, unit);
        check_slice(r, "cols", &p->cols, p->n_cols, unit);
        if (json_ok(r) && p->cols.groups * p->cols.take != w->n_cols)
            json_fail(r, "takes %" PRIu64 " columns, the weight has %" PRIu64,
                      p->cols.groups * p->cols.take, w->n_cols);
        n_rows += p->rows.groups * p->rows.take;
        bool members = strstr(p->tensor, "{E}") != NULL;
        bool layers = strstr(p->tensor, "{L}") != NULL;
        if (p->tensor[0] == '\0' || (w->n_members > 1 && !members) || layers != (w->n_layers > 0))
            json_fail(r,
                      "has the tensor '%.96s': it must have {E} for several members, {L} for "
                      "layers",
                      p->tensor);
        json_leave(r, inner);
    }
    json_leave(r, mark);
    if (json_ok(r) && n_rows != w->n_rows)
        json_fail(r, "has %" PRIu64 " rows, its parts %" PRIu64, w->n_rows, n_rows);
}

static bool known_stored(const char *stored)
{
    struct glm_form_layout layout;
    return strcmp(stored, "f32") == 0 || strcmp(stored, "bf16") == 0 ||
           (strncmp(stored, "exl3:", 5) == 0 &&
            glm_form_layout(stored, 0, 0, &layout, NULL) == GLM_OK);
}

static bool has_param(const struct glm_plan_kernel *k, const char *name, const char *text,
                      int64_t value)
{
    for (uint32_t i = 0; i < k->n_params; i++) {
        const struct glm_plan_param *p = &k->params[i];
        if (strcmp(p->name, name) == 0)
            return text == NULL ? p->text == NULL && p->value == value
                                : p->text != NULL && strcmp(p->text, text) == 0;
    }
    return false;
}

/* A converter writes what its parameters say: they must be the weight's. */
static bool converts(const struct glm_plan_kernel *k, const struct glm_plan_weight *w)
{
    if (strncmp(w->stored, "exl3:", 5) != 0)
        return strcmp(k->template_name, "load_rows") == 0 && has_param(k, "STORED", w->stored, 0) &&
               has_param(k, "FORM", w->form, 0);
    const char *form = strcmp(w->form, w->stored) == 0 ? "exl3" : w->form;
    return strcmp(k->template_name, "load_exl3") == 0 &&
           has_param(k, "BITS", NULL, w->stored[5] - '0') &&
           has_param(k, "CODEBOOK", w->stored + 7, 0) && has_param(k, "FORM", form, 0);
}

static void check_converter(struct json_reader *r, const struct glm_plan *p,
                            const struct glm_plan_weight *w)
{
    const struct glm_plan_kernel *k = w->load == NULL ? NULL : glm_plan_kernel(p, w->load);
    if (!json_ok(r) || (!glm_plan_uses_cuda(p) && w->load == NULL))
        return;
    if (!glm_plan_uses_cuda(p))
        json_fail(r, "has 'load' '%.64s', but target '%.32s' converts on the host", w->load,
                  p->target);
    else if (w->load == NULL)
        json_fail(r, "has no 'load', which target '%.32s' needs", p->target);
    else if (k == NULL)
        json_fail(r, "has 'load' '%.64s', which is no kernel", w->load);
    else if (!converts(k, w))
        json_fail(r, "has 'load' '%.64s', which does not make '%.32s' of '%.32s'", w->load, w->form,
                  w->stored);
}

static void check_weight(struct json_reader *r, const struct glm_plan_weight *w, uint64_t *total)
{
    check_name(r, w->name, w->n_layers > 0);
    if (json_ok(r) && !known_stored(w->stored))
        json_fail(r, "has 'stored' '%.64s', not f32, bf16 or exl3:BITS:CODEBOOK", w->stored);
    if (json_ok(r) && strncmp(w->form, "exl3:", 5) == 0 && strcmp(w->form, w->stored) != 0)
        json_fail(r, "has the form '%.64s', stored is '%.64s'", w->form, w->stored);
    if (json_ok(r) && w->n_parts == 0)
        json_fail(r, "has no parts");
    check_parts(r, w);
    struct glm_error why = {0};
    uint64_t bytes = 0, copies = w->n_layers == 0 ? 1 : w->n_layers;
    if (json_ok(r) && glm_form_bytes(w->form, w->n_rows, w->n_cols, &bytes, &why) != GLM_OK)
        json_fail(r, "has a form it cannot have: %s", why.message);
    if (json_ok(r) && (__builtin_mul_overflow(bytes, w->n_members, &bytes) || bytes != w->bytes))
        json_fail(r, "has %" PRIu64 " bytes, its form gives %" PRIu64, w->bytes, bytes);
    if (json_ok(r) &&
        (__builtin_mul_overflow(bytes, copies, &bytes) ||
         __builtin_add_overflow(*total, bytes, total) || *total > PLAN_MAX_TOTAL_BYTES))
        json_fail(r, "brings the weights over %" PRIu64 " bytes", PLAN_MAX_TOTAL_BYTES);
}

/* ---- states ---- */

static void check_unit(struct json_reader *r, const struct glm_plan_state *s)
{
    bool pool = s->unit == GLM_UNIT_POOL, ring = s->unit == GLM_UNIT_RING;
    if (pool != (s->per > 0) || (pool && GLM_EXTENT_ROWS % s->per != 0))
        json_fail(r, "has 'per' %u: a pool has a divisor of %d, other units none", s->per,
                  GLM_EXTENT_ROWS);
    else if (ring != (s->ring > 0) || s->keep > s->ring || (!ring && s->keep > 0))
        json_fail(r,
                  "has 'ring' %u and 'keep' %u: a ring has rows and keeps at most those, other "
                  "units have neither",
                  s->ring, s->keep);
    else if (s->versions != 1 && s->unit != GLM_UNIT_STREAM)
        json_fail(r, "has %u versions: only a stream's state has 2", s->versions);
}

static void check_rollback(struct checker *c, const struct glm_plan_state *s)
{
    const char *kernel = strncmp(s->rollback, "replay:", 7) == 0 ? s->rollback + 7 : NULL;
    if (kernel != NULL && glm_plan_kernel(c->p, kernel) == NULL)
        json_fail(c->r, "has the rollback '%.64s': there is no such kernel", s->rollback);
    if (kernel == NULL && strcmp(s->rollback, "position") != 0 &&
        strcmp(s->rollback, "snapshot") != 0)
        json_fail(c->r, "has the rollback '%.64s', not position, snapshot or replay:KERNEL",
                  s->rollback);
}

static void check_state(struct checker *c, const struct glm_plan_state *s, uint64_t *total)
{
    struct json_reader *r = c->r;
    const struct glm_plan_limits *l = &c->p->limits;
    check_name(r, s->name, s->n_layers > 0);
    check_unit(r, s);
    check_rollback(c, s);
    if (!json_ok(r))
        return;
    uint64_t rows = s->unit == GLM_UNIT_TOKEN  ? l->pool_tokens
                    : s->unit == GLM_UNIT_POOL ? l->pool_tokens / s->per
                    : s->unit == GLM_UNIT_RING ? (uint64_t)l->n_slots * s->ring
                                               : (uint64_t)l->n_slots * s->versions;
    uint64_t bytes, copies = s->n_layers == 0 ? 1 : s->n_layers;
    if (__builtin_mul_overflow(rows, s->row_bytes, &bytes) ||
        __builtin_mul_overflow(bytes, copies, &bytes) ||
        __builtin_add_overflow(*total, bytes, total) || *total > PLAN_MAX_TOTAL_BYTES)
        json_fail(r, "brings the states over %" PRIu64 " bytes", PLAN_MAX_TOTAL_BYTES);
}

/* ---- steps ---- */

/* A name that is a buffer of its own for each layer the block is called with. */
static void check_bound_buffers(struct checker *c, const char *name, uint32_t in_block)
{
    const char *place = strstr(name, "{L}");
    const struct layer_set *layers = &c->block_layers[in_block];
    for (uint32_t layer = 0; json_ok(c->r) && layer < GLM_MAX_LAYERS; layer++) {
        char bound[PLAN_MAX_NAME + 16];
        if ((layers->bits[layer / 64] >> layer % 64 & 1) == 0)
            continue;
        snprintf(bound, sizeof bound, "%.*s%u%s", (int)(place - name), name, layer, place + 3);
        const struct object *o = find_object(c, bound);
        if (o == NULL || o->kind != OBJECT_BUFFER)
            json_fail(c->r, "names '%s', which is no weight, state or buffer for layer %u", name,
                      layer);
    }
}

/* "-", "NAME" or "NAME+COLUMN". in_block: the block's index, or UINT32_MAX in a program. */
static void check_arg(struct checker *c, const struct glm_plan_arg *a, uint32_t in_block)
{
    struct json_reader *r = c->r;
    char name[PLAN_MAX_NAME + 1];
    const char *plus = strchr(a->value, '+');
    size_t len = plus == NULL ? strlen(a->value) : (size_t)(plus - a->value);
    if (strcmp(a->value, "-") == 0)
        return;
    if (len > PLAN_MAX_NAME) {
        json_fail(r, "is longer than %d bytes", PLAN_MAX_NAME);
        return;
    }
    memcpy(name, a->value, len);
    name[len] = '\0';
    const struct object *o = find_object(c, name);
    if (o == NULL && strstr(name, "{L}") != NULL && in_block != UINT32_MAX && plus == NULL) {
        check_bound_buffers(c, name, in_block);
        return;
    }
    if (o == NULL) {
        json_fail(r, "names '%s', which is no weight, state or buffer", name);
        return;
    }
    if (plus != NULL) {
        char *end;
        uint64_t column = strtoull(plus + 1, &end, 10);
        if (!isdigit((unsigned char)plus[1]) || *end != '\0' || o->kind != OBJECT_BUFFER ||
            column >= c->p->buffers[o->i].n_cols)
            json_fail(r, "is '%.96s': not a buffer and one of its columns", a->value);
    }
    const uint32_t *layers = o->kind == OBJECT_WEIGHT  ? c->p->weights[o->i].layers
                             : o->kind == OBJECT_STATE ? c->p->states[o->i].layers
                                                       : NULL;
    uint32_t n = o->kind == OBJECT_WEIGHT  ? c->p->weights[o->i].n_layers
                 : o->kind == OBJECT_STATE ? c->p->states[o->i].n_layers
                                           : 0;
    if (n == 0)
        return;
    if (in_block == UINT32_MAX) {
        json_fail(r, "names '%s' outside a block: {L} has no value", name);
        return;
    }
    struct layer_set have = layers_of(layers, n);
    int lacking = missing_layer(&c->block_layers[in_block], &have);
    if (lacking >= 0)
        json_fail(r, "names '%s', which has no layer %d, but the block is called with it", name,
                  lacking);
}

static void check_kernel_step(struct checker *c, const struct glm_plan_step *s, uint32_t in_block)
{
    if (glm_plan_kernel(c->p, s->name) == NULL)
        json_fail(c->r, "names the kernel '%.64s', which is not there", s->name);
    for (uint32_t i = 0; json_ok(c->r) && i < s->n_args; i++) {
        const char *name = s->args[i].name;
        size_t mark = json_enter(c->r, name);
        if (name[0] == '\0' || strlen(name) > 64 || strcmp(name, "kernel") == 0)
            json_fail(c->r, "is no argument's name");
        check_arg(c, &s->args[i], in_block);
        json_leave(c->r, mark);
    }
}

/* Both ends are buffers; a sum is fp32 of equal shape, a gather of equal type. */
static void check_exchange(struct checker *c, const struct glm_plan_step *s)
{
    const struct glm_plan_buffer *from = glm_plan_buffer(c->p, s->from);
    const struct glm_plan_buffer *to = glm_plan_buffer(c->p, s->to);
    if (from == NULL || to == NULL || from == to)
        json_fail(c->r, "names '%.64s' and '%.64s', not two buffers", s->from, s->to);
    else if (strcmp(from->dtype, to->dtype) != 0 || from->per != to->per)
        json_fail(c->r, "joins '%s' and '%s', whose 'dtype' or 'per' differ", s->from, s->to);
    else if (s->kind == GLM_STEP_SUM &&
             (strcmp(from->dtype, "f32") != 0 || from->n_cols != to->n_cols))
        json_fail(c->r,
                  "sums '%s' (%s, %" PRIu64 " columns) into '%s' (%" PRIu64 "): not fp32 of "
                  "equal shape",
                  s->from, from->dtype, from->n_cols, s->to, to->n_cols);
    else if (s->kind == GLM_STEP_GATHER && to->n_cols < from->n_cols)
        json_fail(c->r, "gathers '%s' (%" PRIu64 " columns) into '%s' (%" PRIu64 ")", s->from,
                  from->n_cols, s->to, to->n_cols);
}

static void check_steps(struct checker *c, const struct glm_plan_step *steps, uint32_t n,
                        uint32_t in_block)
{
    size_t mark = json_enter(c->r, "steps");
    for (uint32_t i = 0; json_ok(c->r) && i < n; i++) {
        size_t inner = json_enter_item(c->r, i);
        switch (steps[i].kind) {
        case GLM_STEP_KERNEL:
            check_kernel_step(c, &steps[i], in_block);
            break;
        case GLM_STEP_SUM:
        case GLM_STEP_GATHER:
            check_exchange(c, &steps[i]);
            break;
        case GLM_STEP_BLOCK: /* resolved by count_calls */
            break;
        case GLM_STEP_MARK:
            check_name(c->r, steps[i].name, false);
            break;
        }
        json_leave(c->r, inner);
    }
    json_leave(c->r, mark);
}

/* Blocks hold no calls, so nothing recurses; programs fill block_layers. */
static void count_calls(struct checker *c)
{
    const struct glm_plan *p = c->p;
    c->block_layers = JSON_ALLOC(c->r, p->n_blocks, struct layer_set);
    for (uint32_t i = 0; json_ok(c->r) && i < p->n_blocks; i++)
        for (uint32_t j = 0; j < p->blocks[i].n_steps; j++)
            if (p->blocks[i].steps[j].kind == GLM_STEP_BLOCK)
                json_fail(c->r, "'blocks[%u].steps[%u]' calls a block: only programs do", i, j);
    for (uint32_t i = 0; json_ok(c->r) && i < p->n_programs; i++) {
        const struct glm_plan_program *g = &p->programs[i];
        uint64_t n_run = 0;
        for (uint32_t j = 0; json_ok(c->r) && j < g->n_steps; j++) {
            const struct glm_plan_step *s = &g->steps[j];
            n_run++;
            if (s->kind != GLM_STEP_BLOCK)
                continue;
            const struct glm_plan_block *b = glm_plan_block(p, s->name);
            if (b == NULL) {
                json_fail(c->r,
                          "'programs[%u].steps[%u]' calls the block '%.64s', which is not "
                          "there",
                          i, j, s->name);
                return;
            }
            n_run += b->n_steps;
            add_layer(&c->block_layers[b - p->blocks], s->layer);
        }
        if (n_run > PLAN_MAX_RUN_STEPS)
            json_fail(c->r, "program '%.64s' has %" PRIu64 " steps, at most %d", g->name, n_run,
                      PLAN_MAX_RUN_STEPS);
    }
}

static void check_program(struct checker *c, const struct glm_plan_program *g)
{
    check_name(c->r, g->name, false);
    bool found = false;
    for (uint32_t i = 0; i < c->p->n_arenas; i++)
        found = found || strcmp(c->p->arenas[i].name, g->arena) == 0;
    if (!found)
        json_fail(c->r, "names the arena '%.64s', which is not there", g->arena);
    for (uint32_t i = 0; json_ok(c->r) && i < g->n_inputs + g->n_outputs; i++) {
        bool input = i < g->n_inputs;
        const char *name = input ? g->inputs[i] : g->outputs[i - g->n_inputs];
        if (glm_plan_buffer(c->p, name) == NULL)
            json_fail(c->r, "has the %s '%.64s', which is no buffer", input ? "input" : "output",
                      name);
    }
    check_steps(c, g->steps, g->n_steps, UINT32_MAX);
}

/* ---- the rest ---- */

/* Names of one section are unique and well-formed; `stride` is the entry's size, its name first. */
static void check_section_names(struct json_reader *r, const char *section, const void *items,
                                uint32_t n, size_t stride)
{
    struct object *names = JSON_ALLOC(r, n, struct object);
    for (uint32_t i = 0; json_ok(r) && i < n; i++) {
        const char *const *name =
            (const char *const *)(const void *)((const char *)items + i * stride);
        names[i].name = *name;
        check_name(r, *name, false);
    }
    if (!json_ok(r))
        return;
    if (n > 1)
        qsort(names, n, sizeof *names, compare_objects);
    for (uint32_t i = 1; i < n; i++)
        if (strcmp(names[i - 1].name, names[i].name) == 0)
            json_fail(r, "'%s' has two entries named '%.64s'", section, names[i].name);
}

static void check_head(struct json_reader *r, const struct glm_plan *p)
{
    const struct glm_plan_limits *l = &p->limits;
    uint64_t total = 0;
    if (p->rank >= p->world)
        json_fail(r, "rank %u is not below world %u", p->rank, p->world);
    if (p->n_valid_ids > p->d_vocab)
        json_fail(r, "valid_ids %u is above d_vocab %u", p->n_valid_ids, p->d_vocab);
    for (uint32_t i = 0; i < p->n_end_ids; i++)
        if (p->end_ids[i] >= p->d_vocab)
            json_fail(r, "end id %u is not below d_vocab %u", p->end_ids[i], p->d_vocab);
    if (l->n_slots < l->n_streams)
        json_fail(r, "%u slots are fewer than %u streams", l->n_slots, l->n_streams);
    if (l->pool_tokens % GLM_EXTENT_ROWS != 0)
        json_fail(r, "pool_tokens %" PRIu64 " is no multiple of %d", l->pool_tokens,
                  GLM_EXTENT_ROWS);
    if (l->prefill_rows % GLM_BLOCK_ROWS != 0)
        json_fail(r, "prefill_rows %u is no multiple of %d", l->prefill_rows, GLM_BLOCK_ROWS);
    if (strlen(p->target) == 0 || strlen(p->target) > 32)
        json_fail(r, "the target '%.64s' has not 1 to 32 bytes", p->target);
    for (uint32_t i = 0; i < p->n_memory; i++)
        if (__builtin_add_overflow(total, p->memory[i].bytes, &total) ||
            total > 2 * PLAN_MAX_TOTAL_BYTES)
            json_fail(r, "'memory' sums to more than %" PRIu64 " bytes", 2 * PLAN_MAX_TOTAL_BYTES);
}

/* Runs `check(entry i)` at its place. */
#define EACH(r, section, n, call)                          \
    do {                                                   \
        size_t mark_ = json_enter((r), section);           \
        for (uint32_t i = 0; json_ok(r) && i < (n); i++) { \
            size_t inner_ = json_enter_item((r), i);       \
            call;                                          \
            json_leave((r), inner_);                       \
        }                                                  \
        json_leave((r), mark_);                            \
    } while (0)

static void check_blocks(struct checker *c)
{
    const struct glm_plan *p = c->p;
    EACH(c->r, "blocks", p->n_blocks, check_steps(c, p->blocks[i].steps, p->blocks[i].n_steps, i));
}

void glm_plan_check(struct json_reader *r, const struct glm_plan *p)
{
    struct checker c = {.r = r, .p = p};
    uint64_t total = 0;
    check_head(r, p);
    check_section_names(r, "arenas", p->arenas, p->n_arenas, sizeof *p->arenas);
    check_section_names(r, "kernels", p->kernels, p->n_kernels, sizeof *p->kernels);
    check_section_names(r, "blocks", p->blocks, p->n_blocks, sizeof *p->blocks);
    check_section_names(r, "programs", p->programs, p->n_programs, sizeof *p->programs);
    EACH(r, "weights", p->n_weights, check_weight(r, &p->weights[i], &total));
    EACH(r, "weights", p->n_weights, check_converter(r, p, &p->weights[i]));
    EACH(r, "states", p->n_states, check_state(&c, &p->states[i], &total));
    EACH(r, "buffers", p->n_buffers, check_name(r, p->buffers[i].name, false));
    collect_objects(&c);
    count_calls(&c);
    if (!json_ok(r))
        return;
    check_blocks(&c);
    EACH(r, "programs", p->n_programs, check_program(&c, &p->programs[i]));
}
