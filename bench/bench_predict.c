/* SPDX-License-Identifier: Apache-2.0 */
/* Predicted and measured decode of the demo's lanes: the plan's price at this machine's own figures
 * against rounds of the engine, one row a lane and context.
 *
 * Usage: bench_predict [CHECKPOINT [WORLDS [CONTEXTS [REPLY]]]] */
#include "bench/calibrate.h"
#include "bench/measure.h"

#include "runtime/threads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_POINTS = 16, PASSES = 5 };

static struct glm_price price(const struct glm_plan *p, const struct glm_model *m,
                              const struct glm_device_figures *f, double context, double threads)
{
    struct glm_price total = {0};
    struct glm_error err = {0};
    struct glm_cost_context at = {
        .R = 1, .O = 1, .C = context, .S = 1, .T = threads, .U = m->n_experts_per_token};
    if (glm_price_program(p, "decode", &at, f, &total, NULL, &err) != GLM_OK) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    return total;
}

/* Median seconds of the engine's decode program over `n` rounds after a prompt. */
static double decode_seconds(struct pico *p, uint32_t context, uint32_t n)
{
    int32_t *ids = calloc(context, sizeof *ids), token = 1;
    double *s = calloc(n, sizeof *s);
    const uint32_t stream = 0;
    if (!ids || !s)
        exit(1);
    measure_prompt(ids, context, 1);
    pico_admit(p, stream, context + n);
    pico_fill(p, stream, ids, context, pico_plan(p, 0)->limits.prefill_rows, NULL);
    for (uint32_t i = 0; i < n; i++) {
        token = ids[i % context];
        uint64_t before = glm_engine_stats(pico_engine(p, 0)).decode_ns;
        pico_decode(p, &stream, &token, NULL, 1);
        s[i] = 1e-9 * (double)(glm_engine_stats(pico_engine(p, 0)).decode_ns - before);
    }
    pico_finish(p, stream);
    double median = measure_median(s, n);
    free(ids);
    free(s);
    return median;
}

/* Figures of several calibrations: the median of each. */
static struct glm_device_figures typical(const struct glm_device_figures *all, uint32_t n)
{
    struct glm_device_figures f;
    double column[PASSES], *to = (double *)&f;
    for (size_t i = 0; i < sizeof f / sizeof(double); i++) {
        for (uint32_t k = 0; k < n; k++)
            memcpy(&column[k], (const double *)&all[k] + i, sizeof column[k]);
        to[i] = measure_median(column, n);
    }
    return f;
}
_Static_assert(sizeof(struct glm_device_figures) % sizeof(double) == 0, "doubles alone");

/* Calibration and rounds take turns, since a machine's speed drifts; both give their medians. */
static void lane(const char *checkpoint, uint32_t world, const uint32_t *contexts, uint32_t n,
                 uint32_t n_reply)
{
    uint32_t threads = world > glm_cores() ? 1 : glm_cores() / world;
    struct pico *p = pico_open(&(struct pico_options){
        .checkpoint = checkpoint, .world = world, .n_threads = threads, .eager = true});
    const struct glm_model *m = &pico_checkpoint(p)->model;
    const struct glm_plan *plan = pico_plan(p, 0);
    struct glm_device_figures all[PASSES], f;
    double measured[MAX_POINTS][PASSES];
    struct glm_price bytes = price(plan, m, NULL, contexts[0], threads);
    struct calibrate_options options = {.plan = plan,
                                        .n_threads = threads,
                                        .transport = "shm",
                                        .memory_bytes = (size_t)512 << 20,
                                        .cache_bytes = (size_t)bytes.read_bytes / 4096 * 4096};
    for (uint32_t pass = 0; pass < PASSES; pass++) {
        calibrate(&options, &all[pass]);
        calibrate_print(&all[pass]);
        for (uint32_t i = 0; i < n; i++)
            measured[i][pass] = decode_seconds(p, contexts[i], n_reply);
    }
    f = typical(all, PASSES);
    for (uint32_t i = 0; i < n; i++) {
        double seconds = measure_median(measured[i], PASSES);
        struct glm_price at = price(plan, m, &f, contexts[i] + n_reply / 2, threads);
        printf("predict,tp%u,%u,%u,%.2f,%u,%u,%.4f,%.4f,%.2f\n", world, threads, contexts[i],
               (at.read_bytes + at.write_bytes) / 1e6, at.n_kernels, at.n_exchanges,
               1e3 * at.seconds, 1e3 * seconds, at.seconds / seconds);
        fflush(stdout);
    }
    pico_close(p);
}

int main(int argc, char **argv)
{
    uint32_t worlds[MAX_POINTS], contexts[MAX_POINTS], n_reply = 200;
    const char *checkpoint = argc > 1 ? argv[1] : "clusters/demo/exl3";
    uint32_t n_worlds = measure_list(argc > 2 ? argv[2] : "1,2", worlds, MAX_POINTS);
    uint32_t n_contexts = measure_list(argc > 3 ? argv[3] : "64,512,2048", contexts, MAX_POINTS);
    if (argc > 4 && measure_list(argv[4], &n_reply, 1) != 1)
        return 64;
    puts("what,lane,threads,context,megabytes,kernels,exchanges,predicted_ms,measured_ms,ratio");
    for (uint32_t i = 0; i < n_worlds; i++)
        lane(checkpoint, worlds[i], contexts, n_contexts, n_reply);
    return 0;
}
