/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges in memory of each other's GPUs: the ranks' inboxes and flags, how ranks get to each
 * other's, and the kernels on the stream. What the kernels do there is kernels-templates/peer.h's.
 */
#include "runtime/device_cuda.h"

#include "codegen/process.h"
#include "kernels-templates/peer.h"
#include "spec/base/log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a rank tells the others, then whether it could use what they told. */
struct offer {
    int64_t pid;
    uint64_t address;
    uint32_t gpu, is_there;
    struct glm_cuda_handle handle;
};

struct glm_gpu_peer {
    struct glm_gpu_own send, take;
    struct glm_peer_room room;
    glm_cuda_address rooms[GLM_PEERS]; /* by rank; 0: not there */
    bool opened[GLM_PEERS];            /* another process's */
    glm_cuda_address table;            /* struct glm_peers, then the exchanges */
    const void **to;                   /* [n_exchanges] tells them apart, with `from` */
    const void **from;
    uint32_t n_exchanges;
    uint32_t *gone; /* page-locked */
};

/* ---- Memory that ranks of one process share: the last one frees it ---- */

struct shared_room {
    struct shared_room *next;
    glm_cuda_address at;
    uint32_t n_users;
};
static pthread_mutex_t rooms_lock = PTHREAD_MUTEX_INITIALIZER;
static struct shared_room *all_rooms;

static bool keep_room(glm_cuda_address at)
{
    pthread_mutex_lock(&rooms_lock);
    struct shared_room *r = all_rooms;
    while (r != NULL && r->at != at)
        r = r->next;
    if (r == NULL && (r = calloc(1, sizeof *r)) != NULL) {
        *r = (struct shared_room){.next = all_rooms, .at = at};
        all_rooms = r;
    }
    if (r != NULL)
        r->n_users++;
    pthread_mutex_unlock(&rooms_lock);
    return r != NULL;
}

static void leave_room(struct glm_cuda *c, glm_cuda_address at)
{
    pthread_mutex_lock(&rooms_lock);
    struct shared_room **link = &all_rooms, *r;
    while (*link != NULL && (*link)->at != at)
        link = &(*link)->next;
    r = *link;
    if (r != NULL && --r->n_users == 0) {
        *link = r->next;
        glm_cuda_free(c, at);
        free(r);
    }
    pthread_mutex_unlock(&rooms_lock);
}

/* ---- On the stream ---- */

enum glm_status glm_gpu_peer_put(struct glm_gpu *g, const struct glm_exec_program *program,
                                 const struct glm_exec_step *s, uint64_t rows, uint64_t outs,
                                 struct glm_error *err)
{
    const struct glm_gpu_peer *p = g->peer;
    const struct glm_gpu_bucket bucket = {program->arena_i, rows, outs};
    uint32_t i = 0;
    while (p->from[i] != s->from || p->to[i] != s->to)
        i++;
    void *const peers = glm_gpu_pointer(p->table);
    void *const exchange =
        glm_gpu_pointer(p->table + sizeof(struct glm_peers) + i * sizeof(struct glm_peer_exchange));
    void *const send[] = {s->from, peers, exchange}, *const take[] = {s->to, peers, exchange};
    enum glm_status st = glm_gpu_put_own(g, &p->send, &bucket, send, 3, err);
    return st == GLM_OK ? glm_gpu_put_own(g, &p->take, &bucket, take, 3, err) : st;
}

/* ---- Setting up ---- */

/* Every distinct one of the programs; false: one that the kernels cannot do. */
static bool list_exchanges(const struct glm_gpu *g, struct glm_gpu_peer *p,
                           struct glm_peer_exchange *out)
{
    for (uint32_t k = 0; k < g->exec->n_programs; k++) {
        for (uint32_t i = 0; i < g->exec->programs[k].n_steps; i++) {
            const struct glm_exec_step *s = &g->exec->programs[k].steps[i];
            uint32_t known = 0;
            if (!glm_gpu_is_exchange(g, s))
                continue;
            if (s->row_bytes % 4 != 0 || s->max_bytes > p->room.slot_bytes)
                return false;
            while (known < p->n_exchanges && (p->from[known] != s->from || p->to[known] != s->to))
                known++;
            if (known < p->n_exchanges)
                continue;
            out[known] = glm_gpu_describe(s);
            p->from[known] = s->from;
            p->to[known] = s->to;
            p->n_exchanges++;
        }
    }
    return true;
}

/* This rank's own: memory that is zero, and what it offers of it. */
static enum glm_status make_room(struct glm_gpu *g, struct glm_gpu_peer *p, struct offer *mine,
                                 struct glm_error *err)
{
    const uint32_t rank = g->plan->rank;
    glm_cuda_address at = 0;
    enum glm_status st = glm_cuda_alloc(g->cuda, "exchanges", p->room.bytes, &at, err);
    if (st == GLM_OK && !keep_room(at)) {
        glm_cuda_free(g->cuda, at);
        return glm_fail(err, GLM_ENOMEM, "cannot share exchanges: out of memory");
    }
    if (st == GLM_OK)
        p->rooms[rank] = at;
    if (st == GLM_OK)
        st = glm_cuda_fill(g->cuda, g->stream, at, 0, p->room.bytes, err);
    if (st == GLM_OK)
        st = glm_cuda_stream_wait(g->cuda, g->stream, err);
    if (st == GLM_OK)
        st = glm_cuda_share(g->cuda, at, &mine->handle, err);
    mine->pid = getpid();
    mine->address = at;
    mine->gpu = glm_cuda_facts(g->cuda)->index;
    mine->is_there = st == GLM_OK;
    return st;
}

static enum glm_status enter_room(struct glm_gpu *g, struct glm_gpu_peer *p, uint32_t rank,
                                  const struct offer *theirs, struct glm_error *err)
{
    if (!theirs->is_there)
        return glm_fail(err, GLM_EPEER, "rank %u offers none", rank);
    if (theirs->pid != getpid()) {
        enum glm_status st = glm_cuda_shared_open(g->cuda, &theirs->handle, &p->rooms[rank], err);
        p->opened[rank] = st == GLM_OK;
        return st;
    }
    enum glm_status st = glm_cuda_reach(g->cuda, theirs->gpu, err);
    if (st == GLM_OK && !keep_room(theirs->address))
        st = glm_fail(err, GLM_ENOMEM, "cannot share exchanges: out of memory");
    if (st == GLM_OK)
        p->rooms[rank] = theirs->address;
    return st;
}

/* All ranks' offers, and whether all ranks can use them all: every rank gets the same answer. `why`
 * is this rank's reason against it, where it has one. */
static enum glm_status meet(struct glm_gpu *g, struct glm_gpu_peer *p, struct offer *mine,
                            enum glm_status *usable, struct glm_error *why, struct glm_error *err)
{
    struct offer offers[GLM_PEERS];
    uint32_t yes = 0, all[GLM_PEERS] = {0};
    struct glm_collective_step *tell, *answer;
    enum glm_status st = glm_collective_prepare(g->exec->collective, GLM_GATHER, mine, offers,
                                                sizeof *mine, &tell, err);
    if (st == GLM_OK)
        st = glm_collective_prepare(g->exec->collective, GLM_GATHER, &yes, all, sizeof yes, &answer,
                                    err);
    if (st == GLM_OK)
        st = glm_collective_run(tell, sizeof *mine, err);
    for (uint32_t r = 0; st == GLM_OK && *usable == GLM_OK && r < g->plan->world; r++)
        if (r != g->plan->rank)
            *usable = enter_room(g, p, r, &offers[r], why);
    yes = *usable == GLM_OK;
    if (st == GLM_OK)
        st = glm_collective_run(answer, sizeof yes, err);
    for (uint32_t r = 0; st == GLM_OK && *usable == GLM_OK && r < g->plan->world; r++)
        if (all[r] == 0)
            *usable = glm_fail(why, GLM_EPEER, "rank %u cannot reach the others' memory", r);
    return st;
}

static enum glm_status make_table(struct glm_gpu *g, struct glm_gpu_peer *p,
                                  const struct glm_peer_exchange *exchanges, struct glm_error *err)
{
    const uint32_t world = g->plan->world;
    const uint64_t bytes = p->n_exchanges * sizeof *exchanges;
    void *gone = NULL;
    enum glm_status st = glm_cuda_host_alloc(g->cuda, "a word", sizeof *p->gone, &gone, err);
    p->gone = gone;
    if (st != GLM_OK)
        return st;
    *p->gone = 0;
    struct glm_peers peers = {.slot_bytes = p->room.slot_bytes,
                              .n_parts = p->room.n_parts,
                              .gone = p->gone,
                              .rank = g->plan->rank};
    for (uint32_t r = 0; r < world; r++) {
        peers.inbox[r] = glm_gpu_pointer(p->rooms[r]);
        peers.flags[r] = glm_gpu_pointer(p->rooms[r] + 2 * world * p->room.slot_bytes);
    }
    st = glm_cuda_alloc(g->cuda, "a table of ranks", sizeof peers + bytes, &p->table, err);
    if (st == GLM_OK)
        st = glm_cuda_copy_in(g->cuda, g->stream, p->table, &peers, sizeof peers, err);
    if (st == GLM_OK)
        st = glm_cuda_copy_in(g->cuda, g->stream, p->table + sizeof peers, exchanges, bytes, err);
    enum glm_status waited = glm_cuda_stream_wait(g->cuda, g->stream, st == GLM_OK ? err : NULL);
    return st == GLM_OK ? waited : st;
}

static void give_up(void *gone)
{
    __atomic_store_n((uint32_t *)gone, 1, __ATOMIC_RELAXED);
}

/* A rank that cannot offer or reach memory says so and takes part, so that all come to one answer.
 */
static enum glm_status open_peers(struct glm_gpu *g, struct glm_gpu_peer *p,
                                  struct glm_peer_exchange *exchanges, struct glm_error *err)
{
    struct offer mine = {0};
    struct glm_error why = {0};
    enum glm_status usable = GLM_OK, st;
    p->send = glm_gpu_find_own(g, GLM_PEER_SEND);
    p->take = glm_gpu_find_own(g, GLM_PEER_TAKE);
    p->room = glm_peer_room(g->plan);
    if (g->is_shared)
        usable = glm_fail(&why, GLM_EKERNEL, "its GPU is other ranks' too");
    else if (g->plan->world > GLM_PEERS || p->send.loaded == NULL || p->take.loaded == NULL ||
             !list_exchanges(g, p, exchanges))
        usable = glm_fail(&why, GLM_EPLAN, "the plan's exchanges are not made for it");
    else
        usable = make_room(g, p, &mine, &why);
    st = meet(g, p, &mine, &usable, &why, err);
    if (st == GLM_OK && usable == GLM_OK)
        st = make_table(g, p, exchanges, err);
    if (st == GLM_OK && usable == GLM_OK)
        st = glm_watch_new(g->exec->collective,
                           (struct glm_watch_ops){.give_up = give_up, .context = p->gone},
                           &g->watch, err);
    if (st == GLM_OK && usable == GLM_OK)
        glm_log(GLM_LOG_INFO, "exchanges: in memory of each other's GPUs, %llu bytes a rank",
                (unsigned long long)p->room.bytes);
    else if (st == GLM_OK)
        glm_log(GLM_LOG_INFO, "exchanges: through the host, not in memory of each other's GPUs: %s",
                why.message);
    if (st != GLM_OK || usable != GLM_OK)
        glm_gpu_peer_free(g);
    return st;
}

enum glm_status glm_gpu_peer_open(struct glm_gpu *g, struct glm_exec *x, struct glm_error *err)
{
    uint32_t n_steps = 1;
    if (!glm_plan_uses_peers(g->plan) || g->plan->world > GLM_PEERS)
        return GLM_OK;
    for (uint32_t i = 0; i < x->n_programs; i++)
        n_steps += x->programs[i].n_steps;
    struct glm_gpu_peer *p = calloc(1, sizeof *p);
    struct glm_peer_exchange *exchanges = calloc(n_steps, sizeof *exchanges);
    if (p != NULL) {
        p->from = calloc(n_steps, sizeof *p->from);
        p->to = calloc(n_steps, sizeof *p->to);
    }
    g->peer = p;
    enum glm_status st = GLM_OK;
    if (p == NULL || exchanges == NULL || p->from == NULL || p->to == NULL) {
        glm_gpu_peer_free(g);
        st = glm_fail(err, GLM_ENOMEM, "cannot link exchanges: out of memory");
    } else {
        st = open_peers(g, p, exchanges, err);
    }
    free(exchanges);
    return st;
}

void glm_gpu_peer_free(struct glm_gpu *g)
{
    struct glm_gpu_peer *p = g->peer;
    if (p == NULL)
        return;
    glm_watch_free(g->watch);
    g->watch = NULL;
    for (uint32_t r = 0; r < GLM_PEERS; r++) {
        if (p->opened[r])
            glm_cuda_shared_close(g->cuda, p->rooms[r]);
        else if (p->rooms[r] != 0)
            leave_room(g->cuda, p->rooms[r]);
    }
    glm_cuda_free(g->cuda, p->table);
    glm_cuda_host_free(g->cuda, p->gone);
    free(p->from);
    free(p->to);
    free(p);
    g->peer = NULL;
}
