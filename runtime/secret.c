/* SPDX-License-Identifier: Apache-2.0 */
/* The lane's secret: message authentication and nonces, by libcrypto and the kernel. Who holds the
 * secret's file is state_dir.c; what is signed is link_tcp.c and control.c. */
#include "runtime/secret.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

bool glm_secret_mac(const uint8_t secret[GLM_SECRET_BYTES], const void *bytes, size_t len,
                    uint8_t mac[GLM_MAC_BYTES])
{
    unsigned n = GLM_MAC_BYTES;
    return HMAC(EVP_sha256(), secret, GLM_SECRET_BYTES, bytes, len, mac, &n) != NULL &&
           n == GLM_MAC_BYTES;
}

bool glm_secret_equal(const uint8_t a[GLM_MAC_BYTES], const uint8_t b[GLM_MAC_BYTES])
{
    return CRYPTO_memcmp(a, b, GLM_MAC_BYTES) == 0;
}

enum glm_status glm_secret_random(void *bytes, size_t len, struct glm_error *err)
{
    uint8_t *p = bytes;
    while (len > 0) {
        ssize_t n = getrandom(p, len, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return glm_fail(err, GLM_EIO, "cannot get %zu random bytes: %s", len, strerror(errno));
        p += n;
        len -= (size_t)n;
    }
    return GLM_OK;
}
