/* SPDX-License-Identifier: Apache-2.0 */
/* Links over TCP. Rank i connects to every lower rank and accepts every higher one. Both ends prove
 * the lane's secret over both ends' nonces before any data:
 *   connector → HELLO {magic, version, rank, world, nonce}
 *   acceptor  → ANSWER {the same fields, MAC}
 *   connector → PROOF {MAC}
 *   acceptor  → ACK {magic}
 * A connection that says anything else, or nothing for HANDSHAKE_MS, is dropped, and the listener
 * keeps waiting; a crowd of strangers loses its oldest to whoever comes. After that the stream is
 * the ranks' messages and nothing else. */
#include "runtime/link_backend.h"

#include "runtime/clock.h"
#include "runtime/net.h"
#include "runtime/secret.h"
#include "spec/base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    TCP_MAGIC = 0x546D6C47, /* "GlmT" */
    TCP_VERSION = 1,
    NONCE_BYTES = 32,
    HELLO_BYTES = 16 + NONCE_BYTES,
    ANSWER_BYTES = HELLO_BYTES + GLM_MAC_BYTES,
    ACK_BYTES = 4,
    HANDSHAKE_MS = 5000,
    RETRY_MS = 200,
    MAX_PENDING = 48, /* ranks and strangers in a handshake at once */
    SPIN_US = 100,
};

/* ---- Handshake ---- */

/* FAILED: may work when tried again. REFUSED: the peer is the wrong one and will stay so. */
enum phase { CONNECTING, READ_HELLO, READ_ANSWER, READ_PROOF, READ_ACK, SHAKEN, FAILED, REFUSED };

struct pending {
    int fd;
    enum phase phase;
    bool outgoing;
    uint32_t peer; /* of an incoming one: known after its hello */
    uint64_t deadline_ms;
    uint8_t ours[HELLO_BYTES], theirs[HELLO_BYTES];
    uint8_t in[ANSWER_BYTES], out[ANSWER_BYTES];
    size_t in_len, in_want, out_len, out_sent;
    const char *why; /* FAILED, REFUSED: what the peer did wrong */
};

struct tcp_listener {
    struct glm_link_listener base;
    int fd;
    struct pending pending[MAX_PENDING];
};

struct tcp_link {
    struct glm_link base;
    int fd;
    bool dead;
    const uint8_t *send_at;
    uint8_t *recv_at;
    size_t send_left, recv_left;
};

static void put_u32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

static uint32_t get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static bool write_hello(const struct glm_link_listener *l, uint8_t hello[HELLO_BYTES])
{
    put_u32(hello, TCP_MAGIC);
    put_u32(hello + 4, TCP_VERSION);
    put_u32(hello + 8, l->rank);
    put_u32(hello + 12, l->world);
    return glm_secret_random(hello + 16, NONCE_BYTES, NULL) == GLM_OK;
}

/* What each side signs: its role, the connector's hello, the acceptor's. The roles differ, so that
 * a peer's own answer sent back proves nothing. */
static bool sign(const struct glm_link_listener *l, const struct pending *p, bool by_connector,
                 uint8_t mac[GLM_MAC_BYTES])
{
    uint8_t text[16 + 2 * HELLO_BYTES] = {0};
    memcpy(text, by_connector ? "link connector" : "link acceptor", by_connector ? 14 : 13);
    memcpy(text + 16, p->outgoing ? p->ours : p->theirs, HELLO_BYTES);
    memcpy(text + 16 + HELLO_BYTES, p->outgoing ? p->theirs : p->ours, HELLO_BYTES);
    return glm_secret_mac(l->secret, text, sizeof text, mac);
}

static void expect(struct pending *p, enum phase phase, size_t want)
{
    p->phase = phase;
    p->in_len = 0;
    p->in_want = want;
}

static void say(struct pending *p, const void *bytes, size_t len)
{
    memcpy(p->out, bytes, len);
    p->out_len = len;
    p->out_sent = 0;
}

static void fail(struct pending *p, const char *why)
{
    p->phase = FAILED;
    p->why = why;
}

static void refuse(struct pending *p, const char *why)
{
    p->phase = REFUSED;
    p->why = why;
}

static bool over(const struct pending *p)
{
    return p->phase == FAILED || p->phase == REFUSED;
}

static const char *check_hello(const struct glm_link_listener *l, const uint8_t *hello)
{
    if (get_u32(hello) != TCP_MAGIC)
        return "it is no rank";
    if (get_u32(hello + 4) != TCP_VERSION)
        return "it speaks another version";
    if (get_u32(hello + 12) != l->world)
        return "its world size differs";
    return NULL;
}

static void got_hello(struct glm_link_listener *l, struct pending *p)
{
    const char *why = check_hello(l, p->in);
    p->peer = get_u32(p->in + 8);
    if (why == NULL && (p->peer <= l->rank || p->peer >= l->world))
        why = "its rank does not connect to this one";
    uint8_t answer[ANSWER_BYTES];
    memcpy(p->theirs, p->in, HELLO_BYTES);
    if (why == NULL && (!write_hello(l, p->ours) || !sign(l, p, false, answer + HELLO_BYTES)))
        why = "out of memory";
    if (why != NULL) {
        refuse(p, why);
        return;
    }
    memcpy(answer, p->ours, HELLO_BYTES);
    say(p, answer, ANSWER_BYTES);
    expect(p, READ_PROOF, GLM_MAC_BYTES);
}

static void got_answer(struct glm_link_listener *l, struct pending *p)
{
    uint8_t mac[GLM_MAC_BYTES];
    const char *why = check_hello(l, p->in);
    memcpy(p->theirs, p->in, HELLO_BYTES);
    if (why == NULL && get_u32(p->in + 8) != p->peer)
        why = "another rank answers there";
    if (why == NULL && (!sign(l, p, false, mac) || !glm_secret_equal(mac, p->in + HELLO_BYTES)))
        why = "it does not know the lane's secret";
    if (why == NULL && !sign(l, p, true, mac))
        why = "out of memory";
    if (why != NULL) {
        refuse(p, why);
        return;
    }
    say(p, mac, sizeof mac);
    expect(p, READ_ACK, ACK_BYTES);
}

static void got_proof(struct glm_link_listener *l, struct pending *p)
{
    uint8_t mac[GLM_MAC_BYTES], ack[ACK_BYTES];
    if (!sign(l, p, true, mac) || !glm_secret_equal(mac, p->in)) {
        refuse(p, "it does not know the lane's secret");
        return;
    }
    put_u32(ack, TCP_MAGIC);
    say(p, ack, sizeof ack);
    expect(p, SHAKEN, 0);
}

static void got_ack(struct glm_link_listener *l, struct pending *p)
{
    (void)l;
    if (get_u32(p->in) != TCP_MAGIC)
        refuse(p, "its acknowledgement is not one");
    else
        expect(p, SHAKEN, 0);
}

/* What to do with a whole message, by phase. */
static void (*const got[])(struct glm_link_listener *l, struct pending *p) = {
    [READ_HELLO] = got_hello,
    [READ_ANSWER] = got_answer,
    [READ_PROOF] = got_proof,
    [READ_ACK] = got_ack,
};

static void finish_connecting(struct glm_link_listener *l, struct pending *p)
{
    if (glm_net_connected(p->fd) != 0) {
        fail(p, "nobody listens at its address");
    } else if (!write_hello(l, p->ours)) {
        fail(p, "out of memory");
    } else {
        say(p, p->ours, HELLO_BYTES);
        expect(p, READ_ANSWER, ANSWER_BYTES);
    }
}

static bool reading(const struct pending *p)
{
    return p->phase >= READ_HELLO && p->phase <= READ_ACK;
}

/* Moves a handshake as far as its socket allows now. */
static void shake(struct glm_link_listener *l, struct pending *p)
{
    if (p->phase == CONNECTING)
        finish_connecting(l, p);
    for (;;) {
        if (!over(p) && p->out_sent < p->out_len) {
            ssize_t n = send(p->fd, p->out + p->out_sent, p->out_len - p->out_sent, MSG_NOSIGNAL);
            if (n < 0 && errno == EAGAIN)
                return;
            if (n < 0 && errno != EINTR)
                fail(p, "it hung up during the handshake");
            else if (n > 0)
                p->out_sent += (size_t)n;
            continue;
        }
        if (!reading(p))
            return;
        ssize_t n = recv(p->fd, p->in + p->in_len, p->in_want - p->in_len, 0);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            fail(p, p->phase == READ_ACK ? "it refused this rank's proof of the lane's secret"
                                         : "it hung up during the handshake");
            return;
        }
        p->in_len += (size_t)n;
        if (p->in_len == p->in_want)
            got[p->phase](l, p);
    }
}

static void drop(struct pending *p)
{
    if (p->fd >= 0)
        close(p->fd);
    *p = (struct pending){.fd = -1};
}

/* Of two incoming handshakes, the one that a newcomer replaces: who has not said whom it is, then
 * the oldest. A rank says it at once; a stranger must keep talking to stay. */
static bool yields_before(const struct pending *a, const struct pending *b)
{
    if (a->phase != b->phase)
        return a->phase < b->phase;
    return a->deadline_ms < b->deadline_ms;
}

/* A place for a handshake: never NULL, since connections of our own, at most one a rank, leave
 * some to incoming ones. */
static struct pending *take_pending(struct tcp_listener *l)
{
    struct pending *yields = NULL;
    for (size_t i = 0; i < MAX_PENDING; i++) {
        struct pending *p = &l->pending[i];
        if (p->fd < 0)
            return p;
        if (!p->outgoing && (yields == NULL || yields_before(p, yields)))
            yields = p;
    }
    glm_log(GLM_LOG_WARN, "turned a connection away rank=%u why=\"too many in a handshake\"",
            l->base.rank);
    drop(yields);
    return yields;
}

/* ---- Listening and connecting ---- */

static enum glm_status tcp_listen(struct glm_link_listener *listener, const char *host,
                                  struct glm_link_address *address, struct glm_error *err)
{
    struct tcp_listener *l = (struct tcp_listener *)listener;
    char text[GLM_NET_TEXT_BYTES];
    l->fd = -1;
    for (size_t i = 0; i < MAX_PENDING; i++)
        l->pending[i].fd = -1;
    enum glm_status status = glm_net_listen(host, 0, &l->fd, text, err);
    if (status == GLM_OK)
        snprintf(address->text, sizeof address->text, "tcp:%s", text);
    return status;
}

static void tcp_release(struct glm_link_listener *listener)
{
    struct tcp_listener *l = (struct tcp_listener *)listener;
    for (size_t i = 0; i < MAX_PENDING; i++)
        drop(&l->pending[i]);
    if (l->fd >= 0)
        close(l->fd);
}

static enum glm_status start_connect(struct tcp_listener *l, uint32_t peer,
                                     const struct glm_link_address *address, struct glm_error *err)
{
    const char *at = NULL;
    enum glm_status status = glm_link_address_part(address, "tcp", peer, &at, err);
    int fd = -1;
    if (status == GLM_OK)
        status = glm_net_connect_start(at, &fd, err);
    if (status == GLM_OK)
        *take_pending(l) = (struct pending){.fd = fd,
                                            .phase = CONNECTING,
                                            .outgoing = true,
                                            .peer = peer,
                                            .deadline_ms = glm_now_ms() + HANDSHAKE_MS};
    return status;
}

/* Fewer at once than have places, so that who is accepted speaks before the next come. */
static void accept_some(struct tcp_listener *l)
{
    for (size_t i = 0; i < MAX_PENDING - GLM_LINK_MAX_WORLD; i++) {
        int fd = glm_net_accept(l->fd);
        if (fd < 0)
            return;
        struct pending *p = take_pending(l);
        *p = (struct pending){.fd = fd, .deadline_ms = glm_now_ms() + HANDSHAKE_MS};
        expect(p, READ_HELLO, HELLO_BYTES);
    }
}

static const struct glm_link_ops tcp_ops;

/* Turns a finished handshake into a link. */
static enum glm_status keep(struct pending *p, struct glm_link **links, struct glm_error *err)
{
    if (links[p->peer] != NULL) {
        glm_log(GLM_LOG_WARN, "dropped a second link peer=%u", p->peer);
        drop(p);
        return GLM_OK;
    }
    struct tcp_link *k = calloc(1, sizeof *k);
    if (k == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot link rank %u: out of memory", p->peer);
    *k = (struct tcp_link){.base = {.ops = &tcp_ops, .peer = p->peer}, .fd = p->fd};
    links[p->peer] = &k->base;
    p->fd = -1;
    drop(p);
    return GLM_OK;
}

/* Connects that failed are tried again; why[peer] keeps the last reason for the error. */
struct attempts {
    uint64_t retry_ms[GLM_LINK_MAX_WORLD];
    bool running[GLM_LINK_MAX_WORLD];
    const char *why[GLM_LINK_MAX_WORLD];
};

static enum glm_status settle_failed(struct tcp_listener *l, struct pending *p, struct attempts *a,
                                     struct glm_error *err)
{
    enum glm_status status = GLM_OK;
    if (p->outgoing && p->phase == REFUSED) {
        status = glm_fail(err, GLM_EPEER, "cannot link rank %u to rank %u: %s", l->base.rank,
                          p->peer, p->why);
    } else if (p->outgoing) {
        a->running[p->peer] = false;
        a->retry_ms[p->peer] = glm_now_ms() + RETRY_MS;
        a->why[p->peer] = p->why;
    } else {
        glm_log(GLM_LOG_WARN, "turned a connection away rank=%u why=\"%s\"", l->base.rank, p->why);
    }
    drop(p);
    return status;
}

static uint32_t missing_rank(const struct tcp_listener *l, struct glm_link *const *links)
{
    for (uint32_t i = 0; i < l->base.world; i++)
        if (i != l->base.rank && links[i] == NULL)
            return i;
    return l->base.world;
}

/* One wait for any socket, then one step of each that moved. */
static enum glm_status step(struct tcp_listener *l, int timeout_ms, struct attempts *a,
                            struct glm_link **links, struct glm_error *err)
{
    struct pollfd fds[MAX_PENDING + 1];
    for (size_t i = 0; i < MAX_PENDING; i++) {
        const struct pending *p = &l->pending[i];
        fds[i] = (struct pollfd){.fd = p->fd};
        if (p->fd >= 0 && (p->phase == CONNECTING || p->out_sent < p->out_len))
            fds[i].events = POLLOUT;
        else
            fds[i].events = POLLIN;
    }
    fds[MAX_PENDING] = (struct pollfd){.fd = l->fd, .events = POLLIN};
    if (poll(fds, MAX_PENDING + 1, timeout_ms) < 0 && errno != EINTR)
        return glm_fail(err, GLM_EIO, "cannot wait for links: %s", strerror(errno));
    uint64_t now = glm_now_ms();
    for (size_t i = 0; i < MAX_PENDING; i++) {
        struct pending *p = &l->pending[i];
        if (p->fd < 0)
            continue;
        if (fds[i].revents != 0)
            shake(&l->base, p);
        if (p->phase != SHAKEN && !over(p) && now >= p->deadline_ms)
            fail(p, "it did not finish the handshake in time");
        enum glm_status status = GLM_OK;
        if (over(p))
            status = settle_failed(l, p, a, err);
        else if (p->phase == SHAKEN && p->out_sent == p->out_len)
            status = keep(p, links, err);
        if (status != GLM_OK)
            return status;
    }
    if ((fds[MAX_PENDING].revents & POLLIN) != 0)
        accept_some(l);
    return GLM_OK;
}

static enum glm_status tcp_connect(struct glm_link_listener *listener,
                                   const struct glm_link_address *addresses, uint64_t deadline_ms,
                                   struct glm_link **links, struct glm_error *err)
{
    struct tcp_listener *l = (struct tcp_listener *)listener;
    struct attempts a = {.running = {false}};
    for (;;) {
        uint32_t missing = missing_rank(l, links);
        int left_ms = glm_ms_until(deadline_ms);
        if (missing == listener->world)
            return GLM_OK;
        if (left_ms == 0)
            return glm_fail(err, GLM_EPEER, "cannot link rank %u to rank %u in time: %s",
                            listener->rank, missing,
                            a.why[missing] != NULL ? a.why[missing] : "it did not connect");
        bool retrying = false;
        for (uint32_t peer = 0; peer < listener->rank; peer++) {
            if (links[peer] != NULL || a.running[peer])
                continue;
            if (glm_now_ms() < a.retry_ms[peer]) {
                retrying = true;
                continue;
            }
            enum glm_status status = start_connect(l, peer, &addresses[peer], err);
            if (status != GLM_OK)
                return status;
            a.running[peer] = true;
        }
        int slice_ms = retrying ? RETRY_MS : 250;
        enum glm_status status = step(l, left_ms < slice_ms ? left_ms : slice_ms, &a, links, err);
        if (status != GLM_OK)
            return status;
    }
}

/* ---- The link ---- */

static struct tcp_link *tcp_of(struct glm_link *link)
{
    return (struct tcp_link *)link;
}

static enum glm_status tcp_reg(struct glm_link *link, void *bytes, size_t len,
                               struct glm_error *err)
{
    (void)link, (void)bytes, (void)len, (void)err;
    return GLM_OK;
}

static enum glm_status tcp_post_send(struct glm_link *link, const void *bytes, size_t len)
{
    struct tcp_link *l = tcp_of(link);
    if (l->send_left > 0)
        return GLM_EAGAIN;
    l->send_at = bytes;
    l->send_left = len;
    return GLM_OK;
}

static enum glm_status tcp_post_recv(struct glm_link *link, void *bytes, size_t len)
{
    struct tcp_link *l = tcp_of(link);
    if (l->recv_left > 0)
        return GLM_EAGAIN;
    l->recv_at = bytes;
    l->recv_left = len;
    return GLM_OK;
}

static enum glm_status tcp_poll_send(struct glm_link *link)
{
    struct tcp_link *l = tcp_of(link);
    while (l->send_left > 0) {
        ssize_t n = l->dead ? -1 : send(l->fd, l->send_at, l->send_left, MSG_NOSIGNAL);
        if (n > 0) {
            l->send_at += n;
            l->send_left -= (size_t)n;
        } else if (!l->dead && n < 0 && errno == EAGAIN) {
            return GLM_EAGAIN;
        } else if (l->dead || errno != EINTR) {
            l->dead = true;
            return GLM_EPEER;
        }
    }
    return GLM_OK;
}

static enum glm_status tcp_poll_recv(struct glm_link *link)
{
    struct tcp_link *l = tcp_of(link);
    while (l->recv_left > 0) {
        ssize_t n = recv(l->fd, l->recv_at, l->recv_left, 0);
        if (n > 0) {
            l->recv_at += n;
            l->recv_left -= (size_t)n;
        } else if (n < 0 && errno == EAGAIN) {
            return GLM_EAGAIN;
        } else if (n == 0 || errno != EINTR) {
            l->dead = true;
            return GLM_EPEER;
        }
    }
    return GLM_OK;
}

static void tcp_wait(struct glm_link *const *links, uint32_t n, uint32_t timeout_us)
{
    struct pollfd fds[GLM_LINK_MAX_WORLD];
    nfds_t n_fds = 0;
    bool spin = false;
    for (uint32_t i = 0; i < n && n_fds < GLM_LINK_MAX_WORLD; i++) {
        const struct tcp_link *l = links[i] == NULL ? NULL : tcp_of(links[i]);
        if (l == NULL || (l->send_left == 0 && l->recv_left == 0))
            continue;
        spin = spin || l->base.spin != 0;
        fds[n_fds++] = (struct pollfd){
            .fd = l->fd,
            .events = (short)((l->send_left > 0 ? POLLOUT : 0) | (l->recv_left > 0 ? POLLIN : 0))};
    }
    if (n_fds == 0)
        return;
    uint64_t spin_until = spin ? glm_now_ns() + SPIN_US * 1000u : 0;
    while (spin && glm_now_ns() < spin_until)
        if (poll(fds, n_fds, 0) != 0)
            return;
    /* An interrupted or failed wait is an early return: the caller polls and comes back. */
    (void)poll(fds, n_fds, (int)((timeout_us + 999u) / 1000u));
}

static void tcp_close(struct glm_link *link)
{
    close(tcp_of(link)->fd);
    free(link);
}

static const struct glm_link_ops tcp_ops = {
    .name = "tcp",
    .reg = tcp_reg,
    .post_send = tcp_post_send,
    .post_recv = tcp_post_recv,
    .poll_send = tcp_poll_send,
    .poll_recv = tcp_poll_recv,
    .wait = tcp_wait,
    .close = tcp_close,
};

const struct glm_link_backend glm_link_tcp = {
    .kind = "tcp",
    .listener_bytes = sizeof(struct tcp_listener),
    .listen = tcp_listen,
    .connect = tcp_connect,
    .release = tcp_release,
};
