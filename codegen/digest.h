/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 as 64 hex digits: the digest of plans, launch files and cache entries. */
#ifndef GLM_CODEGEN_DIGEST_H
#define GLM_CODEGEN_DIGEST_H

#include "spec/base/error.h"

#include <stddef.h>

/* Errors: GLM_ENOMEM. */
enum glm_status glm_sha256_hex(const void *bytes, size_t len, char hex[65], struct glm_error *err);

#endif
