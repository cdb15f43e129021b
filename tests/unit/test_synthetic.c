/* SPDX-License-Identifier: Apache-2.0 */
/* Built-in geometries, the expected-tensor table's counts, and the values of synthetic tensors. */
#include "kernels-templates/synthetic.h"
#include "spec/checkpoint.h"
#include "spec/geometries.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static struct fixture {
    struct arena arena;
    struct diag_list diags;
    struct glm_checkpoint *c;
} f;

static void open_at(const char *where)
{
    f = (struct fixture){0};
    arena_init(&f.arena, 256u << 20);
    diag_list_init(&f.diags, &f.arena);
    if (glm_checkpoint_open(where, &f.arena, &f.diags, &f.c) != GLM_OK)
        fail_msg("%s: %s", where, f.diags.n_items > 0 ? f.diags.items[0].message : "no message");
}

static void stop(void)
{
    arena_release(&f.arena);
}

static const struct glm_tensor *find(const char *name)
{
    const struct glm_tensor *t = glm_checkpoint_find(f.c, name);
    if (t == NULL)
        fail_msg("no tensor '%s'", name);
    return t;
}

/* ---- geometries: docs/model.md 1 ---- */

static void the_full_geometry_counts_its_parameters_exactly(void **state)
{
    (void)state;
    open_at("synthetic:glm-5.3-flash");
    struct glm_parameters p = glm_model_parameters(&f.c->model);
    assert_true(p.backbone == 313326811966ull);
    assert_true(p.mtp == 7432592416ull);
    assert_true(p.vision == 563627008ull);
    assert_true(p.routed_experts_layer == 7247757312ull);
    assert_true(p.backbone + p.mtp + p.vision == 321323031390ull);
    stop();
}

static void a_number_behind_a_geometry_keeps_its_first_layers(void **state)
{
    (void)state;
    open_at("synthetic:glm-5.3-flash:5");
    assert_int_equal(f.c->model.n_layers, 5);
    assert_int_equal(f.c->model.d_hidden, 4096);
    assert_int_equal(f.c->model.attention[3], GLM_ATTENTION_DSA);
    assert_int_equal(f.c->model.ffn[4], GLM_FFN_MOE);
    assert_int_equal(f.c->exl3_bits, 4);
    stop();
    open_at("synthetic:small8-bf16:2");
    assert_int_equal(f.c->model.n_layers, 2);
    assert_int_equal(f.c->exl3_bits, 0);
    stop();
    static const char *const wrong[] = {"synthetic:small8:0", "synthetic:small8:7",
                                        "synthetic:small8:", "synthetic:small8:2x",
                                        "synthetic:small8:-1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct glm_model model;
        uint32_t bits;
        assert_false(glm_geometry_find(wrong[i] + strlen("synthetic:"), &model, &bits));
    }
}

static enum glm_status count(void *context, const struct glm_expected_tensor *t)
{
    (void)t;
    (*(uint32_t *)context)++;
    return GLM_OK;
}

static void tensor_counts_are_those_of_the_published_indexes(void **state)
{
    (void)state;
    uint32_t n = 0;
    open_at("synthetic:glm-5.3-flash-bf16");
    assert_int_equal(f.c->n_tensors, 38770); /* docs/model.md 1 */
    glm_vision_tensors(&f.c->model, count, &n);
    assert_int_equal(n, 347);
    assert_false(f.c->experts_exl3);
    const struct glm_tensor *t =
        find("model.language_model.layers.44.mlp.experts.287.down_proj.weight");
    assert_true(t->shape[0] == 4096 && t->shape[1] == 2048);
    assert_true(t->size_bytes == 4096 * 2048 * 2);
    stop();
}

static void the_full_geometry_is_that_of_the_published_pack(void **state)
{
    (void)state;
    open_at("synthetic:glm-5.3-flash");
    const struct glm_model *m = &f.c->model;
    uint32_t dsa = 0;
    uint32_t moe = 0;
    for (uint32_t i = 0; i < m->n_layers; i++) {
        assert_int_equal(m->attention[i] == GLM_ATTENTION_DSA, i % 4 == 3);
        dsa += m->attention[i] == GLM_ATTENTION_DSA;
        moe += m->ffn[i] == GLM_FFN_MOE;
    }
    assert_int_equal(dsa, 11);
    assert_int_equal(m->n_valid_ids, 154856); /* docs/model.md 1 */
    assert_int_equal(moe, 42);
    assert_int_equal(f.c->kind, GLM_CHECKPOINT_SYNTHETIC);
    assert_null(f.c->folder);
    assert_int_equal(f.c->exl3_bits, 4);
    assert_string_equal(f.c->exl3_codebook, "mcg");
    /* bytes of one expert and of all MoE layers: docs/model.md 1 */
    uint64_t expert = 0;
    uint64_t all = 0;
    for (uint32_t i = 0; i < f.c->n_tensors; i++) {
        const struct glm_tensor *t = &f.c->tensors[i];
        if (strstr(t->name, ".layers.3.mlp.experts.17.") != NULL)
            expert += t->size_bytes;
        if (strstr(t->name, ".mlp.experts.") != NULL)
            all += t->size_bytes;
        assert_true(t->offset == 0);
    }
    assert_true(expert == 12619788);
    assert_true(all == 156283454592ull);
    const struct glm_tensor *t =
        find("model.language_model.layers.45.mlp.experts.0.down_proj.trellis");
    assert_true(t->shape[0] == 128 && t->shape[1] == 256 && t->shape[2] == 64);
    stop();
}

static void small8_has_every_split_unit_eight_times(void **state)
{
    (void)state;
    open_at("synthetic:small8");
    const struct glm_model *m = &f.c->model;
    assert_int_equal(m->d_hidden, 512);
    assert_int_equal(m->n_kda_heads, 8);
    assert_int_equal(m->n_heads, 8);
    assert_int_equal(m->d_dense / 128, 8);
    assert_int_equal(m->d_expert / 128, 8);
    assert_int_equal(m->attention[2], GLM_ATTENTION_DSA);
    assert_int_equal(m->attention[4], GLM_ATTENTION_KDA);
    assert_int_equal(m->ffn[1], GLM_FFN_DENSE);
    assert_int_equal(m->ffn[2], GLM_FFN_MOE);
    assert_false(m->has_vision);
    stop();
}

static void a_folder_gives_geometry_and_storage_without_its_data(void **state)
{
    (void)state;
    open_at("synthetic:clusters/demo/exl3");
    assert_int_equal(f.c->kind, GLM_CHECKPOINT_SYNTHETIC);
    assert_string_equal(f.c->folder, "clusters/demo/exl3");
    assert_int_equal(f.c->n_tensors, 709);
    const struct glm_tensor *t = find("model.language_model.layers.2.mlp.experts.0.gate_proj.svh");
    assert_true(t->offset == 0);
    assert_string_equal(t->role, "svh");
    assert_int_equal(t->fan_in, 256);
    char digest[65];
    memcpy(digest, f.c->digest, sizeof digest);
    stop();
    open_at("clusters/demo/exl3");
    assert_string_not_equal(digest, f.c->digest);
    stop();
}

static void unknown_names_list_what_is_built_in(void **state)
{
    (void)state;
    f = (struct fixture){0};
    arena_init(&f.arena, 1 << 20);
    diag_list_init(&f.diags, &f.arena);
    assert_int_equal(glm_checkpoint_open("synthetic:glm-5", &f.arena, &f.diags, &f.c),
                     GLM_ECHECKPOINT);
    assert_string_equal(f.diags.items[0].id, "checkpoint.geometry");
    assert_non_null(strstr(f.diags.items[0].message, "small8"));
    stop();
}

/* ---- values ---- */

static double value(const struct glm_synthetic_values *s, uint64_t i)
{
    uint64_t bits = glm_synthetic_element(s, i);
    if (s->dtype == GLM_F16) {
        int exponent = (int)(bits >> 10) & 31;
        double mantissa = (double)(bits & 1023) / 1024;
        double v = exponent == 0 ? ldexp(mantissa, -14) : ldexp(1 + mantissa, exponent - 15);
        return bits & 0x8000 ? -v : v;
    }
    uint32_t word = (uint32_t)(s->dtype == GLM_BF16 ? bits << 16 : bits);
    float v;
    memcpy(&v, &word, sizeof v);
    return (double)v;
}

#define L "model.language_model.layers."
static const struct {
    const char *name;
    double low, high, rms; /* rms 0: not asked */
} ranges[] = {
    {"model.language_model.embed_tokens.weight", -1.74, 1.74, 1},
    {"lm_head.weight", -0.31, 0.31, 4 / 22.627417},
    {L "0.self_attn.q_proj.weight", -0.0767, 0.0767, 1 / 22.627417},
    {L "0.self_attn.q_conv1d.weight", -0.87, 0.87, 0.5},
    {L "0.input_layernorm.weight", 0.75, 1.25, 0},
    {L "0.self_attn.A_log", -0.5, 0.5, 0},
    {L "0.self_attn.dt_bias", -6, -2, 0},
    {L "0.hc_attn_scale", 0.25, 0.75, 0},
    {L "2.mlp.gate.weight", -0.154, 0.154, 2 / 22.627417},
    {L "2.mlp.gate.e_score_correction_bias", -0.05, 0.05, 0},
    {L "2.mlp.experts.3.down_proj.suh", -1.25, 1.25, 0},
    {L "2.mlp.experts.3.down_proj.svh", -1.26 / (1.244 * 32), 1.26 / (1.244 * 32), 0},
};

static void values_lie_in_the_range_of_their_role(void **state)
{
    (void)state;
    open_at("synthetic:small8");
    for (size_t r = 0; r < sizeof ranges / sizeof ranges[0]; r++) {
        const struct glm_tensor *t = find(ranges[r].name);
        struct glm_synthetic_values s = glm_synthetic_of(t);
        uint64_t n = t->size_bytes / glm_dtype_bytes(t->dtype);
        double squares = 0;
        double sum = 0;
        for (uint64_t i = 0; i < n; i++) {
            double v = value(&s, i);
            if (!(v >= ranges[r].low && v <= ranges[r].high))
                fail_msg("%s[%llu] = %g", ranges[r].name, (unsigned long long)i, v);
            squares += v * v;
            sum += v;
        }
        double rms = sqrt(squares / (double)n);
        if (ranges[r].rms > 0 && !(fabs(rms / ranges[r].rms - 1) < 0.05))
            fail_msg("%s: rms %g", ranges[r].name, rms);
        if (ranges[r].rms > 0 && !(fabs(sum / (double)n) < 0.05 * rms))
            fail_msg("%s: mean %g", ranges[r].name, sum / (double)n);
    }
    stop();
}

static void scales_have_both_signs_and_sane_magnitudes(void **state)
{
    (void)state;
    open_at("synthetic:small8");
    struct glm_synthetic_values s = glm_synthetic_of(find(L "2.mlp.experts.3.gate_proj.svh"));
    uint32_t negative = 0;
    double k = sqrt(512.0) * 1.244;
    for (uint64_t i = 0; i < 1024; i++) {
        double v = value(&s, i);
        negative += v < 0;
        assert_true(fabs(v) * k > 0.74 && fabs(v) * k < 1.26);
    }
    assert_true(negative > 400 && negative < 624);
    stop();
}

static void trellis_words_use_all_bits_and_markers_are_the_codebooks(void **state)
{
    (void)state;
    open_at("synthetic:small8");
    struct glm_synthetic_values s = glm_synthetic_of(find(L "2.mlp.experts.0.up_proj.trellis"));
    uint32_t set[16] = {0};
    enum { N = 4096 };
    for (uint64_t i = 0; i < N; i++)
        for (unsigned b = 0; b < 16; b++)
            set[b] += (uint32_t)(glm_synthetic_element(&s, i) >> b) & 1;
    for (unsigned b = 0; b < 16; b++)
        assert_true(set[b] > N / 2 - 200 && set[b] < N / 2 + 200);
    s = glm_synthetic_of(find(L "2.mlp.experts.0.up_proj.mcg"));
    assert_true(glm_synthetic_element(&s, 0) == 0xCBAC1FED);
    stop();
}

static void a_fill_of_any_part_is_its_elements(void **state)
{
    (void)state;
    static const char *const names[] = {
        L "0.self_attn.q_proj.weight", L "0.self_attn.dt_bias", L "2.mlp.experts.1.up_proj.trellis",
        L "2.mlp.experts.1.up_proj.suh", L "2.mlp.experts.1.up_proj.mcg"};
    open_at("synthetic:small8");
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        struct glm_synthetic_values s = glm_synthetic_of(find(names[k]));
        uint32_t bytes = glm_dtype_bytes((enum glm_dtype)s.dtype);
        for (uint64_t first = 0; first < 9; first++) {
            for (uint64_t n = 0; n < 13; n++) {
                unsigned char out[16 * 8];
                memset(out, 0xEE, sizeof out);
                glm_synthetic_fill(&s, first, n, out);
                for (uint64_t i = 0; i < n; i++) {
                    uint64_t bits = glm_synthetic_element(&s, first + i);
                    assert_memory_equal(out + i * bytes, &bits, bytes);
                }
                assert_int_equal(out[n * bytes], 0xEE);
            }
        }
    }
    stop();
}

/* Pinned: shards made by different releases must agree. */
static void values_never_change(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t i, bits;
    } pins[] = {
        {L "0.self_attn.q_proj.weight", 0, 0x3B91},
        {L "0.self_attn.q_proj.weight", 100001, 0xBC08},
        {L "0.self_attn.dt_bias", 7, 0xC0ADD4EE},
        {L "2.mlp.experts.1.up_proj.trellis", 5, 0x3BD0},
        {L "2.mlp.experts.1.up_proj.suh", 3, 0xBC8E},
    };
    open_at("synthetic:small8");
    for (size_t k = 0; k < sizeof pins / sizeof pins[0]; k++) {
        struct glm_synthetic_values s = glm_synthetic_of(find(pins[k].name));
        uint64_t bits = glm_synthetic_element(&s, pins[k].i);
        if (bits != pins[k].bits)
            fail_msg("%s[%llu] is 0x%llX", pins[k].name, (unsigned long long)pins[k].i,
                     (unsigned long long)bits);
    }
    stop();
}

/* ---- what data shows of an EXL3 group ---- */

static void verify_finds_wrong_markers_and_scales(void **state)
{
    (void)state;
    struct glm_error err = {0};
    struct glm_tensor t = {.name = "p.mcg", .dtype = GLM_I32, .size_bytes = 4, .role = "mcg"};
    uint32_t marker = 0xCBAC1FED;
    assert_int_equal(glm_exl3_verify(&t, &marker, &err), GLM_OK);
    marker = 0x12345678;
    assert_int_equal(glm_exl3_verify(&t, &marker, &err), GLM_ECHECKPOINT);
    assert_string_equal(err.message, "'p.mcg': the codebook marker holds 0x12345678, expected "
                                     "0xCBAC1FED: unknown codebook");
    t.role = "mul1";
    marker = 0x83DCD12D;
    assert_int_equal(glm_exl3_verify(&t, &marker, &err), GLM_OK);

    uint16_t scales[4] = {0x3C00, 0xBC00, 0, 0x0001};
    t = (struct glm_tensor){.name = "p.suh", .dtype = GLM_F16, .size_bytes = 8, .role = "suh"};
    assert_int_equal(glm_exl3_verify(&t, scales, &err), GLM_OK);
    scales[2] = 0xFC00; /* -inf */
    err = (struct glm_error){0};
    assert_int_equal(glm_exl3_verify(&t, scales, &err), GLM_ECHECKPOINT);
    assert_string_equal(err.message, "'p.suh' has a non-finite value at 2");
    scales[2] = 0x7E00; /* NaN */
    assert_int_equal(glm_exl3_verify(&t, scales, &err), GLM_ECHECKPOINT);
    memset(scales, 0, sizeof scales);
    scales[1] = 0x8000; /* -0 */
    err = (struct glm_error){0};
    assert_int_equal(glm_exl3_verify(&t, scales, &err), GLM_ECHECKPOINT);
    assert_string_equal(err.message, "'p.suh': all 4 scales are zero");
    t.role = "trellis";
    assert_int_equal(glm_exl3_verify(&t, scales, &err), GLM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_full_geometry_counts_its_parameters_exactly),
        cmocka_unit_test(a_number_behind_a_geometry_keeps_its_first_layers),
        cmocka_unit_test(tensor_counts_are_those_of_the_published_indexes),
        cmocka_unit_test(the_full_geometry_is_that_of_the_published_pack),
        cmocka_unit_test(small8_has_every_split_unit_eight_times),
        cmocka_unit_test(a_folder_gives_geometry_and_storage_without_its_data),
        cmocka_unit_test(unknown_names_list_what_is_built_in),
        cmocka_unit_test(values_lie_in_the_range_of_their_role),
        cmocka_unit_test(scales_have_both_signs_and_sane_magnitudes),
        cmocka_unit_test(trellis_words_use_all_bits_and_markers_are_the_codebooks),
        cmocka_unit_test(a_fill_of_any_part_is_its_elements),
        cmocka_unit_test(values_never_change),
        cmocka_unit_test(verify_finds_wrong_markers_and_scales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
