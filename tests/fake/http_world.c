/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/http_world.h"

#include "spec/base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

struct http_world *http_world_new(const struct http_world_options *options)
{
    struct http_world *w = calloc(1, sizeof *w);
    struct glm_error err = {0};
    assert_non_null(w);
    w->launch = (struct glm_launch_file){
        .listen_host = "127.0.0.1",
        .served_name = "pico",
        .api_key_file = options->key_file == NULL ? "" : options->key_file,
        .max_tokens = 64,
        .max_body_bytes = options->max_body_bytes > 0 ? options->max_body_bytes : 1 << 20,
        .thinking = !options->thinking_off,
        .effort = "",
    };
    w->engine = fake_engine_new(&options->engine);
    struct glm_http_limits limits =
        glm_http_default_limits(&w->launch, fake_engine_plan(w->engine));
    if (options->limits.keepalive_ms > 0)
        limits.keepalive_ms = options->limits.keepalive_ms;
    if (options->limits.idle_ms > 0)
        limits.idle_ms = options->limits.idle_ms;
    if (options->limits.body_ms > 0)
        limits.body_ms = options->limits.body_ms;
    if (options->limits.stall_s > 0)
        limits.stall_s = options->limits.stall_s;
    if (options->limits.held_bytes > 0)
        limits.held_bytes = options->limits.held_bytes;
    setenv("GLM_LOG", "error", 0);
    glm_log_init(-1);
    if (glm_tokenizer_open("clusters/demo/exl3/tokenizer.json", &w->tokenizer, &err) != GLM_OK ||
        glm_http_start_with(&w->launch, fake_engine_plan(w->engine), &limits, &w->http, &w->port,
                            &err) != GLM_OK ||
        glm_scheduler_new(w->engine, fake_engine_plan(w->engine), &w->scheduler, &err) != GLM_OK)
        fail_msg("%s", err.message);
    if (!options->not_attached)
        http_world_attach(w);
    return w;
}

void http_world_attach(struct http_world *w)
{
    glm_http_attach(w->http, w->scheduler, w->tokenizer);
}

void http_world_free(struct http_world *w)
{
    const struct glm_scheduler_stats before = glm_scheduler_stats(w->scheduler);
    if (before.failed_total == 0) /* else rounds ended with streams in them */
        WAIT_FOR(w,
                 stats.running + stats.waiting == 0 && stats.pool_free_tokens == stats.pool_tokens);
    glm_scheduler_stop(w->scheduler);
    glm_http_free(w->http);
    assert_string_equal(fake_engine_counts(w->engine).rule, "");
    glm_scheduler_free(w->scheduler);
    glm_tokenizer_free(w->tokenizer);
    fake_engine_free(w->engine);
    fake_engine_free(w->first);
    free(w);
}
