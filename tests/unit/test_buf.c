/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/base/buf.h"
#include "tests/support/pack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void grows_and_stays_terminated(void **state)
{
    (void)state;
    struct buf b = {0};
    assert_string_equal(buf_text(&b), "");
    for (int i = 0; i < 1000; i++)
        buf_printf(&b, "%d,", i % 10);
    assert_int_equal(b.len, 2000);
    assert_int_equal(strlen(b.data), 2000);
    buf_clear(&b);
    assert_string_equal(buf_text(&b), "");
    buf_str(&b, "a");
    buf_char(&b, 'b');
    buf_add(&b, "\0c", 2);
    assert_int_equal(b.len, 4);
    assert_memory_equal(b.data, "ab\0c", 5);
    buf_release(&b);
}

static void json_strings_are_escaped_and_always_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len;
        const char *json;
    } cases[] = {
        {"plain", 5, "\"plain\""},
        {"a\"b\\c", 5, "\"a\\\"b\\\\c\""},
        {"\n\t\r\x01", 4, "\"\\n\\t\\r\\u0001\""},
        {"\xC3\xA4\xF0\x9F\x98\x80", 6, "\"\xC3\xA4\xF0\x9F\x98\x80\""},
        {"\xC3", 1, "\"\xEF\xBF\xBD\""},                                   /* cut */
        {"\xC0\xAF", 2, "\"\xEF\xBF\xBD\xEF\xBF\xBD\""},                   /* overlong */
        {"\xED\xA0\x80x", 4, "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDx\""}, /* surrogate */
        {"a\0b", 3, "\"a\\u0000b\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buf b = {0};
        buf_json_string(&b, cases[i].bytes, cases[i].len);
        assert_string_equal(buf_text(&b), cases[i].json);
        buf_release(&b);
    }
}

static void files_are_written_whole_with_their_mode_and_read_back(void **state)
{
    (void)state;
    char folder[256];
    char path[512];
    struct glm_error err = {0};
    struct buf b = {0};
    struct stat st;
    pack_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/a/b", folder);
    assert_int_equal(glm_make_folders(path, &err), GLM_OK);
    snprintf(path, sizeof path, "%s/a/b/secret", folder);
    assert_int_equal(glm_file_write(path, "one", 3, 0600, &err), GLM_OK);
    assert_int_equal(glm_file_write(path, "three", 5, 0640, &err), GLM_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_int_equal(glm_file_read(path, 5, &b, &err), GLM_OK);
    assert_string_equal(buf_text(&b), "three");
    assert_int_equal(glm_file_read(path, 4, &b, &err), GLM_EINVAL);
    assert_non_null(strstr(err.message, "larger than 4 bytes"));
    buf_release(&b);
    pack_remove_folder(folder);
}

static void a_missing_file_and_an_unwritable_folder_say_so(void **state)
{
    (void)state;
    struct glm_error err = {0};
    struct buf b = {0};
    assert_int_equal(glm_file_read("/nonexistent/x", 10, &b, &err), GLM_ENOTFOUND);
    assert_non_null(strstr(err.message, "'/nonexistent/x'"));
    err = (struct glm_error){0};
    assert_int_equal(glm_file_write("/nonexistent/x", "", 0, 0600, &err), GLM_EIO);
    assert_non_null(strstr(err.message, "cannot write"));
    err = (struct glm_error){0};
    assert_int_equal(glm_make_folders("/proc/nonexistent/x", &err), GLM_EIO);
    buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows_and_stays_terminated),
        cmocka_unit_test(json_strings_are_escaped_and_always_utf8),
        cmocka_unit_test(files_are_written_whole_with_their_mode_and_read_back),
        cmocka_unit_test(a_missing_file_and_an_unwritable_folder_say_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
