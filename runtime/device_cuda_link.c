/* SPDX-License-Identifier: Apache-2.0 */
/* Links a rank's programs on a GPU: buckets, graphs, and the memory that exchanges go through (see
 * device_cuda.h). When what is made here runs is device_cuda_run.c's. */
#include "runtime/device_cuda.h"

#include <stdlib.h>
#include <string.h>

enum {
    FIRST_CONTEXT = 8192, /* tokens of the smallest context bucket; each next has four times that */
    ROUND_ALIGN = 64,
    QUEUED_PROGRAMS = 4, /* whose exchanges the proxy can expect at once */
};

static uint64_t part(uint64_t *end, uint64_t n, uint64_t bytes)
{
    uint64_t at = *end;
    *end += (n * bytes + ROUND_ALIGN - 1) / ROUND_ALIGN * ROUND_ALIGN;
    return at;
}

static enum glm_status make_table(struct glm_gpu *g, const struct glm_plan_arena *a,
                                  struct glm_gpu_table *t, struct glm_error *err)
{
    const struct glm_plan_limits *l = &g->plan->limits;
    uint64_t end = 0;
    part(&end, 1, sizeof(struct glm_round));
    t->max_rows = a->n_rows;
    t->max_outs = a->n_outs;
    t->max_extents = l->n_streams * (l->window_tokens / GLM_EXTENT_ROWS + 2);
    t->rows = part(&end, t->max_rows, sizeof(struct glm_row));
    t->streams = part(&end, GLM_ROUND_STREAMS, sizeof(struct glm_round_stream));
    t->extents = part(&end, t->max_extents, sizeof(int32_t));
    t->out_rows = part(&end, t->max_outs, sizeof(int32_t));
    t->draws = part(&end, t->max_outs, sizeof(struct glm_draw));
    t->bytes = end;
    enum glm_status st = glm_cuda_alloc(g->cuda, "a round table", t->bytes, &t->at, err);
    void *stages = NULL;
    if (st == GLM_OK)
        st = glm_cuda_host_alloc(g->cuda, "round tables", GLM_GPU_STAGES * t->bytes, &stages, err);
    t->stages = stages;
    return st;
}

/* 1, 2, 4, … and `most`; from `first` on, by `factor`. */
static struct glm_gpu_buckets cut_buckets(uint64_t first, uint64_t factor, uint64_t most)
{
    struct glm_gpu_buckets b = {0};
    for (uint64_t n = first; n < most && b.n + 1 < GLM_GPU_BUCKETS; n *= factor)
        b.most[b.n++] = n;
    b.most[b.n++] = most;
    return b;
}

bool glm_gpu_is_exchange(const struct glm_gpu *g, const struct glm_exec_step *s)
{
    return g->exec->collective != NULL && (s->kind == GLM_STEP_SUM || s->kind == GLM_STEP_GATHER);
}

static enum glm_status cut_segments(struct glm_gpu *g, const struct glm_exec_program *p,
                                    struct glm_gpu_program *l, struct glm_error *err)
{
    l->segments = calloc(p->n_steps + 1, sizeof *l->segments);
    if (l->segments == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot link program '%s': out of memory",
                        p->program->name);
    for (uint32_t i = 0; i < p->n_steps; i++) {
        struct glm_gpu_segment *last = l->n_segments > 0 ? &l->segments[l->n_segments - 1] : NULL;
        bool exchange = glm_gpu_is_exchange(g, &p->steps[i]);
        l->n_exchanges += exchange;
        exchange = exchange && g->proxy == NULL && g->watch == NULL;
        if (last == NULL || last->exchange || exchange)
            l->segments[l->n_segments++] = (struct glm_gpu_segment){i, i + 1, exchange};
        else
            last->end = i + 1;
    }
    return GLM_OK;
}

/* An exchange within a graph. Live rows may be fewer than the bucket's: all are copied, and what
 * the proxy does not exchange is in nobody's way. */
static enum glm_status put_exchange(struct glm_gpu *g, const struct glm_exec_step *s,
                                    uint64_t bytes, struct glm_error *err)
{
    uint64_t back = s->kind == GLM_STEP_GATHER ? g->plan->world * bytes : bytes;
    enum glm_status st =
        glm_cuda_copy_out(g->cuda, g->stream, g->send, glm_gpu_address(s->from), bytes, err);
    if (st == GLM_OK)
        st = glm_cuda_meet(g->cuda, g->stream, &g->words->rung, &g->words->done, err);
    if (st == GLM_OK)
        st = glm_cuda_copy_in(g->cuda, g->stream, glm_gpu_address(s->to), g->receive, back, err);
    return st;
}

enum glm_status glm_gpu_put_step(struct glm_gpu *g, const struct glm_exec_program *p,
                                 const struct glm_exec_step *s, uint64_t rows, uint64_t outs,
                                 struct glm_error *err)
{
    if (s->kind == GLM_STEP_MARK)
        return GLM_OK;
    if (s->kind != GLM_STEP_KERNEL) {
        uint64_t bytes = glm_exec_exchange_bytes(s, rows, outs);
        if (bytes > 0 && glm_gpu_is_exchange(g, s))
            return g->peer != NULL   ? glm_gpu_peer_put(g, p, s, rows, outs, err)
                   : g->nccl != NULL ? glm_gpu_nccl_put(g, p, s, rows, outs, err)
                                     : put_exchange(g, s, bytes, err);
        if (s->from == s->to || bytes == 0)
            return GLM_OK;
        return glm_cuda_copy(g->cuda, g->stream, glm_gpu_address(s->to), glm_gpu_address(s->from),
                             bytes, err);
    }
    const struct glm_launch_shape *shape = &g->shapes[s->kernel_i];
    const struct glm_memory *m = g->exec->memory;
    struct glm_cuda_launch launch = {
        .name = s->name,
        .kernel = &g->kernels[s->kernel_i],
        .grid = {shape->grid[0], shape->grid[1], shape->grid[2]},
        .block = shape->block,
        .shared_bytes = shape->shared_bytes,
        .args = {.round = glm_gpu_pointer(g->tables[p->arena_i].at),
                 .scratch = m->base + m->scratch,
                 .tickets = (void *)(m->base + m->tickets)},
    };
    memcpy(launch.args.args, s->args, s->manifest->n_args * sizeof *s->args);
    enum glm_status st = GLM_OK;
    for (uint32_t i = 0; st == GLM_OK && i < shape->n_launches; i++) {
        launch.args.first_row = (int32_t)(i * shape->rows);
        st = glm_cuda_launch(g->cuda, g->stream, &launch, err);
    }
    return st;
}

struct glm_gpu_own glm_gpu_find_own(const struct glm_gpu *g, const char *name)
{
    struct glm_gpu_own k = {.manifest =
                                glm_manifest_find(g->exec->manifests, g->exec->n_manifests, name)};
    for (uint32_t i = 0; k.manifest != NULL && i < g->plan->n_kernels; i++)
        if (strcmp(g->plan->kernels[i].name, name) == 0) {
            k.kernel = &g->plan->kernels[i];
            k.loaded = &g->kernels[i];
        }
    return k;
}

enum glm_status glm_gpu_put_own(struct glm_gpu *g, const struct glm_gpu_own *k,
                                const struct glm_gpu_bucket *bucket, void *const *args,
                                uint32_t n_args, struct glm_error *err)
{
    const struct glm_cost_context cost = {
        .R = (double)bucket->rows, .O = (double)bucket->outs, .S = 1};
    struct glm_launch_shape shape;
    enum glm_status st = glm_manifest_shape(k->manifest, k->kernel, &cost, &shape, err);
    if (st != GLM_OK)
        return st;
    struct glm_cuda_launch launch = {
        .name = k->kernel->name,
        .kernel = k->loaded,
        .grid = {shape.grid[0], shape.grid[1], shape.grid[2]},
        .block = shape.block,
        .shared_bytes = shape.shared_bytes,
        .args = {.round = glm_gpu_pointer(g->tables[bucket->arena_i].at)}};
    memcpy(launch.args.args, args, n_args * sizeof *args);
    return glm_cuda_launch(g->cuda, g->stream, &launch, err);
}

struct glm_peer_exchange glm_gpu_describe(const struct glm_exec_step *s)
{
    return (struct glm_peer_exchange){.row_bytes = s->row_bytes,
                                      .per = s->per == GLM_PER_ROW   ? GLM_PEER_PER_ROW
                                             : s->per == GLM_PER_OUT ? GLM_PEER_PER_OUT
                                                                     : GLM_PEER_ONCE,
                                      .is_sum = s->kind == GLM_STEP_SUM};
}

enum glm_status glm_gpu_shape(struct glm_gpu *g, const struct glm_exec_program *p, uint64_t rows,
                              uint64_t outs, uint64_t context, struct glm_error *err)
{
    const struct glm_plan_limits *l = &g->plan->limits;
    struct glm_cost_context bucket = {.R = (double)rows,
                                      .O = (double)outs,
                                      .C = (double)context,
                                      .S = rows < l->n_streams ? (double)rows : l->n_streams};
    enum glm_status st = GLM_OK;
    for (uint32_t i = 0; st == GLM_OK && i < p->n_steps; i++) {
        const struct glm_exec_step *s = &p->steps[i];
        if (s->kind == GLM_STEP_KERNEL)
            st = glm_manifest_shape(s->manifest, &g->plan->kernels[s->kernel_i], &bucket,
                                    &g->shapes[s->kernel_i], err);
    }
    return st;
}

static enum glm_status capture(struct glm_gpu *g, const struct glm_exec_program *p,
                               const struct glm_gpu_segment *segment, uint64_t rows, uint64_t outs,
                               glm_cuda_graph *out, struct glm_error *err)
{
    enum glm_status st = glm_cuda_capture_begin(g->cuda, g->stream, err);
    if (st != GLM_OK)
        return st;
    for (uint32_t i = segment->first; st == GLM_OK && i < segment->end; i++)
        st = glm_gpu_put_step(g, p, &p->steps[i], rows, outs, err);
    enum glm_status ended = glm_cuda_capture_end(g->cuda, g->stream, out, err);
    return st == GLM_OK ? ended : st;
}

uint64_t glm_gpu_outs(const struct glm_gpu_table *t, uint64_t rows)
{
    return rows < t->max_outs ? rows : t->max_outs;
}

static enum glm_status link_program(struct glm_gpu *g, const struct glm_exec_program *p,
                                    struct glm_gpu_program *l, struct glm_error *err)
{
    const struct glm_gpu_table *t = &g->tables[p->arena_i];
    enum glm_status st = cut_segments(g, p, l, err);
    if (st != GLM_OK)
        return st;
    l->rows = cut_buckets(1, 2, t->max_rows);
    l->contexts = cut_buckets(FIRST_CONTEXT, 4, g->plan->limits.window_tokens);
    l->graphs = calloc((size_t)l->rows.n * l->contexts.n * l->n_segments + 1, sizeof *l->graphs);
    if (l->graphs == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot link program '%s': out of memory",
                        p->program->name);
    glm_cuda_graph *graph = l->graphs;
    for (uint32_t r = 0; r < l->rows.n; r++) {
        uint64_t rows = l->rows.most[r], outs = glm_gpu_outs(t, rows);
        for (uint32_t c = 0; st == GLM_OK && c < l->contexts.n; c++) {
            st = glm_gpu_shape(g, p, rows, outs, l->contexts.most[c], err);
            for (uint32_t i = 0; i < l->n_segments; i++, graph++)
                if (st == GLM_OK && !l->segments[i].exchange)
                    st = capture(g, p, &l->segments[i], rows, outs, graph, err);
        }
    }
    return st;
}

static enum glm_status open_proxy(struct glm_gpu *g, uint32_t n_exchanges, struct glm_error *err)
{
    void *words = NULL;
    enum glm_status st = glm_cuda_host_alloc(g->cuda, "a proxy", sizeof *g->words, &words, err);
    g->words = words;
    return st == GLM_OK ? glm_proxy_new(g->words, QUEUED_PROGRAMS * n_exchanges, &g->proxy, err)
                        : st;
}

/* All exchanges go through the same two places: one runs at a time. */
static enum glm_status link_exchanges(struct glm_gpu *g, struct glm_exec *x, struct glm_error *err)
{
    uint64_t send = 0, receive = 0;
    uint32_t most = 0; /* exchanges of a program */
    for (uint32_t p = 0; p < x->n_programs; p++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < x->programs[p].n_steps; i++) {
            const struct glm_exec_step *s = &x->programs[p].steps[i];
            uint64_t back =
                s->kind == GLM_STEP_GATHER ? g->plan->world * s->max_bytes : s->max_bytes;
            if (!glm_gpu_is_exchange(g, s))
                continue;
            send = s->max_bytes > send ? s->max_bytes : send;
            receive = back > receive ? back : receive;
            most = ++n > most ? n : most;
        }
    }
    if (receive == 0)
        return GLM_OK;
    enum glm_status st = glm_gpu_peer_open(g, x, err);
    if (st == GLM_OK)
        st = glm_gpu_nccl_open(g, x, err);
    if (st != GLM_OK || g->watch != NULL)
        return st;
    st = glm_cuda_host_alloc(g->cuda, "exchanges", send, &g->send, err);
    if (st == GLM_OK)
        st = glm_cuda_host_alloc(g->cuda, "exchanges", receive, &g->receive, err);
    if (st == GLM_OK && !g->is_shared)
        st = open_proxy(g, most, err);
    for (uint32_t p = 0; p < x->n_programs; p++) {
        for (uint32_t i = 0; st == GLM_OK && i < x->programs[p].n_steps; i++) {
            struct glm_exec_step *s = &x->programs[p].steps[i];
            if (glm_gpu_is_exchange(g, s))
                st = glm_exec_prepare_exchange(x, s, g->send, g->receive, err);
        }
    }
    return st;
}

enum glm_status glm_gpu_link(struct glm_device *d, struct glm_exec *x, struct glm_error *err)
{
    struct glm_gpu *g = glm_gpu_of(d);
    g->exec = x;
    g->tables = calloc(g->plan->n_arenas + 1, sizeof *g->tables);
    g->programs = calloc(x->n_programs + 1, sizeof *g->programs);
    if (g->tables == NULL || g->programs == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot link %u programs: out of memory", x->n_programs);
    enum glm_status st = glm_gpu_enter(g, err);
    for (uint32_t a = 0; st == GLM_OK && a < g->plan->n_arenas; a++)
        st = make_table(g, &g->plan->arenas[a], &g->tables[a], err);
    for (uint32_t i = 0; st == GLM_OK && i < GLM_GPU_SPANS; i++) {
        st = glm_cuda_event_new(g->cuda, &g->spans[i].from, err);
        if (st == GLM_OK)
            st = glm_cuda_event_new(g->cuda, &g->spans[i].to, err);
    }
    if (st == GLM_OK)
        st = link_exchanges(g, x, err);
    for (uint32_t p = 0; st == GLM_OK && p < x->n_programs; p++)
        st = link_program(g, &x->programs[p], &g->programs[p], err);
    return st;
}

void glm_gpu_unlink(struct glm_gpu *g)
{
    for (uint32_t p = 0; g->programs != NULL && p < g->exec->n_programs; p++) {
        struct glm_gpu_program *l = &g->programs[p];
        uint32_t n = l->rows.n * l->contexts.n * l->n_segments;
        for (uint32_t i = 0; l->graphs != NULL && i < n; i++)
            glm_cuda_graph_free(g->cuda, l->graphs[i]);
        free(l->graphs);
        free(l->segments);
    }
    free(g->programs);
    for (uint32_t a = 0; g->tables != NULL && a < g->plan->n_arenas; a++) {
        glm_cuda_free(g->cuda, g->tables[a].at);
        glm_cuda_host_free(g->cuda, g->tables[a].stages);
    }
    free(g->tables);
    for (uint32_t i = 0; i < GLM_GPU_SPANS; i++) {
        glm_cuda_event_free(g->cuda, g->spans[i].from);
        glm_cuda_event_free(g->cuda, g->spans[i].to);
    }
    glm_cuda_host_free(g->cuda, g->send);
    glm_cuda_host_free(g->cuda, g->receive);
    glm_cuda_host_free(g->cuda, g->words);
}
