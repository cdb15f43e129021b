/* SPDX-License-Identifier: Apache-2.0 */
/* glmctl stop: ends a lane and waits until what it held is free. */
#include "cli/signals.h"
#include "cli/target.h"

#include <unistd.h>

struct stop_options {
    struct common_options common;
    bool yes;
};

static const struct opt_def stop_options[] = {
    COMMON_LANE_OPTION,
    {"yes", 'y', OPT_FLAG, offsetof(struct stop_options, yes), NULL, NULL,
     "do not ask; needed without a terminal", NULL, 0, 0},
    COMMON_OUTPUT_OPTION,
    COMMON_COLOR_OPTION,
    OPTIONS_END,
};

static int print_stopped(const struct stop_options *o, const struct target *t, bool stopped)
{
    struct buf out = {0};
    int rc = EXIT_DONE;
    if (wants_json(&o->common)) {
        buf_printf(&out, "{\"format_version\": %d", OUTPUT_FORMAT);
        json_member(&out, ", ", "cluster", t->cluster);
        json_member(&out, ", ", "lane", t->lane);
        buf_printf(&out, ", \"stopped\": %s}\n", stopped ? "true" : "false");
        rc = print_result(&out);
    } else {
        fprintf(stderr, "lane %s of %s %s\n", t->lane, t->cluster,
                stopped ? "stopped: its ports and memory are free" : "is not running");
    }
    buf_release(&out);
    return rc;
}

static int stop_lane(const struct stop_options *o, const struct target *t)
{
    const char *folder = buf_text(&t->folder);
    struct glm_error err = {0};
    bool stopped = false;
    int lock = -1;
    /* An apply that is on its way would start what is stopped here. */
    enum glm_status status = access(folder, F_OK) == 0 ? lane_lock(folder, &lock, &err) : GLM_OK;
    signals_defer();
    if (status == GLM_OK)
        status = lane_stop(folder, &stopped, &err);
    if (lock >= 0)
        close(lock);
    return status == GLM_OK ? print_stopped(o, t, stopped) : fail(&o->common, &err);
}

static int run_stop(const void *options, const char *const *positional)
{
    const struct stop_options *o = options;
    struct target t;
    char question[200];
    int rc = target_find(&o->common, positional[0], &t);
    if (rc == EXIT_DONE) {
        snprintf(question, sizeof question, "stop lane %.60s of %.60s?", t.lane, t.cluster);
        rc = confirm(&o->common, "stop", o->yes, question);
    }
    if (rc == EXIT_DONE)
        rc = stop_lane(o, &t);
    target_release(&t);
    return rc;
}

const struct command command_stop = {
    .name = "stop",
    .arguments = "CLUSTER|PLAN",
    .summary = "stop a lane and free what it holds",
    .description =
        "Ends running requests with an error, stops every rank and waits until ports and memory\n"
        "are free. Stopping what does not run is no error.",
    .examples = "glmctl stop clusters/demo/demo.yaml\n"
                "glmctl stop clusters/demo/demo.yaml --lane tp2 --yes",
    .options = stop_options,
    .options_size = sizeof(struct stop_options),
    .n_positional_min = 1,
    .n_positional_max = 1,
    .run = run_stop,
};
