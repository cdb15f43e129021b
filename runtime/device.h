/* SPDX-License-Identifier: Apache-2.0 */
/* Where a rank's memory lies and its programs run: this machine's own memory and threads
 * (device_host.c) or a GPU (device_cuda.c). One vtable, so that engine, states, weights and
 * executor do not ask which.
 *
 * Addresses are the device's: only where `host_memory` is set may the host follow them. What is put
 * on a device runs in the order in which it was put there; a program's end, and with it every
 * error of copies and launches, is known after `wait`, `get` or `view`.
 *
 * Owner: the round thread, but for `convert`, which the loading threads call. Nothing but open,
 * alloc, load_kernels, link, begin_load and the first `view` of a size allocates. */
#ifndef GLM_RUNTIME_DEVICE_H
#define GLM_RUNTIME_DEVICE_H

#include "kernels-templates/round.h"
#include "runtime/threads.h"
#include "spec/base/arena.h"
#include "spec/base/error.h"

#include <stdbool.h>

struct glm_exec;
struct glm_exec_program;
struct glm_plan;
struct glm_device;

struct glm_device_ops {
    bool host_memory;
    void (*free)(struct glm_device *d);

    /* The rank's one allocation, zeroed, GLM_PLAN_ALIGN-aligned, freed with the device. `what` is
     * for errors: GLM_ENOMEM. */
    enum glm_status (*alloc)(struct glm_device *d, const char *what, uint64_t bytes,
                             unsigned char **base, struct glm_error *err);
    /* paths, digests: of each plan kernel, in plan order (codegen/kernels.h); a host needs no
     * digests. GLM_EKERNEL. */
    enum glm_status (*load_kernels)(struct glm_device *d, const struct glm_plan *plan,
                                    const char *const *paths, const char *const *digests,
                                    struct glm_error *err);
    /* Once all programs of x are linked to addresses: whatever makes running them cheap. */
    enum glm_status (*link)(struct glm_device *d, struct glm_exec *x, struct glm_error *err);
    /* Puts a program on the device. `ns` grows by the time that it takes once that has been waited
     * for, by whichever call; it and nothing else of the arguments must live until then. Errors:
     * those of collectives, and of a GPU GLM_EKERNEL, also for what was put there before. */
    enum glm_status (*run)(struct glm_device *d, const struct glm_exec_program *program,
                           const struct glm_round *round, uint64_t *ns, struct glm_error *err);
    /* One step alone, done on return: for selftest.h. */
    enum glm_status (*run_step)(struct glm_device *d, const struct glm_exec_program *program,
                                uint32_t step_i, const struct glm_round *round,
                                struct glm_error *err);
    enum glm_status (*wait)(struct glm_device *d, struct glm_error *err);

    void (*copy)(struct glm_device *d, void *to, const void *from, uint64_t bytes);
    void (*fill)(struct glm_device *d, void *to, uint8_t byte, uint64_t bytes);
    /* From and to the host's memory; done on return. */
    enum glm_status (*put)(struct glm_device *d, void *to, const void *from, uint64_t bytes,
                           struct glm_error *err);
    enum glm_status (*get)(struct glm_device *d, void *to, const void *from, uint64_t bytes,
                           struct glm_error *err);
    /* The bytes as they are now, for looking: valid until the next view or program. */
    enum glm_status (*view)(struct glm_device *d, const void *from, uint64_t bytes,
                            const void **out, struct glm_error *err);

    /* Loading. Each thread of `team` reads stored bytes into its own buffer of buffer_bytes, from
     * where they are converted: by the thread itself where `convert` is NULL, else on the device,
     * which reads the buffer and what is to be done (kernels-templates/load.h, unit_bytes at most)
     * and is through on return. All threads may call it at once, each with its own number.
     * kernel: the plan's, n_blocks of it. */
    enum glm_status (*begin_load)(struct glm_device *d, uint64_t buffer_bytes, uint64_t unit_bytes,
                                  struct glm_error *err);
    unsigned char *(*load_buffer)(struct glm_device *d, uint32_t thread);
    enum glm_status (*convert)(struct glm_device *d, uint32_t thread, const char *kernel,
                               const void *unit, uint64_t bytes, uint32_t n_blocks,
                               struct glm_error *err);
    void (*end_load)(struct glm_device *d);
};

struct glm_device {
    const struct glm_device_ops *ops;
    struct glm_team *team; /* loads weights; on the host it also runs the programs */
};

/* host_threads: of all ranks that share this machine's cores; 0: n_threads. GLM_EINVAL,
 * GLM_ENOMEM. */
enum glm_status glm_device_open_host(uint32_t n_threads, uint32_t host_threads,
                                     struct glm_device **out, struct glm_error *err);
/* The GPU of that index. is_shared: other ranks of the set run on it too. load_threads: how many
 * threads read its weights. GLM_EKERNEL as glm_cuda_open, GLM_EINVAL as glm_team_new,
 * GLM_ENOMEM. */
enum glm_status glm_device_open_cuda(uint32_t index, bool is_shared, uint32_t load_threads,
                                     struct glm_device **out, struct glm_error *err);
/* NULL: nothing. */
void glm_device_free(struct glm_device *d);

#endif
