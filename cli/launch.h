/* SPDX-License-Identifier: Apache-2.0 */
/* The launch document that a compiled lane would be started with on this machine. */
#ifndef GLM_CLI_LAUNCH_H
#define GLM_CLI_LAUNCH_H

#include "cli/compile.h"

/* The document of a compiled lane, without kernels (apply adds them once built). Strings live in
 * the compiled arena. Errors: GLM_ENOTFOUND when there is no glmd to start. */
enum glm_status launch_make(struct compiled *c, struct glm_launch_file *out, struct glm_error *err);

/* The glmd to start: $GLM_GLMD, else the one beside glmctl. */
enum glm_status launch_daemon_path(char *out, size_t size, struct glm_error *err);

/* Compute threads of one of n ranks that share this machine. */
uint32_t launch_default_threads(uint32_t n_ranks);

struct launch_difference {
    const char *what, *from, *to;
    bool of_spec; /* a field of the spec decides it; else checkpoint, program or machine do */
};
enum { LAUNCH_MAX_DIFFERENCES = 64 };
struct launch_differences {
    struct launch_difference items[LAUNCH_MAX_DIFFERENCES];
    uint32_t n;
};
/* Appends what differs, kernels aside (they follow from plans and program), at most
 * LAUNCH_MAX_DIFFERENCES. Texts live in the arena or in the documents. */
void launch_compare(const struct glm_launch_file *old, const struct glm_launch_file *new,
                    struct arena *arena, struct launch_differences *out);
void launch_difference_add(struct launch_differences *out, const char *what, const char *from,
                           const char *to, bool of_spec);

#endif
