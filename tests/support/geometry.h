/* SPDX-License-Identifier: Apache-2.0 */
/* Geometries and clusters written out by hand, so that tests of codegen do not rest on the spec
 * parser: the published model (docs/model.md 1), the pico checkpoint, and small8. */
#ifndef GLM_TESTS_GEOMETRY_H
#define GLM_TESTS_GEOMETRY_H

#include "spec/cluster.h"

struct glm_model geometry_full(void);
struct glm_model geometry_pico(void);
struct glm_model geometry_small8(void);

/* One lane over n_ranks nodes "node0"…: EXL3 experts of 4 bits, mcg. memory 0: not declared. */
struct fixture {
    struct arena arena;
    struct diag_list diags;
    struct glm_checkpoint checkpoint;
    struct glm_cluster cluster;
};
/* pico on the CPU as the demo lanes have it: dense and head bf16, kv fp32, act f32, 8 streams,
 * window 8192. */
void fixture_pico(struct fixture *f, uint32_t n_ranks);
/* The published model on Sparks: dense q4, head and kv fp8, act bf16, 8 streams, window 262144,
 * no memory declared. */
void fixture_full(struct fixture *f, uint32_t n_ranks);
void fixture_free(struct fixture *f);

#endif
