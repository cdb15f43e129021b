/* SPDX-License-Identifier: Apache-2.0 */
/* Look-ups in a plan. Names are unique in a plan that was read or sealed; plans have some hundreds
 * of them at most and are resolved once, at load. */
#include "codegen/plan.h"

#include <string.h>

const struct glm_plan_kernel *glm_plan_kernel(const struct glm_plan *p, const char *name)
{
    for (uint32_t i = 0; i < p->n_kernels; i++)
        if (strcmp(p->kernels[i].name, name) == 0)
            return &p->kernels[i];
    return NULL;
}

const struct glm_plan_program *glm_plan_program(const struct glm_plan *p, const char *name)
{
    for (uint32_t i = 0; i < p->n_programs; i++)
        if (strcmp(p->programs[i].name, name) == 0)
            return &p->programs[i];
    return NULL;
}

const struct glm_plan_block *glm_plan_block(const struct glm_plan *p, const char *name)
{
    for (uint32_t i = 0; i < p->n_blocks; i++)
        if (strcmp(p->blocks[i].name, name) == 0)
            return &p->blocks[i];
    return NULL;
}

const struct glm_plan_buffer *glm_plan_buffer(const struct glm_plan *p, const char *name)
{
    for (uint32_t i = 0; i < p->n_buffers; i++)
        if (strcmp(p->buffers[i].name, name) == 0)
            return &p->buffers[i];
    return NULL;
}

uint64_t glm_plan_total_bytes(const struct glm_plan *p)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < p->n_memory; i++)
        if (__builtin_add_overflow(total, p->memory[i].bytes, &total))
            return UINT64_MAX;
    return total;
}
