/* SPDX-License-Identifier: Apache-2.0 */
/* Control frames and connections: what a wrong, cut, replayed or foreign frame meets. */
#include "runtime/clock.h"
#include "runtime/control_conn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

static const uint8_t secret[32] = "a secret of the tests, 32 bytes";
static const uint8_t other_secret[32] = "another secret of the tests....";

enum { CAPACITY = 256 };

static size_t encode(uint8_t out[CAPACITY], enum glm_control_type type, uint64_t sequence,
                     const char *payload)
{
    struct glm_control_frame f = {.type = type,
                                  .epoch = 7,
                                  .sequence = sequence,
                                  .payload = (const uint8_t *)payload,
                                  .len = (uint32_t)strlen(payload)};
    size_t n = glm_control_encode(&f, secret, out, CAPACITY);
    assert_int_equal(n, 64 + strlen(payload));
    return n;
}

static void assert_refused(const uint8_t *bytes, size_t len, const uint8_t key[32], uint64_t last,
                           const char *message)
{
    struct glm_control_frame f;
    struct glm_error err = {0};
    size_t used = 99;
    assert_int_equal(glm_control_decode(bytes, len, key, last, &f, &used, &err), GLM_EINVAL);
    assert_int_equal(used, 0);
    assert_string_equal(err.message, message);
}

static void a_frame_comes_back_as_it_was_sent(void **state)
{
    (void)state;
    uint8_t bytes[CAPACITY];
    size_t n = encode(bytes, GLM_CONTROL_BEAT, 5, "{\"round\":12}"), used = 0;
    struct glm_control_frame f;
    struct glm_error err = {0};
    assert_int_equal(glm_control_decode(bytes, n + 3, secret, 4, &f, &used, &err), GLM_OK);
    assert_int_equal(used, n);
    assert_int_equal(f.type, GLM_CONTROL_BEAT);
    assert_int_equal(f.epoch, 7);
    assert_int_equal(f.sequence, 5);
    assert_int_equal(f.len, 12);
    assert_memory_equal(f.payload, "{\"round\":12}", 12);
    /* The layout is fixed: another build must read it. */
    static const uint8_t header[32] = {'G', 'l', 'm', 'C', 1, 0, 0, 0, GLM_CONTROL_BEAT,
                                       0,   0,   0,   12,  0, 0, 0, 7, 0,
                                       0,   0,   0,   0,   0, 0, 5};
    assert_memory_equal(bytes, header, sizeof header);
}

static void a_frame_cut_anywhere_asks_for_more(void **state)
{
    (void)state;
    uint8_t bytes[CAPACITY];
    size_t n = encode(bytes, GLM_CONTROL_STOP, 1, "{}"), used = 99;
    struct glm_control_frame f;
    for (size_t len = 0; len < n; len++) {
        assert_int_equal(glm_control_decode(bytes, len, secret, 0, &f, &used, NULL), GLM_OK);
        assert_int_equal(used, 0);
    }
}

static void every_flipped_bit_is_refused(void **state)
{
    (void)state;
    uint8_t bytes[CAPACITY];
    size_t n = encode(bytes, GLM_CONTROL_STOP, 1, "{}");
    for (size_t bit = 0; bit < n * 8; bit++) {
        struct glm_control_frame f;
        size_t used = 0;
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        /* A longer claimed length waits for bytes that are not there; nothing is accepted. */
        enum glm_status status = glm_control_decode(bytes, n, secret, 0, &f, &used, NULL);
        assert_true(status == GLM_EINVAL || (status == GLM_OK && used == 0));
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

static void refusals_say_what_is_wrong(void **state)
{
    (void)state;
    uint8_t good[CAPACITY], bytes[CAPACITY];
    size_t n = encode(good, GLM_CONTROL_STATUS, 9, "x");
    assert_refused(good, n, other_secret, 0, "bad frame: its MAC is wrong, the secrets differ");
    assert_refused(good, n, secret, 9, "bad frame: sequence 9 was used, the last was 9");
    assert_refused(good, n, secret, 10, "bad frame: sequence 9 was used, the last was 10");
    assert_refused((const uint8_t *)"GET / HT", 8, secret, 0,
                   "bad frame: magic is 20544547, not 436d6c47");
    memcpy(bytes, good, n);
    bytes[4] = 2;
    assert_refused(bytes, n, secret, 0, "bad frame: version is 2, not 1");
    memcpy(bytes, good, n);
    bytes[8] = GLM_CONTROL_N_TYPES;
    assert_refused(bytes, n, secret, 0, "bad frame: type is 9, known are 0 to 8");
    memcpy(bytes, good, n);
    bytes[14] = 0x11;
    assert_refused(bytes, 32, secret, 0, "bad frame: payload of 1114113 bytes, at most 1048576");
}

static void encoding_is_bounded(void **state)
{
    (void)state;
    static uint8_t payload[GLM_CONTROL_MAX_PAYLOAD + 1], out[GLM_CONTROL_MAX_PAYLOAD + 100];
    struct glm_control_frame f = {.type = GLM_CONTROL_STATUS,
                                  .sequence = 1,
                                  .payload = payload,
                                  .len = GLM_CONTROL_MAX_PAYLOAD + 1};
    assert_int_equal(glm_control_encode(&f, secret, out, sizeof out), 0);
    f.len = GLM_CONTROL_MAX_PAYLOAD;
    assert_int_equal(glm_control_encode(&f, secret, out, f.len + 63u), 0);
    assert_int_equal(glm_control_encode(&f, secret, out, f.len + 64u), f.len + 64u);
}

/* ---- Connections ---- */

struct pair {
    struct glm_conn head, peer;
};

static void pair_open(struct pair *p, const uint8_t peer_secret[32])
{
    int fds[2];
    struct glm_error err = {0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    assert_int_equal(glm_conn_init(&p->head, fds[0], true, secret, &err), GLM_OK);
    assert_int_equal(glm_conn_init(&p->peer, fds[1], false, peer_secret, &err), GLM_OK);
}

static void pair_close(struct pair *p)
{
    glm_conn_release(&p->head);
    glm_conn_release(&p->peer);
    glm_conn_release(&p->peer); /* twice is allowed */
}

static enum glm_status take(struct glm_conn *c, struct glm_control_frame *f, struct glm_error *err)
{
    *err = (struct glm_error){0};
    return glm_conn_receive(c, glm_now_ms() + 200, f, err);
}

static void pair_greet(struct pair *p)
{
    struct glm_control_frame f;
    struct glm_error err;
    assert_int_equal(take(&p->peer, &f, &err), GLM_OK);
    assert_int_equal(f.type, GLM_CONTROL_HELLO);
    assert_int_equal(glm_conn_hello(&p->peer, "\"role\":\"cli\"", &err), GLM_OK);
    assert_int_equal(take(&p->head, &f, &err), GLM_OK);
    assert_int_equal(f.type, GLM_CONTROL_HELLO);
}

static void connections_greet_and_talk_both_ways(void **state)
{
    (void)state;
    struct pair p;
    struct glm_control_frame f;
    struct glm_error err;
    pair_open(&p, secret);
    pair_greet(&p);
    p.peer.epoch = 3;
    assert_int_equal(glm_conn_send(&p.peer, GLM_CONTROL_STATUS, NULL, &err), GLM_OK);
    assert_int_equal(glm_conn_send(&p.peer, GLM_CONTROL_BEAT, "{\"round\":1}", &err), GLM_OK);
    assert_int_equal(take(&p.head, &f, &err), GLM_OK);
    assert_int_equal(f.type, GLM_CONTROL_STATUS);
    assert_int_equal(f.len, 0);
    assert_int_equal(f.epoch, 3);
    assert_int_equal(take(&p.head, &f, &err), GLM_OK);
    assert_int_equal(f.type, GLM_CONTROL_BEAT);
    assert_memory_equal(f.payload, "{\"round\":1}", 11);
    /* A long answer crosses many reads. */
    char *text = malloc(700001);
    assert_non_null(text);
    memset(text, 'x', 700000);
    text[700000] = '\0';
    assert_int_equal(glm_conn_send(&p.head, GLM_CONTROL_STATUS, text, &err), GLM_OK);
    enum glm_status status = GLM_EAGAIN;
    while (status == GLM_EAGAIN) {
        glm_conn_flush(&p.head, glm_now_ms());
        err = (struct glm_error){0};
        status = glm_conn_receive(&p.peer, glm_now_ms(), &f, &err);
    }
    assert_int_equal(status, GLM_OK);
    assert_int_equal(f.len, 700000);
    assert_memory_equal(f.payload, text, 700000);
    free(text);
    assert_int_equal(take(&p.head, &f, &err), GLM_EAGAIN);
    pair_close(&p);
}

static void another_secret_is_refused_by_both_sides(void **state)
{
    (void)state;
    struct pair p;
    struct glm_control_frame f;
    struct glm_error err;
    pair_open(&p, other_secret);
    assert_int_equal(take(&p.peer, &f, &err), GLM_EINVAL);
    assert_string_equal(err.message, "bad frame: its MAC is wrong, the secrets differ");
    /* Even a peer that ignores that is told nothing more. */
    memcpy(p.peer.peer_nonce, p.head.nonce, sizeof p.peer.peer_nonce);
    assert_int_equal(glm_conn_hello(&p.peer, "\"role\":\"cli\"", &err), GLM_OK);
    assert_int_equal(take(&p.head, &f, &err), GLM_EINVAL);
    assert_string_equal(err.message, "bad frame: its MAC is wrong, the secrets differ");
    pair_close(&p);
}

/* Bytes that a listener on the wire recorded, put in again. */
static size_t record(int fd, uint8_t *bytes, size_t capacity)
{
    ssize_t n = recv(fd, bytes, capacity, MSG_PEEK);
    assert_true(n > 0);
    return (size_t)n;
}

static void inject(struct glm_conn *from, const uint8_t *bytes, size_t len)
{
    assert_int_equal(send(from->fd, bytes, len, 0), len);
}

static void recorded_frames_do_not_count_again(void **state)
{
    (void)state;
    struct pair p, q;
    struct glm_control_frame f;
    struct glm_error err;
    uint8_t hello[1024], stop[1024];
    pair_open(&p, secret);
    assert_int_equal(take(&p.peer, &f, &err), GLM_OK);
    assert_int_equal(glm_conn_hello(&p.peer, "\"role\":\"cli\"", &err), GLM_OK);
    size_t n_hello = record(p.head.fd, hello, sizeof hello);
    assert_int_equal(take(&p.head, &f, &err), GLM_OK);
    assert_int_equal(glm_conn_send(&p.peer, GLM_CONTROL_STOP, NULL, &err), GLM_OK);
    size_t n_stop = record(p.head.fd, stop, sizeof stop);
    assert_int_equal(take(&p.head, &f, &err), GLM_OK);
    assert_int_equal(f.type, GLM_CONTROL_STOP);

    /* In the same connection. */
    inject(&p.peer, stop, n_stop);
    assert_int_equal(take(&p.head, &f, &err), GLM_EINVAL);
    assert_string_equal(err.message, "bad frame: sequence 2 was used, the last was 2");
    pair_close(&p);

    /* As the greeting of another. */
    pair_open(&q, secret);
    inject(&q.peer, hello, n_hello);
    assert_int_equal(take(&q.head, &f, &err), GLM_EINVAL);
    assert_string_equal(err.message, "bad hello: it answers another connection's nonce");
    pair_close(&q);

    /* After the greeting of another. */
    pair_open(&q, secret);
    pair_greet(&q);
    inject(&q.peer, stop, n_stop);
    assert_int_equal(take(&q.head, &f, &err), GLM_EINVAL);
    assert_string_equal(err.message, "bad frame: its MAC is wrong, the secrets differ");
    pair_close(&q);

    /* Back at who sent it. */
    pair_open(&q, secret);
    uint8_t own[1024];
    size_t n_own = record(q.peer.fd, own, sizeof own);
    inject(&q.peer, own, n_own);
    assert_int_equal(take(&q.head, &f, &err), GLM_EINVAL);
    assert_string_equal(err.message, "bad hello: role is 'head' on the side of the head");
    pair_close(&q);
}

static void frames_out_of_turn_are_refused(void **state)
{
    (void)state;
    struct pair p;
    struct glm_control_frame f;
    struct glm_error err;
    pair_open(&p, secret);
    assert_int_equal(glm_conn_send(&p.peer, GLM_CONTROL_STOP, NULL, &err), GLM_OK);
    assert_int_equal(take(&p.head, &f, &err), GLM_EINVAL);
    assert_string_equal(err.message, "bad frame: the first one is 'stop', not 'hello'");
    pair_close(&p);

    pair_open(&p, secret);
    pair_greet(&p);
    assert_int_equal(glm_conn_send(&p.peer, GLM_CONTROL_HELLO, "{}", &err), GLM_OK);
    assert_int_equal(take(&p.head, &f, &err), GLM_EINVAL);
    assert_string_equal(err.message, "bad frame: 'hello' out of turn");
    pair_close(&p);

    static const char *const hellos[] = {"",
                                         "{}",
                                         "[1]",
                                         "{\"role\":\"cli\"}",
                                         "{\"role\":\"cli\",\"nonce\":\"short\"}",
                                         "{\"role\":1,\"nonce\":2,\"answer\":3}"};
    for (size_t i = 0; i < sizeof hellos / sizeof hellos[0]; i++) {
        pair_open(&p, secret);
        assert_int_equal(glm_conn_send(&p.peer, GLM_CONTROL_HELLO, hellos[i], &err), GLM_OK);
        assert_int_equal(take(&p.head, &f, &err), GLM_EINVAL);
        assert_string_equal(err.message, "bad hello: it needs role and nonce");
        pair_close(&p);
    }
}

static void strangers_may_send_little_before_they_greet(void **state)
{
    (void)state;
    struct pair p;
    struct glm_control_frame f;
    struct glm_error err;
    pair_open(&p, secret);
    /* A header that promises the largest payload, and then the payload without end. */
    uint8_t bytes[4096] = {'G', 'l', 'm', 'C', 1, 0, 0, 0, GLM_CONTROL_HELLO, 0, 0, 0, 0, 0, 16};
    enum glm_status status = GLM_EAGAIN;
    size_t sent = 0;
    while (status == GLM_EAGAIN && sent < 2u << 20) {
        ssize_t n = send(p.peer.fd, bytes, sizeof bytes, 0);
        sent += n > 0 ? (size_t)n : 0;
        memset(bytes, 0, sizeof bytes);
        err = (struct glm_error){0};
        status = glm_conn_receive(&p.head, glm_now_ms(), &f, &err);
    }
    assert_int_equal(status, GLM_EINVAL);
    assert_string_equal(err.message, "bad hello: more than 65536 bytes");
    assert_true(p.head.in.len < 200000);
    pair_close(&p);
}

static void a_peer_that_does_not_read_counts_as_gone(void **state)
{
    (void)state;
    struct pair p;
    struct glm_error err = {0};
    pair_open(&p, secret);
    pair_greet(&p);
    char *text = malloc(1000001);
    assert_non_null(text);
    memset(text, 'x', 1000000);
    text[1000000] = '\0';
    enum glm_status status = GLM_OK;
    int n = 0;
    for (; status == GLM_OK && n < 20; n++)
        status = glm_conn_send(&p.head, GLM_CONTROL_STATUS, text, &err);
    assert_int_equal(status, GLM_EPEER);
    assert_in_range(n, 4, 8);
    assert_string_equal(err.message, "the control connection is gone: the peer does not read");
    free(text);
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_comes_back_as_it_was_sent),
        cmocka_unit_test(a_frame_cut_anywhere_asks_for_more),
        cmocka_unit_test(every_flipped_bit_is_refused),
        cmocka_unit_test(refusals_say_what_is_wrong),
        cmocka_unit_test(encoding_is_bounded),
        cmocka_unit_test(connections_greet_and_talk_both_ways),
        cmocka_unit_test(another_secret_is_refused_by_both_sides),
        cmocka_unit_test(recorded_frames_do_not_count_again),
        cmocka_unit_test(frames_out_of_turn_are_refused),
        cmocka_unit_test(strangers_may_send_little_before_they_greet),
        cmocka_unit_test(a_peer_that_does_not_read_counts_as_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
