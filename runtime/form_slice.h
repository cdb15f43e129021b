/* SPDX-License-Identifier: Apache-2.0 */
/* Slices of uncut dimensions, for the converters (forms.h). */
#ifndef GLM_RUNTIME_FORM_SLICE_H
#define GLM_RUNTIME_FORM_SLICE_H

#include "runtime/forms.h"

static inline uint64_t glm_slice_count(const struct glm_slice *s)
{
    return s->take * s->groups;
}

/* Index in the uncut dimension of element i of the slice. */
static inline uint64_t glm_slice_at(const struct glm_slice *s, uint64_t i)
{
    return s->first + i / s->take * s->stride + i % s->take;
}

/* Does it lie within n, without overflow? `what`: "rows". Errors: GLM_EPLAN. */
enum glm_status glm_slice_check(const struct glm_plan_part *part, const char *what,
                                const struct glm_slice *s, uint64_t n, struct glm_error *err);

#endif
