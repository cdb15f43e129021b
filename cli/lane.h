/* SPDX-License-Identifier: Apache-2.0 */
/* A lane as it runs: its head's status, read once, and the waits that apply, stop and restart
 * share. */
#ifndef GLM_CLI_LANE_H
#define GLM_CLI_LANE_H

#include "cli/common.h"

enum { LANE_MAX_RANKS = GLM_MAX_RANKS };

struct lane_rank {
    uint32_t rank;
    int64_t pid;
    char state[32];
    uint64_t done_bytes, total_bytes, memory_bytes;
    uint32_t restarts;
    char last_error[512];
};

struct lane_status {
    bool running; /* a head answered */
    char state[32];
    char error[512]; /* why the head is gone, when it failed */
    char url[256];
    char set_digest[65];
    double uptime_s;
    struct lane_rank ranks[LANE_MAX_RANKS];
    uint32_t n_ranks;
    struct buf json; /* the head's own words */
};

/* GLM_OK with running false when no head runs there; `state` is "failed" when one should. */
enum glm_status lane_status_read(const char *folder, struct lane_status *out,
                                 struct glm_error *err);
void lane_status_release(struct lane_status *s);
bool lane_is_live(const struct lane_status *s);

/* Ends a lane; says so on stderr. GLM_OK also when nothing ran. */
enum glm_status lane_stop(const char *folder, const char *name, struct glm_error *err);

/* Last `n` lines of every rank's log, each line with its rank, on stderr. */
void lane_print_logs(const char *folder, uint32_t n_ranks, uint32_t n);

/* yes, or an answer at the terminal; without a terminal GLM_EINVAL naming --yes. */
enum glm_status lane_confirm(bool yes, const char *question, struct glm_error *err);

#endif
