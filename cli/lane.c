/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a lane's status JSON into a struct, stopping it, its last log lines, the yes/no question.
 */
#include "cli/lane.h"

#include "runtime/client.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STOP_DEADLINE_MS = 30000, LOG_LIMIT_BYTES = 64 << 20 };

static void copy_string(const cJSON *object, const char *key, char *out, size_t size)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, key);
    snprintf(out, size, "%s", cJSON_IsString(v) ? v->valuestring : "");
}

static double number(const cJSON *object, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(v) ? v->valuedouble : 0;
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
        r->restarts = (uint32_t)number(item, "restarts");
        copy_string(item, "state", r->state, sizeof r->state);
        copy_string(item, "last_error", r->last_error, sizeof r->last_error);
    }
}

enum glm_status lane_status_read(const char *folder, struct lane_status *out, struct glm_error *err)
{
    *out = (struct lane_status){0};
    enum glm_status status = glm_client_status(folder, &out->json, err);
    out->running = status == GLM_OK;
    if (status == GLM_ENOTFOUND || status == GLM_EPEER)
        *err = (struct glm_error){ 0 };
    if (status == GLM_ENOTFOUND)
        return GLM_OK;
    if (status != GLM_OK && status != GLM_EPEER)
        return status;
    cJSON *json = cJSON_ParseWithLength(buf_text(&out->json), out->json.len);
    if (json == NULL)
        return glm_fail(err, GLM_EPEER, "the lane in '%s' answered with unreadable status", folder);
    copy_string(json, "error", out->error, sizeof out->error);
    copy_string(json, "state", out->state, sizeof out->state);
    copy_string(json, "url", out->url, sizeof out->url);
    copy_string(json, "set_digest", out->set_digest, sizeof out->set_digest);
    out->uptime_s = number(json, "uptime_s");
    read_ranks(json, out);
    cJSON_Delete(json);
    return GLM_OK;
}

void lane_status_release(struct lane_status *s)
{
    buf_release(&s->json);
}

bool lane_is_live(const struct lane_status *s)
{
    return s->running && strcmp(s->state, "live") == 0;
}

enum glm_status lane_stop(const char *folder, const char *name, struct glm_error *err)
{
    enum glm_status status = glm_client_stop(folder, STOP_DEADLINE_MS, err);
    if (status == GLM_ENOTFOUND) {
        *err = (struct glm_error){0};
        fprintf(stderr, "lane %s is not running\n", name);
        return GLM_OK;
    }
    if (status == GLM_OK)
        fprintf(stderr, "lane %s stopped\n", name);
    return status;
}

void lane_print_logs(const char *folder, uint32_t n_ranks, uint32_t n)
{
    struct buf path = {0}, text = {0};
    for (uint32_t rank = 0; rank < n_ranks; rank++) {
        struct glm_error ignored = {0};
        buf_clear(&path);
        buf_printf(&path, "%s/logs/rank%u.log", folder, rank);
        if (glm_file_read(buf_text(&path), LOG_LIMIT_BYTES, &text, &ignored) != GLM_OK)
            continue;
        const char *data = buf_text(&text);
        const char *start = data + text.len;
        for (uint32_t lines = 0; start > data; start--)
            if (start[-1] == '\n' && start != data + text.len && ++lines == n)
                break;
        while (*start != '\0') {
            size_t len = strcspn(start, "\n");
            fprintf(stderr, "  rank %u | %.*s\n", rank, (int)len, start);
            start += len + (start[len] == '\n');
        }
    }
    buf_release(&path);
    buf_release(&text);
}

enum glm_status lane_confirm(bool yes, const char *question, struct glm_error *err)
{
    char answer[16];
    if (yes)
        return GLM_OK;
    if (!isatty(STDIN_FILENO)) {
        enum glm_status status =
            glm_fail(err, GLM_EINVAL, "cannot ask '%s' without a terminal", question);
        glm_error_hint(err, "say --yes");
        return status;
    }
    fprintf(stderr, "%s [y/N] ", question);
    if (fgets(answer, sizeof answer, stdin) != NULL && tolower((unsigned char)answer[0]) == 'y')
        return GLM_OK;
    return glm_fail(err, GLM_ECANCELED, "nothing was changed");
}
