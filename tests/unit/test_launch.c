/* SPDX-License-Identifier: Apache-2.0 */
/* Launch files and saved plans: what comes back, and that a changed file says which part changed.
 */
#include "codegen/launch.h"

#include "spec/base/digest.h"
#include "tests/support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fixture {
    struct arena arena;
    struct glm_error err;
    struct glm_plan plans[2];
    struct glm_plan *set[2];
    struct glm_launch_rank ranks[2];
    struct glm_launch_file launch;
};

static const char *const paths[] = {"/cache/a.0/kernel.so", "/cache/b.1/kernel.so"};
static const char *const digests[] = {
    "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
    "ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100",
};

static struct glm_launch_rank make_rank(const char *node, const char *file, uint32_t n_kernels)
{
    /* The struct's lists are not const for its readers' sake; nothing writes through them here. */
    static const char *kernel_paths[2], *kernel_digests[2];
    for (int i = 0; i < 2; i++) {
        kernel_paths[i] = paths[i];
        kernel_digests[i] = digests[i];
    }
    return (struct glm_launch_rank){
        .node = node,
        .host = "local",
        .control = "127.0.0.1",
        .device = "cpu",
        .plan_file = file,
        .threads = 2,
        .memory_bytes = UINT64_C(1) << 33,
        .reserve_bytes = 1 << 20,
        .kernel_paths = kernel_paths,
        .kernel_digests = kernel_digests,
        .n_kernels = n_kernels,
    };
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    size_t len;
    char *text = folder_read("tests/golden/plan", "example.plan.json", &len);
    struct glm_plan *example = NULL;
    arena_init(&f->arena, 32 << 20);
    enum glm_status status = glm_plan_read(text, len, &f->arena, &example, &f->err);
    free(text);
    if (status != GLM_OK)
        return -1;
    for (uint32_t i = 0; i < 2; i++) {
        f->plans[i] = *example;
        f->plans[i].rank = i;
        f->set[i] = &f->plans[i];
    }
    f->launch = (struct glm_launch_file){
        .format_version = 1,
        .cluster = "demo",
        .lane = "tp2",
        .spec_path = "/x/demo.yaml",
        .spec_text = "apiVersion: glmctl/v1\nname: \"d\xc3\xa9mo\"\n",
        .target = "x86-64-v3",
        .checkpoint = "synthetic:small8",
        .transport = "shm",
        .listen_host = "127.0.0.1",
        .listen_port = 8080,
        .served_name = "pico",
        .api_key_file = "",
        .max_tokens = 512,
        .max_body_bytes = 1 << 20,
        .thinking = true,
        .effort = "high",
        .ranks = f->ranks,
        .n_ranks = 2,
    };
    f->ranks[0] = make_rank("cpu0", "rank0.plan.json", 2);
    f->ranks[1] = make_rank("gpu1", "rank1.plan.json", 0);
    f->ranks[1].device = "cuda:12";
    glm_plan_seal(f->set, 2, NULL);
    memcpy(f->launch.set_digest, f->plans[0].set_digest, 65);
    memcpy(f->launch.binary_digest, digests[0], 65);
    memcpy(f->launch.checkpoint_digest, digests[1], 65);
    glm_sha256_hex(f->launch.spec_text, strlen(f->launch.spec_text), f->launch.spec_digest, NULL);
    for (uint32_t i = 0; i < 2; i++)
        glm_plan_digest(f->set[i], f->ranks[i].plan_digest, NULL);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    arena_release(&f->arena);
    free(f);
    return 0;
}

static void every_field_comes_back(void **state)
{
    struct fixture *f = *state;
    struct buf first = {0}, again = {0};
    struct glm_launch_file *l = NULL;
    uint32_t gpu;
    assert_int_equal(glm_launch_write(&f->launch, &first, &f->err), GLM_OK);
    if (glm_launch_read(first.data, first.len, &f->arena, &l, &f->err) != GLM_OK)
        fail_msg("%s", f->err.message);
    assert_string_equal(l->spec_text, f->launch.spec_text);
    assert_string_equal(l->lane, "tp2");
    assert_int_equal(l->listen_port, 8080);
    assert_true(l->thinking);
    assert_int_equal(l->max_body_bytes, 1 << 20);
    assert_int_equal(l->n_ranks, 2);
    assert_string_equal(l->ranks[1].node, "gpu1");
    assert_string_equal(l->ranks[0].device, "cpu");
    assert_false(glm_launch_gpu(&l->ranks[0], &gpu));
    assert_true(glm_launch_gpu(&l->ranks[1], &gpu));
    assert_int_equal(gpu, 12);
    assert_int_equal(l->ranks[0].memory_bytes, UINT64_C(1) << 33);
    assert_int_equal(l->ranks[0].n_kernels, 2);
    assert_string_equal(l->ranks[0].kernel_paths[1], paths[1]);
    assert_string_equal(l->ranks[0].kernel_digests[1], digests[1]);
    assert_int_equal(l->ranks[1].n_kernels, 0);
    assert_int_equal(glm_launch_write(l, &again, &f->err), GLM_OK);
    assert_string_equal(first.data, again.data);
    buf_release(&first);
    buf_release(&again);
}

/* text with `was` (the turn-th of it, from 0) replaced. */
static void replace(struct buf *out, const char *text, const char *was, const char *is, int turn)
{
    const char *place = strstr(text, was);
    for (; place != NULL && turn > 0; turn--)
        place = strstr(place + 1, was);
    assert_non_null(place);
    buf_add(out, text, (size_t)(place - text));
    buf_str(out, is);
    buf_str(out, place + strlen(was));
}

static void launch_refuses(struct fixture *f, const char *was, const char *is, const char *message)
{
    struct buf text = {0}, changed = {0};
    struct glm_launch_file *l = NULL;
    struct glm_error err = {0};
    assert_int_equal(glm_launch_write(&f->launch, &text, NULL), GLM_OK);
    replace(&changed, text.data, was, is, 0);
    assert_int_equal(glm_launch_read(changed.data, changed.len, &f->arena, &l, &err), GLM_EPLAN);
    if (strstr(err.message, message) == NULL)
        fail_msg("'%s' lacks '%s'", err.message, message);
    assert_null(l);
    buf_release(&text);
    buf_release(&changed);
}

static void a_launch_file_is_checked(void **state)
{
    struct fixture *f = *state;
    launch_refuses(f, "\"listen_port\": 8080", "\"listen_port\": 65536", "outside 0..65535");
    launch_refuses(f, "rank0.plan.json", "../rank0.plan.json", "not a plain file name");
    launch_refuses(f, "apiVersion", "apiVersiom", "'spec_text' has the digest");
    launch_refuses(f, "\"thinking\": true", "\"thinking\": \"yes\"", "not true or false");
    launch_refuses(f, "  \"thinking\": true,\n", "", "no key 'thinking'");
    launch_refuses(f, "\"lane\"", "\"lame\"", "unknown key 'lame'");
    launch_refuses(f, "00112233445566778899aabbccddeeff0011", "0011", "not 64 hex digits");
    launch_refuses(f, "\"format_version\": 1", "\"format_version\": 9", "outside 1..1");
}

static void a_device_is_the_cpu_or_a_gpu_of_the_machine(void **state)
{
    static const char *const hostile[] = {
        "",          "gb10",    "cuda",    "cuda:",           "cuda:-1",
        "cuda:+1",   "cuda:0 ", "cuda:00", "cuda:1000",       "cuda:1,2",
        "cuda:0x1",  "CPU",     "cpu0",    "cuda:4294967296", "cuda:99999999999999999999",
        "../cuda:0",
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        char is[64];
        snprintf(is, sizeof is, "\"device\": \"%s\"", hostile[i]);
        launch_refuses(f, "\"device\": \"cpu\"", is, "device");
    }
    launch_refuses(f, "\"device\": \"cpu\"", "\"device\": 0", "device");
    launch_refuses(f, "\"device\": \"cpu\", ", "", "no key 'device'");
}

static void a_saved_plan_comes_back_with_launch_and_plans(void **state)
{
    struct fixture *f = *state;
    struct buf text = {0}, again = {0};
    struct glm_launch_file *l = NULL;
    struct glm_plan **plans = NULL;
    assert_int_equal(glm_saved_plan_write(&f->launch, f->set, &text, &f->err), GLM_OK);
    if (glm_saved_plan_read(text.data, text.len, &f->arena, &l, &plans, &f->err) != GLM_OK)
        fail_msg("%s", f->err.message);
    assert_string_equal(l->cluster, "demo");
    assert_int_equal(plans[1]->rank, 1);
    assert_string_equal(plans[1]->set_digest, f->launch.set_digest);
    assert_int_equal(glm_saved_plan_write(l, plans, &again, &f->err), GLM_OK);
    assert_string_equal(text.data, again.data);
    buf_release(&text);
    buf_release(&again);
}

static void a_changed_saved_plan_is_refused_and_says_what_changed(void **state)
{
    static const struct {
        const char *was, *is;
        int turn;
        const char *message;
    } rows[] = {
        {"\"verify_rows\":4", "\"verify_rows\":5", 0, "have the set digest"},
        {"\"verify_rows\":4", "\"verify_rows\":5", 1, "have the set digest"},
        {"\"mark\":\"end\"", "\"mark\":\"and\"", 1, "have the set digest"},
        {"\"rank\": 1", "\"rank\": 0", 0, "plan 1 is rank 0 of 2, not 1 of 2"},
        {"\"plan_digest\": \"", "\"plan_digest\": \"0", 0, "not 64 hex digits"},
        {"\"transport\": \"shm\"", "\"transport\": \"tcp\"", 0, "it was changed"},
        {"\"threads\": 2", "\"threads\": 3", 1, "it was changed"},
        {"demo.yaml", "dema.yaml", 0, "it was changed"},
        {"\"target\": \"x86-64-v3\"", "\"target\": \"x86-64-v4\"", 0, "for target 'x86-64-v3'"},
        {"\"L\":2", "\"L\":3", 0, "has no layer 3"},
        {"\"plans\": [", "\"plans\": [1,", 0, "3 plans for 2 ranks"},
    };
    struct fixture *f = *state;
    struct buf text = {0};
    assert_int_equal(glm_saved_plan_write(&f->launch, f->set, &text, &f->err), GLM_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct buf changed = {0};
        struct glm_launch_file *l = NULL;
        struct glm_plan **plans = NULL;
        struct glm_error err = {0};
        replace(&changed, text.data, rows[i].was, rows[i].is, rows[i].turn);
        assert_int_equal(
            glm_saved_plan_read(changed.data, changed.len, &f->arena, &l, &plans, &err), GLM_EPLAN);
        if (strstr(err.message, rows[i].message) == NULL)
            fail_msg("'%s' lacks '%s'", err.message, rows[i].message);
        assert_null(l);
        assert_null(plans);
        buf_release(&changed);
    }
    buf_release(&text);
}

static void another_ranks_plan_digest_is_noticed(void **state)
{
    struct fixture *f = *state;
    struct buf text = {0};
    struct glm_launch_file *l = NULL;
    struct glm_plan **plans = NULL;
    memcpy(f->ranks[1].plan_digest, f->ranks[0].plan_digest, 65);
    assert_int_equal(glm_saved_plan_write(&f->launch, f->set, &text, &f->err), GLM_OK);
    assert_int_equal(glm_saved_plan_read(text.data, text.len, &f->arena, &l, &plans, &f->err),
                     GLM_EPLAN);
    assert_non_null(strstr(f->err.message, "the plan of rank 1 has the digest"));
    buf_release(&text);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(every_field_comes_back),
        CASE(a_launch_file_is_checked),
        CASE(a_device_is_the_cpu_or_a_gpu_of_the_machine),
        CASE(a_saved_plan_comes_back_with_launch_and_plans),
        CASE(a_changed_saved_plan_is_refused_and_says_what_changed),
        CASE(another_ranks_plan_digest_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
