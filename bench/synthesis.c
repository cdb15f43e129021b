/* SPDX-License-Identifier: Apache-2.0 */
/* config.json from a geometry. The tensors' names and shapes are the spec's, through
 * tests/support/pack.h. */
#include "bench/synthesis.h"

#include "spec/base/buf.h"
#include "tests/support/pack.h"

#include <stdio.h>
#include <stdlib.h>

struct glm_model synthesis_flash(void)
{
    struct glm_checkpoint *c = NULL;
    struct arena arena;
    struct diag_list diags;
    arena_init(&arena, (size_t)512 << 20);
    diag_list_init(&diags, &arena);
    if (glm_checkpoint_open("synthetic:glm-5.3-flash", &arena, &diags, &c) != GLM_OK) {
        fprintf(stderr, "no built-in geometry glm-5.3-flash\n");
        exit(1);
    }
    struct glm_model m = c->model;
    arena_release(&arena);
    return m;
}

static void add_layers(struct buf *out, const char *key, const uint8_t *kinds, uint32_t n,
                       const char *const names[2])
{
    buf_printf(out, ",\"%s\":[", key);
    for (uint32_t i = 0; i < n; i++)
        buf_printf(out, "%s\"%s\"", i > 0 ? "," : "", names[kinds[i]]);
    buf_str(out, "]");
}

static void add_vision(struct buf *out, const struct glm_vision *v)
{
    buf_printf(out,
               ",\"vision_config\":{\"depth\":%u,\"hidden_size\":%u,\"num_heads\":%u,"
               "\"intermediate_size\":%u,\"out_hidden_size\":%u,"
               "\"projection_intermediate_size\":%u,\"patch_size\":%u,\"temporal_patch_size\":%u,"
               "\"spatial_merge_size\":%u,\"in_channels\":%u,\"attention_bias\":true}",
               v->n_blocks, v->d_hidden, v->n_heads, v->d_mlp, v->d_out, v->d_projection,
               v->n_patch, v->n_frames, v->n_merge, v->n_channels);
}

void synthesis_write(const struct glm_model *m, uint32_t exl3_bits, uint32_t n_files,
                     const char *folder)
{
    static const char *const attention[] = {[GLM_ATTENTION_KDA] = "linear_attention",
                                            [GLM_ATTENTION_DSA] = "deepseek_sparse_attention"};
    static const char *const ffn[] = {[GLM_FFN_DENSE] = "dense", [GLM_FFN_MOE] = "sparse"};
    struct buf c = {0};
    buf_printf(&c,
               "{\"model_type\":\"glm5_next\",\"text_config\":{\"vocab_size\":%u,"
               "\"hidden_size\":%u,\"num_hidden_layers\":%u,\"num_nextn_predict_layers\":%u,"
               "\"intermediate_size\":%u,\"num_attention_heads\":%u,\"q_lora_rank\":%u,"
               "\"kv_lora_rank\":%u,\"qk_nope_head_dim\":%u,\"v_head_dim\":%u,",
               m->d_vocab, m->d_hidden, m->n_layers, m->n_mtp, m->d_dense, m->n_heads, m->d_q_rank,
               m->d_latent, m->d_qk, m->d_v);
    buf_printf(&c,
               "\"index_n_heads\":%u,\"index_head_dim\":%u,\"index_topk\":%u,\"index_kpool\":%u,"
               "\"n_routed_experts\":%u,\"num_experts_per_tok\":%u,\"n_shared_experts\":%u,"
               "\"moe_intermediate_size\":%u,\"hc_mult\":%u,\"hc_sinkhorn_iters\":%u,",
               m->n_index_heads, m->d_index, m->n_index_topk_tokens, m->n_index_pool, m->n_experts,
               m->n_experts_per_token, m->n_shared_experts, m->d_expert, m->n_streams_hc,
               m->n_sinkhorn);
    buf_printf(&c,
               "\"max_position_embeddings\":%u,\"pad_token_id\":%u,\"rms_norm_eps\":%.9g,"
               "\"swiglu_limit\":%.9g,\"routed_scaling_factor\":%.9g,\"hc_eps\":%.9g,"
               "\"linear_attn_config\":{\"num_heads\":%u,\"head_dim\":%u,"
               "\"short_conv_kernel_size\":%u,\"gate_lower_bound\":%.9g}",
               m->max_position, m->pad_id, m->norm_eps, m->swiglu_limit, m->routed_scale, m->hc_eps,
               m->n_kda_heads, m->d_kda_head, m->n_conv_taps, m->gate_lower_bound);
    buf_str(&c, ",\"eos_token_id\":[");
    for (uint32_t i = 0; i < m->n_end_ids; i++)
        buf_printf(&c, "%s%u", i > 0 ? "," : "", m->end_ids[i]);
    buf_str(&c, "]");
    add_layers(&c, "layer_types", m->attention, m->n_layers, attention);
    add_layers(&c, "mlp_layer_types", m->ffn, m->n_layers, ffn);
    buf_str(&c, "}");
    if (m->has_vision)
        add_vision(&c, &m->vision);
    if (exl3_bits > 0)
        buf_printf(&c, ",\"quantization_config\":{\"quant_method\":\"exl3\",\"bits\":%u}",
                   exl3_bits);
    buf_str(&c, "}\n");
    struct pack pack;
    pack_init(&pack, m, exl3_bits, n_files);
    pack_write_text(folder, "config.json", buf_text(&c));
    pack_write(&pack, folder);
    pack_release(&pack);
    buf_release(&c);
}
