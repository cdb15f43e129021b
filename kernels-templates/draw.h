/* SPDX-License-Identifier: Apache-2.0 */
/* A token from gathered candidates (docs/model.md 8): a function of the row's logits and of
 * (seed, position) alone, the same bits on every rank, host or device. Plain C on IEEE doubles with
 * explicit fma: logarithm and exponential are ours, since no two libraries agree on theirs.
 *
 * A rank offers of its shard of the vocabulary one record of 4 + 2C words:
 *   [0] n, entries that follow      [1] n_valid, ids of the shard that may be drawn
 *   [2..3] a double: where nothing cuts, the largest logit / T + G of the shard, whose id is the
 * one entry; else Σ exp((logit - first entry's logit) / T) over the shard, if top_p asks for it
 *   then n times {logit (float bits), id}, by (logit descending, id ascending)
 * n < n_valid says that the shard holds more than it offers. */
#ifndef GLM_DRAW_H
#define GLM_DRAW_H

#include "round.h"

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define GLM_DRAW_FN           static __device__ __forceinline__
#define GLM_DRAW_FMA(a, b, c) __fma_rn(a, b, c)
#else
#define GLM_DRAW_FN           static inline __attribute__((unused))
#define GLM_DRAW_FMA(a, b, c) __builtin_fma(a, b, c)
#endif

#define GLM_DRAW_HEADER  4
#define GLM_DRAW_NOTHING (-1) /* among drawn tokens: no id may be drawn */
#define GLM_DRAW_RANKS   64   /* ranks of a gather at most */

/* ---- Bits ---- */

GLM_DRAW_FN uint64_t glm_draw_bits(double x)
{
    union {
        double x;
        uint64_t u;
    } cast;
    cast.x = x;
    return cast.u;
}
GLM_DRAW_FN double glm_draw_double(uint64_t u)
{
    union {
        double x;
        uint64_t u;
    } cast;
    cast.u = u;
    return cast.x;
}
GLM_DRAW_FN float glm_draw_float(int32_t i)
{
    union {
        float x;
        int32_t i;
    } cast;
    cast.i = i;
    return cast.x;
}

/* ---- exp and log, within 2 units in the last place; no branches, so that loops vectorise ---- */

#define GLM_DRAW_LN2_HI 0x1.62e42fep-1        /* 28 bits: e * hi is exact */
#define GLM_DRAW_LN2_LO 0x1.f473de6af278fp-30 /* ln 2 - hi */
#define GLM_DRAW_MAGIC  6755399441055744.0    /* 1.5 * 2^52: adding it rounds to an integer */

/* x in [-708, 708]; outside as at the ends. */
GLM_DRAW_FN double glm_draw_exp(double x)
{
    x = x < -708.0 ? -708.0 : x > 708.0 ? 708.0 : x;
    double t = GLM_DRAW_FMA(x, 1.4426950408889634, GLM_DRAW_MAGIC), n = t - GLM_DRAW_MAGIC;
    double r = GLM_DRAW_FMA(n, -GLM_DRAW_LN2_HI, x);
    r = GLM_DRAW_FMA(n, -GLM_DRAW_LN2_LO, r); /* |r| <= ln 2 / 2: the series to r^13 */
    double p = 1.0 / 6227020800.0;
    p = GLM_DRAW_FMA(p, r, 1.0 / 479001600.0);
    p = GLM_DRAW_FMA(p, r, 1.0 / 39916800.0);
    p = GLM_DRAW_FMA(p, r, 1.0 / 3628800.0);
    p = GLM_DRAW_FMA(p, r, 1.0 / 362880.0);
    p = GLM_DRAW_FMA(p, r, 1.0 / 40320.0);
    p = GLM_DRAW_FMA(p, r, 1.0 / 5040.0);
    p = GLM_DRAW_FMA(p, r, 1.0 / 720.0);
    p = GLM_DRAW_FMA(p, r, 1.0 / 120.0);
    p = GLM_DRAW_FMA(p, r, 1.0 / 24.0);
    p = GLM_DRAW_FMA(p, r, 1.0 / 6.0);
    p = GLM_DRAW_FMA(p, r, 0.5);
    p = GLM_DRAW_FMA(p, r * r, r) + 1.0;
    uint64_t e = glm_draw_bits(t) - glm_draw_bits(GLM_DRAW_MAGIC); /* -1022 ... 1022 */
    return p * glm_draw_double((e + 1023) << 52);
}

/* x positive and normal. With x = 2^e m, m in [√½, √2), s = (m-1)/(m+1): ln m = 2 artanh s. */
GLM_DRAW_FN double glm_draw_log(double x)
{
    uint64_t u = glm_draw_bits(x);
    int64_t e = (int64_t)(u - 0x3fe6a09e667f3bcdu) >> 52;
    double m = glm_draw_double(u - ((uint64_t)e << 52)), f = m - 1.0, s = f / (2.0 + f);
    double z = s * s, p = 2.0 / 23; /* z <= 0.0295: the series to z^11 */
    p = GLM_DRAW_FMA(p, z, 2.0 / 21);
    p = GLM_DRAW_FMA(p, z, 2.0 / 19);
    p = GLM_DRAW_FMA(p, z, 2.0 / 17);
    p = GLM_DRAW_FMA(p, z, 2.0 / 15);
    p = GLM_DRAW_FMA(p, z, 2.0 / 13);
    p = GLM_DRAW_FMA(p, z, 2.0 / 11);
    p = GLM_DRAW_FMA(p, z, 2.0 / 9);
    p = GLM_DRAW_FMA(p, z, 2.0 / 7);
    p = GLM_DRAW_FMA(p, z, 2.0 / 5);
    p = GLM_DRAW_FMA(p, z, 2.0 / 3);
    /* 2s = f - f²/2 + s f²/2, which keeps the digits that s lost */
    double h = 0.5 * f * f, n = (double)e;
    double low = GLM_DRAW_FMA(n, GLM_DRAW_LN2_LO, s * GLM_DRAW_FMA(p, z, h));
    return GLM_DRAW_FMA(n, GLM_DRAW_LN2_HI, f - (h - low));
}

/* ---- Keyed noise ---- */

GLM_DRAW_FN uint64_t glm_draw_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}
/* What all ids of a draw share. */
GLM_DRAW_FN uint64_t glm_draw_key(uint64_t seed, int32_t position)
{
    uint64_t a = glm_draw_mix(seed + 0x9E3779B97F4A7C15u);
    return glm_draw_mix(a ^ ((uint64_t)(int64_t)position * 0xD1B54A32D192ED03u));
}
/* In (0, 1): the one value that the format rounds up to 1 becomes the largest below. */
GLM_DRAW_FN double glm_draw_uniform(uint64_t key, int32_t id)
{
    uint64_t z = glm_draw_mix(key ^ (uint64_t)(int64_t)id) >> 11;
    double u = (double)(int64_t)z * 0x1p-53 + 0x1p-54;
    return u < 1.0 ? u : 1.0 - 0x1p-53;
}
GLM_DRAW_FN double glm_draw_gumbel(uint64_t key, int32_t id)
{
    return -glm_draw_log(-glm_draw_log(glm_draw_uniform(key, id)));
}

/* ---- Settings ---- */

enum glm_draw_mode { GLM_DRAW_GREEDY, GLM_DRAW_FREE, GLM_DRAW_CUT };

GLM_DRAW_FN int glm_draw_has_top_p(const struct glm_draw *d)
{
    return d->top_p > 0.0f && d->top_p < 1.0f;
}
GLM_DRAW_FN enum glm_draw_mode glm_draw_mode(const struct glm_draw *d)
{
    if (!(d->temperature > 0.0f))
        return GLM_DRAW_GREEDY;
    return d->top_k > 0 || glm_draw_has_top_p(d) || d->min_p > 0.0f ? GLM_DRAW_CUT : GLM_DRAW_FREE;
}
GLM_DRAW_FN double glm_draw_temperature(const struct glm_draw *d)
{
    return d->temperature > 1e-6f ? (double)d->temperature : 1e-6;
}
/* Candidates that a shard offers, of the C that fit. */
GLM_DRAW_FN int32_t glm_draw_offers(const struct glm_draw *d, int32_t c)
{
    if (glm_draw_mode(d) != GLM_DRAW_CUT)
        return 1;
    return d->top_k > 0 && d->top_k < c ? d->top_k : c;
}

/* ---- The draw ---- */

/* Walks the union of the ranks' lists in order. */
struct glm_draw_walk {
    const int32_t *cands;
    int64_t stride; /* words from rank to rank */
    int32_t world;
    int32_t at[GLM_DRAW_RANKS];
};

GLM_DRAW_FN void glm_draw_begin(struct glm_draw_walk *w, const int32_t *cands, int64_t stride,
                                int32_t world)
{
    w->cands = cands;
    w->stride = stride;
    w->world = world;
    for (int32_t r = 0; r < world; r++)
        w->at[r] = 0;
}

/* The next entry of the union: 1; 0: a shard that holds more than it offered might come first;
 * -1: the union is at its end. */
GLM_DRAW_FN int glm_draw_next(struct glm_draw_walk *w, float *logit, int32_t *id)
{
    int32_t best = -1, open = 0;
    for (int32_t r = 0; r < w->world; r++) {
        const int32_t *record = w->cands + r * w->stride;
        if (w->at[r] >= record[0]) {
            open |= record[0] < record[1];
            continue;
        }
        const int32_t *entry = record + GLM_DRAW_HEADER + 2 * w->at[r];
        float l = glm_draw_float(entry[0]);
        if (best < 0 || l > *logit || (l == *logit && entry[1] < *id)) {
            best = r;
            *logit = l;
            *id = entry[1];
        }
    }
    if (open)
        return 0;
    if (best < 0)
        return -1;
    w->at[best]++;
    return 1;
}

GLM_DRAW_FN double glm_draw_number(const int32_t *record)
{
    return glm_draw_double((uint64_t)(uint32_t)record[2] | (uint64_t)(uint32_t)record[3] << 32);
}

/* Where nothing cuts: the shards' best, equal ones in the order of their logits and ids. */
GLM_DRAW_FN int32_t glm_draw_free(const int32_t *cands, int64_t stride, int32_t world)
{
    int32_t id = GLM_DRAW_NOTHING;
    float logit = 0.0f;
    double best = 0.0;
    for (int32_t r = 0; r < world; r++) {
        const int32_t *record = cands + r * stride;
        if (record[0] == 0)
            continue;
        double x = glm_draw_number(record);
        float l = glm_draw_float(record[GLM_DRAW_HEADER]);
        if (id < 0 || x > best || (x == best && l > logit)) {
            id = record[GLM_DRAW_HEADER + 1];
            logit = l;
            best = x;
        }
    }
    return id;
}

/* Sum of exp(l - first) over what top_k keeps: the first k entries, or with top_k off whole shards.
 * Negative when the candidates do not reach that far. */
GLM_DRAW_FN double glm_draw_total(const int32_t *cands, int64_t stride, int32_t world, int64_t k,
                                  int whole, double t, double first)
{
    double total = 0.0;
    if (whole) {
        for (int32_t r = 0; r < world; r++) {
            const int32_t *record = cands + r * stride;
            if (record[0] > 0) {
                double l = (double)glm_draw_float(record[GLM_DRAW_HEADER]) / t;
                total = GLM_DRAW_FMA(glm_draw_number(record), glm_draw_exp(l - first), total);
            }
        }
        return total;
    }
    struct glm_draw_walk w;
    float logit = 0.0f;
    int32_t id = 0;
    glm_draw_begin(&w, cands, stride, world);
    for (int64_t i = 0; i < k; i++) {
        if (glm_draw_next(&w, &logit, &id) != 1)
            return -1.0;
        total += glm_draw_exp((double)logit / t - first);
    }
    return total;
}

/* The token of one row. cands: rank r's record begins at r * stride words. Returns an id,
 * GLM_DRAW_WIDER when the candidates do not decide it, GLM_DRAW_NOTHING when no id is valid. */
GLM_DRAW_FN int32_t glm_draw_token(const struct glm_draw *d, const int32_t *cands, int64_t stride,
                                   int32_t world)
{
    enum glm_draw_mode mode = glm_draw_mode(d);
    if (mode == GLM_DRAW_FREE)
        return glm_draw_free(cands, stride, world);
    struct glm_draw_walk w;
    float logit = 0.0f;
    int32_t id = 0, answer;
    glm_draw_begin(&w, cands, stride, world);
    int got = glm_draw_next(&w, &logit, &id);
    if (got != 1 || mode == GLM_DRAW_GREEDY)
        return got == 1 ? id : got == 0 ? GLM_DRAW_WIDER : GLM_DRAW_NOTHING;

    int64_t k = 0;
    for (int32_t r = 0; r < world; r++)
        k += cands[r * stride + 1];
    int whole = d->top_k <= 0; /* sums were made only then */
    k = !whole && d->top_k < k ? d->top_k : k;
    const double t = glm_draw_temperature(d), first = (double)logit / t;
    double l = first, sum = 0.0, total = 1.0, least = 0.0;
    if (glm_draw_has_top_p(d)) {
        total = glm_draw_total(cands, stride, world, k, whole, t, first);
        if (total < 0.0)
            return GLM_DRAW_WIDER;
    }
    if (d->min_p > 0.0f)
        least = first + glm_draw_log((double)d->min_p);
    const uint64_t key = glm_draw_key(d->seed, d->position);
    double best = l + glm_draw_gumbel(key, id);
    answer = id;
    for (int64_t i = 1; i < k; i++) {
        sum += glm_draw_exp(l - first) / total;
        if (glm_draw_has_top_p(d) && !(sum < (double)d->top_p))
            break;
        got = glm_draw_next(&w, &logit, &id);
        if (got != 1)
            return got == 0 ? GLM_DRAW_WIDER : answer;
        l = (double)logit / t;
        if (d->min_p > 0.0f && l < least)
            break;
        double x = l + glm_draw_gumbel(key, id);
        if (x > best) {
            best = x;
            answer = id;
        }
    }
    return answer;
}

#endif
