/* SPDX-License-Identifier: Apache-2.0 */
/* The picked experts' down and their weighted sum: y[r] = sum over slots in pick order of
 * weight * down h[r, slot], then + shared. A block has a distinct expert of the round and a block
 * of outputs, as in moe_gate_up; products go to scratch, and the last block of those outputs sums
 * them, so that the sum's order does not depend on who finished first. */
#define GLM_DOTS_FORM  GLM_DOTS_BF16
#define GLM_DOTS_K     GLM_I
#define GLM_DOTS_TILES 1
#define GLM_DOTS_F32   1
#include "experts.cuh"
#if defined(GLM_FORM_exl3)
#include "exl3.cuh"
#else
#include "dots.cuh"
#endif

static_assert(GLM_I % 16 == 0, "rows are read 16 bytes at a time");

struct work {
    const act_t *h;
    const char *down; /* of the expert */
    float *z;         /* [R * TOPK][D] products by pick */
    int32_t block;
};

#if defined(GLM_FORM_exl3)
#define PASS         GLM_EXL3_ROWS
#define OUTPUTS      GLM_EXL3_BLOCK
#define MATRIX_BYTES GLM_EXL3_BYTES(GLM_D, GLM_I)

/* Up to PASS picks of the expert. */
GLM_INLINE void work_picks(const struct work *a, const int32_t *picks, int32_t n)
{
    GLM_SHARED float z[GLM_EXL3_ROWS][GLM_EXL3_BLOCK];
    struct glm_exl3 m = glm_exl3_matrix(a->down, GLM_D, GLM_I, a->block);
    m.x = a->h;
    m.index = picks;
    m.n = n;
    glm_exl3_block(&m, z);
    for (int32_t r = glm_warp(); r < n; r += GLM_WARPS) {
        float v[4];
        glm_exl3_rotate_out(&m, z[r], v);
        float *to = a->z + (size_t)picks[r] * GLM_D + a->block * OUTPUTS + 4 * glm_lane();
        GLM_UNROLL
        for (int i = 0; i < 4; i++)
            to[i] = v[i];
    }
    glm_barrier();
}
#else
#define PASS         GLM_DOTS_ROWS
#define OUTPUTS      GLM_DOTS_OUTPUTS
#define MATRIX_BYTES ((size_t)GLM_D * GLM_I * 2)

GLM_INLINE void work_picks(const struct work *a, const int32_t *picks, int32_t n)
{
    GLM_SHARED float z[GLM_DOTS_ROWS][GLM_DOTS_OUTPUTS];
    const struct glm_dots_rows h = {a->h, n, GLM_I, picks, 1};
    const struct glm_dots_weight w = glm_dots_planes(a->down, GLM_D);
    glm_dots_block(&w, a->block * OUTPUTS, OUTPUTS, &h, z[0], OUTPUTS);
    glm_barrier();
    for (int32_t i = glm_thread(); i < n * OUTPUTS; i += GLM_BLOCK)
        a->z[(size_t)picks[i / OUTPUTS] * GLM_D + a->block * OUTPUTS + i % OUTPUTS] =
            z[i / OUTPUTS][i % OUTPUTS];
    glm_barrier();
}
#endif

/* The block's outputs of every row: its slots in pick order by fused sums from zero, then shared.
 */
GLM_INLINE void sum_slots(const struct work *a, const int32_t *ids, const float *weights,
                          const float *shared, int32_t n_rows, float *y)
{
    for (int32_t i = glm_thread(); i < n_rows * OUTPUTS; i += GLM_BLOCK) {
        const size_t row = (size_t)(i / OUTPUTS);
        const int32_t at = a->block * OUTPUTS + i % OUTPUTS;
        float sum = 0.0f;
        for (int s = 0; s < GLM_TOPK; s++) {
            const size_t pick = row * GLM_TOPK + s;
            if (ids[pick] >= 0 && ids[pick] < GLM_E)
                sum = glm_fma1(weights[pick], glm_load_f32_fresh(a->z + pick * GLM_D + at), sum);
        }
        y[row * GLM_D + at] = shared != nullptr ? sum + shared[row * GLM_D + at] : sum;
    }
}

GLM_KERNEL(launch)
{
    GLM_SHARED int32_t members[GLM_MEMBER_ROOM];
    const int32_t *ids = (const int32_t *)launch.args[1];
    const int32_t n_rows = launch.round->n_rows, n_picks = n_rows * GLM_TOPK;
    const struct glm_expert expert = glm_expert_find(ids, n_picks, glm_block_y());
    const bool nobody = expert.n_distinct == 0 && glm_block_y() == 0; /* sums of nothing */
    if (expert.id < 0 && !nobody)
        return;
    const struct work a = {(const act_t *)launch.args[0],
                           (const char *)launch.args[3] +
                               (size_t)(nobody ? 0 : expert.id) * MATRIX_BYTES,
                           (float *)launch.scratch, glm_block_x()};
    for (int32_t from = nobody ? n_picks : 0; from < n_picks;) {
        const int32_t n = glm_expert_members(ids, n_picks, expert.id, &from, members);
        for (int32_t first = 0; first < n; first += PASS)
            work_picks(&a, members + first, n - first < PASS ? n - first : PASS);
    }
    if (nobody || glm_last_block(&launch.tickets[a.block], (uint32_t)expert.n_distinct))
        sum_slots(&a, ids, (const float *)launch.args[2], (const float *)launch.args[4], n_rows,
                  (float *)launch.args[5]);
}
