/* SPDX-License-Identifier: Apache-2.0 */
/* The thread team: start, barrier, end. Owns how ranks wait for their own threads; what the threads
 * do is the executor's (exec.c), how ranks wait for each other is the links'.
 * One barrier word serves everything: the workers rest at it between bodies, so starting a body is
 * passing the barrier once and ending it is passing it again. */
#include "runtime/threads.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* About 50 us on current cores: longer than the gap between two kernels, shorter than what a
 * sleeping system would notice. */
enum { SPIN_TURNS = 2000, LINE_BYTES = 64 };

struct member {
    struct glm_team *team;
    uint32_t index;
    pthread_t thread;
};

struct glm_team {
    _Alignas(LINE_BYTES) atomic_uint arrived;
    _Alignas(LINE_BYTES) atomic_uint generation;
    _Alignas(LINE_BYTES) atomic_uint sleepers;
    uint32_t n_threads;
    uint32_t spin_turns;
    uint32_t n_started; /* workers that must be joined */
    bool stopping;      /* written between barriers only, as are body and context */
    void (*body)(void *context, uint32_t thread);
    void *context;
    struct member members[]; /* [n_threads], 0 is the caller */
};

/* Spins a little, then sleeps until the generation is no longer `seen`. */
static void await_generation(struct glm_team *t, unsigned seen)
{
    for (uint32_t i = 0; i < t->spin_turns; i++) {
        if (atomic_load_explicit(&t->generation, memory_order_acquire) != seen)
            return;
        glm_relax();
    }
    while (atomic_load_explicit(&t->generation, memory_order_acquire) == seen) {
        /* sleepers and generation are sequentially consistent: either the last arrival sees this
         * sleeper and wakes it, or the kernel sees the new generation and does not sleep. */
        atomic_fetch_add(&t->sleepers, 1);
        syscall(SYS_futex, &t->generation, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
        atomic_fetch_sub(&t->sleepers, 1);
    }
}

void glm_team_barrier(void *team)
{
    struct glm_team *t = team;
    if (t->n_threads == 1)
        return;
    unsigned seen = atomic_load_explicit(&t->generation, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&t->arrived, 1, memory_order_acq_rel) + 1 < t->n_threads) {
        await_generation(t, seen);
        return;
    }
    atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
    atomic_store(&t->generation, seen + 1);
    if (atomic_load(&t->sleepers) > 0)
        syscall(SYS_futex, &t->generation, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void *member_main(void *argument)
{
    struct member *m = argument;
    struct glm_team *t = m->team;
    for (;;) {
        glm_team_barrier(t);
        if (t->stopping)
            return NULL;
        t->body(t->context, m->index);
        glm_team_barrier(t);
    }
}

void glm_team_run(struct glm_team *t, void (*body)(void *context, uint32_t thread), void *context)
{
    t->body = body;
    t->context = context;
    glm_team_barrier(t);
    body(context, 0);
    glm_team_barrier(t);
}

uint32_t glm_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        int n = CPU_COUNT(&set);
        if (n > 0)
            return (uint32_t)n;
    }
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint32_t)n : 1;
}

/* Ends the workers that were started. With fewer than n_threads (a start that failed) the barrier
 * is narrowed to those that exist: they rest at it, having arrived. */
static void stop_members(struct glm_team *t)
{
    t->stopping = true;
    if (t->n_started > 0 && t->n_started + 1 < t->n_threads) {
        while (atomic_load(&t->arrived) < t->n_started)
            sched_yield();
        atomic_fetch_add(&t->arrived, t->n_threads - 1 - t->n_started);
    }
    if (t->n_started > 0)
        glm_team_barrier(t);
    for (uint32_t i = 1; i <= t->n_started; i++)
        pthread_join(t->members[i].thread, NULL);
}

enum glm_status glm_team_new(uint32_t n_threads, uint32_t host_threads, struct glm_team **out,
                             struct glm_error *err)
{
    if (n_threads == 0 || n_threads > GLM_MAX_THREADS)
        return glm_fail(err, GLM_EINVAL, "cannot start a team of %u threads: 1 to %d are possible",
                        n_threads, GLM_MAX_THREADS);
    size_t bytes = sizeof(struct glm_team) + n_threads * sizeof(struct member);
    bytes = (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    struct glm_team *t = aligned_alloc(LINE_BYTES, bytes);
    if (!t)
        return glm_fail(err, GLM_ENOMEM, "cannot start a team of %u threads: out of memory",
                        n_threads);
    memset(t, 0, bytes);
    t->n_threads = n_threads;
    uint32_t wanted = host_threads > n_threads ? host_threads : n_threads;
    t->spin_turns = wanted <= glm_cores() ? SPIN_TURNS : 0;
    for (uint32_t i = 1; i < n_threads; i++) {
        t->members[i] = (struct member){.team = t, .index = i};
        int rc = pthread_create(&t->members[i].thread, NULL, member_main, &t->members[i]);
        if (rc != 0) {
            stop_members(t);
            free(t);
            return glm_fail(err, GLM_ENOMEM, "cannot start thread %u of %u: %s", i, n_threads,
                            strerror(rc));
        }
        t->n_started = i;
    }
    *out = t;
    return GLM_OK;
}

void glm_team_free(struct glm_team *t)
{
    if (!t)
        return;
    stop_members(t);
    free(t);
}

uint32_t glm_team_threads(const struct glm_team *t)
{
    return t->n_threads;
}
