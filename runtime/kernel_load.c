/* SPDX-License-Identifier: Apache-2.0 */
/* Opens kernel objects. Owns the check of who could have written them and of the ABI version; which
 * kernels there are is the plan's, and that an object is the right one (its digest) is checked by
 * whoever chose the path (codegen/kernels.h). */
#include "runtime/kernel_load.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum glm_status check_owner(const char *kernel, const char *path, bool folder,
                                   struct glm_error *err)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return glm_fail(err, GLM_EKERNEL, "cannot load kernel '%s' from '%s': %s", kernel, path,
                        strerror(errno));
    bool kind = folder ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode);
    if (!kind)
        return glm_fail(err, GLM_EKERNEL, "cannot load kernel '%s': '%s' is not a %s", kernel, path,
                        folder ? "folder" : "file");
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return glm_fail(err, GLM_EKERNEL,
                        "cannot load kernel '%s': '%s' belongs to user %u, not to user %u", kernel,
                        path, (unsigned)st.st_uid, (unsigned)geteuid());
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return glm_fail(err, GLM_EKERNEL,
                        "cannot load kernel '%s': '%s' is writable by others (mode %03o)", kernel,
                        path, (unsigned)st.st_mode & 0777U);
    return GLM_OK;
}

enum glm_status glm_kernel_check_owner(const char *kernel, const char *path, struct glm_error *err)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (!slash || (size_t)(slash - path) + 2 > sizeof folder)
        return glm_fail(err, GLM_EKERNEL,
                        "cannot load kernel '%s' from '%s': the path names no folder", kernel,
                        path);
    snprintf(folder, sizeof folder, "%.*s/", (int)(slash - path), path);
    enum glm_status st = check_owner(kernel, folder, true, err);
    return st == GLM_OK ? check_owner(kernel, path, false, err) : st;
}

enum glm_status glm_kernel_load(const char *kernel, const char *path, struct glm_kernel_code *out,
                                struct glm_error *err)
{
    enum glm_status st = glm_kernel_check_owner(kernel, path, err);
    if (st != GLM_OK)
        return st;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return glm_fail(err, GLM_EKERNEL, "cannot load kernel '%s' from '%s': %s", kernel, path,
                        dlerror());
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
