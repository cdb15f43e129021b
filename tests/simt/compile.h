/* SPDX-License-Identifier: Apache-2.0 */
/* How a CUDA body is compiled for the CPU: the compiler and the flags that keep its bits. With
 * -I of the kernel templates and of this repository's root, whose tests/simt/simt.h then stands in
 * for device.cuh. */
#ifndef GLM_TESTS_SIMT_COMPILE_H
#define GLM_TESTS_SIMT_COMPILE_H

#include <stdlib.h>

#if defined(__x86_64__)
#define SIMT_MARCH "x86-64-v3"
#else
#define SIMT_MARCH "armv8.2-a"
#endif
#define SIMT_FLAGS                                                             \
    "-std=c++17 -march=" SIMT_MARCH " -ffp-contract=off -fno-math-errno -fPIC" \
    " -fvisibility=hidden -fsanitize=bounds -U_FORTIFY_SOURCE -DGLM_SIMT='\"tests/simt/simt.h\"'"

static inline const char *simt_compiler(void)
{
    const char *cxx = getenv("GLM_TEST_CXX");
    return cxx != NULL && cxx[0] != '\0' ? cxx : "c++";
}

#endif
