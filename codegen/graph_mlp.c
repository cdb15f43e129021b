/* SPDX-License-Identifier: Apache-2.0 */
/* The dense SwiGLU (docs/model.md 5), as a layer's MLP and as the shared expert of a MoE layer:
 * gate and up stacked, cut by width, down cut by its inputs. */
#include "codegen/builder.h"

/* Weights layers.{L}.PREFIX.gate_up and .down from tensors TENSORS.{gate,up,down}_proj. */
static void swiglu_weights(struct glm_builder *b, const struct glm_site *site, const char *prefix,
                           const char *tensors, uint64_t width, struct glm_share share)
{
    uint64_t hidden = b->model->d_hidden;
    enum glm_matrix_form dense = b->lane->formats.dense;
    struct glm_slice mine = glm_slice_share(share, 1), all = glm_slice_all(hidden);
    glm_build_weight(
        b, site,
        &(struct glm_weight_def){
            .name = glm_text(b, "%s.gate_up", prefix),
            .class = GLM_CLASS_DENSE,
            .form = glm_build_form(dense, hidden, 0),
            .parts = {{glm_text(b, "%s.gate_proj.weight", tensors), width, hidden, mine, all},
                      {glm_text(b, "%s.up_proj.weight", tensors), width, hidden, mine, all}},
        });
    glm_build_weight(
        b, site,
        &(struct glm_weight_def){
            .name = glm_text(b, "%s.down", prefix),
            .class = GLM_CLASS_DENSE,
            .form = glm_build_form(dense, width, 128),
            .parts = {{glm_text(b, "%s.down_proj.weight", tensors), hidden, width, all, mine}},
        });
}

void glm_step_swiglu(struct glm_builder *b, const struct glm_site *site, const char *prefix,
                     const char *tensors, uint64_t width, struct glm_share share, const char *to)
{
    uint64_t n = share.count;
    const char *gate_up = glm_text(b, "%s.gate_up", prefix), *h = glm_text(b, "%s.h", prefix);
    const char *limit = glm_float_text(b, b->model->swiglu_limit);
    swiglu_weights(b, site, prefix, tensors, width, share);
    glm_build_buffer(b, gate_up, "act", 2 * n, GLM_PER_ROW);
    glm_build_buffer(b, h, "act", n, GLM_PER_ROW);
    const char *swiglu =
        glm_build_kernel(b, glm_text(b, "swiglu.%s", prefix), "swiglu",
                         GLM_PARAMS(GLM_INT("N", n, glm_text(b, "rank's %s width", prefix)),
                                    GLM_WORD("LIMIT", limit, "model.swiglu_limit"),
                                    GLM_INT("X_STRIDE", 2 * n, "buffer x")));
    glm_step_matmul(b, site,
                    &(struct glm_matmul){.kernel = glm_text(b, "mm.%s", gate_up),
                                         .x = "u",
                                         .w = glm_text(b, "@%s", gate_up),
                                         .y = gate_up});
    glm_step_kernel(b, site, swiglu, GLM_ARGS("x", gate_up, "y", h));
    glm_step_matmul(b, site,
                    &(struct glm_matmul){.kernel = glm_text(b, "mm.%s.down", prefix),
                                         .x = h,
                                         .w = glm_text(b, "@%s.down", prefix),
                                         .y = to,
                                         .out = "f32"});
}

void glm_graph_dense(struct glm_builder *b, const struct glm_site *site)
{
    glm_step_swiglu(b, site, "dense", "mlp", b->model->d_dense, site->shares.dense, "partial");
    glm_step_exchange(b);
    glm_close_block(b, glm_site_name(b, site, "dense"));
}
