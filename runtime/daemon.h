/* SPDX-License-Identifier: Apache-2.0 */
/* glmd as a function: one rank of one lane, from its command line to its exit code. No signals and
 * no globals here: main.c has those. */
#ifndef GLM_RUNTIME_DAEMON_H
#define GLM_RUNTIME_DAEMON_H

#include "runtime/serve.h"

struct glm_daemon_config {
    const char *launch_path; /* DIR/launch.json: DIR is the lane's state folder */
    uint32_t rank;
    const char *control; /* the head's HOST:PORT; NULL: from DIR/head.json */
    uint64_t epoch;      /* of the set a rank above 0 is started for; 0: from DIR/head.json */
    const char *program; /* what starts the other ranks: this program's path */
    int stop_fd;         /* readable: stop in order */
    void (*dump_stacks)(void);
    enum glm_status (*load)(const char *launch_path, uint32_t rank, struct glm_lane_info *out,
                            struct glm_error *err);
    void (*release)(struct glm_lane_info *lane);
};

/* Fills launch_path, rank, control and epoch from `--launch F --rank N [--control A] [--epoch E]`.
 * GLM_EINVAL naming the option. */
enum glm_status glm_daemon_options(int argc, char **argv, struct glm_daemon_config *config,
                                   struct glm_error *err);

/* Runs the rank to its end and logs why it ended. Returns the exit code: 0 it was stopped, 1 it
 * failed. *hung: leave the process at once, a thread would not end. */
int glm_daemon_run(const struct glm_daemon_config *config, bool *hung);

#endif
