/* SPDX-License-Identifier: Apache-2.0 */
/* What the benches share: medians, a clock, the prompts that bench/transformers_peer.py makes too,
 * one stream's prefill and decode over the lane of tests/support/pico.h. */
#ifndef GLM_BENCH_MEASURE_H
#define GLM_BENCH_MEASURE_H

#include "tests/support/pico.h"

#include <stddef.h>
#include <stdint.h>

double measure_seconds(void); /* monotonic */
/* Sorts v. */
double measure_median(double *v, size_t n);
double measure_least(const double *v, size_t n);

/* "64,512" → up to `most` numbers; exits with a usage line on anything else. */
uint32_t measure_list(const char *text, uint32_t *list, uint32_t most);

/* n token ids below the special ones; the same for the same n and seed in the Python peer. */
void measure_prompt(int32_t *ids, uint32_t n, uint32_t seed);

/* Runs a prompt through stream 0 and `n_reply - 1` greedy decode rounds after it. */
struct measure_reply {
    double prefill_s; /* to the first token */
    double *step_s;   /* [n_reply - 1], caller's */
    int32_t *tokens;  /* [n_reply], caller's */
};
void measure_stream(struct pico *p, const int32_t *ids, uint32_t n_prompt, uint32_t n_reply,
                    struct measure_reply *out);

#endif
