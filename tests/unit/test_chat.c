/* SPDX-License-Identifier: Apache-2.0 */
/* The chat layout against renders of the released template, and the server's own rules for history
 * that the template would reject. */
#include "runtime/chat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct glm_json *parsed(const char *text, size_t len, struct arena *arena)
{
    struct glm_json *v = NULL;
    struct glm_error err = {0};
    if (glm_json_parse(text, len, arena, &v, &err) != GLM_OK)
        fail_msg("%s: %s", text, err.message);
    return v;
}

static void golden_conversations_render_byte_for_byte(void **state)
{
    (void)state;
    struct buf file = {0};
    struct arena arena;
    arena_init(&arena, 64 << 20);
    assert_int_equal(glm_file_read("tests/golden/pico/chat_template.json", 16 << 20, &file, NULL),
                     GLM_OK);
    const struct glm_json *cases = parsed(file.data, file.len, &arena);
    assert_int_equal(cases->n_children, 28);
    for (const struct glm_json *v = cases->first; v != NULL; v = v->next) {
        const struct glm_json *rendered = glm_json_get(v, "rendered");
        struct glm_chat_options o = {.messages = glm_json_get(v, "messages"),
                                     .tools = glm_json_get(v, "tools"),
                                     .kwargs = glm_json_get(v, "kwargs"),
                                     .thinking = true,
                                     .generation_prompt = true};
        struct buf out = {0};
        struct glm_error err = {0};
        enum glm_status status = glm_chat_render(&o, &out, &err);
        const char *name = glm_json_get(v, "name")->text;
        if (rendered == NULL) {
            if (status != GLM_EINVAL)
                fail_msg("%s: status %d, want an error", name, (int)status);
        } else if (status != GLM_OK || out.len != rendered->len ||
                   memcmp(out.data, rendered->text, out.len) != 0) {
            fail_msg("%s: %s\ngot  %s\nwant %s", name, err.message, buf_text(&out), rendered->text);
        }
        buf_release(&out);
    }
    arena_release(&arena);
    buf_release(&file);
}

/* Renders messages (and tools, kwargs as JSON or NULL) with the other options of base. */
static char *rendered(struct glm_chat_options o, const char *messages, const char *tools,
                      const char *kwargs)
{
    struct arena arena;
    arena_init(&arena, 4 << 20);
    o.messages = parsed(messages, strlen(messages), &arena);
    o.tools = tools == NULL ? NULL : parsed(tools, strlen(tools), &arena);
    o.kwargs = kwargs == NULL ? NULL : parsed(kwargs, strlen(kwargs), &arena);
    struct buf out = {0};
    struct glm_error err = {0};
    if (glm_chat_render(&o, &out, &err) != GLM_OK)
        fail_msg("%s", err.message);
    arena_release(&arena);
    return out.data;
}

static void assert_rendered(struct glm_chat_options o, const char *messages, const char *kwargs,
                            const char *want)
{
    char *got = rendered(o, messages, NULL, kwargs);
    assert_string_equal(got, want);
    free(got);
}

#define HEAD "[gMASK]<sop><|system|>Reasoning Effort: Max"
#define USER "[{\"role\":\"user\",\"content\":\"Hi\"}]"
static const struct glm_chat_options plain = {.thinking = true};

static void thinking_off_closes_the_block_and_keeps_the_effort_line(void **state)
{
    (void)state;
    struct glm_chat_options o = {.thinking = false, .generation_prompt = true};
    assert_rendered(o, USER, NULL, HEAD "<|user|>Hi<|assistant|><think></think>");
    o.no_effort_line = true;
    assert_rendered(o, USER, NULL, "[gMASK]<sop><|user|>Hi<|assistant|><think></think>");
    o.thinking = true;
    assert_rendered(o, USER, NULL, HEAD "<|user|>Hi<|assistant|><think>");
    o.generation_prompt = false;
    assert_rendered(o, USER, NULL, HEAD "<|user|>Hi");
}

static void the_option_wins_over_the_kwargs_effort(void **state)
{
    (void)state;
    struct glm_chat_options o = plain;
    assert_rendered(o, "[]", "{\"reasoning_effort\":\"low\"}",
                    "[gMASK]<sop><|system|>Reasoning Effort: Low");
    o.effort = "high";
    assert_rendered(o, "[]", "{\"reasoning_effort\":\"low\"}",
                    "[gMASK]<sop><|system|>Reasoning Effort: High");
    /* kwargs reach the template as they are: it knows no 'minimal' */
    o.effort = NULL;
    assert_rendered(o, "[]", "{\"reasoning_effort\":\"minimal\"}", HEAD);
    assert_rendered(o, "[]", "{\"reasoning_effort\":1}", HEAD);
}

static void unknown_roles_are_dropped(void **state)
{
    (void)state;
    assert_rendered(plain,
                    "[{\"role\":\"developer\",\"content\":\"A\"},{\"content\":\"B\"},"
                    "{\"role\":\"system\",\"content\":\"C\"}]",
                    NULL, HEAD "<|system|>C");
}

#define CALL(id, name, arguments)                                             \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name \
    "\",\"arguments\":" arguments "}}"
#define RESULT(id, text) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"" text "\"}"

static void arguments_are_parsed_from_their_wire_text(void **state)
{
    (void)state;
    assert_rendered(
        plain,
        "[{\"role\":\"assistant\",\"tool_calls\":[" CALL(
            "a", "f",
            "\"{\\\"s\\\": \\\"1.50\\\", \\\"n\\\": 1.50, \\\"o\\\": "
            "{\\\"k\\\":[-0]}}\"") "," CALL("b", "g", "\"\"") "," CALL("c", "h", "null") "]}]",
        NULL,
        HEAD "<|assistant|><think></think><tool_call>f<arg_key>s</arg_key><arg_value>1.50"
             "</arg_value><arg_key>n</arg_key><arg_value>1.5</arg_value><arg_key>o"
             "</arg_key><arg_value>{\"k\": [0]}</arg_value></tool_call><tool_call>g"
             "</tool_call><tool_call>h</tool_call>");
}

static void a_call_without_an_arguments_object_goes_with_its_result(void **state)
{
    (void)state;
    assert_rendered(
        plain,
        "[{\"role\":\"assistant\",\"tool_calls\":[" CALL("a", "f", "\"{\\\"x\\\": \"") "," CALL(
            "b", "g",
            "\"{}\"") "," CALL("c", "h",
                               "[1]") "]}," RESULT("c",
                                                   "three") "," RESULT("b",
                                                                       "two") "," RESULT("a",
                                                                                         "one") "]",
        NULL,
        HEAD "<|assistant|><think></think><tool_call>g</tool_call><|observation|>"
             "<tool_response>two</tool_response>");
    assert_rendered(plain,
                    "[{\"role\":\"assistant\",\"tool_calls\":[" CALL(
                        "a", "f", "\"[]\"") "]}," RESULT("a", "gone") "]",
                    NULL, HEAD "<|assistant|><think></think>");
    /* without ids, by place */
    assert_rendered(plain,
                    "[{\"role\":\"assistant\",\"tool_calls\":[" CALL("", "f", "\"7\"") "," CALL(
                        "", "g", "{}") "]}," RESULT("", "gone") "," RESULT("", "stays") "]",
                    NULL,
                    HEAD "<|assistant|><think></think><tool_call>g</tool_call><|observation|>"
                         "<tool_response>stays</tool_response>");
}

static void fewer_results_than_calls_are_still_sorted(void **state)
{
    (void)state;
    assert_rendered(
        plain,
        "[{\"role\":\"assistant\",\"tool_calls\":[" CALL("a", "f", "{}") "," CALL(
            "b", "g", "{}") "," CALL("c", "h", "{}") "]}," RESULT("c", "3") "," RESULT("a",
                                                                                       "1") "]",
        NULL,
        HEAD "<|assistant|><think></think><tool_call>f</tool_call><tool_call>g</tool_call>"
             "<tool_call>h</tool_call><|observation|><tool_response>1</tool_response>"
             "<tool_response>3</tool_response>");
}

static void results_are_sorted_by_the_calls_directly_before(void **state)
{
    (void)state;
    assert_rendered(
        plain,
        "[{\"role\":\"assistant\",\"tool_calls\":[" CALL("a", "f", "{}") "," CALL(
            "b", "g",
            "{}") "]},{\"role\":\"assistant\",\"content\":\"x\"}," RESULT("b",
                                                                          "2") "," RESULT("a",
                                                                                          "1") "]",
        NULL,
        HEAD "<|assistant|><think></think><tool_call>f</tool_call><tool_call>g</tool_call>"
             "<|assistant|><think></think>x<|observation|><tool_response>2</tool_response>"
             "<tool_response>1</tool_response>");
}

static void one_message_may_hold_several_results(void **state)
{
    (void)state;
    assert_rendered(plain,
                    "[{\"role\":\"assistant\",\"tool_calls\":[" CALL("a", "f", "{}") "," CALL(
                        "b", "g", "{}") "]},{\"role\":\"tool\",\"content\":["
                                        "{\"tool_call_id\":\"b\",\"output\":\"2\"},{\"tool_call_"
                                        "id\":\"a\",\"output\":\"1\"}]}]",
                    NULL,
                    HEAD
                    "<|assistant|><think></think><tool_call>f</tool_call><tool_call>g</tool_call>"
                    "<|observation|><tool_response>1</tool_response><tool_response>2"
                    "</tool_response>");
}

static void reasoning_is_read_under_both_names(void **state)
{
    (void)state;
    assert_rendered(plain, "[{\"role\":\"assistant\",\"content\":\"a\",\"reasoning\":\"why\"}]",
                    NULL, HEAD "<|assistant|><think>why</think>a");
    assert_rendered(plain,
                    "[{\"role\":\"assistant\",\"content\":\"a\",\"reasoning\":\"why\","
                    "\"reasoning_content\":\"\"}]",
                    NULL, HEAD "<|assistant|><think></think>a");
}

static void refuses_shapes_the_template_cannot_render(void **state)
{
    (void)state;
    static const struct {
        const char *messages, *tools, *want;
    } cases[] = {
        {"{}", NULL, "'messages' is not an array"},
        {"[1]", NULL, "'messages[0]' is not an object"},
        {"[{\"role\":\"user\"},{\"role\":\"user\",\"content\":7}]", NULL, "'messages[1].content'"},
        {"[{\"role\":\"tool\",\"content\":{}}]", NULL, "'messages[0].content'"},
        {"[]", "{}", "'tools' is not an array"},
        {"[]", "[{},3]", "'tools[1]' is not an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct arena arena;
        arena_init(&arena, 1 << 16);
        struct glm_chat_options o = plain;
        o.messages = parsed(cases[i].messages, strlen(cases[i].messages), &arena);
        if (cases[i].tools != NULL)
            o.tools = parsed(cases[i].tools, strlen(cases[i].tools), &arena);
        struct buf out = {0};
        struct glm_error err = {0};
        assert_int_equal(glm_chat_render(&o, &out, &err), GLM_EINVAL);
        if (strstr(err.message, cases[i].want) == NULL)
            fail_msg("'%s' lacks '%s'", err.message, cases[i].want);
        buf_release(&out);
        arena_release(&arena);
    }
    struct glm_chat_options nothing = plain;
    assert_int_equal(glm_chat_render(&nothing, &(struct buf){0}, NULL), GLM_EINVAL);
}

/* A result may name a tool any number of times, and each time its text is printed. */
static void references_cannot_blow_a_small_request_up(void **state)
{
    (void)state;
    struct arena arena;
    struct buf tools = {0}, messages = {0}, out = {0};
    struct glm_error err = {0};
    arena_init(&arena, 64 << 20);
    buf_str(&tools, "[{\"name\": \"t\", \"description\": \"");
    for (int i = 0; i < 1 << 16; i++)
        buf_char(&tools, 'x');
    buf_str(&tools, "\"}]");
    buf_str(&messages, "[");
    for (int i = 0; i < 1000; i++)
        buf_printf(&messages,
                   "%s{\"role\": \"tool\", \"content\": "
                   "[{\"type\": \"tool_reference\", \"name\": \"t\"}]}",
                   i > 0 ? "," : "");
    buf_str(&messages, "]");
    struct glm_chat_options o = {.messages = parsed(messages.data, messages.len, &arena),
                                 .tools = parsed(tools.data, tools.len, &arena)};
    assert_int_equal(glm_chat_render(&o, &out, &err), GLM_EINVAL);
    assert_non_null(
        strstr(err.message, "refers to more tools, or longer ones, than are looked up"));
    assert_true(out.len < 32 << 20);
    buf_release(&tools);
    buf_release(&messages);
    buf_release(&out);
    arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_conversations_render_byte_for_byte),
        cmocka_unit_test(thinking_off_closes_the_block_and_keeps_the_effort_line),
        cmocka_unit_test(the_option_wins_over_the_kwargs_effort),
        cmocka_unit_test(unknown_roles_are_dropped),
        cmocka_unit_test(arguments_are_parsed_from_their_wire_text),
        cmocka_unit_test(a_call_without_an_arguments_object_goes_with_its_result),
        cmocka_unit_test(fewer_results_than_calls_are_still_sorted),
        cmocka_unit_test(results_are_sorted_by_the_calls_directly_before),
        cmocka_unit_test(one_message_may_hold_several_results),
        cmocka_unit_test(reasoning_is_read_under_both_names),
        cmocka_unit_test(refuses_shapes_the_template_cannot_render),
        cmocka_unit_test(references_cannot_blow_a_small_request_up),
    };
    return cmocka_run_group_tests_name("chat", tests, NULL, NULL);
}
