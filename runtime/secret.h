/* SPDX-License-Identifier: Apache-2.0 */
/* What a lane's 32-byte secret is used for: HMAC-SHA-256, compared in constant time, and nonces. */
#ifndef GLM_RUNTIME_SECRET_H
#define GLM_RUNTIME_SECRET_H

#include "spec/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GLM_SECRET_BYTES = 32, GLM_MAC_BYTES = 32 };

/* HMAC-SHA-256 of bytes[len] under the secret. false: libcrypto refused (out of memory). */
bool glm_secret_mac(const uint8_t secret[GLM_SECRET_BYTES], const void *bytes, size_t len,
                    uint8_t mac[GLM_MAC_BYTES]);
bool glm_secret_equal(const uint8_t a[GLM_MAC_BYTES], const uint8_t b[GLM_MAC_BYTES]);
/* Random bytes of the kernel. Errors: GLM_EIO. */
enum glm_status glm_secret_random(void *bytes, size_t len, struct glm_error *err);

#endif
