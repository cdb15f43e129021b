/* SPDX-License-Identifier: Apache-2.0 */
/* Device forms: their names, and the planes one member of a weight is made of. The byte counts of
 * glm_form_bytes (plan.h), the converters of runtime/form_*.c and the kernels agree on this table
 * (kernels-templates/README.md, "Device forms"). */
#ifndef GLM_CODEGEN_FORMS_H
#define GLM_CODEGEN_FORMS_H

#include "spec/base/error.h"

#include <stdint.h>

enum { GLM_FORM_ALIGN = 64, GLM_FORM_MAX_PLANES = 3 };

struct glm_form_layout {
    uint32_t n_planes;
    uint64_t offset[GLM_FORM_MAX_PLANES]; /* of each plane from the member's start, 64-aligned */
    uint64_t bytes[GLM_FORM_MAX_PLANES];  /* of each plane, not rounded up */
    uint64_t total;                       /* one member, rounded up to 64 */
};

/* Layout of one member of [n_rows, n_cols] ([out, in]); a dimension of 0 gives no bytes.
 * form: f32, bf16, bf16_t, q4, fp8, exl3:BITS:CODEBOOK ("exl3:4:mcg").
 * Errors: GLM_EPLAN for an unknown form or a shape it cannot hold. */
enum glm_status glm_form_layout(const char *form, uint64_t n_rows, uint64_t n_cols,
                                struct glm_form_layout *out, struct glm_error *err);

#endif
