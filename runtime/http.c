/* SPDX-License-Identifier: Apache-2.0 */
/* The server around the routes: binding, bodies, keys, error objects, suspended connections, and
 * the watcher that notices clients who left. What a route answers is in http_generation.c and
 * http_misc.c. */
#include "runtime/http_exchange.h"

#include "spec/base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    HTTP_THREADS = 4,
    MAX_CONNECTIONS = 512,
    IDLE_TIMEOUT_S = 120,
    EXCHANGE_ARENA_BYTES = 512 << 20,
    MAX_KEYS = 64,
    KEY_FILE_BYTES = 64 << 10,
    WATCH_TICK_MS = 1000
};

struct glm_http {
    const struct glm_launch_file *launch;
    const struct glm_plan *plan;
    struct MHD_Daemon *daemon;
    int socket;
    double started_s;
    char *keys[MAX_KEYS];
    size_t n_keys;

    pthread_mutex_t lock; /* guards the next six */
    pthread_cond_t unused;
    struct glm_scheduler *scheduler;
    const struct glm_tokenizer *tokenizer;
    unsigned n_using; /* exchanges that hold the lane */
    bool detaching;
    char why[256]; /* no lane is attached */

    pthread_t watcher;
    int epoll;
    bool stopping;
    pthread_mutex_t watch_lock; /* the list below; taken before an exchange's lock */
    struct http_exchange *watched;
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

/* From here to the exchange's end the lane stays attached. */
static void acquire_lane(struct http_exchange *x)
{
    struct glm_http *h = x->server;
    pthread_mutex_lock(&h->lock);
    if (x->scheduler == NULL && h->scheduler != NULL && !h->detaching) {
        x->scheduler = h->scheduler;
        x->tokenizer = h->tokenizer;
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

/* ---- answers ---- */

static void json_or_null(const char *text, struct buf *out)
{
    if (text == NULL)
        buf_str(out, "null");
    else
        buf_json_string(out, text, strlen(text));
}

void http_error_object(const char *type, const char *code, const char *param, const char *message,
                       struct buf *out)
{
    buf_str(out, "{\"error\":{\"message\":");
    json_or_null(message, out);
    buf_str(out, ",\"type\":");
    json_or_null(type, out);
    buf_str(out, ",\"param\":");
    json_or_null(param, out);
    buf_str(out, ",\"code\":");
    json_or_null(code, out);
    buf_str(out, "}}");
}

void http_add_headers(struct MHD_Response *response)
{
    MHD_add_response_header(response, "Access-Control-Allow-Origin", "*");
}

static enum MHD_Result queue(struct http_exchange *x, unsigned status, const char *content_type,
                             struct buf *body, const char *header, const char *value)
{
    struct MHD_Response *response =
        body->failed
            ? NULL
            : MHD_create_response_from_buffer(body->len, body->data, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        buf_release(body);
        return MHD_NO;
    }
    *body = (struct buf){0}; /* the response owns the bytes now */
    MHD_add_response_header(response, "Content-Type", content_type);
    http_add_headers(response);
    if (header != NULL)
        MHD_add_response_header(response, header, value);
    if (x->refused)
        MHD_add_response_header(response, "Connection", "close");
    enum MHD_Result result = MHD_queue_response(x->connection, status, response);
    MHD_destroy_response(response);
    return result;
}

enum MHD_Result http_answer(struct http_exchange *x, unsigned status, const char *content_type,
                            struct buf *body)
{
    return queue(x, status, content_type, body, NULL, NULL);
}

enum MHD_Result http_answer_error(struct http_exchange *x, const struct http_error *e)
{
    struct buf body = {0};
    http_error_object(e->type, e->code, e->param, e->message, &body);
    return queue(x, e->status, "application/json", &body, e->header, e->header_value);
}

enum MHD_Result http_answer_invalid(struct http_exchange *x, const char *param, const char *code,
                                    const char *message)
{
    return http_answer_error(x, &(struct http_error){.status = 400,
                                                     .type = "invalid_request_error",
                                                     .code = code,
                                                     .param = param,
                                                     .message = message});
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

static bool key_fits(const struct glm_http *h, const char *given)
{
    /* Every key is compared, each in time that depends on lengths alone. */
    bool fits = false;
    const size_t len = strlen(given);
    for (size_t i = 0; i < h->n_keys; i++) {
        const bool same = strlen(h->keys[i]) == len && CRYPTO_memcmp(h->keys[i], given, len) == 0;
        fits |= same;
    }
    return fits;
}

static bool authorised(const struct http_exchange *x)
{
    const struct glm_http *h = x->server;
    if (h->n_keys == 0 || x->route->open)
        return true;
    const char *bearer =
        MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "Authorization");
    if (bearer != NULL && strncasecmp(bearer, "Bearer ", 7) == 0)
        return key_fits(h, bearer + 7 + strspn(bearer + 7, " "));
    const char *key = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "x-api-key");
    return key != NULL && key_fits(h, key);
}

/* ---- suspended connections ---- */

bool http_sleep(struct http_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    bool sleeps = !x->woken;
    x->woken = false;
    if (sleeps) {
        x->suspended = true;
        MHD_suspend_connection(x->connection);
    }
    pthread_mutex_unlock(&x->lock);
    return sleeps;
}

void http_wake(struct http_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    if (x->suspended) {
        x->suspended = false;
        MHD_resume_connection(x->connection);
    } else {
        x->woken = true;
    }
    pthread_mutex_unlock(&x->lock);
}

void http_watch(struct http_exchange *x)
{
    struct glm_http *h = x->server;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLHUP | EPOLLERR | EPOLLONESHOT,
                                .data.fd = info == NULL ? -1 : info->connect_fd};
    pthread_mutex_lock(&h->watch_lock);
    x->next = h->watched;
    if (x->next != NULL)
        x->next->previous = x;
    h->watched = x;
    x->watched = true;
    if (info != NULL && epoll_ctl(h->epoll, EPOLL_CTL_ADD, info->connect_fd, &event) != 0 &&
        errno == EEXIST)
        epoll_ctl(h->epoll, EPOLL_CTL_MOD, info->connect_fd, &event);
    pthread_mutex_unlock(&h->watch_lock);
}

void http_unwatch(struct http_exchange *x)
{
    struct glm_http *h = x->server;
    pthread_mutex_lock(&h->watch_lock);
    if (x->watched) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        if (info != NULL)
            epoll_ctl(h->epoll, EPOLL_CTL_DEL, info->connect_fd, NULL);
        if (x->previous != NULL)
            x->previous->next = x->next;
        else
            h->watched = x->next;
        if (x->next != NULL)
            x->next->previous = x->previous;
        x->next = x->previous = NULL;
        x->watched = false;
    }
    pthread_mutex_unlock(&h->watch_lock);
}

static double monotonic_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct http_exchange *watched_by_socket(struct glm_http *h, int fd)
{
    for (struct http_exchange *x = h->watched; x != NULL; x = x->next) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        if (info != NULL && info->connect_fd == fd)
            return x;
    }
    return NULL;
}

static void *watch(void *argument)
{
    struct glm_http *h = argument;
    double next_tick = monotonic_s() + 1;
    for (;;) {
        struct epoll_event events[16];
        int n = epoll_wait(h->epoll, events, 16, WATCH_TICK_MS);
        pthread_mutex_lock(&h->watch_lock);
        if (h->stopping)
            break;
        for (int i = 0; i < n; i++) {
            struct http_exchange *x = watched_by_socket(h, events[i].data.fd);
            if (x != NULL && x->generation != NULL)
                generation_client_gone(x->generation);
        }
        const double now = monotonic_s();
        if (now >= next_tick) {
            next_tick = now + 1;
            for (struct http_exchange *x = h->watched; x != NULL; x = x->next)
                generation_tick(x, now);
        }
        pthread_mutex_unlock(&h->watch_lock);
    }
    pthread_mutex_unlock(&h->watch_lock);
    return NULL;
}

/* ---- an exchange from first header to last byte ---- */

static bool route_matches(const struct http_route *r, const char *path)
{
    size_t n = strlen(r->path);
    if (r->path[n - 1] != '*')
        return strcmp(r->path, path) == 0;
    return strncmp(r->path, path, n - 1) == 0 && path[n - 1] != '\0' &&
           strchr(path + n - 1, '/') == NULL;
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
    struct http_exchange *x = calloc(1, sizeof *x);
    if (x == NULL)
        return NULL;
    x->server = h;
    x->connection = connection;
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
    MHD_add_response_header(response, "Access-Control-Allow-Headers", "*");
    MHD_add_response_header(response, "Access-Control-Max-Age", "86400");
    enum MHD_Result result = MHD_queue_response(x->connection, 204, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer_no_route(struct http_exchange *x, const char *method)
{
    char message[512];
    const struct http_route *other = NULL;
    for (size_t i = 0; i < N_ROUTES; i++)
        if (route_matches(&routes[i], x->path))
            other = &routes[i];
    if (other != NULL) {
        snprintf(message, sizeof message, "%.20s is not allowed on %.200s, use %s", method, x->path,
                 other->method);
        return http_answer_error(x, &(struct http_error){.status = 405,
                                                         .type = "invalid_request_error",
                                                         .message = message,
                                                         .header = "Allow",
                                                         .header_value = other->method});
    }
    snprintf(message, sizeof message, "there is no %.200s here", x->path);
    return http_answer_error(
        x,
        &(struct http_error){.status = 404, .type = "invalid_request_error", .message = message});
}

static enum MHD_Result answer_not_ready(struct http_exchange *x)
{
    char message[300];
    snprintf(message, sizeof message, "the model is not being served: %s", x->why);
    return http_answer_error(x, &(struct http_error){.status = 503,
                                                     .type = "unavailable_error",
                                                     .message = message,
                                                     .header = "Retry-After",
                                                     .header_value = "5"});
}

static enum MHD_Result answer_too_large(struct http_exchange *x)
{
    char message[200];
    snprintf(message, sizeof message, "the body is larger than the limit of %llu bytes",
             (unsigned long long)x->server->launch->max_body_bytes);
    x->refused = true;
    return http_answer_error(x, &(struct http_error){.status = 413,
                                                     .type = "invalid_request_error",
                                                     .code = "request_too_large",
                                                     .message = message});
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
    return content_type == NULL || strncasecmp(content_type, "application/json", 16) == 0 ||
           strncasecmp(content_type, "text/json", 9) == 0;
}

/* What can be refused before the body is read: an answer now means that it never is. */
static enum MHD_Result begin(struct http_exchange *x, const char *url, const char *method,
                             bool *answered)
{
    struct glm_http *h = x->server;
    *answered = true;
    x->path = normal_path(x, url);
    if (x->path == NULL)
        return MHD_NO;
    if (strcmp(method, "OPTIONS") == 0)
        return answer_options(x);
    const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
    for (size_t i = 0; i < N_ROUTES && x->route == NULL; i++)
        if (route_matches(&routes[i], x->path) && strcmp(routes[i].method, wanted) == 0)
            x->route = &routes[i];
    x->refused = strcmp(method, "POST") == 0;
    if (x->route == NULL)
        return answer_no_route(x, method);
    if (!authorised(x))
        return http_answer_error(x, &(struct http_error){.status = 401,
                                                         .type = "invalid_request_error",
                                                         .code = "invalid_api_key",
                                                         .message = "missing or wrong API key",
                                                         .header = "WWW-Authenticate",
                                                         .header_value = "Bearer"});
    if (!x->route->idle && !lane_attached(x))
        return answer_not_ready(x);
    const char *type = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "Content-Type");
    if (strcmp(method, "POST") == 0 && !is_json_type(type)) {
        char message[300];
        snprintf(message, sizeof message,
                 "content type '%.100s' is not JSON: send 'Content-Type: application/json'", type);
        return http_answer_error(x, &(struct http_error){.status = 415,
                                                         .type = "invalid_request_error",
                                                         .message = message});
    }
    const char *length =
        MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "Content-Length");
    if (length != NULL && strtoull(length, NULL, 10) > h->launch->max_body_bytes)
        return answer_too_large(x);
    x->refused = false;
    *answered = false;
    return MHD_YES;
}

/* A body over the limit without a Content-Length is dropped as it comes, and the connection with it
 * once it is twice the limit. */
static enum MHD_Result take_body(struct http_exchange *x, const char *bytes, size_t *n)
{
    const uint64_t limit = x->server->launch->max_body_bytes;
    if (x->dropped_bytes > 0 || x->body.len + *n > limit)
        x->dropped_bytes += *n;
    else
        buf_add(&x->body, bytes, *n);
    *n = 0;
    return x->dropped_bytes > limit || x->body.failed ? MHD_NO : MHD_YES;
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
        bool answered;
        return begin(x, url, method, &answered);
    }
    if (*upload_size > 0)
        return take_body(x, upload, upload_size);
    if (x->generation != NULL)
        return generation_continue(x);
    if (x->dropped_bytes > 0)
        return answer_too_large(x);
    /* The lane may have gone while the body came. */
    acquire_lane(x);
    if (!x->route->idle && x->scheduler == NULL)
        return answer_not_ready(x);
    return x->route->handle(x);
}

static void on_completed(void *context, struct MHD_Connection *connection, void **exchange,
                         enum MHD_RequestTerminationCode code)
{
    struct http_exchange *x = *exchange;
    (void)context;
    (void)connection;
    if (x == NULL)
        return;
    http_unwatch(x);
    if (x->generation != NULL) {
        if (code != MHD_REQUEST_TERMINATED_COMPLETED_OK)
            generation_client_gone(x->generation);
        generation_free(x->generation);
    }
    release_lane(x);
    pthread_mutex_destroy(&x->lock);
    buf_release(&x->body);
    arena_release(&x->arena);
    free(x);
    *exchange = NULL;
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
        struct sockaddr_storage bound;
        socklen_t len = sizeof bound;
        getsockname(h->socket, (struct sockaddr *)&bound, &len);
        *port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                  : ((struct sockaddr_in *)&bound)->sin_port);
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
        0, NULL, NULL, on_request, h, MHD_OPTION_LISTEN_SOCKET, h->socket,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_THREAD_POOL_SIZE, HTTP_THREADS,
        MHD_OPTION_CONNECTION_LIMIT, MAX_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, IDLE_TIMEOUT_S,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)(64 << 10), MHD_OPTION_EXTERNAL_LOGGER,
        on_mhd_log, NULL, MHD_OPTION_END);
    if (h->daemon == NULL)
        return glm_fail(err, GLM_EIO, "cannot start the HTTP server on %s:%u",
                        h->launch->listen_host, h->launch->listen_port);
    return GLM_OK;
}

enum glm_status glm_http_start(const struct glm_launch_file *launch, const struct glm_plan *plan,
                               struct glm_http **out, uint16_t *port, struct glm_error *err)
{
    struct glm_http *h = calloc(1, sizeof *h);
    if (h == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot start the HTTP server: out of memory");
    h->launch = launch;
    h->plan = plan;
    h->socket = h->epoll = -1;
    h->started_s = (double)time(NULL);
    snprintf(h->why, sizeof h->why, "it is loading");
    pthread_mutex_init(&h->lock, NULL);
    pthread_mutex_init(&h->watch_lock, NULL);
    pthread_cond_init(&h->unused, NULL);
    enum glm_status status = GLM_OK;
    if (launch->api_key_file != NULL && *launch->api_key_file != '\0')
        status = read_keys(h, launch->api_key_file, err);
    if (status == GLM_OK)
        status = bind_socket(h, port, err);
    if (status == GLM_OK && (h->epoll = epoll_create1(EPOLL_CLOEXEC)) < 0)
        status = glm_fail(err, GLM_EIO, "cannot watch clients: %s", strerror(errno));
    if (status == GLM_OK)
        status = start_daemon(h, err);
    if (status == GLM_OK) {
        int rc = pthread_create(&h->watcher, NULL, watch, h);
        if (rc != 0) {
            status = glm_fail(err, GLM_EIO, "cannot start a thread: %s", strerror(rc));
            MHD_stop_daemon(h->daemon);
            h->daemon = NULL;
            h->socket = -1;
        }
    }
    if (status != GLM_OK) {
        glm_http_free(h);
        return status;
    }
    *out = h;
    return GLM_OK;
}

void glm_http_attach(struct glm_http *h, struct glm_scheduler *s, const struct glm_tokenizer *t)
{
    pthread_mutex_lock(&h->lock);
    h->tokenizer = t;
    h->scheduler = s;
    h->detaching = false;
    pthread_mutex_unlock(&h->lock);
}

void glm_http_detach(struct glm_http *h, const char *why)
{
    pthread_mutex_lock(&h->lock);
    snprintf(h->why, sizeof h->why, "%s", why);
    h->detaching = true;
    while (h->n_using > 0)
        pthread_cond_wait(&h->unused, &h->lock);
    h->scheduler = NULL;
    h->tokenizer = NULL;
    pthread_mutex_unlock(&h->lock);
}

void glm_http_free(struct glm_http *h)
{
    if (h == NULL)
        return;
    if (h->daemon != NULL) {
        pthread_mutex_lock(&h->watch_lock);
        h->stopping = true;
        pthread_mutex_unlock(&h->watch_lock);
        pthread_join(h->watcher, NULL);
        MHD_stop_daemon(h->daemon);
    } else if (h->socket >= 0) {
        close(h->socket);
    }
    if (h->epoll >= 0)
        close(h->epoll);
    for (size_t i = 0; i < h->n_keys; i++) {
        OPENSSL_cleanse(h->keys[i], strlen(h->keys[i]));
        free(h->keys[i]);
    }
    pthread_cond_destroy(&h->unused);
    pthread_mutex_destroy(&h->watch_lock);
    pthread_mutex_destroy(&h->lock);
    free(h);
}
