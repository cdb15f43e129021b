/* SPDX-License-Identifier: Apache-2.0 */
/* The mixture of experts (docs/model.md 5): a replicated router, every routed expert on every rank
 * by width, the shared expert added as the last summand. Gate and up are cut by outputs, down by
 * inputs at the same boundaries, so nothing is exchanged inside an expert (docs/formats.md 4). */
#include "codegen/builder.h"

#include <string.h>

struct expert_form {
    const char *form;
    int64_t bits;
    const char *codebook;
};

static struct expert_form expert_form(const struct glm_builder *b)
{
    const struct glm_checkpoint *c = b->checkpoint;
    if (b->lane->formats.experts == GLM_EXPERTS_BF16)
        return (struct expert_form){"bf16", 0, "mcg"};
    return (struct expert_form){"exl3", c ? c->exl3_bits : 4, c ? c->exl3_codebook : "mcg"};
}

static void moe_weights(struct glm_builder *b, const struct glm_site *site)
{
    const struct glm_model *m = b->model;
    struct expert_form form = expert_form(b);
    bool exl3 = strcmp(form.form, "exl3") == 0;
    bool stored_exl3 = b->checkpoint ? b->checkpoint->experts_exl3 : exl3;
    const char *suffix = stored_exl3 ? "" : ".weight"; /* a group's tensors share the prefix */
    const char *device = exl3 ? glm_text(b, "exl3:%d:%s", (int)form.bits, form.codebook) : "bf16";
    uint64_t hidden = m->d_hidden, width = m->d_expert;
    struct glm_slice mine = glm_slice_share(site->shares.expert, 1), all = glm_slice_all(hidden);
    static const char *const names[] = {"gate", "up", "down"};
    glm_build_weight(
        b, site,
        &(struct glm_weight_def){
            .name = "moe.router",
            .class = GLM_CLASS_OTHER,
            .form = "bf16",
            .parts = {{"mlp.gate.weight", m->n_experts, hidden, glm_slice_all(m->n_experts), all}},
        });
    glm_build_vector(b, site, "moe.bias", "mlp.gate.e_score_correction_bias", "f32", m->n_experts);
    for (uint32_t i = 0; i < 3; i++) {
        bool down = i == 2;
        const char *tensor = glm_text(b, "mlp.experts.{E}.%s_proj%s", names[i], suffix);
        struct glm_part_def part = {tensor, down ? hidden : width, down ? width : hidden,
                                    down ? all : mine, down ? mine : all};
        glm_build_weight(b, site,
                         &(struct glm_weight_def){
                             .name = glm_text(b, "moe.%s", names[i]),
                             .class = GLM_CLASS_EXPERTS,
                             .form = device,
                             .n_members = m->n_experts,
                             .parts = {part},
                         });
    }
}

static void route_steps(struct glm_builder *b, const struct glm_site *site)
{
    const struct glm_model *m = b->model;
    const char *route = glm_build_kernel(
        b, "moe_route", "moe_route",
        GLM_PARAMS(GLM_INT("E", m->n_experts, "model.n_experts"),
                   GLM_INT("TOPK", m->n_experts_per_token, "model.n_experts_per_token"),
                   GLM_WORD("SCALE", glm_float_text(b, m->routed_scale), "model.routed_scale")));
    glm_step_matmul(b, site,
                    &(struct glm_matmul){.kernel = "mm.moe.router",
                                         .x = "u",
                                         .w = "@moe.router",
                                         .y = "moe.logits",
                                         .out = "f32"});
    glm_step_kernel(b, site, route,
                    GLM_ARGS("logits", "moe.logits", "bias", "@moe.bias", "ids", "moe.ids",
                             "weights", "moe.weights"));
}

static void expert_steps(struct glm_builder *b, const struct glm_site *site, bool has_shared)
{
    const struct glm_model *m = b->model;
    struct expert_form form = expert_form(b);
    const struct glm_plan_param common[] = {
        GLM_INT("E", m->n_experts, "model.n_experts"),
        GLM_INT("TOPK", m->n_experts_per_token, "model.n_experts_per_token"),
        GLM_INT("D", m->d_hidden, "model.d_hidden"),
        GLM_INT("I", site->shares.expert.count, "rank's expert width"),
        GLM_WORD("FORM", form.form, "lane.formats.experts"),
        GLM_INT("BITS", form.bits, "checkpoint"),
        GLM_WORD("CODEBOOK", form.codebook, "checkpoint"),
    };
    enum { N_COMMON = sizeof common / sizeof common[0] };
    struct glm_plan_param params[N_COMMON + 2] = {0};
    memcpy(params, common, sizeof common);
    const char *down = glm_build_kernel(b, "moe_down", "moe_down", params);
    params[N_COMMON] = (struct glm_plan_param)GLM_WORD("LIMIT", glm_float_text(b, m->swiglu_limit),
                                                       "model.swiglu_limit");
    const char *gate_up = glm_build_kernel(b, "moe_gate_up", "moe_gate_up", params);
    glm_step_kernel(
        b, site, gate_up,
        GLM_ARGS("x", "u", "ids", "moe.ids", "gate", "@moe.gate", "up", "@moe.up", "h", "moe.h"));
    glm_step_kernel(b, site, down,
                    GLM_ARGS("h", "moe.h", "ids", "moe.ids", "weights", "moe.weights", "down",
                             "@moe.down", "shared", has_shared ? "moe.shared" : "-", "y",
                             "partial"));
}

void glm_graph_moe(struct glm_builder *b, const struct glm_site *site)
{
    const struct glm_model *m = b->model;
    bool has_shared = m->n_shared_experts > 0;
    moe_weights(b, site);
    glm_build_buffer(b, "moe.logits", "f32", m->n_experts, GLM_PER_ROW);
    glm_build_buffer(b, "moe.ids", "i32", m->n_experts_per_token, GLM_PER_ROW);
    glm_build_buffer(b, "moe.weights", "f32", m->n_experts_per_token, GLM_PER_ROW);
    glm_build_buffer(b, "moe.h", "act",
                     (uint64_t)m->n_experts_per_token * site->shares.expert.count, GLM_PER_ROW);
    route_steps(b, site);
    if (has_shared) {
        glm_build_buffer(b, "moe.shared", "f32", m->d_hidden, GLM_PER_ROW);
        glm_step_swiglu(b, site, "shared", "mlp.shared_experts",
                        (uint64_t)m->n_shared_experts * m->d_expert, site->shares.shared,
                        "moe.shared");
    }
    expert_steps(b, site, has_shared);
    glm_step_exchange(b);
    glm_close_block(b, glm_site_name(b, site, "moe"));
}
