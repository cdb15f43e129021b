/* SPDX-License-Identifier: Apache-2.0 */
/* config.json → struct glm_model. Tables state where each number lies, its range, and which
 * settings have only one supported value; every other key is ignored, since exports add their own.
 * Shapes are checked against tensors in checkpoint.c; how weights are stored is decided there too.
 */
#include "spec/checkpoint.h"

#include <cjson/cJSON.h>

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum place { TEXT, LINEAR, VISION };

struct number_row {
    enum place place;
    const char *key;
    size_t offset; /* of a uint32_t in struct glm_model */
    uint32_t min, max;
    int64_t fallback; /* taken when the key is absent; -1: it must be there */
};

#define AT(field) offsetof(struct glm_model, field)
static const struct number_row numbers[] = {
    {TEXT, "vocab_size", AT(d_vocab), 2, 1u << 22, -1},
    {TEXT, "hidden_size", AT(d_hidden), 16, 1u << 17, -1},
    {TEXT, "num_hidden_layers", AT(n_layers), 1, GLM_MAX_LAYERS - 1, -1},
    {TEXT, "num_nextn_predict_layers", AT(n_mtp), 0, 1, 0},
    {TEXT, "intermediate_size", AT(d_dense), 1, 1u << 20, -1},
    {TEXT, "num_attention_heads", AT(n_heads), 1, 1024, -1},
    {TEXT, "q_lora_rank", AT(d_q_rank), 1, 1u << 16, -1},
    {TEXT, "kv_lora_rank", AT(d_latent), 1, 1u << 16, -1},
    {TEXT, "qk_nope_head_dim", AT(d_qk), 1, 4096, -1},
    {TEXT, "v_head_dim", AT(d_v), 1, 4096, -1},
    {TEXT, "index_n_heads", AT(n_index_heads), 1, 1024, -1},
    {TEXT, "index_head_dim", AT(d_index), 1, 4096, -1},
    {TEXT, "index_topk", AT(n_index_topk_tokens), 1, 1u << 20, -1},
    {TEXT, "index_kpool", AT(n_index_pool), 1, 64, -1},
    {TEXT, "n_routed_experts", AT(n_experts), 1, 4096, -1},
    {TEXT, "num_experts_per_tok", AT(n_experts_per_token), 1, 64, -1},
    {TEXT, "n_shared_experts", AT(n_shared_experts), 1, 16, -1},
    {TEXT, "moe_intermediate_size", AT(d_expert), 1, 1u << 18, -1},
    {TEXT, "hc_mult", AT(n_streams_hc), 1, 16, -1},
    {TEXT, "hc_sinkhorn_iters", AT(n_sinkhorn), 1, 1000, -1},
    {TEXT, "max_position_embeddings", AT(max_position), 64, 1u << 30, -1},
    {TEXT, "pad_token_id", AT(pad_id), 0, 1u << 22, 0},
    {LINEAR, "num_heads", AT(n_kda_heads), 1, 1024, -1},
    {LINEAR, "head_dim", AT(d_kda_head), 1, 4096, -1},
    {LINEAR, "short_conv_kernel_size", AT(n_conv_taps), 1, 16, -1},
    {VISION, "depth", AT(vision.n_blocks), 1, 256, -1},
    {VISION, "hidden_size", AT(vision.d_hidden), 1, 1u << 16, -1},
    {VISION, "num_heads", AT(vision.n_heads), 1, 1024, -1},
    {VISION, "intermediate_size", AT(vision.d_mlp), 1, 1u << 18, -1},
    {VISION, "out_hidden_size", AT(vision.d_out), 1, 1u << 17, -1},
    {VISION, "projection_intermediate_size", AT(vision.d_projection), 1, 1u << 18, -1},
    {VISION, "patch_size", AT(vision.n_patch), 1, 256, -1},
    {VISION, "temporal_patch_size", AT(vision.n_frames), 1, 16, -1},
    {VISION, "spatial_merge_size", AT(vision.n_merge), 1, 16, -1},
    {VISION, "in_channels", AT(vision.n_channels), 1, 16, -1},
};

static const struct {
    enum place place;
    const char *key;
    size_t offset; /* of a double */
    double min, max;
} reals[] = {
    {TEXT, "rms_norm_eps", AT(norm_eps), 1e-12, 1e-1},
    {TEXT, "swiglu_limit", AT(swiglu_limit), 1e-3, 1e6},
    {TEXT, "routed_scaling_factor", AT(routed_scale), 1e-3, 1e3},
    {TEXT, "hc_eps", AT(hc_eps), 1e-12, 1e-1},
    {LINEAR, "gate_lower_bound", AT(gate_lower_bound), -80, -1e-3},
};
#undef AT

/* Settings of which one value is implemented, as JSON text. Absent is as that value. */
static const struct {
    const char *key, *supported;
} fixed[] = {
    {"hidden_act", "\"silu\""},
    {"scoring_func", "\"sigmoid\""},
    {"topk_method", "\"noaux_tc\""},
    {"moe_router_dtype", "\"float32\""},
    {"n_group", "1"},
    {"topk_group", "1"},
    {"norm_topk_prob", "true"},
    {"qk_rope_head_dim", "0"},
    {"mla_use_nope", "true"},
    {"mhc", "true"},
    {"index_kpool_compress", "true"},
    {"index_kpool_always_select_tail", "true"},
    {"attention_bias", "false"},
    {"tie_word_embeddings", "false"},
};

struct config {
    const cJSON *root, *text, *linear, *vision;
    struct glm_error *err;
};

static const char *const place_names[] = {"text_config", "text_config.linear_attn_config",
                                          "vision_config"};

static const cJSON *place_object(const struct config *c, enum place place)
{
    return place == TEXT ? c->text : place == LINEAR ? c->linear : c->vision;
}

/* A value as it stands in the file, for a message. */
static void value_text(const cJSON *value, char *text, size_t size)
{
    if (value == NULL) {
        snprintf(text, size, "missing");
        return;
    }
    char *all = cJSON_PrintUnformatted(value);
    snprintf(text, size, "%.60s", all != NULL ? all : "?");
    cJSON_free(all);
}

static enum glm_status fail_value(const struct config *c, enum place place, const char *key,
                                  const cJSON *value, const char *supported)
{
    char text[80];
    value_text(value, text, sizeof text);
    return glm_fail(c->err, GLM_ECHECKPOINT, "config.json: '%s.%s' is %s, supported: %s",
                    place_names[place], key, text, supported);
}

static enum glm_status read_numbers(const struct config *c, struct glm_model *m)
{
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const struct number_row *row = &numbers[i];
        const cJSON *object = place_object(c, row->place);
        if (row->place == VISION && object == NULL)
            continue;
        const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, row->key);
        uint32_t number = (uint32_t)(row->fallback < 0 ? 0 : row->fallback);
        bool absent = value == NULL || cJSON_IsNull(value);
        if (!absent || row->fallback < 0) {
            char supported[64];
            snprintf(supported, sizeof supported, "an integer from %u to %u", row->min, row->max);
            if (value == NULL || !cJSON_IsNumber(value) || !(value->valuedouble >= row->min) ||
                !(value->valuedouble <= row->max) ||
                floor(value->valuedouble) != value->valuedouble)
                return fail_value(c, row->place, row->key, value, supported);
            number = (uint32_t)value->valuedouble;
        }
        memcpy((char *)m + row->offset, &number, sizeof number);
    }
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
        const cJSON *value =
            cJSON_GetObjectItemCaseSensitive(place_object(c, reals[i].place), reals[i].key);
        char supported[64];
        snprintf(supported, sizeof supported, "a number from %g to %g", reals[i].min, reals[i].max);
        if (!cJSON_IsNumber(value) || !(value->valuedouble >= reals[i].min) ||
            !(value->valuedouble <= reals[i].max))
            return fail_value(c, reals[i].place, reals[i].key, value, supported);
        memcpy((char *)m + reals[i].offset, &value->valuedouble, sizeof(double));
    }
    return GLM_OK;
}

static enum glm_status check_fixed(const struct config *c)
{
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++) {
        const cJSON *value = cJSON_GetObjectItemCaseSensitive(c->text, fixed[i].key);
        if (value == NULL)
            continue;
        char text[80];
        value_text(value, text, sizeof text);
        if (strcmp(text, fixed[i].supported) != 0)
            return fail_value(c, TEXT, fixed[i].key, value, fixed[i].supported);
    }
    return GLM_OK;
}

struct word {
    const char *text;
    uint8_t value;
};
static const struct word attention_words[] = {
    {"linear_attention", GLM_ATTENTION_KDA},
    {"deepseek_sparse_attention", GLM_ATTENTION_DSA},
    {"full_attention", GLM_ATTENTION_DSA},
};
static const struct word ffn_words[] = {{"dense", GLM_FFN_DENSE}, {"sparse", GLM_FFN_MOE}};

static enum glm_status read_layers(const struct config *c, const char *key,
                                   const struct word *words, size_t n_words, uint32_t n_layers,
                                   uint8_t *out)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(c->text, key);
    char text[80];
    int n = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : -1;
    if (n < 0 || (uint32_t)n != n_layers) {
        snprintf(text, sizeof text, "a list of %u layer kinds (num_hidden_layers)", n_layers);
        return fail_value(c, TEXT, key, list, text);
    }
    uint32_t layer = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        size_t i = 0;
        while (i < n_words &&
               !(cJSON_IsString(item) && strcmp(item->valuestring, words[i].text) == 0))
            i++;
        if (i == n_words) {
            value_text(item, text, sizeof text);
            return glm_fail(c->err, GLM_ECHECKPOINT,
                            "config.json: 'text_config.%s[%u]' is %s, supported: \"%s\", \"%s\"",
                            key, layer, text, words[0].text, words[1].text);
        }
        out[layer++] = words[i].value;
    }
    return GLM_OK;
}

static enum glm_status read_end_ids(const struct config *c, struct glm_model *m)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(c->text, "eos_token_id");
    if (value == NULL)
        value = cJSON_GetObjectItemCaseSensitive(c->root, "eos_token_id");
    const cJSON *item = cJSON_IsArray(value) ? value->child : value;
    for (; item != NULL; item = cJSON_IsArray(value) ? item->next : NULL) {
        bool good = cJSON_IsNumber(item) && item->valuedouble >= 0 &&
                    item->valuedouble < m->d_vocab &&
                    floor(item->valuedouble) == item->valuedouble && m->n_end_ids < GLM_MAX_END_IDS;
        if (!good)
            return fail_value(c, TEXT, "eos_token_id", value, "up to 8 token ids below vocab_size");
        m->end_ids[m->n_end_ids++] = (uint32_t)item->valuedouble;
    }
    if (m->n_end_ids == 0)
        return fail_value(c, TEXT, "eos_token_id", value, "up to 8 token ids below vocab_size");
    return GLM_OK;
}

/* Rules between numbers. */
static enum glm_status check_geometry(const struct config *c, const struct glm_model *m)
{
    if (m->n_experts_per_token > m->n_experts)
        return glm_fail(c->err, GLM_ECHECKPOINT,
                        "config.json: 'num_experts_per_tok' is %u, but 'n_routed_experts' is %u",
                        m->n_experts_per_token, m->n_experts);
    if (GLM_POOL_EXTENT_TOKENS % m->n_index_pool != 0)
        return glm_fail(c->err, GLM_ECHECKPOINT,
                        "config.json: 'index_kpool' is %u, supported: a divisor of %d, the tokens "
                        "of a pool extent",
                        m->n_index_pool, GLM_POOL_EXTENT_TOKENS);
    if (m->n_index_topk_tokens % m->n_index_pool != 0)
        return glm_fail(c->err, GLM_ECHECKPOINT,
                        "config.json: 'index_topk' is %u, not a multiple of 'index_kpool' %u",
                        m->n_index_topk_tokens, m->n_index_pool);
    if (m->has_vision && m->vision.d_out != m->d_hidden)
        return glm_fail(c->err, GLM_ECHECKPOINT,
                        "config.json: 'vision_config.out_hidden_size' is %u, but 'hidden_size' is "
                        "%u",
                        m->vision.d_out, m->d_hidden);
    if (m->has_vision && m->vision.d_hidden % m->vision.n_heads != 0)
        return glm_fail(c->err, GLM_ECHECKPOINT,
                        "config.json: 'vision_config.hidden_size' is %u, not a multiple of "
                        "'num_heads' %u",
                        m->vision.d_hidden, m->vision.n_heads);
    return GLM_OK;
}

static enum glm_status read_model_type(const struct config *c)
{
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(c->root, "model_type");
    const char *text = cJSON_IsString(type) ? type->valuestring : "missing";
    if (strcmp(text, "glm5_next") != 0 && strcmp(text, "glm5_next_text") != 0)
        return glm_fail(c->err, GLM_ECHECKPOINT,
                        "config.json: 'model_type' is %.60s, supported: glm5_next", text);
    return GLM_OK;
}

static enum glm_status parse_root(const cJSON *root, struct glm_model *m, struct glm_error *err)
{
    if (!cJSON_IsObject(root))
        return glm_fail(err, GLM_ECHECKPOINT, "config.json is not a JSON object");
    struct config c = {.root = root, .err = err};
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(root, "text_config");
    c.text = cJSON_IsObject(text) ? text : root;
    c.linear = cJSON_GetObjectItemCaseSensitive(c.text, "linear_attn_config");
    c.vision = cJSON_GetObjectItemCaseSensitive(root, "vision_config");
    if (!cJSON_IsObject(c.vision))
        c.vision = NULL;
    m->has_vision = c.vision != NULL;
    snprintf(m->name, sizeof m->name, "glm5_next");
    enum glm_status status = read_model_type(&c);
    if (status == GLM_OK && !cJSON_IsObject(c.linear))
        status = glm_fail(err, GLM_ECHECKPOINT,
                          "config.json: 'text_config.linear_attn_config' is missing or no object");
    if (status == GLM_OK)
        status = check_fixed(&c);
    if (status == GLM_OK)
        status = read_numbers(&c, m);
    if (status == GLM_OK)
        status = read_layers(&c, "layer_types", attention_words,
                             sizeof attention_words / sizeof attention_words[0], m->n_layers,
                             m->attention);
    if (status == GLM_OK)
        status = read_layers(&c, "mlp_layer_types", ffn_words,
                             sizeof ffn_words / sizeof ffn_words[0], m->n_layers, m->ffn);
    if (status == GLM_OK)
        status = read_end_ids(&c, m);
    if (status == GLM_OK)
        status = check_geometry(&c, m);
    m->n_valid_ids = m->d_vocab; /* until a tokenizer says less */
    /* The MTP layer follows the last one and is DSA and MoE (docs/model.md 1). */
    m->attention[m->n_layers] = GLM_ATTENTION_DSA;
    m->ffn[m->n_layers] = GLM_FFN_MOE;
    return status;
}

enum glm_status glm_model_parse(const char *json, size_t len, struct glm_model *out,
                                struct glm_error *err)
{
    cJSON *root = cJSON_ParseWithLength(json, len);
    if (root == NULL) {
        /* cJSON keeps its error place in a global; finding it again would race, so only say so. */
        return glm_fail(err, GLM_ECHECKPOINT, "config.json is not valid JSON (%zu bytes)", len);
    }
    struct glm_model m = {0};
    enum glm_status status = parse_root(root, &m, err);
    cJSON_Delete(root);
    if (status == GLM_OK)
        *out = m;
    return status;
}
