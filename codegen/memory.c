/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over a plan: state planes, arenas, scratch. Owns the arithmetic of sizes; what a node has
 * and whether it fits is capacity.c's, where things lie is the runtime's. */
#include "codegen/memory.h"

#include "codegen/compiler.h"

#include <stdio.h>
#include <string.h>

uint64_t glm_plan_align(uint64_t bytes)
{
    return (bytes + GLM_PLAN_ALIGN - 1) / GLM_PLAN_ALIGN * GLM_PLAN_ALIGN;
}

static uint64_t n_layers_of(uint32_t n_layers)
{
    return n_layers > 0 ? n_layers : 1;
}

/* Rows of a plane that the pool gives for n tokens; 0 for planes of streams. */
static uint64_t pool_rows(const struct glm_plan_state *s, uint64_t n_tokens)
{
    return s->unit == GLM_UNIT_TOKEN ? n_tokens : s->unit == GLM_UNIT_POOL ? n_tokens / s->per : 0;
}

uint64_t glm_plane_bytes(const struct glm_plan_state *s, const struct glm_plan_limits *l)
{
    uint64_t rows = pool_rows(s, l->pool_tokens);
    if (s->unit == GLM_UNIT_STREAM)
        rows = (uint64_t)l->n_slots * s->versions;
    if (s->unit == GLM_UNIT_RING)
        rows = (uint64_t)l->n_slots * s->ring;
    return glm_plan_align(rows * s->row_bytes);
}

uint64_t glm_extent_bytes(const struct glm_plan *p)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->n_states; i++) {
        const struct glm_plan_state *s = &p->states[i];
        bytes += pool_rows(s, GLM_PLAN_EXTENT) * s->row_bytes * n_layers_of(s->n_layers);
    }
    return bytes;
}

double glm_token_bytes(const struct glm_plan *p)
{
    return (double)glm_extent_bytes(p) / GLM_PLAN_EXTENT;
}

/* ---- buffers and scratch: a walk over the programs of an arena ---- */

enum { MAX_ENTRIES = 1024 }; /* buffers or kernels of a plan */

struct walk {
    const struct glm_plan *plan;
    const struct glm_plan_arena *arena;
    bool *used;                           /* [n_buffers], or NULL */
    const struct glm_manifest *manifests; /* NULL: buffers alone */
    uint32_t n_manifests, n_threads;
    bool *sized; /* [n_kernels] in this arena */
    bool cuda;
    uint64_t scratch, tickets; /* bytes; of CUDA launches alone tickets */
    struct glm_error *err;
};

/* Notes the buffer that `value` ("NAME", "NAME+COLUMN", "{L}" bound to layer) means, if it is one.
 */
static void use(struct walk *w, const char *value, uint32_t layer)
{
    char name[256];
    size_t len = strcspn(value, "+");
    const char *hole = memmem(value, len, "{L}", 3);
    int n = hole ? snprintf(name, sizeof name, "%.*s%u%.*s", (int)(hole - value), value, layer,
                            (int)(value + len - hole - 3), hole + 3)
                 : snprintf(name, sizeof name, "%.*s", (int)len, value);
    if (!w->used || n < 0 || (size_t)n >= sizeof name)
        return;
    for (uint32_t i = 0; i < w->plan->n_buffers; i++) {
        if (strcmp(w->plan->buffers[i].name, name) == 0)
            w->used[i] = true;
    }
}

static enum glm_status host_scratch(struct walk *w, const struct glm_plan_kernel *k,
                                    const struct glm_manifest *m, const struct glm_cost_context *at)
{
    double bytes = 0;
    enum glm_status st =
        glm_expression_eval(m->scratch, k->params, k->n_params, at, &bytes, w->err);
    if (st != GLM_OK)
        return st;
    if (!(bytes >= 0 && bytes < 1e15))
        return glm_fail(w->err, GLM_EPLAN, "cannot size kernel '%s': scratch of %g bytes", k->name,
                        bytes);
    if ((uint64_t)bytes > w->scratch)
        w->scratch = (uint64_t)bytes;
    return GLM_OK;
}

static enum glm_status cuda_scratch(struct walk *w, const struct glm_plan_kernel *k,
                                    const struct glm_manifest *m, const struct glm_cost_context *at)
{
    struct glm_launch_shape shape;
    enum glm_status st = glm_manifest_shape(m, k, at, &shape, w->err);
    if (st != GLM_OK)
        return st;
    if (shape.scratch_bytes > w->scratch)
        w->scratch = shape.scratch_bytes;
    if (shape.n_tickets * sizeof(uint32_t) > w->tickets)
        w->tickets = shape.n_tickets * sizeof(uint32_t);
    return GLM_OK;
}

static enum glm_status kernel_scratch(struct walk *w, const char *name)
{
    const struct glm_plan_kernel *k = glm_plan_kernel(w->plan, name);
    const struct glm_manifest *m =
        k ? glm_manifest_find(w->manifests, w->n_manifests, k->template_name) : NULL;
    if (k && w->sized[k - w->plan->kernels])
        return GLM_OK;
    if (!m)
        return glm_fail(w->err, GLM_EPLAN, "cannot size kernel '%s': %s '%s'", name,
                        k ? "no manifest for template" : "the plan has no kernel",
                        k ? k->template_name : name);
    w->sized[k - w->plan->kernels] = true;
    struct glm_cost_context at = {.R = w->arena->n_rows,
                                  .O = w->arena->n_outs,
                                  .C = w->plan->limits.window_tokens,
                                  .S = w->plan->limits.n_streams,
                                  .T = w->n_threads};
    for (uint32_t i = 0; i < w->plan->n_weights; i++) {
        if (w->plan->weights[i].n_members > at.U)
            at.U = w->plan->weights[i].n_members;
    }
    return w->cuda ? cuda_scratch(w, k, m, &at) : host_scratch(w, k, m, &at);
}

static enum glm_status walk_steps(struct walk *w, const struct glm_plan_step *steps, uint32_t n,
                                  uint32_t layer)
{
    enum glm_status st = GLM_OK;
    for (uint32_t i = 0; i < n && st == GLM_OK; i++) {
        const struct glm_plan_step *s = &steps[i];
        const struct glm_plan_block *block;
        switch (s->kind) {
        case GLM_STEP_KERNEL:
            for (uint32_t a = 0; w->used && a < s->n_args; a++)
                use(w, s->args[a].value, layer);
            if (w->manifests)
                st = kernel_scratch(w, s->name);
            break;
        case GLM_STEP_SUM:
        case GLM_STEP_GATHER:
            use(w, s->from, layer);
            use(w, s->to, layer);
            break;
        case GLM_STEP_BLOCK:
            block = glm_plan_block(w->plan, s->name);
            if (!block)
                return glm_fail(w->err, GLM_EPLAN, "cannot size block '%s': there is none",
                                s->name);
            st = walk_steps(w, block->steps, block->n_steps, s->layer);
            break;
        case GLM_STEP_MARK:
            break;
        }
    }
    return st;
}

static enum glm_status walk_arena(struct walk *w)
{
    enum glm_status st = GLM_OK;
    for (uint32_t i = 0; i < w->plan->n_programs && st == GLM_OK; i++) {
        const struct glm_plan_program *g = &w->plan->programs[i];
        if (glm_program_runs_in(w->plan, g, (uint32_t)(w->arena - w->plan->arenas)))
            st = walk_steps(w, g->steps, g->n_steps, 0);
    }
    return st;
}

bool glm_program_runs_in(const struct glm_plan *p, const struct glm_plan_program *g,
                         uint32_t arena_i)
{
    return strcmp(g->arena, p->arenas[arena_i].name) == 0 || strncmp(g->name, "sample", 6) == 0;
}

uint64_t glm_buffer_rows(const struct glm_plan_buffer *b, const struct glm_plan_arena *a)
{
    return b->per == GLM_PER_ROW ? a->n_rows : b->per == GLM_PER_OUT ? a->n_outs : 1;
}

uint32_t glm_buffer_element_bytes(const struct glm_plan *p, const struct glm_plan_buffer *b)
{
    const char *dtype = strcmp(b->dtype, "act") == 0 ? p->act : b->dtype;
    if (strcmp(dtype, "f32") == 0 || strcmp(dtype, "i32") == 0)
        return 4;
    return strcmp(dtype, "bf16") == 0 ? 2 : 0;
}

enum glm_status glm_arena_buffers(const struct glm_plan *p, uint32_t arena_i, bool *used,
                                  struct glm_error *err)
{
    struct walk w = {.plan = p, .arena = &p->arenas[arena_i], .used = used, .err = err};
    for (uint32_t i = 0; i < p->n_buffers; i++)
        used[i] = false;
    return walk_arena(&w);
}

enum glm_status glm_arena_bytes(const struct glm_plan *p, uint32_t arena_i, uint64_t *bytes,
                                struct glm_error *err)
{
    bool used[MAX_ENTRIES] = {false};
    if (p->n_buffers > MAX_ENTRIES)
        return glm_fail(err, GLM_EPLAN, "cannot size arena '%s': %u buffers, at most %d",
                        p->arenas[arena_i].name, p->n_buffers, MAX_ENTRIES);
    enum glm_status st = glm_arena_buffers(p, arena_i, used, err);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->n_buffers && st == GLM_OK; i++) {
        const struct glm_plan_buffer *f = &p->buffers[i];
        uint64_t rows = glm_buffer_rows(f, &p->arenas[arena_i]);
        uint64_t element = glm_buffer_element_bytes(p, f);
        if (element == 0)
            return glm_fail(err, GLM_EPLAN, "cannot size buffer '%s': unknown dtype '%s'", f->name,
                            f->dtype);
        if (used[i])
            sum += glm_plan_align(rows * f->n_cols * element);
    }
    if (st == GLM_OK)
        *bytes = sum;
    return st;
}

/* Sizes every launch of every arena. */
static enum glm_status walk_launches(struct walk *w)
{
    bool sized[MAX_ENTRIES];
    const struct glm_plan *p = w->plan;
    enum glm_status st = GLM_OK;
    if (p->n_kernels > MAX_ENTRIES)
        return glm_fail(w->err, GLM_EPLAN, "cannot size scratch: %u kernels, at most %d",
                        p->n_kernels, MAX_ENTRIES);
    w->sized = sized;
    for (uint32_t a = 0; a < p->n_arenas && st == GLM_OK; a++) {
        w->arena = &p->arenas[a];
        memset(sized, 0, sizeof sized);
        st = walk_arena(w);
    }
    w->sized = NULL;
    return st;
}

bool glm_plan_uses_cuda(const struct glm_plan *p)
{
    return glm_backend_cuda.takes(p->target);
}

enum glm_status glm_scratch_bytes(const struct glm_plan *p, const struct glm_manifest *manifests,
                                  uint32_t n_manifests, uint32_t n_threads, uint64_t *bytes,
                                  struct glm_error *err)
{
    struct walk w = {.plan = p,
                     .manifests = manifests,
                     .n_manifests = n_manifests,
                     .n_threads = n_threads,
                     .cuda = glm_plan_uses_cuda(p),
                     .err = err};
    enum glm_status st = walk_launches(&w);
    if (st == GLM_OK)
        *bytes = glm_plan_align(w.scratch) + glm_plan_align(w.tickets);
    return st;
}

enum glm_status glm_cuda_scratch(const struct glm_plan *p, const struct glm_manifest *manifests,
                                 uint32_t n_manifests, uint64_t *scratch_bytes,
                                 uint64_t *ticket_bytes, struct glm_error *err)
{
    struct walk w = {.plan = p,
                     .manifests = manifests,
                     .n_manifests = n_manifests,
                     .n_threads = 1,
                     .cuda = true,
                     .err = err};
    enum glm_status st = walk_launches(&w);
    if (st == GLM_OK) {
        *scratch_bytes = glm_plan_align(w.scratch);
        *ticket_bytes = glm_plan_align(w.tickets);
    }
    return st;
}
