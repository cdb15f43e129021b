/* SPDX-License-Identifier: Apache-2.0 */
/* One table a command: it drives parsing, --help, environment names, completions and the option
 * lists of the man pages (docs.h). */
#ifndef GLM_CLI_OPTIONS_H
#define GLM_CLI_OPTIONS_H

#include "spec/base/buf.h"

#include <stdbool.h>
#include <stddef.h>

enum opt_type { OPT_FLAG, OPT_STR, OPT_INT, OPT_ENUM };

struct opt_def {
    const char *name; /* long name without dashes */
    char letter;      /* short name or 0 */
    enum opt_type type;
    size_t offset;             /* into the command's options struct: bool, const char *, int64_t */
    const char *value_name;    /* "FILE" in help; NULL for flags */
    const char *environment;   /* variable that sets the default, or NULL */
    const char *help;          /* one sentence, lower case, no full stop */
    const char *const *values; /* OPT_ENUM: allowed words, NULL-terminated, the first the default */
    int64_t min, max;          /* OPT_INT */
};

struct command {
    const char *name;              /* "kernels dump" may have a space */
    const char *arguments;         /* "CLUSTER [RANK]", for the usage line */
    const char *summary;           /* one line for `glmctl --help` */
    const char *description;       /* lines of at most 100 columns */
    const char *examples;          /* one a line, each a whole command line */
    const struct opt_def *options; /* ends with a NULL name */
    size_t options_size;           /* bytes of the options struct */
    size_t n_positional_min, n_positional_max;
    /* positional: NULL-terminated. Returns the exit status. */
    int (*run)(const void *options, const char *const *positional);
};

/* Exit statuses of the command line (docs: glmctl(1)). */
enum {
    EXIT_DONE = 0,
    EXIT_FAILED = 1,
    EXIT_CHANGES = 2,
    EXIT_UNHEALTHY = 3,
    EXIT_USAGE = 64,
    EXIT_INTERRUPTED = 130
};

/* Parses argv after the command's name into *options (zeroed first, then environment, then flags).
 * Errors: GLM_EINVAL with the nearest option as hint. *help is set by --help or -h; then nothing
 * else is asked for. */
enum glm_status options_parse(const struct command *c, int argc, char *const *argv, void *options,
                              const char **positional, bool *help, struct glm_error *err);
/* -h, --help: of every command, in no table. */
extern const struct opt_def options_help_row;

/* "-o, --output text|json" */
void options_names(const struct opt_def *o, struct buf *out);
/* Usage, description, options and examples as `--help` prints them, at most 100 columns wide. */
void options_help(const struct command *c, struct buf *out);

extern const struct command *const glm_commands[]; /* NULL-terminated, in the order of use */

#endif
