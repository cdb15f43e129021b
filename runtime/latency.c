/* SPDX-License-Identifier: Apache-2.0 */
/* The bounds of the latency histograms and the counting. When something is observed is the
 * scheduler's; how it is shown, http_misc.c's. */
#include "runtime/latency.h"

static const double first_bounds[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                      1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
static const double next_bounds[] = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                     .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
static const double request_bounds[] = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                        30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};

#define N(bounds) (sizeof(bounds) / sizeof(bounds)[0])
_Static_assert(N(first_bounds) <= GLM_LATENCY_MAX_BOUNDS &&
                   N(next_bounds) <= GLM_LATENCY_MAX_BOUNDS &&
                   N(request_bounds) <= GLM_LATENCY_MAX_BOUNDS,
               "every family's bounds have room");

const struct glm_latency_family glm_latency_families[GLM_N_LATENCIES] = {
#define FAMILY(kind, family, text, bounds) [kind] = {family, text, bounds, N(bounds)},
    GLM_LATENCY_MAP(FAMILY)
#undef FAMILY
};

void glm_latency_observe(struct glm_latency_histogram all[GLM_N_LATENCIES], enum glm_latency kind,
                         double seconds)
{
    const struct glm_latency_family *f = &glm_latency_families[kind];
    uint32_t i = 0;
    seconds = seconds > 0 ? seconds : 0;
    while (i < f->n_bounds && seconds > f->bounds[i])
        i++;
    all[kind].counts[i]++;
    all[kind].sum_s += seconds;
}
