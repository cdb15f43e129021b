/* SPDX-License-Identifier: Apache-2.0 */
/* Naive oracles in double, straight from the equations: matrices, q4 and fp8 values, EXL3, SwiGLU,
 * the router. They share no code with the kernels. */
#ifndef GLM_TESTS_REFERENCE_A_H
#define GLM_TESTS_REFERENCE_A_H

#include <stddef.h>
#include <stdint.h>

/* y[n] = w[n][k] x[k] */
void ref_matvec(const double *w, const double *x, size_t n, size_t k, double *y);

double ref_bf16(uint16_t bits);
double ref_f16(uint16_t bits);
double ref_e4m3(uint8_t code);
/* v rounded to nearest even with `bits` significant bits, no range limit */
double ref_round(double v, int bits);

/* Values of a q4 or fp8 device form (kernels-templates/README.md), [n][k]. */
void ref_q4_values(const void *form, size_t n, size_t k, double *w);
void ref_fp8_values(const void *form, size_t n, size_t k, double *w);

/* EXL3 as stored (docs/formats.md 3): k inputs, n outputs; codebook "mcg", "mul1", "3inst". */
struct ref_exl3 {
    size_t k, n;
    unsigned bits;
    const char *codebook;
    uint16_t *trellis, *suh, *svh;
};
/* The deterministic layer of docs/formats.md 3 from generator seed r. */
struct ref_exl3 ref_exl3_new(size_t k, size_t n, unsigned bits, const char *codebook, uint32_t r);
void ref_exl3_release(struct ref_exl3 *e);
/* Wq [k][n]. */
void ref_exl3_inner(const struct ref_exl3 *e, double *wq);
/* y[n] of x[k]; round_x: xh rounded to fp16 (bf16 activations). wq from ref_exl3_inner. */
void ref_exl3_forward(const struct ref_exl3 *e, const double *wq, const double *x, int round_x,
                      double *y);

/* silu(min(g, limit)) * clip(u, limit); bf16: every step rounded as docs/model.md 5 says. */
double ref_swiglu(double g, double u, double limit, int bf16);

/* Picks and weights of one row, docs/model.md 5. */
void ref_route(const float *logits, const float *bias, size_t n_experts, size_t topk, double scale,
               int32_t *ids, double *weights);

#endif
