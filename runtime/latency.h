/* SPDX-License-Identifier: Apache-2.0 */
/* How long requests take: histograms with fixed bounds, in the intervals and buckets of vLLM, so
 * that its dashboards read them. Observing allocates nothing. */
#ifndef GLM_RUNTIME_LATENCY_H
#define GLM_RUNTIME_LATENCY_H

#include <stdint.h>

enum { GLM_LATENCY_MAX_BOUNDS = 24 };

#define GLM_LATENCY_MAP(X)                                                                       \
    X(GLM_LATENCY_FIRST, "time_to_first_token_seconds", "arrival to first token", first_bounds)  \
    X(GLM_LATENCY_NEXT, "inter_token_latency_seconds", "token to the next of a reply",           \
      next_bounds)                                                                               \
    X(GLM_LATENCY_TOTAL, "e2e_request_latency_seconds", "arrival to last token", request_bounds) \
    X(GLM_LATENCY_QUEUE, "request_queue_time_seconds", "arrival to admission", request_bounds)   \
    X(GLM_LATENCY_PREFILL, "request_prefill_time_seconds", "admission to first token",           \
      request_bounds)                                                                            \
    X(GLM_LATENCY_DECODE, "request_decode_time_seconds", "first token to last", request_bounds)  \
    X(GLM_LATENCY_INFERENCE, "request_inference_time_seconds", "admission to last token",        \
      request_bounds)
enum glm_latency {
#define GLM_LATENCY_ENUM(name, family, help, bounds) name,
    GLM_LATENCY_MAP(GLM_LATENCY_ENUM)
#undef GLM_LATENCY_ENUM
        GLM_N_LATENCIES
};

struct glm_latency_family {
    const char *name, *help; /* without a prefix */
    const double *bounds;    /* ascending upper ends, inclusive */
    uint32_t n_bounds;
};
extern const struct glm_latency_family glm_latency_families[GLM_N_LATENCIES];

struct glm_latency_histogram {
    uint64_t counts[GLM_LATENCY_MAX_BOUNDS + 1]; /* by bound, then what lies above all */
    double sum_s;
};

/* What is negative (a clock that was not read) counts as 0. */
void glm_latency_observe(struct glm_latency_histogram all[GLM_N_LATENCIES], enum glm_latency kind,
                         double seconds);

#endif
