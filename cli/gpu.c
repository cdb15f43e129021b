/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs of this machine (see the header). What of their memory is free is capacity.c's. */
#include "cli/gpu.h"

#include <stdio.h>
#include <string.h>

static const char gb10_target[] = "sm_121a";
enum { GB10_MAJOR = 12, GB10_MINOR = 1 };

enum glm_status gpu_facts(const struct glm_node *node, struct glm_cuda_facts *out,
                          struct glm_error *err)
{
    struct glm_cuda_facts facts;
    enum glm_status status = glm_cuda_facts_of(node->device_index, &facts, err);
    if (status != GLM_OK)
        return status;
    if (node->device == GLM_DEVICE_GB10 &&
        (facts.major != GB10_MAJOR || facts.minor != GB10_MINOR)) {
        status = glm_fail(err, GLM_EKERNEL,
                          "node '%s' is a gb10, but cuda:%u of this host is '%s' with compute "
                          "capability %u.%u, a GB10 has %d.%d",
                          node->name, facts.index, facts.name, facts.major, facts.minor, GB10_MAJOR,
                          GB10_MINOR);
        glm_error_hint(err, "write device: cuda:%u", facts.index);
        return status;
    }
    *out = facts;
    return GLM_OK;
}

/* The target of a node that needs nobody's answer, or got it; NULL with the reason. */
static const char *target_of(struct compiled *c, const struct glm_node *node, struct glm_error *why)
{
    struct glm_cuda_facts facts;
    if (node->device == GLM_DEVICE_CPU)
        return glm_host_target();
    if (node->device == GLM_DEVICE_GB10)
        return gb10_target;
    if (strcmp(node->host, "local") != 0) {
        glm_fail(why, GLM_EKERNEL, "it is on '%s', and only this machine is asked", node->host);
        return NULL;
    }
    if (gpu_facts(node, &facts, why) != GLM_OK)
        return NULL;
    const char *target = arena_strdup(&c->arena, facts.target);
    if (target == NULL)
        glm_fail(why, GLM_ENOMEM, "out of memory");
    return target;
}

/* Once for nodes that share a GPU. */
static void warn_unknown(struct compiled *c, uint32_t rank, const char *target,
                         const struct glm_error *why)
{
    const struct glm_node *nodes = c->cluster->nodes;
    const uint32_t *ranks = compiled_lane(c)->ranks;
    const struct glm_node *node = &nodes[ranks[rank]];
    char device[GLM_DEVICE_TEXT_BYTES];
    for (uint32_t r = 0; r < rank; r++)
        if (glm_node_shares_memory(&nodes[ranks[r]], node))
            return;
    glm_node_device_text(node, device);
    diag_add(&c->diags, DIAG_WARNING, node->at, "node.gpu-unknown",
             why->hint[0] != '\0' ? why->hint : NULL,
             "planned for %s: %s of '%s' cannot be asked: %s", target, device, node->name,
             why->message);
}

enum glm_status gpu_find_target(struct compiled *c)
{
    const struct glm_lane *lane = compiled_lane(c);
    const char *targets[GLM_MAX_RANKS] = {NULL}, *assumed = gb10_target;
    struct glm_error why[GLM_MAX_RANKS] = {0};
    for (uint32_t r = 0; r < lane->n_ranks; r++) {
        const struct glm_node *node = &c->cluster->nodes[lane->ranks[r]];
        targets[r] = target_of(c, node, &why[r]);
        if (targets[r] != NULL && node->device != GLM_DEVICE_CPU)
            assumed = targets[r];
    }
    for (uint32_t r = 0; r < lane->n_ranks; r++) {
        const struct glm_node *node = &c->cluster->nodes[lane->ranks[r]];
        if (targets[r] == NULL) {
            warn_unknown(c, r, assumed, &why[r]);
            targets[r] = assumed;
        }
        if (strcmp(targets[r], targets[0]) == 0)
            continue;
        diag_add(&c->diags, DIAG_ERROR, node->at, "lane.two-targets",
                 "the ranks of a lane run the same kernels: give it nodes of one kind",
                 "lane '%s' needs kernels for %s on node '%s' and for %s on node '%s'", lane->name,
                 targets[0], c->cluster->nodes[lane->ranks[0]].name, targets[r], node->name);
        return GLM_ESPEC;
    }
    c->target = targets[0];
    return GLM_OK;
}
