/* SPDX-License-Identifier: Apache-2.0 */
/* An engine that computes nothing, for tests of what lies above engine.h: it checks lists by the
 * rules there, keeps books of streams and extents, and draws tokens that depend on the prompt, the
 * seed and the position alone. It defines glm_engine_*, so only tests that name it are linked with
 * it (Makefile). Any thread may steer it while lists run. */
#ifndef TESTS_FAKE_ENGINE_H
#define TESTS_FAKE_ENGINE_H

#include "runtime/engine.h"

/* Zero: 4 streams, window 512, pool of as many extents as streams, slices of 128, vocabulary 2048,
 * end id 2019. */
struct fake_options {
    uint32_t n_streams, window, n_extents, prefill_rows;
};

struct glm_engine *fake_engine_new(const struct fake_options *options);
void fake_engine_free(struct glm_engine *e);
const struct glm_plan *fake_engine_plan(const struct glm_engine *e);

/* Every reply from now on is these ids and then end ids; NULL: drawn. Copied. */
void fake_engine_script(struct glm_engine *e, const int32_t *ids, uint32_t n);
/* The reply that a drawn stream gives to a prompt, at most max ids, end id included. */
uint32_t fake_engine_reply(const int32_t *prompt, uint32_t n, uint64_t seed, int32_t *ids,
                           uint32_t max);
/* Every list takes this long. */
void fake_engine_slow(struct glm_engine *e, uint32_t round_us);
/* Lists wait before they run until let go; returns once one waits when `wait` is set. */
void fake_engine_hold(struct glm_engine *e);
void fake_engine_wait_held(struct glm_engine *e);
void fake_engine_let_go(struct glm_engine *e);
/* The list after n more fails with GLM_EPEER "rank 1 was lost". */
void fake_engine_fail_after(struct glm_engine *e, uint32_t n_lists);

struct fake_engine_counts {
    uint32_t n_lists, n_admitted, n_finished, n_live, n_stops;
    uint32_t most_live, n_rows;
    uint32_t n_filled, first_tokens[256]; /* first prompt token of each stream, as fills began */
    bool broke_rules;
    char rule[128];
};
struct fake_engine_counts fake_engine_counts(struct glm_engine *e);

#endif
