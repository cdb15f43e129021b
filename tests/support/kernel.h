/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel tests: one kernel from template, parameters and act, compiled, loaded and run on n threads
 * over given arguments and a round table. */
#ifndef GLM_TESTS_KERNEL_H
#define GLM_TESTS_KERNEL_H

#include "codegen/manifest.h"
#include "kernels-templates/host_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How to compile; NULL fields: $GLM_HOST_CC or cc, this machine's target. */
struct test_build {
    const char *cc;     /* "gcc", "clang" */
    const char *target; /* "x86-64-v3", "x86-64-v4", "armv8.2-a" */
};

struct test_kernel;

/* Kernel of template `name` with parameters "N=64 K=128 FORM=bf16 EPS=1e-5" and act "f32" or
 * "bf16". Compiled once a set of parameters and kept in build/test-kernels by the digest of its
 * source. Fails the test with the compiler's output when it cannot be built. Never freed by the
 * caller. */
struct test_kernel *test_kernel(const char *name, const char *params, const char *act);
struct test_kernel *test_kernel_with(const struct test_build *build, const char *name,
                                     const char *params, const char *act);
/* A body of the tests' own: `path`, constants "BITS=4 CODEBOOK_mcg=1", no scratch. */
struct test_kernel *test_kernel_file(const struct test_build *build, const char *path,
                                     const char *constants, const char *act);
/* Can this machine compile with and run that build? */
bool test_build_usable(const struct test_build *build);
const char *test_host_target(void);

enum { TEST_MAX_PARAMS = 48 };
const struct glm_manifest *test_manifest(const char *name);
/* "N=64 FORM=bf16 EPS=1e-5", which is cut into pieces, as a plan kernel's parameters; their number.
 */
uint32_t test_params(const struct glm_manifest *m, char *text,
                     struct glm_plan_param params[TEST_MAX_PARAMS]);

/* An object made of a generated source and kept by the digest of all that goes into it. */
struct test_object {
    const char *name, *suffix; /* of the source: ".c" */
    const char *command;       /* the compiler and its flags; source and result come after it */
    const char *patterns[4];   /* files that the source may include */
};
uint64_t test_object_key(const struct test_object *o, const char *text);
/* Compiled unless it is there. */
void test_object_make(const struct test_object *o, const char *text, char path[256]);
/* The same, then loaded; never closed. */
void *test_object_open(const struct test_object *o, const char *text);

/* Runs it on n_threads threads. Scratch is what the manifest asks for at the round's rows, filled
 * with NaN and guarded. A call that takes longer than a minute in the barrier fails. */
void test_kernel_run(const struct test_kernel *k, const struct glm_round *round, void *const *args,
                     uint32_t n_threads);

/* A kept set of threads, for benches: the time is that of the run alone. */
struct test_threads;
struct test_threads *test_threads_new(uint32_t n_threads);
void test_threads_free(struct test_threads *t);
/* Seconds of one run, of the processor's time when there is one thread (others may use the
 * machine); scratch from test_kernel_scratch. */
double test_threads_run(struct test_threads *t, const struct test_kernel *k,
                        const struct glm_round *round, void *const *args, void *scratch);
size_t test_kernel_scratch(const struct test_kernel *k, const struct glm_round *round);

/* Memory whose every byte is 0xff (NaN as f32, bf16 and f16; -1 as i32), 64-byte aligned, with
 * guard bytes behind it that test_release checks. */
void *test_alloc(size_t bytes);
/* The allocation that p lies in, and what it was asked for. */
void *test_alloc_around(const void *p, size_t *bytes);
void test_release(void *p);
#ifndef test_free /* cmocka has a macro of this name for its own heap */
void test_free(void *p);
#endif
/* Compares bytes; fails naming `what` and the first differing offset. */
void test_same_bytes(const void *a, const void *b, size_t bytes, const char *what);

/* A round of n_rows rows of one stream at positions 0.., all rows wanted. Release with
 * test_round_free. Fields may be changed by the test. */
struct test_round {
    struct glm_round round;
    struct glm_row *rows;
    struct glm_round_stream *streams;
    int32_t *extents, *out_rows;
};
struct test_round *test_round(uint32_t n_rows);
void test_round_free(struct test_round *r);

/* Deterministic numbers. */
struct test_random {
    uint64_t state;
};
uint64_t test_random_u64(struct test_random *r);
float test_random_uniform(struct test_random *r, float low, float high);
float test_random_normal(struct test_random *r); /* sum of twelve uniforms minus 6 */

/* act storage: "f32" or "bf16"; elements as floats. */
size_t test_act_bytes(const char *act);
void test_act_put(void *p, size_t i, float value, const char *act);
float test_act_get(const void *p, size_t i, const char *act);

/* Relative L2 distance of a row from its oracle. */
double test_relative_l2(const float *got, const double *want, size_t n);

#endif
