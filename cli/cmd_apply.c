/* SPDX-License-Identifier: Apache-2.0 */
/* glmctl apply and restart. Both validate and build everything before they stop what runs. */
#include "cli/apply.h"

struct apply_options {
    struct common_options common;
    bool yes;
    const char *replace;
};

#define YES_OPTION                                                             \
    {                                                                          \
        "yes", 'y', OPT_FLAG, offsetof(struct apply_options, yes), NULL, NULL, \
            "do not ask; needed without a terminal", NULL, 0, 0                \
    }

static const struct opt_def apply_options[] = {
    COMMON_LANE_OPTION,
    YES_OPTION,
    {"replace", 0, OPT_STR, offsetof(struct apply_options, replace), "LANE", NULL,
     "stop this lane of the same cluster first", NULL, 0, 0},
    COMMON_OUTPUT_OPTION,
    COMMON_COLOR_OPTION,
    OPTIONS_END,
};

static int run(const struct apply_options *o, const char *command, bool restart, const char *file)
{
    struct compiled c;
    const struct apply_request request = {
        .command = command, .yes = o->yes, .restart = restart, .replace = o->replace};
    int rc = compile_lane(&o->common, file, &c);
    if (rc == EXIT_DONE)
        rc = apply_lane(&o->common, &request, &c);
    compiled_release(&c);
    return rc;
}

static int run_apply(const void *options, const char *const *positional)
{
    return run(options, "apply", false, positional[0]);
}

const struct command command_apply = {
    .name = "apply",
    .arguments = "CLUSTER|PLAN",
    .summary = "make what runs equal to the file",
    .description =
        "Compiles a lane, shows plan and changes, asks, builds missing kernels, starts the ranks\n"
        "and waits until the lane is LIVE. The last line on standard output is the lane's URL.\n"
        "When exactly this runs already, nothing is done. A saved plan is applied exactly, or\n"
        "refused because it is stale.",
    .examples = "glmctl apply clusters/demo/demo.yaml\n"
                "glmctl apply clusters/demo/demo.yaml --lane tp2 --replace tp1 --yes\n"
                "glmctl plan cluster.yaml --out cluster.plan && glmctl apply cluster.plan",
    .options = apply_options,
    .options_size = sizeof(struct apply_options),
    .n_positional_min = 1,
    .n_positional_max = 1,
    .run = run_apply,
};

static const struct opt_def restart_options[] = {
    COMMON_LANE_OPTION, YES_OPTION, COMMON_OUTPUT_OPTION, COMMON_COLOR_OPTION, OPTIONS_END,
};

static int run_restart(const void *options, const char *const *positional)
{
    return run(options, "restart", true, positional[0]);
}

const struct command command_restart = {
    .name = "restart",
    .arguments = "CLUSTER|PLAN",
    .summary = "stop a lane and apply its file again",
    .description = "As apply, also when exactly this runs already. The file is compiled and "
                   "kernels are built\n"
                   "first, so that what cannot be applied does not stop what runs.",
    .examples = "glmctl restart clusters/demo/demo.yaml --lane tp2 --yes",
    .options = restart_options,
    .options_size = sizeof(struct apply_options),
    .n_positional_min = 1,
    .n_positional_max = 1,
    .run = run_restart,
};
