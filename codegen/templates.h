/* SPDX-License-Identifier: Apache-2.0 */
/* The template files that travel inside the binary, or those of $GLM_TEMPLATES. The lookup by name
 * is glm_template_source (manifest.h). */
#ifndef GLM_CODEGEN_TEMPLATES_H
#define GLM_CODEGEN_TEMPLATES_H

#include "spec/base/arena.h"
#include "spec/base/error.h"

#include <stdint.h>

enum { GLM_TEMPLATE_MAX_BYTES = 4 * 1024 * 1024, GLM_TEMPLATE_NAME_MAX = 96 };

/* Names of all template files that end in `suffix` (".json"), in byte order, in the arena.
 * Errors: GLM_EIO naming $GLM_TEMPLATES' folder, GLM_ENOMEM. */
enum glm_status glm_template_names(const char *suffix, struct arena *arena, const char ***names,
                                   uint32_t *n, struct glm_error *err);

#endif
