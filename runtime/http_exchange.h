/* SPDX-License-Identifier: Apache-2.0 */
/* One HTTP request and its answer, as the files of the HTTP server share it. */
#ifndef GLM_RUNTIME_HTTP_EXCHANGE_H
#define GLM_RUNTIME_HTTP_EXCHANGE_H

#include "runtime/http.h"
#include "runtime/http_clients.h"
#include "runtime/json.h"

#include <microhttpd.h>
#include <pthread.h>

struct generation; /* http_generation.c: a reply being made for an exchange */

/* One row of the error table (docs/api.md). Texts are borrowed: a message that is made
 * lives in the exchange's arena. */
struct http_error {
    unsigned status;
    const char *type, *code, *param; /* NULL: null */
    const char *message;
    const char *header, *header_value; /* one extra header, or NULL */
};

/* Owner: the MHD thread of its connection, except what `lock` guards. */
struct http_exchange {
    struct glm_http *server;
    struct MHD_Connection *connection;
    struct http_client *client;
    const struct http_route *route;        /* NULL: none */
    const char *path, *method;             /* path: normalised, in the arena */
    struct glm_scheduler *scheduler;       /* held from the handler's start to the end; NULL: */
    const struct glm_tokenizer *tokenizer; /* no lane is attached, `why` says why */
    size_t longest_token_bytes;
    char why[256];
    struct arena arena; /* everything of this request */
    struct buf body;
    uint64_t held_bytes; /* of the server's budget for bodies and what is read from them */

    struct http_error refusal; /* status 0: none. Answered once the body has been dropped */
    uint64_t taken_bytes, drop_limit_bytes; /* of the body; the connection ends past the limit */
    bool closes;                            /* the connection ends with this answer */

    struct generation *generation;

    unsigned status; /* of the answer, for the log */
    uint32_t key_i;  /* 1-based line among the keys; 0: none */
    uint64_t began_ms;

    /* The scheduler's notify and the watcher wake a suspended connection. */
    pthread_mutex_t lock;
    bool suspended, woken;
};

/* A handler answers by one of the http_answer functions or by starting a generation. */
typedef enum MHD_Result (*http_handler)(struct http_exchange *x);

struct http_route {
    const char *path; /* without /v1; a trailing '*' matches what is not empty */
    const char *method;
    http_handler handle;
    bool open; /* needs no key */
    bool idle; /* answered without a lane too */
};

/* What handlers may ask the server. */
const struct glm_plan *http_plan(const struct http_exchange *x);
const struct glm_launch_file *http_launch(const struct http_exchange *x);
double http_started_s(const struct http_exchange *x); /* Unix time */

enum MHD_Result http_answer_error(struct http_exchange *x, const struct http_error *e);
/* 400 invalid_request_error about a field (NULL: none). */
enum MHD_Result http_answer_invalid(struct http_exchange *x, const char *param, const char *code,
                                    const char *message);
/* A failure that is not the client's: 500, or 503 for what passes. */
enum MHD_Result http_answer_failure(struct http_exchange *x, const struct glm_error *err);
/* Its place in the error table; `message` is borrowed from err. */
struct http_error http_failure(const struct glm_error *err);
/* Body is taken. */
enum MHD_Result http_answer(struct http_exchange *x, unsigned status, const char *content_type,
                            struct buf *body);
void http_add_headers(struct MHD_Response *response);
/* Parses the body, which is released, as a JSON object. False: *answer has been given. */
bool http_parse_body(struct http_exchange *x, struct glm_json **body, enum MHD_Result *answer);

/* The error object alone: {"error": {...}}. */
void http_error_object(const char *type, const char *code, const char *param, const char *message,
                       struct buf *out);

/* Takes bytes from the server's budget for bodies and what is read from them, so that many large
 * requests cannot take the machine's memory; false: it is used up, answer http_too_busy. All goes
 * back when the exchange ends. */
bool http_hold(struct http_exchange *x, uint64_t bytes);
void http_let_go(struct http_exchange *x, uint64_t bytes);
extern const struct http_error http_too_busy;
uint64_t http_budget_bytes(const struct http_exchange *x);

/* Suspends the connection unless it was woken since the last call; false: it was woken, go on. */
bool http_sleep(struct http_exchange *x);
/* Any thread. */
void http_wake(struct http_exchange *x);

/* http_generation.c */
enum MHD_Result http_chat_completions(struct http_exchange *x);
enum MHD_Result http_completions(struct http_exchange *x);
/* Called again after a suspended non-streamed exchange woke. */
enum MHD_Result generation_continue(struct http_exchange *x);
void generation_free(struct generation *g);
/* Its figures as ` key=value`, for the request's log line. */
void generation_log(const struct generation *g, struct buf *line);
/* From the watcher's thread. */
void generation_client_gone(struct generation *g);
void generation_tick(struct http_exchange *x, uint64_t now_ms, uint32_t keepalive_ms);

/* http_misc.c */
enum MHD_Result http_models(struct http_exchange *x);
enum MHD_Result http_tokenize(struct http_exchange *x);
enum MHD_Result http_detokenize(struct http_exchange *x);
enum MHD_Result http_health(struct http_exchange *x);
enum MHD_Result http_metrics(struct http_exchange *x);

#endif
