/* SPDX-License-Identifier: Apache-2.0 */
/* glmctl logs: the log files of a lane's ranks, each line with its rank. Reading never stops
 * serving. */
#include "cli/target.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct logs_options {
    struct common_options common;
    int64_t lines;
    bool follow;
};

static const struct opt_def logs_options[] = {
    COMMON_LANE_OPTION,
    {"lines", 'n', OPT_INT, offsetof(struct logs_options, lines), "N", NULL,
     "last lines of each rank (default 50)", NULL, 1, 1000000},
    {"follow", 'f', OPT_FLAG, offsetof(struct logs_options, follow), NULL, NULL,
     "go on with lines as they come, until interrupted", NULL, 0, 0},
    COMMON_OUTPUT_OPTION,
    COMMON_COLOR_OPTION,
    OPTIONS_END,
};

enum { DEFAULT_LINES = 50, FOLLOW_US = 200000 };

struct reader {
    const struct logs_options *options;
    const char *folder;
    uint32_t first, end; /* ranks */
    FILE *files[LANE_MAX_RANKS];
    char *line;
    size_t size;
};

/* An apply begins new files and keeps the old ones under another name. */
static bool was_turned(FILE *f, const char *path)
{
    struct stat open_one, named;
    return fstat(fileno(f), &open_one) == 0 && stat(path, &named) == 0 &&
           (open_one.st_ino != named.st_ino || open_one.st_dev != named.st_dev);
}

static void open_files(struct reader *r, bool at_start)
{
    const int64_t lines = r->options->lines > 0 ? r->options->lines : DEFAULT_LINES;
    struct buf path = {0};
    for (uint32_t rank = r->first; rank < r->end; rank++) {
        buf_clear(&path);
        buf_printf(&path, "%s/logs/rank%u.log", r->folder, rank);
        if (r->files[rank] != NULL && was_turned(r->files[rank], buf_text(&path))) {
            fclose(r->files[rank]);
            r->files[rank] = NULL;
        }
        if (r->files[rank] != NULL || (r->files[rank] = fopen(buf_text(&path), "re")) == NULL)
            continue;
        if (!at_start)
            lane_log_seek(r->files[rank], lines);
    }
    buf_release(&path);
}

static void print_line(const struct reader *r, uint32_t rank, size_t len)
{
    struct buf out = {0};
    if (wants_json(&r->options->common)) {
        buf_printf(&out, "{\"format_version\": %d, \"rank\": %u, \"line\": ", OUTPUT_FORMAT, rank);
        buf_json_string(&out, r->line, len);
        buf_str(&out, "}");
    } else {
        if (r->end - r->first > 1)
            buf_printf(&out, "rank %u | ", rank);
        buf_printf(&out, "%.*s", (int)len, r->line);
    }
    buf_char(&out, '\n');
    fwrite(buf_text(&out), 1, out.len, stdout);
    buf_release(&out);
}

/* Whole lines; one that is still being written waits for its end, unless nobody will wait. */
static void copy_lines(struct reader *r, uint32_t rank, bool wait_for_end)
{
    FILE *f = r->files[rank];
    if (f == NULL)
        return;
    clearerr(f);
    for (;;) {
        const long at = ftell(f);
        const ssize_t n = getline(&r->line, &r->size, f);
        if (n <= 0)
            return;
        const bool whole = r->line[n - 1] == '\n';
        if (!whole && wait_for_end) {
            (void)fseek(f, at, SEEK_SET);
            return;
        }
        print_line(r, rank, (size_t)n - whole);
    }
}

static bool take_rank(const char *text, struct reader *r)
{
    char *after;
    unsigned long rank = strtoul(text, &after, 10);
    if (*text < '0' || *text > '9' || *after != '\0' || rank >= LANE_MAX_RANKS)
        return false;
    r->first = (uint32_t)rank;
    r->end = r->first + 1;
    return true;
}

static int print_logs(struct reader *r, const struct target *t)
{
    struct glm_error err = {0};
    uint32_t n_open = 0;
    open_files(r, false);
    for (uint32_t rank = r->first; rank < r->end; rank++)
        n_open += r->files[rank] != NULL;
    if (n_open == 0) {
        if (r->end - r->first == 1)
            glm_fail(&err, GLM_ENOTFOUND, "there is no log of rank %u in '%s/logs'", r->first,
                     r->folder);
        else
            glm_fail(&err, GLM_ENOTFOUND, "there are no logs in '%s/logs'", r->folder);
        glm_error_hint(&err, "glmctl status %.150s --lane %.60s", t->file, t->lane);
        return fail(&r->options->common, &err);
    }
    for (uint32_t rank = r->first; rank < r->end; rank++)
        copy_lines(r, rank, r->options->follow);
    while (fflush(stdout) == 0 && r->options->follow) {
        usleep(FOLLOW_US);
        open_files(r, true); /* a rank that starts late, a lane that starts anew */
        for (uint32_t rank = r->first; rank < r->end; rank++)
            copy_lines(r, rank, true);
    }
    return ferror(stdout) ? EXIT_FAILED : EXIT_DONE;
}

static int run_logs(const void *options, const char *const *positional)
{
    const struct logs_options *o = options;
    struct glm_error err = {0};
    struct target t;
    struct reader r = {.options = o, .end = LANE_MAX_RANKS};
    int rc = target_find(&o->common, positional[0], &t);
    r.folder = buf_text(&t.folder);
    if (rc == EXIT_DONE && positional[1] != NULL && !take_rank(positional[1], &r)) {
        glm_fail(&err, GLM_EINVAL, "a rank is a number from 0 to %d, got '%.60s'",
                 LANE_MAX_RANKS - 1, positional[1]);
        rc = fail_usage("logs", &err);
    }
    if (rc == EXIT_DONE)
        rc = print_logs(&r, &t);
    for (uint32_t rank = 0; rank < LANE_MAX_RANKS; rank++)
        if (r.files[rank] != NULL)
            fclose(r.files[rank]);
    free(r.line);
    target_release(&t);
    return rc;
}

const struct command command_logs = {
    .name = "logs",
    .arguments = "CLUSTER|PLAN [RANK]",
    .summary = "print the logs of a lane's ranks",
    .description =
        "Prints the last log lines of one rank or of all, each line with its rank, since the lane\n"
        "was applied. With -o json every line is an object of its own. Ctrl-C ends the reading "
        "and\n"
        "nothing else.",
    .examples = "glmctl logs clusters/demo/demo.yaml\n"
                "glmctl logs clusters/demo/demo.yaml 1 --lane tp2 -n 200\n"
                "glmctl logs clusters/demo/demo.yaml -f",
    .options = logs_options,
    .options_size = sizeof(struct logs_options),
    .n_positional_min = 1,
    .n_positional_max = 2,
    .run = run_logs,
};
