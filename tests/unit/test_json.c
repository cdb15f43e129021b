/* SPDX-License-Identifier: Apache-2.0 */
/* Request JSON: what is read, what is refused and where, and printing as Python prints. */
#include "runtime/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *printed(const char *text, size_t len, bool compact)
{
    struct arena arena;
    arena_init(&arena, 1 << 20);
    struct glm_json *v = NULL;
    struct glm_error err = {0};
    if (glm_json_parse(text, len, &arena, &v, &err) != GLM_OK)
        fail_msg("%s: %s", text, err.message);
    struct buf out = {0};
    glm_json_print(v, compact, &out);
    arena_release(&arena);
    return out.data;
}

static void assert_printed(const char *text, const char *want)
{
    char *got = printed(text, strlen(text), false);
    assert_string_equal(got, want);
    free(got);
}

static void assert_refused(const char *text, size_t len, const char *want)
{
    struct arena arena;
    arena_init(&arena, 1 << 20);
    struct glm_json *v = NULL;
    struct glm_error err = {0};
    assert_int_equal(glm_json_parse(text, len, &arena, &v, &err), GLM_EINVAL);
    assert_null(v);
    if (strstr(err.message, want) == NULL)
        fail_msg("'%s' lacks '%s'", err.message, want);
    arena_release(&arena);
}

static void spells_numbers_as_python_does(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"1.50", "1.5"},
        {"1E5", "100000.0"},
        {"1e16", "1e+16"},
        {"1e15", "1000000000000000.0"},
        {"0.0000001", "1e-07"},
        {"0.0001", "0.0001"},
        {"0.00001", "1e-05"},
        {"-0", "0"},
        {"-0.0", "-0.0"},
        {"2.0", "2.0"},
        {"0e5", "0.0"},
        {"123456789012345678901234567890", "123456789012345678901234567890"},
        {"9007199254740993", "9007199254740993"},
        {"9007199254740993.0", "9007199254740992.0"},
        {"123456789.123456789", "123456789.12345679"},
        {"5e-324", "5e-324"},
        {"1.5e-323", "1.5e-323"},
        {"2.2250738585072011e-308", "2.225073858507201e-308"},
        {"1.7976931348623157e308", "1.7976931348623157e+308"},
        {"5.684341886080802e-14", "5.684341886080802e-14"}, /* 2^-44 */
        {"9.5367431640625e-07", "9.5367431640625e-07"},
        {"0.1", "0.1"},
        {"0.30000000000000004", "0.30000000000000004"},
        {"1e400", "Infinity"},
        {"-1e400", "-Infinity"},
        {"1e-400", "0.0"},
        {"-12.5e1", "-125.0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_printed(cases[i][0], cases[i][1]);
}

static void compact_printing_keeps_numbers_as_sent(void **state)
{
    (void)state;
    const char text[] = "{\"a\": [1.50, 1E5 , -0, 2.0], \"b\" : {}}";
    char *got = printed(text, sizeof text - 1, true);
    assert_string_equal(got, "{\"a\":[1.50,1E5,-0,2.0],\"b\":{}}");
    free(got);
}

static void escapes_only_what_python_escapes(void **state)
{
    (void)state;
    assert_printed("\"\\u0000\\u0001\\b\\f\\n\\r\\t\\u001f\\\"\\\\\\/\\u007f\\u2028\\u00e9\"",
                   "\"\\u0000\\u0001\\b\\f\\n\\r\\t\\u001f\\\"\\\\/\x7f\xe2\x80\xa8\xc3\xa9\"");
    assert_printed("\"\\ud83d\\ude00\"", "\"\xf0\x9f\x98\x80\"");
    assert_printed("{\"\\n\":null,\"\":[true,false]}", "{\"\\n\": null, \"\": [true, false]}");
}

static void lone_surrogates_become_the_replacement_character(void **state)
{
    (void)state;
    assert_printed("\"a\\ud83dxyz\"", "\"a\xef\xbf\xbdxyz\"");
    assert_printed("\"\\ud83d\"", "\"\xef\xbf\xbd\"");
    assert_printed("\"\\ude00\\ud83d\\n\"", "\"\xef\xbf\xbd\xef\xbf\xbd\\n\"");
    assert_printed("\"\\ud83d\\u0041\"", "\"\xef\xbf\xbd"
                                         "A\"");
    assert_printed("\"\\\\ud83d\"", "\"\\\\ud83d\"");
}

static void strings_may_hold_nul(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, 4096);
    struct glm_json *v = NULL;
    const char text[] = "\"a\\u0000b\"";
    assert_int_equal(glm_json_parse(text, sizeof text - 1, &arena, &v, NULL), GLM_OK);
    assert_int_equal(v->len, 3);
    assert_memory_equal(v->text, "a\0b", 4);
    assert_false(glm_json_is_string(v, "a"));
    arena_release(&arena);
}

static void a_repeated_key_keeps_its_first_place_and_last_value(void **state)
{
    (void)state;
    assert_printed("{\"a\":1,\"b\":2,\"a\":{\"x\":3},\"c\":4,\"a\":[5]}",
                   "{\"a\": [5], \"b\": 2, \"c\": 4}");
    assert_printed("{\"a\":1,\"a\":2}", "{\"a\": 2}");
    struct arena arena;
    arena_init(&arena, 4096);
    struct glm_json *v = NULL;
    const char text[] = "{\"k\":1,\"k\":2}";
    assert_int_equal(glm_json_parse(text, sizeof text - 1, &arena, &v, NULL), GLM_OK);
    assert_int_equal(v->n_children, 1);
    assert_string_equal(glm_json_get(v, "k")->text, "2");
    assert_null(glm_json_get(v, "K"));
    assert_null(glm_json_get(v->first, "k"));
    assert_null(glm_json_get(NULL, "k"));
    arena_release(&arena);
}

static void refuses_what_is_not_json_with_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t len;
        const char *want;
    } cases[] = {
        {"{} x", 4, "trailing garbage at byte 4"},
        {"1 2", 3, "trailing garbage at byte 3"},
        {"[1] // c", 8, "trailing garbage at byte 4"},
        {"{}\0", 3, "trailing garbage at byte 3"},
        {"", 0, "premature EOF at byte 0"},
        {"   ", 3, "premature EOF at byte 3"},
        {"{\"a\":", 5, "premature EOF at byte 5"},
        {"\"abc", 4, "premature EOF at byte 4"},
        {"[1,]", 4, "at byte 4"},
        {"[1}", 3, "at byte 3"},
        {"{a:1}", 5, "at byte 2"},
        {"[01]", 4, "at byte 3"},
        {"[1.]", 4, "at byte 3"},
        {"[+1]", 4, "at byte 2"},
        {"nul", 3, "at byte 3"},
        {"NaN", 3, "at byte 1"},
        {"'a'", 3, "at byte 1"},
        {"\"a\nb\"", 5, "invalid character inside string at byte 2"},
        {"\"\\x\"", 4, "at byte 2"},
        {"\"\\u12g4\"", 8, "at byte 5"},
        {"\"a\xff\"", 4, "not valid UTF-8 at byte 2"},
        {"\"\xc0\x80\"", 4, "not valid UTF-8 at byte 1"},
        {"\"\xed\xa0\x80\"", 5, "not valid UTF-8 at byte 1"},
        {"\"\xf4\x90\x80\x80\"", 6, "not valid UTF-8 at byte 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_refused(cases[i].text, cases[i].len, cases[i].want);
}

static void refuses_nesting_beyond_64(void **state)
{
    (void)state;
    char text[200];
    for (size_t depth = 64; depth <= 65; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        if (depth == 64) {
            text[2 * depth] = '\0';
            assert_printed(text, text);
        } else {
            assert_refused(text, 2 * depth, "nested deeper than 64 levels at byte 65");
        }
    }
}

static void stays_within_the_arena(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, 2000);
    struct buf text = {0};
    buf_char(&text, '[');
    for (int i = 0; i < 1000; i++)
        buf_str(&text, "0,");
    buf_str(&text, "0]");
    struct glm_json *v = NULL;
    struct glm_error err = {0};
    assert_int_equal(glm_json_parse(text.data, text.len, &arena, &v, &err), GLM_ENOMEM);
    assert_non_null(strstr(err.message, "2000 bytes"));
    assert_true(arena.used_bytes <= 2000);
    arena_release(&arena);
    buf_release(&text);
}

static void many_keys_take_linear_time(void **state)
{
    (void)state;
    struct buf text = {0};
    buf_char(&text, '{');
    for (int i = 0; i < 100000; i++)
        buf_printf(&text, "\"k%d\":%d,", i % 50000, i);
    buf_str(&text, "\"end\":0}");
    struct arena arena;
    arena_init(&arena, 64 << 20);
    struct glm_json *v = NULL;
    assert_int_equal(glm_json_parse(text.data, text.len, &arena, &v, NULL), GLM_OK);
    assert_int_equal(v->n_children, 50001);
    assert_string_equal(v->first->text, "50000");
    assert_string_equal(glm_json_get(v, "k49999")->text, "99999");
    arena_release(&arena);
    buf_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spells_numbers_as_python_does),
        cmocka_unit_test(compact_printing_keeps_numbers_as_sent),
        cmocka_unit_test(escapes_only_what_python_escapes),
        cmocka_unit_test(lone_surrogates_become_the_replacement_character),
        cmocka_unit_test(strings_may_hold_nul),
        cmocka_unit_test(a_repeated_key_keeps_its_first_place_and_last_value),
        cmocka_unit_test(refuses_what_is_not_json_with_its_place),
        cmocka_unit_test(refuses_nesting_beyond_64),
        cmocka_unit_test(stays_within_the_arena),
        cmocka_unit_test(many_keys_take_linear_time),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
