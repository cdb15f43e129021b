/* SPDX-License-Identifier: Apache-2.0 */
/* What a log line holds, whatever peers and files say. */
#include "spec/base/log.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Logs one message and gives back all that was written, time and level included. */
static void log_into(char *out, size_t size, const char *message)
{
    int ends[2], own = dup(STDERR_FILENO);
    assert_true(own >= 0);
    assert_int_equal(pipe(ends), 0);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    glm_log(GLM_LOG_ERROR, "%s", message);
    assert_true(dup2(own, STDERR_FILENO) >= 0);
    close(own);
    close(ends[1]);
    ssize_t n = read(ends[0], out, size - 1);
    assert_true(n > 0);
    out[n] = '\0';
    close(ends[0]);
}

static void hostile_text_stays_in_its_line(void **state)
{
    (void)state;
    static const struct {
        const char *said, *logged;
    } cases[] = {
        {"plain text, \"quoted\" \\ and \xc3\xa4\xc3\xb6 \xe2\x82\xac",
         "plain text, \"quoted\" \\ and \xc3\xa4\xc3\xb6 \xe2\x82\xac"},
        {"a\n2026-01-01T00:00:00.000Z error forged", "a\\x0a2026-01-01T00:00:00.000Z error forged"},
        {"a\r\tb\x7f", "a\\x0d\\x09b\\x7f"},
        {"\x1b[2J\x1b]0;title\a", "\\x1b[2J\\x1b]0;title\\x07"},
        {"\xc2\x9b"
         "31m\xc2\xa0\xc2",
         "\\xc2\\x9b31m\xc2\xa0\xc2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[8192], want[512];
        log_into(line, sizeof line, cases[i].said);
        snprintf(want, sizeof want, " error %s\n", cases[i].logged);
        assert_true(strlen(line) > strlen(want));
        assert_string_equal(line + strlen(line) - strlen(want), want);
    }
}

static void a_long_message_is_cut_and_still_one_line(void **state)
{
    (void)state;
    char message[6000], line[8192];
    memset(message, '\n', sizeof message);
    message[sizeof message - 1] = '\0';
    log_into(line, sizeof line, message);
    assert_in_range(strlen(line), 2000, 2048);
    assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_text_stays_in_its_line),
        cmocka_unit_test(a_long_message_is_cut_and_still_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
