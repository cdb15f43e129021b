/* SPDX-License-Identifier: Apache-2.0 */
/* Ctrl-C and its kin: they end a command that only looks at once, with 128 + the signal's number;
 * one that is changing something finishes the step and puts things in order first. */
#ifndef GLM_CLI_SIGNALS_H
#define GLM_CLI_SIGNALS_H

#include "spec/base/error.h"

#include <stdbool.h>

/* SIGINT, SIGTERM and SIGHUP end the process at once. */
void signals_init(void);
/* From here on they are remembered. */
void signals_defer(void);
bool signals_pending(void);
/* GLM_ECANCELED when one is pending, saying what was being done. */
enum glm_status signals_check(const char *doing, struct glm_error *err);
/* 128 + the pending signal's number. */
int signals_exit_status(void);

#endif
