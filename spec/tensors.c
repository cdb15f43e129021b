/* SPDX-License-Identifier: Apache-2.0 */
/* The table of tensors that a geometry must have: name, shape, dtype, when and role. It drives the
 * check of a checkpoint, the synthetic one and the parameter count.
 * Source: docs/model.md 1 and docs/formats.md 1, 2. */
#include "spec/checkpoint.h"

#include <stdio.h>
#include <string.h>

/* clang-format off */
/* Axis lengths by name; filled once for a model. */
enum axis {
    NO_AXIS, ONE, THREE, HIDDEN, HIDDEN2, VOCAB, DENSE, KDA, KDA_HEADS, KDA_HEAD, TAPS, Q_RANK,
    LATENT, Q, KV, O, INDEX_Q, INDEX, INDEX_HEADS, POOL, EXPERTS, SHARED, HC_MIX, HC_IN,
    V_HIDDEN, V_QKV, V_HEAD, V_MLP, V_OUT, V_PROJECTION, V_PATCH, V_FRAMES, V_MERGE, V_CHANNELS,
    N_AXES
};
/* clang-format on */

enum when { ANY_LAYER, NOT_MTP, KDA_LAYER, DSA_LAYER, DENSE_LAYER, MOE_LAYER, MTP_LAYER };

struct row {
    enum when when;
    const char *suffix; /* after "layers.L." */
    uint8_t axes[GLM_MAX_DIMS];
    enum glm_dtype dtype;
    const char *role;
    bool flat;
};

/* clang-format off */
static const struct row layer_rows[] = {
    { ANY_LAYER, "input_layernorm.weight", { HIDDEN }, GLM_BF16, "norm", false },
    { ANY_LAYER, "post_attention_layernorm.weight", { HIDDEN }, GLM_BF16, "norm", false },
    { NOT_MTP, "hc_attn_fn", { HC_MIX, HC_IN }, GLM_BF16, "matrix", false },
    { NOT_MTP, "hc_attn_base", { HC_MIX }, GLM_F32, "hc_base", false },
    { NOT_MTP, "hc_attn_scale", { THREE }, GLM_F32, "hc_scale", false },
    { NOT_MTP, "hc_ffn_fn", { HC_MIX, HC_IN }, GLM_BF16, "matrix", false },
    { NOT_MTP, "hc_ffn_base", { HC_MIX }, GLM_F32, "hc_base", false },
    { NOT_MTP, "hc_ffn_scale", { THREE }, GLM_F32, "hc_scale", false },
    { KDA_LAYER, "self_attn.q_proj.weight", { KDA, HIDDEN }, GLM_BF16, "matrix", false },
    { KDA_LAYER, "self_attn.k_proj.weight", { KDA, HIDDEN }, GLM_BF16, "matrix", false },
    { KDA_LAYER, "self_attn.v_proj.weight", { KDA, HIDDEN }, GLM_BF16, "matrix", false },
    { KDA_LAYER, "self_attn.q_conv1d.weight", { KDA, ONE, TAPS }, GLM_BF16, "matrix", true },
    { KDA_LAYER, "self_attn.k_conv1d.weight", { KDA, ONE, TAPS }, GLM_BF16, "matrix", true },
    { KDA_LAYER, "self_attn.v_conv1d.weight", { KDA, ONE, TAPS }, GLM_BF16, "matrix", true },
    { KDA_LAYER, "self_attn.f_a_proj.weight", { KDA_HEAD, HIDDEN }, GLM_BF16, "matrix", false },
    { KDA_LAYER, "self_attn.f_b_proj.weight", { KDA, KDA_HEAD }, GLM_BF16, "matrix", false },
    { KDA_LAYER, "self_attn.g_a_proj.weight", { KDA_HEAD, HIDDEN }, GLM_BF16, "matrix", false },
    { KDA_LAYER, "self_attn.g_b_proj.weight", { KDA, KDA_HEAD }, GLM_BF16, "matrix", false },
    { KDA_LAYER, "self_attn.b_proj.weight", { KDA_HEADS, HIDDEN }, GLM_BF16, "matrix", false },
    { KDA_LAYER, "self_attn.A_log", { KDA_HEADS }, GLM_F32, "a_log", true },
    { KDA_LAYER, "self_attn.dt_bias", { KDA }, GLM_F32, "dt_bias", true },
    { KDA_LAYER, "self_attn.o_norm.weight", { KDA_HEAD }, GLM_BF16, "norm", false },
    { KDA_LAYER, "self_attn.o_proj.weight", { HIDDEN, KDA }, GLM_BF16, "matrix", false },
    { DSA_LAYER, "self_attn.q_a_proj.weight", { Q_RANK, HIDDEN }, GLM_BF16, "matrix", false },
    { DSA_LAYER, "self_attn.q_a_layernorm.weight", { Q_RANK }, GLM_BF16, "norm", false },
    { DSA_LAYER, "self_attn.q_b_proj.weight", { Q, Q_RANK }, GLM_BF16, "matrix", false },
    { DSA_LAYER, "self_attn.kv_a_proj_with_mqa.weight", { LATENT, HIDDEN }, GLM_BF16, "matrix", false },
    { DSA_LAYER, "self_attn.kv_a_layernorm.weight", { LATENT }, GLM_BF16, "norm", false },
    { DSA_LAYER, "self_attn.kv_b_proj.weight", { KV, LATENT }, GLM_BF16, "matrix", false },
    { DSA_LAYER, "self_attn.o_proj.weight", { HIDDEN, O }, GLM_BF16, "matrix", false },
    { DSA_LAYER, "self_attn.indexer.wq_b.weight", { INDEX_Q, Q_RANK }, GLM_BF16, "matrix", false },
    { DSA_LAYER, "self_attn.indexer.wk.weight", { INDEX, HIDDEN }, GLM_BF16, "matrix", false },
    { DSA_LAYER, "self_attn.indexer.k_norm.weight", { INDEX }, GLM_BF16, "norm", false },
    { DSA_LAYER, "self_attn.indexer.k_norm.bias", { INDEX }, GLM_BF16, "bias", false },
    { DSA_LAYER, "self_attn.indexer.weights_proj.weight", { INDEX_HEADS, HIDDEN }, GLM_BF16, "matrix", false },
    { DSA_LAYER, "self_attn.indexer.index_kpool_compress_gate", { INDEX, HIDDEN }, GLM_BF16, "matrix", false },
    { DSA_LAYER, "self_attn.indexer.index_kpool_compress_ape", { POOL, INDEX }, GLM_BF16, "pool_bias", false },
    { DENSE_LAYER, "mlp.gate_proj.weight", { DENSE, HIDDEN }, GLM_BF16, "matrix", false },
    { DENSE_LAYER, "mlp.up_proj.weight", { DENSE, HIDDEN }, GLM_BF16, "matrix", false },
    { DENSE_LAYER, "mlp.down_proj.weight", { HIDDEN, DENSE }, GLM_BF16, "matrix", false },
    { MOE_LAYER, "mlp.gate.weight", { EXPERTS, HIDDEN }, GLM_BF16, "router", false },
    { MOE_LAYER, "mlp.gate.e_score_correction_bias", { EXPERTS }, GLM_F32, "router_bias", false },
    { MOE_LAYER, "mlp.shared_experts.gate_proj.weight", { SHARED, HIDDEN }, GLM_BF16, "matrix", false },
    { MOE_LAYER, "mlp.shared_experts.up_proj.weight", { SHARED, HIDDEN }, GLM_BF16, "matrix", false },
    { MOE_LAYER, "mlp.shared_experts.down_proj.weight", { HIDDEN, SHARED }, GLM_BF16, "matrix", false },
    { MTP_LAYER, "enorm.weight", { HIDDEN }, GLM_BF16, "norm", false },
    { MTP_LAYER, "hnorm.weight", { HIDDEN }, GLM_BF16, "norm", false },
    { MTP_LAYER, "eh_proj.weight", { HIDDEN, HIDDEN2 }, GLM_BF16, "matrix", false },
    { MTP_LAYER, "shared_head.norm.weight", { HIDDEN }, GLM_BF16, "norm", false },
};

static const struct row first_rows[] = {
    { ANY_LAYER, "model.language_model.embed_tokens.weight", { VOCAB, HIDDEN }, GLM_BF16, "embedding", false },
};
static const struct row last_rows[] = {
    { ANY_LAYER, "model.language_model.norm.weight", { HIDDEN }, GLM_BF16, "norm", false },
    { ANY_LAYER, "lm_head.weight", { VOCAB, HIDDEN }, GLM_BF16, "head", false },
};

static const struct row block_rows[] = { /* after "model.visual.blocks.N." */
    { ANY_LAYER, "norm1.weight", { V_HIDDEN }, GLM_BF16, "norm", false },
    { ANY_LAYER, "norm2.weight", { V_HIDDEN }, GLM_BF16, "norm", false },
    { ANY_LAYER, "attn.qkv.weight", { V_QKV, V_HIDDEN }, GLM_BF16, "matrix", false },
    { ANY_LAYER, "attn.qkv.bias", { V_QKV }, GLM_BF16, "bias", false },
    { ANY_LAYER, "attn.q_norm.weight", { V_HEAD }, GLM_BF16, "norm", false },
    { ANY_LAYER, "attn.k_norm.weight", { V_HEAD }, GLM_BF16, "norm", false },
    { ANY_LAYER, "attn.proj.weight", { V_HIDDEN, V_HIDDEN }, GLM_BF16, "matrix", false },
    { ANY_LAYER, "attn.proj.bias", { V_HIDDEN }, GLM_BF16, "bias", false },
    { ANY_LAYER, "mlp.gate_proj.weight", { V_MLP, V_HIDDEN }, GLM_BF16, "matrix", false },
    { ANY_LAYER, "mlp.gate_proj.bias", { V_MLP }, GLM_BF16, "bias", false },
    { ANY_LAYER, "mlp.up_proj.weight", { V_MLP, V_HIDDEN }, GLM_BF16, "matrix", false },
    { ANY_LAYER, "mlp.up_proj.bias", { V_MLP }, GLM_BF16, "bias", false },
    { ANY_LAYER, "mlp.down_proj.weight", { V_HIDDEN, V_MLP }, GLM_BF16, "matrix", false },
    { ANY_LAYER, "mlp.down_proj.bias", { V_HIDDEN }, GLM_BF16, "bias", false },
};
static const struct row vision_rows[] = {
    { ANY_LAYER, "model.visual.patch_embed.proj.weight", { V_HIDDEN, V_CHANNELS, V_FRAMES, V_PATCH, V_PATCH }, GLM_BF16, "matrix", false },
    { ANY_LAYER, "model.visual.patch_embed.proj.bias", { V_HIDDEN }, GLM_BF16, "bias", false },
    { ANY_LAYER, "model.visual.post_layernorm.weight", { V_HIDDEN }, GLM_BF16, "norm", false },
    { ANY_LAYER, "model.visual.downsample.weight", { V_OUT, V_HIDDEN, V_MERGE, V_MERGE }, GLM_BF16, "matrix", false },
    { ANY_LAYER, "model.visual.downsample.bias", { V_OUT }, GLM_BF16, "bias", false },
    { ANY_LAYER, "model.visual.merger.proj.weight", { V_OUT, V_OUT }, GLM_BF16, "matrix", false },
    { ANY_LAYER, "model.visual.merger.post_projection_norm.weight", { V_OUT }, GLM_BF16, "norm", false },
    { ANY_LAYER, "model.visual.merger.post_projection_norm.bias", { V_OUT }, GLM_BF16, "bias", false },
    { ANY_LAYER, "model.visual.merger.gate_proj.weight", { V_PROJECTION, V_OUT }, GLM_BF16, "matrix", false },
    { ANY_LAYER, "model.visual.merger.up_proj.weight", { V_PROJECTION, V_OUT }, GLM_BF16, "matrix", false },
    { ANY_LAYER, "model.visual.merger.down_proj.weight", { V_OUT, V_PROJECTION }, GLM_BF16, "matrix", false },
};
/* clang-format on */
#define COUNT(rows) (sizeof(rows) / sizeof(rows)[0])

struct walk {
    const struct glm_model *m;
    uint64_t axes[N_AXES];
    glm_expected_visit visit;
    void *context;
    char name[160];
    size_t prefix; /* bytes of name before the suffix */
};

static void fill_axes(uint64_t *a, const struct glm_model *m)
{
    const struct glm_vision *v = &m->vision;
    uint64_t streams = m->n_streams_hc;
    a[ONE] = 1;
    a[THREE] = 3;
    a[HIDDEN] = m->d_hidden;
    a[HIDDEN2] = 2 * (uint64_t)m->d_hidden;
    a[VOCAB] = m->d_vocab;
    a[DENSE] = m->d_dense;
    a[KDA] = (uint64_t)m->n_kda_heads * m->d_kda_head;
    a[KDA_HEADS] = m->n_kda_heads;
    a[KDA_HEAD] = m->d_kda_head;
    a[TAPS] = m->n_conv_taps;
    a[Q_RANK] = m->d_q_rank;
    a[LATENT] = m->d_latent;
    a[Q] = (uint64_t)m->n_heads * m->d_qk;
    a[KV] = (uint64_t)m->n_heads * (m->d_qk + m->d_v);
    a[O] = (uint64_t)m->n_heads * m->d_v;
    a[INDEX_Q] = (uint64_t)m->n_index_heads * m->d_index;
    a[INDEX] = m->d_index;
    a[INDEX_HEADS] = m->n_index_heads;
    a[POOL] = m->n_index_pool;
    a[EXPERTS] = m->n_experts;
    a[SHARED] = (uint64_t)m->n_shared_experts * m->d_expert;
    a[HC_MIX] = 2 * streams + streams * streams;
    a[HC_IN] = streams * m->d_hidden;
    a[V_HIDDEN] = v->d_hidden;
    a[V_QKV] = 3 * (uint64_t)v->d_hidden;
    a[V_HEAD] = v->n_heads == 0 ? 0 : v->d_hidden / v->n_heads;
    a[V_MLP] = v->d_mlp;
    a[V_OUT] = v->d_out;
    a[V_PROJECTION] = v->d_projection;
    a[V_PATCH] = v->n_patch;
    a[V_FRAMES] = v->n_frames;
    a[V_MERGE] = v->n_merge;
    a[V_CHANNELS] = v->n_channels;
}

static bool set_name(struct walk *w, const char *suffix)
{
    size_t len = strlen(suffix);
    if (w->prefix + len >= sizeof w->name)
        return false;
    memcpy(w->name + w->prefix, suffix, len + 1);
    return true;
}

static enum glm_status visit_row(struct walk *w, const struct row *row)
{
    struct glm_expected_tensor t = {
        .name = w->name, .dtype = row->dtype, .role = row->role, .fan_in = 1, .flat = row->flat};
    if (!set_name(w, row->suffix))
        return GLM_EINVAL;
    while (t.n_dims < GLM_MAX_DIMS && row->axes[t.n_dims] != NO_AXIS) {
        t.shape[t.n_dims] = w->axes[row->axes[t.n_dims]];
        if (t.n_dims > 0)
            t.fan_in *= (uint32_t)t.shape[t.n_dims];
        t.n_dims++;
    }
    return w->visit(w->context, &t);
}

static enum glm_status visit_rows(struct walk *w, const struct row *rows, size_t n)
{
    enum glm_status status = GLM_OK;
    for (size_t i = 0; i < n && status == GLM_OK; i++)
        status = visit_row(w, &rows[i]);
    return status;
}

/* One EXL3 group: docs/formats.md 2. n_in and n_out as the linear layer has them. */
static enum glm_status visit_exl3(struct walk *w, uint64_t n_in, uint64_t n_out, uint32_t bits)
{
    const struct {
        const char *suffix;
        struct glm_expected_tensor t;
    } parts[] = {
        {".trellis",
         {.n_dims = 3,
          .shape = {n_in / 16, n_out / 16, 16 * (uint64_t)bits},
          .dtype = GLM_I16,
          .role = "trellis"}},
        {".suh", {.n_dims = 1, .shape = {n_in}, .dtype = GLM_F16, .role = "suh"}},
        {".svh", {.n_dims = 1, .shape = {n_out}, .dtype = GLM_F16, .role = "svh"}},
        {".mcg", {.n_dims = 1, .shape = {1}, .dtype = GLM_I32, .role = "mcg", .flat = true}},
    };
    size_t prefix = w->prefix;
    w->prefix += strlen(w->name + prefix);
    enum glm_status status = GLM_OK;
    for (size_t i = 0; i < COUNT(parts) && status == GLM_OK; i++) {
        struct glm_expected_tensor t = parts[i].t;
        t.name = w->name;
        t.fan_in = (uint32_t)n_in;
        status = set_name(w, parts[i].suffix) ? w->visit(w->context, &t) : GLM_EINVAL;
    }
    w->prefix = prefix;
    return status;
}

static enum glm_status visit_experts(struct walk *w, uint32_t exl3_bits)
{
    static const char *const matrices[] = {"gate_proj", "up_proj", "down_proj"};
    const struct glm_model *m = w->m;
    enum glm_status status = GLM_OK;
    for (uint32_t e = 0; e < m->n_experts && status == GLM_OK; e++) {
        for (size_t i = 0; i < COUNT(matrices) && status == GLM_OK; i++) {
            uint64_t n_in = i < 2 ? m->d_hidden : m->d_expert;
            uint64_t n_out = i < 2 ? m->d_expert : m->d_hidden;
            char suffix[64];
            snprintf(suffix, sizeof suffix, "mlp.experts.%u.%s%s", e, matrices[i],
                     exl3_bits == 0 ? ".weight" : "");
            if (!set_name(w, suffix))
                return GLM_EINVAL;
            if (exl3_bits != 0) {
                status = visit_exl3(w, n_in, n_out, exl3_bits);
                continue;
            }
            status = w->visit(w->context, &(struct glm_expected_tensor){.name = w->name,
                                                                        .n_dims = 2,
                                                                        .shape = {n_out, n_in},
                                                                        .dtype = GLM_BF16,
                                                                        .role = "matrix",
                                                                        .fan_in = (uint32_t)n_in});
        }
    }
    return status;
}

static bool applies(const struct glm_model *m, uint32_t layer, enum when when)
{
    bool mtp = layer == m->n_layers;
    switch (when) {
    case ANY_LAYER:
        return true;
    case NOT_MTP:
        return !mtp;
    case MTP_LAYER:
        return mtp;
    case KDA_LAYER:
        return !mtp && m->attention[layer] == GLM_ATTENTION_KDA;
    case DSA_LAYER:
        return mtp || m->attention[layer] == GLM_ATTENTION_DSA;
    case DENSE_LAYER:
        return !mtp && m->ffn[layer] == GLM_FFN_DENSE;
    case MOE_LAYER:
        return mtp || m->ffn[layer] == GLM_FFN_MOE;
    }
    return false;
}

static enum glm_status visit_layer(struct walk *w, uint32_t layer, uint32_t exl3_bits)
{
    enum glm_status status = GLM_OK;
    w->prefix = (size_t)snprintf(w->name, sizeof w->name, "model.language_model.layers.%u.", layer);
    for (size_t i = 0; i < COUNT(layer_rows) && status == GLM_OK; i++)
        if (applies(w->m, layer, layer_rows[i].when))
            status = visit_row(w, &layer_rows[i]);
    if (status == GLM_OK && applies(w->m, layer, MOE_LAYER))
        status = visit_experts(w, exl3_bits);
    return status;
}

enum glm_status glm_model_tensors(const struct glm_model *m, uint32_t exl3_bits,
                                  glm_expected_visit visit, void *context)
{
    struct walk w = {.m = m, .visit = visit, .context = context};
    fill_axes(w.axes, m);
    enum glm_status status = visit_rows(&w, first_rows, COUNT(first_rows));
    for (uint32_t layer = 0; layer < m->n_layers + m->n_mtp && status == GLM_OK; layer++)
        status = visit_layer(&w, layer, exl3_bits);
    w.prefix = 0;
    if (status == GLM_OK)
        status = visit_rows(&w, last_rows, COUNT(last_rows));
    return status;
}

enum glm_status glm_vision_tensors(const struct glm_model *m, glm_expected_visit visit,
                                   void *context)
{
    struct walk w = {.m = m, .visit = visit, .context = context};
    if (!m->has_vision)
        return GLM_OK;
    fill_axes(w.axes, m);
    enum glm_status status = visit_rows(&w, vision_rows, COUNT(vision_rows));
    for (uint32_t block = 0; block < m->vision.n_blocks && status == GLM_OK; block++) {
        w.prefix = (size_t)snprintf(w.name, sizeof w.name, "model.visual.blocks.%u.", block);
        status = visit_rows(&w, block_rows, COUNT(block_rows));
    }
    return status;
}

/* Which sum a tensor belongs to follows from its name. */
struct count {
    struct glm_parameters sum;
    char mtp_prefix[64];
    size_t mtp_prefix_len;
};

static enum glm_status add_count(void *context, const struct glm_expected_tensor *t)
{
    struct count *c = context;
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->n_dims; i++)
        n *= t->shape[i];
    if (strncmp(t->name, "model.visual.", 13) == 0)
        c->sum.vision += n;
    else if (strncmp(t->name, c->mtp_prefix, c->mtp_prefix_len) == 0)
        c->sum.mtp += n;
    else
        c->sum.backbone += n;
    return GLM_OK;
}

struct glm_parameters glm_model_parameters(const struct glm_model *m)
{
    struct count c = {0};
    c.mtp_prefix_len = (size_t)snprintf(c.mtp_prefix, sizeof c.mtp_prefix,
                                        "model.language_model.layers.%u.", m->n_layers);
    glm_model_tensors(m, 0, add_count, &c);
    glm_vision_tensors(m, add_count, &c);
    c.sum.routed_experts_layer = 3 * (uint64_t)m->n_experts * m->d_hidden * m->d_expert;
    return c.sum;
}
