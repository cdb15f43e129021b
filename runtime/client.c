/* SPDX-License-Identifier: Apache-2.0 */
/* The asking side of a lane's control connection, and what can be told when nobody answers. */
#include "runtime/client.h"

#include "runtime/clock.h"
#include "runtime/control_conn.h"
#include "runtime/state_dir.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include <openssl/crypto.h>

enum {
    ANSWER_MS = 5000,
    APPEAR_MS = 1000, /* between a head's lock and its head.json */
    LOOK_MS = 20,
};

enum presence { ABSENT, DEAD, ALIVE };

/* Who is there: lock and head.json together. */
static enum presence look(const char *dir, struct glm_head_file *head, struct glm_error *err)
{
    uint64_t until = glm_now_ms() + APPEAR_MS;
    for (;;) {
        long pid = 0;
        bool locked = glm_state_locked(dir, "lock", &pid);
        struct glm_error none = {0};
        enum glm_status status = glm_head_file_read(dir, head, &none);
        if (status == GLM_OK)
            return locked ? ALIVE : DEAD;
        if (!locked || glm_now_ms() >= until) {
            if (locked)
                glm_fail(err, GLM_ENOTFOUND, "process %ld holds the lane '%s' but %s", pid, dir,
                         none.message);
            else
                glm_fail(err, GLM_ENOTFOUND, "the lane '%s' does not run", dir);
            glm_error_hint(err, "start it with: glmctl apply");
            return ABSENT;
        }
        (void)poll(NULL, 0, LOOK_MS);
    }
}

static enum glm_status open_cli(const char *dir, const struct glm_head_file *head,
                                struct glm_conn *conn, struct glm_error *err)
{
    uint8_t secret[32];
    enum glm_status status = glm_state_secret_read(dir, secret, err);
    if (status == GLM_OK)
        status = glm_conn_open(conn, head->control, secret, "\"role\":\"cli\"",
                               glm_now_ms() + ANSWER_MS, err);
    OPENSSL_cleanse(secret, sizeof secret);
    return status;
}

static enum glm_status ask_status(struct glm_conn *conn, struct buf *json, struct glm_error *err)
{
    struct glm_control_frame f;
    enum glm_status status = glm_conn_send(conn, GLM_CONTROL_STATUS, NULL, err);
    if (status == GLM_OK)
        status = glm_conn_receive(conn, glm_now_ms() + ANSWER_MS, &f, err);
    if (status == GLM_EAGAIN)
        return glm_fail(err, GLM_EPEER, "rank 0 did not answer within %d ms", ANSWER_MS);
    if (status != GLM_OK)
        return status;
    if (f.type != GLM_CONTROL_STATUS)
        return glm_fail(err, GLM_EPEER, "rank 0 answered '%s' to 'status': %.*s",
                        glm_control_type_text(f.type), f.len < 500 ? (int)f.len : 500,
                        (const char *)f.payload);
    buf_add(json, f.payload, f.len);
    return json->failed ? glm_fail(err, GLM_ENOMEM, "cannot hold the status: out of memory")
                        : GLM_OK;
}

/* The same document from head.json alone. */
static void write_dead(const struct glm_head_file *head, const char *error, struct buf *json)
{
    buf_clear(json);
    buf_printf(json,
               "{\"format_version\": 1, \"state\": \"failed\", \"pid\": %ld, \"url\": \"\", "
               "\"set_digest\": ",
               head->pid);
    buf_json_string(json, head->set_digest, strlen(head->set_digest));
    buf_printf(json, ", \"epoch\": %llu, \"uptime_s\": 0, \"restarts\": %llu, \"error\": ",
               (unsigned long long)head->epoch,
               (unsigned long long)(head->epoch > 0 ? head->epoch - 1 : 0));
    buf_json_string(json, error, strlen(error));
    buf_str(json, ", \"ranks\": [], \"stats\": {}}");
}

enum glm_status glm_client_status(const char *dir, struct buf *json, struct glm_error *err)
{
    struct glm_head_file head = {0};
    struct glm_conn conn = {0};
    struct glm_error found = {0};
    enum glm_status status = GLM_OK;
    buf_clear(json);
    switch (look(dir, &head, err)) {
    case ABSENT:
        return GLM_ENOTFOUND;
    case DEAD:
        if (head.state == GLM_HEAD_FAILED)
            status = glm_fail(&found, GLM_EPEER, "the lane failed: %.900s", head.error);
        else
            status = glm_fail(&found, GLM_EPEER, "rank 0 (pid %ld) is gone; the lane was %s",
                              head.pid, glm_head_state_text(head.state));
        glm_error_hint(&found, "start it again with: glmctl apply");
        break;
    case ALIVE:
        status = open_cli(dir, &head, &conn, &found);
        if (status == GLM_OK)
            status = ask_status(&conn, json, &found);
        glm_conn_release(&conn);
        break;
    }
    if (status == GLM_OK)
        return GLM_OK;
    write_dead(&head, found.message, json);
    glm_fail(err, GLM_EPEER, "%s", found.message);
    glm_error_hint(err, "%s", found.hint);
    return GLM_EPEER;
}

enum glm_status glm_client_stop(const char *dir, uint32_t deadline_ms, struct glm_error *err)
{
    struct glm_head_file head = {0};
    struct glm_conn conn = {0};
    struct glm_error asked = {0};
    uint64_t until = glm_now_ms() + deadline_ms;
    long pid = 0;
    switch (look(dir, &head, err)) {
    case ABSENT:
        return GLM_ENOTFOUND;
    case DEAD:
        glm_head_file_remove(dir);
        return GLM_OK;
    case ALIVE:
        break;
    }
    enum glm_status status = open_cli(dir, &head, &conn, &asked);
    if (status == GLM_OK)
        status = glm_conn_send(&conn, GLM_CONTROL_STOP, NULL, &asked);
    if (status == GLM_OK)
        glm_conn_flush(&conn, until);
    while (glm_state_locked(dir, "lock", &pid) && glm_now_ms() < until) {
        if (status == GLM_OK)
            (void)glm_conn_pump(&conn, NULL); /* read what it says, so that it is never reset */
        (void)poll(NULL, 0, LOOK_MS);
    }
    glm_conn_release(&conn);
    if (!glm_state_locked(dir, "lock", &pid))
        return GLM_OK;
    status = glm_fail(err, GLM_EBUSY, "rank 0 (pid %ld) still runs after %u ms%s%s", pid,
                      deadline_ms, asked.status == GLM_OK ? "" : ": ", asked.message);
    glm_error_hint(err, "end it with: kill -9 %ld (the other ranks follow)", pid);
    return status;
}
