/* SPDX-License-Identifier: Apache-2.0 */
/* What comes over rank 0's control connections: ranks that join, report and beat, and glmctl that
 * asks and stops. Everything that is not acceptable is refused with both values and closed; a
 * stranger never gets further than a greeting. The set's life is supervise.c. */
#include "runtime/supervise_set.h"

#include "runtime/clock.h"
#include "runtime/net.h"
#include "spec/base/log.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

enum {
    GREET_MS = 5000, /* for a stranger to greet */
    IDLE_MS = 60000, /* for glmctl to ask something */
    ENDED_MS = 50,   /* between a process's last socket and its end */
    STATUS_FORMAT = 1,
};

static const char *const rank_state_texts[] = {
#define RANK_STATE_TEXT(name, text) [name] = text,
    RANK_STATE_MAP(RANK_STATE_TEXT)
#undef RANK_STATE_TEXT
};

const char *rank_state_text(enum rank_state state)
{
    return rank_state_texts[state];
}

static void close_entry(struct head *h, struct conn_entry *e)
{
    if (e->role == CONN_RANK && h->ranks[e->rank].entry == e)
        h->ranks[e->rank].entry = NULL;
    glm_conn_release(&e->conn);
    *e = (struct conn_entry){.role = CONN_UNUSED};
}

static void send_frame(struct head *h, struct conn_entry *e, enum glm_control_type type,
                       const char *json)
{
    e->conn.epoch = h->file.epoch;
    /* A peer that cannot be sent to shows as gone at its next read. */
    (void)glm_conn_send(&e->conn, type, json, NULL);
}

/* Answers with REFUSED and lets the connection drain. */
static void refuse(struct head *h, struct conn_entry *e, const char *message)
{
    struct buf b = {0};
    glm_log(GLM_LOG_WARN, "refused a connection why=\"%s\"", message);
    buf_str(&b, "{\"message\":");
    buf_json_string(&b, message, strlen(message));
    buf_str(&b, "}");
    if (!b.failed)
        send_frame(h, e, GLM_CONTROL_REFUSED, b.data);
    buf_release(&b);
    e->closing = true;
}

static uint64_t number(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble < 9e15))
        return 0;
    return (uint64_t)item->valuedouble;
}

static const char *text(const cJSON *object, const char *key)
{
    const char *value = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    return value == NULL ? "" : value;
}

/* ---- Joining ---- */

/* The settings that all ranks must share; false: message names the first that differs. */
static bool same_settings(const struct head *h, const cJSON *hello, uint32_t rank, char *message,
                          size_t capacity)
{
    const struct glm_lane_info *lane = h->lane;
    const struct {
        const char *key, *ours;
    } settings[] = {{"set_digest", lane->set_digest},
                    {"kernels_digest", lane->kernels_digest},
                    {"settings_digest", lane->settings_digest}};
    if (number(hello, "world") != lane->world) {
        snprintf(message, capacity, "rank %u has world %llu, rank 0 has %u", rank,
                 (unsigned long long)number(hello, "world"), lane->world);
        return false;
    }
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        const char *theirs = text(hello, settings[i].key);
        if (strcmp(theirs, settings[i].ours) == 0)
            continue;
        snprintf(message, capacity, "rank %u has %s %.64s, rank 0 has %s", rank, settings[i].key,
                 theirs, settings[i].ours);
        return false;
    }
    return true;
}

static void join(struct head *h, struct conn_entry *e, const cJSON *hello)
{
    char message[512];
    const uint64_t said = number(hello, "rank");
    const uint32_t rank = said < h->lane->world ? (uint32_t)said : 0;
    const char *link = text(hello, "link");
    if (rank == 0) {
        snprintf(message, sizeof message, "there is no rank %llu to join as: the set has 1 to %u",
                 (unsigned long long)said, h->lane->world - 1);
    } else if (number(hello, "epoch") != h->file.epoch) {
        snprintf(message, sizeof message, "rank %u belongs to set %llu, this is set %llu", rank,
                 (unsigned long long)number(hello, "epoch"), (unsigned long long)h->file.epoch);
    } else if (h->phase != SET_JOINING || h->ranks[rank].state != RANK_STARTING) {
        snprintf(message, sizeof message, "rank %u has joined already or is not wanted now", rank);
    } else if (!same_settings(h, hello, rank, message, sizeof message)) {
        struct glm_error why = {0};
        glm_fail(&why, GLM_ESTALE, "%s", message);
        glm_error_hint(&why, "apply the lane again: glmctl apply");
        refuse(h, e, message);
        set_rank_failed(h, rank, &why);
        return;
    } else if (strlen(link) >= sizeof h->ranks[rank].link.text) {
        snprintf(message, sizeof message, "rank %u has a link address of %zu bytes, at most %zu",
                 rank, strlen(link), sizeof h->ranks[rank].link.text - 1);
    } else {
        struct rank_entry *r = &h->ranks[rank];
        e->role = CONN_RANK;
        e->rank = rank;
        r->entry = e;
        r->state = RANK_JOINED;
        r->pid = (long)number(hello, "pid");
        memcpy(r->link.text, link, strlen(link) + 1);
        glm_log(GLM_LOG_INFO, "joined peer=%u pid=%ld link=%s", rank, r->pid, link);
        set_rank_joined(h);
        return;
    }
    refuse(h, e, message);
}

static void greet(struct head *h, struct conn_entry *e, const struct glm_control_frame *f)
{
    cJSON *hello = cJSON_ParseWithLength((const char *)f->payload, f->len);
    const char *role = text(hello, "role");
    if (strcmp(role, "rank") == 0)
        join(h, e, hello);
    else if (strcmp(role, "cli") == 0)
        e->role = CONN_CLI;
    else
        refuse(h, e, "its role is neither rank nor cli");
    cJSON_Delete(hello);
}

/* ---- Ranks ---- */

static void rank_says(struct head *h, struct conn_entry *e, const struct glm_control_frame *f)
{
    struct rank_entry *r = &h->ranks[e->rank];
    cJSON *json = cJSON_ParseWithLength((const char *)f->payload, f->len);
    if (h->worker != NULL)
        glm_worker_heard(h->worker, e->rank);
    if (f->type == GLM_CONTROL_PROGRESS || f->type == GLM_CONTROL_READY) {
        r->done_bytes = number(json, "done");
        r->total_bytes = number(json, "total");
        if (f->type == GLM_CONTROL_READY && r->state == RANK_LOADING) {
            r->memory_bytes = number(json, "memory");
            r->state = RANK_READY;
        }
    } else if (f->type == GLM_CONTROL_BEAT) {
        r->round = number(json, "round");
    } else if (f->type == GLM_CONTROL_FAILED) {
        struct glm_error why = {0};
        uint64_t status = number(json, "status");
        bool known = status > GLM_OK && status <= GLM_ENOTFOUND;
        glm_fail(&why, known ? (enum glm_status)status : GLM_EINVAL, "rank %u failed: %.900s",
                 e->rank, text(json, "message"));
        glm_error_hint(&why, "%.250s", text(json, "hint"));
        set_rank_failed(h, e->rank, &why);
    } else {
        struct glm_error why = {0};
        glm_fail(&why, GLM_EINVAL, "rank %u sent '%s' out of turn", e->rank,
                 glm_control_type_text(f->type));
        set_rank_failed(h, e->rank, &why);
    }
    cJSON_Delete(json);
}

/* ---- glmctl ---- */

static void write_rank(const struct head *h, uint32_t i, struct buf *b)
{
    const struct rank_entry *r = &h->ranks[i];
    buf_printf(
        b,
        "%s{\"rank\": %u, \"pid\": %ld, \"state\": \"%s\", \"device\": \"%s\", "
        "\"done_bytes\": %llu, \"total_bytes\": %llu, \"memory_bytes\": %llu, \"round\": %llu, "
        "\"restarts\": %u, \"last_error\": ",
        i == 0 ? "" : ", ", i, r->pid, rank_state_text(r->state), h->lane->devices[i],
        (unsigned long long)r->done_bytes, (unsigned long long)r->total_bytes,
        (unsigned long long)r->memory_bytes, (unsigned long long)r->round, r->restarts);
    buf_json_string(b, r->last_error, strlen(r->last_error));
    buf_str(b, "}");
}

static void answer_status(struct head *h, struct conn_entry *e)
{
    struct buf b = {0};
    buf_printf(&b,
               "{\"format_version\": %d, \"state\": \"%s\", \"pid\": %ld, \"url\": ", STATUS_FORMAT,
               glm_head_state_text(h->file.state), h->file.pid);
    buf_json_string(&b, h->file.url, strlen(h->file.url));
    buf_printf(&b,
               ", \"set_digest\": \"%s\", \"epoch\": %llu, \"uptime_s\": %.1f, "
               "\"restarts\": %llu, \"error\": ",
               h->lane->set_digest, (unsigned long long)h->file.epoch,
               (double)(glm_now_ms() - h->started_ms) / 1000.0,
               (unsigned long long)(h->file.epoch - 1));
    buf_json_string(&b, h->why.message, strlen(h->why.message));
    buf_str(&b, ", \"ranks\": [");
    for (uint32_t i = 0; i < h->lane->world; i++)
        write_rank(h, i, &b);
    buf_str(&b, "], \"stats\": ");
    if (h->worker != NULL)
        glm_worker_stats(h->worker, &b);
    else
        buf_str(&b, "{}");
    buf_str(&b, "}");
    if (b.failed)
        refuse(h, e, "out of memory");
    else
        send_frame(h, e, GLM_CONTROL_STATUS, b.data);
    buf_release(&b);
}

static void cli_says(struct head *h, struct conn_entry *e, const struct glm_control_frame *f)
{
    if (f->type == GLM_CONTROL_STATUS) {
        answer_status(h, e);
    } else if (f->type == GLM_CONTROL_STOP) {
        glm_log(GLM_LOG_INFO, "stopping: glmctl asked");
        set_end(h, NEXT_STOP, NULL);
        send_frame(h, e, GLM_CONTROL_STOP, NULL);
    } else if (f->type != GLM_CONTROL_BEAT) {
        refuse(h, e, "glmctl may ask for status and stop");
    }
}

/* ---- Connections ---- */

static void connection_lost(struct head *h, struct conn_entry *e, const char *why);

/* A free entry, else the one that has been greeting longest: who knows the secret greets at once.
 */
static struct conn_entry *entry_for_newcomer(struct head *h)
{
    struct conn_entry *oldest = NULL;
    for (size_t i = 0; i < MAX_CONNS; i++) {
        struct conn_entry *e = &h->conns[i];
        if (e->role == CONN_UNUSED)
            return e;
        if (e->role == CONN_GREETING && !e->closing &&
            (oldest == NULL || e->opened_ms < oldest->opened_ms))
            oldest = e;
    }
    return oldest;
}

bool conns_full(struct head *h)
{
    return entry_for_newcomer(h) == NULL;
}

/* Some at once, so that who is accepted greets before the next come. */
void conns_accept(struct head *h)
{
    for (size_t i = 0; i < MAX_CONNS / 2; i++) {
        struct conn_entry *e = entry_for_newcomer(h);
        int fd = e == NULL ? -1 : glm_net_accept(h->listen_fd);
        if (fd < 0)
            return;
        if (e->role != CONN_UNUSED)
            connection_lost(h, e, "it does not greet, and others wait");
        struct glm_error err = {0};
        e->conn.epoch = h->file.epoch;
        if (glm_conn_init(&e->conn, fd, true, h->secret, &err) != GLM_OK) {
            glm_log(GLM_LOG_WARN, "dropped a connection why=\"%s\"", err.message);
            continue;
        }
        e->role = CONN_GREETING;
        e->opened_ms = glm_now_ms();
    }
}

static void connection_lost(struct head *h, struct conn_entry *e, const char *why)
{
    uint32_t rank = e->rank;
    bool was_rank = e->role == CONN_RANK;
    if (e->role == CONN_GREETING)
        glm_log(GLM_LOG_WARN, "turned a connection away why=\"%s\"", why);
    close_entry(h, e);
    if (!was_rank || h->phase == SET_ENDING || !h->ranks[rank].child.running)
        return;
    /* A rank that ended is told by its launcher, with how it ended; one that lives is lost here. */
    struct pollfd ended = {.fd = h->ranks[rank].child.fd, .events = POLLIN};
    if (poll(&ended, 1, ENDED_MS) <= 0) {
        struct glm_error lost = {0};
        glm_fail(&lost, GLM_EPEER, "rank %u (pid %ld) is lost: %s", rank, h->ranks[rank].pid, why);
        set_rank_failed(h, rank, &lost);
    }
}

void conns_serve(struct head *h, struct conn_entry *e)
{
    struct glm_error pumped = {0};
    (void)glm_conn_pump(&e->conn, &pumped); /* next says what it means */
    while (e->role != CONN_UNUSED && !e->closing) {
        struct glm_control_frame f;
        struct glm_error err = {0};
        enum glm_status status = glm_conn_next(&e->conn, &f, &err);
        if (status == GLM_EAGAIN)
            return;
        if (status != GLM_OK) {
            connection_lost(h, e, status == GLM_EPEER ? pumped.message : err.message);
            return;
        }
        if (e->role == CONN_GREETING)
            greet(h, e, &f);
        else if (e->role == CONN_RANK)
            rank_says(h, e, &f);
        else
            cli_says(h, e, &f);
    }
}

void conns_tell_ranks(struct head *h, enum glm_control_type type, const char *json)
{
    for (uint32_t i = 1; i < h->lane->world; i++)
        if (h->ranks[i].entry != NULL)
            send_frame(h, h->ranks[i].entry, type, json);
}

static void tick_entry(struct head *h, struct conn_entry *e, uint64_t now)
{
    const struct glm_supervise_times *times = &h->lane->times;
    if (e->closing &&
        (e->conn.eof || e->conn.out_sent == e->conn.out.len || now - e->opened_ms > GREET_MS))
        close_entry(h, e);
    else if (e->role == CONN_GREETING && now - e->opened_ms > GREET_MS)
        connection_lost(h, e, "it does not greet");
    else if (e->role == CONN_CLI && now - e->conn.heard_ms > IDLE_MS)
        close_entry(h, e);
    else if (e->role == CONN_RANK && now - e->conn.heard_ms > times->dead_ms) {
        char why[64];
        snprintf(why, sizeof why, "silent for %.1f s", (double)(now - e->conn.heard_ms) / 1000.0);
        connection_lost(h, e, why);
    }
}

void conns_tick(struct head *h)
{
    uint64_t now = glm_now_ms();
    for (size_t i = 0; i < MAX_CONNS; i++)
        if (h->conns[i].role != CONN_UNUSED)
            tick_entry(h, &h->conns[i], now);
    if (now < h->beat_ms)
        return;
    char beat[96];
    snprintf(beat, sizeof beat, "{\"round\":%llu,\"state\":\"%s\"}",
             (unsigned long long)h->ranks[0].round, glm_head_state_text(h->file.state));
    conns_tell_ranks(h, GLM_CONTROL_BEAT, beat);
    h->beat_ms = now + h->lane->times.beat_ms;
}

void conns_close_ranks(struct head *h)
{
    for (size_t i = 0; i < MAX_CONNS; i++)
        if (h->conns[i].role == CONN_RANK)
            close_entry(h, &h->conns[i]);
}

void conns_close_all(struct head *h)
{
    for (size_t i = 0; i < MAX_CONNS; i++)
        if (h->conns[i].role != CONN_UNUSED)
            close_entry(h, &h->conns[i]);
}
