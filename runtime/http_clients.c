/* SPDX-License-Identifier: Apache-2.0 */
/* The list of connected clients and its thread. A client is found to have left by its socket's hang
 * up (a half-closed one counts as gone: nobody can tell it from one that closed); who sends headers
 * or a body too slowly is cut by shutting the socket down, which libmicrohttpd then closes.
 * What an answer is belongs to http.c and http_generation.c. */
#include "runtime/http_clients.h"

#include "runtime/http_exchange.h"
#include "runtime/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

struct http_client {
    struct http_clients *clients;
    struct http_client *next, *previous;
    int fd;
    uint64_t serial; /* names it in epoll events, which may come after it left */
    enum http_client_phase phase;
    uint64_t since_ms;
    uint64_t n_body_bytes;
    struct http_exchange *watched;
};

struct http_clients {
    struct glm_http_limits limits;
    pthread_t thread;
    int epoll, wake;
    pthread_mutex_t lock; /* everything below, and the clients' members */
    bool stopping;
    uint64_t n_arrived;
    struct http_client *first;
};

enum { N_EVENTS = 32, WAKE_SERIAL = 0 };

static void tell_who_left(struct http_clients *c, uint64_t serial)
{
    for (struct http_client *client = c->first; client != NULL; client = client->next)
        if (client->serial == serial && client->watched != NULL)
            generation_client_gone(client->watched->generation);
}

static bool too_slow(const struct http_clients *c, const struct http_client *client, uint64_t now)
{
    const uint64_t age = now - client->since_ms;
    switch (client->phase) {
    case HTTP_CLIENT_IDLE:
        return age > c->limits.idle_ms;
    case HTTP_CLIENT_BODY:
        return age > c->limits.body_ms + 1000 * (client->n_body_bytes / HTTP_BODY_BYTES_S);
    case HTTP_CLIENT_ANSWER:
        break;
    }
    return false;
}

static void tick(struct http_clients *c)
{
    const uint64_t now = glm_now_ms();
    for (struct http_client *client = c->first; client != NULL; client = client->next) {
        if (client->watched != NULL && c->limits.keepalive_ms > 0)
            generation_tick(client->watched, now, c->limits.keepalive_ms);
        if (too_slow(c, client, now))
            shutdown(client->fd, SHUT_RDWR);
    }
}

/* How often the shortest limit must be looked at. */
static int tick_ms(const struct glm_http_limits *l)
{
    uint32_t shortest = l->idle_ms < l->body_ms ? l->idle_ms : l->body_ms;
    if (l->keepalive_ms > 0 && l->keepalive_ms < shortest)
        shortest = l->keepalive_ms;
    const uint32_t ms = shortest / 4;
    return ms < 10 ? 10 : ms > 1000 ? 1000 : (int)ms;
}

static void *watch(void *argument)
{
    struct http_clients *c = argument;
    const int period_ms = tick_ms(&c->limits);
    uint64_t next_tick = glm_now_ms() + (uint64_t)period_ms;
    for (bool stopping = false; !stopping;) {
        struct epoll_event events[N_EVENTS];
        const int n = epoll_wait(c->epoll, events, N_EVENTS, period_ms);
        pthread_mutex_lock(&c->lock);
        stopping = c->stopping;
        for (int i = 0; i < n && !stopping; i++)
            if (events[i].data.u64 != WAKE_SERIAL)
                tell_who_left(c, events[i].data.u64);
        if (!stopping && glm_now_ms() >= next_tick) {
            next_tick = glm_now_ms() + (uint64_t)period_ms;
            tick(c);
        }
        pthread_mutex_unlock(&c->lock);
    }
    return NULL;
}

static void close_files(struct http_clients *c)
{
    if (c->epoll >= 0)
        close(c->epoll);
    if (c->wake >= 0)
        close(c->wake);
}

enum glm_status http_clients_new(const struct glm_http_limits *limits, struct http_clients **out,
                                 struct glm_error *err)
{
    struct http_clients *c = calloc(1, sizeof *c);
    if (c == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot watch clients: out of memory");
    c->limits = *limits;
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = WAKE_SERIAL};
    if (c->epoll < 0 || c->wake < 0 || epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->wake, &event) != 0) {
        enum glm_status status =
            glm_fail(err, GLM_EIO, "cannot watch clients: %s", strerror(errno));
        close_files(c);
        free(c);
        return status;
    }
    pthread_mutex_init(&c->lock, NULL);
    const int rc = pthread_create(&c->thread, NULL, watch, c);
    if (rc != 0) {
        pthread_mutex_destroy(&c->lock);
        close_files(c);
        free(c);
        return glm_fail(err, GLM_EIO, "cannot start a thread: %s", strerror(rc));
    }
    *out = c;
    return GLM_OK;
}

void http_clients_stop(struct http_clients *c)
{
    pthread_mutex_lock(&c->lock);
    const bool first = !c->stopping;
    c->stopping = true;
    pthread_mutex_unlock(&c->lock);
    if (!first)
        return;
    eventfd_write(c->wake, 1);
    pthread_join(c->thread, NULL);
}

void http_clients_free(struct http_clients *c)
{
    if (c == NULL)
        return;
    http_clients_stop(c);
    GLM_ASSERT(c->first == NULL);
    close_files(c);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

struct http_client *http_client_new(struct http_clients *c, int fd)
{
    struct http_client *client = calloc(1, sizeof *client);
    if (client == NULL)
        return NULL;
    client->clients = c;
    client->fd = fd;
    client->since_ms = glm_now_ms();
    pthread_mutex_lock(&c->lock);
    client->serial = WAKE_SERIAL + ++c->n_arrived;
    client->next = c->first;
    if (client->next != NULL)
        client->next->previous = client;
    c->first = client;
    pthread_mutex_unlock(&c->lock);
    return client;
}

void http_client_free(struct http_client *client)
{
    if (client == NULL)
        return;
    struct http_clients *c = client->clients;
    pthread_mutex_lock(&c->lock);
    if (client->previous != NULL)
        client->previous->next = client->next;
    else
        c->first = client->next;
    if (client->next != NULL)
        client->next->previous = client->previous;
    pthread_mutex_unlock(&c->lock);
    free(client);
}

void http_client_set_phase(struct http_client *client, enum http_client_phase phase)
{
    pthread_mutex_lock(&client->clients->lock);
    client->phase = phase;
    client->since_ms = glm_now_ms();
    client->n_body_bytes = 0;
    pthread_mutex_unlock(&client->clients->lock);
}

void http_client_took(struct http_client *client, size_t n_bytes)
{
    pthread_mutex_lock(&client->clients->lock);
    client->n_body_bytes += n_bytes;
    pthread_mutex_unlock(&client->clients->lock);
}

void http_client_watch(struct http_client *client, struct http_exchange *x)
{
    struct http_clients *c = client->clients;
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLHUP | EPOLLERR | EPOLLONESHOT,
                                .data.u64 = client->serial};
    pthread_mutex_lock(&c->lock);
    client->watched = x;
    if (epoll_ctl(c->epoll, EPOLL_CTL_ADD, client->fd, &event) != 0 && errno == EEXIST)
        epoll_ctl(c->epoll, EPOLL_CTL_MOD, client->fd, &event);
    pthread_mutex_unlock(&c->lock);
}

void http_client_unwatch(struct http_client *client)
{
    struct http_clients *c = client->clients;
    pthread_mutex_lock(&c->lock);
    if (client->watched != NULL)
        epoll_ctl(c->epoll, EPOLL_CTL_DEL, client->fd, NULL);
    client->watched = NULL;
    pthread_mutex_unlock(&c->lock);
}

void http_clients_cut_answers(struct http_clients *c)
{
    pthread_mutex_lock(&c->lock);
    for (struct http_client *client = c->first; client != NULL; client = client->next)
        if (client->phase == HTTP_CLIENT_ANSWER)
            shutdown(client->fd, SHUT_RDWR);
    pthread_mutex_unlock(&c->lock);
}
