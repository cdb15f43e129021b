/* SPDX-License-Identifier: Apache-2.0 */
/* Progress lines; knows nothing of what makes progress. */
#include "cli/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const double EVERY_S = 2.0;

double progress_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void progress_init(struct progress *p)
{
    const char *term = getenv("TERM");
    *p = (struct progress){
        .terminal = isatty(STDERR_FILENO) && term != NULL && strcmp(term, "dumb") != 0,
        .last_s = progress_now_s(),
    };
}

void progress_show(struct progress *p, const char *format, ...)
{
    const double now = progress_now_s();
    if (!p->terminal && now - p->last_s < EVERY_S)
        return;
    p->last_s = now;
    va_list args;
    va_start(args, format);
    if (p->terminal)
        fputs("\r\033[K", stderr);
    vfprintf(stderr, format, args);
    if (!p->terminal)
        fputc('\n', stderr);
    va_end(args);
    fflush(stderr);
    p->open = p->terminal;
}

void progress_done(struct progress *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (p->open)
        fputs("\r\033[K", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    p->open = false;
}

void progress_end(struct progress *p)
{
    if (p->open)
        fputs("\r\033[K", stderr);
    p->open = false;
}
