/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/yaml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct fixture {
    struct arena arena;
    struct diag_list diags;
    struct yaml_node *root;
};

static int set_up(void **state)
{
    static struct fixture f;
    f = (struct fixture){0};
    arena_init(&f.arena, 16 << 20);
    diag_list_init(&f.diags, &f.arena);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    arena_release(&f->arena);
    return 0;
}

static enum glm_status parse(struct fixture *f, const char *text)
{
    return yaml_read("t.yaml", text, strlen(text), &f->arena, &f->diags, &f->root);
}

static void every_node_keeps_its_span_in_characters(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(parse(f, "name: \"\xC3\xA4\xC3\xB6\"\nlist:\n  - [a, {k: \xE2\x82\xAC"
                              "v}]\n"),
                     GLM_OK);
    const struct yaml_node *name = yaml_get(f->root, "name");
    assert_string_equal(name->text, "\xC3\xA4\xC3\xB6");
    assert_true(name->quoted);
    assert_int_equal(name->at.line, 1);
    assert_int_equal(name->at.col, 7);
    assert_int_equal(name->at.len, 4); /* with its quotes */
    assert_int_equal(name->key_at.col, 1);
    assert_int_equal(name->key_at.len, 4);
    const struct yaml_node *inner = yaml_get(f->root, "list")->first;
    assert_int_equal(inner->shape, YAML_LIST);
    assert_int_equal(inner->n_items, 2);
    assert_int_equal(inner->at.line, 3);
    assert_int_equal(inner->at.col, 5);
    assert_int_equal(inner->at.len, 12); /* the whole of "[a, {k: ..}]" */
    assert_int_equal(yaml_get(f->root, "list")->at.len, 1);
    const struct yaml_node *k = yaml_get(inner->first->next, "k");
    assert_int_equal(k->at.line, 3);
    assert_int_equal(k->at.col, 13);
    assert_int_equal(k->at.len, 2);
    assert_false(k->quoted);
    assert_string_equal(k->at.file, "t.yaml");
}

static void block_text_spans_its_first_line(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(parse(f, "a: |\n  one\n  two\nb: x\n"), GLM_OK);
    const struct yaml_node *a = yaml_get(f->root, "a");
    assert_string_equal(a->text, "one\ntwo\n");
    assert_true(a->quoted);
    assert_int_equal(a->at.line, 1);
    assert_int_equal(a->at.len, 1);
    assert_int_equal(yaml_get(f->root, "b")->at.line, 4);
}

static void missing_keys_and_other_shapes_have_no_member(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(parse(f, "a: 1\n"), GLM_OK);
    assert_null(yaml_get(f->root, "b"));
    assert_null(yaml_get(yaml_get(f->root, "a"), "a"));
    assert_null(yaml_get(NULL, "a"));
}

static void rejects_duplicate_keys_with_both_lines(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(parse(f, "a: 1\nb: 2\na: 3\n"), GLM_ESPEC);
    assert_int_equal(f->diags.n_errors, 1);
    assert_string_equal(f->diags.items[0].id, "spec.duplicate-key");
    assert_string_equal(f->diags.items[0].message, "key 'a' stands on line 1 and again on line 3");
    assert_int_equal(f->diags.items[0].at.line, 3);
    assert_non_null(f->root); /* the rest can still be checked */
}

static void the_same_key_in_two_maps_is_fine(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(parse(f, "a: {x: 1}\nb: {x: 2, y: {x: 3}}\n"), GLM_OK);
}

static void anchors_and_tags_are_all_found_in_one_run(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(parse(f, "a: &x 1\nb: !!str 2\nc: &y [1]\nd: !z {k: v}\n"), GLM_ESPEC);
    static const char *const ids[] = {"spec.anchor", "spec.tag", "spec.anchor", "spec.tag"};
    assert_int_equal(f->diags.n_items, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_string_equal(f->diags.items[i].id, ids[i]);
        assert_int_equal(f->diags.items[i].at.line, i + 1);
    }
}

static const struct {
    const char *text, *id;
    uint32_t line;
} bad[] = {
    {"", "spec.empty", 1},
    {"# only a comment\n", "spec.empty", 1},
    {"a: *x\n", "spec.alias", 1},
    {"a: 1\n---\nb: 2\n", "spec.documents", 2},
    {"%TAG ! tag:x,2020:\n---\na: 1\n", "spec.tag", 1},
    {"? [a, b]\n: c\n", "spec.key-not-text", 1},
    {"? {a: b}\n: c\n", "spec.key-not-text", 1},
    {"a: [1, 2\nb: 3\n", "spec.syntax", 2},
    {"a:\n\t- b\n", "spec.syntax", 2},
    {"a: 'x\n", "spec.syntax", 2},
    {"a: b: c\n", "spec.syntax", 1},
    {"a: \"\\0\"\n", "spec.encoding", 1},
    {"\"\\0\": 1\n", "spec.encoding", 1},
    {"a: 1\nb: \xFF\n", "spec.encoding", 2},
    {"a: \xC0\x80\n", "spec.encoding", 1},
    {"a: \xED\xA0\x80\n", "spec.encoding", 1},
    {"a: \x01\n", "spec.encoding", 1},
    {"[[[[[[[[[[[[[[[[[x]]]]]]]]]]]]]]]]]\n", "spec.too-deep", 1},
};

static void each_wrong_shape_has_its_own_id_and_line(void **state)
{
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        set_up(state);
        struct fixture *f = *state;
        assert_int_equal(parse(f, bad[i].text), GLM_ESPEC);
        assert_true(f->diags.n_items > 0);
        if (strcmp(f->diags.items[0].id, bad[i].id) != 0 ||
            f->diags.items[0].at.line != bad[i].line)
            fail_msg("case %zu: %s at line %u: %s", i, f->diags.items[0].id,
                     f->diags.items[0].at.line, f->diags.items[0].message);
        tear_down(state);
    }
    set_up(state);
}

static void a_nul_byte_and_a_cut_character_are_found_at_their_column(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(yaml_read("t", "ab\n\xC3\xA4\0c", 6, &f->arena, &f->diags, &f->root),
                     GLM_ESPEC);
    assert_int_equal(f->diags.items[0].at.line, 2);
    assert_int_equal(f->diags.items[0].at.col, 2);
    assert_int_equal(yaml_read("t", "\xE2\x82", 2, &f->arena, &f->diags, &f->root), GLM_ESPEC);
}

static void sixteen_levels_are_allowed(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(parse(f, "[[[[[[[[[[[[[[[[x]]]]]]]]]]]]]]]]\n"), GLM_OK);
}

static void huge_files_and_endless_lists_are_refused(void **state)
{
    struct fixture *f = *state;
    size_t len = GLM_YAML_MAX_BYTES + 1;
    char *text = malloc(len + 1);
    assert_non_null(text);
    memset(text, '#', len);
    text[len] = '\0';
    assert_int_equal(yaml_read("t", text, len, &f->arena, &f->diags, &f->root), GLM_ESPEC);
    assert_string_equal(f->diags.items[0].id, "spec.too-large");
    text[0] = '[';
    for (size_t i = 1; i < len; i++)
        text[i] = i % 2 == 1 ? 'x' : ',';
    text[len - 2] = ']';
    assert_int_equal(yaml_read("t", text, len - 1, &f->arena, &f->diags, &f->root), GLM_ESPEC);
    assert_string_equal(f->diags.items[1].id, "spec.too-large");
    free(text);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_node_keeps_its_span_in_characters),
        TEST(block_text_spans_its_first_line),
        TEST(missing_keys_and_other_shapes_have_no_member),
        TEST(rejects_duplicate_keys_with_both_lines),
        TEST(the_same_key_in_two_maps_is_fine),
        TEST(anchors_and_tags_are_all_found_in_one_run),
        TEST(each_wrong_shape_has_its_own_id_and_line),
        TEST(a_nul_byte_and_a_cut_character_are_found_at_their_column),
        TEST(sixteen_levels_are_allowed),
        TEST(huge_files_and_endless_lists_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
