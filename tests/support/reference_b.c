/* SPDX-License-Identifier: Apache-2.0 */
/* Naive double-precision oracles (see the header). Rounding is written here a second time, from the
 * format's definition, so that a mistake in the prelude's bit tricks cannot hide. */
#include "tests/support/reference_b.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* x to `bits` significant bits, nearest, ties to even; no range limits. */
static double round_to(double x, int bits)
{
    int e;
    if (x == 0 || !isfinite(x))
        return x;
    double m = frexp(x, &e);
    return ldexp(rint(ldexp(m, bits)), e - bits);
}

double reference_store(double x, bool bf16)
{
    return bf16 ? round_to(x, 8) : x;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double *new_doubles(size_t n)
{
    double *p = calloc(n + 1, sizeof *p);
    if (p == NULL)
        abort();
    return p;
}

void reference_rms_norm(double *y, const double *x, const float *w, size_t n, double eps, bool bf16)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    double scale = 1 / sqrt(sum / (double)n + eps);
    for (size_t i = 0; i < n; i++)
        y[i] = reference_store((double)w[i] * reference_store(x[i] * scale, bf16), bf16);
}

/* ---- Hyper-connections ---- */

void reference_hc_write(const struct reference_hc *p, double *x, const double *y, const double *mix)
{
    double *old = new_doubles(p->s);
    for (size_t d = 0; d < p->d; d++) {
        for (size_t s = 0; s < p->s; s++)
            old[s] = x[s * p->d + d];
        for (size_t s = 0; s < p->s; s++) {
            double sum = mix[s] * reference_store(y[d], p->bf16);
            for (size_t j = 0; j < p->s; j++)
                sum += mix[p->s + j * p->s + s] * old[j];
            x[s * p->d + d] = reference_store(sum, p->bf16);
        }
    }
    free(old);
}

static void normalise(double *c, size_t s, bool rows, double eps)
{
    for (size_t a = 0; a < s; a++) {
        double sum = eps;
        for (size_t b = 0; b < s; b++)
            sum += rows ? c[a * s + b] : c[b * s + a];
        for (size_t b = 0; b < s; b++)
            c[rows ? a * s + b : b * s + a] /= sum;
    }
}

void reference_sinkhorn(double *c, size_t s, int iterations, double eps)
{
    for (size_t i = 0; i < s; i++) {
        double most = c[i * s], sum = 0;
        for (size_t j = 0; j < s; j++)
            most = fmax(most, c[i * s + j]);
        for (size_t j = 0; j < s; j++)
            sum += exp(c[i * s + j] - most);
        for (size_t j = 0; j < s; j++)
            c[i * s + j] = exp(c[i * s + j] - most) / sum + eps;
    }
    normalise(c, s, false, eps);
    for (int i = 1; i < iterations; i++) {
        normalise(c, s, true, eps);
        normalise(c, s, false, eps);
    }
}

void reference_hc_mix(const struct reference_hc *p, const double *x, const float *fn,
                      const float *base, const float *scale, const float *norm, double *mix,
                      double *out)
{
    size_t n = p->s * p->d;
    double squares = 0, *a = new_doubles(p->s), *c = mix + p->s;
    for (size_t i = 0; i < n; i++)
        squares += x[i] * x[i];
    double r = 1 / sqrt(squares / (double)n + p->norm_eps);
    for (size_t k = 0; k < 2 * p->s + p->s * p->s; k++) {
        double dot = 0;
        for (size_t i = 0; i < n; i++)
            dot += (double)fn[k * n + i] * x[i];
        size_t group = k < p->s ? 0 : k < 2 * p->s ? 1 : 2;
        double z = (double)scale[group] * (r * dot) + (double)base[k];
        if (group == 0)
            a[k] = sigmoid(z) + p->eps;
        else if (group == 1)
            mix[k - p->s] = 2 * sigmoid(z);
        else
            c[k - 2 * p->s] = z;
    }
    reference_sinkhorn(c, p->s, p->iterations, p->eps);
    double *u = new_doubles(p->d);
    for (size_t d = 0; d < p->d; d++) {
        for (size_t s = 0; s < p->s; s++)
            u[d] += a[s] * x[s * p->d + d];
        u[d] = reference_store(u[d], p->bf16);
    }
    reference_rms_norm(out, u, norm, p->d, p->norm_eps, p->bf16);
    free(u);
    free(a);
}

void reference_hc_final(const struct reference_hc *p, const double *x, const float *norm,
                        double *out)
{
    double *h = new_doubles(p->d);
    for (size_t d = 0; d < p->d; d++) {
        for (size_t s = 0; s < p->s; s++)
            h[d] += x[s * p->d + d];
        h[d] = reference_store(h[d] / (double)p->s, p->bf16);
    }
    reference_rms_norm(out, h, norm, p->d, p->norm_eps, p->bf16);
    free(h);
}

/* ---- KDA ---- */

/* Convolution and SiLU of channel c at row t. */
static double convolved(const struct reference_kda *p, const float *proj, size_t t, size_t c)
{
    size_t width = 3 * p->h * p->d;
    double z = 0;
    for (size_t j = 0; j < p->taps; j++)
        if (t + j + 1 >= p->taps)
            z += (double)p->conv_w[c * p->taps + j] *
                 (double)proj[(t + j + 1 - p->taps) * width + c];
    return reference_store(z * sigmoid(z), p->bf16);
}

static void unit_length(double *x, size_t n, double scale)
{
    double sum = 1e-6;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (size_t i = 0; i < n; i++)
        x[i] *= scale / sqrt(sum);
}

/* One row of one head: state s[key][value], o[value]. */
static void delta_rule(double *s, double *o, const double *q, const double *k, const double *v,
                       const double *decay, double beta, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        double r = 0;
        for (size_t i = 0; i < n; i++) {
            s[i * n + j] *= decay[i];
            r += k[i] * s[i * n + j];
        }
        o[j] = 0;
        for (size_t i = 0; i < n; i++) {
            s[i * n + j] += k[i] * beta * (v[j] - r);
            o[j] += q[i] * s[i * n + j];
        }
    }
}

void reference_kda(const struct reference_kda *p, size_t n, const float *proj, const float *b,
                   const float *f, const float *g, double *out, double *state)
{
    size_t d = p->d, hd = p->h * d;
    double *q = new_doubles(5 * d), *k = q + d, *v = k + d, *decay = v + d, *o = decay + d;
    memset(state, 0, hd * d * sizeof *state);
    for (size_t t = 0; t < n; t++)
        for (size_t h = 0; h < p->h; h++) {
            for (size_t i = 0; i < d; i++) {
                size_t c = h * d + i;
                q[i] = convolved(p, proj, t, c);
                k[i] = convolved(p, proj, t, hd + c);
                v[i] = convolved(p, proj, t, 2 * hd + c);
                double rate =
                    exp((double)p->a_log[h]) * ((double)f[t * hd + c] + (double)p->dt_bias[c]);
                decay[i] = exp(p->lower * sigmoid(rate));
            }
            unit_length(q, d, 1 / sqrt((double)d));
            unit_length(k, d, 1);
            double beta = reference_store(sigmoid((double)b[t * p->h + h]), p->bf16);
            delta_rule(state + h * d * d, o, q, k, v, decay, beta, d);
            double squares = 0;
            for (size_t i = 0; i < d; i++) {
                o[i] = reference_store(o[i], p->bf16);
                squares += o[i] * o[i];
            }
            double scale = 1 / sqrt(squares / (double)d + p->norm_eps);
            for (size_t i = 0; i < d; i++)
                out[t * hd + h * d + i] = reference_store(
                    (double)p->o_norm[i] * o[i] * scale * sigmoid((double)g[t * hd + h * d + i]),
                    p->bf16);
        }
    free(q);
}

/* ---- DSA ---- */

void reference_layer_norm(double *y, const double *x, const float *w, const float *bias, size_t n,
                          double eps, bool bf16)
{
    double mean = 0, variance = 0;
    for (size_t i = 0; i < n; i++)
        mean += x[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        variance += (x[i] - mean) * (x[i] - mean) / (double)n;
    for (size_t i = 0; i < n; i++)
        y[i] = reference_store(
            (x[i] - mean) / sqrt(variance + eps) * (double)w[i] + (double)bias[i], bf16);
}

void reference_pool_key(double *y, const double *ik, const double *ig, const float *ape,
                        size_t pool, size_t d, bool bf16)
{
    for (size_t c = 0; c < d; c++) {
        double most = -INFINITY, sum = 0;
        y[c] = 0;
        for (size_t j = 0; j < pool; j++)
            most = fmax(most, ig[j * d + c] + (double)ape[j * d + c]);
        for (size_t j = 0; j < pool; j++)
            sum += exp(ig[j * d + c] + (double)ape[j * d + c] - most);
        for (size_t j = 0; j < pool; j++) {
            double p = exp(ig[j * d + c] + (double)ape[j * d + c] - most) / sum;
            y[c] += reference_store(reference_store(p, bf16) * ik[j * d + c], bf16);
        }
        y[c] = reference_store(y[c], bf16);
    }
}

void reference_scores(double *scores, const float *iq, const float *w, const float *keys, size_t n,
                      size_t h, size_t d)
{
    for (size_t p = 0; p < n; p++) {
        scores[p] = 0;
        for (size_t i = 0; i < h; i++) {
            double dot = 0;
            for (size_t c = 0; c < d; c++)
                dot += (double)iq[i * d + c] * (double)keys[p * d + c];
            scores[p] += (double)w[i] / sqrt((double)h) * fmax(0, dot / sqrt((double)d));
        }
    }
}

void reference_top(const double *scores, size_t n, size_t take, int32_t *ids)
{
    size_t n_ids = 0;
    for (size_t p = 0; p < n; p++) {
        size_t before = 0; /* pools that come first */
        for (size_t o = 0; o < n; o++)
            before += scores[o] > scores[p] || (scores[o] == scores[p] && o < p);
        if (before < take)
            ids[n_ids++] = (int32_t)p;
    }
}

void reference_attend(double *out, const float *q, const float *keys, size_t n, size_t c,
                      double scale)
{
    double *score = new_doubles(n), most = -INFINITY, sum = 0;
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < c; i++)
            score[j] += scale * (double)q[i] * (double)keys[j * c + i];
        most = fmax(most, score[j]);
    }
    for (size_t j = 0; j < n; j++)
        sum += exp(score[j] - most);
    for (size_t i = 0; i < c; i++) {
        out[i] = 0;
        for (size_t j = 0; j < n; j++)
            out[i] += exp(score[j] - most) / sum * (double)keys[j * c + i];
    }
    free(score);
}

/* The e4m3 code nearest to x, found by trying all of them; ties to the even code. */
static uint8_t nearest_e4m3(double x, double *value)
{
    uint8_t best = 0;
    *value = 0;
    for (unsigned code = 0; code < 127; code++) {
        unsigned e = code >> 3, m = code & 7;
        double v = e == 0 ? ldexp(m, -9) : ldexp(8 + m, (int)e - 10);
        double now = fabs(fabs(x) - v), then = fabs(fabs(x) - *value);
        if (now < then || (now == then && code % 2 == 0)) {
            best = (uint8_t)code;
            *value = v;
        }
    }
    *value = copysign(*value, x);
    return (uint8_t)(best | (signbit(x) ? 0x80 : 0));
}

void reference_fp8_row(float *row, uint8_t *bytes, size_t n)
{
    double most = 0, value;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs(reference_store((double)row[i], true)));
    int e = -126;
    if (most > 0) {
        int exponent;
        double m = frexp(most, &exponent); /* most = m 2^exponent, m in [1/2, 1) */
        e = (m > 0.5 ? exponent : exponent - 1) - 8;
        e = e < -126 ? -126 : e;
    }
    memset(bytes, 0, n + 16);
    for (size_t i = 0; i < n; i++) {
        bytes[i] = nearest_e4m3(ldexp(reference_store((double)row[i], true), -e), &value);
        row[i] = (float)ldexp(value, e);
    }
    float scale = ldexpf(1, e);
    memcpy(bytes + n, &scale, sizeof scale);
}

/* ---- Sampling ---- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

double reference_uniform(uint64_t seed, int32_t position, int32_t id)
{
    uint64_t a = mix(seed + 0x9E3779B97F4A7C15u);
    uint64_t b = mix(a ^ ((uint64_t)position * 0xD1B54A32D192ED03u));
    return (double)(mix(b ^ (uint64_t)id) >> 11) * 0x1p-53 + 0x1p-54;
}

struct choice {
    float logit;
    int32_t id;
};

static int in_order(const void *a, const void *b)
{
    const struct choice *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

int32_t reference_draw(const struct glm_draw *draw, const float *logits, int32_t n_valid,
                       const int32_t *ends, int32_t n_ends)
{
    struct choice *c = malloc(((size_t)n_valid + 1) * sizeof *c);
    double *l = new_doubles((size_t)n_valid);
    if (c == NULL)
        abort();
    int32_t n = 0, answer = -1;
    for (int32_t id = 0; id < n_valid; id++) {
        bool masked = false;
        for (int32_t e = 0; e < n_ends; e++)
            masked |= (draw->flags & GLM_DRAW_NO_END) != 0 && ends[e] == id;
        if (!masked)
            c[n++] = (struct choice){logits[id], id};
    }
    qsort(c, (size_t)n, sizeof *c, in_order);
    if (draw->temperature <= 0) {
        answer = n > 0 ? c[0].id : -1;
        goto out;
    }
    if (draw->top_k > 0 && draw->top_k < n)
        n = draw->top_k;
    double t = draw->temperature > 1e-6f ? (double)draw->temperature : 1e-6, total = 0;
    for (int32_t i = 0; i < n; i++) {
        l[i] = (double)c[i].logit / t;
        total += exp(l[i] - l[0]);
    }
    int32_t keep = n;
    if (draw->top_p > 0 && draw->top_p < 1) {
        double sum = 0;
        keep = 1;
        for (int32_t i = 0; i < n; i++) {
            sum += exp(l[i] - l[0]) / total;
            keep += sum < (double)draw->top_p;
        }
        keep = keep < n ? keep : n;
    }
    double best = -INFINITY;
    for (int32_t i = 0; i < keep; i++) {
        if (draw->min_p > 0 && i > 0 && l[i] < l[0] + log((double)draw->min_p))
            break;
        double score = l[i] - log(-log(reference_uniform(draw->seed, draw->position, c[i].id)));
        if (i == 0 || score > best) {
            best = score;
            answer = c[i].id;
        }
    }
out:
    free(l);
    free(c);
    return answer;
}
