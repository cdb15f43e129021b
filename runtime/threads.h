/* SPDX-License-Identifier: Apache-2.0 */
/* The SPMD thread team of a host rank: persistent threads that run one body together and meet at a
 * barrier. The thread that calls glm_team_run is thread 0 of the team. Waits spin only while the
 * machine has a core for every thread, and then for a bounded time; otherwise they sleep on a
 * futex.
 *
 * Owner: the round thread. No call but glm_team_new allocates. */
#ifndef GLM_RUNTIME_THREADS_H
#define GLM_RUNTIME_THREADS_H

#include "spec/base/error.h"

#include <stdint.h>

enum { GLM_MAX_THREADS = 256 };

struct glm_team;

/* host_threads: threads of all ranks that share this machine's cores; 0: n_threads.
 * Errors: GLM_EINVAL when n_threads is 0 or above GLM_MAX_THREADS, GLM_ENOMEM. */
enum glm_status glm_team_new(uint32_t n_threads, uint32_t host_threads, struct glm_team **out,
                             struct glm_error *err);
void glm_team_free(struct glm_team *t);
uint32_t glm_team_threads(const struct glm_team *t);

/* Runs body(context, thread) on all threads; returns when every one came back. */
void glm_team_run(struct glm_team *t, void (*body)(void *context, uint32_t thread), void *context);
/* All threads of a running body meet here; what any wrote before is seen by all after.
 * team is a struct glm_team; the type is that of glm_launch.barrier. */
void glm_team_barrier(void *team);

/* One turn of a wait that spins: leaves the core to its other thread for a moment. */
static inline void glm_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Cores that this process may run on. */
uint32_t glm_cores(void);

#endif
