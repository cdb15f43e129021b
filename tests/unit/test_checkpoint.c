/* SPDX-License-Identifier: Apache-2.0 */
/* Opening checkpoints: the real pico packs, and every way a pack can be broken, made on the fly
 * from pico's geometry. Its parts alone: test_safetensors.c, test_config.c, test_token_ids.c. */
#include "tests/support/opening.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXL3   "clusters/demo/exl3"
#define LAYER2 "model.language_model.layers.2."
#define GATE0  LAYER2 "mlp.experts.0.gate_proj"

static struct opening f;

/* ---- what opens ---- */

static void the_shipped_pack_opens_cleanly(void **state)
{
    (void)state;
    opening_start(&f);
    if (opening_open(&f, EXL3) != GLM_OK || f.diags.n_items > 0)
        opening_fail(&f, EXL3);
    const struct glm_checkpoint *c = f.c;
    assert_int_equal(c->kind, GLM_CHECKPOINT_FILES);
    assert_int_equal(c->n_tensors, 709);
    assert_true(c->experts_exl3);
    assert_int_equal(c->exl3_bits, 4);
    assert_string_equal(c->exl3_codebook, "mcg");
    assert_int_equal(strlen(c->digest), 64);
    assert_int_equal(c->model.n_valid_ids, 2048);
    assert_int_equal(c->n_files, 1);
    assert_string_equal(c->files[0], "model.safetensors");
    const struct glm_tensor *t = glm_checkpoint_find(c, GATE0 ".trellis");
    assert_non_null(t);
    assert_int_equal(t->dtype, GLM_I16);
    assert_true(t->shape[0] == 16 && t->shape[1] == 32 && t->shape[2] == 64);
    assert_true(t->size_bytes == 65536);
    assert_string_equal(t->role, "trellis");
    assert_int_equal(t->fan_in, 256);
    assert_null(glm_checkpoint_find(c, "nothing"));
    for (uint32_t i = 1; i < c->n_tensors; i++)
        assert_true(strcmp(c->tensors[i - 1].name, c->tensors[i].name) < 0);
    for (uint32_t i = 0; i < c->n_tensors; i++)
        assert_ptr_equal(glm_checkpoint_find(c, c->tensors[i].name), &c->tensors[i]);
    opening_stop(&f);
}

static void the_config_gives_the_geometry(void **state)
{
    (void)state;
    opening_start(&f);
    const struct glm_model *m = &f.model;
    assert_int_equal(m->d_vocab, 2048);
    assert_int_equal(m->d_hidden, 256);
    assert_int_equal(m->n_layers, 6);
    assert_int_equal(m->n_mtp, 1);
    assert_int_equal(m->attention[1], GLM_ATTENTION_KDA);
    assert_int_equal(m->attention[2], GLM_ATTENTION_DSA);
    assert_int_equal(m->attention[6], GLM_ATTENTION_DSA);
    assert_int_equal(m->ffn[1], GLM_FFN_DENSE);
    assert_int_equal(m->ffn[2], GLM_FFN_MOE);
    assert_int_equal(m->n_kda_heads, 4);
    assert_int_equal(m->n_conv_taps, 4);
    assert_true(m->gate_lower_bound == -5.0);
    assert_int_equal(m->n_index_topk_tokens, 256);
    assert_int_equal(m->n_experts_per_token, 2);
    assert_true(m->routed_scale == 2.5);
    assert_int_equal(m->max_position, 8192);
    assert_int_equal(m->n_end_ids, 3);
    assert_int_equal(m->end_ids[2], 2021);
    assert_true(m->has_vision);
    assert_int_equal(m->vision.d_projection, 512);
    opening_stop(&f);
}

static void the_bf16_shards_open_with_their_index(void **state)
{
    (void)state;
    const char *folder = getenv("GLM_PICO_BF16");
    if (folder == NULL) {
        print_message("GLM_PICO_BF16 is not set\n");
        skip();
    }
    opening_start(&f);
    if (opening_open(&f, folder) != GLM_OK || f.diags.n_items > 0)
        opening_fail(&f, folder);
    assert_false(f.c->experts_exl3);
    assert_int_equal(f.c->n_files, 4);
    assert_string_equal(glm_checkpoint_find(f.c, GATE0 ".weight")->role, "matrix");
    opening_stop(&f);
}

static void sharded_and_single_packs_made_here_open(void **state)
{
    (void)state;
    static const struct {
        uint32_t bits, n_files;
    } cases[] = {{4, 1}, {4, 5}, {2, 3}, {8, 1}, {0, 1}, {0, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        opening_start(&f);
        pack_init(&f.pack, &f.model, cases[i].bits, cases[i].n_files);
        if (opening_open_pack(&f) != GLM_OK || f.diags.n_errors > 0)
            opening_fail(&f, "pack");
        assert_int_equal(f.c->n_files, cases[i].n_files);
        assert_int_equal(f.c->exl3_bits, cases[i].bits);
        /* the config says exl3 each time: a plain pack is followed with a warning */
        assert_int_equal(f.diags.n_items, cases[i].bits == 0);
        opening_stop(&f);
    }
}

static void published_variants_of_small_shapes_are_accepted(void **state)
{
    (void)state;
    opening_start(&f);
    pack_init(&f.pack, &f.model, 4, 1);
    struct pack_tensor *t = pack_get(&f.pack, "model.language_model.layers.0.self_attn.A_log");
    t->n_dims = 4;
    t->shape[0] = t->shape[1] = t->shape[3] = 1;
    t->shape[2] = 4;
    t = pack_get(&f.pack, "model.language_model.layers.0.self_attn.q_conv1d.weight");
    t->n_dims = 2;
    t->shape[1] = 4;
    pack_get(&f.pack, GATE0 ".mcg")->n_dims = 0;
    if (opening_open_pack(&f) != GLM_OK)
        opening_fail(&f, "variants");
    /* and are answered in the expected shape */
    const struct glm_tensor *a =
        glm_checkpoint_find(f.c, "model.language_model.layers.0.self_attn.A_log");
    assert_int_equal(a->n_dims, 1);
    assert_true(a->shape[0] == 4);
    const struct glm_tensor *conv =
        glm_checkpoint_find(f.c, "model.language_model.layers.0.self_attn.q_conv1d.weight");
    assert_int_equal(conv->n_dims, 3);
    assert_true(conv->shape[0] == 256 && conv->shape[1] == 1 && conv->shape[2] == 4);
    opening_stop(&f);
}

static void codebooks_other_than_mcg_are_recognised(void **state)
{
    (void)state;
    static const char *const codebooks[] = {"mul1", "3inst"};
    for (size_t i = 0; i < 2; i++) {
        opening_start(&f);
        pack_init(&f.pack, &f.model, 3, 1);
        for (uint32_t k = 0; k < f.pack.n; k++) {
            char *dot = strrchr(f.pack.tensors[k].name, '.');
            if (strcmp(dot, ".mcg") != 0)
                continue;
            if (i == 0)
                memcpy(dot, ".mul1", 6);
            else
                f.pack.tensors[k].dropped = true;
        }
        if (opening_open_pack(&f) != GLM_OK)
            opening_fail(&f, codebooks[i]);
        assert_string_equal(f.c->exl3_codebook, codebooks[i]);
        assert_int_equal(f.c->exl3_bits, 3);
        opening_stop(&f);
    }
}

static void a_pack_without_mtp_or_vision_is_served_without_them(void **state)
{
    (void)state;
    opening_start(&f);
    pack_init(&f.pack, &f.model, 4, 1);
    for (uint32_t k = 0; k < f.pack.n; k++)
        f.pack.tensors[k].dropped =
            strncmp(f.pack.tensors[k].name, "model.visual.", 13) == 0 ||
            strncmp(f.pack.tensors[k].name, "model.language_model.layers.6.", 30) == 0;
    assert_int_equal(opening_open_pack(&f), GLM_OK);
    assert_int_equal(f.diags.n_items, 2);
    assert_string_equal(f.diags.items[0].id, "checkpoint.no-mtp");
    assert_string_equal(f.diags.items[1].id, "checkpoint.no-vision");
    assert_int_equal(f.c->model.n_mtp, 0);
    assert_false(f.c->model.has_vision);
    opening_stop(&f);
}

static void the_digest_follows_config_headers_and_sizes(void **state)
{
    (void)state;
    char digests[4][65];
    for (int i = 0; i < 4; i++) {
        opening_start(&f);
        pack_init(&f.pack, &f.model, 4, i == 3 ? 2 : 1);
        if (i == 1)
            buf_char(&f.config, ' ');
        if (i == 2)
            pack_add(&f.pack, "extra", "U8", 1, 8, 0, 0);
        assert_int_equal(opening_open_pack(&f), GLM_OK);
        memcpy(digests[i], f.c->digest, 65);
        opening_stop(&f);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(digests[i], digests[k]);
    }
}

static void a_header_set_of_the_full_size_opens_in_time(void **state)
{
    (void)state;
    opening_start(&f);
    assert_int_equal(opening_open(&f, "synthetic:glm-5.3-flash"), GLM_OK);
    pack_init(&f.pack, &f.c->model, 4, 120);
    struct glm_model full = f.c->model;
    arena_release(&f.arena);
    /* pico's config with the full geometry's numbers would be another file; the tensors' check is
     * what takes the time, so the config is written here */
    buf_clear(&f.config);
    buf_printf(
        &f.config,
        "{\"model_type\":\"glm5_next\",\"text_config\":{\"vocab_size\":154880,"
        "\"hidden_size\":4096,\"num_hidden_layers\":45,\"num_nextn_predict_layers\":1,"
        "\"intermediate_size\":12288,\"num_attention_heads\":64,\"q_lora_rank\":1536,"
        "\"kv_lora_rank\":512,\"qk_nope_head_dim\":256,\"v_head_dim\":256,"
        "\"index_n_heads\":32,\"index_head_dim\":128,\"index_topk\":2048,\"index_kpool\":4,"
        "\"n_routed_experts\":288,\"num_experts_per_tok\":8,\"n_shared_experts\":1,"
        "\"moe_intermediate_size\":2048,\"hc_mult\":4,\"hc_sinkhorn_iters\":20,"
        "\"max_position_embeddings\":1048576,\"pad_token_id\":154820,"
        "\"eos_token_id\":[154820,154827,154829],\"rms_norm_eps\":1e-5,\"swiglu_limit\":10.0,"
        "\"routed_scaling_factor\":2.5,\"hc_eps\":1e-6,\"linear_attn_config\":{\"num_heads\":"
        "64,\"head_dim\":128,\"short_conv_kernel_size\":4,\"gate_lower_bound\":-5.0},"
        "\"layer_types\":[");
    for (uint32_t i = 0; i < full.n_layers; i++)
        buf_printf(&f.config, "%s\"%s\"", i > 0 ? "," : "",
                   full.attention[i] == GLM_ATTENTION_KDA ? "linear_attention"
                                                          : "deepseek_sparse_attention");
    buf_str(&f.config, "],\"mlp_layer_types\":[");
    for (uint32_t i = 0; i < full.n_layers; i++)
        buf_printf(&f.config, "%s\"%s\"", i > 0 ? "," : "",
                   full.ffn[i] == GLM_FFN_DENSE ? "dense" : "sparse");
    buf_str(&f.config, "]},\"vision_config\":{\"depth\":24,\"hidden_size\":1024,\"num_heads\":16,"
                       "\"intermediate_size\":4096,\"out_hidden_size\":4096,"
                       "\"projection_intermediate_size\":10240,\"patch_size\":14,"
                       "\"temporal_patch_size\":2,\"spatial_merge_size\":2,\"in_channels\":3},"
                       "\"quantization_config\":{\"quant_method\":\"exl3\",\"bits\":4}}");
    double begin = 0;
    pack_folder(f.folder, sizeof f.folder);
    pack_write_text(f.folder, "config.json", f.config.data);
    pack_write(&f.pack, f.folder);
    arena_init(&f.arena, 512u << 20);
    diag_list_init(&f.diags, &f.arena);
    begin = opening_seconds();
    if (opening_open(&f, f.folder) != GLM_OK || f.diags.n_items > 0)
        opening_fail(&f, "full");
    double took = opening_seconds() - begin;
    print_message("%u tensors in 120 files: %.0f ms\n", f.c->n_tensors, took * 1e3);
    assert_int_equal(f.c->n_tensors, 150226);
    assert_true(took < 10); /* 2 s is the promise for a plain build on an idle machine */
    opening_stop(&f);
}

/* ---- what does not: one change to a good pack each ---- */

static void drop(const char *name)
{
    pack_get(&f.pack, name)->dropped = true;
}

static void spoil_missing(void)
{
    drop("lm_head.weight");
}
static void spoil_missing_expert(void)
{
    drop(LAYER2 "mlp.experts.5.gate_proj.trellis");
    drop(LAYER2 "mlp.experts.5.gate_proj.suh");
    drop(LAYER2 "mlp.experts.5.gate_proj.svh");
    drop(LAYER2 "mlp.experts.5.gate_proj.mcg");
}
static void spoil_missing_trellis(void)
{
    drop(GATE0 ".trellis");
}
static void spoil_missing_suh(void)
{
    drop(GATE0 ".suh");
}
static void spoil_missing_svh(void)
{
    drop(GATE0 ".svh");
}
static void spoil_old_scales(void)
{
    drop(GATE0 ".suh");
    pack_add(&f.pack, GATE0 ".su", "I16", 1, 16, 0, 0);
}
static void spoil_shape(void)
{
    pack_get(&f.pack, "lm_head.weight")->shape[0] = 2047;
}
static void spoil_transposed(void)
{
    struct pack_tensor *t = pack_get(&f.pack, LAYER2 "self_attn.kv_b_proj.weight");
    t->shape[0] = 128;
    t->shape[1] = 512;
}
static void spoil_dtype(void)
{
    memcpy(pack_get(&f.pack, "model.language_model.layers.0.hc_attn_base")->dtype, "BF16", 5);
}
static void spoil_trellis_dtype(void)
{
    memcpy(pack_get(&f.pack, GATE0 ".trellis")->dtype, "U16", 4);
}
static void spoil_trellis_dims(void)
{
    struct pack_tensor *t = pack_get(&f.pack, GATE0 ".trellis");
    t->n_dims = 2;
    t->shape[1] = 32 * 64;
}
static void spoil_rate(void)
{
    pack_get(&f.pack, LAYER2 "mlp.experts.3.up_proj.trellis")->shape[2] = 48;
}
static void spoil_half_rate(void)
{
    pack_get(&f.pack, GATE0 ".trellis")->shape[2] = 40;
}
static void spoil_zero_rate(void)
{
    pack_get(&f.pack, GATE0 ".trellis")->shape[2] = 0;
}
static void spoil_nine_bits(void)
{
    pack_get(&f.pack, GATE0 ".trellis")->shape[2] = 144;
}
static void spoil_trellis_shape(void)
{
    pack_get(&f.pack, GATE0 ".trellis")->shape[0] = 8;
}
static void spoil_trellis_swapped(void)
{
    struct pack_tensor *t = pack_get(&f.pack, GATE0 ".trellis");
    t->shape[0] = 32;
    t->shape[1] = 16;
}
static void spoil_suh_length(void)
{
    pack_get(&f.pack, GATE0 ".suh")->shape[0] = 128;
}
static void spoil_svh_dtype(void)
{
    memcpy(pack_get(&f.pack, GATE0 ".svh")->dtype, "BF16", 5);
}
static void spoil_both_markers(void)
{
    pack_add(&f.pack, GATE0 ".mul1", "I32", 1, 1, 0, 0);
}
static void spoil_marker_size(void)
{
    pack_get(&f.pack, GATE0 ".mcg")->shape[0] = 2;
}
static void spoil_mixed_codebook(void)
{
    drop(LAYER2 "mlp.experts.7.down_proj.mcg");
}
static void spoil_both_weights(void)
{
    pack_add(&f.pack, GATE0 ".weight", "BF16", 2, 512, 256, 0);
}
static void spoil_fp8(void)
{
    pack_add(&f.pack, GATE0 ".weight_scale_inv", "F32", 2, 4, 2, 0);
}
static void spoil_nvfp4(void)
{
    pack_add(&f.pack, GATE0 ".weight_scale_2", "F32", 1, 1, 0, 0);
}
static void spoil_mlx(void)
{
    pack_add(&f.pack, "lm_head.scales", "BF16", 2, 2048, 4, 0);
}
static void spoil_full_scope(void)
{
    pack_add(&f.pack, LAYER2 "self_attn.o_proj.trellis", "I16", 3, 16, 16, 96);
}
static void spoil_twice(void)
{
    f.pack.tensors[pack_add(&f.pack, "lm_head.weight", "BF16", 2, 2048, 256, 0) - f.pack.tensors]
        .file = 0;
}
static void spoil_index(void)
{
    pack_get(&f.pack, "lm_head.weight")->hidden = true;
}
static void spoil_total(void)
{
    f.pack.total_size = 12345;
}
static void spoil_vision(void)
{
    drop("model.visual.merger.proj.weight");
}
static void spoil_unknown_dtype(void)
{
    memcpy(pack_get(&f.pack, "lm_head.weight")->dtype, "F4", 3);
}

static const struct {
    void (*spoil)(void);
    uint32_t n_files;
    enum diag_level level;
    const char *id, *message;
} spoiled[] = {
    {spoil_missing, 1, DIAG_ERROR, "checkpoint.missing-tensor",
     "no file holds 'lm_head.weight' (BF16 [2048, 256])"},
    {spoil_missing_expert, 1, DIAG_ERROR, "checkpoint.missing-tensor",
     "layer 2 expert 5 has no gate_proj.trellis (7 of 8 experts present)"},
    {spoil_missing_trellis, 1, DIAG_ERROR, "checkpoint.exl3-trellis",
     "EXL3 scales without .trellis"},
    {spoil_missing_suh, 1, DIAG_ERROR, "checkpoint.exl3-scales",
     "EXL3 weight without input scales ('.su' or '.suh')"},
    {spoil_missing_svh, 1, DIAG_ERROR, "checkpoint.exl3-scales",
     "without output scales ('.sv' or '.svh')"},
    {spoil_old_scales, 1, DIAG_ERROR, "checkpoint.exl3-scales",
     "in the old sign form '.su', supported: '.suh'"},
    {spoil_shape, 1, DIAG_ERROR, "checkpoint.shape",
     "tensor 'lm_head.weight' has shape [2047, 256], the model needs [2048, 256]"},
    {spoil_transposed, 1, DIAG_ERROR, "checkpoint.shape",
     "has shape [128, 512], the model needs [512, 128]"},
    {spoil_dtype, 1, DIAG_ERROR, "checkpoint.dtype", "hc_attn_base' is BF16, the model needs F32"},
    {spoil_trellis_dtype, 1, DIAG_ERROR, "checkpoint.exl3-trellis",
     "must be I16 [in/16, out/16, 16*bits], found U16 [16, 32, 64]"},
    {spoil_trellis_dims, 1, DIAG_ERROR, "checkpoint.exl3-trellis", "found I16 [16, 2048]"},
    {spoil_rate, 1, DIAG_ERROR, "checkpoint.exl3-rate", "experts.3.up_proj' is 3-bit EXL3, but"},
    {spoil_half_rate, 1, DIAG_ERROR, "checkpoint.exl3-rate",
     "last dimension 40 is not 16 x an integer 1..8 bits; half rates are not supported"},
    {spoil_zero_rate, 1, DIAG_ERROR, "checkpoint.exl3-rate", "last dimension 0"},
    {spoil_nine_bits, 1, DIAG_ERROR, "checkpoint.exl3-rate", "last dimension 144"},
    {spoil_trellis_shape, 1, DIAG_ERROR, "checkpoint.exl3-shape",
     "the trellis is 128 -> 512, the model needs 256 -> 512"},
    {spoil_trellis_swapped, 1, DIAG_ERROR, "checkpoint.exl3-shape",
     "the trellis is 512 -> 256, the model needs 256 -> 512 (transposed?)"},
    {spoil_suh_length, 1, DIAG_ERROR, "checkpoint.exl3-scales",
     ".suh' must be F16 [256], found F16 [128]"},
    {spoil_svh_dtype, 1, DIAG_ERROR, "checkpoint.exl3-scales",
     ".svh' must be F16 [512], found BF16 [512]"},
    {spoil_both_markers, 1, DIAG_ERROR, "checkpoint.exl3-codebook", "both codebook markers"},
    {spoil_marker_size, 1, DIAG_ERROR, "checkpoint.exl3-codebook",
     "must be one I32, found I32 [2]"},
    {spoil_mixed_codebook, 1, DIAG_ERROR, "checkpoint.exl3-codebook",
     "experts.7.down_proj' has codebook 3inst, but"},
    {spoil_both_weights, 1, DIAG_ERROR, "checkpoint.exl3-twice", "both a plain and an EXL3 weight"},
    {spoil_fp8, 1, DIAG_ERROR, "checkpoint.quantization", "quantized with fp8 (128 x 128 blocks)"},
    {spoil_nvfp4, 1, DIAG_ERROR, "checkpoint.quantization", "quantized with NVFP4 (ModelOpt)"},
    {spoil_mlx, 1, DIAG_ERROR, "checkpoint.quantization", "quantized with MLX affine"},
    {spoil_full_scope, 1, DIAG_ERROR, "checkpoint.quantization",
     "EXL3 on routed experts only, the rest BF16"},
    {spoil_twice, 3, DIAG_ERROR, "checkpoint.duplicate", "tensor 'lm_head.weight' is in both"},
    {spoil_twice, 1, DIAG_ERROR, "checkpoint.header", "tensor 'lm_head.weight' is named twice"},
    {spoil_index, 3, DIAG_ERROR, "checkpoint.index",
     "but that file does not contain it: index and shards come from different revisions"},
    {spoil_total, 3, DIAG_WARNING, "checkpoint.total-size", "index total_size 12345, headers say"},
    {spoil_vision, 1, DIAG_ERROR, "checkpoint.missing-tensor",
     "no file holds 'model.visual.merger.proj.weight'"},
    {spoil_unknown_dtype, 1, DIAG_ERROR, "checkpoint.header",
     "'lm_head.weight' has the unknown dtype 'F4'"},
};

static void each_broken_pack_is_refused_with_its_reason(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof spoiled / sizeof spoiled[0]; i++) {
        opening_start(&f);
        pack_init(&f.pack, &f.model, 4, spoiled[i].n_files);
        spoiled[i].spoil();
        enum glm_status status = opening_open_pack(&f);
        const struct diag *d = &f.diags.items[0];
        bool error = spoiled[i].level == DIAG_ERROR;
        bool good = status == (error ? GLM_ECHECKPOINT : GLM_OK) && f.diags.n_items > 0 &&
                    d->level == spoiled[i].level && strcmp(d->id, spoiled[i].id) == 0 &&
                    strstr(d->message, spoiled[i].message) != NULL && (f.c == NULL) == error;
        if (!good) {
            char what[40];
            snprintf(what, sizeof what, "case %zu", i);
            opening_fail(&f, what);
        }
        opening_stop(&f);
    }
}

static void independent_problems_are_all_reported(void **state)
{
    (void)state;
    opening_start(&f);
    pack_init(&f.pack, &f.model, 4, 2);
    spoil_missing();
    spoil_dtype();
    spoil_rate();
    spoil_suh_length();
    assert_int_equal(opening_open_pack(&f), GLM_ECHECKPOINT);
    assert_int_equal(f.diags.n_errors, 4);
    opening_stop(&f);
}

static void a_missing_shard_names_how_much_it_held(void **state)
{
    (void)state;
    char path[512];
    opening_start(&f);
    pack_init(&f.pack, &f.model, 4, 3);
    pack_folder(f.folder, sizeof f.folder);
    pack_write_text(f.folder, "config.json", f.config.data);
    pack_write(&f.pack, f.folder);
    snprintf(path, sizeof path, "%s/model-00002-of-00003.safetensors", f.folder);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(opening_open(&f, f.folder), GLM_ECHECKPOINT);
    assert_int_equal(f.diags.n_errors, 1);
    assert_string_equal(f.diags.items[0].id, "checkpoint.missing-shard");
    assert_non_null(strstr(f.diags.items[0].message, "needs 'model-00002-of-00003.safetensors' "
                                                     "(holding 236 tensors, e.g. 'model."));
    opening_stop(&f);
}

/* ---- indexes and folders ---- */

static const struct {
    const char *index, *message;
} indexes[] = {
    {"{", "is not valid JSON"},
    {"{}", "has no object 'weight_map'"},
    {"{\"weight_map\":[]}", "has no object 'weight_map'"},
    {"{\"weight_map\":{\"a\":1}}", "no file name of this folder"},
    {"{\"weight_map\":{\"a\":\"../x.safetensors\"}}", "no file name of this folder"},
    {"{\"weight_map\":{\"a\":\"\"}}", "no file name of this folder"},
    {"{\"weight_map\":{\"a\":\".hidden\"}}", "no file name of this folder"},
};

static void broken_indexes_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof indexes / sizeof indexes[0]; i++) {
        opening_start(&f);
        pack_folder(f.folder, sizeof f.folder);
        pack_write_text(f.folder, "config.json", f.config.data);
        pack_write_text(f.folder, "model.safetensors.index.json", indexes[i].index);
        assert_int_equal(opening_open(&f, f.folder), GLM_ECHECKPOINT);
        assert_string_equal(f.diags.items[0].id, "checkpoint.index");
        if (strstr(f.diags.items[0].message, indexes[i].message) == NULL)
            opening_fail(&f, indexes[i].index);
        opening_stop(&f);
    }
}

static void folders_that_are_no_checkpoint_say_what_is_missing(void **state)
{
    (void)state;
    opening_start(&f);
    assert_int_equal(opening_open(&f, "/nonexistent"), GLM_ECHECKPOINT);
    assert_string_equal(f.diags.items[0].id, "checkpoint.config");
    opening_stop(&f);
    opening_start(&f);
    pack_folder(f.folder, sizeof f.folder);
    pack_write_text(f.folder, "config.json", f.config.data);
    assert_int_equal(opening_open(&f, f.folder), GLM_ECHECKPOINT);
    assert_string_equal(f.diags.items[0].id, "checkpoint.folder");
    opening_stop(&f);
}

static void a_pointer_file_in_a_folder_is_named(void **state)
{
    (void)state;
    opening_start(&f);
    pack_folder(f.folder, sizeof f.folder);
    pack_write_text(f.folder, "config.json", f.config.data);
    pack_write_text(f.folder, "model.safetensors", "version https://git-lfs.github.com/spec/v1\n");
    assert_int_equal(opening_open(&f, f.folder), GLM_ECHECKPOINT);
    assert_string_equal(f.diags.items[0].id, "checkpoint.header");
    assert_non_null(strstr(f.diags.items[0].message, "Git LFS pointer"));
    assert_non_null(strstr(f.diags.items[0].hint, "git lfs"));
    opening_stop(&f);
}

static void a_file_that_would_wait_for_a_writer_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"tokenizer.json", "model.safetensors"};
    for (size_t i = 0; i < 2; i++) {
        char path[300];
        opening_start(&f);
        pack_init(&f.pack, &f.model, 4, 1);
        pack_folder(f.folder, sizeof f.folder);
        pack_write_text(f.folder, "config.json", f.config.data);
        if (i == 0)
            pack_write(&f.pack, f.folder);
        snprintf(path, sizeof path, "%s/%s", f.folder, names[i]);
        assert_int_equal(mkfifo(path, 0600), 0);
        alarm(10);
        assert_int_equal(opening_open(&f, f.folder), GLM_ECHECKPOINT);
        alarm(0);
        assert_non_null(strstr(f.diags.items[0].message, "not a regular file"));
        opening_stop(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_shipped_pack_opens_cleanly),
        cmocka_unit_test(the_config_gives_the_geometry),
        cmocka_unit_test(the_bf16_shards_open_with_their_index),
        cmocka_unit_test(sharded_and_single_packs_made_here_open),
        cmocka_unit_test(published_variants_of_small_shapes_are_accepted),
        cmocka_unit_test(codebooks_other_than_mcg_are_recognised),
        cmocka_unit_test(a_pack_without_mtp_or_vision_is_served_without_them),
        cmocka_unit_test(the_digest_follows_config_headers_and_sizes),
        cmocka_unit_test(a_header_set_of_the_full_size_opens_in_time),
        cmocka_unit_test(each_broken_pack_is_refused_with_its_reason),
        cmocka_unit_test(independent_problems_are_all_reported),
        cmocka_unit_test(a_missing_shard_names_how_much_it_held),
        cmocka_unit_test(broken_indexes_are_refused),
        cmocka_unit_test(folders_that_are_no_checkpoint_say_what_is_missing),
        cmocka_unit_test(a_pointer_file_in_a_folder_is_named),
        cmocka_unit_test(a_file_that_would_wait_for_a_writer_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
