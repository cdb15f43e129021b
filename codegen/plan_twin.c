/* SPDX-License-Identifier: Apache-2.0 */
/* The host's side of a comparison: what a GPU's plan says, without what only a GPU does. */
#include "codegen/plan.h"

#include <string.h>

static bool names(const struct glm_plan_step *steps, uint32_t n, const char *kernel)
{
    for (uint32_t i = 0; i < n; i++)
        if (steps[i].kind == GLM_STEP_KERNEL && strcmp(steps[i].name, kernel) == 0)
            return true;
    return false;
}

static bool is_step(const struct glm_plan *p, const char *kernel)
{
    bool found = false;
    for (uint32_t i = 0; !found && i < p->n_blocks; i++)
        found = names(p->blocks[i].steps, p->blocks[i].n_steps, kernel);
    for (uint32_t i = 0; !found && i < p->n_programs; i++)
        found = names(p->programs[i].steps, p->programs[i].n_steps, kernel);
    return found;
}

enum glm_status glm_plan_host_twin(const struct glm_plan *p, const char *target,
                                   struct arena *arena, struct glm_plan **out,
                                   struct glm_error *err)
{
    struct glm_plan *q = ARENA_NEW(arena, struct glm_plan);
    struct glm_plan_weight *weights =
        ARENA_ARRAY(arena, (size_t)p->n_weights + 1, struct glm_plan_weight);
    if (!q || !weights)
        return glm_fail(err, GLM_ENOMEM, "cannot plan for the host: out of memory");
    *q = *p;
    q->target = target;
    q->weights = weights;
    for (uint32_t i = 0; i < p->n_weights; i++) {
        weights[i] = p->weights[i];
        weights[i].load = NULL;
    }
    while (q->n_kernels > 0 && !is_step(p, q->kernels[q->n_kernels - 1].name))
        q->n_kernels--;
    *out = q;
    return GLM_OK;
}
