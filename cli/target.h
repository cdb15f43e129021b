/* SPDX-License-Identifier: Apache-2.0 */
/* The lane that a command about running things works on. Its names are enough: a spec that is
 * damaged elsewhere, or whose checkpoint is gone, does not keep anybody from its lanes. */
#ifndef GLM_CLI_TARGET_H
#define GLM_CLI_TARGET_H

#include "cli/common.h"
#include "cli/lane.h"

struct target {
    struct arena arena;
    const char *file; /* as on the command line, for next commands */
    const char *cluster, *lane;
    struct buf folder;
};

/* file: a cluster spec, "-", or a saved plan. Errors are printed; returns an exit status. */
int target_find(const struct common_options *o, const char *file, struct target *out);
void target_release(struct target *t);

#endif
