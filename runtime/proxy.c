/* SPDX-License-Identifier: Apache-2.0 */
/* The proxy's thread and its queue (see the header). Owns when the host looks for a ring; what an
 * exchange is, is the collective's. */
#include "runtime/proxy.h"

#include "runtime/clock.h"
#include "runtime/threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

/* While something is expected the proxy looks without a pause for longer than a decode step
 * computes between two exchanges. Then it naps for a part of the time that it has waited: what a
 * prompt's long step loses by it is lost in its computing. */
enum { SPIN_NS = 2000000, TURNS = 64, NAP_PART = 64, MAX_NAP_NS = 500000, NAP_SLACK_NS = 1000 };

struct expected {
    struct glm_collective_step *step;
    size_t bytes;
};

struct glm_proxy {
    struct glm_proxy_words *words;
    pthread_t thread;
    bool started;
    atomic_bool forgetting; /* no ring will come */
    pthread_mutex_t lock;   /* of all below */
    pthread_cond_t wanted;  /* something is expected, or the thread must end */
    pthread_cond_t over;    /* nothing is expected any more */
    bool stopping;
    uint32_t capacity, first, n;
    uint64_t ns;
    enum glm_status failed;
    struct glm_error error;
    struct expected queue[]; /* [capacity] */
};

/* False: it was forgotten. Gives way to others each turn, since cores may be short. */
static bool await_ring(struct glm_proxy *p)
{
    const uint64_t began = glm_now_ns();
    for (;;) {
        for (int i = 0; i < TURNS; i++) {
            if (atomic_load_explicit(&p->words->rung, memory_order_acquire) != 0)
                return true;
            glm_relax();
        }
        if (atomic_load_explicit(&p->forgetting, memory_order_relaxed))
            return false;
        const uint64_t waited = glm_now_ns() - began, part = waited / NAP_PART;
        const struct timespec nap = {.tv_nsec = part < MAX_NAP_NS ? (long)part : MAX_NAP_NS};
        if (waited < SPIN_NS)
            sched_yield();
        else
            nanosleep(&nap, NULL);
    }
}

/* One exchange from its ring on; returns its nanoseconds. `failed` is this thread's to write, so it
 * may read it without the lock. */
static uint64_t exchange(struct glm_proxy *p, struct expected e, enum glm_status *status,
                         struct glm_error *err)
{
    const uint64_t began = glm_now_ns();
    atomic_store_explicit(&p->words->rung, 0, memory_order_relaxed);
    if (p->failed == GLM_OK && e.bytes > 0)
        *status = glm_collective_run(e.step, e.bytes, err);
    const uint64_t ns = glm_now_ns() - began;
    atomic_store_explicit(&p->words->done, 1, memory_order_release);
    return ns;
}

static void *serve(void *context)
{
    struct glm_proxy *p = context;
    prctl(PR_SET_TIMERSLACK, NAP_SLACK_NS); /* of this thread; without it a nap takes 50 us more */
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (p->n == 0 && !p->stopping)
            pthread_cond_wait(&p->wanted, &p->lock);
        if (p->n == 0)
            break;
        const struct expected e = p->queue[p->first];
        enum glm_status status = GLM_OK;
        struct glm_error err = {0};
        uint64_t ns = 0;
        pthread_mutex_unlock(&p->lock);
        const bool rung = await_ring(p);
        if (rung)
            ns = exchange(p, e, &status, &err);
        pthread_mutex_lock(&p->lock);
        p->first = (p->first + 1) % p->capacity;
        p->n = rung ? p->n - 1 : 0;
        p->ns += ns;
        if (status != GLM_OK) {
            p->failed = status;
            p->error = err;
        }
        if (p->n == 0)
            pthread_cond_broadcast(&p->over);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

enum glm_status glm_proxy_new(struct glm_proxy_words *words, uint32_t capacity,
                              struct glm_proxy **out, struct glm_error *err)
{
    struct glm_proxy *p = calloc(1, sizeof *p + capacity * sizeof p->queue[0]);
    if (p == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot expect %u exchanges: out of memory", capacity);
    p->words = words;
    p->capacity = capacity;
    atomic_store(&words->rung, 0);
    atomic_store(&words->done, 0);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wanted, NULL);
    pthread_cond_init(&p->over, NULL);
    p->started = pthread_create(&p->thread, NULL, serve, p) == 0;
    if (!p->started) {
        glm_proxy_free(p);
        return glm_fail(err, GLM_ENOMEM, "cannot start the thread that runs exchanges");
    }
    *out = p;
    return GLM_OK;
}

void glm_proxy_free(struct glm_proxy *p)
{
    if (p == NULL)
        return;
    if (p->started) {
        pthread_mutex_lock(&p->lock);
        atomic_store(&p->forgetting, true);
        p->stopping = true;
        pthread_cond_broadcast(&p->wanted);
        pthread_mutex_unlock(&p->lock);
        pthread_join(p->thread, NULL);
    }
    pthread_cond_destroy(&p->over);
    pthread_cond_destroy(&p->wanted);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

uint32_t glm_proxy_room(struct glm_proxy *p)
{
    pthread_mutex_lock(&p->lock);
    const uint32_t room = p->capacity - p->n;
    pthread_mutex_unlock(&p->lock);
    return room;
}

bool glm_proxy_is_idle(struct glm_proxy *p)
{
    return glm_proxy_room(p) == p->capacity;
}

void glm_proxy_expect(struct glm_proxy *p, struct glm_collective_step *step, size_t bytes)
{
    pthread_mutex_lock(&p->lock);
    GLM_ASSERT(p->n < p->capacity);
    p->queue[(p->first + p->n) % p->capacity] = (struct expected){step, bytes};
    p->n++;
    pthread_cond_signal(&p->wanted);
    pthread_mutex_unlock(&p->lock);
}

enum glm_status glm_proxy_wait(struct glm_proxy *p, uint64_t *ns, struct glm_error *err)
{
    pthread_mutex_lock(&p->lock);
    while (p->n > 0)
        pthread_cond_wait(&p->over, &p->lock);
    const enum glm_status status = p->failed;
    *ns += p->ns;
    p->ns = 0;
    if (status != GLM_OK)
        glm_fail(err, status, "%s", p->error.message);
    pthread_mutex_unlock(&p->lock);
    return status;
}

void glm_proxy_forget(struct glm_proxy *p)
{
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->forgetting, true);
    while (p->n > 0)
        pthread_cond_wait(&p->over, &p->lock);
    atomic_store(&p->forgetting, false);
    pthread_mutex_unlock(&p->lock);
}
