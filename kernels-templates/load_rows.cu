/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a tensor as stored → their place in a device form (load.h), with the bits of the host's
 * converter, runtime/forms.c. A block takes a row, a piece of the cut's columns at a time: read
 * once, 16 bytes a thread where the addresses allow it, to shared memory as floats, and placed from
 * there. */
#include "load.cuh"

#if defined(GLM_STORED_f32)
typedef uint32_t stored_t;
#else
typedef uint16_t stored_t;
#endif

#define PIECE  1024 /* columns: whole groups of any form */
#define Q4     64
#define FP8    128
#define A_LOAD (16 / (int32_t)sizeof(stored_t))

GLM_INLINE float value_of(uint32_t bits)
{
#if defined(GLM_STORED_f32)
    const float v = glm_bits_f32(bits);
#elif defined(GLM_STORED_bf16)
    const float v = glm_bf16_f32((uint16_t)bits);
#else
    const float v = glm_f16_f32((uint16_t)bits);
#endif
#if defined(GLM_FORM_q4) || defined(GLM_FORM_fp8)
    return glm_round_bf16(v);
#else
    return v;
#endif
}

/* n elements that lie in a row, from any element on. */
GLM_INLINE void read_run(const stored_t *from, int32_t n, float *v)
{
    const int32_t past = (int32_t)((uint64_t)(size_t)from % 16 / sizeof *from);
    const int32_t lead = (A_LOAD - past) % A_LOAD, head = lead < n ? lead : n;
    const int32_t n_loads = (n - head) / A_LOAD;
    for (int32_t i = glm_thread(); i < n_loads; i += GLM_BLOCK) {
        const int32_t at = head + i * A_LOAD;
        const glm_u32x4 u = glm_load16_once(from + at);
        GLM_UNROLL
        for (int j = 0; j < A_LOAD; j++)
            v[at + j] = value_of(A_LOAD == 4 ? u.v[j % 4] : u.v[j / 2] >> (j % 2 * 16) & 0xffffu);
    }
    for (int32_t i = glm_thread(); i < n - n_loads * A_LOAD; i += GLM_BLOCK) {
        const int32_t at = i < head ? i : i + n_loads * A_LOAD;
        v[at] = value_of(from[at]);
    }
}

/* Columns [first, first + n) of the cut of row r. */
GLM_INLINE void read_piece(const struct glm_load_rows *u, uint64_t r, uint64_t first, int32_t n,
                           float *v)
{
    const stored_t *source = (const stored_t *)u->source;
    const uint64_t row =
        (source != nullptr ? r : glm_load_at(&u->rows, u->row + r)) * u->uncut_cols;
    int32_t len;
    for (int32_t c = 0; c < n; c += len) {
        const uint64_t left = u->cols.take - (first + (uint64_t)c) % u->cols.take;
        const uint64_t at = row + glm_load_at(&u->cols, first + (uint64_t)c);
        len = left < (uint64_t)(n - c) ? (int32_t)left : n - c;
        if (source != nullptr)
            read_run(source + at, len, v + c);
        else
            for (int32_t i = glm_thread(); i < len; i += GLM_BLOCK)
                v[c + i] = value_of(glm_synthetic_bits(&u->values, at + (uint64_t)i));
    }
}

/* ---- A piece's values → row `row` of the form, from column `first` on ---- */

#if defined(GLM_FORM_f32)

GLM_INLINE void pad(const struct glm_load_rows *u)
{
    (void)u;
}
GLM_INLINE void place(const struct glm_load_rows *u, uint64_t row, uint64_t first, int32_t n,
                      const float *v)
{
    float *out = (float *)u->out + row * u->n_cols + first;
    for (int32_t i = glm_thread(); i < n; i += GLM_BLOCK)
        out[i] = v[i];
}

#elif defined(GLM_FORM_bf16)

GLM_INLINE void pad(const struct glm_load_rows *u)
{
    (void)u;
}
GLM_INLINE void place(const struct glm_load_rows *u, uint64_t row, uint64_t first, int32_t n,
                      const float *v)
{
    uint16_t *out = (uint16_t *)u->out + row * u->n_cols + first;
    if (u->n_cols % 2 != 0) {
        for (int32_t i = glm_thread(); i < n; i += GLM_BLOCK)
            out[i] = glm_f32_bf16(v[i]);
        return;
    }
    for (int32_t i = glm_thread(); i < n / 2; i += GLM_BLOCK)
        ((uint32_t *)out)[i] = glm_f32_bf16(v[2 * i]) | (uint32_t)glm_f32_bf16(v[2 * i + 1]) << 16;
}

#elif defined(GLM_FORM_bf16_t)

GLM_INLINE void pad(const struct glm_load_rows *u)
{
    (void)u;
}
GLM_INLINE void place(const struct glm_load_rows *u, uint64_t row, uint64_t first, int32_t n,
                      const float *v)
{
    const uint64_t i = (row - u->row0) % u->group_rows;
    uint16_t *group = (uint16_t *)u->out + (row - i) * u->n_cols;
    for (int32_t c = glm_thread(); c < n; c += GLM_BLOCK)
        group[(first + (uint64_t)c) * u->group_rows + i] = glm_f32_bf16(v[c]);
}

#elif defined(GLM_FORM_q4)

/* The bytes between the planes, which no row writes. */
GLM_INLINE void pad(const struct glm_load_rows *u)
{
    const uint64_t codes = u->form_rows * u->n_cols / 2,
                   scales = u->form_rows * (u->n_cols / Q4) * 2;
    char *out = (char *)u->out, *planes = out + glm_load_align(codes);
    glm_load_zero(out + codes, glm_load_align(codes) - codes);
    glm_load_zero(planes + scales, glm_load_align(scales) - scales);
    planes += glm_load_align(scales);
    glm_load_zero(planes + scales, glm_load_align(scales) - scales);
}

GLM_INLINE float code_of(float g, float scale, float bias)
{
    const float v = (g - bias) / scale;
    if (!(v > 0))
        return 0;
    if (v >= 15)
        return 15;
    return (v + GLM_MAGIC) - GLM_MAGIC;
}

/* Candidate i of a group with these extremes. */
GLM_INLINE void candidate(float lo, float hi, int32_t i, uint16_t *scale, uint16_t *bias)
{
    const float a = (float)(1 - 0.45 * i / 15);
    *scale = glm_f32_bf16(glm_max1((hi * a - lo * a) / 15, 1e-8f));
    *bias = glm_f32_bf16(lo * a);
}

/* 16 lanes a group, one a candidate, then one a code word; all of them walk all groups. */
GLM_INLINE void place(const struct glm_load_rows *u, uint64_t row, uint64_t first, int32_t n,
                      const float *values)
{
    GLM_SHARED double errors[GLM_BLOCK];
    const uint64_t groups = u->n_cols / Q4, planes = glm_load_align(u->form_rows * groups * 32);
    char *out = (char *)u->out;
    uint16_t *scales = (uint16_t *)(out + planes);
    uint16_t *biases = (uint16_t *)(out + planes + glm_load_align(u->form_rows * groups * 2));
    const int32_t lane = glm_thread() % 16;
    const double *of_group = errors + (glm_thread() - lane);
    for (int32_t g = glm_thread() / 16; g < PIECE / Q4; g += GLM_BLOCK / 16) {
        const bool live = g < n / Q4;
        const float *v = values + (live ? g : 0) * Q4;
        float lo = v[0], hi = v[0];
        for (int32_t k = 1; k < Q4; k++) {
            lo = v[k] < lo ? v[k] : lo;
            hi = v[k] > hi ? v[k] : hi;
        }
        uint16_t s, b;
        candidate(lo, hi, lane, &s, &b);
        float scale = glm_bf16_f32(s), bias = glm_bf16_f32(b);
        double error = 0;
        for (int32_t k = 0; k < Q4; k++) {
            const float d = glm_fma1(scale, code_of(v[k], scale, bias), bias) - v[k];
            error += (double)d * (double)d;
        }
        glm_warp_barrier();
        errors[glm_thread()] = error;
        glm_warp_barrier();
        int32_t best = 0;
        for (int32_t i = 1; i < 16; i++)
            best = of_group[i] < of_group[best] ? i : best;
        candidate(lo, hi, best, &s, &b);
        scale = glm_bf16_f32(s);
        bias = glm_bf16_f32(b);
        if (!live)
            continue;
        const uint64_t at = row * groups + first / Q4 + (uint64_t)g;
        uint32_t word = 0;
        for (int32_t j = 0; j < 4; j++)
            word |= (uint32_t)code_of(v[lane + 16 * j], scale, bias) << (4 * j);
        ((uint16_t *)out)[at * 16 + (uint64_t)lane] = (uint16_t)word;
        if (lane == 0) {
            scales[at] = s;
            biases[at] = b;
        }
    }
}

#else

GLM_INLINE void pad(const struct glm_load_rows *u)
{
    const uint64_t codes = u->form_rows * u->n_cols, scales = u->form_rows * (u->n_cols / FP8) * 4;
    char *out = (char *)u->out, *plane = out + glm_load_align(codes);
    glm_load_zero(out + codes, glm_load_align(codes) - codes);
    glm_load_zero(plane + scales, glm_load_align(scales) - scales);
}

/* A warp a block of 128. */
GLM_INLINE void place(const struct glm_load_rows *u, uint64_t row, uint64_t first, int32_t n,
                      const float *values)
{
    const uint64_t blocks = u->n_cols / FP8;
    char *out = (char *)u->out;
    float *scales = (float *)(out + glm_load_align(u->form_rows * u->n_cols)) + row * blocks;
    for (int32_t block = glm_warp(); block < n / FP8; block += GLM_WARPS) {
        const float *v = values + block * FP8 + 4 * glm_lane();
        float largest = 0;
        GLM_UNROLL
        for (int i = 0; i < 4; i++)
            largest = glm_max1(largest, v[i] < 0 ? -v[i] : v[i]);
        GLM_UNROLL
        for (int32_t mask = 16; mask > 0; mask /= 2)
            largest = glm_max1(largest, glm_shuffle_xor_f32(largest, mask));
        const float scale = glm_max1(largest / 448, 1e-30f);
        uint32_t codes = 0;
        GLM_UNROLL
        for (int i = 0; i < 4; i++)
            codes |= (uint32_t)glm_f32_e4m3(v[i] / scale) << (8 * i);
        const uint64_t at = row * u->n_cols + first + (uint64_t)(block * FP8 + 4 * glm_lane());
        *(uint32_t *)(out + at) = codes;
        if (glm_lane() == 0)
            scales[first / FP8 + (uint64_t)block] = scale;
    }
}

#endif

GLM_KERNEL(launch)
{
    GLM_SHARED struct glm_load_rows unit;
    GLM_SHARED float values[PIECE];
    glm_load_unit(&unit, launch.args[0], (int32_t)sizeof unit);
    const struct glm_load_rows *u = &unit;
    const uint64_t r = (uint64_t)glm_block_x();
    if (r >= u->n_rows)
        return;
    if (u->row0 + r == 0)
        pad(u);
    for (uint64_t first = 0; first < u->n_cols; first += PIECE) {
        const int32_t n = u->n_cols - first < PIECE ? (int32_t)(u->n_cols - first) : PIECE;
        read_piece(u, r, first, n, values);
        glm_barrier();
        place(u, u->row0 + r, first, n, values);
        glm_barrier();
    }
}
