/* SPDX-License-Identifier: Apache-2.0 */
/* glmctl logs: the log files of a lane's ranks, each line with its rank. Reading never stops
 * serving. */
#include "cli/target.h"

#include <stdlib.h>
#include <string.h>
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
     "go on with lines as they come", NULL, 0, 0},
    OPTIONS_END,
};

enum { DEFAULT_LINES = 50, FOLLOW_US = 200000 };

/* Moves to the start of the last n lines. */
static void seek_last_lines(FILE *f, int64_t n)
{
    char block[4096];
    if (fseek(f, 0, SEEK_END) != 0)
        return;
    long at = ftell(f);
    int64_t found = 0;
    while (at > 0) {
        long size = at < (long)sizeof block ? at : (long)sizeof block;
        at -= size;
        if (fseek(f, at, SEEK_SET) != 0 || fread(block, 1, (size_t)size, f) != (size_t)size)
            break;
        for (long i = size; i > 0; i--) {
            if (block[i - 1] == '\n' && found++ == n) {
                fseek(f, at + i, SEEK_SET);
                return;
            }
        }
    }
    fseek(f, 0, SEEK_SET);
}

static bool copy_lines(FILE *f, uint32_t rank, bool prefix)
{
    char *line = NULL;
    size_t size = 0;
    bool any = false;
    clearerr(f);
    while (getline(&line, &size, f) > 0) {
        if (prefix)
            printf("rank %u | ", rank);
        fputs(line, stdout);
        any = true;
    }
    free(line);
    return any;
}

static int run_logs(const void *options, const char *const *positional)
{
    const struct logs_options *o = options;
    struct glm_error err = {0};
    struct target t;
    FILE *files[GLM_MAX_RANKS] = {NULL};
    int rc = target_find(&o->common, "logs", positional[0], &t);
    uint32_t first = 0, end = rc == EXIT_DONE ? t.lane->n_ranks : 0, n_open = 0;
    if (rc == EXIT_DONE && positional[1] != NULL) {
        char *after;
        unsigned long rank = strtoul(positional[1], &after, 10);
        if (*after != '\0' || rank >= end) {
            glm_fail(&err, GLM_EINVAL, "lane '%s' has ranks 0 to %u, got '%s'", t.lane->name,
                     end - 1, positional[1]);
            rc = fail_usage("logs", &err);
        } else {
            first = (uint32_t)rank;
            end = first + 1;
        }
    }
    for (uint32_t r = first; rc == EXIT_DONE && r < end; r++) {
        struct buf path = {0};
        buf_printf(&path, "%s/logs/rank%u.log", buf_text(&t.folder), r);
        files[r] = fopen(buf_text(&path), "re");
        buf_release(&path);
        if (files[r] == NULL)
            continue;
        n_open++;
        seek_last_lines(files[r], o->lines > 0 ? o->lines : DEFAULT_LINES);
        copy_lines(files[r], r, end - first > 1);
    }
    if (rc == EXIT_DONE && n_open == 0) {
        glm_fail(&err, GLM_ENOTFOUND, "there are no logs in '%s/logs'", buf_text(&t.folder));
        glm_error_hint(&err, "glmctl apply %s --lane %s", positional[0], t.lane->name);
        rc = fail(&o->common, &err);
    }
    while (rc == EXIT_DONE && o->follow) {
        fflush(stdout);
        usleep(FOLLOW_US);
        for (uint32_t r = first; r < end; r++)
            if (files[r] != NULL)
                copy_lines(files[r], r, end - first > 1);
    }
    for (uint32_t r = 0; r < GLM_MAX_RANKS; r++)
        if (files[r] != NULL)
            fclose(files[r]);
    target_release(&t);
    return rc;
}

const struct command command_logs = {
    .name = "logs",
    .arguments = "CLUSTER [RANK]",
    .summary = "print the logs of a lane's ranks",
    .description = "Prints the last log lines of one rank or of all, each line with its rank.",
    .options = logs_options,
    .options_size = sizeof(struct logs_options),
    .n_positional_max = 2,
    .run = run_logs,
};
