/* SPDX-License-Identifier: Apache-2.0 */
/* The embedding: token id → row of the table, copied into every residual stream (docs/model.md 2).
 * Owns the activations that all blocks share: x [R, S·D] the streams, u [R, D] what a block reads,
 * partial [R, D] a rank's fp32 share of what it answers, summed the same over all ranks. */
#include "codegen/builder.h"

void glm_graph_embed(struct glm_builder *b)
{
    const struct glm_model *m = b->model;
    glm_build_weight(
        b, NULL,
        &(struct glm_weight_def){
            .name = "embed",
            .class = GLM_CLASS_EMBEDDING,
            .form = "bf16",
            .parts = {{"model.language_model.embed_tokens.weight", m->d_vocab, m->d_hidden,
                       glm_slice_all(m->d_vocab), glm_slice_all(m->d_hidden)}},
        });
    glm_build_buffer(b, "x", "act", (uint64_t)m->n_streams_hc * m->d_hidden, GLM_PER_ROW);
    glm_build_buffer(b, "u", "act", m->d_hidden, GLM_PER_ROW);
    glm_build_buffer(b, "partial", "f32", m->d_hidden, GLM_PER_ROW);
    if (b->world > 1)
        glm_build_buffer(b, "summed", "f32", m->d_hidden, GLM_PER_ROW);
    glm_build_kernel(b, "embed", "embed",
                     GLM_PARAMS(GLM_INT("D", m->d_hidden, "model.d_hidden"),
                                GLM_INT("S", m->n_streams_hc, "model.n_streams_hc"),
                                GLM_INT("V", m->d_vocab, "model.d_vocab")));
}

void glm_steps_embed(struct glm_builder *b)
{
    glm_step_kernel(b, NULL, "embed", GLM_ARGS("table", "embed", "override", "-", "x", "x"));
}
