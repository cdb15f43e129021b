/* SPDX-License-Identifier: Apache-2.0 */
/* One GPU through the driver, against a driver without a GPU (tests/fake/cuda_driver.c): what is
 * refused and how it is said, and that launches run in order, at once or from a graph. What a GPU
 * computes is test_device's, with GLM_TEST_GPU. */
#include "runtime/cuda.h"

#include "codegen/cache.h"
#include "spec/base/buf.h"
#include "tests/support/folder.h"
#include "tests/support/gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char driver_path[512];

struct fixture {
    struct glm_error err;
    struct glm_cuda *gpu;
    glm_cuda_stream stream;
    glm_cuda_address memory;
};

static void open_gpu(struct fixture *f)
{
    if (glm_cuda_open(0, &f->gpu, &f->err) != GLM_OK ||
        glm_cuda_stream_new(f->gpu, &f->stream, &f->err) != GLM_OK ||
        glm_cuda_alloc(f->gpu, "a plane", 256, &f->memory, &f->err) != GLM_OK)
        fail_msg("%s", f->err.message);
}

static void close_gpu(struct fixture *f)
{
    glm_cuda_free(f->gpu, f->memory);
    glm_cuda_stream_free(f->gpu, f->stream);
    glm_cuda_close(f->gpu);
}

static void refused(enum glm_status status, const struct glm_error *err, const char *message,
                    const char *hint)
{
    assert_int_equal(status, GLM_EKERNEL);
    if (strstr(err->message, message) == NULL)
        fail_msg("'%s' has no '%s'", err->message, message);
    if (strstr(err->hint, hint) == NULL)
        fail_msg("'%s' has no '%s'", err->hint, hint);
}

/* These come first: a driver that could be opened stays. */

static void a_missing_driver_names_the_package(void **state)
{
    (void)state;
    struct glm_error err = {0};
    uint32_t n;
    setenv("GLM_CUDA_DRIVER", "/nonexistent/libcuda.so.1", 1);
    refused(glm_cuda_count(&n, &err), &err, "/nonexistent/libcuda.so.1", "nvidia-driver");
}

static void a_library_that_is_no_driver_names_the_call_it_lacks(void **state)
{
    (void)state;
    struct glm_error err = {0};
    uint32_t n;
    setenv("GLM_CUDA_DRIVER", "libm.so.6", 1);
    refused(glm_cuda_count(&n, &err), &err, "'libm.so.6' as the CUDA driver: it has no cuInit",
            "GLM_CUDA_DRIVER");
}

static void an_old_driver_is_refused_with_both_versions(void **state)
{
    (void)state;
    struct glm_error err = {0};
    uint32_t n;
    setenv("GLM_CUDA_DRIVER", driver_path, 1);
    setenv("FAKE_CUDA", "version=11080", 1);
    refused(glm_cuda_count(&n, &err), &err, "it is for CUDA 11.8, needed is 12.0 or later",
            "nvidia-driver");
}

static void a_driver_that_does_not_start_says_why(void **state)
{
    (void)state;
    struct glm_error err = {0};
    uint32_t n;
    setenv("FAKE_CUDA", "fail=cuInit", 1);
    refused(glm_cuda_count(&n, &err), &err, "CUDA_ERROR_INVALID_VALUE: invalid argument", "");
}

static void the_facts_of_a_gpu_are_read(void **state)
{
    (void)state;
    struct fixture f = {0};
    uint32_t n = 0;
    unsetenv("FAKE_CUDA");
    assert_int_equal(glm_cuda_count(&n, &f.err), GLM_OK);
    assert_int_equal(n, 1);
    open_gpu(&f);
    const struct glm_cuda_facts *facts = glm_cuda_facts(f.gpu);
    assert_string_equal(facts->name, "Fake 0");
    assert_string_equal(facts->target, "sm_90");
    assert_int_equal(facts->n_sms, 7);
    assert_int_equal(facts->block_shared_bytes, 101376);
    assert_int_equal(facts->memory_bytes, 1 << 30);
    assert_int_equal(facts->driver_version, 13000);
    assert_false(facts->shares_memory);
    close_gpu(&f);
}

static void facts_can_be_had_without_opening_the_gpu(void **state)
{
    (void)state;
    struct glm_error err = {0};
    struct glm_cuda_facts facts = {0};
    setenv("FAKE_CUDA", "fail=cuDevicePrimaryCtxRetain", 1);
    struct glm_cuda *gpu = NULL;
    refused(glm_cuda_open(0, &gpu, &err), &err, "cannot open the GPU on cuda:0", "");
    if (glm_cuda_facts_of(0, &facts, &err) != GLM_OK)
        fail_msg("%s", err.message);
    unsetenv("FAKE_CUDA");
    assert_string_equal(facts.target, "sm_90");
    assert_int_equal(facts.memory_bytes, 1 << 30);
    err = (struct glm_error){0};
    facts = (struct glm_cuda_facts){0};
    refused(glm_cuda_facts_of(7, &facts, &err), &err, "cannot open 'cuda:7'", "nvidia-smi -L");
    assert_int_equal(facts.memory_bytes, 0);
}

static void a_gb10_is_compiled_for_with_its_own_suffix(void **state)
{
    (void)state;
    struct fixture f = {0};
    setenv("FAKE_CUDA", "capability=121", 1);
    open_gpu(&f);
    assert_string_equal(glm_cuda_facts(f.gpu)->target, "sm_121a");
    close_gpu(&f);
    unsetenv("FAKE_CUDA");
}

static void a_gpu_that_is_not_there_or_too_old_is_refused(void **state)
{
    (void)state;
    struct glm_error err = {0};
    struct glm_cuda *gpu = NULL;
    refused(glm_cuda_open(3, &gpu, &err), &err, "cannot open 'cuda:3': the driver shows 1 GPUs",
            "nvidia-smi -L");
    setenv("FAKE_CUDA", "capability=80", 1);
    err = (struct glm_error){0};
    refused(glm_cuda_open(0, &gpu, &err), &err,
            "Fake 0 has compute capability 8.0, needed is 8.9 or later", "");
    unsetenv("FAKE_CUDA");
    assert_null(gpu);
}

static void too_large_an_allocation_says_what_is_free(void **state)
{
    (void)state;
    struct fixture f = {0};
    glm_cuda_address at;
    open_gpu(&f);
    assert_int_equal(glm_cuda_alloc(f.gpu, "weights", 1 << 30, &at, &f.err), GLM_ENOMEM);
    assert_string_equal(f.err.message, "cannot allocate 'weights' on cuda:0: 1073741824 bytes, of "
                                       "1073741824 are 536870912 free");
    close_gpu(&f);
}

/* A cache entry as the compiler leaves it. */
struct entry {
    char *folder, path[512], digest[65];
};

static struct entry new_entry(void)
{
    struct entry e = {.folder = folder_new()};
    struct arena arena;
    struct glm_error err = {0};
    const struct glm_cache_file file = {"kernel.cubin", "cubin", 5};
    const char *cache, *stage;
    arena_init(&arena, 1 << 20);
    memset(e.digest, 'a', 64);
    setenv("GLM_CACHE_DIR", e.folder, 1);
    assert_int_equal(glm_cache_open(&arena, &cache, &err), GLM_OK);
    assert_int_equal(glm_cache_stage(cache, &file, 1, &arena, &stage, &err), GLM_OK);
    snprintf(e.path, sizeof e.path, "%s/k.%s", cache, e.digest);
    assert_int_equal(
        glm_cache_publish(stage, e.path, e.digest, file.name, "  \"template\": \"k\",\n", &err),
        GLM_OK);
    strcat(e.path, "/kernel.cubin");
    unsetenv("GLM_CACHE_DIR");
    arena_release(&arena);
    return e;
}

static void a_cubin_is_loaded_only_when_it_is_ours_and_unchanged(void **state)
{
    (void)state;
    struct fixture f = {0};
    struct glm_cuda_kernel k;
    struct entry e = new_entry();
    open_gpu(&f);
    if (glm_cuda_kernel_load(f.gpu, "k", e.path, e.digest, 0, &k, &f.err) != GLM_OK)
        fail_msg("%s", f.err.message);
    glm_cuda_kernel_unload(f.gpu, &k);
    refused(glm_cuda_kernel_load(f.gpu, "k", e.path, e.digest, 101000, &k, &f.err), &f.err,
            "wants 1024 static and 101000 dynamic bytes of shared memory, Fake 0 has 101376", "");

    f.err = (struct glm_error){0};
    chmod(e.path, 0620);
    refused(glm_cuda_kernel_load(f.gpu, "k", e.path, e.digest, 0, &k, &f.err), &f.err,
            "is writable by others", "");
    chmod(e.path, 0600);
    f.err = (struct glm_error){0};
    assert_int_equal(glm_file_write(e.path, "other", 5, 0600, &f.err), GLM_OK);
    refused(glm_cuda_kernel_load(f.gpu, "k", e.path, e.digest, 0, &k, &f.err), &f.err,
            "recorded digests", "");
    close_gpu(&f);
    folder_remove(e.folder);
}

static void launches_run_at_once_or_from_a_graph(void **state)
{
    (void)state;
    struct fixture f = {0};
    struct glm_cuda_kernel k;
    struct entry e = new_entry();
    unsigned char bytes[8];
    glm_cuda_graph graph = NULL;
    open_gpu(&f);
    assert_int_equal(glm_cuda_kernel_load(f.gpu, "k", e.path, e.digest, 1024, &k, &f.err), GLM_OK);
    struct glm_cuda_launch l = {
        .name = "k", .kernel = &k, .grid = {1, 1, 1}, .block = 32, .shared_bytes = 1024};
    l.args.args[0] = (void *)(uintptr_t)f.memory;
    assert_int_equal(glm_cuda_fill(f.gpu, f.stream, f.memory, 5, 256, &f.err), GLM_OK);
    assert_int_equal(glm_cuda_launch(f.gpu, f.stream, &l, &f.err), GLM_OK);
    assert_int_equal(glm_cuda_capture_begin(f.gpu, f.stream, &f.err), GLM_OK);
    assert_int_equal(glm_cuda_launch(f.gpu, f.stream, &l, &f.err), GLM_OK);
    assert_int_equal(glm_cuda_launch(f.gpu, f.stream, &l, &f.err), GLM_OK);
    assert_int_equal(glm_cuda_capture_end(f.gpu, f.stream, &graph, &f.err), GLM_OK);
    assert_int_equal(glm_cuda_graph_launch(f.gpu, graph, f.stream, &f.err), GLM_OK);
    assert_int_equal(glm_cuda_graph_launch(f.gpu, graph, f.stream, &f.err), GLM_OK);
    assert_int_equal(glm_cuda_copy_out(f.gpu, f.stream, bytes, f.memory, 8, &f.err), GLM_OK);
    assert_int_equal(glm_cuda_stream_wait(f.gpu, f.stream, &f.err), GLM_OK);
    assert_int_equal(bytes[7], 5 + 1 + 2 * 2);
    glm_cuda_graph_free(f.gpu, graph);

    l.shared_bytes = 2048;
    refused(glm_cuda_launch(f.gpu, f.stream, &l, &f.err), &f.err,
            "wants 2048 bytes of shared memory, the kernel was loaded for 1024", "");
    glm_cuda_kernel_unload(f.gpu, &k);
    close_gpu(&f);
    folder_remove(e.folder);
}

static void a_failed_call_has_the_drivers_words(void **state)
{
    (void)state;
    struct fixture f = {0};
    glm_cuda_address at = 0;
    open_gpu(&f);
    setenv("FAKE_CUDA", "fail=cuStreamSynchronize", 1);
    refused(glm_cuda_stream_wait(f.gpu, f.stream, &f.err), &f.err,
            "cannot run what a stream holds on cuda:0: CUDA_ERROR_INVALID_VALUE (1): invalid "
            "argument",
            "");
    unsetenv("FAKE_CUDA");
    glm_cuda_free(f.gpu, at);
    close_gpu(&f);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_driver_names_the_package),
        cmocka_unit_test(a_library_that_is_no_driver_names_the_call_it_lacks),
        cmocka_unit_test(an_old_driver_is_refused_with_both_versions),
        cmocka_unit_test(a_driver_that_does_not_start_says_why),
        cmocka_unit_test(the_facts_of_a_gpu_are_read),
        cmocka_unit_test(facts_can_be_had_without_opening_the_gpu),
        cmocka_unit_test(a_gb10_is_compiled_for_with_its_own_suffix),
        cmocka_unit_test(a_gpu_that_is_not_there_or_too_old_is_refused),
        cmocka_unit_test(too_large_an_allocation_says_what_is_free),
        cmocka_unit_test(a_cubin_is_loaded_only_when_it_is_ours_and_unchanged),
        cmocka_unit_test(launches_run_at_once_or_from_a_graph),
        cmocka_unit_test(a_failed_call_has_the_drivers_words),
    };
    (void)argc;
    test_gpu_fake(argv[0]);
    snprintf(driver_path, sizeof driver_path, "%s", getenv("GLM_CUDA_DRIVER"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
