/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0's supervision of its set (design 6): takes the lane's lock, binds control, starts the
 * other ranks, lets them join, starts serving, hears beats, answers glmctl, restarts the set when
 * a rank is lost and ends it in order when told to.
 *
 *   a rank lost, loading or serving  requests end with an error; all ranks end and start together,
 *                                    after back_off_ms[i], at most n_restarts times in a row
 *   a rank's own error               (its plan, memory, checkpoint, a digest that differs, a port
 *                                    that is taken): the set fails at once; it would again
 *   a round or load without progress stacks are logged, the set restarts if its ranks can still
 *   for stuck_ms                     be ended, else the head fails
 *
 * No globals: several heads can run in one process. */
#ifndef GLM_RUNTIME_SUPERVISE_H
#define GLM_RUNTIME_SUPERVISE_H

#include "runtime/launcher.h"
#include "runtime/serve.h"

struct glm_supervise_config {
    const char *dir; /* the lane's state folder */
    const struct glm_lane_info *lane;
    const struct glm_launcher *launcher;
    int stop_fd;               /* readable: stop in order; -1: none */
    void (*dump_stacks)(void); /* NULL: none */
};

/* Runs until the set is stopped (GLM_OK) or gave up. head.json is gone after a stop and says why
 * after a failure. GLM_EBUSY: another head holds the lane, or a port is taken; nothing was started.
 * *hung: the worker could not be ended; the caller must leave the process without freeing
 * anything. */
enum glm_status glm_supervise_run(const struct glm_supervise_config *config, bool *hung,
                                  struct glm_error *err);

#endif
