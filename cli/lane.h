/* SPDX-License-Identifier: Apache-2.0 */
/* A lane as it is found on this machine: its state folder, its head's status, its lock, its end. */
#ifndef GLM_CLI_LANE_H
#define GLM_CLI_LANE_H

#include "codegen/launch.h"

#include <stdio.h>

enum { LANE_MAX_RANKS = GLM_MAX_RANKS };

/* $GLM_STATE_DIR (default $XDG_STATE_HOME/glmctl, ~/.local/state/glmctl). */
enum glm_status lane_root(struct buf *out, struct glm_error *err);
/* The lane's folder below it, /CLUSTER/LANE, absolute. */
enum glm_status lane_folder(const char *cluster, const char *lane, struct buf *out,
                            struct glm_error *err);
/* launch.json of a state folder. */
enum glm_status lane_launch_read(const char *folder, struct arena *arena,
                                 struct glm_launch_file **out, struct glm_error *err);

struct lane_rank {
    uint32_t rank;
    int64_t pid;
    char state[32], device[16]; /* device: "cpu", "cuda:0" */
    uint64_t done_bytes, total_bytes, memory_bytes, round;
    uint32_t restarts;
    char last_error[512];
};

struct lane_status {
    bool running;    /* a head answered */
    char state[32];  /* the head's; "failed" when it should run and does not, else "stopped" */
    char error[512]; /* why it failed */
    char url[256];
    char set_digest[65];
    int64_t pid;
    double uptime_s;
    uint32_t restarts;
    struct lane_rank ranks[LANE_MAX_RANKS];
    uint32_t n_ranks;
    char stats[1024]; /* JSON object of the head's counters, "{}" when there are none */
};

/* Asks the head, for a few seconds at most. GLM_OK whether it runs or not. */
enum glm_status lane_status_read(const char *folder, struct lane_status *out,
                                 struct glm_error *err);
/* What the state folder alone says: running, state, error, url, set_digest and pid. */
void lane_status_guess(const char *folder, struct lane_status *out);
bool lane_is_live(const struct lane_status *s);

/* Keeps every other apply, restart and stop of the lane out until *fd is closed. GLM_EBUSY names
 * the process that holds it; GLM_EIO a folder that cannot be written. */
enum glm_status lane_lock(const char *folder, int *fd, struct glm_error *err);

/* Ends a lane and waits until its ports are free. *stopped (may be NULL): it ran.
 * GLM_OK also when nothing ran. */
enum glm_status lane_stop(const char *folder, bool *stopped, struct glm_error *err);

/* Every lane on this machine whose head runs. */
struct lane_found {
    char cluster[128], lane[128];
    struct lane_status status;
};
enum { LANE_MAX_FOUND = 64 };
struct lanes_found {
    struct lane_found *items; /* malloc'ed */
    uint32_t n;
};
/* skip (may be NULL): a folder to leave out. Lanes that cannot be asked are guessed. */
void lanes_find(const char *skip, struct lanes_found *out);
void lanes_release(struct lanes_found *found);

/* Moves a log file to the start of its last n lines. */
void lane_log_seek(FILE *f, int64_t n_lines);
/* Last `n` lines of every rank's log, each line with its rank, on stderr. */
void lane_print_logs(const char *folder, int64_t n);

#endif
