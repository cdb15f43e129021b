/* SPDX-License-Identifier: Apache-2.0 */
/* What every command shares: option rows that mean the same everywhere, and where results and
 * errors go: results on stdout, all else on stderr, with -o json one JSON value on stdout. */
#ifndef GLM_CLI_COMMON_H
#define GLM_CLI_COMMON_H

#include "cli/options.h"
#include "spec/base/diag.h"

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
            "colour messages; auto: on a terminal", color_values, 0, 0              \
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

/* The version of the JSON that commands print. */
enum { OUTPUT_FORMAT = 1 };

bool wants_json(const struct common_options *o);
bool wants_color(const struct common_options *o, FILE *stream);

/* What the next command that a message names starts with: argv[0] where the user typed a path, else
 * glmctl. main sets it first. */
void set_program_name(const char *argv0);
const char *program_name(void);

/* Prints `error: message` and its hint on stderr, or with -o json {"format_version", "error"} on
 * stdout. Returns the exit status that fits: EXIT_INTERRUPTED for GLM_ECANCELED. */
int fail(const struct common_options *o, const struct glm_error *err);
/* A usage error, on stderr: message, hint, and how to get help. Returns EXIT_USAGE. */
int fail_usage(const char *command, const struct glm_error *err);
/* Diagnostics as text on stderr; with -o json and `failed` as JSON on stdout. */
int print_diags(const struct common_options *o, const struct diag_list *diags, bool failed);
/* Writes a result to stdout, saying on stderr when that fails. Returns an exit status. */
int print_result(const struct buf *b);

/* "key": "value" with a leading `separator`; value NULL is written as "". */
void json_member(struct buf *out, const char *separator, const char *key, const char *value);

/* Asks at the terminal unless `yes`. EXIT_DONE: go on; EXIT_USAGE: there is no terminal to ask at,
 * said on stderr with --yes as hint; EXIT_FAILED: the answer was no. */
int confirm(const struct common_options *o, const char *command, bool yes, const char *question);

#endif
