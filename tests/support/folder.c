/* SPDX-License-Identifier: Apache-2.0 */
/* Temporary folders for tests: made, filled, read and removed, without a shell. */
#include "tests/support/folder.h"

#include "spec/base/buf.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void give_up(const char *what, const char *path)
{
    fprintf(stderr, "test support: cannot %s '%s'\n", what, path);
    abort();
}

char *folder_new(void)
{
    const char *root = getenv("TMPDIR");
    char path[512];
    snprintf(path, sizeof path, "%.400s/glm-test-XXXXXX", root == NULL ? "/tmp" : root);
    if (mkdtemp(path) == NULL)
        give_up("create", path);
    return strdup(path);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void folder_remove(char *folder)
{
    if (folder != NULL)
        nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(folder);
}

const char *folder_path(const char *folder, const char *file)
{
    static char paths[4][1024];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, file);
    return path;
}

void folder_write(const char *folder, const char *file, const char *text)
{
    const char *path = folder_path(folder, file);
    if (glm_file_write(path, text, strlen(text), 0644, NULL) != GLM_OK)
        give_up("write", path);
}

char *folder_read(const char *folder, const char *file, size_t *len)
{
    struct buf text = {0};
    if (glm_file_read(folder_path(folder, file), 64 * 1024 * 1024, &text, NULL) != GLM_OK) {
        buf_release(&text);
        return NULL;
    }
    if (len != NULL)
        *len = text.len;
    return text.data;
}
