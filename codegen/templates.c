/* SPDX-License-Identifier: Apache-2.0 */
/* Where template texts come from: the table that embed.sh put into the binary, or the folder named
 * by $GLM_TEMPLATES, whose files are read once and kept for the process's life, so that a text
 * once handed out never moves. What the texts mean is for manifest.c and emit.c. */
#include "codegen/templates.h"

#include "codegen/manifest.h"
#include "spec/base/buf.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct embedded_template {
    const char *name;
    const char *text;
    uint64_t len;
};
extern const struct embedded_template glm_templates[];
extern const uint64_t glm_n_templates;

/* A file of $GLM_TEMPLATES; path is the folder's name and the file's, as the key. */
struct read_template {
    struct read_template *next;
    char *path;
    struct buf text;
};
static pthread_mutex_t read_lock = PTHREAD_MUTEX_INITIALIZER;
static struct read_template *read_list; /* under read_lock; never freed */

static const char *templates_folder(void)
{
    const char *folder = getenv("GLM_TEMPLATES");
    return folder == NULL || folder[0] == '\0' ? NULL : folder;
}

/* Takes path. NULL when the file cannot be read. */
static struct read_template *read_file(char *path)
{
    struct read_template *t = calloc(1, sizeof *t);
    if (t == NULL || glm_file_read(path, GLM_TEMPLATE_MAX_BYTES, &t->text, NULL) != GLM_OK) {
        if (t != NULL)
            buf_release(&t->text);
        free(t);
        free(path);
        return NULL;
    }
    t->path = path;
    t->next = read_list;
    read_list = t;
    return t;
}

static const struct read_template *find_file(const char *folder, const char *file)
{
    struct buf path = {0};
    buf_printf(&path, "%s/%s", folder, file);
    if (path.failed)
        return NULL;
    pthread_mutex_lock(&read_lock);
    struct read_template *t = read_list;
    while (t != NULL && strcmp(t->path, path.data) != 0)
        t = t->next;
    if (t == NULL)
        t = read_file(path.data);
    else
        buf_release(&path);
    pthread_mutex_unlock(&read_lock);
    return t;
}

/* A name, not a path: a manifest or an #include must not lead out of the folder. */
static bool plain_name(const char *file)
{
    size_t len = strlen(file);
    return len > 0 && len < GLM_TEMPLATE_NAME_MAX && file[0] != '.' && strchr(file, '/') == NULL;
}

const char *glm_template_source(const char *file, size_t *len)
{
    const char *folder = templates_folder();
    if (!plain_name(file))
        return NULL;
    if (folder != NULL) {
        const struct read_template *t = find_file(folder, file);
        if (t == NULL)
            return NULL;
        *len = t->text.len;
        return buf_text(&t->text);
    }
    for (uint64_t i = 0; i < glm_n_templates; i++) {
        if (strcmp(glm_templates[i].name, file) != 0)
            continue;
        *len = (size_t)glm_templates[i].len;
        return glm_templates[i].text;
    }
    return NULL;
}

static bool ends_in(const char *name, const char *suffix)
{
    size_t n = strlen(name), s = strlen(suffix);
    return n > s && strcmp(name + n - s, suffix) == 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

enum { MAX_TEMPLATES = 1024 };

static enum glm_status add_name(const char *name, const char *suffix, struct arena *arena,
                                const char **names, uint32_t *n, struct glm_error *err)
{
    if (!ends_in(name, suffix) || !plain_name(name))
        return GLM_OK;
    if (*n == MAX_TEMPLATES)
        return glm_fail(err, GLM_EIO, "there are more than %d template files", MAX_TEMPLATES);
    names[*n] = arena_strdup(arena, name);
    if (names[*n] == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot list the templates: out of memory");
    *n += 1;
    return GLM_OK;
}

static enum glm_status list_folder(const char *folder, const char *suffix, struct arena *arena,
                                   const char **names, uint32_t *n, struct glm_error *err)
{
    DIR *dir = opendir(folder);
    if (dir == NULL)
        return glm_fail(err, GLM_EIO, "cannot list '%s' (GLM_TEMPLATES): %s", folder,
                        strerror(errno));
    enum glm_status status = GLM_OK;
    struct dirent *entry;
    while (status == GLM_OK && (entry = readdir(dir)) != NULL)
        status = add_name(entry->d_name, suffix, arena, names, n, err);
    closedir(dir);
    return status;
}

enum glm_status glm_template_names(const char *suffix, struct arena *arena, const char ***names,
                                   uint32_t *n, struct glm_error *err)
{
    const char **list = ARENA_ARRAY(arena, MAX_TEMPLATES, const char *);
    if (list == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot list the templates: out of memory");
    uint32_t count = 0;
    enum glm_status status = GLM_OK;
    const char *folder = templates_folder();
    if (folder != NULL)
        status = list_folder(folder, suffix, arena, list, &count, err);
    for (uint64_t i = 0; folder == NULL && status == GLM_OK && i < glm_n_templates; i++)
        status = add_name(glm_templates[i].name, suffix, arena, list, &count, err);
    if (status != GLM_OK)
        return status;
    qsort(list, count, sizeof *list, compare_names);
    *names = list;
    *n = count;
    return GLM_OK;
}
