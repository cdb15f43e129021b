/* SPDX-License-Identifier: Apache-2.0 */
/* The pool's size and the refusal of what does not fit. Owns the parts of the memory table; their
 * sizes come from memory.c and process.c. A node's room is its declared memory less its reserve; an
 * undeclared one is found at apply, which checks the table again. */
#include "codegen/capacity.h"
#include "codegen/memory.h"
#include "codegen/process.h"

#include <stdio.h>
#include <string.h>

/* Of a host rank whose node does not say: scratch hardly grows with them. */
enum { ASSUMED_THREADS = 16 };

enum part {
    PART_EXPERTS,
    PART_DENSE,
    PART_HEAD,
    PART_EMBEDDING,
    PART_OTHER,
    PART_POOL,
    PART_STREAMS,
    PART_DECODE,
    PART_PREFILL,
    PART_SCRATCH,
    PART_EXCHANGES,
    PART_PROCESS,
    PART_REQUESTS,
    N_PARTS
};

static const char *const part_names[N_PARTS] = {
    [PART_EXPERTS] = "experts",
    [PART_DENSE] = "dense",
    [PART_HEAD] = "head",
    [PART_EMBEDDING] = "embedding",
    [PART_OTHER] = "other weights",
    [PART_POOL] = "pool",
    [PART_STREAMS] = "streams",
    [PART_DECODE] = "decode buffers",
    [PART_PREFILL] = "prefill buffers",
    [PART_SCRATCH] = "scratch",
    [PART_EXCHANGES] = "exchanges",
    [PART_PROCESS] = "process",
    [PART_REQUESTS] = "requests",
};

static const enum part part_of_class[GLM_N_CLASSES] = {
    [GLM_CLASS_EXPERTS] = PART_EXPERTS, [GLM_CLASS_DENSE] = PART_DENSE,
    [GLM_CLASS_HEAD] = PART_HEAD,       [GLM_CLASS_EMBEDDING] = PART_EMBEDDING,
    [GLM_CLASS_OTHER] = PART_OTHER,
};

static uint64_t extents_of(uint64_t n_tokens)
{
    return (n_tokens + GLM_PLAN_EXTENT - 1) / GLM_PLAN_EXTENT;
}

static enum glm_status measure(const struct glm_lane *lane, const struct glm_capacity_rank *r,
                               const struct glm_manifest *manifests, uint32_t n_manifests,
                               uint64_t parts[N_PARTS], struct glm_error *err)
{
    const struct glm_plan *p = r->plan;
    memset(parts, 0, N_PARTS * sizeof parts[0]);
    for (uint32_t i = 0; i < p->n_weights; i++) {
        const struct glm_plan_weight *w = &p->weights[i];
        uint64_t bytes = glm_plan_align(w->bytes);
        parts[part_of_class[r->classes[i]]] += bytes * (w->n_layers ? w->n_layers : 1);
    }
    for (uint32_t i = 0; i < p->n_states; i++) {
        const struct glm_plan_state *s = &p->states[i];
        bool pool = s->unit == GLM_UNIT_TOKEN || s->unit == GLM_UNIT_POOL;
        parts[pool ? PART_POOL : PART_STREAMS] +=
            glm_plane_bytes(s, &p->limits) * (s->n_layers ? s->n_layers : 1);
    }
    uint32_t threads = r->node->device != GLM_DEVICE_CPU ? 1
                       : r->node->threads                ? r->node->threads
                                                         : ASSUMED_THREADS;
    parts[PART_PROCESS] = glm_process_bytes(p, r->node->device, threads);
    if (r->node->device != GLM_DEVICE_CUDA) { /* a GPU's memory holds neither */
        parts[PART_EXCHANGES] = glm_exchange_bytes(p);
        if (p->rank == 0)
            parts[PART_REQUESTS] = glm_request_bytes(lane->max_body_bytes, p->limits.window_tokens);
    }
    if (glm_plan_uses_peers(p))
        parts[PART_EXCHANGES] = glm_peer_room(p).bytes;
    if (glm_plan_uses_nccl(p))
        parts[PART_EXCHANGES] = glm_received_bytes(p) + GLM_NCCL_BYTES;
    enum glm_status st = glm_arena_bytes(p, 0, &parts[PART_DECODE], err);
    if (st == GLM_OK)
        st = glm_arena_bytes(p, 1, &parts[PART_PREFILL], err);
    if (st == GLM_OK)
        st = glm_scratch_bytes(p, manifests, n_manifests, threads, &parts[PART_SCRATCH], err);
    return st;
}

static uint64_t sum(const uint64_t parts[N_PARTS])
{
    uint64_t total = 0;
    for (int i = 0; i < N_PARTS; i++)
        total += parts[i];
    return total;
}

/* Bytes a rank may take; UINT64_MAX when the node's memory is not declared. */
static uint64_t room(const struct glm_node *n)
{
    if (n->memory_bytes == 0)
        return UINT64_MAX;
    return n->memory_bytes > n->reserve_bytes ? n->memory_bytes - n->reserve_bytes : 0;
}

#define FIT_HINT "name more ranks, or lower the lane's window, streams, pool or prefill"

static double gib(uint64_t bytes)
{
    return (double)bytes / (1024.0 * 1024 * 1024);
}

static enum glm_status too_large(const struct glm_lane *lane, const struct glm_capacity_rank *r,
                                 const uint64_t parts[N_PARTS], struct glm_error *err)
{
    char largest[160] = "";
    bool taken[N_PARTS] = {false};
    for (int n = 0; n < 3; n++) {
        int best = -1;
        for (int i = 0; i < N_PARTS; i++) {
            if (!taken[i] && (best < 0 || parts[i] > parts[best]))
                best = i;
        }
        size_t used = strlen(largest);
        taken[best] = true;
        snprintf(largest + used, sizeof largest - used, "%s%s %.2f", n ? ", " : "",
                 part_names[best], gib(parts[best]));
    }
    glm_fail(
        err, GLM_ECAPACITY,
        "cannot fit rank %u of lane '%s' on node '%s': it needs %.2f GiB, the node has %.2f GiB "
        "(%.2f less %.2f reserve); largest parts in GiB: %s",
        r->plan->rank, lane->name, r->node->name, gib(sum(parts)), gib(room(r->node)),
        gib(r->node->memory_bytes), gib(r->node->reserve_bytes), largest);
    glm_error_hint(err, FIT_HINT);
    return GLM_ECAPACITY;
}

static enum glm_status set_memory(struct glm_plan *p, const uint64_t parts[N_PARTS],
                                  struct arena *arena, struct glm_error *err)
{
    p->memory = ARENA_ARRAY(arena, N_PARTS, struct glm_plan_memory);
    if (!p->memory)
        return glm_fail(err, GLM_ENOMEM, "cannot size a plan: out of memory");
    p->n_memory = N_PARTS;
    for (int i = 0; i < N_PARTS; i++)
        p->memory[i] = (struct glm_plan_memory){.part = part_names[i], .bytes = parts[i]};
    return GLM_OK;
}

/* Extents of the pool: every rank is measured without one, the least room decides. */
static enum glm_status settle_pool(const struct glm_lane *lane, struct glm_capacity_rank *ranks,
                                   uint32_t n_ranks, const struct glm_manifest *manifests,
                                   uint32_t n_manifests, uint64_t *extents, struct glm_error *err)
{
    uint64_t window = extents_of(lane->window_tokens), parts[N_PARTS];
    uint64_t n = lane->pool_tokens ? extents_of(lane->pool_tokens) : lane->n_streams * window;
    if (n < window)
        n = window;
    *extents = n;
    if (lane->pool_tokens)
        return GLM_OK;
    for (uint32_t i = 0; i < n_ranks; i++) {
        enum glm_status st = measure(lane, &ranks[i], manifests, n_manifests, parts, err);
        if (st != GLM_OK)
            return st;
        uint64_t fixed = sum(parts), have = room(ranks[i].node);
        uint64_t extent = glm_extent_bytes(ranks[i].plan);
        uint64_t fits = have > fixed && extent > 0 ? (have - fixed) / extent : 0;
        if (extent > 0 && fits < *extents)
            *extents = fits < window ? window : fits;
    }
    return GLM_OK;
}

enum glm_status glm_capacity_settle(const struct glm_lane *lane, struct glm_capacity_rank *ranks,
                                    uint32_t n_ranks, struct arena *arena, struct glm_error *err)
{
    struct glm_manifest *manifests;
    uint32_t n_manifests;
    uint64_t extents, parts[N_PARTS];
    enum glm_status st = glm_manifests_load(arena, &manifests, &n_manifests, err);
    if (st == GLM_OK)
        st = settle_pool(lane, ranks, n_ranks, manifests, n_manifests, &extents, err);
    for (uint32_t i = 0; i < n_ranks && st == GLM_OK; i++) {
        ranks[i].plan->limits.pool_tokens = extents * GLM_PLAN_EXTENT;
        st = measure(lane, &ranks[i], manifests, n_manifests, parts, err);
        if (st == GLM_OK && sum(parts) > room(ranks[i].node))
            st = too_large(lane, &ranks[i], parts, err);
        if (st == GLM_OK)
            st = set_memory(ranks[i].plan, parts, arena, err);
    }
    return st;
}

enum glm_status glm_plan_check_host(const struct glm_cluster *c, const struct glm_lane *lane,
                                    struct glm_plan *const *plans, uint32_t node,
                                    uint64_t has_bytes, struct glm_error *err)
{
    char ranks[64] = "", declared[64] = "", gpu[GLM_DEVICE_TEXT_BYTES + 4] = "";
    uint64_t need = 0, reserve = 0, said = glm_cluster_host_bytes(c, lane, node);
    for (uint32_t i = 0; i < lane->n_ranks; i++) {
        const struct glm_node *other = &c->nodes[lane->ranks[i]];
        size_t used = strlen(ranks);
        if (!glm_node_shares_memory(&c->nodes[node], other))
            continue;
        snprintf(ranks + used, sizeof ranks - used, "%s%u", used ? ", " : "", i);
        reserve += other->reserve_bytes;
        if (__builtin_add_overflow(need, glm_plan_total_bytes(plans[i]), &need))
            need = UINT64_MAX / 2;
    }
    if (need <= has_bytes && reserve <= has_bytes - need)
        return GLM_OK;
    if (said > 0)
        snprintf(declared, sizeof declared, " (their nodes declare %.2f)", gib(said));
    if (c->nodes[node].device == GLM_DEVICE_CUDA)
        snprintf(gpu, sizeof gpu, "cuda:%u of ", c->nodes[node].device_index);
    glm_fail(err, GLM_ECAPACITY,
             "cannot fit rank%s %s of lane '%s' on %shost '%s': together they need %.2f GiB and "
             "reserve %.2f%s, it has %.2f GiB",
             strchr(ranks, ',') ? "s" : "", ranks, lane->name, gpu, c->nodes[node].host, gib(need),
             gib(reserve), declared, gib(has_bytes));
    glm_error_hint(err, FIT_HINT);
    return GLM_ECAPACITY;
}
