/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void claims_the_lowest_free_extents_first(void **state)
{
    (void)state;
    uint16_t counts[5];
    struct glm_pool p;
    int32_t a[3], b[2];
    glm_pool_init(&p, counts, 5);
    assert_true(glm_pool_claim(&p, 3, a));
    assert_int_equal(a[0], 0);
    assert_int_equal(a[2], 2);
    glm_pool_drop(&p, 1);
    assert_int_equal(p.n_free, 3);
    assert_true(glm_pool_claim(&p, 2, b));
    assert_int_equal(b[0], 1);
    assert_int_equal(b[1], 3);
    assert_int_equal(p.n_free, 1);
}

static void claims_all_or_nothing(void **state)
{
    (void)state;
    uint16_t counts[3];
    struct glm_pool p;
    int32_t a[4] = {-1, -1, -1, -1};
    glm_pool_init(&p, counts, 3);
    assert_false(glm_pool_claim(&p, 4, a));
    assert_int_equal(a[0], -1);
    assert_int_equal(p.n_free, 3);
    assert_true(glm_pool_claim(&p, 3, a));
    assert_false(glm_pool_claim(&p, 1, a));
    assert_true(glm_pool_claim(&p, 0, a));
}

static void frees_a_shared_extent_with_its_last_holder(void **state)
{
    (void)state;
    uint16_t counts[2];
    struct glm_pool p;
    int32_t a[2];
    glm_pool_init(&p, counts, 2);
    assert_true(glm_pool_claim(&p, 1, a));
    glm_pool_share(&p, a[0]);
    glm_pool_drop(&p, a[0]);
    assert_int_equal(p.n_free, 1);
    glm_pool_drop(&p, a[0]);
    assert_int_equal(p.n_free, 2);
}

static void a_copy_goes_its_own_way(void **state)
{
    (void)state;
    uint16_t counts[4], copied[4];
    struct glm_pool p, copy;
    int32_t a[4];
    glm_pool_init(&p, counts, 4);
    glm_pool_init(&copy, copied, 4);
    assert_true(glm_pool_claim(&p, 1, a));
    glm_pool_copy(&copy, &p);
    assert_true(glm_pool_claim(&copy, 3, a));
    assert_int_equal(copy.n_free, 0);
    assert_int_equal(p.n_free, 3);
    assert_int_equal(counts[1], 0);
}

static void a_pool_of_nothing_gives_nothing(void **state)
{
    (void)state;
    uint16_t counts[1];
    struct glm_pool p;
    int32_t a[1];
    glm_pool_init(&p, counts, 0);
    assert_false(glm_pool_claim(&p, 1, a));
    assert_true(glm_pool_claim(&p, 0, a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(claims_the_lowest_free_extents_first),
        cmocka_unit_test(claims_all_or_nothing),
        cmocka_unit_test(frees_a_shared_extent_with_its_last_holder),
        cmocka_unit_test(a_copy_goes_its_own_way),
        cmocka_unit_test(a_pool_of_nothing_gives_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
