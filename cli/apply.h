/* SPDX-License-Identifier: Apache-2.0 */
/* Bringing a compiled lane up: the launch document, what differs from what runs, kernels, the state
 * folder, the daemon, the wait for LIVE. */
#ifndef GLM_CLI_APPLY_H
#define GLM_CLI_APPLY_H

#include "cli/common.h"

/* The launch document of a compiled lane, without kernels (apply_lane adds them once built).
 * Strings live in the compiled arena. */
enum glm_status apply_launch(struct compiled *c, struct glm_launch_file *out,
                             struct glm_error *err);

/* Prints what differs between the compiled lane and what runs in its state folder, field by field,
 * on stderr; true when apply would change something. */
bool apply_print_changes(struct compiled *c);

/* Applies: checks, builds kernels, writes the state folder, stops what ran there, starts the
 * daemon, waits until it is LIVE and a completion went through. Prints the banner on stdout, its
 * last line the lane's URL. Returns an exit status. */
int apply_lane(const struct common_options *o, struct compiled *c);

#endif
