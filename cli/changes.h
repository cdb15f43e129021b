/* SPDX-License-Identifier: Apache-2.0 */
/* What apply would change: the compiled lane against what was last applied and what runs. */
#ifndef GLM_CLI_CHANGES_H
#define GLM_CLI_CHANGES_H

#include "cli/launch.h"

enum change_kind {
    CHANGE_NONE,    /* exactly this runs */
    CHANGE_START,   /* nothing runs */
    CHANGE_RESTART, /* something else runs, or we cannot tell what */
};

struct changes {
    enum change_kind kind;
    char state[32];                 /* of the lane: "live", "loading", "failed", "stopped" … */
    char error[512];                /* why it failed */
    struct launch_differences list; /* of CHANGE_RESTART */
};

/* ask: ask the running head (bounded time); else what the state folder says is believed.
 * Texts live in the compiled arena. Errors: no state folder, no memory. */
enum glm_status changes_find(struct compiled *c, bool ask, struct changes *out,
                             struct glm_error *err);
/* Lines that start with "changes", as a plan's other parts start with their name. */
void changes_text(const struct compiled *c, const struct changes *changes, struct buf *out);
/* An object. */
void changes_json(const struct changes *changes, struct buf *out);

#endif
