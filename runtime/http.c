/* SPDX-License-Identifier: Apache-2.0 */
/* The server around the routes: binding, framing, keys, the lane that requests hold, and an
 * exchange from its first header to its log line. What a route answers is in http_generation.c and
 * http_misc.c, how answers are made in http_answer.c, clients that leave or stall in
 * http_clients.c. */
#include "runtime/http_exchange.h"

#include "codegen/process.h"
#include "runtime/clock.h"
#include "spec/base/log.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    HTTP_THREADS = 4,
    EXCHANGE_ARENA_BYTES = 256 << 10,
    MAX_KEYS = 64,
    KEY_FILE_BYTES = 64 << 10,
    UNREAD_BODY_BYTES = 64 << 10, /* dropped for a client without a key, so that it sees its 401 */
    DETACH_GRACE_MS = 1000,
};

struct glm_http {
    const struct glm_launch_file *launch;
    const struct glm_plan *plan;
    struct MHD_Daemon *daemon;
    int socket;
    double started_s;
    char *keys[MAX_KEYS];
    size_t n_keys;
    struct glm_http_limits limits;
    struct http_clients *clients;
    _Atomic uint64_t held_bytes;

    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t unused;
    struct glm_scheduler *scheduler;
    const struct glm_tokenizer *tokenizer;
    size_t longest_token_bytes;
    unsigned n_using; /* exchanges that hold the lane */
    bool detaching;
    char why[256]; /* no lane is attached */
};

static const struct http_route routes[] = {
    {"/chat/completions", "POST", http_chat_completions, false, false},
    {"/completions", "POST", http_completions, false, false},
    {"/models", "GET", http_models, false, false},
    {"/models/*", "GET", http_models, false, false},
    {"/tokenize", "POST", http_tokenize, false, false},
    {"/detokenize", "POST", http_detokenize, false, false},
    {"/health", "GET", http_health, true, true},
    {"/metrics", "GET", http_metrics, false, true},
};
enum { N_ROUTES = sizeof routes / sizeof routes[0] };

static enum MHD_Result answer_options(struct http_exchange *x);
static const struct http_route options_route = {"*", "OPTIONS", answer_options, true, true};

const struct http_error http_too_busy = {
    .status = 429,
    .type = "rate_limit_error",
    .code = "server_busy",
    .message = "the requests that are being read fill the memory set aside for them, try again",
    .header = "Retry-After",
    .header_value = "5",
};

/* From here to the exchange's end the lane stays attached. */
static void acquire_lane(struct http_exchange *x)
{
    struct glm_http *h = x->server;
    pthread_mutex_lock(&h->lock);
    if (x->scheduler == NULL && h->scheduler != NULL && !h->detaching) {
        x->scheduler = h->scheduler;
        x->tokenizer = h->tokenizer;
        x->longest_token_bytes = h->longest_token_bytes;
        h->n_using++;
    }
    snprintf(x->why, sizeof x->why, "%s", h->why);
    pthread_mutex_unlock(&h->lock);
}

static void release_lane(struct http_exchange *x)
{
    struct glm_http *h = x->server;
    if (x->scheduler == NULL)
        return;
    pthread_mutex_lock(&h->lock);
    if (--h->n_using == 0)
        pthread_cond_broadcast(&h->unused);
    pthread_mutex_unlock(&h->lock);
}

const struct glm_plan *http_plan(const struct http_exchange *x)
{
    return x->server->plan;
}

const struct glm_launch_file *http_launch(const struct http_exchange *x)
{
    return x->server->launch;
}

double http_started_s(const struct http_exchange *x)
{
    return x->server->started_s;
}

/* ---- memory of requests ---- */

bool http_hold(struct http_exchange *x, uint64_t bytes)
{
    struct glm_http *h = x->server;
    const uint64_t limit = h->limits.held_bytes;
    const uint64_t before = atomic_fetch_add(&h->held_bytes, bytes);
    if (before + bytes > limit) {
        atomic_fetch_sub(&h->held_bytes, bytes);
        return false;
    }
    x->held_bytes += bytes;
    return true;
}

uint64_t http_budget_bytes(const struct http_exchange *x)
{
    return x->server->limits.held_bytes;
}

void http_let_go(struct http_exchange *x, uint64_t bytes)
{
    x->held_bytes -= bytes;
    atomic_fetch_sub(&x->server->held_bytes, bytes);
}

/* ---- keys ---- */

static enum glm_status read_keys(struct glm_http *h, const char *path, struct glm_error *err)
{
    struct buf text = {0};
    enum glm_status status = glm_file_read(path, KEY_FILE_BYTES, &text, err);
    char *save = NULL;
    for (char *line = text.data == NULL ? NULL : strtok_r(text.data, "\r\n", &save);
         status == GLM_OK && line != NULL; line = strtok_r(NULL, "\r\n", &save)) {
        line += strspn(line, " \t");
        line[strcspn(line, " \t")] = '\0';
        if (*line == '\0' || *line == '#')
            continue;
        if (h->n_keys == MAX_KEYS)
            status = glm_fail(err, GLM_EINVAL, "'%s' holds more than %d keys", path, MAX_KEYS);
        else if ((h->keys[h->n_keys] = strdup(line)) == NULL)
            status = glm_fail(err, GLM_ENOMEM, "cannot read '%s': out of memory", path);
        else
            h->n_keys++;
    }
    if (status == GLM_OK && h->n_keys == 0)
        status = glm_fail(err, GLM_EINVAL, "API key file '%s' holds no key", path);
    OPENSSL_cleanse(text.data, text.len);
    buf_release(&text);
    return status;
}

/* 1-based place among the keys, 0: none fits. Every key is compared, each in time that depends on
 * lengths alone. */
static uint32_t find_key(const struct glm_http *h, const char *given)
{
    uint32_t found = 0;
    const size_t len = strlen(given);
    for (size_t i = 0; i < h->n_keys; i++) {
        const bool same = strlen(h->keys[i]) == len && CRYPTO_memcmp(h->keys[i], given, len) == 0;
        found = same ? (uint32_t)i + 1 : found;
    }
    return found;
}

static const char *request_header(const struct http_exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

static bool authorised(struct http_exchange *x)
{
    const struct glm_http *h = x->server;
    const char *bearer = request_header(x, "Authorization");
    const char *key = request_header(x, "x-api-key");
    if (bearer != NULL && strncasecmp(bearer, "Bearer ", 7) == 0)
        key = bearer + 7 + strspn(bearer + 7, " ");
    if (key != NULL)
        x->key_i = find_key(h, key);
    return h->n_keys == 0 || x->route->open || x->key_i > 0;
}

/* ---- an exchange from first header to last byte ---- */

static bool route_matches(const struct http_route *r, const char *path)
{
    size_t n = strlen(r->path);
    if (r->path[n - 1] != '*')
        return strcmp(r->path, path) == 0;
    return strncmp(r->path, path, n - 1) == 0 && path[n - 1] != '\0';
}

/* /v1/x/ and /x are the same route. */
static const char *normal_path(struct http_exchange *x, const char *url)
{
    if (strncmp(url, "/v1/", 4) == 0)
        url += 3;
    size_t len = strlen(url);
    if (len > 1 && url[len - 1] == '/')
        len--;
    return arena_strndup(&x->arena, url, len);
}

static struct http_exchange *new_exchange(struct glm_http *h, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (info == NULL || info->socket_context == NULL)
        return NULL;
    struct http_exchange *x = calloc(1, sizeof *x);
    if (x == NULL)
        return NULL;
    x->server = h;
    x->connection = connection;
    x->client = info->socket_context;
    x->began_ms = glm_now_ms();
    arena_init(&x->arena, EXCHANGE_ARENA_BYTES);
    pthread_mutex_init(&x->lock, NULL);
    return x;
}

static enum MHD_Result answer_options(struct http_exchange *x)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (response == NULL)
        return MHD_NO;
    http_add_headers(response);
    MHD_add_response_header(response, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    /* Browsers do not count Authorization among "*". */
    MHD_add_response_header(response, "Access-Control-Allow-Headers", "Authorization, *");
    MHD_add_response_header(response, "Access-Control-Max-Age", "86400");
    x->status = 204;
    enum MHD_Result result = MHD_queue_response(x->connection, 204, response);
    MHD_destroy_response(response);
    return result;
}

/* ---- framing: what is known before the body ---- */

struct framing {
    bool has_body, chunked, wants_continue;
    uint64_t declared_bytes; /* 0 when chunked */
    const char *wrong;       /* what makes the request's end uncertain, or NULL */
};

static enum MHD_Result count_framing(void *context, enum MHD_ValueKind kind, const char *key,
                                     const char *value)
{
    unsigned *n = context; /* of Content-Length and Transfer-Encoding */
    (void)kind;
    (void)value;
    n[0] += strcasecmp(key, "Content-Length") == 0;
    n[1] += strcasecmp(key, "Transfer-Encoding") == 0;
    return MHD_YES;
}

static struct framing read_framing(const struct http_exchange *x)
{
    unsigned n[2] = {0};
    MHD_get_connection_values(x->connection, MHD_HEADER_KIND, count_framing, n);
    const char *length = request_header(x, "Content-Length");
    const char *coding = request_header(x, "Transfer-Encoding");
    struct framing f = {.chunked = coding != NULL,
                        .wants_continue = request_header(x, "Expect") != NULL};
    if (n[0] + n[1] > 1)
        f.wrong = "send one Content-Length or one Transfer-Encoding, not several";
    else if (coding != NULL && strcasecmp(coding, "chunked") != 0)
        f.wrong = "the only transfer coding is 'chunked'";
    if (length != NULL) {
        errno = 0;
        f.declared_bytes = strtoull(length, NULL, 10);
        if (errno != 0)
            f.declared_bytes = UINT64_MAX;
    }
    f.has_body = f.chunked || f.declared_bytes > 0;
    return f;
}

/* The answer waits until the body was dropped, so that it is never taken for the next request and
 * the client, which writes before it reads, sees the answer. A body over drop_limit_bytes, or one
 * that waits to be asked for, is left unread: then the connection ends. */
static enum MHD_Result refuse(struct http_exchange *x, const struct framing *f,
                              uint64_t drop_limit_bytes, struct http_error e)
{
    x->refusal = e;
    x->drop_limit_bytes = drop_limit_bytes;
    if (f->wrong == NULL && !(f->has_body && f->wants_continue) &&
        f->declared_bytes <= drop_limit_bytes)
        return MHD_YES;
    x->closes = true;
    return http_answer_error(x, &e);
}

static struct http_error no_route(struct http_exchange *x)
{
    const struct http_route *other = NULL;
    for (size_t i = 0; i < N_ROUTES; i++)
        if (route_matches(&routes[i], x->path))
            other = &routes[i];
    struct http_error e = {.status = 404, .type = "invalid_request_error"};
    if (other == NULL) {
        e.message = arena_printf(&x->arena, "there is no '%.200s' here", x->path);
        return e;
    }
    e.status = 405;
    e.message = arena_printf(&x->arena, "%.20s is not allowed on '%.200s', use %s", x->method,
                             x->path, other->method);
    e.header = "Allow";
    e.header_value = strcmp(other->method, "GET") == 0 ? "GET, HEAD, OPTIONS" : "POST, OPTIONS";
    return e;
}

static struct http_error not_ready(struct http_exchange *x)
{
    return (struct http_error){
        .status = 503,
        .type = "unavailable_error",
        .message = arena_printf(&x->arena, "the model is not being served: %s", x->why),
        .header = "Retry-After",
        .header_value = "5"};
}

static struct http_error too_large(struct http_exchange *x)
{
    return (struct http_error){
        .status = 413,
        .type = "invalid_request_error",
        .code = "request_too_large",
        .message = arena_printf(&x->arena, "the body is larger than the limit of %llu bytes",
                                (unsigned long long)x->server->launch->max_body_bytes)};
}

static bool lane_attached(struct http_exchange *x)
{
    struct glm_http *h = x->server;
    pthread_mutex_lock(&h->lock);
    const bool attached = h->scheduler != NULL && !h->detaching;
    snprintf(x->why, sizeof x->why, "%s", h->why);
    pthread_mutex_unlock(&h->lock);
    return attached;
}

static bool is_json_type(const char *content_type)
{
    static const char *const types[] = {"application/json", "text/json"};
    if (content_type == NULL)
        return true;
    const size_t len = strcspn(content_type, "; \t");
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (len == strlen(types[i]) && strncasecmp(content_type, types[i], len) == 0)
            return true;
    return false;
}

static bool has_json(struct http_exchange *x, struct http_error *e)
{
    const char *type = request_header(x, "Content-Type");
    const char *coding = request_header(x, "Content-Encoding");
    *e = (struct http_error){.status = 415, .type = "invalid_request_error"};
    if (!is_json_type(type))
        e->message = arena_printf(
            &x->arena, "content type '%.100s' is not JSON: send 'Content-Type: application/json'",
            type);
    else if (coding != NULL && strcasecmp(coding, "identity") != 0)
        e->message =
            arena_printf(&x->arena, "content coding '%.100s' is not read: send plain JSON", coding);
    else
        return true;
    return false;
}

/* Everything that can be refused before the body is read. */
static enum MHD_Result begin(struct http_exchange *x, const char *url, const char *method)
{
    const uint64_t limit = x->server->launch->max_body_bytes;
    const struct framing f = read_framing(x);
    struct http_error unread;
    x->path = normal_path(x, url);
    x->method = arena_strndup(&x->arena, method, strnlen(method, 20));
    if (x->path == NULL || x->method == NULL)
        return MHD_NO;
    const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
    for (size_t i = 0; i < N_ROUTES && x->route == NULL; i++)
        if (route_matches(&routes[i], x->path) && strcmp(routes[i].method, wanted) == 0)
            x->route = &routes[i];
    if (strcmp(method, "OPTIONS") == 0)
        x->route = &options_route;
    if (f.wrong != NULL)
        return refuse(x, &f, 0,
                      (struct http_error){
                          .status = 400, .type = "invalid_request_error", .message = f.wrong});
    if (x->route == NULL)
        return refuse(x, &f, limit, no_route(x));
    if (!authorised(x))
        return refuse(x, &f, UNREAD_BODY_BYTES,
                      (struct http_error){.status = 401,
                                          .type = "invalid_request_error",
                                          .code = "invalid_api_key",
                                          .message = "missing or wrong API key",
                                          .header = "WWW-Authenticate",
                                          .header_value = "Bearer"});
    if (!x->route->idle && !lane_attached(x))
        return refuse(x, &f, limit, not_ready(x));
    if (strcmp(method, "POST") == 0 && !has_json(x, &unread))
        return refuse(x, &f, limit, unread);
    if (f.declared_bytes > limit)
        return refuse(x, &f, 2 * limit, too_large(x));
    x->drop_limit_bytes = 2 * limit;
    return MHD_YES;
}

/* ---- an exchange from first header to last byte ---- */

/* What is not wanted is dropped as it comes, and the connection with it past the limit. */
static enum MHD_Result take_body(struct http_exchange *x, const char *bytes, size_t n)
{
    http_client_took(x->client, n);
    x->taken_bytes += n;
    if (x->refusal.status == 0 && x->taken_bytes > x->server->launch->max_body_bytes)
        x->refusal = too_large(x);
    else if (x->refusal.status == 0 && !http_hold(x, n))
        x->refusal = http_too_busy;
    if (x->refusal.status == 0) {
        buf_add(&x->body, bytes, n);
        if (!x->body.failed)
            return MHD_YES;
        x->refusal = http_too_busy;
    }
    buf_release(&x->body);
    http_let_go(x, x->held_bytes);
    return x->taken_bytes > x->drop_limit_bytes ? MHD_NO : MHD_YES;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **exchange)
{
    struct glm_http *h = context;
    struct http_exchange *x = *exchange;
    (void)version;
    if (x == NULL) {
        *exchange = x = new_exchange(h, connection);
        if (x == NULL)
            return MHD_NO;
        http_client_set_phase(x->client, HTTP_CLIENT_BODY);
        return begin(x, url, method);
    }
    if (*upload_size > 0) {
        const size_t n = *upload_size;
        *upload_size = 0;
        return take_body(x, upload, n);
    }
    if (x->generation != NULL)
        return generation_continue(x);
    http_client_set_phase(x->client, HTTP_CLIENT_ANSWER);
    if (x->refusal.status != 0)
        return http_answer_error(x, &x->refusal);
    /* The lane may have gone while the body came. */
    acquire_lane(x);
    if (!x->route->idle && x->scheduler == NULL) {
        const struct http_error e = not_ready(x);
        return http_answer_error(x, &e);
    }
    return x->route->handle(x);
}

/* One line a request (docs/api.md); never what was asked or answered. A path that is
 * no route's is the client's text and stays out. */
static void log_request(const struct http_exchange *x)
{
    if (x->route != NULL && x->route->idle && x->status < 400)
        return; /* polls */
    char host[64] = "unknown";
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (info != NULL && info->client_addr != NULL) {
        const socklen_t len = info->client_addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                                       : sizeof(struct sockaddr_in);
        getnameinfo(info->client_addr, len, host, sizeof host, NULL, 0, NI_NUMERICHOST);
    }
    struct buf line = {0};
    buf_printf(&line, "request client=%s method=%s route=%s", host,
               x->route == NULL ? "?" : x->route->method, x->route == NULL ? "?" : x->route->path);
    if (x->status != 0)
        buf_printf(&line, " status=%u", x->status);
    if (x->generation != NULL)
        generation_log(x->generation, &line);
    else if (x->status == 0)
        buf_str(&line, " finish=left");
    buf_printf(&line, " total_ms=%llu", (unsigned long long)(glm_now_ms() - x->began_ms));
    if (x->key_i > 0)
        buf_printf(&line, " key=%u", x->key_i);
    glm_log(GLM_LOG_INFO, "%s", buf_text(&line));
    buf_release(&line);
}

static void on_completed(void *context, struct MHD_Connection *connection, void **exchange,
                         enum MHD_RequestTerminationCode code)
{
    struct http_exchange *x = *exchange;
    (void)context;
    (void)connection;
    (void)code;
    if (x == NULL)
        return;
    http_client_unwatch(x->client);
    log_request(x);
    generation_free(x->generation);
    release_lane(x);
    http_let_go(x, x->held_bytes);
    http_client_set_phase(x->client, HTTP_CLIENT_IDLE);
    pthread_mutex_destroy(&x->lock);
    buf_release(&x->body);
    arena_release(&x->arena);
    free(x);
    *exchange = NULL;
}

static void on_connection(void *context, struct MHD_Connection *connection, void **socket_context,
                          enum MHD_ConnectionNotificationCode what)
{
    struct glm_http *h = context;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        http_client_free(*socket_context);
        *socket_context = NULL;
        return;
    }
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    *socket_context = info == NULL ? NULL : http_client_new(h->clients, info->connect_fd);
}

/* ---- start and end ---- */

static enum glm_status bind_socket(struct glm_http *h, uint16_t *port, struct glm_error *err)
{
    const struct glm_launch_file *l = h->launch;
    struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    struct addrinfo *address = NULL;
    char service[8];
    snprintf(service, sizeof service, "%u", l->listen_port);
    int rc = getaddrinfo(l->listen_host, service, &hints, &address);
    if (rc != 0)
        return glm_fail(err, GLM_EIO, "cannot resolve listen address '%s': %s", l->listen_host,
                        gai_strerror(rc));
    enum glm_status status = GLM_OK;
    int one = 1;
    h->socket = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (h->socket < 0 || setsockopt(h->socket, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        bind(h->socket, address->ai_addr, address->ai_addrlen) != 0 ||
        listen(h->socket, 256) != 0) {
        status =
            glm_fail(err, errno == EADDRINUSE ? GLM_EBUSY : GLM_EIO, "cannot listen on %s:%u: %s",
                     l->listen_host, l->listen_port, strerror(errno));
        glm_error_hint(err,
                       "find its holder with: ss -ltnp 'sport = :%u', or change lanes[].listen",
                       l->listen_port);
    } else {
        union {
            struct sockaddr_storage any;
            struct sockaddr_in v4;
            struct sockaddr_in6 v6;
        } bound = {0};
        socklen_t len = sizeof bound;
        if (getsockname(h->socket, (struct sockaddr *)&bound, &len) != 0)
            status =
                glm_fail(err, GLM_EIO, "cannot read a socket's own address: %s", strerror(errno));
        else
            *port = ntohs(bound.any.ss_family == AF_INET6 ? bound.v6.sin6_port : bound.v4.sin_port);
    }
    freeaddrinfo(address);
    return status;
}

static void on_mhd_log(void *context, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));
static void on_mhd_log(void *context, const char *format, va_list args)
{
    char line[512];
    (void)context;
    vsnprintf(line, sizeof line, format, args);
    line[strcspn(line, "\n")] = '\0';
    glm_log(GLM_LOG_TRACE, "http: %s", line);
}

static enum glm_status start_daemon(struct glm_http *h, struct glm_error *err)
{
    h->daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME |
            MHD_USE_ERROR_LOG,
        0, NULL, NULL, on_request, h, MHD_OPTION_EXTERNAL_LOGGER, on_mhd_log, NULL,
        MHD_OPTION_LISTEN_SOCKET, h->socket, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, h, MHD_OPTION_THREAD_POOL_SIZE, HTTP_THREADS,
        MHD_OPTION_CONNECTION_LIMIT, GLM_MAX_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
        h->limits.stall_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)(64 << 10),
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    if (h->daemon == NULL)
        return glm_fail(err, GLM_EIO, "cannot start the HTTP server on %s:%u",
                        h->launch->listen_host, h->launch->listen_port);
    return GLM_OK;
}

/* On the monotonic clock, so that a clock that is set does not cut clients. */
static void init_unused(pthread_cond_t *unused)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(unused, &attributes);
    pthread_condattr_destroy(&attributes);
}

enum glm_status glm_http_start_with(const struct glm_launch_file *launch,
                                    const struct glm_plan *plan,
                                    const struct glm_http_limits *limits, struct glm_http **out,
                                    uint16_t *port, struct glm_error *err)
{
    struct glm_http *h = calloc(1, sizeof *h);
    if (h == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot start the HTTP server: out of memory");
    h->launch = launch;
    h->plan = plan;
    h->limits = *limits;
    h->socket = -1;
    h->started_s = (double)time(NULL);
    snprintf(h->why, sizeof h->why, "it is loading");
    pthread_mutex_init(&h->lock, NULL);
    init_unused(&h->unused);
    enum glm_status status = GLM_OK;
    if (launch->api_key_file != NULL && *launch->api_key_file != '\0')
        status = read_keys(h, launch->api_key_file, err);
    if (status == GLM_OK)
        status = bind_socket(h, port, err);
    if (status == GLM_OK)
        status = http_clients_new(limits, &h->clients, err);
    if (status == GLM_OK)
        status = start_daemon(h, err);
    if (status != GLM_OK) {
        glm_http_free(h);
        return status;
    }
    *out = h;
    return GLM_OK;
}

struct glm_http_limits glm_http_default_limits(const struct glm_launch_file *launch,
                                               const struct glm_plan *plan)
{
    return (struct glm_http_limits){
        .keepalive_ms = 15000,
        .idle_ms = 120000,
        .body_ms = 60000,
        .stall_s = 120,
        .held_bytes = glm_request_bytes(launch->max_body_bytes, plan->limits.window_tokens)};
}

enum glm_status glm_http_start(const struct glm_launch_file *launch, const struct glm_plan *plan,
                               struct glm_http **out, uint16_t *port, struct glm_error *err)
{
    const struct glm_http_limits limits = glm_http_default_limits(launch, plan);
    return glm_http_start_with(launch, plan, &limits, out, port, err);
}

static size_t longest_token(const struct glm_tokenizer *t)
{
    size_t longest = 1;
    struct buf bytes = {0};
    for (uint32_t id = 0; id < glm_tokenizer_size(t); id++) {
        buf_clear(&bytes);
        glm_tokenizer_bytes(t, (int32_t)id, false, &bytes);
        longest = bytes.len > longest ? bytes.len : longest;
    }
    buf_release(&bytes);
    return longest;
}

void glm_http_attach(struct glm_http *h, struct glm_scheduler *s, const struct glm_tokenizer *t)
{
    const size_t longest = longest_token(t);
    pthread_mutex_lock(&h->lock);
    h->tokenizer = t;
    h->longest_token_bytes = longest;
    h->scheduler = s;
    h->detaching = false;
    pthread_mutex_unlock(&h->lock);
}

static struct timespec grace_from_now(void)
{
    const uint64_t at = glm_now_ms() + DETACH_GRACE_MS;
    return (struct timespec){.tv_sec = (time_t)(at / 1000), .tv_nsec = (long)(at % 1000) * 1000000};
}

void glm_http_detach(struct glm_http *h, const char *why)
{
    pthread_mutex_lock(&h->lock);
    snprintf(h->why, sizeof h->why, "%s", why);
    h->detaching = true;
    struct timespec deadline = grace_from_now();
    while (h->n_using > 0) {
        if (pthread_cond_timedwait(&h->unused, &h->lock, &deadline) != ETIMEDOUT)
            continue;
        pthread_mutex_unlock(&h->lock);
        http_clients_cut_answers(h->clients);
        pthread_mutex_lock(&h->lock);
        deadline = grace_from_now();
    }
    h->scheduler = NULL;
    h->tokenizer = NULL;
    pthread_mutex_unlock(&h->lock);
}

void glm_http_free(struct glm_http *h)
{
    if (h == NULL)
        return;
    if (h->daemon != NULL) {
        glm_http_detach(h, "it is stopping");
        http_clients_stop(h->clients);
        MHD_stop_daemon(h->daemon);
    } else if (h->socket >= 0) {
        close(h->socket);
    }
    http_clients_free(h->clients);
    for (size_t i = 0; i < h->n_keys; i++) {
        OPENSSL_cleanse(h->keys[i], strlen(h->keys[i]));
        free(h->keys[i]);
    }
    pthread_cond_destroy(&h->unused);
    pthread_mutex_destroy(&h->lock);
    free(h);
}
