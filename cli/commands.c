/* SPDX-License-Identifier: Apache-2.0 */
/* The table of commands, in the order of use. */
#include "cli/options.h"

extern const struct command command_plan, command_apply, command_status, command_logs, command_stop,
    command_restart, command_explain, command_kernels_dump, command_kernels_build, command_bench,
    command_version;

const struct command *const glm_commands[] = {
    &command_plan,          &command_apply,   &command_status,  &command_logs,
    &command_stop,          &command_restart, &command_explain, &command_kernels_dump,
    &command_kernels_build, &command_bench,   &command_version, NULL,
};
