/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a set, on rank 0: one loop over descriptors and one tick, no call that waits. A set
 * joins, runs, ends; after an end it starts again, stops or fails. Connections and what they say:
 * supervise_conn.c. Rank 0's own work: worker.c. The other ranks' processes: launcher.c. */
#include "runtime/supervise_set.h"

#include "runtime/clock.h"
#include "runtime/net.h"
#include "spec/base/log.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <openssl/crypto.h>

enum { TICK_MS = 100, SETTLE_MS = 50, LAST_WAIT_MS = 2000 };

struct glm_supervise_times glm_supervise_defaults(void)
{
    return (struct glm_supervise_times){.beat_ms = 1000,
                                        .dead_ms = 10000,
                                        .join_ms = 60000,
                                        .link_ms = 5000,
                                        .stop_ms = 10000,
                                        .stuck_ms = 300000,
                                        .back_off_ms = {1000, 2000, 4000},
                                        .n_restarts = 3,
                                        .healthy_ms = 60000};
}

/* head.json is for people and glmctl: when it cannot be written, serving goes on. */
static void write_head_file(struct head *h)
{
    struct glm_error err = {0};
    if (glm_head_file_write(h->config->dir, &h->file, &err) != GLM_OK)
        glm_log(GLM_LOG_ERROR, "%s", err.message);
}

static void enter_state(struct head *h, enum glm_head_state state)
{
    if (h->file.state == state)
        return;
    glm_log(GLM_LOG_INFO, "state=%s epoch=%llu", glm_head_state_text(state),
            (unsigned long long)h->file.epoch);
    h->file.state = state;
    write_head_file(h);
}

static void enter_phase(struct head *h, enum set_phase phase)
{
    h->phase = phase;
    h->phase_ms = glm_now_ms();
}

/* ---- Starting ---- */

static void start_set(struct head *h)
{
    struct glm_error err = {0};
    const struct glm_launcher *launcher = h->config->launcher;
    h->file.epoch++;
    h->told_to_end = h->serving_asked = false;
    h->next = NEXT_RESTART;
    h->why = (struct glm_error){0};
    h->live_ms = 0;
    enter_phase(h, SET_JOINING);
    enter_state(h, GLM_HEAD_STARTING);
    enum glm_status status =
        glm_worker_new(h->lane, h->secret, &h->worker, &h->ranks[0].link, &err);
    h->ranks[0].state = RANK_JOINED;
    h->ranks[0].echoed = false;
    h->ranks[0].pid = (long)getpid();
    for (uint32_t i = 1; status == GLM_OK && i < h->lane->world; i++) {
        struct rank_entry *r = &h->ranks[i];
        r->done_bytes = r->total_bytes = r->memory_bytes = r->round = 0;
        r->ended = r->echoed = false;
        status =
            launcher->start(launcher->context, i, h->file.control, h->file.epoch, &r->child, &err);
        if (status == GLM_OK) {
            r->state = RANK_STARTING;
            r->pid = r->child.pid;
            glm_log(GLM_LOG_INFO, "started peer=%u pid=%ld", i, r->pid);
        }
    }
    if (status != GLM_OK)
        set_end(h, NEXT_FAIL, &err);
    else
        set_rank_joined(h);
}

/* All there: everybody gets everybody's address. */
void set_rank_joined(struct head *h)
{
    struct glm_link_address addresses[GLM_LINK_MAX_WORLD];
    struct glm_error err = {0};
    struct buf b = {0};
    buf_printf(&b, "{\"epoch\":%llu,\"links\":[", (unsigned long long)h->file.epoch);
    for (uint32_t i = 0; i < h->lane->world; i++) {
        if (h->ranks[i].state != RANK_JOINED) {
            buf_release(&b);
            return;
        }
        addresses[i] = h->ranks[i].link;
        buf_str(&b, i == 0 ? "" : ",");
        buf_json_string(&b, addresses[i].text, strlen(addresses[i].text));
    }
    buf_str(&b, "]}");
    enum glm_status status = b.failed ? glm_fail(&err, GLM_ENOMEM, "cannot start: out of memory")
                                      : glm_worker_go(h->worker, addresses, &err);
    if (status == GLM_OK) {
        conns_tell_ranks(h, GLM_CONTROL_WELCOME, b.data);
        for (uint32_t i = 0; i < h->lane->world; i++)
            h->ranks[i].state = RANK_LOADING;
        enter_phase(h, SET_RUNNING);
        enter_state(h, GLM_HEAD_LOADING);
        h->moved_ms = glm_now_ms();
        h->moved_mark = 0;
    } else {
        set_end(h, NEXT_FAIL, &err);
    }
    buf_release(&b);
}

/* ---- Ending ---- */

static void reap_children(struct head *h);

void set_end(struct head *h, enum set_next next, const struct glm_error *why)
{
    bool ending = h->phase == SET_ENDING || h->phase == SET_WAITING;
    if (ending && (h->next != NEXT_RESTART || next == NEXT_RESTART))
        return;
    h->next = next;
    if (why != NULL) {
        h->why = *why;
        snprintf(h->file.error, sizeof h->file.error, "%s", why->message);
        glm_log(GLM_LOG_ERROR, "%s", why->message);
    }
    enter_state(h, next == NEXT_RESTART ? GLM_HEAD_RESTARTING : GLM_HEAD_STOPPING);
    if (ending)
        return;
    enter_phase(h, SET_ENDING);
    h->ranks[0].state = RANK_ENDING;
    h->kill_ms = glm_now_ms() + h->lane->times.stop_ms;
    h->moved_ms = glm_now_ms();
    if (h->worker == NULL)
        return;
    if (next == NEXT_STOP)
        glm_worker_stop(h->worker);
    else
        glm_worker_abort(h->worker);
}

/* Rank 0's worker has failed of its own: that is the cause, whatever the others say they lost. */
static bool own_rank_failed(struct head *h)
{
    if (h->worker == NULL)
        return false;
    glm_worker_status(h->worker, &h->worker_status);
    struct glm_error why = h->worker_status.error;
    if (why.status == GLM_OK || why.status == GLM_EPEER)
        return false;
    set_rank_failed(h, 0, &why);
    return true;
}

/* When a rank is lost the others report that they lost it, often before its own last words or its
 * launcher do. Those are given a moment, so that the set's reason is the loss and not its echo. */
static void settle(struct head *h)
{
    uint64_t until = glm_now_ms() + SETTLE_MS;
    h->settling = true;
    while (h->phase != SET_ENDING && !own_rank_failed(h)) {
        struct pollfd fds[GLM_LINK_MAX_WORLD];
        for (uint32_t i = 0; i < h->lane->world; i++) {
            const struct rank_entry *r = &h->ranks[i];
            bool asked = r->child.running && !r->echoed;
            fds[i] = (struct pollfd){.fd = asked ? r->child.fd : -1, .events = POLLIN};
        }
        int left_ms = glm_ms_until(until);
        if (left_ms == 0 || poll(fds, h->lane->world, left_ms) <= 0)
            break;
        reap_children(h);
    }
    h->settling = false;
}

void set_rank_failed(struct head *h, uint32_t rank, const struct glm_error *why)
{
    struct rank_entry *r = &h->ranks[rank];
    bool lost = why->status == GLM_EPEER || why->status == GLM_ECANCELED || h->live_ms != 0;
    bool echo = why->status == GLM_EPEER && !r->ended;
    r->echoed = r->echoed || echo;
    if (echo && h->settling)
        return;
    if (echo && h->phase != SET_ENDING)
        settle(h);
    /* While the set ends, ranks lose each other: only a rank's own error is news then. */
    if (lost && h->phase == SET_ENDING)
        return;
    if (h->next != NEXT_STOP) {
        snprintf(r->last_error, sizeof r->last_error, "%s", why->message);
        r->restarts += lost ? 1 : 0;
    }
    set_end(h, lost ? NEXT_RESTART : NEXT_FAIL, why);
}

/* The other ranks are told once rank 0's worker is through, so that those that follow it leave by
 * its list; at half the time they are told anyway. */
static void tell_ranks_to_end(struct head *h, uint64_t now)
{
    bool ended = h->worker == NULL || h->worker_status.phase == GLM_WORKER_ENDED ||
                 h->worker_status.phase == GLM_WORKER_LISTENING;
    if (h->told_to_end ||
        (!ended && h->next == NEXT_STOP && now < h->kill_ms - h->lane->times.stop_ms / 2))
        return;
    conns_tell_ranks(h, GLM_CONTROL_STOP, NULL);
    for (uint32_t i = 1; i < h->lane->world; i++) {
        struct rank_entry *r = &h->ranks[i];
        if (r->child.running && r->entry == NULL) /* cannot be told: has not joined */
            h->config->launcher->signal(h->config->launcher->context, &r->child, SIGTERM);
        if (r->child.running)
            r->state = RANK_ENDING;
    }
    h->told_to_end = true;
}

static bool ranks_gone(const struct head *h)
{
    for (uint32_t i = 1; i < h->lane->world; i++)
        if (h->ranks[i].child.running)
            return false;
    return true;
}

static void kill_ranks(struct head *h)
{
    const struct glm_launcher *l = h->config->launcher;
    for (uint32_t i = 1; i < h->lane->world; i++)
        if (h->ranks[i].child.running)
            l->signal(l->context, &h->ranks[i].child, SIGKILL);
}

/* Frees the worker if it has ended, else judges whether it hangs. A load cannot be interrupted: if
 * another set is to follow, one that moves is waited for; if the process goes anyway, none is. */
static bool worker_gone(struct head *h, uint64_t now)
{
    if (h->worker == NULL)
        return true;
    if (glm_worker_free(h->worker) == GLM_OK) {
        h->worker = NULL;
        return true;
    }
    enum glm_worker_phase phase = h->worker_status.phase;
    if (h->worker_status.done_bytes != h->moved_mark) {
        h->moved_mark = h->worker_status.done_bytes;
        h->moved_ms = now;
    }
    bool loading = phase == GLM_WORKER_LINKING || phase == GLM_WORKER_LOADING;
    bool moves = phase == GLM_WORKER_LOADING && now - h->moved_ms < h->lane->times.stop_ms;
    if (h->next == NEXT_RESTART)
        h->hung = now > h->kill_ms && !moves;
    else
        h->hung = now > h->kill_ms || (loading && ranks_gone(h));
    return false;
}

static void release_addresses(struct head *h)
{
    for (uint32_t i = 0; i < h->lane->world; i++) {
        glm_link_address_release(&h->ranks[i].link);
        h->ranks[i].link = (struct glm_link_address){0};
    }
}

static void after_end(struct head *h)
{
    conns_close_ranks(h);
    release_addresses(h);
    for (uint32_t i = 0; i < h->lane->world; i++)
        h->ranks[i].state = RANK_DOWN;
    h->file.url[0] = '\0';
    const struct glm_supervise_times *times = &h->lane->times;
    if (h->live_ms != 0 && h->phase_ms - h->live_ms >= times->healthy_ms)
        h->n_restarts = 0;
    if (h->next == NEXT_RESTART && h->n_restarts >= times->n_restarts) {
        struct glm_error why = {0};
        glm_fail(&why, GLM_EPEER, "gave up after %u restarts: %.900s", h->n_restarts,
                 h->why.message);
        glm_error_hint(&why, "%s", h->why.hint);
        h->why = why;
        h->next = NEXT_FAIL;
    }
    if (h->next != NEXT_RESTART) {
        h->over = true;
        return;
    }
    glm_log(GLM_LOG_INFO, "restarting attempt=%u of=%u back_off_ms=%u", h->n_restarts + 1,
            times->n_restarts, times->back_off_ms[h->n_restarts]);
    enter_phase(h, SET_WAITING);
}

static void tick_ending(struct head *h, uint64_t now)
{
    tell_ranks_to_end(h, now);
    if (now > h->kill_ms)
        kill_ranks(h);
    bool worker_is_gone = worker_gone(h, now);
    if (h->hung && h->next == NEXT_RESTART) {
        struct glm_error why = {0};
        glm_fail(&why, GLM_EBUSY, "rank 0 cannot restart: still %s after %u ms; %.800s",
                 glm_worker_phase_text(h->worker_status.phase), h->lane->times.stop_ms,
                 h->why.message);
        glm_error_hint(&why, "%s", h->why.hint);
        h->why = why;
        h->next = NEXT_FAIL;
    }
    if (h->hung) {
        h->over = true;
    } else if (worker_is_gone && ranks_gone(h)) {
        after_end(h);
    }
}

/* ---- Running ---- */

static void child_ended(struct head *h, uint32_t rank, const char *how)
{
    struct rank_entry *r = &h->ranks[rank];
    r->state = RANK_DOWN;
    r->ended = true;
    glm_log(GLM_LOG_INFO, "ended peer=%u pid=%ld how=\"%s\"", rank, r->pid, how);
    if (h->phase == SET_ENDING || r->echoed)
        return;
    struct glm_error why = {0};
    glm_fail(&why, GLM_EPEER, "rank %u (pid %ld) %s while the lane was %s", rank, r->pid, how,
             glm_head_state_text(h->file.state));
    glm_error_hint(&why, "see %.180s/logs/rank%u.log", h->config->dir, rank);
    set_rank_failed(h, rank, &why);
}

static void reap_children(struct head *h)
{
    const struct glm_launcher *l = h->config->launcher;
    for (uint32_t i = 1; i < h->lane->world; i++) {
        struct rank_entry *r = &h->ranks[i];
        char how[128];
        if (!r->child.running || !l->reap(l->context, &r->child, how, sizeof how))
            continue;
        /* Its last words may still lie in the socket. */
        if (r->entry != NULL)
            conns_serve(h, r->entry);
        child_ended(h, i, how);
    }
}

static void look_for_stuck(struct head *h, uint64_t now)
{
    const struct glm_serve_watch *watch = &h->worker_status.watch;
    bool busy = true;
    uint64_t mark = 1;
    if (h->file.state == GLM_HEAD_LIVE) {
        busy = watch->busy;
        mark = watch->rounds;
    } else {
        for (uint32_t i = 0; i < h->lane->world; i++)
            mark += h->ranks[i].done_bytes + (uint64_t)h->ranks[i].state;
    }
    if (!busy || mark != h->moved_mark) {
        h->moved_mark = mark;
        h->moved_ms = now;
    }
    if (now - h->moved_ms < h->lane->times.stuck_ms)
        return;
    struct glm_error why = {0};
    glm_fail(&why, GLM_EPEER, "the set is stuck: no progress for %.1f s while %s",
             (double)(now - h->moved_ms) / 1000.0, glm_head_state_text(h->file.state));
    conns_tell_ranks(h, GLM_CONTROL_STOP, "{\"stuck\":true}");
    if (h->config->dump_stacks != NULL)
        h->config->dump_stacks();
    set_end(h, NEXT_RESTART, &why);
}

static bool others_ready(const struct head *h)
{
    for (uint32_t i = 1; i < h->lane->world; i++)
        if (h->ranks[i].state != RANK_READY)
            return false;
    return true;
}

static void go_live(struct head *h)
{
    for (uint32_t i = 0; i < h->lane->world; i++)
        h->ranks[i].state = RANK_LIVE;
    memcpy(h->file.url, h->url, sizeof h->file.url);
    h->live_ms = glm_now_ms();
    h->moved_ms = h->live_ms;
    h->file.error[0] = '\0';
    enter_state(h, GLM_HEAD_LIVE);
    glm_log(GLM_LOG_INFO, "live url=%s", h->file.url);
}

static void tick_running(struct head *h, uint64_t now)
{
    const struct glm_worker_status *s = &h->worker_status;
    struct rank_entry *own = &h->ranks[0];
    own->done_bytes = s->done_bytes;
    own->total_bytes = s->total_bytes;
    own->memory_bytes = s->memory_bytes;
    own->round = s->watch.rounds;
    if (s->phase == GLM_WORKER_ENDED || s->watch.broken) {
        struct glm_error why = s->error;
        if (s->phase != GLM_WORKER_ENDED || why.status == GLM_OK) {
            why = (struct glm_error){0};
            glm_fail(&why, GLM_EPEER,
                     "rank 0 can serve no more: its engine or another rank "
                     "failed");
        }
        set_rank_failed(h, 0, &why);
        return;
    }
    if (s->phase == GLM_WORKER_READY && own->state == RANK_LOADING)
        own->state = RANK_READY;
    if (own->state == RANK_READY && others_ready(h) && !h->serving_asked) {
        h->serving_asked = true;
        glm_worker_serve(h->worker);
    }
    if (s->phase == GLM_WORKER_SERVING && h->file.state != GLM_HEAD_LIVE)
        go_live(h);
    look_for_stuck(h, now);
}

static void tick(struct head *h)
{
    uint64_t now = glm_now_ms();
    if (h->worker != NULL)
        glm_worker_status(h->worker, &h->worker_status);
    else
        h->worker_status = (struct glm_worker_status){.phase = GLM_WORKER_LISTENING};
    reap_children(h);
    conns_tick(h);
    switch (h->phase) {
    case SET_JOINING:
        if (now - h->phase_ms > h->lane->times.join_ms) {
            struct glm_error why = {0};
            uint32_t rank = 1;
            while (rank + 1 < h->lane->world && h->ranks[rank].state != RANK_STARTING)
                rank++;
            glm_fail(&why, GLM_EPEER, "rank %u (pid %ld) did not join within %u ms", rank,
                     h->ranks[rank].pid, h->lane->times.join_ms);
            set_rank_failed(h, rank, &why);
        }
        break;
    case SET_RUNNING:
        tick_running(h, now);
        break;
    case SET_ENDING:
        tick_ending(h, now);
        break;
    case SET_WAITING:
        if (h->next != NEXT_RESTART)
            h->over = true;
        else if (now - h->phase_ms >= h->lane->times.back_off_ms[h->n_restarts]) {
            h->n_restarts++;
            start_set(h);
        }
        break;
    }
}

static void wait_for_news(struct head *h)
{
    struct pollfd fds[3 + MAX_CONNS + GLM_LINK_MAX_WORLD];
    size_t n = 0;
    fds[n++] =
        (struct pollfd){.fd = h->next == NEXT_RESTART ? h->config->stop_fd : -1, .events = POLLIN};
    fds[n++] = (struct pollfd){.fd = conns_full(h) ? -1 : h->listen_fd, .events = POLLIN};
    fds[n++] =
        (struct pollfd){.fd = h->worker != NULL ? glm_worker_fd(h->worker) : -1, .events = POLLIN};
    for (size_t i = 0; i < MAX_CONNS; i++) {
        struct conn_entry *e = &h->conns[i];
        fds[n++] = (struct pollfd){.fd = e->role != CONN_UNUSED ? e->conn.fd : -1,
                                   .events = glm_conn_events(&e->conn)};
    }
    for (uint32_t i = 0; i < h->lane->world; i++)
        fds[n++] = (struct pollfd){.fd = h->ranks[i].child.running ? h->ranks[i].child.fd : -1,
                                   .events = POLLIN};
    (void)poll(fds, (nfds_t)n, TICK_MS); /* an interrupted wait is a tick */
    if (fds[0].revents != 0) {
        glm_log(GLM_LOG_INFO, "stopping: a signal asked");
        set_end(h, NEXT_STOP, NULL);
    }
    for (size_t i = 0; i < MAX_CONNS; i++)
        if (fds[3 + i].revents != 0 && h->conns[i].role != CONN_UNUSED)
            conns_serve(h, &h->conns[i]);
    if (fds[1].revents != 0)
        conns_accept(h);
}

/* ---- The whole ---- */

static enum glm_status bind_api(struct head *h, struct glm_error *err)
{
    const struct glm_service *service = &h->lane->service;
    enum glm_status status = service->bind(service->context, h->url, err);
    h->bound = status == GLM_OK;
    if (status == GLM_EBUSY)
        glm_error_hint(err, "free the address or change the lane's 'listen'");
    return status;
}

static enum glm_status open_head(struct head *h, struct glm_error *err)
{
    char text[GLM_NET_TEXT_BYTES];
    const char *dir = h->config->dir;
    enum glm_status status = glm_state_lock(dir, "lock", &h->lock_fd, err);
    if (status != GLM_OK)
        return status;
    h->file = (struct glm_head_file){
        .pid = (long)getpid(), .state = GLM_HEAD_STARTING, .started_s = (int64_t)time(NULL)};
    memcpy(h->file.set_digest, h->lane->set_digest, sizeof h->file.set_digest);
    status = glm_state_secret_read(dir, h->secret, err);
    if (status == GLM_OK)
        status = bind_api(h, err);
    if (status == GLM_OK)
        status = glm_net_listen(h->lane->control, 0, &h->listen_fd, text, err);
    if (status == GLM_OK) {
        memcpy(h->file.control, text, sizeof text);
        status = glm_head_file_write(dir, &h->file, err);
    }
    return status;
}

/* With the worker hung the process has to go: what can be ended is ended within a bound. */
static void bury_ranks(struct head *h)
{
    uint64_t until = glm_now_ms() + LAST_WAIT_MS;
    kill_ranks(h);
    while (!ranks_gone(h) && glm_now_ms() < until) {
        reap_children(h);
        (void)poll(NULL, 0, 10);
    }
}

static void close_head(struct head *h, enum glm_status status)
{
    const struct glm_error *why = &h->why;
    conns_close_all(h);
    if (h->bound && !h->hung) /* a hung worker may still use it; the process frees it */
        h->lane->service.unbind(h->lane->service.context);
    if (h->listen_fd >= 0)
        close(h->listen_fd);
    if (h->lock_fd >= 0) {
        if (status == GLM_OK) {
            glm_head_file_remove(h->config->dir);
        } else {
            h->file.state = GLM_HEAD_FAILED;
            snprintf(h->file.error, sizeof h->file.error, "%s%s%s", why->message,
                     why->hint[0] == '\0' ? "" : "; ", why->hint);
            write_head_file(h);
        }
        close(h->lock_fd);
    }
    OPENSSL_cleanse(h->secret, sizeof h->secret);
}

enum glm_status glm_supervise_run(const struct glm_supervise_config *config, bool *hung,
                                  struct glm_error *err)
{
    struct head *h = calloc(1, sizeof *h);
    *hung = false;
    if (h == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot supervise: out of memory");
    h->config = config;
    h->lane = config->lane;
    h->lock_fd = h->listen_fd = -1;
    h->started_ms = glm_now_ms();
    enum glm_status status = open_head(h, &h->why);
    if (status == GLM_OK) {
        glm_link_sweep();
        start_set(h);
        while (!h->over) {
            wait_for_news(h);
            tick(h);
        }
        if (h->next == NEXT_FAIL)
            status = h->why.status;
        if (h->hung)
            bury_ranks(h);
        release_addresses(h);
    }
    *hung = h->hung;
    close_head(h, status);
    if (status != GLM_OK) {
        glm_fail(err, status, "%s", h->why.message);
        glm_error_hint(err, "%s", h->why.hint);
    }
    free(h);
    return status;
}
