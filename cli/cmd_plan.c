/* SPDX-License-Identifier: Apache-2.0 */
/* glmctl plan: the dry run. Compiles a lane and prints what apply would launch; --out saves it. */
#include "cli/common.h"
#include "cli/apply.h"

#include <string.h>

struct plan_options {
    struct common_options common;
    const char *out;
    bool detailed_exitcode;
};

static const struct opt_def plan_options[] = {
    COMMON_LANE_OPTION,
    COMMON_OUTPUT_OPTION,
    COMMON_COLOR_OPTION,
    {"out", 0, OPT_STR, offsetof(struct plan_options, out), "FILE", NULL,
     "save the plan for 'glmctl apply FILE'", NULL, 0, 0},
    {"detailed-exitcode", 0, OPT_FLAG, offsetof(struct plan_options, detailed_exitcode), NULL, NULL,
     "exit 2 when apply would change something", NULL, 0, 0},
    OPTIONS_END,
};

static int save(const struct plan_options *o, struct compiled *c, const char *file)
{
    struct glm_error err = {0};
    struct buf text = {0};
    struct glm_launch_file launch;
    enum glm_status status = apply_launch(c, &launch, &err);
    if (status == GLM_OK)
        status = glm_saved_plan_write(&launch, c->plans, &text, &err);
    if (status == GLM_OK)
        status = glm_file_write(file, text.data, text.len, 0644, &err);
    buf_release(&text);
    return status == GLM_OK ? EXIT_DONE : fail(&o->common, &err);
}

static int run_plan(const void *options, const char *const *positional)
{
    const struct plan_options *o = options;
    struct glm_error err = {0};
    if (positional[0] == NULL) {
        glm_fail(&err, GLM_EINVAL, "plan wants a cluster file");
        return fail_usage("plan", &err);
    }
    struct compiled c;
    struct buf text = {0};
    int rc = compile_lane(&o->common, positional[0], &c);
    if (rc == EXIT_DONE) {
        if (glm_plan_print(c.cluster, c.lane_i, c.plans, wants_json(&o->common), &text, &err) !=
            GLM_OK)
            rc = fail(&o->common, &err);
        else
            rc = print_result(&text);
    }
    bool changes = true;
    if (rc == EXIT_DONE)
        changes = apply_print_changes(&c);
    if (rc == EXIT_DONE && o->out != NULL)
        rc = save(o, &c, o->out);
    if (rc == EXIT_DONE && o->detailed_exitcode && changes)
        rc = EXIT_CHANGES;
    buf_release(&text);
    compiled_release(&c);
    return rc;
}

const struct command command_plan = {
    .name = "plan",
    .arguments = "CLUSTER",
    .summary = "show what apply would launch, changing nothing",
    .description =
        "Compiles a cluster file: ranks, links, bytes per rank against memory, pool tokens, "
        "kernels,\n"
        "predicted speed, and what differs from what runs. Works offline and changes nothing.",
    .options = plan_options,
    .options_size = sizeof(struct plan_options),
    .n_positional_max = 1,
    .run = run_plan,
};
