/* SPDX-License-Identifier: Apache-2.0 */
/* glmctl apply: make what runs equal to the file. A second apply changes nothing. */
#include "cli/apply.h"
#include "cli/lane.h"

#include <string.h>

struct apply_options {
    struct common_options common;
    bool yes;
    const char *replace;
};

static const struct opt_def apply_options[] = {
    COMMON_LANE_OPTION,
    {"yes", 'y', OPT_FLAG, offsetof(struct apply_options, yes), NULL, NULL,
     "do not ask; needed without a terminal", NULL, 0, 0},
    {"replace", 0, OPT_STR, offsetof(struct apply_options, replace), "LANE", NULL,
     "stop this lane of the same cluster first", NULL, 0, 0},
    COMMON_OUTPUT_OPTION,
    COMMON_COLOR_OPTION,
    OPTIONS_END,
};

/* What runs already and is live needs no change: its URL is the answer. */
static int print_running(const struct common_options *o, const char *folder)
{
    struct lane_status running;
    struct glm_error err = {0};
    int rc = EXIT_DONE;
    if (lane_status_read(folder, &running, &err) != GLM_OK)
        rc = fail(o, &err);
    else
        printf("%s\n", running.url);
    lane_status_release(&running);
    return rc;
}

static enum glm_status stop_replaced(const struct apply_options *o, const struct compiled *c,
                                     struct glm_error *err)
{
    uint32_t lane;
    struct buf folder = {0};
    if (o->replace == NULL)
        return GLM_OK;
    enum glm_status status = glm_cluster_lane(c->cluster, o->replace, &lane, err);
    if (status == GLM_OK)
        status = lane_folder(c->cluster->name, o->replace, &folder, err);
    if (status == GLM_OK)
        status = lane_stop(buf_text(&folder), o->replace, err);
    buf_release(&folder);
    return status;
}

static int run_apply(const void *options, const char *const *positional)
{
    const struct apply_options *o = options;
    struct glm_error err = {0};
    if (positional[0] == NULL) {
        glm_fail(&err, GLM_EINVAL, "apply wants a cluster file or a saved plan");
        return fail_usage("apply", &err);
    }
    struct compiled c;
    struct buf text = {0}, folder = {0};
    int rc = compile_lane(&o->common, positional[0], &c);
    if (rc == EXIT_DONE &&
        glm_plan_print(c.cluster, c.lane_i, c.plans, false, &text, &err) != GLM_OK)
        rc = fail(&o->common, &err);
    if (rc == EXIT_DONE) {
        const char *lane = c.cluster->lanes[c.lane_i].name;
        if (!apply_print_changes(&c)) {
            rc = lane_folder(c.cluster->name, lane, &folder, &err) == GLM_OK
                     ? print_running(&o->common, buf_text(&folder))
                     : fail(&o->common, &err);
        } else {
            if (!wants_json(&o->common))
                rc = print_result(&text);
            if (lane_confirm(o->yes, "apply this?", &err) != GLM_OK)
                rc = err.hint[0] != '\0' ? fail_usage("apply", &err) : fail(&o->common, &err);
            else if (stop_replaced(o, &c, &err) != GLM_OK)
                rc = fail(&o->common, &err);
            else
                rc = apply_lane(&o->common, &c);
        }
    }
    buf_release(&folder);
    buf_release(&text);
    compiled_release(&c);
    return rc;
}

const struct command command_apply = {
    .name = "apply",
    .arguments = "CLUSTER|PLAN",
    .summary = "make what runs equal to the file",
    .description =
        "Compiles a lane, shows the plan, builds missing kernels, starts the ranks and waits "
        "until\n"
        "the lane is LIVE. The last line on standard output is the lane's URL. A saved plan is\n"
        "applied exactly or refused because it is stale.",
    .options = apply_options,
    .options_size = sizeof(struct apply_options),
    .n_positional_max = 1,
    .run = run_apply,
};
