/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing and printing of option tables. Knows no command. */
#include "cli/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void *field(void *options, const struct opt_def *o)
{
    return (char *)options + o->offset;
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
        enum glm_status status = glm_fail(err, GLM_EINVAL, "'%s' does not know '%s'", from, text);
        const char *near = nearest_word(text, o->values);
        glm_error_hint(err, "did you mean '%s'?", near != NULL ? near : o->values[0]);
        return status;
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
        glm_fail(err, GLM_EINVAL, "'glmctl %s' has no option '%s'", c->name, argument);
    const char *names[64];
    size_t n = 0;
    for (const struct opt_def *o = c->options; o->name != NULL && n < 63; o++)
        names[n++] = o->name;
    names[n] = NULL;
    const char *near = nearest_word(argument + strspn(argument, "-"), names);
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
    return set_value(o, argument, value, options, err);
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

enum glm_status options_parse(const struct command *c, int argc, char *const *argv, void *options,
                              const char **positional, bool *help, struct glm_error *err)
{
    memset(options, 0, c->options_size);
    *help = false;
    enum glm_status status = take_environment(c, options, err);
    size_t n = 0;
    bool only_positional = false;
    struct cursor at = {.argc = argc, .argv = argv};
    for (; status == GLM_OK && at.i < argc; at.i++) {
        const char *argument = argv[at.i];
        if (!only_positional && strcmp(argument, "--") == 0) {
            only_positional = true;
        } else if (!only_positional && argument[0] == '-' && argument[1] != '\0') {
            if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0)
                *help = true;
            else
                status = take_option(c, &at, options, err);
        } else if (n == c->n_positional_max) {
            status = glm_fail(err, GLM_EINVAL, "'glmctl %s' takes %zu argument%s, '%s' is one more",
                              c->name, n, n == 1 ? "" : "s", argument);
        } else {
            positional[n++] = argument;
        }
    }
    positional[n] = NULL;
    return status;
}

static void option_names(const struct opt_def *o, struct buf *out)
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

void options_help(const struct command *c, struct buf *out)
{
    buf_printf(out, "usage: glmctl %s%s%s [options]\n\n%s\n", c->name, *c->arguments ? " " : "",
               c->arguments, c->description);
    if (c->options->name != NULL)
        buf_str(out, "\noptions:\n");
    for (const struct opt_def *o = c->options; o->name != NULL; o++) {
        struct buf names = {0};
        option_names(o, &names);
        buf_printf(out, "  %-30s %s%s", buf_text(&names),
                   names.len > 30 ? "\n                                 " : "", o->help);
        if (o->environment != NULL)
            buf_printf(out, " [$%s]", o->environment);
        buf_char(out, '\n');
        buf_release(&names);
    }
}

void options_man(const struct command *c, struct buf *out)
{
    for (const struct opt_def *o = c->options; o->name != NULL; o++) {
        buf_str(out, ".It ");
        if (o->letter != 0)
            buf_printf(out, "Fl %c , ", o->letter);
        buf_printf(out, "Fl Fl %s", o->name);
        if (o->type != OPT_FLAG)
            buf_printf(out, " Ar %s", o->value_name);
        buf_printf(out, "\n%c%s.\n",
                   (char)(o->help[0] - (o->help[0] >= 'a' && o->help[0] <= 'z' ? 32 : 0)),
                   o->help + 1);
        if (o->environment != NULL)
            buf_printf(out, "Environment:\n.Ev %s .\n", o->environment);
    }
}

static size_t distance(const char *a, const char *b)
{
    enum { MAX = 63 };
    size_t row[MAX + 1];
    size_t n = strlen(b);
    if (n > MAX || strlen(a) > MAX)
        return MAX;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t above = row[j];
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            best = above + 1 < best ? above + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            row[j] = best;
            diagonal = above;
        }
    }
    return row[n];
}

const char *nearest_word(const char *text, const char *const *words)
{
    const char *best = NULL;
    size_t best_distance = strlen(text) / 2 + 1;
    for (; *words != NULL; words++) {
        size_t d = distance(text, *words);
        if (d < best_distance) {
            best_distance = d;
            best = *words;
        }
    }
    return best;
}
