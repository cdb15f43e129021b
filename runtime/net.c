/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets as links and control need them. Handshakes and framing are link_tcp.c and control.c. */
#include "runtime/net.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum glm_status glm_net_split(const char *text, char host[GLM_NET_HOST_BYTES], uint16_t *port,
                              struct glm_error *err)
{
    const char *colon = strrchr(text, ':');
    const char *first = text;
    size_t len = colon == NULL ? 0 : (size_t)(colon - text);
    if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
        first = text + 1;
        len -= 2;
    }
    char *end = NULL;
    unsigned long value = 0;
    if (colon != NULL && colon[1] >= '0' && colon[1] <= '9')
        value = strtoul(colon + 1, &end, 10);
    if (len == 0 || len >= GLM_NET_HOST_BYTES || end == NULL || *end != '\0' || value == 0 ||
        value > 65535)
        return glm_fail(err, GLM_EINVAL,
                        "cannot use address '%.160s': expected HOST:PORT with a port of 1 to 65535",
                        text);
    memcpy(host, first, len);
    host[len] = '\0';
    *port = (uint16_t)value;
    return GLM_OK;
}

static void prepare_socket(int fd)
{
    int one = 1;
    /* Both only make things faster or tidier; a kernel that refuses them still connects. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
}

static enum glm_status resolve(const char *host, uint16_t port, int flags, struct addrinfo **out,
                               struct glm_error *err)
{
    char service[8];
    snprintf(service, sizeof service, "%u", port);
    struct addrinfo want = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    want.ai_flags = flags | AI_NUMERICSERV;
    int rc = getaddrinfo(host, service, &want, out);
    if (rc != 0)
        return glm_fail(err, GLM_EFABRIC, "cannot find the address of '%s': %s", host,
                        gai_strerror(rc));
    return GLM_OK;
}

static enum glm_status name_socket(int fd, char text[GLM_NET_TEXT_BYTES], struct glm_error *err)
{
    struct sockaddr_storage at;
    socklen_t len = sizeof at;
    char host[64], service[8];
    if (getsockname(fd, (struct sockaddr *)&at, &len) != 0 ||
        getnameinfo((struct sockaddr *)&at, len, host, sizeof host, service, sizeof service,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return glm_fail(err, GLM_EIO, "cannot read a socket's own address: %s", strerror(errno));
    snprintf(text, GLM_NET_TEXT_BYTES, strchr(host, ':') == NULL ? "%s:%s" : "[%s]:%s", host,
             service);
    return GLM_OK;
}

enum glm_status glm_net_listen(const char *host, uint16_t port, int *out_fd,
                               char text[GLM_NET_TEXT_BYTES], struct glm_error *err)
{
    struct addrinfo *at = NULL;
    enum glm_status status = resolve(host, port, AI_PASSIVE, &at, err);
    if (status != GLM_OK)
        return status;
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int one = 1;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        bind(fd, at->ai_addr, at->ai_addrlen) != 0 || listen(fd, 64) != 0) {
        status = errno == EADDRINUSE ? GLM_EBUSY : errno == EADDRNOTAVAIL ? GLM_EFABRIC : GLM_EIO;
        glm_fail(err, status, "cannot listen on '%s:%u': %s", host, port, strerror(errno));
        if (fd >= 0)
            close(fd);
        goto out;
    }
    status = name_socket(fd, text, err);
    if (status == GLM_OK)
        *out_fd = fd;
    else
        close(fd);
out:
    freeaddrinfo(at);
    return status;
}

enum glm_status glm_net_connect_start(const char *text, int *out_fd, struct glm_error *err)
{
    char host[GLM_NET_HOST_BYTES];
    uint16_t port;
    struct addrinfo *at = NULL;
    enum glm_status status = glm_net_split(text, host, &port, err);
    if (status == GLM_OK)
        status = resolve(host, port, 0, &at, err);
    if (status != GLM_OK)
        return status;
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || (connect(fd, at->ai_addr, at->ai_addrlen) != 0 && errno != EINPROGRESS)) {
        status = glm_fail(err, GLM_EPEER, "cannot connect to '%s': %s", text, strerror(errno));
        if (fd >= 0)
            close(fd);
    } else {
        prepare_socket(fd);
        *out_fd = fd;
    }
    freeaddrinfo(at);
    return status;
}

int glm_net_connected(int fd)
{
    int value = 0;
    socklen_t len = sizeof value;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &len) != 0 ? errno : value;
}

int glm_net_accept(int listen_fd)
{
    int fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0)
        prepare_socket(fd);
    return fd;
}
