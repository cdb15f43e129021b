/* SPDX-License-Identifier: Apache-2.0 */
/* The plan against the model: every parameter placed once, every share complete, every kernel and
 * step as its manifest says. */
#include "codegen/builder.h"
#include "tests/support/geometry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct glm_plan **build(struct fixture *f)
{
    struct glm_plan **plans = NULL;
    struct glm_error err = {0};
    enum glm_status st =
        glm_plan_build(&f->cluster, 0, "x86-64-v3", &f->arena, &f->diags, &plans, &err);
    if (st != GLM_OK)
        fail_msg("%s", err.message);
    return plans;
}

static const struct glm_plan_weight *find_weight(const struct glm_plan *p, const char *name)
{
    for (uint32_t i = 0; i < p->n_weights; i++) {
        if (strcmp(p->weights[i].name, name) == 0)
            return &p->weights[i];
    }
    fail_msg("no weight '%s'", name);
    return NULL;
}

static const struct glm_plan_state *find_state(const struct glm_plan *p, const char *name)
{
    for (uint32_t i = 0; i < p->n_states; i++) {
        if (strcmp(p->states[i].name, name) == 0)
            return &p->states[i];
    }
    fail_msg("no state '%s'", name);
    return NULL;
}

static int64_t param(const struct glm_plan *p, const char *kernel, const char *name)
{
    const struct glm_plan_kernel *k = glm_plan_kernel(p, kernel);
    assert_non_null(k);
    for (uint32_t i = 0; i < k->n_params; i++) {
        if (strcmp(k->params[i].name, name) == 0)
            return k->params[i].value;
    }
    fail_msg("kernel '%s' has no parameter '%s'", kernel, name);
    return 0;
}

/* docs/model.md 1: the backbone has 313,326,811,966 parameters. */
static void places_every_parameter_of_the_published_model_once(void **state)
{
    (void)state;
    struct fixture f;
    fixture_full(&f, 1);
    struct glm_plan *p = build(&f)[0];
    uint64_t n = 0;
    for (uint32_t i = 0; i < p->n_weights; i++) {
        const struct glm_plan_weight *w = &p->weights[i];
        n += w->n_rows * w->n_cols * w->n_members * (w->n_layers ? w->n_layers : 1);
    }
    assert_int_equal(n, 313326811966);
    fixture_free(&f);
}

static bool in_slice(const struct glm_slice *s, uint64_t i)
{
    if (i < s->first || s->take == 0)
        return false;
    uint64_t g = (i - s->first) / (s->stride ? s->stride : 1);
    return g < s->groups && (i - s->first) - g * s->stride < s->take;
}

/* Counts for each index of a dimension how many ranks hold it. */
static void assert_complete(const char *tensor, struct glm_plan **plans, uint32_t world,
                            uint32_t weight, uint32_t part, bool rows, uint32_t n_parts_of_tensor)
{
    const struct glm_plan_part *first = &plans[0]->weights[weight].parts[part];
    uint64_t n = rows ? first->n_rows : first->n_cols;
    uint64_t step = n > 4096 ? 64 : 1; /* cuts lie on multiples of 64 where it matters */
    for (uint64_t i = 0; i < n; i += step) {
        uint32_t holders = 0;
        for (uint32_t r = 0; r < world; r++) {
            const struct glm_plan_part *p = &plans[r]->weights[weight].parts[part];
            assert_string_equal(p->tensor, first->tensor);
            holders += in_slice(rows ? &p->rows : &p->cols, i);
        }
        bool whole = holders == world || holders == 1 || (holders == 0 && n_parts_of_tensor > 1);
        if (!whole)
            fail_msg("%s: %s %llu of %llu is on %u of %u ranks", tensor, rows ? "row" : "column",
                     (unsigned long long)i, (unsigned long long)n, holders, world);
    }
}

static void shares_of_all_ranks_make_the_whole_tensor(void **state)
{
    (void)state;
    for (uint32_t world = 1; world <= 8; world++) {
        struct fixture f;
        fixture_full(&f, world);
        struct glm_plan **plans = build(&f);
        for (uint32_t w = 0; w < plans[0]->n_weights; w++) {
            const struct glm_plan_weight *weight = &plans[0]->weights[w];
            for (uint32_t part = 0; part < weight->n_parts; part++) {
                const char *tensor = weight->parts[part].tensor;
                uint32_t shared = strstr(tensor, "kv_b_proj") ? 2 : 1;
                assert_complete(tensor, plans, world, w, part, true, shared);
                assert_complete(tensor, plans, world, w, part, false, 1);
            }
        }
        fixture_free(&f);
    }
}

static void splits_kv_b_into_a_key_and_a_value_part_by_head(void **state)
{
    (void)state;
    struct fixture f;
    fixture_full(&f, 3);
    struct glm_plan **plans = build(&f);
    const struct glm_plan_weight *k = find_weight(plans[1], "layers.{L}.dsa.absorb");
    const struct glm_plan_weight *v = find_weight(plans[1], "layers.{L}.dsa.expand");
    assert_string_equal(k->form, "bf16_t");
    assert_string_equal(v->form, "bf16");
    /* rank 1 of 3: heads 22..42 */
    assert_int_equal(k->parts[0].rows.first, 22 * 512);
    assert_int_equal(k->parts[0].rows.take, 256);
    assert_int_equal(k->parts[0].rows.groups, 21);
    assert_int_equal(k->parts[0].rows.stride, 512);
    assert_int_equal(v->parts[0].rows.first, 22 * 512 + 256);
    assert_int_equal(k->n_rows, 21 * 256);
    assert_int_equal(k->bytes, 21 * 256 * 512 * 2);
    fixture_free(&f);
}

static void decides_formats_from_the_uncut_shape(void **state)
{
    (void)state;
    assert_string_equal(glm_build_form(GLM_FORM_Q4, 4096, 0), "q4");
    assert_string_equal(glm_build_form(GLM_FORM_FP8, 4096, 0), "fp8");
    assert_string_equal(glm_build_form(GLM_FORM_BF16, 4096, 0), "bf16");
    assert_string_equal(glm_build_form(GLM_FORM_FP8, 64, 0), "bf16");
    assert_string_equal(glm_build_form(GLM_FORM_Q4, 96, 0), "bf16");
    /* inputs cut by heads of 64: a share may be half a block of 128 */
    assert_string_equal(glm_build_form(GLM_FORM_FP8, 256, 64), "bf16");
    assert_string_equal(glm_build_form(GLM_FORM_Q4, 256, 64), "q4");

    for (uint32_t world = 1; world <= 4; world++) {
        struct fixture f;
        fixture_pico(&f, world);
        f.cluster.lanes[0].formats.dense = GLM_FORM_FP8;
        struct glm_plan *p = build(&f)[0];
        assert_string_equal(find_weight(p, "layers.{L}.kda.in")->form, "fp8");
        assert_string_equal(find_weight(p, "layers.{L}.kda.f_b")->form, "bf16");
        assert_string_equal(find_weight(p, "layers.{L}.kda.o")->form, "bf16");
        assert_string_equal(find_weight(p, "layers.{L}.dense.down")->form, "fp8");
        assert_string_equal(find_weight(p, "layers.{L}.dsa.gate")->form, "bf16");
        fixture_free(&f);
    }
}

static void holds_matrices_as_the_format_table_says(void **state)
{
    (void)state;
    static const struct {
        const char *weight, *form;
    } table[] = {
        {"layers.{L}.kda.in", "q4"},
        {"layers.{L}.kda.f_b", "q4"},
        {"layers.{L}.kda.g_b", "q4"},
        {"layers.{L}.kda.o", "q4"},
        {"layers.{L}.dsa.in", "q4"},
        {"layers.{L}.dsa.q_b", "q4"},
        {"layers.{L}.dsa.wq_b", "q4"},
        {"layers.{L}.dsa.o", "q4"},
        {"layers.{L}.dense.gate_up", "q4"},
        {"layers.{L}.dense.down", "q4"},
        {"layers.{L}.shared.gate_up", "q4"},
        {"layers.{L}.shared.down", "q4"},
        {"head", "fp8"},
        {"embed", "bf16"},
        {"layers.{L}.dsa.absorb", "bf16_t"},
        {"layers.{L}.dsa.expand", "bf16"},
        {"layers.{L}.dsa.gate", "bf16"},
        {"layers.{L}.dsa.ape", "bf16"},
        {"layers.{L}.moe.router", "bf16"},
        {"layers.{L}.kda.conv", "bf16"},
        {"layers.{L}.hc_attn.fn", "bf16"},
        {"layers.{L}.hc_ffn.base", "f32"},
        {"layers.{L}.hc_attn.scale", "f32"},
        {"layers.{L}.kda.a_log", "f32"},
        {"layers.{L}.kda.dt_bias", "f32"},
        {"layers.{L}.moe.bias", "f32"},
        {"layers.{L}.moe.gate", "exl3:4:mcg"},
    };
    struct fixture f;
    fixture_full(&f, 2);
    struct glm_plan *p = build(&f)[0];
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        assert_string_equal(find_weight(p, table[i].weight)->form, table[i].form);
    fixture_free(&f);
}

/* ---- kernels and steps against their manifests ---- */

static bool is_name(const struct glm_plan *p, const char *value, uint32_t layer, const char *dtype)
{
    char name[128];
    size_t len = strcspn(value, "+");
    snprintf(name, sizeof name, "%.*s", (int)len, value);
    bool weight = false, state = false, buffer = false;
    for (uint32_t i = 0; i < p->n_weights; i++) {
        bool has_layer = p->weights[i].n_layers == 0;
        for (uint32_t l = 0; l < p->weights[i].n_layers; l++)
            has_layer |= p->weights[i].layers[l] == layer;
        weight |= has_layer && strcmp(p->weights[i].name, name) == 0;
    }
    for (uint32_t i = 0; i < p->n_states; i++)
        state |= strcmp(p->states[i].name, name) == 0;
    char bound[160], *hole = strstr(name, "{L}");
    if (hole)
        snprintf(bound, sizeof bound, "%.*s%u%s", (int)(hole - name), name, layer, hole + 3);
    buffer = glm_plan_buffer(p, hole ? bound : name) != NULL;
    if (strcmp(dtype, "state") == 0)
        return state && !weight && !buffer;
    if (strcmp(dtype, "form") == 0)
        return weight && !state && !buffer;
    return weight + state + buffer == 1;
}

static void check_step(const struct glm_plan *p, const struct glm_manifest *all, uint32_t n,
                       const struct glm_plan_step *s, uint32_t layer)
{
    const struct glm_plan_kernel *k = glm_plan_kernel(p, s->name);
    if (!k)
        fail_msg("step names kernel '%s', which the plan has not", s->name);
    const struct glm_manifest *m = glm_manifest_find(all, n, k->template_name);
    if (!m)
        fail_msg("no manifest for '%s'", k->template_name);
    if (m->n_args != s->n_args)
        fail_msg("%s: %u arguments, the manifest has %u", s->name, s->n_args, m->n_args);
    for (uint32_t a = 0; a < m->n_args; a++) {
        const char *value = NULL;
        for (uint32_t i = 0; i < s->n_args; i++) {
            if (strcmp(s->args[i].name, m->args[a].name) == 0)
                value = s->args[i].value;
        }
        if (!value)
            fail_msg("%s: argument '%s' is missing", s->name, m->args[a].name);
        if (strcmp(value, "-") == 0) {
            if (!m->args[a].optional)
                fail_msg("%s: argument '%s' is null but not optional", s->name, m->args[a].name);
        } else if (!is_name(p, value, layer, m->args[a].dtype)) {
            fail_msg("%s: argument '%s' names '%s', layer %u, wanted %s", s->name, m->args[a].name,
                     value, layer, m->args[a].dtype);
        }
    }
}

static void check_plan(const struct glm_plan *p, const struct glm_manifest *all, uint32_t n)
{
    for (uint32_t i = 0; i < p->n_kernels; i++) {
        struct glm_error err = {0};
        const struct glm_manifest *m = glm_manifest_find(all, n, p->kernels[i].template_name);
        if (!m)
            fail_msg("no manifest for '%s'", p->kernels[i].template_name);
        if (glm_manifest_check(m, &p->kernels[i], &err) != GLM_OK)
            fail_msg("%s", err.message);
    }
    for (uint32_t g = 0; g < p->n_programs; g++) {
        const struct glm_plan_program *program = &p->programs[g];
        for (uint32_t i = 0; i < program->n_steps; i++) {
            const struct glm_plan_step *s = &program->steps[i];
            if (s->kind == GLM_STEP_KERNEL)
                check_step(p, all, n, s, 0);
            if (s->kind != GLM_STEP_BLOCK)
                continue;
            const struct glm_plan_block *b = glm_plan_block(p, s->name);
            if (!b)
                fail_msg("program '%s' calls block '%s', which is none", program->name, s->name);
            for (uint32_t j = 0; j < b->n_steps; j++) {
                if (b->steps[j].kind == GLM_STEP_KERNEL)
                    check_step(p, all, n, &b->steps[j], s->layer);
            }
        }
    }
}

static void every_kernel_and_step_is_as_its_manifest_says(void **state)
{
    (void)state;
    struct arena arena;
    struct glm_manifest *all;
    uint32_t n;
    struct glm_error err = {0};
    arena_init(&arena, (size_t)16 << 20);
    if (glm_manifests_load(&arena, &all, &n, &err) != GLM_OK)
        fail_msg("%s", err.message);
    for (uint32_t world = 1; world <= 8; world++) {
        for (uint32_t variant = 0; variant < 6; variant++) {
            struct fixture f;
            if (variant < 2 && world <= 4)
                fixture_pico(&f, world);
            else
                fixture_full(&f, world);
            struct glm_lane *lane = &f.cluster.lanes[0];
            if (variant & 1)
                lane->verify_rows = 16;
            if (variant == 3)
                lane->rotate_uneven = true;
            if (variant >= 4) {
                lane->formats = (struct glm_formats){GLM_EXPERTS_BF16, GLM_FORM_FP8, GLM_FORM_BF16,
                                                     GLM_KV_BF16, GLM_ACT_BF16};
                f.checkpoint.experts_exl3 = false;
            }
            struct glm_plan **plans = build(&f);
            for (uint32_t r = 0; r < world; r++)
                check_plan(plans[r], all, n);
            fixture_free(&f);
        }
    }
    arena_release(&arena);
}

/* ---- shape of the programs ---- */

static void marks_each_layer_after_the_streams_that_enter_it(void **state)
{
    (void)state;
    struct fixture f;
    fixture_pico(&f, 1);
    struct glm_plan *p = build(&f)[0];
    const struct glm_plan_program *decode = glm_plan_program(p, "decode");
    uint32_t layer = 0;
    for (uint32_t i = 0; i < decode->n_steps; i++) {
        const struct glm_plan_step *s = &decode->steps[i];
        if (s->kind != GLM_STEP_BLOCK || strncmp(s->name, "hc_", 3) != 0 ||
            strcmp(s->name, "hc_ffn") == 0)
            continue;
        const struct glm_plan_block *b = glm_plan_block(p, s->name);
        assert_int_equal(s->layer, layer);
        assert_int_equal(b->n_steps, 2);
        assert_int_equal(b->steps[1].kind, GLM_STEP_MARK);
        assert_string_equal(b->steps[1].name, "layer");
        assert_string_equal(s->name, layer == 0 ? "hc_first" : "hc_attn");
        layer++;
    }
    assert_int_equal(layer, 6);
    assert_int_equal(param(p, "hc_read", "WRITE"), 0);
    assert_int_equal(param(p, "hc_mix", "WRITE"), 1);
    fixture_free(&f);
}

static uint32_t count_steps(const struct glm_plan *p, const char *program, enum glm_step_kind kind)
{
    const struct glm_plan_program *g = glm_plan_program(p, program);
    uint32_t n = 0;
    assert_non_null(g);
    for (uint32_t i = 0; i < g->n_steps; i++) {
        n += g->steps[i].kind == kind;
        const struct glm_plan_block *b =
            g->steps[i].kind == GLM_STEP_BLOCK ? glm_plan_block(p, g->steps[i].name) : NULL;
        for (uint32_t j = 0; b && j < b->n_steps; j++)
            n += b->steps[j].kind == kind;
    }
    return n;
}

static void exchanges_twice_a_layer_and_only_with_peers(void **state)
{
    (void)state;
    struct fixture f;
    fixture_full(&f, 1);
    struct glm_plan *p = build(&f)[0];
    assert_int_equal(count_steps(p, "decode", GLM_STEP_SUM), 0);
    assert_int_equal(count_steps(p, "sample", GLM_STEP_GATHER), 0);
    assert_null(glm_plan_buffer(p, "summed"));
    fixture_free(&f);
    fixture_full(&f, 2);
    p = build(&f)[1];
    assert_int_equal(count_steps(p, "decode", GLM_STEP_SUM), 90);
    assert_int_equal(count_steps(p, "prefill", GLM_STEP_SUM), 90);
    assert_int_equal(count_steps(p, "sample", GLM_STEP_GATHER), 1);
    fixture_free(&f);
}

static void replays_kda_states_only_with_several_verify_rows(void **state)
{
    (void)state;
    struct fixture f;
    fixture_pico(&f, 1);
    struct glm_plan *p = build(&f)[0];
    assert_null(glm_plan_program(p, "commit"));
    assert_string_equal(find_state(p, "layers.{L}.kda.state")->rollback, "position");
    fixture_free(&f);
    fixture_pico(&f, 1);
    f.cluster.lanes[0].verify_rows = 16;
    p = build(&f)[0];
    assert_int_equal(count_steps(p, "commit", GLM_STEP_KERNEL), 4);
    assert_string_equal(find_state(p, "layers.{L}.kda.state")->rollback, "replay:kda_replay");
    assert_non_null(glm_plan_buffer(p, "layers.0.kda.replay"));
    assert_non_null(glm_plan_buffer(p, "layers.4.kda.replay"));
    assert_null(glm_plan_buffer(p, "layers.2.kda.replay")); /* DSA */
    assert_int_equal(p->arenas[0].n_rows, 64);              /* 8 streams of 16: capped */
    fixture_free(&f);
}

static void state_rows_have_the_reference_sizes(void **state)
{
    (void)state;
    struct fixture f;
    fixture_full(&f, 1);
    f.cluster.lanes[0].verify_rows = 16;
    struct glm_plan *p = build(&f)[0];
    assert_int_equal(find_state(p, "layers.{L}.dsa.latent")->row_bytes, 528);
    assert_int_equal(find_state(p, "layers.{L}.dsa.pooled")->row_bytes, 144);
    assert_int_equal(find_state(p, "layers.{L}.dsa.keys")->row_bytes, 512);
    assert_int_equal(find_state(p, "layers.{L}.dsa.keys")->ring, 32);
    const struct glm_plan_state *s = find_state(p, "layers.{L}.kda.state");
    assert_int_equal(s->row_bytes * s->n_layers, 142606336);
    assert_int_equal(s->versions, 2);
    const struct glm_plan_state *conv = find_state(p, "layers.{L}.kda.conv_rows");
    assert_int_equal(conv->row_bytes * 3 * conv->n_layers, 5013504);
    assert_int_equal(conv->keep, 3);
    assert_true(conv->ring >= 3 + 16);
    fixture_free(&f);
}

static void rotated_layers_have_their_own_names_and_equal_shares_one_kernel(void **state)
{
    (void)state;
    struct fixture f;
    fixture_full(&f, 3);
    f.cluster.lanes[0].rotate_uneven = true;
    struct glm_plan *p = build(&f)[1];
    uint32_t n_layers = 0;
    for (uint32_t i = 0; i < 3; i++) {
        char name[40];
        snprintf(name, sizeof name, "layers.{L}.kda.in.r%u", i);
        n_layers += find_weight(p, name)->n_layers;
    }
    assert_int_equal(n_layers, 34);
    /* two counts of heads, 22 and 21: two kernels, though there are three sites */
    assert_non_null(glm_plan_kernel(p, "mm.kda.in.2"));
    assert_null(glm_plan_kernel(p, "mm.kda.in.3"));
    /* 96 units of dense width divide by 3: nothing to rotate */
    assert_string_equal(find_weight(p, "layers.{L}.dense.down")->name, "layers.{L}.dense.down");
    assert_true(glm_plan_buffer(p, "kda.f")->n_cols == 22 * 128);
    fixture_free(&f);
}

static void refuses_experts_in_a_form_the_checkpoint_has_not(void **state)
{
    (void)state;
    struct fixture f;
    struct glm_plan **plans;
    struct glm_error err = {0};
    fixture_pico(&f, 1);
    f.checkpoint.experts_exl3 = false;
    assert_int_equal(glm_plan_build(&f.cluster, 0, "x86-64-v3", &f.arena, &f.diags, &plans, &err),
                     GLM_ESPEC);
    assert_int_equal(f.diags.n_errors, 1);
    assert_string_equal(f.diags.items[0].message,
                        "lane 'main' asks for exl3 experts, but the checkpoint stores bf16");
    fixture_free(&f);
}

static void decodes_exl3_experts_to_bf16_when_asked(void **state)
{
    (void)state;
    struct fixture f;
    fixture_pico(&f, 1);
    f.cluster.lanes[0].formats.experts = GLM_EXPERTS_BF16;
    const struct glm_plan_weight *w = find_weight(build(&f)[0], "layers.{L}.moe.down");
    assert_string_equal(w->stored, "exl3:4:mcg");
    assert_string_equal(w->form, "bf16");
    assert_non_null(strstr(w->parts[0].tensor, "down_proj"));
    assert_null(strstr(w->parts[0].tensor, ".weight")); /* a group's prefix */
    assert_int_equal(w->bytes, w->n_members * w->n_rows * w->n_cols * 2);
    assert_null(w->load);
    fixture_free(&f);
}

/* One converter for each pair of stored and device form, behind all kernels that steps name. */
static void a_gpu_converts_its_weights_with_kernels_of_the_plan(void **state)
{
    (void)state;
    struct fixture f;
    struct glm_plan **plans, *twin;
    struct glm_error err = {0};
    fixture_pico(&f, 1);
    f.cluster.lanes[0].formats = (struct glm_formats){.experts = GLM_EXPERTS_EXL3,
                                                      .dense = GLM_FORM_Q4,
                                                      .head = GLM_FORM_FP8,
                                                      .kv = GLM_KV_BF16,
                                                      .act = GLM_ACT_BF16};
    assert_int_equal(glm_plan_build(&f.cluster, 0, "sm_121a", &f.arena, &f.diags, &plans, &err),
                     GLM_OK);
    const struct glm_plan *p = plans[0];
    uint32_t n_converters = 0;
    for (uint32_t i = 0; i < p->n_kernels; i++)
        n_converters += strncmp(p->kernels[i].template_name, "load_", 5) == 0;
    assert_int_equal(n_converters, 6); /* f32; bf16 as bf16, bf16_t, q4 and fp8; exl3 */
    for (uint32_t i = 0; i < p->n_weights; i++) {
        assert_non_null(p->weights[i].load);
        assert_non_null(glm_plan_kernel(p, p->weights[i].load));
    }
    assert_string_equal(find_weight(p, "head")->load, "load.bf16.fp8");
    assert_int_equal(glm_plan_host_twin(p, "x86-64-v3", &f.arena, &twin, &err), GLM_OK);
    assert_int_equal(twin->n_kernels, p->n_kernels - n_converters);
    assert_null(twin->weights[0].load);
    fixture_free(&f);
}

static void warns_of_drafters_that_are_left_out(void **state)
{
    (void)state;
    struct fixture f;
    fixture_pico(&f, 1);
    f.cluster.lanes[0].drafters[0] = "mtp";
    f.cluster.lanes[0].n_drafters = 1;
    build(&f);
    assert_int_equal(f.diags.n_errors, 0);
    assert_int_equal(f.diags.n_items, 1);
    assert_string_equal(f.diags.items[0].id, "lane.drafters-later");
    fixture_free(&f);
}

static void the_same_lane_gives_the_same_bytes_within_the_size_limit(void **state)
{
    (void)state;
    struct fixture f;
    struct buf one = {0}, two = {0};
    struct glm_error err = {0};
    for (int i = 0; i < 2; i++) {
        fixture_full(&f, 3);
        f.cluster.lanes[0].rotate_uneven = true;
        f.cluster.lanes[0].verify_rows = 16;
        assert_int_equal(glm_plan_write(build(&f)[1], i ? &two : &one, &err), GLM_OK);
        fixture_free(&f);
    }
    assert_int_equal(one.len, two.len);
    assert_memory_equal(one.data, two.data, one.len);
    assert_true(one.len <= 300 * 1024);
    buf_release(&one);
    buf_release(&two);
}

/* Kernels that a program runs, in the order of the plan. */
static void kernels_of(const struct glm_plan *p, const struct glm_plan_program *g, bool *runs)
{
    for (uint32_t i = 0; i < g->n_steps; i++) {
        const struct glm_plan_step *s = &g->steps[i];
        const struct glm_plan_block *b =
            s->kind == GLM_STEP_BLOCK ? glm_plan_block(p, s->name) : NULL;
        const struct glm_plan_step *steps = b ? b->steps : s;
        for (uint32_t k = 0; k < (b ? b->n_steps : 1); k++)
            if (steps[k].kind == GLM_STEP_KERNEL)
                runs[glm_plan_kernel(p, steps[k].name) - p->kernels] = true;
    }
}

static void a_cut_plan_runs_every_kernel_on_few_layers(void **state)
{
    (void)state;
    enum { MAX_KERNELS = 256 };
    for (uint32_t world = 1; world <= 3; world += 2) {
        struct fixture f;
        fixture_full(&f, world);
        f.cluster.lanes[0].rotate_uneven = world == 3;
        struct glm_plan *p = build(&f)[0], *cut, *read;
        struct glm_error err = {0};
        struct buf text = {0};
        assert_int_equal(glm_plan_cut(p, 2048, &f.arena, &cut, &err), GLM_OK);
        assert_int_equal(cut->limits.pool_tokens, 2048);
        assert_int_equal(cut->n_programs, p->n_programs);
        for (uint32_t g = 0; g < p->n_programs; g++) {
            bool all[MAX_KERNELS] = {false}, few[MAX_KERNELS] = {false};
            kernels_of(p, &p->programs[g], all);
            kernels_of(cut, &cut->programs[g], few);
            assert_memory_equal(all, few, sizeof all);
        }
        const struct glm_plan_weight *norm = find_weight(cut, "layers.{L}.attn_norm");
        assert_true(norm->n_layers >= 3 && norm->n_layers <= 12);
        assert_int_equal(norm->layers[0], 0);
        assert_int_equal(find_weight(p, "layers.{L}.attn_norm")->n_layers, 45);
        assert_int_equal(find_weight(cut, "embed")->bytes, find_weight(p, "embed")->bytes);
        /* It is a plan: all that its steps name is there. */
        assert_int_equal(glm_plan_write(cut, &text, &err), GLM_OK);
        if (glm_plan_read(buf_text(&text), text.len, &f.arena, &read, &err) != GLM_OK)
            fail_msg("%s", err.message);
        buf_release(&text);
        fixture_free(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_every_parameter_of_the_published_model_once),
        cmocka_unit_test(shares_of_all_ranks_make_the_whole_tensor),
        cmocka_unit_test(splits_kv_b_into_a_key_and_a_value_part_by_head),
        cmocka_unit_test(decides_formats_from_the_uncut_shape),
        cmocka_unit_test(holds_matrices_as_the_format_table_says),
        cmocka_unit_test(every_kernel_and_step_is_as_its_manifest_says),
        cmocka_unit_test(marks_each_layer_after_the_streams_that_enter_it),
        cmocka_unit_test(exchanges_twice_a_layer_and_only_with_peers),
        cmocka_unit_test(replays_kda_states_only_with_several_verify_rows),
        cmocka_unit_test(state_rows_have_the_reference_sizes),
        cmocka_unit_test(rotated_layers_have_their_own_names_and_equal_shares_one_kernel),
        cmocka_unit_test(refuses_experts_in_a_form_the_checkpoint_has_not),
        cmocka_unit_test(decodes_exl3_experts_to_bf16_when_asked),
        cmocka_unit_test(a_gpu_converts_its_weights_with_kernels_of_the_plan),
        cmocka_unit_test(warns_of_drafters_that_are_left_out),
        cmocka_unit_test(the_same_lane_gives_the_same_bytes_within_the_size_limit),
        cmocka_unit_test(a_cut_plan_runs_every_kernel_on_few_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
