/* SPDX-License-Identifier: Apache-2.0 */
/* What a reply's ids become: reasoning, content, calls; what is held back and for how long. */
#include "runtime/reply.h"
#include "runtime/toolcall.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct glm_tokenizer *pico;
static struct arena tools_arena;
static struct glm_json *tools;

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":"
    "\"object\","
    "\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},"
    "\"scale\":{\"type\":\"number\"},\"now\":{\"type\":\"boolean\"},"
    "\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},\"where\":{\"type\":\"object\"},"
    "\"note\":{\"type\":[\"string\",\"null\"]},\"either\":{\"anyOf\":[{\"type\":\"integer\"},"
    "{\"type\":\"string\"}]},\"pick\":{\"enum\":[\"1\",\"2\"]},\"ref\":{\"$ref\":\"#/$defs/"
    "level\"},"
    "\"maybe\":{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]},\"one\":{\"const\":\"7\"}},"
    "\"$defs\":{\"level\":{\"enum\":[1,2,3]}}}}},"
    "{\"name\":\"Plain\"}]";

static int open_all(void **state)
{
    (void)state;
    arena_init(&tools_arena, 1 << 20);
    return glm_tokenizer_open("clusters/demo/exl3/tokenizer.json", &pico, NULL) != GLM_OK ||
           glm_json_parse(tools_text, sizeof tools_text - 1, &tools_arena, &tools, NULL) != GLM_OK;
}

static int close_all(void **state)
{
    (void)state;
    glm_tokenizer_free(pico);
    arena_release(&tools_arena);
    return 0;
}

/* Everything delivered, written down: R[..] reasoning, C[..] content, AGAIN[..] the reasoning once
 * more, CALL name arguments. Neighbouring pieces of one kind are joined. */
struct transcript {
    struct buf text;
    char last;
    size_t n_events;
};

static void close_piece(struct transcript *t)
{
    if (t->last != 0)
        buf_char(&t->text, ']');
    t->last = 0;
}

static void write_down(void *context, const struct glm_reply_event *event)
{
    struct transcript *t = context;
    t->n_events++;
    if (event->kind == GLM_REPLY_TOOL_CALL) {
        close_piece(t);
        assert_int_equal(strlen(event->arguments), event->arguments_len);
        buf_printf(&t->text, "CALL %s %s;", event->name, event->arguments);
        return;
    }
    assert_true(event->len > 0);
    if (event->repeats_reasoning) {
        close_piece(t);
        buf_printf(&t->text, "AGAIN[%.*s]", (int)event->len, event->text);
        return;
    }
    char kind = event->kind == GLM_REPLY_REASONING ? 'R' : 'C';
    if (t->last != kind) {
        close_piece(t);
        buf_printf(&t->text, "%c[", kind);
    }
    t->last = kind;
    buf_add(&t->text, event->text, event->len);
}

enum ending { BY_END_ID, BY_LENGTH };

static struct glm_reply_options chat_options(void)
{
    return (struct glm_reply_options){.tools = tools, .parse_calls = true};
}

/* Feeds text's ids and ends the reply. split: ordinary text is fed a byte a token. */
static char *replied(const struct glm_reply_options *o, const char *text, enum ending ending,
                     bool bytewise)
{
    struct glm_reply *r = NULL;
    struct glm_error err = {0};
    if (glm_reply_new(pico, o, &r, &err) != GLM_OK)
        fail_msg("%s", err.message);
    struct glm_ids ids = {0};
    struct transcript t = {0};
    assert_int_equal(glm_tokenizer_encode(pico, text, strlen(text), true, &ids), GLM_OK);
    struct buf bytes = {0};
    bool stopped = false;
    for (size_t i = 0; i < ids.n && !stopped; i++) {
        buf_clear(&bytes);
        glm_tokenizer_bytes(pico, ids.ids[i], false, &bytes);
        if (!bytewise || glm_tokenizer_is_special(pico, ids.ids[i])) {
            stopped = glm_reply_feed(r, ids.ids[i], write_down, &t);
            continue;
        }
        for (size_t j = 0; j < bytes.len && !stopped; j++) {
            struct glm_ids one = {0};
            assert_int_equal(glm_tokenizer_encode(pico, bytes.data + j, 1, false, &one), GLM_OK);
            assert_int_equal(one.n, 1);
            stopped = glm_reply_feed(r, one.ids[0], write_down, &t);
            glm_ids_release(&one);
        }
    }
    stopped = glm_reply_finish(r, ending == BY_END_ID, write_down, &t);
    close_piece(&t);
    if (stopped)
        buf_printf(&t.text, "STOP %s", glm_reply_stop(r));
    assert_false(glm_reply_failed(r));
    glm_reply_free(r);
    glm_ids_release(&ids);
    buf_release(&bytes);
    if (t.text.data == NULL)
        buf_str(&t.text, "");
    return t.text.data;
}

static void assert_reply(struct glm_reply_options o, const char *text, enum ending ending,
                         const char *want)
{
    for (int bytewise = 0; bytewise < 2; bytewise++) {
        char *got = replied(&o, text, ending, bytewise != 0);
        if (strcmp(got, want) != 0)
            fail_msg("%s (bytewise %d)\ngot  %s\nwant %s", text, bytewise, got, want);
        free(got);
    }
}

static void assert_answer(const char *text, const char *want)
{
    assert_reply(chat_options(), text, BY_END_ID, want);
}

static void reasoning_ends_at_the_think_token(void **state)
{
    (void)state;
    struct glm_reply_options o = chat_options();
    o.in_reasoning = true;
    assert_reply(o, "Two and two.</think>4", BY_END_ID, "R[Two and two.]C[4]");
    assert_reply(o, "a\n</think>\n\nb\n", BY_END_ID, "R[a\n]C[b\n]");
    assert_reply(o, "</think>b", BY_END_ID, "C[b]");
    assert_reply(o, "a<think>b</think>c<think>d</think>e", BY_END_ID,
                 "R[a<think>b]C[c<think>d</think>e]");
    assert_reply(chat_options(), "a</think>b", BY_END_ID, "C[a</think>b]");
}

static void an_answer_inside_an_unclosed_block_comes_once_more_as_content(void **state)
{
    (void)state;
    struct glm_reply_options o = chat_options();
    o.in_reasoning = true;
    assert_reply(o, "The answer is 4.", BY_END_ID, "R[The answer is 4.]AGAIN[The answer is 4.]");
    assert_reply(o, "The answer is 4.", BY_LENGTH, "R[The answer is 4.]");
    assert_reply(o, "", BY_END_ID, "");
}

static void counts_ids_inside_the_block(void **state)
{
    (void)state;
    struct glm_reply_options o = chat_options();
    o.in_reasoning = true;
    struct glm_reply *r = NULL;
    struct transcript t = {0};
    assert_int_equal(glm_reply_new(pico, &o, &r, NULL), GLM_OK);
    static const int32_t ids[] = {64, 65, 2034, 66, 67, 68};
    for (size_t i = 0; i < 6; i++)
        assert_false(glm_reply_feed(r, ids[i], write_down, &t));
    assert_int_equal(glm_reply_reasoning_tokens(r), 2);
    assert_int_equal(glm_reply_calls(r), 0);
    glm_reply_free(r);
    buf_release(&t.text);
}

static void incomplete_characters_are_held(void **state)
{
    (void)state;
    struct glm_reply_options o = {0};
    struct glm_reply *r = NULL;
    struct transcript t = {0};
    assert_int_equal(glm_reply_new(pico, &o, &r, NULL), GLM_OK);
    struct glm_ids ids = {0};
    assert_int_equal(glm_tokenizer_encode(pico, "\xf0\x9f\x98\x80", 4, false, &ids), GLM_OK);
    assert_int_equal(ids.n, 4);
    for (size_t i = 0; i < 3; i++)
        glm_reply_feed(r, ids.ids[i], write_down, &t);
    assert_int_equal(t.n_events, 0);
    glm_reply_feed(r, ids.ids[3], write_down, &t);
    assert_int_equal(t.n_events, 1);
    glm_reply_feed(r, ids.ids[0], write_down, &t);
    glm_reply_feed(r, ids.ids[1], write_down, &t);
    assert_int_equal(t.n_events, 1);
    glm_reply_finish(r, true, write_down, &t);
    assert_string_equal(t.text.data, "C[\xf0\x9f\x98\x80\xef\xbf\xbd");
    glm_reply_free(r);
    glm_ids_release(&ids);
    buf_release(&t.text);
}

static void broken_characters_are_replaced(void **state)
{
    (void)state;
    struct glm_reply_options o = chat_options();
    o.in_reasoning = true;
    assert_reply(o, "a\xe4\xb8</think>\xff\xe4\xb8x\x80", BY_LENGTH,
                 "R[a\xef\xbf\xbd]C[\xef\xbf\xbd\xef\xbf\xbdx\xef\xbf\xbd]");
}

static void stop_strings_cut_the_visible_answer(void **state)
{
    (void)state;
    static const char *const stops[] = {"END", "\n\n", "\xc3\xa9t"};
    struct glm_reply_options o = chat_options();
    o.stops = stops;
    o.n_stops = 3;
    assert_reply(o, "one END two", BY_END_ID, "C[one ]STOP END");
    assert_reply(o, "one EN", BY_END_ID, "C[one EN]");
    assert_reply(o, "EENEND", BY_END_ID, "C[EEN]STOP END");
    assert_reply(o, "a\n\nb", BY_END_ID, "C[a]STOP \n\n");
    assert_reply(o, "a\nb\n", BY_END_ID, "C[a\nb\n]");
    assert_reply(o, "caf\xc3\xa9, \xc3\xa9t\xc3\xa9", BY_END_ID, "C[caf\xc3\xa9, ]STOP \xc3\xa9t");
    o.in_reasoning = true;
    assert_reply(o, "END\n\n</think>\n\nyes", BY_END_ID, "R[END\n\n]C[yes]");
}

static void the_beginning_of_a_stop_string_is_held(void **state)
{
    (void)state;
    static const char *const stops[] = {"abcd"};
    struct glm_reply_options o = {.stops = stops, .n_stops = 1};
    struct glm_reply *r = NULL;
    struct transcript t = {0};
    assert_int_equal(glm_reply_new(pico, &o, &r, NULL), GLM_OK);
    static const int32_t abc[] = {64, 65, 66, 64, 65, 66}; /* a b c */
    static const char *const want[] = {"", "", "", "C[abc", "C[abc", "C[abc"};
    for (size_t i = 0; i < 6; i++) {
        assert_false(glm_reply_feed(r, abc[i], write_down, &t));
        assert_string_equal(buf_text(&t.text), want[i]);
    }
    assert_true(glm_reply_feed(r, 67, write_down, &t));
    assert_true(glm_reply_feed(r, 67, write_down, &t));
    assert_string_equal(buf_text(&t.text), "C[abc");
    assert_string_equal(glm_reply_stop(r), "abcd");
    glm_reply_free(r);
    buf_release(&t.text);
}

static void refuses_stops_out_of_range(void **state)
{
    (void)state;
    static const char *stops[GLM_REPLY_MAX_STOPS + 1] = {""};
    struct glm_reply_options o = {.stops = stops, .n_stops = 1};
    struct glm_reply *r = NULL;
    assert_int_equal(glm_reply_new(pico, &o, &r, NULL), GLM_EINVAL);
    stops[0] = "\x80";
    assert_int_equal(glm_reply_new(pico, &o, &r, NULL), GLM_EINVAL);
    for (int i = 0; i <= GLM_REPLY_MAX_STOPS; i++)
        stops[i] = "x";
    o.n_stops = GLM_REPLY_MAX_STOPS + 1;
    assert_int_equal(glm_reply_new(pico, &o, &r, NULL), GLM_EINVAL);
    assert_null(r);
}

static void raw_replies_hold_every_token(void **state)
{
    (void)state;
    static const char *const stops[] = {"</think>b"};
    struct glm_reply_options o = {
        .raw = true, .in_reasoning = true, .tools = tools, .parse_calls = true};
    assert_reply(o, "a\n</think>\n<tool_call>x<|user|>", BY_END_ID,
                 "C[a\n</think>\n<tool_call>x<|user|>]");
    o.stops = stops;
    o.n_stops = 1;
    assert_reply(o, "a</think>bc", BY_END_ID, "C[a]STOP </think>b");
}

static void other_special_tokens_have_no_text_in_chat(void **state)
{
    (void)state;
    assert_answer("a<|image|>b[gMASK]<|user|>c", "C[abc]");
}

#define ARG(k, v)     "<arg_key>" k "</arg_key><arg_value>" v "</arg_value>"
#define WEATHER(args) "<tool_call>get_weather" args "</tool_call>"

static void calls_come_whole_and_trim_the_text_around(void **state)
{
    (void)state;
    assert_answer(WEATHER(ARG("city", "Oslo")), "CALL get_weather {\"city\":\"Oslo\"};");
    assert_answer("Let me look. \n" WEATHER(ARG("city", "Oslo") ARG("days", "3")) "\n\n",
                  "C[Let me look.]CALL get_weather {\"city\":\"Oslo\",\"days\":3};");
    assert_answer("a " WEATHER("") "\n" WEATHER(ARG("city", "B")) " done \n",
                  "C[a]CALL get_weather {};CALL get_weather {\"city\":\"B\"};C[done]");
    assert_answer(
        "<tool_call> get_weather\n<arg_key>city</arg_key>\n<arg_value> Oslo\n</arg_value>\n"
        "</tool_call>",
        "CALL get_weather {\"city\":\" Oslo\\n\"};");
    struct glm_reply_options o = chat_options();
    o.in_reasoning = true;
    assert_reply(o, "why</think>\n" WEATHER(""), BY_END_ID, "R[why]CALL get_weather {};");
}

static void without_tools_calls_are_text(void **state)
{
    (void)state;
    struct glm_reply_options o = {.parse_calls = true};
    assert_reply(o, WEATHER(""), BY_END_ID, "C[<tool_call>get_weather</tool_call>]");
    o = (struct glm_reply_options){.tools = tools};
    assert_reply(o, WEATHER(""), BY_END_ID, "C[<tool_call>get_weather</tool_call>]");
}

static void a_mention_of_the_tag_stays_text(void **state)
{
    (void)state;
    assert_answer("The <tool_call> tag opens a call, </tool_call> closes it.",
                  "C[The <tool_call> tag opens a call, </tool_call> closes it.]");
    assert_answer("<tool_call>, <tool_call>, " WEATHER(""),
                  "C[<tool_call>, <tool_call>,]CALL get_weather {};");
    assert_answer("use <tool_call> tag", "C[use <tool_call> tag]");
    assert_answer("<tool_call>", "C[<tool_call>]");
    assert_answer("<tool_call><arg_key>x</tool_call>", "C[<tool_call><arg_key>x</tool_call>]");
    assert_answer("<tool_call>get weather now</tool_call>",
                  "C[<tool_call>get weather now</tool_call>]");
}

static void text_is_held_for_512_bytes_at_most(void **state)
{
    (void)state;
    struct glm_reply_options o = chat_options();
    struct glm_reply *r = NULL;
    struct transcript t = {0};
    assert_int_equal(glm_reply_new(pico, &o, &r, NULL), GLM_OK);
    glm_reply_feed(r, glm_tokenizer_added(pico, "<tool_call>"), write_down, &t);
    for (int i = 0; i < 512; i++)
        glm_reply_feed(r, 64, write_down, &t);
    assert_int_equal(t.n_events, 0);
    glm_reply_feed(r, 64, write_down, &t);
    assert_int_equal(t.n_events, 1);
    assert_int_equal(t.text.len, 2 + 11 + 513);
    glm_reply_free(r);
    buf_release(&t.text);
}

static void names_are_matched_without_case_and_sent_as_offered(void **state)
{
    (void)state;
    assert_answer("<tool_call>GET_weather</tool_call>", "CALL get_weather {};");
    assert_answer("<tool_call>plain" ARG("x", "1") "</tool_call>", "CALL Plain {\"x\":1};");
    assert_answer("<tool_call>other_tool" ARG("x", "[1]") "</tool_call>",
                  "CALL other_tool {\"x\":[1]};");
    assert_answer("<tool_call>other.tool</tool_call>", "C[<tool_call>other.tool</tool_call>]");
    assert_answer(
        "<tool_call>other" ARG("x", "1e999") "</tool_call>",
        "C[<tool_call>other<arg_key>x</arg_key><arg_value>1e999</arg_value></tool_call>]");
}

static void values_are_typed_by_the_schema(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"city", "123", "\"123\""},
        {"city", "\"q\" \\ \n", "\"\\\"q\\\" \\\\ \\n\""},
        {"city", "", "\"\""},
        {"days", "3", "3"},
        {"days", "3.0", "3"},
        {"days", "1e3", "1000"},
        {"days", "3.5", "3.5"},
        {"days", "\"3\"", "3"},
        {"days", "three", "\"three\""},
        {"days", "12345678901234567890123", "12345678901234567890123"},
        {"scale", "2.50", "2.50"},
        {"scale", "2", "2"},
        {"scale", "\"2.5\"", "2.5"},
        {"now", "true", "true"},
        {"now", "\"false\"", "false"},
        {"tags", "[\"a\", \"b\"]", "[\"a\",\"b\"]"},
        {"tags", "[\"a\", \"b\"", "[\"a\",\"b\"]"},
        {"where", "{\"x\": [1, 2}", "{\"x\":[1,2]}"},
        {"where", "{\"x\": [1, 2", "\"{\\\"x\\\": [1, 2\""},
        {"where", "\"{\\\"x\\\": 1}\"", "{\"x\":1}"},
        {"note", "123", "\"123\""},
        {"note", "null", "null"},
        {"note", "nullify", "\"nullify\""},
        {"either", "5", "5"},
        {"either", "1.0", "\"1.0\""},
        {"either", "five", "\"five\""},
        {"pick", "1", "\"1\""},
        {"one", "7", "\"7\""},
        {"ref", "2", "2"},
        {"ref", "\"2\"", "2"},
        {"maybe", "null", "null"},
        {"maybe", "4", "4"},
        {"unknown", "123", "123"},
        {"unknown", "\"s\"", "\"s\""},
        {"unknown", "some text", "\"some text\""},
        {"unknown", "{\"a\": 1}", "{\"a\":1}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256], want[256];
        snprintf(text, sizeof text, WEATHER("<arg_key>%s</arg_key><arg_value>%s</arg_value>"),
                 cases[i][0], cases[i][1]);
        snprintf(want, sizeof want, "CALL get_weather {\"%s\":%s};", cases[i][0], cases[i][2]);
        assert_answer(text, want);
    }
}

static void values_may_hold_the_markup(void **state)
{
    (void)state;
    assert_answer(WEATHER(ARG("city", "a</arg_value>b</tool_call>c<arg_key>d")),
                  "CALL get_weather {\"city\":\"a</arg_value>b</tool_call>c<arg_key>d\"};");
    assert_answer(
        WEATHER(ARG("city", "<tool_call>x</arg_value></arg_value>") ARG("days", "1")),
        "CALL get_weather {\"city\":\"<tool_call>x</arg_value></arg_value>\",\"days\":1};");
    assert_answer(WEATHER(ARG("city", "</think>")), "CALL get_weather {\"city\":\"</think>\"};");
}

static void a_repeated_argument_keeps_its_last_value(void **state)
{
    (void)state;
    assert_answer(WEATHER(ARG("city", "a") ARG("days", "1") ARG("city", "b")),
                  "CALL get_weather {\"city\":\"b\",\"days\":1};");
}

static void missing_markup_is_put_back(void **state)
{
    (void)state;
    assert_answer("<tool_call>get_weather\ncity</arg_key><arg_value>Oslo</arg_value></tool_call>",
                  "CALL get_weather {\"city\":\"Oslo\"};");
    assert_answer("<tool_call>get_weather" ARG("city", "Oslo") "\ndays</arg_key><arg_value>2"
                                                               "</arg_value></tool_call>",
                  "CALL get_weather {\"city\":\"Oslo\",\"days\":2};");
    assert_answer("<tool_call>get_weather" ARG("city", "Oslo"),
                  "CALL get_weather {\"city\":\"Oslo\"};");
    assert_answer("<tool_call>get_weather", "CALL get_weather {};");
    assert_answer("<tool_call>get_weather" ARG("city", "Oslo") "<tool_call>Plain</tool_call>",
                  "CALL get_weather {\"city\":\"Oslo\"};CALL Plain {};");
    assert_answer("<tool_call>get_weather<arg_key>city</arg_key><arg_value>Os",
                  "C[<tool_call>get_weather<arg_key>city</arg_key><arg_value>Os]");
}

static void a_call_cut_by_the_limit_is_absent(void **state)
{
    (void)state;
    struct glm_reply_options o = chat_options();
    assert_reply(o, "a <tool_call>get_weather" ARG("city", "Oslo"), BY_LENGTH, "C[a]");
    assert_reply(o, WEATHER("") "<tool_call>get_weather<arg_key>ci", BY_LENGTH,
                 "CALL get_weather {};");
    assert_reply(o, "a <tool_call>get_w", BY_LENGTH, "C[a <tool_call>get_w]");
}

static void malformed_calls_stay_content(void **state)
{
    (void)state;
    assert_answer("x <tool_call>get_weather<arg_key>city</arg_key>Oslo</tool_call> y",
                  "C[x <tool_call>get_weather<arg_key>city</arg_key>Oslo</tool_call> y]");
    assert_answer("<tool_call>{\"name\": \"get_weather\", \"arguments\": [}</tool_call>",
                  "C[<tool_call>{\"name\": \"get_weather\", \"arguments\": [}</tool_call>]");
    static const char *const stops[] = {"</arg_key>O"};
    struct glm_reply_options o = chat_options();
    o.stops = stops;
    o.n_stops = 1;
    assert_reply(o, "x <tool_call>get_weather<arg_key>city</arg_key>Oslo</tool_call> y", BY_END_ID,
                 "C[x <tool_call>get_weather<arg_key>city]STOP </arg_key>O");
}

static void other_spellings_are_read_too(void **state)
{
    (void)state;
    assert_answer("<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n"
                  "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
                  "CALL get_weather {\"city\":\"Oslo\",\"days\":2};");
    assert_answer(
        "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}</tool_call>",
        "CALL get_weather {\"city\":\"Oslo\"};");
    assert_answer("<tool_call>[{\"function\":{\"name\":\"plain\",\"args\":\"{\\\"a\\\":1}\"}},"
                  "{\"name\":\"get_weather\"}]</tool_call>",
                  "CALL Plain {\"a\":1};CALL get_weather {};");
}

/* 200 references to itself at each of four levels would be 1.6e9 visits. */
static void a_schema_that_refers_to_itself_is_read_in_bounded_time(void **state)
{
    (void)state;
    struct arena arena;
    struct buf text = {0}, out = {0};
    struct glm_json *parameters = NULL;
    buf_str(&text, "{\"properties\": {\"x\": {\"anyOf\": [");
    for (int i = 0; i < 200; i++)
        buf_printf(&text, "%s{\"$ref\": \"#/properties/x\"}", i > 0 ? "," : "");
    buf_str(&text, "]}}}");
    arena_init(&arena, 8 << 20);
    assert_int_equal(glm_json_parse(text.data, text.len, &arena, &parameters, NULL), GLM_OK);
    const struct glm_json *x = glm_json_get(glm_json_get(parameters, "properties"), "x");
    alarm(20);
    glm_call_type_value(parameters, x, "5", 1, &out);
    alarm(0);
    assert_string_equal(out.data, "5");
    buf_release(&text);
    buf_release(&out);
    arena_release(&arena);
}

static void bare_json_counts_only_with_offered_names(void **state)
{
    (void)state;
    assert_answer("{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\"}}",
                  "CALL get_weather {\"city\":\"Oslo\"};");
    assert_answer("[{\"name\":\"Plain\",\"arguments\":{}}]\n", "CALL Plain {};");
    assert_answer("{\"name\": \"Mia\", \"age\": 31}", "C[{\"name\": \"Mia\", \"age\": 31}]");
    assert_answer("{\"name\": \"get_weather\"", "C[{\"name\": \"get_weather\"]");
    assert_answer("See: {\"name\":\"Plain\"}", "C[See: {\"name\":\"Plain\"}]");
    struct glm_reply_options o = chat_options();
    assert_reply(o, "{\"name\":\"Plain\"}", BY_LENGTH, "C[{\"name\":\"Plain\"}]");
}

static void json_answers_are_not_held(void **state)
{
    (void)state;
    struct glm_reply_options o = chat_options();
    struct glm_reply *r = NULL;
    struct transcript t = {0};
    assert_int_equal(glm_reply_new(pico, &o, &r, NULL), GLM_OK);
    struct glm_ids ids = {0};
    const char text[] = "{\"city\":";
    assert_int_equal(glm_tokenizer_encode(pico, text, sizeof text - 1, false, &ids), GLM_OK);
    for (size_t i = 0; i < ids.n; i++)
        glm_reply_feed(r, ids.ids[i], write_down, &t);
    assert_string_equal(buf_text(&t.text), "C[{\"city\":");
    glm_reply_free(r);
    glm_ids_release(&ids);
    buf_release(&t.text);
}

/* What is left of a block when the memory for its marks could not be had. */
static void a_block_without_memory_is_text(void **state)
{
    (void)state;
    struct glm_block b = {.failed = true};
    struct glm_calls calls = {0};
    buf_str(&b.text, glm_mark_text[GLM_MARK_CALL]);
    assert_int_equal(glm_block_decide(&b), GLM_IS_TEXT);
    assert_true(glm_block_may_open(&b));
    for (int kind = 0; kind < GLM_N_MARKS; kind++)
        glm_block_mark(&b, (enum glm_mark_kind)kind);
    glm_block_close(&b);
    assert_int_equal(b.n_marks, 0);
    assert_int_equal(glm_block_decide(&b), GLM_IS_TEXT);
    assert_false(glm_block_parse(&b, NULL, false, &calls));
    glm_block_release(&b);
}

static void calls_at_the_very_end_of_the_reasoning_count(void **state)
{
    (void)state;
    struct glm_reply_options o = chat_options();
    o.in_reasoning = true;
    assert_reply(o, "I look." WEATHER(ARG("city", "Oslo")) "\n" WEATHER(""), BY_END_ID,
                 "R[I look.]CALL get_weather {\"city\":\"Oslo\"};CALL get_weather {};");
    assert_reply(o, "I look." WEATHER("") " Done.", BY_END_ID,
                 "R[I look.<tool_call>get_weather</tool_call> Done.]"
                 "AGAIN[I look.<tool_call>get_weather</tool_call> Done.]");
    assert_reply(o, "I look." WEATHER(""), BY_LENGTH,
                 "R[I look.<tool_call>get_weather</tool_call>]");
    assert_reply(o, WEATHER("") "</think>x", BY_END_ID,
                 "R[<tool_call>get_weather</tool_call>]C[x]");
    assert_reply(o, "<tool_call>get_weather</think>x", BY_END_ID, "R[<tool_call>get_weather]C[x]");
    assert_reply(o, WEATHER("") WEATHER("") "</think>" WEATHER(""), BY_END_ID,
                 "R[<tool_call>get_weather</tool_call><tool_call>get_weather</tool_call>]"
                 "CALL get_weather {};");
}

static void reasoning_is_held_for_1024_bytes_at_most(void **state)
{
    (void)state;
    struct glm_reply_options o = chat_options();
    o.in_reasoning = true;
    struct glm_reply *r = NULL;
    struct transcript t = {0};
    assert_int_equal(glm_reply_new(pico, &o, &r, NULL), GLM_OK);
    struct glm_ids ids = {0};
    const char text[] = "<tool_call>get_weather<arg_key>city</arg_key><arg_value>";
    assert_int_equal(glm_tokenizer_encode(pico, text, sizeof text - 1, true, &ids), GLM_OK);
    for (size_t i = 0; i < ids.n; i++)
        glm_reply_feed(r, ids.ids[i], write_down, &t);
    for (int i = 0; i < 1000; i++)
        glm_reply_feed(r, 64, write_down, &t);
    assert_int_equal(t.n_events, 1000 - (1024 - (int)sizeof text + 1));
    glm_reply_free(r);
    glm_ids_release(&ids);
    buf_release(&t.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reasoning_ends_at_the_think_token),
        cmocka_unit_test(an_answer_inside_an_unclosed_block_comes_once_more_as_content),
        cmocka_unit_test(counts_ids_inside_the_block),
        cmocka_unit_test(incomplete_characters_are_held),
        cmocka_unit_test(broken_characters_are_replaced),
        cmocka_unit_test(stop_strings_cut_the_visible_answer),
        cmocka_unit_test(the_beginning_of_a_stop_string_is_held),
        cmocka_unit_test(refuses_stops_out_of_range),
        cmocka_unit_test(raw_replies_hold_every_token),
        cmocka_unit_test(other_special_tokens_have_no_text_in_chat),
        cmocka_unit_test(calls_come_whole_and_trim_the_text_around),
        cmocka_unit_test(without_tools_calls_are_text),
        cmocka_unit_test(a_mention_of_the_tag_stays_text),
        cmocka_unit_test(text_is_held_for_512_bytes_at_most),
        cmocka_unit_test(names_are_matched_without_case_and_sent_as_offered),
        cmocka_unit_test(values_are_typed_by_the_schema),
        cmocka_unit_test(a_schema_that_refers_to_itself_is_read_in_bounded_time),
        cmocka_unit_test(values_may_hold_the_markup),
        cmocka_unit_test(a_repeated_argument_keeps_its_last_value),
        cmocka_unit_test(missing_markup_is_put_back),
        cmocka_unit_test(a_call_cut_by_the_limit_is_absent),
        cmocka_unit_test(malformed_calls_stay_content),
        cmocka_unit_test(other_spellings_are_read_too),
        cmocka_unit_test(bare_json_counts_only_with_offered_names),
        cmocka_unit_test(json_answers_are_not_held),
        cmocka_unit_test(a_block_without_memory_is_text),
        cmocka_unit_test(calls_at_the_very_end_of_the_reasoning_count),
        cmocka_unit_test(reasoning_is_held_for_1024_bytes_at_most),
    };
    return cmocka_run_group_tests_name("reply", tests, open_all, close_all);
}
