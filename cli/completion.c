/* SPDX-License-Identifier: Apache-2.0 */
/* Completions for bash, zsh and fish from the option tables and the field table. */
#include "cli/docs.h"
#include "spec/cluster.h"

#include <string.h>

static const char banner[] = "# Generated from the option tables in cli/ by `make generated`.\n";

/* What follows an option is a file, not a word of its own. */
static bool wants_file(const struct opt_def *o)
{
    return o->type == OPT_STR && strcmp(o->value_name, "FILE") == 0;
}

static bool takes_fields(const struct command *c)
{
    return strcmp(c->arguments, "[FIELD]") == 0;
}

static void words(const char *const *values, struct buf *out)
{
    for (size_t i = 0; values[i] != NULL; i++)
        buf_printf(out, "%s%s", i > 0 ? " " : "", values[i]);
}

static void first_words(struct buf *out)
{
    const char *before = "";
    for (const struct command *const *c = glm_commands; *c != NULL; c++) {
        const size_t len = strcspn((*c)->name, " ");
        if (strlen(before) >= len && strncmp((*c)->name, before, len) == 0)
            continue;
        buf_printf(out, "%.*s ", (int)len, (*c)->name);
        before = (*c)->name;
    }
}

/* Brackets, which shells expand, are left out: explain finds fields without them too. */
static void field_words(struct buf *out)
{
    struct glm_field_doc f;
    for (size_t i = 0; glm_schema_field(i, &f); i++) {
        if (strlen(f.path) > 2 && strcmp(f.path + strlen(f.path) - 2, "[]") == 0)
            continue;
        buf_str(out, i > 0 ? " " : "");
        for (const char *p = f.path; *p != '\0'; p++)
            if (*p != '[' && *p != ']')
                buf_char(out, *p);
    }
}

/* ---- bash ---- */

static void bash_value(const struct opt_def *o, struct buf *out)
{
    if (o->type == OPT_FLAG)
        return;
    buf_str(out, "        ");
    if (o->letter != 0)
        buf_printf(out, "-%c | ", o->letter);
    buf_printf(out, "--%s) ", o->name);
    if (o->type == OPT_ENUM) {
        buf_str(out, "values='");
        words(o->values, out);
        buf_str(out, "' ;;\n");
    } else {
        buf_printf(out, "%s ;;\n", wants_file(o) ? "return" : "values=' '");
    }
}

static void bash_command(const struct command *c, struct buf *out)
{
    buf_printf(out, "    '%s')\n        options='", c->name);
    for (const struct opt_def *o = c->options; o->name != NULL; o++) {
        if (o->letter != 0)
            buf_printf(out, "-%c ", o->letter);
        buf_printf(out, "--%s ", o->name);
    }
    buf_str(out, "-h --help'\n");
    if (takes_fields(c)) {
        buf_str(out, "        arguments='");
        field_words(out);
        buf_str(out, "'\n");
    }
    buf_str(out, "        case $previous in\n");
    for (const struct opt_def *o = c->options; o->name != NULL; o++)
        bash_value(o, out);
    buf_str(out, "        esac\n        ;;\n");
}

void docs_bash(struct buf *out)
{
    buf_printf(
        out,
        "%s# bash completion for glmctl. SPDX-License-Identifier: Apache-2.0\n"
        "_glmctl() {\n"
        "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}\n"
        "    local command=${COMP_WORDS[1]} options='' arguments='' values=''\n"
        "    COMPREPLY=()\n"
        "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
        "        mapfile -t COMPREPLY < <(compgen -W '",
        banner);
    first_words(out);
    buf_str(out, "help --help --version' -- \"$current\")\n"
                 "        return\n"
                 "    fi\n");
    for (const struct command *const *c = glm_commands; *c != NULL; c++) {
        const char *second = strchr((*c)->name, ' ');
        if (second != NULL)
            buf_printf(
                out,
                "    if [ \"$command\" = %.*s ]; then\n"
                "        if [ \"$COMP_CWORD\" -eq 2 ]; then\n"
                "            mapfile -t COMPREPLY < <(compgen -W '%s --help' -- \"$current\")\n"
                "            return\n"
                "        fi\n"
                "        command=\"$command ${COMP_WORDS[2]}\"\n"
                "    fi\n",
                (int)(second - (*c)->name), (*c)->name, second + 1);
    }
    buf_str(out, "    case $command in\n    help)\n        arguments='");
    first_words(out);
    buf_str(out, "'\n        ;;\n");
    for (const struct command *const *c = glm_commands; *c != NULL; c++)
        bash_command(*c, out);
    buf_str(out, "    esac\n"
                 "    if [ -n \"$values\" ]; then\n"
                 "        mapfile -t COMPREPLY < <(compgen -W \"$values\" -- \"$current\")\n"
                 "    elif [[ $current == -* ]]; then\n"
                 "        mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$current\")\n"
                 "    elif [ -n \"$arguments\" ]; then\n"
                 "        mapfile -t COMPREPLY < <(compgen -W \"$arguments\" -- \"$current\")\n"
                 "    fi\n"
                 "}\n"
                 "complete -o bashdefault -o default -F _glmctl glmctl\n");
}

/* ---- zsh ---- */

/* Inside single quotes, where a quote, a bracket and a colon have meanings. */
static void zsh_text(const char *text, struct buf *out)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            buf_str(out, "'\\''");
        else if (strchr("[]:\\", *text) != NULL)
            buf_printf(out, "\\%c", *text);
        else
            buf_char(out, *text);
    }
}

static void zsh_option(const struct opt_def *o, struct buf *out)
{
    buf_str(out, "            ");
    if (o->letter != 0)
        buf_printf(out, "'(-%c --%s)'{-%c,--%s}'[", o->letter, o->name, o->letter, o->name);
    else
        buf_printf(out, "'--%s[", o->name);
    zsh_text(o->help, out);
    buf_char(out, ']');
    if (o->type == OPT_ENUM) {
        buf_printf(out, ":%s:(", o->value_name);
        words(o->values, out);
        buf_char(out, ')');
    } else if (o->type != OPT_FLAG) {
        buf_printf(out, ":%s:%s", o->value_name, wants_file(o) ? "_files" : "");
    }
    buf_str(out, "' \\\n");
}

static void zsh_command(const struct command *c, struct buf *out)
{
    buf_printf(out, "    '%s')\n        _arguments \\\n", c->name);
    for (const struct opt_def *o = c->options; o->name != NULL; o++)
        zsh_option(o, out);
    zsh_option(&options_help_row, out);
    if (takes_fields(c)) {
        buf_str(out, "            '*:FIELD:(");
        field_words(out);
        buf_str(out, ")'");
    } else if (*c->arguments != '\0') {
        buf_str(out, "            '*:file:_files'");
    } else {
        buf_str(out, "            '*: :'");
    }
    buf_str(out, "\n        ;;\n");
}

void docs_zsh(struct buf *out)
{
    buf_printf(
        out,
        "#compdef glmctl\n# zsh completion for glmctl. SPDX-License-Identifier: Apache-2.0\n%s"
        "local -a commands\n"
        "commands=(\n",
        banner);
    for (const struct command *const *c = glm_commands; *c != NULL; c++) {
        buf_printf(out, "    '%.*s:", (int)strcspn((*c)->name, " "), (*c)->name);
        zsh_text((*c)->summary, out);
        buf_str(out, "'\n");
    }
    buf_str(out, ")\n"
                 "if (( CURRENT == 2 )); then\n"
                 "    _describe command commands\n"
                 "    return\n"
                 "fi\n"
                 "local command=$words[2]\n");
    for (const struct command *const *c = glm_commands; *c != NULL; c++) {
        const char *second = strchr((*c)->name, ' ');
        if (second != NULL)
            buf_printf(out,
                       "if [[ $command == %.*s ]]; then\n"
                       "    if (( CURRENT == 3 )); then\n"
                       "        _values subcommand %s\n"
                       "        return\n"
                       "    fi\n"
                       "    command=\"$command $words[3]\"\n"
                       "    shift words\n"
                       "    (( CURRENT-- ))\n"
                       "fi\n",
                       (int)(second - (*c)->name), (*c)->name, second + 1);
    }
    buf_str(out, "shift words\n(( CURRENT-- ))\ncase $command in\n");
    for (const struct command *const *c = glm_commands; *c != NULL; c++)
        zsh_command(*c, out);
    buf_str(out, "esac\n");
}

/* ---- fish ---- */

static void fish_text(const char *text, struct buf *out)
{
    buf_char(out, '\'');
    for (; *text != '\0'; text++) {
        if (*text == '\'' || *text == '\\')
            buf_char(out, '\\');
        buf_char(out, *text);
    }
    buf_char(out, '\'');
}

static void fish_seen(const struct command *c, struct buf *out)
{
    const char *second = strchr(c->name, ' ');
    buf_printf(out, "complete -c glmctl -n '__fish_seen_subcommand_from %.*s",
               (int)strcspn(c->name, " "), c->name);
    if (second != NULL)
        buf_printf(out, "; and __fish_seen_subcommand_from %s", second + 1);
    buf_char(out, '\'');
}

static void fish_option(const struct command *c, const struct opt_def *o, struct buf *out)
{
    fish_seen(c, out);
    if (o->letter != 0)
        buf_printf(out, " -s %c", o->letter);
    buf_printf(out, " -l %s", o->name);
    if (o->type == OPT_ENUM) {
        buf_str(out, " -x -a '");
        words(o->values, out);
        buf_char(out, '\'');
    } else if (o->type != OPT_FLAG) {
        buf_str(out, wants_file(o) ? " -r" : " -x");
    }
    buf_str(out, " -d ");
    fish_text(o->help, out);
    buf_char(out, '\n');
}

void docs_fish(struct buf *out)
{
    buf_printf(out,
               "%s# fish completion for glmctl. SPDX-License-Identifier: Apache-2.0\n"
               "complete -c glmctl -n __fish_use_subcommand -f\n",
               banner);
    for (const struct command *const *c = glm_commands; *c != NULL; c++) {
        const int first = (int)strcspn((*c)->name, " ");
        const char *second = strchr((*c)->name, ' ');
        buf_printf(out, "complete -c glmctl -n __fish_use_subcommand -a %.*s -d ", first,
                   (*c)->name);
        fish_text((*c)->summary, out);
        buf_char(out, '\n');
        if (second != NULL)
            buf_printf(out,
                       "complete -c glmctl -n '__fish_seen_subcommand_from %.*s; and not "
                       "__fish_seen_subcommand_from %s' -f -a %s\n",
                       first, (*c)->name, second + 1, second + 1);
        if (takes_fields(*c)) {
            fish_seen(*c, out);
            buf_str(out, " -f -a '");
            field_words(out);
            buf_str(out, "'\n");
        }
        for (const struct opt_def *o = (*c)->options; o->name != NULL; o++)
            fish_option(*c, o, out);
        fish_option(*c, &options_help_row, out);
    }
}
