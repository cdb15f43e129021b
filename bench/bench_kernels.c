/* SPDX-License-Identifier: Apache-2.0 */
/* Matmul and expert kernels on this machine, in one sitting: decode against the read bandwidth
 * measured beside it, prefill against the multiply-add rate, EXL3 against its codec alone. Weights
 * pass through `TOTAL` bytes, so that no cache holds them. Prints CSV; the best of many short
 * calls, since others may use the machine.
 *
 * Usage: bench_kernels [THREADS [FILTER]] */
#include "tests/support/kernel.h"

#include "codegen/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HIDDEN = 4096 };
static const size_t TOTAL = (size_t)768 << 20;

struct bench {
    struct test_threads *threads;
    uint32_t n_threads;
    const char *filter;
    char *weights; /* TOTAL bytes, random halves of moderate size */
    double read_bytes_s, flops_s;
    void *x, *y, *out;
};

static bool wanted(const struct bench *b, const char *name)
{
    return !b->filter || strstr(name, b->filter);
}

static void line(const struct bench *b, const char *name, uint32_t rows, double bytes, double ops,
                 double seconds)
{
    double rate = bytes / seconds, flops = ops / seconds;
    printf("%s,%u,%u,%.2f,%.3f,%.2f,%.0f,%.1f,%.0f\n", name, b->n_threads, rows, bytes / 1e6,
           seconds * 1e3, rate / 1e9, b->read_bytes_s > 0 ? 100 * rate / b->read_bytes_s : 0,
           flops / 1e9, b->flops_s > 0 ? 100 * flops / b->flops_s : 0);
    fflush(stdout);
}

/* The shortest of many calls, call i with its first weight pointer moved by i * step through the
 * weights (arguments from..to). */
static double best(struct bench *b, struct test_kernel *k, const struct glm_round *round,
                   void *const *args, void *scratch, size_t step, int from, int to)
{
    void *moved[8];
    double least = 1e9, sum = 0;
    size_t n = step ? TOTAL / 2 / step : 1;
    memcpy(moved, args, 8 * sizeof *moved);
    for (size_t i = 0; i < 400 && (sum < 0.3 || i < 2 * n || i < 5) && sum < 1.5; i++) {
        for (int a = from; a < to; a++)
            moved[a] = (char *)args[a] + i % n * step;
        double s = test_threads_run(b->threads, k, round, moved, scratch);
        least = s < least ? s : least;
        sum += s;
    }
    return least;
}

static void ceilings(struct bench *b)
{
    char constants[64];
    enum { PIECE = 32 << 20 };
    struct test_round *r = test_round(1);
    snprintf(constants, sizeof constants, "BYTES=%d", PIECE);
    struct test_kernel *k =
        test_kernel_file(&(struct test_build){0}, "bench/kernels/read.c", constants, "f32");
    void *args[8] = {b->weights, b->out};
    double s = best(b, k, &r->round, args, NULL, PIECE, 0, 1);
    b->read_bytes_s = PIECE / s;
    line(b, "read", 0, PIECE, 0, s);
    k = test_kernel_file(&(struct test_build){0}, "bench/kernels/fma.c", "STEPS=400000", "f32");
    args[0] = b->x;
    s = best(b, k, &r->round, args, NULL, 0, 0, 0);
    b->flops_s = 4e5 * 12 * 32 * b->n_threads / s;
    line(b, "fma", 0, 0, b->flops_s * s, s);
    test_round_free(r);
}

static void matmul(struct bench *b, const char *form, const char *act, uint32_t n, uint32_t k,
                   uint32_t rows)
{
    char name[64], params[256];
    uint64_t bytes;
    snprintf(name, sizeof name, "matmul.%s.%s.%ux%u", form, act, n, k);
    if (!wanted(b, name) || glm_form_bytes(form, n, k, &bytes, NULL) != GLM_OK)
        return;
    snprintf(params, sizeof params, "N=%u K=%u FORM=%s X_STRIDE=%u Y_STRIDE=%u OUT=act ROWS=round",
             n, k, form, k, n);
    struct test_kernel *kernel = test_kernel("matmul", params, act);
    struct test_round *r = test_round(rows);
    void *args[8] = {b->x, b->weights, b->y};
    double s = best(b, kernel, &r->round, args, NULL, bytes, 1, 2);
    line(b, name, rows, (double)bytes, 2.0 * rows * n * k, s);
    test_round_free(r);
}

struct experts {
    uint32_t e, topk, d, i;
    const char *form, *act;
    unsigned bits;
};

static void experts(struct bench *b, const struct experts *x, uint32_t rows, bool down)
{
    char name[64], params[256], form[32];
    uint64_t bytes;
    bool exl3 = !strcmp(x->form, "exl3");
    snprintf(form, sizeof form, exl3 ? "exl3:%u:mcg" : "bf16", x->bits);
    snprintf(name, sizeof name, "%s.%s.%s", down ? "moe_down" : "moe_gate_up", form, x->act);
    if (!wanted(b, name) || glm_form_bytes(form, x->i, x->d, &bytes, NULL) != GLM_OK)
        return;
    snprintf(params, sizeof params, "E=%u TOPK=%u D=%u I=%u FORM=%s BITS=%u CODEBOOK=%s%s", x->e,
             x->topk, x->d, x->i, x->form, x->bits, exl3 ? "mcg" : "none",
             down ? "" : " LIMIT=10.0");
    struct test_kernel *k = test_kernel(down ? "moe_down" : "moe_gate_up", params, x->act);
    struct test_round *r = test_round(rows);
    int32_t *ids = test_alloc(rows * x->topk * sizeof *ids);
    float *weights = test_alloc(rows * x->topk * sizeof *weights);
    struct test_random random = {1};
    uint32_t distinct = 0;
    bool *seen = calloc(x->e, sizeof *seen);
    for (uint32_t m = 0; m < rows; m++) {
        uint32_t start = (uint32_t)(test_random_u64(&random) % x->e);
        for (uint32_t s = 0; s < x->topk; s++) {
            uint32_t id = (start + s * 7) % x->e;
            ids[m * x->topk + s] = (int32_t)id;
            weights[m * x->topk + s] = 0.3f;
            distinct += !seen[id];
            seen[id] = true;
        }
    }
    free(seen);
    void *scratch = test_alloc(test_kernel_scratch(k, &r->round));
    char *half = b->weights + TOTAL / 2;
    void *gate_up_args[8] = {b->x, ids, b->weights, half, b->y};
    void *down_args[8] = {b->x, ids, weights, b->weights, NULL, b->y};
    double s = best(b, k, &r->round, down ? down_args : gate_up_args, scratch, 0, 0, 0);
    double matrices = down ? 1 : 2;
    line(b, name, rows, matrices * distinct * (double)bytes,
         matrices * 2 * rows * x->topk * (double)x->d * x->i, s);
    test_release(scratch);
    test_release(ids);
    test_release(weights);
    test_round_free(r);
}

static void codec(struct bench *b, unsigned bits, const char *codebook)
{
    char name[64], constants[128], form[32];
    uint64_t bytes;
    snprintf(form, sizeof form, "exl3:%u:%s", bits, codebook);
    snprintf(name, sizeof name, "decode.%s", form);
    if (!wanted(b, name) || glm_form_bytes(form, 1024, HIDDEN, &bytes, NULL) != GLM_OK)
        return;
    snprintf(constants, sizeof constants, "N=1024 K=%d BITS=%u CODEBOOK_%s=1 MEMBERS=4", HIDDEN,
             bits, codebook);
    struct test_kernel *k =
        test_kernel_file(&(struct test_build){0}, "bench/kernels/decode.c", constants, "f32");
    struct test_round *r = test_round(1);
    void *args[8] = {b->weights, b->out};
    double s = best(b, k, &r->round, args, NULL, 4 * bytes, 0, 1);
    line(b, name, 0, 4 * (double)bytes, 4.0 * 1024 * HIDDEN, s);
    test_round_free(r);
}

int main(int argc, char **argv)
{
    struct bench b = {.n_threads = argc > 1 ? (uint32_t)atoi(argv[1]) : 0,
                      .filter = argc > 2 ? argv[2] : NULL};
    if (b.n_threads < 1 || b.n_threads > 64)
        b.n_threads = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    b.threads = test_threads_new(b.n_threads);
    b.weights = test_alloc(TOTAL);
    b.x = test_alloc((size_t)64 << 20);
    b.y = test_alloc((size_t)64 << 20);
    b.out = test_alloc(1 << 16);
    struct test_random random = {1};
    /* every half in ±[0.5, 2) whether read as bf16, fp16, a scale or the top of an f32 */
    for (size_t i = 0; i < TOTAL; i += 8) {
        uint64_t v = (test_random_u64(&random) & 0x807f807f807f807fu) | 0x3f003f003f003f00u;
        memcpy(b.weights + i, &v, 8);
    }
    memcpy(b.x, b.weights, (size_t)64 << 20);
    printf("kernel,threads,rows,megabytes,ms,gb_s,percent_of_read,gflop_s,percent_of_fma\n");
    ceilings(&b);
    static const char *const forms[] = {"bf16", "q4", "fp8"};
    static const uint32_t rows[] = {1, 4, 8, 512};
    for (size_t f = 0; f < 3; f++)
        for (size_t i = 0; i < 4; i++)
            matmul(&b, forms[f], "f32", 4096, HIDDEN, rows[i]);
    matmul(&b, "bf16", "bf16", 4096, HIDDEN, 1);
    matmul(&b, "bf16", "bf16", 4096, HIDDEN, 512);
    matmul(&b, "bf16", "f32", 256, 256, 64);
    codec(&b, 4, "mcg");
    codec(&b, 4, "mul1");
    codec(&b, 4, "3inst");
    codec(&b, 3, "mcg");
    static const struct experts kinds[] = {{32, 8, HIDDEN, 1024, "exl3", "f32", 4},
                                           {32, 8, HIDDEN, 1024, "exl3", "bf16", 4},
                                           {32, 8, HIDDEN, 1024, "bf16", "f32", 0}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t i = 0; i < 4; i++) {
            experts(&b, &kinds[k], i == 3 ? 128 : rows[i], false);
            experts(&b, &kinds[k], i == 3 ? 128 : rows[i], true);
        }
    test_threads_free(b.threads);
    test_release(b.weights);
    test_release(b.x);
    test_release(b.y);
    test_release(b.out);
    return 0;
}
