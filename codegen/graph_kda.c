/* SPDX-License-Identifier: Apache-2.0 */
/* KDA: a gated delta rule over a fixed state per head (docs/model.md 3). Cut by heads; f_a and g_a
 * are replicated. Per stream: the state [H, D key, D value] in fp32, twice, so that a round writes
 * beside the committed one, and a ring of the convolution's inputs. With several verify rows a
 * round also records what each row did to the state, and commit replays the rows that are kept. */
#include "codegen/builder.h"

/* Columns of proj: q | k | v | f_a | g_a | b, rows padded to whole vectors of 16. */
struct proj {
    uint64_t n_head_cols; /* of q, of k and of v on this rank */
    uint64_t f_a, g_a, b, n, stride;
};

static struct proj proj_layout(const struct glm_model *m, const struct glm_site *site)
{
    struct proj p = {.n_head_cols = (uint64_t)site->shares.kda_heads.count * m->d_kda_head};
    p.f_a = 3 * p.n_head_cols;
    p.g_a = p.f_a + m->d_kda_head;
    p.b = p.g_a + m->d_kda_head;
    p.n = p.b + site->shares.kda_heads.count;
    p.stride = (p.n + 15) / 16 * 16;
    return p;
}

static void kda_weights(struct glm_builder *b, const struct glm_site *site)
{
    const struct glm_model *m = b->model;
    struct glm_share heads = site->shares.kda_heads;
    uint64_t d = m->d_kda_head, hd = m->n_kda_heads * d, hidden = m->d_hidden,
             taps = m->n_conv_taps;
    struct glm_slice mine = glm_slice_share(heads, d), low = glm_slice_all(d),
                     in = glm_slice_all(hidden);
    enum glm_matrix_form dense = b->lane->formats.dense;
    glm_build_weight(b, site,
                     &(struct glm_weight_def){
                         .name = "kda.in",
                         .class = GLM_CLASS_DENSE,
                         .form = glm_build_form(dense, hidden, 0),
                         .parts = {{"self_attn.q_proj.weight", hd, hidden, mine, in},
                                   {"self_attn.k_proj.weight", hd, hidden, mine, in},
                                   {"self_attn.v_proj.weight", hd, hidden, mine, in},
                                   {"self_attn.f_a_proj.weight", d, hidden, low, in},
                                   {"self_attn.g_a_proj.weight", d, hidden, low, in},
                                   {"self_attn.b_proj.weight", m->n_kda_heads, hidden,
                                    glm_slice_share(heads, 1), in}},
                     });
    glm_build_weight(b, site,
                     &(struct glm_weight_def){
                         .name = "kda.f_b",
                         .class = GLM_CLASS_DENSE,
                         .form = glm_build_form(dense, d, 0),
                         .parts = {{"self_attn.f_b_proj.weight", hd, d, mine, low}},
                     });
    glm_build_weight(b, site,
                     &(struct glm_weight_def){
                         .name = "kda.g_b",
                         .class = GLM_CLASS_DENSE,
                         .form = glm_build_form(dense, d, 0),
                         .parts = {{"self_attn.g_b_proj.weight", hd, d, mine, low}},
                     });
    glm_build_weight(
        b, site,
        &(struct glm_weight_def){
            .name = "kda.conv",
            .class = GLM_CLASS_OTHER,
            .form = "bf16",
            .parts = {{"self_attn.q_conv1d.weight", hd, taps, mine, glm_slice_all(taps)},
                      {"self_attn.k_conv1d.weight", hd, taps, mine, glm_slice_all(taps)},
                      {"self_attn.v_conv1d.weight", hd, taps, mine, glm_slice_all(taps)}},
        });
    glm_build_weight(b, site,
                     &(struct glm_weight_def){
                         .name = "kda.a_log",
                         .class = GLM_CLASS_OTHER,
                         .form = "f32",
                         .parts = {{"self_attn.A_log", 1, m->n_kda_heads, glm_slice_all(1),
                                    glm_slice_share(heads, 1)}},
                     });
    glm_build_weight(b, site,
                     &(struct glm_weight_def){
                         .name = "kda.dt_bias",
                         .class = GLM_CLASS_OTHER,
                         .form = "f32",
                         .parts = {{"self_attn.dt_bias", 1, hd, glm_slice_all(1), mine}},
                     });
    glm_build_vector(b, site, "kda.o_norm", "self_attn.o_norm.weight", "bf16", d);
    glm_build_weight(b, site,
                     &(struct glm_weight_def){
                         .name = "kda.o",
                         .class = GLM_CLASS_DENSE,
                         .form = glm_build_form(dense, hd, d),
                         .parts = {{"self_attn.o_proj.weight", hidden, hd, in, mine}},
                     });
}

static const char *replay_kernel(struct glm_builder *b, const struct glm_site *site)
{
    return glm_build_kernel(
        b, "kda_replay", "kda_replay",
        GLM_PARAMS(GLM_INT("H", site->shares.kda_heads.count, "rank's KDA heads"),
                   GLM_INT("D", b->model->d_kda_head, "model.d_kda_head"),
                   GLM_INT("VERIFY", b->lane->verify_rows, "lane.verify_rows")));
}

/* Returns the ring's rows. */
static uint32_t kda_states(struct glm_builder *b, const struct glm_site *site)
{
    const struct glm_model *m = b->model;
    bool f32 = b->lane->formats.act == GLM_ACT_F32, replay = b->lane->verify_rows > 1;
    uint64_t h = site->shares.kda_heads.count, d = m->d_kda_head;
    uint32_t keep = m->n_conv_taps - 1, ring = glm_ring_rows(keep, b->lane->verify_rows);
    glm_build_state(b, site,
                    &(struct glm_plan_state){
                        .name = "kda.conv_rows",
                        .unit = GLM_UNIT_RING,
                        .ring = ring,
                        .keep = keep,
                        .versions = 1,
                        .row_bytes = 3 * h * d * (f32 ? 4 : 2),
                        .dtype = f32 ? "f32" : "bf16",
                        .split = true,
                        .rollback = "position",
                    });
    glm_build_state(
        b, site,
        &(struct glm_plan_state){
            .name = "kda.state",
            .unit = GLM_UNIT_STREAM,
            .versions = 2,
            .row_bytes = h * d * d * 4,
            .dtype = "f32",
            .split = true,
            .rollback = replay ? glm_text(b, "replay:%s", replay_kernel(b, site)) : "position",
        });
    return ring;
}

/* The recurrence as decode runs it (rows in order) or as prefill does (64-row blocks). */
static const char *kda_kernel(struct glm_builder *b, const struct glm_site *site, bool prefill,
                              uint32_t ring)
{
    const struct glm_model *m = b->model;
    struct proj proj = proj_layout(m, site);
    bool replay = b->lane->verify_rows > 1;
    struct glm_plan_param params[] = {
        GLM_INT("H", site->shares.kda_heads.count, "rank's KDA heads"),
        GLM_INT("D", m->d_kda_head, "model.d_kda_head"),
        GLM_INT("TAPS", m->n_conv_taps, "model.n_conv_taps"),
        GLM_INT("RING", ring, "state kda.conv_rows"),
        GLM_INT("PROJ_STRIDE", proj.stride, "buffer kda.proj"),
        GLM_INT("F_STRIDE", proj.n_head_cols, "buffer kda.f"),
        GLM_INT("B_STRIDE", proj.stride, "buffer kda.proj"),
        GLM_WORD("LOWER", glm_float_text(b, m->gate_lower_bound), "model.gate_lower_bound"),
        GLM_WORD("NORM_EPS", glm_float_text(b, m->norm_eps), "model.norm_eps"),
        GLM_INT("VERIFY", b->lane->verify_rows, "lane.verify_rows"),
        GLM_INT("REPLAY", replay, "lane.verify_rows > 1"),
        {.name = NULL},
    };
    if (prefill) /* prompt rows are never rolled back: REPLAY, the last one, is decode's alone */
        params[sizeof params / sizeof params[0] - 2].name = NULL;
    const char *name = prefill ? "kda_prefill" : "kda_decode";
    return glm_build_kernel(b, name, name, params);
}

static void kda_block(struct glm_builder *b, const struct glm_site *site, bool prefill,
                      uint32_t ring)
{
    struct proj proj = proj_layout(b->model, site);
    const char *f_a = glm_text(b, "kda.proj+%lu", (unsigned long)proj.f_a);
    const char *g_a = glm_text(b, "kda.proj+%lu", (unsigned long)proj.g_a);
    const char *beta = glm_text(b, "kda.proj+%lu", (unsigned long)proj.b);
    const char *replay = b->lane->verify_rows > 1 ? "layers.{L}.kda.replay" : "-";
    glm_step_matmul(b, site,
                    &(struct glm_matmul){.kernel = "mm.kda.in",
                                         .x = "u",
                                         .w = "@kda.in",
                                         .y = "kda.proj",
                                         .y_stride = proj.stride});
    glm_step_matmul(b, site,
                    &(struct glm_matmul){.kernel = "mm.kda.gate_b",
                                         .x = f_a,
                                         .x_stride = proj.stride,
                                         .w = "@kda.f_b",
                                         .y = "kda.f"});
    glm_step_matmul(b, site,
                    &(struct glm_matmul){.kernel = "mm.kda.gate_b",
                                         .x = g_a,
                                         .x_stride = proj.stride,
                                         .w = "@kda.g_b",
                                         .y = "kda.g"});
    glm_step_kernel(b, site, kda_kernel(b, site, prefill, ring),
                    GLM_ARGS("proj", "kda.proj", "b", beta, "f", "kda.f", "g", "kda.g", "conv_w",
                             "@kda.conv", "a_log", "@kda.a_log", "dt_bias", "@kda.dt_bias",
                             "o_norm", "@kda.o_norm", "conv", "@kda.conv_rows", "s", "@kda.state",
                             "replay", prefill ? NULL : replay, "out", "kda.out"));
    glm_step_matmul(
        b, site,
        &(struct glm_matmul){
            .kernel = "mm.kda.o", .x = "kda.out", .w = "@kda.o", .y = "partial", .out = "f32"});
    glm_step_exchange(b);
    glm_close_block(b, glm_site_name(b, site, prefill ? "kda_prefill" : "kda_decode"));
}

void glm_graph_kda(struct glm_builder *b, const struct glm_site *site)
{
    const struct glm_model *m = b->model;
    struct proj proj = proj_layout(m, site);
    uint64_t h = site->shares.kda_heads.count;
    kda_weights(b, site);
    uint32_t ring = kda_states(b, site);
    glm_build_buffer(b, "kda.proj", "act", proj.stride, GLM_PER_ROW);
    glm_build_buffer(b, "kda.f", "act", proj.n_head_cols, GLM_PER_ROW);
    glm_build_buffer(b, "kda.g", "act", proj.n_head_cols, GLM_PER_ROW);
    glm_build_buffer(b, "kda.out", "act", proj.n_head_cols, GLM_PER_ROW);
    kda_block(b, site, false, ring);
    kda_block(b, site, true, ring);
    if (b->lane->verify_rows <= 1)
        return;
    for (uint32_t i = 0; i < site->n_layers; i++)
        glm_build_buffer(b, glm_text(b, "layers.%u.kda.replay", site->layers[i]), "f32",
                         h * (3 * (uint64_t)m->d_kda_head + 1), GLM_PER_ROW);
    glm_step_kernel(b, site, replay_kernel(b, site),
                    GLM_ARGS("s", "@kda.state", "replay", "layers.{L}.kda.replay"));
    glm_close_block(b, glm_site_name(b, site, "kda_commit"));
}
