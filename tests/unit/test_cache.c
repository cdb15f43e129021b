/* SPDX-License-Identifier: Apache-2.0 */
/* Building kernels through the on-disk cache: what is built once, what is answered from disk, what
 * is built again and what is refused. */
#include "codegen/cache.h"
#include "codegen/kernels.h"

#include "tests/support/folder.h"
#include "tests/support/toy_kernel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct fixture {
    struct toy toy;
    struct arena arena;
    struct glm_error err;
    struct glm_kernel_build *builds;
    uint32_t n_progress, last_done, last_total;
    bool cancel;
};

static bool count_progress(void *context, uint32_t done, uint32_t total, const char *name)
{
    struct fixture *f = context;
    assert_non_null(name);
    assert_int_equal(done, f->last_done + 1);
    f->last_done = done;
    f->last_total = total;
    f->n_progress++;
    return !f->cancel;
}

static enum glm_status build(struct fixture *f)
{
    f->err = (struct glm_error){0};
    f->n_progress = f->last_done = f->last_total = 0;
    return glm_kernels_build(&f->toy.plan, 2, &f->arena, count_progress, f, &f->builds, &f->err);
}

/* The compiler of this run: a cross compiler, a sanitizer's flags. */
static char *given_cc, *given_cflags;

static char *given(const char *name)
{
    const char *value = getenv(name);
    return value ? strdup(value) : NULL;
}

static void give_back(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    arena_init(&f->arena, 64 * 1024 * 1024);
    toy_init(&f->toy, NULL);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    toy_release(&f->toy);
    arena_release(&f->arena);
    free(f);
    give_back("GLM_HOST_CC", given_cc);
    give_back("GLM_HOST_CFLAGS", given_cflags);
    return 0;
}

/* y of the built kernel at x = 5, by loading the object as the executor does. */
static float run_built(const char *path)
{
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(object);
    union {
        void *symbol;
        void (*kernel)(const void *, void *const *);
    } entry = {.symbol = dlsym(object, "glm_kernel")};
    assert_non_null(entry.symbol);
    float x[64] = {5}, y[64] = {0};
    void *args[] = {x, y};
    entry.kernel(NULL, args);
    dlclose(object);
    return y[0];
}

static char *entry_of(const struct glm_kernel_build *b)
{
    char *entry = strdup(b->path);
    *strrchr(entry, '/') = '\0';
    return entry;
}

static void equal_kernels_are_built_once_and_run(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(build(f), GLM_OK);
    assert_int_equal(f->n_progress, 2);
    assert_int_equal(f->last_total, 2);
    assert_string_equal(f->builds[0].name, "three");
    assert_string_equal(f->builds[0].digest, f->builds[2].digest);
    assert_string_equal(f->builds[0].path, f->builds[2].path);
    assert_string_not_equal(f->builds[0].digest, f->builds[1].digest);
    assert_true(f->builds[0].compiled);
    assert_true(run_built(f->builds[0].path) == 15.0f);
    assert_true(run_built(f->builds[1].path) == 5.0f);
}

static void a_cancelled_build_keeps_what_is_done_and_leaves_no_stage(void **state)
{
    struct fixture *f = *state;
    struct arena none;
    const char *cache;
    arena_init(&none, 1024 * 1024);
    f->cancel = true;
    assert_int_equal(build(f), GLM_ECANCELED);
    assert_int_equal(f->n_progress, 1);
    assert_int_equal(glm_cache_open(&none, &cache, &f->err), GLM_OK);
    DIR *dir = opendir(cache);
    assert_non_null(dir);
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        assert_int_not_equal(strncmp(e->d_name, ".stage.", 7), 0);
    closedir(dir);
    f->cancel = false;
    assert_int_equal(build(f), GLM_OK);
    assert_true(f->n_progress <= 1);
    arena_release(&none);
}

static void a_warm_start_compiles_nothing(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(build(f), GLM_OK);
    const char *first = f->builds[1].path;
    assert_int_equal(build(f), GLM_OK);
    assert_int_equal(f->n_progress, 0);
    for (int i = 0; i < 3; i++)
        assert_false(f->builds[i].compiled);
    assert_string_equal(f->builds[1].path, first);
}

static void entry_holds_all_it_was_built_from_and_no_other_may_write_it(void **state)
{
    static const char *const files[] = {"kernel.c",   "prelude.h",   "deeper.h",
                                        "kernel.log", "params.json", "kernel.so"};
    struct fixture *f = *state;
    mode_t old = umask(0);
    assert_int_equal(build(f), GLM_OK);
    umask(old);
    char *entry = entry_of(&f->builds[0]);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct stat st;
        assert_int_equal(stat(folder_path(entry, files[i]), &st), 0);
        assert_int_equal(st.st_mode & 077, 0);
    }
    char *params = folder_read(entry, "params.json", NULL);
    assert_non_null(strstr(params, "\"template\": \"scale\""));
    assert_non_null(strstr(params, "-ffp-contract=off"));
    assert_non_null(strstr(params, "\"N\": 64"));
    free(params);
    assert_int_equal(glm_kernel_verify(f->builds[0].path, f->builds[0].digest, &f->err), GLM_OK);
    free(entry);
}

static void a_tampered_object_is_built_again(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(build(f), GLM_OK);
    char *entry = entry_of(&f->builds[0]);
    folder_write(entry, "kernel.so", "not what was built");
    assert_int_equal(glm_kernel_verify(f->builds[0].path, f->builds[0].digest, &f->err),
                     GLM_EKERNEL);
    assert_non_null(strstr(f->err.message, "recorded digests"));
    assert_int_equal(build(f), GLM_OK);
    assert_true(f->builds[0].compiled);
    assert_false(f->builds[1].compiled);
    assert_true(run_built(f->builds[0].path) == 15.0f);
    free(entry);
}

static void a_damaged_params_file_is_built_again(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(build(f), GLM_OK);
    char *entry = entry_of(&f->builds[1]);
    folder_write(entry, "params.json", "{\"digest\":");
    assert_int_equal(build(f), GLM_OK);
    assert_false(f->builds[0].compiled);
    assert_true(f->builds[1].compiled);
    free(entry);
}

static void a_group_writable_entry_is_refused_with_the_rm_to_run(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(build(f), GLM_OK);
    char *entry = entry_of(&f->builds[0]);
    assert_int_equal(chmod(entry, 0770), 0);
    assert_int_equal(build(f), GLM_EKERNEL);
    assert_non_null(strstr(f->err.message, entry));
    assert_non_null(strstr(f->err.message, "0770"));
    assert_non_null(strstr(f->err.hint, "rm -r"));
    assert_int_equal(chmod(entry, 0700), 0);
    assert_int_equal(chmod(folder_path(entry, "kernel.so"), 0602), 0);
    assert_int_equal(build(f), GLM_EKERNEL);
    assert_non_null(strstr(f->err.message, "kernel.so"));
    assert_int_equal(chmod(folder_path(entry, "kernel.so"), 0600), 0);
    assert_int_equal(build(f), GLM_OK);
    free(entry);
}

static void a_group_writable_cache_is_refused(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(chmod(f->toy.cache, 0777), 0);
    assert_int_equal(build(f), GLM_EKERNEL);
    assert_non_null(strstr(f->err.message, f->toy.cache));
}

static void an_entry_of_another_user_is_refused(void **state)
{
    struct fixture *f = *state;
    if (geteuid() != 0)
        skip(); /* only root can give files away */
    assert_int_equal(build(f), GLM_OK);
    char *entry = entry_of(&f->builds[0]);
    assert_int_equal(chown(folder_path(entry, "kernel.so"), 12345, 12345), 0);
    assert_int_equal(build(f), GLM_EKERNEL);
    assert_non_null(strstr(f->err.message, "user 12345"));
    assert_int_equal(chown(entry, 12345, 12345), 0);
    assert_int_equal(build(f), GLM_EKERNEL);
    free(entry);
}

static void a_link_in_an_entry_is_refused(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(build(f), GLM_OK);
    char *entry = entry_of(&f->builds[0]);
    assert_int_equal(unlink(f->builds[0].path), 0);
    assert_int_equal(symlink(f->builds[1].path, f->builds[0].path), 0);
    assert_int_equal(build(f), GLM_EKERNEL);
    assert_non_null(strstr(f->err.message, "not a plain file"));
    free(entry);
}

static void a_compiler_error_names_the_templates_own_line(void **state)
{
    struct fixture *f = *state;
    toy_release(&f->toy);
    toy_init(&f->toy, "#include \"prelude.h\"\n\nint broken = no_such_thing;\n");
    assert_int_equal(build(f), GLM_EKERNEL);
    assert_non_null(strstr(f->err.message, "kernels-templates/scale.c:3:"));
    assert_non_null(strstr(f->err.message, "no_such_thing"));
    assert_non_null(strstr(f->err.hint, ".failed"));
}

static void a_missing_header_is_named(void **state)
{
    struct fixture *f = *state;
    toy_release(&f->toy);
    toy_init(&f->toy, " # include \"absent.h\"\n");
    assert_int_equal(build(f), GLM_EKERNEL);
    assert_non_null(strstr(f->err.message, "'absent.h', which is no template file"));
}

static void origins_do_not_make_another_object(void **state)
{
    struct fixture *f = *state;
    struct glm_plan_param params[] = {{.name = "N", .value = 64, .origin = "somewhere else"},
                                      {.name = "FACTOR", .text = "3", .origin = ""},
                                      {.name = "FORM", .text = "plain", .origin = ""}};
    struct glm_plan_kernel kernels[] = {f->toy.plan.kernels[0], {"elsewhere", "scale", params, 3}};
    f->toy.plan.kernels = kernels;
    f->toy.plan.n_kernels = 2;
    assert_int_equal(build(f), GLM_OK);
    assert_int_equal(f->last_total, 1);
    assert_string_equal(f->builds[0].digest, f->builds[1].digest);
}

static void flags_and_compiler_decide_the_digest(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(build(f), GLM_OK);
    const struct glm_kernel_build *plain = f->builds;
    setenv("GLM_HOST_CFLAGS", "-DUNUSED=1  -g0", 1);
    assert_int_equal(build(f), GLM_OK);
    assert_string_not_equal(plain[0].digest, f->builds[0].digest);
    assert_true(f->builds[0].compiled);
}

static void a_missing_compiler_is_named(void **state)
{
    struct fixture *f = *state;
    setenv("GLM_HOST_CC", "no-such-compiler -x", 1);
    assert_int_equal(build(f), GLM_EKERNEL);
    assert_non_null(strstr(f->err.message, "'no-such-compiler'"));
    assert_non_null(strstr(f->err.hint, "GLM_HOST_CC"));
}

static void a_target_that_no_back_end_takes_is_refused_with_those_there_are(void **state)
{
    static const char *const others[] = {"sparc", "sm_86",   "sm_121ab",
                                         "sm_",   "sm_0121", "x86-64-v5"};
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        f->toy.plan.target = others[i];
        assert_int_equal(build(f), GLM_EKERNEL);
        assert_non_null(strstr(f->err.message, others[i]));
        assert_non_null(strstr(f->err.message, "x86-64-v3"));
        assert_non_null(strstr(f->err.message, "sm_121a"));
    }
}

static void processes_that_race_all_get_the_kernels(void **state)
{
    struct fixture *f = *state;
    pid_t pids[4];
    for (int i = 0; i < 4; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            _exit(build(f) == GLM_OK ? 0 : 1);
    }
    for (int i = 0; i < 4; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(build(f), GLM_OK);
    assert_false(f->builds[0].compiled);
    assert_true(run_built(f->builds[0].path) == 15.0f);
}

static void verify_wants_the_entry_of_the_digest(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(build(f), GLM_OK);
    assert_int_equal(glm_kernel_verify(f->builds[0].path, f->builds[1].digest, &f->err),
                     GLM_EKERNEL);
    f->err = (struct glm_error){0};
    assert_int_equal(glm_kernel_verify("/kernel.so", f->builds[1].digest, &f->err), GLM_EKERNEL);
    f->err = (struct glm_error){0};
    assert_int_equal(glm_kernel_verify("", "", &f->err), GLM_EKERNEL);
}

int main(void)
{
    given_cc = given("GLM_HOST_CC");
    given_cflags = given("GLM_HOST_CFLAGS");
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(equal_kernels_are_built_once_and_run),
        CASE(a_cancelled_build_keeps_what_is_done_and_leaves_no_stage),
        CASE(a_warm_start_compiles_nothing),
        CASE(entry_holds_all_it_was_built_from_and_no_other_may_write_it),
        CASE(a_tampered_object_is_built_again),
        CASE(a_damaged_params_file_is_built_again),
        CASE(a_group_writable_entry_is_refused_with_the_rm_to_run),
        CASE(a_group_writable_cache_is_refused),
        CASE(an_entry_of_another_user_is_refused),
        CASE(a_link_in_an_entry_is_refused),
        CASE(a_compiler_error_names_the_templates_own_line),
        CASE(a_missing_header_is_named),
        CASE(origins_do_not_make_another_object),
        CASE(flags_and_compiler_decide_the_digest),
        CASE(a_missing_compiler_is_named),
        CASE(a_target_that_no_back_end_takes_is_refused_with_those_there_are),
        CASE(processes_that_race_all_get_the_kernels),
        CASE(verify_wants_the_entry_of_the_digest),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(given_cc);
    free(given_cflags);
    return failed;
}
