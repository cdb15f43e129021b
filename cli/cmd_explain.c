/* SPDX-License-Identifier: Apache-2.0 */
/* glmctl explain: a field of the cluster file, from the table that also validates it. */
#include "cli/common.h"

struct explain_options {
    struct common_options common;
};

static const struct opt_def explain_options[] = {OPTIONS_END};

static int run_explain(const void *options, const char *const *positional)
{
    const struct explain_options *o = options;
    struct glm_error err = {0};
    struct buf text = {0};
    int rc;
    if (glm_schema_explain(positional[0] == NULL ? "" : positional[0], &text, &err) != GLM_OK)
        rc = fail(&o->common, &err);
    else
        rc = print_result(&text);
    buf_release(&text);
    return rc;
}

const struct command command_explain = {
    .name = "explain",
    .arguments = "[FIELD]",
    .summary = "explain a field of the cluster file",
    .description = "Prints a field's type, unit, range, default and meaning, for example\n"
                   "`glmctl explain lanes.formats.kv`; without a field, all of them.",
    .options = explain_options,
    .options_size = sizeof(struct explain_options),
    .n_positional_max = 1,
    .run = run_explain,
};
