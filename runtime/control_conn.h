/* SPDX-License-Identifier: Apache-2.0 */
/* One control connection: frames over a non-blocking socket. It does the greeting (control.h,
 * HELLO) and the keys; what frames mean is supervise.c, rank.c and client.c.
 *
 * Keys after the greeting: HMAC(secret, "control DIRECTION" + head's nonce + peer's nonce),
 * DIRECTION "head>peer" or "peer>head". So a recorded frame counts neither again nor elsewhere nor
 * backwards.
 *
 * Owner: one thread. Buffers are bounded: a frame inwards, GLM_CONN_MAX_OUT outwards. */
#ifndef GLM_RUNTIME_CONTROL_CONN_H
#define GLM_RUNTIME_CONTROL_CONN_H

#include "runtime/control.h"
#include "spec/base/buf.h"

#include <stdbool.h>

enum {
    GLM_CONN_NONCE_CHARS = 32,
    GLM_CONN_MAX_HELLO = 64 * 1024, /* payload of a peer that has proved nothing yet */
    GLM_CONN_MAX_OUT = 4 << 20,     /* unsent bytes at which a peer counts as gone */
};

struct glm_conn {
    bool open;
    int fd;
    bool is_head, keyed, eof;
    uint64_t epoch;    /* stamped on what is sent */
    uint64_t heard_ms; /* when a frame came last; at first when it was opened */
    uint8_t secret[32], key_in[32], key_out[32];
    char nonce[GLM_CONN_NONCE_CHARS + 1], peer_nonce[GLM_CONN_NONCE_CHARS + 1];
    uint64_t sequence_in, sequence_out;
    struct buf in, out;
    size_t in_used, out_sent;
};

/* fd is taken, also on failure. The head's HELLO is queued at once. */
enum glm_status glm_conn_init(struct glm_conn *c, int fd, bool is_head, const uint8_t secret[32],
                              struct glm_error *err);
/* Closes. Accepts a zeroed or released one. */
void glm_conn_release(struct glm_conn *c);

/* What poll() should wait for. */
short glm_conn_events(const struct glm_conn *c);
/* Reads and writes what can be now. GLM_EPEER: the peer hung up or does not read; frames that came
 * before that are still there for next. */
enum glm_status glm_conn_pump(struct glm_conn *c, struct glm_error *err);
/* The next whole frame; its payload lies in the connection until the next call of pump or next.
 * GLM_EAGAIN: none yet. GLM_EINVAL: not acceptable, close. GLM_EPEER: none and the peer is gone. */
enum glm_status glm_conn_next(struct glm_conn *c, struct glm_control_frame *f,
                              struct glm_error *err);
/* Queues a frame and sends what goes at once. json NULL: an empty payload. */
enum glm_status glm_conn_send(struct glm_conn *c, enum glm_control_type type, const char *json,
                              struct glm_error *err);
/* The peer's answer to the head's HELLO; `fields` are more members, "\"role\":\"cli\"" and so on.
 */
enum glm_status glm_conn_hello(struct glm_conn *c, const char *fields, struct glm_error *err);

/* For a thread with nothing else to do: the next frame, or GLM_EAGAIN at the deadline. */
enum glm_status glm_conn_receive(struct glm_conn *c, uint64_t deadline_ms,
                                 struct glm_control_frame *f, struct glm_error *err);
/* Sends what is queued until the deadline; the rest is dropped. */
void glm_conn_flush(struct glm_conn *c, uint64_t deadline_ms);
/* Connects to the head at "HOST:PORT", waits for its HELLO and answers it. */
enum glm_status glm_conn_open(struct glm_conn *c, const char *address, const uint8_t secret[32],
                              const char *fields, uint64_t deadline_ms, struct glm_error *err);

#endif
