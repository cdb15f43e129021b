/* SPDX-License-Identifier: Apache-2.0 */
/* The one allocation of a rank: weights, state planes, the buffers of every arena and scratch, laid
 * out from the plan before anything is read.
 *
 * Owner: the round thread. */
#ifndef GLM_RUNTIME_MEMORY_H
#define GLM_RUNTIME_MEMORY_H

#include "codegen/memory.h"
#include "runtime/state.h"

struct glm_memory {
    const struct glm_plan *plan;
    unsigned char *base; /* the device's address; NULL until taken */
    uint64_t bytes;      /* all of it */
    uint64_t weight_bytes, state_bytes, buffer_bytes, scratch_bytes;
    uint64_t *weights;         /* [n_weights] offset of each weight's first layer */
    uint64_t *planes;          /* [n_planes] */
    uint64_t *buffers;         /* [n_arenas][n_buffers], GLM_NOWHERE when the arena has it not */
    uint64_t scratch, tickets; /* tickets lie behind scratch; none on the host */
};
#define GLM_NOWHERE UINT64_MAX

/* Offsets and sums; nothing is taken. scratch: the largest of any launch at its arena's maxima
 * with n_threads. Errors: GLM_EPLAN, GLM_ENOMEM. */
enum glm_status glm_memory_lay_out(struct glm_memory *m, const struct glm_plan *plan,
                                   const struct glm_states *states,
                                   const struct glm_manifest *manifests, uint32_t n_manifests,
                                   uint32_t n_threads, struct arena *arena, struct glm_error *err);
/* GLM_ECAPACITY with the largest parts when it, or what the plan says, exceeds limit_bytes (0: no
 * limit). */
enum glm_status glm_memory_check(const struct glm_memory *m, uint64_t limit_bytes,
                                 struct glm_error *err);
/* Takes it from the device, zeroed, and gives the planes their addresses. Errors: GLM_ENOMEM. */
enum glm_status glm_memory_take(struct glm_memory *m, struct glm_states *states,
                                struct glm_device *device, struct glm_error *err);

/* One layer's weight, rounded up so that every layer starts aligned. */
uint64_t glm_weight_stride(const struct glm_plan_weight *w);
/* The literal name that `name` (without +COLUMN) means in a block bound to `layer`. */
enum glm_status glm_name_bind(const char *name, size_t len, uint32_t layer, char *out, size_t size,
                              struct glm_error *err);

#endif
