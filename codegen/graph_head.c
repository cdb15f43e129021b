/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a forward program: the last write-back, the mean of the streams, the final norm, and
 * the head over the rows whose logits are wanted (docs/model.md 6). The head is cut by vocabulary.
 */
#include "codegen/builder.h"

static const char *head_form(const struct glm_builder *b)
{
    return glm_build_form(b->lane->formats.head, b->model->d_hidden, 0);
}

static struct glm_share vocab_share(const struct glm_builder *b)
{
    return glm_layer_shares(b->model, b->lane, b->rank, 0).vocab;
}

void glm_graph_head(struct glm_builder *b)
{
    const struct glm_model *m = b->model;
    struct glm_share vocab = vocab_share(b);
    glm_build_vector(b, NULL, "norm", "model.language_model.norm.weight", "bf16", m->d_hidden);
    glm_build_weight(b, NULL,
                     &(struct glm_weight_def){
                         .name = "head",
                         .class = GLM_CLASS_HEAD,
                         .form = head_form(b),
                         .parts = {{"lm_head.weight", m->d_vocab, m->d_hidden,
                                    glm_slice_share(vocab, 1), glm_slice_all(m->d_hidden)}},
                     });
    glm_build_buffer(b, "hidden", "act", m->d_hidden, GLM_PER_ROW);
    glm_build_buffer(b, "picked", "act", m->d_hidden, GLM_PER_OUT);
    glm_build_buffer(b, "logits", "f32", vocab.count, GLM_PER_OUT);
}

void glm_steps_head(struct glm_builder *b)
{
    const struct glm_model *m = b->model;
    const char *final = glm_build_kernel(
        b, "hc_final", "hc_final",
        GLM_PARAMS(GLM_INT("D", m->d_hidden, "model.d_hidden"),
                   GLM_INT("S", m->n_streams_hc, "model.n_streams_hc"),
                   GLM_WORD("NORM_EPS", glm_float_text(b, m->norm_eps), "model.norm_eps")));
    glm_step_kernel(
        b, NULL, final,
        GLM_ARGS("y", glm_exchanged(b), "mix", "mix", "x", "x", "norm", "norm", "out", "hidden"));
    glm_step_mark(b, "hidden");
    const char *pick = glm_build_kernel(b, "pick_rows", "pick_rows",
                                        GLM_PARAMS(GLM_INT("D", m->d_hidden, "model.d_hidden")));
    glm_step_kernel(b, NULL, pick, GLM_ARGS("x", "hidden", "y", "picked"));
    glm_step_matmul(b, NULL,
                    &(struct glm_matmul){.kernel = "mm.head",
                                         .x = "picked",
                                         .w = "head",
                                         .y = "logits",
                                         .out = "f32",
                                         .rows = "out"});
    glm_step_mark(b, "logits");
}
