/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel compilers share: the host compiler (hostcc.c) and NVRTC (nvrtc.c) each fill one
 * struct glm_backend, and kernels.c drives whichever takes a plan's target. */
#ifndef GLM_CODEGEN_COMPILER_H
#define GLM_CODEGEN_COMPILER_H

#include "codegen/cache.h"

/* What the compiler says a kernel costs; a host compiler says nothing. */
struct glm_kernel_resources {
    bool known;
    uint32_t registers;                                        /* of a thread */
    uint32_t shared_bytes;                                     /* static, of a block */
    uint32_t stack_bytes, spill_store_bytes, spill_load_bytes; /* of a thread */
};

/* One build's compiler. Owner: the building thread, read by those that compile. All in the arena.
 */
struct glm_compiler {
    const struct glm_backend *backend;
    const char *target;
    const char *name;    /* "cc", "NVRTC 13.0": who failed */
    const char *command; /* its options as one text: in logs, params.json and the digest */
    const char *version; /* whatever tells two versions apart */
    const void *state;   /* the back end's own */
};

struct glm_backend {
    enum glm_language language;  /* of the template body that it compiles */
    const char *targets;         /* for people: "x86-64, …" */
    const char *source, *object; /* file names in a cache entry */
    bool (*takes)(const char *target);
    /* Finds the compiler and its version, once a build. GLM_EKERNEL, with what to install. */
    enum glm_status (*init)(const char *target, struct arena *arena, struct glm_compiler *out,
                            struct glm_error *err);
    /* source → object in `folder`, which holds the files; output to its kernel.log. Blocks; any
     * number of threads at once. Errors: GLM_EKERNEL, who failed and how, without the output. */
    enum glm_status (*compile)(const struct glm_compiler *c, const char *folder,
                               const struct glm_cache_file *files, uint32_t n_files,
                               struct glm_kernel_resources *resources, struct glm_error *err);
};

extern const struct glm_backend glm_backend_host, glm_backend_cuda;

/* What every host kernel is compiled with, up to NULL; -march=TARGET comes behind. */
extern const char *const glm_hostcc_flags[];

/* GLM_EKERNEL naming the targets that there are. */
enum glm_status glm_backend_find(const char *target, const struct glm_backend **out,
                                 struct glm_error *err);

#endif
