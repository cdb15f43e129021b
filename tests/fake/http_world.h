/* SPDX-License-Identifier: Apache-2.0 */
/* The whole of serving over the fake engine, with pico's tokenizer, on a port of 127.0.0.1. */
#ifndef TESTS_FAKE_HTTP_WORLD_H
#define TESTS_FAKE_HTTP_WORLD_H

#include "runtime/http.h"
#include "tests/fake/engine.h"
#include "tests/support/raw_http.h"

#include <unistd.h>

struct http_world {
    struct glm_launch_file launch;
    struct glm_engine *engine, *first; /* first: one that was replaced, NULL: none */
    struct glm_scheduler *scheduler;
    struct glm_tokenizer *tokenizer;
    struct glm_http *http;
    uint16_t port;
};

/* launch: served_name "pico", max_tokens 64, bodies of 1 MiB, thinking. */
struct http_world_options {
    struct fake_options engine;
    struct glm_http_limits limits; /* zero members as the server's */
    const char *key_file;
    uint64_t max_body_bytes;
    bool thinking_off, not_attached;
};
struct http_world *http_world_new(const struct http_world_options *options);
/* Checks that no list broke a rule and that nothing is left in use. */
void http_world_free(struct http_world *w);
void http_world_attach(struct http_world *w);

/* Waits up to 5 s for a condition over `stats`. */
#define WAIT_FOR(w, condition)                                              \
    do {                                                                    \
        struct glm_scheduler_stats stats;                                   \
        int left = 5000;                                                    \
        while (stats = glm_scheduler_stats((w)->scheduler), !(condition)) { \
            assert_true(left-- > 0);                                        \
            usleep(1000);                                                   \
        }                                                                   \
    } while (0)

#endif
