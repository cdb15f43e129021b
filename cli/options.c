/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing and printing of option tables. Knows no command. */
#include "cli/options.h"

#include "spec/base/nearest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *field(void *options, const struct opt_def *o)
{
    return (char *)options + o->offset;
}

static enum glm_status unknown_value(const struct opt_def *o, const char *from, const char *text,
                                     struct glm_error *err)
{
    struct buf list = {0};
    size_t n = 0;
    for (; o->values[n] != NULL; n++)
        buf_printf(&list, "%s%s", n == 0 ? "" : ", ", o->values[n]);
    enum glm_status status = glm_fail(err, GLM_EINVAL, "'%s' wants one of %s, got '%.100s'", from,
                                      buf_text(&list), text);
    const char *near = nearest_name(text, o->values, n);
    if (near != NULL)
        glm_error_hint(err, "did you mean '%s'?", near);
    buf_release(&list);
    return status;
}

static enum glm_status set_value(const struct opt_def *o, const char *from, const char *text,
                                 void *options, struct glm_error *err)
{
    switch (o->type) {
    case OPT_FLAG:
        *(bool *)field(options, o) = true;
        return GLM_OK;
    case OPT_STR:
        *(const char **)field(options, o) = text;
        return GLM_OK;
    case OPT_INT: {
        char *end;
        errno = 0;
        long long value = strtoll(text, &end, 10);
        if (*text == '\0' || *end != '\0' || errno != 0 || value < o->min || value > o->max)
            return glm_fail(err, GLM_EINVAL,
                            "'%s' wants a whole number from %lld to %lld, got '%s'", from,
                            (long long)o->min, (long long)o->max, text);
        *(int64_t *)field(options, o) = value;
        return GLM_OK;
    }
    case OPT_ENUM:
        for (const char *const *v = o->values; *v != NULL; v++) {
            if (strcmp(*v, text) == 0) {
                *(const char **)field(options, o) = *v;
                return GLM_OK;
            }
        }
        return unknown_value(o, from, text, err);
    }
    return GLM_OK;
}

static const struct opt_def *find_long(const struct opt_def *options, const char *name, size_t len)
{
    for (const struct opt_def *o = options; o->name != NULL; o++)
        if (strlen(o->name) == len && memcmp(o->name, name, len) == 0)
            return o;
    return NULL;
}

static const struct opt_def *find_letter(const struct opt_def *options, char letter)
{
    for (const struct opt_def *o = options; o->name != NULL; o++)
        if (o->letter == letter)
            return o;
    return NULL;
}

static enum glm_status unknown_option(const struct command *c, const char *argument,
                                      struct glm_error *err)
{
    enum glm_status status =
        glm_fail(err, GLM_EINVAL, "'glmctl %s' has no option '%.100s'", c->name, argument);
    char name[64];
    const char *names[64];
    size_t n = 0;
    for (const struct opt_def *o = c->options; o->name != NULL && n < 64; o++)
        names[n++] = o->name;
    const char *start = argument + strspn(argument, "-");
    snprintf(name, sizeof name, "%.*s", (int)strcspn(start, "="), start);
    const char *near = nearest_name(name, names, n);
    if (near != NULL)
        glm_error_hint(err, "did you mean '--%s'?", near);
    else
        glm_error_hint(err, "glmctl %s --help lists them", c->name);
    return status;
}

struct cursor {
    int argc, i;
    char *const *argv;
};

static enum glm_status take_option(const struct command *c, struct cursor *at, void *options,
                                   struct glm_error *err)
{
    const char *argument = at->argv[at->i];
    const struct opt_def *o;
    const char *value = NULL;
    if (argument[1] == '-') {
        size_t len = strcspn(argument + 2, "=");
        o = find_long(c->options, argument + 2, len);
        if (argument[2 + len] == '=')
            value = argument + 2 + len + 1;
    } else {
        o = find_letter(c->options, argument[1]);
        if (argument[2] != '\0')
            value = argument + 2;
    }
    if (o == NULL)
        return unknown_option(c, argument, err);
    if (o->type == OPT_FLAG) {
        if (value != NULL)
            return glm_fail(err, GLM_EINVAL, "'--%s' takes no value, got '%s'", o->name, value);
    } else if (value == NULL) {
        if (at->i + 1 >= at->argc)
            return glm_fail(err, GLM_EINVAL, "'--%s' wants a value: --%s %s", o->name, o->name,
                            o->value_name);
        value = at->argv[++at->i];
    }
    char from[72];
    snprintf(from, sizeof from, "--%s", o->name);
    return set_value(o, from, value, options, err);
}

static enum glm_status take_environment(const struct command *c, void *options,
                                        struct glm_error *err)
{
    for (const struct opt_def *o = c->options; o->name != NULL; o++) {
        const char *value = o->environment == NULL ? NULL : getenv(o->environment);
        if (value == NULL || *value == '\0')
            continue;
        enum glm_status status = set_value(o, o->environment, value, options, err);
        if (status != GLM_OK)
            return status;
    }
    return GLM_OK;
}

/* Asked for help: nothing else on the line matters. */
static bool wants_help(int argc, char *const *argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

static enum glm_status take_positional(const struct command *c, const char *argument,
                                       const char **positional, size_t *n, struct glm_error *err)
{
    if (*n < c->n_positional_max) {
        positional[(*n)++] = argument;
        return GLM_OK;
    }
    if (*n == 0)
        return glm_fail(err, GLM_EINVAL, "'glmctl %s' takes no argument, got '%.100s'", c->name,
                        argument);
    return glm_fail(err, GLM_EINVAL, "'glmctl %s' takes %zu argument%s, '%.100s' is one more",
                    c->name, *n, *n == 1 ? "" : "s", argument);
}

enum glm_status options_parse(const struct command *c, int argc, char *const *argv, void *options,
                              const char **positional, bool *help, struct glm_error *err)
{
    memset(options, 0, c->options_size);
    *help = wants_help(argc, argv);
    positional[0] = NULL;
    if (*help)
        return GLM_OK;
    enum glm_status status = take_environment(c, options, err);
    size_t n = 0;
    bool only_positional = false;
    struct cursor at = {.argc = argc, .argv = argv};
    for (; status == GLM_OK && at.i < argc; at.i++) {
        const char *argument = argv[at.i];
        if (!only_positional && strcmp(argument, "--") == 0)
            only_positional = true;
        else if (!only_positional && argument[0] == '-' && argument[1] != '\0')
            status = take_option(c, &at, options, err);
        else
            status = take_positional(c, argument, positional, &n, err);
    }
    if (status == GLM_OK && n < c->n_positional_min)
        status = glm_fail(err, GLM_EINVAL, "'glmctl %s' wants %s", c->name, c->arguments);
    positional[n] = NULL;
    return status;
}

void options_names(const struct opt_def *o, struct buf *out)
{
    if (o->letter != 0)
        buf_printf(out, "-%c, ", o->letter);
    buf_printf(out, "--%s", o->name);
    if (o->type == OPT_FLAG)
        return;
    buf_char(out, ' ');
    if (o->type != OPT_ENUM) {
        buf_str(out, o->value_name);
        return;
    }
    for (const char *const *v = o->values; *v != NULL; v++)
        buf_printf(out, "%s%s", v == o->values ? "" : "|", *v);
}

const struct opt_def options_help_row = {"help", 'h',          OPT_FLAG, 0, NULL,
                                         NULL,   "print this", NULL,     0, 0};

enum { NAMES_COLUMNS = 30 };

static void help_option(const struct opt_def *o, struct buf *out)
{
    struct buf names = {0};
    options_names(o, &names);
    buf_printf(out, "  %-*s ", NAMES_COLUMNS, buf_text(&names));
    if (names.len > NAMES_COLUMNS)
        buf_printf(out, "\n  %-*s ", NAMES_COLUMNS, "");
    buf_str(out, o->help);
    if (o->environment != NULL)
        buf_printf(out, " [$%s]", o->environment);
    buf_char(out, '\n');
    buf_release(&names);
}

void options_help(const struct command *c, struct buf *out)
{
    buf_printf(out, "usage: glmctl %s%s%s [options]\n\n%s\n\noptions:\n", c->name,
               *c->arguments ? " " : "", c->arguments, c->description);
    for (const struct opt_def *o = c->options; o->name != NULL; o++)
        help_option(o, out);
    help_option(&options_help_row, out);
    buf_str(out, "\nexamples:\n");
    for (const char *line = c->examples; *line != '\0';) {
        size_t len = strcspn(line, "\n");
        buf_printf(out, "  %.*s\n", (int)len, line);
        line += len + (line[len] == '\n');
    }
}
