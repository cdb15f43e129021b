/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by supervise.c (the set's life) and supervise_conn.c (what connections say); nobody else
 * includes it. Owner of everything: the control thread of rank 0. */
#ifndef GLM_RUNTIME_SUPERVISE_SET_H
#define GLM_RUNTIME_SUPERVISE_SET_H

#include "runtime/control_conn.h"
#include "runtime/state_dir.h"
#include "runtime/supervise.h"
#include "runtime/worker.h"

enum { MAX_CONNS = GLM_LINK_MAX_WORLD + 32, ERROR_CHARS = 1300 };

enum conn_role { CONN_UNUSED, CONN_GREETING, CONN_RANK, CONN_CLI };

struct conn_entry {
    enum conn_role role;
    uint32_t rank;
    bool closing; /* what is queued goes out, then it is closed */
    uint64_t opened_ms;
    struct glm_conn conn;
};

#define RANK_STATE_MAP(X)                                      \
    X(RANK_DOWN, "down")         /* not running */             \
    X(RANK_STARTING, "starting") /* started, has not joined */ \
    X(RANK_JOINED, "joined")     /* waits for the others */    \
    X(RANK_LOADING, "loading")                                 \
    X(RANK_READY, "ready")                                     \
    X(RANK_LIVE, "live")                                       \
    X(RANK_ENDING, "ending")
enum rank_state {
#define RANK_STATE_ENUM(name, text) name,
    RANK_STATE_MAP(RANK_STATE_ENUM)
#undef RANK_STATE_ENUM
        RANK_N_STATES
};

struct rank_entry {
    enum rank_state state;
    struct glm_child child;   /* not of rank 0 */
    struct conn_entry *entry; /* its connection, or NULL */
    long pid;
    bool ended;  /* its process did */
    bool echoed; /* it said that it lost another rank: no cause of its own */
    uint64_t done_bytes, total_bytes, memory_bytes, round;
    uint32_t restarts; /* of the set, for this rank's sake */
    char last_error[ERROR_CHARS];
    struct glm_link_address link;
};

enum set_phase {
    SET_JOINING, /* ranks start and join */
    SET_RUNNING, /* linked; loads, then serves */
    SET_ENDING,  /* told to end; waits for ranks and worker */
    SET_WAITING, /* back-off before the next start */
};
enum set_next { NEXT_RESTART, NEXT_STOP, NEXT_FAIL };

struct head {
    const struct glm_supervise_config *config;
    const struct glm_lane_info *lane;
    uint8_t secret[32];
    int lock_fd, listen_fd;
    struct glm_head_file file; /* what head.json says */
    char url[GLM_URL_BYTES];   /* of the bound API */
    bool bound;
    uint64_t started_ms;

    enum set_phase phase;
    uint64_t phase_ms; /* when it began */
    struct glm_worker *worker;
    struct glm_worker_status worker_status;
    struct rank_entry ranks[GLM_LINK_MAX_WORLD];
    struct conn_entry conns[MAX_CONNS];
    uint64_t beat_ms;
    bool serving_asked;
    uint64_t live_ms;              /* since when it is live, 0 */
    uint64_t moved_ms, moved_mark; /* progress of rounds or loads, for stuck_ms */

    enum set_next next;
    uint64_t kill_ms;     /* ending: who is still there then is killed */
    bool told_to_end;     /* ranks have been sent stop */
    uint32_t n_restarts;  /* in a row */
    struct glm_error why; /* why the set ends */
    bool settling;        /* looks for the first cause among several losses */
    bool hung, over;
};

/* A reason to end the set. RESTART yields to STOP and FAIL, which yield to nothing. */
void set_end(struct head *h, enum set_next next, const struct glm_error *why);
/* A rank is lost or has failed: remembers the text and ends the set. It restarts after a loss, and
 * after any failure once it was live: what was wrong from the start stays wrong. */
void set_rank_failed(struct head *h, uint32_t rank, const struct glm_error *why);
void set_rank_joined(struct head *h);

void conns_accept(struct head *h);
/* All entries are of peers that have proved the secret: whoever knocks waits until one is free. */
bool conns_full(struct head *h);
/* Reads, judges and answers what an entry's socket brought. */
void conns_serve(struct head *h, struct conn_entry *e);
/* Beats, deadlines of greetings, silent ranks, closings. */
void conns_tick(struct head *h);
/* Sends every joined rank the same frame. */
void conns_tell_ranks(struct head *h, enum glm_control_type type, const char *json);
void conns_close_ranks(struct head *h);
void conns_close_all(struct head *h);

const char *rank_state_text(enum rank_state state);

#endif
