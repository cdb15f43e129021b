/* SPDX-License-Identifier: Apache-2.0 */
/* TCP sockets for links and control: "HOST:PORT" texts, listening, connecting without blocking.
 * Every socket is non-blocking, close-on-exec and TCP_NODELAY. */
#ifndef GLM_RUNTIME_NET_H
#define GLM_RUNTIME_NET_H

#include "spec/base/error.h"

#include <stddef.h>
#include <stdint.h>

enum { GLM_NET_HOST_BYTES = 128, GLM_NET_TEXT_BYTES = 152 };

/* "127.0.0.1:80", "[::1]:80", "spark1:80" → host without brackets and port 1..65535. */
enum glm_status glm_net_split(const char *text, char host[GLM_NET_HOST_BYTES], uint16_t *port,
                              struct glm_error *err);
/* Binds and listens. port 0: any free one. text gets the bound numeric "HOST:PORT".
 * Errors: GLM_EBUSY (the port is taken, named), GLM_EFABRIC (no such address), GLM_EIO. */
enum glm_status glm_net_listen(const char *host, uint16_t port, int *fd,
                               char text[GLM_NET_TEXT_BYTES], struct glm_error *err);
/* Starts connecting; the socket is writable once connected or failed (see glm_net_connected).
 * Name look-up may block for as long as the resolver takes; numeric addresses never do. */
enum glm_status glm_net_connect_start(const char *text, int *fd, struct glm_error *err);
/* After the socket turned writable: 0, or the errno of the failed connection. */
int glm_net_connected(int fd);
/* An accepted connection or -1 when there is none (or the peer left already). */
int glm_net_accept(int listen_fd);

#endif
