/* SPDX-License-Identifier: Apache-2.0 */
/* The lane that a command about running things works on: spec resolved, state folder named, no
 * plan built. */
#ifndef GLM_CLI_TARGET_H
#define GLM_CLI_TARGET_H

#include "cli/common.h"

struct target {
    struct compiled compiled; /* cluster and lane_i only */
    const struct glm_lane *lane;
    struct buf folder;
};

/* As compile_lane, without plans. Returns an exit status. */
int target_find(const struct common_options *o, const char *command, const char *file,
                struct target *out);
void target_release(struct target *t);

#endif
