/* SPDX-License-Identifier: Apache-2.0 */
/* The picked experts' down and their weighted sum: y[r] = sum over slots in pick order of
 * weight * down h[r, slot], then + shared. Picks are grouped by expert as in moe_gate_up; products
 * go to scratch, so that the sum's order does not depend on who finished first. */
#include "dots.h"
#include "experts.h"
#if defined(GLM_FORM_exl3)
#include "exl3.h"
#endif

enum { OUTPUTS = GLM_DOTS_OUTPUTS, BLOCK = 128, BLOCKS = (GLM_D + BLOCK - 1) / BLOCK };

const uint32_t glm_kernel_abi = GLM_HOST_ABI_VERSION;
void glm_kernel(const struct glm_launch *l, void *const *args);

struct work {
    const act_t *h;
    const char *down; /* of all experts */
    float *z;         /* [R * TOPK][D] products by pick */
};

#if defined(GLM_FORM_exl3)
static const uint16_t *first_words(const struct work *w, int32_t expert, int block)
{
    return glm_exl3_words(w->down + (size_t)expert * GLM_EXL3_BYTES(GLM_D, GLM_I), GLM_I, block);
}

static void block_exl3(const struct work *w, const int32_t *picks, int n, int32_t expert, int block,
                       const uint16_t *next)
{
    size_t bytes = GLM_EXL3_BYTES(GLM_D, GLM_I);
    const char *matrix = w->down + (size_t)expert * bytes;
    struct glm_exl3_rows rows = {picks, n, w->h, 1, GLM_I, w->z + block * BLOCK, GLM_D, next};
    glm_exl3_block(&rows, matrix, GLM_D, GLM_I, block);
    const uint16_t *svh = (const uint16_t *)(const void *)(matrix + bytes) - GLM_D + block * BLOCK;
    for (int m = 0; m < n; m++) {
        float *z = w->z + (size_t)picks[m] * GLM_D + block * BLOCK;
        glm_f32x16 y[8];
        glm_exl3_rotate_out(z, svh, y);
        for (int i = 0; i < 8; i++)
            glm_store(z + 16 * i, y[i]);
    }
}
#else
static void block_bf16(const struct work *w, const int32_t *picks, int n, int32_t expert, int block)
{
    int64_t row0 = (int64_t)expert * GLM_D;
    int end = block * BLOCK + BLOCK < GLM_D ? block * BLOCK + BLOCK : GLM_D;
    for (int first = 0; first < n; first += GLM_DOTS_ROWS) {
        int rows = n - first < GLM_DOTS_ROWS ? n - first : GLM_DOTS_ROWS;
        const act_t *h[GLM_DOTS_ROWS];
        for (int m = 0; m < rows; m++)
            h[m] = w->h + (size_t)picks[first + m] * GLM_I;
        for (int n0 = block * BLOCK; n0 < end; n0 += OUTPUTS) {
            float out[OUTPUTS * GLM_DOTS_ROWS];
            glm_dots_rows(GLM_DOTS_BF16, h, rows, w->down, GLM_E * GLM_D, row0 + n0, OUTPUTS, GLM_I,
                          out);
            for (int m = 0; m < rows; m++)
                for (int j = 0; j < OUTPUTS; j++)
                    w->z[(size_t)picks[first + m] * GLM_D + (size_t)(n0 + j)] =
                        out[OUTPUTS * m + j];
        }
    }
}
#endif

/* Sixteen columns of a row: its slots in pick order by fused sums from zero, then shared. */
static void sum_slots(const float *z, const int32_t *ids, const float *weights, const float *shared,
                      float *y)
{
    glm_f32x16 sum = glm_zero();
    for (int s = 0; s < GLM_TOPK; s++)
        if (ids[s] >= 0 && ids[s] < GLM_E)
            sum = glm_fma(glm_splat(weights[s]), glm_load(z + (size_t)s * GLM_D), sum);
    glm_store(y, shared ? glm_add(sum, glm_load(shared)) : sum);
}

void glm_kernel(const struct glm_launch *l, void *const *args)
{
    const int32_t *ids = args[1];
    const float *weights = args[2], *shared = args[4];
    float *y = args[5];
    struct work w = {.h = args[0], .down = args[3]};
    struct glm_groups g;
    int64_t n_rows = l->round->n_rows, n_picks = n_rows * GLM_TOPK;
    w.z = (float *)(void *)glm_groups_at(l->scratch, n_picks, &g);
    if (l->thread == 0)
        glm_groups_build(&g, ids, n_picks);
    glm_barrier(l);
    int64_t n_items = (int64_t)*g.n_distinct * BLOCKS;
    for (int64_t i = l->thread; i < n_items; i += l->n_threads) {
        int32_t expert = g.distinct[i / BLOCKS], first = glm_groups_first(&g, expert);
        int n = g.ends[expert] - first, block = (int)(i % BLOCKS);
#if defined(GLM_FORM_exl3)
        int64_t after = i + l->n_threads;
        const uint16_t *next = NULL;
        if (after < n_items)
            next = first_words(&w, g.distinct[after / BLOCKS], (int)(after % BLOCKS));
        block_exl3(&w, g.picks + first, n, expert, block, next);
#else
        block_bf16(&w, g.picks + first, n, expert, block);
#endif
    }
    glm_barrier(l);
    int64_t first, last;
    glm_part(l, n_rows * (GLM_D / 16), &first, &last);
    for (int64_t i = first; i < last; i++) {
        int64_t row = i / (GLM_D / 16), at = i % (GLM_D / 16) * 16;
        sum_slots(w.z + row * GLM_TOPK * GLM_D + at, ids + row * GLM_TOPK, weights + row * GLM_TOPK,
                  shared ? shared + row * GLM_D + at : NULL, y + row * GLM_D + at);
    }
}
