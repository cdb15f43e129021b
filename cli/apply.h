/* SPDX-License-Identifier: Apache-2.0 */
/* Bringing a compiled lane up: the launch document, kernels, the state folder, the daemon. */
#ifndef GLM_CLI_APPLY_H
#define GLM_CLI_APPLY_H

#include "cli/common.h"

/* The launch document of a compiled lane, without kernels (apply adds them once built). Strings
 * live in the compiled arena. */
enum glm_status apply_launch(const struct compiled *c, struct glm_launch_file *out,
                             struct glm_error *err);

/* Prints what differs between the compiled lane and what runs in its state folder (field by field),
 * on stdout unless JSON is wanted; true when apply would change something. */
bool apply_print_changes(const struct common_options *o, const struct compiled *c);

#endif
