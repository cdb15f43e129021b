/* SPDX-License-Identifier: Apache-2.0 */
/* State folders and the heads behind them, as the commands see them. How a head is asked is
 * runtime/client.c's, what lies in a folder runtime/state_dir.h's. */
#include "cli/lane.h"

#include "runtime/client.h"
#include "runtime/state_dir.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STOP_DEADLINE_MS = 30000, LAUNCH_LIMIT_BYTES = 64 << 20 };

/* ---- folders ---- */

enum glm_status lane_root(struct buf *out, struct glm_error *err)
{
    const char *state = getenv("GLM_STATE_DIR");
    const char *xdg = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    char here[PATH_MAX];
    buf_clear(out);
    if (state != NULL && *state != '\0') {
        if (*state != '/' && getcwd(here, sizeof here) != NULL)
            buf_printf(out, "%s/", here);
        buf_str(out, state);
    } else if (xdg != NULL && *xdg == '/') {
        buf_printf(out, "%s/glmctl", xdg);
    } else if (home != NULL && *home == '/') {
        buf_printf(out, "%s/.local/state/glmctl", home);
    } else {
        return glm_fail(err, GLM_EIO,
                        "no state folder: GLM_STATE_DIR, XDG_STATE_HOME and HOME are not set");
    }
    return out->failed ? glm_fail(err, GLM_ENOMEM, "out of memory") : GLM_OK;
}

enum glm_status lane_folder(const char *cluster, const char *lane, struct buf *out,
                            struct glm_error *err)
{
    enum glm_status status = lane_root(out, err);
    if (status == GLM_OK)
        buf_printf(out, "/%s/%s", cluster, lane);
    return out->failed ? glm_fail(err, GLM_ENOMEM, "out of memory") : status;
}

enum glm_status lane_launch_read(const char *folder, struct arena *arena,
                                 struct glm_launch_file **out, struct glm_error *err)
{
    struct buf path = {0}, text = {0};
    buf_printf(&path, "%s/launch.json", folder);
    enum glm_status status = glm_file_read(buf_text(&path), LAUNCH_LIMIT_BYTES, &text, err);
    if (status == GLM_OK)
        status = glm_launch_read(buf_text(&text), text.len, arena, out, err);
    buf_release(&path);
    buf_release(&text);
    return status;
}

/* ---- status ---- */

static void copy_string(const cJSON *object, const char *key, char *out, size_t size)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, key);
    snprintf(out, size, "%s", cJSON_IsString(v) ? v->valuestring : "");
}

static double number(const cJSON *object, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(v) && v->valuedouble >= 0 && v->valuedouble < 9e15 ? v->valuedouble : 0;
}

static void read_ranks(const cJSON *json, struct lane_status *out)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(json, "ranks"))
    {
        if (out->n_ranks == LANE_MAX_RANKS)
            return;
        struct lane_rank *r = &out->ranks[out->n_ranks++];
        r->rank = (uint32_t)number(item, "rank");
        r->pid = (int64_t)number(item, "pid");
        r->done_bytes = (uint64_t)number(item, "done_bytes");
        r->total_bytes = (uint64_t)number(item, "total_bytes");
        r->memory_bytes = (uint64_t)number(item, "memory_bytes");
        r->round = (uint64_t)number(item, "round");
        r->restarts = (uint32_t)number(item, "restarts");
        copy_string(item, "state", r->state, sizeof r->state);
        copy_string(item, "device", r->device, sizeof r->device);
        copy_string(item, "last_error", r->last_error, sizeof r->last_error);
    }
}

static void read_stats(const cJSON *json, struct lane_status *out)
{
    cJSON *stats = cJSON_GetObjectItemCaseSensitive(json, "stats");
    char *text = cJSON_IsObject(stats) ? cJSON_PrintUnformatted(stats) : NULL;
    const bool fits = text != NULL && strlen(text) < sizeof out->stats;
    snprintf(out->stats, sizeof out->stats, "%s", fits ? text : "{}");
    cJSON_free(text);
}

static enum glm_status parse_status(const char *folder, const struct buf *text,
                                    struct lane_status *out, struct glm_error *err)
{
    cJSON *json = cJSON_ParseWithLength(buf_text(text), text->len);
    if (json == NULL)
        return glm_fail(err, GLM_EPEER, "the lane in '%s' answered with unreadable status", folder);
    copy_string(json, "error", out->error, sizeof out->error);
    copy_string(json, "state", out->state, sizeof out->state);
    copy_string(json, "url", out->url, sizeof out->url);
    copy_string(json, "set_digest", out->set_digest, sizeof out->set_digest);
    out->pid = (int64_t)number(json, "pid");
    out->uptime_s = number(json, "uptime_s");
    out->restarts = (uint32_t)number(json, "restarts");
    read_ranks(json, out);
    read_stats(json, out);
    cJSON_Delete(json);
    return GLM_OK;
}

enum glm_status lane_status_read(const char *folder, struct lane_status *out, struct glm_error *err)
{
    struct buf text = {0};
    struct glm_error answer = {0};
    *out = (struct lane_status){.state = "stopped", .stats = "{}"};
    enum glm_status status = glm_client_status(folder, &text, &answer);
    out->running = status == GLM_OK;
    if (status == GLM_OK || status == GLM_EPEER)
        status = parse_status(folder, &text, out, err);
    else if (status == GLM_ENOTFOUND)
        status = GLM_OK;
    else
        status = glm_fail(err, status, "%s", answer.message);
    buf_release(&text);
    return status;
}

void lane_status_guess(const char *folder, struct lane_status *out)
{
    struct glm_head_file head = {0};
    struct glm_error ignored = {0};
    long pid = 0;
    *out = (struct lane_status){.state = "stopped", .stats = "{}"};
    out->running = glm_state_locked(folder, "lock", &pid);
    if (glm_head_file_read(folder, &head, &ignored) != GLM_OK) {
        if (out->running)
            snprintf(out->state, sizeof out->state, "starting");
        return;
    }
    snprintf(out->state, sizeof out->state, "%s",
             out->running ? glm_head_state_text(head.state) : "failed");
    snprintf(out->error, sizeof out->error, "%.500s", head.error);
    snprintf(out->url, sizeof out->url, "%s", head.url);
    snprintf(out->set_digest, sizeof out->set_digest, "%s", head.set_digest);
    out->pid = head.pid;
    out->restarts = head.epoch > 0 ? (uint32_t)head.epoch - 1 : 0;
}

bool lane_is_live(const struct lane_status *s)
{
    return s->running && strcmp(s->state, "live") == 0;
}

/* ---- lock and end ---- */

enum glm_status lane_lock(const char *folder, int *fd, struct glm_error *err)
{
    struct glm_error found = {0};
    long pid = 0;
    enum glm_status status = glm_state_lock(folder, "apply.lock", fd, &found);
    if (status == GLM_EBUSY) {
        (void)glm_state_locked(folder, "apply.lock", &pid);
        glm_fail(err, status,
                 "another glmctl works on this lane: process %ld holds '%s/apply.lock'", pid,
                 folder);
        glm_error_hint(err, "wait for it, or end it: kill -INT %ld", pid);
    } else if (status != GLM_OK) {
        glm_fail(err, status, "%s", found.message);
        glm_error_hint(err, "GLM_STATE_DIR names another state folder");
    }
    return status;
}

enum glm_status lane_stop(const char *folder, bool *stopped, struct glm_error *err)
{
    struct glm_error found = {0};
    enum glm_status status = glm_client_stop(folder, STOP_DEADLINE_MS, &found);
    if (stopped != NULL)
        *stopped = status == GLM_OK;
    if (status == GLM_OK || status == GLM_ENOTFOUND)
        return GLM_OK;
    glm_fail(err, status, "%s", found.message);
    glm_error_hint(err, "%s", found.hint);
    return status;
}

/* ---- all lanes ---- */

static void add_found(const char *cluster, const char *lane, const char *folder,
                      struct lanes_found *out)
{
    struct glm_error ignored = {0};
    struct lane_found *f = &out->items[out->n];
    lane_status_guess(folder, &f->status);
    if (!f->status.running || strlen(cluster) >= sizeof f->cluster ||
        strlen(lane) >= sizeof f->lane)
        return;
    struct lane_status asked;
    if (lane_status_read(folder, &asked, &ignored) == GLM_OK && asked.running)
        f->status = asked;
    memcpy(f->cluster, cluster, strlen(cluster) + 1);
    memcpy(f->lane, lane, strlen(lane) + 1);
    out->n++;
}

static void find_in_cluster(const char *root, const char *cluster, const char *skip,
                            struct lanes_found *out)
{
    struct buf path = {0};
    buf_printf(&path, "%s/%s", root, cluster);
    DIR *dir = opendir(buf_text(&path));
    const struct dirent *e;
    while (dir != NULL && (e = readdir(dir)) != NULL && out->n < LANE_MAX_FOUND) {
        if (e->d_name[0] == '.')
            continue;
        buf_clear(&path);
        buf_printf(&path, "%s/%s/%s", root, cluster, e->d_name);
        if (skip == NULL || strcmp(skip, buf_text(&path)) != 0)
            add_found(cluster, e->d_name, buf_text(&path), out);
    }
    if (dir != NULL)
        closedir(dir);
    buf_release(&path);
}

void lanes_find(const char *skip, struct lanes_found *out)
{
    struct buf root = {0};
    struct glm_error ignored = {0};
    *out = (struct lanes_found){.items = calloc(LANE_MAX_FOUND, sizeof *out->items)};
    DIR *dir = out->items != NULL && lane_root(&root, &ignored) == GLM_OK ? opendir(buf_text(&root))
                                                                          : NULL;
    const struct dirent *e;
    while (dir != NULL && (e = readdir(dir)) != NULL)
        if (e->d_name[0] != '.')
            find_in_cluster(buf_text(&root), e->d_name, skip, out);
    if (dir != NULL)
        closedir(dir);
    buf_release(&root);
}

void lanes_release(struct lanes_found *found)
{
    free(found->items);
    *found = (struct lanes_found){0};
}

/* ---- logs ---- */

void lane_log_seek(FILE *f, int64_t n_lines)
{
    char block[4096];
    if (fseek(f, 0, SEEK_END) != 0)
        return;
    long at = ftell(f);
    int64_t found = 0;
    while (at > 0) {
        long size = at < (long)sizeof block ? at : (long)sizeof block;
        at -= size;
        if (fseek(f, at, SEEK_SET) != 0 || fread(block, 1, (size_t)size, f) != (size_t)size)
            break;
        for (long i = size; i > 0; i--) {
            if (block[i - 1] == '\n' && found++ == n_lines) {
                fseek(f, at + i, SEEK_SET);
                return;
            }
        }
    }
    fseek(f, 0, SEEK_SET);
}

void lane_print_logs(const char *folder, int64_t n)
{
    struct buf path = {0};
    char *line = NULL;
    size_t size = 0;
    for (uint32_t rank = 0; rank < LANE_MAX_RANKS; rank++) {
        buf_clear(&path);
        buf_printf(&path, "%s/logs/rank%u.log", folder, rank);
        FILE *f = fopen(buf_text(&path), "re");
        if (f == NULL)
            continue;
        lane_log_seek(f, n);
        while (getline(&line, &size, f) > 0)
            fprintf(stderr, "  rank %u | %s%s", rank, line, strchr(line, '\n') == NULL ? "\n" : "");
        fclose(f);
    }
    free(line);
    buf_release(&path);
}
