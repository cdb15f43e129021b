/* SPDX-License-Identifier: Apache-2.0 */
/* A rank above 0: joins the head, loads, follows, and leaves when the head says so or is gone. */
#ifndef GLM_RUNTIME_RANK_H
#define GLM_RUNTIME_RANK_H

#include "runtime/serve.h"

struct glm_rank_config {
    const struct glm_lane_info *lane;
    const uint8_t *secret;     /* 32 bytes */
    const char *control;       /* the head's HOST:PORT */
    uint64_t epoch;            /* of the set it was started for */
    int stop_fd;               /* readable: leave in order; -1: none */
    void (*dump_stacks)(void); /* NULL: none; called when the head finds the set stuck */
};

/* Runs the rank to its end in the calling thread (and one worker). GLM_OK: the head ended the set.
 * GLM_EPEER: the head or another rank is gone, GLM_ECANCELED: stop_fd; else this rank's own error,
 * which the head has been told. *hung: the worker could not be ended; the caller must leave the
 * process without freeing anything. */
enum glm_status glm_rank_run(const struct glm_rank_config *config, bool *hung,
                             struct glm_error *err);

#endif
