/* SPDX-License-Identifier: Apache-2.0 */
/* Round tables of several streams, filled arguments (see the header). */
#include "tests/support/streams.h"

#include "kernels-templates/prelude.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *zeroed(size_t n, size_t size)
{
    void *p = calloc(n + 1, size);
    if (p == NULL)
        abort();
    return p;
}

int32_t test_extent(int32_t slot, int32_t i)
{
    return (slot * TEST_STREAM_EXTENTS + i) ^ 3; /* scattered, one to one */
}

size_t test_extents(size_t n_slots)
{
    return (n_slots * TEST_STREAM_EXTENTS + 7) / 8 * 8;
}

struct test_round *test_streams(const struct test_stream *s, size_t n, size_t n_padding)
{
    struct test_round *r = zeroed(1, sizeof *r);
    size_t n_rows = n_padding;
    for (size_t i = 0; i < n; i++)
        n_rows += (size_t)s[i].n_rows;
    r->rows = zeroed(n_rows, sizeof *r->rows);
    r->streams = zeroed(n, sizeof *r->streams);
    r->extents = zeroed(n * TEST_STREAM_EXTENTS, sizeof *r->extents);
    r->out_rows = zeroed(n_rows, sizeof *r->out_rows);
    int32_t row = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t first = (int32_t)(i * TEST_STREAM_EXTENTS);
        r->streams[i] = (struct glm_round_stream){
            .slot = s[i].slot,
            .version = s[i].version,
            .n_context = s[i].n_context,
            .first_row = row,
            .n_rows = s[i].n_rows,
            .n_commit = s[i].n_commit,
            .first_extent = first,
            .n_extents = TEST_STREAM_EXTENTS,
        };
        for (int32_t j = 0; j < TEST_STREAM_EXTENTS; j++)
            r->extents[first + j] = test_extent(s[i].slot, j);
        for (int32_t j = 0; j < s[i].n_rows; j++, row++) {
            r->rows[row] = (struct glm_row){(int32_t)i, s[i].n_context + j, 0, -1, j, row};
            r->out_rows[row] = row;
        }
    }
    r->round = (struct glm_round){
        .n_rows = (int32_t)n_rows,
        .n_streams = (int32_t)n,
        .n_out = row,
        .rows = r->rows,
        .streams = r->streams,
        .extents = r->extents,
        .out_rows = r->out_rows,
    };
    for (; row < (int32_t)n_rows; row++)
        r->rows[row] = (struct glm_row){-1, 0, 0, -1, 0, -1};
    return r;
}

void *test_acts(float *values, size_t n, const char *act)
{
    void *p = test_alloc(n * test_act_bytes(act));
    for (size_t i = 0; i < n; i++) {
        test_act_put(p, i, values[i], act);
        values[i] = test_act_get(p, i, act);
    }
    return p;
}

void *test_bf16s(float *values, size_t n)
{
    return test_acts(values, n, "bf16");
}

float *test_normals(struct test_random *r, size_t n, float scale, float shift)
{
    float *p = zeroed(n, sizeof *p);
    for (size_t i = 0; i < n; i++)
        p[i] = shift + scale * test_random_normal(r);
    return p;
}

double test_acts_distance(const void *got, size_t first, const double *want, size_t n,
                          const char *act)
{
    double error = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)test_act_get(got, first + i, act) - want[i];
        error += d * d;
        size += want[i] * want[i];
    }
    return isfinite(error) ? sqrt(error / (size > 0 ? size : 1)) : INFINITY;
}
