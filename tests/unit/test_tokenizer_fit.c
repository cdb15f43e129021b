/* SPDX-License-Identifier: Apache-2.0 */
/* A tokenizer that a plan cannot be served with is refused, naming the file and what is wrong. */
#include "runtime/tokenizer_fit.h"

#include "tests/support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char pico[] = "clusters/demo/exl3";
static const uint32_t end_ids[] = {2012, 2019, 2021};

static struct glm_plan pico_plan(void)
{
    return (struct glm_plan){
        .d_vocab = 2048, .n_valid_ids = 2048, .end_ids = end_ids, .n_end_ids = 3};
}

static void the_demos_tokenizer_fits_as_checkpoint_and_as_geometry(void **state)
{
    (void)state;
    const char *const checkpoints[] = {pico, "synthetic:clusters/demo/exl3"};
    const struct glm_plan p = pico_plan();
    for (int i = 0; i < 2; i++) {
        struct glm_error err = {0};
        struct glm_tokenizer *t = NULL;
        if (glm_tokenizer_fit(checkpoints[i], &p, &t, &err) != GLM_OK)
            fail_msg("%s", err.message);
        assert_int_equal(glm_tokenizer_size(t), 2048);
        glm_tokenizer_free(t);
    }
}

static void expect_refusal(const char *checkpoint, const struct glm_plan *p, enum glm_status status,
                           const char *words)
{
    struct glm_error err = {0};
    struct glm_tokenizer *t = NULL;
    assert_int_equal(glm_tokenizer_fit(checkpoint, p, &t, &err), status);
    assert_null(t);
    if (strstr(err.message, checkpoint) == NULL || strstr(err.message, "/tokenizer.json") == NULL ||
        strstr(err.message, words) == NULL)
        fail_msg("'%s' lacks '%s/tokenizer.json' or '%s'", err.message, checkpoint, words);
}

static void ids_must_be_the_plans(void **state)
{
    (void)state;
    static const uint32_t far[] = {2012, 2047, 2048};
    struct glm_plan p = pico_plan();
    p.d_vocab = 2000;
    expect_refusal(pico, &p, GLM_ECHECKPOINT, "ids up to 2047, the model's vocabulary is 2000");
    p = pico_plan();
    p.n_valid_ids = 2040;
    expect_refusal(pico, &p, GLM_ESTALE, "ids up to 2047, the plan was made for 2039");
    p = pico_plan();
    p.end_ids = far;
    expect_refusal(pico, &p, GLM_ECHECKPOINT, "no token 2048, which ends a reply");
}

/* The demo's tokenizer with `from` written as `to`, which has its length. */
static char *changed_tokenizer(const char *from, const char *to)
{
    size_t len;
    char *folder = folder_new(), *text = folder_read(pico, "tokenizer.json", &len);
    assert_non_null(text);
    assert_int_equal(strlen(from), strlen(to));
    char *at = strstr(text, from);
    assert_non_null(at);
    for (; at != NULL; at = strstr(at, from))
        memcpy(at, to, strlen(to));
    folder_write(folder, "tokenizer.json", text);
    free(text);
    return folder;
}

static void the_chat_layouts_tokens_must_be_there(void **state)
{
    (void)state;
    static const char *const tokens[] = {"[gMASK]", "<|observation|>", "<think>", "</arg_value>"};
    const struct glm_plan p = pico_plan();
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        char other[32], words[64];
        snprintf(other, sizeof other, "%s", tokens[i]);
        other[2] = '_';
        snprintf(words, sizeof words, "no added token '%s'", tokens[i]);
        char *folder = changed_tokenizer(tokens[i], other);
        expect_refusal(folder, &p, GLM_ECHECKPOINT, words);
        folder_remove(folder);
    }
}

static void a_broken_or_missing_file_is_named(void **state)
{
    (void)state;
    const struct glm_plan p = pico_plan();
    char *folder = folder_new();
    expect_refusal(folder, &p, GLM_ENOTFOUND, "");
    folder_write(folder, "tokenizer.json", "{\"model\": {");
    expect_refusal(folder, &p, GLM_ECHECKPOINT, "cannot use tokenizer.json");
    folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_demos_tokenizer_fits_as_checkpoint_and_as_geometry),
        cmocka_unit_test(ids_must_be_the_plans),
        cmocka_unit_test(the_chat_layouts_tokens_must_be_there),
        cmocka_unit_test(a_broken_or_missing_file_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
