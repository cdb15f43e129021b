/* SPDX-License-Identifier: Apache-2.0 */
/* The headers that a kernel's source reaches, out of the templates. */
#ifndef GLM_CODEGEN_INCLUDES_H
#define GLM_CODEGEN_INCLUDES_H

#include "codegen/cache.h"

/* Adds to files[0..*n), room for max, every header that they include, and those that these include,
 * each once and in the order of its first use. Names in the arena, texts the templates' own.
 * Errors: GLM_EKERNEL naming the kernel when a header is no template file or there are too many. */
enum glm_status glm_includes_add(const char *kernel, struct arena *arena,
                                 struct glm_cache_file *files, uint32_t *n, uint32_t max,
                                 struct glm_error *err);

#endif
