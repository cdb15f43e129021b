/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled host kernels: opening them and checking that they are ours and speak our ABI. */
#ifndef GLM_RUNTIME_KERNEL_LOAD_H
#define GLM_RUNTIME_KERNEL_LOAD_H

#include "kernels-templates/host_abi.h"
#include "spec/base/buf.h"
#include "spec/base/error.h"

struct glm_kernel_code {
    void *handle;
    glm_host_kernel run;
};

/* path: HOLDER/FOLDER/OBJECT. All three belong to this user or root and are writable by nobody
 * else (a sticky holder may be: /tmp); folder and object are no links. Between this check and the
 * loading nobody else can put another object there. Errors: GLM_EKERNEL naming kernel and path. */
enum glm_status glm_kernel_load(const char *kernel, const char *path, struct glm_kernel_code *out,
                                struct glm_error *err);
/* Its bytes, at most limit_bytes, under the same checks; appended to `out`. */
enum glm_status glm_kernel_read(const char *kernel, const char *path, size_t limit_bytes,
                                struct buf *out, struct glm_error *err);
void glm_kernel_unload(struct glm_kernel_code *k);

#endif
