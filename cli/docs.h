/* SPDX-License-Identifier: Apache-2.0 */
/* What is printed about the command line elsewhere than in --help, all from the option tables and
 * the field table: the generated parts of man pages, and completions. `glmgen` writes them, a test
 * compares them with what is checked in. */
#ifndef GLM_CLI_DOCS_H
#define GLM_CLI_DOCS_H

#include "cli/options.h"

/* A man page with its generated parts made anew. A part starts at the line `.\" generated: WHAT`
 * and ends at `.\" end generated`; WHAT is one of
 *   synopsis COMMAND | options COMMAND | examples COMMAND | commands | fields
 * Errors: GLM_EINVAL naming the line of an unknown or open part. */
enum glm_status docs_page(const char *page, struct buf *out, struct glm_error *err);

void docs_bash(struct buf *out);
void docs_zsh(struct buf *out);
void docs_fish(struct buf *out);

/* A command by its name, or NULL. */
const struct command *docs_command(const char *name);

#endif
