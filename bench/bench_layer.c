/* SPDX-License-Identifier: Apache-2.0 */
/* One layer of the published model at full size, KDA and MoE, with made-up weights through the
 * whole path: checkpoint, plan, kernels, engine. Against the read bandwidth of this machine and,
 * with EXL3 experts, against the lower of it and the codec alone, all in the same run. Dense
 * matrices are bf16; a few experts stand for all, since only those picked are read.
 *
 * Usage: bench_layer [ROWS [N_EXPERTS [ROUNDS]]] */
#include "bench/calibrate.h"
#include "bench/measure.h"
#include "bench/synthesis.h"

#include "runtime/threads.h"
#include "tests/support/pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_POINTS = 8, N_VOCAB = 2048, CONTEXT = 64, WINDOW = 2048 };

static struct glm_model layer_geometry(uint32_t n_experts)
{
    struct glm_model m = synthesis_flash();
    m.n_layers = 1;
    m.attention[0] = GLM_ATTENTION_KDA;
    m.ffn[0] = GLM_FFN_MOE;
    m.n_mtp = 0;
    m.n_experts = n_experts;
    m.has_vision = false;
    m.d_vocab = N_VOCAB; /* embedding and head are no part of a layer */
    m.max_position = WINDOW;
    m.n_end_ids = 1;
    m.end_ids[0] = m.pad_id = 0;
    return m;
}

/* Least and median seconds of `n` rounds of one row in each of `rows` streams. */
struct rounds {
    double least, median;
    double weight_bytes; /* a round, counted */
};
static struct rounds run_rounds(struct pico *p, uint32_t rows, uint32_t n)
{
    int32_t ids[CONTEXT], tokens[GLM_ROUND_STREAMS];
    uint32_t streams[GLM_ROUND_STREAMS];
    double *s = calloc(n, sizeof *s);
    if (!s)
        exit(1);
    for (uint32_t i = 0; i < rows; i++) {
        measure_prompt(ids, CONTEXT, i + 1);
        pico_admit(p, i, WINDOW);
        pico_fill(p, i, ids, CONTEXT, CONTEXT, NULL);
        streams[i] = i;
    }
    struct glm_engine_stats first = glm_engine_stats(pico_engine(p, 0)), before = first, after;
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t i = 0; i < rows; i++)
            tokens[i] = (int32_t)((k * 37 + i * 101) % N_VOCAB);
        pico_decode(p, streams, tokens, NULL, rows);
        after = glm_engine_stats(pico_engine(p, 0));
        s[k] = 1e-9 * (double)(after.decode_ns - before.decode_ns);
        before = after;
    }
    struct rounds r = {.least = measure_least(s, n),
                       .weight_bytes = (double)(after.weight_bytes - first.weight_bytes) / n};
    r.median = measure_median(s, n);
    for (uint32_t i = 0; i < rows; i++)
        pico_finish(p, i);
    free(s);
    return r;
}

static double member_bytes(const struct glm_plan *p)
{
    double bytes = 0;
    for (uint32_t i = 0; i < p->n_weights; i++)
        if (p->weights[i].n_members > 1)
            bytes += (double)p->weights[i].bytes / p->weights[i].n_members;
    return bytes;
}

static struct glm_price price(const struct glm_plan *p, double rows, double members,
                              const struct glm_device_figures *f)
{
    struct glm_price total;
    struct glm_error err = {0};
    struct glm_cost_context at = {
        .R = rows, .O = rows, .C = CONTEXT, .S = rows, .T = 1, .U = members};
    if (glm_price_program(p, "decode", &at, f, &total, NULL, &err) != GLM_OK) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    return total;
}

static void layer(uint32_t n_experts, uint32_t exl3_bits, const uint32_t *rows, uint32_t n_rows,
                  uint32_t n_rounds)
{
    char folder[256], where[300];
    struct glm_model m = layer_geometry(n_experts);
    pack_folder(folder, sizeof folder);
    synthesis_write(&m, exl3_bits, 1, folder);
    snprintf(where, sizeof where, "synthetic:%s", folder);
    struct pico *p = pico_open(&(struct pico_options){
        .checkpoint = where, .n_threads = glm_cores(), .window = WINDOW, .prefill_rows = CONTEXT});
    const struct glm_plan *plan = pico_plan(p, 0);
    struct glm_device_figures all, f;
    double least = price(plan, 1, m.n_experts_per_token, NULL).read_bytes;
    calibrate(&(struct calibrate_options){.plan = plan,
                                          .n_threads = glm_cores(),
                                          .transport = "shm",
                                          .memory_bytes = (size_t)least / 4096 * 4096,
                                          .cache_bytes = (size_t)least / 4096 * 4096},
              &all);
    f = (struct glm_device_figures){.read_bytes_s = all.read_bytes_s,
                                    .exl3_weights_s = all.exl3_weights_s};
    printf("# read %.2f GB/s, codec alone %.2f G weights/s\n", f.read_bytes_s / 1e9,
           f.exl3_weights_s / 1e9);
    for (uint32_t i = 0; i < n_rows; i++) {
        struct rounds r = run_rounds(p, rows[i], n_rounds);
        double none = price(plan, rows[i], 0, NULL).weight_bytes;
        double members = (r.weight_bytes - none) / member_bytes(plan);
        struct glm_price at = price(plan, rows[i], members, &f);
        double bytes = at.read_bytes + at.write_bytes;
        printf("layer,%s,%u,%u,%.2f,%.1f,%.3f,%.3f,%.2f,%.1f,%.1f\n", exl3_bits ? "exl3" : "bf16",
               glm_cores(), rows[i], members, bytes / 1e6, 1e3 * r.median, 1e3 * r.least,
               bytes / r.median / 1e9, 100 * bytes / r.median / f.read_bytes_s,
               100 * at.seconds / r.median);
        fflush(stdout);
    }
    pico_close(p);
    pack_remove_folder(folder);
}

int main(int argc, char **argv)
{
    uint32_t rows[MAX_POINTS], n_experts = 16, n_rounds = 40;
    uint32_t n_rows = measure_list(argc > 1 ? argv[1] : "1,2,4,8", rows, MAX_POINTS);
    if ((argc > 2 && measure_list(argv[2], &n_experts, 1) != 1) ||
        (argc > 3 && measure_list(argv[3], &n_rounds, 1) != 1))
        return 64;
    puts("what,experts,threads,rows,picked,megabytes,median_ms,least_ms,gb_s,percent_of_read,"
         "percent_of_bound");
    layer(n_experts, 0, rows, n_rows, n_rounds);
    layer(n_experts, 4, rows, n_rows, n_rounds);
    return 0;
}
