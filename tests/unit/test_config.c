/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint's config.json: what is not supported is named, key and value. */
#include "tests/support/opening.h"

#include <string.h>

static struct opening f;

static const struct {
    const char *piece, *replacement, *message;
} configs[] = {
    {"\"model_type\": \"glm5_next\"", "\"model_type\": \"llama\"",
     "'model_type' is llama, supported: glm5_next"},
    {"\"hidden_size\": 256,\n  \"intermediate_size\": 512", "\"intermediate_size\": 512",
     "'text_config.hidden_size' is missing, supported: an integer from 16 to 131072"},
    {"\"kv_lora_rank\": 128", "\"kv_lora_rank\": -3", "'text_config.kv_lora_rank' is -3"},
    {"\"kv_lora_rank\": 128", "\"kv_lora_rank\": 1.5", "'text_config.kv_lora_rank' is 1.5"},
    {"\"kv_lora_rank\": 128", "\"kv_lora_rank\": \"128\"", "'text_config.kv_lora_rank' is \"128\""},
    {"\"kv_lora_rank\": 128", "\"kv_lora_rank\": 1e300", "'text_config.kv_lora_rank' is 1e+300"},
    {"\"num_hidden_layers\": 6", "\"num_hidden_layers\": 4096",
     "supported: an integer from 1 to 127"},
    {"\"num_hidden_layers\": 6", "\"num_hidden_layers\": 7", "a list of 7 layer kinds"},
    {"\"qk_rope_head_dim\": 0", "\"qk_rope_head_dim\": 64",
     "'text_config.qk_rope_head_dim' is 64, supported: 0"},
    {"\"scoring_func\": \"sigmoid\"", "\"scoring_func\": \"softmax\"",
     "is \"softmax\", supported: \"sigmoid\""},
    {"\"mhc\": true", "\"mhc\": false", "'text_config.mhc' is false, supported: true"},
    {"\"gate_lower_bound\": -5.0", "\"gate_lower_bound\": null", "gate_lower_bound' is null"},
    {"\"n_routed_experts\": 8", "\"n_routed_experts\": 1",
     "'num_experts_per_tok' is 2, but 'n_routed_experts' is 1"},
    {"\"index_topk\": 256", "\"index_topk\": 255",
     "'index_topk' is 255, not a multiple of 'index_kpool' 4"},
    {"\"index_kpool\": 4", "\"index_kpool\": 0",
     "'text_config.index_kpool' is 0, supported: an integer from 1 to 64"},
    {"\"index_kpool\": 4", "\"index_kpool\": 6",
     "'index_kpool' is 6, supported: a divisor of 2048, the tokens of a pool extent"},
    {"\"linear_attention\",\n", "\"mamba\",\n", "'text_config.layer_types[0]' is \"mamba\""},
    {"\"sparse\",\n", "7,\n", "'text_config.mlp_layer_types[2]' is 7"},
    {"  \"eos_token_id\": [\n   2012,", "  \"eos_token_id\": [\n   9999,",
     "eos_token_id' is [9999,2019,2021]"},
    {"\"out_hidden_size\": 256", "\"out_hidden_size\": 128",
     "out_hidden_size' is 128, but 'hidden_size' is 256"},
    {"\"quant_method\": \"exl3\"", "\"quant_method\": \"fp8\"", "quantized with fp8"},
    {"\"quant_method\": \"exl3\"", "\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\"",
     "quantized with modelopt (NVFP4), supported: EXL3 on routed experts, or plain BF16"},
    {"\"quantization_config\": {\n  \"quant_method\": \"exl3\"",
     "\"quantization\": {\n  \"group_size\": 64", "quantized with mlx (affine)"},
    {"\"linear_attn_config\"", "\"other\"", "'text_config.linear_attn_config' is missing"},
    {"{", "[", "config.json is not valid JSON"},
};

static void each_unsupported_config_is_refused_with_key_and_value(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        struct buf changed = {0};
        opening_start(&f);
        const char *at = strstr(f.config.data, configs[i].piece);
        if (at == NULL)
            fail_msg("case %zu: no '%s' in config.json", i, configs[i].piece);
        buf_add(&changed, f.config.data, (size_t)(at - f.config.data));
        buf_str(&changed, configs[i].replacement);
        buf_str(&changed, at + strlen(configs[i].piece));
        pack_folder(f.folder, sizeof f.folder);
        pack_write_text(f.folder, "config.json", changed.data);
        pack_init(&f.pack, &f.model, 4, 1);
        pack_write(&f.pack, f.folder);
        buf_release(&changed);
        if (opening_open(&f, f.folder) != GLM_ECHECKPOINT || f.diags.n_errors != 1 ||
            strstr(f.diags.items[0].message, configs[i].message) == NULL)
            opening_fail(&f, configs[i].replacement);
        opening_stop(&f);
    }
}

static void text_only_configs_at_the_top_level_are_read(void **state)
{
    (void)state;
    struct glm_error err = {0};
    struct glm_model m;
    opening_start(&f);
    const char *text = strstr(f.config.data, "\"text_config\": {");
    const char *end = strstr(f.config.data, "\"vision_config\"");
    struct buf flat = {0};
    buf_str(&flat, "{ \"x\": 0,");
    buf_add(&flat, text + 16, (size_t)(end - text) - 16);
    while (flat.data[flat.len - 1] != '}')
        flat.data[--flat.len] = '\0';
    if (glm_model_parse(flat.data, flat.len, &m, &err) != GLM_OK)
        fail_msg("%s", err.message);
    assert_int_equal(m.d_hidden, 256);
    assert_false(m.has_vision);
    buf_release(&flat);
    opening_stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_unsupported_config_is_refused_with_key_and_value),
        cmocka_unit_test(text_only_configs_at_the_top_level_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
