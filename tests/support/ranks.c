/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks in threads or processes for tests. Listeners are made first, by one process, so that all
 * addresses are known without a control channel. */
#include "tests/support/ranks.h"

#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

const uint8_t test_secret[32] = "a secret of the tests, 32 bytes";

struct one_rank {
    const struct test_ranks *r;
    uint32_t rank;
    struct glm_link_listener *listener;
    const struct glm_link_address *addresses;
    struct glm_link *links[GLM_LINK_MAX_WORLD];
    int result;
    struct glm_error err;
};

static void *connect_one(void *argument)
{
    struct one_rank *o = argument;
    if (glm_link_connect(o->listener, o->addresses, 10000, o->links, &o->err) != GLM_OK)
        o->result = -1;
    return NULL;
}

static void *run_one(void *argument)
{
    struct one_rank *o = argument;
    const struct test_ranks *r = o->r;
    struct glm_collective *c = NULL;
    connect_one(o);
    if (o->result != 0 ||
        glm_collective_new(o->rank, r->world, o->links, r->max_message, r->deadline_ms, r->alive,
                           r->context, &c, &o->err) != GLM_OK) {
        o->result = -1;
        return NULL;
    }
    o->result = r->body(c, o->rank, r->world, r->context);
    glm_collective_free(c);
    return NULL;
}

static void listen_all(const char *kind, uint32_t world, size_t max_message, struct one_rank *all,
                       struct glm_link_address *addresses)
{
    for (uint32_t i = 0; i < world; i++) {
        struct glm_error err = {0};
        all[i] = (struct one_rank){.rank = i, .addresses = addresses};
        if (glm_link_listen(kind, "127.0.0.1", i, world, max_message, test_secret, &all[i].listener,
                            &addresses[i], &err) != GLM_OK)
            fail_msg("rank %u: %s", i, err.message);
    }
}

static void run_threads(struct one_rank *all, uint32_t world, void *(*function)(void *))
{
    pthread_t threads[GLM_LINK_MAX_WORLD];
    for (uint32_t i = 0; i < world; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, function, &all[i]), 0);
    for (uint32_t i = 0; i < world; i++)
        pthread_join(threads[i], NULL);
}

static void run_processes(struct one_rank *all, uint32_t world)
{
    pid_t pids[GLM_LINK_MAX_WORLD];
    for (uint32_t i = 0; i < world; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] != 0)
            continue;
        run_one(&all[i]);
        if (all[i].result != 0)
            fprintf(stderr, "rank %u: %d %s\n", i, all[i].result, all[i].err.message);
        _exit(all[i].result == 0 ? 0 : 1);
    }
    for (uint32_t i = 0; i < world; i++) {
        int how = -1;
        assert_int_equal(waitpid(pids[i], &how, 0), pids[i]);
        all[i].result = WIFEXITED(how) ? WEXITSTATUS(how) : -WTERMSIG(how);
        glm_link_listener_free(all[i].listener);
    }
}

void test_ranks_run(const struct test_ranks *r)
{
    struct one_rank all[GLM_LINK_MAX_WORLD];
    struct glm_link_address addresses[GLM_LINK_MAX_WORLD];
    listen_all(r->kind, r->world, r->max_message, all, addresses);
    for (uint32_t i = 0; i < r->world; i++)
        all[i].r = r;
    if (r->as == TEST_THREADS)
        run_threads(all, r->world, run_one);
    else
        run_processes(all, r->world);
    for (uint32_t i = 0; i < r->world; i++)
        if (all[i].result != 0)
            fail_msg("%s, %u ranks: rank %u failed at line %d %s", r->kind, r->world, i,
                     all[i].result, all[i].err.message);
}

void test_links_connect(const char *kind, uint32_t world, size_t max_message,
                        struct glm_link *links[][GLM_LINK_MAX_WORLD])
{
    struct one_rank all[GLM_LINK_MAX_WORLD];
    struct glm_link_address addresses[GLM_LINK_MAX_WORLD];
    listen_all(kind, world, max_message, all, addresses);
    run_threads(all, world, connect_one);
    for (uint32_t i = 0; i < world; i++) {
        if (all[i].result != 0)
            fail_msg("%s: rank %u: %s", kind, i, all[i].err.message);
        memcpy(links[i], all[i].links, sizeof all[i].links);
    }
}
