/* SPDX-License-Identifier: Apache-2.0 */
/* A spec's names, read alone. */
#include "spec/cluster.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct fixture {
    struct arena arena;
    struct diag_list diags;
    struct glm_cluster *c;
    enum glm_status status;
};

static void outline(struct fixture *f, const char *text)
{
    arena_init(&f->arena, 16 << 20);
    diag_list_init(&f->diags, &f->arena);
    f->c = NULL;
    f->status = glm_cluster_outline("spec.yaml", text, strlen(text), &f->arena, &f->diags, &f->c);
}

static void names_are_read_of_a_spec_that_is_wrong_elsewhere(void **state)
{
    (void)state;
    struct fixture f;
    outline(&f, "name: demo\nmodel: { checkpoint: /nowhere }\nnodes: 7\nwhat: is this\n"
                "lanes:\n  - { name: a, streams: 900, ranks: [x, y] }\n"
                "  - { name: b, default: true, ranks: [x] }\n");
    assert_int_equal(f.status, GLM_OK);
    assert_int_equal(f.diags.n_items, 0);
    assert_string_equal(f.c->name, "demo");
    assert_int_equal(f.c->n_lanes, 2);
    assert_string_equal(f.c->lanes[0].name, "a");
    assert_int_equal(f.c->lanes[0].n_ranks, 2);
    assert_false(f.c->lanes[0].is_default);
    assert_string_equal(f.c->lanes[1].name, "b");
    assert_true(f.c->lanes[1].is_default);
    arena_release(&f.arena);
}

static void a_lane_without_a_valid_name_is_left_out_and_a_single_one_is_the_default(void **state)
{
    (void)state;
    struct fixture f;
    outline(&f, "name: demo\nlanes:\n  - { ranks: [x] }\n  - { name: ../../etc }\n"
                "  - { name: good }\n");
    assert_int_equal(f.status, GLM_OK);
    assert_int_equal(f.c->n_lanes, 1);
    assert_string_equal(f.c->lanes[0].name, "good");
    assert_true(f.c->lanes[0].is_default);
    arena_release(&f.arena);
}

/* Names become folders: a bad one must never be used. */
static void a_spec_without_usable_names_is_refused_with_its_diagnostics(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "name: demo\n",
        "name: ../demo\nlanes: [{ name: a }]\n",
        "lanes: [{ name: a }]\n",
        "name: demo\nlanes: [{ name: 'a/b' }]\n",
        "name: demo\nlanes: a\n",
        "- name: demo\n",
        "name: [\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct fixture f;
        outline(&f, texts[i]);
        assert_int_equal(f.status, GLM_ESPEC);
        assert_null(f.c);
        assert_true(f.diags.n_errors > 0);
        assert_string_equal(f.diags.items[0].at.file, "spec.yaml");
        arena_release(&f.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_read_of_a_spec_that_is_wrong_elsewhere),
        cmocka_unit_test(a_lane_without_a_valid_name_is_left_out_and_a_single_one_is_the_default),
        cmocka_unit_test(a_spec_without_usable_names_is_refused_with_its_diagnostics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
