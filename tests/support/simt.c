/* SPDX-License-Identifier: Apache-2.0 */
/* Builds and runs CUDA bodies on the CPU, or has gpu.c run them on a GPU (see the header). */
#include "tests/support/simt.h"

#include "codegen/kernels.h"
#include "codegen/templates.h"
#include "tests/simt/compile.h"
#include "tests/simt/launch.h"
#include "tests/support/gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { MAX_KERNELS = 256 };

struct test_device_kernel {
    const struct glm_manifest *manifest;
    char text[1024]; /* of the parameters, cut into pieces */
    struct glm_plan_param params[TEST_MAX_PARAMS];
    struct glm_plan_kernel plan;
    uint64_t key;
    simt_run_fn run;
    struct test_gpu_kernel *gpu; /* in place of run */
};

static struct test_device_kernel kernels[MAX_KERNELS];
static size_t n_kernels;

static _Noreturn void broken(const char *name, const char *why)
{
    fprintf(stderr, "device kernel test: '%s': %s\n", name, why);
    abort();
}

bool test_device_usable(void)
{
    if (test_gpu_chosen())
        return true;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return false;
#else
    char command[256];
    snprintf(command, sizeof command, "%s --version >/dev/null 2>&1", simt_compiler());
    return system(command) == 0;
#endif
}

/* The one place of a piece of text, or NULL when it is not there. */
static const char *find_once(const char *name, const char *text, const char *piece)
{
    const char *at = strstr(text, piece);
    if (at != NULL && strstr(at + 1, piece) != NULL)
        broken(name, "the text to change is there twice");
    return at;
}

static void replace(struct buf *text, const char *at, size_t len, const char *is)
{
    struct buf changed = {0};
    buf_add(&changed, text->data, (size_t)(at - text->data));
    buf_str(&changed, is);
    buf_str(&changed, at + len);
    buf_release(text);
    *text = changed;
}

/* Replaces `was` in the source, or in a header that it includes: that one then stands in the source
 * with its change. */
static void plant(const char *name, struct buf *text, const char *was, const char *is)
{
    struct arena arena;
    const char **headers, *at = find_once(name, buf_text(text), was);
    uint32_t n;
    if (at != NULL) {
        replace(text, at, strlen(was), is);
        return;
    }
    arena_init(&arena, 1 << 20);
    if (glm_template_names(".cuh", &arena, &headers, &n, NULL) != GLM_OK)
        broken(name, "there are no headers");
    for (uint32_t i = 0; i < n; i++) {
        char include[128];
        size_t len;
        const char *header = glm_template_source(headers[i], &len);
        snprintf(include, sizeof include, "#include \"%s\"\n", headers[i]);
        const char *line = strstr(buf_text(text), include);
        if (line == NULL || find_once(name, header, was) == NULL)
            continue;
        replace(text, line, strlen(include), header);
        replace(text, strstr(text->data, was), strlen(was), is);
        arena_release(&arena);
        return;
    }
    broken(name, "the text to change is not there");
}

static void load_simt(struct test_device_kernel *k, const struct test_object *object,
                      const struct buf *text)
{
    void *symbol = dlsym(test_object_open(object, buf_text(text)), SIMT_RUN_SYMBOL);
    if (symbol == NULL)
        broken(object->name, "it does not export " SIMT_RUN_SYMBOL);
    memcpy(&k->run, &symbol, sizeof k->run);
}

#define FLAGS SIMT_FLAGS " -O1 -g -Wall -Wextra -Werror -I. -Ikernels-templates"

/* The emulator, compiled once for all kernels. */
static const char *emulator(void)
{
    static char path[256];
    char command[512];
    snprintf(command, sizeof command, "%s " FLAGS " -c -x c++", simt_compiler());
    const struct test_object object = {
        "simt", ".cc", command, {"kernels-templates/*.h", "tests/simt/*"}};
    if (path[0] == '\0')
        test_object_make(&object, "#include \"tests/simt/simt.cc\"\n", path);
    return path;
}

/* The next free kernel made of the text, or the one that was made of it before. Takes the text. */
static struct test_device_kernel *load(const char *name, struct buf *text)
{
    struct test_device_kernel *k = &kernels[n_kernels];
    char command[1024];
    snprintf(command, sizeof command, "%s " FLAGS " -shared %s -x c++", simt_compiler(),
             test_gpu_chosen() ? "" : emulator());
    const struct test_object object = {
        name, ".cu", command, {"kernels-templates/*.cuh", "kernels-templates/*.h", "tests/simt/*"}};
    k->key = test_gpu_chosen() ? XXH3_64bits(text->data, text->len)
                               : test_object_key(&object, buf_text(text));
    for (size_t i = 0; i < n_kernels; i++)
        if (kernels[i].key == k->key) {
            buf_release(text);
            return &kernels[i];
        }
    if (test_gpu_chosen())
        k->gpu = test_gpu_kernel(name, buf_text(text));
    else
        load_simt(k, &object, text);
    buf_release(text);
    n_kernels++;
    return k;
}

struct test_device_kernel *test_device_kernel_with(const char *name, const char *params,
                                                   const char *was, const char *is)
{
    if (n_kernels == MAX_KERNELS)
        broken(name, "too many kernels");
    struct test_device_kernel *k = &kernels[n_kernels];
    struct glm_error err = {0};
    struct buf text = {0};
    k->manifest = test_manifest(name);
    snprintf(k->text, sizeof k->text, "%s", params);
    k->plan = (struct glm_plan_kernel){name, name, k->params, 0};
    k->plan.n_params = test_params(k->manifest, k->text, k->params);
    if (glm_kernel_emit(k->manifest, &k->plan, GLM_LANGUAGE_CUDA, "bf16", &text, &err) != GLM_OK)
        broken(name, err.message);
    if (was != NULL)
        plant(name, &text, was, is);
    return load(name, &text);
}

struct test_device_kernel *test_device_body(const char *name, const char *body)
{
    static const struct glm_manifest_launch launch = {"64", {"1", "1", "1"}, "256", "0", "0", "0",
                                                      1};
    static const struct glm_manifest manifest = {.name = "body", .launch = &launch};
    struct buf text = {0};
    if (n_kernels == MAX_KERNELS)
        broken(name, "too many kernels");
    kernels[n_kernels].manifest = &manifest;
    kernels[n_kernels].plan = (struct glm_plan_kernel){name, name, NULL, 0};
    buf_printf(&text,
               "#define GLM_BLOCK 64\n#define GLM_MIN_BLOCKS 1\n#define GLM_SHARED_BYTES "
               "256\n#define GLM_ACT_BF16 1\n"
               "#include \"prelude.cuh\"\n#line 1\n%s",
               body);
    return load(name, &text);
}

struct test_device_kernel *test_device_kernel(const char *name, const char *params)
{
    return test_device_kernel_with(name, params, NULL, NULL);
}

/* All launches of the shape, one after the other on the same scratch and tickets. */
static const char *run_simt(const struct test_device_kernel *k,
                            const struct glm_launch_shape *shape, const struct glm_round *round,
                            void *const *args, size_t n_args, uint64_t order)
{
    struct simt_launch launch = {
        .grid = {shape->grid[0], shape->grid[1], shape->grid[2]},
        .block = shape->block,
        .shared_bytes = shape->shared_bytes,
        .order = order,
        .args = {.round = round,
                 .scratch = test_alloc(shape->scratch_bytes),
                 .tickets = test_alloc((size_t)shape->n_tickets * sizeof(uint32_t))},
    };
    const char *why = NULL;
    memset(launch.args.tickets, 0, (size_t)shape->n_tickets * sizeof(uint32_t));
    memcpy(launch.args.args, args, n_args * sizeof *args);
    for (uint32_t i = 0; why == NULL && i < shape->n_launches; i++) {
        launch.args.first_row = (int32_t)(i * shape->rows);
        why = k->run(&launch);
        for (uint32_t t = 0; why == NULL && t < shape->n_tickets; t++)
            if (launch.args.tickets[t] != 0)
                why = "a ticket is left";
    }
    test_release(launch.args.scratch);
    test_release(launch.args.tickets);
    return why;
}

const char *test_device_run_in(const struct test_device_kernel *k, const struct glm_round *round,
                               const struct glm_cost_context *bucket, void *const *args,
                               size_t n_args, uint64_t order)
{
    struct glm_launch_shape shape;
    struct glm_error err = {0};
    if (glm_manifest_shape(k->manifest, &k->plan, bucket, &shape, &err) != GLM_OK)
        broken(k->manifest->name, err.message);
    return k->gpu != NULL ? test_gpu_run(k->gpu, &shape, round, args, n_args)
                          : run_simt(k, &shape, round, args, n_args, order);
}

const char *test_device_run(const struct test_device_kernel *k, const struct glm_round *round,
                            uint32_t n_rows, uint32_t n_outs, void *const *args, size_t n_args,
                            uint64_t order)
{
    const struct glm_cost_context bucket = {.R = n_rows, .O = n_outs, .S = round->n_streams};
    return test_device_run_in(k, round, &bucket, args, n_args, order);
}
