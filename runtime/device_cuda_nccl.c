/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges by NCCL: every one is a gather of the bucket's bytes into memory of this rank, and a
 * kernel that sums them in rank order or lays the live ones out (kernels-templates/rank_sum.cu). So
 * sums have the bits of every other transport, which NCCL's own would not. A gather cannot go where
 * a step wants it: the bucket has more rows than live ones, and theirs must lie side by side. */
#include "runtime/device_cuda.h"

#include "codegen/process.h"
#include "runtime/nccl.h"
#include "spec/base/log.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_EXCHANGES = 64 };

struct glm_gpu_nccl {
    struct glm_nccl *ranks;
    struct glm_gpu_own sum;
    glm_cuda_address received; /* [world][a message] */
    glm_cuda_address table;    /* [MAX_EXCHANGES] */
    struct glm_peer_exchange exchanges[MAX_EXCHANGES];
    uint32_t n_exchanges;
};

/* ---- On the stream ---- */

static uint32_t find_exchange(const struct glm_gpu_nccl *n, const struct glm_exec_step *s)
{
    const struct glm_peer_exchange x = glm_gpu_describe(s);
    uint32_t i = 0;
    while (i < n->n_exchanges &&
           (n->exchanges[i].row_bytes != x.row_bytes || n->exchanges[i].per != x.per ||
            n->exchanges[i].is_sum != x.is_sum))
        i++;
    return i;
}

enum glm_status glm_gpu_nccl_put(struct glm_gpu *g, const struct glm_exec_program *program,
                                 const struct glm_exec_step *s, uint64_t rows, uint64_t outs,
                                 struct glm_error *err)
{
    const struct glm_gpu_nccl *n = g->nccl;
    const struct glm_gpu_bucket bucket = {program->arena_i, rows, outs};
    const uint64_t bytes = glm_exec_exchange_bytes(s, rows, outs);
    void *const args[] = {s->to, glm_gpu_pointer(n->received), glm_gpu_pointer(n->received + bytes),
                          glm_gpu_pointer(n->table + find_exchange(n, s) * sizeof n->exchanges[0])};
    enum glm_status st =
        glm_nccl_gather(n->ranks, g->stream, glm_gpu_address(s->from), n->received, bytes, err);
    return st == GLM_OK ? glm_gpu_put_own(g, &n->sum, &bucket, args, 4, err) : st;
}

/* ---- Setting up ---- */

static enum glm_status make_table(struct glm_gpu *g, struct glm_gpu_nccl *n, struct glm_error *err)
{
    for (uint32_t p = 0; p < g->exec->n_programs; p++) {
        for (uint32_t i = 0; i < g->exec->programs[p].n_steps; i++) {
            const struct glm_exec_step *s = &g->exec->programs[p].steps[i];
            if (!glm_gpu_is_exchange(g, s) || find_exchange(n, s) < n->n_exchanges)
                continue;
            if (n->n_exchanges == MAX_EXCHANGES || s->row_bytes % 4 != 0)
                return glm_fail(err, GLM_EPLAN,
                                "cannot exchange rows of %llu bytes as exchange %u of at most %d",
                                (unsigned long long)s->row_bytes, n->n_exchanges, MAX_EXCHANGES);
            n->exchanges[n->n_exchanges++] = glm_gpu_describe(s);
        }
    }
    enum glm_status st =
        glm_cuda_alloc(g->cuda, "a table of exchanges", sizeof n->exchanges, &n->table, err);
    if (st == GLM_OK)
        st = glm_cuda_copy_in(g->cuda, g->stream, n->table, n->exchanges, sizeof n->exchanges, err);
    return st == GLM_OK ? glm_cuda_stream_wait(g->cuda, g->stream, err) : st;
}

/* Rank 0's id over the links. A rank that lacks the library says so, and none waits for it. */
static enum glm_status meet(struct glm_gpu *g, struct glm_gpu_nccl *n, struct glm_error *err)
{
    struct {
        struct glm_nccl_id id;
        uint32_t is_there, version;
    } mine = {0}, all[GLM_PEERS];
    struct glm_error why = {0};
    struct glm_collective_step *tell;
    int version = 0;
    const uint32_t rank = g->plan->rank, world = g->plan->world;
    enum glm_status own = glm_nccl_library(&version, &why);
    if (own == GLM_OK && rank == 0)
        own = glm_nccl_new_id(&mine.id, &why);
    mine.is_there = own == GLM_OK;
    mine.version = (uint32_t)version;
    enum glm_status st = glm_collective_prepare(g->exec->collective, GLM_GATHER, &mine, all,
                                                sizeof mine, &tell, err);
    if (st == GLM_OK)
        st = glm_collective_run(tell, sizeof mine, err);
    if (own != GLM_OK) {
        *err = why;
        return own;
    }
    for (uint32_t r = 0; st == GLM_OK && r < world; r++) {
        if (all[r].is_there == 0)
            st = glm_fail(err, GLM_EPEER, "rank %u cannot open NCCL", r);
        else if (all[r].version != mine.version)
            st = glm_fail(err, GLM_EKERNEL, "rank %u has NCCL %u, rank %u has %u", r,
                          all[r].version, rank, mine.version);
    }
    if (st == GLM_OK)
        st = glm_nccl_open(&all[0].id, rank, world, &n->ranks, err);
    if (st == GLM_OK)
        glm_log(GLM_LOG_INFO, "exchanges: by NCCL %d.%d.%d, %llu bytes a rank", version / 10000,
                version % 10000 / 100, version % 100,
                (unsigned long long)glm_received_bytes(g->plan));
    return st;
}

/* NCCL connects ranks at the first gather of a size: better now than under a capture. */
static enum glm_status warm_up(struct glm_gpu *g, struct glm_gpu_nccl *n, struct glm_error *err)
{
    enum glm_status st = GLM_OK;
    for (uint64_t bytes = 4; st == GLM_OK && bytes <= glm_message_bytes(g->plan); bytes *= 4)
        st = glm_nccl_gather(n->ranks, g->stream, n->received + g->plan->rank * bytes, n->received,
                             bytes, err);
    return st == GLM_OK ? glm_cuda_stream_wait(g->cuda, g->stream, err) : st;
}

static void give_up(void *ranks)
{
    glm_nccl_abort(ranks);
}

static enum glm_status look(void *ranks, struct glm_error *err)
{
    return glm_nccl_look(ranks, err);
}

static enum glm_status open_nccl(struct glm_gpu *g, struct glm_gpu_nccl *n, struct glm_error *err)
{
    n->sum = glm_gpu_find_own(g, GLM_RANK_SUM);
    if (g->is_shared || g->plan->world > GLM_PEERS || n->sum.loaded == NULL)
        return glm_fail(err, GLM_EPLAN,
                        "cannot exchange by NCCL: %u ranks, of which each needs a GPU of its own",
                        g->plan->world);
    const uint64_t bytes = glm_received_bytes(g->plan);
    enum glm_status st = glm_cuda_alloc(g->cuda, "exchanges", bytes, &n->received, err);
    if (st == GLM_OK)
        st = glm_cuda_fill(g->cuda, g->stream, n->received, 0, bytes, err);
    if (st == GLM_OK)
        st = make_table(g, n, err);
    if (st == GLM_OK)
        st = meet(g, n, err);
    if (st == GLM_OK)
        st = glm_watch_new(
            g->exec->collective,
            (struct glm_watch_ops){.give_up = give_up, .look = look, .context = n->ranks},
            &g->watch, err);
    if (st != GLM_OK)
        return st;
    glm_watch_begin(g->watch);
    st = warm_up(g, n, err);
    enum glm_status lost = glm_watch_end(g->watch, st != GLM_OK, err);
    return lost != GLM_OK ? lost : st;
}

enum glm_status glm_gpu_nccl_open(struct glm_gpu *g, struct glm_exec *x, struct glm_error *err)
{
    if (!glm_plan_uses_nccl(g->plan) || x->collective == NULL)
        return GLM_OK;
    g->nccl = calloc(1, sizeof *g->nccl);
    return g->nccl != NULL ? open_nccl(g, g->nccl, err)
                           : glm_fail(err, GLM_ENOMEM, "cannot exchange by NCCL: out of memory");
}

void glm_gpu_nccl_free(struct glm_gpu *g)
{
    struct glm_gpu_nccl *n = g->nccl;
    if (n == NULL)
        return;
    glm_watch_free(g->watch);
    g->watch = NULL;
    glm_nccl_close(n->ranks);
    glm_cuda_free(g->cuda, n->table);
    glm_cuda_free(g->cuda, n->received);
    free(n);
    g->nccl = NULL;
}
