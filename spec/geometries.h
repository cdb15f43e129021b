/* SPDX-License-Identifier: Apache-2.0 */
/* Private to spec/: the built-in geometries behind "synthetic:NAME" and an absent hub id. */
#ifndef GLM_SPEC_GEOMETRIES_H
#define GLM_SPEC_GEOMETRIES_H

#include "spec/model.h"

/* The geometry of that name, or false. *exl3_bits: 4, or 0 with "-bf16" after the name. A last ":N"
 * keeps its first N layers. */
bool glm_geometry_find(const char *name, struct glm_model *out, uint32_t *exl3_bits);
/* Known names, comma-separated, for a message. */
const char *glm_geometry_names(void);

#endif
