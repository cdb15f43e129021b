/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/base/arena.h"

#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void memory_is_zeroed_and_aligned(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1 << 20);
    for (size_t n = 1; n < 300; n += 7) {
        unsigned char *p = arena_alloc(&a, n);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % alignof(max_align_t), 0);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xAB, n);
    }
    arena_release(&a);
}

static void blocks_do_not_overlap(void **state)
{
    (void)state;
    struct arena a;
    enum { N = 200, BYTES = 3000 };
    unsigned char *parts[N];
    arena_init(&a, 4 << 20);
    for (size_t i = 0; i < N; i++) {
        parts[i] = arena_alloc(&a, BYTES);
        assert_non_null(parts[i]);
        memset(parts[i], (int)i, BYTES);
    }
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < BYTES; k++)
            assert_int_equal(parts[i][k], i);
    arena_release(&a);
}

static void limit_is_kept_and_a_smaller_request_still_fits(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1000);
    assert_non_null(arena_alloc(&a, 900));
    assert_null(arena_alloc(&a, 200));
    assert_non_null(arena_alloc(&a, 64));
    assert_true(a.used_bytes <= 1000);
    arena_release(&a);
}

static void overflowing_products_are_refused(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, SIZE_MAX);
    assert_null(arena_array(&a, SIZE_MAX / 2, 3));
    assert_null(arena_alloc(&a, SIZE_MAX - 3));
    assert_null(arena_strndup(&a, "x", SIZE_MAX));
    assert_int_equal(a.used_bytes, 0);
    arena_release(&a);
}

static void texts_are_copied_and_terminated(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1 << 16);
    char source[] = "spark1:0";
    char *copy = arena_strndup(&a, source, 6);
    source[0] = 'X';
    assert_string_equal(copy, "spark1");
    assert_string_equal(arena_strdup(&a, "a b"), "a b");
    assert_string_equal(arena_printf(&a, "%s-%03d", "n", 7), "n-007");
    arena_release(&a);
}

static void release_allows_use_again(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 4096);
    assert_non_null(arena_alloc(&a, 4000));
    arena_release(&a);
    assert_non_null(arena_alloc(&a, 4000));
    arena_release(&a);
    arena_release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_zeroed_and_aligned),
        cmocka_unit_test(blocks_do_not_overlap),
        cmocka_unit_test(limit_is_kept_and_a_smaller_request_still_fits),
        cmocka_unit_test(overflowing_products_are_refused),
        cmocka_unit_test(texts_are_copied_and_terminated),
        cmocka_unit_test(release_allows_use_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
