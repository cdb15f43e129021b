/* SPDX-License-Identifier: Apache-2.0 */
/* glmctl: finds the command, parses its table, runs it. */
#include "cli/common.h"
#include "cli/signals.h"
#include "spec/base/nearest.h"

#include <locale.h>
#include <string.h>

enum { MAX_OPTION_BYTES = 512, MAX_POSITIONAL = 16, MAX_COMMANDS = 64 };

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

static bool is_help(const char *word)
{
    return strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* Bytes of the command's first word. */
static size_t first_word(const struct command *c)
{
    return strcspn(c->name, " ");
}

static bool starts_with_word(const struct command *c, const char *word)
{
    return strlen(word) == first_word(c) && memcmp(c->name, word, first_word(c)) == 0;
}

/* The command named by one or two words of argv; *n_words is set. */
static const struct command *find_command(int argc, char *const *argv, int *n_words)
{
    for (const struct command *const *c = glm_commands; *c != NULL; c++) {
        const char *second = (*c)->name + first_word(*c);
        if (!starts_with_word(*c, argv[0]))
            continue;
        *n_words = *second == '\0' || (argc > 1 && is_help(argv[1])) ? 1 : 2;
        if (*n_words == 1 || (argc > 1 && strcmp(argv[1], second + 1) == 0))
            return *c;
    }
    return NULL;
}

static int unknown_command(int argc, char *const *argv)
{
    const char *names[MAX_COMMANDS];
    size_t n = 0;
    struct glm_error err = {0};
    for (const struct command *const *c = glm_commands; *c != NULL && n < MAX_COMMANDS; c++) {
        names[n++] = (*c)->name;
        if (!starts_with_word(*c, argv[0]))
            continue;
        if (argc > 1 && argv[1][0] != '-')
            glm_fail(&err, GLM_EINVAL, "glmctl has no command '%s %.100s'", argv[0], argv[1]);
        else
            glm_fail(&err, GLM_EINVAL, "'glmctl %s' is half a command", argv[0]);
        glm_error_hint(&err, "there is 'glmctl %s'", (*c)->name);
        return fail_usage("", &err);
    }
    glm_fail(&err, GLM_EINVAL, "glmctl has no command '%.100s'", argv[0]);
    const char *near = nearest_name(argv[0], names, n);
    if (near != NULL)
        glm_error_hint(&err, "did you mean '%s'?", near);
    return fail_usage("", &err);
}

static int run_command(const struct command *command, int argc, char *const *argv)
{
    _Alignas(max_align_t) unsigned char options[MAX_OPTION_BYTES];
    const char *positional[MAX_POSITIONAL] = {NULL};
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
    static char version[] = "version", ask_help[] = "--help";
    char *const ask[] = {ask_help, NULL};
    int n_words = 0;
    setlocale(LC_CTYPE, "C.UTF-8");
    signals_init();
    set_program_name(argv[0]);
    if (argc < 2) {
        print_commands(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0)
        argv[1] = version;
    const bool help = is_help(argv[1]);
    if (help && argc == 2) {
        print_commands(stdout);
        return EXIT_DONE;
    }
    const int skip = help ? 2 : 1;
    const struct command *command = find_command(argc - skip, argv + skip, &n_words);
    if (command == NULL)
        return unknown_command(argc - skip, argv + skip);
    if (help)
        return run_command(command, 1, ask);
    return run_command(command, argc - skip - n_words, argv + skip + n_words);
}
