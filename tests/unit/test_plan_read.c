/* SPDX-License-Identifier: Apache-2.0 */
/* Reading rank plans: the example plan's values, and what is refused with which words. Each refusal
 * is one change to the example. */
#include "codegen/plan.h"

#include "tests/support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *example;
static size_t example_len;

static int load_example(void **state)
{
    (void)state;
    example = folder_read("tests/golden/plan", "example.plan.json", &example_len);
    return example == NULL ? -1 : 0;
}

static int free_example(void **state)
{
    (void)state;
    free(example);
    return 0;
}

static void reads_every_field_of_the_example(void **state)
{
    (void)state;
    struct arena arena;
    struct glm_plan *p = NULL;
    struct glm_error err = {0};
    arena_init(&arena, 8 << 20);
    assert_int_equal(glm_plan_read(example, example_len, &arena, &p, &err), GLM_OK);
    assert_string_equal(p->model, "example");
    assert_int_equal(p->rank, 1);
    assert_int_equal(p->world, 2);
    assert_int_equal(p->n_valid_ids, 500);
    assert_int_equal(p->end_ids[1], 499);
    assert_int_equal(p->limits.pool_tokens, 8192);
    assert_int_equal(glm_plan_total_bytes(p), 131072 + 131072 + 6815744);
    const struct glm_plan_weight *w = &p->weights[1];
    assert_int_equal(w->n_layers, 3);
    assert_int_equal(w->layers[2], 2);
    assert_int_equal(w->n_members, 1);
    assert_int_equal(w->parts[0].rows.first, 64);
    assert_int_equal(w->parts[0].rows.groups, 1);
    assert_int_equal(w->parts[0].cols.take, 128);
    assert_int_equal(w->parts[1].rows.groups, 4);
    assert_int_equal(w->parts[1].rows.stride, 64);
    assert_int_equal(p->weights[2].n_members, 3);
    assert_int_equal(p->states[1].unit, GLM_UNIT_POOL);
    assert_int_equal(p->states[1].position_offset, -1);
    assert_int_equal(p->states[0].versions, 1);
    assert_int_equal(p->states[2].versions, 2);
    assert_true(p->states[2].split);
    assert_int_equal(p->states[3].keep, 3);
    assert_int_equal(glm_plan_buffer(p, "shares")->per, GLM_PER_OUT);
    const struct glm_plan_kernel *k = glm_plan_kernel(p, "mix.replay");
    assert_string_equal(k->params[0].text, "1e-05");
    assert_string_equal(k->params[0].origin, "model.norm_eps");
    assert_null(k->params[1].text);
    assert_int_equal(k->params[1].value, -2);
    const struct glm_plan_block *b = glm_plan_block(p, "mix");
    assert_int_equal(b->steps[0].n_args, 5);
    assert_string_equal(b->steps[0].args[3].value, "mixed+32");
    assert_int_equal(b->steps[2].kind, GLM_STEP_SUM);
    const struct glm_plan_program *g = glm_plan_program(p, "decode");
    assert_int_equal(g->n_inputs, 0);
    assert_int_equal(g->n_outputs, 2);
    assert_int_equal(g->steps[4].kind, GLM_STEP_BLOCK);
    assert_int_equal(g->steps[4].layer, 2);
    assert_string_equal(g->steps[5].to, "shares");
    assert_null(glm_plan_program(p, "prefill"));
    arena_release(&arena);
}

/* A plan with `was` replaced by `is` once is refused with `message`. */
static void refuses_of(const char *plan, const char *was, const char *is, const char *message)
{
    struct arena arena;
    struct glm_plan *p = NULL;
    struct glm_error err = {0};
    const char *place = strstr(plan, was);
    assert_non_null(place);
    struct buf text = {0};
    buf_add(&text, plan, (size_t)(place - plan));
    buf_str(&text, is);
    buf_str(&text, place + strlen(was));
    arena_init(&arena, 8 << 20);
    enum glm_status status = glm_plan_read(text.data, text.len, &arena, &p, &err);
    if (status != GLM_EPLAN || strstr(err.message, message) == NULL)
        print_error("'%s' -> '%s': %s\n", was, is, err.message);
    assert_int_equal(status, GLM_EPLAN);
    assert_non_null(strstr(err.message, message));
    assert_null(p);
    arena_release(&arena);
    buf_release(&text);
}

static void refuses(const char *was, const char *is, const char *message)
{
    refuses_of(example, was, is, message);
}

static void refuses_what_is_not_the_document(void **state)
{
    (void)state;
    refuses("\"rank\": 1", "\"rank\": 1, \"extra\": 1", "unknown key 'extra'");
    refuses("\"rank\": 1", "\"rank\": 1, \"rank\": 1", "key 'rank' twice");
    refuses("  \"model\": \"example\",\n", "", "no key 'model'");
    refuses("\"format_version\": 1", "\"format_version\": 2",
            "'format_version' is 2, outside 1..1");
    refuses("\"rank\": 1", "\"rank\": 1.5", "'rank' is 1.5, not a whole number");
    refuses("\"rank\": 1", "\"rank\": \"1\"", "'rank' is not a number");
    refuses("\"set_digest\": \"\"", "\"set_digest\": \"12\"", "not 64 hex digits");
    refuses("\"memory\": [", "\"memory\": [[", "not JSON");
    refuses("\"example\"", "\"exam\\u0000ple\"", "NUL");
    refuses("{\n", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "nested deeper");
    refuses("\"end\"}\n    ]}\n  ]\n}\n", "\"end\"}\n    ]}\n  ]\n} true",
            "more bytes after the end");
}

static void refuses_values_out_of_range(void **state)
{
    (void)state;
    refuses("\"rank\": 1", "\"rank\": 2", "rank 2 is not below world 2");
    refuses("\"world\": 2", "\"world\": 9", "outside 1..8");
    refuses("\"valid_ids\": 500", "\"valid_ids\": 513", "valid_ids 513 is above d_vocab 512");
    refuses("[498,499]", "[498,512]", "end id 512");
    refuses("\"streams\":2", "\"streams\":17", "outside 1..16");
    refuses("\"slots\":4", "\"slots\":1", "1 slots are fewer than 2 streams");
    refuses("\"pool_tokens\":8192", "\"pool_tokens\":8191", "no multiple of 2048");
    refuses("\"prefill_rows\":128", "\"prefill_rows\":100", "no multiple of 64");
    refuses("\"act\": \"f32\"", "\"act\": \"f16\"", "'act' 'f16'");
    refuses("\"bytes\":6815744", "\"bytes\":-1", "outside 0..");
    refuses("\"bytes\":6815744", "\"bytes\":1e300", "not a whole number");
    refuses("\"unit\":\"token\"", "\"unit\":\"byte\"", "'unit' 'byte'");
    refuses("\"layers\":\"0..2\"", "\"layers\":\"2..0\"", "not ascending");
    refuses("\"layers\":\"0..2\"", "\"layers\":\"0,0\"", "not ascending");
    refuses("\"layers\":\"0..2\"", "\"layers\":\"0..128\"", "below 128");
    refuses("\"layers\":\"0..2\"", "\"layers\":\"0..2,\"", "not ascending");
    refuses("\"layers\":\"0..2\"", "\"layers\":\"99999999999999999999\"", "below 128");
}

/* A converter writes the device's memory by its parameters, not by the plan's bytes. */
static void refuses_a_weight_whose_converter_makes_another_form(void **state)
{
    (void)state;
    size_t len;
    char *gpu = folder_read("tests/golden/clusters/gpu", "rank0.plan.json", &len);
    assert_non_null(gpu);
    refuses("\"form\":\"bf16\"", "\"form\":\"bf16\",\"load\":\"x\"", "converts on the host");
    refuses_of(gpu, ",\"load\":\"load.bf16.bf16\"", "", "has no 'load'");
    refuses_of(gpu, "\"load\":\"load.bf16.bf16\"", "\"load\":\"load.bf16.bf17\"", "no kernel");
    refuses_of(gpu, "\"load\":\"load.bf16.bf16\"", "\"load\":\"embed\"", "does not make 'bf16'");
    refuses_of(gpu, "\"load\":\"load.bf16.bf16\"", "\"load\":\"load.f32.f32\"",
               "does not make 'bf16' of 'bf16'");
    refuses_of(gpu, "\"load\":\"load.exl3.exl3\"", "\"load\":\"load.bf16.bf16\"",
               "does not make 'exl3:4:mcg'");
    free(gpu);
}

static void refuses_weights_that_do_not_add_up(void **state)
{
    (void)state;
    refuses("\"rows\":[64,64]", "\"rows\":[65,64]", "ends behind the tensor's 128");
    refuses("\"rows\":[16,8,4,64]", "\"rows\":[16,8,4,81]", "ends behind the tensor's 256");
    refuses("\"rows\":[16,8,4,64]", "\"rows\":[16,8,4,7]", "they overlap");
    refuses("\"rows\":[16,8,4,64]", "\"rows\":[16,8,65536,2147483648]", "ends behind");
    refuses("\"rows\":[16,8,4,64]", "\"rows\":[16,8,65537,2147483648]",
            "has 65537 groups of 8: at most 65536, of 1 or more");
    refuses("\"rows\":[16,8,4,64]", "\"rows\":[16,0,2147483648,0]", "2147483648 groups of 0");
    refuses("\"rows\":[16,8,4,64]", "\"rows\":[16,0,4,64]", "has 4 groups of 0");
    refuses("\"rows\":[16,8,4,64]", "\"rows\":[16,8,4]", "3 entries, not 2 or 4");
    refuses("\"rows\":[64,64]", "\"rows\":[0,128]", "leave it out");
    refuses("\"rows\":[64,64]", "\"rows\":[0,64,1,64]", "write [first,take]");
    refuses("\"rows\":[64,64]", "\"rows\":[64,63]", "its parts 95");
    refuses("\"shape\":[128,128],\"rows\":[64,64]", "\"shape\":[128,64],\"rows\":[64,64]",
            "takes 64 columns, the weight has 128");
    refuses("\"bytes\":24576", "\"bytes\":24577", "has 24577 bytes, its form gives 24576");
    refuses("\"form\":\"bf16\"", "\"form\":\"bf17\"", "form 'bf17'");
    refuses("\"stored\":\"bf16\"", "\"stored\":\"i8\"", "'stored' 'i8'");
    refuses("\"form\":\"exl3:4:mcg\"", "\"form\":\"exl3:5:mcg\"", "stored is 'exl3:4:mcg'");
    refuses("\"stored\":\"exl3:4:mcg\"", "\"stored\":\"exl3:9:mcg\"", "'stored' 'exl3:9:mcg'");
    refuses("\"rows\":[128,128]", "\"rows\":[64,128]", "multiples of 128");
    refuses("layers.{L}.up.{E}", "layers.{L}.up", "{E}");
    refuses("\"tensor\":\"layers.{L}.a.weight\"", "\"tensor\":\"layers.0.a.weight\"", "{L}");
    refuses("\"name\":\"layers.{L}.mix\"", "\"name\":\"layers.0.mix\"", "without {L}, but layers");
    refuses("\"name\":\"embed\",\"stored\"", "\"name\":\"{L}\",\"stored\"", "but no layers");
    refuses("\"parts\":[{\"tensor\":\"embed.weight\",\"shape\":[512,128]}]", "\"parts\":[]",
            "has no parts");
}

static void refuses_states_that_contradict_their_unit(void **state)
{
    (void)state;
    refuses("\"per\":4", "\"per\":3", "divisor of 2048");
    refuses("\"unit\":\"pool\",\"per\":4", "\"unit\":\"pool\"", "divisor of 2048");
    refuses("\"ring\":32,\"keep\":3", "\"ring\":2,\"keep\":3", "'ring' 2 and 'keep' 3");
    refuses("\"ring\":32,\"keep\":3", "\"keep\":3", "'ring' 0");
    refuses("\"unit\":\"token\"", "\"unit\":\"token\",\"versions\":2", "only a stream's state");
    refuses("replay:mix.replay", "replay:mix.again", "no such kernel");
    refuses("\"snapshot\"", "\"hope\"", "rollback 'hope'");
    refuses("\"row_bytes\":256", "\"row_bytes\":99999999999", "outside");
}

static void refuses_names_that_do_not_resolve(void **state)
{
    (void)state;
    refuses("\"kernel\":\"mm.mix\"", "\"kernel\":\"mm.mox\"", "kernel 'mm.mox'");
    refuses("\"w\":\"layers.{L}.mix\"", "\"w\":\"layers.{L}.mox\"", "no weight, state or buffer");
    refuses("\"z\":\"mixed+32\"", "\"z\":\"mixed+96\"", "'mixed+96'");
    refuses("\"z\":\"mixed+32\"", "\"z\":\"mixed+\"", "'mixed+'");
    refuses("\"z\":\"mixed+32\"", "\"z\":\"mixed+-1\"", "'mixed+-1'");
    refuses("\"z\":\"mixed+32\"", "\"z\":\"layers.{L}.mix+1\"", "not a buffer");
    refuses("\"z\":\"mixed+32\"", "\"x\":\"x\"", "twice");
    refuses("{\"block\":\"mix\",\"L\":2}", "{\"block\":\"mux\",\"L\":2}", "block 'mux'");
    refuses("{\"block\":\"mix\",\"L\":2}", "{\"block\":\"mix\",\"L\":3}", "has no layer 3");
    refuses("{\"mark\":\"mixed\"}", "{\"block\":\"mix\",\"L\":0}", "only programs do");
    refuses("\"table\":\"embed\"", "\"table\":\"layers.{L}.mix\"", "outside a block");
    refuses("\"arena\":\"decode\"", "\"arena\":\"encode\"", "arena 'encode'");
    refuses("\"outputs\":[\"x\",", "\"outputs\":[\"embed\",", "'embed', which is no buffer");
    refuses("{\"sum\":\"partial\",\"to\":\"summed\"}", "{\"sum\":\"partial\",\"to\":\"partial\"}",
            "not two buffers");
    refuses("{\"sum\":\"partial\",\"to\":\"summed\"}", "{\"sum\":\"x\",\"to\":\"summed\"}",
            "differ");
    refuses("{\"sum\":\"partial\",\"to\":\"summed\"}", "{\"sum\":\"x\",\"to\":\"mixed\"}",
            "not fp32 of equal shape");
    refuses("{\"gather\":\"share\",\"to\":\"shares\"}", "{\"gather\":\"shares\",\"to\":\"share\"}",
            "gathers 'shares' (12 columns)");
    refuses("{\"mark\":\"end\"}", "{\"stop\":\"end\"}", "first key is 'stop'");
    refuses("{\"mark\":\"end\"}", "{}", "first key is ''");
    refuses("{\"mark\":\"end\"}", "7", "first key is ''");
    refuses("{\"name\":\"mixed\"", "{\"name\":\"embed\"", "two entries");
    refuses("{\"name\":\"mm.mix\"", "{\"name\":\"embed\"", "'kernels' has two entries");
    refuses("{\"name\":\"mixed\"", "{\"name\":\"mi xed\"", "not of A-Z");
}

static void reports_the_end_of_memory_as_such(void **state)
{
    (void)state;
    struct glm_plan *p = NULL;
    for (size_t limit = 0; limit < 16384; limit += 256) {
        struct arena arena;
        struct glm_error err = {0};
        arena_init(&arena, limit);
        enum glm_status status = glm_plan_read(example, example_len, &arena, &p, &err);
        arena_release(&arena);
        if (status == GLM_OK)
            return;
        assert_int_equal(status, GLM_ENOMEM);
    }
}

static void a_plan_cut_anywhere_is_refused(void **state)
{
    (void)state;
    for (size_t len = 0; len + 2 < example_len; len += 13) {
        struct arena arena;
        struct glm_plan *p = NULL;
        struct glm_error err = {0};
        arena_init(&arena, 8 << 20);
        assert_int_equal(glm_plan_read(example, len, &arena, &p, &err), GLM_EPLAN);
        arena_release(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_field_of_the_example),
        cmocka_unit_test(refuses_what_is_not_the_document),
        cmocka_unit_test(refuses_values_out_of_range),
        cmocka_unit_test(refuses_weights_that_do_not_add_up),
        cmocka_unit_test(refuses_a_weight_whose_converter_makes_another_form),
        cmocka_unit_test(refuses_states_that_contradict_their_unit),
        cmocka_unit_test(refuses_names_that_do_not_resolve),
        cmocka_unit_test(reports_the_end_of_memory_as_such),
        cmocka_unit_test(a_plan_cut_anywhere_is_refused),
    };
    return cmocka_run_group_tests(tests, load_example, free_example);
}
