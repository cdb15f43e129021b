/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes as hex digits, and SHA-256 as 64 of them: the digest of specs, checkpoints, plans, launch
 * files and cache entries. */
#ifndef GLM_BASE_DIGEST_H
#define GLM_BASE_DIGEST_H

#include "spec/base/error.h"

#include <stddef.h>

/* 2 n lower-case digits and a NUL. */
void glm_hex(const void *bytes, size_t n, char *hex);
/* Errors: GLM_ENOMEM. */
enum glm_status glm_sha256_hex(const void *bytes, size_t len, char hex[65], struct glm_error *err);

#endif
