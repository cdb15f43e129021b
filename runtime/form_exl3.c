/* SPDX-License-Identifier: Apache-2.0 */
/* EXL3 groups as stored → their device form, or the weights themselves as bf16 (docs/formats.md 3).
 * load_exl3.cu has the same bits. */
#include "runtime/form_slice.h"

#include "kernels-templates/prelude.h"

#include <stdlib.h>
#include <string.h>

enum { EXL3_BLOCK = 128, EXL3_TILE = 16 };

/* 16-bit chunk c of a tile's bit stream: the stored words come in swapped pairs
 * (docs/formats.md 3). */
static uint16_t stream_chunk(const char *tile, unsigned c)
{
    uint16_t chunk;
    memcpy(&chunk, tile + 2 * (c ^ 1u), sizeof chunk);
    return chunk;
}

/* Eight tiles side by side, at 4 bits: two halves of four tiles, each as eight vectors of 32
 * chunks. A chunk holds the symbols of one column's rows 2m, 2m+1, 2m+8, 2m+9; vector 2m+h lane
 * 8t+q is column q+8h of tile t, so that vector v continues the streams of vector v-1. */
static void exl3_pack_4bit(const char *const tiles[8], uint16_t *out)
{
    for (unsigned half = 0; half < 2; half++)
        for (unsigned v = 0; v < 8; v++)
            for (unsigned t = 0; t < 4; t++)
                for (unsigned q = 0; q < 8; q++)
                    *out++ = stream_chunk(tiles[4 * half + t], 8 * q + v);
}

static void exl3_pack(const char *const tiles[8], unsigned bits, uint16_t *out)
{
    if (bits == 4) {
        exl3_pack_4bit(tiles, out);
        return;
    }
    for (unsigned t = 0; t < 8; t++)
        for (unsigned c = 0; c < 16 * bits; c++)
            *out++ = stream_chunk(tiles[t], c);
}

static enum glm_status exl3_scales(const struct glm_plan_part *part, const char *suffix,
                                   const void *source, const struct glm_slice *s, uint16_t *out,
                                   struct glm_error *err)
{
    uint64_t n = glm_slice_count(s);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = glm_slice_at(s, i);
        memcpy(&out[i], (const char *)source + at * 2, 2);
        if ((out[i] & 0x7c00u) == 0x7c00u)
            return glm_fail(err, GLM_ECHECKPOINT, "'%s.%s' has a non-finite value at %llu",
                            part->tensor, suffix, (unsigned long long)at);
    }
    return GLM_OK;
}

/* ---- As bf16 ---- */

static float halves(uint32_t x)
{
    uint32_t m = (x & 0x8fff8fffu) ^ 0x3b603b60u;
    return glm_f16_f32((uint16_t)m) + glm_f16_f32((uint16_t)(m >> 16));
}

/* A state's value, still to be rounded to fp16: sums and products of these are exact in fp32. */
static float mcg(uint32_t state)
{
    return halves(state * 0xcbac1fedu);
}
static float inst3(uint32_t state)
{
    return halves(state * 89226354u + 64248484u);
}
static float mul1(uint32_t state)
{
    uint32_t x = state * 0x83dcd12du;
    uint32_t sum = (x & 255) + (x >> 8 & 255) + (x >> 16 & 255) + (x >> 24);
    return glm_fma1(glm_f16_f32((uint16_t)(0x6400u + sum)), glm_f16_f32(0x1eee),
                    glm_f16_f32(0xc931));
}

struct codec {
    unsigned bits;
    float (*value)(uint32_t state);
};

static const struct {
    const char *name;
    float (*value)(uint32_t state);
} codebooks[] = {{"mcg", mcg}, {"mul1", mul1}, {"3inst", inst3}};

/* "exl3:4:mcg" → its codec, or false. */
static bool codec_of(const char *stored, struct codec *out)
{
    if (strncmp(stored, "exl3:", 5) != 0 || stored[5] < '1' || stored[5] > '8' || stored[6] != ':')
        return false;
    *out = (struct codec){.bits = (unsigned)(stored[5] - '0')};
    for (size_t i = 0; i < sizeof codebooks / sizeof *codebooks; i++)
        if (strcmp(stored + 7, codebooks[i].name) == 0)
            out->value = codebooks[i].value;
    return out->value != NULL;
}

/* The 16 bits of a tile's stream that end with bit `end`, around its own end. */
static uint32_t state_at(const char *tile, unsigned bits, unsigned end)
{
    unsigned n = 16 * bits, last = (end - 1) / 16, back = (last + 1) * 16 - end;
    uint32_t two =
        (uint32_t)stream_chunk(tile, (last + n - 1) % n) << 16 | stream_chunk(tile, last);
    return (two >> back) & 0xffffu;
}

/* A tile's values into w[input][output], rows of 128. */
static void decode_tile(const struct codec *c, const char *tile, float *w)
{
    for (unsigned p = 0; p < 256; p++) {
        unsigned l = p / 8, j = p % 8;
        unsigned row = 2 * (l % 4) + j % 2 + 8 * (j / 2 % 2), column = l / 4 + 8 * (j / 4);
        float v = c->value(state_at(tile, c->bits, (p + 1) * c->bits));
        w[row * EXL3_BLOCK + column] = glm_f16_f32(glm_f32_f16(v));
    }
}

static void transform(float v[EXL3_BLOCK])
{
    glm_f32x16 block[8];
    for (int i = 0; i < 8; i++)
        block[i] = glm_load(v + 16 * i);
    glm_hadamard128(block);
    for (int i = 0; i < 8; i++)
        glm_store(v + 16 * i, block[i]);
}

/* Decoded w[input][output] of a block → rows of outputs, `stride` apart: outputs transformed, then
 * inputs, times suh, then svh, rounded once. */
static void turn_block(float *w, const uint16_t *suh, const uint16_t *svh, uint16_t *out,
                       uint64_t stride)
{
    for (int k = 0; k < EXL3_BLOCK; k++)
        transform(w + k * EXL3_BLOCK);
    for (int n = 0; n < EXL3_BLOCK; n++) {
        float inputs[EXL3_BLOCK];
        for (int k = 0; k < EXL3_BLOCK; k++)
            inputs[k] = w[k * EXL3_BLOCK + n];
        transform(inputs);
        for (int k = 0; k < EXL3_BLOCK; k++)
            out[(uint64_t)n * stride + (uint64_t)k] =
                glm_f32_bf16(inputs[k] * glm_f16_f32(suh[k]) * glm_f16_f32(svh[n]));
    }
}

/* ---- Groups ---- */

static bool in_blocks(const struct glm_slice *s)
{
    return s->first % EXL3_BLOCK == 0 && s->take % EXL3_BLOCK == 0 &&
           (s->groups == 1 || s->stride % EXL3_BLOCK == 0);
}

static enum glm_status check_cut(const struct glm_plan_part *part, struct glm_error *err)
{
    enum glm_status st = glm_slice_check(part, "rows", &part->rows, part->n_rows, err);
    if (st == GLM_OK)
        st = glm_slice_check(part, "columns", &part->cols, part->n_cols, err);
    if (st != GLM_OK)
        return st;
    if (!in_blocks(&part->rows) || !in_blocks(&part->cols) || part->n_rows % EXL3_BLOCK ||
        part->n_cols % EXL3_BLOCK)
        return glm_fail(err, GLM_EPLAN, "cannot cut '%s': the cut does not fall on blocks of %d",
                        part->tensor, EXL3_BLOCK);
    return GLM_OK;
}

/* The eight tiles of the cut's inputs from k on and outputs from n on. */
static void find_tiles(const struct glm_plan_part *part, const struct glm_exl3_source *source,
                       unsigned bits, uint64_t k, uint64_t n, const char *tiles[8])
{
    uint64_t row = glm_slice_at(&part->cols, k) / EXL3_TILE;
    uint64_t first = row * (part->n_rows / EXL3_TILE) + glm_slice_at(&part->rows, n) / EXL3_TILE;
    for (unsigned t = 0; t < 8; t++)
        tiles[t] = (const char *)source->trellis + (first + t) * 32 * bits;
}

static enum glm_status place_packed(const struct codec *c, const struct glm_plan_part *part,
                                    const struct glm_exl3_source *source, void *out,
                                    struct glm_error *err)
{
    uint64_t n_rows = glm_slice_count(&part->rows), n_cols = glm_slice_count(&part->cols);
    uint16_t *words = out;
    for (uint64_t n = 0; n < n_rows; n += EXL3_BLOCK)
        for (uint64_t k = 0; k < n_cols; k += EXL3_TILE, words += 8 * 16 * c->bits) {
            const char *tiles[8];
            find_tiles(part, source, c->bits, k, n, tiles);
            exl3_pack(tiles, c->bits, words);
        }
    enum glm_status st = exl3_scales(part, "suh", source->suh, &part->cols, words, err);
    if (st == GLM_OK)
        st = exl3_scales(part, "svh", source->svh, &part->rows, words + n_cols, err);
    return st;
}

static enum glm_status place_bf16(const struct codec *c, const struct glm_plan_part *part,
                                  const struct glm_exl3_source *source, uint16_t *out,
                                  struct glm_error *err)
{
    uint64_t n_rows = glm_slice_count(&part->rows), n_cols = glm_slice_count(&part->cols);
    uint16_t *suh = malloc(n_cols * sizeof *suh), *svh = malloc(n_rows * sizeof *svh);
    float *w = malloc(EXL3_BLOCK * EXL3_BLOCK * sizeof *w);
    enum glm_status st = GLM_OK;
    if (suh == NULL || svh == NULL || w == NULL)
        st = glm_fail(err, GLM_ENOMEM, "cannot place '%s': no memory for a block of weights",
                      part->tensor);
    if (st == GLM_OK)
        st = exl3_scales(part, "suh", source->suh, &part->cols, suh, err);
    if (st == GLM_OK)
        st = exl3_scales(part, "svh", source->svh, &part->rows, svh, err);
    for (uint64_t n = 0; st == GLM_OK && n < n_rows; n += EXL3_BLOCK)
        for (uint64_t k = 0; k < n_cols; k += EXL3_BLOCK) {
            for (unsigned i = 0; i < EXL3_BLOCK; i += EXL3_TILE) {
                const char *tiles[8];
                find_tiles(part, source, c->bits, k + i, n, tiles);
                for (unsigned t = 0; t < 8; t++)
                    decode_tile(c, tiles[t], w + i * EXL3_BLOCK + t * EXL3_TILE);
            }
            turn_block(w, suh + k, svh + n, out + n * n_cols + k, n_cols);
        }
    free(suh);
    free(svh);
    free(w);
    return st;
}

enum glm_status glm_form_place_exl3(const char *stored, const char *form,
                                    const struct glm_plan_part *part,
                                    const struct glm_exl3_source *source, void *out,
                                    struct glm_error *err)
{
    struct codec c;
    bool plain = strcmp(form, "bf16") == 0;
    if (!codec_of(stored, &c) || (!plain && strcmp(form, stored) != 0))
        return glm_fail(err, GLM_EPLAN,
                        "cannot place '%s', stored as '%s', as '%s': want exl3:BITS:CODEBOOK as it "
                        "is or as bf16",
                        part->tensor, stored, form);
    enum glm_status st = check_cut(part, err);
    if (st != GLM_OK)
        return st;
    return plain ? place_bf16(&c, part, source, out, err)
                 : place_packed(&c, part, source, out, err);
}
