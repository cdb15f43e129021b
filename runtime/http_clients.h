/* SPDX-License-Identifier: Apache-2.0 */
/* The clients of the HTTP server, from accept to close, and the thread that watches them: it
 * notices those who left, keeps silent streams alive and cuts connections that make no progress.
 * Lock order: the list's lock, then the scheduler's, then an exchange's. */
#ifndef GLM_RUNTIME_HTTP_CLIENTS_H
#define GLM_RUNTIME_HTTP_CLIENTS_H

#include "runtime/http.h"

struct http_clients;
struct http_client;
struct http_exchange;

/* A body that comes slower than this, after body_ms, is cut. */
enum { HTTP_BODY_BYTES_S = 64 << 10 };

enum http_client_phase {
    HTTP_CLIENT_IDLE, /* between requests, or its headers come */
    HTTP_CLIENT_BODY,
    HTTP_CLIENT_ANSWER, /* the request is complete */
};

enum glm_status http_clients_new(const struct glm_http_limits *limits, struct http_clients **out,
                                 struct glm_error *err);
/* Ends the thread. Clients may still leave afterwards; none is watched any more. */
void http_clients_stop(struct http_clients *c);
/* Every client has left. */
void http_clients_free(struct http_clients *c);

/* NULL: out of memory. */
struct http_client *http_client_new(struct http_clients *c, int fd);
void http_client_free(struct http_client *client);
void http_client_set_phase(struct http_client *client, enum http_client_phase phase);
void http_client_took(struct http_client *client, size_t n_bytes);

/* Between these two the watcher tells the exchange's generation of a client that left, and ticks.
 */
void http_client_watch(struct http_client *client, struct http_exchange *x);
void http_client_unwatch(struct http_client *client);

/* Cuts every client whose request is being answered: the lane must go and they do not read. */
void http_clients_cut_answers(struct http_clients *c);

#endif
