/* SPDX-License-Identifier: Apache-2.0 */
/* The thread team, kernel objects, linking, memory layout and weights: what stands between a plan
 * and its first round. */
#include "codegen/kernels.h"
#include "runtime/exec.h"
#include "runtime/kernel_load.h"
#include "runtime/weights.h"
#include "tests/support/folder.h"
#include "tests/support/toy_engine.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- threads ---- */

enum { MAX_TEAM = 16, PHASES = 200 };

struct phases {
    struct glm_team *team;
    uint32_t n;
    uint32_t values[2][MAX_TEAM];
    atomic_uint wrong, ran;
};

/* Each phase every thread writes its cell and, behind the barrier, checks all the others'. */
static void run_phases(void *context, uint32_t thread)
{
    struct phases *p = context;
    atomic_fetch_add(&p->ran, 1u << thread);
    for (uint32_t i = 1; i <= PHASES; i++) {
        uint32_t *cells = p->values[i % 2];
        cells[thread] = i;
        glm_team_barrier(p->team);
        for (uint32_t t = 0; t < p->n; t++)
            if (cells[t] != i)
                atomic_fetch_add(&p->wrong, 1);
    }
}

static void a_barrier_holds_back_every_thread(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 2, 3, 16};
    for (uint32_t i = 0; i < 4; i++) {
        struct phases p = {.n = sizes[i]};
        struct glm_error err = {0};
        assert_int_equal(glm_team_new(sizes[i], 0, &p.team, &err), GLM_OK);
        assert_int_equal(glm_team_threads(p.team), sizes[i]);
        for (uint32_t k = 0; k < 20; k++) {
            atomic_store(&p.ran, 0);
            glm_team_run(p.team, run_phases, &p);
            assert_int_equal(atomic_load(&p.ran), (1u << sizes[i]) - 1);
        }
        assert_int_equal(atomic_load(&p.wrong), 0);
        glm_team_free(p.team);
    }
}

static void a_resting_team_uses_no_time(void **state)
{
    (void)state;
    struct glm_team *t;
    struct glm_error err = {0};
    assert_int_equal(glm_team_new(4, 0, &t, &err), GLM_OK);
    struct timespec before, after, pause = {.tv_nsec = 200 * 1000 * 1000};
    nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    nanosleep(&pause, NULL);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    int64_t used_us =
        (after.tv_sec - before.tv_sec) * 1000000 + (after.tv_nsec - before.tv_nsec) / 1000;
    assert_true(used_us < 20000);
    glm_team_free(t);
}

static void a_team_of_no_threads_is_refused(void **state)
{
    (void)state;
    struct glm_team *t = NULL;
    struct glm_error err = {0};
    assert_int_equal(glm_team_new(0, 0, &t, &err), GLM_EINVAL);
    err = (struct glm_error){0};
    assert_int_equal(glm_team_new(GLM_MAX_THREADS + 1, 0, &t, &err), GLM_EINVAL);
    assert_null(t);
    glm_team_free(NULL);
}

/* ---- kernel objects ---- */

static void kernels_that_others_can_write_are_not_loaded(void **state)
{
    (void)state;
    char *folder = folder_new();
    struct glm_kernel_code k = {0};
    struct glm_error err = {0};
    folder_write(folder, "kernel.so", "not an object");
    const char *path = folder_path(folder, "kernel.so");
    assert_int_equal(chmod(path, 0620), 0);
    assert_int_equal(glm_kernel_load("k", path, &k, &err), GLM_EKERNEL);
    assert_non_null(strstr(err.message, "writable by others (mode 620)"));
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(chmod(folder, 0777), 0);
    err = (struct glm_error){0};
    assert_int_equal(glm_kernel_load("k", path, &k, &err), GLM_EKERNEL);
    assert_non_null(strstr(err.message, "(mode 777)"));
    assert_int_equal(chmod(folder, 0700), 0);
    err = (struct glm_error){0};
    assert_int_equal(glm_kernel_load("k", path, &k, &err), GLM_EKERNEL);
    assert_non_null(strstr(err.message, "cannot load kernel 'k'"));
    err = (struct glm_error){0};
    assert_int_equal(glm_kernel_load("k", "kernel.so", &k, &err), GLM_EKERNEL);
    assert_non_null(strstr(err.message, "names no folder"));
    err = (struct glm_error){0};
    assert_int_equal(glm_kernel_load("k", folder_path(folder, "absent.so"), &k, &err), GLM_EKERNEL);
    assert_null(k.handle);
    folder_remove(folder);
}

static void assert_not_loaded(const char *path, const char *says)
{
    struct glm_kernel_code k = {0};
    struct glm_error err = {0};
    assert_int_equal(glm_kernel_load("k", path, &k, &err), GLM_EKERNEL);
    if (!strstr(err.message, says))
        fail_msg("'%s' does not say '%s'", err.message, says);
    assert_null(k.handle);
}

static void compile_object(const char *folder, const char *name, const char *source)
{
    char command[1024];
    folder_write(folder, "k.c", source);
    snprintf(command, sizeof command, "%s -shared -fPIC -o %s/%s %s/k.c",
             getenv("GLM_HOST_CC") ? getenv("GLM_HOST_CC") : "cc", folder, name, folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(chmod(folder_path(folder, name), 0700), 0);
}

static void kernels_that_others_can_put_there_are_not_loaded(void **state)
{
    (void)state;
    char *holder = folder_new();
    char folder[512], path[600], link[600];
    struct glm_kernel_code k = {0};
    struct glm_error err = {0};
    snprintf(folder, sizeof folder, "%s/entry", holder);
    snprintf(path, sizeof path, "%s/kernel.so", folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    compile_object(folder, "kernel.so",
                   "const unsigned glm_kernel_abi = 1; void glm_kernel(void); "
                   "void glm_kernel(void) {}");
    /* Whoever may write to the holder may rename the entry away and put another in its place. */
    assert_int_equal(chmod(holder, 0770), 0);
    assert_not_loaded(path, "is writable by others (mode 770)");
    assert_int_equal(chmod(holder, 01777), 0);
    assert_int_equal(glm_kernel_load("k", path, &k, &err), GLM_OK);
    glm_kernel_unload(&k);
    /* A link may come to point elsewhere. */
    snprintf(link, sizeof link, "%s/link.so", folder);
    assert_int_equal(symlink("kernel.so", link), 0);
    assert_not_loaded(link, "it is a symbolic link");
    assert_int_equal(symlink("entry", folder_path(holder, "link")), 0);
    snprintf(link, sizeof link, "%s/link/kernel.so", holder);
    assert_not_loaded(link, "cannot load kernel 'k' from");
    /* Opening a pipe must not wait for its writer. */
    snprintf(link, sizeof link, "%s/pipe.so", folder);
    assert_int_equal(mkfifo(link, 0600), 0);
    assert_not_loaded(link, "is not a file");
    if (geteuid() == 0) { /* only root can give files away */
        assert_int_equal(chown(path, 12345, 0), 0);
        assert_not_loaded(path, "belongs to user 12345");
        assert_int_equal(chown(path, 0, 0), 0);
        assert_int_equal(chown(folder, 12345, 0), 0);
        assert_not_loaded(path, "belongs to user 12345");
        assert_int_equal(chown(folder, 0, 0), 0);
        assert_int_equal(chown(holder, 12345, 0), 0);
        assert_not_loaded(path, "belongs to user 12345");
    }
    folder_remove(holder);
}

/* What was loaded from a path is not answered for another object that is there later. */
static void objects_are_told_apart_by_their_folder(void **state)
{
    (void)state;
    char *folders[2] = {folder_new(), folder_new()};
    struct glm_kernel_code k[2] = {{0}, {0}};
    struct glm_error err = {0};
    for (int i = 0; i < 2; i++) {
        compile_object(folders[i], "kernel.so",
                       i == 0 ? "const unsigned glm_kernel_abi = 1; const int own = 0; "
                                "void glm_kernel(void); void glm_kernel(void) {}"
                              : "const unsigned glm_kernel_abi = 1; const int own = 1; "
                                "void glm_kernel(void); void glm_kernel(void) {}");
        assert_int_equal(glm_kernel_load("k", folder_path(folders[i], "kernel.so"), &k[i], &err),
                         GLM_OK);
    }
    for (int i = 0; i < 2; i++) {
        const int *own = dlsym(k[i].handle, "own");
        assert_non_null(own);
        assert_int_equal(*own, i);
        glm_kernel_unload(&k[i]);
        folder_remove(folders[i]);
    }
}

static void a_kernel_of_another_abi_is_not_loaded(void **state)
{
    (void)state;
    static const struct {
        const char *source, *says;
    } cases[] = {
        {"const unsigned glm_kernel_abi = 99; void glm_kernel(void); void glm_kernel(void) {}",
         "found ABI version 99, want 1"},
        {"void glm_kernel(void); void glm_kernel(void) {}", "no symbol 'glm_kernel_abi'"},
        {"const unsigned glm_kernel_abi = 1;", "no symbol 'glm_kernel'"},
    };
    char *folder = folder_new();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char name[32];
        snprintf(name, sizeof name, "k%zu.so", i);
        compile_object(folder, name, cases[i].source);
        assert_not_loaded(folder_path(folder, name), cases[i].says);
    }
    folder_remove(folder);
}

/* ---- linking ---- */

/* Opens a toy plan that a test has spoilt; the error must say `says`. */
static void check_unlinkable(struct toy_engine *t, const char *says)
{
    struct arena arena;
    struct glm_kernel_build *builds;
    struct glm_error err = {0};
    const char *paths[8];
    struct glm_engine *e = NULL;
    arena_init(&arena, 64 << 20);
    pico_environment();
    if (glm_kernels_build(&t->plans[0], 2, &arena, NULL, NULL, &builds, &err) != GLM_OK)
        fail_msg("%s", err.message);
    for (uint32_t i = 0; i < t->plans[0].n_kernels; i++)
        paths[i] = builds[i].path;
    struct glm_engine_config config = {.plan = &t->plans[0], .kernel_paths = paths, .n_threads = 1};
    assert_int_equal(glm_engine_open(&config, &e, &err), GLM_EPLAN);
    assert_null(e);
    if (!strstr(err.message, says))
        fail_msg("'%s' does not say '%s'", err.message, says);
    arena_release(&arena);
}

static void programs_that_do_not_link_say_why(void **state)
{
    (void)state;
    struct toy_engine t;
    toy_engine_plan(&t, NULL);
    struct glm_plan *p = &t.plans[0];
    struct glm_plan_step *steps = p->programs[3].steps; /* sample: candidates, gather, draw */
    struct glm_plan_step good[3];
    memcpy(good, steps, sizeof good);
    static const struct {
        const char *logits, *says;
    } args[] = {
        {"nowhere", "'nowhere' is no weight, state or buffer"},
        {"logits+16", "'logits+16' is not a column below 16"},
        {"logits+x", "'logits+x' is not a column"},
        {"logits+", "'logits+' is not a column"},
        {"acc+1", "'acc+1' is not a column"},
        {"-", "kernel 'candidates' lacks argument 'logits'"},
        {"layers.8.rows", "'layers.8.rows' is no weight, state or buffer"},
    };
    for (size_t i = 0; i < sizeof args / sizeof args[0]; i++) {
        struct glm_plan_arg spoilt[3] = {
            {"logits", args[i].logits}, {"ends", "ends"}, {"cand", "cand"}};
        steps[0].args = spoilt;
        check_unlinkable(&t, args[i].says);
    }
    struct glm_plan_arg unknown[4] = {
        {"logits", "logits"}, {"ends", "ends"}, {"cand", "cand"}, {"extra", "cand"}};
    steps[0].args = unknown;
    steps[0].n_args = 4;
    check_unlinkable(&t, "has 4 arguments, 3 of them known");
    steps[0].n_args = 2;
    check_unlinkable(&t, "lacks argument 'cand'");
    memcpy(steps, good, sizeof good);
    steps[1].to = "tokens";
    check_unlinkable(&t, "'cand' and 'tokens' are not whole buffers");
    steps[1].to = "cands+0";
    check_unlinkable(&t, "are not whole buffers");
    memcpy(steps, good, sizeof good);
    steps[1].kind = GLM_STEP_SUM;
    check_unlinkable(&t, "that a sum over 1 ranks fits");
    memcpy(steps, good, sizeof good);
    steps[0].name = "absent";
    check_unlinkable(&t, "the plan has no kernel 'absent'");
    memcpy(steps, good, sizeof good);
    toy_engine_close(&t);
}

static void limits_that_cannot_run_are_refused(void **state)
{
    (void)state;
    struct toy_engine t;
    toy_engine_plan(&t, NULL);
    struct glm_plan *p = &t.plans[0];
    const struct glm_plan_limits good = p->limits;
    p->limits.n_streams = 0;
    check_unlinkable(&t, "0 streams");
    p->limits = good;
    p->limits.n_slots = 1;
    check_unlinkable(&t, "in 1 slots");
    p->limits = good;
    p->limits.verify_rows = 17;
    check_unlinkable(&t, "17 verify rows");
    p->limits = good;
    p->limits.prefill_rows = 100;
    check_unlinkable(&t, "100 prefill rows");
    p->limits = good;
    p->limits.pool_tokens = 1000;
    check_unlinkable(&t, "a pool of 1000 tokens");
    p->limits = good;
    p->n_programs = 2; /* no commit, though a state is replayed */
    check_unlinkable(&t, "there is no program 'commit'");
    toy_engine_close(&t);
}

/* ---- memory ---- */

/* What the engine lays out, of the plan's memory: the process and what it exchanges are beside it.
 */
static uint64_t planned_layout(const struct glm_plan *p)
{
    static const char *const beside[] = {"exchanges", "process", "requests"};
    uint64_t bytes = glm_plan_total_bytes(p);
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_memory; i++)
        for (size_t k = 0; k < sizeof beside / sizeof beside[0]; k++)
            if (strcmp(p->memory[i].part, beside[k]) == 0) {
                bytes -= p->memory[i].bytes;
                n++;
            }
    assert_int_equal(n, sizeof beside / sizeof beside[0]);
    return bytes;
}

static void memory_is_what_the_plan_says(void **state)
{
    (void)state;
    for (uint32_t world = 1; world <= 3; world += 2) {
        struct pico *p = pico_open(&(struct pico_options){.world = world});
        for (uint32_t r = 0; r < world; r++) {
            const struct glm_plan *plan = pico_plan(p, r);
            uint64_t laid_out = glm_engine_stats(pico_engine(p, r)).memory_bytes;
            uint64_t planned = planned_layout(plan);
            print_message("    rank %u of %u: laid out %llu, planned %llu bytes\n", r, world,
                          (unsigned long long)laid_out, (unsigned long long)planned);
            assert_true(laid_out <= planned + planned / 100);
            assert_true(planned <= laid_out + laid_out / 20);
        }
        pico_close(p);
    }
}

/* ---- weights ---- */

static void copy_file(const char *from_folder, const char *to_folder, const char *file)
{
    char path[512];
    struct buf bytes = {0};
    struct glm_error err = {0};
    snprintf(path, sizeof path, "%s/%s", from_folder, file);
    if (glm_file_read(path, 64 << 20, &bytes, &err) != GLM_OK)
        fail_msg("%s", err.message);
    if (glm_file_write(folder_path(to_folder, file), bytes.data, bytes.len, 0600, &err) != GLM_OK)
        fail_msg("%s", err.message);
    buf_release(&bytes);
}

struct touch {
    const char *path;
    bool done;
};

static void touch_file(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    struct touch *t = context;
    assert_true(done_bytes <= total_bytes);
    if (t->path && !t->done) {
        struct timespec times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
        assert_int_equal(utimensat(AT_FDCWD, t->path, times, 0), 0);
        t->done = true;
    }
}

/* A copy of the demo checkpoint whose file changes at some moment; the plan is that of a set that
 * was opened on the original. */
static enum glm_status open_copy(const struct pico *p, const char *folder, uint32_t how,
                                 struct glm_error *err)
{
    struct arena arena;
    struct diag_list diags;
    struct glm_checkpoint *c = NULL;
    struct glm_engine *e = NULL;
    copy_file("clusters/demo/exl3", folder, "config.json");
    copy_file("clusters/demo/exl3", folder, "generation_config.json");
    copy_file("clusters/demo/exl3", folder, "model.safetensors");
    arena_init(&arena, 256 << 20);
    diag_list_init(&diags, &arena);
    assert_int_equal(glm_checkpoint_open(folder, &arena, &diags, &c), GLM_OK);
    const char *path = folder_path(folder, "model.safetensors");
    struct touch touch = {.path = how == 2 ? path : NULL};
    if (how == 0)
        assert_int_equal(truncate(path, 20 << 20), 0);
    if (how == 1)
        assert_int_equal(unlink(path), 0);
    struct glm_engine_config config = {.plan = pico_plan(p, 0),
                                       .checkpoint = c,
                                       .kernel_paths = pico_kernels(p, 0),
                                       .n_threads = 2,
                                       .progress = touch_file,
                                       .progress_context = &touch};
    enum glm_status st = glm_engine_open(&config, &e, err);
    glm_engine_free(e);
    arena_release(&arena);
    return st;
}

static void weight_files_that_change_are_refused(void **state)
{
    (void)state;
    static const char *const says[] = {"it changed since the plan, found 20971520 bytes",
                                       "cannot open", "it changed while it was read"};
    struct pico *p = pico_open(NULL);
    for (uint32_t how = 0; how < 4; how++) {
        struct glm_error err = {0};
        char *folder = folder_new();
        enum glm_status st = open_copy(p, folder, how, &err);
        assert_int_equal(st, how < 3 ? GLM_ECHECKPOINT : GLM_OK);
        if (how < 3 && !strstr(err.message, says[how]))
            fail_msg("'%s' does not say '%s'", err.message, says[how]);
        folder_remove(folder);
    }
    pico_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_barrier_holds_back_every_thread),
        cmocka_unit_test(a_resting_team_uses_no_time),
        cmocka_unit_test(a_team_of_no_threads_is_refused),
        cmocka_unit_test(kernels_that_others_can_write_are_not_loaded),
        cmocka_unit_test(kernels_that_others_can_put_there_are_not_loaded),
        cmocka_unit_test(objects_are_told_apart_by_their_folder),
        cmocka_unit_test(a_kernel_of_another_abi_is_not_loaded),
        cmocka_unit_test(programs_that_do_not_link_say_why),
        cmocka_unit_test(limits_that_cannot_run_are_refused),
        cmocka_unit_test(memory_is_what_the_plan_says),
        cmocka_unit_test(weight_files_that_change_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
