/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the ranks of a set in one test, as threads of this process or as processes, with all their
 * links connected. */
#ifndef TESTS_SUPPORT_RANKS_H
#define TESTS_SUPPORT_RANKS_H

#include "runtime/collective.h"
#include "runtime/link.h"

enum test_ranks_as { TEST_THREADS, TEST_PROCESSES };

struct test_ranks {
    enum test_ranks_as as;
    const char *kind; /* "shm", "tcp" */
    uint32_t world;
    size_t max_message;
    uint32_t deadline_ms; /* of the collective's data path; 0: never asks alive */
    int (*alive)(void *context, uint32_t peer);
    void *context; /* handed to alive and body */
    /* One rank. It takes the collective's links: the helper frees c afterwards. Asserts of cmocka
     * work on the main thread only, so a body returns 0 for success and else a line number. */
    int (*body)(struct glm_collective *c, uint32_t rank, uint32_t world, void *context);
};

/* Runs all ranks to their end and asserts that every body returned 0. */
void test_ranks_run(const struct test_ranks *r);

/* Connects all pairs of `world` ranks from threads: links[rank][peer]. Asserts success. */
void test_links_connect(const char *kind, uint32_t world, size_t max_message,
                        struct glm_link *links[][GLM_LINK_MAX_WORLD]);

extern const uint8_t test_secret[32];

/* In a body: leave with the line number when the condition does not hold. */
#define BODY_CHECK(condition) \
    do {                      \
        if (!(condition))     \
            return __LINE__;  \
    } while (0)

#endif
