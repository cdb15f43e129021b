/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives over both kinds of links, ranks as threads and as processes. */
#include "tests/support/ranks.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const kinds[] = {"shm", "tcp"};

/* Values whose sum depends on the order, and some that are special. */
static float element(uint32_t rank, size_t i)
{
    uint64_t x = (i + 1) * 0x9E3779B97F4A7C15u + rank * 0xD1B54A32D192ED03u;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 32;
    if (i % 97 == 5)
        return -0.0f;
    if (i % 101 == 7)
        return rank == 0 ? 1e30f : 1e-30f;
    return ldexpf((float)(int32_t)(uint32_t)x, -31 + (int)(x >> 59) - 8);
}

static float expected_sum(uint32_t world, size_t i)
{
    volatile float sum = element(0, i);
    for (uint32_t r = 1; r < world; r++)
        sum = sum + element(r, i);
    return sum;
}

static const size_t sum_floats[] = {1,
                                    3,
                                    16,
                                    17,
                                    256,
                                    4099,
                                    GLM_SUM_OWNER_BYTES / 4 - 1,
                                    GLM_SUM_OWNER_BYTES / 4,
                                    GLM_SUM_OWNER_BYTES / 4 + 5,
                                    200003};
enum { N_SUMS = sizeof sum_floats / sizeof sum_floats[0], MAX_FLOATS = 200003 };

static int sum_body(struct glm_collective *c, uint32_t rank, uint32_t world, void *context)
{
    struct glm_error err = {0};
    bool in_place = *(bool *)context;
    float *from = calloc(MAX_FLOATS, 4), *to = in_place ? from : malloc(MAX_FLOATS * 4);
    struct glm_collective_step *s = NULL;
    BODY_CHECK(from != NULL && to != NULL);
    BODY_CHECK(glm_collective_prepare(c, GLM_SUM, from, to, MAX_FLOATS * 4, &s, &err) == GLM_OK);
    for (size_t k = 0; k < N_SUMS; k++) {
        size_t n = sum_floats[k];
        for (size_t i = 0; i < n; i++)
            from[i] = element(rank, i);
        BODY_CHECK(glm_collective_run(s, n * 4, &err) == GLM_OK);
        for (size_t i = 0; i < n; i++) {
            float want = expected_sum(world, i);
            BODY_CHECK(memcmp(&to[i], &want, 4) == 0);
        }
    }
    struct glm_collective_stats stats = glm_collective_stats(c);
    BODY_CHECK(stats.n_sum == N_SUMS && stats.n_gather == 0);
    BODY_CHECK((stats.bytes_sent > 0) == (world > 1));
    if (!in_place)
        free(to);
    free(from);
    return 0;
}

static void sums_small_and_large_in_rank_order_with_equal_bits(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++)
        for (uint32_t world = 1; world <= 5; world++)
            for (int in_place = 0; in_place < 2; in_place++) {
                bool flag = in_place != 0;
                test_ranks_run(&(struct test_ranks){.kind = kinds[kind],
                                                    .world = world,
                                                    .max_message = MAX_FLOATS * 4,
                                                    .body = sum_body,
                                                    .context = &flag});
            }
}

static void sums_between_processes(void **state)
{
    (void)state;
    bool in_place = false;
    for (int kind = 0; kind < 2; kind++)
        test_ranks_run(&(struct test_ranks){.as = TEST_PROCESSES,
                                            .kind = kinds[kind],
                                            .world = 3,
                                            .max_message = MAX_FLOATS * 4,
                                            .body = sum_body,
                                            .context = &in_place});
}

enum { GATHER_MAX = 700001 };

static uint8_t gather_byte(uint32_t rank, size_t i)
{
    return (uint8_t)(i * 7 + rank * 31 + (i >> 9));
}

/* 700,001 bytes are more than any ring or socket buffer holds: all ranks send at once. */
static int gather_body(struct glm_collective *c, uint32_t rank, uint32_t world, void *context)
{
    (void)context;
    static const size_t sizes[] = {0, 1, 40, 4096, GATHER_MAX};
    struct glm_error err = {0};
    uint8_t *from = malloc(GATHER_MAX), *to = malloc((size_t)world * GATHER_MAX);
    struct glm_collective_step *s = NULL;
    BODY_CHECK(from != NULL && to != NULL);
    for (size_t i = 0; i < GATHER_MAX; i++)
        from[i] = gather_byte(rank, i);
    BODY_CHECK(glm_collective_prepare(c, GLM_GATHER, from, to, GATHER_MAX, &s, &err) == GLM_OK);
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        memset(to, 0xEE, (size_t)world * GATHER_MAX);
        BODY_CHECK(glm_collective_run(s, sizes[k], &err) == GLM_OK);
        for (uint32_t r = 0; r < world; r++)
            for (size_t i = 0; i < sizes[k]; i++)
                BODY_CHECK(to[r * sizes[k] + i] == gather_byte(r, i));
    }
    BODY_CHECK(glm_collective_enqueue(s, GATHER_MAX + 1, &err) == GLM_EINVAL);
    BODY_CHECK(strstr(err.message, "700002") != NULL && strstr(err.message, "700001") != NULL);
    free(to);
    free(from);
    return 0;
}

static void gathers_in_rank_order_with_large_messages_crossing(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++)
        for (uint32_t world = 1; world <= 4; world++)
            test_ranks_run(&(struct test_ranks){.kind = kinds[kind],
                                                .world = world,
                                                .max_message = GATHER_MAX,
                                                .body = gather_body});
}

/* A fast rank may start the next collective while a slow one is still in the last. */
static int mixed_body(struct glm_collective *c, uint32_t rank, uint32_t world, void *context)
{
    (void)context;
    struct glm_error err = {0};
    enum { N = 64 };
    float from[N] = {0}, sum[N];
    uint32_t all[8] = {0}, own = 0;
    uint8_t list[6000];
    struct glm_collective_step *s, *g;
    BODY_CHECK(glm_collective_prepare(c, GLM_SUM, from, sum, sizeof from, &s, &err) == GLM_OK);
    BODY_CHECK(glm_collective_prepare(c, GLM_GATHER, &own, all, sizeof own, &g, &err) == GLM_OK);
    for (uint32_t round = 0; round < 300; round++) {
        size_t len = rank == 0 ? (round * 37) % sizeof list : 0;
        for (size_t i = 0; i < len; i++)
            list[i] = (uint8_t)(round + i);
        BODY_CHECK(glm_collective_broadcast(c, list, sizeof list, &len, &err) == GLM_OK);
        BODY_CHECK(len == (round * 37) % sizeof list);
        for (size_t i = 0; i < len; i++)
            BODY_CHECK(list[i] == (uint8_t)(round + i));
        for (int i = 0; i < N; i++)
            from[i] = (float)(rank + 1) * (float)(round + (uint32_t)i);
        BODY_CHECK(glm_collective_run(s, sizeof from, &err) == GLM_OK);
        for (int i = 0; i < N; i++)
            BODY_CHECK(sum[i] == (float)(world * (world + 1) / 2) * (float)(round + (uint32_t)i));
        own = round * 10 + rank;
        BODY_CHECK(glm_collective_run(g, sizeof own, &err) == GLM_OK);
        for (uint32_t r = 0; r < world; r++)
            BODY_CHECK(all[r] == round * 10 + r);
    }
    return 0;
}

static void lists_sums_and_gathers_follow_each_other(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++)
        for (uint32_t world = 1; world <= 4; world++)
            test_ranks_run(&(struct test_ranks){
                .kind = kinds[kind], .world = world, .max_message = 4096, .body = mixed_body});
}

static int step_body(struct glm_collective *c, uint32_t rank, uint32_t world, void *context)
{
    (void)world, (void)context;
    struct glm_error err = {0};
    struct glm_collective_step *s;
    uint32_t own = rank, all[2] = {0};
    uint8_t list[8] = {0};
    size_t len = sizeof list;
    BODY_CHECK(glm_collective_prepare(c, GLM_GATHER, &own, all, sizeof own, &s, &err) == GLM_OK);
    if (rank == 1) /* an exchange of nothing that rank 0 does not run */
        BODY_CHECK(glm_collective_run(s, 0, &err) == GLM_OK);
    enum glm_status status = glm_collective_broadcast(c, list, sizeof list, &len, &err);
    if (rank == 0)
        BODY_CHECK(status == GLM_OK);
    else
        BODY_CHECK(status == GLM_EPEER && strstr(err.message, "number 1 ") != NULL &&
                   strstr(err.message, "number 2 ") != NULL);
    return 0;
}

static void a_rank_out_of_step_is_told_both_counts(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++)
        test_ranks_run(&(struct test_ranks){
            .kind = kinds[kind], .world = 2, .max_message = 64, .body = step_body});
}

static int long_list_body(struct glm_collective *c, uint32_t rank, uint32_t world, void *context)
{
    (void)world, (void)context;
    struct glm_error err = {0};
    uint8_t list[64] = {0};
    size_t len = sizeof list;
    enum glm_status status =
        glm_collective_broadcast(c, list, rank == 0 ? sizeof list : 63, &len, &err);
    BODY_CHECK(status == (rank == 0 ? GLM_OK : GLM_EPEER));
    BODY_CHECK(rank == 0 || (strstr(err.message, "64 bytes") != NULL &&
                             strstr(err.message, "63 bytes") != NULL));
    return 0;
}

static void a_list_longer_than_its_buffer_is_refused(void **state)
{
    (void)state;
    test_ranks_run(
        &(struct test_ranks){.kind = "shm", .world = 2, .max_message = 64, .body = long_list_body});
}

/* Rank 1 leaves without a word while rank 0 waits for it. */
static int leave_body(struct glm_collective *c, uint32_t rank, uint32_t world, void *context)
{
    (void)world, (void)context;
    struct glm_error err = {0};
    struct glm_collective_step *s;
    uint32_t own = rank, all[3] = {0};
    BODY_CHECK(glm_collective_prepare(c, GLM_GATHER, &own, all, sizeof own, &s, &err) == GLM_OK);
    if (rank == 2)
        return 0;
    enum glm_status status = glm_collective_run(s, sizeof own, &err);
    BODY_CHECK(status == GLM_EPEER);
    /* Either the rank that left or, once the other rank has given up too, that one. */
    BODY_CHECK(strstr(err.message, "lost rank") != NULL);
    struct glm_error again = {0};
    BODY_CHECK(glm_collective_run(s, sizeof own, &again) == GLM_EPEER);
    size_t len = 0;
    BODY_CHECK(glm_collective_broadcast(c, &own, sizeof own, &len, &again) == GLM_EPEER);
    return 0;
}

static void a_rank_that_leaves_ends_all_exchanges(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++)
        test_ranks_run(&(struct test_ranks){
            .kind = kinds[kind], .world = 3, .max_message = 64, .body = leave_body});
}

struct silence {
    pthread_mutex_t mutex;
    pthread_cond_t over;
    int n_asked;
    bool done;
};

static int ask(void *context, uint32_t peer)
{
    struct silence *s = context;
    pthread_mutex_lock(&s->mutex);
    int n = ++s->n_asked;
    pthread_mutex_unlock(&s->mutex);
    return peer == 1 && n < 3; /* alive twice, then not */
}

static int silent_body(struct glm_collective *c, uint32_t rank, uint32_t world, void *context)
{
    (void)world;
    struct silence *quiet = context;
    struct glm_error err = {0};
    struct glm_collective_step *s;
    uint32_t own = rank, all[2] = {0};
    BODY_CHECK(glm_collective_prepare(c, GLM_GATHER, &own, all, sizeof own, &s, &err) == GLM_OK);
    pthread_mutex_lock(&quiet->mutex);
    while (rank == 1 && !quiet->done)
        pthread_cond_wait(&quiet->over, &quiet->mutex);
    pthread_mutex_unlock(&quiet->mutex);
    if (rank == 1)
        return 0;
    enum glm_status status = glm_collective_run(s, sizeof own, &err);
    pthread_mutex_lock(&quiet->mutex);
    quiet->done = true;
    pthread_cond_signal(&quiet->over);
    pthread_mutex_unlock(&quiet->mutex);
    BODY_CHECK(status == GLM_EPEER && strstr(err.message, "lost rank 1") != NULL);
    return 0;
}

static void a_silent_peer_is_waited_for_while_control_says_alive(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct silence quiet = {.mutex = PTHREAD_MUTEX_INITIALIZER,
                                .over = PTHREAD_COND_INITIALIZER};
        test_ranks_run(&(struct test_ranks){.kind = kinds[kind],
                                            .world = 2,
                                            .max_message = 64,
                                            .deadline_ms = 50,
                                            .alive = ask,
                                            .context = &quiet,
                                            .body = silent_body});
        assert_int_equal(quiet.n_asked, 3);
    }
}

static void *abort_later(void *argument)
{
    struct timespec t = {.tv_nsec = 50000000};
    nanosleep(&t, NULL);
    glm_collective_abort(argument);
    return NULL;
}

/* Both ranks wait for a list that never comes, or rank 0 for a peer's part. */
static int abort_body(struct glm_collective *c, uint32_t rank, uint32_t world, void *context)
{
    (void)world, (void)context;
    struct glm_error err = {0};
    struct glm_collective_step *s;
    uint32_t own = rank, all[2] = {0};
    size_t len = 0;
    pthread_t thread;
    BODY_CHECK(glm_collective_prepare(c, GLM_GATHER, &own, all, sizeof own, &s, &err) == GLM_OK);
    BODY_CHECK(pthread_create(&thread, NULL, abort_later, c) == 0);
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    enum glm_status status = rank == 0 ? glm_collective_run(s, sizeof own, &err)
                                       : glm_collective_broadcast(c, all, sizeof all, &len, &err);
    clock_gettime(CLOCK_MONOTONIC, &after);
    pthread_join(thread, NULL);
    BODY_CHECK(status == GLM_EPEER);
    BODY_CHECK(after.tv_sec - before.tv_sec <= 2);
    return 0;
}

static void abort_ends_a_wait_from_another_thread(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++)
        test_ranks_run(&(struct test_ranks){
            .kind = kinds[kind], .world = 2, .max_message = 64, .body = abort_body});
}

static int look_body(struct glm_collective *c, uint32_t rank, uint32_t world, void *context)
{
    const struct timespec nap = {.tv_nsec = 5000000};
    struct glm_error err = {0};
    (void)world, (void)context;
    BODY_CHECK(rank == 1 || glm_collective_look(c, &err) == GLM_OK);
    for (int i = 0; rank == 1 && i < 20; i++)
        nanosleep(&nap, NULL);
    if (rank == 1)
        return 0;
    enum glm_status status = GLM_OK;
    for (int i = 0; status == GLM_OK && i < 1000; i++) {
        nanosleep(&nap, NULL);
        status = glm_collective_look(c, &err);
    }
    BODY_CHECK(status == GLM_EPEER && strstr(err.message, "lost rank 1") != NULL);
    return 0;
}

static void a_rank_that_is_gone_is_seen_without_an_exchange(void **state)
{
    (void)state;
    test_ranks_run(
        &(struct test_ranks){.kind = "shm", .world = 2, .max_message = 64, .body = look_body});
}

static void what_a_gpu_exchanges_is_counted(void **state)
{
    struct glm_collective *c;
    struct glm_error err = {0};
    (void)state;
    assert_int_equal(glm_collective_new(0, 1, NULL, 64, 0, NULL, NULL, &c, &err), GLM_OK);
    glm_collective_note(c, GLM_SUM, 64);
    glm_collective_note(c, GLM_GATHER, 8);
    glm_collective_note(c, GLM_GATHER, 8);
    struct glm_collective_stats s = glm_collective_stats(c);
    assert_int_equal(s.n_sum, 1);
    assert_int_equal(s.n_gather, 2);
    assert_int_equal(glm_collective_look(c, &err), GLM_OK);
    glm_collective_abort(c);
    assert_int_equal(glm_collective_look(c, &err), GLM_EPEER);
    glm_collective_free(c);
}

static void world_one_needs_no_links(void **state)
{
    (void)state;
    struct glm_error err = {0};
    struct glm_collective *c = NULL;
    struct glm_collective_step *sum = NULL, *gather = NULL;
    float from[3] = {1.5f, -0.0f, 3.0f}, to[3] = {9, 9, 9};
    uint8_t bytes[5] = "abcd", all[5] = {0};
    size_t len = 4;
    assert_int_equal(glm_collective_new(0, 1, NULL, 64, 0, NULL, NULL, &c, &err), GLM_OK);
    assert_int_equal(glm_collective_prepare(c, GLM_SUM, from, to, sizeof from, &sum, &err), GLM_OK);
    assert_int_equal(glm_collective_prepare(c, GLM_GATHER, bytes, all, 5, &gather, &err), GLM_OK);
    assert_int_equal(glm_collective_run(sum, sizeof from, &err), GLM_OK);
    assert_memory_equal(from, to, sizeof from);
    assert_int_equal(glm_collective_run(gather, 5, &err), GLM_OK);
    assert_string_equal((char *)all, "abcd");
    assert_int_equal(glm_collective_broadcast(c, bytes, sizeof bytes, &len, &err), GLM_OK);
    assert_int_equal(len, 4);
    assert_int_equal(glm_collective_enqueue(sum, 6, &err), GLM_EINVAL);
    glm_collective_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(world_one_needs_no_links),
        cmocka_unit_test(sums_small_and_large_in_rank_order_with_equal_bits),
        cmocka_unit_test(sums_between_processes),
        cmocka_unit_test(gathers_in_rank_order_with_large_messages_crossing),
        cmocka_unit_test(lists_sums_and_gathers_follow_each_other),
        cmocka_unit_test(a_rank_out_of_step_is_told_both_counts),
        cmocka_unit_test(a_list_longer_than_its_buffer_is_refused),
        cmocka_unit_test(a_rank_that_leaves_ends_all_exchanges),
        cmocka_unit_test(a_silent_peer_is_waited_for_while_control_says_alive),
        cmocka_unit_test(abort_ends_a_wait_from_another_thread),
        cmocka_unit_test(a_rank_that_is_gone_is_seen_without_an_exchange),
        cmocka_unit_test(what_a_gpu_exchanges_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
