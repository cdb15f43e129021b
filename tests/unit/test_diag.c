/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/base/diag.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct fixture {
    struct arena arena;
    struct diag_list list;
    struct buf out;
};

static int set_up(void **state)
{
    static struct fixture f;
    arena_init(&f.arena, 1 << 20);
    diag_list_init(&f.list, &f.arena);
    f.out = (struct buf){0};
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    buf_release(&f->out);
    arena_release(&f->arena);
    return 0;
}

/* Names from checkpoints and peers end up in messages and on terminals. */
static void messages_hold_no_control_characters(void **state)
{
    struct fixture *f = *state;
    struct glm_error err = {0};
    glm_fail(&err, GLM_EINVAL, "cannot use '%s': two\n\tlines", "a\033[2J\rb\177\xC3\xA9");
    assert_string_equal(err.message, "cannot use 'a?[2J?b?\xC3\xA9': two\n\tlines");
    diag_add(&f->list, DIAG_ERROR, (struct src_span){0}, "x", NULL, "tensor '%s'", "\033]0;t\007");
    assert_string_equal(f->list.items[0].message, "tensor '?]0;t?'");
}

static void source(struct fixture *f, const char *text)
{
    f->list.source = text;
    f->list.source_len = strlen(text);
}

static void text_shows_place_line_caret_and_hint(void **state)
{
    struct fixture *f = *state;
    source(f, "ranks:\n  - { rank: 2, node: spark4 }\n");
    diag_add(&f->list, DIAG_ERROR, (struct src_span){"a.yaml", 2, 22, 6}, "spec.unknown-node",
             "did you mean 'spark3'?", "rank %d names node '%s'", 2, "spark4");
    diag_add(&f->list, DIAG_NOTE, (struct src_span){"a.yaml", 1, 1, 5}, NULL, NULL, "listed here");
    diag_render_text(&f->list, false, &f->out);
    assert_string_equal(buf_text(&f->out),
                        "a.yaml:2:22: error: rank 2 names node 'spark4' [spec.unknown-node]\n"
                        "     2 |   - { rank: 2, node: spark4 }\n"
                        "       |                      ^^^^^^\n"
                        "       = hint: did you mean 'spark3'?\n"
                        "a.yaml:1:1: note: listed here\n"
                        "     1 | ranks:\n"
                        "       | ^^^^^\n");
}

static void caret_counts_characters_and_keeps_tabs(void **state)
{
    struct fixture *f = *state;
    source(f, "\xC3\xA4\xE2\x82\xAC: \xF0\x9F\x98\x80\xF0\x9F\x98\x80 x\r\n\tb");
    diag_add(&f->list, DIAG_ERROR, (struct src_span){"u", 1, 5, 2}, "i", NULL, "m");
    diag_add(&f->list, DIAG_WARNING, (struct src_span){"u", 2, 2, 1}, "i", NULL, "w");
    diag_render_text(&f->list, false, &f->out);
    assert_string_equal(buf_text(&f->out),
                        "u:1:5: error: m [i]\n"
                        "     1 | \xC3\xA4\xE2\x82\xAC: \xF0\x9F\x98\x80\xF0\x9F\x98\x80 x\n"
                        "       |     ^^\n"
                        "u:2:2: warning: w [i]\n"
                        "     2 | \tb\n"
                        "       | \t^\n");
}

static void caret_past_the_end_of_a_line_is_one(void **state)
{
    struct fixture *f = *state;
    source(f, "ab");
    diag_add(&f->list, DIAG_ERROR, (struct src_span){"u", 1, 3, 9}, "i", NULL, "m");
    diag_add(&f->list, DIAG_ERROR, (struct src_span){"u", 7, 1, 1}, "i", NULL, "past the file");
    diag_render_text(&f->list, false, &f->out);
    assert_string_equal(buf_text(&f->out), "u:1:3: error: m [i]\n"
                                           "     1 | ab\n"
                                           "       |   ^\n"
                                           "u:7:1: error: past the file [i]\n");
}

static void a_file_without_a_place_shows_no_line(void **state)
{
    struct fixture *f = *state;
    source(f, "text");
    diag_add(&f->list, DIAG_ERROR, (struct src_span){.file = "m.safetensors"}, "i", NULL, "cut");
    diag_render_text(&f->list, false, &f->out);
    assert_string_equal(buf_text(&f->out), "m.safetensors: error: cut [i]\n");
}

static void twenty_are_kept_and_the_rest_counted(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 25; i++) {
        diag_add(&f->list, DIAG_ERROR, (struct src_span){.file = "f"}, "i", NULL, "e%d", i);
        if (i >= 20)
            diag_add(&f->list, DIAG_NOTE, (struct src_span){.file = "f"}, NULL, NULL, "n");
    }
    assert_int_equal(f->list.n_items, GLM_DIAG_MAX);
    assert_int_equal(f->list.n_errors, 25);
    assert_int_equal(f->list.n_dropped, 5);
    diag_render_text(&f->list, false, &f->out);
    assert_non_null(strstr(buf_text(&f->out), "e19 [i]\nand 5 more\n"));
    assert_null(strstr(buf_text(&f->out), "note"));
}

static void colour_marks_level_and_caret(void **state)
{
    struct fixture *f = *state;
    source(f, "ab");
    diag_add(&f->list, DIAG_ERROR, (struct src_span){"u", 1, 1, 1}, "i", NULL, "m");
    diag_render_text(&f->list, true, &f->out);
    assert_non_null(strstr(buf_text(&f->out), "\033[1;31merror:\033[0m m"));
    assert_non_null(strstr(buf_text(&f->out), "\033[1;31m^\033[0m\n"));
}

static void json_carries_every_field(void **state)
{
    struct fixture *f = *state;
    diag_add(&f->list, DIAG_ERROR, (struct src_span){"a.yaml", 2, 22, 6}, "spec.x", "do \"y\"",
             "m");
    diag_add(&f->list, DIAG_WARNING, (struct src_span){0}, "c.w", NULL, "w");
    diag_render_json(&f->list, &f->out);
    assert_string_equal(
        buf_text(&f->out),
        "[{\"level\":\"error\",\"id\":\"spec.x\",\"message\":\"m\",\"hint\":\"do \\\"y\\\"\","
        "\"file\":\"a.yaml\",\"line\":2,\"column\":22,\"length\":6},"
        "{\"level\":\"warning\",\"id\":\"c.w\",\"message\":\"w\",\"hint\":null,"
        "\"file\":null,\"line\":0,\"column\":0,\"length\":0}]");
}

static void long_messages_are_cut_not_lost(void **state)
{
    struct fixture *f = *state;
    char text[5000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    diag_add(&f->list, DIAG_ERROR, (struct src_span){.file = "f"}, "i", NULL, "%s", text);
    assert_int_equal(strlen(f->list.items[0].message), 2047);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(messages_hold_no_control_characters),    TEST(text_shows_place_line_caret_and_hint),
        TEST(caret_counts_characters_and_keeps_tabs), TEST(caret_past_the_end_of_a_line_is_one),
        TEST(a_file_without_a_place_shows_no_line),   TEST(twenty_are_kept_and_the_rest_counted),
        TEST(colour_marks_level_and_caret),           TEST(json_carries_every_field),
        TEST(long_messages_are_cut_not_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
