/* SPDX-License-Identifier: Apache-2.0 */
/* glmctl: finds the command, parses its table, runs it. */
#include "cli/common.h"

#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPTION_BYTES = 512, MAX_POSITIONAL = 16 };

static void print_commands(FILE *stream)
{
    fputs(
        "usage: glmctl COMMAND [options]\n\n"
        "One YAML file declares machines, cables and lanes; glmctl plans it, applies it and looks\n"
        "after what runs.\n\ncommands:\n",
        stream);
    for (const struct command *const *c = glm_commands; *c != NULL; c++)
        fprintf(stream, "  %-14s %s\n", (*c)->name, (*c)->summary);
    fputs("\n`glmctl COMMAND --help` explains one; `glmctl explain FIELD` a field of the YAML "
          "file.\n",
          stream);
}

/* The command named by one or two words of argv; *n_words is set. */
static const struct command *find_command(int argc, char *const *argv, int *n_words)
{
    for (const struct command *const *c = glm_commands; *c != NULL; c++) {
        const char *name = (*c)->name;
        const char *space = strchr(name, ' ');
        size_t first = space == NULL ? strlen(name) : (size_t)(space - name);
        if (strlen(argv[0]) != first || memcmp(argv[0], name, first) != 0)
            continue;
        if (space == NULL) {
            *n_words = 1;
            return *c;
        }
        if (argc > 1 && strcmp(argv[1], space + 1) == 0) {
            *n_words = 2;
            return *c;
        }
    }
    return NULL;
}

static int unknown_command(const char *name)
{
    const char *names[64];
    size_t n = 0;
    for (const struct command *const *c = glm_commands; *c != NULL && n < 63; c++)
        names[n++] = (*c)->name;
    names[n] = NULL;
    struct glm_error err = {0};
    glm_fail(&err, GLM_EINVAL, "glmctl has no command '%s'", name);
    const char *near = nearest_word(name, names);
    if (near != NULL)
        glm_error_hint(&err, "did you mean '%s'?", near);
    return fail_usage("", &err);
}

static int run_command(const struct command *command, int argc, char *const *argv)
{
    _Alignas(max_align_t) unsigned char options[MAX_OPTION_BYTES];
    const char *positional[MAX_POSITIONAL];
    GLM_ASSERT(command->options_size <= sizeof options);
    GLM_ASSERT(command->n_positional_max < MAX_POSITIONAL);
    bool help;
    struct glm_error err = {0};
    if (options_parse(command, argc, argv, options, positional, &help, &err) != GLM_OK)
        return fail_usage(command->name, &err);
    if (!help)
        return command->run(options, positional);
    struct buf out = {0};
    options_help(command, &out);
    int rc = print_result(&out);
    buf_release(&out);
    return rc;
}

int main(int argc, char **argv)
{
    setlocale(LC_CTYPE, "C.UTF-8");
    signal(SIGPIPE, SIG_IGN);
    if (argc < 2) {
        print_commands(stderr);
        return EXIT_USAGE;
    }
    const char *first = argv[1];
    static char version[] = "version";
    if (strcmp(first, "--version") == 0)
        argv[1] = version;
    if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0 ||
        (strcmp(first, "help") == 0 && argc == 2)) {
        print_commands(stdout);
        return EXIT_DONE;
    }
    const bool help = strcmp(first, "help") == 0;
    int skip = help ? 2 : 1, n_words = 0;
    const struct command *command = find_command(argc - skip, argv + skip, &n_words);
    if (command == NULL)
        return unknown_command(argv[skip]);
    if (help) {
        static char ask_help[] = "--help";
        char *ask[] = {ask_help, NULL};
        return run_command(command, 1, ask);
    }
    return run_command(command, argc - skip - n_words, argv + skip + n_words);
}
