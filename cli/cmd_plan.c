/* SPDX-License-Identifier: Apache-2.0 */
/* glmctl plan: the dry run. Compiles a lane and prints what apply would launch and change; --out
 * saves it. Nobody is asked but this machine's driver, unless --refresh says so. */
#include "cli/changes.h"

#include <string.h>

struct plan_options {
    struct common_options common;
    const char *out;
    bool detailed_exitcode, refresh;
};

static const struct opt_def plan_options[] = {
    COMMON_LANE_OPTION,
    {"out", 0, OPT_STR, offsetof(struct plan_options, out), "FILE", NULL,
     "save the plan for 'glmctl apply FILE'", NULL, 0, 0},
    {"refresh", 0, OPT_FLAG, offsetof(struct plan_options, refresh), NULL, NULL,
     "ask the running lane instead of believing its state folder", NULL, 0, 0},
    {"detailed-exitcode", 0, OPT_FLAG, offsetof(struct plan_options, detailed_exitcode), NULL, NULL,
     "exit 2 when apply would change something", NULL, 0, 0},
    COMMON_OUTPUT_OPTION,
    COMMON_COLOR_OPTION,
    OPTIONS_END,
};

static int save(const struct plan_options *o, struct compiled *c)
{
    struct glm_error err = {0};
    struct buf text = {0};
    struct glm_launch_file launch;
    enum glm_status status = launch_make(c, &launch, &err);
    if (status == GLM_OK)
        status = glm_saved_plan_write(&launch, c->plans, &text, &err);
    if (status == GLM_OK)
        status = glm_file_write(o->out, text.data, text.len, 0644, &err);
    buf_release(&text);
    if (status != GLM_OK)
        return fail(&o->common, &err);
    fprintf(stderr, "saved; next: %s apply %s\n", program_name(), o->out);
    return EXIT_DONE;
}

static enum glm_status render(const struct plan_options *o, struct compiled *c,
                              const struct changes *changes, struct buf *out, struct glm_error *err)
{
    const bool json = wants_json(&o->common);
    if (json) {
        buf_printf(out, "{\"format_version\": %d, \"diagnostics\": ", OUTPUT_FORMAT);
        diag_render_json(&c->diags, out);
        buf_str(out, ", \"changes\": ");
        changes_json(changes, out);
        buf_str(out, ", \"plan\": ");
    }
    enum glm_status status = glm_plan_print(c->cluster, c->lane_i, c->plans, json, out, err);
    if (json)
        buf_str(out, "}\n");
    else
        changes_text(c, changes, out);
    return status;
}

static int run_plan(const void *options, const char *const *positional)
{
    const struct plan_options *o = options;
    struct glm_error err = {0};
    struct compiled c;
    struct changes changes;
    struct buf text = {0};
    int rc = compile_lane(&o->common, positional[0], &c);
    if (rc == EXIT_DONE && (changes_find(&c, o->refresh, &changes, &err) != GLM_OK ||
                            render(o, &c, &changes, &text, &err) != GLM_OK))
        rc = fail(&o->common, &err);
    else if (rc == EXIT_DONE)
        rc = print_result(&text);
    if (rc == EXIT_DONE && o->out != NULL)
        rc = save(o, &c);
    if (rc == EXIT_DONE && o->detailed_exitcode && changes.kind != CHANGE_NONE)
        rc = EXIT_CHANGES;
    buf_release(&text);
    compiled_release(&c);
    return rc;
}

const struct command command_plan = {
    .name = "plan",
    .arguments = "CLUSTER|PLAN",
    .summary = "show what apply would launch, changing nothing",
    .description =
        "Compiles a lane of a cluster file and prints ranks, links, bytes per rank against "
        "memory,\n"
        "pool tokens, kernels, predicted speed, and what differs from what runs. Works offline;\n"
        "GPUs of this machine are asked what to compile for.",
    .examples = "glmctl plan clusters/demo/demo.yaml\n"
                "glmctl plan clusters/tp4-ring.yaml -o json\n"
                "glmctl plan cluster.yaml --lane tp2 --out tp2.plan",
    .options = plan_options,
    .options_size = sizeof(struct plan_options),
    .n_positional_min = 1,
    .n_positional_max = 1,
    .run = run_plan,
};
