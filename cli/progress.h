/* SPDX-License-Identifier: Apache-2.0 */
/* One line of progress on stderr: rewritten in place on a terminal, else at most one line every
 * two seconds. */
#ifndef GLM_CLI_PROGRESS_H
#define GLM_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool terminal;
    double last_s;
    bool open; /* the cursor stands in a line that is not finished */
};

double progress_now_s(void);
void progress_init(struct progress *p);
void progress_show(struct progress *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Ends the line with this text. */
void progress_done(struct progress *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Ends the line when one is open. */
void progress_end(struct progress *p);

#endif
