/* SPDX-License-Identifier: Apache-2.0 */
/* A toy model for the engine's own tests: a chain of integers over a stream's tokens that reads
 * back every kind of state (token, pool, stream of two versions, ring), so that a row placed, kept
 * or rolled back wrongly changes every later value. Its kernels are real templates
 * (tests/support/toy) built through the real cache; its one weight is synthetic. */
#ifndef GLM_TESTS_TOY_ENGINE_H
#define GLM_TESTS_TOY_ENGINE_H

#include "tests/support/pico.h"

enum { TOY_IDS = 16, TOY_RING = 32 };

struct toy_engine {
    char *templates;
    struct glm_plan plans[8], *plan_list[8];
    struct pico *set;
};

/* 0: 4 streams, 2 kept states, 16 verify rows, 128 prefill rows, window 8192, pool of 16 extents.
 */
struct toy_options {
    uint32_t world, n_streams, n_kept, verify_rows, pool_extents, n_threads;
    const char *transport;
    uint64_t memory_limit_bytes;
};
void toy_engine_open(struct toy_engine *t, const struct toy_options *options);
/* Plans and templates alone, for tests that open engines themselves. */
void toy_engine_plan(struct toy_engine *t, const struct toy_options *options);
void toy_engine_close(struct toy_engine *t);

#endif
