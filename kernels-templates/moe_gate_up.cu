/* SPDX-License-Identifier: Apache-2.0 */
/* The picked experts' gate and up with SwiGLU between, rounded once: h[r, slot] = silu(gate x) *
 * (up x). A block has a distinct expert of the round and a block of its outputs, 128 under exl3, 16
 * under bf16, for all rows that picked it. Products: exl3.cuh, dots.cuh. */
#define GLM_DOTS_FORM  GLM_DOTS_BF16
#define GLM_DOTS_K     GLM_D
#define GLM_DOTS_TILES 1
#define GLM_DOTS_F32   1
#include "experts.cuh"
#if defined(GLM_FORM_exl3)
#include "exl3.cuh"
#else
#include "dots.cuh"
#endif

static_assert(GLM_D % 16 == 0, "rows are read 16 bytes at a time");

struct work {
    const act_t *x;
    const char *gate, *up; /* of the expert */
    act_t *h;
    int32_t block;
};

#if defined(GLM_FORM_exl3)
#define PASS         GLM_EXL3_ROWS
#define MATRIX_BYTES GLM_EXL3_BYTES(GLM_I, GLM_D)

/* Up to PASS picks of the expert. */
GLM_INLINE void work_picks(const struct work *a, const int32_t *picks, int32_t n)
{
    GLM_SHARED float z[2][GLM_EXL3_ROWS][GLM_EXL3_BLOCK];
    struct glm_exl3 m[2] = {glm_exl3_matrix(a->gate, GLM_I, GLM_D, a->block),
                            glm_exl3_matrix(a->up, GLM_I, GLM_D, a->block)};
    GLM_UNROLL
    for (int i = 0; i < 2; i++) {
        m[i].x = a->x;
        m[i].index = picks;
        m[i].per = GLM_TOPK;
        m[i].n = n;
        glm_exl3_block(&m[i], z[i]);
    }
    for (int32_t r = glm_warp(); r < n; r += GLM_WARPS) {
        float gate[4], up[4];
        glm_exl3_rotate_out(&m[0], z[0][r], gate);
        glm_exl3_rotate_out(&m[1], z[1][r], up);
        GLM_UNROLL
        for (int i = 0; i < 4; i++)
            gate[i] = glm_swiglu_fused(gate[i], up[i], GLM_LIMIT);
        const glm_u32x2 two = {{glm_pack_bf16(gate[0], gate[1]), glm_pack_bf16(gate[2], gate[3])}};
        glm_store8(a->h + (size_t)picks[r] * GLM_I + a->block * GLM_EXL3_BLOCK + 4 * glm_lane(),
                   two);
    }
    glm_barrier();
}
#else
#define PASS         GLM_DOTS_ROWS
#define MATRIX_BYTES ((size_t)GLM_I * GLM_D * 2)

GLM_INLINE void work_picks(const struct work *a, const int32_t *picks, int32_t n)
{
    GLM_SHARED float z[2][GLM_DOTS_ROWS][GLM_DOTS_OUTPUTS];
    const struct glm_dots_rows x = {a->x, n, GLM_D, picks, GLM_TOPK};
    const int32_t n0 = a->block * GLM_DOTS_OUTPUTS;
    GLM_UNROLL
    for (int i = 0; i < 2; i++) {
        const struct glm_dots_weight w = glm_dots_planes(i == 0 ? a->gate : a->up, GLM_I);
        glm_dots_block(&w, n0, GLM_DOTS_OUTPUTS, &x, z[i][0], GLM_DOTS_OUTPUTS);
    }
    glm_barrier();
    for (int32_t i = glm_thread(); i < n * GLM_DOTS_OUTPUTS; i += GLM_BLOCK) {
        const int32_t r = i / GLM_DOTS_OUTPUTS, c = i % GLM_DOTS_OUTPUTS;
        a->h[(size_t)picks[r] * GLM_I + n0 + c] =
            glm_f32_act(glm_swiglu_fused(z[0][r][c], z[1][r][c], GLM_LIMIT));
    }
    glm_barrier();
}
#endif

GLM_KERNEL(launch)
{
    GLM_SHARED int32_t members[GLM_MEMBER_ROOM];
    const int32_t *ids = (const int32_t *)launch.args[1];
    const int32_t n_picks = launch.round->n_rows * GLM_TOPK;
    const struct glm_expert expert = glm_expert_find(ids, n_picks, glm_block_y());
    if (expert.id < 0)
        return;
    const size_t offset = (size_t)expert.id * MATRIX_BYTES;
    const struct work a = {(const act_t *)launch.args[0], (const char *)launch.args[2] + offset,
                           (const char *)launch.args[3] + offset, (act_t *)launch.args[4],
                           glm_block_x()};
    for (int32_t from = 0; from < n_picks;) {
        const int32_t n = glm_expert_members(ids, n_picks, expert.id, &from, members);
        for (int32_t first = 0; first < n; first += PASS)
            work_picks(&a, members + first, n - first < PASS ? n - first : PASS);
    }
}
