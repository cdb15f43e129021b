/* SPDX-License-Identifier: Apache-2.0 */
/* The option tables: what a command line means, and that help, man pages and completions say what
 * the tables say. */
#include "cli/docs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- parsing ---- */

struct toy_options {
    bool loud;
    const char *file, *colour;
    int64_t count;
};
static const char *const colours[] = {"auto", "always", "never", NULL};
static const struct opt_def toy_options[] = {
    {"loud", 'l', OPT_FLAG, offsetof(struct toy_options, loud), NULL, "TOY_LOUD", "be loud", NULL,
     0, 0},
    {"file", 'f', OPT_STR, offsetof(struct toy_options, file), "FILE", "TOY_FILE", "a file", NULL,
     0, 0},
    {"colour", 0, OPT_ENUM, offsetof(struct toy_options, colour), "WHEN", NULL, "when", colours, 0,
     0},
    {"count", 'n', OPT_INT, offsetof(struct toy_options, count), "N", "TOY_COUNT", "how many", NULL,
     -5, 100},
    {NULL, 0, OPT_FLAG, 0, NULL, NULL, NULL, NULL, 0, 0},
};
static const struct command toy = {
    .name = "toy",
    .arguments = "WHAT [MORE]",
    .summary = "play",
    .description = "Plays.",
    .examples = "glmctl toy a\nglmctl toy a b",
    .options = toy_options,
    .options_size = sizeof(struct toy_options),
    .n_positional_min = 1,
    .n_positional_max = 2,
};

struct parsed {
    struct toy_options options;
    const char *positional[4];
    bool help;
    struct glm_error err;
    enum glm_status status;
};

/* words: separated by blanks; "_" stands for an empty word. */
static struct parsed parse(const char *words)
{
    static char text[256];
    char *argv[16];
    int argc = 0;
    struct parsed p = {0};
    snprintf(text, sizeof text, "%s", words);
    for (char *w = strtok(text, " "); w != NULL; w = strtok(NULL, " ")) {
        if (strcmp(w, "_") == 0)
            w[0] = '\0';
        argv[argc++] = w;
    }
    p.status = options_parse(&toy, argc, argv, &p.options, p.positional, &p.help, &p.err);
    return p;
}

static void long_short_and_joined_forms_mean_the_same(void **state)
{
    (void)state;
    static const char *const lines[] = {"a --file x --count 7 --loud b", "-f x a -n 7 -l b",
                                        "--file=x --count=7 -l a b", "-fx -n7 -l -- a b"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct parsed p = parse(lines[i]);
        assert_int_equal(p.status, GLM_OK);
        assert_true(p.options.loud);
        assert_string_equal(p.options.file, "x");
        assert_int_equal(p.options.count, 7);
        assert_string_equal(p.positional[0], "a");
        assert_string_equal(p.positional[1], "b");
        assert_null(p.positional[2]);
    }
}

static void after_two_dashes_nothing_is_an_option_and_one_dash_is_standard_input(void **state)
{
    (void)state;
    struct parsed p = parse("-- --loud --help");
    assert_int_equal(p.status, GLM_OK);
    assert_false(p.options.loud);
    assert_false(p.help);
    assert_string_equal(p.positional[0], "--loud");
    p = parse("-");
    assert_int_equal(p.status, GLM_OK);
    assert_string_equal(p.positional[0], "-");
}

static void values_may_look_like_options_and_be_empty(void **state)
{
    (void)state;
    struct parsed p = parse("a -n -5 --file --loud");
    assert_int_equal(p.status, GLM_OK);
    assert_int_equal(p.options.count, -5);
    assert_string_equal(p.options.file, "--loud");
    p = parse("a --file=");
    assert_int_equal(p.status, GLM_OK);
    assert_string_equal(p.options.file, "");
}

static void refuses_with_what_was_wanted_and_what_was_given(void **state)
{
    (void)state;
    static const struct {
        const char *line, *message, *hint;
    } cases[] = {
        {"a --lound", "'glmctl toy' has no option '--lound'", "did you mean '--loud'?"},
        {"a --flie=x", "'glmctl toy' has no option '--flie=x'", "did you mean '--file'?"},
        {"a -x", "'glmctl toy' has no option '-x'", "glmctl toy --help lists them"},
        {"a --count", "'--count' wants a value: --count N", ""},
        {"a --count 101", "'--count' wants a whole number from -5 to 100, got '101'", ""},
        {"a --count 7x", "'--count' wants a whole number from -5 to 100, got '7x'", ""},
        {"a -n _", "'--count' wants a whole number from -5 to 100, got ''", ""},
        {"a -n 99999999999999999999",
         "'--count' wants a whole number from -5 to 100, got '99999999999999999999'", ""},
        {"a --colour nevre", "'--colour' wants one of auto, always, never, got 'nevre'",
         "did you mean 'never'?"},
        {"a --loud=yes", "'--loud' takes no value, got 'yes'", ""},
        {"a b c", "'glmctl toy' takes 2 arguments, 'c' is one more", ""},
        {"--loud", "'glmctl toy' wants WHAT [MORE]", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct parsed p = parse(cases[i].line);
        assert_int_equal(p.status, GLM_EINVAL);
        assert_string_equal(p.err.message, cases[i].message);
        assert_string_equal(p.err.hint, cases[i].hint);
    }
}

static void flags_win_over_the_environment_and_empty_variables_do_not_count(void **state)
{
    (void)state;
    setenv("TOY_FILE", "from-environment", 1);
    setenv("TOY_COUNT", "", 1);
    struct parsed p = parse("a");
    assert_int_equal(p.status, GLM_OK);
    assert_string_equal(p.options.file, "from-environment");
    assert_int_equal(p.options.count, 0);
    p = parse("a --file mine");
    assert_string_equal(p.options.file, "mine");
    setenv("TOY_COUNT", "many", 1);
    p = parse("a");
    assert_int_equal(p.status, GLM_EINVAL);
    assert_string_equal(p.err.message,
                        "'TOY_COUNT' wants a whole number from -5 to 100, got 'many'");
    unsetenv("TOY_FILE");
    unsetenv("TOY_COUNT");
}

static void asking_for_help_is_never_wrong(void **state)
{
    (void)state;
    setenv("TOY_COUNT", "many", 1);
    static const char *const lines[] = {"-h", "--help", "--nonsense --help", "a b c d -h"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct parsed p = parse(lines[i]);
        assert_int_equal(p.status, GLM_OK);
        assert_true(p.help);
    }
    unsetenv("TOY_COUNT");
}

static void help_shows_every_option_with_its_values_and_variable(void **state)
{
    (void)state;
    struct buf out = {0};
    options_help(&toy, &out);
    assert_string_equal(buf_text(&out),
                        "usage: glmctl toy WHAT [MORE] [options]\n\nPlays.\n\noptions:\n"
                        "  -l, --loud                     be loud [$TOY_LOUD]\n"
                        "  -f, --file FILE                a file [$TOY_FILE]\n"
                        "  --colour auto|always|never     when\n"
                        "  -n, --count N                  how many [$TOY_COUNT]\n"
                        "  -h, --help                     print this\n"
                        "\nexamples:\n  glmctl toy a\n  glmctl toy a b\n");
    buf_release(&out);
}

/* ---- the tables of the commands, and what is printed from them ---- */

static void every_table_is_sound(void **state)
{
    (void)state;
    for (const struct command *const *c = glm_commands; *c != NULL; c++) {
        assert_ptr_equal(docs_command((*c)->name), *c);
        assert_non_null((*c)->examples);
        assert_non_null(strstr((*c)->examples, (*c)->name));
        assert_true((*c)->n_positional_min <= (*c)->n_positional_max);
        assert_int_equal((*c)->n_positional_max == 0, *(*c)->arguments == '\0');
        bool output = false;
        for (const struct opt_def *o = (*c)->options; o->name != NULL; o++) {
            for (const struct opt_def *p = (*c)->options; p != o; p++) {
                assert_string_not_equal(o->name, p->name);
                assert_true(o->letter == 0 || o->letter != p->letter);
            }
            output |= strcmp(o->name, "output") == 0;
            assert_true(o->offset < (*c)->options_size);
            assert_int_equal(o->type == OPT_FLAG, o->value_name == NULL);
            assert_int_equal(o->type == OPT_ENUM, o->values != NULL);
            assert_true(o->type != OPT_INT || o->min < o->max);
            assert_true(o->letter != 'h' && strcmp(o->name, "help") != 0);
            const size_t len = strlen(o->help);
            assert_true(len > 0 && o->help[len - 1] != '.');
        }
        assert_true(output); /* -o json of every command */
    }
    assert_null(docs_command("no such"));
}

static char *read_file(const char *path)
{
    struct buf text = {0};
    struct glm_error err = {0};
    if (glm_file_read(path, 1 << 20, &text, &err) != GLM_OK)
        fail_msg("%s", err.message);
    return text.data; /* of the caller */
}

static void page_path(const struct command *c, char path[100])
{
    int n = snprintf(path, 100, "cli/man/glmctl-%s.1", c->name);
    for (int i = 0; i < n; i++)
        if (path[i] == ' ')
            path[i] = '-';
}

static size_t count(const char *text, const char *what)
{
    size_t n = 0;
    for (const char *p = strstr(text, what); p != NULL; p = strstr(p + 1, what))
        n++;
    return n;
}

/* Looked at from outside: not by generating again with the same code. */
static void man_pages_list_exactly_the_options_of_the_tables(void **state)
{
    (void)state;
    for (const struct command *const *c = glm_commands; *c != NULL; c++) {
        char path[100], item[100];
        page_path(*c, path);
        char *page = read_file(path);
        char *list = strstr(page, ".\\\" generated: options ");
        assert_non_null(list);
        char *end = strstr(list, ".\\\" end generated");
        assert_non_null(end);
        *end = '\0';
        size_t n = 1; /* help */
        for (const struct opt_def *o = (*c)->options; o->name != NULL; o++, n++) {
            snprintf(item, sizeof item, "Fl Fl %s%s", o->name, o->type == OPT_FLAG ? "\n" : " ");
            if (count(list, item) != 1)
                fail_msg("%s lists --%s %zu times", path, o->name, count(list, item));
        }
        assert_int_equal(count(list, "\n.It "), n);
        free(page);
    }
}

static void completions_offer_every_command_and_option(void **state)
{
    (void)state;
    char *bash = read_file("cli/completion/glmctl.bash");
    char *zsh = read_file("cli/completion/_glmctl");
    char *fish = read_file("cli/completion/glmctl.fish");
    for (const struct command *const *c = glm_commands; *c != NULL; c++) {
        char begin[100], item[100];
        snprintf(begin, sizeof begin, "\n    '%s')\n", (*c)->name);
        const char *in_bash = strstr(bash, begin), *in_zsh = strstr(zsh, begin);
        assert_non_null(in_bash);
        assert_non_null(in_zsh);
        const char *bash_end = strstr(in_bash, ";;\n        esac\n");
        const char *zsh_end = strstr(in_zsh, "\n        ;;\n");
        assert_true(zsh_end != NULL && ((*c)->options->name == NULL || bash_end != NULL));
        for (const struct opt_def *o = (*c)->options; o->name != NULL; o++) {
            snprintf(item, sizeof item, "--%s", o->name);
            assert_true(strstr(in_bash, item) != NULL && strstr(in_bash, item) < bash_end);
            assert_true(strstr(in_zsh, item) != NULL && strstr(in_zsh, item) < zsh_end);
            snprintf(item, sizeof item, " -l %s ", o->name);
            assert_true(count(fish, item) > 0);
        }
    }
    free(bash);
    free(zsh);
    free(fish);
}

static void assert_is_checked_in(const char *path, const struct buf *made)
{
    char *found = read_file(path);
    if (strcmp(found, buf_text(made)) != 0)
        fail_msg("%s is not what the tables say: run make generated", path);
    free(found);
}

static void what_is_checked_in_is_what_is_generated(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        void (*write)(struct buf *out);
    } files[] = {{"cli/completion/glmctl.bash", docs_bash},
                 {"cli/completion/_glmctl", docs_zsh},
                 {"cli/completion/glmctl.fish", docs_fish}};
    struct buf out = {0};
    struct glm_error err = {0};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        buf_clear(&out);
        files[i].write(&out);
        assert_is_checked_in(files[i].path, &out);
    }
    for (const struct command *const *c = glm_commands; *c != NULL; c++) {
        char path[100];
        page_path(*c, path);
        char *page = read_file(path);
        buf_clear(&out);
        assert_int_equal(docs_page(page, &out, &err), GLM_OK);
        assert_is_checked_in(path, &out);
        free(page);
    }
    static const char *const pages[] = {"cli/man/glmctl.1", "cli/man/glm-cluster.5",
                                        "cli/man/glmd.8"};
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        char *page = read_file(pages[i]);
        buf_clear(&out);
        assert_int_equal(docs_page(page, &out, &err), GLM_OK);
        assert_is_checked_in(pages[i], &out);
        free(page);
    }
    buf_release(&out);
}

static void a_page_with_an_unknown_or_open_part_is_refused(void **state)
{
    (void)state;
    struct buf out = {0};
    struct glm_error err = {0};
    assert_int_equal(
        docs_page("a\n.\\\" generated: options nothing\n.\\\" end generated\n", &out, &err),
        GLM_EINVAL);
    assert_string_equal(err.message, "line 2: nothing is generated for 'options nothing'");
    err = (struct glm_error){0};
    assert_int_equal(docs_page(".\\\" generated: commands\nold\n", &out, &err), GLM_EINVAL);
    assert_string_equal(err.message, "line 1: 'commands' has no '.\\\" end generated'");
    buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_short_and_joined_forms_mean_the_same),
        cmocka_unit_test(after_two_dashes_nothing_is_an_option_and_one_dash_is_standard_input),
        cmocka_unit_test(values_may_look_like_options_and_be_empty),
        cmocka_unit_test(refuses_with_what_was_wanted_and_what_was_given),
        cmocka_unit_test(flags_win_over_the_environment_and_empty_variables_do_not_count),
        cmocka_unit_test(asking_for_help_is_never_wrong),
        cmocka_unit_test(help_shows_every_option_with_its_values_and_variable),
        cmocka_unit_test(every_table_is_sound),
        cmocka_unit_test(man_pages_list_exactly_the_options_of_the_tables),
        cmocka_unit_test(completions_offer_every_command_and_option),
        cmocka_unit_test(what_is_checked_in_is_what_is_generated),
        cmocka_unit_test(a_page_with_an_unknown_or_open_part_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
