/* SPDX-License-Identifier: Apache-2.0 */
/* Links programs. Owns the flat steps: names are resolved here once, and counted is what a step
 * touches (glm_exec_count). How steps run is the device's, what a kernel computes its body's. */
#include "runtime/exec_step.h"

#include <stdlib.h>
#include <string.h>

struct linker {
    struct glm_exec *x;
    struct arena *arena;
    struct glm_exec_program *program;
    uint32_t capacity;
    struct glm_error *err;
};

/* Layer index of a family of that name pattern when `name` is one of its literal names. */
static bool family_has(const char *pattern, const uint32_t *layers, uint32_t n_layers,
                       const char *name, uint32_t *layer_i)
{
    const char *hole = strstr(pattern, "{L}");
    *layer_i = 0;
    if (!hole || n_layers == 0)
        return strcmp(pattern, name) == 0;
    size_t head = (size_t)(hole - pattern);
    if (strncmp(pattern, name, head) != 0 || name[head] < '0' || name[head] > '9')
        return false;
    char *end;
    unsigned long layer = strtoul(name + head, &end, 10);
    if (strcmp(end, hole + 3) != 0)
        return false;
    for (uint32_t i = 0; i < n_layers; i++) {
        if (layers[i] == layer) {
            *layer_i = i;
            return true;
        }
    }
    return false;
}

static bool find_target(const struct glm_exec *x, uint32_t arena_i, const char *name,
                        struct glm_exec_target *out)
{
    const struct glm_plan *p = x->plan;
    uint32_t layer_i;
    *out = (struct glm_exec_target){0};
    unsigned char *base = x->memory->base;
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        uint64_t at = x->memory->buffers[(uint64_t)arena_i * p->n_buffers + i];
        if (strcmp(p->buffers[i].name, name) == 0 && at != GLM_NOWHERE) {
            *out = (struct glm_exec_target){
                .address = base + at, .base = base + at, .buffer = &p->buffers[i]};
            return true;
        }
    }
    for (uint32_t i = 0; i < p->n_weights; i++) {
        const struct glm_plan_weight *w = &p->weights[i];
        if (family_has(w->name, w->layers, w->n_layers, name, &layer_i)) {
            uint64_t at = x->memory->weights[i] + layer_i * glm_weight_stride(w);
            *out = (struct glm_exec_target){.address = base + at, .base = base + at, .weight = w};
            return true;
        }
    }
    for (uint32_t i = 0; i < x->states->n_planes; i++) {
        const struct glm_state_plane *plane = &x->states->planes[i];
        if (family_has(plane->state->name, plane->state->layers, plane->state->n_layers, name,
                       &layer_i) &&
            layer_i == plane->layer_i) {
            *out = (struct glm_exec_target){
                .address = plane->base, .base = plane->base, .plane = plane};
            return true;
        }
    }
    return false;
}

/* Bytes of one element for a +COLUMN offset; 0: the thing has no columns. */
static uint32_t element_bytes(const struct glm_exec *x, const struct glm_exec_target *t)
{
    if (t->buffer)
        return glm_buffer_element_bytes(x->plan, t->buffer);
    const char *form = t->weight ? t->weight->form : "";
    if (strcmp(form, "f32") == 0)
        return 4;
    return strcmp(form, "bf16") == 0 ? 2 : 0;
}

static enum glm_status resolve(struct linker *l, const char *value, uint32_t layer,
                               struct glm_exec_target *out)
{
    char name[256];
    const char *program = l->program->program->name;
    size_t len = strcspn(value, "+");
    enum glm_status st = glm_name_bind(value, len, layer, name, sizeof name, l->err);
    if (st != GLM_OK)
        return st;
    if (!find_target(l->x, l->program->arena_i, name, out))
        return glm_fail(l->err, GLM_EPLAN,
                        "cannot link program '%s': '%s' is no weight, state or buffer of it",
                        program, name);
    if (value[len] == '\0')
        return GLM_OK;
    char *end;
    unsigned long long column = strtoull(value + len + 1, &end, 10);
    uint64_t n_cols = out->buffer ? out->buffer->n_cols : out->weight ? out->weight->n_cols : 0;
    uint32_t bytes = element_bytes(l->x, out);
    if (value[len + 1] < '0' || value[len + 1] > '9' || *end || bytes == 0 || column >= n_cols)
        return glm_fail(l->err, GLM_EPLAN,
                        "cannot link program '%s': '%s' is not a column below %llu of it", program,
                        value, (unsigned long long)n_cols);
    out->address = (unsigned char *)out->address + column * bytes;
    return GLM_OK;
}

static enum glm_status add_step(struct linker *l, struct glm_exec_step **out)
{
    struct glm_exec_program *p = l->program;
    if (p->n_steps == l->capacity) {
        uint32_t capacity = l->capacity > 0 ? 2 * l->capacity : 64;
        struct glm_exec_step *steps = ARENA_ARRAY(l->arena, capacity, struct glm_exec_step);
        if (!steps)
            return glm_fail(l->err, GLM_ENOMEM, "cannot link program '%s': out of memory",
                            p->program->name);
        if (p->n_steps > 0)
            memcpy(steps, p->steps, p->n_steps * sizeof *steps);
        p->steps = steps;
        l->capacity = capacity;
    }
    *out = &p->steps[p->n_steps++];
    **out = (struct glm_exec_step){0};
    return GLM_OK;
}

/* Weights are read whole, those of several members by member; state rows by unit: a stream's row
 * each way that the direction says, one row a new token. Rows of the context that a kernel reads
 * depend on data and are not counted here; a plan's price (codegen/graph.h) has the same rule. */
static void count_argument(struct glm_exec_step *s, const struct glm_exec_target *t,
                           const struct glm_manifest_arg *arg)
{
    const struct glm_plan_state *state = t->plane ? t->plane->state : NULL;
    bool in = strcmp(arg->direction, "out") != 0, out = strcmp(arg->direction, "in") != 0;
    if (t->weight && t->weight->n_members > 1) {
        s->n_members = t->weight->n_members;
        s->member_read += t->weight->bytes / t->weight->n_members;
    } else if (t->weight) {
        s->fixed_read += t->weight->bytes;
    } else if (state && state->unit == GLM_UNIT_STREAM) {
        s->stream_read += in ? state->row_bytes : 0;
        s->stream_write += out ? state->row_bytes : 0;
    } else if (state && out) {
        s->row_write +=
            state->unit == GLM_UNIT_POOL ? state->row_bytes / state->per : state->row_bytes;
    } else if (t->buffer) {
        s->out_rows = s->out_rows || t->buffer->per == GLM_PER_OUT;
        if (in && !out && !s->ids && strcmp(t->buffer->dtype, "i32") == 0) {
            s->ids = t->address;
            s->n_ids = (uint32_t)t->buffer->n_cols;
        }
    }
}

/* A kernel whose manifest reads less than half of its weights at one row looks rows up in a table.
 */
static enum glm_status count_picked(struct glm_exec_step *s, const struct glm_plan_kernel *k,
                                    const struct glm_manifest *m, struct glm_error *err)
{
    struct glm_cost_context at = {.R = 1, .O = 1, .S = 1, .T = 1, .U = 1};
    double one = 0, two = 0;
    if (s->fixed_read == 0)
        return GLM_OK;
    enum glm_status st = glm_expression_eval(m->read, k->params, k->n_params, &at, &one, err);
    at.R = 2;
    if (st == GLM_OK)
        st = glm_expression_eval(m->read, k->params, k->n_params, &at, &two, err);
    if (st == GLM_OK && one < (double)s->fixed_read / 2 && two > one)
        s->picked_row = (uint64_t)(two - one);
    return st;
}

static const char *argument_value(const struct glm_plan_step *s, const char *name)
{
    for (uint32_t i = 0; i < s->n_args; i++)
        if (strcmp(s->args[i].name, name) == 0)
            return s->args[i].value;
    return NULL;
}

static enum glm_status link_kernel(struct linker *l, const struct glm_plan_step *s, uint32_t layer)
{
    const struct glm_exec *x = l->x;
    const char *program = l->program->program->name;
    const struct glm_plan_kernel *k = glm_plan_kernel(x->plan, s->name);
    const struct glm_manifest *m =
        k ? glm_manifest_find(x->manifests, x->n_manifests, k->template_name) : NULL;
    if (!m)
        return glm_fail(l->err, GLM_EPLAN, "cannot link program '%s': kernel '%s' is not known",
                        program, s->name);
    struct glm_exec_step *step;
    enum glm_status st = add_step(l, &step);
    if (st != GLM_OK)
        return st;
    step->kind = GLM_STEP_KERNEL;
    step->name = k->name;
    step->layer = layer;
    step->kernel_i = (uint32_t)(k - x->plan->kernels);
    step->manifest = m;
    step->args = ARENA_ARRAY(l->arena, m->n_args + 1, void *);
    step->targets = ARENA_ARRAY(l->arena, m->n_args + 1, struct glm_exec_target);
    if (!step->args || !step->targets)
        return glm_fail(l->err, GLM_ENOMEM, "cannot link program '%s': out of memory", program);
    uint32_t n_found = 0;
    for (uint32_t i = 0; i < m->n_args; i++) {
        const char *value = argument_value(s, m->args[i].name);
        n_found += value != NULL;
        if (!value || strcmp(value, "-") == 0) {
            if (m->args[i].optional)
                continue;
            return glm_fail(l->err, GLM_EPLAN,
                            "cannot link program '%s': kernel '%s' lacks argument '%s'", program,
                            k->name, m->args[i].name);
        }
        st = resolve(l, value, layer, &step->targets[i]);
        if (st != GLM_OK)
            return st;
        step->args[i] = step->targets[i].address;
        count_argument(step, &step->targets[i], &m->args[i]);
    }
    if (n_found != s->n_args)
        return glm_fail(l->err, GLM_EPLAN,
                        "cannot link program '%s': kernel '%s' has %u arguments, %u of them known "
                        "to '%s'",
                        program, k->name, s->n_args, n_found, m->name);
    return count_picked(step, k, m, l->err);
}

static enum glm_status link_collective(struct linker *l, const struct glm_plan_step *s,
                                       uint32_t layer)
{
    struct glm_exec *x = l->x;
    const char *program = l->program->program->name;
    struct glm_exec_target from, to;
    enum glm_status st = resolve(l, s->from, layer, &from);
    if (st == GLM_OK)
        st = resolve(l, s->to, layer, &to);
    if (st != GLM_OK)
        return st;
    uint32_t world = x->plan->world, copies = s->kind == GLM_STEP_GATHER ? world : 1;
    uint64_t bytes = from.buffer ? glm_buffer_element_bytes(x->plan, from.buffer) : 0;
    if (!from.buffer || !to.buffer || from.buffer->per != to.buffer->per ||
        to.buffer->n_cols < copies * from.buffer->n_cols ||
        glm_buffer_element_bytes(x->plan, to.buffer) != bytes ||
        (s->kind == GLM_STEP_SUM && strcmp(from.buffer->dtype, "f32") != 0) ||
        strchr(s->from, '+') || strchr(s->to, '+'))
        return glm_fail(l->err, GLM_EPLAN,
                        "cannot link program '%s': '%s' and '%s' are not whole buffers that a %s "
                        "over %u ranks fits",
                        program, s->from, s->to, s->kind == GLM_STEP_SUM ? "sum" : "gather", world);
    struct glm_exec_step *step;
    st = add_step(l, &step);
    if (st != GLM_OK)
        return st;
    step->kind = s->kind;
    step->name = s->kind == GLM_STEP_SUM ? "sum" : "gather";
    step->from = from.address;
    step->to = to.address;
    step->row_bytes = bytes * from.buffer->n_cols;
    step->per = from.buffer->per;
    step->max_bytes =
        glm_buffer_rows(from.buffer, &x->plan->arenas[l->program->arena_i]) * step->row_bytes;
    return GLM_OK;
}

static enum glm_status link_steps(struct linker *l, const struct glm_plan_step *steps, uint32_t n,
                                  uint32_t layer, bool in_block)
{
    enum glm_status st = GLM_OK;
    for (uint32_t i = 0; st == GLM_OK && i < n; i++) {
        const struct glm_plan_step *s = &steps[i];
        const struct glm_plan_block *block;
        struct glm_exec_step *step;
        switch (s->kind) {
        case GLM_STEP_KERNEL:
            st = link_kernel(l, s, layer);
            break;
        case GLM_STEP_SUM:
        case GLM_STEP_GATHER:
            st = link_collective(l, s, layer);
            break;
        case GLM_STEP_BLOCK:
            block = in_block ? NULL : glm_plan_block(l->x->plan, s->name);
            if (!block)
                return glm_fail(l->err, GLM_EPLAN, "cannot link program '%s': no block '%s'",
                                l->program->program->name, s->name);
            st = link_steps(l, block->steps, block->n_steps, s->layer, true);
            break;
        case GLM_STEP_MARK:
            st = add_step(l, &step);
            if (st == GLM_OK)
                *step = (struct glm_exec_step){
                    .kind = GLM_STEP_MARK, .name = s->name, .layer = in_block ? layer : s->layer};
            break;
        }
    }
    return st;
}

enum glm_status glm_exec_init(struct glm_exec *x, struct arena *arena, struct glm_error *err)
{
    const struct glm_plan *p = x->plan;
    uint32_t max_members = 1;
    x->programs = arena_array(arena, (size_t)p->n_programs * p->n_arenas + 1,
                              sizeof(struct glm_exec_program));
    for (uint32_t i = 0; i < p->n_weights; i++)
        if (p->weights[i].n_members > max_members)
            max_members = p->weights[i].n_members;
    x->n_member_words = (max_members + 63) / 64;
    x->member_bits = ARENA_ARRAY(arena, x->n_member_words, uint64_t);
    if (!x->programs || !x->member_bits)
        return glm_fail(err, GLM_ENOMEM, "cannot link %u programs: out of memory", p->n_programs);
    for (uint32_t i = 0; i < p->n_programs; i++) {
        for (uint32_t a = 0; a < p->n_arenas; a++) {
            if (!glm_program_runs_in(p, &p->programs[i], a))
                continue;
            struct glm_exec_program *to = &x->programs[x->n_programs++];
            *to = (struct glm_exec_program){.program = &p->programs[i], .arena_i = a};
            struct linker l = {.x = x, .arena = arena, .program = to, .err = err};
            enum glm_status st =
                link_steps(&l, p->programs[i].steps, p->programs[i].n_steps, 0, false);
            if (st != GLM_OK)
                return st;
        }
    }
    return x->device->ops->link(x->device, x, err);
}

const struct glm_exec_program *glm_exec_find(const struct glm_exec *x, const char *program,
                                             int32_t arena_i)
{
    for (uint32_t i = 0; i < x->n_programs; i++)
        if (strcmp(x->programs[i].program->name, program) == 0 &&
            (arena_i < 0 || x->programs[i].arena_i == (uint32_t)arena_i))
            return &x->programs[i];
    return NULL;
}

void *glm_exec_buffer(const struct glm_exec *x, uint32_t arena_i, const char *name,
                      const struct glm_plan_buffer **buffer)
{
    struct glm_exec_target t;
    if (!find_target(x, arena_i, name, &t) || !t.buffer)
        return NULL;
    if (buffer)
        *buffer = t.buffer;
    return t.address;
}

/* ---- running ---- */

static uint32_t distinct_members(struct glm_exec *x, const struct glm_exec_step *s, uint32_t n_rows)
{
    uint32_t n = 0;
    memset(x->member_bits, 0, x->n_member_words * sizeof *x->member_bits);
    for (uint64_t i = 0; i < (uint64_t)n_rows * s->n_ids; i++) {
        uint32_t id = (uint32_t)s->ids[i];
        if (id < s->n_members) /* a padded row routes nowhere: a negative id */
            x->member_bits[id / 64] |= UINT64_C(1) << id % 64;
    }
    for (uint32_t i = 0; i < x->n_member_words; i++)
        n += (uint32_t)__builtin_popcountll(x->member_bits[i]);
    return n;
}

void glm_exec_count(struct glm_exec *x, const struct glm_exec_step *s,
                    const struct glm_round *round)
{
    struct glm_exec_counts *c = &x->counts;
    uint64_t n_rows = (uint64_t)round->n_rows, n_streams = (uint64_t)round->n_streams;
    c->kernel_launches++;
    if (s->out_rows && round->n_out == 0)
        return;
    uint64_t weights = s->fixed_read, picked = n_rows * s->picked_row;
    if (s->picked_row > 0 && picked < s->fixed_read / 2)
        weights = picked;
    c->weight_bytes += weights;
    c->state_read_bytes += n_streams * s->stream_read;
    c->state_bytes += n_streams * (s->stream_read + s->stream_write);
    c->row_bytes += n_rows * s->row_write;
    if (s->member_read > 0 && s->ids && x->device->ops->host_memory)
        c->weight_bytes += s->member_read * distinct_members(x, s, (uint32_t)n_rows);
}

uint64_t glm_exec_exchange_bytes(const struct glm_exec_step *s, uint64_t n_rows, uint64_t n_out)
{
    uint64_t rows = s->per == GLM_PER_ROW ? n_rows : s->per == GLM_PER_OUT ? n_out : 1;
    return rows * s->row_bytes;
}

enum glm_status glm_exec_prepare_exchange(struct glm_exec *x, struct glm_exec_step *s,
                                          const void *from, void *to, struct glm_error *err)
{
    return glm_collective_prepare(x->collective, s->kind == GLM_STEP_SUM ? GLM_SUM : GLM_GATHER,
                                  from, to, s->max_bytes, &s->collective, err);
}

enum glm_status glm_exec_run(struct glm_exec *x, const struct glm_exec_program *program,
                             const struct glm_round *round, uint64_t *ns, struct glm_error *err)
{
    return x->device->ops->run(x->device, program, round, ns, err);
}
