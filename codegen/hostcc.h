/* SPDX-License-Identifier: Apache-2.0 */
/* The host compiler: $GLM_HOST_CC with our flags, started without a shell inside a build folder
 * that holds kernel.c and its headers. */
#ifndef GLM_CODEGEN_HOSTCC_H
#define GLM_CODEGEN_HOSTCC_H

#include "spec/base/arena.h"
#include "spec/base/error.h"

#include <stdint.h>
#include <sys/types.h>

/* Owner: the building thread. Everything lives in the arena. */
struct glm_hostcc {
    const char *target;
    const char **argv;   /* compiler, flags, files; NULL at the end */
    const char *command; /* argv with spaces between, for logs and params.json */
    const char *version; /* all that `cc --version` prints */
};

/* What every host kernel is compiled with, up to NULL; -march=TARGET comes behind. */
extern const char *const glm_hostcc_flags[];

/* Reads the environment and asks the compiler for its version, once a build.
 * Errors: GLM_EKERNEL for a target that no host compiler builds, a compiler that cannot be run. */
enum glm_status glm_hostcc_init(const char *target, struct arena *arena, struct glm_hostcc *out,
                                struct glm_error *err);

/* Starts a compiler in `folder` (kernel.c → kernel.so, output to kernel.log). */
enum glm_status glm_hostcc_start(const struct glm_hostcc *cc, const char *folder, pid_t *pid,
                                 struct glm_error *err);

#endif
