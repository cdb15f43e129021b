/* SPDX-License-Identifier: Apache-2.0 */
/* The model's geometry as config.json states it: shapes and constants, no tensor data.
 * Names and meanings: docs/model.md 1; values come from the file, never from here. */
#ifndef GLM_SPEC_MODEL_H
#define GLM_SPEC_MODEL_H

#include <stdbool.h>
#include <stdint.h>

enum {
    GLM_MAX_LAYERS = 128,
    GLM_MAX_END_IDS = 8,
    GLM_POOL_EXTENT_TOKENS = 2048, /* the pool is given out so many at a time */
};

enum glm_attention { GLM_ATTENTION_KDA, GLM_ATTENTION_DSA };
enum glm_ffn { GLM_FFN_DENSE, GLM_FFN_MOE };

/* vision_config, the keys beside the members. All zero without a tower. */
struct glm_vision {
    uint32_t n_blocks, d_hidden, n_heads,
        d_mlp;                    /* depth, hidden_size, num_heads, intermediate_size */
    uint32_t d_out, d_projection; /* out_hidden_size, projection_intermediate_size */
    uint32_t n_patch, n_frames, n_merge,
        n_channels; /* pixels, frames, patches a side; in_channels */
};

struct glm_model {
    char name[64];                     /* "glm5_next", or the synthetic geometry's name */
    uint32_t d_vocab;                  /* vocab_size, rows of embedding and head */
    uint32_t n_valid_ids;              /* ids with a token: those below this; d_vocab if unknown */
    uint32_t d_hidden;                 /* hidden_size */
    uint32_t n_layers;                 /* num_hidden_layers, the MTP layer not counted */
    uint32_t n_mtp;                    /* num_nextn_predict_layers: 0 or 1 */
    uint8_t attention[GLM_MAX_LAYERS]; /* enum glm_attention, from layer_types */
    uint8_t ffn[GLM_MAX_LAYERS];       /* enum glm_ffn, from mlp_layer_types */
    double norm_eps;                   /* rms_norm_eps */

    uint32_t d_dense; /* intermediate_size */
    double swiglu_limit;

    uint32_t n_kda_heads, d_kda_head, n_conv_taps; /* linear_attn_config */
    double gate_lower_bound;

    uint32_t n_heads;            /* num_attention_heads */
    uint32_t d_q_rank, d_latent; /* q_lora_rank, kv_lora_rank */
    uint32_t d_qk, d_v;          /* qk_nope_head_dim, v_head_dim */

    uint32_t n_index_heads, d_index, n_index_topk_tokens, n_index_pool; /* index_* */

    uint32_t n_experts, n_experts_per_token, n_shared_experts, d_expert;
    double routed_scale; /* routed_scaling_factor */

    uint32_t n_streams_hc, n_sinkhorn; /* hc_mult, hc_sinkhorn_iters */
    double hc_eps;

    uint32_t max_position; /* max_position_embeddings */
    uint32_t end_ids[GLM_MAX_END_IDS];
    uint32_t n_end_ids;
    uint32_t pad_id;

    bool has_vision;
    struct glm_vision vision;
};

#endif
