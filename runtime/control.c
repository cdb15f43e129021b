/* SPDX-License-Identifier: Apache-2.0 */
/* One control frame to bytes and back. Nothing of a frame is believed before its MAC holds but the
 * length, and that is bounded. Buffers, keys and who may say what are control_conn.c and above. */
#include "runtime/control.h"

#include "runtime/secret.h"

#include <string.h>

static const char *const type_texts[] = {
#define GLM_CONTROL_TEXT(name, text) [name] = text,
    GLM_CONTROL_MAP(GLM_CONTROL_TEXT)
#undef GLM_CONTROL_TEXT
};

/* Where the header's fields lie. */
enum { AT_MAGIC = 0, AT_VERSION = 4, AT_TYPE = 8, AT_LENGTH = 12, AT_EPOCH = 16, AT_SEQUENCE = 24 };

static void put(uint8_t *p, uint64_t v, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

static uint64_t get(const uint8_t *p, int n)
{
    uint64_t v = 0;
    for (int i = 0; i < n; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

const char *glm_control_type_text(enum glm_control_type type)
{
    size_t i = (size_t)type;
    return i < GLM_CONTROL_N_TYPES ? type_texts[i] : "unknown";
}

size_t glm_control_encode(const struct glm_control_frame *f, const uint8_t secret[32], uint8_t *out,
                          size_t capacity)
{
    size_t signed_bytes = GLM_CONTROL_HEADER_BYTES + (size_t)f->len;
    if (f->len > GLM_CONTROL_MAX_PAYLOAD || capacity < signed_bytes + GLM_CONTROL_MAC_BYTES)
        return 0;
    put(out + AT_MAGIC, GLM_CONTROL_MAGIC, 4);
    put(out + AT_VERSION, GLM_CONTROL_VERSION, 4);
    put(out + AT_TYPE, (uint64_t)f->type, 4);
    put(out + AT_LENGTH, f->len, 4);
    put(out + AT_EPOCH, f->epoch, 8);
    put(out + AT_SEQUENCE, f->sequence, 8);
    if (f->len > 0)
        memcpy(out + GLM_CONTROL_HEADER_BYTES, f->payload, f->len);
    if (!glm_secret_mac(secret, out, signed_bytes, out + signed_bytes))
        return 0;
    return signed_bytes + GLM_CONTROL_MAC_BYTES;
}

enum glm_status glm_control_decode(const uint8_t *bytes, size_t len, const uint8_t secret[32],
                                   uint64_t last_sequence, struct glm_control_frame *f,
                                   size_t *used, struct glm_error *err)
{
    *used = 0;
    /* The magic is judged as soon as it is there: a stranger need not be waited for. */
    if (len >= 4 && get(bytes + AT_MAGIC, 4) != GLM_CONTROL_MAGIC)
        return glm_fail(err, GLM_EINVAL, "bad frame: magic is %08x, not %08x",
                        (unsigned)get(bytes + AT_MAGIC, 4), GLM_CONTROL_MAGIC);
    if (len < GLM_CONTROL_HEADER_BYTES)
        return GLM_OK;
    uint64_t version = get(bytes + AT_VERSION, 4), type = get(bytes + AT_TYPE, 4);
    uint64_t length = get(bytes + AT_LENGTH, 4), sequence = get(bytes + AT_SEQUENCE, 8);
    if (version != GLM_CONTROL_VERSION)
        return glm_fail(err, GLM_EINVAL, "bad frame: version is %u, not %u", (unsigned)version,
                        GLM_CONTROL_VERSION);
    if (type >= GLM_CONTROL_N_TYPES)
        return glm_fail(err, GLM_EINVAL, "bad frame: type is %u, known are 0 to %u", (unsigned)type,
                        GLM_CONTROL_N_TYPES - 1);
    if (length > GLM_CONTROL_MAX_PAYLOAD)
        return glm_fail(err, GLM_EINVAL, "bad frame: payload of %u bytes, at most %u",
                        (unsigned)length, GLM_CONTROL_MAX_PAYLOAD);
    size_t signed_bytes = GLM_CONTROL_HEADER_BYTES + (size_t)length;
    if (len < signed_bytes + GLM_CONTROL_MAC_BYTES)
        return GLM_OK;
    uint8_t mac[GLM_MAC_BYTES];
    if (!glm_secret_mac(secret, bytes, signed_bytes, mac))
        return glm_fail(err, GLM_ENOMEM, "cannot check a frame: out of memory");
    if (!glm_secret_equal(mac, bytes + signed_bytes))
        return glm_fail(err, GLM_EINVAL, "bad frame: its MAC is wrong, the secrets differ");
    if (sequence <= last_sequence)
        return glm_fail(err, GLM_EINVAL, "bad frame: sequence %llu was used, the last was %llu",
                        (unsigned long long)sequence, (unsigned long long)last_sequence);
    *f = (struct glm_control_frame){.type = (enum glm_control_type)type,
                                    .epoch = get(bytes + AT_EPOCH, 8),
                                    .sequence = sequence,
                                    .payload = bytes + GLM_CONTROL_HEADER_BYTES,
                                    .len = (uint32_t)length};
    *used = signed_bytes + GLM_CONTROL_MAC_BYTES;
    return GLM_OK;
}
