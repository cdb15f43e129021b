/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA kernels through NVRTC, without a GPU: what is refused and how it is said, what is reported,
 * and that every CUDA body compiles without spills for every kernel of the golden plans. */
#include "codegen/kernels.h"

#include "tests/support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char manifest[] =
    "{\"name\":\"toy\",\"help\":\"y = x + N\",\n"
    " \"args\":[{\"name\":\"x\",\"dtype\":\"f32\",\"direction\":\"inout\",\"shape\":\"R\"}],\n"
    " \"params\":[{\"name\":\"N\",\"type\":\"int\",\"values\":\"1..4096\",\"help\":\"n\"}],\n"
    " \"scratch\":\"0\",\"read\":\"4*R\",\"write\":\"4*R\",\"ops\":\"R\",\"reduction\":\"none\",\n"
    " \"oracle\":\"itself\",\"tolerance\":0,\"spill_limit_bytes\":0,\n"
    " \"launch\":{\"block\":\"1024\",\"grid\":[\"R\",\"1\",\"1\"],\"min_blocks\":1}}\n";

static const char abi[] = "struct args { void *a[27]; };\n"
                          "#define KERNEL extern \"C\" __global__ void \\\n"
                          "__launch_bounds__(GLM_BLOCK, GLM_MIN_BLOCKS) glm_kernel(args l)\n";

static const char good_body[] = "#include \"abi.cuh\"\n"
                                "KERNEL\n"
                                "{\n"
                                "    __shared__ float s[GLM_BLOCK];\n"
                                "    float *x = (float *)l.a[3];\n"
                                "    s[threadIdx.x] = x[threadIdx.x];\n"
                                "    __syncthreads();\n"
                                "    x[threadIdx.x] = s[(threadIdx.x + 1) % GLM_BLOCK] + GLM_N;\n"
                                "}\n";
/* 1,024 threads have 64 registers each; this wants 200 at once. */
static const char greedy_body[] =
    "#include \"abi.cuh\"\n"
    "KERNEL\n"
    "{\n"
    "    float v[200], *x = (float *)l.a[3];\n"
    "    #pragma unroll\n"
    "    for (int i = 0; i < 200; i++) v[i] = x[i * 1024 + threadIdx.x];\n"
    "    __syncthreads();\n"
    "    #pragma unroll\n"
    "    for (int i = 0; i < 200; i++) x[i * 1024 + threadIdx.x] = v[199 - i] * v[i];\n"
    "}\n";

struct fixture {
    char *templates, *cache;
    struct arena arena;
    struct glm_error err;
    struct glm_plan plan;
    struct glm_plan_kernel kernel;
    struct glm_plan_param param;
    struct glm_kernel_build *builds;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    arena_init(&f->arena, 256 << 20);
    f->templates = folder_new();
    f->cache = folder_new();
    folder_write(f->templates, "toy.json", manifest);
    folder_write(f->templates, "toy.cu", good_body);
    folder_write(f->templates, "abi.cuh", abi);
    setenv("GLM_CACHE_DIR", f->cache, 1);
    f->param = (struct glm_plan_param){.name = "N", .value = 7, .origin = "test"};
    f->kernel = (struct glm_plan_kernel){"toy.7", "toy", &f->param, 1};
    f->plan = (struct glm_plan){
        .target = "sm_121a", .act = "bf16", .kernels = &f->kernel, .n_kernels = 1};
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    folder_remove(f->templates);
    folder_remove(f->cache);
    unsetenv("GLM_TEMPLATES");
    unsetenv("GLM_CACHE_DIR");
    unsetenv("GLM_NVRTC");
    arena_release(&f->arena);
    free(f);
    return 0;
}

static enum glm_status build(struct fixture *f)
{
    f->err = (struct glm_error){0};
    return glm_kernels_build(&f->plan, 2, &f->arena, NULL, NULL, &f->builds, &f->err);
}

/* Skips with the reason where NVRTC is not installed. */
static void need_nvrtc(struct fixture *f)
{
    struct glm_compiler cc;
    if (glm_backend_cuda.init("sm_121a", &f->arena, &cc, &f->err) == GLM_OK)
        return;
    print_message("# %s\n", f->err.message);
    skip();
}

static void a_missing_library_names_what_to_install(void **state)
{
    struct fixture *f = *state;
    setenv("GLM_TEMPLATES", f->templates, 1);
    setenv("GLM_NVRTC", "/nonexistent/libnvrtc.so.13", 1);
    assert_int_equal(build(f), GLM_EKERNEL);
    assert_non_null(strstr(f->err.message, "/nonexistent/libnvrtc.so.13"));
    assert_non_null(strstr(f->err.hint, "cuda-nvrtc"));
    assert_non_null(strstr(f->err.hint, "GLM_NVRTC"));
}

static void another_library_is_not_taken_for_nvrtc(void **state)
{
    struct fixture *f = *state;
    setenv("GLM_TEMPLATES", f->templates, 1);
    setenv("GLM_NVRTC", "libm.so.6", 1);
    assert_int_equal(build(f), GLM_EKERNEL);
    assert_non_null(strstr(f->err.message, "'libm.so.6'"));
    assert_non_null(strstr(f->err.message, "nvrtcVersion"));
}

static void a_gpu_that_this_nvrtc_does_not_know_is_refused_with_those_it_knows(void **state)
{
    struct fixture *f = *state;
    need_nvrtc(f);
    setenv("GLM_TEMPLATES", f->templates, 1);
    f->plan.target = "sm_999";
    assert_int_equal(build(f), GLM_EKERNEL);
    assert_non_null(strstr(f->err.message, "'sm_999'"));
    assert_non_null(strstr(f->err.message, "sm_90"));
}

static void the_compilers_report_is_kept_beside_the_cubin(void **state)
{
    struct fixture *f = *state;
    need_nvrtc(f);
    setenv("GLM_TEMPLATES", f->templates, 1);
    for (int warm = 0; warm < 2; warm++) {
        assert_int_equal(build(f), GLM_OK);
        const struct glm_kernel_build *b = &f->builds[0];
        assert_int_equal(b->compiled, !warm);
        assert_true(b->resources.known);
        assert_int_equal(b->resources.shared_bytes, 4096);
        assert_true(b->resources.registers >= 8 && b->resources.registers <= 64);
        assert_int_equal(b->resources.spill_store_bytes, 0);
        assert_true(b->object_bytes > 512);
        assert_string_equal(strrchr(b->path, '/'), "/kernel.cubin");
        assert_int_equal(glm_kernel_verify(b->path, b->digest, &f->err), GLM_OK);
    }
}

static void equal_sources_give_equal_cubins(void **state)
{
    struct fixture *f = *state;
    need_nvrtc(f);
    setenv("GLM_TEMPLATES", f->templates, 1);
    struct buf cubins[2] = {{0}, {0}};
    for (int i = 0; i < 2; i++) {
        char *other = folder_new();
        setenv("GLM_CACHE_DIR", other, 1);
        assert_int_equal(build(f), GLM_OK);
        assert_int_equal(glm_file_read(f->builds[0].path, 1 << 20, &cubins[i], NULL), GLM_OK);
        folder_remove(other);
    }
    assert_int_equal(cubins[0].len, cubins[1].len);
    assert_memory_equal(cubins[0].data, cubins[1].data, cubins[0].len);
    buf_release(&cubins[0]);
    buf_release(&cubins[1]);
}

static void an_error_names_the_templates_own_line(void **state)
{
    struct fixture *f = *state;
    need_nvrtc(f);
    setenv("GLM_TEMPLATES", f->templates, 1);
    folder_write(f->templates, "toy.cu", "#include \"abi.cuh\"\n\nKERNEL { no_such_thing(); }\n");
    assert_int_equal(build(f), GLM_EKERNEL);
    assert_non_null(strstr(f->err.message, "cannot build kernel 'toy.7': NVRTC"));
    assert_non_null(strstr(f->err.message, "kernels-templates/toy.cu(3)"));
    assert_non_null(strstr(f->err.hint, ".failed"));
}

static void a_spill_over_the_limit_is_refused_with_both_numbers(void **state)
{
    struct fixture *f = *state;
    need_nvrtc(f);
    setenv("GLM_TEMPLATES", f->templates, 1);
    folder_write(f->templates, "toy.cu", greedy_body);
    assert_int_equal(build(f), GLM_EKERNEL);
    assert_non_null(strstr(f->err.message, "spills"));
    assert_non_null(strstr(f->err.message, "manifest 'toy' allows 0"));
}

/* ---- The corner set: kernels of the golden plans whose template has a CUDA body, and those that
 * decode EXL3 at other rates too ---- */

static void add_plan(struct fixture *f, const char *path, struct glm_plan *all,
                     const struct glm_manifest *manifests, uint32_t n_manifests)
{
    struct buf text = {0};
    struct glm_plan *p;
    assert_int_equal(glm_file_read(path, 16 << 20, &text, NULL), GLM_OK);
    assert_int_equal(glm_plan_read(buf_text(&text), text.len, &f->arena, &p, &f->err), GLM_OK);
    buf_release(&text);
    for (uint32_t k = 0; k < p->n_kernels && all->n_kernels < 8192; k++)
        if (glm_manifest_find(manifests, n_manifests, p->kernels[k].template_name)->launch != NULL)
            all->kernels[all->n_kernels++] = p->kernels[k];
}

/* The ends of what a rate may be, and rates whose values lie across words. */
static void add_rates(struct fixture *f, struct glm_plan *all)
{
    static const struct {
        int64_t bits;
        const char *codebook;
    } rates[] = {{1, "mul1"}, {3, "3inst"}, {6, "mul1"}, {8, "3inst"}};
    for (uint32_t k = 0, n = all->n_kernels; k < n; k++)
        for (size_t r = 0; r < sizeof rates / sizeof rates[0]; r++) {
            struct glm_plan_kernel at = all->kernels[k];
            struct glm_plan_param *params =
                ARENA_ARRAY(&f->arena, at.n_params, struct glm_plan_param);
            bool decodes = false;
            for (uint32_t i = 0; i < at.n_params; i++) {
                params[i] = at.params[i];
                if (strcmp(params[i].name, "BITS") == 0 && params[i].value > 0) {
                    params[i].value = rates[r].bits;
                    decodes = true;
                } else if (strcmp(params[i].name, "CODEBOOK") == 0) {
                    params[i].text = rates[r].codebook;
                }
            }
            at.params = params;
            if (decodes && all->n_kernels < 8192)
                all->kernels[all->n_kernels++] = at;
        }
}

static struct glm_plan golden_kernels(struct fixture *f, const char *pattern)
{
    struct glm_plan all = {.act = "bf16"};
    struct glm_manifest *manifests;
    uint32_t n_manifests;
    glob_t found;
    all.kernels = ARENA_ARRAY(&f->arena, 8192, struct glm_plan_kernel);
    assert_non_null(all.kernels);
    assert_int_equal(glm_manifests_load(&f->arena, &manifests, &n_manifests, &f->err), GLM_OK);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++)
        add_plan(f, found.gl_pathv[i], &all, manifests, n_manifests);
    globfree(&found);
    add_rates(f, &all);
    return all;
}

static void compile_corners(struct fixture *f, const char *pattern, const char *target)
{
    f->plan = golden_kernels(f, pattern);
    f->plan.target = target;
    assert_true(f->plan.n_kernels > 0);
    if (build(f) != GLM_OK)
        fail_msg("%s: %s", target, f->err.message);
    for (uint32_t i = 0; i < f->plan.n_kernels; i++)
        assert_int_equal(f->builds[i].resources.spill_store_bytes, 0);
}

static void every_body_compiles_for_gb10_at_pico_and_full_shapes(void **state)
{
    need_nvrtc(*state);
    compile_corners(*state, "tests/golden/clusters/demo/rank0.plan.json", "sm_121a");
    compile_corners(*state, "tests/golden/clusters/tp2-direct/rank0.plan.json", "sm_121a");
}

/* No golden plan has ranks with a GPU each on one host, or NCCL. */
static void the_kernels_between_gpus_compile(void **state)
{
    static const char *const targets[] = {"sm_89", "sm_90", "sm_120a"};
    struct fixture *f = *state;
    struct glm_plan_param world = {.name = "WORLD", .value = 2, .origin = "lane.ranks"};
    struct glm_plan_param most = {.name = "WORLD", .value = 8, .origin = "lane.ranks"};
    struct glm_plan_kernel kernels[] = {
        {"peer_send", "peer_send", &world, 1},  {"peer_take", "peer_take", &world, 1},
        {"peer_send.2", "peer_send", &most, 1}, {"peer_take.2", "peer_take", &most, 1},
        {"rank_sum", "rank_sum", &world, 1},    {"rank_sum.2", "rank_sum", &most, 1}};
    need_nvrtc(*state);
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        f->plan = (struct glm_plan){
            .act = "bf16", .target = targets[i], .kernels = kernels, .n_kernels = 6};
        if (build(f) != GLM_OK)
            fail_msg("%s: %s", targets[i], f->err.message);
        for (uint32_t k = 0; k < f->plan.n_kernels; k++)
            assert_int_equal(f->builds[k].resources.spill_store_bytes, 0);
    }
}

/* The ends of what a rate may be, and rates whose values lie across words, in both forms. */
static uint32_t add_exl3_converters(struct glm_plan_kernel *kernels,
                                    struct glm_plan_param (*params)[3])
{
    static const struct {
        int64_t bits;
        const char *codebook;
    } rates[] = {{1, "mul1"}, {3, "3inst"}, {4, "mcg"}, {6, "mul1"}, {8, "3inst"}};
    static const char *const forms[] = {"exl3", "bf16"};
    uint32_t n = 0;
    for (size_t r = 0; r < sizeof rates / sizeof rates[0]; r++)
        for (size_t f = 0; f < 2; f++, n++) {
            params[n][0] = (struct glm_plan_param){.name = "BITS", .value = rates[r].bits};
            params[n][1] = (struct glm_plan_param){.name = "CODEBOOK", .text = rates[r].codebook};
            params[n][2] = (struct glm_plan_param){.name = "FORM", .text = forms[f]};
            kernels[n] = (struct glm_plan_kernel){"load_exl3", "load_exl3", params[n], 3};
        }
    return n;
}

static uint32_t add_row_converters(struct glm_plan_kernel *kernels,
                                   struct glm_plan_param (*params)[3])
{
    static const char *const stored[] = {"bf16", "f32", "f16"};
    static const char *const forms[] = {"f32", "bf16", "bf16_t", "q4", "fp8"};
    uint32_t n = 0;
    for (size_t s = 0; s < sizeof stored / sizeof stored[0]; s++)
        for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++, n++) {
            params[n][0] = (struct glm_plan_param){.name = "STORED", .text = stored[s]};
            params[n][1] = (struct glm_plan_param){.name = "FORM", .text = forms[f]};
            kernels[n] = (struct glm_plan_kernel){"load_rows", "load_rows", params[n], 2};
        }
    return n;
}

static void the_converters_of_weights_compile(void **state)
{
    static const char *const targets[] = {"sm_121a", "sm_90"};
    static struct glm_plan_kernel kernels[32];
    static struct glm_plan_param params[32][3];
    static char ids[32][32];
    struct fixture *f = *state;
    need_nvrtc(f);
    uint32_t n = add_row_converters(kernels, params);
    n += add_exl3_converters(kernels + n, params + n);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(ids[i], sizeof ids[i], "%s.%u", kernels[i].template_name, i);
        kernels[i].name = ids[i];
        for (uint32_t j = 0; j < kernels[i].n_params; j++)
            params[i][j].origin = "test";
    }
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        f->plan = (struct glm_plan){
            .act = "bf16", .target = targets[i], .kernels = kernels, .n_kernels = n};
        if (build(f) != GLM_OK)
            fail_msg("%s: %s", targets[i], f->err.message);
        for (uint32_t k = 0; k < n; k++)
            assert_int_equal(f->builds[k].resources.spill_store_bytes, 0);
    }
}

/* All golden plans for GB10, two ways to cut by two for the others. */
static void every_body_compiles_at_all_corners(void **state)
{
    static const char *const rows[][2] = {
        {"sm_121a", "tests/golden/clusters/*/rank*.plan.json"},
        {"sm_120a", "tests/golden/clusters/*tp2*/rank0.plan.json"},
        {"sm_90", "tests/golden/clusters/*tp2*/rank0.plan.json"},
        {"sm_89", "tests/golden/clusters/*tp2*/rank0.plan.json"},
    };
    if (getenv("GLM_TEST_CORNERS") == NULL) {
        print_message("# takes minutes: GLM_TEST_CORNERS=1 runs it\n");
        skip();
    }
    need_nvrtc(*state);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        compile_corners(*state, rows[i][1], rows[i][0]);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_missing_library_names_what_to_install),
        CASE(another_library_is_not_taken_for_nvrtc),
        CASE(a_gpu_that_this_nvrtc_does_not_know_is_refused_with_those_it_knows),
        CASE(the_compilers_report_is_kept_beside_the_cubin),
        CASE(equal_sources_give_equal_cubins),
        CASE(an_error_names_the_templates_own_line),
        CASE(a_spill_over_the_limit_is_refused_with_both_numbers),
        CASE(every_body_compiles_for_gb10_at_pico_and_full_shapes),
        CASE(the_kernels_between_gpus_compile),
        CASE(the_converters_of_weights_compile),
        CASE(every_body_compiles_at_all_corners),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
