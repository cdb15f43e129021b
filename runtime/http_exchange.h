/* SPDX-License-Identifier: Apache-2.0 */
/* One HTTP request and its answer, as the files of the HTTP server share it. */
#ifndef GLM_RUNTIME_HTTP_EXCHANGE_H
#define GLM_RUNTIME_HTTP_EXCHANGE_H

#include "runtime/http.h"
#include "runtime/json.h"

#include <microhttpd.h>
#include <pthread.h>

struct generation; /* http_generation.c: a reply being made for an exchange */

/* Owner: the MHD thread of its connection, except what `lock` guards. */
struct http_exchange {
    struct glm_http *server;
    struct MHD_Connection *connection;
    const struct http_route *route;
    const char *path;                      /* normalised, in the arena */
    struct glm_scheduler *scheduler;       /* held from the handler's start to the end; NULL: */
    const struct glm_tokenizer *tokenizer; /* no lane is attached, `why` says why */
    char why[256];
    struct arena arena; /* everything of this request */
    struct buf body;
    size_t dropped_bytes; /* of a body over the limit */
    bool refused;         /* an answer was queued before the body was read */

    struct generation *generation;

    /* The scheduler's notify and the watcher wake a suspended connection. */
    pthread_mutex_t lock;
    bool suspended, woken;
    bool watched; /* in the watcher's epoll set */
    bool client_gone;
    struct http_exchange *next, *previous; /* the watcher's list, under its lock */
};

/* A handler answers by one of the http_answer functions or by starting a generation. */
typedef enum MHD_Result (*http_handler)(struct http_exchange *x);

struct http_route {
    const char *path; /* without /v1; a trailing '*' matches one more segment */
    const char *method;
    http_handler handle;
    bool open; /* needs no key */
    bool idle; /* answered without a lane too */
};

/* What handlers may ask the server. */
const struct glm_plan *http_plan(const struct http_exchange *x);
const struct glm_launch_file *http_launch(const struct http_exchange *x);
double http_started_s(const struct http_exchange *x); /* Unix time */

/* One row of the error table (reference/serving.md 2.1). */
struct http_error {
    unsigned status;
    const char *type, *code, *param; /* NULL: null */
    const char *message;
    const char *header, *header_value; /* one extra header, or NULL */
};
enum MHD_Result http_answer_error(struct http_exchange *x, const struct http_error *e);
/* 400 invalid_request_error about a field (NULL: none). */
enum MHD_Result http_answer_invalid(struct http_exchange *x, const char *param, const char *code,
                                    const char *message);
/* Body is taken. */
enum MHD_Result http_answer(struct http_exchange *x, unsigned status, const char *content_type,
                            struct buf *body);
void http_add_headers(struct MHD_Response *response);

/* The error object alone: {"error": {...}}. */
void http_error_object(const char *type, const char *code, const char *param, const char *message,
                       struct buf *out);

/* Suspends the connection unless it was woken since the last call; false: it was woken, go on. */
bool http_sleep(struct http_exchange *x);
/* Any thread. */
void http_wake(struct http_exchange *x);
/* Starts and ends watching the client's socket. */
void http_watch(struct http_exchange *x);
void http_unwatch(struct http_exchange *x);

/* http_generation.c */
enum MHD_Result http_chat_completions(struct http_exchange *x);
enum MHD_Result http_completions(struct http_exchange *x);
/* Called again after a suspended non-streamed exchange woke. */
enum MHD_Result generation_continue(struct http_exchange *x);
void generation_free(struct generation *g);
void generation_client_gone(struct generation *g);
/* Once a second from the watcher: keeps a silent stream alive. */
void generation_tick(struct http_exchange *x, double now_s);
void http_random_id(const char *prefix, char out[40]);

/* http_misc.c */
enum MHD_Result http_models(struct http_exchange *x);
enum MHD_Result http_tokenize(struct http_exchange *x);
enum MHD_Result http_detokenize(struct http_exchange *x);
enum MHD_Result http_health(struct http_exchange *x);
enum MHD_Result http_metrics(struct http_exchange *x);

#endif
