/* SPDX-License-Identifier: Apache-2.0 */
/* Three questions before anything is stopped or started: do the machine and its GPUs have what the
 * lane's plans need, is enough of it free, and is the port. Lanes of any cluster count; only one of
 * the same cluster can be replaced. */
#include "cli/capacity.h"

#include "cli/gpu.h"
#include "cli/host.h"
#include "codegen/process.h"

#include <stdlib.h>
#include <string.h>

static double gib(uint64_t bytes)
{
    return (double)bytes / (1 << 30);
}

/* ---- what other lanes hold ---- */

static bool same_cluster(const struct compiled *c, const struct lane_found *f)
{
    return strcmp(f->cluster, c->cluster->name) == 0;
}

static bool goes_away(const struct compiled *c, const struct lane_found *f, const char *replace)
{
    return replace != NULL && same_cluster(c, f) && strcmp(f->lane, replace) == 0;
}

static bool in_host_memory(const char *device)
{
    enum glm_device_kind kind;
    uint32_t index;
    struct glm_cuda_facts facts;
    struct glm_error ignored = {0};
    if (!glm_device_parse(device, &kind, &index) || kind != GLM_DEVICE_CUDA)
        return true;
    return glm_cuda_facts_of(index, &facts, &ignored) == GLM_OK && facts.shares_memory;
}

/* Bytes that a lane holds of a GPU, or of the host's memory: gpu NULL. */
static uint64_t held(const struct lane_status *s, const char *gpu)
{
    uint64_t bytes = 0;
    for (uint32_t r = 0; r < s->n_ranks; r++) {
        const char *device = s->ranks[r].device;
        if (gpu != NULL ? strcmp(device, gpu) == 0 : in_host_memory(device))
            bytes += s->ranks[r].memory_bytes;
    }
    return bytes;
}

/* Of all lanes that stay, or of the one that goes away. */
static uint64_t held_by_others(const struct compiled *c, const struct lanes_found *others,
                               const char *replace, bool stays, const char *gpu)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < others->n; i++)
        if (goes_away(c, &others->items[i], replace) != stays)
            bytes += held(&others->items[i].status, gpu);
    return bytes;
}

/* "lane 'tp2' of cluster 'demo' holds 0.21 GiB, …" of those that stay; those that did not answer
 * are named too. */
static void list_holders(const struct compiled *c, const struct lanes_found *others,
                         const char *replace, const char *gpu, struct buf *out)
{
    for (uint32_t i = 0; i < others->n; i++) {
        const struct lane_found *f = &others->items[i];
        const uint64_t bytes = held(&f->status, gpu);
        if (goes_away(c, f, replace) || (bytes == 0 && f->status.n_ranks > 0))
            continue;
        buf_printf(out, "; lane '%.60s' of cluster '%.60s' holds %.2f GiB", f->lane, f->cluster,
                   gib(bytes));
    }
}

/* The lane whose end would help: one of this cluster can be replaced in one step. */
static void hint_replace(const struct compiled *c, const struct lanes_found *others,
                         const char *replace, struct glm_error *err)
{
    const char *lane = compiled_lane(c)->name;
    for (uint32_t i = 0; i < others->n; i++)
        if (same_cluster(c, &others->items[i]) && !goes_away(c, &others->items[i], replace)) {
            glm_error_hint(err, "glmctl apply %.120s --lane %.50s --replace %.50s",
                           c->cluster->spec_path, lane, others->items[i].lane);
            return;
        }
    glm_error_hint(err, "%slower streams, window or pool of lane '%.60s'",
                   others->n > 0 ? "stop another lane, or " : "", lane);
}

static enum glm_status too_much(const struct compiled *c, uint64_t need, uint64_t room,
                                const char *gpu, const struct lanes_found *others,
                                const char *replace, struct glm_error *err)
{
    struct buf holders = {0};
    list_holders(c, others, replace, gpu, &holders);
    enum glm_status status =
        glm_fail(err, GLM_ECAPACITY, "lane '%s' needs %.2f GiB on %s, %.2f GiB are free%s",
                 compiled_lane(c)->name, gib(need), gpu != NULL ? gpu : "this host", gib(room),
                 buf_text(&holders));
    hint_replace(c, others, replace, err);
    buf_release(&holders);
    return status;
}

/* A rank's share of the host's memory. That of one on a GPU is not in its plan's figures, which are
 * the GPU's. */
static uint64_t host_bytes(const struct compiled *c, uint32_t rank)
{
    const struct glm_lane *lane = compiled_lane(c);
    const struct glm_node *node = &c->cluster->nodes[lane->ranks[rank]];
    const struct glm_plan *plan = c->plans[rank];
    char device[GLM_DEVICE_TEXT_BYTES];
    if (node->device != GLM_DEVICE_CUDA)
        return glm_plan_total_bytes(plan);
    glm_node_device_text(node, device);
    return glm_process_host_bytes(plan, node->device, 1) + glm_exchange_bytes(plan) +
           (rank == 0 ? glm_request_bytes(lane->max_body_bytes, lane->window_tokens) : 0) +
           (in_host_memory(device) ? glm_plan_total_bytes(plan) : 0);
}

static enum glm_status check_machine(const struct compiled *c, const struct host_memory *machine,
                                     const struct lane_status *own,
                                     const struct lanes_found *others, const char *replace,
                                     struct glm_error *err)
{
    uint64_t need = 0;
    const uint64_t room = machine->available_bytes + held(own, NULL) +
                          held_by_others(c, others, replace, false, NULL);
    for (uint32_t r = 0; r < compiled_lane(c)->n_ranks; r++)
        need += host_bytes(c, r);
    return need <= room ? GLM_OK : too_much(c, need, room, NULL, others, replace, err);
}

/* The GPU of a rank, for all ranks on it. What other programs hold is found by whoever allocates:
 * to be asked for it, a GPU must be opened. */
static enum glm_status check_gpu(const struct compiled *c, uint32_t rank,
                                 const struct lanes_found *others, const char *replace,
                                 struct glm_error *err)
{
    const struct glm_lane *lane = compiled_lane(c);
    const struct glm_node *node = &c->cluster->nodes[lane->ranks[rank]];
    struct glm_cuda_facts facts;
    char gpu[GLM_DEVICE_TEXT_BYTES];
    uint64_t need = 0;
    enum glm_status status = gpu_facts(node, &facts, err);
    if (status == GLM_OK)
        status = glm_plan_check_host(c->cluster, lane, c->plans, lane->ranks[rank],
                                     facts.memory_bytes, err);
    if (status != GLM_OK)
        return status;
    glm_node_device_text(node, gpu);
    uint64_t taken = held_by_others(c, others, replace, true, gpu);
    for (uint32_t r = 0; r < lane->n_ranks; r++) {
        const struct glm_node *other = &c->cluster->nodes[lane->ranks[r]];
        if (!glm_node_shares_memory(node, other))
            continue;
        need += glm_plan_total_bytes(c->plans[r]);
        taken += other->reserve_bytes;
    }
    const uint64_t room = facts.memory_bytes > taken ? facts.memory_bytes - taken : 0;
    return need <= room ? GLM_OK : too_much(c, need, room, gpu, others, replace, err);
}

/* Bytes that a running lane of this cluster holds on the node: its launch document says where its
 * ranks are. */
static uint64_t held_on_node(const struct lane_found *f, const char *node)
{
    struct arena arena;
    struct buf folder = {0};
    struct glm_launch_file *launch = NULL;
    struct glm_error ignored = {0};
    uint64_t bytes = 0;
    arena_init(&arena, 256 << 20);
    if (lane_folder(f->cluster, f->lane, &folder, &ignored) == GLM_OK &&
        lane_launch_read(buf_text(&folder), &arena, &launch, &ignored) == GLM_OK)
        for (uint32_t r = 0; r < launch->n_ranks && r < f->status.n_ranks; r++)
            if (strcmp(launch->ranks[r].node, node) == 0)
                bytes += f->status.ranks[r].memory_bytes;
    buf_release(&folder);
    arena_release(&arena);
    return bytes;
}

static enum glm_status check_node(const struct compiled *c, uint32_t rank,
                                  const struct lanes_found *others, const char *replace,
                                  struct glm_error *err)
{
    const struct glm_node *node = &c->cluster->nodes[compiled_lane(c)->ranks[rank]];
    const uint64_t room =
        node->memory_bytes > node->reserve_bytes ? node->memory_bytes - node->reserve_bytes : 0;
    const uint64_t need = glm_plan_total_bytes(c->plans[rank]);
    struct buf holders = {0};
    uint64_t held = 0;
    for (uint32_t i = 0; i < others->n && node->memory_bytes > 0; i++) {
        const struct lane_found *f = &others->items[i];
        const uint64_t bytes = same_cluster(c, f) ? held_on_node(f, node->name) : 0;
        if (bytes == 0 || goes_away(c, f, replace))
            continue;
        held += bytes;
        buf_printf(&holders, "; lane '%.60s' holds %.2f GiB of it", f->lane, gib(bytes));
    }
    enum glm_status status = GLM_OK;
    if (held > 0 && need + held > room) {
        status =
            glm_fail(err, GLM_ECAPACITY,
                     "rank %u of lane '%s' needs %.2f GiB on node '%s', which has %.2f GiB%s", rank,
                     compiled_lane(c)->name, gib(need), node->name, gib(room), buf_text(&holders));
        hint_replace(c, others, replace, err);
    }
    buf_release(&holders);
    return status;
}

/* ---- the port ---- */

static bool serves_on(const struct lane_status *s, uint16_t port)
{
    const char *colon = strrchr(s->url, ':');
    return s->running && colon != NULL && strtoul(colon + 1, NULL, 10) == port;
}

static enum glm_status check_port(const struct compiled *c, const struct lane_status *own,
                                  const struct lanes_found *others, const char *replace,
                                  struct glm_error *err)
{
    const struct glm_lane *lane = compiled_lane(c);
    struct glm_error found = {0};
    if (lane->listen_port == 0 || serves_on(own, lane->listen_port))
        return GLM_OK;
    for (uint32_t i = 0; i < others->n; i++) {
        const struct lane_found *f = &others->items[i];
        if (!serves_on(&f->status, lane->listen_port))
            continue;
        if (goes_away(c, f, replace))
            return GLM_OK;
        enum glm_status status =
            glm_fail(err, GLM_EBUSY,
                     "lane '%s' listens on '%s:%u', where lane '%.60s' of cluster '%.60s' is",
                     lane->name, lane->listen_host, lane->listen_port, f->lane, f->cluster);
        if (same_cluster(c, f))
            hint_replace(c, others, replace, err);
        else
            glm_error_hint(err, "set lanes[].listen of lane '%.60s' to a free port", lane->name);
        return status;
    }
    enum glm_status status = host_can_listen(lane->listen_host, lane->listen_port, &found);
    if (status == GLM_OK)
        return status;
    glm_fail(err, status, "%s", found.message);
    if (found.hint[0] != '\0')
        glm_error_hint(err, "%s", found.hint);
    else
        glm_error_hint(err,
                       "end what is there, or set lanes[].listen of lane '%.60s'; port 0 takes "
                       "any free one",
                       lane->name);
    return status;
}

enum glm_status capacity_check(const struct compiled *c, const char *own, const char *replace,
                               struct glm_error *err)
{
    const struct host_memory machine = host_memory();
    struct lane_status mine = {0};
    struct lanes_found others;
    struct glm_error ignored = {0};
    (void)lane_status_read(own, &mine, &ignored);
    lanes_find(own, &others);
    enum glm_status status = GLM_OK;
    for (uint32_t r = 0; status == GLM_OK && r < compiled_lane(c)->n_ranks; r++) {
        const uint32_t node = compiled_lane(c)->ranks[r];
        status = c->cluster->nodes[node].device == GLM_DEVICE_CUDA
                     ? check_gpu(c, r, &others, replace, err)
                     : glm_plan_check_host(c->cluster, compiled_lane(c), c->plans, node,
                                           machine.total_bytes, err);
    }
    if (status == GLM_OK)
        status = check_port(c, &mine, &others, replace, err);
    for (uint32_t r = 0; status == GLM_OK && r < compiled_lane(c)->n_ranks; r++)
        status = check_node(c, r, &others, replace, err);
    if (status == GLM_OK)
        status = check_machine(c, &machine, &mine, &others, replace, err);
    lanes_release(&others);
    return status;
}
