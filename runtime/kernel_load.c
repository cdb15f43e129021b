/* SPDX-License-Identifier: Apache-2.0 */
/* Opens kernel objects. Owns the check of who could have written them and of the ABI version; which
 * kernels there are is the plan's, and that an object is the right one (its digest) is checked by
 * whoever chose the path (codegen/kernels.h).
 * The folder that holds the object's folder is opened first and everything is looked up from its
 * descriptor: only we can change what lies below it, so what is checked is what is loaded. */
#include "runtime/kernel_load.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* HOLDER: others may add to it (/tmp), but not rename or remove what is ours. */
enum what { HOLDER, FOLDER, OBJECT };

/* A path cut at its last two slashes: holder "/cache", folder "NAME.DIGEST", object "kernel.so". */
struct place {
    char holder[PATH_MAX], folder[NAME_MAX + 1], object[NAME_MAX + 1];
};

static bool cut(const char *path, struct place *p)
{
    const char *object = strrchr(path, '/');
    if (!object || object == path || strlen(path) >= sizeof p->holder)
        return false;
    const char *folder = memrchr(path, '/', (size_t)(object - path));
    int n_folder = (int)(object - (folder ? folder + 1 : path));
    if (n_folder == 0 || n_folder > NAME_MAX || strlen(object + 1) > NAME_MAX)
        return false;
    snprintf(p->object, sizeof p->object, "%s", object + 1);
    snprintf(p->folder, sizeof p->folder, "%.*s", n_folder, object - n_folder);
    snprintf(p->holder, sizeof p->holder, "%.*s", folder ? (int)(folder + 1 - path) : 1,
             folder ? path : ".");
    return strcmp(p->folder, "..") != 0;
}

static enum glm_status check_owner(const char *kernel, const char *path, const struct stat *st,
                                   enum what what, struct glm_error *err)
{
    if (what == OBJECT ? !S_ISREG(st->st_mode) : !S_ISDIR(st->st_mode))
        return glm_fail(err, GLM_EKERNEL, "cannot load kernel '%s': '%s' is not a %s", kernel, path,
                        what == OBJECT ? "file" : "folder");
    if (st->st_uid != geteuid() && st->st_uid != 0)
        return glm_fail(err, GLM_EKERNEL,
                        "cannot load kernel '%s': '%s' belongs to user %u, not to user %u", kernel,
                        path, (unsigned)st->st_uid, (unsigned)geteuid());
    bool sticky = what == HOLDER && (st->st_mode & S_ISVTX) != 0;
    if ((st->st_mode & (S_IWGRP | S_IWOTH)) != 0 && !sticky)
        return glm_fail(err, GLM_EKERNEL,
                        "cannot load kernel '%s': '%s' is writable by others (mode %03o)", kernel,
                        path, (unsigned)st->st_mode & 0777U);
    return GLM_OK;
}

/* Opens `name` (of the folder `at`) and judges what was opened; *fd is open on success alone.
 * shown: what the error calls it. Links are followed to the holder only. */
static enum glm_status open_ours(const char *kernel, int at, const char *name, const char *shown,
                                 enum what what, int *fd, struct glm_error *err)
{
    static const int flags[] = {[HOLDER] = O_DIRECTORY,
                                [FOLDER] = O_DIRECTORY | O_NOFOLLOW,
                                [OBJECT] = O_NONBLOCK | O_NOFOLLOW};
    struct stat st;
    int opened = openat(at, name, O_RDONLY | O_CLOEXEC | flags[what]);
    if (opened < 0 || fstat(opened, &st) != 0) {
        int error = errno;
        if (opened >= 0)
            close(opened);
        return glm_fail(err, GLM_EKERNEL, "cannot load kernel '%s' from '%s': %s", kernel, shown,
                        error == ELOOP ? "it is a symbolic link" : strerror(error));
    }
    enum glm_status status = check_owner(kernel, shown, &st, what, err);
    if (status == GLM_OK)
        *fd = opened;
    else
        close(opened);
    return status;
}

/* Folder and object are looked up from the holder's descriptor; name: the object from there. */
struct opened {
    int holder, folder, object;
    char name[2 * NAME_MAX + 64];
};

static void close_all(const struct opened *o)
{
    const int fds[] = {o->holder, o->folder, o->object};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* close_all after it, whatever it answers. */
static enum glm_status open_all(const char *kernel, const char *path, struct opened *o,
                                struct glm_error *err)
{
    struct place p;
    char shown[PATH_MAX + 8];
    *o = (struct opened){-1, -1, -1, ""};
    if (!cut(path, &p))
        return glm_fail(err, GLM_EKERNEL,
                        "cannot load kernel '%s' from '%s': the path names no folder", kernel,
                        path);
    snprintf(shown, sizeof shown, "%.*s", (int)(strrchr(path, '/') - path), path);
    enum glm_status st = open_ours(kernel, AT_FDCWD, p.holder, p.holder, HOLDER, &o->holder, err);
    if (st == GLM_OK)
        st = open_ours(kernel, o->holder, p.folder, shown, FOLDER, &o->folder, err);
    if (st == GLM_OK)
        st = open_ours(kernel, o->folder, p.object, path, OBJECT, &o->object, err);
    snprintf(o->name, sizeof o->name, "/proc/self/fd/%d/%s/%s", o->holder, p.folder, p.object);
    return st;
}

enum glm_status glm_kernel_read(const char *kernel, const char *path, size_t limit_bytes,
                                struct buf *out, struct glm_error *err)
{
    struct opened o;
    enum glm_status st = open_all(kernel, path, &o, err);
    if (st == GLM_OK)
        st = glm_file_read(o.name, limit_bytes, out, err);
    close_all(&o);
    return st;
}

/* The loader takes a name, not a descriptor, and answers a name that it knows with the object that
 * it has: the folder's name tells objects apart, a descriptor's number would be used again. */
enum glm_status glm_kernel_load(const char *kernel, const char *path, struct glm_kernel_code *out,
                                struct glm_error *err)
{
    struct opened o;
    void *handle = NULL;
    enum glm_status st = open_all(kernel, path, &o, err);
    if (st == GLM_OK && !(handle = dlopen(o.name, RTLD_NOW | RTLD_LOCAL)))
        st = glm_fail(err, GLM_EKERNEL, "cannot load kernel '%s' from '%s': %s", kernel, path,
                      dlerror());
    close_all(&o);
    if (st != GLM_OK)
        return st;
    const uint32_t *abi = dlsym(handle, GLM_HOST_ABI_SYMBOL);
    glm_host_kernel run;
    /* A function pointer out of an object pointer: POSIX has dlsym work so, C has no cast for it.
     */
    *(void **)&run = dlsym(handle, GLM_HOST_KERNEL_SYMBOL);
    if (abi && *abi == GLM_HOST_ABI_VERSION && run) {
        *out = (struct glm_kernel_code){.handle = handle, .run = run};
        return GLM_OK;
    }
    if (!abi || !run)
        st = glm_fail(err, GLM_EKERNEL, "cannot load kernel '%s' from '%s': it has no symbol '%s'",
                      kernel, path, abi ? GLM_HOST_KERNEL_SYMBOL : GLM_HOST_ABI_SYMBOL);
    else
        st = glm_fail(err, GLM_EKERNEL,
                      "cannot load kernel '%s' from '%s': found ABI version %u, want %d", kernel,
                      path, *abi, GLM_HOST_ABI_VERSION);
    dlclose(handle);
    return st;
}

void glm_kernel_unload(struct glm_kernel_code *k)
{
    if (k && k->handle)
        dlclose(k->handle);
    if (k)
        *k = (struct glm_kernel_code){0};
}
