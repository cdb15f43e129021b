/* SPDX-License-Identifier: Apache-2.0 */
/* Built-in geometries and the values of synthetic tensors. An element is a hash of (tensor name,
 * index), so that any split and any device makes the same weights; the table below maps it to a
 * range that keeps activations sane: matrices near rms 1/sqrt(inputs), norms near 1, decays slow.
 * Making the tensor list of a synthetic checkpoint is checkpoint.c's. */
#include "kernels-templates/synthetic.h"
#include "spec/checkpoint.h"
#include "spec/geometries.h"

#include <xxhash.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- geometries ---- */

/* clang-format off */
/* docs/model.md 1 */
static const struct glm_model flash = {
    .name = "glm-5.3-flash", .d_vocab = 154880, .n_valid_ids = 154856, .d_hidden = 4096, .n_layers = 45, .n_mtp = 1,
    .norm_eps = 1e-5, .d_dense = 12288, .swiglu_limit = 10.0,
    .n_kda_heads = 64, .d_kda_head = 128, .n_conv_taps = 4, .gate_lower_bound = -5.0,
    .n_heads = 64, .d_q_rank = 1536, .d_latent = 512, .d_qk = 256, .d_v = 256,
    .n_index_heads = 32, .d_index = 128, .n_index_topk_tokens = 2048, .n_index_pool = 4,
    .n_experts = 288, .n_experts_per_token = 8, .n_shared_experts = 1, .d_expert = 2048,
    .routed_scale = 2.5, .n_streams_hc = 4, .n_sinkhorn = 20, .hc_eps = 1e-6,
    .max_position = 1048576, .end_ids = { 154820, 154827, 154829 }, .n_end_ids = 3,
    .pad_id = 154820, .has_vision = true,
    .vision = { .n_blocks = 24, .d_hidden = 1024, .n_heads = 16, .d_mlp = 4096, .d_out = 4096,
                .d_projection = 10240, .n_patch = 14, .n_frames = 2, .n_merge = 2,
                .n_channels = 3 },
};

/* Small enough for a test, wide enough for TP 1 to 8: every split unit occurs eight times. */
static const struct glm_model small8 = {
    .name = "small8", .d_vocab = 2048, .n_valid_ids = 2048, .d_hidden = 512, .n_layers = 6, .n_mtp = 1,
    .norm_eps = 1e-5, .d_dense = 1024, .swiglu_limit = 10.0,
    .n_kda_heads = 8, .d_kda_head = 64, .n_conv_taps = 4, .gate_lower_bound = -5.0,
    .n_heads = 8, .d_q_rank = 128, .d_latent = 128, .d_qk = 64, .d_v = 64,
    .n_index_heads = 4, .d_index = 64, .n_index_topk_tokens = 256, .n_index_pool = 4,
    .n_experts = 8, .n_experts_per_token = 2, .n_shared_experts = 1, .d_expert = 1024,
    .routed_scale = 2.5, .n_streams_hc = 4, .n_sinkhorn = 20, .hc_eps = 1e-6,
    .max_position = 8192, .end_ids = { 2012, 2019, 2021 }, .n_end_ids = 3, .pad_id = 2012,
};
/* clang-format on */

/* DSA on every `period`th layer (the last of each period), dense MLPs before layer `first_moe`. */
static const struct {
    const struct glm_model *model;
    uint32_t period, first_moe;
} geometries[] = {{&flash, 4, 3}, {&small8, 3, 2}};

/* "" all layers, ":5" the first five of them. */
static bool read_layers(const char *text, uint32_t *n_layers)
{
    char *end;
    if (*text == '\0')
        return true;
    if (text[0] != ':' || text[1] < '1' || text[1] > '9')
        return false;
    unsigned long n = strtoul(text + 1, &end, 10);
    if (*end != '\0' || n > *n_layers)
        return false;
    *n_layers = (uint32_t)n;
    return true;
}

bool glm_geometry_find(const char *name, struct glm_model *out, uint32_t *exl3_bits)
{
    for (size_t i = 0; i < sizeof geometries / sizeof geometries[0]; i++) {
        const struct glm_model *model = geometries[i].model;
        size_t len = strlen(model->name);
        if (strncmp(name, model->name, len) != 0)
            continue;
        bool plain = strncmp(name + len, "-bf16", 5) == 0;
        *out = *model;
        if (!read_layers(name + len + (plain ? 5 : 0), &out->n_layers))
            continue;
        *exl3_bits = plain ? 0 : 4;
        for (uint32_t layer = 0; layer < out->n_layers; layer++) {
            bool dsa = (layer + 1) % geometries[i].period == 0;
            out->attention[layer] = dsa ? GLM_ATTENTION_DSA : GLM_ATTENTION_KDA;
            out->ffn[layer] = layer < geometries[i].first_moe ? GLM_FFN_DENSE : GLM_FFN_MOE;
        }
        out->attention[out->n_layers] = GLM_ATTENTION_DSA;
        out->ffn[out->n_layers] = GLM_FFN_MOE;
        return true;
    }
    return false;
}

const char *glm_geometry_names(void)
{
    return "glm-5.3-flash, glm-5.3-flash-bf16, small8, small8-bf16, each with :N for its first N "
           "layers";
}

/* ---- values ---- */

enum {
    UNIFORM = GLM_SYNTHETIC_UNIFORM,
    SIGNED = GLM_SYNTHETIC_SIGNED,
    BITS = GLM_SYNTHETIC_BITS,
    MARKER = GLM_SYNTHETIC_MARKER,
};
_Static_assert(GLM_SYNTHETIC_F32 == GLM_F32 && GLM_SYNTHETIC_F16 == GLM_F16 &&
                   GLM_SYNTHETIC_BF16 == GLM_BF16,
               "synthetic.h numbers types as checkpoint.h does");

enum scale { PLAIN, BY_FAN_IN }; /* BY_FAN_IN: times 1 / sqrt(inputs) */

#define RMS 1.7320508 /* half range of a uniform value whose rms is 1 */
static const struct {
    const char *role;
    int32_t kind;
    double low, high;
    enum scale scale;
} roles[] = {
    {"matrix", UNIFORM, -RMS, RMS, BY_FAN_IN},
    {"embedding", UNIFORM, -RMS, RMS, PLAIN},
    {"head", UNIFORM, -4 * RMS, 4 * RMS, BY_FAN_IN},   /* logits spread as a trained model's */
    {"router", UNIFORM, -2 * RMS, 2 * RMS, BY_FAN_IN}, /* picks apart from each other */
    {"router_bias", UNIFORM, -0.05, 0.05, PLAIN},
    {"norm", UNIFORM, 0.75, 1.25, PLAIN},
    {"bias", UNIFORM, -0.1, 0.1, PLAIN},
    {"pool_bias", UNIFORM, -0.5, 0.5, PLAIN},
    {"a_log", UNIFORM, -0.5, 0.5, PLAIN},
    {"dt_bias", UNIFORM, -6.0, -2.0, PLAIN}, /* decay exp(-5 sigmoid(...)) mostly above 0.5 */
    {"hc_base", UNIFORM, -1.0, 1.0, PLAIN},
    {"hc_scale", UNIFORM, 0.25, 0.75, PLAIN},
    {"trellis", BITS, 0, 0, PLAIN},
    {"suh", SIGNED, 0.75, 1.25, PLAIN},
    /* the mcg codebook's rms is 1.244 (docs/formats.md 3): the weight's is 1 / sqrt(n_in) */
    {"svh", SIGNED, 0.75 / 1.244, 1.25 / 1.244, BY_FAN_IN},
    {"mcg", MARKER, 0, 0, PLAIN},
};

/* What .mul1 holds, as unsigned (docs/formats.md 2). */
static const uint32_t mul1_marker = 0x83DCD12D;

struct glm_synthetic_values glm_synthetic_of(const struct glm_tensor *t)
{
    /* A tensor outside the geometry has no role; a plain matrix's range does. */
    size_t row = 0;
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        if (strcmp(roles[i].role, t->role) == 0)
            row = i;
    double factor = roles[row].scale == BY_FAN_IN && t->fan_in > 0 ? 1 / sqrt(t->fan_in) : 1;
    double low = roles[row].low * factor;
    double high = roles[row].high * factor;
    return (struct glm_synthetic_values){
        .seed = XXH3_64bits(t->name, strlen(t->name)),
        .dtype = (int32_t)t->dtype,
        .kind = roles[row].kind,
        .low = low,
        .step = (high - low) / 65535,
    };
}

uint64_t glm_synthetic_element(const struct glm_synthetic_values *s, uint64_t i)
{
    return glm_synthetic_bits(s, i);
}

/* Elements of 2 bytes, four a hash: all large tensors. Little-endian, as every host we run on. */
static void fill_words(const struct glm_synthetic_values *s, uint64_t first, uint64_t n,
                       unsigned char *out)
{
    uint64_t i = 0;
    for (; i < n && (first + i) % 4 != 0; i++) {
        uint16_t word = (uint16_t)glm_synthetic_element(s, first + i);
        memcpy(out + 2 * i, &word, sizeof word);
    }
    for (; i + 4 <= n; i += 4) {
        uint64_t hash = glm_synthetic_mix(s->seed, (first + i) / 4);
        uint64_t words = hash;
        if (s->kind != BITS) {
            words = 0;
            for (unsigned j = 0; j < 4; j++)
                words |= (uint64_t)glm_synthetic_encode(s, (uint32_t)(hash >> (16 * j)) & 0xFFFF)
                         << (16 * j);
        }
        memcpy(out + 2 * i, &words, sizeof words);
    }
    for (; i < n; i++) {
        uint16_t word = (uint16_t)glm_synthetic_element(s, first + i);
        memcpy(out + 2 * i, &word, sizeof word);
    }
}

void glm_synthetic_fill(const struct glm_synthetic_values *s, uint64_t first, uint64_t n, void *out)
{
    uint32_t bytes = glm_dtype_bytes((enum glm_dtype)s->dtype);
    if (bytes == 2) {
        fill_words(s, first, n, out);
        return;
    }
    unsigned char *p = out;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t bits = glm_synthetic_element(s, first + i);
        memcpy(p + i * bytes, &bits, bytes);
    }
}

/* ---- what only data can show of an EXL3 group ---- */

static enum glm_status check_marker(const struct glm_tensor *t, const void *bytes, uint32_t wanted,
                                    struct glm_error *err)
{
    uint32_t found = 0;
    if (t->size_bytes == sizeof found)
        memcpy(&found, bytes, sizeof found);
    if (found == wanted)
        return GLM_OK;
    return glm_fail(err, GLM_ECHECKPOINT,
                    "'%s': the codebook marker holds 0x%08X, expected 0x%08X: unknown codebook",
                    t->name, found, wanted);
}

static enum glm_status check_scales(const struct glm_tensor *t, const unsigned char *bytes,
                                    struct glm_error *err)
{
    bool any = false;
    for (uint64_t i = 0; i < t->size_bytes / 2; i++) {
        uint16_t word;
        memcpy(&word, bytes + 2 * i, sizeof word);
        if ((word & 0x7C00) == 0x7C00)
            return glm_fail(err, GLM_ECHECKPOINT, "'%s' has a non-finite value at %llu", t->name,
                            (unsigned long long)i);
        any |= (word & 0x7FFF) != 0;
    }
    return any ? GLM_OK
               : glm_fail(err, GLM_ECHECKPOINT, "'%s': all %llu scales are zero", t->name,
                          (unsigned long long)(t->size_bytes / 2));
}

enum glm_status glm_exl3_verify(const struct glm_tensor *t, const void *bytes,
                                struct glm_error *err)
{
    if (strcmp(t->role, "mcg") == 0)
        return check_marker(t, bytes, GLM_MCG_MARKER, err);
    if (strcmp(t->role, "mul1") == 0)
        return check_marker(t, bytes, mul1_marker, err);
    if (strcmp(t->role, "suh") == 0 || strcmp(t->role, "svh") == 0)
        return check_scales(t, bytes, err);
    return GLM_OK;
}
