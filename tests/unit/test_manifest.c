/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests: what is read, what is refused, and plan kernels held against one. */
#include "codegen/manifest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char text[] =
    "{\"name\":\"toy\",\"help\":\"a toy\",\n"
    " \"args\":[{\"name\":\"x\",\"dtype\":\"act\",\"direction\":\"in\",\"shape\":\"R, N\"},\n"
    "  {\"name\":\"y\",\"dtype\":\"f32\",\"direction\":\"out\",\"shape\":\"R, "
    "N\",\"optional\":true}],\n"
    " \"params\":[{\"name\":\"N\",\"type\":\"int\",\"values\":\"1..64,128,256..4096/"
    "256\",\"help\":\"n\"},\n"
    "  {\"name\":\"EPS\",\"type\":\"float\",\"values\":\"0..1\",\"help\":\"e\"},\n"
    "  {\"name\":\"FORM\",\"type\":\"word\",\"values\":\"bf16|q4\",\"help\":\"f\"}],\n"
    " \"scratch\":\"T*N*4\",\"read\":\"R*N*(2-is(FORM,q4))\",\"write\":\"R*N\",\"ops\":\"2*R*N\",\n"
    " \"reduction\":\"16 "
    "lanes\",\"oracle\":\"double\",\"tolerance\":1e-5,\"spill_limit_bytes\":0}\n";

static int setup(void **state)
{
    struct arena *a = malloc(sizeof *a);
    arena_init(a, 4 << 20);
    *state = a;
    return 0;
}

static int teardown(void **state)
{
    arena_release(*state);
    free(*state);
    return 0;
}

static void reads_every_field(void **state)
{
    struct glm_manifest m;
    struct glm_error err = {0};
    assert_int_equal(glm_manifest_parse("toy", text, strlen(text), *state, &m, &err), GLM_OK);
    assert_string_equal(m.name, "toy");
    assert_int_equal(m.n_args, 2);
    assert_string_equal(m.args[0].dtype, "act");
    assert_false(m.args[0].optional);
    assert_true(m.args[1].optional);
    assert_string_equal(m.args[1].direction, "out");
    assert_int_equal(m.n_params, 3);
    assert_string_equal(m.params[2].values, "bf16|q4");
    assert_string_equal(m.scratch, "T*N*4");
    assert_string_equal(m.reduction, "16 lanes");
    assert_true(m.tolerance == 1e-5);
    assert_int_equal(m.spill_limit_bytes, 0);
}

/* The toy with a launch. */
static const char *launch_text(const char *launch)
{
    static char out[2048];
    size_t n = strlen(text) - 2; /* without "}\n" */
    snprintf(out, sizeof out, "%.*s,\n \"launch\":%s}\n", (int)n, text, launch);
    return out;
}

static enum glm_status shape_of(struct arena *arena, const char *launch, double rows,
                                struct glm_launch_shape *shape, struct glm_error *err)
{
    static struct glm_plan_param params[] = {{.name = "N", .value = 64, .origin = ""},
                                             {.name = "EPS", .text = "0.5", .origin = ""},
                                             {.name = "FORM", .text = "q4", .origin = ""}};
    const struct glm_plan_kernel k = {"k", "toy", params, 3};
    const struct glm_cost_context bucket = {.R = rows, .O = 2, .C = 100, .S = 1};
    struct glm_manifest m;
    *err = (struct glm_error){0};
    launch = launch_text(launch);
    enum glm_status status = glm_manifest_parse("toy", launch, strlen(launch), arena, &m, err);
    return status == GLM_OK ? glm_manifest_shape(&m, &k, &bucket, shape, err) : status;
}

static void a_launch_is_sized_by_the_bucket(void **state)
{
    struct glm_launch_shape shape;
    struct glm_error err;
    assert_int_equal(shape_of(*state,
                              "{\"block\":\"2*N\",\"grid\":[\"ceil(N/48)\",\"R\",\"O\"],"
                              "\"min_blocks\":3,\"shared\":\"N*is(FORM,q4)\",\"scratch\":\"R*N*4\","
                              "\"tickets\":\"R\"}",
                              8, &shape, &err),
                     GLM_OK);
    assert_int_equal(shape.block, 128);
    assert_int_equal(shape.grid[0], 2);
    assert_int_equal(shape.grid[1], 8);
    assert_int_equal(shape.grid[2], 2);
    assert_int_equal(shape.min_blocks, 3);
    assert_int_equal(shape.shared_bytes, 64);
    assert_int_equal(shape.scratch_bytes, 2048);
    assert_int_equal(shape.n_tickets, 8);
    assert_int_equal(
        shape_of(*state, "{\"block\":\"32\",\"grid\":[\"1\",\"1\",\"1\"]}", 8, &shape, &err),
        GLM_OK);
    assert_int_equal(shape.min_blocks, 1);
    assert_int_equal(shape.shared_bytes + shape.scratch_bytes + shape.n_tickets, 0);
    assert_int_equal(shape.rows, 0);
    assert_int_equal(shape.n_launches, 1);
}

static void rows_bound_grid_scratch_and_tickets_of_a_launch(void **state)
{
    static const char launch[] = "{\"block\":\"32\",\"grid\":[\"ceil(context/16)\",\"R\",\"1\"],"
                                 "\"scratch\":\"R*context\",\"tickets\":\"R\",\"rows\":\"N/2\"}";
    static const uint32_t rows[][3] = {/* of the bucket, of a launch, launches */
                                       {1, 1, 1},   {31, 31, 1}, {32, 32, 1},
                                       {33, 32, 2}, {64, 32, 2}, {2048, 32, 64}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct glm_launch_shape shape;
        struct glm_error err;
        assert_int_equal(shape_of(*state, launch, rows[i][0], &shape, &err), GLM_OK);
        assert_int_equal(shape.rows, 32);
        assert_int_equal(shape.n_launches, rows[i][2]);
        assert_int_equal(shape.grid[0], 7);
        assert_int_equal(shape.grid[1], rows[i][1]);
        assert_int_equal(shape.scratch_bytes, rows[i][1] * 100);
        assert_int_equal(shape.n_tickets, rows[i][1]);
    }
}

static void a_launch_that_no_gpu_takes_is_refused(void **state)
{
    static const char *const rows[][2] = {
        {"{\"block\":\"48\",\"grid\":[\"1\",\"1\",\"1\"]}", "no multiple of 32"},
        {"{\"block\":\"2048\",\"grid\":[\"1\",\"1\",\"1\"]}", "'block' of manifest 'toy' is 2048"},
        {"{\"block\":\"32*R\",\"grid\":[\"1\",\"1\",\"1\"]}", "depends on the rows"},
        {"{\"block\":\"32\",\"shared\":\"R\",\"grid\":[\"1\",\"1\",\"1\"]}", "depends on the rows"},
        {"{\"block\":\"32\",\"grid\":[\"R/3\",\"1\",\"1\"]}", "'grid[0]'"},
        {"{\"block\":\"32\",\"grid\":[\"1\",\"R*16384\",\"1\"]}", "'grid[1]'"},
        {"{\"block\":\"32\",\"grid\":[\"1\",\"1\",\"0\"]}", "'grid[2]'"},
        {"{\"block\":\"32\",\"grid\":[\"1\",\"1\",\"1\"],\"shared\":\"101380\"}", "'shared'"},
        {"{\"block\":\"32\",\"grid\":[\"1\",\"1\"]}", "has 2 expressions"},
        {"{\"block\":\"32\",\"grid\":[\"1\",\"1\",\"M\"]}", "unknown name 'M'"},
        {"{\"block\":\"32\",\"grid\":[\"1\",\"1\",\"1\"],\"min_blocks\":0}", "min_blocks"},
        {"{\"block\":\"32\",\"grid\":[\"1\",\"1\",\"1\"],\"tile\":\"1\"}", "tile"},
        {"{\"block\":\"32\",\"grid\":[\"1\",\"1\",\"1\"],\"rows\":\"R\"}",
         "'rows' of manifest 'toy' depends on the rows"},
        {"{\"block\":\"32\",\"grid\":[\"1\",\"1\",\"1\"],\"rows\":\"1/2\"}", "'rows'"},
        {"{\"block\":\"32\",\"grid\":[\"1\",\"1\",\"1\"],\"rows\":\"-1\"}", "'rows'"},
        {"{\"block\":\"32\",\"grid\":[\"1\",\"1\",\"1\"],\"rows\":\"M\"}", "has 'launch.rows'"},
        {"{\"block\":\"32\",\"grid\":[\"1\",\"O\",\"1\"],\"rows\":\"64\"}",
         "depends on the wanted rows"},
        {"{\"block\":\"32\",\"grid\":[\"1\",\"1\",\"1\"],\"scratch\":\"4*O\",\"rows\":\"64\"}",
         "depends on the wanted rows"},
        {"{\"grid\":[\"1\",\"1\",\"1\"]}", "block"},
        {"\"32\"", "launch"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct glm_launch_shape shape;
        struct glm_error err;
        assert_int_equal(shape_of(*state, rows[i][0], 8, &shape, &err), GLM_EPLAN);
        if (strstr(err.message, rows[i][1]) == NULL)
            fail_msg("'%s' does not say '%s'", err.message, rows[i][1]);
    }
}

static void a_manifest_without_a_launch_has_no_shape(void **state)
{
    struct glm_manifest m;
    struct glm_launch_shape shape;
    struct glm_error err = {0};
    const struct glm_plan_kernel k = {"k", "toy", NULL, 0};
    const struct glm_cost_context bucket = {.R = 1};
    assert_int_equal(glm_manifest_parse("toy", text, strlen(text), *state, &m, &err), GLM_OK);
    assert_null(m.launch);
    assert_int_equal(glm_manifest_shape(&m, &k, &bucket, &shape, &err), GLM_EPLAN);
    assert_non_null(strstr(err.message, "has no 'launch'"));
}

static void refuses(struct arena *arena, const char *was, const char *is, const char *message)
{
    struct glm_manifest m = {0};
    struct glm_error err = {0};
    struct buf changed = {0};
    const char *place = strstr(text, was);
    assert_non_null(place);
    buf_add(&changed, text, (size_t)(place - text));
    buf_str(&changed, is);
    buf_str(&changed, place + strlen(was));
    assert_int_equal(glm_manifest_parse("toy", changed.data, changed.len, arena, &m, &err),
                     GLM_EPLAN);
    if (strstr(err.message, message) == NULL)
        fail_msg("'%s' lacks '%s'", err.message, message);
    assert_non_null(strstr(err.message, "manifest 'toy'"));
    assert_null(m.name);
    buf_release(&changed);
}

static void names_manifest_and_key_of_a_problem(void **state)
{
    refuses(*state, "\"help\":\"a toy\",", "", "no key 'help'");
    refuses(*state, "\"help\":\"a toy\"", "\"help\":\"a toy\",\"hulp\":1", "unknown key 'hulp'");
    refuses(*state, "\"name\":\"toy\"", "\"name\":\"tay\"", "its file is 'toy.json'");
    refuses(*state, "\"dtype\":\"act\"", "\"dtype\":\"i8\"", "'args[0]' has the dtype 'i8'");
    refuses(*state, "\"direction\":\"in\"", "\"direction\":\"up\"", "direction 'up'");
    refuses(*state, "\"name\":\"y\"", "\"name\":\"x\"", "'args[1]' has the name 'x' of argument 0");
    refuses(*state, "\"name\":\"EPS\"", "\"name\":\"eps\"", "'params[1]' has the name 'eps'");
    refuses(*state, "\"name\":\"EPS\"", "\"name\":\"N\"", "of parameter 0");
    refuses(*state, "\"type\":\"int\"", "\"type\":\"long\"", "type 'long'");
    refuses(*state, "1..64,128", "64..1,128", "not a list of ints");
    refuses(*state, "1..64,128", "1...64", "not a list of ints");
    refuses(*state, "4096/256", "4096/0", "not a list of ints");
    refuses(*state, "4096/256", "4096/256,", "not a list of ints");
    refuses(*state, "\"0..1\"", "\"0..inf\"", "not a list of floats");
    refuses(*state, "bf16|q4", "bf16|", "not a list of words");
    refuses(*state, "bf16|q4", "bf-16|q4", "not a list of words");
    refuses(*state, "T*N*4", "T*M*4", "has 'scratch': cannot evaluate 'T*M*4': unknown name 'M'");
    refuses(*state, "2*R*N", "2**R", "'ops'");
    refuses(*state, "\"tolerance\":1e-5", "\"tolerance\":2", "'tolerance' is 2, outside 0..1");
    refuses(*state, "\"spill_limit_bytes\":0", "\"spill_limit_bytes\":-1", "outside 0..65536");
    refuses(*state, "\"optional\":true", "\"optional\":1",
            "'args[1].optional' is not true or false");
}

static enum glm_status check(struct arena *arena, const struct glm_plan_param *params, uint32_t n,
                             struct glm_error *err)
{
    struct glm_manifest m;
    const struct glm_plan_kernel k = {.name = "mm.toy",
                                      .template_name = "toy",
                                      .n_params = n,
                                      .params = arena_array(arena, n + 1, sizeof *params)};
    *err = (struct glm_error){0};
    memcpy(k.params, params, n * sizeof *params);
    assert_int_equal(glm_manifest_parse("toy", text, strlen(text), arena, &m, err), GLM_OK);
    return glm_manifest_check(&m, &k, err);
}

static void allowed_values_pass(void **state)
{
    static const int64_t values[] = {1, 64, 128, 256, 512, 4096};
    struct glm_error err;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        const struct glm_plan_param p[] = {{.name = "N", .value = values[i]},
                                           {.name = "EPS", .text = "1e-6"},
                                           {.name = "FORM", .text = "q4"}};
        assert_int_equal(check(*state, p, 3, &err), GLM_OK);
    }
}

static void a_value_outside_names_what_is_allowed(void **state)
{
    static const int64_t values[] = {0, 65, 300, 4352, -1};
    struct glm_error err;
    struct glm_plan_param p[] = {
        {.name = "N"}, {.name = "EPS", .text = "1e-6"}, {.name = "FORM", .text = "q4"}};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        p[0].value = values[i];
        assert_int_equal(check(*state, p, 3, &err), GLM_EPLAN);
        assert_non_null(strstr(err.message, "'mm.toy': parameter 'N' of manifest 'toy'"));
        assert_non_null(strstr(err.message, "allowed: 1..64,128,256..4096/256"));
    }
    p[0].value = 64;
    static const char *const floats[] = {"1.5", "-0.1", "nan", "0x1p-3", "", "0.5f"};
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++) {
        p[1].text = floats[i];
        assert_int_equal(check(*state, p, 3, &err), GLM_EPLAN);
        assert_non_null(strstr(err.message, "'EPS'"));
    }
    p[1].text = "0";
    static const char *const words[] = {"q", "q44", "bf16|q4", ""};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        p[2].text = words[i];
        assert_int_equal(check(*state, p, 3, &err), GLM_EPLAN);
        assert_non_null(strstr(err.message, "allowed: bf16|q4"));
    }
}

static void missing_unknown_repeated_and_mistyped_parameters_are_named(void **state)
{
    struct glm_error err;
    const struct glm_plan_param p[] = {{.name = "N", .value = 64},
                                       {.name = "EPS", .text = "1e-6"},
                                       {.name = "FORM", .text = "q4"},
                                       {.name = "M", .value = 1}};
    const struct glm_plan_param twice[] = {p[0], p[1], p[2], p[0]};
    const struct glm_plan_param typed[] = {{.name = "N", .text = "64"}, p[1], p[2]};
    assert_int_equal(check(*state, p, 2, &err), GLM_EPLAN);
    assert_non_null(strstr(err.message, "lacks parameter 'FORM'"));
    assert_int_equal(check(*state, p, 4, &err), GLM_EPLAN);
    assert_non_null(strstr(err.message, "no parameter 'M'"));
    assert_int_equal(check(*state, twice, 4, &err), GLM_EPLAN);
    assert_non_null(strstr(err.message, "'N' is given twice"));
    assert_int_equal(check(*state, typed, 3, &err), GLM_EPLAN);
    assert_non_null(strstr(err.message, "is an int, the plan gives the text 64"));
}

static void every_manifest_of_the_templates_is_valid(void **state)
{
    struct glm_manifest *all = NULL;
    uint32_t n = 0;
    struct glm_error err = {0};
    if (glm_manifests_load(*state, &all, &n, &err) != GLM_OK)
        fail_msg("%s", err.message);
    for (uint32_t i = 0; i < n; i++) {
        assert_ptr_equal(glm_manifest_find(all, n, all[i].name), &all[i]);
        if (i > 0)
            assert_true(strcmp(all[i - 1].name, all[i].name) < 0);
        char file[96];
        size_t len;
        snprintf(file, sizeof file, "%s.cu", all[i].name);
        if ((glm_template_source(file, &len) != NULL) != (all[i].launch != NULL))
            fail_msg("%s: a CUDA body and 'launch' come together", all[i].name);
    }
    assert_null(glm_manifest_find(all, n, "no_such_template"));
}

static void an_embedded_text_is_whole_and_a_path_is_no_name(void **state)
{
    (void)state;
    size_t len = 0;
    const char *source = glm_template_source("round.h", &len);
    assert_non_null(source);
    assert_int_equal(strlen(source), len);
    assert_non_null(strstr(source, "struct glm_round_stream {"));
    assert_null(glm_template_source("../Makefile", &len));
    assert_null(glm_template_source("no_such.h", &len));
    setenv("GLM_TEMPLATES", "kernels-templates", 1);
    size_t len_read = 0;
    const char *read = glm_template_source("round.h", &len_read);
    assert_non_null(read);
    assert_ptr_not_equal(read, source);
    assert_int_equal(len_read, len);
    assert_memory_equal(read, source, len);
    assert_null(glm_template_source("../Makefile", &len));
    unsetenv("GLM_TEMPLATES");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(reads_every_field),
        CASE(names_manifest_and_key_of_a_problem),
        CASE(allowed_values_pass),
        CASE(a_value_outside_names_what_is_allowed),
        CASE(missing_unknown_repeated_and_mistyped_parameters_are_named),
        CASE(a_launch_is_sized_by_the_bucket),
        CASE(rows_bound_grid_scratch_and_tickets_of_a_launch),
        CASE(a_launch_that_no_gpu_takes_is_refused),
        CASE(a_manifest_without_a_launch_has_no_shape),
        CASE(every_manifest_of_the_templates_is_valid),
        CASE(an_embedded_text_is_whole_and_a_path_is_no_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
