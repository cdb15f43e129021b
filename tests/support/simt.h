/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA bodies on the CPU: emitted as for a GPU, compiled against tests/simt in place of the GPU's
 * half of the prelude, run over the grid that the manifest gives for a bucket. With $GLM_TEST_GPU
 * set they run on that GPU instead (gpu.h), and `order` has no effect. */
#ifndef GLM_TESTS_SUPPORT_SIMT_H
#define GLM_TESTS_SUPPORT_SIMT_H

#include "tests/support/kernel.h"

struct test_device_kernel;

/* As test_kernel, act bf16. With `was`, that text of the emitted source, which must occur exactly
 * once, is replaced: a planted mistake. Never freed by the caller. */
struct test_device_kernel *test_device_kernel(const char *name, const char *params);
struct test_device_kernel *test_device_kernel_with(const char *name, const char *params,
                                                   const char *was, const char *is);
/* A body of the test's own, one block of 64 threads with 256 bytes of dynamic shared memory, the
 * prelude already included. */
struct test_device_kernel *test_device_body(const char *name, const char *body);
/* Can this machine run them? Needs a C++ compiler, $GLM_TEST_CXX or c++; not under
 * AddressSanitizer, which knows nothing of fibers. */
bool test_device_usable(void);

/* In a cmocka test of one argument, state: skips it, with the reason, where that is no. */
#define NEED_DEVICE()                                             \
    do {                                                          \
        (void)state;                                              \
        if (!test_device_usable()) {                              \
            print_message("# no C++ compiler, or a sanitizer\n"); \
            skip();                                               \
        }                                                         \
    } while (0)

/* Runs the launches of a bucket, whose maxima may be more than the round has; order: see
 * tests/simt/launch.h. Scratch is NaN before the first and guarded, tickets are zero before and
 * must be after each. NULL, or what went wrong. */
const char *test_device_run_in(const struct test_device_kernel *k, const struct glm_round *round,
                               const struct glm_cost_context *bucket, void *const *args,
                               size_t n_args, uint64_t order);
/* The same for n_rows rows, n_outs wanted ones and the round's streams, of kernels that do not ask
 * for the context. */
const char *test_device_run(const struct test_device_kernel *k, const struct glm_round *round,
                            uint32_t n_rows, uint32_t n_outs, void *const *args, size_t n_args,
                            uint64_t order);

#endif
