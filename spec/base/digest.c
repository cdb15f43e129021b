/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 through libcrypto. What is digested, and in which order, is for the callers. */
#include "spec/base/digest.h"

#include <openssl/evp.h>

void glm_hex(const void *bytes, size_t n, char *hex)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *raw = bytes;
    for (size_t i = 0; i < n; i++) {
        hex[2 * i] = digits[raw[i] >> 4];
        hex[2 * i + 1] = digits[raw[i] & 15];
    }
    hex[2 * n] = '\0';
}

enum glm_status glm_sha256_hex(const void *bytes, size_t len, char hex[65], struct glm_error *err)
{
    unsigned char raw[EVP_MAX_MD_SIZE];
    unsigned int n = 0;
    if (EVP_Digest(len == 0 ? "" : bytes, len, raw, &n, EVP_sha256(), NULL) != 1 || n != 32)
        return glm_fail(err, GLM_ENOMEM, "cannot compute a SHA-256 digest: libcrypto failed");
    glm_hex(raw, n, hex);
    return GLM_OK;
}
