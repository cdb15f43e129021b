/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as JSON for people and for digests: one weight, state, buffer, kernel or step a line, keys
 * in a fixed order, default values left out, so that the same plan gives the same bytes and a diff
 * of two plans is a diff of lines. plan_read.c reads it back; docs/plan.md is the tour. */
#include "codegen/plan.h"

#include <inttypes.h>
#include <string.h>

static void add_text(struct buf *b, const char *text)
{
    buf_json_string(b, text == NULL ? "" : text, text == NULL ? 0 : strlen(text));
}

static void add_key_text(struct buf *b, const char *key, const char *text)
{
    buf_printf(b, ",\"%s\":", key);
    add_text(b, text);
}

/* Left out when it is the value that the reader takes for an absent key. */
static void add_key_number(struct buf *b, const char *key, uint64_t v, uint64_t absent)
{
    if (v != absent)
        buf_printf(b, ",\"%s\":%" PRIu64, key, v);
}

/* Ascending layers as runs: "0,1,3" or "3..44". */
static void add_layers(struct buf *b, const uint32_t *layers, uint32_t n)
{
    if (n == 0)
        return;
    buf_str(b, ",\"layers\":\"");
    for (uint32_t i = 0; i < n;) {
        uint32_t end = i + 1;
        while (end < n && layers[end] == layers[end - 1] + 1)
            end++;
        buf_printf(b, "%s%u", i == 0 ? "" : ",", layers[i]);
        if (end - i >= 3) {
            buf_printf(b, "..%u", layers[end - 1]);
            i = end;
        } else {
            i++;
        }
    }
    buf_char(b, '"');
}

static void add_slice(struct buf *b, const char *key, const struct glm_slice *s, uint64_t n)
{
    if (s->groups == 1 && s->first == 0 && s->take == n)
        return;
    buf_printf(b, ",\"%s\":[%" PRIu64 ",%" PRIu64, key, s->first, s->take);
    if (s->groups != 1)
        buf_printf(b, ",%" PRIu64 ",%" PRIu64, s->groups, s->stride);
    buf_char(b, ']');
}

static void add_weight(struct buf *b, const struct glm_plan_weight *w)
{
    buf_str(b, "{\"name\":");
    add_text(b, w->name);
    add_layers(b, w->layers, w->n_layers);
    add_key_number(b, "members", w->n_members, 1);
    add_key_text(b, "stored", w->stored);
    add_key_text(b, "form", w->form);
    if (w->load != NULL)
        add_key_text(b, "load", w->load);
    buf_printf(b, ",\"shape\":[%" PRIu64 ",%" PRIu64 "],\"bytes\":%" PRIu64 ",\"parts\":[",
               w->n_rows, w->n_cols, w->bytes);
    for (uint32_t i = 0; i < w->n_parts; i++) {
        const struct glm_plan_part *p = &w->parts[i];
        buf_printf(b, "%s{\"tensor\":", i == 0 ? "" : ",");
        add_text(b, p->tensor);
        buf_printf(b, ",\"shape\":[%" PRIu64 ",%" PRIu64 "]", p->n_rows, p->n_cols);
        add_slice(b, "rows", &p->rows, p->n_rows);
        add_slice(b, "cols", &p->cols, p->n_cols);
        buf_char(b, '}');
    }
    buf_str(b, "]}");
}

static void add_state(struct buf *b, const struct glm_plan_state *s)
{
    static const char *const units[] = {[GLM_UNIT_TOKEN] = "token",
                                        [GLM_UNIT_POOL] = "pool",
                                        [GLM_UNIT_STREAM] = "stream",
                                        [GLM_UNIT_RING] = "ring"};
    buf_str(b, "{\"name\":");
    add_text(b, s->name);
    add_layers(b, s->layers, s->n_layers);
    add_key_text(b, "unit", units[s->unit]);
    add_key_number(b, "per", s->per, 0);
    add_key_number(b, "ring", s->ring, 0);
    add_key_number(b, "keep", s->keep, 0);
    if (s->versions > 1)
        buf_printf(b, ",\"versions\":%u", s->versions);
    buf_printf(b, ",\"row_bytes\":%" PRIu64, s->row_bytes);
    add_key_text(b, "dtype", s->dtype);
    if (s->split)
        buf_str(b, ",\"split\":true");
    if (s->position_offset != 0)
        buf_printf(b, ",\"position_offset\":%" PRId32, s->position_offset);
    add_key_text(b, "rollback", s->rollback);
    buf_char(b, '}');
}

static void add_buffer(struct buf *b, const struct glm_plan_buffer *u)
{
    static const char *const pers[] = {
        [GLM_PER_ROW] = "row", [GLM_PER_OUT] = "out", [GLM_PER_ONCE] = "once"};
    buf_str(b, "{\"name\":");
    add_text(b, u->name);
    add_key_text(b, "dtype", u->dtype);
    buf_printf(b, ",\"cols\":%" PRIu64, u->n_cols);
    add_key_text(b, "per", pers[u->per]);
    buf_char(b, '}');
}

/* A parameter is its value, or [value, origin]. */
static void add_kernel(struct buf *b, const struct glm_plan_kernel *k)
{
    buf_str(b, "{\"name\":");
    add_text(b, k->name);
    add_key_text(b, "template", k->template_name);
    buf_str(b, ",\"params\":{");
    for (uint32_t i = 0; i < k->n_params; i++) {
        const struct glm_plan_param *p = &k->params[i];
        bool origin = p->origin != NULL && p->origin[0] != '\0';
        buf_str(b, i == 0 ? "" : ",");
        add_text(b, p->name);
        buf_str(b, origin ? ":[" : ":");
        if (p->text != NULL)
            add_text(b, p->text);
        else
            buf_printf(b, "%" PRId64, p->value);
        if (origin) {
            buf_char(b, ',');
            add_text(b, p->origin);
            buf_char(b, ']');
        }
    }
    buf_str(b, "}}");
}

static void add_step(struct buf *b, const struct glm_plan_step *s)
{
    switch (s->kind) {
    case GLM_STEP_KERNEL:
        buf_str(b, "{\"kernel\":");
        add_text(b, s->name);
        for (uint32_t i = 0; i < s->n_args; i++) {
            buf_char(b, ',');
            add_text(b, s->args[i].name);
            buf_char(b, ':');
            add_text(b, s->args[i].value);
        }
        break;
    case GLM_STEP_SUM:
    case GLM_STEP_GATHER:
        buf_str(b, s->kind == GLM_STEP_SUM ? "{\"sum\":" : "{\"gather\":");
        add_text(b, s->from);
        add_key_text(b, "to", s->to);
        break;
    case GLM_STEP_BLOCK:
        buf_str(b, "{\"block\":");
        add_text(b, s->name);
        buf_printf(b, ",\"L\":%u", s->layer);
        break;
    case GLM_STEP_MARK:
        buf_str(b, "{\"mark\":");
        add_text(b, s->name);
        break;
    }
    buf_char(b, '}');
}

static void add_steps(struct buf *b, const struct glm_plan_step *steps, uint32_t n)
{
    buf_str(b, "\"steps\":[");
    for (uint32_t i = 0; i < n; i++) {
        buf_str(b, i == 0 ? "\n      " : ",\n      ");
        add_step(b, &steps[i]);
    }
    buf_str(b, "\n    ]}");
}

static void add_names(struct buf *b, const char *key, const char *const *names, uint32_t n)
{
    buf_printf(b, ",\"%s\":[", key);
    for (uint32_t i = 0; i < n; i++) {
        buf_str(b, i == 0 ? "" : ",");
        add_text(b, names[i]);
    }
    buf_char(b, ']');
}

static void add_program(struct buf *b, const struct glm_plan_program *g)
{
    buf_str(b, "{\"name\":");
    add_text(b, g->name);
    add_key_text(b, "arena", g->arena);
    add_names(b, "inputs", g->inputs, g->n_inputs);
    add_names(b, "outputs", g->outputs, g->n_outputs);
    buf_char(b, ',');
    add_steps(b, g->steps, g->n_steps);
}

static void add_block(struct buf *b, const struct glm_plan_block *k)
{
    buf_str(b, "{\"name\":");
    add_text(b, k->name);
    buf_char(b, ',');
    add_steps(b, k->steps, k->n_steps);
}

static void add_memory(struct buf *b, const struct glm_plan_memory *m)
{
    buf_str(b, "{\"part\":");
    add_text(b, m->part);
    buf_printf(b, ",\"bytes\":%" PRIu64 "}", m->bytes);
}

static void add_arena(struct buf *b, const struct glm_plan_arena *a)
{
    buf_str(b, "{\"name\":");
    add_text(b, a->name);
    buf_printf(b, ",\"rows\":%u,\"outs\":%u}", a->n_rows, a->n_outs);
}

static void add_head(struct buf *b, const struct glm_plan *p)
{
    const struct glm_plan_limits *l = &p->limits;
    buf_printf(b, "{\n  \"format_version\": %u,\n  \"set_digest\": \"%s\",\n  \"model\": ",
               p->format_version, p->set_digest);
    add_text(b, p->model);
    buf_printf(b, ",\n  \"rank\": %u,\n  \"world\": %u,\n  \"target\": ", p->rank, p->world);
    add_text(b, p->target);
    buf_str(b, ",\n  \"act\": ");
    add_text(b, p->act);
    buf_printf(b, ",\n  \"d_vocab\": %u,\n  \"valid_ids\": %u,\n  \"end_ids\": [", p->d_vocab,
               p->n_valid_ids);
    for (uint32_t i = 0; i < p->n_end_ids; i++)
        buf_printf(b, "%s%u", i == 0 ? "" : ",", p->end_ids[i]);
    buf_printf(b,
               "],\n  \"limits\": {\"streams\":%u,\"slots\":%u,\"window_tokens\":%u,"
               "\"pool_tokens\":%" PRIu64 ",\"verify_rows\":%u,\"prefill_rows\":%u}",
               l->n_streams, l->n_slots, l->window_tokens, l->pool_tokens, l->verify_rows,
               l->prefill_rows);
}

/* A section: "KEY": [ one item a line ]. */
#define ADD_SECTION(b, key, items, n, add)                \
    do {                                                  \
        buf_str((b), ",\n  \"" key "\": [");              \
        for (uint32_t i_ = 0; i_ < (n); i_++) {           \
            buf_str((b), i_ == 0 ? "\n    " : ",\n    "); \
            add((b), &(items)[i_]);                       \
        }                                                 \
        buf_str((b), (n) == 0 ? "]" : "\n  ]");           \
    } while (0)

enum glm_status glm_plan_write(const struct glm_plan *p, struct buf *out, struct glm_error *err)
{
    add_head(out, p);
    ADD_SECTION(out, "memory", p->memory, p->n_memory, add_memory);
    ADD_SECTION(out, "arenas", p->arenas, p->n_arenas, add_arena);
    ADD_SECTION(out, "weights", p->weights, p->n_weights, add_weight);
    ADD_SECTION(out, "states", p->states, p->n_states, add_state);
    ADD_SECTION(out, "buffers", p->buffers, p->n_buffers, add_buffer);
    ADD_SECTION(out, "kernels", p->kernels, p->n_kernels, add_kernel);
    ADD_SECTION(out, "blocks", p->blocks, p->n_blocks, add_block);
    ADD_SECTION(out, "programs", p->programs, p->n_programs, add_program);
    buf_str(out, "\n}\n");
    if (out->failed)
        return glm_fail(err, GLM_ENOMEM, "cannot write the plan of rank %u: out of memory",
                        p->rank);
    return GLM_OK;
}
