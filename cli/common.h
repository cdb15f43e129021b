/* SPDX-License-Identifier: Apache-2.0 */
/* What every command shares: option rows that mean the same everywhere, printing of errors and
 * diagnostics, the compiled lane, the lane's state folder. */
#ifndef GLM_CLI_COMMON_H
#define GLM_CLI_COMMON_H

#include "cli/options.h"
#include "codegen/graph.h"
#include "codegen/launch.h"
#include "spec/cluster.h"

#include <stdio.h>

extern const char *const output_values[]; /* text, json */
extern const char *const color_values[];  /* auto, always, never */

/* Every command's options struct starts with these, so that the rows below fit all of them. */
struct common_options {
    const char *output;
    const char *color;
    const char *lane;
};
#define COMMON_OUTPUT_OPTION                                                              \
    {                                                                                     \
        "output", 'o', OPT_ENUM, offsetof(struct common_options, output), "FORMAT", NULL, \
            "output format", output_values, 0, 0                                          \
    }
#define COMMON_COLOR_OPTION                                                         \
    {                                                                               \
        "color", 0, OPT_ENUM, offsetof(struct common_options, color), "WHEN", NULL, \
            "colour diagnostics", color_values, 0, 0                                \
    }
#define COMMON_LANE_OPTION                                                               \
    {                                                                                    \
        "lane", 'l', OPT_STR, offsetof(struct common_options, lane), "NAME", "GLM_LANE", \
            "lane to work on; without it the default lane", NULL, 0, 0                   \
    }
#define OPTIONS_END                                        \
    {                                                      \
        NULL, 0, OPT_FLAG, 0, NULL, NULL, NULL, NULL, 0, 0 \
    }

bool wants_json(const struct common_options *o);
bool wants_color(const struct common_options *o, FILE *stream);

/* Prints `error: message` and its hint on stderr, or the same as JSON on stdout; returns the exit
 * status that fits it. */
int fail(const struct common_options *o, const struct glm_error *err);
/* A usage error: message, hint, and how to get help. */
int fail_usage(const char *command, const struct glm_error *err);
/* Writes a result to stdout; a closed pipe is an error. */
int print_result(const struct buf *b);

/* A spec compiled as far as the plans of one lane. */
struct compiled {
    struct arena arena;
    struct diag_list diags;
    struct glm_cluster *cluster;
    uint32_t lane_i;
    const char *target;
    struct glm_plan **plans; /* one a rank */
    /* set when the file was a saved plan: the launch document it holds */
    struct glm_launch_file *saved;
};
/* `file`: a cluster spec, "-" for standard input, or a saved plan. Diagnostics are printed on
 * stderr (or, with -o json and an error, as JSON on stdout). Returns an exit status; on any but
 * EXIT_DONE the struct holds only what compiled_release frees. */
int compile_lane(const struct common_options *o, const char *file, struct compiled *out);
/* As far as cluster and lane: what commands about running things need. */
int resolve_spec(const struct common_options *o, const char *file, struct compiled *out);
void compiled_release(struct compiled *c);

/* $GLM_STATE_DIR (default $XDG_STATE_HOME/glmctl, ~/.local/state/glmctl) + /CLUSTER/LANE. */
enum glm_status lane_folder(const char *cluster, const char *lane, struct buf *out,
                            struct glm_error *err);

#endif
