/* SPDX-License-Identifier: Apache-2.0 */
/* The log: a line is formatted in one buffer and written with one call, so that lines of threads
 * and of ranks that share a file do not mix. */
#include "spec/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int log_rank = -1;
static enum glm_log_level log_limit = GLM_LOG_INFO;
static const char *const level_names[] = {"error", "warn", "info", "trace"};

void glm_log_init(int rank)
{
    log_rank = rank;
    const char *wanted = getenv("GLM_LOG");
    for (unsigned i = 0; wanted != NULL && i < sizeof level_names / sizeof level_names[0]; i++)
        if (strcmp(wanted, level_names[i]) == 0)
            log_limit = (enum glm_log_level)i;
}

void glm_log(enum glm_log_level level, const char *format, ...)
{
    if (level > log_limit)
        return;
    char line[2048];
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t n = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &utc);
    n += (size_t)snprintf(line + n, sizeof line - n, ".%03ldZ ", now.tv_nsec / 1000000);
    if (log_rank >= 0)
        n += (size_t)snprintf(line + n, sizeof line - n, "rank=%d ", log_rank);
    n += (size_t)snprintf(line + n, sizeof line - n, "%s ", level_names[level]);
    va_list args;
    va_start(args, format);
    int len = vsnprintf(line + n, sizeof line - n - 1, format, args);
    va_end(args);
    if (len > 0)
        n += (size_t)len;
    if (n > sizeof line - 2)
        n = sizeof line - 2;
    line[n++] = '\n';
    if (write(STDERR_FILENO, line, n) < 0)
        return;
}
