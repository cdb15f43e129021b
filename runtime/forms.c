/* SPDX-License-Identifier: Apache-2.0 */
/* Host converters of weights: takes a rank's slice of an uncut tensor and writes the layout that
 * the host kernels stream. Owns the layouts and the quantizers (docs/formats.md 3, 5);
 * leaves files, members and the order of work to the loader. Sources are hostile: shapes and
 * slices are checked before an address is formed, values may be anything. */
#include "runtime/form_slice.h"

#include "kernels-templates/prelude.h"

#include <stdlib.h>
#include <string.h>

enum { Q4_GROUP = 64, FP8_BLOCK = 128 };

/* ---- Slices ---- */

enum glm_status glm_slice_check(const struct glm_plan_part *part, const char *what,
                                const struct glm_slice *s, uint64_t n, struct glm_error *err)
{
    uint64_t last, end, count;
    if (s->take == 0 || s->groups == 0 || n > (UINT64_C(1) << 40) ||
        __builtin_mul_overflow(s->groups - 1, s->stride, &last) ||
        __builtin_add_overflow(last, s->first, &last) ||
        __builtin_add_overflow(last, s->take, &end) || end > n ||
        __builtin_mul_overflow(s->groups, s->take, &count) || count > n)
        return glm_fail(
            err, GLM_EPLAN,
            "cannot slice '%s': %s of %llu groups of %llu from %llu at stride %llu, the "
            "tensor has %llu",
            part->tensor, what, (unsigned long long)s->groups, (unsigned long long)s->take,
            (unsigned long long)s->first, (unsigned long long)s->stride, (unsigned long long)n);
    return GLM_OK;
}

static float source_value(const void *source, enum glm_dtype dtype, uint64_t i)
{
    if (dtype == GLM_F32) {
        float a;
        memcpy(&a, (const char *)source + i * 4, 4);
        return a;
    }
    uint16_t h;
    memcpy(&h, (const char *)source + i * 2, 2);
    return dtype == GLM_BF16 ? glm_bf16_f32(h) : glm_f16_f32(h);
}

/* The slice's columns of uncut row `row`, as floats. */
static void gather_row(const struct glm_plan_part *part, const void *source, enum glm_dtype dtype,
                       uint64_t row, float *out)
{
    const struct glm_slice *c = &part->cols;
    for (uint64_t g = 0; g < c->groups; g++) {
        uint64_t at = row * part->n_cols + c->first + g * c->stride;
        for (uint64_t i = 0; i < c->take; i++)
            *out++ = source_value(source, dtype, at + i);
    }
}

/* ---- Quantizers ---- */

static float q4_code(float g, float scale, float bias)
{
    float v = (g - bias) / scale;
    if (!(v > 0))
        return 0;
    if (v >= 15)
        return 15;
    return (v + GLM_MAGIC) - GLM_MAGIC;
}

void glm_q4_group(const float values[64], uint16_t codes[16], uint16_t *scale, uint16_t *bias)
{
    float lo = values[0], hi = values[0];
    for (int i = 1; i < Q4_GROUP; i++) {
        lo = values[i] < lo ? values[i] : lo;
        hi = values[i] > hi ? values[i] : hi;
    }
    double best = 0;
    for (int i = 0; i < 16; i++) {
        float a = (float)(1 - 0.45 * i / 15);
        uint16_t s = glm_f32_bf16(glm_max1((hi * a - lo * a) / 15, 1e-8f));
        uint16_t b = glm_f32_bf16(lo * a);
        float sf = glm_bf16_f32(s), bf = glm_bf16_f32(b);
        double error = 0;
        for (int k = 0; k < Q4_GROUP; k++) {
            float d = glm_fma1(sf, q4_code(values[k], sf, bf), bf) - values[k];
            error += (double)d * (double)d;
        }
        if (i == 0 || error < best) {
            best = error;
            *scale = s;
            *bias = b;
        }
    }
    float sf = glm_bf16_f32(*scale), bf = glm_bf16_f32(*bias);
    memset(codes, 0, 16 * sizeof *codes);
    for (int k = 0; k < Q4_GROUP; k++) {
        unsigned q = (unsigned)q4_code(values[k], sf, bf);
        codes[k % 16] = (uint16_t)(codes[k % 16] | q << (4 * (k / 16)));
    }
}

void glm_fp8_block(const float values[128], uint8_t codes[128], float *scale)
{
    float largest = 0;
    for (int i = 0; i < FP8_BLOCK; i++)
        largest = glm_max1(largest, values[i] < 0 ? -values[i] : values[i]);
    *scale = glm_max1(largest / 448, 1e-30f);
    for (int i = 0; i < FP8_BLOCK; i++)
        codes[i] = glm_f32_e4m3(values[i] / *scale);
}

/* ---- Plain weights ---- */

struct target {
    uint64_t n_rows, n_cols;
    char *out;
};

static void put_f32(const struct target *t, uint64_t row, const float *values)
{
    memcpy(t->out + row * t->n_cols * 4, values, t->n_cols * 4);
}

static void put_bf16(const struct target *t, uint64_t row, const float *values)
{
    uint16_t *out = (uint16_t *)(void *)t->out + row * t->n_cols;
    for (uint64_t i = 0; i < t->n_cols; i++)
        out[i] = glm_f32_bf16(values[i]);
}

static uint64_t align64(uint64_t bytes)
{
    return (bytes + 63) & ~UINT64_C(63);
}

static void put_q4(const struct target *t, uint64_t row, const float *values)
{
    uint64_t groups = t->n_cols / Q4_GROUP;
    uint16_t *codes = (uint16_t *)(void *)t->out + row * groups * 16;
    char *planes = t->out + align64(t->n_rows * groups * 32);
    uint16_t *scales = (uint16_t *)(void *)planes + row * groups;
    uint16_t *biases =
        (uint16_t *)(void *)(planes + align64(t->n_rows * groups * 2)) + row * groups;
    for (uint64_t g = 0; g < groups; g++) {
        float v[Q4_GROUP];
        for (int i = 0; i < Q4_GROUP; i++)
            v[i] = glm_round_bf16(values[g * Q4_GROUP + (uint64_t)i]);
        glm_q4_group(v, codes + g * 16, &scales[g], &biases[g]);
    }
}

static void put_fp8(const struct target *t, uint64_t row, const float *values)
{
    uint64_t blocks = t->n_cols / FP8_BLOCK;
    uint8_t *codes = (uint8_t *)t->out + row * t->n_cols;
    char *plane = t->out + align64(t->n_rows * t->n_cols);
    float *scales = (float *)(void *)plane + row * blocks;
    for (uint64_t b = 0; b < blocks; b++) {
        float v[FP8_BLOCK];
        for (int i = 0; i < FP8_BLOCK; i++)
            v[i] = glm_round_bf16(values[b * FP8_BLOCK + (uint64_t)i]);
        glm_fp8_block(v, codes + b * FP8_BLOCK, &scales[b]);
    }
}

/* The bytes between the planes, which no row writes. */
static void pad_q4(const struct target *t)
{
    uint64_t codes = t->n_rows * t->n_cols / 2, scales = t->n_rows * (t->n_cols / Q4_GROUP) * 2;
    uint64_t at = align64(codes) + scales;
    memset(t->out + codes, 0, align64(codes) - codes);
    memset(t->out + at, 0, align64(scales) - scales);
    at += align64(scales);
    memset(t->out + at, 0, align64(at) - at);
}

static void pad_fp8(const struct target *t)
{
    uint64_t codes = t->n_rows * t->n_cols;
    uint64_t end = align64(codes) + t->n_rows * (t->n_cols / FP8_BLOCK) * 4;
    memset(t->out + codes, 0, align64(codes) - codes);
    memset(t->out + end, 0, align64(end) - end);
}

static const struct form {
    const char *name;
    uint64_t unit; /* columns come in multiples of it */
    void (*put)(const struct target *t, uint64_t row, const float *values);
    void (*pad)(const struct target *t);
} forms[] = {
    {"f32", 1, put_f32, NULL},
    {"bf16", 1, put_bf16, NULL},
    {"q4", Q4_GROUP, put_q4, pad_q4},
    {"fp8", FP8_BLOCK, put_fp8, pad_fp8},
};

static void place_transposed(const struct glm_plan_part *part, const void *source,
                             enum glm_dtype dtype, uint16_t *out)
{
    const struct glm_slice *r = &part->rows;
    uint64_t n_cols = glm_slice_count(&part->cols);
    for (uint64_t g = 0; g < r->groups; g++, out += n_cols * r->take)
        for (uint64_t i = 0; i < r->take; i++) {
            uint64_t row = (r->first + g * r->stride + i) * part->n_cols;
            for (uint64_t c = 0; c < n_cols; c++)
                out[c * r->take + i] =
                    glm_f32_bf16(source_value(source, dtype, row + glm_slice_at(&part->cols, c)));
        }
}

enum glm_status glm_form_place(const char *form, const struct glm_plan_part *part,
                               const void *source, enum glm_dtype dtype, uint64_t n_rows,
                               uint64_t n_cols, uint64_t row0, void *out, struct glm_error *err)
{
    enum glm_status st = glm_slice_check(part, "rows", &part->rows, part->n_rows, err);
    if (st == GLM_OK)
        st = glm_slice_check(part, "columns", &part->cols, part->n_cols, err);
    if (st != GLM_OK)
        return st;
    if (dtype != GLM_F32 && dtype != GLM_BF16 && dtype != GLM_F16)
        return glm_fail(err, GLM_EPLAN,
                        "cannot convert '%s': it is stored as %s, want F32, BF16 or F16",
                        part->tensor, glm_dtype_text(dtype));
    uint64_t rows = glm_slice_count(&part->rows), cols = glm_slice_count(&part->cols);
    bool transposed = !strcmp(form, "bf16_t");
    uint64_t room = transposed ? n_rows * n_cols / cols : n_rows;
    if ((!transposed && cols != n_cols) || row0 > room || rows > room - row0)
        return glm_fail(
            err, GLM_EPLAN,
            "cannot place '%s': %llu x %llu from row %llu on, the weight is %llu x %llu",
            part->tensor, (unsigned long long)rows, (unsigned long long)cols,
            (unsigned long long)row0, (unsigned long long)n_rows, (unsigned long long)n_cols);
    if (transposed) {
        place_transposed(part, source, dtype, (uint16_t *)out + row0 * cols);
        return GLM_OK;
    }
    const struct form *f = NULL;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (!strcmp(form, forms[i].name))
            f = &forms[i];
    if (!f || n_cols % f->unit)
        return glm_fail(err, GLM_EPLAN, "cannot place '%s' as '%s': %s%llu columns", part->tensor,
                        form, f ? "the form does not hold " : "no such form for ",
                        (unsigned long long)n_cols);
    float *values = malloc(n_cols * sizeof *values);
    if (!values)
        return glm_fail(err, GLM_ENOMEM, "cannot place '%s': no memory for a row of %llu values",
                        part->tensor, (unsigned long long)n_cols);
    struct target t = {n_rows, n_cols, out};
    if (f->pad && row0 == 0)
        f->pad(&t);
    for (uint64_t i = 0; i < rows; i++) {
        gather_row(part, source, dtype, glm_slice_at(&part->rows, i), values);
        f->put(&t, row0 + i, values);
    }
    free(values);
    return GLM_OK;
}
