/* SPDX-License-Identifier: Apache-2.0 */
/* Naive oracles in double. Written for reading beside docs/formats.md and docs/model.md; slow. */
#include "tests/support/reference_a.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void ref_matvec(const double *w, const double *x, size_t n, size_t k, double *y)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = 0;
        for (size_t j = 0; j < k; j++)
            y[i] += w[i * k + j] * x[j];
    }
}

double ref_bf16(uint16_t bits)
{
    uint32_t u = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return (double)f;
}

double ref_f16(uint16_t bits)
{
    int e = bits >> 10 & 31, m = bits & 1023;
    double v = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return bits & 0x8000 ? -v : v;
}

double ref_e4m3(uint8_t code)
{
    int e = code >> 3 & 15, m = code & 7;
    double v = e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
    return code & 0x80 ? -v : v;
}

double ref_round(double v, int bits)
{
    int e;
    frexp(v, &e);
    return v == 0 ? 0 : ldexp(nearbyint(ldexp(v, bits - e)), e - bits);
}

static size_t align64(size_t n)
{
    return (n + 63) / 64 * 64;
}

void ref_q4_values(const void *form, size_t n, size_t k, double *w)
{
    const char *base = form;
    size_t groups = k / 64, scales = align64(n * k / 2), biases = scales + align64(n * groups * 2);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < k; j++) {
            size_t g = i * groups + j / 64, in = j % 64;
            uint16_t code, s, b;
            memcpy(&code, base + (g * 16 + in % 16) * 2, 2);
            memcpy(&s, base + scales + g * 2, 2);
            memcpy(&b, base + biases + g * 2, 2);
            w[i * k + j] = ref_bf16(s) * (code >> (4 * (in / 16)) & 15) + ref_bf16(b);
        }
}

void ref_fp8_values(const void *form, size_t n, size_t k, double *w)
{
    const char *base = form;
    size_t blocks = k / 128;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < k; j++) {
            float s;
            memcpy(&s, base + align64(n * k) + (i * blocks + j / 128) * 4, 4);
            w[i * k + j] = (double)s * ref_e4m3((uint8_t)base[i * k + j]);
        }
}

/* ---- EXL3 ---- */

struct ref_exl3 ref_exl3_new(size_t k, size_t n, unsigned bits, const char *codebook, uint32_t r)
{
    size_t words = k * n * bits / 16;
    struct ref_exl3 e = {k, n, bits, codebook, malloc(words * 2), malloc(k * 2), malloc(n * 2)};
    for (size_t i = 0; i < words; i++) {
        r = r * 1664525u + 1013904223u;
        e.trellis[i] = (uint16_t)(r >> 16);
    }
    /* (8 + i mod 5) / 1024 and (12 + j mod 7) / 16 as fp16: m/2^s with m in 8..18 */
    for (size_t i = 0; i < k; i++) {
        unsigned m = 8 + (unsigned)(i % 5);
        e.suh[i] = (uint16_t)((i % 3 == 0 ? 0x8000u : 0) | 8u << 10 | (m - 8) << 7);
    }
    for (size_t j = 0; j < n; j++) {
        unsigned m = 12 + (unsigned)(j % 7);
        unsigned bits16 = m < 16 ? 14u << 10 | (m - 8) << 7 : 15u << 10 | (m - 16) << 6;
        e.svh[j] = (uint16_t)((j % 5 == 0 ? 0x8000u : 0) | bits16);
    }
    return e;
}

void ref_exl3_release(struct ref_exl3 *e)
{
    free(e->trellis);
    free(e->suh);
    free(e->svh);
}

static int stream_bit(const uint16_t *tile, unsigned bits, long b)
{
    unsigned at = (unsigned)((b + 256 * (long)bits) % (256 * (long)bits));
    uint32_t word = tile[at / 32 * 2] | (uint32_t)tile[at / 32 * 2 + 1] << 16;
    return word >> (31 - at % 32) & 1;
}

static double codebook_value(uint16_t state, const char *name)
{
    if (!strcmp(name, "mul1")) {
        uint32_t x = state * 0x83DCD12Du;
        unsigned sum = (x & 255) + (x >> 8 & 255) + (x >> 16 & 255) + (x >> 24);
        return ref_round((1024 + sum) * ref_f16(0x1eee) + ref_f16(0xc931), 11);
    }
    uint32_t x = !strcmp(name, "mcg") ? state * 0xCBAC1FEDu : state * 89226354u + 64248484u;
    x = (x & 0x8FFF8FFFu) ^ 0x3B603B60u;
    return ref_round(ref_f16((uint16_t)x) + ref_f16((uint16_t)(x >> 16)), 11);
}

void ref_exl3_inner(const struct ref_exl3 *e, double *wq)
{
    for (size_t kt = 0; kt < e->k / 16; kt++)
        for (size_t nt = 0; nt < e->n / 16; nt++) {
            const uint16_t *tile = e->trellis + (kt * (e->n / 16) + nt) * 16 * e->bits;
            for (int p = 0; p < 256; p++) {
                unsigned state = 0;
                for (int i = 0; i < 16; i++)
                    state = state << 1 |
                            (unsigned)stream_bit(tile, e->bits, (p + 1) * (long)e->bits - 16 + i);
                int l = p / 8, j = p % 8;
                int row = 2 * (l % 4) + j % 2 + 8 * (j / 2 % 2), column = l / 4 + 8 * (j / 4);
                wq[(kt * 16 + (size_t)row) * e->n + nt * 16 + (size_t)column] =
                    codebook_value((uint16_t)state, e->codebook);
            }
        }
}

/* out = H v by the definition, blocks of 128 */
static void rotate(const double *v, size_t n, double *out)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = 0;
        for (size_t j = 0; j < 128; j++) {
            double s = __builtin_popcountll(i % 128 & j) & 1 ? -1 : 1;
            out[i] += s * v[i / 128 * 128 + j];
        }
        out[i] /= sqrt(128);
    }
}

void ref_exl3_forward(const struct ref_exl3 *e, const double *wq, const double *x, int round_x,
                      double *y)
{
    double *scaled = calloc(e->k, sizeof *scaled), *xh = calloc(e->k, sizeof *xh);
    double *z = calloc(e->n, sizeof *z);
    for (size_t i = 0; i < e->k; i++)
        scaled[i] = x[i] * ref_f16(e->suh[i]);
    rotate(scaled, e->k, xh);
    for (size_t i = 0; i < e->k; i++) {
        double a = round_x ? ref_round(xh[i], 11) : xh[i];
        for (size_t j = 0; j < e->n; j++)
            z[j] += a * wq[i * e->n + j];
    }
    rotate(z, e->n, y);
    for (size_t j = 0; j < e->n; j++)
        y[j] *= ref_f16(e->svh[j]);
    free(scaled);
    free(xh);
    free(z);
}

/* ---- SwiGLU, router ---- */

double ref_swiglu(double g, double u, double limit, int bf16)
{
    if (bf16) {
        g = ref_round(g, 8);
        u = ref_round(u, 8);
    }
    g = fmin(g, limit);
    u = fmax(fmin(u, limit), -limit);
    double s = g / (1 + exp(-g));
    return bf16 ? ref_round(ref_round(s, 8) * u, 8) : s * u;
}

void ref_route(const float *logits, const float *bias, size_t n_experts, size_t topk, double scale,
               int32_t *ids, double *weights)
{
    double sum = 0;
    for (size_t s = 0; s < topk; s++) {
        double best = -INFINITY;
        ids[s] = -1;
        for (size_t e = 0; e < n_experts; e++) {
            int taken = 0;
            for (size_t t = 0; t < s; t++)
                taken |= ids[t] == (int32_t)e;
            double key = 1 / (1 + exp(-(double)logits[e])) + (double)bias[e];
            if (!taken && key > best) {
                best = key;
                ids[s] = (int32_t)e;
            }
        }
        weights[s] = 1 / (1 + exp(-(double)logits[ids[s]]));
        sum += weights[s];
    }
    for (size_t s = 0; s < topk; s++)
        weights[s] *= scale / (sum + 1e-20);
}
