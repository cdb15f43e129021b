/* SPDX-License-Identifier: Apache-2.0 */
/* glmctl stop and restart. restart compiles first: what cannot be applied does not stop what runs.
 */
#include "cli/apply.h"
#include "cli/lane.h"
#include "cli/target.h"

struct stop_options {
    struct common_options common;
    bool yes;
};

static const struct opt_def stop_options[] = {
    COMMON_LANE_OPTION,
    {"yes", 'y', OPT_FLAG, offsetof(struct stop_options, yes), NULL, NULL,
     "do not ask; needed without a terminal", NULL, 0, 0},
    COMMON_OUTPUT_OPTION,
    OPTIONS_END,
};

static int run_stop(const void *options, const char *const *positional)
{
    const struct stop_options *o = options;
    struct glm_error err = {0};
    struct target t;
    int rc = target_find(&o->common, "stop", positional[0], &t);
    if (rc == EXIT_DONE && lane_confirm(o->yes, "stop this lane?", &err) != GLM_OK)
        rc = err.hint[0] != '\0' ? fail_usage("stop", &err) : fail(&o->common, &err);
    else if (rc == EXIT_DONE && lane_stop(buf_text(&t.folder), t.lane->name, &err) != GLM_OK)
        rc = fail(&o->common, &err);
    target_release(&t);
    return rc;
}

const struct command command_stop = {
    .name = "stop",
    .arguments = "CLUSTER",
    .summary = "stop a lane and free what it holds",
    .description =
        "Ends running requests with an error, stops every rank and waits until ports and memory\n"
        "are free.",
    .options = stop_options,
    .options_size = sizeof(struct stop_options),
    .n_positional_max = 1,
    .run = run_stop,
};

static int run_restart(const void *options, const char *const *positional)
{
    const struct stop_options *o = options;
    struct glm_error err = {0};
    struct compiled c;
    if (positional[0] == NULL) {
        glm_fail(&err, GLM_EINVAL, "restart wants a cluster file");
        return fail_usage("restart", &err);
    }
    int rc = compile_lane(&o->common, positional[0], &c);
    if (rc == EXIT_DONE && lane_confirm(o->yes, "restart this lane?", &err) != GLM_OK)
        rc = err.hint[0] != '\0' ? fail_usage("restart", &err) : fail(&o->common, &err);
    else if (rc == EXIT_DONE)
        rc = apply_lane(&o->common, &c);
    compiled_release(&c);
    return rc;
}

const struct command command_restart = {
    .name = "restart",
    .arguments = "CLUSTER",
    .summary = "stop a lane and apply its file again",
    .description =
        "Compiles the file and builds kernels first, so that what cannot be applied does not stop\n"
        "what runs; then stops the lane and starts it again.",
    .options = stop_options,
    .options_size = sizeof(struct stop_options),
    .n_positional_max = 1,
    .run = run_restart,
};
