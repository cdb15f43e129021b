/* SPDX-License-Identifier: Apache-2.0 */
/* glmctl status: what a lane does now. Exit 3 when it is not live. */
#include "cli/lane.h"
#include "cli/target.h"

#include <string.h>
#include <unistd.h>

struct status_options {
    struct common_options common;
    bool watch;
};

static const struct opt_def status_options[] = {
    COMMON_LANE_OPTION,
    COMMON_OUTPUT_OPTION,
    {"watch", 'w', OPT_FLAG, offsetof(struct status_options, watch), NULL, NULL,
     "print again every two seconds until interrupted", NULL, 0, 0},
    OPTIONS_END,
};

static void print_text(const struct target *t, const struct lane_status *s, struct buf *out)
{
    const struct glm_cluster *c = t->compiled.cluster;
    if (!s->running) {
        const bool failed = strcmp(s->state, "failed") == 0;
        buf_printf(out, "%s/%s: %s%s\n  next: glmctl apply %s --lane %s\n", c->name, t->lane->name,
                   failed ? "failed: " : "not running", failed ? s->error : "", c->spec_path,
                   t->lane->name);
        return;
    }
    buf_printf(out, "%s/%s: %s, up %.0f s, %s\n", c->name, t->lane->name, s->state, s->uptime_s,
               s->url);
    buf_printf(out, "  %-5s %-8s %-10s %12s %9s  %s\n", "rank", "pid", "state", "memory MiB",
               "restarts", "last error");
    for (uint32_t i = 0; i < s->n_ranks; i++) {
        const struct lane_rank *r = &s->ranks[i];
        buf_printf(out, "  %-5u %-8lld %-10s %12.1f %9u  %s\n", r->rank, (long long)r->pid,
                   r->state, (double)r->memory_bytes / (1 << 20), r->restarts, r->last_error);
    }
    if (!lane_is_live(s))
        buf_printf(out, "  next: glmctl logs %s --lane %s\n", c->spec_path, t->lane->name);
}

static int print_once(const struct status_options *o, const struct target *t)
{
    struct lane_status s;
    struct glm_error err = {0};
    struct buf out = {0};
    int rc = EXIT_DONE;
    if (lane_status_read(buf_text(&t->folder), &s, &err) != GLM_OK) {
        rc = fail(&o->common, &err);
        lane_status_release(&s);
        return rc == EXIT_DONE ? rc : EXIT_UNHEALTHY;
    }
    if (!wants_json(&o->common))
        print_text(t, &s, &out);
    else if (s.running)
        buf_printf(&out, "%s\n", buf_text(&s.json));
    else
        buf_str(&out, "{\"format_version\": 1, \"state\": \"stopped\", \"ranks\": []}\n");
    print_result(&out);
    if (!lane_is_live(&s))
        rc = EXIT_UNHEALTHY;
    buf_release(&out);
    lane_status_release(&s);
    return rc;
}

static int run_status(const void *options, const char *const *positional)
{
    const struct status_options *o = options;
    struct target t;
    int rc = target_find(&o->common, "status", positional[0], &t);
    if (rc == EXIT_DONE) {
        rc = print_once(o, &t);
        while (o->watch) {
            sleep(2);
            rc = print_once(o, &t);
        }
    }
    target_release(&t);
    return rc;
}

const struct command command_status = {
    .name = "status",
    .arguments = "CLUSTER",
    .summary = "say how a lane is; exit 3 when it is not live",
    .description = "Asks a lane's head for its state, ranks and counters.",
    .options = status_options,
    .options_size = sizeof(struct status_options),
    .n_positional_max = 1,
    .run = run_status,
};
