/* SPDX-License-Identifier: Apache-2.0 */
/* Follows the #include lines of kernel sources (see the header). */
#include "codegen/includes.h"

#include "codegen/templates.h"

#include <string.h>

struct list {
    const char *kernel;
    struct arena *arena;
    struct glm_cache_file *files;
    uint32_t n, max;
    struct glm_error *err;
};

/* The quoted name of an #include line that starts at text, or false. */
static bool include_name(const char *text, const char *end, char name[100])
{
    static const char word[] = "include";
    while (text < end && (*text == ' ' || *text == '\t'))
        text++;
    if (text == end || *text++ != '#')
        return false;
    while (text < end && (*text == ' ' || *text == '\t'))
        text++;
    if ((size_t)(end - text) < sizeof word || memcmp(text, word, sizeof word - 1) != 0)
        return false;
    text += sizeof word - 1;
    while (text < end && (*text == ' ' || *text == '\t'))
        text++;
    if (text == end || *text++ != '"')
        return false;
    const char *close = memchr(text, '"', (size_t)(end - text));
    size_t len = close == NULL ? 0 : (size_t)(close - text);
    if (len == 0 || len >= 100)
        return false;
    memcpy(name, text, len);
    name[len] = '\0';
    return true;
}

static enum glm_status add_include(struct list *l, const char *from, const char *name)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (strcmp(l->files[i].name, name) == 0)
            return GLM_OK;
    if (l->n == l->max)
        return glm_fail(l->err, GLM_EKERNEL, "cannot build kernel '%s': more than %u headers",
                        l->kernel, l->max - 1);
    struct glm_cache_file *file = &l->files[l->n];
    file->text = glm_template_source(name, &file->len);
    if (file->text == NULL)
        return glm_fail(l->err, GLM_EKERNEL,
                        "cannot build kernel '%s': '%s' includes '%s', which is no template file",
                        l->kernel, from, name);
    file->name = arena_strdup(l->arena, name);
    if (file->name == NULL)
        return glm_fail(l->err, GLM_ENOMEM, "cannot build the kernels: out of memory");
    l->n++;
    return GLM_OK;
}

/* The list grows while it is walked. */
enum glm_status glm_includes_add(const char *kernel, struct arena *arena,
                                 struct glm_cache_file *files, uint32_t *n, uint32_t max,
                                 struct glm_error *err)
{
    struct list l = {kernel, arena, files, *n, max, err};
    for (uint32_t i = 0; i < l.n; i++) {
        const char *text = files[i].text, *end = text + files[i].len;
        while (text < end) {
            const char *line_end = memchr(text, '\n', (size_t)(end - text));
            char name[100];
            line_end = line_end == NULL ? end : line_end;
            if (include_name(text, line_end, name)) {
                enum glm_status status = add_include(&l, files[i].name, name);
                if (status != GLM_OK)
                    return status;
            }
            text = line_end < end ? line_end + 1 : end;
        }
    }
    *n = l.n;
    return GLM_OK;
}
