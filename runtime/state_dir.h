/* SPDX-License-Identifier: Apache-2.0 */
/* A lane's state folder, $GLM_STATE_DIR/<cluster>/<lane>/:
 *   launch.json, rankN.plan.json  written by apply
 *   secret       32 random bytes, 0600, made once by apply
 *   lock         locked by rank 0 for as long as it lives; holds its pid as text
 *   head.json    where rank 0 is reached and how it fares; stays when it fails
 *   logs/rankN.log
 * The lock is an open-file-description lock on the whole file: the kernel drops it with the
 * process, and it can be asked for without being taken. */
#ifndef GLM_RUNTIME_STATE_DIR_H
#define GLM_RUNTIME_STATE_DIR_H

#include "spec/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GLM_STATE_PATH_BYTES = 4096 };

/* "DIR/name". Errors: GLM_EINVAL when it is too long. */
enum glm_status glm_state_path(const char *dir, const char *name, char path[GLM_STATE_PATH_BYTES],
                               struct glm_error *err);

/* Makes the lane's secret unless it is there. Errors: GLM_EIO. */
enum glm_status glm_state_secret_create(const char *dir, struct glm_error *err);
/* Reads it. GLM_EIO when it is absent; GLM_EINVAL when it is not 32 bytes, not ours, or open to
 * others, naming what was found. */
enum glm_status glm_state_secret_read(const char *dir, uint8_t secret[32], struct glm_error *err);

/* Takes DIR/name as a lock and writes this process's pid into it; *fd holds it until closed. Made
 * 0600, never removed. GLM_EBUSY naming the holder, GLM_EIO when the folder cannot be written. */
enum glm_status glm_state_lock(const char *dir, const char *name, int *fd, struct glm_error *err);
/* Does a process hold it? *pid gets what the file says, 0 when nothing. */
bool glm_state_locked(const char *dir, const char *name, long *pid);

#define GLM_HEAD_STATE_MAP(X)                                                                  \
    X(GLM_HEAD_STARTING, "starting")     /* waiting for ranks to join and link */              \
    X(GLM_HEAD_LOADING, "loading")       /* weights */                                         \
    X(GLM_HEAD_LIVE, "live")             /* every rank is ready and the API port is bound */   \
    X(GLM_HEAD_RESTARTING, "restarting") /* a rank was lost; the set ends or waits to start */ \
    X(GLM_HEAD_STOPPING, "stopping")                                                           \
    X(GLM_HEAD_FAILED, "failed") /* gave up; error says why */
enum glm_head_state {
#define GLM_HEAD_STATE_ENUM(name, text) name,
    GLM_HEAD_STATE_MAP(GLM_HEAD_STATE_ENUM)
#undef GLM_HEAD_STATE_ENUM
        GLM_HEAD_N_STATES
};
const char *glm_head_state_text(enum glm_head_state state);

struct glm_head_file {
    long pid;
    enum glm_head_state state;
    char url[256];     /* "" until live */
    char control[160]; /* HOST:PORT */
    char set_digest[65];
    uint64_t epoch;    /* of the running set, 1 for the first */
    int64_t started_s; /* UTC seconds since 1970 when this head started */
    char error[1300];  /* why it failed; "" */
};
enum glm_status glm_head_file_write(const char *dir, const struct glm_head_file *h,
                                    struct glm_error *err);
/* GLM_ENOTFOUND when there is none, GLM_EINVAL when it is not one. */
enum glm_status glm_head_file_read(const char *dir, struct glm_head_file *h, struct glm_error *err);
void glm_head_file_remove(const char *dir);

#endif
