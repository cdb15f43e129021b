/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/geometry.h"

#include <stdio.h>
#include <string.h>

static void set_layers(struct glm_model *m, uint32_t n_layers, uint32_t period, uint32_t n_dense)
{
    m->n_layers = n_layers;
    for (uint32_t i = 0; i < n_layers; i++) {
        m->attention[i] = i % period == period - 1 ? GLM_ATTENTION_DSA : GLM_ATTENTION_KDA;
        m->ffn[i] = i < n_dense ? GLM_FFN_DENSE : GLM_FFN_MOE;
    }
}

struct glm_model geometry_full(void)
{
    struct glm_model m = {
        .name = "glm5_next",
        .d_vocab = 154880,
        .n_valid_ids = 154856,
        .d_hidden = 4096,
        .n_mtp = 1,
        .norm_eps = 1e-5,
        .d_dense = 12288,
        .swiglu_limit = 10,
        .n_kda_heads = 64,
        .d_kda_head = 128,
        .n_conv_taps = 4,
        .gate_lower_bound = -5,
        .n_heads = 64,
        .d_q_rank = 1536,
        .d_latent = 512,
        .d_qk = 256,
        .d_v = 256,
        .n_index_heads = 32,
        .d_index = 128,
        .n_index_topk_tokens = 2048,
        .n_index_pool = 4,
        .n_experts = 288,
        .n_experts_per_token = 8,
        .n_shared_experts = 1,
        .d_expert = 2048,
        .routed_scale = 2.5,
        .n_streams_hc = 4,
        .n_sinkhorn = 20,
        .hc_eps = 1e-6,
        .max_position = 1048576,
        .end_ids = {154820, 154827, 154829},
        .n_end_ids = 3,
        .pad_id = 154820,
        .has_vision = true,
    };
    set_layers(&m, 45, 4, 3);
    return m;
}

struct glm_model geometry_pico(void)
{
    struct glm_model m = {
        .name = "glm5_next",
        .d_vocab = 2048,
        .n_valid_ids = 2048,
        .d_hidden = 256,
        .n_mtp = 1,
        .norm_eps = 1e-5,
        .d_dense = 512,
        .swiglu_limit = 10,
        .n_kda_heads = 4,
        .d_kda_head = 64,
        .n_conv_taps = 4,
        .gate_lower_bound = -5,
        .n_heads = 4,
        .d_q_rank = 128,
        .d_latent = 128,
        .d_qk = 64,
        .d_v = 64,
        .n_index_heads = 4,
        .d_index = 64,
        .n_index_topk_tokens = 256,
        .n_index_pool = 4,
        .n_experts = 8,
        .n_experts_per_token = 2,
        .n_shared_experts = 1,
        .d_expert = 512,
        .routed_scale = 2.5,
        .n_streams_hc = 4,
        .n_sinkhorn = 20,
        .hc_eps = 1e-6,
        .max_position = 8192,
        .end_ids = {2012, 2019, 2021},
        .n_end_ids = 3,
        .pad_id = 2012,
        .has_vision = true,
    };
    set_layers(&m, 6, 3, 2);
    return m;
}

struct glm_model geometry_small8(void)
{
    struct glm_model m = geometry_pico();
    snprintf(m.name, sizeof m.name, "small8");
    m.d_hidden = 512;
    m.d_dense = 1024;
    m.d_expert = 1024;
    m.n_kda_heads = 8;
    m.n_heads = 8;
    return m;
}

static void base(struct fixture *f, struct glm_model model, uint32_t n_ranks)
{
    static const char *const names[GLM_MAX_NODES] = {"node0", "node1", "node2", "node3",
                                                     "node4", "node5", "node6", "node7"};
    memset(f, 0, sizeof *f);
    arena_init(&f->arena, (size_t)64 << 20);
    diag_list_init(&f->diags, &f->arena);
    f->checkpoint = (struct glm_checkpoint){.kind = GLM_CHECKPOINT_SYNTHETIC,
                                            .model = model,
                                            .experts_exl3 = true,
                                            .exl3_bits = 4,
                                            .exl3_codebook = "mcg"};
    f->cluster = (struct glm_cluster){.name = "test",
                                      .spec_path = "test.yaml",
                                      .checkpoint_where = "synthetic:test",
                                      .checkpoint_path = "synthetic:test",
                                      .served_name = "test",
                                      .checkpoint = &f->checkpoint,
                                      .n_nodes = n_ranks,
                                      .n_lanes = 1};
    struct glm_lane *lane = &f->cluster.lanes[0];
    *lane = (struct glm_lane){.name = "main",
                              .is_default = true,
                              .n_ranks = n_ranks,
                              .listen_host = "127.0.0.1",
                              .n_streams = 8,
                              .window_tokens = 8192,
                              .prefill_rows = 512,
                              .verify_rows = 1,
                              .effort = "",
                              .api_key_file = ""};
    for (uint32_t i = 0; i < n_ranks; i++) {
        f->cluster.nodes[i] =
            (struct glm_node){.name = names[i], .host = "local", .control = "local", .threads = 2};
        lane->ranks[i] = i;
    }
}

void fixture_pico(struct fixture *f, uint32_t n_ranks)
{
    base(f, geometry_pico(), n_ranks);
    f->cluster.lanes[0].formats = (struct glm_formats){GLM_EXPERTS_EXL3, GLM_FORM_BF16,
                                                       GLM_FORM_BF16, GLM_KV_FP32, GLM_ACT_F32};
}

void fixture_full(struct fixture *f, uint32_t n_ranks)
{
    base(f, geometry_full(), n_ranks);
    struct glm_lane *lane = &f->cluster.lanes[0];
    lane->formats =
        (struct glm_formats){GLM_EXPERTS_EXL3, GLM_FORM_Q4, GLM_FORM_FP8, GLM_KV_FP8, GLM_ACT_BF16};
    lane->window_tokens = 262144;
    lane->prefill_rows = 2048;
    f->cluster.transport = GLM_TRANSPORT_ROCE;
    f->cluster.topology = GLM_TOPOLOGY_SWITCH;
    for (uint32_t i = 0; i < n_ranks; i++)
        f->cluster.nodes[i].device = GLM_DEVICE_GB10;
}

void fixture_free(struct fixture *f)
{
    arena_release(&f->arena);
}
