/* SPDX-License-Identifier: Apache-2.0 */
/* mdoc from the tables: synopsis, option list, examples, list of commands, list of fields. Prose is
 * written by hand in cli/man/; completions are in completion.c. */
#include "cli/docs.h"

#include "spec/cluster.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_COLUMNS = 78 };

const struct command *docs_command(const char *name)
{
    for (const struct command *const *c = glm_commands; *c != NULL; c++)
        if (strcmp((*c)->name, name) == 0)
            return *c;
    return NULL;
}

/* One word of running text; a dot or quote at the start of a line would be a request. */
static void man_word(const char *word, size_t len, bool line_start, struct buf *out)
{
    if (line_start && (*word == '.' || *word == '\''))
        buf_str(out, "\\&");
    for (size_t i = 0; i < len; i++) {
        if (word[i] == '\\')
            buf_str(out, "\\e");
        else
            buf_char(out, word[i]);
    }
}

/* Text, its first letter capital, filled to TEXT_COLUMNS, with a full stop at its end. */
static void man_sentence(const char *text, struct buf *out)
{
    size_t column = 0;
    const size_t start = out->len;
    for (const char *p = text; *p != '\0';) {
        const size_t len = strcspn(p, " \n");
        if (column > 0 && column + 1 + len > TEXT_COLUMNS) {
            buf_char(out, '\n');
            column = 0;
        } else if (column > 0) {
            buf_char(out, ' ');
            column++;
        }
        man_word(p, len, column == 0, out);
        column =
            len > 0 && p[len - 1] == '.' ? TEXT_COLUMNS : column + len; /* new sentence, line */
        p += len + strspn(p + len, " \n");
    }
    if (!out->failed && out->len > start) {
        out->data[start] = (char)toupper((unsigned char)out->data[start]);
        if (out->data[out->len - 1] != '.')
            buf_char(out, '.');
    }
    buf_char(out, '\n');
}

static void man_value(const struct opt_def *o, struct buf *out)
{
    if (o->type == OPT_FLAG)
        return;
    if (o->type != OPT_ENUM) {
        buf_printf(out, " Ar %s", o->value_name);
        return;
    }
    for (const char *const *v = o->values; *v != NULL; v++)
        buf_printf(out, "%s Cm %s", v == o->values ? "" : " |", *v);
}

static void man_synopsis(const struct command *c, struct buf *out)
{
    buf_printf(out, ".Nm glmctl %s\n", c->name);
    for (const struct opt_def *o = c->options; o->name != NULL; o++) {
        buf_str(out, ".Op ");
        if (o->letter != 0)
            buf_printf(out, "Fl %c", o->letter);
        else
            buf_printf(out, "Fl Fl %s", o->name);
        man_value(o, out);
        buf_char(out, '\n');
    }
    for (const char *word = c->arguments; *word != '\0';) {
        const size_t len = strcspn(word, " ");
        const bool optional = *word == '[';
        const int inner = (int)(optional ? len - 2 : len);
        buf_str(out, optional ? ".Op Ar " : ".Ar ");
        for (int i = 0; i < inner; i++) {
            if (word[optional + i] == '|')
                buf_str(out, " | ");
            else
                buf_char(out, word[optional + i]);
        }
        buf_char(out, '\n');
        word += len + strspn(word + len, " ");
    }
}

static void man_option(const struct opt_def *o, struct buf *out)
{
    buf_str(out, ".It ");
    if (o->letter != 0)
        buf_printf(out, "Fl %c , ", o->letter);
    buf_printf(out, "Fl Fl %s", o->name);
    man_value(o, out);
    buf_char(out, '\n');
    man_sentence(o->help, out);
    if (o->environment != NULL)
        buf_printf(out, "The default is taken from\n.Ev %s .\n", o->environment);
}

static void man_options(const struct command *c, struct buf *out)
{
    buf_str(out, ".Bl -tag -width Ds\n");
    for (const struct opt_def *o = c->options; o->name != NULL; o++)
        man_option(o, out);
    man_option(&options_help_row, out);
    buf_str(out, ".El\n");
}

static void man_examples(const struct command *c, struct buf *out)
{
    buf_str(out, ".Bd -literal -offset indent\n");
    for (const char *line = c->examples; *line != '\0';) {
        const size_t len = strcspn(line, "\n");
        man_word(line, len, true, out);
        buf_char(out, '\n');
        line += len + (line[len] == '\n');
    }
    buf_str(out, ".Ed\n");
}

static void man_commands(struct buf *out)
{
    buf_str(out, ".Bl -tag -width \"kernels dump\"\n");
    for (const struct command *const *c = glm_commands; *c != NULL; c++) {
        buf_printf(out, ".It Cm %s\n", (*c)->name);
        man_sentence((*c)->summary, out);
        buf_str(out, "See\n.Xr glmctl-");
        for (const char *p = (*c)->name; *p != '\0'; p++)
            buf_char(out, *p == ' ' ? '-' : *p);
        buf_str(out, " 1 .\n");
    }
    buf_str(out, ".El\n");
}

static void man_fields(struct buf *out)
{
    struct glm_field_doc f;
    buf_str(out, ".Bl -tag -width Ds\n");
    for (size_t i = 0; glm_schema_field(i, &f); i++) {
        buf_printf(out, ".It Ic %s\n", f.path);
        man_sentence(f.help, out);
        buf_str(out, "Value:\n");
        man_sentence(f.value, out);
        if (f.required)
            buf_str(out, "Required.\n");
        if (f.fallback[0] != '\0') {
            buf_str(out, "Default:\n");
            man_word(f.fallback, strlen(f.fallback), true, out);
            buf_str(out, ".\n");
        }
    }
    buf_str(out, ".El\n");
}

/* ---- pages ---- */

static const char begin_mark[] = ".\\\" generated: ";
static const char end_mark[] = ".\\\" end generated";

static bool write_part(const char *what, struct buf *out)
{
    static const struct {
        const char *name;
        void (*write)(const struct command *c, struct buf *out);
    } of_command[] = {
        {"synopsis ", man_synopsis}, {"options ", man_options}, {"examples ", man_examples}};
    for (size_t i = 0; i < sizeof of_command / sizeof of_command[0]; i++) {
        const size_t len = strlen(of_command[i].name);
        const struct command *c =
            strncmp(what, of_command[i].name, len) == 0 ? docs_command(what + len) : NULL;
        if (c != NULL) {
            of_command[i].write(c, out);
            return true;
        }
    }
    if (strcmp(what, "commands") == 0)
        man_commands(out);
    else if (strcmp(what, "fields") == 0)
        man_fields(out);
    else
        return false;
    return true;
}

static bool is_line(const char *line, size_t len, const char *text)
{
    return strlen(text) == len && memcmp(line, text, len) == 0;
}

enum glm_status docs_page(const char *page, struct buf *out, struct glm_error *err)
{
    char what[80] = "";
    uint32_t number = 1, opened = 0;
    for (const char *line = page; *line != '\0'; number++) {
        const size_t len = strcspn(line, "\n");
        const size_t mark = strlen(begin_mark);
        const char *next = line + len + (line[len] == '\n');
        if (opened > 0 && is_line(line, len, end_mark))
            opened = 0;
        if (opened == 0) {
            buf_add(out, line, len);
            buf_char(out, '\n');
        }
        if (opened == 0 && len > mark && strncmp(line, begin_mark, mark) == 0) {
            opened = number;
            snprintf(what, sizeof what, "%.*s", (int)(len - mark), line + mark);
            if (!write_part(what, out))
                return glm_fail(err, GLM_EINVAL, "line %u: nothing is generated for '%s'", number,
                                what);
        }
        line = next;
    }
    if (opened > 0)
        return glm_fail(err, GLM_EINVAL, "line %u: '%s' has no '%s'", opened, what, end_mark);
    return out->failed ? glm_fail(err, GLM_ENOMEM, "out of memory") : GLM_OK;
}
