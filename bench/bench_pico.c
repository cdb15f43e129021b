/* SPDX-License-Identifier: Apache-2.0 */
/* Prefill and greedy decode of one stream through the engine, in this process: what the machine
 * does without HTTP. bench/transformers_peer.py prints the same rows for the same prompts.
 *
 * Usage: bench_pico [CHECKPOINT [PROMPTS [REPLY [RUNS [FIRST_RUN [THREADS [WORLD]]]]]]] */
#include "bench/measure.h"

#include "runtime/threads.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_POINTS = 16, WARM_UP = 64 };

static uint32_t number(int argc, char **argv, int i, uint32_t otherwise)
{
    uint32_t v = otherwise;
    return i < argc && measure_list(argv[i], &v, 1) == 1 ? v : otherwise;
}

int main(int argc, char **argv)
{
    const char *checkpoint = argc > 1 ? argv[1] : "clusters/demo/exl3";
    uint32_t prompts[MAX_POINTS];
    uint32_t n_prompts = measure_list(argc > 2 ? argv[2] : "64,512,2048", prompts, MAX_POINTS);
    uint32_t n_reply = number(argc, argv, 3, 64), n_runs = number(argc, argv, 4, 3),
             first_run = number(argc, argv, 5, 1), world = number(argc, argv, 7, 1);
    uint32_t threads = number(argc, argv, 6, world > glm_cores() ? 1 : glm_cores() / world);
    struct pico *p = pico_open(
        &(struct pico_options){.checkpoint = checkpoint, .n_threads = threads, .world = world});
    const char *experts = pico_checkpoint(p)->experts_exl3 ? "exl3" : "bf16";
    double *steps = calloc(n_reply, sizeof *steps);
    int32_t *tokens = calloc(n_reply, sizeof *tokens);
    if (!steps || !tokens || n_reply < 2)
        return 1;
    struct measure_reply warm_up = {.step_s = steps, .tokens = tokens};
    int32_t warm_ids[WARM_UP];
    measure_prompt(warm_ids, WARM_UP, 0);
    measure_stream(p, warm_ids, WARM_UP, 2, &warm_up); /* as the peer: pages touched, code read */
    for (uint32_t i = 0; i < n_prompts; i++) {
        int32_t *ids = calloc(prompts[i], sizeof *ids);
        if (!ids)
            return 1;
        for (uint32_t run = first_run; run < first_run + n_runs; run++) {
            struct measure_reply reply = {.step_s = steps, .tokens = tokens};
            measure_prompt(ids, prompts[i], run);
            measure_stream(p, ids, prompts[i], n_reply, &reply);
            double step = measure_median(steps, n_reply - 1);
            printf("glmctl,%s,%u,%u,%u,%u,%u,%.3f,%.1f,%.4f,%.1f\n", experts, world, threads,
                   prompts[i], n_reply, run, 1e3 * reply.prefill_s, prompts[i] / reply.prefill_s,
                   1e3 * step, 1 / step);
            fflush(stdout);
        }
        free(ids);
    }
    free(steps);
    free(tokens);
    pico_close(p);
    return 0;
}
