/* SPDX-License-Identifier: Apache-2.0 */
/* Links of both kinds: order, large messages, lost peers, the secret, and what is left behind. */
#include "tests/support/ranks.h"
#include "tests/support/segments.h"

#include "runtime/clock.h"
#include "runtime/net.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const kinds[] = {"shm", "tcp"};

/* Polls one direction until it is through or the peer is gone; false after 10 s. */
static bool finish(struct glm_link *l, enum glm_status (*poll_one)(struct glm_link *),
                   enum glm_status *status)
{
    uint64_t until = glm_now_ms() + 10000;
    while ((*status = poll_one(l)) == GLM_EAGAIN && glm_now_ms() < until)
        l->ops->wait(&l, 1, 20000);
    return *status != GLM_EAGAIN;
}

static void assert_finishes(struct glm_link *l, enum glm_status (*poll_one)(struct glm_link *),
                            enum glm_status want)
{
    enum glm_status status = GLM_EAGAIN;
    assert_true(finish(l, poll_one, &status));
    assert_int_equal(status, want);
}

static void messages_arrive_in_order_whatever_their_cut(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct glm_link *links[2][GLM_LINK_MAX_WORLD];
        test_links_connect(kinds[kind], 2, 4096, links);
        struct glm_link *a = links[0][1], *b = links[1][0];
        assert_string_equal(a->ops->name, kinds[kind]);
        assert_int_equal(a->peer, 1);
        assert_null(links[0][0]);
        uint8_t out[3000], in[3000];
        for (size_t i = 0; i < sizeof out; i++)
            out[i] = (uint8_t)(i * 13);
        /* Sent as 1 + 999 + 2000 bytes, received as 2500 + 500. */
        size_t sends[] = {1, 999, 2000}, receives[] = {2500, 500}, at = 0;
        for (size_t i = 0; i < 3; at += sends[i++]) {
            assert_int_equal(a->ops->post_send(a, out + at, sends[i]), GLM_OK);
            assert_finishes(a, a->ops->poll_send, GLM_OK);
        }
        at = 0;
        for (size_t i = 0; i < 2; at += receives[i++]) {
            assert_int_equal(b->ops->post_recv(b, in + at, receives[i]), GLM_OK);
            assert_finishes(b, b->ops->poll_recv, GLM_OK);
        }
        assert_memory_equal(in, out, sizeof out);
        glm_link_free(a);
        glm_link_free(b);
    }
}

static void a_second_post_is_put_off(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct glm_link *links[2][GLM_LINK_MAX_WORLD];
        test_links_connect(kinds[kind], 2, 64, links);
        struct glm_link *a = links[0][1];
        uint8_t bytes[4] = {0};
        assert_int_equal(a->ops->post_recv(a, bytes, 4), GLM_OK);
        assert_int_equal(a->ops->post_recv(a, bytes, 4), GLM_EAGAIN);
        assert_int_equal(a->ops->post_send(a, bytes, 4), GLM_OK);
        assert_int_equal(a->ops->post_send(a, bytes, 4), GLM_EAGAIN);
        assert_int_equal(a->ops->poll_recv(a), GLM_EAGAIN);
        assert_finishes(a, a->ops->poll_send, GLM_OK);
        glm_link_free(a);
        glm_link_free(links[1][0]);
    }
}

static void what_a_peer_sent_before_it_closed_is_delivered(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct glm_link *links[2][GLM_LINK_MAX_WORLD];
        test_links_connect(kinds[kind], 2, 64, links);
        struct glm_link *a = links[0][1], *b = links[1][0];
        char in[8] = {0};
        assert_int_equal(b->ops->post_send(b, "last word", 8), GLM_OK);
        assert_finishes(b, b->ops->poll_send, GLM_OK);
        glm_link_free(b);
        assert_int_equal(a->ops->post_recv(a, in, 8), GLM_OK);
        assert_finishes(a, a->ops->poll_recv, GLM_OK);
        assert_memory_equal(in, "last wor", 8);
        assert_int_equal(a->ops->post_recv(a, in, 1), GLM_OK);
        assert_finishes(a, a->ops->poll_recv, GLM_EPEER);
        glm_link_free(a);
    }
}

static void a_wait_sleeps_and_ends_when_a_message_comes(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct glm_link *links[3][GLM_LINK_MAX_WORLD];
        test_links_connect(kinds[kind], 3, 64, links);
        struct glm_link *to_1 = links[0][1], *to_2 = links[0][2];
        uint8_t one, two;
        assert_int_equal(to_1->ops->post_recv(to_1, &one, 1), GLM_OK);
        assert_int_equal(to_2->ops->post_recv(to_2, &two, 1), GLM_OK);
        clock_t cpu = clock();
        uint64_t began = glm_now_ms();
        to_1->ops->wait(links[0], 3, 300000);
        uint64_t slept = glm_now_ms() - began;
        assert_in_range(slept, 290, 5000);
        assert_true(clock() - cpu < CLOCKS_PER_SEC / 10);
        /* News on either link ends a wait for both, also when it came before. */
        assert_int_equal(links[2][0]->ops->post_send(links[2][0], "x", 1), GLM_OK);
        assert_finishes(links[2][0], links[2][0]->ops->poll_send, GLM_OK);
        began = glm_now_ms();
        to_1->ops->wait(links[0], 3, 5000000);
        assert_true(glm_now_ms() - began < 2000);
        assert_finishes(to_2, to_2->ops->poll_recv, GLM_OK);
        assert_int_equal(two, 'x');
        assert_int_equal(to_1->ops->poll_recv(to_1), GLM_EAGAIN);
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 3; j++)
                glm_link_free(links[i][j]);
    }
}

/* ---- A peer that is killed ---- */

static void a_killed_peer_is_seen_within_a_second(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct glm_link_listener *listeners[2];
        struct glm_link_address addresses[2];
        struct glm_error err = {0};
        /* The child makes its own listener: a descriptor left in this process would keep its
         * liveness lock. Its address comes through a pipe, ours is there before the fork. */
        int up[2];
        assert_int_equal(pipe(up), 0);
        assert_int_equal(glm_link_listen(kinds[kind], "127.0.0.1", 0, 2, 64, test_secret,
                                         &listeners[0], &addresses[0], &err),
                         GLM_OK);
        pid_t pid = fork();
        if (pid == 0) {
            struct glm_link *mine[2];
            if (glm_link_listen(kinds[kind], "127.0.0.1", 1, 2, 64, test_secret, &listeners[1],
                                &addresses[1], &err) != GLM_OK ||
                write(up[1], &addresses[1], sizeof addresses[1]) < 0 ||
                glm_link_connect(listeners[1], addresses, 5000, mine, &err) != GLM_OK ||
                write(up[1], "", 1) < 0)
                _exit(1);
            pause();
            _exit(0);
        }
        assert_int_equal(read(up[0], &addresses[1], sizeof addresses[1]), sizeof addresses[1]);
        struct glm_link *links[2] = {NULL};
        assert_int_equal(glm_link_connect(listeners[0], addresses, 5000, links, &err), GLM_OK);
        uint8_t byte;
        assert_int_equal(read(up[0], &byte, 1), 1);
        assert_int_equal(links[1]->ops->post_recv(links[1], &byte, 1), GLM_OK);
        assert_int_equal(links[1]->ops->poll_recv(links[1]), GLM_EAGAIN);
        kill(pid, SIGKILL);
        uint64_t began = glm_now_ms();
        assert_finishes(links[1], links[1]->ops->poll_recv, GLM_EPEER);
        assert_true(glm_now_ms() - began < 1000);
        glm_link_free(links[1]);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        close(up[0]);
        close(up[1]);
    }
}

/* ---- Connecting ---- */

struct connecting {
    struct glm_link_listener *listener;
    const struct glm_link_address *addresses;
    uint32_t deadline_ms;
    struct glm_link *links[3];
    enum glm_status status;
    struct glm_error err;
};

static void *connect_thread(void *argument)
{
    struct connecting *c = argument;
    c->status = glm_link_connect(c->listener, c->addresses, c->deadline_ms, c->links, &c->err);
    return NULL;
}

static void listen_or_fail(const char *kind, uint32_t rank, uint32_t world,
                           const uint8_t secret[32], struct connecting *c,
                           struct glm_link_address *address)
{
    *c = (struct connecting){.deadline_ms = 5000};
    assert_int_equal(
        glm_link_listen(kind, "127.0.0.1", rank, world, 64, secret, &c->listener, address, &c->err),
        GLM_OK);
}

static int connect_raw(const struct glm_link_address *address)
{
    int fd = -1;
    struct glm_error err = {0};
    assert_int_equal(glm_net_connect_start(address->text + strlen("tcp:"), &fd, &err), GLM_OK);
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    assert_int_equal(poll(&p, 1, 5000), 1);
    assert_int_equal(glm_net_connected(fd), 0);
    return fd;
}

static void strangers_are_turned_away_and_the_right_rank_still_comes(void **state)
{
    (void)state;
    uint8_t wrong[32] = "another lane's secret, 32 bytes";
    struct glm_link_address addresses[2], intruder_addresses[2];
    struct connecting ranks[2], intruder;
    listen_or_fail("tcp", 0, 2, test_secret, &ranks[0], &addresses[0]);
    listen_or_fail("tcp", 1, 2, test_secret, &ranks[1], &addresses[1]);
    listen_or_fail("tcp", 1, 2, wrong, &intruder, &intruder_addresses[1]);
    intruder_addresses[0] = addresses[0];
    intruder.addresses = intruder_addresses;
    intruder.deadline_ms = 400;
    ranks[0].addresses = ranks[1].addresses = addresses;

    /* Silent, talking nonsense, and gone again at once. */
    int silent = connect_raw(&addresses[0]), nonsense = connect_raw(&addresses[0]);
    assert_int_equal(send(nonsense, "GET / HTTP/1.1\r\nHost: somewhere.example.net\r\n\r\n", 48, 0),
                     48);
    close(connect_raw(&addresses[0]));

    pthread_t head, other, stranger;
    assert_int_equal(pthread_create(&head, NULL, connect_thread, &ranks[0]), 0);
    assert_int_equal(pthread_create(&stranger, NULL, connect_thread, &intruder), 0);
    pthread_join(stranger, NULL);
    assert_int_equal(intruder.status, GLM_EPEER);
    assert_string_equal(intruder.err.message, "cannot link rank 1 to rank 0: it does not know the "
                                              "lane's secret");
    assert_int_equal(pthread_create(&other, NULL, connect_thread, &ranks[1]), 0);
    pthread_join(other, NULL);
    pthread_join(head, NULL);
    assert_int_equal(ranks[0].status, GLM_OK);
    assert_int_equal(ranks[1].status, GLM_OK);
    glm_link_free(ranks[0].links[1]);
    glm_link_free(ranks[1].links[0]);
    close(silent);
    close(nonsense);
}

/* More of them than have places, before and while the ranks link: silent ones, and ones that greet
 * as a rank and then say nothing. */
static void a_crowd_of_idle_strangers_keeps_no_rank_out(void **state)
{
    (void)state;
    enum { CROWD = 150 };
    static const uint8_t hello[48] = {'G', 'l', 'm', 'T', 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0};
    struct glm_link_address addresses[3];
    struct connecting ranks[3];
    pthread_t threads[3];
    int crowd[CROWD];
    for (uint32_t i = 0; i < 3; i++) {
        listen_or_fail("tcp", i, 3, test_secret, &ranks[i], &addresses[i]);
        ranks[i].addresses = addresses;
        ranks[i].deadline_ms = 4000; /* before the first stranger's handshake is over */
    }
    /* Rank 1 has a place for its own connection to rank 0, too. */
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, connect_thread, &ranks[i]), 0);
    for (size_t i = 0; i < CROWD; i++) {
        crowd[i] = connect_raw(&addresses[i % 2]);
        if (i % 3 == 0)
            assert_int_equal(send(crowd[i], hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    }
    assert_int_equal(pthread_create(&threads[2], NULL, connect_thread, &ranks[2]), 0);
    for (uint32_t i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        if (ranks[i].status != GLM_OK)
            fail_msg("rank %u: %s", i, ranks[i].err.message);
    }
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t j = 0; j < 3; j++)
            glm_link_free(ranks[i].links[j]);
    for (size_t i = 0; i < CROWD; i++)
        close(crowd[i]);
}

/* A connector that answers the hello rightly but cannot sign: what it gets back proves nothing. */
static void a_proof_sent_back_is_refused(void **state)
{
    (void)state;
    struct glm_link_address addresses[2];
    struct connecting head;
    listen_or_fail("tcp", 0, 2, test_secret, &head, &addresses[0]);
    head.addresses = addresses;
    head.deadline_ms = 700;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, connect_thread, &head), 0);
    int fd = connect_raw(&addresses[0]);
    uint8_t hello[48] = {'G', 'l', 'm', 'T', 1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0}, answer[80];
    assert_int_equal(send(fd, hello, sizeof hello, 0), sizeof hello);
    size_t got = 0;
    while (got < sizeof answer) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, 5000), 1);
        ssize_t n = recv(fd, answer + got, sizeof answer - got, 0);
        assert_true(n > 0);
        got += (size_t)n;
    }
    assert_int_equal(send(fd, answer + 48, 32, 0), 32);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 5000), 1);
    assert_true(recv(fd, answer, sizeof answer, 0) <= 0);
    pthread_join(thread, NULL);
    assert_int_equal(head.status, GLM_EPEER);
    close(fd);
}

static void shm_refuses_a_segment_without_the_secret(void **state)
{
    (void)state;
    uint8_t wrong[32] = "another lane's secret, 32 bytes";
    struct glm_link_address addresses[2];
    struct connecting ranks[2];
    listen_or_fail("shm", 0, 2, test_secret, &ranks[0], &addresses[0]);
    listen_or_fail("shm", 1, 2, wrong, &ranks[1], &addresses[1]);
    ranks[0].addresses = addresses;
    connect_thread(&ranks[0]);
    assert_int_equal(ranks[0].status, GLM_EFABRIC);
    assert_non_null(strstr(ranks[0].err.message, "does not prove the lane's secret"));
    glm_link_listener_free(ranks[1].listener);
}

static void shm_refuses_a_segment_that_others_may_open(void **state)
{
    (void)state;
    struct glm_link_address addresses[2];
    struct connecting ranks[2];
    listen_or_fail("shm", 0, 2, test_secret, &ranks[0], &addresses[0]);
    listen_or_fail("shm", 1, 2, test_secret, &ranks[1], &addresses[1]);
    char path[200];
    snprintf(path, sizeof path, "/dev/shm%s", addresses[1].text + strlen("shm:"));
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(chmod(path, 0660), 0);
    ranks[0].addresses = addresses;
    connect_thread(&ranks[0]);
    assert_int_equal(ranks[0].status, GLM_EFABRIC);
    assert_non_null(strstr(ranks[0].err.message, "mode 660"));
    glm_link_listener_free(ranks[1].listener);
}

static void a_missing_rank_is_named_at_the_deadline(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct glm_link_address addresses[3];
        struct connecting ranks[3];
        pthread_t threads[2];
        for (uint32_t i = 0; i < 3; i++)
            listen_or_fail(kinds[kind], i, 3, test_secret, &ranks[i], &addresses[i]);
        uint64_t began = glm_now_ms();
        for (uint32_t i = 0; i < 2; i++) {
            ranks[i].addresses = addresses;
            ranks[i].deadline_ms = 300;
            assert_int_equal(pthread_create(&threads[i], NULL, connect_thread, &ranks[i]), 0);
        }
        for (uint32_t i = 0; i < 2; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(ranks[i].status, GLM_EPEER);
            assert_non_null(strstr(ranks[i].err.message, "to rank 2"));
        }
        assert_in_range(glm_now_ms() - began, 290, 5000);
        glm_link_listener_free(ranks[2].listener);
    }
}

static void a_peer_of_another_kind_is_named(void **state)
{
    (void)state;
    struct glm_link_address addresses[2];
    struct connecting ranks[2];
    listen_or_fail("shm", 0, 2, test_secret, &ranks[0], &addresses[0]);
    listen_or_fail("tcp", 1, 2, test_secret, &ranks[1], &addresses[1]);
    ranks[0].addresses = addresses;
    connect_thread(&ranks[0]);
    assert_int_equal(ranks[0].status, GLM_EFABRIC);
    assert_non_null(strstr(ranks[0].err.message, "this rank uses shm"));
    glm_link_listener_free(ranks[1].listener);
    struct glm_error err = {0};
    struct glm_link_listener *none = NULL;
    assert_int_equal(
        glm_link_listen("pigeon", "", 0, 2, 64, test_secret, &none, &addresses[0], &err),
        GLM_EFABRIC);
    assert_string_equal(err.message, "cannot link ranks over 'pigeon': known are shm, tcp");
}

/* A rank killed between listening and being attached leaves its segment to whoever knows its
 * address, and to the sweep once it is old enough. */
static void what_a_killed_rank_left_is_removed_by_its_address(void **state)
{
    (void)state;
    struct glm_link_address address;
    int up[2], how;
    assert_int_equal(pipe(up), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct connecting c;
        listen_or_fail("shm", 1, 2, test_secret, &c, &address);
        _exit(write(up[1], &address, sizeof address) == sizeof address ? 0 : 1);
    }
    assert_int_equal(read(up[0], &address, sizeof address), sizeof address);
    assert_int_equal(waitpid(pid, &how, 0), pid);
    char path[200];
    snprintf(path, sizeof path, "/dev/shm%s", address.text + strlen("shm:"));
    assert_int_equal(access(path, F_OK), 0);
    glm_link_sweep();
    assert_int_equal(access(path, F_OK), 0); /* too young to be called an orphan */
    glm_link_address_release(&address);
    assert_int_equal(access(path, F_OK), -1);
    close(up[0]);
    close(up[1]);
}

static void no_segment_keeps_its_name_once_all_are_attached(void **state)
{
    (void)state;
    struct glm_link *links[4][GLM_LINK_MAX_WORLD];
    struct segments before;
    segments_list(&before);
    test_links_connect("shm", 4, 100000, links);
    assert_true(segments_are_those(&before, 5000));
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            glm_link_free(links[i][j]);
}

/* An address with a port out of range, without one, empty, or too long. */
static void addresses_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host;
        uint16_t port;
    } good[] = {{"127.0.0.1:80", "127.0.0.1", 80},
                {"[::1]:65535", "::1", 65535},
                {"spark1:1", "spark1", 1}};
    static const char *const bad[] = {"",
                                      ":",
                                      "127.0.0.1",
                                      "host:",
                                      "host:0",
                                      "host:65536",
                                      "host:-1",
                                      "host: 1",
                                      "host:1x",
                                      ":80",
                                      "host:99999999999999999999"};
    char host[GLM_NET_HOST_BYTES];
    uint16_t port;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(glm_net_split(good[i].text, host, &port, NULL), GLM_OK);
        assert_string_equal(host, good[i].host);
        assert_int_equal(port, good[i].port);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(glm_net_split(bad[i], host, &port, NULL), GLM_EINVAL);
    char text[400];
    memset(text, 'a', sizeof text);
    memcpy(text + sizeof text - 3, ":1", 3);
    assert_int_equal(glm_net_split(text, host, &port, NULL), GLM_EINVAL);
}

static void a_bound_port_is_named(void **state)
{
    (void)state;
    int first = -1, second = -1;
    char text[GLM_NET_TEXT_BYTES], host[GLM_NET_HOST_BYTES], want[200];
    uint16_t port = 0;
    struct glm_error err = {0};
    assert_int_equal(glm_net_listen("127.0.0.1", 0, &first, text, &err), GLM_OK);
    assert_int_equal(glm_net_split(text, host, &port, &err), GLM_OK);
    assert_int_equal(glm_net_listen(host, port, &second, text, &err), GLM_EBUSY);
    snprintf(want, sizeof want, "cannot listen on '127.0.0.1:%u': Address already in use", port);
    assert_string_equal(err.message, want);
    close(first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_in_order_whatever_their_cut),
        cmocka_unit_test(a_second_post_is_put_off),
        cmocka_unit_test(what_a_peer_sent_before_it_closed_is_delivered),
        cmocka_unit_test(a_wait_sleeps_and_ends_when_a_message_comes),
        cmocka_unit_test(a_killed_peer_is_seen_within_a_second),
        cmocka_unit_test(strangers_are_turned_away_and_the_right_rank_still_comes),
        cmocka_unit_test(a_crowd_of_idle_strangers_keeps_no_rank_out),
        cmocka_unit_test(a_proof_sent_back_is_refused),
        cmocka_unit_test(shm_refuses_a_segment_without_the_secret),
        cmocka_unit_test(shm_refuses_a_segment_that_others_may_open),
        cmocka_unit_test(a_missing_rank_is_named_at_the_deadline),
        cmocka_unit_test(a_peer_of_another_kind_is_named),
        cmocka_unit_test(what_a_killed_rank_left_is_removed_by_its_address),
        cmocka_unit_test(no_segment_keeps_its_name_once_all_are_attached),
        cmocka_unit_test(addresses_are_checked),
        cmocka_unit_test(a_bound_port_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
