/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers, greeting and keys of one control connection. Frames to bytes: control.c. */
#include "runtime/control_conn.h"

#include "runtime/clock.h"
#include "runtime/net.h"
#include "runtime/secret.h"
#include "spec/base/digest.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cjson/cJSON.h>
#include <openssl/crypto.h>

enum {
    READ_BYTES = 16 * 1024,
    MAX_FRAME = GLM_CONTROL_HEADER_BYTES + GLM_CONTROL_MAX_PAYLOAD + GLM_CONTROL_MAC_BYTES
};

enum glm_status glm_conn_init(struct glm_conn *c, int fd, bool is_head, const uint8_t secret[32],
                              struct glm_error *err)
{
    *c = (struct glm_conn){.open = true, .fd = fd, .is_head = is_head, .heard_ms = glm_now_ms()};
    memcpy(c->secret, secret, sizeof c->secret);
    uint8_t random[GLM_CONN_NONCE_CHARS / 2];
    enum glm_status status = glm_secret_random(random, sizeof random, err);
    if (status == GLM_OK)
        glm_hex(random, sizeof random, c->nonce);
    if (status == GLM_OK && is_head) {
        char hello[80];
        snprintf(hello, sizeof hello, "{\"role\":\"head\",\"nonce\":\"%s\"}", c->nonce);
        status = glm_conn_send(c, GLM_CONTROL_HELLO, hello, err);
    }
    if (status != GLM_OK)
        glm_conn_release(c);
    return status;
}

void glm_conn_release(struct glm_conn *c)
{
    if (c->open)
        close(c->fd);
    buf_release(&c->in);
    buf_release(&c->out);
    OPENSSL_cleanse(c, sizeof *c);
    c->fd = -1;
}

/* Both sides know both nonces: from here on each direction has its own key. */
static enum glm_status make_keys(struct glm_conn *c, struct glm_error *err)
{
    static const char *const directions[2] = {"head>peer", "peer>head"};
    uint8_t keys[2][GLM_MAC_BYTES];
    for (int i = 0; i < 2; i++) {
        char text[128];
        int n =
            snprintf(text, sizeof text, "control %s %s %s", directions[i],
                     c->is_head ? c->nonce : c->peer_nonce, c->is_head ? c->peer_nonce : c->nonce);
        if (!glm_secret_mac(c->secret, text, (size_t)n, keys[i]))
            return glm_fail(err, GLM_ENOMEM, "cannot make a connection's keys: out of memory");
    }
    memcpy(c->key_out, keys[c->is_head ? 0 : 1], sizeof c->key_out);
    memcpy(c->key_in, keys[c->is_head ? 1 : 0], sizeof c->key_in);
    OPENSSL_cleanse(keys, sizeof keys);
    c->keyed = true;
    return GLM_OK;
}

short glm_conn_events(const struct glm_conn *c)
{
    bool room = c->in.len - c->in_used < MAX_FRAME;
    return (short)((room && !c->eof ? POLLIN : 0) | (c->out_sent < c->out.len ? POLLOUT : 0));
}

static enum glm_status gone(struct glm_conn *c, const char *why, struct glm_error *err)
{
    c->eof = true;
    return glm_fail(err, GLM_EPEER, "the control connection is gone: %s", why);
}

static enum glm_status push(struct glm_conn *c, struct glm_error *err)
{
    while (c->out_sent < c->out.len) {
        ssize_t n = send(c->fd, c->out.data + c->out_sent, c->out.len - c->out_sent, MSG_NOSIGNAL);
        if (n > 0)
            c->out_sent += (size_t)n;
        else if (n < 0 && errno == EAGAIN)
            break;
        else if (n < 0 && errno != EINTR)
            return gone(c, strerror(errno), err);
    }
    if (c->out_sent == c->out.len) {
        buf_clear(&c->out);
        c->out_sent = 0;
    }
    if (c->out.len - c->out_sent > GLM_CONN_MAX_OUT)
        return gone(c, "the peer does not read", err);
    return GLM_OK;
}

/* Bytes of frames already handed out make room. */
static void compact(struct glm_conn *c)
{
    if (c->in_used == 0)
        return;
    memmove(c->in.data, c->in.data + c->in_used, c->in.len - c->in_used);
    c->in.len -= c->in_used;
    c->in_used = 0;
}

enum glm_status glm_conn_pump(struct glm_conn *c, struct glm_error *err)
{
    compact(c);
    while (!c->eof && c->in.len < MAX_FRAME) {
        uint8_t bytes[READ_BYTES];
        ssize_t n = recv(c->fd, bytes, sizeof bytes, 0);
        if (n > 0) {
            buf_add(&c->in, bytes, (size_t)n);
            if (c->in.failed)
                return glm_fail(err, GLM_ENOMEM, "cannot read a control frame: out of memory");
        } else if (n == 0) {
            return gone(c, "the peer closed it", err);
        } else if (errno == EAGAIN) {
            break;
        } else if (errno != EINTR) {
            return gone(c, strerror(errno), err);
        }
    }
    return push(c, err);
}

/* Takes "nonce", and on the head checks role and answer. */
static enum glm_status greet(struct glm_conn *c, const struct glm_control_frame *f,
                             struct glm_error *err)
{
    if (f->type != GLM_CONTROL_HELLO)
        return glm_fail(err, GLM_EINVAL, "bad frame: the first one is '%s', not 'hello'",
                        glm_control_type_text(f->type));
    cJSON *hello = cJSON_ParseWithLength((const char *)f->payload, f->len);
    const char *nonce = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(hello, "nonce"));
    const char *role = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(hello, "role"));
    const char *answer = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(hello, "answer"));
    enum glm_status status = GLM_OK;
    if (nonce == NULL || role == NULL || strlen(nonce) != GLM_CONN_NONCE_CHARS)
        status = glm_fail(err, GLM_EINVAL, "bad hello: it needs role and nonce");
    else if (c->is_head != (strcmp(role, "head") != 0))
        status = glm_fail(err, GLM_EINVAL, "bad hello: role is '%.20s' on the side of the %s", role,
                          c->is_head ? "head" : "peer");
    else if (c->is_head && (answer == NULL || strcmp(answer, c->nonce) != 0))
        status = glm_fail(err, GLM_EINVAL, "bad hello: it answers another connection's nonce");
    else
        memcpy(c->peer_nonce, nonce, sizeof c->peer_nonce);
    cJSON_Delete(hello);
    return status == GLM_OK && c->is_head ? make_keys(c, err) : status;
}

enum glm_status glm_conn_next(struct glm_conn *c, struct glm_control_frame *f,
                              struct glm_error *err)
{
    compact(c);
    if (c->in.len == 0)
        return c->eof ? GLM_EPEER : GLM_EAGAIN;
    const uint8_t *bytes = (const uint8_t *)c->in.data;
    size_t used = 0;
    if (!c->keyed &&
        c->in.len > GLM_CONTROL_HEADER_BYTES + GLM_CONN_MAX_HELLO + GLM_CONTROL_MAC_BYTES)
        return glm_fail(err, GLM_EINVAL, "bad hello: more than %d bytes", GLM_CONN_MAX_HELLO);
    enum glm_status status = glm_control_decode(bytes, c->in.len, c->keyed ? c->key_in : c->secret,
                                                c->sequence_in, f, &used, err);
    if (status != GLM_OK)
        return status;
    if (used == 0)
        return c->eof ? GLM_EPEER : GLM_EAGAIN;
    if (c->peer_nonce[0] == '\0')
        status = greet(c, f, err);
    else if (!c->keyed || f->type == GLM_CONTROL_HELLO)
        status = glm_fail(err, GLM_EINVAL, "bad frame: '%s' out of turn",
                          glm_control_type_text(f->type));
    if (status != GLM_OK)
        return status;
    c->sequence_in = f->sequence;
    c->in_used = used;
    c->heard_ms = glm_now_ms();
    return GLM_OK;
}

enum glm_status glm_conn_send(struct glm_conn *c, enum glm_control_type type, const char *json,
                              struct glm_error *err)
{
    if (c->eof)
        return glm_fail(err, GLM_EPEER, "the control connection is gone: cannot send '%s'",
                        glm_control_type_text(type));
    struct glm_control_frame f = {.type = type,
                                  .epoch = c->epoch,
                                  .sequence = c->sequence_out + 1,
                                  .payload = (const uint8_t *)json,
                                  .len = json == NULL ? 0 : (uint32_t)strlen(json)};
    size_t need = GLM_CONTROL_HEADER_BYTES + (size_t)f.len + GLM_CONTROL_MAC_BYTES;
    struct buf frame = {0};
    static const uint8_t zeros[256] = {0};
    for (size_t left = need; left > 0;) {
        size_t n = left < sizeof zeros ? left : sizeof zeros;
        buf_add(&frame, zeros, n);
        left -= n;
    }
    enum glm_status status = GLM_OK;
    if (frame.failed ||
        glm_control_encode(&f, c->keyed ? c->key_out : c->secret, (uint8_t *)frame.data, need) == 0)
        status = glm_fail(err, GLM_EINVAL, "cannot send '%s' of %u bytes",
                          glm_control_type_text(type), f.len);
    else
        buf_add(&c->out, frame.data, need);
    buf_release(&frame);
    if (status != GLM_OK || c->out.failed)
        return status != GLM_OK ? status
                                : glm_fail(err, GLM_ENOMEM, "cannot send '%s': out of memory",
                                           glm_control_type_text(type));
    c->sequence_out = f.sequence;
    return push(c, err);
}

enum glm_status glm_conn_hello(struct glm_conn *c, const char *fields, struct glm_error *err)
{
    struct buf hello = {0};
    buf_printf(&hello, "{\"nonce\":\"%s\",\"answer\":", c->nonce);
    buf_json_string(&hello, c->peer_nonce, strlen(c->peer_nonce));
    buf_printf(&hello, ",%s}", fields);
    enum glm_status status = hello.failed
                                 ? glm_fail(err, GLM_ENOMEM, "cannot greet the head: out of memory")
                                 : glm_conn_send(c, GLM_CONTROL_HELLO, hello.data, err);
    buf_release(&hello);
    return status == GLM_OK ? make_keys(c, err) : status;
}

enum glm_status glm_conn_receive(struct glm_conn *c, uint64_t deadline_ms,
                                 struct glm_control_frame *f, struct glm_error *err)
{
    struct glm_error pumped = {0};
    for (bool last = false;;) {
        enum glm_status status = glm_conn_next(c, f, err);
        if (status == GLM_EPEER)
            return glm_fail(err, GLM_EPEER, "%s",
                            pumped.status != GLM_OK ? pumped.message
                                                    : "the control connection is gone");
        if (status != GLM_EAGAIN)
            return status;
        if (last)
            return GLM_EAGAIN;
        int left_ms = glm_ms_until(deadline_ms);
        last = left_ms == 0; /* what has come already is looked at once */
        struct pollfd p = {.fd = c->fd, .events = glm_conn_events(c)};
        (void)poll(&p, 1, left_ms);      /* an interrupted wait looks again */
        (void)glm_conn_pump(c, &pumped); /* next says what it means */
    }
}

void glm_conn_flush(struct glm_conn *c, uint64_t deadline_ms)
{
    while (c->open && !c->eof && push(c, NULL) == GLM_OK && c->out_sent < c->out.len) {
        int left_ms = glm_ms_until(deadline_ms);
        if (left_ms == 0)
            return;
        struct pollfd p = {.fd = c->fd, .events = POLLOUT};
        (void)poll(&p, 1, left_ms);
    }
}

enum glm_status glm_conn_open(struct glm_conn *c, const char *address, const uint8_t secret[32],
                              const char *fields, uint64_t deadline_ms, struct glm_error *err)
{
    int fd = -1;
    enum glm_status status = glm_net_connect_start(address, &fd, err);
    if (status != GLM_OK)
        return status;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int rc = poll(&p, 1, glm_ms_until(deadline_ms));
    int failed = rc == 1 ? glm_net_connected(fd) : ETIMEDOUT;
    if (failed != 0) {
        close(fd);
        return glm_fail(err, GLM_EPEER, "cannot connect to the head at '%s': %s", address,
                        strerror(failed));
    }
    status = glm_conn_init(c, fd, false, secret, err);
    if (status != GLM_OK)
        return status;
    struct glm_control_frame f;
    status = glm_conn_receive(c, deadline_ms, &f, err);
    if (status == GLM_EAGAIN)
        status =
            glm_fail(err, GLM_EPEER, "cannot talk to the head at '%s': it does not greet", address);
    if (status == GLM_OK)
        status = glm_conn_hello(c, fields, err);
    if (status != GLM_OK)
        glm_conn_release(c);
    return status;
}
