/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/base/nearest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void edit_distance_counts_single_steps(void **state)
{
    (void)state;
    assert_int_equal(edit_distance("abc", "abc"), 0);
    assert_int_equal(edit_distance("abc", "ab"), 1);
    assert_int_equal(edit_distance("abc", "xabc"), 1);
    assert_int_equal(edit_distance("abc", "acb"), 1); /* swapped neighbours */
    assert_int_equal(edit_distance("kitten", "sitting"), 3);
    assert_int_equal(edit_distance("", "abcd"), 4);
}

static void a_name_too_long_is_near_to_nothing(void **state)
{
    (void)state;
    char name[80];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    const char *const names[] = {"a", "aaaa"};
    assert_int_equal(edit_distance(name, "a"), 64);
    assert_null(nearest_name(name, names, 2));
}

static void nearest_name_offers_what_may_have_been_meant_and_else_nothing(void **state)
{
    (void)state;
    static const char *const names[] = {"streams", "window", "ranks"};
    assert_string_equal(nearest_name("stream", names, 3), "streams");
    assert_string_equal(nearest_name("rnaks", names, 3), "ranks");
    assert_string_equal(nearest_name("WINDOW", names, 3), "window");
    assert_null(nearest_name("xyzzy", names, 3));
    assert_null(nearest_name("streams", names, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edit_distance_counts_single_steps),
        cmocka_unit_test(a_name_too_long_is_near_to_nothing),
        cmocka_unit_test(nearest_name_offers_what_may_have_been_meant_and_else_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
