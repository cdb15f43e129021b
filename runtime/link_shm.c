/* SPDX-License-Identifier: Apache-2.0 */
/* Links through shared memory between ranks of one host. Each rank makes one segment: a doorbell
 * and, for each peer, a ring that the peer writes and this rank reads. Whoever moves a ring's head
 * or tail bumps the other rank's doorbell, a futex; the wake-up call is made only for a sleeper.
 * A segment's name goes as soon as all peers are attached. Its rank holds an open-file-description
 * lock on it, which the kernel drops when the rank dies: that is how a lost peer is seen.
 * Everything in a peer's segment but the mapping itself is checked at each use. */
#include "runtime/link_backend.h"

#include "codegen/process.h"
#include "runtime/clock.h"
#include "runtime/secret.h"
#include "runtime/threads.h"
#include "spec/base/digest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SHM_MAGIC = 0x536D6C47, /* "GlmS" */
    SHM_VERSION = 1,
    RING_MIN = 4096,
    /* stays in a core's second-level cache; longer messages stream through */
    RING_MAX = GLM_RING_BYTES,
    SPIN_US = 100,
    LOOK_AFTER_US = 50000, /* a wait this long without news looks whether the peers live */
    ORPHAN_S = 60,         /* age at which an unlocked segment is taken for an orphan */
};

static const char NAME_PREFIX[] = "/glm-";

struct shm_ring {
    alignas(64) _Atomic uint64_t head; /* bytes ever written, moved by the writer */
    _Atomic uint32_t wants_room;       /* the writer waits for the reader */
    alignas(64) _Atomic uint64_t tail; /* bytes ever read, moved by the reader */
};

struct shm_segment {
    uint32_t magic, version, rank, world;
    uint64_t ring_bytes;
    uint8_t proof[GLM_MAC_BYTES]; /* MAC over the name: made by a holder of the secret */
    alignas(64) _Atomic uint32_t doorbell;
    _Atomic uint32_t sleeping;
    _Atomic uint32_t attached; /* bit p: rank p has mapped this segment */
    _Atomic uint32_t closed;   /* bit p: this segment's rank has closed its link to rank p */
    alignas(64) struct shm_ring rings[]; /* [world], then the rings' bytes [world][ring_bytes] */
};

/* A mapping, shared by a rank's links where it is the rank's own. */
struct shm_map {
    struct shm_segment *at;
    size_t bytes;
    int fd;
    uint32_t n_users;
};

struct shm_link {
    struct glm_link base;
    struct shm_map *own;
    struct shm_map peer;
    uint32_t rank;
    uint64_t ring_bytes_in, ring_bytes_out;
    struct shm_ring *in, *out;
    uint8_t *in_bytes, *out_bytes;
    bool dead;
    const uint8_t *send_at;
    uint8_t *recv_at;
    size_t send_left, recv_left;
};

struct shm_listener {
    struct glm_link_listener base;
    struct shm_map *own;
    char name[64];
};

static struct shm_link *shm_of(struct glm_link *link)
{
    return (struct shm_link *)link;
}

static size_t segment_bytes(uint32_t world, uint64_t ring_bytes)
{
    return sizeof(struct shm_segment) + world * (sizeof(struct shm_ring) + (size_t)ring_bytes);
}

static uint8_t *ring_bytes_at(struct shm_segment *s, uint32_t world, uint64_t ring_bytes,
                              uint32_t writer)
{
    return (uint8_t *)&s->rings[world] + writer * (size_t)ring_bytes;
}

static long futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
    return syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

static void ring_doorbell(struct shm_segment *s)
{
    atomic_fetch_add(&s->doorbell, 1);
    if (atomic_load(&s->sleeping) != 0)
        futex(&s->doorbell, FUTEX_WAKE, INT_MAX, NULL);
}

/* Sleeps on an own doorbell that still reads `seen`. true: the time is over. */
static bool doorbell_sleep(struct shm_segment *s, uint32_t seen, uint32_t timeout_us)
{
    struct timespec t = {.tv_sec = timeout_us / 1000000u,
                         .tv_nsec = (long)(timeout_us % 1000000u) * 1000};
    return futex(&s->doorbell, FUTEX_WAIT, seen, &t) != 0 && errno == ETIMEDOUT;
}

/* ---- The segment ---- */

static void unmap(struct shm_map *m)
{
    if (m->at != NULL)
        munmap(m->at, m->bytes);
    if (m->fd >= 0)
        close(m->fd);
    m->at = NULL;
    m->fd = -1;
}

static void drop_own(struct shm_map *m)
{
    if (m == NULL || --m->n_users > 0)
        return;
    unmap(m);
    free(m);
}

static struct flock whole_lock(void)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
}

/* Does some open file hold the segment's lock? Errors count as yes: only the kernel's plain no
 * makes a peer dead. */
static bool lock_held(int fd)
{
    struct flock lock = whole_lock();
    return fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

static bool make_proof(const uint8_t secret[32], const char *name, uint32_t rank, uint32_t world,
                       uint8_t proof[GLM_MAC_BYTES])
{
    char text[128];
    int n = snprintf(text, sizeof text, "shm %s %u %u", name, rank, world);
    return n > 0 && (size_t)n < sizeof text && glm_secret_mac(secret, text, (size_t)n, proof);
}

static enum glm_status shm_listen(struct glm_link_listener *listener, const char *host,
                                  struct glm_link_address *address, struct glm_error *err)
{
    (void)host;
    struct shm_listener *l = (struct shm_listener *)listener;
    uint32_t rank = listener->rank, world = listener->world;
    uint64_t ring_bytes = RING_MIN;
    while (ring_bytes < listener->max_message && ring_bytes < RING_MAX)
        ring_bytes *= 2;
    uint8_t nonce[16];
    enum glm_status status = glm_secret_random(nonce, sizeof nonce, err);
    if (status != GLM_OK)
        return status;
    l->own = calloc(1, sizeof *l->own);
    if (l->own == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot link rank %u: out of memory", rank);
    *l->own = (struct shm_map){.fd = -1, .bytes = segment_bytes(world, ring_bytes), .n_users = 1};
    char hex[2 * sizeof nonce + 1];
    glm_hex(nonce, sizeof nonce, hex);
    snprintf(l->name, sizeof l->name, "%s%s", NAME_PREFIX, hex);
    struct flock lock = whole_lock();
    l->own->fd = shm_open(l->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (l->own->fd < 0) {
        status = glm_fail(err, GLM_EIO, "cannot create shared memory '%s': %s", l->name,
                          strerror(errno));
        l->name[0] = '\0';
        return status;
    }
    int rc = fcntl(l->own->fd, F_OFD_SETLK, &lock) != 0 ? errno : 0;
    /* Claim the pages now: a full /dev/shm is an error here and would be SIGBUS later. */
    if (rc == 0)
        rc = posix_fallocate(l->own->fd, 0, (off_t)l->own->bytes);
    void *at = MAP_FAILED;
    if (rc == 0) {
        at = mmap(NULL, l->own->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, l->own->fd, 0);
        rc = at == MAP_FAILED ? errno : 0;
    }
    if (rc != 0) {
        status = glm_fail(err, GLM_EIO, "cannot get %zu bytes of shared memory '%s': %s",
                          l->own->bytes, l->name, strerror(rc));
        glm_error_hint(err, "see the size of /dev/shm with: df /dev/shm");
        return status;
    }
    struct shm_segment *s = l->own->at = at;
    *s = (struct shm_segment){.magic = SHM_MAGIC,
                              .version = SHM_VERSION,
                              .rank = rank,
                              .world = world,
                              .ring_bytes = ring_bytes};
    if (!make_proof(listener->secret, l->name, rank, world, s->proof))
        return glm_fail(err, GLM_ENOMEM, "cannot link rank %u: out of memory", rank);
    snprintf(address->text, sizeof address->text, "shm:%s", l->name);
    return GLM_OK;
}

static void shm_release(struct glm_link_listener *listener)
{
    struct shm_listener *l = (struct shm_listener *)listener;
    if (l->name[0] != '\0')
        shm_unlink(l->name);
    drop_own(l->own);
}

/* Maps a peer's segment after checking owner, mode, size, header and proof. */
static enum glm_status attach_peer(const struct glm_link_listener *l, uint32_t peer,
                                   const char *name, struct shm_map *m, struct glm_error *err)
{
    *m = (struct shm_map){.fd = shm_open(name, O_RDWR | O_CLOEXEC, 0)};
    struct stat st;
    if (m->fd < 0 || fstat(m->fd, &st) != 0)
        return glm_fail(err, GLM_EPEER, "cannot open rank %u's shared memory '%s': %s", peer, name,
                        strerror(errno));
    if (st.st_uid != geteuid() || (st.st_mode & 077) != 0)
        return glm_fail(err, GLM_EFABRIC,
                        "cannot trust rank %u's shared memory '%s': owner %u mode %03o, want owner "
                        "%u mode 600",
                        peer, name, st.st_uid, st.st_mode & 0777u, geteuid());
    if (st.st_size < (off_t)segment_bytes(l->world, RING_MIN) ||
        st.st_size > (off_t)segment_bytes(l->world, RING_MAX))
        return glm_fail(err, GLM_EFABRIC, "cannot use rank %u's shared memory '%s': %lld bytes",
                        peer, name, (long long)st.st_size);
    m->bytes = (size_t)st.st_size;
    void *at = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
    if (at == MAP_FAILED)
        return glm_fail(err, GLM_EIO, "cannot map rank %u's shared memory '%s': %s", peer, name,
                        strerror(errno));
    struct shm_segment *s = m->at = at;
    if (s->magic != SHM_MAGIC || s->version != SHM_VERSION || s->rank != peer ||
        s->world != l->world || (s->ring_bytes & (s->ring_bytes - 1)) != 0 ||
        s->ring_bytes < RING_MIN || s->ring_bytes > RING_MAX ||
        segment_bytes(l->world, s->ring_bytes) != m->bytes)
        return glm_fail(err, GLM_EFABRIC,
                        "cannot use rank %u's shared memory '%s': it says version %u, rank %u of "
                        "%u, rings of %llu bytes; this rank is one of %u, version %d",
                        peer, name, s->version, s->rank, s->world,
                        (unsigned long long)s->ring_bytes, l->world, SHM_VERSION);
    uint8_t proof[GLM_MAC_BYTES];
    if (!make_proof(l->secret, name, peer, l->world, proof) || !glm_secret_equal(proof, s->proof))
        return glm_fail(err, GLM_EFABRIC,
                        "cannot trust rank %u's shared memory '%s': it does not prove the lane's "
                        "secret",
                        peer, name);
    return GLM_OK;
}

/* ---- The link ---- */

static enum glm_status shm_reg(struct glm_link *link, void *bytes, size_t len,
                               struct glm_error *err)
{
    (void)link, (void)bytes, (void)len, (void)err;
    return GLM_OK;
}

static enum glm_status shm_post_send(struct glm_link *link, const void *bytes, size_t len)
{
    struct shm_link *l = shm_of(link);
    if (l->send_left > 0)
        return GLM_EAGAIN;
    l->send_at = bytes;
    l->send_left = len;
    return GLM_OK;
}

static enum glm_status shm_post_recv(struct glm_link *link, void *bytes, size_t len)
{
    struct shm_link *l = shm_of(link);
    if (l->recv_left > 0)
        return GLM_EAGAIN;
    l->recv_at = bytes;
    l->recv_left = len;
    return GLM_OK;
}

/* Bytes in a ring, or UINT64_MAX when head and tail cannot both be true. */
static uint64_t ring_used(uint64_t head, uint64_t tail, uint64_t ring_bytes)
{
    return head - tail <= ring_bytes ? head - tail : UINT64_MAX;
}

static bool peer_closed(const struct shm_link *l)
{
    return (atomic_load(&l->peer.at->closed) >> l->rank & 1u) != 0;
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static enum glm_status shm_poll_send(struct glm_link *link)
{
    struct shm_link *l = shm_of(link);
    if (l->send_left == 0)
        return GLM_OK;
    uint64_t head = atomic_load_explicit(&l->out->head, memory_order_relaxed);
    uint64_t used = ring_used(head, atomic_load(&l->out->tail), l->ring_bytes_out);
    if (used == UINT64_MAX || l->dead || peer_closed(l))
        return GLM_EPEER;
    size_t n = min_size(l->send_left, (size_t)(l->ring_bytes_out - used));
    if (n == 0)
        return GLM_EAGAIN;
    size_t at = (size_t)(head & (l->ring_bytes_out - 1));
    size_t first = min_size(n, (size_t)l->ring_bytes_out - at);
    memcpy(l->out_bytes + at, l->send_at, first);
    memcpy(l->out_bytes, l->send_at + first, n - first);
    atomic_store(&l->out->head, head + n);
    ring_doorbell(l->peer.at);
    l->send_at += n;
    l->send_left -= n;
    return l->send_left == 0 ? GLM_OK : GLM_EAGAIN;
}

static enum glm_status shm_poll_recv(struct glm_link *link)
{
    struct shm_link *l = shm_of(link);
    if (l->recv_left == 0)
        return GLM_OK;
    bool gone = l->dead || peer_closed(l); /* before the head: what was sent first is delivered */
    uint64_t tail = atomic_load_explicit(&l->in->tail, memory_order_relaxed);
    uint64_t used = ring_used(atomic_load(&l->in->head), tail, l->ring_bytes_in);
    if (used == UINT64_MAX)
        return GLM_EPEER;
    size_t n = min_size(l->recv_left, (size_t)used);
    if (n == 0)
        return gone ? GLM_EPEER : GLM_EAGAIN;
    size_t at = (size_t)(tail & (l->ring_bytes_in - 1));
    size_t first = min_size(n, (size_t)l->ring_bytes_in - at);
    memcpy(l->recv_at, l->in_bytes + at, first);
    memcpy(l->recv_at + first, l->in_bytes, n - first);
    atomic_store(&l->in->tail, tail + n);
    if (atomic_exchange(&l->in->wants_room, 0) != 0)
        ring_doorbell(l->peer.at);
    l->recv_at += n;
    l->recv_left -= n;
    return l->recv_left == 0 ? GLM_OK : GLM_EAGAIN;
}

/* Would a poll get further, or end? A sender first says that it wants room, so that the reader
 * that makes room afterwards rings. */
static bool ready(struct shm_link *l)
{
    if (l->dead || peer_closed(l))
        return true;
    if (l->recv_left > 0 && atomic_load(&l->in->head) != atomic_load(&l->in->tail))
        return true;
    if (l->send_left == 0)
        return false;
    atomic_store(&l->out->wants_room, 1);
    return atomic_load(&l->out->head) - atomic_load(&l->out->tail) != l->ring_bytes_out;
}

static bool any_ready(struct glm_link *const *links, uint32_t n)
{
    bool open = false;
    for (uint32_t i = 0; i < n; i++) {
        struct shm_link *l = links[i] == NULL ? NULL : shm_of(links[i]);
        if (l == NULL || (l->send_left == 0 && l->recv_left == 0))
            continue;
        open = true;
        if (ready(l))
            return true;
    }
    return !open;
}

static void look_for_dead(struct glm_link *const *links, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct shm_link *l = links[i] == NULL ? NULL : shm_of(links[i]);
        if (l != NULL && !l->dead && !lock_held(l->peer.fd))
            l->dead = true;
    }
}

static void shm_wait(struct glm_link *const *links, uint32_t n, uint32_t timeout_us)
{
    struct shm_segment *own = NULL;
    bool spin = false;
    for (uint32_t i = 0; i < n; i++)
        if (links[i] != NULL) {
            own = shm_of(links[i])->own->at;
            spin = spin || links[i]->spin != 0;
        }
    if (own == NULL)
        return;
    uint64_t spin_until = spin ? glm_now_ns() + SPIN_US * 1000u : 0;
    do {
        for (int i = 0; i < 64; i++) {
            if (any_ready(links, n))
                return;
            if (!spin)
                break;
            glm_relax();
        }
    } while (spin && glm_now_ns() < spin_until);
    uint64_t until = glm_now_ns() + (uint64_t)timeout_us * 1000u;
    uint64_t now = until - (uint64_t)timeout_us * 1000u;
    /* Order matters: announce the sleep, read the doorbell, look again, then sleep on that value.
     * A peer that moved something after the look has changed the doorbell. */
    atomic_fetch_add(&own->sleeping, 1);
    while (now < until) {
        uint32_t seen = atomic_load(&own->doorbell);
        if (any_ready(links, n))
            break;
        uint64_t left_us = (until - now) / 1000u + 1;
        if (doorbell_sleep(own, seen, left_us < LOOK_AFTER_US ? (uint32_t)left_us : LOOK_AFTER_US))
            look_for_dead(links, n);
        now = glm_now_ns();
    }
    atomic_fetch_sub(&own->sleeping, 1);
}

static int shm_is_gone(struct glm_link *link)
{
    const struct shm_link *l = shm_of(link);
    return l->dead || peer_closed(l) || !lock_held(l->peer.fd);
}

static void shm_close(struct glm_link *link)
{
    struct shm_link *l = shm_of(link);
    atomic_fetch_or(&l->own->at->closed, 1u << link->peer);
    ring_doorbell(l->peer.at);
    unmap(&l->peer);
    drop_own(l->own);
    free(l);
}

static const struct glm_link_ops shm_ops = {
    .name = "shm",
    .reg = shm_reg,
    .post_send = shm_post_send,
    .post_recv = shm_post_recv,
    .poll_send = shm_poll_send,
    .poll_recv = shm_poll_recv,
    .wait = shm_wait,
    .is_gone = shm_is_gone,
    .close = shm_close,
};

static enum glm_status make_link(struct shm_listener *l, uint32_t peer, const char *name,
                                 struct glm_link **out, struct glm_error *err)
{
    struct shm_map m;
    enum glm_status status = attach_peer(&l->base, peer, name, &m, err);
    struct shm_link *k = status == GLM_OK ? calloc(1, sizeof *k) : NULL;
    if (k == NULL) {
        unmap(&m);
        return status != GLM_OK
                   ? status
                   : glm_fail(err, GLM_ENOMEM, "cannot link rank %u: out of memory", peer);
    }
    uint32_t rank = l->base.rank, world = l->base.world;
    struct shm_segment *own = l->own->at;
    *k = (struct shm_link){.base = {.ops = &shm_ops, .peer = peer},
                           .own = l->own,
                           .peer = m,
                           .rank = rank,
                           .ring_bytes_in = own->ring_bytes,
                           .ring_bytes_out = m.at->ring_bytes,
                           .in = &own->rings[peer],
                           .out = &m.at->rings[rank]};
    k->in_bytes = ring_bytes_at(own, world, k->ring_bytes_in, peer);
    k->out_bytes = ring_bytes_at(m.at, world, k->ring_bytes_out, rank);
    l->own->n_users++;
    atomic_fetch_or(&m.at->attached, 1u << rank);
    ring_doorbell(m.at);
    *out = &k->base;
    return GLM_OK;
}

static enum glm_status shm_connect(struct glm_link_listener *listener,
                                   const struct glm_link_address *addresses, uint64_t deadline_ms,
                                   struct glm_link **links, struct glm_error *err)
{
    struct shm_listener *l = (struct shm_listener *)listener;
    struct shm_segment *own = l->own->at;
    uint32_t wanted = 0;
    for (uint32_t peer = 0; peer < listener->world; peer++) {
        if (peer == listener->rank)
            continue;
        const char *name = NULL;
        enum glm_status status = glm_link_address_part(&addresses[peer], "shm", peer, &name, err);
        if (status == GLM_OK)
            status = make_link(l, peer, name, &links[peer], err);
        if (status != GLM_OK)
            return status;
        wanted |= 1u << peer;
    }
    atomic_fetch_add(&own->sleeping, 1);
    uint32_t missing;
    for (;;) {
        uint32_t seen = atomic_load(&own->doorbell);
        missing = wanted & ~atomic_load(&own->attached);
        int left_ms = glm_ms_until(deadline_ms);
        if (missing == 0 || left_ms == 0)
            break;
        doorbell_sleep(own, seen, (uint32_t)(left_ms < 1000 ? left_ms : 1000) * 1000u);
    }
    atomic_fetch_sub(&own->sleeping, 1);
    for (uint32_t peer = 0; peer < listener->world; peer++)
        if ((missing >> peer & 1u) != 0)
            return glm_fail(err, GLM_EPEER,
                            "cannot link rank %u to rank %u: it did not attach '%s' in time",
                            listener->rank, peer, l->name);
    return GLM_OK;
}

void glm_link_address_release(const struct glm_link_address *address)
{
    const char *name = NULL;
    if (glm_link_address_part(address, "shm", 0, &name, NULL) == GLM_OK &&
        strncmp(name, NAME_PREFIX, strlen(NAME_PREFIX)) == 0)
        shm_unlink(name);
}

void glm_link_sweep(void)
{
    DIR *folder = opendir("/dev/shm");
    if (folder == NULL)
        return;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        if (strncmp(entry->d_name, NAME_PREFIX + 1, 4) != 0 || strlen(entry->d_name) != 4 + 32)
            continue;
        struct stat st;
        int fd = openat(dirfd(folder), entry->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0)
            continue;
        if (fstat(fd, &st) == 0 && st.st_uid == geteuid() &&
            now.tv_sec - st.st_ctim.tv_sec > ORPHAN_S && !lock_held(fd))
            unlinkat(dirfd(folder), entry->d_name, 0);
        close(fd);
    }
    closedir(folder);
}

const struct glm_link_backend glm_link_shm = {
    .kind = "shm",
    .listener_bytes = sizeof(struct shm_listener),
    .listen = shm_listen,
    .connect = shm_connect,
    .release = shm_release,
};
