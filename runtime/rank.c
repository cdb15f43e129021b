/* SPDX-License-Identifier: Apache-2.0 */
/* The control side of a rank above 0. The worker does the work; this thread keeps the connection
 * to the head, tells it of progress and beats, and ends the worker when the head stops or is gone.
 * The head's side is supervise.c. */
#include "runtime/rank.h"

#include "runtime/clock.h"
#include "runtime/control_conn.h"
#include "runtime/worker.h"
#include "spec/base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

enum {
    TICK_MS = 100,
    GREET_MS = 10000,  /* to reach the head and be greeted */
    PROGRESS_MS = 200, /* between two progress frames */
    LEAVE_MS = 1000,   /* for the worker to end once the head is gone: all of it in two seconds */
};

struct rank {
    const struct glm_rank_config *config;
    struct glm_worker *worker;
    struct glm_conn conn;
    enum glm_worker_phase told; /* the last phase that the head knows */
    uint64_t told_bytes, told_ms, beat_ms;
    uint64_t leave_ms; /* stopping: the worker is aborted then; 0: not stopping */
    bool over;
    enum glm_status end;
    struct glm_error *err;
};

static enum glm_status leave(struct rank *r, enum glm_status status)
{
    r->over = true;
    r->end = status;
    return status;
}

/* ---- Joining ---- */

static void write_hello(const struct rank *r, const struct glm_link_address *address,
                        struct buf *out)
{
    const struct glm_lane_info *lane = r->config->lane;
    buf_printf(out,
               "\"role\":\"rank\",\"rank\":%u,\"world\":%u,\"epoch\":%llu,\"pid\":%ld,"
               "\"set_digest\":\"%s\",\"kernels_digest\":\"%s\",\"settings_digest\":\"%s\","
               "\"link\":",
               lane->rank, lane->world, (unsigned long long)r->config->epoch, (long)getpid(),
               lane->set_digest, lane->kernels_digest, lane->settings_digest);
    buf_json_string(out, address->text, strlen(address->text));
}

/* WELCOME {links[world]} → addresses; anything else ends the rank. */
static enum glm_status read_welcome(struct rank *r, const struct glm_control_frame *f,
                                    struct glm_link_address *addresses)
{
    uint32_t world = r->config->lane->world;
    cJSON *json = cJSON_ParseWithLength((const char *)f->payload, f->len);
    const cJSON *links = cJSON_GetObjectItemCaseSensitive(json, "links");
    enum glm_status status = GLM_OK;
    if (!cJSON_IsArray(links) || cJSON_GetArraySize(links) != (int)world)
        status = glm_fail(r->err, GLM_EINVAL,
                          "cannot join: the head's welcome has %d links, want "
                          "%u",
                          cJSON_GetArraySize(links), world);
    const cJSON *link = status == GLM_OK ? links->child : NULL;
    for (uint32_t i = 0; link != NULL && status == GLM_OK; i++, link = link->next) {
        const char *text = cJSON_GetStringValue(link);
        if (text == NULL || strlen(text) >= sizeof addresses[i].text)
            status = glm_fail(r->err, GLM_EINVAL,
                              "cannot join: the head's welcome has no link "
                              "address for rank %u",
                              i);
        else
            memcpy(addresses[i].text, text, strlen(text) + 1);
    }
    cJSON_Delete(json);
    return status;
}

static enum glm_status refused(struct rank *r, const struct glm_control_frame *f)
{
    cJSON *json = cJSON_ParseWithLength((const char *)f->payload, f->len);
    const char *why = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "message"));
    glm_fail(r->err, GLM_ESTALE, "the head refused this rank: %s", why == NULL ? "no reason" : why);
    cJSON_Delete(json);
    return GLM_ESTALE;
}

/* ---- Talking ---- */

static void tell_failed(struct rank *r, const struct glm_error *error)
{
    struct buf b = {0};
    buf_printf(&b, "{\"status\":%d,\"message\":", (int)error->status);
    buf_json_string(&b, error->message, strlen(error->message));
    buf_str(&b, ",\"hint\":");
    buf_json_string(&b, error->hint, strlen(error->hint));
    buf_str(&b, "}");
    if (!b.failed && glm_conn_send(&r->conn, GLM_CONTROL_FAILED, b.data, NULL) == GLM_OK)
        glm_conn_flush(&r->conn, glm_now_ms() + TICK_MS * 10);
    buf_release(&b);
}

static enum glm_status tell_news(struct rank *r, const struct glm_worker_status *s)
{
    char text[160];
    uint64_t now = glm_now_ms();
    enum glm_status status = GLM_OK;
    if (s->phase == GLM_WORKER_LOADING && s->done_bytes != r->told_bytes &&
        now - r->told_ms >= PROGRESS_MS) {
        snprintf(text, sizeof text, "{\"done\":%llu,\"total\":%llu}",
                 (unsigned long long)s->done_bytes, (unsigned long long)s->total_bytes);
        status = glm_conn_send(&r->conn, GLM_CONTROL_PROGRESS, text, r->err);
        r->told_bytes = s->done_bytes;
        r->told_ms = now;
    }
    if (status == GLM_OK && s->phase == GLM_WORKER_READY && r->told != GLM_WORKER_READY) {
        snprintf(text, sizeof text, "{\"done\":%llu,\"total\":%llu,\"memory\":%llu}",
                 (unsigned long long)s->done_bytes, (unsigned long long)s->total_bytes,
                 (unsigned long long)s->memory_bytes);
        status = glm_conn_send(&r->conn, GLM_CONTROL_READY, text, r->err);
        r->told = GLM_WORKER_READY;
    }
    if (status == GLM_OK && now >= r->beat_ms) {
        snprintf(text, sizeof text, "{\"round\":%llu,\"state\":\"%s\"}",
                 (unsigned long long)s->rounds, glm_worker_phase_text(s->phase));
        status = glm_conn_send(&r->conn, GLM_CONTROL_BEAT, text, r->err);
        r->beat_ms = now + r->config->lane->times.beat_ms;
    }
    return status;
}

static enum glm_status head_is_gone(struct rank *r, const char *why)
{
    glm_fail(r->err, GLM_EPEER, "rank 0 is gone: %s", why);
    return leave(r, GLM_EPEER);
}

static void start_leaving(struct rank *r)
{
    if (r->leave_ms != 0)
        return;
    r->leave_ms = glm_now_ms() + LEAVE_MS;
    glm_worker_stop(r->worker);
}

static enum glm_status handle(struct rank *r, const struct glm_control_frame *f)
{
    for (uint32_t i = 0; i < r->config->lane->world; i++)
        glm_worker_heard(r->worker, i);
    if (f->type == GLM_CONTROL_WELCOME && r->told == GLM_WORKER_LISTENING) {
        struct glm_link_address addresses[GLM_LINK_MAX_WORLD] = {0};
        enum glm_status status = read_welcome(r, f, addresses);
        if (status == GLM_OK)
            status = glm_worker_go(r->worker, addresses, r->err);
        r->told = GLM_WORKER_LINKING;
        return status == GLM_OK ? GLM_OK : leave(r, status);
    }
    if (f->type == GLM_CONTROL_REFUSED)
        return leave(r, refused(r, f));
    if (f->type == GLM_CONTROL_STOP) {
        if (f->len > 0 && r->config->dump_stacks != NULL)
            r->config->dump_stacks();
        if (r->told == GLM_WORKER_LISTENING)
            return leave(r, GLM_OK);
        start_leaving(r);
        return GLM_OK;
    }
    if (f->type == GLM_CONTROL_BEAT)
        return GLM_OK;
    glm_fail(r->err, GLM_EINVAL, "the head sent '%s' out of turn", glm_control_type_text(f->type));
    return leave(r, GLM_EINVAL);
}

static enum glm_status hear(struct rank *r)
{
    struct glm_error pumped = {0};
    (void)glm_conn_pump(&r->conn, &pumped); /* next says what it means */
    for (;;) {
        struct glm_control_frame f;
        enum glm_status status = glm_conn_next(&r->conn, &f, r->err);
        if (status == GLM_EAGAIN)
            return GLM_OK;
        if (status == GLM_EPEER && r->leave_ms != 0)
            return leave(r, GLM_OK);
        if (status == GLM_EPEER)
            return head_is_gone(r, pumped.message);
        if (status != GLM_OK)
            return leave(r, status);
        status = handle(r, &f);
        if (status != GLM_OK || r->over)
            return status;
    }
}

/* The worker ended: in order, by its own error, or because another rank is lost. Its own error is
 * news to the head even when it has told the rank to leave for something that followed from it. */
static void worker_ended(struct rank *r, const struct glm_worker_status *s)
{
    if (s->error.status == GLM_OK || (r->leave_ms != 0 && s->error.status == GLM_EPEER)) {
        leave(r, GLM_OK);
        return;
    }
    tell_failed(r, &s->error);
    glm_fail(r->err, s->error.status, "%s", s->error.message);
    glm_error_hint(r->err, "%s", s->error.hint);
    leave(r, s->error.status);
}

static void tick(struct rank *r)
{
    const struct glm_supervise_times *times = &r->config->lane->times;
    uint64_t now = glm_now_ms();
    if (now - r->conn.heard_ms > times->dead_ms) {
        char why[64];
        snprintf(why, sizeof why, "silent for %.1f s", (double)(now - r->conn.heard_ms) / 1000.0);
        head_is_gone(r, why);
        return;
    }
    if (r->leave_ms != 0 && now >= r->leave_ms)
        glm_worker_abort(r->worker);
    struct glm_worker_status s;
    glm_worker_status(r->worker, &s);
    if (s.phase == GLM_WORKER_ENDED)
        worker_ended(r, &s);
    else if (tell_news(r, &s) != GLM_OK)
        head_is_gone(r, "it does not read");
}

/* Ends the worker whatever it does; false: it would not end. */
static bool end_worker(struct rank *r)
{
    uint64_t deadline_ms = glm_now_ms() + LEAVE_MS;
    glm_worker_abort(r->worker);
    while (glm_worker_free(r->worker) == GLM_EBUSY) {
        int left_ms = glm_ms_until(deadline_ms);
        if (left_ms == 0)
            return false;
        struct pollfd p = {.fd = glm_worker_fd(r->worker), .events = POLLIN};
        (void)poll(&p, 1, left_ms < TICK_MS ? left_ms : TICK_MS);
    }
    return true;
}

static void loop(struct rank *r)
{
    while (!r->over) {
        struct pollfd fds[3] = {
            {.fd = r->conn.fd, .events = glm_conn_events(&r->conn)},
            {.fd = glm_worker_fd(r->worker), .events = POLLIN},
            {.fd = r->config->stop_fd, .events = POLLIN},
        };
        (void)poll(fds, 3, TICK_MS); /* an interrupted wait is a tick */
        if (fds[2].revents != 0) {
            glm_fail(r->err, GLM_ECANCELED, "rank %u was told to stop by a signal",
                     r->config->lane->rank);
            tell_failed(r, r->err);
            leave(r, GLM_ECANCELED);
            break;
        }
        if (hear(r) != GLM_OK || r->over)
            break;
        tick(r);
    }
}

enum glm_status glm_rank_run(const struct glm_rank_config *config, bool *hung,
                             struct glm_error *err)
{
    struct rank r = {.config = config, .err = err};
    struct glm_link_address address;
    struct buf hello = {0};
    *hung = false;
    enum glm_status status = glm_worker_new(config->lane, config->secret, &r.worker, &address, err);
    if (status != GLM_OK)
        return status;
    write_hello(&r, &address, &hello);
    if (hello.failed)
        status = glm_fail(err, GLM_ENOMEM, "cannot join the head: out of memory");
    else
        status = glm_conn_open(&r.conn, config->control, config->secret, hello.data,
                               glm_now_ms() + GREET_MS, err);
    buf_release(&hello);
    if (status == GLM_OK) {
        r.conn.epoch = config->epoch;
        glm_log(GLM_LOG_INFO, "joined head=%s epoch=%llu", config->control,
                (unsigned long long)config->epoch);
        loop(&r);
        status = r.end;
    }
    *hung = !end_worker(&r);
    glm_conn_release(&r.conn);
    return status;
}
