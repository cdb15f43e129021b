/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled host kernels: opening them and checking that they are ours and speak our ABI. */
#ifndef GLM_RUNTIME_KERNEL_LOAD_H
#define GLM_RUNTIME_KERNEL_LOAD_H

#include "kernels-templates/host_abi.h"
#include "spec/base/error.h"

struct glm_kernel_code {
    void *handle;
    glm_host_kernel run;
};

/* The file at path, which names a folder, and that folder are this user's (or root's) and writable
 * by nobody else. GLM_EKERNEL naming kernel and path. */
enum glm_status glm_kernel_check_owner(const char *kernel, const char *path, struct glm_error *err);

/* path: a kernel.so with a folder in its name, owned by this user (or root) and writable by nobody
 * else, and so is its folder. Errors: GLM_EKERNEL naming kernel and path. */
enum glm_status glm_kernel_load(const char *kernel, const char *path, struct glm_kernel_code *out,
                                struct glm_error *err);
void glm_kernel_unload(struct glm_kernel_code *k);

#endif
