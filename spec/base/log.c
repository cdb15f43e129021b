/* SPDX-License-Identifier: Apache-2.0 */
/* The log: a line is formatted in one buffer and written with one call, so that lines of threads
 * and of ranks that share a file do not mix. What peers and files say stands in messages: no byte
 * of theirs begins a line or steers a terminal. */
#include "spec/base/log.h"

#include <stdarg.h>
#include <stdbool.h>
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

/* Appends text to a line of `size` bytes, as far as it fits; control characters as \xHH. Those
 * above ASCII, 80 to 9f, are two bytes of UTF-8. */
static size_t add_escaped(char *line, size_t n, size_t size, const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
        bool control = *c < 0x20 || *c == 0x7f;
        bool pair = *c == 0xc2 && c[1] >= 0x80 && c[1] <= 0x9f;
        char escaped[12] = {(char)*c};
        size_t len = 1;
        if (pair)
            len = (size_t)snprintf(escaped, sizeof escaped, "\\x%02x\\x%02x", *c, c[1]);
        else if (control)
            len = (size_t)snprintf(escaped, sizeof escaped, "\\x%02x", *c);
        if (n + len > size)
            break;
        memcpy(line + n, escaped, len);
        n += len;
        c += pair;
    }
    return n;
}

void glm_log(enum glm_log_level level, const char *format, ...)
{
    if (level > log_limit)
        return;
    char line[2048], message[2048];
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
    if (vsnprintf(message, sizeof message, format, args) < 0)
        message[0] = '\0';
    va_end(args);
    n = add_escaped(line, n, sizeof line - 1, message);
    line[n++] = '\n';
    if (write(STDERR_FILENO, line, n) < 0)
        return;
}
