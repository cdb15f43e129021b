/* SPDX-License-Identifier: Apache-2.0 */
/* How rank 0 starts, signals and buries the daemons of the other ranks. One launcher a kind of
 * host: `local` (launcher.c); one over ssh fits the same table. */
#ifndef GLM_RUNTIME_LAUNCHER_H
#define GLM_RUNTIME_LAUNCHER_H

#include "spec/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct glm_child {
    bool running;
    long pid;
    int fd; /* readable once it ended */
};

struct glm_launcher {
    void *context;
    /* control: HOST:PORT of the head. The child's output goes to DIR/logs/rankN.log, appended. */
    enum glm_status (*start)(void *context, uint32_t rank, const char *control, uint64_t epoch,
                             struct glm_child *out, struct glm_error *err);
    void (*signal)(void *context, const struct glm_child *child, int signal);
    /* Has it ended? Then how[] says so ("exited with 1", "was killed by signal 9"), and it is
     * forgotten. */
    bool (*reap)(void *context, struct glm_child *child, char *how, size_t capacity);
};

/* Starts `program --launch DIR/launch.json --rank N --control A --epoch E`. */
struct glm_local_launcher {
    struct glm_launcher launcher;
    const char *program, *dir, *launch_path;
};
void glm_local_launcher_init(struct glm_local_launcher *l, const char *program, const char *dir,
                             const char *launch_path);

#endif
