/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL as a library that may be missing, too old or none, and the one of tests/fake. */
#include "runtime/nccl.h"
#include "tests/support/gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void refused(const char *part)
{
    struct glm_error err = {0};
    int version;
    assert_int_equal(glm_nccl_library(&version, &err), GLM_EKERNEL);
    if (strstr(err.message, part) == NULL)
        fail_msg("%s", err.message);
    assert_non_null(strstr(err.hint, "libnccl2"));
    assert_non_null(strstr(err.hint, "GLM_NCCL"));
}

static void a_missing_library_names_its_package(void **state)
{
    (void)state;
    setenv("GLM_NCCL", "/nonexistent/libnccl.so.2", 1);
    refused("/nonexistent/libnccl.so.2");
    setenv("GLM_NCCL", "libm.so.6", 1);
    refused("cannot use 'libm.so.6' as NCCL: it has no ncclGetVersion");
}

/* And does not keep a newer one from being opened. */
static void an_old_library_is_refused_with_both_versions(void **state)
{
    int version = 0;
    struct glm_error err = {0};
    setenv("GLM_NCCL", *state, 1);
    setenv("FAKE_NCCL", "version=21703", 1);
    refused("it is 2.17, needed is 2.18 or later");
    unsetenv("FAKE_NCCL");
    assert_int_equal(glm_nccl_library(&version, &err), GLM_OK);
    assert_int_equal(version, 22703);
}

static void what_nccl_says_is_passed_on(void **state)
{
    struct glm_nccl_id id;
    struct glm_nccl *n = NULL;
    struct glm_error err = {0};
    (void)state;
    assert_int_equal(glm_nccl_new_id(&id, &err), GLM_OK);
    setenv("FAKE_NCCL", "fail=ncclCommInitRank", 1);
    assert_int_equal(glm_nccl_open(&id, 0, 1, &n, &err), GLM_EKERNEL);
    assert_non_null(strstr(err.message, "NCCL cannot let this rank meet the others: invalid"));
    assert_null(n);
    unsetenv("FAKE_NCCL");
    assert_int_equal(glm_nccl_open(&id, 0, 1, &n, &err), GLM_OK);
    assert_int_equal(glm_nccl_look(n, &err), GLM_OK);
    glm_nccl_close(n);
}

int main(int argc, char **argv)
{
    (void)argc;
    test_gpu_fake(argv[0]);
    static char library[512];
    strncat(library, getenv("GLM_NCCL"), sizeof library - 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_library_names_its_package),
        cmocka_unit_test_prestate(an_old_library_is_refused_with_both_versions, library),
        cmocka_unit_test(what_nccl_says_is_passed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
