/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that looks after the ranks (see the header). Owns when it looks; what a lost rank is,
 * is the collective's. */
#include "runtime/watch.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { LOOK_NS = 20000000, SECOND_NS = 1000000000 };

struct glm_watch {
    struct glm_collective *collective;
    struct glm_watch_ops ops;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    bool looking, asleep, given_up, stopping;
    enum glm_status lost;
    struct glm_error error;
};

/* With the lock. */
static void look(struct glm_watch *w)
{
    if (w->lost == GLM_OK)
        w->lost = glm_collective_look(w->collective, &w->error);
    if (w->lost == GLM_OK && w->ops.look != NULL)
        w->lost = w->ops.look(w->ops.context, &w->error);
}

static void sleep_on(struct glm_watch *w)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LOOK_NS;
    until.tv_sec += until.tv_nsec / SECOND_NS;
    until.tv_nsec %= SECOND_NS;
    pthread_cond_timedwait(&w->changed, &w->lock, &until);
}

static void *look_on(void *context)
{
    struct glm_watch *w = context;
    pthread_mutex_lock(&w->lock);
    while (!w->stopping || (w->lost != GLM_OK && !w->given_up)) {
        if (w->lost == GLM_OK && w->looking)
            look(w);
        if (w->lost != GLM_OK &&
            !w->given_up) { /* without the lock: the stream's end may free it */
            w->given_up = true;
            pthread_mutex_unlock(&w->lock);
            w->ops.give_up(w->ops.context);
            pthread_mutex_lock(&w->lock);
        } else if (w->lost == GLM_OK && w->looking) {
            sleep_on(w);
        } else {
            w->asleep = true;
            pthread_cond_wait(&w->changed, &w->lock);
            w->asleep = false;
        }
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

enum glm_status glm_watch_new(struct glm_collective *collective, struct glm_watch_ops ops,
                              struct glm_watch **out, struct glm_error *err)
{
    struct glm_watch *w = calloc(1, sizeof *w);
    if (w == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot look after ranks: out of memory");
    w->collective = collective;
    w->ops = ops;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    w->started = pthread_create(&w->thread, NULL, look_on, w) == 0;
    if (!w->started) {
        glm_watch_free(w);
        return glm_fail(err, GLM_ENOMEM, "cannot start the thread that looks after ranks");
    }
    *out = w;
    return GLM_OK;
}

void glm_watch_free(struct glm_watch *w)
{
    if (w == NULL)
        return;
    if (w->started) {
        pthread_mutex_lock(&w->lock);
        w->stopping = true;
        pthread_cond_signal(&w->changed);
        pthread_mutex_unlock(&w->lock);
        pthread_join(w->thread, NULL);
    }
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

void glm_watch_note(struct glm_watch *w, enum glm_collective_kind kind, size_t bytes)
{
    pthread_mutex_lock(&w->lock);
    glm_collective_note(w->collective, kind, bytes);
    pthread_mutex_unlock(&w->lock);
}

void glm_watch_begin(struct glm_watch *w)
{
    pthread_mutex_lock(&w->lock);
    w->looking = true;
    if (w->asleep) /* else it looks again by itself: rounds that follow each other wake nobody */
        pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

enum glm_status glm_watch_end(struct glm_watch *w, bool failed, struct glm_error *err)
{
    pthread_mutex_lock(&w->lock);
    if (failed && w->looking) /* by a rank that took its memory along? */
        look(w);
    w->looking = false;
    const enum glm_status lost = w->lost;
    if (lost != GLM_OK)
        glm_fail(err, lost, "%s", w->error.message);
    pthread_mutex_unlock(&w->lock);
    return lost;
}

void glm_watch_give_up(struct glm_watch *w)
{
    pthread_mutex_lock(&w->lock);
    if (w->looking && w->lost == GLM_OK)
        w->lost = glm_fail(&w->error, GLM_EPEER, "the ranks were given up");
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
}
