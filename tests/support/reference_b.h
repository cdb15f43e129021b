/* SPDX-License-Identifier: Apache-2.0 */
/* What the embedding, hyper-connection, KDA, DSA and sampling kernels are compared with: the
 * equations of the model written down naively in double precision, one row at a time. Nothing is
 * shared with the kernels. `bf16` says whether the points where activations are stored round to
 * bf16; inputs are floats that the caller has already rounded so. */
#ifndef GLM_TESTS_REFERENCE_B_H
#define GLM_TESTS_REFERENCE_B_H

#include "kernels-templates/round.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* x as activations store it. */
double reference_store(double x, bool bf16);

/* y[n] = w · store(x · (mean x² + eps)^(-1/2)), stored. */
void reference_rms_norm(double *y, const double *x, const float *w, size_t n, double eps,
                        bool bf16);

/* ---- Hyper-connections ---- */

struct reference_hc {
    size_t d, s;
    int iterations;
    double eps, norm_eps;
    bool bf16;
};
/* x[s][d] := post[s] y + Σ_j comb[j][s] x[j]; mix = post[s], comb[s][s]. */
void reference_hc_write(const struct reference_hc *p, double *x, const double *y,
                        const double *mix);
/* comb of a matrix c[s][s] in place: softmax of rows, then the Sinkhorn passes. */
void reference_sinkhorn(double *c, size_t s, int iterations, double eps);
/* Streams x[s][d] → mix[s + s·s] and the normed input out[d]. */
void reference_hc_mix(const struct reference_hc *p, const double *x, const float *fn,
                      const float *base, const float *scale, const float *norm, double *mix,
                      double *out);
/* Mean of the streams, normed. */
void reference_hc_final(const struct reference_hc *p, const double *x, const float *norm,
                        double *out);

/* ---- KDA ---- */

struct reference_kda {
    size_t h, d, taps;
    double lower, norm_eps;
    bool bf16;
    const float *conv_w, *a_log, *dt_bias, *o_norm; /* [3·h·d][taps], [h], [h·d], [d] */
};
/* n rows of one stream from position 0: proj[n][3·h·d], b[n][h], f[n][h·d], g[n][h·d] → out[n][h·d]
 * and the state [h][d key][d value] after them. */
void reference_kda(const struct reference_kda *p, size_t n, const float *proj, const float *b,
                   const float *f, const float *g, double *out, double *state);

/* ---- DSA ---- */

/* Layer norm with weight and bias, stored. */
void reference_layer_norm(double *y, const double *x, const float *w, const float *bias, size_t n,
                          double eps, bool bf16);
/* Key of one pool: `pool` members' keys ik[pool][d] and gates ig[pool][d]. */
void reference_pool_key(double *y, const double *ik, const double *ig, const float *ape,
                        size_t pool, size_t d, bool bf16);
/* Scores of n pools: iq[h][d], w[h], keys[n][d]. */
void reference_scores(double *scores, const float *iq, const float *w, const float *keys, size_t n,
                      size_t h, size_t d);
/* The `take` largest of n scores, ties to the lower index, indices ascending. */
void reference_top(const double *scores, size_t n, size_t take, int32_t *ids);
/* out[c] = Σ softmax(scale · q·key_j) key_j over n keys [n][c]. p stays unrounded. */
void reference_attend(double *out, const float *q, const float *keys, size_t n, size_t c,
                      double scale);
/* A row as the cache's fp8 form gives it back (docs/formats.md 6), and its bytes. */
void reference_fp8_row(float *row, uint8_t *bytes, size_t n);

/* ---- Sampling ---- */

/* The token that the whole row of n_valid logits gives; ends: n_ends ids masked when the draw says
 * so. libm's log and exp. */
int32_t reference_draw(const struct glm_draw *draw, const float *logits, int32_t n_valid,
                       const int32_t *ends, int32_t n_ends);
double reference_uniform(uint64_t seed, int32_t position, int32_t id);

#endif
