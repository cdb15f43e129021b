/* SPDX-License-Identifier: Apache-2.0 */
/* This machine's figures for struct glm_device_figures, as one rank of a lane sees them while the
 * lane's other ranks do the same: what a plan's price is made of. */
#ifndef GLM_BENCH_CALIBRATE_H
#define GLM_BENCH_CALIBRATE_H

#include "codegen/graph.h"

struct calibrate_options {
    const struct glm_plan *plan; /* of rank 0: shapes of its experts, size of its messages */
    uint32_t n_threads;          /* of a rank */
    const char *transport;       /* "shm", "tcp" */
    size_t memory_bytes;         /* a buffer that no cache holds */
    size_t cache_bytes;          /* of a rank: as much as a round reads */
};

/* Takes a few seconds. exl3_weights_s is 0 without EXL3 experts, exchange_s without peers;
 * cache_bytes of the figures is 4 times that of the options, in which the rate was measured. */
void calibrate(const struct calibrate_options *options, struct glm_device_figures *out);
void calibrate_print(const struct glm_device_figures *f);

#endif
