/* SPDX-License-Identifier: Apache-2.0 */
/* Hyper-connections: two sites a layer, each one kernel that writes the pending block's answer back
 * into the residual streams and mixes, reads and norms them for the next block (docs/model.md 2).
 * The first site of the model has nothing pending. */
#include "codegen/builder.h"

static const char *mix_kernel(struct glm_builder *b, bool write)
{
    const struct glm_model *m = b->model;
    return glm_build_kernel(
        b, write ? "hc_mix" : "hc_read", "hc_mix",
        GLM_PARAMS(GLM_INT("D", m->d_hidden, "model.d_hidden"),
                   GLM_INT("S", m->n_streams_hc, "model.n_streams_hc"),
                   GLM_INT("WRITE", write, "site"),
                   GLM_INT("ITERS", m->n_sinkhorn, "model.n_sinkhorn"),
                   GLM_WORD("EPS", glm_float_text(b, m->hc_eps), "model.hc_eps"),
                   GLM_WORD("NORM_EPS", glm_float_text(b, m->norm_eps), "model.norm_eps")));
}

/* Weights of one site of every layer. */
static void site_weights(struct glm_builder *b, const struct glm_site *all, const char *site,
                         const char *norm, const char *norm_tensor)
{
    const struct glm_model *m = b->model;
    uint64_t n_mix = 2 * m->n_streams_hc + (uint64_t)m->n_streams_hc * m->n_streams_hc;
    uint64_t width = (uint64_t)m->n_streams_hc * m->d_hidden;
    glm_build_weight(b, all,
                     &(struct glm_weight_def){
                         .name = glm_text(b, "hc_%s.fn", site),
                         .class = GLM_CLASS_OTHER,
                         .form = "bf16",
                         .parts = {{glm_text(b, "hc_%s_fn", site), n_mix, width,
                                    glm_slice_all(n_mix), glm_slice_all(width)}},
                     });
    glm_build_vector(b, all, glm_text(b, "hc_%s.base", site), glm_text(b, "hc_%s_base", site),
                     "f32", n_mix);
    glm_build_vector(b, all, glm_text(b, "hc_%s.scale", site), glm_text(b, "hc_%s_scale", site),
                     "f32", 3);
    glm_build_vector(b, all, norm, norm_tensor, "bf16", m->d_hidden);
}

static void site_block(struct glm_builder *b, const struct glm_site *all, const char *block,
                       const char *site, bool write, bool is_attention)
{
    const char *y = write ? glm_exchanged(b) : "-";
    glm_step_kernel(b, all, mix_kernel(b, write),
                    GLM_ARGS("y", y, "mix", "mix", "x", "x", "fn", glm_text(b, "@hc_%s.fn", site),
                             "base", glm_text(b, "@hc_%s.base", site), "scale",
                             glm_text(b, "@hc_%s.scale", site), "norm",
                             glm_text(b, "@%s_norm", site), "out", "u"));
    if (is_attention) /* here x holds the streams that enter this layer */
        glm_step_mark(b, "layer");
    glm_close_block(b, block);
}

void glm_graph_hc(struct glm_builder *b, const struct glm_site *all)
{
    const struct glm_model *m = b->model;
    glm_build_buffer(b, "mix", "f32", m->n_streams_hc + (uint64_t)m->n_streams_hc * m->n_streams_hc,
                     GLM_PER_ROW);
    site_weights(b, all, "attn", "attn_norm", "input_layernorm.weight");
    site_weights(b, all, "ffn", "ffn_norm", "post_attention_layernorm.weight");
    site_block(b, all, "hc_first", "attn", false, true);
    if (m->n_layers > 1)
        site_block(b, all, "hc_attn", "attn", true, true);
    site_block(b, all, "hc_ffn", "ffn", true, false);
}
