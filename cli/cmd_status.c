/* SPDX-License-Identifier: Apache-2.0 */
/* glmctl status: what a lane does now. Exit 3 when it is not live. */
#include "cli/target.h"

#include <string.h>
#include <unistd.h>

struct status_options {
    struct common_options common;
    bool watch;
};

enum { WATCH_S = 2 };

static const struct opt_def status_options[] = {
    COMMON_LANE_OPTION,
    {"watch", 'w', OPT_FLAG, offsetof(struct status_options, watch), NULL, NULL,
     "print again every two seconds until interrupted", NULL, 0, 0},
    COMMON_OUTPUT_OPTION,
    COMMON_COLOR_OPTION,
    OPTIONS_END,
};

/* The command that helps: apply what is down, read the logs of what is not well. */
static void next_command(const struct target *t, const struct lane_status *s, struct buf *out)
{
    if (!lane_is_live(s))
        buf_printf(out, "%s %s %s --lane %s", program_name(), s->running ? "logs" : "apply",
                   t->file, t->lane);
}

static void print_ranks(const struct lane_status *s, struct buf *out)
{
    if (s->n_ranks > 0)
        buf_printf(out, "  %-5s %-8s %-10s %-8s %12s %9s  %s\n", "rank", "pid", "state", "device",
                   "memory MiB", "restarts", "last error");
    for (uint32_t i = 0; i < s->n_ranks; i++) {
        const struct lane_rank *r = &s->ranks[i];
        const size_t at = out->len;
        buf_printf(out, "  %-5u %-8lld %-10s %-8s %12.1f %9u  %s", r->rank, (long long)r->pid,
                   r->state, r->device, (double)r->memory_bytes / (1 << 20), r->restarts,
                   r->last_error);
        while (out->len > at && out->data[out->len - 1] == ' ')
            out->data[--out->len] = '\0';
        buf_char(out, '\n');
    }
}

/* Whoever asks for the default lane may have meant another that runs. */
static void print_others(const struct target *t, struct buf *out)
{
    struct lanes_found others;
    lanes_find(buf_text(&t->folder), &others);
    for (uint32_t i = 0; i < others.n; i++)
        if (strcmp(others.items[i].cluster, t->cluster) == 0)
            buf_printf(out, "  also: lane %s is %s %s\n", others.items[i].lane,
                       others.items[i].status.state, others.items[i].status.url);
    lanes_release(&others);
}

static void print_text(const struct target *t, const struct lane_status *s, struct buf *out)
{
    struct buf next = {0};
    buf_printf(out, "%s/%s: %s", t->cluster, t->lane,
               strcmp(s->state, "stopped") == 0 ? "not running" : s->state);
    if (s->running)
        buf_printf(out, ", up %.0f s", s->uptime_s);
    if (s->restarts > 0)
        buf_printf(out, ", set restarted %u time%s", s->restarts, s->restarts == 1 ? "" : "s");
    if (s->url[0] != '\0')
        buf_printf(out, ", %s", s->url);
    buf_char(out, '\n');
    if (s->error[0] != '\0')
        buf_printf(out, "  %s: %s\n", lane_is_live(s) ? "last restart" : "why", s->error);
    print_ranks(s, out);
    next_command(t, s, &next);
    if (next.len > 0)
        buf_printf(out, "  next: %s\n", buf_text(&next));
    buf_release(&next);
    print_others(t, out);
}

static void print_json(const struct target *t, const struct lane_status *s, struct buf *out)
{
    struct buf next = {0};
    next_command(t, s, &next);
    buf_printf(out, "{\"format_version\": %d", OUTPUT_FORMAT);
    json_member(out, ", ", "cluster", t->cluster);
    json_member(out, ", ", "lane", t->lane);
    json_member(out, ", ", "state", s->state);
    json_member(out, ", ", "error", s->error);
    json_member(out, ", ", "next", buf_text(&next));
    json_member(out, ", ", "url", s->url);
    json_member(out, ", ", "set_digest", s->set_digest);
    buf_printf(out, ", \"pid\": %lld, \"uptime_s\": %.1f, \"restarts\": %u, \"ranks\": [",
               (long long)s->pid, s->uptime_s, s->restarts);
    for (uint32_t i = 0; i < s->n_ranks; i++) {
        const struct lane_rank *r = &s->ranks[i];
        buf_printf(out, "%s{\"rank\": %u, \"pid\": %lld", i > 0 ? ", " : "", r->rank,
                   (long long)r->pid);
        json_member(out, ", ", "state", r->state);
        json_member(out, ", ", "device", r->device);
        buf_printf(out,
                   ", \"done_bytes\": %llu, \"total_bytes\": %llu, \"memory_bytes\": %llu, "
                   "\"round\": %llu, \"restarts\": %u",
                   (unsigned long long)r->done_bytes, (unsigned long long)r->total_bytes,
                   (unsigned long long)r->memory_bytes, (unsigned long long)r->round, r->restarts);
        json_member(out, ", ", "last_error", r->last_error);
        buf_char(out, '}');
    }
    buf_printf(out, "], \"stats\": %s}\n", s->stats);
    buf_release(&next);
}

static int print_once(const struct status_options *o, const struct target *t)
{
    struct lane_status s;
    struct glm_error err = {0};
    struct buf out = {0};
    if (lane_status_read(buf_text(&t->folder), &s, &err) != GLM_OK) {
        fail(&o->common, &err);
        return EXIT_UNHEALTHY;
    }
    if (wants_json(&o->common))
        print_json(t, &s, &out);
    else
        print_text(t, &s, &out);
    int rc = print_result(&out);
    buf_release(&out);
    return rc != EXIT_DONE || lane_is_live(&s) ? rc : EXIT_UNHEALTHY;
}

static int run_status(const void *options, const char *const *positional)
{
    const struct status_options *o = options;
    struct target t;
    int rc = target_find(&o->common, positional[0], &t);
    if (rc == EXIT_DONE)
        rc = print_once(o, &t);
    while (o->watch && (rc == EXIT_DONE || rc == EXIT_UNHEALTHY)) {
        sleep(WATCH_S);
        rc = print_once(o, &t);
    }
    target_release(&t);
    return rc;
}

const struct command command_status = {
    .name = "status",
    .arguments = "CLUSTER|PLAN",
    .summary = "say how a lane is; exit 3 when it is not live",
    .description =
        "Asks a lane's head for its state, ranks and counters. With --watch, Ctrl-C ends the\n"
        "watching and nothing else.",
    .examples = "glmctl status clusters/demo/demo.yaml\n"
                "glmctl status clusters/demo/demo.yaml --lane tp2 -o json\n"
                "glmctl status clusters/demo/demo.yaml --watch",
    .options = status_options,
    .options_size = sizeof(struct status_options),
    .n_positional_min = 1,
    .n_positional_max = 1,
    .run = run_status,
};
