/* SPDX-License-Identifier: Apache-2.0 */
/* glmctl version: of the program and of the formats it writes. */
#include "cli/common.h"
#include "codegen/kernels.h"
#include "codegen/plan.h"

#include "runtime/control.h"

struct version_options {
    struct common_options common;
};

static const struct opt_def version_options[] = {
    COMMON_OUTPUT_OPTION,
    COMMON_COLOR_OPTION,
    OPTIONS_END,
};

static int run_version(const void *options, const char *const *positional)
{
    const struct version_options *o = options;
    (void)positional;
    struct buf text = {0};
    if (wants_json(&o->common))
        buf_printf(&text,
                   "{\"format_version\": %d, \"version\": \"" GLM_VERSION
                   "\", \"plan_format\": %d, \"control_version\": %d, \"host_target\": \"%s\"}\n",
                   OUTPUT_FORMAT, GLM_PLAN_FORMAT, GLM_CONTROL_VERSION, glm_host_target());
    else
        buf_printf(&text,
                   "glmctl " GLM_VERSION "\nplan format %d, control protocol %d, host target %s\n",
                   GLM_PLAN_FORMAT, GLM_CONTROL_VERSION, glm_host_target());
    int rc = print_result(&text);
    buf_release(&text);
    return rc;
}

const struct command command_version = {
    .name = "version",
    .arguments = "",
    .summary = "print versions",
    .description = "Prints the version of glmctl, of the plan format and of the control protocol.",
    .examples = "glmctl version -o json",
    .options = version_options,
    .options_size = sizeof(struct version_options),
    .n_positional_max = 0,
    .run = run_version,
};
