/* SPDX-License-Identifier: Apache-2.0 */
/* Layout of a host rank's memory. Owns offsets, sums and the mapping; what is put there belongs to
 * weights.c (weights), state.c (planes) and the kernels (buffers, scratch). */
#include "runtime/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static uint64_t align_up(uint64_t bytes)
{
    return (bytes + GLM_ALIGN_BYTES - 1) / GLM_ALIGN_BYTES * GLM_ALIGN_BYTES;
}

uint64_t glm_weight_stride(const struct glm_plan_weight *w)
{
    return align_up(w->bytes);
}

uint32_t glm_buffer_element_bytes(const struct glm_plan *p, const struct glm_plan_buffer *b)
{
    const char *dtype = strcmp(b->dtype, "act") == 0 ? p->act : b->dtype;
    if (strcmp(dtype, "f32") == 0 || strcmp(dtype, "i32") == 0)
        return 4;
    return strcmp(dtype, "bf16") == 0 ? 2 : 0;
}

uint64_t glm_buffer_rows(const struct glm_plan_buffer *b, const struct glm_plan_arena *a)
{
    switch (b->per) {
    case GLM_PER_ROW:
        return a->n_rows;
    case GLM_PER_OUT:
        return a->n_outs;
    case GLM_PER_ONCE:
        break;
    }
    return 1;
}

int32_t glm_plan_arena_index(const struct glm_plan *p, const char *name)
{
    for (uint32_t i = 0; i < p->n_arenas; i++)
        if (strcmp(p->arenas[i].name, name) == 0)
            return (int32_t)i;
    return -1;
}

bool glm_program_runs_in(const struct glm_plan *p, const struct glm_plan_program *g,
                         uint32_t arena_i)
{
    return strcmp(g->arena, p->arenas[arena_i].name) == 0 || strncmp(g->name, "sample", 6) == 0;
}

enum glm_status glm_name_bind(const char *name, size_t len, uint32_t layer, char *out, size_t size,
                              struct glm_error *err)
{
    const char *hole = memmem(name, len, "{L}", 3);
    int n;
    if (hole) {
        int head = (int)(hole - name), tail = (int)len - head - 3;
        n = snprintf(out, size, "%.*s%u%.*s", head, name, layer, tail, hole + 3);
    } else {
        n = snprintf(out, size, "%.*s", (int)len, name);
    }
    if (n < 0 || (size_t)n >= size)
        return glm_fail(err, GLM_EPLAN, "cannot resolve name '%.*s': it is longer than %zu",
                        (int)(len < 200 ? len : 200), name, size - 1);
    return GLM_OK;
}

/* Adds `bytes` to the layout and gives where it starts. */
static enum glm_status place(struct glm_memory *m, uint64_t bytes, uint64_t *offset, uint64_t *part,
                             struct glm_error *err)
{
    uint64_t padded, end;
    if (__builtin_add_overflow(bytes, (uint64_t)GLM_ALIGN_BYTES - 1, &padded) ||
        __builtin_add_overflow(m->bytes, padded / GLM_ALIGN_BYTES * GLM_ALIGN_BYTES, &end) ||
        end > (uint64_t)INT64_MAX)
        return glm_fail(err, GLM_EPLAN, "cannot lay out memory: its size overflows");
    *offset = m->bytes;
    *part += end - m->bytes;
    m->bytes = end;
    return GLM_OK;
}

/* What a walk over the kernel steps of a program meets. */
struct walk {
    struct glm_memory *m;
    const struct glm_manifest *manifests;
    uint32_t n_manifests, n_threads, arena_i;
    bool *used; /* [n_buffers] */
    struct glm_error *err;
};

static enum glm_status use_name(struct walk *w, const char *value, uint32_t layer)
{
    char name[256];
    size_t len = strcspn(value, "+");
    enum glm_status st = glm_name_bind(value, len, layer, name, sizeof name, w->err);
    for (uint32_t i = 0; st == GLM_OK && i < w->m->plan->n_buffers; i++)
        if (strcmp(w->m->plan->buffers[i].name, name) == 0)
            w->used[i] = true;
    return st;
}

static enum glm_status widen_scratch(struct walk *w, const struct glm_plan_step *s)
{
    const struct glm_plan *p = w->m->plan;
    const struct glm_plan_arena *a = &p->arenas[w->arena_i];
    const struct glm_plan_kernel *k = glm_plan_kernel(p, s->name);
    const struct glm_manifest *m =
        k ? glm_manifest_find(w->manifests, w->n_manifests, k->template_name) : NULL;
    if (!m)
        return glm_fail(w->err, GLM_EPLAN, "cannot link kernel '%s': %s", s->name,
                        k ? "its template has no manifest" : "the plan has no such kernel");
    struct glm_cost_context at = {.R = a->n_rows,
                                  .O = a->n_outs,
                                  .C = p->limits.window_tokens,
                                  .S = p->limits.n_streams,
                                  .T = w->n_threads};
    for (uint32_t i = 0; i < p->n_weights; i++)
        if (p->weights[i].n_members > at.U)
            at.U = p->weights[i].n_members;
    double bytes = 0;
    enum glm_status st =
        glm_expression_eval(m->scratch, k->params, k->n_params, &at, &bytes, w->err);
    if (st != GLM_OK)
        return st;
    if (!(bytes >= 0 && bytes < 1e15))
        return glm_fail(w->err, GLM_EPLAN, "cannot link kernel '%s': scratch of %g bytes", s->name,
                        bytes);
    if ((uint64_t)bytes > w->m->scratch_bytes)
        w->m->scratch_bytes = (uint64_t)bytes;
    return GLM_OK;
}

static enum glm_status walk_steps(struct walk *w, const struct glm_plan_step *steps, uint32_t n,
                                  uint32_t layer, bool in_block)
{
    enum glm_status st = GLM_OK;
    for (uint32_t i = 0; st == GLM_OK && i < n; i++) {
        const struct glm_plan_step *s = &steps[i];
        const struct glm_plan_block *b;
        switch (s->kind) {
        case GLM_STEP_KERNEL:
            for (uint32_t k = 0; st == GLM_OK && k < s->n_args; k++)
                st = use_name(w, s->args[k].value, layer);
            if (st == GLM_OK)
                st = widen_scratch(w, s);
            break;
        case GLM_STEP_SUM:
        case GLM_STEP_GATHER:
            st = use_name(w, s->from, layer);
            if (st == GLM_OK)
                st = use_name(w, s->to, layer);
            break;
        case GLM_STEP_BLOCK:
            b = in_block ? NULL : glm_plan_block(w->m->plan, s->name);
            if (!b)
                return glm_fail(w->err, GLM_EPLAN, "cannot link block '%s': %s", s->name,
                                in_block ? "blocks do not call blocks" : "there is no such block");
            st = walk_steps(w, b->steps, b->n_steps, s->layer, true);
            break;
        case GLM_STEP_MARK:
            break;
        }
    }
    return st;
}

static enum glm_status lay_out_arena(struct walk *w)
{
    struct glm_memory *m = w->m;
    const struct glm_plan *p = m->plan;
    enum glm_status st = GLM_OK;
    for (uint32_t i = 0; i < p->n_buffers; i++)
        w->used[i] = false;
    for (uint32_t i = 0; st == GLM_OK && i < p->n_programs; i++)
        if (glm_program_runs_in(p, &p->programs[i], w->arena_i))
            st = walk_steps(w, p->programs[i].steps, p->programs[i].n_steps, 0, false);
    for (uint32_t i = 0; st == GLM_OK && i < p->n_buffers; i++) {
        const struct glm_plan_buffer *b = &p->buffers[i];
        uint64_t *offset = &m->buffers[(uint64_t)w->arena_i * p->n_buffers + i];
        *offset = GLM_NOWHERE;
        if (!w->used[i])
            continue;
        uint64_t bytes, rows = glm_buffer_rows(b, &p->arenas[w->arena_i]);
        if (glm_buffer_element_bytes(p, b) == 0)
            return glm_fail(w->err, GLM_EPLAN, "cannot lay out buffer '%s': unknown dtype '%s'",
                            b->name, b->dtype);
        if (__builtin_mul_overflow(rows * glm_buffer_element_bytes(p, b), b->n_cols, &bytes))
            return glm_fail(w->err, GLM_EPLAN, "cannot lay out buffer '%s': its size overflows",
                            b->name);
        st = place(m, bytes, offset, &m->buffer_bytes, w->err);
    }
    return st;
}

enum glm_status glm_memory_lay_out(struct glm_memory *m, const struct glm_plan *plan,
                                   const struct glm_states *states,
                                   const struct glm_manifest *manifests, uint32_t n_manifests,
                                   uint32_t n_threads, struct arena *arena, struct glm_error *err)
{
    *m = (struct glm_memory){.plan = plan};
    m->weights = ARENA_ARRAY(arena, plan->n_weights + 1, uint64_t);
    m->planes = ARENA_ARRAY(arena, states->n_planes + 1, uint64_t);
    m->buffers = arena_array(arena, (size_t)plan->n_arenas * plan->n_buffers + 1, sizeof(uint64_t));
    bool *used = ARENA_ARRAY(arena, plan->n_buffers + 1, bool);
    if (!m->weights || !m->planes || !m->buffers || !used)
        return glm_fail(err, GLM_ENOMEM, "cannot lay out memory: out of memory");
    enum glm_status st = GLM_OK;
    for (uint32_t i = 0; st == GLM_OK && i < plan->n_weights; i++) {
        const struct glm_plan_weight *w = &plan->weights[i];
        uint64_t bytes, n_layers = w->n_layers > 0 ? w->n_layers : 1;
        if (w->bytes > INT64_MAX || __builtin_mul_overflow(glm_weight_stride(w), n_layers, &bytes))
            return glm_fail(err, GLM_EPLAN, "cannot lay out weight '%s': its size overflows",
                            w->name);
        st = place(m, bytes, &m->weights[i], &m->weight_bytes, err);
    }
    for (uint32_t i = 0; st == GLM_OK && i < states->n_planes; i++)
        st = place(m, states->planes[i].bytes, &m->planes[i], &m->state_bytes, err);
    for (uint32_t a = 0; st == GLM_OK && a < plan->n_arenas; a++) {
        struct walk w = {.m = m,
                         .manifests = manifests,
                         .n_manifests = n_manifests,
                         .n_threads = n_threads,
                         .arena_i = a,
                         .used = used,
                         .err = err};
        st = lay_out_arena(&w);
    }
    if (st != GLM_OK)
        return st;
    uint64_t scratch = m->scratch_bytes;
    m->scratch_bytes = 0;
    return place(m, scratch, &m->scratch, &m->scratch_bytes, err);
}

static double mib(uint64_t bytes)
{
    return (double)bytes / (1024.0 * 1024.0);
}

enum glm_status glm_memory_check(const struct glm_memory *m, uint64_t limit_bytes,
                                 struct glm_error *err)
{
    uint64_t planned = glm_plan_total_bytes(m->plan);
    uint64_t needed = planned > m->bytes ? planned : m->bytes;
    if (limit_bytes == 0 || needed <= limit_bytes)
        return GLM_OK;
    glm_fail(err, GLM_ECAPACITY,
             "cannot lay out rank %u: it needs %.1f MiB (weights %.1f, state %.1f, buffers %.1f, "
             "scratch %.1f), its limit is %.1f MiB",
             m->plan->rank, mib(needed), mib(m->weight_bytes), mib(m->state_bytes),
             mib(m->buffer_bytes), mib(m->scratch_bytes), mib(limit_bytes));
    glm_error_hint(err, "lower pool_tokens, streams or window of the lane, or raise the node's "
                        "memory");
    return GLM_ECAPACITY;
}

enum glm_status glm_memory_map(struct glm_memory *m, struct glm_states *states,
                               struct glm_error *err)
{
    size_t bytes = m->bytes > 0 ? (size_t)m->bytes : 1;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return glm_fail(err, GLM_ENOMEM, "cannot map %.1f MiB for rank %u: %s", mib(m->bytes),
                        m->plan->rank, strerror(errno));
    m->base = base;
    for (uint32_t i = 0; i < states->n_planes; i++)
        states->planes[i].base = m->base + m->planes[i];
    return GLM_OK;
}

void glm_memory_release(struct glm_memory *m)
{
    if (m->base)
        munmap(m->base, m->bytes > 0 ? (size_t)m->bytes : 1);
    m->base = NULL;
}
