/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler over the fake engine, which refuses every list that breaks engine.h's rules. */
#include "runtime/scheduler.h"
#include "tests/fake/engine.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

struct world {
    struct glm_engine *engine;
    struct glm_scheduler *scheduler;
};

static struct world world_new(const struct fake_options *options)
{
    struct world w = {.engine = fake_engine_new(options)};
    struct glm_error err = {0};
    assert_int_equal(glm_scheduler_new(w.engine, fake_engine_plan(w.engine), &w.scheduler, &err),
                     GLM_OK);
    return w;
}

/* The fake's rules must have held, and nothing of the pool may be left in use. */
static void world_free(struct world *w)
{
    glm_scheduler_stop(w->scheduler);
    const struct fake_engine_counts counts = fake_engine_counts(w->engine);
    assert_string_equal(counts.rule, "");
    glm_scheduler_free(w->scheduler);
    fake_engine_free(w->engine);
}

/* A reader: its mailbox is signalled by the scheduler. */
struct reader {
    pthread_mutex_t lock;
    pthread_cond_t news;
    unsigned n_news;
    struct glm_request *request;
    int32_t ids[600];
    uint32_t n;
    enum glm_finish finish;
    struct glm_error err;
};

static void on_news(void *context)
{
    struct reader *r = context;
    pthread_mutex_lock(&r->lock);
    r->n_news++;
    pthread_cond_signal(&r->news);
    pthread_mutex_unlock(&r->lock);
}

static void submit(struct world *w, struct reader *r, const struct glm_request_params *params)
{
    struct glm_request_params p = *params;
    memset(r, 0, sizeof *r);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->news, NULL);
    p.notify = on_news;
    p.context = r;
    assert_int_equal(glm_scheduler_submit(w->scheduler, &p, &r->request, &r->err), GLM_OK);
}

static void read_some(struct reader *r, uint32_t max)
{
    r->n += glm_request_take(r->request, r->ids + r->n, max, &r->finish, &r->err);
}

static void wait_over(struct reader *r)
{
    for (;;) {
        pthread_mutex_lock(&r->lock);
        const unsigned seen = r->n_news;
        pthread_mutex_unlock(&r->lock);
        read_some(r, 600 - r->n);
        if (r->finish != GLM_FINISH_NONE)
            return;
        struct timespec deadline;
        clock_gettime(CLOCK_REALTIME, &deadline);
        deadline.tv_sec += 10;
        pthread_mutex_lock(&r->lock);
        while (r->n_news == seen)
            assert_int_equal(pthread_cond_timedwait(&r->news, &r->lock, &deadline), 0);
        pthread_mutex_unlock(&r->lock);
    }
}

static void reader_free(struct reader *r)
{
    glm_request_release(r->request);
    pthread_cond_destroy(&r->news);
    pthread_mutex_destroy(&r->lock);
}

/* Waits until the statistics say so; statistics come from under the worker's lock. */
#define WAIT_FOR(w, condition)                                              \
    do {                                                                    \
        struct glm_scheduler_stats stats;                                   \
        int left = 5000;                                                    \
        while (stats = glm_scheduler_stats((w)->scheduler), !(condition)) { \
            assert_true(left-- > 0);                                        \
            usleep(1000);                                                   \
        }                                                                   \
    } while (0)

static uint32_t make_prompt(int32_t *ids, uint32_t n, uint32_t salt)
{
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (int32_t)((salt * 131 + i * 7) % 2000);
    return n;
}

static void assert_reply(const struct reader *r, const int32_t *prompt, uint32_t n, uint64_t seed)
{
    int32_t expected[600];
    const uint32_t n_expected = fake_engine_reply(prompt, n, seed, expected, 600);
    assert_int_equal(r->finish, GLM_FINISH_END_ID);
    assert_int_equal(r->n, n_expected);
    assert_memory_equal(r->ids, expected, n_expected * sizeof expected[0]);
}

static void replies_equal_the_engines_at_every_prompt_length(void **state)
{
    (void)state;
    struct world w = world_new(&(struct fake_options){0});
    static const uint32_t lengths[] = {1, 63, 64, 65, 127, 128, 129, 256, 300, 400};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        int32_t ids[512];
        struct reader r;
        make_prompt(ids, lengths[i], (uint32_t)i);
        submit(&w, &r,
               &(struct glm_request_params){
                   .ids = ids, .n_ids = lengths[i], .max_tokens = 100, .seed = i});
        wait_over(&r);
        assert_reply(&r, ids, lengths[i], i);
        const struct glm_request_times t = glm_request_times(r.request);
        assert_true(t.arrived > 0 && t.arrived <= t.admitted && t.admitted <= t.first &&
                    t.first <= t.last);
        reader_free(&r);
    }
    world_free(&w);
}

static void many_at_once_get_what_each_gets_alone(void **state)
{
    (void)state;
    enum { N = 40 };
    struct world w = world_new(&(struct fake_options){.n_streams = 4, .n_extents = 3});
    static struct reader readers[N];
    static int32_t prompts[N][200];
    for (uint32_t i = 0; i < N; i++) {
        const uint32_t n = make_prompt(prompts[i], 1 + i * 4, i);
        submit(&w, &readers[i],
               &(struct glm_request_params){
                   .ids = prompts[i], .n_ids = n, .max_tokens = 60, .seed = i});
    }
    for (uint32_t i = 0; i < N; i++) {
        wait_over(&readers[i]);
        assert_reply(&readers[i], prompts[i], 1 + i * 4, i);
        reader_free(&readers[i]);
    }
    WAIT_FOR(&w, stats.running == 0 && stats.pool_free_tokens == stats.pool_tokens);
    const struct fake_engine_counts counts = fake_engine_counts(w.engine);
    assert_int_equal(counts.most_live, 3); /* the pool, not the streams, is the limit */
    assert_int_equal(counts.n_admitted, N);
    assert_int_equal(counts.n_finished, N);
    world_free(&w);
}

static void admits_in_arrival_order_and_nobody_overtakes(void **state)
{
    (void)state;
    enum { N = 12 };
    struct world w =
        world_new(&(struct fake_options){.n_streams = 4, .window = 8192, .n_extents = 4});
    struct reader readers[N];
    int32_t ids[N];
    fake_engine_hold(w.engine);
    for (uint32_t i = 0; i < N; i++) {
        ids[i] = (int32_t)i + 1;
        /* every third wants three extents, the others one: small ones could slip past */
        submit(&w, &readers[i],
               &(struct glm_request_params){
                   .ids = &ids[i], .n_ids = 1, .max_tokens = i % 3 == 0 ? 6000 : 100});
    }
    fake_engine_let_go(w.engine);
    for (uint32_t i = 0; i < N; i++) {
        wait_over(&readers[i]);
        reader_free(&readers[i]);
    }
    const struct fake_engine_counts counts = fake_engine_counts(w.engine);
    assert_int_equal(counts.n_filled, N);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(counts.first_tokens[i], i + 1);
    world_free(&w);
}

static void ends_at_the_token_limit(void **state)
{
    (void)state;
    struct world w = world_new(&(struct fake_options){0});
    int32_t ids[64], expected[3];
    struct reader r;
    make_prompt(ids, 10, 1);
    submit(&w, &r, &(struct glm_request_params){.ids = ids, .n_ids = 10, .max_tokens = 3});
    wait_over(&r);
    fake_engine_reply(ids, 10, 0, expected, 3);
    assert_int_equal(r.finish, GLM_FINISH_LENGTH);
    assert_int_equal(r.n, 3);
    assert_memory_equal(r.ids, expected, sizeof expected);
    reader_free(&r);
    submit(&w, &r, &(struct glm_request_params){.ids = ids, .n_ids = 10, .max_tokens = 1});
    wait_over(&r);
    assert_int_equal(r.finish, GLM_FINISH_LENGTH);
    assert_int_equal(r.n, 1);
    reader_free(&r);
    world_free(&w);
}

static void ignore_end_gives_exactly_the_limit_and_keeps_end_ids(void **state)
{
    (void)state;
    struct world w = world_new(&(struct fake_options){0});
    int32_t ids[64];
    struct reader r;
    make_prompt(ids, 10, 1);
    submit(&w, &r,
           &(struct glm_request_params){
               .ids = ids, .n_ids = 10, .max_tokens = 200, .ignore_end = true});
    wait_over(&r);
    assert_int_equal(r.finish, GLM_FINISH_LENGTH);
    assert_int_equal(r.n, 200);
    assert_int_equal(r.ids[199], 2019);
    reader_free(&r);
    world_free(&w);
}

static void min_tokens_masks_end_ids_until_then(void **state)
{
    (void)state;
    struct world w = world_new(&(struct fake_options){0});
    int32_t ids[64];
    struct reader r;
    make_prompt(ids, 10, 1);
    submit(
        &w, &r,
        &(struct glm_request_params){.ids = ids, .n_ids = 10, .max_tokens = 200, .min_tokens = 90});
    wait_over(&r);
    assert_int_equal(r.finish, GLM_FINISH_END_ID);
    assert_int_equal(r.n, 91);
    for (uint32_t i = 0; i < 90; i++)
        assert_int_not_equal(r.ids[i], 2019);
    reader_free(&r);
    world_free(&w);
}

static void takes_ids_in_pieces_and_the_end_with_the_last(void **state)
{
    (void)state;
    struct world w = world_new(&(struct fake_options){0});
    int32_t ids[64];
    struct reader r;
    make_prompt(ids, 10, 3);
    submit(&w, &r, &(struct glm_request_params){.ids = ids, .n_ids = 10, .max_tokens = 100});
    WAIT_FOR(&w, stats.running == 0 && stats.waiting == 0);
    int32_t expected[100];
    const uint32_t n = fake_engine_reply(ids, 10, 0, expected, 100);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(r.finish, GLM_FINISH_NONE);
        read_some(&r, 1);
    }
    assert_reply(&r, ids, 10, 0);
    reader_free(&r);
    world_free(&w);
}

static void a_stop_frees_the_stream_after_the_round(void **state)
{
    (void)state;
    struct world w = world_new(&(struct fake_options){0});
    int32_t id = 5;
    struct reader r;
    fake_engine_slow(w.engine, 2000);
    submit(&w, &r,
           &(struct glm_request_params){
               .ids = &id, .n_ids = 1, .max_tokens = 400, .ignore_end = true});
    WAIT_FOR(&w, stats.decoding == 1);
    glm_request_stop(r.request);
    WAIT_FOR(&w, stats.running == 0);
    wait_over(&r);
    assert_int_equal(r.finish, GLM_FINISH_STOPPED);
    assert_true(r.n < 400);
    reader_free(&r);
    WAIT_FOR(&w, stats.pool_free_tokens == stats.pool_tokens);
    assert_int_equal(glm_scheduler_stats(w.scheduler).canceled_total, 0);
    world_free(&w);
}

/* Queued: at once. Filling: after the slice. Decoding: after the round. Neighbours: unchanged. */
static void a_cancel_ends_a_request_wherever_it_is(void **state)
{
    (void)state;
    struct world w = world_new(
        &(struct fake_options){.n_streams = 2, .window = 4096, .n_extents = 4, .prefill_rows = 64});
    static int32_t prompts[3][2048];
    struct reader decoding, filling, queued, neighbour;
    fake_engine_slow(w.engine, 1000);
    make_prompt(prompts[0], 1, 1);
    submit(&w, &decoding,
           &(struct glm_request_params){
               .ids = prompts[0], .n_ids = 1, .max_tokens = 2000, .ignore_end = true});
    WAIT_FOR(&w, stats.decoding == 1);
    make_prompt(prompts[1], 2048, 2);
    submit(&w, &filling,
           &(struct glm_request_params){.ids = prompts[1], .n_ids = 2048, .max_tokens = 10});
    WAIT_FOR(&w, stats.filling == 1);
    make_prompt(prompts[2], 5, 3);
    submit(&w, &queued,
           &(struct glm_request_params){.ids = prompts[2], .n_ids = 5, .max_tokens = 60});
    submit(&w, &neighbour,
           &(struct glm_request_params){.ids = prompts[2], .n_ids = 5, .max_tokens = 60});
    WAIT_FOR(&w, stats.waiting == 2);

    glm_request_cancel(queued.request);
    assert_int_equal(glm_scheduler_stats(w.scheduler).waiting, 1);
    read_some(&queued, 1);
    assert_int_equal(queued.finish, GLM_FINISH_CANCELED);
    assert_int_equal(queued.n, 0);

    glm_request_cancel(filling.request);
    wait_over(&filling);
    assert_int_equal(filling.finish, GLM_FINISH_CANCELED);
    glm_request_cancel(decoding.request);
    glm_request_cancel(decoding.request); /* twice is once */
    wait_over(&decoding);
    assert_int_equal(decoding.finish, GLM_FINISH_CANCELED);
    wait_over(&neighbour);
    assert_reply(&neighbour, prompts[2], 5, 0);
    assert_int_equal(glm_scheduler_stats(w.scheduler).canceled_total, 3);
    reader_free(&queued);
    reader_free(&filling);
    reader_free(&decoding);
    reader_free(&neighbour);
    WAIT_FOR(&w, stats.pool_free_tokens == stats.pool_tokens && stats.running == 0);
    world_free(&w);
}

static void a_request_released_while_it_runs_is_not_told_any_more(void **state)
{
    (void)state;
    struct world w = world_new(&(struct fake_options){0});
    int32_t id = 5;
    for (int i = 0; i < 200; i++) {
        struct reader *r = calloc(1, sizeof *r); /* freed at once: a late call would be seen */
        assert_non_null(r);
        submit(&w, r,
               &(struct glm_request_params){
                   .ids = &id, .n_ids = 1, .max_tokens = 300, .ignore_end = true});
        if (i % 3 == 0)
            usleep(300);
        glm_request_cancel(r->request);
        reader_free(r);
        free(r);
    }
    WAIT_FOR(&w, stats.running == 0 && stats.waiting == 0);
    WAIT_FOR(&w, stats.pool_free_tokens == stats.pool_tokens);
    world_free(&w);
}

static void an_engine_failure_ends_all_and_refuses_new_ones(void **state)
{
    (void)state;
    enum { N = 6 };
    struct world w = world_new(&(struct fake_options){.n_streams = 2});
    struct reader readers[N];
    int32_t id = 5;
    struct glm_request_params p = {.ids = &id, .n_ids = 1, .max_tokens = 300, .ignore_end = true};
    fake_engine_slow(w.engine, 20000); /* all are submitted before the tenth round */
    fake_engine_fail_after(w.engine, 10);
    for (int i = 0; i < N; i++)
        submit(&w, &readers[i], &p);
    for (int i = 0; i < N; i++) {
        wait_over(&readers[i]);
        assert_int_equal(readers[i].finish, GLM_FINISH_FAILED);
        assert_int_equal(readers[i].err.status, GLM_EPEER);
        assert_string_equal(readers[i].err.message, "rank 1 was lost");
        reader_free(&readers[i]);
    }
    const struct glm_scheduler_stats stats = glm_scheduler_stats(w.scheduler);
    assert_true(stats.broken);
    assert_int_equal(stats.failed_total, N);
    assert_int_equal(stats.running + stats.waiting, 0);
    assert_true(stats.step_age_s == 0);
    struct glm_request *r;
    struct glm_error err = {0};
    assert_int_equal(glm_scheduler_submit(w.scheduler, &p, &r, &err), GLM_EPEER);
    assert_string_equal(err.message, "rank 1 was lost");
    glm_scheduler_stop(w.scheduler);
    assert_int_equal(fake_engine_counts(w.engine).n_stops, 0); /* nobody to tell */
    world_free(&w);
}

static void stopping_ends_requests_and_tells_the_other_ranks(void **state)
{
    (void)state;
    enum { N = 5 };
    struct world w = world_new(&(struct fake_options){.n_streams = 2});
    struct reader readers[N];
    int32_t id = 5;
    struct glm_request_params p = {.ids = &id, .n_ids = 1, .max_tokens = 400, .ignore_end = true};
    fake_engine_slow(w.engine, 1000);
    for (int i = 0; i < N; i++)
        submit(&w, &readers[i], &p);
    WAIT_FOR(&w, stats.decoding == 2);
    glm_scheduler_stop(w.scheduler);
    for (int i = 0; i < N; i++) {
        wait_over(&readers[i]);
        assert_int_equal(readers[i].finish, GLM_FINISH_FAILED);
        assert_int_equal(readers[i].err.status, GLM_ECANCELED);
        reader_free(&readers[i]);
    }
    assert_int_equal(fake_engine_counts(w.engine).n_stops, 1);
    struct glm_request *r;
    struct glm_error err = {0};
    assert_int_equal(glm_scheduler_submit(w.scheduler, &p, &r, &err), GLM_ECANCELED);
    world_free(&w);
}

static void refuses_what_can_never_run(void **state)
{
    (void)state;
    struct world w =
        world_new(&(struct fake_options){.n_streams = 2, .window = 8192, .n_extents = 2});
    int32_t ids[3] = {1, 2, 3};
    const struct glm_request_params cases[] = {
        {.ids = ids, .n_ids = 0, .max_tokens = 1},
        {.ids = ids, .n_ids = 3, .max_tokens = 0},
        {.ids = ids, .n_ids = 3, .max_tokens = 8190},
        {.ids = ids, .n_ids = 3, .max_tokens = UINT32_MAX},
        {.ids = ids, .n_ids = 3, .max_tokens = 4096}, /* the window holds it, the pool does not */
    };
    static const char *const words[] = {"empty", "max_tokens", "window", "window", "pool"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct glm_request *r = NULL;
        struct glm_error err = {0};
        assert_int_equal(glm_scheduler_submit(w.scheduler, &cases[i], &r, &err), GLM_EINVAL);
        assert_non_null(strstr(err.message, words[i]));
        assert_null(r);
    }
    for (int k = 0; k < 2; k++) {
        struct glm_request *r;
        struct glm_error err = {0};
        ids[1] = k == 0 ? -1 : 2048;
        assert_int_equal(glm_scheduler_submit(
                             w.scheduler,
                             &(struct glm_request_params){.ids = ids, .n_ids = 3, .max_tokens = 4},
                             &r, &err),
                         GLM_EINVAL);
        assert_non_null(strstr(err.message, "vocabulary"));
    }
    world_free(&w);
}

static void an_idle_worker_runs_nothing(void **state)
{
    (void)state;
    struct world w = world_new(&(struct fake_options){0});
    int32_t id = 5;
    struct reader r;
    submit(&w, &r, &(struct glm_request_params){.ids = &id, .n_ids = 1, .max_tokens = 2});
    wait_over(&r);
    reader_free(&r);
    WAIT_FOR(&w, stats.pool_free_tokens == stats.pool_tokens);
    const uint32_t before = fake_engine_counts(w.engine).n_lists;
    usleep(50000);
    assert_int_equal(fake_engine_counts(w.engine).n_lists, before);
    const struct glm_scheduler_stats stats = glm_scheduler_stats(w.scheduler);
    assert_true(stats.step_age_s == 0);
    assert_int_equal(stats.prompt_tokens_total, 1);
    assert_int_equal(stats.completion_tokens_total, 2);
    world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replies_equal_the_engines_at_every_prompt_length),
        cmocka_unit_test(many_at_once_get_what_each_gets_alone),
        cmocka_unit_test(admits_in_arrival_order_and_nobody_overtakes),
        cmocka_unit_test(ends_at_the_token_limit),
        cmocka_unit_test(ignore_end_gives_exactly_the_limit_and_keeps_end_ids),
        cmocka_unit_test(min_tokens_masks_end_ids_until_then),
        cmocka_unit_test(takes_ids_in_pieces_and_the_end_with_the_last),
        cmocka_unit_test(a_stop_frees_the_stream_after_the_round),
        cmocka_unit_test(a_cancel_ends_a_request_wherever_it_is),
        cmocka_unit_test(a_request_released_while_it_runs_is_not_told_any_more),
        cmocka_unit_test(an_engine_failure_ends_all_and_refuses_new_ones),
        cmocka_unit_test(stopping_ends_requests_and_tells_the_other_ranks),
        cmocka_unit_test(refuses_what_can_never_run),
        cmocka_unit_test(an_idle_worker_runs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
