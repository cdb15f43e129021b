/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling programs (design 4): every rank offers a fixed number of candidates of its vocabulary
 * share, one gather, and every rank makes the same draw. What 256 candidates do not settle takes
 * sample_wide, then sample_all, which offers whole shares. The number is the same on every rank: a
 * smaller share pads. */
#include "codegen/builder.h"

enum { FEW = 256, MANY = 16384, HEADER_WORDS = 4 };

static uint32_t largest_share(const struct glm_builder *b)
{
    return glm_layer_shares(b->model, b->lane, 0, 0).vocab.count; /* remainders go lowest first */
}

static void sample_program(struct glm_builder *b, const char *program, const char *suffix,
                           uint32_t n)
{
    const struct glm_model *m = b->model;
    struct glm_share vocab = glm_layer_shares(m, b->lane, b->rank, 0).vocab;
    uint64_t words = HEADER_WORDS + 2 * (uint64_t)n;
    const char *mine = glm_text(b, "cand%s", suffix), *all = mine;
    glm_build_buffer(b, mine, "i32", words, GLM_PER_OUT);
    if (b->world > 1) {
        all = glm_text(b, "cands%s", suffix);
        glm_build_buffer(b, all, "i32", b->world * words, GLM_PER_OUT);
    }
    const char *candidates =
        glm_build_kernel(b, glm_text(b, "candidates%s", suffix), "candidates",
                         GLM_PARAMS(GLM_INT("V", vocab.count, "rank's vocabulary"),
                                    GLM_INT("FIRST", vocab.first, "rank's vocabulary"),
                                    GLM_INT("VALID", m->n_valid_ids, "plan.n_valid_ids"),
                                    GLM_INT("C", n, "candidates a rank")));
    const char *draw = glm_build_kernel(b, glm_text(b, "draw%s", suffix), "draw",
                                        GLM_PARAMS(GLM_INT("WORLD", b->world, "lane.ranks"),
                                                   GLM_INT("C", n, "candidates a rank"),
                                                   GLM_INT("V", m->d_vocab, "model.d_vocab")));
    glm_step_kernel(b, NULL, candidates,
                    GLM_ARGS("logits", "logits", "ends", "ends", "cand", mine));
    if (b->world > 1)
        glm_step_gather(b, mine, all);
    glm_step_kernel(b, NULL, draw, GLM_ARGS("cands", all, "tokens", "tokens"));
    glm_close_program(b, program, "decode", GLM_ARGS("logits"), GLM_ARGS("tokens"));
}

void glm_graph_sample(struct glm_builder *b)
{
    uint32_t share = largest_share(b);
    glm_build_buffer(b, "ends", "i32", GLM_MAX_END_IDS, GLM_PER_ONCE);
    glm_build_buffer(b, "tokens", "i32", 1, GLM_PER_OUT);
    sample_program(b, "sample", "", share < FEW ? share : FEW);
    if (share > FEW)
        sample_program(b, "sample_wide", ".wide", share < MANY ? share : MANY);
    if (share > MANY)
        sample_program(b, "sample_all", ".all", share);
}
