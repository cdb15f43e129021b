/* SPDX-License-Identifier: Apache-2.0 */
/* What a compiled host kernel and the executor agree on. A kernel runs on every thread of the rank
 * at once (SPMD): it divides its own work by (thread, n_threads) in a way that never changes the
 * bits of a row, and may call the barrier between phases. The executor puts a barrier after each
 * kernel. */
#ifndef GLM_HOST_ABI_H
#define GLM_HOST_ABI_H

#include "round.h"

#define GLM_HOST_ABI_VERSION 1

struct glm_launch {
    uint32_t thread, n_threads;
    const struct glm_round *round;
    void *scratch; /* the manifest's scratch bytes, 64-byte aligned, shared */
    void (*barrier)(void *barrier_state);
    void *barrier_state;
};

/* Exported by every kernel object. args in the manifest's order: addresses, 64-byte aligned at the
 * start of their allocation. */
typedef void (*glm_host_kernel)(const struct glm_launch *launch, void *const *args);
#define GLM_HOST_KERNEL_SYMBOL "glm_kernel"
/* `const uint32_t glm_kernel_abi = GLM_HOST_ABI_VERSION;` */
#define GLM_HOST_ABI_SYMBOL "glm_kernel_abi"

#endif
