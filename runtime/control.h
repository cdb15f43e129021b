/* SPDX-License-Identifier: Apache-2.0 */
/* Control frames between rank 0, the other ranks and glmctl (design 6):
 *   {magic, version, type, length, epoch, sequence, payload, MAC}
 * little-endian, MAC = HMAC-SHA-256 over everything before it under the lane's secret, sequence
 * strictly rising a direction from the first frame on. Every byte is hostile until the MAC holds.
 */
#ifndef GLM_RUNTIME_CONTROL_H
#define GLM_RUNTIME_CONTROL_H

#include "spec/base/error.h"

#include <stddef.h>
#include <stdint.h>

#define GLM_CONTROL_MAGIC 0x436D6C47u /* "GlmC" */
enum {
    GLM_CONTROL_VERSION = 1,
    GLM_CONTROL_MAX_PAYLOAD = 1 << 20,
    GLM_CONTROL_HEADER_BYTES = 32,
    GLM_CONTROL_MAC_BYTES = 32
};

/* Payloads are JSON objects, may be empty where nothing is named.
 * HELLO: the head speaks first, {role: "head", nonce}; a peer answers {role: "rank"|"cli", nonce,
 * answer: the head's nonce, rank, world, set_digest, kernels_digest, settings_digest, link}. Both
 * are signed with the lane's secret; every later frame with a key of its direction made of secret
 * and both nonces (control_conn.h), so that no frame counts in another connection. */
#define GLM_CONTROL_MAP(X)                                                                 \
    X(GLM_CONTROL_HELLO, "hello")       /* both ways, first */                             \
    X(GLM_CONTROL_WELCOME, "welcome")   /* head → rank: all link addresses, epoch */     \
    X(GLM_CONTROL_PROGRESS, "progress") /* rank → head: loading, done and total bytes */ \
    X(GLM_CONTROL_READY, "ready")       /* rank → head: loaded */                        \
    X(GLM_CONTROL_BEAT, "beat")         /* both ways, 1 s: {round, state} */               \
    X(GLM_CONTROL_FAILED, "failed")     /* rank → head: its error text */                \
    X(GLM_CONTROL_STATUS, "status")     /* cli → head, answered in kind: JSON */         \
    X(GLM_CONTROL_STOP, "stop")         /* cli → head → ranks */                       \
    X(GLM_CONTROL_REFUSED, "refused")   /* answer to anything unacceptable, then close */
enum glm_control_type {
#define GLM_CONTROL_ENUM(name, text) name,
    GLM_CONTROL_MAP(GLM_CONTROL_ENUM)
#undef GLM_CONTROL_ENUM
        GLM_CONTROL_N_TYPES
};

struct glm_control_frame {
    enum glm_control_type type;
    uint64_t epoch, sequence;
    const uint8_t *payload; /* into the caller's buffer */
    uint32_t len;
};

const char *glm_control_type_text(enum glm_control_type type);

/* Encodes a frame into out (capacity >= header + len + MAC); returns its size, 0 when it does not
 * fit or its payload is too long. */
size_t glm_control_encode(const struct glm_control_frame *f, const uint8_t secret[32], uint8_t *out,
                          size_t capacity);
/* Decodes the first frame of bytes. *used 0: more bytes are needed. last_sequence: of this
 * direction so far. Errors: GLM_EINVAL with what is wrong (bad magic, version, type, length, MAC,
 * replayed sequence); the connection must then be closed. */
enum glm_status glm_control_decode(const uint8_t *bytes, size_t len, const uint8_t secret[32],
                                   uint64_t last_sequence, struct glm_control_frame *f,
                                   size_t *used, struct glm_error *err);

#endif
