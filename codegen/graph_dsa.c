/* SPDX-License-Identifier: Apache-2.0 */
/* DSA: latent attention over the pools an indexer selects, and the last incomplete pool
 * (docs/model.md 4). The indexer and the latents are replicated, so that every rank selects the
 * same keys; queries and values are cut by heads. kv_b is used absorbed: its key part on the query,
 * its value part after attention. */
#include "codegen/builder.h"

#include <math.h>

/* Columns of dsa.in: q_a | kv_a | wk | weights_proj, rows padded to whole vectors of 16. */
struct in_layout {
    uint64_t ik, w, n, stride;
};

static struct in_layout in_layout(const struct glm_model *m)
{
    struct in_layout p = {.ik = (uint64_t)m->d_q_rank + m->d_latent};
    p.w = p.ik + m->d_index;
    p.n = p.w + m->n_index_heads;
    p.stride = (p.n + 15) / 16 * 16;
    return p;
}

static const char *const kv_words[] = {
    [GLM_KV_FP32] = "fp32", [GLM_KV_BF16] = "bf16", [GLM_KV_FP8] = "fp8"};
static const char *const kv_dtypes[] = {
    [GLM_KV_FP32] = "f32", [GLM_KV_BF16] = "bf16", [GLM_KV_FP8] = "fp8"};

/* A cache row of n values: fp8 rows carry a scale and pad to 16 bytes (docs/formats.md 6). */
static uint64_t kv_row_bytes(enum glm_kv_form kv, uint64_t n)
{
    return kv == GLM_KV_FP32 ? 4 * n : kv == GLM_KV_BF16 ? 2 * n : n + 16;
}

static void dsa_matrix(struct glm_builder *b, const struct glm_site *site, const char *name,
                       const char *form, struct glm_part_def part)
{
    glm_build_weight(b, site,
                     &(struct glm_weight_def){
                         .name = name, .class = GLM_CLASS_DENSE, .form = form, .parts = {part}});
}

static void dsa_weights(struct glm_builder *b, const struct glm_site *site)
{
    const struct glm_model *m = b->model;
    struct glm_share heads = site->shares.heads;
    enum glm_matrix_form dense = b->lane->formats.dense;
    uint64_t hidden = m->d_hidden, q = m->d_q_rank, c = m->d_latent, di = m->d_index;
    uint64_t qk = (uint64_t)m->n_heads * m->d_qk, kv = (uint64_t)m->n_heads * (m->d_qk + m->d_v);
    uint64_t hv = (uint64_t)m->n_heads * m->d_v, hi = (uint64_t)m->n_index_heads * di;
    struct glm_slice in = glm_slice_all(hidden);
    /* kv_b: a head owns d_qk key rows, then d_v value rows. */
    struct glm_slice keys = {.first = (uint64_t)heads.first * (m->d_qk + m->d_v),
                             .take = m->d_qk,
                             .groups = heads.count,
                             .stride = (uint64_t)m->d_qk + m->d_v};
    struct glm_slice values = keys;
    values.first += m->d_qk;
    values.take = m->d_v;

    glm_build_weight(
        b, site,
        &(struct glm_weight_def){
            .name = "dsa.in",
            .class = GLM_CLASS_DENSE,
            .form = glm_build_form(dense, hidden, 0),
            .parts = {{"self_attn.q_a_proj.weight", q, hidden, glm_slice_all(q), in},
                      {"self_attn.kv_a_proj_with_mqa.weight", c, hidden, glm_slice_all(c), in},
                      {"self_attn.indexer.wk.weight", di, hidden, glm_slice_all(di), in},
                      {"self_attn.indexer.weights_proj.weight", m->n_index_heads, hidden,
                       glm_slice_all(m->n_index_heads), in}},
        });
    dsa_matrix(b, site, "dsa.gate", "bf16",
               (struct glm_part_def){"self_attn.indexer.index_kpool_compress_gate", di, hidden,
                                     glm_slice_all(di), in});
    dsa_matrix(b, site, "dsa.q_b", glm_build_form(dense, q, 0),
               (struct glm_part_def){"self_attn.q_b_proj.weight", qk, q,
                                     glm_slice_share(heads, m->d_qk), glm_slice_all(q)});
    dsa_matrix(b, site, "dsa.wq_b", glm_build_form(dense, q, 0),
               (struct glm_part_def){"self_attn.indexer.wq_b.weight", hi, q, glm_slice_all(hi),
                                     glm_slice_all(q)});
    dsa_matrix(b, site, "dsa.absorb", "bf16_t",
               (struct glm_part_def){"self_attn.kv_b_proj.weight", kv, c, keys, glm_slice_all(c)});
    dsa_matrix(
        b, site, "dsa.expand", "bf16",
        (struct glm_part_def){"self_attn.kv_b_proj.weight", kv, c, values, glm_slice_all(c)});
    dsa_matrix(b, site, "dsa.o", glm_build_form(dense, hv, m->d_v),
               (struct glm_part_def){"self_attn.o_proj.weight", hidden, hv, in,
                                     glm_slice_share(heads, m->d_v)});
    glm_build_vector(b, site, "dsa.q_norm", "self_attn.q_a_layernorm.weight", "bf16", q);
    glm_build_vector(b, site, "dsa.kv_norm", "self_attn.kv_a_layernorm.weight", "bf16", c);
    glm_build_vector(b, site, "dsa.k_norm", "self_attn.indexer.k_norm.weight", "bf16", di);
    glm_build_vector(b, site, "dsa.k_bias", "self_attn.indexer.k_norm.bias", "bf16", di);
    glm_build_weight(b, site,
                     &(struct glm_weight_def){
                         .name = "dsa.ape",
                         .class = GLM_CLASS_OTHER,
                         .form = "bf16",
                         .parts = {{"self_attn.indexer.index_kpool_compress_ape", m->n_index_pool,
                                    di, glm_slice_all(m->n_index_pool), glm_slice_all(di)}},
                     });
}

/* Returns the ring's rows. */
static uint32_t dsa_states(struct glm_builder *b, const struct glm_site *site)
{
    const struct glm_model *m = b->model;
    enum glm_kv_form kv = b->lane->formats.kv;
    bool f32 = b->lane->formats.act == GLM_ACT_F32;
    uint32_t keep = m->n_index_pool - 1, ring = glm_ring_rows(keep, b->lane->verify_rows);
    glm_build_state(b, site,
                    &(struct glm_plan_state){
                        .name = "dsa.latent",
                        .unit = GLM_UNIT_TOKEN,
                        .versions = 1,
                        .row_bytes = kv_row_bytes(kv, m->d_latent),
                        .dtype = kv_dtypes[kv],
                        .rollback = "position",
                    });
    glm_build_state(b, site,
                    &(struct glm_plan_state){
                        .name = "dsa.pooled",
                        .unit = GLM_UNIT_POOL,
                        .per = m->n_index_pool,
                        .versions = 1,
                        .row_bytes = kv_row_bytes(kv, m->d_index),
                        .dtype = kv_dtypes[kv],
                        .rollback = "position",
                    });
    glm_build_state(b, site,
                    &(struct glm_plan_state){
                        .name = "dsa.keys",
                        .unit = GLM_UNIT_RING,
                        .ring = ring,
                        .keep = keep,
                        .versions = 1,
                        .row_bytes = 2 * (uint64_t)m->d_index * (f32 ? 4 : 2),
                        .dtype = f32 ? "f32" : "bf16",
                        .rollback = "position",
                    });
    return ring;
}

/* Projections of the block's input; norms, and the rows of the three caches. */
static void prepare_steps(struct glm_builder *b, const struct glm_site *site, uint32_t ring)
{
    const struct glm_model *m = b->model;
    struct in_layout in = in_layout(m);
    const char *ik = glm_text(b, "dsa.in+%lu", (unsigned long)in.ik);
    const char *prepare = glm_build_kernel(
        b, "dsa_prepare", "dsa_prepare",
        GLM_PARAMS(GLM_INT("Q", m->d_q_rank, "model.d_q_rank"),
                   GLM_INT("C", m->d_latent, "model.d_latent"),
                   GLM_INT("D", m->d_index, "model.d_index"),
                   GLM_INT("POOL", m->n_index_pool, "model.n_index_pool"),
                   GLM_INT("RING", ring, "state dsa.keys"),
                   GLM_WORD("KV", kv_words[b->lane->formats.kv], "lane.formats.kv"),
                   GLM_INT("QKV_STRIDE", in.stride, "buffer dsa.in"),
                   GLM_INT("IK_STRIDE", in.stride, "buffer dsa.in"),
                   GLM_INT("IG_STRIDE", m->d_index, "buffer dsa.ig"),
                   GLM_WORD("NORM_EPS", glm_float_text(b, m->norm_eps), "model.norm_eps"),
                   GLM_WORD("K_EPS", "1e-06", "docs/model.md 4")));
    glm_step_matmul(
        b, site,
        &(struct glm_matmul){
            .kernel = "mm.dsa.in", .x = "u", .w = "@dsa.in", .y = "dsa.in", .y_stride = in.stride});
    glm_step_matmul(
        b, site,
        &(struct glm_matmul){.kernel = "mm.dsa.gate", .x = "u", .w = "@dsa.gate", .y = "dsa.ig"});
    glm_step_kernel(b, site, prepare,
                    GLM_ARGS("qkv", "dsa.in", "ik", ik, "ig", "dsa.ig", "q_norm", "@dsa.q_norm",
                             "kv_norm", "@dsa.kv_norm", "k_norm", "@dsa.k_norm", "k_bias",
                             "@dsa.k_bias", "ape", "@dsa.ape", "latent", "@dsa.latent", "keys",
                             "@dsa.keys", "pooled", "@dsa.pooled", "ikn", "dsa.ikn", "qr",
                             "dsa.qr"));
}

static uint32_t topk_pools(const struct glm_model *m)
{
    return m->n_index_topk_tokens / m->n_index_pool;
}

/* The indexer's query and the pools it selects. */
static void select_steps(struct glm_builder *b, const struct glm_site *site)
{
    const struct glm_model *m = b->model;
    struct in_layout in = in_layout(m);
    uint32_t pool = m->n_index_pool;
    const char *select = glm_build_kernel(
        b, "dsa_select", "dsa_select",
        GLM_PARAMS(GLM_INT("H", m->n_index_heads, "model.n_index_heads"),
                   GLM_INT("D", m->d_index, "model.d_index"),
                   GLM_INT("POOL", pool, "model.n_index_pool"),
                   GLM_INT("TOPK", topk_pools(m), "model.n_index_topk_tokens / n_index_pool"),
                   GLM_INT("MAXPOOLS", (b->lane->window_tokens + pool - 1) / pool,
                           "lane.window / model.n_index_pool"),
                   GLM_WORD("KV", kv_words[b->lane->formats.kv], "lane.formats.kv"),
                   GLM_INT("W_STRIDE", in.stride, "buffer dsa.in")));
    glm_step_matmul(b, site,
                    &(struct glm_matmul){
                        .kernel = "mm.dsa.wq_b", .x = "dsa.qr", .w = "@dsa.wq_b", .y = "dsa.iq"});
    glm_step_kernel(b, site, select,
                    GLM_ARGS("iq", "dsa.iq", "w", glm_text(b, "dsa.in+%lu", (unsigned long)in.w),
                             "pooled", "@dsa.pooled", "sel", "dsa.sel"));
}

/* Queries into latent space, attention there, values out of it, the output projection. */
static void attend_steps(struct glm_builder *b, const struct glm_site *site)
{
    const struct glm_model *m = b->model;
    uint64_t h = site->shares.heads.count, c = m->d_latent;
    const char *heads = "rank's attention heads";
    const char *absorb =
        glm_build_kernel(b, "dsa_absorb", "head_matmul",
                         GLM_PARAMS(GLM_INT("H", h, heads), GLM_INT("N", c, "model.d_latent"),
                                    GLM_INT("K", m->d_qk, "model.d_qk"),
                                    GLM_INT("X_STRIDE", h * m->d_qk, "buffer dsa.q"),
                                    GLM_INT("Y_STRIDE", h * c, "buffer dsa.ql")));
    const char *attend = glm_build_kernel(
        b, "mla_attend", "mla_attend",
        GLM_PARAMS(GLM_INT("H", h, heads), GLM_INT("C", c, "model.d_latent"),
                   GLM_INT("POOL", m->n_index_pool, "model.n_index_pool"),
                   GLM_INT("TOPK", topk_pools(m), "model.n_index_topk_tokens / n_index_pool"),
                   GLM_WORD("KV", kv_words[b->lane->formats.kv], "lane.formats.kv"),
                   GLM_WORD("SCALE", glm_float_text(b, 1 / sqrt(m->d_qk)), "model.d_qk ^ -1/2")));
    const char *expand = glm_build_kernel(
        b, "dsa_expand", "head_matmul",
        GLM_PARAMS(GLM_INT("H", h, heads), GLM_INT("N", m->d_v, "model.d_v"),
                   GLM_INT("K", c, "model.d_latent"), GLM_INT("X_STRIDE", h * c, "buffer dsa.ol"),
                   GLM_INT("Y_STRIDE", h * m->d_v, "buffer dsa.v")));
    glm_step_matmul(
        b, site,
        &(struct glm_matmul){.kernel = "mm.dsa.q_b", .x = "dsa.qr", .w = "@dsa.q_b", .y = "dsa.q"});
    glm_step_kernel(b, site, absorb, GLM_ARGS("x", "dsa.q", "w", "@dsa.absorb", "y", "dsa.ql"));
    glm_step_kernel(
        b, site, attend,
        GLM_ARGS("q", "dsa.ql", "latent", "@dsa.latent", "sel", "dsa.sel", "out", "dsa.ol"));
    glm_step_kernel(b, site, expand, GLM_ARGS("x", "dsa.ol", "w", "@dsa.expand", "y", "dsa.v"));
    glm_step_matmul(
        b, site,
        &(struct glm_matmul){
            .kernel = "mm.dsa.o", .x = "dsa.v", .w = "@dsa.o", .y = "partial", .out = "f32"});
    glm_step_exchange(b);
}

void glm_graph_dsa(struct glm_builder *b, const struct glm_site *site)
{
    const struct glm_model *m = b->model;
    uint64_t h = site->shares.heads.count;
    dsa_weights(b, site);
    uint32_t ring = dsa_states(b, site);
    glm_build_buffer(b, "dsa.in", "act", in_layout(m).stride, GLM_PER_ROW);
    glm_build_buffer(b, "dsa.ig", "act", m->d_index, GLM_PER_ROW);
    glm_build_buffer(b, "dsa.ikn", "act", m->d_index, GLM_PER_ROW);
    glm_build_buffer(b, "dsa.qr", "act", m->d_q_rank, GLM_PER_ROW);
    glm_build_buffer(b, "dsa.iq", "act", (uint64_t)m->n_index_heads * m->d_index, GLM_PER_ROW);
    glm_build_buffer(b, "dsa.sel", "i32", 1 + topk_pools(m), GLM_PER_ROW);
    glm_build_buffer(b, "dsa.q", "act", h * m->d_qk, GLM_PER_ROW);
    glm_build_buffer(b, "dsa.ql", "act", h * m->d_latent, GLM_PER_ROW);
    glm_build_buffer(b, "dsa.ol", "act", h * m->d_latent, GLM_PER_ROW);
    glm_build_buffer(b, "dsa.v", "act", h * m->d_v, GLM_PER_ROW);
    prepare_steps(b, site, ring);
    select_steps(b, site);
    attend_steps(b, site);
    glm_close_block(b, glm_site_name(b, site, "dsa"));
}
