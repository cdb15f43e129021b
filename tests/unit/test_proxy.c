/* SPDX-License-Identifier: Apache-2.0 */
/* The proxy between a stream and the links. The stream is a thread that does what a graph's nodes
 * do: copies a bucket's bytes out, rings, waits, copies a bucket's bytes in. */
#include "runtime/proxy.h"

#include "runtime/clock.h"
#include "tests/support/ranks.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { WORLD = 2, N = 24, BUCKET = 512, LAUNCHES = 40, MAX_MESSAGE = 1 << 16 };

struct stream {
    struct glm_proxy_words words;
    float send[BUCKET], receive[WORLD * BUCKET];
    float from[N][BUCKET], to[N][WORLD * BUCKET]; /* the device's */
    uint32_t n_launches;
    unsigned wait_us; /* before each ring */
};

static void *run_graphs(void *context)
{
    struct stream *s = context;
    for (uint32_t i = 0; i < s->n_launches * N; i++) {
        memcpy(s->send, s->from[i % N], sizeof s->send);
        if (s->wait_us > 0)
            usleep(s->wait_us);
        atomic_store(&s->words.rung, 1);
        while (atomic_load(&s->words.done) != 1)
            sched_yield();
        atomic_store(&s->words.done, 0);
        memcpy(s->to[i % N], s->receive, sizeof s->receive);
    }
    return NULL;
}

struct rank {
    struct stream *stream;
    struct glm_proxy *proxy;
    struct glm_collective_step *gather, *sum;
    pthread_t thread;
};

static enum glm_status open_rank(struct rank *r, struct glm_collective *c, struct glm_error *err)
{
    *r = (struct rank){.stream = aligned_alloc(64, (sizeof *r->stream + 63) / 64 * 64)};
    memset(r->stream, 0, sizeof *r->stream);
    struct stream *s = r->stream;
    enum glm_status st =
        glm_collective_prepare(c, GLM_GATHER, s->send, s->receive, sizeof s->send, &r->gather, err);
    if (st == GLM_OK)
        st = glm_collective_prepare(c, GLM_SUM, s->send, s->receive, sizeof s->send, &r->sum, err);
    return st == GLM_OK ? glm_proxy_new(&s->words, 2 * N, &r->proxy, err) : st;
}

static void launch(struct rank *r, uint32_t n)
{
    r->stream->n_launches = n;
    pthread_create(&r->thread, NULL, run_graphs, r->stream);
}

static void close_rank(struct rank *r)
{
    glm_proxy_free(r->proxy);
    free(r->stream);
}

/* Live bytes of exchange i: all, part or nothing of its bucket. Gathers and sums in turn. */
static size_t live_floats(uint32_t i)
{
    static const size_t n[] = {BUCKET, 3, 0, 65};
    return n[i % 4];
}

static float value(uint32_t rank, uint32_t round, uint32_t i, size_t at)
{
    return (float)(rank * 1000 + round * 7 + i * 31 + at % 13);
}

static bool is_right(const struct stream *s, uint32_t round, uint32_t i)
{
    const size_t live = live_floats(i);
    for (size_t at = 0; at < live; at++)
        for (uint32_t rank = 0; rank < WORLD; rank++) {
            const float one = value(rank, round, i, at), both = one + value(1 - rank, round, i, at);
            if (i % 8 < 4 ? s->to[i][rank * live + at] != one : s->to[i][at] != both)
                return false;
        }
    return true;
}

/* A list from rank 0, then a program or two at once, again and again: as the engine does. */
static int run_rounds(struct glm_collective *c, uint32_t rank, uint32_t world, void *context)
{
    struct glm_error err = {0};
    struct rank r;
    uint64_t ns = 0;
    (void)world;
    (void)context;
    BODY_CHECK(open_rank(&r, c, &err) == GLM_OK);
    for (uint32_t round = 0; round < LAUNCHES; round++) {
        uint8_t list[4] = {(uint8_t)round};
        size_t len = sizeof list;
        const uint32_t n = 1 + round % 2;
        BODY_CHECK(glm_collective_broadcast(c, list, sizeof list, &len, &err) == GLM_OK);
        BODY_CHECK(list[0] == round);
        for (uint32_t i = 0; i < N; i++)
            for (size_t at = 0; at < BUCKET; at++)
                r.stream->from[i][at] = value(rank, round, i, at);
        BODY_CHECK(glm_proxy_room(r.proxy) == 2 * N);
        for (uint32_t i = 0; i < n * N; i++)
            glm_proxy_expect(r.proxy, i % 8 < 4 ? r.gather : r.sum, live_floats(i) * sizeof(float));
        launch(&r, n);
        pthread_join(r.thread, NULL);
        BODY_CHECK(glm_proxy_wait(r.proxy, &ns, &err) == GLM_OK);
        for (uint32_t i = 0; i < N; i++)
            BODY_CHECK(is_right(r.stream, round, i));
    }
    const struct glm_collective_stats stats = glm_collective_stats(c);
    BODY_CHECK(stats.n_gather == 3 * LAUNCHES * N / 2 * 3 / 8);
    BODY_CHECK(stats.n_sum == stats.n_gather && ns > 0);
    close_rank(&r);
    return 0;
}

static void a_stream_gets_every_exchange_of_every_round(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++)
        test_ranks_run(&(struct test_ranks){.kind = kind == 0 ? "shm" : "tcp",
                                            .world = WORLD,
                                            .max_message = MAX_MESSAGE,
                                            .body = run_rounds});
}

/* Rank 1 leaves in the middle of a program. */
static int lose_the_peer(struct glm_collective *c, uint32_t rank, uint32_t world, void *context)
{
    struct glm_error err = {0};
    struct rank r;
    uint64_t ns = 0;
    const uint64_t began = glm_now_ms();
    (void)world;
    (void)context;
    BODY_CHECK(open_rank(&r, c, &err) == GLM_OK);
    if (rank == 1) {
        for (uint32_t i = 0; i < N / 2; i++)
            BODY_CHECK(glm_collective_run(r.sum, 64, &err) == GLM_OK);
        close_rank(&r);
        return 0;
    }
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < N; i++)
            glm_proxy_expect(r.proxy, r.sum, 64);
        launch(&r, 1);
        pthread_join(r.thread, NULL);
        BODY_CHECK(glm_proxy_wait(r.proxy, &ns, &err) == GLM_EPEER);
        BODY_CHECK(strstr(err.message, "lost rank 1") != NULL);
    }
    BODY_CHECK(glm_now_ms() - began < 5000);
    close_rank(&r);
    return 0;
}

static void a_lost_peer_ends_the_program_and_all_later_ones(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++)
        test_ranks_run(&(struct test_ranks){.kind = kind == 0 ? "shm" : "tcp",
                                            .world = WORLD,
                                            .max_message = MAX_MESSAGE,
                                            .body = lose_the_peer});
}

/* Both ranks wait; another thread gives up on one of them, which then leaves. */
static void *abort_soon(void *context)
{
    usleep(100000);
    glm_collective_abort(context);
    return NULL;
}

static int abort_it(struct glm_collective *c, uint32_t rank, uint32_t world, void *context)
{
    struct glm_error err = {0};
    struct rank r;
    pthread_t other;
    uint64_t ns = 0;
    (void)world;
    (void)context;
    BODY_CHECK(open_rank(&r, c, &err) == GLM_OK);
    if (rank == 1) { /* exchanges nothing, and stays */
        usleep(500000);
        close_rank(&r);
        return 0;
    }
    for (uint32_t i = 0; i < N; i++)
        glm_proxy_expect(r.proxy, r.sum, 64);
    pthread_create(&other, NULL, abort_soon, c);
    launch(&r, 1);
    pthread_join(r.thread, NULL);
    BODY_CHECK(glm_proxy_wait(r.proxy, &ns, &err) == GLM_EPEER);
    pthread_join(other, NULL);
    close_rank(&r);
    return 0;
}

static void an_abort_lets_the_stream_end(void **state)
{
    (void)state;
    test_ranks_run(&(struct test_ranks){
        .kind = "tcp", .world = WORLD, .max_message = MAX_MESSAGE, .body = abort_it});
}

/* ---- one rank alone: nothing is exchanged, all else is the same ---- */

static struct rank alone(struct glm_collective **c)
{
    struct glm_error err = {0};
    struct rank r;
    assert_int_equal(glm_collective_new(0, 1, NULL, MAX_MESSAGE, 0, NULL, NULL, c, &err), GLM_OK);
    assert_int_equal(open_rank(&r, *c, &err), GLM_OK);
    return r;
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void an_idle_proxy_uses_no_time_and_a_waiting_one_little(void **state)
{
    struct glm_collective *c;
    struct glm_error err = {0};
    uint64_t ns = 0;
    (void)state;
    struct rank r = alone(&c);
    for (int i = 0; i < 2; i++) { /* never used, and used */
        const double began = cpu_seconds();
        usleep(300000);
        assert_true(cpu_seconds() - began < 0.01);
        for (uint32_t k = 0; k < N; k++)
            glm_proxy_expect(r.proxy, r.sum, 64);
        launch(&r, 1);
        pthread_join(r.thread, NULL);
        assert_int_equal(glm_proxy_wait(r.proxy, &ns, &err), GLM_OK);
    }
    glm_proxy_expect(r.proxy, r.sum, 64);
    const double began = cpu_seconds();
    usleep(500000);
    assert_true(cpu_seconds() - began < 0.25);
    glm_proxy_forget(r.proxy);
    close_rank(&r);
    glm_collective_free(c);
}

static void a_slow_stream_is_waited_for(void **state)
{
    struct glm_collective *c;
    struct glm_error err = {0};
    uint64_t ns = 0;
    (void)state;
    struct rank r = alone(&c);
    r.stream->wait_us = 5000;
    r.stream->from[N - 1][0] = 7;
    for (uint32_t i = 0; i < N; i++)
        glm_proxy_expect(r.proxy, r.sum, 64);
    launch(&r, 1);
    assert_int_equal(glm_proxy_wait(r.proxy, &ns, &err), GLM_OK);
    pthread_join(r.thread, NULL);
    assert_true(r.stream->to[N - 1][0] == 7);
    assert_true(ns < 60000000); /* the exchanges alone, not the waits for the stream */
    close_rank(&r);
    glm_collective_free(c);
}

static void what_never_rings_can_be_forgotten(void **state)
{
    struct glm_collective *c;
    struct glm_error err = {0};
    uint64_t ns = 0;
    (void)state;
    struct rank r = alone(&c);
    for (int round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 2 * N; i++)
            glm_proxy_expect(r.proxy, r.sum, 64);
        assert_int_equal(glm_proxy_room(r.proxy), 0);
        glm_proxy_forget(r.proxy);
        assert_int_equal(glm_proxy_room(r.proxy), 2 * N);
        for (uint32_t i = 0; i < N; i++)
            glm_proxy_expect(r.proxy, r.sum, 64);
        launch(&r, 1);
        pthread_join(r.thread, NULL);
        assert_int_equal(glm_proxy_wait(r.proxy, &ns, &err), GLM_OK);
    }
    glm_proxy_expect(r.proxy, r.sum, 64); /* freed with it */
    close_rank(&r);
    glm_collective_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_gets_every_exchange_of_every_round),
        cmocka_unit_test(a_lost_peer_ends_the_program_and_all_later_ones),
        cmocka_unit_test(an_abort_lets_the_stream_end),
        cmocka_unit_test(an_idle_proxy_uses_no_time_and_a_waiting_one_little),
        cmocka_unit_test(a_slow_stream_is_waited_for),
        cmocka_unit_test(what_never_rings_can_be_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
