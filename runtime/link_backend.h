/* SPDX-License-Identifier: Apache-2.0 */
/* Between link.c and the back ends; nobody else includes it. */
#ifndef GLM_RUNTIME_LINK_BACKEND_H
#define GLM_RUNTIME_LINK_BACKEND_H

#include "runtime/link.h"

struct glm_link_backend;

/* First member of each back end's own listener. */
struct glm_link_listener {
    const struct glm_link_backend *backend;
    uint32_t rank, world;
    size_t max_message;
    uint8_t secret[32];
};

struct glm_link_backend {
    const char *kind;
    size_t listener_bytes; /* zeroed and its common part filled before listen */
    enum glm_status (*listen)(struct glm_link_listener *listener, const char *host,
                              struct glm_link_address *address, struct glm_error *err);
    /* Fills links[world]; on an error those already made are freed by link.c. */
    enum glm_status (*connect)(struct glm_link_listener *listener,
                               const struct glm_link_address *addresses, uint64_t deadline_ms,
                               struct glm_link **links, struct glm_error *err);
    /* Releases what listen and connect hold; the struct itself is freed by link.c. */
    void (*release)(struct glm_link_listener *listener);
};

extern const struct glm_link_backend glm_link_shm, glm_link_tcp;

/* "KIND:" taken off the address. GLM_EFABRIC when the peer uses another kind. */
enum glm_status glm_link_address_part(const struct glm_link_address *address, const char *kind,
                                      uint32_t peer, const char **out, struct glm_error *err);

#endif
