/* SPDX-License-Identifier: Apache-2.0 */
/* Gather, sum and broadcast over all pairs of links. One step runs at a time: it posts a receive
 * and a send on every link, then moves both directions together until all are through, so that
 * large messages that cross cannot block each other. Sums add in rank order, whichever way the
 * partials travelled. Links know nothing of ranks' order; the executor knows nothing of links. */
#include "runtime/collective.h"

#include "codegen/process.h"
#include "runtime/clock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)GLM_SUM_OWNER_BYTES == (int)GLM_OWNER_BYTES,
               "the plan counts partial sums by it");

enum {
    WAIT_US = 100000,        /* longest sleep before abort and deadline are looked at */
    PART_FLOATS = 16,        /* owners' parts begin at multiples of this */
    LIST_MAGIC = 0x4C6D6C47, /* "GlmL" */
    LIST_INLINE = 4096,      /* lists up to this travel with their header in one message */
};

enum phase { IDLE, GATHERING, SCATTERING, SHARING };

struct glm_collective_step {
    struct glm_collective_step *next;
    struct glm_collective *c;
    enum glm_collective_kind kind;
    const uint8_t *from;
    uint8_t *to;
    size_t max_bytes;
    size_t bytes;
    enum phase phase;
};

struct list_header {
    uint32_t magic, len;
    uint64_t sequence;
};

struct glm_collective {
    uint32_t rank, world;
    struct glm_link *links[GLM_LINK_MAX_WORLD];
    size_t max_bytes;
    uint32_t deadline_ms;
    int (*alive)(void *context, uint32_t peer);
    void *alive_context;
    struct glm_collective_step *steps;
    struct glm_collective_step *running;
    uint8_t *partials; /* [world][partial_bytes]: what a sum receives */
    size_t partial_bytes;
    uint64_t asked_ns; /* when the running wait began, or alive was asked last */
    uint64_t sequence; /* collectives begun */
    bool lost;
    uint32_t lost_rank; /* world: none is known, the set was aborted */
    atomic_bool aborted;
    atomic_bool entered; /* a thread runs or broadcasts now */
    _Atomic uint64_t n_gather, n_sum, n_lists, bytes_sent, bytes_received, wait_ns;
    struct {
        struct list_header header;
        uint8_t bytes[LIST_INLINE];
    } list;
};

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The floats that `owner` adds: equal parts in multiples of PART_FLOATS, the last ones shorter. */
static void part_of(uint32_t owner, uint32_t world, size_t bytes, size_t *first, size_t *len)
{
    size_t unit = PART_FLOATS * sizeof(float);
    size_t each = (bytes + unit * world - 1) / (unit * world) * unit;
    *first = min_size(owner * each, bytes);
    *len = min_size(each, bytes - *first);
}

static bool by_owner(const struct glm_collective *c, size_t bytes)
{
    return c->world > 1 && bytes >= GLM_SUM_OWNER_BYTES;
}

enum glm_status glm_collective_new(uint32_t rank, uint32_t world, struct glm_link *const *links,
                                   size_t max_bytes, uint32_t deadline_ms,
                                   int (*alive)(void *context, uint32_t peer), void *context,
                                   struct glm_collective **out, struct glm_error *err)
{
    struct glm_collective *c = NULL;
    enum glm_status status = GLM_OK;
    if (world == 0 || world > GLM_LINK_MAX_WORLD || rank >= world)
        status = glm_fail(err, GLM_EINVAL, "cannot join rank %u of %u: at most %d ranks", rank,
                          world, GLM_LINK_MAX_WORLD);
    else if (max_bytes > SIZE_MAX / 4 / GLM_LINK_MAX_WORLD)
        status = glm_fail(err, GLM_EINVAL, "cannot exchange messages of %zu bytes", max_bytes);
    else
        c = calloc(1, sizeof *c);
    if (c == NULL) {
        for (uint32_t i = 0; links != NULL && i < world && i < GLM_LINK_MAX_WORLD; i++)
            glm_link_free(links[i]);
        return status != GLM_OK
                   ? status
                   : glm_fail(err, GLM_ENOMEM, "cannot join rank %u: out of memory", rank);
    }
    c->rank = rank;
    c->world = world;
    c->max_bytes = max_bytes;
    c->deadline_ms = deadline_ms;
    c->alive = alive;
    c->alive_context = context;
    c->lost_rank = world;
    for (uint32_t i = 0; world > 1 && i < world; i++)
        c->links[i] = links[i];
    if (world > 1) {
        size_t first, part;
        part_of(0, world, max_bytes, &first, &part);
        c->partial_bytes = min_size(max_bytes, GLM_SUM_OWNER_BYTES);
        if (part > c->partial_bytes)
            c->partial_bytes = part;
        c->partials = malloc(world * c->partial_bytes + 1);
        if (c->partials == NULL) {
            status = glm_fail(err, GLM_ENOMEM, "cannot get %zu bytes for exchanges: out of memory",
                              world * c->partial_bytes);
            glm_collective_free(c);
            return status;
        }
        memset(c->partials, 0, world * c->partial_bytes);
    }
    *out = c;
    return GLM_OK;
}

void glm_collective_free(struct glm_collective *c)
{
    if (c == NULL)
        return;
    while (c->steps != NULL) {
        struct glm_collective_step *next = c->steps->next;
        free(c->steps);
        c->steps = next;
    }
    for (uint32_t i = 0; i < c->world; i++)
        glm_link_free(c->links[i]);
    free(c->partials);
    free(c);
}

enum glm_status glm_collective_prepare(struct glm_collective *c, enum glm_collective_kind kind,
                                       const void *from, void *to, size_t max_bytes,
                                       struct glm_collective_step **out, struct glm_error *err)
{
    if (max_bytes > c->max_bytes)
        return glm_fail(err, GLM_EINVAL,
                        "cannot prepare an exchange of %zu bytes: this rank's largest is %zu",
                        max_bytes, c->max_bytes);
    struct glm_collective_step *s = calloc(1, sizeof *s);
    if (s == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot prepare an exchange: out of memory");
    *s = (struct glm_collective_step){
        .next = c->steps, .c = c, .kind = kind, .from = from, .to = to, .max_bytes = max_bytes};
    c->steps = s;
    for (uint32_t i = 0; i < c->world; i++) {
        struct glm_link *l = c->links[i];
        if (l == NULL)
            continue;
        size_t to_bytes = kind == GLM_GATHER ? c->world * max_bytes : max_bytes;
        enum glm_status status = l->ops->reg(l, s->to, to_bytes, err);
        if (status != GLM_OK)
            return status;
    }
    *out = s;
    return GLM_OK;
}

/* ---- Waiting ---- */

static enum glm_status fail_lost(const struct glm_collective *c, struct glm_error *err)
{
    if (c->lost_rank < c->world)
        return glm_fail(err, GLM_EPEER, "rank %u lost rank %u in exchange %llu", c->rank,
                        c->lost_rank, (unsigned long long)c->sequence);
    return glm_fail(err, GLM_EPEER,
                    "rank %u gave up exchange %llu: a rank was lost and the set ends", c->rank,
                    (unsigned long long)c->sequence);
}

static enum glm_status lose(struct glm_collective *c, uint32_t peer, struct glm_error *err)
{
    if (!c->lost) {
        c->lost = true;
        c->lost_rank = peer;
    }
    return fail_lost(c, err);
}

static enum glm_status check(struct glm_collective *c, struct glm_error *err)
{
    if (atomic_load_explicit(&c->aborted, memory_order_relaxed))
        return lose(c, c->world, err);
    return c->lost ? fail_lost(c, err) : GLM_OK;
}

/* Moves both directions of every link. GLM_OK: nothing is open. */
static enum glm_status poll_links(struct glm_collective *c, struct glm_error *err)
{
    enum glm_status all = GLM_OK;
    for (uint32_t i = 0; i < c->world; i++) {
        struct glm_link *l = c->links[i];
        if (l == NULL)
            continue;
        enum glm_status sent = l->ops->poll_send(l);
        enum glm_status received = l->ops->poll_recv(l);
        if (sent == GLM_EPEER || received == GLM_EPEER)
            return lose(c, i, err);
        if (sent != GLM_OK || received != GLM_OK)
            all = GLM_EAGAIN;
    }
    return all;
}

/* Asks control for the peers that keep this rank waiting, once a deadline. */
static enum glm_status ask_alive(struct glm_collective *c, uint64_t now_ns, struct glm_error *err)
{
    if (c->alive == NULL || c->deadline_ms == 0 ||
        now_ns - c->asked_ns < (uint64_t)c->deadline_ms * 1000000u)
        return GLM_OK;
    c->asked_ns = now_ns;
    for (uint32_t i = 0; i < c->world; i++) {
        struct glm_link *l = c->links[i];
        if (l != NULL && (l->ops->poll_send(l) != GLM_OK || l->ops->poll_recv(l) != GLM_OK) &&
            !c->alive(c->alive_context, i))
            return lose(c, i, err);
    }
    return GLM_OK;
}

static void wait_links(struct glm_collective *c)
{
    for (uint32_t i = 0; i < c->world; i++)
        if (c->links[i] != NULL) {
            c->links[i]->ops->wait(c->links, c->world, WAIT_US);
            return;
        }
}

static enum glm_status wait_more(struct glm_collective *c, struct glm_error *err)
{
    uint64_t began = glm_now_ns();
    if (c->asked_ns == 0)
        c->asked_ns = began;
    wait_links(c);
    uint64_t now = glm_now_ns();
    atomic_fetch_add_explicit(&c->wait_ns, now - began, memory_order_relaxed);
    enum glm_status status = ask_alive(c, now, err);
    return status == GLM_OK ? check(c, err) : status;
}

/* ---- Gather and sum ---- */

static void count(struct glm_collective *c, size_t sent, size_t received)
{
    atomic_fetch_add_explicit(&c->bytes_sent, sent, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->bytes_received, received, memory_order_relaxed);
}

static void post(struct glm_collective *c, uint32_t peer, const void *send, size_t send_len,
                 void *recv, size_t recv_len)
{
    struct glm_link *l = c->links[peer];
    /* Only one step runs and it has polled its posts through: a second open post is our bug. */
    GLM_ASSERT(l->ops->post_recv(l, recv, recv_len) == GLM_OK);
    GLM_ASSERT(l->ops->post_send(l, send, send_len) == GLM_OK);
    count(c, send_len, recv_len);
}

/* Every rank's `bytes` from `from` into to[rank * stride]. */
static void post_all(struct glm_collective *c, const uint8_t *from, uint8_t *to, size_t stride,
                     size_t bytes)
{
    for (uint32_t i = 0; i < c->world; i++)
        if (c->links[i] != NULL)
            post(c, i, from, bytes, to + i * stride, bytes);
}

/* to[i] = the ranks' element i added from rank 0 up: ((p0 + p1) + p2) + …, in both algorithms. */
static void add_in_rank_order(const struct glm_collective *c, const uint8_t *own, uint8_t *to,
                              size_t stride, size_t bytes)
{
    enum { BLOCK = 64 };
    for (size_t at = 0; at < bytes; at += BLOCK * sizeof(float)) {
        size_t len = min_size(BLOCK * sizeof(float), bytes - at);
        float sum[BLOCK] = {0}, next[BLOCK] = {0};
        memcpy(sum, (c->rank == 0 ? own : c->partials) + at, len);
        for (uint32_t r = 1; r < c->world; r++) {
            memcpy(next, (r == c->rank ? own : c->partials + r * stride) + at, len);
            for (int i = 0; i < BLOCK; i++)
                sum[i] += next[i];
        }
        memcpy(to + at, sum, len);
    }
}

static void post_scatter(struct glm_collective_step *s)
{
    struct glm_collective *c = s->c;
    size_t own_first, own_len, first, len;
    part_of(c->rank, c->world, s->bytes, &own_first, &own_len);
    for (uint32_t i = 0; i < c->world; i++) {
        part_of(i, c->world, s->bytes, &first, &len);
        if (c->links[i] != NULL)
            post(c, i, s->from + first, len, c->partials + i * c->partial_bytes, own_len);
    }
}

static void post_share(struct glm_collective_step *s)
{
    struct glm_collective *c = s->c;
    size_t own_first, own_len, first, len;
    part_of(c->rank, c->world, s->bytes, &own_first, &own_len);
    add_in_rank_order(c, s->from + own_first, s->to + own_first, c->partial_bytes, own_len);
    for (uint32_t i = 0; i < c->world; i++) {
        part_of(i, c->world, s->bytes, &first, &len);
        if (c->links[i] != NULL)
            post(c, i, s->to + own_first, own_len, s->to + first, len);
    }
}

enum glm_status glm_collective_enqueue(struct glm_collective_step *s, size_t bytes,
                                       struct glm_error *err)
{
    struct glm_collective *c = s->c;
    enum glm_status status = check(c, err);
    if (status != GLM_OK)
        return status;
    if (c->running != NULL)
        return GLM_EAGAIN;
    if (bytes > s->max_bytes || (s->kind == GLM_SUM && bytes % sizeof(float) != 0))
        return glm_fail(err, GLM_EINVAL, "cannot exchange %zu bytes: prepared for at most %zu%s",
                        bytes, s->max_bytes, s->kind == GLM_SUM ? " in fours" : "");
    c->sequence++;
    c->running = s;
    c->asked_ns = 0;
    s->bytes = bytes;
    if (s->kind == GLM_GATHER) {
        atomic_fetch_add_explicit(&c->n_gather, 1, memory_order_relaxed);
        uint8_t *own = s->to + c->rank * bytes;
        if (own != s->from)
            memmove(own, s->from, bytes);
        post_all(c, own, s->to, bytes, bytes);
        s->phase = GATHERING;
    } else {
        atomic_fetch_add_explicit(&c->n_sum, 1, memory_order_relaxed);
        if (by_owner(c, bytes)) {
            post_scatter(s);
            s->phase = SCATTERING;
        } else {
            post_all(c, s->from, c->partials, c->partial_bytes, bytes);
            s->phase = GATHERING;
        }
    }
    return GLM_OK;
}

enum glm_status glm_collective_progress(struct glm_collective_step *s, struct glm_error *err)
{
    struct glm_collective *c = s->c;
    enum glm_status status = check(c, err);
    while (status == GLM_OK && s->phase != IDLE) {
        status = poll_links(c, err);
        if (status != GLM_OK)
            break;
        if (s->phase == SCATTERING) {
            post_share(s);
            s->phase = SHARING;
            continue;
        }
        if (s->kind == GLM_SUM && s->phase == GATHERING)
            add_in_rank_order(c, s->from, s->to, c->partial_bytes, s->bytes);
        s->phase = IDLE;
        c->running = NULL;
    }
    return status;
}

/* Relaxed: who hands the collective to another thread orders that itself. */
static void enter(struct glm_collective *c)
{
    GLM_ASSERT(!atomic_exchange_explicit(&c->entered, true, memory_order_relaxed));
}

static void leave(struct glm_collective *c)
{
    atomic_store_explicit(&c->entered, false, memory_order_relaxed);
}

enum glm_status glm_collective_run(struct glm_collective_step *s, size_t bytes,
                                   struct glm_error *err)
{
    enter(s->c);
    enum glm_status status = glm_collective_enqueue(s, bytes, err);
    while (status == GLM_OK) {
        status = glm_collective_progress(s, err);
        if (status != GLM_EAGAIN)
            break;
        status = wait_more(s->c, err);
    }
    leave(s->c);
    return status;
}

void glm_collective_abort(struct glm_collective *c)
{
    atomic_store_explicit(&c->aborted, true, memory_order_relaxed);
}

void glm_collective_note(struct glm_collective *c, enum glm_collective_kind kind, size_t bytes)
{
    const uint64_t moved = (uint64_t)(c->world - 1) * bytes;
    c->sequence++;
    atomic_fetch_add_explicit(kind == GLM_SUM ? &c->n_sum : &c->n_gather, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->bytes_sent, moved, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->bytes_received, moved, memory_order_relaxed);
}

enum glm_status glm_collective_look(struct glm_collective *c, struct glm_error *err)
{
    enum glm_status status = check(c, err);
    for (uint32_t i = 0; status == GLM_OK && i < c->world; i++) {
        struct glm_link *l = c->links[i];
        if (l != NULL && l->ops->is_gone != NULL && l->ops->is_gone(l) != 0)
            status = lose(c, i, err);
    }
    return status;
}

/* ---- Broadcast ---- */

static enum glm_status drain(struct glm_collective *c, struct glm_error *err)
{
    for (;;) {
        enum glm_status status = poll_links(c, err);
        if (status == GLM_EAGAIN)
            status = wait_more(c, err);
        else
            return status;
        if (status != GLM_OK)
            return status;
    }
}

static enum glm_status send_list(struct glm_collective *c, const void *bytes, size_t len,
                                 struct glm_error *err)
{
    c->list.header =
        (struct list_header){.magic = LIST_MAGIC, .len = (uint32_t)len, .sequence = c->sequence};
    bool whole = len <= LIST_INLINE;
    if (whole && len > 0)
        memcpy(c->list.bytes, bytes, len);
    const void *parts[2] = {&c->list, bytes};
    size_t lens[2] = {sizeof c->list.header + (whole ? len : 0), whole ? 0 : len};
    for (int part = 0; part < 2 && lens[part] > 0; part++) {
        for (uint32_t i = 0; i < c->world; i++)
            if (c->links[i] != NULL)
                post(c, i, parts[part], lens[part], c->list.bytes, 0);
        enum glm_status status = drain(c, err);
        if (status != GLM_OK)
            return status;
    }
    return GLM_OK;
}

static enum glm_status receive_list(struct glm_collective *c, void *bytes, size_t max, size_t *len,
                                    struct glm_error *err)
{
    struct list_header h = {0};
    post(c, 0, bytes, 0, &h, sizeof h);
    enum glm_status status = drain(c, err);
    if (status != GLM_OK)
        return status;
    if (h.magic != LIST_MAGIC || h.sequence != c->sequence || h.len > max) {
        lose(c, 0, NULL);
        return glm_fail(err, GLM_EPEER,
                        "rank %u is out of step with rank 0: its list is number %llu of %u bytes, "
                        "this rank expects number %llu of at most %zu bytes",
                        c->rank, (unsigned long long)h.sequence, h.len,
                        (unsigned long long)c->sequence, max);
    }
    if (h.len > 0) {
        post(c, 0, bytes, 0, bytes, h.len);
        status = drain(c, err);
    }
    if (status == GLM_OK)
        *len = h.len;
    return status;
}

enum glm_status glm_collective_broadcast(struct glm_collective *c, void *bytes, size_t max,
                                         size_t *len, struct glm_error *err)
{
    enum glm_status status = check(c, err);
    if (status != GLM_OK)
        return status;
    if (c->running != NULL)
        return GLM_EAGAIN;
    if (c->rank == 0 && (*len > max || *len > UINT32_MAX))
        return glm_fail(err, GLM_EINVAL, "cannot send a list of %zu bytes: at most %zu", *len, max);
    enter(c);
    c->sequence++;
    c->asked_ns = 0;
    if (c->rank == 0)
        status = send_list(c, bytes, *len, err);
    else
        status = receive_list(c, bytes, max, len, err);
    leave(c);
    if (status == GLM_OK)
        atomic_fetch_add_explicit(&c->n_lists, 1, memory_order_relaxed);
    return status;
}

struct glm_collective_stats glm_collective_stats(const struct glm_collective *c)
{
    return (struct glm_collective_stats){
        .n_gather = atomic_load_explicit(&c->n_gather, memory_order_relaxed),
        .n_lists = atomic_load_explicit(&c->n_lists, memory_order_relaxed),
        .n_sum = atomic_load_explicit(&c->n_sum, memory_order_relaxed),
        .bytes_sent = atomic_load_explicit(&c->bytes_sent, memory_order_relaxed),
        .bytes_received = atomic_load_explicit(&c->bytes_received, memory_order_relaxed),
        .wait_ns = atomic_load_explicit(&c->wait_ns, memory_order_relaxed),
    };
}
