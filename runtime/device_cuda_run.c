/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a rank's programs on a GPU (see device_cuda.h): the round's table, the bucket's graphs, and
 * on the host what lies between two graphs or is looked at. */
#include "runtime/device_cuda.h"

#include "runtime/clock.h"

#include <string.h>

/* Until the stream is through, and the proxy with it. */
static enum glm_status settle(struct glm_gpu *g, struct glm_error *err)
{
    struct glm_error why = {0};
    enum glm_status st = glm_cuda_stream_wait(g->cuda, g->stream, &why), exchanged = GLM_OK;
    if (g->watch != NULL)
        exchanged = glm_watch_end(g->watch, st != GLM_OK, err);
    if (g->proxy != NULL && st != GLM_OK)
        glm_proxy_forget(g->proxy);
    if (g->proxy != NULL) /* what went wrong there went wrong first */
        exchanged = glm_proxy_wait(g->proxy, &g->exec->counts.exchange_ns, err);
    if (exchanged != GLM_OK || st == GLM_OK)
        return exchanged;
    return glm_fail(err, st, "%s", why.message);
}

enum glm_status glm_gpu_wait(struct glm_device *d, struct glm_error *err)
{
    struct glm_gpu *g = glm_gpu_of(d);
    enum glm_status st = glm_gpu_enter(g, err);
    if (st == GLM_OK)
        st = settle(g, err);
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
static void write_table(const struct glm_gpu_table *t, const struct glm_round *round,
                        uint32_t n_extents, unsigned char *to)
{
    unsigned char *at = glm_gpu_pointer(t->at);
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

static enum glm_status send_table(struct glm_gpu *g, struct glm_gpu_table *t,
                                  const struct glm_round *round, struct glm_error *err)
{
    uint32_t n_extents = count_extents(round);
    GLM_ASSERT((uint32_t)round->n_rows <= t->max_rows && (uint32_t)round->n_out <= t->max_outs);
    GLM_ASSERT(round->n_streams <= GLM_ROUND_STREAMS && n_extents <= t->max_extents);
    enum glm_status st = t->n_used == GLM_GPU_STAGES ? glm_gpu_wait(&g->base, err) : GLM_OK;
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

/* Between two graphs or steps. */
static enum glm_status exchange(struct glm_gpu *g, const struct glm_exec_step *s,
                                const struct glm_round *round, struct glm_error *err)
{
    uint64_t bytes = glm_exec_exchange_bytes(s, (uint64_t)round->n_rows, (uint64_t)round->n_out);
    if (bytes == 0)
        return GLM_OK;
    enum glm_status st =
        glm_cuda_copy_out(g->cuda, g->stream, g->send, glm_gpu_address(s->from), bytes, err);
    if (st == GLM_OK)
        st = settle(g, err);
    uint64_t start = glm_now_ns();
    if (st == GLM_OK)
        st = glm_collective_run(s->collective, bytes, err);
    g->exec->counts.exchange_ns += glm_now_ns() - start;
    uint64_t back = s->kind == GLM_STEP_GATHER ? g->plan->world * bytes : bytes;
    if (st == GLM_OK)
        st = glm_cuda_copy_in(g->cuda, g->stream, glm_gpu_address(s->to), g->receive, back, err);
    return st;
}

static enum glm_status probe(struct glm_gpu *g, const struct glm_exec_program *p, uint32_t step_i,
                             const struct glm_round *round, bool is_done, struct glm_error *err)
{
    enum glm_status st = settle(g, err);
    if (st == GLM_OK)
        g->exec->probe(g->exec->probe_context, p, step_i, round, is_done);
    return st;
}

/* Step by step, so that the probe can look at what lies between. */
static enum glm_status run_probed(struct glm_gpu *g, const struct glm_exec_program *p,
                                  const struct glm_round *round, struct glm_error *err)
{
    uint64_t rows = (uint64_t)round->n_rows, outs = (uint64_t)round->n_out;
    const struct glm_gpu_table *t = &g->tables[p->arena_i];
    enum glm_status st =
        glm_gpu_shape(g, p, rows, glm_gpu_outs(t, rows), longest_context(round), err);
    for (uint32_t i = 0; st == GLM_OK && i < p->n_steps; i++) {
        const struct glm_exec_step *s = &p->steps[i];
        st = probe(g, p, i, round, false, err);
        if (st == GLM_OK)
            st = glm_gpu_is_exchange(g, s) && g->watch == NULL
                     ? exchange(g, s, round, err)
                     : glm_gpu_put_step(g, p, s, rows, outs, err);
        if (st == GLM_OK)
            st = probe(g, p, i, round, true, err);
    }
    return st;
}

enum glm_status glm_gpu_run_step(struct glm_device *d, const struct glm_exec_program *p,
                                 uint32_t step_i, const struct glm_round *round,
                                 struct glm_error *err)
{
    struct glm_gpu *g = glm_gpu_of(d);
    struct glm_gpu_table *t = &g->tables[p->arena_i];
    uint64_t rows = (uint64_t)round->n_rows, outs = (uint64_t)round->n_out;
    enum glm_status st = glm_gpu_enter(g, err);
    if (st == GLM_OK)
        st = send_table(g, t, round, err);
    if (st == GLM_OK)
        st = glm_gpu_shape(g, p, rows, glm_gpu_outs(t, rows), longest_context(round), err);
    if (st == GLM_OK)
        st = glm_gpu_put_step(g, p, &p->steps[step_i], rows, outs, err);
    return st == GLM_OK ? glm_gpu_wait(d, err) : st;
}

static uint32_t find_bucket(const struct glm_gpu_buckets *b, uint64_t n)
{
    uint32_t i = 0;
    while (i + 1 < b->n && b->most[i] < n)
        i++;
    return i;
}

/* What is in a graph whatever its bucket, with the bytes of this round's rows. */
static void expect_exchanges(struct glm_gpu *g, const struct glm_exec_program *p,
                             const struct glm_round *round)
{
    for (uint32_t i = 0; i < p->n_steps; i++) {
        const struct glm_exec_step *s = &p->steps[i];
        if (glm_gpu_is_exchange(g, s) && s->max_bytes > 0)
            glm_proxy_expect(
                g->proxy, s->collective,
                glm_exec_exchange_bytes(s, (uint64_t)round->n_rows, (uint64_t)round->n_out));
    }
}

/* From here on somebody looks after the ranks while the stream may wait for them. */
static void begin_exchanges(struct glm_gpu *g, const struct glm_exec_program *p,
                            const struct glm_round *round)
{
    for (uint32_t i = 0; i < p->n_steps; i++) {
        const struct glm_exec_step *s = &p->steps[i];
        const uint64_t bytes =
            glm_exec_exchange_bytes(s, (uint64_t)round->n_rows, (uint64_t)round->n_out);
        if (glm_gpu_is_exchange(g, s) && bytes > 0)
            glm_watch_note(g->watch, s->kind == GLM_STEP_SUM ? GLM_SUM : GLM_GATHER, bytes);
    }
    glm_watch_begin(g->watch);
}

static enum glm_status run_graphs(struct glm_gpu *g, const struct glm_exec_program *p,
                                  const struct glm_round *round, struct glm_error *err)
{
    const struct glm_gpu_program *l = &g->programs[p - g->exec->programs];
    uint32_t r = find_bucket(&l->rows, (uint64_t)round->n_rows);
    uint32_t c = find_bucket(&l->contexts, longest_context(round));
    const glm_cuda_graph *graphs = l->graphs + ((size_t)r * l->contexts.n + c) * l->n_segments;
    enum glm_status st = GLM_OK;
    if (g->proxy != NULL)
        expect_exchanges(g, p, round);
    for (uint32_t i = 0; st == GLM_OK && i < l->n_segments; i++)
        st = l->segments[i].exchange ? exchange(g, &p->steps[l->segments[i].first], round, err)
                                     : glm_cuda_graph_launch(g->cuda, graphs[i], g->stream, err);
    return st;
}

enum glm_status glm_gpu_run(struct glm_device *d, const struct glm_exec_program *p,
                            const struct glm_round *round, uint64_t *ns, struct glm_error *err)
{
    struct glm_gpu *g = glm_gpu_of(d);
    uint32_t n_exchanges = g->programs[p - g->exec->programs].n_exchanges;
    enum glm_status st = glm_gpu_enter(g, err);
    if (st == GLM_OK && (g->n_spans == GLM_GPU_SPANS ||
                         (g->proxy != NULL && glm_proxy_room(g->proxy) < n_exchanges)))
        st = glm_gpu_wait(d, err);
    if (st == GLM_OK)
        st = send_table(g, &g->tables[p->arena_i], round, err);
    struct glm_gpu_span *span = &g->spans[g->n_spans]; /* sending may have waited */
    if (st == GLM_OK)
        st = glm_cuda_event_record(g->cuda, span->from, g->stream, err);
    struct glm_error why = {0};
    if (st == GLM_OK && g->watch != NULL)
        begin_exchanges(g, p, round);
    if (st == GLM_OK)
        st = g->exec->probe != NULL ? run_probed(g, p, round, &why) : run_graphs(g, p, round, &why);
    if (st == GLM_OK)
        st = glm_cuda_event_record(g->cuda, span->to, g->stream, &why);
    if (st != GLM_OK) {
        /* The stream may hold programs whose rings the proxy still answers: nothing is forgotten
         * here, and nothing is added to what can only be freed now. */
        glm_gpu_note(g, st, &why);
        return glm_fail(err, st, "%s", why.message);
    }
    span->ns = ns;
    g->n_spans++;
    for (uint32_t i = 0; i < p->n_steps; i++)
        if (p->steps[i].kind == GLM_STEP_KERNEL)
            glm_exec_count(g->exec, &p->steps[i], round);
    return GLM_OK;
}
