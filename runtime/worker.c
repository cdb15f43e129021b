/* SPDX-License-Identifier: Apache-2.0 */
/* The worker thread of a rank: links, engine, then follow or serve, and back down in reverse. One
 * mutex guards what the control thread and the worker share; no lock is held while the worker
 * loads, follows or stops a server, so that control always gets an answer. */
#include "runtime/worker.h"

#include "runtime/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct glm_worker {
    const struct glm_lane_info *lane;
    struct glm_link_listener *listener;
    struct glm_link_address *addresses; /* [world] */
    pthread_t thread;
    bool started;
    int event_fd;
    _Atomic uint64_t heard_ms[GLM_LINK_MAX_WORLD];

    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t wanted;
    bool serve_wanted, stop_wanted, abort_wanted;
    struct glm_worker_status status;
    struct glm_collective *collective;
    void *server;
};

static const char *const phase_texts[] = {"listening", "linking", "loading",
                                          "ready",     "serving", "ended"};

const char *glm_worker_phase_text(enum glm_worker_phase phase)
{
    return phase_texts[phase];
}

/* The counter of an eventfd only overflows when nobody reads it: then it is readable already. */
static void tell(struct glm_worker *w)
{
    uint64_t one = 1;
    if (write(w->event_fd, &one, sizeof one) < 0)
        return;
}

static void enter(struct glm_worker *w, enum glm_worker_phase phase)
{
    pthread_mutex_lock(&w->mutex);
    w->status.phase = phase;
    pthread_mutex_unlock(&w->mutex);
    tell(w);
}

static void note_progress(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    struct glm_worker *w = context;
    pthread_mutex_lock(&w->mutex);
    w->status.done_bytes = done_bytes;
    w->status.total_bytes = total_bytes;
    pthread_mutex_unlock(&w->mutex);
    tell(w);
}

static int peer_alive(void *context, uint32_t peer)
{
    struct glm_worker *w = context;
    uint64_t heard = atomic_load_explicit(&w->heard_ms[peer], memory_order_relaxed);
    return glm_now_ms() - heard < w->lane->times.dead_ms;
}

/* ---- The thread ---- */

static enum glm_status link_up(struct glm_worker *w, struct glm_error *err)
{
    const struct glm_lane_info *lane = w->lane;
    struct glm_link *links[GLM_LINK_MAX_WORLD] = {NULL};
    struct glm_collective *c = NULL;
    if (lane->world == 1)
        return GLM_OK;
    struct glm_link_listener *listener = w->listener;
    w->listener = NULL;
    enum glm_status status =
        glm_link_connect(listener, w->addresses, lane->times.link_ms, links, err);
    if (status != GLM_OK)
        return status;
    for (uint32_t i = 0; i < lane->world; i++)
        if (links[i] != NULL)
            links[i]->spin = lane->spin;
    status = glm_collective_new(lane->rank, lane->world, links, lane->max_message,
                                lane->times.dead_ms, peer_alive, w, &c, err);
    if (status != GLM_OK)
        return status;
    pthread_mutex_lock(&w->mutex);
    w->collective = c;
    if (w->abort_wanted)
        glm_collective_abort(c);
    pthread_mutex_unlock(&w->mutex);
    return GLM_OK;
}

static enum glm_status open_engine(struct glm_worker *w, void **engine, struct glm_error *err)
{
    struct glm_open_config config = {
        .collective = w->collective, .progress = note_progress, .progress_context = w};
    uint64_t memory_bytes = 0;
    const struct glm_service *service = &w->lane->service;
    enum glm_status status = service->open(service->context, &config, engine, &memory_bytes, err);
    pthread_mutex_lock(&w->mutex);
    w->status.memory_bytes = memory_bytes;
    pthread_mutex_unlock(&w->mutex);
    return status;
}

/* Rank 0 waits until all are ready, serves, and waits until the end is wanted. */
static enum glm_status serve(struct glm_worker *w, void *engine, struct glm_error *err)
{
    const struct glm_service *service = &w->lane->service;
    pthread_mutex_lock(&w->mutex);
    while (!w->serve_wanted && !w->stop_wanted && !w->abort_wanted)
        pthread_cond_wait(&w->wanted, &w->mutex);
    bool go = w->serve_wanted && !w->stop_wanted && !w->abort_wanted;
    pthread_mutex_unlock(&w->mutex);
    if (!go)
        return GLM_OK;

    void *server = NULL;
    enum glm_status status = service->start(service->context, engine, &server, err);
    if (status != GLM_OK)
        return status;
    pthread_mutex_lock(&w->mutex);
    w->server = server;
    w->status.phase = GLM_WORKER_SERVING;
    tell(w);
    while (!w->stop_wanted && !w->abort_wanted)
        pthread_cond_wait(&w->wanted, &w->mutex);
    w->server = NULL;
    const char *why = w->abort_wanted ? "a rank was lost, it is restarting" : "it is stopping";
    pthread_mutex_unlock(&w->mutex);
    service->stop(server, why);
    return GLM_OK;
}

static enum glm_status run(struct glm_worker *w, struct glm_error *err)
{
    const struct glm_service *service = &w->lane->service;
    void *engine = NULL;
    enter(w, GLM_WORKER_LINKING);
    enum glm_status status = link_up(w, err);
    if (status != GLM_OK)
        return status;
    enter(w, GLM_WORKER_LOADING);
    status = open_engine(w, &engine, err);
    if (status != GLM_OK)
        return status;
    enter(w, GLM_WORKER_READY);
    status = w->lane->rank == 0 ? serve(w, engine, err) : service->follow(engine, err);
    service->close(engine);
    return status;
}

static void *worker_main(void *argument)
{
    struct glm_worker *w = argument;
    struct glm_error err = {0};
    enum glm_status status = run(w, &err);
    pthread_mutex_lock(&w->mutex);
    struct glm_collective *c = w->collective;
    w->collective = NULL;
    /* Known before the others can see and report that they lost this rank. */
    w->status.error = err;
    w->status.error.status = status;
    pthread_mutex_unlock(&w->mutex);
    glm_collective_free(c); /* the other ranks see it at once */
    pthread_mutex_lock(&w->mutex);
    w->status.phase = GLM_WORKER_ENDED;
    pthread_mutex_unlock(&w->mutex);
    tell(w);
    return NULL;
}

/* ---- The control thread's side ---- */

enum glm_status glm_worker_new(const struct glm_lane_info *lane, const uint8_t secret[32],
                               struct glm_worker **out, struct glm_link_address *address,
                               struct glm_error *err)
{
    struct glm_worker *w = calloc(1, sizeof *w);
    if (w != NULL)
        w->addresses = calloc(lane->world, sizeof *w->addresses);
    if (w == NULL || w->addresses == NULL) {
        free(w);
        return glm_fail(err, GLM_ENOMEM, "cannot start rank %u: out of memory", lane->rank);
    }
    w->lane = lane;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->wanted, NULL);
    enum glm_status status = GLM_OK;
    w->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (w->event_fd < 0)
        status = glm_fail(err, GLM_EIO, "cannot start rank %u: %s", lane->rank, strerror(errno));
    *address = (struct glm_link_address){0};
    if (status == GLM_OK && lane->world > 1)
        status = glm_link_listen(lane->transport, lane->link_host, lane->rank, lane->world,
                                 lane->max_message, secret, &w->listener, address, err);
    if (status == GLM_OK)
        *out = w;
    else
        glm_worker_free(w);
    return status;
}

enum glm_status glm_worker_go(struct glm_worker *w, const struct glm_link_address *addresses,
                              struct glm_error *err)
{
    memcpy(w->addresses, addresses, w->lane->world * sizeof *addresses);
    for (uint32_t i = 0; i < w->lane->world; i++)
        glm_worker_heard(w, i);
    int rc = pthread_create(&w->thread, NULL, worker_main, w);
    if (rc != 0)
        return glm_fail(err, GLM_EIO, "cannot start rank %u's thread: %s", w->lane->rank,
                        strerror(rc));
    w->started = true;
    return GLM_OK;
}

static void want(struct glm_worker *w, bool *what)
{
    pthread_mutex_lock(&w->mutex);
    *what = true;
    if (w->abort_wanted && w->collective != NULL)
        glm_collective_abort(w->collective);
    pthread_cond_broadcast(&w->wanted);
    pthread_mutex_unlock(&w->mutex);
}

void glm_worker_serve(struct glm_worker *w)
{
    want(w, &w->serve_wanted);
}

void glm_worker_stop(struct glm_worker *w)
{
    want(w, &w->stop_wanted);
}

void glm_worker_abort(struct glm_worker *w)
{
    want(w, &w->abort_wanted);
}

int glm_worker_fd(const struct glm_worker *w)
{
    return w->event_fd;
}

void glm_worker_status(struct glm_worker *w, struct glm_worker_status *out)
{
    uint64_t count;
    if (read(w->event_fd, &count, sizeof count) < 0)
        count = 0; /* nothing new; what is known is still told */
    pthread_mutex_lock(&w->mutex);
    if (w->server != NULL)
        w->lane->service.watch(w->server, &w->status.watch);
    if (w->collective != NULL)
        w->status.rounds = glm_collective_stats(w->collective).n_lists;
    *out = w->status;
    pthread_mutex_unlock(&w->mutex);
}

void glm_worker_stats(struct glm_worker *w, struct buf *json)
{
    pthread_mutex_lock(&w->mutex);
    if (w->server != NULL)
        w->lane->service.stats(w->server, json);
    else
        buf_str(json, "{}");
    pthread_mutex_unlock(&w->mutex);
}

void glm_worker_heard(struct glm_worker *w, uint32_t peer)
{
    atomic_store_explicit(&w->heard_ms[peer], glm_now_ms(), memory_order_relaxed);
}

enum glm_status glm_worker_free(struct glm_worker *w)
{
    if (w == NULL)
        return GLM_OK;
    if (w->started) {
        struct glm_worker_status status;
        glm_worker_status(w, &status);
        if (status.phase != GLM_WORKER_ENDED)
            return GLM_EBUSY;
        pthread_join(w->thread, NULL);
    }
    glm_link_listener_free(w->listener);
    if (w->event_fd >= 0)
        close(w->event_fd);
    pthread_cond_destroy(&w->wanted);
    pthread_mutex_destroy(&w->mutex);
    free(w->addresses);
    free(w);
    return GLM_OK;
}
