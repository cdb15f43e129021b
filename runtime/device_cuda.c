/* SPDX-License-Identifier: Apache-2.0 */
/* A rank on an NVIDIA GPU. While loading, every program is cut at its exchanges into segments, and
 * each segment is captured as a graph for every (row bucket, context bucket) of its arena; a round
 * then copies its table to the device and launches the graphs of its bucket on one stream.
 *
 * A bucket sets grids and nothing else: blocks beyond the live rows leave, so it changes no bits.
 * Ranks meet on the host between two segments: the exchange's bytes go through page-locked memory
 * and the collective's links. */
#include "runtime/device.h"

#include "runtime/clock.h"
#include "runtime/cuda.h"
#include "runtime/exec_step.h"

#include <stdlib.h>
#include <string.h>

enum {
    STAGES = 8,           /* round tables on their way at once */
    MAX_SPANS = 32,       /* programs between two waits */
    FIRST_CONTEXT = 8192, /* tokens of the smallest context bucket; each next has four times that */
    MAX_BUCKETS = 32,
    ROUND_ALIGN = 64,
};

/* A round table on the device, and the host's copies on their way there. */
struct table {
    glm_cuda_address at;
    uint64_t rows, streams, extents, out_rows, draws, bytes; /* offsets, then the end */
    uint32_t max_rows, max_outs, max_extents;
    unsigned char *stages; /* [STAGES][bytes] page-locked */
    uint32_t n_used;       /* since the last wait */
};

/* Steps [first, end) between two exchanges, or one exchange. */
struct segment {
    uint32_t first, end;
    bool exchange;
};

struct buckets {
    uint32_t n;
    uint64_t most[MAX_BUCKETS]; /* ascending */
};

struct linked {
    struct segment *segments;
    uint32_t n_segments;
    struct buckets rows, contexts;
    glm_cuda_graph *graphs; /* [rows][contexts][segments]; NULL where it is an exchange */
};

/* Time between two events, and what it is added to. */
struct span {
    glm_cuda_event from, to;
    uint64_t *ns;
};

struct loader {
    glm_cuda_stream stream;
    void *staging;
};

struct gpu {
    struct glm_device base;
    struct glm_cuda *cuda;
    glm_cuda_stream stream;
    glm_cuda_address memory;
    const struct glm_plan *plan;
    struct glm_cuda_kernel *kernels; /* in plan order */
    uint32_t n_kernels;
    struct glm_launch_shape *shapes; /* [n_kernels] at the bucket that is being captured */
    struct glm_exec *exec;
    struct table *tables;  /* one an arena */
    struct linked *linked; /* one a program of exec */
    void *send, *receive;  /* page-locked, of an exchange */
    struct span spans[MAX_SPANS];
    uint32_t n_spans;
    unsigned char *seen; /* what `view` last gave */
    uint64_t seen_bytes;
    struct loader *loaders;
    uint32_t n_loaders;
    struct glm_error failed; /* the first failure of what answers nothing */
};

static struct gpu *gpu_of(struct glm_device *d)
{
    return (struct gpu *)d;
}

static glm_cuda_address address(const void *p)
{
    return (glm_cuda_address)(uintptr_t)p;
}

static void *pointer(glm_cuda_address a)
{
    return (void *)(uintptr_t)a;
}

/* Every call may come on another thread than the one before. */
static enum glm_status enter(struct gpu *g, struct glm_error *err)
{
    if (g->failed.status != GLM_OK) {
        glm_fail(err, g->failed.status, "%s", g->failed.message);
        return g->failed.status;
    }
    return glm_cuda_use(g->cuda, err);
}

/* ---- Opening and closing ---- */

static void end_load(struct glm_device *d)
{
    struct gpu *g = gpu_of(d);
    for (uint32_t i = 0; i < g->n_loaders; i++) {
        glm_cuda_stream_free(g->cuda, g->loaders[i].stream);
        glm_cuda_host_free(g->cuda, g->loaders[i].staging);
    }
    free(g->loaders);
    g->loaders = NULL;
    g->n_loaders = 0;
    glm_team_free(d->team);
    d->team = NULL;
}

static void free_programs(struct gpu *g)
{
    for (uint32_t p = 0; g->linked != NULL && p < g->exec->n_programs; p++) {
        struct linked *l = &g->linked[p];
        uint32_t n = l->rows.n * l->contexts.n * l->n_segments;
        for (uint32_t i = 0; l->graphs != NULL && i < n; i++)
            glm_cuda_graph_free(g->cuda, l->graphs[i]);
        free(l->graphs);
        free(l->segments);
    }
    free(g->linked);
    for (uint32_t a = 0; g->tables != NULL && a < g->plan->n_arenas; a++) {
        glm_cuda_free(g->cuda, g->tables[a].at);
        glm_cuda_host_free(g->cuda, g->tables[a].stages);
    }
    free(g->tables);
    for (uint32_t i = 0; i < MAX_SPANS; i++) {
        glm_cuda_event_free(g->cuda, g->spans[i].from);
        glm_cuda_event_free(g->cuda, g->spans[i].to);
    }
    glm_cuda_host_free(g->cuda, g->send);
    glm_cuda_host_free(g->cuda, g->receive);
}

static void gpu_free(struct glm_device *d)
{
    struct gpu *g = gpu_of(d);
    if (g->cuda != NULL && glm_cuda_use(g->cuda, NULL) == GLM_OK) {
        if (g->stream != NULL)
            (void)glm_cuda_stream_wait(g->cuda, g->stream, NULL);
        end_load(d);
        free_programs(g);
        for (uint32_t i = 0; i < g->n_kernels; i++)
            glm_cuda_kernel_unload(g->cuda, &g->kernels[i]);
        glm_cuda_free(g->cuda, g->memory);
        glm_cuda_stream_free(g->cuda, g->stream);
    }
    glm_cuda_close(g->cuda);
    glm_team_free(d->team);
    free(g->kernels);
    free(g->shapes);
    free(g->seen);
    free(g);
}

static enum glm_status gpu_alloc(struct glm_device *d, const char *what, uint64_t bytes,
                                 unsigned char **base, struct glm_error *err)
{
    struct gpu *g = gpu_of(d);
    uint64_t size = bytes > 0 ? bytes : 1;
    enum glm_status st = enter(g, err);
    if (st == GLM_OK)
        st = glm_cuda_alloc(g->cuda, what, size, &g->memory, err);
    if (st == GLM_OK)
        st = glm_cuda_fill(g->cuda, g->stream, g->memory, 0, size, err);
    if (st == GLM_OK)
        st = glm_cuda_stream_wait(g->cuda, g->stream, err);
    if (st == GLM_OK)
        *base = pointer(g->memory);
    return st;
}

/* ---- Kernels ---- */

static enum glm_status gpu_load_kernels(struct glm_device *d, const struct glm_plan *plan,
                                        const char *const *paths, const char *const *digests,
                                        struct glm_error *err)
{
    struct gpu *g = gpu_of(d);
    const struct glm_cost_context bucket = {.R = 1, .O = 1, .S = 1};
    struct arena arena;
    struct glm_manifest *manifests;
    uint32_t n_manifests;
    g->plan = plan;
    g->kernels = calloc(plan->n_kernels + 1, sizeof *g->kernels);
    g->shapes = calloc(plan->n_kernels + 1, sizeof *g->shapes);
    if (g->kernels == NULL || g->shapes == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot load %u kernels: out of memory", plan->n_kernels);
    arena_init(&arena, 16 << 20);
    enum glm_status st = glm_manifests_load(&arena, &manifests, &n_manifests, err);
    if (st == GLM_OK)
        st = enter(g, err);
    for (uint32_t i = 0; st == GLM_OK && i < plan->n_kernels; i++) {
        const struct glm_plan_kernel *k = &plan->kernels[i];
        const struct glm_manifest *m = glm_manifest_find(manifests, n_manifests, k->template_name);
        if (m == NULL)
            st = glm_fail(err, GLM_EPLAN, "cannot load kernel '%s': no template '%s'", k->name,
                          k->template_name);
        else /* shared memory does not depend on the bucket */
            st = glm_manifest_shape(m, k, &bucket, &g->shapes[i], err);
        if (st == GLM_OK)
            st = glm_cuda_kernel_load(g->cuda, k->name, paths[i], digests[i],
                                      g->shapes[i].shared_bytes, &g->kernels[i], err);
        g->n_kernels += st == GLM_OK;
    }
    arena_release(&arena);
    return st;
}

/* ---- Linking ---- */

static uint64_t part(uint64_t *end, uint64_t n, uint64_t bytes)
{
    uint64_t at = *end;
    *end += (n * bytes + ROUND_ALIGN - 1) / ROUND_ALIGN * ROUND_ALIGN;
    return at;
}

static enum glm_status make_table(struct gpu *g, const struct glm_plan_arena *a, struct table *t,
                                  struct glm_error *err)
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
        st = glm_cuda_host_alloc(g->cuda, "round tables", STAGES * t->bytes, &stages, err);
    t->stages = stages;
    return st;
}

/* 1, 2, 4, … and `most`; from `first` on, by `factor`. */
static struct buckets cut_buckets(uint64_t first, uint64_t factor, uint64_t most)
{
    struct buckets b = {0};
    for (uint64_t n = first; n < most && b.n + 1 < MAX_BUCKETS; n *= factor)
        b.most[b.n++] = n;
    b.most[b.n++] = most;
    return b;
}

static uint32_t find_bucket(const struct buckets *b, uint64_t n)
{
    uint32_t i = 0;
    while (i + 1 < b->n && b->most[i] < n)
        i++;
    return i;
}

static bool is_exchange(const struct gpu *g, const struct glm_exec_step *s)
{
    return g->exec->collective != NULL && (s->kind == GLM_STEP_SUM || s->kind == GLM_STEP_GATHER);
}

static enum glm_status cut_segments(struct gpu *g, const struct glm_exec_program *p,
                                    struct linked *l, struct glm_error *err)
{
    l->segments = calloc(p->n_steps + 1, sizeof *l->segments);
    if (l->segments == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot link program '%s': out of memory",
                        p->program->name);
    for (uint32_t i = 0; i < p->n_steps; i++) {
        struct segment *last = l->n_segments > 0 ? &l->segments[l->n_segments - 1] : NULL;
        bool exchange = is_exchange(g, &p->steps[i]);
        if (last == NULL || last->exchange || exchange)
            l->segments[l->n_segments++] = (struct segment){i, i + 1, exchange};
        else
            last->end = i + 1;
    }
    return GLM_OK;
}

/* Puts one step on the stream. rows, outs: of the bucket. */
static enum glm_status put_step(struct gpu *g, const struct glm_exec_program *p,
                                const struct glm_exec_step *s, uint64_t rows, uint64_t outs,
                                struct glm_error *err)
{
    if (s->kind == GLM_STEP_MARK)
        return GLM_OK;
    if (s->kind != GLM_STEP_KERNEL) {
        uint64_t bytes = glm_exec_exchange_bytes(s, rows, outs);
        if (s->from == s->to || bytes == 0)
            return GLM_OK;
        return glm_cuda_copy(g->cuda, g->stream, address(s->to), address(s->from), bytes, err);
    }
    const struct glm_launch_shape *shape = &g->shapes[s->kernel_i];
    const struct glm_memory *m = g->exec->memory;
    struct glm_cuda_launch launch = {
        .name = s->name,
        .kernel = &g->kernels[s->kernel_i],
        .grid = {shape->grid[0], shape->grid[1], shape->grid[2]},
        .block = shape->block,
        .shared_bytes = shape->shared_bytes,
        .args = {.round = pointer(g->tables[p->arena_i].at),
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

/* Launch shapes of a program's kernels at a bucket. */
static enum glm_status shape_kernels(struct gpu *g, const struct glm_exec_program *p, uint64_t rows,
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

static enum glm_status capture(struct gpu *g, const struct glm_exec_program *p,
                               const struct segment *segment, uint64_t rows, uint64_t outs,
                               glm_cuda_graph *out, struct glm_error *err)
{
    enum glm_status st = glm_cuda_capture_begin(g->cuda, g->stream, err);
    if (st != GLM_OK)
        return st;
    for (uint32_t i = segment->first; st == GLM_OK && i < segment->end; i++)
        st = put_step(g, p, &p->steps[i], rows, outs, err);
    enum glm_status ended = glm_cuda_capture_end(g->cuda, g->stream, out, err);
    return st == GLM_OK ? ended : st;
}

static uint64_t outs_of(const struct table *t, uint64_t rows)
{
    return rows < t->max_outs ? rows : t->max_outs;
}

static enum glm_status link_program(struct gpu *g, const struct glm_exec_program *p,
                                    struct linked *l, struct glm_error *err)
{
    const struct table *t = &g->tables[p->arena_i];
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
        uint64_t rows = l->rows.most[r], outs = outs_of(t, rows);
        for (uint32_t c = 0; st == GLM_OK && c < l->contexts.n; c++) {
            st = shape_kernels(g, p, rows, outs, l->contexts.most[c], err);
            for (uint32_t i = 0; i < l->n_segments; i++, graph++)
                if (st == GLM_OK && !l->segments[i].exchange)
                    st = capture(g, p, &l->segments[i], rows, outs, graph, err);
        }
    }
    return st;
}

/* All exchanges go through the same two places: one runs at a time. */
static enum glm_status link_exchanges(struct gpu *g, struct glm_exec *x, struct glm_error *err)
{
    uint64_t send = 0, receive = 0;
    for (uint32_t p = 0; p < x->n_programs; p++) {
        for (uint32_t i = 0; i < x->programs[p].n_steps; i++) {
            const struct glm_exec_step *s = &x->programs[p].steps[i];
            uint64_t back =
                s->kind == GLM_STEP_GATHER ? g->plan->world * s->max_bytes : s->max_bytes;
            if (!is_exchange(g, s))
                continue;
            send = s->max_bytes > send ? s->max_bytes : send;
            receive = back > receive ? back : receive;
        }
    }
    if (receive == 0)
        return GLM_OK;
    enum glm_status st = glm_cuda_host_alloc(g->cuda, "exchanges", send, &g->send, err);
    if (st == GLM_OK)
        st = glm_cuda_host_alloc(g->cuda, "exchanges", receive, &g->receive, err);
    for (uint32_t p = 0; p < x->n_programs; p++) {
        for (uint32_t i = 0; st == GLM_OK && i < x->programs[p].n_steps; i++) {
            struct glm_exec_step *s = &x->programs[p].steps[i];
            if (is_exchange(g, s))
                st = glm_collective_prepare(x->collective,
                                            s->kind == GLM_STEP_SUM ? GLM_SUM : GLM_GATHER, g->send,
                                            g->receive, s->max_bytes, &s->collective, err);
        }
    }
    return st;
}

static enum glm_status gpu_link(struct glm_device *d, struct glm_exec *x, struct glm_error *err)
{
    struct gpu *g = gpu_of(d);
    g->exec = x;
    g->tables = calloc(g->plan->n_arenas + 1, sizeof *g->tables);
    g->linked = calloc(x->n_programs + 1, sizeof *g->linked);
    if (g->tables == NULL || g->linked == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot link %u programs: out of memory", x->n_programs);
    enum glm_status st = enter(g, err);
    for (uint32_t a = 0; st == GLM_OK && a < g->plan->n_arenas; a++)
        st = make_table(g, &g->plan->arenas[a], &g->tables[a], err);
    for (uint32_t i = 0; st == GLM_OK && i < MAX_SPANS; i++) {
        st = glm_cuda_event_new(g->cuda, &g->spans[i].from, err);
        if (st == GLM_OK)
            st = glm_cuda_event_new(g->cuda, &g->spans[i].to, err);
    }
    if (st == GLM_OK)
        st = link_exchanges(g, x, err);
    for (uint32_t p = 0; st == GLM_OK && p < x->n_programs; p++)
        st = link_program(g, &x->programs[p], &g->linked[p], err);
    return st;
}

/* ---- Running ---- */

static enum glm_status gpu_wait(struct glm_device *d, struct glm_error *err)
{
    struct gpu *g = gpu_of(d);
    enum glm_status st = enter(g, err);
    if (st == GLM_OK)
        st = glm_cuda_stream_wait(g->cuda, g->stream, err);
    for (uint32_t i = 0; st == GLM_OK && i < g->n_spans; i++) {
        double seconds = 0;
        st = glm_cuda_event_seconds(g->cuda, g->spans[i].from, g->spans[i].to, &seconds, err);
        *g->spans[i].ns += (uint64_t)(seconds * 1e9);
    }
    g->n_spans = 0;
    for (uint32_t a = 0; g->tables != NULL && a < g->plan->n_arenas; a++)
        g->tables[a].n_used = 0;
    return st;
}

static uint32_t count_extents(const struct glm_round *round)
{
    int32_t n = 0;
    for (int32_t i = 0; i < round->n_streams; i++) {
        int32_t end = round->streams[i].first_extent + round->streams[i].n_extents;
        n = end > n ? end : n;
    }
    return (uint32_t)n;
}

/* The table as the device sees it, into `to`. */
static void write_table(const struct table *t, const struct glm_round *round, uint32_t n_extents,
                        unsigned char *to)
{
    unsigned char *at = pointer(t->at);
    struct glm_round there = *round;
    there.rows = (const void *)(at + t->rows);
    there.streams = (const void *)(at + t->streams);
    there.extents = (const void *)(at + t->extents);
    there.out_rows = (const void *)(at + t->out_rows);
    there.draws = (const void *)(at + t->draws);
    const struct {
        uint64_t at, bytes;
        const void *from;
    } parts[] = {
        {0, sizeof there, &there},
        {t->rows, (uint64_t)round->n_rows * sizeof *round->rows, round->rows},
        {t->streams, (uint64_t)round->n_streams * sizeof *round->streams, round->streams},
        {t->extents, n_extents * sizeof *round->extents, round->extents},
        {t->out_rows, (uint64_t)round->n_out * sizeof *round->out_rows, round->out_rows},
        {t->draws, (uint64_t)round->n_out * sizeof *round->draws, round->draws},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i].bytes > 0)
            memcpy(to + parts[i].at, parts[i].from, parts[i].bytes);
}

static enum glm_status send_table(struct gpu *g, struct table *t, const struct glm_round *round,
                                  struct glm_error *err)
{
    uint32_t n_extents = count_extents(round);
    GLM_ASSERT((uint32_t)round->n_rows <= t->max_rows && (uint32_t)round->n_out <= t->max_outs);
    GLM_ASSERT(round->n_streams <= GLM_ROUND_STREAMS && n_extents <= t->max_extents);
    enum glm_status st = t->n_used == STAGES ? gpu_wait(&g->base, err) : GLM_OK;
    if (st != GLM_OK)
        return st;
    unsigned char *stage = t->stages + t->n_used++ * t->bytes;
    write_table(t, round, n_extents, stage);
    return glm_cuda_copy_in(g->cuda, g->stream, t->at, stage, t->bytes, err);
}

static uint64_t longest_context(const struct glm_round *round)
{
    uint64_t most = 0;
    for (int32_t i = 0; i < round->n_streams; i++) {
        const struct glm_round_stream *s = &round->streams[i];
        uint64_t n = (uint64_t)s->n_context + (uint64_t)s->n_rows;
        most = n > most ? n : most;
    }
    return most;
}

static enum glm_status exchange(struct gpu *g, const struct glm_exec_step *s,
                                const struct glm_round *round, struct glm_error *err)
{
    uint64_t bytes = glm_exec_exchange_bytes(s, (uint64_t)round->n_rows, (uint64_t)round->n_out);
    if (bytes == 0)
        return GLM_OK;
    enum glm_status st =
        glm_cuda_copy_out(g->cuda, g->stream, g->send, address(s->from), bytes, err);
    if (st == GLM_OK)
        st = glm_cuda_stream_wait(g->cuda, g->stream, err);
    uint64_t start = glm_now_ns();
    if (st == GLM_OK)
        st = glm_collective_run(s->collective, bytes, err);
    g->exec->counts.exchange_ns += glm_now_ns() - start;
    uint64_t back = s->kind == GLM_STEP_GATHER ? g->plan->world * bytes : bytes;
    if (st == GLM_OK)
        st = glm_cuda_copy_in(g->cuda, g->stream, address(s->to), g->receive, back, err);
    return st;
}

static enum glm_status probe(struct gpu *g, const struct glm_exec_program *p, uint32_t step_i,
                             const struct glm_round *round, bool is_done, struct glm_error *err)
{
    enum glm_status st = glm_cuda_stream_wait(g->cuda, g->stream, err);
    if (st == GLM_OK)
        g->exec->probe(g->exec->probe_context, p, step_i, round, is_done);
    return st;
}

/* Step by step, so that the probe can look at what lies between. */
static enum glm_status run_probed(struct gpu *g, const struct glm_exec_program *p,
                                  const struct glm_round *round, struct glm_error *err)
{
    uint64_t rows = (uint64_t)round->n_rows, outs = (uint64_t)round->n_out;
    const struct table *t = &g->tables[p->arena_i];
    enum glm_status st = shape_kernels(g, p, rows, outs_of(t, rows), longest_context(round), err);
    for (uint32_t i = 0; st == GLM_OK && i < p->n_steps; i++) {
        const struct glm_exec_step *s = &p->steps[i];
        st = probe(g, p, i, round, false, err);
        if (st == GLM_OK)
            st =
                is_exchange(g, s) ? exchange(g, s, round, err) : put_step(g, p, s, rows, outs, err);
        if (st == GLM_OK)
            st = probe(g, p, i, round, true, err);
    }
    return st;
}

static enum glm_status gpu_run_step(struct glm_device *d, const struct glm_exec_program *p,
                                    uint32_t step_i, const struct glm_round *round,
                                    struct glm_error *err)
{
    struct gpu *g = gpu_of(d);
    struct table *t = &g->tables[p->arena_i];
    uint64_t rows = (uint64_t)round->n_rows, outs = (uint64_t)round->n_out;
    enum glm_status st = enter(g, err);
    if (st == GLM_OK)
        st = send_table(g, t, round, err);
    if (st == GLM_OK)
        st = shape_kernels(g, p, rows, outs_of(t, rows), longest_context(round), err);
    if (st == GLM_OK)
        st = put_step(g, p, &p->steps[step_i], rows, outs, err);
    return st == GLM_OK ? gpu_wait(d, err) : st;
}

static enum glm_status run_graphs(struct gpu *g, const struct glm_exec_program *p,
                                  const struct glm_round *round, struct glm_error *err)
{
    const struct linked *l = &g->linked[p - g->exec->programs];
    uint32_t r = find_bucket(&l->rows, (uint64_t)round->n_rows);
    uint32_t c = find_bucket(&l->contexts, longest_context(round));
    const glm_cuda_graph *graphs = l->graphs + ((size_t)r * l->contexts.n + c) * l->n_segments;
    enum glm_status st = GLM_OK;
    for (uint32_t i = 0; st == GLM_OK && i < l->n_segments; i++)
        st = l->segments[i].exchange ? exchange(g, &p->steps[l->segments[i].first], round, err)
                                     : glm_cuda_graph_launch(g->cuda, graphs[i], g->stream, err);
    return st;
}

static enum glm_status gpu_run(struct glm_device *d, const struct glm_exec_program *p,
                               const struct glm_round *round, uint64_t *ns, struct glm_error *err)
{
    struct gpu *g = gpu_of(d);
    enum glm_status st = enter(g, err);
    if (st == GLM_OK && g->n_spans == MAX_SPANS)
        st = gpu_wait(d, err);
    struct span *span = &g->spans[g->n_spans];
    if (st == GLM_OK)
        st = send_table(g, &g->tables[p->arena_i], round, err);
    if (st == GLM_OK)
        st = glm_cuda_event_record(g->cuda, span->from, g->stream, err);
    if (st == GLM_OK)
        st = g->exec->probe != NULL ? run_probed(g, p, round, err) : run_graphs(g, p, round, err);
    if (st == GLM_OK)
        st = glm_cuda_event_record(g->cuda, span->to, g->stream, err);
    if (st != GLM_OK)
        return st;
    span->ns = ns;
    g->n_spans++;
    for (uint32_t i = 0; i < p->n_steps; i++)
        if (p->steps[i].kind == GLM_STEP_KERNEL)
            glm_exec_count(g->exec, &p->steps[i], round);
    return GLM_OK;
}

/* ---- Bytes ---- */

static void note(struct gpu *g, enum glm_status st, const struct glm_error *err)
{
    if (st != GLM_OK && g->failed.status == GLM_OK) {
        g->failed = *err;
        g->failed.status = st;
    }
}

static void gpu_copy(struct glm_device *d, void *to, const void *from, uint64_t bytes)
{
    struct gpu *g = gpu_of(d);
    struct glm_error err = {0};
    enum glm_status st = enter(g, &err);
    if (st == GLM_OK)
        st = glm_cuda_copy(g->cuda, g->stream, address(to), address(from), bytes, &err);
    note(g, st, &err);
}

static void gpu_fill(struct glm_device *d, void *to, uint8_t byte, uint64_t bytes)
{
    struct gpu *g = gpu_of(d);
    struct glm_error err = {0};
    enum glm_status st = enter(g, &err);
    if (st == GLM_OK)
        st = glm_cuda_fill(g->cuda, g->stream, address(to), byte, bytes, &err);
    note(g, st, &err);
}

static enum glm_status gpu_put(struct glm_device *d, void *to, const void *from, uint64_t bytes,
                               struct glm_error *err)
{
    struct gpu *g = gpu_of(d);
    enum glm_status st = enter(g, err);
    if (st == GLM_OK && bytes > 0)
        st = glm_cuda_copy_in(g->cuda, g->stream, address(to), from, bytes, err);
    return st == GLM_OK ? gpu_wait(d, err) : st;
}

static enum glm_status gpu_get(struct glm_device *d, void *to, const void *from, uint64_t bytes,
                               struct glm_error *err)
{
    struct gpu *g = gpu_of(d);
    enum glm_status st = enter(g, err);
    if (st == GLM_OK && bytes > 0)
        st = glm_cuda_copy_out(g->cuda, g->stream, to, address(from), bytes, err);
    return st == GLM_OK ? gpu_wait(d, err) : st;
}

static enum glm_status gpu_view(struct glm_device *d, const void *from, uint64_t bytes,
                                const void **out, struct glm_error *err)
{
    struct gpu *g = gpu_of(d);
    if (bytes > g->seen_bytes) {
        unsigned char *seen = realloc(g->seen, bytes);
        if (seen == NULL)
            return glm_fail(err, GLM_ENOMEM, "cannot look at %llu bytes of the GPU's memory",
                            (unsigned long long)bytes);
        g->seen = seen;
        g->seen_bytes = bytes;
    }
    *out = g->seen;
    return gpu_get(d, g->seen, from, bytes, err);
}

/* ---- Loading ---- */

static enum glm_status begin_load(struct glm_device *d, uint64_t staging_bytes,
                                  struct glm_error *err)
{
    struct gpu *g = gpu_of(d);
    uint32_t n = glm_team_threads(d->team);
    g->loaders = calloc(n, sizeof *g->loaders);
    if (g->loaders == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot load weights: out of memory");
    g->n_loaders = n;
    enum glm_status st = enter(g, err);
    for (uint32_t i = 0; st == GLM_OK && i < n; i++) {
        st = glm_cuda_stream_new(g->cuda, &g->loaders[i].stream, err);
        if (st == GLM_OK)
            st = glm_cuda_host_alloc(g->cuda, "weights on their way", staging_bytes,
                                     &g->loaders[i].staging, err);
    }
    return st;
}

static unsigned char *staging(struct glm_device *d, uint32_t thread)
{
    return gpu_of(d)->loaders[thread].staging;
}

static enum glm_status upload(struct glm_device *d, uint32_t thread, void *to, const void *from,
                              uint64_t bytes, struct glm_error *err)
{
    struct gpu *g = gpu_of(d);
    enum glm_status st = enter(g, err);
    if (st == GLM_OK && bytes > 0)
        st = glm_cuda_copy_in(g->cuda, g->loaders[thread].stream, address(to), from, bytes, err);
    if (st == GLM_OK)
        st = glm_cuda_stream_wait(g->cuda, g->loaders[thread].stream, err);
    return st;
}

static const struct glm_device_ops gpu_ops = {
    .host_memory = false,
    .free = gpu_free,
    .alloc = gpu_alloc,
    .load_kernels = gpu_load_kernels,
    .link = gpu_link,
    .run = gpu_run,
    .run_step = gpu_run_step,
    .wait = gpu_wait,
    .copy = gpu_copy,
    .fill = gpu_fill,
    .put = gpu_put,
    .get = gpu_get,
    .view = gpu_view,
    .begin_load = begin_load,
    .staging = staging,
    .upload = upload,
    .end_load = end_load,
};

enum glm_status glm_device_open_cuda(uint32_t index, uint32_t load_threads, struct glm_device **out,
                                     struct glm_error *err)
{
    struct gpu *g = calloc(1, sizeof *g);
    if (g == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot open 'cuda:%u': out of memory", index);
    g->base.ops = &gpu_ops;
    enum glm_status st = glm_cuda_open(index, &g->cuda, err);
    if (st == GLM_OK)
        st = glm_cuda_stream_new(g->cuda, &g->stream, err);
    if (st == GLM_OK)
        st = glm_team_new(load_threads, 0, &g->base.team, err);
    if (st == GLM_OK)
        *out = &g->base;
    else
        gpu_free(&g->base);
    return st;
}
