/* SPDX-License-Identifier: Apache-2.0 */
/* Private to spec/: tensors by name. Open addressing over XXH3, at most half full. */
#ifndef GLM_SPEC_NAMES_H
#define GLM_SPEC_NAMES_H

#include "spec/base/arena.h"
#include "spec/checkpoint.h"

struct name_index {
    uint32_t *slots; /* tensor index + 1, 0 free */
    uint32_t n_slots;
    bool owned; /* malloc'ed: name_index_release frees */
};

/* Slots in the arena, or malloc'ed when arena is NULL. The first name met twice is reported as
 * *first and *second (indices); *second is 0 when all differ. Errors: GLM_ENOMEM. */
enum glm_status name_index_build(struct name_index *index, struct arena *arena,
                                 const struct glm_tensor *tensors, uint32_t n, uint32_t *first,
                                 uint32_t *second, struct glm_error *err);
void name_index_release(struct name_index *index);
/* The tensor's index, or UINT32_MAX. */
uint32_t name_index_find(const uint32_t *slots, uint32_t n_slots, const struct glm_tensor *tensors,
                         const char *name);
/* Sorts by name in byte order. Errors: GLM_ENOMEM. */
enum glm_status names_sort(struct glm_tensor *tensors, uint32_t n, struct glm_error *err);

/* "[2048, 256]" into text, cut where it does not fit. */
void glm_shape_text(const uint64_t *shape, uint32_t n_dims, char *text, size_t size);

#endif
