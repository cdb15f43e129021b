/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/base/digest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void hex_has_two_lower_case_digits_a_byte(void **state)
{
    (void)state;
    char hex[] = "what was here before";
    glm_hex("\x00\x09\x0a\x7f\x80\xff", 6, hex);
    assert_string_equal(hex, "00090a7f80ff");
    glm_hex("", 0, hex);
    assert_string_equal(hex, "");
}

/* FIPS 180-4's own examples. */
static void digests_are_sha_256(void **state)
{
    (void)state;
    char hex[65];
    assert_int_equal(glm_sha256_hex("abc", 3, hex, NULL), GLM_OK);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_int_equal(glm_sha256_hex(NULL, 0, hex, NULL), GLM_OK);
    assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hex_has_two_lower_case_digits_a_byte),
        cmocka_unit_test(digests_are_sha_256),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
