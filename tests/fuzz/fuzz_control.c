/* SPDX-License-Identifier: Apache-2.0 */
/* A stream of control frames as a peer may send it: byte 0 says how the stream is cut, byte 1
 * whether the MAC of each whole frame is made right first, so that both sides of the MAC are met.
 */
#include "runtime/control.h"
#include "runtime/secret.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t secret[32] = "the fuzzer's secret, 32 bytes..";

/* Signs every frame of the stream whose header claims a length that is there. */
static void sign_all(uint8_t *bytes, size_t len)
{
    while (len >= GLM_CONTROL_HEADER_BYTES + GLM_CONTROL_MAC_BYTES) {
        size_t payload = (size_t)bytes[12] | (size_t)bytes[13] << 8 | (size_t)bytes[14] << 16;
        size_t whole = GLM_CONTROL_HEADER_BYTES + payload + GLM_CONTROL_MAC_BYTES;
        if (whole > len || !glm_secret_mac(secret, bytes, whole - GLM_CONTROL_MAC_BYTES,
                                           bytes + whole - GLM_CONTROL_MAC_BYTES))
            return;
        bytes += whole;
        len -= whole;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    size_t step = data[0] == 0 ? size : data[0], len = size - 2, at = 0, have = 0;
    uint8_t *bytes = malloc(len + 1), *again = malloc(len + 1);
    if (bytes == NULL || again == NULL)
        abort();
    memcpy(bytes, data + 2, len);
    if ((data[1] & 1) != 0)
        sign_all(bytes, len);
    uint64_t last = 0;
    while (have < len) {
        have = have + step < len ? have + step : len;
        struct glm_control_frame f;
        struct glm_error err = {0};
        size_t used = 0;
        enum glm_status status;
        do {
            status = glm_control_decode(bytes + at, have - at, secret, last, &f, &used, &err);
            if (status != GLM_OK || used == 0)
                break;
            /* What was accepted encodes to the same bytes. */
            if (f.sequence <= last || used > have - at ||
                glm_control_encode(&f, secret, again, len) != used ||
                memcmp(again, bytes + at, used) != 0)
                abort();
            last = f.sequence;
            at += used;
        } while (at < have);
        if (status != GLM_OK)
            break;
    }
    free(again);
    free(bytes);
    return 0;
}
