/* SPDX-License-Identifier: Apache-2.0 */
/* The on-disk kernel cache. An entry is built in a temporary folder beside it, made durable and
 * renamed, so ranks may race and a crash leaves no half entry. Before an entry is answered, owner,
 * modes and digests are checked: an object somebody else could have written is never loaded.
 * What goes into an entry and its digest is decided in kernels.c. */
#include "codegen/cache.h"

#include "spec/base/digest.h"
#include "codegen/json_util.h"
#include "codegen/kernels.h"
#include "spec/base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PARAMS_MAX_BYTES = 256 * 1024, FILE_MAX_BYTES = 64 * 1024 * 1024, MAX_FILES = 64 };
#define STAGE_PREFIX ".stage."
enum { STAGE_MAX_AGE_S = 3600 };

/* Ours alone: our user's, and no group or other write bit. */
static enum glm_status check_owner(const char *path, const struct stat *st, struct glm_error *err)
{
    enum glm_status status;
    if (st->st_uid != geteuid())
        status = glm_fail(err, GLM_EKERNEL,
                          "cannot use kernel cache '%s': it belongs to user %u, "
                          "not to user %u",
                          path, (unsigned)st->st_uid, (unsigned)geteuid());
    else if ((st->st_mode & (S_IWGRP | S_IWOTH)) != 0)
        status = glm_fail(err, GLM_EKERNEL,
                          "cannot use kernel cache '%s': its mode %04o lets "
                          "others write to it",
                          path, (unsigned)st->st_mode & 07777);
    else
        return GLM_OK;
    glm_error_hint(err, "look at it, then: rm -r '%.220s'", path);
    return status;
}

enum glm_status glm_cache_open(struct arena *arena, const char **folder, struct glm_error *err)
{
    const char *own = getenv("GLM_CACHE_DIR"), *xdg = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME"), *path;
    if (own != NULL && own[0] != '\0')
        path = arena_strdup(arena, own);
    else if (xdg != NULL && xdg[0] == '/')
        path = arena_printf(arena, "%s/glmctl", xdg);
    else if (home != NULL && home[0] == '/')
        path = arena_printf(arena, "%s/.cache/glmctl", home);
    else
        return glm_fail(err, GLM_EKERNEL,
                        "cannot find the kernel cache: none of GLM_CACHE_DIR, XDG_CACHE_HOME and "
                        "HOME is set");
    if (path == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot open the kernel cache: out of memory");
    enum glm_status status = glm_make_folders(path, err);
    if (status != GLM_OK)
        return status;
    struct stat st;
    if (stat(path, &st) != 0)
        return glm_fail(err, GLM_EIO, "cannot open kernel cache '%s': %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return glm_fail(err, GLM_EIO, "cannot open kernel cache '%s': it is not a folder", path);
    status = check_owner(path, &st, err);
    if (status == GLM_OK)
        *folder = path;
    return status;
}

/* Path of a file in a folder, in a buffer the caller releases. */
static const char *join(struct buf *b, const char *folder, const char *file)
{
    buf_clear(b);
    buf_printf(b, "%s/%s", folder, file);
    return b->failed ? NULL : b->data;
}

/* Calls visit for each file name of a folder; stops at the first failure. */
typedef enum glm_status (*visit_file)(void *context, const char *path, const char *name,
                                      struct glm_error *err);
static enum glm_status each_file(const char *folder, visit_file visit, void *context,
                                 struct glm_error *err)
{
    DIR *dir = opendir(folder);
    if (dir == NULL)
        return glm_fail(err, GLM_EIO, "cannot list '%s': %s", folder, strerror(errno));
    struct buf path = {0};
    enum glm_status status = GLM_OK;
    const struct dirent *entry;
    while (status == GLM_OK && (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (join(&path, folder, entry->d_name) == NULL)
            status = glm_fail(err, GLM_ENOMEM, "cannot list '%s': out of memory", folder);
        else
            status = visit(context, path.data, entry->d_name, err);
    }
    buf_release(&path);
    closedir(dir);
    return status;
}

static enum glm_status check_file(void *context, const char *path, const char *name,
                                  struct glm_error *err)
{
    (void)context;
    (void)name;
    struct stat st;
    if (lstat(path, &st) != 0)
        return glm_fail(err, GLM_EIO, "cannot read '%s': %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) {
        enum glm_status status = glm_fail(
            err, GLM_EKERNEL, "cannot use kernel cache '%s': it is not a plain file", path);
        glm_error_hint(err, "look at it, then remove it");
        return status;
    }
    return check_owner(path, &st, err);
}

static enum glm_status file_digest(const char *path, char digest[65], struct glm_error *err)
{
    struct buf text = {0};
    enum glm_status status = glm_file_read(path, FILE_MAX_BYTES, &text, err);
    if (status == GLM_OK)
        status = glm_sha256_hex(buf_text(&text), text.len, digest, err);
    buf_release(&text);
    return status;
}

static bool plain_name(const char *name)
{
    return name[0] != '\0' && name[0] != '.' && strchr(name, '/') == NULL && strlen(name) < 100;
}

/* params.json says which digest each file had; false with a reason when one has not. */
static bool files_match(const char *entry, const cJSON *tree, const char *digest,
                        const char *object, char why[160])
{
    const cJSON *own = cJSON_GetObjectItemCaseSensitive(tree, "digest");
    const cJSON *files = cJSON_GetObjectItemCaseSensitive(tree, "files");
    snprintf(why, 160, "params.json is not what we write");
    if (!cJSON_IsString(own) || strcmp(own->valuestring, digest) != 0 || !cJSON_IsObject(files))
        return false;
    if (cJSON_GetObjectItemCaseSensitive(files, object) == NULL)
        return false;
    struct buf path = {0};
    bool match = true;
    for (const cJSON *file = files->child; match && file != NULL; file = file->next) {
        char found[65];
        if (!cJSON_IsString(file) || !plain_name(file->string) ||
            join(&path, entry, file->string) == NULL ||
            file_digest(path.data, found, NULL) != GLM_OK ||
            strcmp(found, file->valuestring) != 0) {
            snprintf(why, 160, "'%.100s' does not have its recorded digest", file->string);
            match = false;
        }
    }
    buf_release(&path);
    return match;
}

enum glm_status glm_cache_about(const char *entry, struct buf *text, struct glm_error *err)
{
    struct buf path = {0};
    enum glm_status status = GLM_ENOMEM;
    if (join(&path, entry, "params.json") == NULL)
        glm_fail(err, status, "cannot read '%s': out of memory", entry);
    else
        status = glm_file_read(path.data, PARAMS_MAX_BYTES, text, err);
    buf_release(&path);
    return status;
}

static bool entry_matches(const char *entry, const char *digest, const char *object, char why[160])
{
    struct buf text = {0};
    struct arena none;
    struct json_reader r;
    bool match = false;
    arena_init(&none, 0);
    json_reader_init(&r, "params.json", GLM_EKERNEL, &none, NULL);
    snprintf(why, 160, "params.json cannot be read");
    if (glm_cache_about(entry, &text, NULL) == GLM_OK) {
        cJSON *tree = json_parse(&r, buf_text(&text), text.len, PARAMS_MAX_BYTES);
        match = tree != NULL && files_match(entry, tree, digest, object, why);
        cJSON_Delete(tree);
    }
    buf_release(&text);
    return match;
}

enum glm_status glm_cache_check(const char *entry, const char *digest, const char *object,
                                bool *usable, struct glm_error *err)
{
    struct stat st;
    *usable = false;
    if (lstat(entry, &st) != 0) {
        if (errno == ENOENT)
            return GLM_OK;
        return glm_fail(err, GLM_EIO, "cannot read '%s': %s", entry, strerror(errno));
    }
    if (!S_ISDIR(st.st_mode)) {
        enum glm_status status =
            glm_fail(err, GLM_EKERNEL, "cannot use kernel cache '%s': it is not a folder", entry);
        glm_error_hint(err, "look at it, then: rm '%.220s'", entry);
        return status;
    }
    enum glm_status status = check_owner(entry, &st, err);
    if (status == GLM_OK)
        status = each_file(entry, check_file, NULL, err);
    if (status != GLM_OK)
        return status;
    char why[160];
    *usable = entry_matches(entry, digest, object, why);
    if (!*usable)
        glm_log(GLM_LOG_WARN, "kernel cache entry is not used entry=%s reason=\"%s\"", entry, why);
    return GLM_OK;
}

enum glm_status glm_cache_stage(const char *cache, const struct glm_cache_file *files,
                                uint32_t n_files, struct arena *arena, const char **stage,
                                struct glm_error *err)
{
    char *folder = arena_printf(arena, "%s/" STAGE_PREFIX "XXXXXX", cache);
    if (folder == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot build a kernel: out of memory");
    if (mkdtemp(folder) == NULL)
        return glm_fail(err, GLM_EIO, "cannot create a folder in kernel cache '%s': %s", cache,
                        strerror(errno));
    struct buf path = {0};
    enum glm_status status = GLM_OK;
    for (uint32_t i = 0; status == GLM_OK && i < n_files; i++) {
        if (join(&path, folder, files[i].name) == NULL)
            status = glm_fail(err, GLM_ENOMEM, "cannot build a kernel: out of memory");
        else
            status = glm_file_write(path.data, files[i].text, files[i].len, 0600, err);
    }
    buf_release(&path);
    if (status != GLM_OK)
        glm_cache_remove(folder);
    else
        *stage = folder;
    return status;
}

/* Takes away what the umask or the compiler allowed others, makes the file durable and lists it. */
static enum glm_status settle_file(void *context, const char *path, const char *name,
                                   struct glm_error *err)
{
    struct buf *list = context;
    char digest[65];
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    bool ok = fd >= 0 && fchmod(fd, 0600) == 0 && fsync(fd) == 0;
    int error = errno;
    if (fd >= 0)
        close(fd);
    if (!ok)
        return glm_fail(err, GLM_EIO, "cannot write '%s': %s", path, strerror(error));
    enum glm_status status = file_digest(path, digest, err);
    if (status == GLM_OK)
        buf_printf(list, "%s\n    \"%s\": \"%s\"", list->len == 0 ? "" : ",", name, digest);
    return status;
}

static void sync_folder(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (fsync(fd) != 0) /* the entry's digests are checked anyway before it is used */
        glm_log(GLM_LOG_TRACE, "cannot fsync folder=%s", folder);
    close(fd);
}

static enum glm_status move_into_place(const char *stage, const char *entry, const char *digest,
                                       const char *object, struct glm_error *err)
{
    for (unsigned attempt = 0; attempt < 3; attempt++) {
        if (rename(stage, entry) == 0)
            return GLM_OK;
        if (errno != EEXIST && errno != ENOTEMPTY)
            break;
        /* Somebody was faster, or the old entry is damaged: then it makes room. */
        bool usable = false;
        enum glm_status status = glm_cache_check(entry, digest, object, &usable, err);
        if (status != GLM_OK)
            return status;
        if (usable) {
            glm_cache_remove(stage);
            return GLM_OK;
        }
        glm_cache_remove(entry);
    }
    return glm_fail(err, GLM_EIO, "cannot rename '%s' to '%s': %s", stage, entry, strerror(errno));
}

enum glm_status glm_cache_publish(const char *stage, const char *entry, const char *digest,
                                  const char *object, const char *about, struct glm_error *err)
{
    struct buf list = {0}, text = {0}, path = {0};
    enum glm_status status = each_file(stage, settle_file, &list, err);
    buf_printf(&text, "{\n  \"digest\": \"%s\",\n%s  \"files\": {%s\n  }\n}\n", digest, about,
               buf_text(&list));
    if (status == GLM_OK &&
        (list.failed || text.failed || join(&path, stage, "params.json") == NULL))
        status = glm_fail(err, GLM_ENOMEM, "cannot keep a kernel: out of memory");
    if (status == GLM_OK)
        status = glm_file_write(path.data, text.data, text.len, 0600, err);
    if (status == GLM_OK) {
        sync_folder(stage);
        status = move_into_place(stage, entry, digest, object, err);
    }
    if (status == GLM_OK) {
        buf_clear(&path);
        buf_add(&path, entry, (size_t)(strrchr(entry, '/') - entry));
        sync_folder(buf_text(&path));
    }
    buf_release(&list);
    buf_release(&text);
    buf_release(&path);
    return status;
}

static enum glm_status remove_file(void *context, const char *path, const char *name,
                                   struct glm_error *err)
{
    (void)context;
    (void)name;
    (void)err;
    if (unlink(path) != 0)
        glm_log(GLM_LOG_WARN, "cannot remove path=%s error=\"%s\"", path, strerror(errno));
    return GLM_OK;
}

void glm_cache_remove(const char *folder)
{
    each_file(folder, remove_file, NULL, NULL);
    if (rmdir(folder) != 0 && errno != ENOENT)
        glm_log(GLM_LOG_WARN, "cannot remove folder=%s error=\"%s\"", folder, strerror(errno));
}

static enum glm_status sweep_stage(void *context, const char *path, const char *name,
                                   struct glm_error *err)
{
    const time_t *now = context;
    struct stat st;
    (void)err;
    if (strncmp(name, STAGE_PREFIX, strlen(STAGE_PREFIX)) == 0 && lstat(path, &st) == 0 &&
        S_ISDIR(st.st_mode) && st.st_uid == geteuid() && *now - st.st_mtime > STAGE_MAX_AGE_S)
        glm_cache_remove(path);
    return GLM_OK;
}

void glm_cache_sweep(const char *cache)
{
    time_t now = time(NULL);
    each_file(cache, sweep_stage, &now, NULL);
}
