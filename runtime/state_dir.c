/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a lane's state folder that rank 0 and its clients share. Plans and launch.json are
 * codegen's; who starts what is supervise.c. */
#include "runtime/state_dir.h"

#include "runtime/secret.h"
#include "spec/base/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cjson/cJSON.h>
#include <openssl/crypto.h>

enum { HEAD_FORMAT = 1, HEAD_MAX_BYTES = 64 * 1024 };

static const char *const state_texts[] = {
#define GLM_HEAD_STATE_TEXT(name, text) [name] = text,
    GLM_HEAD_STATE_MAP(GLM_HEAD_STATE_TEXT)
#undef GLM_HEAD_STATE_TEXT
};

const char *glm_head_state_text(enum glm_head_state state)
{
    size_t i = (size_t)state;
    return i < GLM_HEAD_N_STATES ? state_texts[i] : "unknown";
}

enum glm_status glm_state_path(const char *dir, const char *name, char path[GLM_STATE_PATH_BYTES],
                               struct glm_error *err)
{
    int n = snprintf(path, GLM_STATE_PATH_BYTES, "%s/%s", dir, name);
    if (n < 0 || n >= GLM_STATE_PATH_BYTES)
        return glm_fail(err, GLM_EINVAL, "cannot use state folder '%.200s…': longer than %d bytes",
                        dir, GLM_STATE_PATH_BYTES);
    return GLM_OK;
}

/* ---- The secret ---- */

enum glm_status glm_state_secret_create(const char *dir, struct glm_error *err)
{
    char path[GLM_STATE_PATH_BYTES];
    uint8_t secret[GLM_SECRET_BYTES];
    enum glm_status status = glm_state_path(dir, "secret", path, err);
    if (status != GLM_OK || access(path, F_OK) == 0)
        return status;
    status = glm_secret_random(secret, sizeof secret, err);
    if (status == GLM_OK)
        status = glm_file_write(path, secret, sizeof secret, 0600, err);
    OPENSSL_cleanse(secret, sizeof secret);
    return status;
}

enum glm_status glm_state_secret_read(const char *dir, uint8_t secret[32], struct glm_error *err)
{
    char path[GLM_STATE_PATH_BYTES];
    enum glm_status status = glm_state_path(dir, "secret", path, err);
    if (status != GLM_OK)
        return status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        status =
            glm_fail(err, GLM_EIO, "cannot read the lane's secret '%s': %s", path, strerror(errno));
        glm_error_hint(err, "glmctl apply makes it");
    } else if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077) != 0) {
        status = glm_fail(err, GLM_EINVAL,
                          "cannot trust the lane's secret '%s': owner %u mode %03o, want a file of "
                          "owner %u with mode 600",
                          path, st.st_uid, st.st_mode & 0777u, geteuid());
    } else if (st.st_size != GLM_SECRET_BYTES ||
               read(fd, secret, GLM_SECRET_BYTES) != GLM_SECRET_BYTES) {
        status = glm_fail(err, GLM_EINVAL, "cannot use the lane's secret '%s': %lld bytes, want %d",
                          path, (long long)st.st_size, GLM_SECRET_BYTES);
    }
    if (fd >= 0)
        close(fd);
    return status;
}

/* ---- The lock ---- */

static long read_pid(int fd)
{
    char text[32] = {0};
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    return n > 0 ? strtol(text, NULL, 10) : 0;
}

enum glm_status glm_state_lock(const char *dir, const char *name, int *out, struct glm_error *err)
{
    char path[GLM_STATE_PATH_BYTES], text[32];
    enum glm_status status = glm_state_path(dir, name, path, err);
    if (status != GLM_OK)
        return status;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return glm_fail(err, GLM_EIO, "cannot open lock '%s': %s", path, strerror(errno));
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_OFD_SETLK, &lock) != 0) {
        if (errno == EAGAIN || errno == EACCES)
            status = glm_fail(err, GLM_EBUSY, "cannot lock '%s': process %ld holds it", path,
                              read_pid(fd));
        else
            status = glm_fail(err, GLM_EIO, "cannot lock '%s': %s", path, strerror(errno));
        close(fd);
        return status;
    }
    int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n) {
        status = glm_fail(err, GLM_EIO, "cannot write lock '%s': %s", path, strerror(errno));
        close(fd);
        return status;
    }
    *out = fd;
    return GLM_OK;
}

bool glm_state_locked(const char *dir, const char *name, long *pid)
{
    char path[GLM_STATE_PATH_BYTES];
    *pid = 0;
    if (glm_state_path(dir, name, path, NULL) != GLM_OK)
        return false;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return false;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    bool held = fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    *pid = read_pid(fd);
    close(fd);
    return held;
}

/* ---- head.json ---- */

enum glm_status glm_head_file_write(const char *dir, const struct glm_head_file *h,
                                    struct glm_error *err)
{
    char path[GLM_STATE_PATH_BYTES];
    enum glm_status status = glm_state_path(dir, "head.json", path, err);
    if (status != GLM_OK)
        return status;
    struct buf b = {0};
    buf_printf(&b,
               "{\"format_version\": %d, \"pid\": %ld, \"state\": \"%s\", \"url\": ", HEAD_FORMAT,
               h->pid, glm_head_state_text(h->state));
    buf_json_string(&b, h->url, strlen(h->url));
    buf_str(&b, ", \"control\": ");
    buf_json_string(&b, h->control, strlen(h->control));
    buf_str(&b, ", \"set_digest\": ");
    buf_json_string(&b, h->set_digest, strlen(h->set_digest));
    buf_printf(&b,
               ", \"epoch\": %llu, \"started\": %lld, \"error\": ", (unsigned long long)h->epoch,
               (long long)h->started_s);
    buf_json_string(&b, h->error, strlen(h->error));
    buf_str(&b, "}\n");
    status = b.failed ? glm_fail(err, GLM_ENOMEM, "cannot write '%s': out of memory", path)
                      : glm_file_write(path, b.data, b.len, 0600, err);
    buf_release(&b);
    return status;
}

static bool take_text(const cJSON *object, const char *key, char *out, size_t capacity)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    if (text == NULL || strlen(text) >= capacity)
        return false;
    memcpy(out, text, strlen(text) + 1);
    return true;
}

static bool take_count(const cJSON *object, const char *key, double max, double *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= max))
        return false;
    *out = item->valuedouble;
    return true;
}

enum glm_status glm_head_file_read(const char *dir, struct glm_head_file *out,
                                   struct glm_error *err)
{
    char path[GLM_STATE_PATH_BYTES], state[32];
    struct buf text = {0};
    struct glm_head_file h = {.state = GLM_HEAD_N_STATES};
    enum glm_status status = glm_state_path(dir, "head.json", path, err);
    if (status == GLM_OK)
        status = glm_file_read(path, HEAD_MAX_BYTES, &text, err);
    if (status != GLM_OK)
        return status;
    cJSON *json = cJSON_ParseWithLength(buf_text(&text), text.len);
    double pid, epoch, started, version;
    bool good = take_count(json, "format_version", HEAD_FORMAT, &version) &&
                version == HEAD_FORMAT && take_count(json, "pid", 1e9, &pid) &&
                take_count(json, "epoch", 1e15, &epoch) &&
                take_count(json, "started", 1e15, &started) &&
                take_text(json, "state", state, sizeof state) &&
                take_text(json, "url", h.url, sizeof h.url) &&
                take_text(json, "control", h.control, sizeof h.control) &&
                take_text(json, "set_digest", h.set_digest, sizeof h.set_digest) &&
                take_text(json, "error", h.error, sizeof h.error);
    for (int i = 0; good && i < GLM_HEAD_N_STATES; i++)
        if (strcmp(state, state_texts[i]) == 0)
            h.state = (enum glm_head_state)i;
    if (!good || h.state == GLM_HEAD_N_STATES) {
        status = glm_fail(err, GLM_EINVAL, "cannot use '%s': it is no head file of version %d",
                          path, HEAD_FORMAT);
    } else {
        h.pid = (long)pid;
        h.epoch = (uint64_t)epoch;
        h.started_s = (int64_t)started;
        *out = h;
    }
    cJSON_Delete(json);
    buf_release(&text);
    return status;
}

void glm_head_file_remove(const char *dir)
{
    char path[GLM_STATE_PATH_BYTES];
    if (glm_state_path(dir, "head.json", path, NULL) == GLM_OK)
        unlink(path);
}
