/* SPDX-License-Identifier: Apache-2.0 */
/* glmctl explain: a field of the cluster file, from the table that also validates it. */
#include "cli/common.h"
#include "spec/cluster.h"

#include <string.h>

struct explain_options {
    struct common_options common;
};

static const struct opt_def explain_options[] = {
    COMMON_OUTPUT_OPTION,
    COMMON_COLOR_OPTION,
    OPTIONS_END,
};

/* The text names each field it explains on a line of its own: the JSON has the same ones. */
static bool is_explained(const struct buf *text, const char *path)
{
    const size_t len = strlen(path);
    for (const char *line = buf_text(text); *line != '\0'; line += strcspn(line, "\n") + 1)
        if (strncmp(line, path, len) == 0 && line[len] == '\n')
            return true;
    return false;
}

static void write_json(const struct buf *text, struct buf *out)
{
    struct glm_field_doc f;
    const char *separator = "";
    buf_printf(out, "{\"format_version\": %d, \"fields\": [", OUTPUT_FORMAT);
    for (size_t i = 0; glm_schema_field(i, &f); i++) {
        if (!is_explained(text, f.path))
            continue;
        buf_str(out, separator);
        json_member(out, "{", "field", f.path);
        json_member(out, ", ", "value", f.value);
        buf_printf(out, ", \"required\": %s", f.required ? "true" : "false");
        json_member(out, ", ", "default", f.fallback);
        buf_str(out, ", \"words\": [");
        for (size_t w = 0; f.words != NULL && f.words[w] != NULL; w++)
            buf_printf(out, "%s\"%s\"", w > 0 ? ", " : "", f.words[w]);
        json_member(out, "], ", "help", f.help);
        buf_char(out, '}');
        separator = ", ";
    }
    buf_str(out, "]}\n");
}

static int run_explain(const void *options, const char *const *positional)
{
    const struct explain_options *o = options;
    struct glm_error err = {0};
    struct buf text = {0}, json = {0};
    int rc;
    if (glm_schema_explain(positional[0] == NULL ? "" : positional[0], &text, &err) != GLM_OK) {
        rc = fail(&o->common, &err);
    } else if (wants_json(&o->common)) {
        write_json(&text, &json);
        rc = print_result(&json);
    } else {
        rc = print_result(&text);
    }
    buf_release(&text);
    buf_release(&json);
    return rc;
}

const struct command command_explain = {
    .name = "explain",
    .arguments = "[FIELD]",
    .summary = "explain a field of the cluster file",
    .description = "Prints type, unit, range, default and meaning of a field or of a part with all "
                   "its fields;\n"
                   "without an argument, of every field.",
    .examples = "glmctl explain lanes.formats.kv\n"
                "glmctl explain nodes\n"
                "glmctl explain -o json",
    .options = explain_options,
    .options_size = sizeof(struct explain_options),
    .n_positional_max = 1,
    .run = run_explain,
};
