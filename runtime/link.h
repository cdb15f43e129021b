/* SPDX-License-Identifier: Apache-2.0 */
/* A link moves bytes between two ranks, in order, in both directions. Back ends: link_shm.c,
 * link_tcp.c (link_roce.c later). Collectives stand above; they see only this table.
 *
 * Owner: one thread for all links of a rank at a time. No call allocates after glm_link_connect.
 * Ranks may be processes or threads of one process. */
#ifndef GLM_RUNTIME_LINK_H
#define GLM_RUNTIME_LINK_H

#include "spec/base/error.h"

#include <stddef.h>
#include <stdint.h>

enum { GLM_LINK_MAX_WORLD = 32 };

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
     * GLM_EPEER: the peer is gone, and what it sent before it went has been delivered. */
    enum glm_status (*poll_send)(struct glm_link *link);
    enum glm_status (*poll_recv)(struct glm_link *link);
    /* Sleeps until a poll of one of these links may get further or timeout_us passed; spins first
     * while their spin is non-zero. links[n]: of one rank and this back end; NULL is skipped. */
    void (*wait)(struct glm_link *const *links, uint32_t n, uint32_t timeout_us);
    /* Is the peer known to be gone? Asks for no post. NULL: not before a poll says so. */
    int (*is_gone)(struct glm_link *link);
    /* Tells the peer, and frees the link. */
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

/* A rank's listening end for all its peers. kind: "shm" or "tcp". host: the address that tcp peers
 * reach this rank at. max_message: the largest message, sizes the shm rings.
 * secret: 32 bytes; both ends of a tcp link prove that they know them (HMAC over nonces) before
 * any data; a shm segment carries such a proof and is open to its user only. */
struct glm_link_listener;
enum glm_status glm_link_listen(const char *kind, const char *host, uint32_t rank, uint32_t world,
                                size_t max_message, const uint8_t secret[32],
                                struct glm_link_listener **out, struct glm_link_address *address,
                                struct glm_error *err);
/* Connects all pairs: addresses[world]; links[world] (own entry NULL), returned owned. Every rank
 * calls it; it returns when all its links are up or deadline_ms passed (GLM_EPEER naming the rank).
 * A stranger that connects without the secret is turned away and does not end the wait.
 * The listener is taken. */
enum glm_status glm_link_connect(struct glm_link_listener *listener,
                                 const struct glm_link_address *addresses, uint32_t deadline_ms,
                                 struct glm_link **links, struct glm_error *err);
/* A listener that never came to connect. */
void glm_link_listener_free(struct glm_link_listener *listener);
void glm_link_free(struct glm_link *link);

/* Removes what a listener that was killed left behind at its address, if anything. */
void glm_link_address_release(const struct glm_link_address *address);

/* Removes shm segments of this user whose rank died before its peers had attached: a segment's
 * rank holds a lock on it for as long as it lives. */
void glm_link_sweep(void);

#endif
