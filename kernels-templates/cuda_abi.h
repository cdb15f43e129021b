/* SPDX-License-Identifier: Apache-2.0 */
/* What a compiled CUDA kernel and whoever launches it agree on. Every kernel has one entry of this
 * signature, so that a captured graph needs nothing but constants and fixed addresses: all that
 * changes from round to round is read from the round table on the device. Grid, block and shared
 * bytes are the manifest's `launch` at the maxima of the bucket; blocks beyond the live rows leave
 * at once and touch nothing. Where `launch.rows` bounds a launch, several that differ in first_row
 * alone take the bucket, one after the other on the same scratch and tickets. */
#ifndef GLM_CUDA_ABI_H
#define GLM_CUDA_ABI_H

#include "round.h"

#define GLM_CUDA_ABI_VERSION 2
#define GLM_CUDA_MAX_ARGS    24 /* as GLM_PLAN_MAX_ARGS */

/* The one parameter, by value. All addresses are the device's, 64-byte aligned at the start of
 * their allocation. */
struct glm_cuda_args {
    const struct glm_round *round; /* its members are device addresses too */
    void *scratch;                 /* launch.scratch bytes */
    uint32_t *tickets;             /* launch.tickets counters, zero before and after */
    void *args[GLM_CUDA_MAX_ARGS]; /* in the manifest's order; null where the plan gives none */
    int32_t first_row;             /* of this launch; 0 where one takes all */
};
#define GLM_CUDA_KERNEL_SYMBOL "glm_kernel"

#endif
