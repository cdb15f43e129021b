/* SPDX-License-Identifier: Apache-2.0 */
/* Picks a link back end by name and owns the listener's life. What a link does is link_shm.c and
 * link_tcp.c. */
#include "runtime/link_backend.h"

#include "runtime/clock.h"

#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

static const struct glm_link_backend *const backends[] = {&glm_link_shm, &glm_link_tcp};
enum { N_BACKENDS = sizeof backends / sizeof backends[0] };

enum glm_status glm_link_address_part(const struct glm_link_address *address, const char *kind,
                                      uint32_t peer, const char **out, struct glm_error *err)
{
    size_t len = strlen(kind);
    if (memchr(address->text, '\0', sizeof address->text) == NULL ||
        strncmp(address->text, kind, len) != 0 || address->text[len] != ':')
        return glm_fail(err, GLM_EFABRIC,
                        "cannot link to rank %u: its address is '%.159s', this rank uses %s", peer,
                        address->text, kind);
    *out = address->text + len + 1;
    return GLM_OK;
}

enum glm_status glm_link_listen(const char *kind, const char *host, uint32_t rank, uint32_t world,
                                size_t max_message, const uint8_t secret[32],
                                struct glm_link_listener **out, struct glm_link_address *address,
                                struct glm_error *err)
{
    const struct glm_link_backend *backend = NULL;
    for (size_t i = 0; i < N_BACKENDS; i++)
        if (strcmp(backends[i]->kind, kind) == 0)
            backend = backends[i];
    if (backend == NULL)
        return glm_fail(err, GLM_EFABRIC, "cannot link ranks over '%s': known are shm, tcp", kind);
    if (world == 0 || world > GLM_LINK_MAX_WORLD || rank >= world)
        return glm_fail(err, GLM_EINVAL, "cannot link rank %u of %u: at most %d ranks", rank, world,
                        GLM_LINK_MAX_WORLD);
    struct glm_link_listener *l = calloc(1, backend->listener_bytes);
    if (l == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot link rank %u: out of memory", rank);
    l->backend = backend;
    l->rank = rank;
    l->world = world;
    l->max_message = max_message;
    memcpy(l->secret, secret, sizeof l->secret);
    *address = (struct glm_link_address){0};
    enum glm_status status = backend->listen(l, host, address, err);
    if (status == GLM_OK)
        *out = l;
    else
        glm_link_listener_free(l);
    return status;
}

enum glm_status glm_link_connect(struct glm_link_listener *listener,
                                 const struct glm_link_address *addresses, uint32_t deadline_ms,
                                 struct glm_link **links, struct glm_error *err)
{
    struct glm_link *made[GLM_LINK_MAX_WORLD] = {NULL};
    uint32_t world = listener->world;
    enum glm_status status =
        listener->backend->connect(listener, addresses, glm_now_ms() + deadline_ms, made, err);
    glm_link_listener_free(listener);
    for (uint32_t i = 0; i < world; i++) {
        if (status == GLM_OK)
            links[i] = made[i];
        else
            glm_link_free(made[i]);
    }
    return status;
}

void glm_link_listener_free(struct glm_link_listener *listener)
{
    if (listener == NULL)
        return;
    listener->backend->release(listener);
    OPENSSL_cleanse(listener->secret, sizeof listener->secret);
    free(listener);
}

void glm_link_free(struct glm_link *link)
{
    if (link != NULL)
        link->ops->close(link);
}
