/* SPDX-License-Identifier: Apache-2.0 */
/* Cost expressions: values, names, and errors with their places. */
#include "codegen/manifest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

static const struct glm_plan_param params[] = {
    {.name = "N", .value = 128},       {.name = "C", .value = 512},
    {.name = "NEGATIVE", .value = -3}, {.name = "EPS", .text = "2.5e-1"},
    {.name = "FORM", .text = "q4"},
};
static const struct glm_cost_context context = {
    .R = 4, .O = 2, .C = 1000, .S = 3, .T = 16, .U = 7, .A = 2};

static enum glm_status eval(const char *text, double *out, struct glm_error *err)
{
    *err = (struct glm_error){0};
    return glm_expression_eval(text, params, 5, &context, out, err);
}

static void gives(const char *text, double want)
{
    struct glm_error err;
    double v = -1;
    if (eval(text, &v, &err) != GLM_OK)
        fail_msg("%s: %s", text, err.message);
    if (!(v == want))
        fail_msg("%s: %g, not %g", text, v, want);
}

static void fails_with(const char *text, const char *message)
{
    struct glm_error err;
    double v = -1;
    assert_int_equal(eval(text, &v, &err), GLM_EPLAN);
    if (strstr(err.message, message) == NULL)
        fail_msg("%s: '%s' lacks '%s'", text, err.message, message);
    assert_true(v == -1);
}

static void follows_precedence_and_brackets(void **state)
{
    (void)state;
    gives("1 + 2 * 3", 7);
    gives("(1+2)*3", 9);
    gives("8 / 4 / 2", 1);
    gives("10 - 3 - 2", 5);
    gives("-2 * -3", 6);
    gives("2 - -3", 5);
    gives(" 1.5e2 ", 150);
    gives(".5", 0.5);
}

static void knows_functions(void **state)
{
    (void)state;
    gives("min(3, 2) + max(3, 2)", 5);
    gives("ceil(N / 100) * floor(N / 100)", 2);
    gives("is(FORM, q4) + 10 * is(FORM, bf16)", 1);
    gives("max(min(1, 2), ceil(0.1 + 0.1))", 1);
}

static void a_parameter_hides_the_letter_but_not_the_word(void **state)
{
    (void)state;
    gives("C", 512);
    gives("context", 1000);
    gives("R + rows", 8);
    gives("O + outs", 4);
    gives("S + streams", 6);
    gives("T + threads", 32);
    gives("U + experts", 14);
    gives("A + act", 4);
    gives("NEGATIVE + EPS", -2.75);
}

static void names_the_expression_and_the_place(void **state)
{
    (void)state;
    fails_with("1 + Q", "'1 + Q': unknown name 'Q' at character 6");
    fails_with("1 +", "expected a value");
    fails_with("", "expected a value");
    fails_with("(1", "expected ')'");
    fails_with("1 2", "unexpected '2'");
    fails_with("sqrt(2)", "unknown function 'sqrt'");
    fails_with("min(2)", "expected ','");
    fails_with("1 / (N - 128)", "division by zero");
    fails_with("1e308 * 1e308", "not finite");
    fails_with("FORM", "use is(FORM, word)");
    fails_with("is(N, q4)", "'N' is not a word parameter");
    fails_with("is(FORM)", "expected ','");
    fails_with("1 ; 2", "unexpected '; 2'");
}

static void depth_is_bounded(void **state)
{
    (void)state;
    char text[4096];
    memset(text, '(', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    struct glm_error err;
    double v;
    assert_int_equal(eval(text, &v, &err), GLM_EPLAN);
    memset(text, '-', sizeof text - 1);
    assert_int_equal(eval(text, &v, &err), GLM_EPLAN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_precedence_and_brackets),
        cmocka_unit_test(knows_functions),
        cmocka_unit_test(a_parameter_hides_the_letter_but_not_the_word),
        cmocka_unit_test(names_the_expression_and_the_place),
        cmocka_unit_test(depth_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
