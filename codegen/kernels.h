/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of a plan: source emission, the compilers, the on-disk cache.
 * A cache entry is a folder TEMPLATE.<digest>/ of kernel.c or kernel.cu, the headers it includes,
 * kernel.so or kernel.cubin, kernel.log and params.json (what it was made from, what the compiler
 * says it costs, the digests of the files); <digest> covers source (origins, which are comments,
 * left out), headers, command line, target and compiler version (design 5). */
#ifndef GLM_CODEGEN_KERNELS_H
#define GLM_CODEGEN_KERNELS_H

#include "codegen/compiler.h"
#include "codegen/manifest.h"

/* Appends banner, one constant a line with its origin (manifest.h says which), `#line`, body.
 * GLM_ACT_F32 or GLM_ACT_BF16 is defined from `act`; CUDA bodies store bf16 alone. Same input, same
 * bytes: neither the plan's name of the kernel nor a rank is in them.
 * Errors: as glm_manifest_check; GLM_EKERNEL when the template's files are missing. */
enum glm_status glm_kernel_emit(const struct glm_manifest *m, const struct glm_plan_kernel *k,
                                enum glm_language language, const char *act, struct buf *out,
                                struct glm_error *err);

struct glm_kernel_build {
    const char *name; /* the plan's kernel */
    char digest[65];
    char path[512];  /* the object in the cache */
    bool compiled;   /* false: it was in the cache */
    bool unverified; /* a CUDA body that no GPU has passed as it is now (verified.h) */
    uint64_t object_bytes;
    struct glm_kernel_resources resources;
};

/* done of total after each compiler's end; total: the objects that the cache lacked (no call when
 * there is none); `name`: the plan's kernel that just finished. false: start no other compiler and
 * answer GLM_ECANCELED once those that run have ended. */
typedef bool (*glm_build_progress)(void *context, uint32_t done, uint32_t total, const char *name);

/* Builds every kernel of the plan that the cache under $GLM_CACHE_DIR lacks, n_jobs compilers at a
 * time. Host targets: $GLM_HOST_CC (default cc) and $GLM_HOST_CFLAGS (appended: sanitizers); sm_*:
 * NVRTC, $GLM_NVRTC names its library. An entry that is not ours, group- or world-writable, or
 * whose digest does not match its files is rebuilt or refused with GLM_EKERNEL, never loaded; a
 * kernel that spills more than its manifest allows is GLM_EKERNEL. builds: in plan order, in the
 * arena. */
enum glm_status glm_kernels_build(const struct glm_plan *p, uint32_t n_jobs, struct arena *arena,
                                  glm_build_progress progress, void *context,
                                  struct glm_kernel_build **builds, struct glm_error *err);

/* Before it is loaded: path (ENTRY/kernel.so or ENTRY/kernel.cubin) lies in an entry of that
 * digest, which is ours, writable by nobody else, and whose files have their recorded digests.
 * GLM_EKERNEL naming the path. */
enum glm_status glm_kernel_verify(const char *path, const char *digest, struct glm_error *err);

/* This machine's host target: "x86-64-v4", "x86-64-v3", "armv8.2-a"; "x86-64" or
 * "armv8-a" on a machine below those. */
const char *glm_host_target(void);

#endif
