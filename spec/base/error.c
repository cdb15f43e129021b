/* SPDX-License-Identifier: Apache-2.0 */
/* Status texts and the recording of an error's first classification. */
#include "spec/base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#undef glm_fail

static const char *const status_texts[] = {
#define GLM_STATUS_TEXT(name, text) [name] = text,
    GLM_STATUS_MAP(GLM_STATUS_TEXT)
#undef GLM_STATUS_TEXT
};

const char *glm_status_text(enum glm_status status)
{
    size_t i = (size_t)status;
    if (i >= sizeof status_texts / sizeof status_texts[0])
        return "unknown status";
    return status_texts[i];
}

void glm_text_make_plain(char *text)
{
    for (char *p = text; *p != '\0'; p++)
        if (((unsigned char)*p < 0x20 && *p != '\n' && *p != '\t') || *p == 0x7F)
            *p = '?';
}

enum glm_status glm_fail(struct glm_error *err, enum glm_status status, const char *format, ...)
{
    if (err == NULL || err->status != GLM_OK)
        return status;
    err->status = status;
    err->hint[0] = '\0';
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    glm_text_make_plain(err->message);
    return status;
}

void glm_error_hint(struct glm_error *err, const char *format, ...)
{
    if (err == NULL)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(err->hint, sizeof err->hint, format, args);
    va_end(args);
}

_Noreturn void glm_bug(const char *file, int line, const char *text)
{
    fprintf(stderr, "%s:%d: bug: %s\n", file, line, text);
    abort();
}
