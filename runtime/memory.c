/* SPDX-License-Identifier: Apache-2.0 */
/* Layout of a rank's memory. Owns offsets; sizes are codegen/memory.h's, the memory itself is the
 * device's, what is put there belongs to weights.c (weights), state.c (planes) and the kernels
 * (buffers, scratch). */
#include "runtime/memory.h"

#include <stdio.h>
#include <string.h>

uint64_t glm_weight_stride(const struct glm_plan_weight *w)
{
    return glm_plan_align(w->bytes);
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
    if (__builtin_add_overflow(bytes, (uint64_t)GLM_PLAN_ALIGN - 1, &padded) ||
        __builtin_add_overflow(m->bytes, padded / GLM_PLAN_ALIGN * GLM_PLAN_ALIGN, &end) ||
        end > (uint64_t)INT64_MAX)
        return glm_fail(err, GLM_EPLAN, "cannot lay out memory: its size overflows");
    *offset = m->bytes;
    *part += end - m->bytes;
    m->bytes = end;
    return GLM_OK;
}

/* used: room for the plan's buffers. */
static enum glm_status lay_out_arena(struct glm_memory *m, uint32_t arena_i, bool *used,
                                     struct glm_error *err)
{
    const struct glm_plan *p = m->plan;
    enum glm_status st = glm_arena_buffers(p, arena_i, used, err);
    for (uint32_t i = 0; st == GLM_OK && i < p->n_buffers; i++) {
        const struct glm_plan_buffer *b = &p->buffers[i];
        uint64_t *offset = &m->buffers[(uint64_t)arena_i * p->n_buffers + i];
        *offset = GLM_NOWHERE;
        if (!used[i])
            continue;
        uint64_t bytes, rows = glm_buffer_rows(b, &p->arenas[arena_i]);
        if (glm_buffer_element_bytes(p, b) == 0)
            return glm_fail(err, GLM_EPLAN, "cannot lay out buffer '%s': unknown dtype '%s'",
                            b->name, b->dtype);
        if (__builtin_mul_overflow(rows * glm_buffer_element_bytes(p, b), b->n_cols, &bytes))
            return glm_fail(err, GLM_EPLAN, "cannot lay out buffer '%s': its size overflows",
                            b->name);
        st = place(m, bytes, offset, &m->buffer_bytes, err);
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
    for (uint32_t a = 0; st == GLM_OK && a < plan->n_arenas; a++)
        st = lay_out_arena(m, a, used, err);
    uint64_t scratch = 0, tickets = 0;
    if (st == GLM_OK)
        st = glm_plan_uses_cuda(plan)
                 ? glm_cuda_scratch(plan, manifests, n_manifests, &scratch, &tickets, err)
                 : glm_scratch_bytes(plan, manifests, n_manifests, n_threads, &scratch, err);
    if (st == GLM_OK)
        st = place(m, scratch, &m->scratch, &m->scratch_bytes, err);
    if (st == GLM_OK)
        st = place(m, tickets, &m->tickets, &m->scratch_bytes, err);
    return st;
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
             "scratch %.1f, process %.1f), its limit is %.1f MiB",
             m->plan->rank, mib(needed), mib(m->weight_bytes), mib(m->state_bytes),
             mib(m->buffer_bytes), mib(m->scratch_bytes), mib(needed - m->bytes), mib(limit_bytes));
    glm_error_hint(err, "lower pool_tokens, streams or window of the lane, or raise the node's "
                        "memory");
    return GLM_ECAPACITY;
}

enum glm_status glm_memory_take(struct glm_memory *m, struct glm_states *states,
                                struct glm_device *device, struct glm_error *err)
{
    char what[64];
    snprintf(what, sizeof what, "rank %u", m->plan->rank);
    enum glm_status st = device->ops->alloc(device, what, m->bytes, &m->base, err);
    for (uint32_t i = 0; st == GLM_OK && i < states->n_planes; i++)
        states->planes[i].base = m->base + m->planes[i];
    return st;
}
