/* SPDX-License-Identifier: Apache-2.0 */
/* A link moves bytes between two ranks, in order, in both directions. Back ends: link_shm.c,
 * link_tcp.c (link_roce.c later). Collectives stand above; they see only this table.
 *
 * Owner: one thread a link at a time. No call allocates after glm_link_connect. */
#ifndef GLM_RUNTIME_LINK_H
#define GLM_RUNTIME_LINK_H

#include "spec/base/error.h"

#include <stddef.h>
#include <stdint.h>

struct glm_link;

struct glm_link_ops {
    const char *name; /* "shm", "tcp" */
    /* Registers a buffer that later posts send from or receive into (a no-op for shm and tcp). */
    enum glm_status (*reg)(struct glm_link *link, void *bytes, size_t len, struct glm_error *err);
    /* Starts sending or receiving exactly len bytes. At most one post a direction is open; a
     * second is GLM_EAGAIN. The buffer is borrowed until poll says done. */
    enum glm_status (*post_send)(struct glm_link *link, const void *bytes, size_t len);
    enum glm_status (*post_recv)(struct glm_link *link, void *bytes, size_t len);
    /* Moves what can be moved now. GLM_OK: no post of that direction is open. GLM_EAGAIN: not yet.
     * GLM_EPEER: the peer is gone. */
    enum glm_status (*poll_send)(struct glm_link *link);
    enum glm_status (*poll_recv)(struct glm_link *link);
    /* Sleeps until poll may succeed or timeout_us passed; spins first while spin is non-zero. */
    void (*wait)(struct glm_link *link, uint32_t timeout_us);
    void (*close)(struct glm_link *link);
};

struct glm_link {
    const struct glm_link_ops *ops;
    uint32_t peer; /* its rank */
    int spin;      /* spin before sleeping: only while threads <= cores */
};

/* What one rank tells the others so that they can connect: filled by _listen, carried by the
 * control channel, used by _connect. Text, no secrets. */
struct glm_link_address {
    char text[160]; /* "shm:/glm-<hex>" or "tcp:127.0.0.1:40001" */
};

/* A rank's listening end for all its peers. kind: "shm" or "tcp". max_message sizes the shm rings.
 * secret: 32 bytes; a tcp peer proves it knows them (HMAC over a nonce) before any data. */
struct glm_link_listener;
enum glm_status glm_link_listen(const char *kind, const char *host, uint32_t rank, uint32_t world,
                                const uint8_t secret[32], struct glm_link_listener **out,
                                struct glm_link_address *address, struct glm_error *err);
/* Connects all pairs: addresses[world]; links[world] (own entry NULL), returned owned. Every rank
 * calls it; it returns when all its links are up or deadline_ms passed (GLM_EPEER naming the rank).
 * The listener is taken. */
enum glm_status glm_link_connect(struct glm_link_listener *listener,
                                 const struct glm_link_address *addresses, uint32_t deadline_ms,
                                 struct glm_link **links, struct glm_error *err);
void glm_link_free(struct glm_link *link);

#endif
