/* SPDX-License-Identifier: Apache-2.0 */
/* Where errors and results of all commands go. What they say is each command's. */
#include "cli/common.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const output_values[] = {"text", "json", NULL};
const char *const color_values[] = {"auto", "always", "never", NULL};

static const char *program = "glmctl";

void set_program_name(const char *argv0)
{
    if (argv0 != NULL && strchr(argv0, '/') != NULL)
        program = argv0;
}

const char *program_name(void)
{
    return program;
}

/* Hints come from all folders and say glmctl. */
static void spoken_hint(const char *hint, struct buf *out)
{
    static const char name[] = "glmctl ";
    const size_t len = sizeof name - 1;
    for (const char *at = hint; *at != '\0'; at++) {
        const bool starts_word = at == hint || at[-1] == ' ' || at[-1] == '\'';
        if (!starts_word || strncmp(at, name, len) != 0) {
            buf_char(out, *at);
            continue;
        }
        buf_printf(out, "%s ", program);
        at += len - 1;
    }
}

bool wants_json(const struct common_options *o)
{
    return o->output != NULL && strcmp(o->output, "json") == 0;
}

bool wants_color(const struct common_options *o, FILE *stream)
{
    if (o->color != NULL && strcmp(o->color, "auto") != 0)
        return strcmp(o->color, "always") == 0;
    const char *no_color = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    return isatty(fileno(stream)) && (no_color == NULL || *no_color == '\0') && term != NULL &&
           strcmp(term, "dumb") != 0;
}

/* A reader that has seen enough (`| head`) is no news; a full disk is. */
int print_result(const struct buf *b)
{
    if (b->failed) {
        fputs("error: cannot print the result: out of memory\n", stderr);
        return EXIT_FAILED;
    }
    errno = 0;
    if (fwrite(buf_text(b), 1, b->len, stdout) == b->len && fflush(stdout) == 0)
        return EXIT_DONE;
    if (errno != EPIPE)
        fprintf(stderr, "error: cannot write to standard output: %s\n", strerror(errno));
    return EXIT_FAILED;
}

void json_member(struct buf *out, const char *separator, const char *key, const char *value)
{
    const char *text = value == NULL ? "" : value;
    buf_printf(out, "%s\"%s\": ", separator, key);
    buf_json_string(out, text, strlen(text));
}

static void print_error(const struct glm_error *err, bool color)
{
    fprintf(stderr, "%serror:%s %s\n", color ? "\033[1;31m" : "", color ? "\033[0m" : "",
            err->message[0] != '\0' ? err->message : glm_status_text(err->status));
    if (err->hint[0] != '\0') {
        struct buf hint = {0};
        spoken_hint(err->hint, &hint);
        fprintf(stderr, "  hint: %s\n", buf_text(&hint));
        buf_release(&hint);
    }
}

int fail(const struct common_options *o, const struct glm_error *err)
{
    const int rc = err->status == GLM_ECANCELED ? EXIT_INTERRUPTED : EXIT_FAILED;
    if (!wants_json(o)) {
        print_error(err, wants_color(o, stderr));
        return rc;
    }
    struct buf out = {0}, hint = {0};
    spoken_hint(err->hint, &hint);
    buf_printf(&out, "{\"format_version\": %d, \"error\": {", OUTPUT_FORMAT);
    json_member(&out, "", "status", glm_status_text(err->status));
    json_member(&out, ", ", "message", err->message);
    json_member(&out, ", ", "hint", buf_text(&hint));
    buf_str(&out, "}}\n");
    print_result(&out);
    buf_release(&out);
    buf_release(&hint);
    return rc;
}

int fail_usage(const char *command, const struct glm_error *err)
{
    const struct common_options none = {0};
    print_error(err, wants_color(&none, stderr));
    fprintf(stderr, "  see:  %s %s%s--help\n", program, command, *command != '\0' ? " " : "");
    return EXIT_USAGE;
}

int print_diags(const struct common_options *o, const struct diag_list *diags, bool failed)
{
    struct buf out = {0};
    if (failed && wants_json(o)) {
        buf_printf(&out, "{\"format_version\": %d, \"diagnostics\": ", OUTPUT_FORMAT);
        diag_render_json(diags, &out);
        buf_str(&out, "}\n");
        print_result(&out);
    } else {
        diag_render_text(diags, wants_color(o, stderr), &out);
        fputs(buf_text(&out), stderr);
    }
    buf_release(&out);
    return failed ? EXIT_FAILED : EXIT_DONE;
}

int confirm(const struct common_options *o, const char *command, bool yes, const char *question)
{
    char answer[16];
    if (yes)
        return EXIT_DONE;
    if (!isatty(STDIN_FILENO)) {
        struct glm_error err = {0};
        glm_fail(&err, GLM_EINVAL, "cannot ask '%s' without a terminal", question);
        glm_error_hint(&err, "say --yes");
        return fail_usage(command, &err);
    }
    fprintf(stderr, "%s [y/N] ", question);
    if (fgets(answer, sizeof answer, stdin) != NULL && tolower((unsigned char)answer[0]) == 'y')
        return EXIT_DONE;
    fputs("nothing was changed\n", stderr);
    if (wants_json(o))
        printf("{\"format_version\": %d, \"changed\": false}\n", OUTPUT_FORMAT);
    return EXIT_FAILED;
}
