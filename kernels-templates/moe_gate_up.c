/* SPDX-License-Identifier: Apache-2.0 */
/* The picked experts' gate and up with SwiGLU between, rounded once: h[r, slot] = silu(gate x) *
 * (up x). Picks are grouped by expert; the threads take turns at (expert, block of outputs), and
 * whoever has one reads its weights once for all rows of the expert. Products: exl3.h, dots.h. */
#include "dots.h"
#include "experts.h"
#if defined(GLM_FORM_exl3)
#include "exl3.h"
#endif

enum { OUTPUTS = GLM_DOTS_OUTPUTS, BLOCK = 128, BLOCKS = (GLM_I + BLOCK - 1) / BLOCK };

const uint32_t glm_kernel_abi = GLM_HOST_ABI_VERSION;
void glm_kernel(const struct glm_launch *l, void *const *args);

struct work {
    const act_t *x;
    const char *gate, *up; /* of all experts */
    act_t *h;
    float *z; /* [2][R * TOPK][I] sums of gate and up, by pick */
    int64_t n_picks;
};

#if defined(GLM_FORM_exl3)
static const uint16_t *first_words(const struct work *w, int32_t expert, int block)
{
    return glm_exl3_words(w->gate + (size_t)expert * GLM_EXL3_BYTES(GLM_I, GLM_D), GLM_D, block);
}

static void block_exl3(const struct work *w, const int32_t *picks, int n, int32_t expert, int block,
                       const uint16_t *next)
{
    size_t bytes = GLM_EXL3_BYTES(GLM_I, GLM_D);
    const char *matrix[2] = {w->gate + (size_t)expert * bytes, w->up + (size_t)expert * bytes};
    float *z[2] = {w->z + block * BLOCK, w->z + w->n_picks * GLM_I + block * BLOCK};
    for (int i = 0; i < 2; i++) {
        struct glm_exl3_rows rows = {picks, n, w->x, GLM_TOPK, GLM_D, z[i], GLM_I, next};
        if (i == 0)
            rows.next = glm_exl3_words(matrix[1], GLM_D, block);
        glm_exl3_block(&rows, matrix[i], GLM_I, GLM_D, block);
    }
    const uint16_t *svh[2];
    for (int i = 0; i < 2; i++)
        svh[i] = (const uint16_t *)(const void *)(matrix[i] + bytes) - GLM_I + block * BLOCK;
    for (int m = 0; m < n; m++) {
        glm_f32x16 g[8], u[8];
        glm_exl3_rotate_out(z[0] + (size_t)picks[m] * GLM_I, svh[0], g);
        glm_exl3_rotate_out(z[1] + (size_t)picks[m] * GLM_I, svh[1], u);
        act_t *h = w->h + (size_t)picks[m] * GLM_I + block * BLOCK;
        for (int i = 0; i < 8; i++)
            glm_store_act(h + 16 * i, glm_swiglu16_fused(g[i], u[i], GLM_LIMIT));
    }
}
#else
static void block_bf16(const struct work *w, const int32_t *picks, int n, int32_t expert, int block)
{
    int64_t row0 = (int64_t)expert * GLM_I;
    int end = block * BLOCK + BLOCK < GLM_I ? block * BLOCK + BLOCK : GLM_I;
    for (int first = 0; first < n; first += GLM_DOTS_ROWS) {
        int rows = n - first < GLM_DOTS_ROWS ? n - first : GLM_DOTS_ROWS;
        const act_t *x[GLM_DOTS_ROWS];
        for (int m = 0; m < rows; m++)
            x[m] = w->x + (size_t)(picks[first + m] / GLM_TOPK) * GLM_D;
        for (int n0 = block * BLOCK; n0 < end; n0 += OUTPUTS) {
            float out[2][OUTPUTS * GLM_DOTS_ROWS];
            const char *matrix[2] = {w->gate, w->up};
            for (int i = 0; i < 2; i++)
                glm_dots_rows(GLM_DOTS_BF16, x, rows, matrix[i], GLM_E * GLM_I, row0 + n0, OUTPUTS,
                              GLM_D, out[i]);
            for (int m = 0; m < rows; m++)
                for (int j = 0; j < OUTPUTS; j++)
                    w->h[(size_t)picks[first + m] * GLM_I + (size_t)(n0 + j)] =
                        glm_f32_act(glm_swiglu_fused(out[0][OUTPUTS * m + j],
                                                     out[1][OUTPUTS * m + j], GLM_LIMIT));
        }
    }
}
#endif

void glm_kernel(const struct glm_launch *l, void *const *args)
{
    const int32_t *ids = args[1];
    struct work w = {.x = args[0], .gate = args[2], .up = args[3], .h = args[4]};
    struct glm_groups g;
    w.n_picks = (int64_t)l->round->n_rows * GLM_TOPK;
    w.z = (float *)(void *)glm_groups_at(l->scratch, w.n_picks, &g);
    if (l->thread == 0)
        glm_groups_build(&g, ids, w.n_picks);
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
}
