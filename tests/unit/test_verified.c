/* SPDX-License-Identifier: Apache-2.0 */
/* The register of CUDA bodies that passed on a GPU: a body counts as long as nothing that a GPU
 * runs of it has changed. */
#include "codegen/verified.h"

#include "codegen/templates.h"
#include "tests/support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fixture {
    char *first, *second; /* template folders: one is read once a process */
    struct arena arena;
    struct glm_manifest_launch launch;
    struct glm_manifest manifest;
};

static void fill(const char *folder, const char *header, const char *verified)
{
    folder_write(folder, "toy.cu", "#include \"abi.cuh\"\nbody\n");
    folder_write(folder, "abi.cuh", header);
    if (verified != NULL)
        folder_write(folder, GLM_VERIFIED_FILE, verified);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->first = folder_new();
    f->second = folder_new();
    arena_init(&f->arena, 1 << 20);
    f->launch = (struct glm_manifest_launch){"64", {"R", "1", "1"}, "0", "0", "0", "0", 1};
    f->manifest = (struct glm_manifest){.name = "toy", .launch = &f->launch};
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    folder_remove(f->first);
    folder_remove(f->second);
    unsetenv("GLM_TEMPLATES");
    arena_release(&f->arena);
    free(f);
    return 0;
}

static const char *digest(struct fixture *f, const char *folder)
{
    static char hex[65];
    struct glm_error err = {0};
    setenv("GLM_TEMPLATES", folder, 1);
    if (glm_body_digest(&f->manifest, &f->arena, hex, &err) != GLM_OK)
        fail_msg("%s", err.message);
    return hex;
}

static bool unverified(struct fixture *f, const char *folder)
{
    struct glm_error err = {0};
    bool is;
    setenv("GLM_TEMPLATES", folder, 1);
    if (glm_body_unverified(&f->manifest, &f->arena, &is, &err) != GLM_OK)
        fail_msg("%s", err.message);
    return is;
}

static void a_body_with_its_line_is_verified(void **state)
{
    struct fixture *f = *state;
    char line[200];
    fill(f->first, "// one\n", NULL);
    snprintf(line, sizeof line, "# comment\nother 00 2026-01-01 GPU\ntoy %s 2026-01-01 A GPU\n",
             digest(f, f->first));
    fill(f->second, "// one\n", line);
    assert_true(unverified(f, f->first));
    assert_false(unverified(f, f->second));
}

static void a_changed_header_or_launch_makes_it_unverified(void **state)
{
    struct fixture *f = *state;
    char line[200];
    fill(f->first, "// one\n", NULL);
    snprintf(line, sizeof line, "toy %s 2026-01-01 A GPU\n", digest(f, f->first));
    fill(f->second, "// two\n", line);
    assert_true(unverified(f, f->second));
    folder_write(f->first, GLM_VERIFIED_FILE, line);
    assert_false(unverified(f, f->first));
    f->launch.grid[0] = "2*R";
    assert_true(unverified(f, f->first));
    f->launch.grid[0] = "R";
    assert_false(unverified(f, f->first));
    f->launch.rows = "64";
    assert_true(unverified(f, f->first));
}

static void a_template_without_a_cuda_body_has_no_digest(void **state)
{
    struct fixture *f = *state;
    struct glm_error err = {0};
    char hex[65];
    setenv("GLM_TEMPLATES", f->first, 1);
    assert_int_equal(glm_body_digest(&f->manifest, &f->arena, hex, &err), GLM_EKERNEL);
    assert_string_equal(err.message, "cannot digest kernel 'toy': it has no CUDA body");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_body_with_its_line_is_verified),
        CASE(a_changed_header_or_launch_makes_it_unverified),
        CASE(a_template_without_a_cuda_body_has_no_digest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
