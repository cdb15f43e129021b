/* SPDX-License-Identifier: Apache-2.0 */
/* How many token ids a checkpoint has, by its tokenizer.json. */
#include "spec/check.h"
#include "tests/support/opening.h"

#include <stdio.h>
#include <string.h>

static struct opening f;

/* Opens a pack with this tokenizer.json beside it; NULL: without one. */
static enum glm_status open_with_tokenizer(const char *text)
{
    pack_init(&f.pack, &f.model, 4, 1);
    pack_folder(f.folder, sizeof f.folder);
    pack_write_text(f.folder, "config.json", f.config.data);
    pack_write(&f.pack, f.folder);
    if (text != NULL)
        pack_write_text(f.folder, "tokenizer.json", text);
    return opening_open(&f, f.folder);
}

static void ids_end_behind_the_largest_of_vocabulary_and_added_tokens(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t n;
    } cases[] = {
        {NULL, 2048},
        {"{\"added_tokens\": [{\"id\": 2021}, {\"content\": \"x\", \"id\": 2030}],"
         " \"model\": {\"vocab\": {\"a\": 0, \"b\": 2025}, \"merges\": [[\"a\"",
         2031}, /* what follows the vocabulary is not read */
        {"{\"model\": {\"type\": 9000, \"vocab\": {\"a\": 2040, \"id\": 7}, \"merges\": [3000]},"
         " \"x\": {\"vocab\": {\"c\": 4000}}, \"added_tokens\": [{\"id\": 2021, \"n\": 9999}]}",
         2041},
        {"{\"added_tokens\": null, \"model\": {\"vocab\": {\"a\": 2021}}}", 2022},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        opening_start(&f);
        if (open_with_tokenizer(cases[i].text) != GLM_OK)
            opening_fail(&f, cases[i].text);
        assert_int_equal(f.c->model.n_valid_ids, cases[i].n);
        opening_stop(&f);
    }
}

static void each_broken_tokenizer_is_refused_with_its_reason(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"{\"model\": {\"vocab\": {\"a\": 2048}}}",
         "token id 2048, but config.json's 'vocab_size' is 2048"},
        {"{\"model\": {\"vocab\": {\"a\": 2011}}}",
         "'eos_token_id' 2012 has no token: the largest id in"},
        {"{\"model\": {\"vocab\": {\"a\": -1}}}", "id is not a whole number below 4194304"},
        {"{\"model\": {\"vocab\": {\"a\": 1e3}}}", "id is not a whole number below 4194304"},
        {"{\"model\": {\"vocab\": {\"a\": 4194304}}}", "id is not a whole number below 4194304"},
        {"{\"model\": {\"vocab\": {\"a\": 99999999999999999999}}}", "id is not a whole number"},
        {"{\"model\": {\"vocab\": [\"a\"]}}", "no object 'model.vocab' of token ids"},
        {"{\"model\": {\"vocab\": {\"a\": 2047}", "not valid JSON"},
        {"{\"model\": {\"vocab\": {\"a\": 2047}} x", "not valid JSON"},
        {"", "not valid JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        opening_start(&f);
        assert_int_equal(open_with_tokenizer(cases[i].text), GLM_ECHECKPOINT);
        assert_int_equal(f.diags.n_items, 1);
        assert_string_equal(f.diags.items[0].id, "checkpoint.tokenizer");
        if (strstr(f.diags.items[0].message, cases[i].want) == NULL)
            fail_msg("%s\n%s", f.diags.items[0].message, cases[i].want);
        opening_stop(&f);
    }
}

static void the_digest_follows_the_token_ids(void **state)
{
    (void)state;
    static const char *const texts[] = {NULL, "{\"model\": {\"vocab\": {\"a\": 2021}}}",
                                        "{\"model\": {\"vocab\": {\"a\": 2022}}}"};
    char digests[3][65];
    for (int i = 0; i < 3; i++) {
        opening_start(&f);
        assert_int_equal(open_with_tokenizer(texts[i]), GLM_OK);
        memcpy(digests[i], f.c->digest, 65);
        opening_stop(&f);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(digests[i], digests[k]);
    }
}

/* The published file: 151,000 tokens, then 318,000 merges, 20 MB. */
static void a_tokenizer_of_the_full_size_is_read_in_time(void **state)
{
    (void)state;
    struct buf text = {0};
    buf_str(&text, "{\"added_tokens\": [{\"id\": 2021}], \"model\": {\"vocab\": {");
    for (int i = 0; i < 151000; i++)
        buf_printf(&text, "%s\n      \"\\u0120token%d\": %d", i > 0 ? "," : "", i, i % 2048);
    buf_str(&text, "}, \"merges\": [");
    for (int i = 0; i < 318000; i++)
        buf_printf(&text, "%s\n      [\n \"some\",\n \"thing%d\"\n ]", i > 0 ? "," : "", i);
    buf_str(&text, "]}}");
    opening_start(&f);
    double best = 1e9;
    pack_folder(f.folder, sizeof f.folder);
    pack_write_text(f.folder, "tokenizer.json", text.data);
    buf_release(&text);
    char path[300];
    snprintf(path, sizeof path, "%s/tokenizer.json", f.folder);
    for (int i = 0; i < 5; i++) {
        uint32_t n = 0;
        uint64_t bytes = 0;
        struct glm_error err = {0};
        double began = opening_seconds();
        assert_int_equal(checkpoint_token_ids(path, &n, &bytes, &err), GLM_OK);
        double took = opening_seconds() - began;
        best = took < best ? took : best;
        assert_int_equal(n, 2048);
    }
    print_message("read in %.1f ms\n", best * 1e3);
    assert_true(best < 1); /* 0.1 s is the promise for a plain build on an idle machine */
    opening_stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_end_behind_the_largest_of_vocabulary_and_added_tokens),
        cmocka_unit_test(each_broken_tokenizer_is_refused_with_its_reason),
        cmocka_unit_test(the_digest_follows_the_token_ids),
        cmocka_unit_test(a_tokenizer_of_the_full_size_is_read_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
