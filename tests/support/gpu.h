/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA bodies on a real GPU: $GLM_TEST_GPU names its index, and tests/support/simt.c then runs
 * every body there in place of the emulator. Kernels go through NVRTC and the kernel cache as those
 * of a plan do. What breaks the test itself aborts with the reason: no driver, no NVRTC, no such
 * GPU. */
#ifndef GLM_TESTS_SUPPORT_GPU_H
#define GLM_TESTS_SUPPORT_GPU_H

#include "codegen/manifest.h"
#include "kernels-templates/round.h"

#include <stdbool.h>
#include <stddef.h>

bool test_gpu_chosen(void);
/* From here on, in this process and what it starts, GPUs are those of tests/fake, whose libraries
 * lie in the folder fake beside the program, argv[0]. Before the first use of either. */
void test_gpu_fake(const char *program);
/* GPU, driver and compiler on stdout, one a line. */
void test_gpu_print_facts(void);

struct test_gpu_kernel;
/* Of an emitted source. Never freed by the caller. */
struct test_gpu_kernel *test_gpu_kernel(const char *name, const char *text);

/* Launches its shape once plainly and once more, from the same inputs, as a captured graph, whose
 * bits must be the same; args[] (from test_alloc or null) then hold what it left, small ones with
 * the device's addresses in place of others' among them. Behind every
 * buffer lie guard bytes. Scratch is NaN before, tickets are zero before and must be after. NULL,
 * or what went wrong. */
const char *test_gpu_run(const struct test_gpu_kernel *k, const struct glm_launch_shape *shape,
                         const struct glm_round *round, void *const *args, size_t n_args);

#endif
