/* SPDX-License-Identifier: Apache-2.0 */
/* Clock, medians, prompts and one measured stream. Owns no figure: what is printed is each bench's.
 */
#include "bench/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { N_IDS = 2000 }; /* below pico's special tokens */

double measure_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double measure_median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, compare);
    return n == 0 ? 0 : n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

double measure_least(const double *v, size_t n)
{
    double least = n > 0 ? v[0] : 0;
    for (size_t i = 1; i < n; i++)
        least = v[i] < least ? v[i] : least;
    return least;
}

uint32_t measure_list(const char *text, uint32_t *list, uint32_t most)
{
    uint32_t n = 0;
    for (const char *at = text; *at && n < most;) {
        char *end;
        unsigned long v = strtoul(at, &end, 10);
        if (end == at || v == 0 || v > 1000000 || (*end && *end != ',')) {
            fprintf(stderr, "'%s' is not a list of numbers with commas\n", text);
            exit(64);
        }
        list[n++] = (uint32_t)v;
        at = *end ? end + 1 : end;
    }
    return n;
}

void measure_prompt(int32_t *ids, uint32_t n, uint32_t seed)
{
    uint32_t state = seed * 2654435761u + 1;
    for (uint32_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        ids[i] = (int32_t)(((uint64_t)state * N_IDS) >> 32);
    }
}

void measure_stream(struct pico *p, const int32_t *ids, uint32_t n_prompt, uint32_t n_reply,
                    struct measure_reply *out)
{
    const uint32_t stream = 0, slice = pico_plan(p, 0)->limits.prefill_rows;
    struct glm_draw greedy = pico_greedy();
    pico_admit(p, stream, n_prompt + n_reply);
    double start = measure_seconds();
    out->tokens[0] = pico_fill(p, stream, ids, n_prompt, slice, &greedy);
    out->prefill_s = measure_seconds() - start;
    for (uint32_t i = 1; i < n_reply; i++) {
        out->tokens[i] = out->tokens[i - 1];
        start = measure_seconds();
        pico_decode(p, &stream, &out->tokens[i], &greedy, 1);
        out->step_s[i - 1] = measure_seconds() - start;
    }
    pico_finish(p, stream);
}
