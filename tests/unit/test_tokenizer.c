/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenising against golden ids, and what tokenizer files are refused. */
#include "runtime/json.h"
#include "runtime/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define PICO "clusters/demo/exl3/tokenizer.json"

static struct glm_tokenizer *pico;

static int open_pico(void **state)
{
    (void)state;
    struct glm_error err = {0};
    if (glm_tokenizer_open(PICO, &pico, &err) != GLM_OK)
        fail_msg("%s", err.message);
    return 0;
}

static int close_pico(void **state)
{
    (void)state;
    glm_tokenizer_free(pico);
    return 0;
}

static struct buf decode(const struct glm_tokenizer *t, const struct glm_ids *ids)
{
    struct buf text = {0};
    for (size_t i = 0; i < ids->n; i++)
        assert_true(glm_tokenizer_bytes(t, ids->ids[i], false, &text));
    return text;
}

static void assert_round_trip(const struct glm_tokenizer *t, const char *text, size_t len)
{
    struct glm_ids ids = {0};
    assert_int_equal(glm_tokenizer_encode(t, text, len, true, &ids), GLM_OK);
    struct buf back = decode(t, &ids);
    assert_int_equal(back.len, len);
    if (len > 0)
        assert_memory_equal(back.data, text, len);
    buf_release(&back);
    glm_ids_release(&ids);
}

static void assert_ids(const struct glm_tokenizer *t, const char *text, size_t len, bool special,
                       const int32_t *want, size_t n)
{
    struct glm_ids ids = {0};
    assert_int_equal(glm_tokenizer_encode(t, text, len, special, &ids), GLM_OK);
    assert_int_equal(ids.n, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(ids.ids[i], want[i]);
    glm_ids_release(&ids);
}

static void golden_strings_have_golden_ids(void **state)
{
    (void)state;
    struct buf file = {0};
    struct arena arena;
    arena_init(&arena, 16 << 20);
    struct glm_json *cases = NULL;
    assert_int_equal(glm_file_read("tests/golden/pico/tokenizer.json", 1 << 20, &file, NULL),
                     GLM_OK);
    assert_int_equal(glm_json_parse(file.data, file.len, &arena, &cases, NULL), GLM_OK);
    assert_int_equal(cases->n_children, 36);
    for (const struct glm_json *v = cases->first; v != NULL; v = v->next) {
        const struct glm_json *text = glm_json_get(v, "text"), *want = glm_json_get(v, "ids");
        const struct glm_json *decoded = glm_json_get(v, "decoded");
        struct glm_ids ids = {0};
        assert_int_equal(glm_tokenizer_encode(pico, text->text, text->len, true, &ids), GLM_OK);
        if (ids.n != want->n_children)
            fail_msg("'%s': %zu ids, want %zu", text->text, ids.n, want->n_children);
        size_t i = 0;
        for (const struct glm_json *id = want->first; id != NULL; id = id->next, i++)
            if (ids.ids[i] != atoi(id->text))
                fail_msg("'%s' id %zu: %d, want %s", text->text, i, ids.ids[i], id->text);
        struct buf back = decode(pico, &ids);
        assert_int_equal(back.len, decoded->len);
        assert_string_equal(buf_text(&back), decoded->text);
        buf_release(&back);
        glm_ids_release(&ids);
    }
    arena_release(&arena);
    buf_release(&file);
}

static void added_tokens_are_text_unless_asked_for(void **state)
{
    (void)state;
    const char text[] = "<|user|>";
    assert_ids(pico, text, 8, true, (int32_t[]){2019}, 1);
    struct glm_ids ids = {0};
    assert_int_equal(glm_tokenizer_encode(pico, text, 8, false, &ids), GLM_OK);
    assert_int_equal(ids.ids[0], 27); /* '<' */
    assert_true(ids.n > 3);
    glm_ids_release(&ids);
}

static void looks_up_added_tokens(void **state)
{
    (void)state;
    assert_int_equal(glm_tokenizer_added(pico, "<|user|>"), 2019);
    assert_int_equal(glm_tokenizer_added(pico, "<think>"), 2033);
    assert_int_equal(glm_tokenizer_added(pico, "user"), -1);
    assert_true(glm_tokenizer_is_special(pico, 2019));
    assert_false(glm_tokenizer_is_special(pico, 64));
    assert_false(glm_tokenizer_is_special(pico, -1));
    assert_false(glm_tokenizer_is_special(pico, 1 << 30));
    assert_int_equal(glm_tokenizer_size(pico), 2048);
}

static void special_tokens_can_be_left_out_of_the_text(void **state)
{
    (void)state;
    struct buf text = {0};
    assert_true(glm_tokenizer_bytes(pico, 2019, true, &text));
    assert_int_equal(text.len, 0);
    assert_true(glm_tokenizer_bytes(pico, 2019, false, &text));
    assert_string_equal(buf_text(&text), "<|user|>");
    assert_false(glm_tokenizer_bytes(pico, 2048, false, &text));
    assert_false(glm_tokenizer_bytes(pico, -1, false, &text));
    buf_release(&text);
}

static void bytes_that_are_not_utf8_are_kept(void **state)
{
    (void)state;
    static const char *const texts[] = {"\xff",
                                        ("a\xff\xfe"
                                         "b"),
                                        "\xe4\xb8",
                                        "\xc0\x80\xf5",
                                        "x\x80<|user|>\x80y",
                                        "\xed\xa0\x80z",
                                        "\xf0\x9f\x98 ok"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_round_trip(pico, texts[i], strlen(texts[i]));
    char all[256];
    for (int i = 0; i < 256; i++)
        all[i] = (char)i;
    assert_round_trip(pico, all, sizeof all);
    /* The text around a bad byte is tokenised as if it stood alone. */
    struct glm_ids alone = {0}, beside = {0};
    assert_int_equal(glm_tokenizer_encode(pico, "Hello, world!", 13, true, &alone), GLM_OK);
    assert_int_equal(glm_tokenizer_encode(pico, "\xffHello, world!", 14, true, &beside), GLM_OK);
    assert_int_equal(beside.n, alone.n + 1);
    assert_memory_equal(beside.ids + 1, alone.ids, alone.n * sizeof *alone.ids);
    glm_ids_release(&alone);
    glm_ids_release(&beside);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Far above what is needed (1 MB takes about 0.1 s), far below what anything quadratic takes. */
static void long_texts_of_one_kind_take_linear_time(void **state)
{
    (void)state;
    static const char *const units[] = {"a", "the",  " ", "\n", "\xe4\xb8\xad",
                                        "<", "\xff", "1", "!?"};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        struct buf text = {0};
        while (text.len < 3 << 20)
            buf_str(&text, units[i]);
        double start = now();
        assert_round_trip(pico, text.data, text.len);
        double took = now() - start;
        if (took > 20)
            fail_msg("3 MiB of '%s' took %.1f s", units[i], took);
        buf_release(&text);
    }
}

/* ---- Files ---- */

/* A file with all bytes, some merges and the given parts. */
static void write_file(struct buf *out, const char *vocab_more, const char *merges,
                       const char *more, const char *model_more)
{
    buf_clear(out);
    buf_str(out, "{\"model\":{\"type\":\"BPE\",\"vocab\":{");
    int next = 256;
    for (int b = 0; b < 256; b++) {
        bool itself = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        buf_printf(out, "%s\"\\u%04x\":%d", b > 0 ? "," : "", itself ? b : next++, b);
    }
    buf_printf(out, "%s},\"merges\":%s%s}%s}", vocab_more, merges, model_more, more);
}

#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"
#define PLAIN      ",\"pre_tokenizer\":" BYTE_LEVEL

static struct glm_tokenizer *parsed(const struct buf *file)
{
    struct glm_tokenizer *t = NULL;
    struct glm_error err = {0};
    if (glm_tokenizer_parse(file->data, file->len, &t, &err) != GLM_OK)
        fail_msg("%s", err.message);
    return t;
}

static void merges_by_rank_leftmost_first(void **state)
{
    (void)state;
    struct buf file = {0};
    static const char vocab[] = ",\"aa\":300,\"aaa\":301,\"ab\":302,\"aab\":303";
    static const char *const spellings[] = {
        "[[\"a\",\"a\"],[\"a\",\"b\"],[\"aa\",\"a\"],[\"aa\",\"b\"]]",
        "[\"a a\",\"a b\",\"aa a\",\"aa b\"]"};
    for (int i = 0; i < 2; i++) {
        write_file(&file, vocab, spellings[i], PLAIN, "");
        struct glm_tokenizer *t = parsed(&file);
        assert_ids(t, "aaa", 3, true, (int32_t[]){301}, 1);
        assert_ids(t, "aaaa", 4, true, (int32_t[]){300, 300}, 2);
        assert_ids(t, "aaaaa", 5, true, (int32_t[]){300, 301}, 2);
        assert_ids(t, "aab", 3, true, (int32_t[]){303}, 1);
        assert_ids(t, "bab", 3, true, (int32_t[]){'b', 302}, 2);
        glm_tokenizer_free(t);
    }
    buf_release(&file);
}

static void a_whole_token_is_taken_first_where_the_file_says_so(void **state)
{
    (void)state;
    struct buf file = {0};
    static const char vocab[] = ",\"aa\":300,\"aaa\":301,\"xyz\":302";
    write_file(&file, vocab, "[\"a a\"]", PLAIN, "");
    struct glm_tokenizer *t = parsed(&file);
    assert_ids(t, "xyz", 3, true, (int32_t[]){'x', 'y', 'z'}, 3);
    glm_tokenizer_free(t);
    write_file(&file, vocab, "[\"a a\"]", PLAIN, ",\"ignore_merges\":true");
    t = parsed(&file);
    assert_ids(t, "xyz", 3, true, (int32_t[]){302}, 1);
    assert_ids(t, "aaa", 3, true, (int32_t[]){301}, 1);
    assert_ids(t, "aaaa", 4, true, (int32_t[]){300, 300}, 2);
    glm_tokenizer_free(t);
    buf_release(&file);
}

static void the_longest_added_token_wins(void **state)
{
    (void)state;
    struct buf file = {0};
    write_file(&file, "", "[]",
               PLAIN ",\"added_tokens\":[{\"id\":400,\"content\":\"<a>\",\"special\":true},"
                     "{\"id\":401,\"content\":\"<a><b>\",\"special\":false},"
                     "{\"id\":402,\"content\":\"a>\"}]",
               "");
    struct glm_tokenizer *t = parsed(&file);
    assert_ids(t, "<a><b>", 6, true, (int32_t[]){401}, 1);
    assert_ids(t, "<a><a>", 6, true, (int32_t[]){400, 400}, 2);
    assert_ids(t, "a>", 2, true, (int32_t[]){402}, 1);
    assert_ids(t, "<a", 2, true, (int32_t[]){'<', 'a'}, 2);
    assert_ids(t, "<a>", 3, false, (int32_t[]){'<', 'a', '>'}, 3);
    assert_true(glm_tokenizer_is_special(t, 400));
    assert_false(glm_tokenizer_is_special(t, 401));
    assert_int_equal(glm_tokenizer_size(t), 403);
    struct buf none = {0};
    assert_false(glm_tokenizer_bytes(t, 399, false, &none));
    glm_tokenizer_free(t);
    buf_release(&file);
}

static void mongolian_vowel_separator_is_no_space(void **state)
{
    (void)state;
    struct buf file = {0};
    /* Where the second character is a space for the pattern, it is in a's piece and merges. */
    write_file(&file, ",\"a\\u00e1\":300,\"a\\u00e2\":301",
               "[[\"a\",\"\\u00e1\"],[\"a\",\"\\u00e2\"]]",
               ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
               "\"pattern\":{\"Regex\":\"a[\\\\s]?\"},\"behavior\":\"Isolated\",\"invert\":false}"
               "," BYTE_LEVEL "]}",
               "");
    struct glm_tokenizer *t = parsed(&file);
    assert_ids(t, "a\xe1\xa0\x8e", 4, true, (int32_t[]){'a', 0xE1, 0xA0, 0x8E}, 4);
    assert_ids(t, "a\xe2\x80\x83", 4, true, (int32_t[]){301, 0x80, 0x83}, 3);
    glm_tokenizer_free(t);
    buf_release(&file);
}

static void refuses_what_it_does_not_implement(void **state)
{
    (void)state;
    static const struct {
        const char *vocab, *merges, *more, *model, *want;
    } cases[] = {
        {"", "[]", "", "", "no 'ByteLevel' pre-tokenizer"},
        {"", "[]", ",\"pre_tokenizer\":{\"type\":\"Metaspace\"}", "", "pre-tokenizer 'Metaspace'"},
        {"", "[]",
         ",\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
         "\"use_regex\":false}",
         "", "'add_prefix_space': false"},
        {"", "[]", ",\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}", "",
         "'use_regex': false"},
        {"", "[]",
         ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
         "\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Removed\"}," BYTE_LEVEL "]}",
         "", "'Removed', want 'Isolated'"},
        {"", "[]",
         ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
         "\"pattern\":{\"Regex\":\"(a\"},\"behavior\":\"Isolated\"}," BYTE_LEVEL "]}",
         "", "does not compile"},
        {"", "[]",
         ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
         "\"pattern\":{\"String\":\"a\"},\"behavior\":\"Isolated\"}," BYTE_LEVEL "]}",
         "", "no 'pattern.Regex'"},
        {"", "[]", PLAIN ",\"normalizer\":{\"type\":\"NFC\"}", "", "normalizer 'NFC'"},
        {"", "[]", PLAIN ",\"decoder\":{\"type\":\"Metaspace\"}", "", "decoder 'Metaspace'"},
        {"", "[]", PLAIN ",\"post_processor\":{\"type\":\"TemplateProcessing\"}", "",
         "post-processor 'TemplateProcessing'"},
        {"", "[]", PLAIN, ",\"dropout\":0.1", "'model.dropout'"},
        {"", "[]", PLAIN, ",\"end_of_word_suffix\":\"</w>\"", "'model.end_of_word_suffix'"},
        {"", "{}", PLAIN, "", "'model.merges'"},
        {"", "[\"a b\"]", PLAIN, "", "merge 0 names or makes a token"},
        {"", "[\"ab\"]", PLAIN, "", "merge 0 is not a pair"},
        {"", "[[\"a\",1]]", PLAIN, "", "merge 0 is not a pair"},
        {",\"ab\":7", "[]", PLAIN, "", "id 7 belongs to two tokens"},
        {",\"ab\":-1", "[]", PLAIN, "", "token 'ab' has an id"},
        {",\"ab\":4194304", "[]", PLAIN, "", "token 'ab' has an id"},
        {",\"ab\":1e3", "[]", PLAIN, "", "token 'ab' has an id"},
        {"", "[]", PLAIN ",\"added_tokens\":[{\"id\":7,\"content\":\"xx\"}]", "",
         "id 7 belongs to two tokens"},
        {"", "[]", PLAIN ",\"added_tokens\":[{\"id\":300,\"content\":\"x\",\"lstrip\":true}]", "",
         "asks for 'lstrip'"},
        {"", "[]", PLAIN ",\"added_tokens\":[{\"id\":300,\"content\":\"\"}]", "", "no content"},
        {"", "[]",
         PLAIN ",\"added_tokens\":[{\"id\":300,\"content\":\"q q\"},{\"id\":301,"
               "\"content\":\"q q\"}]",
         "", "listed twice"},
        {"", "[]", PLAIN ",\"added_tokens\":[{\"content\":\"x\"}]", "",
         "added token 'x' has an id"},
    };
    struct buf file = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_file(&file, cases[i].vocab, cases[i].merges, cases[i].more, cases[i].model);
        struct glm_tokenizer *t = NULL;
        struct glm_error err = {0};
        enum glm_status status = glm_tokenizer_parse(file.data, file.len, &t, &err);
        if (status != GLM_ECHECKPOINT || strstr(err.message, cases[i].want) == NULL)
            fail_msg("case %zu: status %d '%s', want '%s'", i, (int)status, err.message,
                     cases[i].want);
        assert_null(t);
    }
    buf_release(&file);
}

static void refuses_a_vocabulary_without_all_bytes(void **state)
{
    (void)state;
    static const char text[] =
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}" PLAIN "}";
    struct glm_tokenizer *t = NULL;
    struct glm_error err = {0};
    assert_int_equal(glm_tokenizer_parse(text, sizeof text - 1, &t, &err), GLM_ECHECKPOINT);
    assert_non_null(strstr(err.message, "no token for byte 0x00"));
    assert_int_equal(glm_tokenizer_open("/nowhere/tokenizer.json", &t, NULL), GLM_ENOTFOUND);
    err = (struct glm_error){0};
    assert_int_equal(glm_tokenizer_parse("{", 1, &t, &err), GLM_ECHECKPOINT);
    assert_non_null(strstr(err.message, "premature EOF at byte 1"));
}

/* The size of the full model's file: 154,880 tokens, 320,000 merges as pairs. */
static void a_full_size_file_loads_in_a_second(void **state)
{
    (void)state;
    struct buf vocab = {0}, merges = {0}, file = {0};
    buf_char(&merges, '[');
    int id = 256;
    for (int i = 0; i < 52; i++) {
        int a = i < 26 ? 'a' + i : 'A' + i - 26;
        for (int j = 0; j < 52; j++) {
            int b = j < 26 ? 'a' + j : 'A' + j - 26;
            buf_printf(&vocab, ",\"%c%c\":%d", a, b, id++);
            buf_printf(&merges, "[\"%c\",\"%c\"],", a, b);
        }
    }
    for (int i = 0; id < 154880; i++, id++) {
        int a = i / 140608 % 52, b = i / 2704 % 52, c = i / 52 % 52, d = i % 52;
        int e = i / 140608;
        char w[] = {
            (char)(a < 26 ? 'a' + a : 'A' + a - 26), (char)(b < 26 ? 'a' + b : 'A' + b - 26),
            (char)(c < 26 ? 'a' + c : 'A' + c - 26), (char)(d < 26 ? 'a' + d : 'A' + d - 26), 0};
        buf_printf(&vocab, ",\"%s%s\":%d", w, e > 51 ? "x" : "", id);
        buf_printf(&merges, "[\"%.2s\",\"%s\"],[\"%.2s\",\"%s\"],", w, w + 2, w, w + 2);
    }
    merges.data[merges.len - 1] = ']';
    write_file(&file, vocab.data, merges.data, PLAIN, "");
    double start = now();
    struct glm_tokenizer *t = parsed(&file);
    double took = now() - start;
    print_message("%zu bytes in %.2f s\n", file.len, took);
    assert_int_equal(glm_tokenizer_size(t), 154880);
    glm_tokenizer_free(t);
    buf_release(&vocab);
    buf_release(&merges);
    buf_release(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_strings_have_golden_ids),
        cmocka_unit_test(added_tokens_are_text_unless_asked_for),
        cmocka_unit_test(looks_up_added_tokens),
        cmocka_unit_test(special_tokens_can_be_left_out_of_the_text),
        cmocka_unit_test(bytes_that_are_not_utf8_are_kept),
        cmocka_unit_test(long_texts_of_one_kind_take_linear_time),
        cmocka_unit_test(merges_by_rank_leftmost_first),
        cmocka_unit_test(a_whole_token_is_taken_first_where_the_file_says_so),
        cmocka_unit_test(the_longest_added_token_wins),
        cmocka_unit_test(mongolian_vowel_separator_is_no_space),
        cmocka_unit_test(refuses_what_it_does_not_implement),
        cmocka_unit_test(refuses_a_vocabulary_without_all_bytes),
        cmocka_unit_test(a_full_size_file_loads_in_a_second),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, open_pico, close_pico);
}
