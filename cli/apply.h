/* SPDX-License-Identifier: Apache-2.0 */
/* Bringing a compiled lane up: kernels, the state folder, the daemon, the wait for LIVE. */
#ifndef GLM_CLI_APPLY_H
#define GLM_CLI_APPLY_H

#include "cli/compile.h"

struct apply_request {
    const char *command; /* "apply" or "restart", for messages */
    bool yes;            /* do not ask */
    bool restart;        /* also when exactly this runs already */
    const char *replace; /* lane of the same cluster to stop first, or NULL */
};

/* Refuses what cannot be applied, shows plan and changes, asks, builds kernels, and only then
 * stops what ran (and `replace`), starts the daemon and waits until it is LIVE and a completion
 * went through. Prints the banner on stdout, its last line the lane's URL. Interrupted, it ends
 * what it started. Returns an exit status. */
int apply_lane(const struct common_options *o, const struct apply_request *request,
               struct compiled *c);

#endif
