/* SPDX-License-Identifier: Apache-2.0 */
/* Collecting diagnostics and rendering them: as text with the source line and a caret under the
 * span, or as JSON. Both show the same struct diag. Deciding what is wrong belongs to the callers.
 */
#include "spec/base/diag.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void diag_list_init(struct diag_list *list, struct arena *arena)
{
    *list = (struct diag_list){.arena = arena};
}

void diag_add(struct diag_list *list, enum diag_level level, struct src_span at, const char *id,
              const char *hint, const char *format, ...)
{
    if (level == DIAG_ERROR)
        list->n_errors++;
    /* A note whose diagnostic was dropped goes with it. */
    if (list->n_items == GLM_DIAG_MAX || (level == DIAG_NOTE && list->n_dropped > 0)) {
        list->n_dropped += level != DIAG_NOTE;
        return;
    }
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    glm_text_make_plain(text);
    const char *message = arena_strdup(list->arena, text);
    const char *kept_hint = hint == NULL ? NULL : arena_strdup(list->arena, hint);
    list->items[list->n_items++] = (struct diag){
        .level = level,
        .at = at,
        .id = id,
        .message = message != NULL ? message : "out of memory",
        .hint = kept_hint,
    };
}

/* Length of the line break at p, or 0: those that libyaml counts, so that lines agree with it. */
static size_t break_length(const char *p, size_t left)
{
    if (p[0] == '\r')
        return left > 1 && p[1] == '\n' ? 2 : 1;
    if (p[0] == '\n')
        return 1;
    if (left > 1 && memcmp(p, "\xC2\x85", 2) == 0)
        return 2;
    if (left > 2 && (memcmp(p, "\xE2\x80\xA8", 3) == 0 || memcmp(p, "\xE2\x80\xA9", 3) == 0))
        return 3;
    return 0;
}

static const char *find_line(const struct diag_list *list, uint32_t line, size_t *len)
{
    const char *p = list->source;
    size_t left = list->source_len;
    for (uint32_t at = 1; left > 0; at++) {
        size_t n = 0;
        size_t end = 0;
        while (n < left && (end = break_length(p + n, left - n)) == 0)
            n++;
        if (at == line) {
            *len = n;
            return p;
        }
        p += n + end;
        left -= n + end;
    }
    return NULL;
}

static bool starts_character(char c)
{
    return ((unsigned char)c & 0xC0) != 0x80;
}

/* The source line with its number, then the caret line. Tabs stay tabs in the padding, so that the
 * caret stands under its character however wide a tab is shown. */
static void render_source(const struct diag_list *list, struct src_span at, const char *on,
                          const char *off, struct buf *out)
{
    size_t len = 0;
    const char *line = find_line(list, at.line, &len);
    if (line == NULL || len > 400)
        return;
    buf_printf(out, "%6u | ", at.line);
    for (size_t i = 0; i < len; i++)
        buf_char(out, (unsigned char)line[i] < 0x20 && line[i] != '\t' ? ' ' : line[i]);
    buf_str(out, "\n       | ");
    size_t i = 0;
    for (uint32_t col = 1; i < len; i++) {
        if (!starts_character(line[i]))
            continue;
        if (col++ == at.col)
            break;
        buf_char(out, line[i] == '\t' ? '\t' : ' ');
    }
    buf_str(out, on);
    uint32_t n = 0;
    for (; i < len && n < at.len; i++) {
        if (starts_character(line[i])) {
            buf_char(out, '^');
            n++;
        }
    }
    if (n == 0)
        buf_char(out, '^');
    buf_printf(out, "%s\n", off);
}

static const char *const level_texts[] = {"error", "warning", "note"};
static const char *const level_colours[] = {"\033[1;31m", "\033[1;35m", "\033[1;36m"};

void diag_render_text(const struct diag_list *list, bool colour, struct buf *out)
{
    const char *off = colour ? "\033[0m" : "";
    const char *bold = colour ? "\033[1m" : "";
    for (size_t i = 0; i < list->n_items; i++) {
        const struct diag *d = &list->items[i];
        const char *on = colour ? level_colours[d->level] : "";
        bool placed = d->at.line > 0;
        buf_str(out, bold);
        if (d->at.file != NULL && placed)
            buf_printf(out, "%s:%u:%u: ", d->at.file, d->at.line, d->at.col);
        else if (d->at.file != NULL)
            buf_printf(out, "%s: ", d->at.file);
        buf_printf(out, "%s%s%s:%s %s", off, on, level_texts[d->level], off, d->message);
        if (d->level != DIAG_NOTE && d->id != NULL)
            buf_printf(out, " [%s]", d->id);
        buf_char(out, '\n');
        if (placed && list->source != NULL)
            render_source(list, d->at, on, off, out);
        if (d->hint != NULL)
            buf_printf(out, "       = hint: %s\n", d->hint);
    }
    if (list->n_dropped > 0)
        buf_printf(out, "and %zu more\n", list->n_dropped);
}

static void json_text(struct buf *out, const char *key, const char *text)
{
    buf_printf(out, ",\"%s\":", key);
    if (text == NULL)
        buf_str(out, "null");
    else
        buf_json_string(out, text, strlen(text));
}

void diag_render_json(const struct diag_list *list, struct buf *out)
{
    buf_char(out, '[');
    for (size_t i = 0; i < list->n_items; i++) {
        const struct diag *d = &list->items[i];
        buf_printf(out, "%s{\"level\":\"%s\"", i > 0 ? "," : "", level_texts[d->level]);
        json_text(out, "id", d->id);
        json_text(out, "message", d->message);
        json_text(out, "hint", d->hint);
        json_text(out, "file", d->at.file);
        buf_printf(out, ",\"line\":%u,\"column\":%u,\"length\":%u}", d->at.line, d->at.col,
                   d->at.len);
    }
    buf_char(out, ']');
}
