/* SPDX-License-Identifier: Apache-2.0 */
/* peer_send and peer_take on the CPU, every rank's memory in this process: gather and sum have the
 * bits that the host's collective gives, whoever is early or late, a rank that is given up does not
 * wait, and planted mistakes are noticed. */
#include "kernels-templates/peer.h"
#include "tests/support/gpu.h"
#include "tests/support/simt.h"
#include "tests/support/streams.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_ROWS = 9, ROUNDS = 24 };

/* What a rank exchanges in turn: rows of 20 bytes, wanted ones, several parts a rank, once: five
 * parts for four blocks. */
static const struct glm_peer_exchange kinds[] = {
    {.row_bytes = 20, .per = GLM_PEER_PER_ROW},
    {.row_bytes = 5000, .per = GLM_PEER_PER_ROW, .is_sum = 1},
    {.row_bytes = 24, .per = GLM_PEER_PER_OUT},
    {.row_bytes = 40004, .per = GLM_PEER_ONCE, .is_sum = 1},
    {.row_bytes = 4096, .per = GLM_PEER_PER_OUT},
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0], MAX_ROW_BYTES = 5000 };
enum { SLOT = (MAX_ROWS * MAX_ROW_BYTES + 63) / 64 * 64 };
enum { N_PARTS = (SLOT + GLM_PEER_PART_BYTES - 1) / GLM_PEER_PART_BYTES };

struct rank {
    struct host *host;
    uint32_t rank;
    struct test_device_kernel *send, *take;
    struct glm_peers *peers;
    struct glm_peer_exchange *exchange;
    unsigned char *from, *to;
    uint32_t *gone;
    bool wrong;
};

/* One machine; its ranks' threads take different times. */
struct host {
    uint32_t world;
    struct rank ranks[GLM_PEERS];
};

/* A rank's own copy of a kernel, since the emulator runs one launch of a copy at a time. */
static struct test_device_kernel *kernel(const char *name, uint32_t world, uint32_t rank,
                                         const char *was, const char *is)
{
    char params[32], own[64];
    snprintf(params, sizeof params, "WORLD=%u", world);
    snprintf(own, sizeof own, "#include \"peer.cuh\"\n/* rank %u */\n", rank);
    return was != NULL ? test_device_kernel_with(name, params, was, is)
                       : test_device_kernel_with(name, params, "#include \"peer.cuh\"\n", own);
}

/* The mistake, where there is one, is all ranks': they must then run one at a time. */
static void open_host(struct host *h, uint32_t world, const char *where, const char *was,
                      const char *is)
{
    *h = (struct host){.world = world};
    for (uint32_t r = 0; r < world; r++) {
        struct rank *k = &h->ranks[r];
        const bool in_send = where != NULL && strcmp(where, "peer_take") != 0;
        const bool in_take = where != NULL && strcmp(where, "peer_send") != 0;
        *k = (struct rank){.host = h, .rank = r};
        k->send = kernel("peer_send", world, r, in_send ? was : NULL, is);
        k->take = kernel("peer_take", world, r, in_take ? was : NULL, is);
        k->peers = test_alloc(sizeof *k->peers);
        k->exchange = test_alloc(sizeof *k->exchange);
        k->from = test_alloc(SLOT);
        k->to = test_alloc(world * SLOT);
        k->gone = test_alloc(sizeof *k->gone);
        *k->gone = 0;
        *k->peers =
            (struct glm_peers){.rank = r, .slot_bytes = SLOT, .n_parts = N_PARTS, .gone = k->gone};
    }
    for (uint32_t r = 0; r < world; r++) {
        unsigned char *inbox = test_alloc(2 * world * SLOT);
        uint64_t *flags = test_alloc(world * N_PARTS * sizeof *flags);
        memset(inbox, 0xff, 2 * world * SLOT);
        memset(flags, 0, world * N_PARTS * sizeof *flags);
        for (uint32_t i = 0; i < world; i++) {
            h->ranks[i].peers->inbox[r] = inbox;
            h->ranks[i].peers->flags[r] = flags;
        }
    }
}

static uint32_t rows_of(uint32_t n)
{
    return 1 + n * 5 % MAX_ROWS;
}
static uint32_t outs_of(uint32_t n)
{
    return n % 4 == 3 ? 0 : 1 + n % rows_of(n);
}
static uint32_t bytes_of(uint32_t n)
{
    const struct glm_peer_exchange *x = &kinds[n % N_KINDS];
    const uint32_t rows = x->per == GLM_PEER_PER_ROW   ? rows_of(n)
                          : x->per == GLM_PEER_PER_OUT ? outs_of(n)
                                                       : 1;
    return rows * (uint32_t)x->row_bytes;
}

/* What rank r sends in round n: magnitudes apart, so that the order of a sum shows. */
static float element(uint32_t n, uint32_t r, uint32_t i)
{
    struct test_random random = {(uint64_t)n * 1000003 + (uint64_t)r * 7919 + i};
    return (float)test_random_normal(&random) * (r % 2 != 0 ? 1000.0f : 1.0f);
}

static const char *launch(struct rank *k, bool take, uint32_t n)
{
    void *const args[] = {take ? k->to : k->from, k->peers, k->exchange};
    struct test_round *round = test_round(rows_of(n));
    struct glm_round live = round->round;
    live.n_rows = (int32_t)rows_of(n);
    live.n_out = (int32_t)outs_of(n);
    const char *fault = test_device_run(take ? k->take : k->send, &live, rows_of(n), outs_of(n),
                                        args, 3, n % 3 == 0 ? 0 : n);
    return fault;
}

static void send(struct rank *k, uint32_t n)
{
    for (uint32_t i = 0; i < bytes_of(n) / 4; i++) {
        const float v = element(n, k->rank, i);
        memcpy(k->from + 4 * i, &v, 4);
    }
    *k->exchange = kinds[n % N_KINDS];
    const char *fault = launch(k, false, n);
    if (fault != NULL)
        print_message("send: %s\n", fault);
    k->wrong = k->wrong || fault != NULL;
}

static bool is_right(const struct rank *k, uint32_t n)
{
    const uint32_t world = k->host->world, floats = bytes_of(n) / 4;
    float got;
    for (uint32_t i = 0; i < (kinds[n % N_KINDS].is_sum != 0 ? 0 : world * floats); i++) {
        const float want = element(n, i / floats, i % floats);
        if (memcmp(k->to + 4 * i, &want, 4) != 0)
            return false;
    }
    for (uint32_t i = 0; i < (kinds[n % N_KINDS].is_sum != 0 ? floats : 0); i++) {
        float want = element(n, 0, i);
        for (uint32_t r = 1; r < world; r++)
            want += element(n, r, i);
        memcpy(&got, k->to + 4 * i, 4);
        if (memcmp(&got, &want, 4) != 0)
            return false;
    }
    return true;
}

static void take(struct rank *k, uint32_t n)
{
    *k->exchange = kinds[n % N_KINDS];
    memset(k->to, 0xee, k->host->world * SLOT);
    const char *fault = launch(k, true, n);
    if (fault != NULL)
        print_message("take: %s\n", fault);
    k->wrong = k->wrong || fault != NULL || !is_right(k, n);
    const uint32_t end = (kinds[n % N_KINDS].is_sum != 0 ? 1 : k->host->world) * bytes_of(n);
    k->wrong = k->wrong || (end < k->host->world * SLOT && k->to[end] != 0xee);
}

static bool any_wrong(const struct host *h)
{
    bool wrong = false;
    for (uint32_t r = 0; r < h->world; r++)
        wrong = wrong || h->ranks[r].wrong;
    return wrong;
}

/* One rank after the other, each as far ahead of the rest as it can be. */
static bool works_in_turns(struct host *h)
{
    for (uint32_t r = 0; r < h->world; r++)
        send(&h->ranks[r], 0);
    for (uint32_t n = 0; n < ROUNDS; n++) {
        for (uint32_t i = 0; i < h->world; i++) {
            struct rank *k = &h->ranks[n % 2 == 0 ? i : h->world - 1 - i];
            take(k, n);
            send(k, n + 1); /* those that come later in this loop have not taken n */
        }
    }
    return !any_wrong(h);
}

static void every_rank_gets_what_all_sent(void **state)
{
    struct host h;
    NEED_DEVICE();
    for (uint32_t world = 2; world <= 4; world++) {
        open_host(&h, world, NULL, NULL, NULL);
        assert_true(works_in_turns(&h));
    }
    open_host(&h, GLM_PEERS, NULL, NULL, NULL);
    assert_true(works_in_turns(&h));
}

static void *run_rank(void *context)
{
    struct rank *k = context;
    for (uint32_t n = 0; n < ROUNDS; n++) {
        usleep(((k->rank + n) * 2654435761u >> 16) % 3000);
        send(k, n);
        take(k, n);
    }
    return NULL;
}

static void ranks_of_unequal_speed_wait_for_each_other(void **state)
{
    NEED_DEVICE();
    for (uint32_t world = 2; world <= 4; world++) {
        struct host h;
        pthread_t threads[GLM_PEERS];
        open_host(&h, world, NULL, NULL, NULL);
        for (uint32_t r = 0; r < world; r++)
            assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &h.ranks[r]), 0);
        for (uint32_t r = 0; r < world; r++)
            pthread_join(threads[r], NULL);
        assert_false(any_wrong(&h));
    }
}

static void *give_up(void *gone)
{
    usleep(20000);
    __atomic_store_n((uint32_t *)gone, 1, __ATOMIC_RELAXED);
    return NULL;
}

/* Did it leave without an answer? */
static bool leaves_when_given_up(struct host *h)
{
    struct rank *k = &h->ranks[0];
    pthread_t thread;
    for (uint32_t r = 0; r + 1 < h->world; r++)
        send(&h->ranks[r], 1);
    assert_int_equal(pthread_create(&thread, NULL, give_up, k->gone), 0);
    take(k, 1);
    pthread_join(thread, NULL);
    return k->to[0] == 0xee && k->peers->epoch == 0;
}

static void a_rank_that_is_given_up_waits_no_longer(void **state)
{
    struct host h;
    NEED_DEVICE();
    open_host(&h, 3, NULL, NULL, NULL);
    assert_true(leaves_when_given_up(&h));
    open_host(&h, 3, "peer_take", "_system(flag) < n", "_system(flag) < 0 * n");
    assert_false(leaves_when_given_up(&h));
}

static void mistakes_are_noticed(void **state)
{
    static const struct {
        const char *where, *was, *is;
    } mistakes[] = {
        {"both", "((n & 1) * GLM_WORLD", "((n & 0) * GLM_WORLD"},
        {"peer_take", "(uint64_t)r * slot_bytes", "(uint64_t)(GLM_WORLD - r) * slot_bytes"},
        {"peer_take", "(uint64_t)r * bytes + at", "(uint64_t)(GLM_WORLD - 1 - r) * bytes + at"},
        {"peer_take", "if (bytes >= 16 && ", "if (bytes > 0 && "},
        {"peer_send", "part += (uint64_t)glm_grid_x()", "part += 64 * (uint64_t)glm_grid_x()"},
        {"both", "_OUT ? round->n_out", "_OUT ? round->n_rows"},
    };
    NEED_DEVICE();
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        struct host h;
        open_host(&h, 3, mistakes[i].where, mistakes[i].was, mistakes[i].is);
        for (uint32_t r = 0; r < h.world; r++) /* what never comes is not waited for */
            *h.ranks[r].gone = 1;
        if (works_in_turns(&h))
            fail_msg("not noticed: %s", mistakes[i].was);
    }
}

int main(int argc, char **argv)
{
    (void)argc;
    if (test_gpu_chosen()) { /* test_gpu_rank has the ranks for it */
        print_message("# memory of several GPUs is not this test's\n");
        unsetenv("GLM_TEST_GPU");
    }
    (void)argv;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_gets_what_all_sent),
        cmocka_unit_test(ranks_of_unequal_speed_wait_for_each_other),
        cmocka_unit_test(a_rank_that_is_given_up_waits_no_longer),
        cmocka_unit_test(mistakes_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
