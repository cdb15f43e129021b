/* SPDX-License-Identifier: Apache-2.0 */
/* 128 inputs x 128 outputs of an EXL3 group's cut as stored → their place in the device form
 * (load.h), with the bits of the host's converter, runtime/form_exl3.c. A warp takes 16 inputs: the
 * eight tiles beside each other that are a step of the device form.
 *
 * As bf16, the weights themselves: each input's 128 outputs are transformed, then each output's
 * inputs, then times suh, then times svh, in fp32 and rounded once. */
#include "exl3_codec.cuh"
#include "load.cuh"

#define SIDE   128
#define TILE   (16 * GLM_BITS) /* u16 of 16 x 16 weights */
#define HALF   (4 * TILE)      /* of half a step */
#define LOADS  (HALF / 8)      /* 16 bytes each */
#define STRIDE (SIDE + 1)      /* of an output's inputs between the transforms */

static_assert(GLM_WARPS == SIDE / 16, "a warp has 16 of the inputs");

/* Eight words of the uncut trellis from word `at` on. */
GLM_INLINE glm_u32x4 read_words(const struct glm_load_exl3 *u, uint64_t at)
{
    glm_u32x4 r;
    if (u->trellis != nullptr && (uint64_t)(size_t)u->trellis % 16 == 0)
        r = glm_load16_once(u->trellis + at);
    else
        GLM_UNROLL
    for (int i = 0; i < 4; i++) {
        const uint64_t k = at + 2 * (uint64_t)i;
        const uint32_t low =
            u->trellis != nullptr ? u->trellis[k] : glm_synthetic_bits(&u->trellis_values, k);
        const uint32_t high = u->trellis != nullptr ? u->trellis[k + 1]
                                                    : glm_synthetic_bits(&u->trellis_values, k + 1);
        r.v[i] = low | high << 16;
    }
    return r;
}

/* A scale as stored, of uncut input or output `at`. */
GLM_INLINE uint16_t read_scale(const uint16_t *from, const struct glm_synthetic_values *values,
                               uint64_t at)
{
    return from != nullptr ? from[at] : (uint16_t)glm_synthetic_bits(values, at);
}

#if defined(GLM_FORM_exl3)

/* The same in the order of a tile's stream: the halves of each pair swapped. */
GLM_INLINE glm_u32x4 read_stream(const struct glm_load_exl3 *u, uint64_t at)
{
    glm_u32x4 r = read_words(u, at);
    GLM_UNROLL
    for (int i = 0; i < 4; i++)
        r.v[i] = r.v[i] << 16 | r.v[i] >> 16;
    return r;
}

/* Eight of the 256 words of half a step at 4 bits: vector l / 4, tile l % 4, its eight columns. */
GLM_INLINE glm_u32x4 interleaved(const uint16_t *half, int32_t l)
{
    const uint16_t *from = half + l % 4 * 64 + l / 4;
    glm_u32x4 r;
    GLM_UNROLL
    for (int i = 0; i < 4; i++)
        r.v[i] = from[16 * i] | (uint32_t)from[16 * i + 8] << 16;
    return r;
}

GLM_INLINE void place_half(const struct glm_load_exl3 *u, uint64_t from, uint16_t *to)
{
#if GLM_BITS == 4
    GLM_SHARED uint16_t room[GLM_WARPS][HALF];
    uint16_t *half = room[glm_warp()];
    glm_warp_barrier();
    glm_store16(half + 8 * glm_lane(), read_stream(u, from + 8 * (uint64_t)glm_lane()));
    glm_warp_barrier();
    glm_store16(to + 8 * glm_lane(), interleaved(half, glm_lane()));
#else
    for (int32_t i = glm_lane(); i < LOADS; i += GLM_WARP)
        glm_store16(to + 8 * i, read_stream(u, from + 8 * (uint64_t)i));
#endif
}

/* k0, n0: the block's inputs and outputs in the cut; k, n: in the uncut matrix. */
GLM_INLINE void place(const struct glm_load_exl3 *u, uint64_t k0, uint64_t n0, uint64_t k,
                      uint64_t n)
{
    uint16_t *out = (uint16_t *)u->out;
    const uint64_t step = k0 / 16 + (uint64_t)glm_warp();
    const uint64_t from = ((k / 16 + (uint64_t)glm_warp()) * (u->uncut_rows / 16) + n / 16) * TILE;
    uint16_t *to = out + (n0 / SIDE * (u->n_cols / 16) + step) * 8 * TILE;
    place_half(u, from, to);
    place_half(u, from + HALF, to + HALF);
    uint16_t *suh = out + u->n_rows * u->n_cols / 16 * GLM_BITS, *svh = suh + u->n_cols;
    const uint64_t i = (uint64_t)glm_thread();
    if (n0 == 0 && i < SIDE)
        suh[k0 + i] = read_scale(u->suh, &u->suh_values, k + i);
    if (k0 == 0 && i < SIDE)
        svh[n0 + i] = read_scale(u->svh, &u->svh_values, n + i);
}

#else

/* A step of a warp: half of its words, all of its values as fp16. */
struct step {
    uint32_t words[HALF / 2]; /* of streams, the first bit on top */
    uint16_t values[16][SIDE];
};

/* The state that ends with bit `end` of a stream of N words. */
GLM_INLINE uint32_t state(const uint32_t *stream, int32_t end)
{
    enum { N = 8 * GLM_BITS };
    const int32_t last = (end - 1) / 32, back = (last + 1) * 32 - end;
    const uint64_t two = (uint64_t)stream[(last + N - 1) % N] << 32 | stream[last];
    return (uint32_t)(two >> back);
}

/* Four tiles of a step, from word `from` on, as values. Lane l has values 8 l … 8 l + 7 of each:
 * columns l / 4 and l / 4 + 8, rows 2 (l % 4), + 1, + 8, + 9 (docs/formats.md 3). */
GLM_INLINE void decode_half(const struct glm_load_exl3 *u, uint64_t from, int32_t column,
                            struct step *s)
{
    glm_warp_barrier();
    for (int32_t i = glm_lane(); i < LOADS; i += GLM_WARP)
        glm_store16(s->words + 4 * i, read_words(u, from + 8 * (uint64_t)i));
    glm_warp_barrier();
    const int32_t lane = glm_lane(), row = 2 * (lane % 4);
    for (int32_t t = 0; t < 4; t++) {
        const uint32_t *stream = s->words + t * TILE / 2;
        const int32_t first = column + 16 * t + lane / 4;
        GLM_UNROLL
        for (int j = 0; j < 8; j += 2) {
            const int32_t end = (8 * lane + j + 1) * GLM_BITS;
            const uint32_t two = glm_exl3_values(state(stream, end), state(stream, end + GLM_BITS));
            const int32_t at = row + j / 2 % 2 * 8, to = first + j / 4 * 8;
            s->values[at][to] = (uint16_t)two;
            s->values[at + 1][to] = (uint16_t)(two >> 16);
        }
    }
}

GLM_INLINE void place(const struct glm_load_exl3 *u, uint64_t k0, uint64_t n0, uint64_t k,
                      uint64_t n)
{
    GLM_SHARED union {
        struct step steps[GLM_WARPS];
        float turned[SIDE / 2 * STRIDE]; /* half of the outputs, their inputs in a row */
    } room;
    const int32_t lane = glm_lane(), warp = glm_warp();
    const uint64_t from = ((k / 16 + (uint64_t)warp) * (u->uncut_rows / 16) + n / 16) * TILE;
    struct step *s = &room.steps[warp];
    decode_half(u, from, 0, s);
    decode_half(u, from + HALF, SIDE / 2, s);
    glm_warp_barrier();
    float v[16][4];
    GLM_UNROLL
    for (int r = 0; r < 16; r++) {
        GLM_UNROLL
        for (int i = 0; i < 4; i++)
            v[r][i] = glm_f16_f32(s->values[r][4 * lane + i]);
        glm_hadamard128(v[r]);
    }
    float suh[4];
    GLM_UNROLL
    for (int i = 0; i < 4; i++)
        suh[i] = glm_f16_f32(read_scale(u->suh, &u->suh_values, k + (uint64_t)(4 * lane + i)));
    uint16_t *out = (uint16_t *)u->out + n0 * u->n_cols + k0;
    for (int32_t half = 0; half < 2; half++) {
        glm_barrier();
        if (lane / 16 == half) {
            GLM_UNROLL
            for (int i = 0; i < 64; i++)
                room.turned[(4 * (lane % 16) + i % 4) * STRIDE + 16 * warp + i / 4] =
                    v[i / 4][i % 4];
        }
        glm_barrier();
        for (int32_t i = warp; i < SIDE / 2; i += GLM_WARPS) {
            const uint64_t output = (uint64_t)(half * (SIDE / 2) + i);
            const float svh = glm_f16_f32(read_scale(u->svh, &u->svh_values, n + output));
            float w[4];
            GLM_UNROLL
            for (int j = 0; j < 4; j++)
                w[j] = room.turned[i * STRIDE + 4 * lane + j];
            glm_hadamard128(w);
            uint32_t bits[4];
            GLM_UNROLL
            for (int j = 0; j < 4; j++)
                bits[j] = glm_f32_bf16(w[j] * suh[j] * svh);
            const glm_u32x2 four = {{bits[0] | bits[1] << 16, bits[2] | bits[3] << 16}};
            glm_store8(out + output * u->n_cols + 4 * lane, four);
        }
    }
}

#endif

GLM_KERNEL(launch)
{
    GLM_SHARED struct glm_load_exl3 unit;
    glm_load_unit(&unit, launch.args[0], (int32_t)sizeof unit);
    const uint64_t across = unit.n_cols / SIDE, b = (uint64_t)glm_block_x();
    if (b >= across * (unit.n_rows / SIDE))
        return;
    const uint64_t k0 = b % across * SIDE, n0 = b / across * SIDE;
    place(&unit, k0, n0, glm_load_at(&unit.cols, k0), glm_load_at(&unit.rows, n0));
}
