/* SPDX-License-Identifier: Apache-2.0 */
/* What a test hands to a CUDA body that was compiled for the CPU: C and C++. */
#ifndef GLM_TESTS_SIMT_LAUNCH_H
#define GLM_TESTS_SIMT_LAUNCH_H

#include "kernels-templates/cuda_abi.h"

#include <stddef.h>

struct simt_launch {
    uint32_t grid[3], block, shared_bytes;
    uint64_t order; /* seed of the order in which blocks, warps and lanes run; 0: ascending */
    struct glm_cuda_args args;
};

/* Exported by every object. NULL when the grid ran to its end, else what went wrong and where. */
typedef const char *(*simt_run_fn)(const struct simt_launch *launch);
#define SIMT_RUN_SYMBOL "simt_run"
/* Exported too: the bytes that a block shares whatever it is launched with. */
typedef size_t (*simt_shared_fn)(void);
#define SIMT_SHARED_SYMBOL "simt_shared_bytes"

#endif
