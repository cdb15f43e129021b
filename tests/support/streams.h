/* SPDX-License-Identifier: Apache-2.0 */
/* Round tables of several streams for kernel tests, and small helpers to fill and compare
 * arguments. */
#ifndef GLM_TESTS_STREAMS_H
#define GLM_TESTS_STREAMS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/kernel.h"

struct test_stream {
    int32_t slot, version, n_context, n_rows, n_commit;
};

enum { TEST_STREAM_EXTENTS = 2 };

/* Rows of n streams in order, then n_padding rows of none. Stream i owns the pool extents of
 * test_extent(slot, 0..1), a scattered set that depends on its slot alone. Release with
 * test_round_free. */
struct test_round *test_streams(const struct test_stream *s, size_t n, size_t n_padding);
int32_t test_extent(int32_t slot, int32_t i);
/* Extents that slots 0..n_slots-1 may name. */
size_t test_extents(size_t n_slots);

/* n floats as arrays of activations or bf16 hold them: in memory from test_alloc, and rounded in
 * place so that an oracle sees the same values. */
void *test_acts(float *values, size_t n, const char *act);
void *test_bf16s(float *values, size_t n);
/* Normal numbers times scale plus shift, from malloc. */
float *test_normals(struct test_random *r, size_t n, float scale, float shift);

/* Relative L2 distance of n stored activations from an oracle's row; a NaN is infinitely far. */
double test_acts_distance(const void *got, size_t first, const double *want, size_t n,
                          const char *act);

#endif
