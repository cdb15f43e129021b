/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's weights: read only its slices of the checkpoint (or make the synthetic elements),
 * convert stored form → device form, put them where the memory layout says.
 *
 * Owner: the round thread, while loading. */
#ifndef GLM_RUNTIME_WEIGHTS_H
#define GLM_RUNTIME_WEIGHTS_H

#include "runtime/memory.h"
#include "spec/checkpoint.h"

struct glm_weights_load {
    const struct glm_plan *plan;
    const struct glm_memory *memory;
    const struct glm_checkpoint *checkpoint;
    struct glm_device *device; /* its team converts in parallel */
    void (*progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);
    void *progress_context;
};

/* Places every weight of the plan. progress counts device bytes placed, the last call has
 * done == total. Errors: GLM_ECHECKPOINT for a tensor that is absent, not of the plan's shape or
 * dtype, a file that shrank or changed since its header was read; GLM_EIO; GLM_EPLAN for a slice or
 * form that cannot be; GLM_ENOMEM. */
enum glm_status glm_weights_load(const struct glm_weights_load *load, struct glm_error *err);

#endif
