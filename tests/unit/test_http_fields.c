/* SPDX-License-Identifier: Apache-2.0 */
/* The table of request fields: every field's type, range and default, and the prompt that chat
 * fields render. */
#include "runtime/http_fields.h"
#include "tests/support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct read {
    struct arena arena;
    struct http_fields f;
    struct http_field_error error;
    bool ok;
};

/* Members besides what the route requires. The lane: thinking on, effort max. */
static struct read read_fields(enum http_route_kind kind, const char *members)
{
    struct read r = {0};
    struct glm_json *body;
    struct glm_error err = {0};
    char text[2000];
    snprintf(text, sizeof text, "{%s%s%s}",
             kind == HTTP_CHAT ? "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"
                               : "\"prompt\":\"Hi\"",
             *members == '\0' ? "" : ",", members);
    arena_init(&r.arena, 1 << 20);
    if (glm_json_parse(text, strlen(text), &r.arena, &body, &err) != GLM_OK)
        fail_msg("%s: %s", text, err.message);
    http_fields_init(&r.f, true, "max");
    r.ok = http_fields_read(body, kind, &r.arena, &r.f, &r.error);
    return r;
}

static void expect_refused(enum http_route_kind kind, const char *members, const char *field,
                           const char *code, const char *word)
{
    struct read r = read_fields(kind, members);
    if (r.ok)
        fail_msg("%s was taken", members);
    if (field == NULL)
        assert_null(r.error.field);
    else
        assert_string_equal(r.error.field, field);
    if (code == NULL)
        assert_null(r.error.code);
    else
        assert_string_equal(r.error.code, code);
    if (strstr(r.error.message, word) == NULL)
        fail_msg("%s: '%s' does not hold '%s'", members, r.error.message, word);
    arena_release(&r.arena);
}

static struct read expect_taken(enum http_route_kind kind, const char *members)
{
    struct read r = read_fields(kind, members);
    if (!r.ok)
        fail_msg("%s: %s", members, r.error.message);
    return r;
}

static void absent_fields_have_their_defaults(void **state)
{
    (void)state;
    static const char *const all_null =
        "\"model\":null,\"max_tokens\":null,\"max_completion_tokens\":null,\"temperature\":null,"
        "\"top_p\":null,\"top_k\":null,\"min_p\":null,\"seed\":null,\"n\":null,\"stop\":null,"
        "\"ignore_eos\":null,\"min_tokens\":null,\"stream\":null,\"stream_options\":null,"
        "\"logprobs\":null,\"top_logprobs\":null,\"tools\":null,\"tool_choice\":null,"
        "\"parallel_tool_calls\":null,\"response_format\":null,\"reasoning_effort\":null,"
        "\"chat_template_kwargs\":null,\"return_token_ids\":null,\"modalities\":null,"
        "\"presence_penalty\":null,\"logit_bias\":null,\"structured_outputs\":null";
    static const char *const cases[] = {"", all_null};
    for (size_t i = 0; i < 2; i++) {
        struct read r = expect_taken(HTTP_CHAT, cases[i]);
        assert_true(r.f.temperature == 1.0 && r.f.top_p == 0.95 && r.f.min_p == 0.0);
        assert_int_equal(r.f.top_k, 0);
        assert_int_equal(r.f.max_tokens, -1);
        assert_int_equal(r.f.min_tokens, 0);
        assert_false(r.f.has_seed || r.f.stream || r.f.include_usage || r.f.ignore_end ||
                     r.f.return_token_ids);
        assert_true(r.f.parallel_tool_calls && r.f.thinking);
        assert_string_equal(r.f.effort, "max");
        assert_int_equal(r.f.n_stops, 0);
        arena_release(&r.arena);
    }
}

static void numbers_come_as_numbers_or_numeric_strings(void **state)
{
    (void)state;
    static const struct {
        const char *members;
        double temperature;
        int64_t top_k, max_tokens;
    } cases[] = {
        {"\"temperature\":0.5,\"top_k\":40,\"max_tokens\":7", 0.5, 40, 7},
        {"\"temperature\":\"0.5\",\"top_k\":\"40\",\"max_tokens\":\"7\"", 0.5, 40, 7},
        {"\"temperature\":-1,\"top_k\":-1,\"max_tokens\":7.0", -1, 0, 7},
        {"\"temperature\":2,\"top_k\":1e2,\"max_tokens\":7e0", 2, 100, 7},
        {"\"temperature\":0,\"max_tokens\":9,\"max_completion_tokens\":7", 0, 0, 7},
        {"\"temperature\":0,\"max_tokens\":7,\"max_completion_tokens\":9", 0, 0, 7},
        {"\"temperature\":0,\"max_completion_tokens\":7", 0, 0, 7},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct read r = expect_taken(i % 2 == 0 ? HTTP_CHAT : HTTP_COMPLETION, cases[i].members);
        assert_true(r.f.temperature == cases[i].temperature);
        assert_int_equal(r.f.top_k, cases[i].top_k);
        assert_int_equal(r.f.max_tokens, cases[i].max_tokens);
        arena_release(&r.arena);
    }
}

static void values_of_the_wrong_type_or_range_name_their_field(void **state)
{
    (void)state;
    static const struct {
        const char *members, *field, *word;
    } cases[] = {
        {"\"temperature\":true", "temperature", "a number, got a boolean"},
        {"\"temperature\":\"warm\"", "temperature", "a number, got a string"},
        {"\"temperature\":\"\"", "temperature", "a number"},
        {"\"temperature\":\"0x1\"", "temperature", "a number"},
        {"\"temperature\":\"nan\"", "temperature", "a number"},
        {"\"temperature\":\"inf\"", "temperature", "a number"},
        {"\"temperature\":1e999", "temperature", "a number"},
        {"\"temperature\":\"1\\u0000\"", "temperature", "a number"},
        {"\"temperature\":2.1", "temperature", "between"},
        {"\"temperature\":[1]", "temperature", "an array"},
        {"\"top_p\":1.01", "top_p", "between 0 and 1"},
        {"\"top_p\":-0.01", "top_p", "between 0 and 1"},
        {"\"min_p\":2", "min_p", "between 0 and 1"},
        {"\"top_k\":1.5", "top_k", "whole number, got 1.5"},
        {"\"max_tokens\":0", "max_tokens", "between 1"},
        {"\"max_tokens\":-5", "max_tokens", "between 1"},
        {"\"max_tokens\":1e10", "max_tokens", "between"},
        {"\"max_completion_tokens\":0", "max_completion_tokens", "between 1"},
        {"\"min_tokens\":-1", "min_tokens", "between 0"},
        {"\"seed\":1.5", "seed", "64 bits"},
        {"\"seed\":18446744073709551616", "seed", "64 bits"},
        {"\"seed\":-9223372036854775809", "seed", "64 bits"},
        {"\"seed\":\"x\"", "seed", "64 bits"},
        {"\"seed\":\"\"", "seed", "64 bits"},
        {"\"seed\":\"+-1\"", "seed", "64 bits"},
        {"\"stream\":1", "stream", "true or false, got a number"},
        {"\"ignore_eos\":\"true\"", "ignore_eos", "true or false"},
        {"\"stream_options\":true", "stream_options", "an object"},
        {"\"stream_options\":{\"include_usage\":1}", "stream_options.include_usage", "true"},
        {"\"stop\":5", "stop", "strings"},
        {"\"stop\":[\"a\",5]", "stop", "strings"},
        {"\"stop\":\"\"", "stop", "not empty"},
        {"\"stop\":[\"a\",\"\"]", "stop", "not empty"},
        {"\"stop\":\"a\\u0000b\"", "stop", "NUL"},
        {"\"model\":5", "model", "a string"},
        {"\"presence_penalty\":3", "presence_penalty", "between -2 and 2"},
        {"\"frequency_penalty\":\"x\"", "frequency_penalty", "a number"},
        {"\"logit_bias\":[]", "logit_bias", "an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_refused(HTTP_CHAT, cases[i].members, cases[i].field, NULL, cases[i].word);
        expect_refused(HTTP_COMPLETION, cases[i].members, cases[i].field, NULL, cases[i].word);
    }
    static const struct {
        const char *members, *field, *word;
    } chat[] = {
        {"\"tools\":{}", "tools", "an array, got an object"},
        {"\"tools\":[5]", "tools", "name"},
        {"\"tools\":[{\"type\":\"function\"}]", "tools", "name"},
        {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"\"}}]", "tools", "name"},
        {"\"tool_choice\":\"maybe\"", "tool_choice", "none"},
        {"\"tool_choice\":5", "tool_choice", "none"},
        {"\"parallel_tool_calls\":0", "parallel_tool_calls", "true or false"},
        {"\"reasoning_effort\":\"huge\"", "reasoning_effort", "minimal, low, medium"},
        {"\"reasoning_effort\":5", "reasoning_effort", "minimal, low, medium"},
        {"\"chat_template_kwargs\":[]", "chat_template_kwargs", "an object, got an array"},
        {"\"messages\":{}", "messages", "an array, got an object"},
        {"\"messages\":[]", "messages", "not empty"},
        {"\"messages\":null", "messages", "not empty"},
        {"\"messages\":[5]", "messages", "messages[0] needs a role"},
        {"\"messages\":[{\"role\":\"user\"},{\"role\":\"bot\"}]", "messages", "messages[1]"},
        {"\"messages\":[{\"role\":[]}]", "messages", "messages[0]"},
    };
    for (size_t i = 0; i < sizeof chat / sizeof chat[0]; i++)
        expect_refused(HTTP_CHAT, chat[i].members, chat[i].field, NULL, chat[i].word);
}

static void what_would_change_the_reply_is_refused_unless_default(void **state)
{
    (void)state;
    static const struct {
        const char *field, *given, *ordinary;
    } cases[] = {
        {"n", "2", "1"},
        {"logprobs", "true", "false"},
        {"top_logprobs", "5", "0"},
        {"structured_outputs", "{\"json\":{}}", "{}"},
        {"guided_json", "{\"type\":\"object\"}", "null"},
        {"guided_regex", "\"a+\"", "\"\""},
        {"guided_choice", "[\"a\"]", "[]"},
        {"guided_grammar", "\"root\"", "null"},
        {"response_format", "{\"type\":\"json_object\"}", "{\"type\":\"text\"}"},
        {"response_format", "5", "null"},
        {"thinking_budget", "100", "0"},
        {"modalities", "[\"text\",\"audio\"]", "[\"text\"]"},
        {"modalities", "\"text\"", "[]"},
        {"audio", "{\"voice\":\"a\"}", "null"},
        {"tool_choice", "\"required\"", "\"auto\""},
        {"tool_choice", "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}", "\"none\""},
    };
    char members[200];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(members, sizeof members, "\"%s\":%s", cases[i].field, cases[i].given);
        expect_refused(HTTP_CHAT, members, cases[i].field, "unsupported_parameter", cases[i].field);
        snprintf(members, sizeof members, "\"%s\":%s", cases[i].field, cases[i].ordinary);
        struct read r = expect_taken(HTTP_CHAT, members);
        arena_release(&r.arena);
    }
    static const char *const completion[][2] = {
        {"best_of", "2"}, {"echo", "true"}, {"suffix", "\"x\""}, {"logprobs", "3"}};
    for (size_t i = 0; i < 4; i++) {
        snprintf(members, sizeof members, "\"%s\":%s", completion[i][0], completion[i][1]);
        expect_refused(HTTP_COMPLETION, members, completion[i][0], "unsupported_parameter",
                       completion[i][0]);
    }
}

static void what_does_not_change_the_reply_is_ignored(void **state)
{
    (void)state;
    struct read r = expect_taken(
        HTTP_CHAT,
        "\"user\":\"me\",\"metadata\":{\"a\":1},\"store\":true,\"service_tier\":\"auto\","
        "\"prompt_cache_key\":5,\"verbosity\":\"low\",\"draft\":false,\"tf_policy\":\"a\","
        "\"priority\":\"background\",\"presence_penalty\":1.5,\"frequency_penalty\":-2,"
        "\"repetition_penalty\":1.1,\"logit_bias\":{\"5\":1},\"prompt\":\"not of this route\","
        "\"unheard_of\":[]");
    assert_null(r.f.prompt);
    arena_release(&r.arena);
}

static void seeds_keep_all_64_bits(void **state)
{
    (void)state;
    static const struct {
        const char *members;
        uint64_t seed;
    } cases[] = {
        {"\"seed\":9007199254740993", 9007199254740993u},
        {"\"seed\":18446744073709551615", UINT64_MAX},
        {"\"seed\":-1", UINT64_MAX},
        {"\"seed\":-9223372036854775808", UINT64_C(1) << 63},
        {"\"seed\":\"12345678901234567890\"", 12345678901234567890u},
        {"\"seed\":0", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct read r = expect_taken(HTTP_COMPLETION, cases[i].members);
        assert_true(r.f.has_seed);
        assert_true((uint64_t)r.f.seed == cases[i].seed);
        arena_release(&r.arena);
    }
}

static void stops_are_bounded(void **state)
{
    (void)state;
    char members[2000] = "\"stop\":[\"0\"";
    for (int i = 1; i < GLM_REPLY_MAX_STOPS; i++)
        sprintf(members + strlen(members), ",\"%d\"", i);
    const size_t end = strlen(members);
    strcpy(members + end, "]");
    struct read r = expect_taken(HTTP_CHAT, members);
    assert_int_equal(r.f.n_stops, GLM_REPLY_MAX_STOPS);
    assert_string_equal(r.f.stops[15], "15");
    arena_release(&r.arena);
    strcpy(members + end, ",\"x\"]");
    expect_refused(HTTP_CHAT, members, "stop", NULL, "more than 16");
    r = expect_taken(HTTP_CHAT, "\"stop\":\"one\"");
    assert_int_equal(r.f.n_stops, 1);
    arena_release(&r.arena);
}

/* ---- the prompt ---- */

/* The prompt of a chat body whose lane thinks (or not) by default. */
static void expect_prompt(const char *json, bool thinking, const char *effort, const char *expected)
{
    struct arena arena;
    struct glm_json *body;
    struct glm_error err = {0};
    struct http_fields f;
    struct http_field_error error;
    struct buf text = {0};
    arena_init(&arena, 1 << 20);
    assert_int_equal(glm_json_parse(json, strlen(json), &arena, &body, &err), GLM_OK);
    http_fields_init(&f, thinking, effort);
    if (!http_fields_read(body, HTTP_CHAT, &arena, &f, &error))
        fail_msg("%s: %s", json, error.message);
    if (http_fields_render(&f, true, &text, &err) != GLM_OK)
        fail_msg("%s: %s", json, err.message);
    if (strcmp(buf_text(&text), expected) != 0)
        fail_msg("%s\ngave   %s\nwanted %s", json, buf_text(&text), expected);
    buf_release(&text);
    arena_release(&arena);
}

#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"
#define ON(effort) \
    "[gMASK]<sop><|system|>Reasoning Effort: " effort "<|user|>Hi<|assistant|><think>"
#define OFF "[gMASK]<sop><|user|>Hi<|assistant|><think></think>"

static void effort_and_switches_settle_thinking(void **state)
{
    (void)state;
    static const struct {
        const char *members;
        bool thinking;
        const char *effort, *expected;
    } cases[] = {
        /* the lane's default, or the template's Max */
        {"", true, NULL, ON("Max")},
        {"", true, "", ON("Max")},
        {"", true, "low", ON("Low")},
        {"", false, "low", OFF},
        /* the table of efforts; any but none turns thinking on */
        {",\"reasoning_effort\":\"none\"", true, "low", OFF},
        {",\"reasoning_effort\":\"minimal\"", false, NULL, ON("Low")},
        {",\"reasoning_effort\":\"low\"", true, "max", ON("Low")},
        {",\"reasoning_effort\":\"medium\"", true, NULL, ON("High")},
        {",\"reasoning_effort\":\"high\"", false, NULL, ON("High")},
        {",\"reasoning_effort\":\"xhigh\"", true, "low", ON("Max")},
        {",\"reasoning_effort\":\"max\"", true, "low", ON("Max")},
        /* an explicit switch wins, also over none */
        {",\"chat_template_kwargs\":{\"enable_thinking\":false}", true, "low", OFF},
        {",\"chat_template_kwargs\":{\"enable_thinking\":true}", false, "low", ON("Low")},
        {",\"reasoning_effort\":\"none\",\"chat_template_kwargs\":{\"enable_thinking\":true}", true,
         "high", ON("High")},
        {",\"reasoning_effort\":\"high\",\"chat_template_kwargs\":{\"enable_thinking\":false}",
         true, NULL, OFF},
        {",\"chat_template_kwargs\":{\"thinking\":false}", true, NULL, OFF},
        {",\"chat_template_kwargs\":{\"thinking\":{\"type\":\"disabled\"}}", true, NULL, OFF},
        {",\"chat_template_kwargs\":{\"thinking\":{\"type\":\"enabled\"}}", false, NULL, ON("Max")},
        {",\"chat_template_kwargs\":{\"thinking\":\"perhaps\"}", true, NULL, ON("Max")},
        {",\"chat_template_kwargs\":{\"thinking\":true,\"enable_thinking\":false}", true, NULL,
         OFF},
        /* kwargs reach the template unmapped: only its own three names mean anything */
        {",\"chat_template_kwargs\":{\"reasoning_effort\":\"low\"}", true, "max", ON("Low")},
        {",\"chat_template_kwargs\":{\"reasoning_effort\":\"medium\"}", true, "low", ON("Max")},
        {",\"chat_template_kwargs\":{\"reasoning_effort\":\"minimal\"}", true, "low", ON("Max")},
        {",\"reasoning_effort\":\"medium\",\"chat_template_kwargs\":{\"reasoning_effort\":\"low\"}",
         true, NULL, ON("High")},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char json[400];
        snprintf(json, sizeof json, "{" USER "%s}", cases[i].members);
        expect_prompt(json, cases[i].thinking, cases[i].effort, cases[i].expected);
    }
}

static void system_messages_stay_where_they_are_and_developer_becomes_one(void **state)
{
    (void)state;
    expect_prompt("{\"messages\":[{\"role\":\"system\",\"content\":\"A\"},"
                  "{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":\"B\"}]},"
                  "{\"role\":\"user\",\"content\":\"C\"},"
                  "{\"role\":\"assistant\",\"content\":null},"
                  "{\"content\":\"D\",\"role\":\"developer\"},"
                  "{\"role\":\"user\",\"content\":\"E\"}],\"reasoning_effort\":\"none\"}",
                  true, NULL,
                  "[gMASK]<sop><|system|>A<|system|>B<|user|>C<|assistant|><think></think>"
                  "<|system|>D<|user|>E<|assistant|><think></think>");
}

static void tools_are_rendered_unless_none_may_be_called(void **state)
{
    (void)state;
    expect_prompt("{" USER ",\"reasoning_effort\":\"none\",\"tool_choice\":\"none\","
                  "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}",
                  true, NULL, OFF);
    struct arena arena;
    struct glm_json *body;
    struct glm_error err = {0};
    struct http_fields f;
    struct http_field_error error;
    struct buf text = {0};
    static const char json[] =
        "{" USER ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}},"
        "{\"name\":\"g\"}]}";
    arena_init(&arena, 1 << 20);
    assert_int_equal(glm_json_parse(json, strlen(json), &arena, &body, &err), GLM_OK);
    http_fields_init(&f, true, NULL);
    assert_true(http_fields_read(body, HTTP_CHAT, &arena, &f, &error));
    assert_int_equal(http_fields_render(&f, true, &text, &err), GLM_OK);
    assert_non_null(strstr(text.data, "<tools>\n{\"name\": \"f\"}\n{\"name\": \"g\"}\n</tools>"));
    buf_release(&text);
    arena_release(&arena);
}

static void pictures_are_refused_but_in_the_results_of_tools(void **state)
{
    (void)state;
    static const char *const types[] = {"image_url", "image",     "input_image", "video_url",
                                        "video",     "audio_url", "input_audio"};
    static const char *const roles[] = {"user", "system", "assistant"};
    char members[300];
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        snprintf(members, sizeof members,
                 "\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"%s\","
                 "\"content\":[{\"type\":\"text\",\"text\":\"x\"},{\"type\":\"%s\"}]}]",
                 roles[i % 3], types[i]);
        expect_refused(HTTP_CHAT, members, "messages", "unsupported_parameter",
                       "messages[1] holds a picture");
        snprintf(members, sizeof members,
                 "\"messages\":[{\"role\":\"tool\",\"content\":[{\"type\":\"%s\"}]}]", types[i]);
        struct read r = expect_taken(HTTP_CHAT, members);
        arena_release(&r.arena);
    }
}

static void a_body_too_large_for_its_arena_is_said_so(void **state)
{
    (void)state;
    struct arena arena;
    struct glm_json *body;
    struct glm_error err = {0};
    struct http_fields f;
    struct http_field_error error;
    static const char json[] = "{\"prompt\":\"Hi\",\"model\":\"0123456789012345678901234567890\"}";
    arena_init(&arena, 1 << 16);
    assert_int_equal(glm_json_parse(json, strlen(json), &arena, &body, &err), GLM_OK);
    arena.limit_bytes = arena.used_bytes;
    http_fields_init(&f, true, NULL);
    assert_false(http_fields_read(body, HTTP_COMPLETION, &arena, &f, &error));
    assert_string_equal(error.field, "model");
    assert_non_null(strstr(error.message, "too large"));
    arena_release(&arena);
}

static void the_reference_page_names_every_field(void **state)
{
    (void)state;
    size_t len;
    char *page = folder_read("docs", "api.md", &len);
    for (size_t i = 0; http_fields_name(i) != NULL; i++) {
        char quoted[64];
        snprintf(quoted, sizeof quoted, "`%s`", http_fields_name(i));
        if (strstr(page, quoted) == NULL)
            fail_msg("docs/api.md does not name %s", quoted);
    }
    free(page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absent_fields_have_their_defaults),
        cmocka_unit_test(numbers_come_as_numbers_or_numeric_strings),
        cmocka_unit_test(values_of_the_wrong_type_or_range_name_their_field),
        cmocka_unit_test(what_would_change_the_reply_is_refused_unless_default),
        cmocka_unit_test(what_does_not_change_the_reply_is_ignored),
        cmocka_unit_test(seeds_keep_all_64_bits),
        cmocka_unit_test(stops_are_bounded),
        cmocka_unit_test(effort_and_switches_settle_thinking),
        cmocka_unit_test(system_messages_stay_where_they_are_and_developer_becomes_one),
        cmocka_unit_test(tools_are_rendered_unless_none_may_be_called),
        cmocka_unit_test(pictures_are_refused_but_in_the_results_of_tools),
        cmocka_unit_test(the_reference_page_names_every_field),
        cmocka_unit_test(a_body_too_large_for_its_arena_is_said_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
