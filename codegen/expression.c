/* SPDX-License-Identifier: Apache-2.0 */
/* The evaluator of cost and scratch expressions: recursive descent over
 *   sum := product (('+' | '-') product)*      product := factor (('*' | '/') factor)*
 *   factor := '-' factor | number | name | name '(' arguments ')' | '(' sum ')'
 * straight to a double; there is no tree. Depth is bounded, a result that is not finite is an
 * error. */
#include "codegen/manifest.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64, MAX_NAME = 40 };

struct parser {
    const char *text, *at;
    const struct glm_plan_param *params;
    uint32_t n_params;
    const struct glm_cost_context *context;
    unsigned depth;
    enum glm_status status;
    struct glm_error *err;
};

static double parse_sum(struct parser *p);

__attribute__((format(printf, 2, 3))) static double fail(struct parser *p, const char *format, ...)
{
    if (p->status == GLM_OK) {
        char what[160];
        va_list args;
        va_start(args, format);
        vsnprintf(what, sizeof what, format, args);
        va_end(args);
        p->status = glm_fail(p->err, GLM_EPLAN, "cannot evaluate '%s': %s at character %zu",
                             p->text, what, (size_t)(p->at - p->text) + 1);
    }
    return 0;
}

static char peek(struct parser *p)
{
    while (*p->at == ' ')
        p->at++;
    return *p->at;
}

static bool take(struct parser *p, char c)
{
    if (peek(p) != c)
        return false;
    p->at++;
    return true;
}

static void need(struct parser *p, char c)
{
    if (!take(p, c))
        fail(p, "expected '%c', found '%.8s'", c, p->at);
}

/* False when there is no name here or it is too long for any. */
static bool take_name(struct parser *p, char name[MAX_NAME])
{
    size_t n = 0;
    peek(p);
    while (isalnum((unsigned char)p->at[n]) || p->at[n] == '_')
        n++;
    if (n == 0 || n >= MAX_NAME)
        return false;
    memcpy(name, p->at, n);
    name[n] = '\0';
    p->at += n;
    return true;
}

static const struct glm_plan_param *find_param(const struct parser *p, const char *name)
{
    for (uint32_t i = 0; i < p->n_params; i++)
        if (strcmp(p->params[i].name, name) == 0)
            return &p->params[i];
    return NULL;
}

static double variable(struct parser *p, const char *name)
{
    const struct {
        const char *letter, *word;
        double value;
    } rows[] = {
        {"R", "rows", p->context->R},    {"O", "outs", p->context->O},
        {"C", "context", p->context->C}, {"S", "streams", p->context->S},
        {"T", "threads", p->context->T}, {"U", "experts", p->context->U},
        {"A", "act", p->context->A},
    };
    const struct glm_plan_param *param = find_param(p, name);
    if (param != NULL && param->text == NULL)
        return (double)param->value;
    if (param != NULL) {
        char *end;
        double v = strtod(param->text, &end);
        if (end == param->text || *end != '\0')
            return fail(p, "'%s' is the word '%.32s': use is(%s, word)", name, param->text, name);
        return v;
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].letter, name) == 0 || strcmp(rows[i].word, name) == 0)
            return rows[i].value;
    return fail(p, "unknown name '%s'", name);
}

/* The part of is(PARAM, word) after the bracket. */
static double parse_is(struct parser *p)
{
    char name[MAX_NAME], word[MAX_NAME];
    if (!take_name(p, name))
        return fail(p, "expected a parameter");
    need(p, ',');
    if (!take_name(p, word))
        return fail(p, "expected a word");
    need(p, ')');
    const struct glm_plan_param *param = find_param(p, name);
    if (param == NULL || param->text == NULL)
        return fail(p, "'%s' is not a word parameter", name);
    return strcmp(param->text, word) == 0 ? 1 : 0;
}

static double parse_call(struct parser *p, const char *name)
{
    if (strcmp(name, "is") == 0)
        return parse_is(p);
    double a = parse_sum(p);
    bool two = strcmp(name, "min") == 0 || strcmp(name, "max") == 0;
    double b = 0;
    if (two) {
        need(p, ',');
        b = parse_sum(p);
    }
    need(p, ')');
    if (two)
        return name[1] == 'i' ? fmin(a, b) : fmax(a, b);
    if (strcmp(name, "ceil") == 0)
        return ceil(a);
    if (strcmp(name, "floor") == 0)
        return floor(a);
    return fail(p, "unknown function '%s'", name);
}

static double parse_number(struct parser *p)
{
    char *end;
    double v = strtod(p->at, &end);
    if (end == p->at)
        return fail(p, "expected a number");
    p->at = end;
    return v;
}

static double parse_factor(struct parser *p)
{
    char name[MAX_NAME];
    double v;
    if (p->status != GLM_OK)
        return 0;
    if (++p->depth > MAX_DEPTH)
        return fail(p, "nested deeper than %d levels", MAX_DEPTH);
    char c = peek(p);
    if (take(p, '-')) {
        v = -parse_factor(p);
    } else if (take(p, '(')) {
        v = parse_sum(p);
        need(p, ')');
    } else if (isdigit((unsigned char)c) || c == '.') {
        v = parse_number(p);
    } else if (take_name(p, name)) {
        v = take(p, '(') ? parse_call(p, name) : variable(p, name);
    } else {
        v = fail(p, "expected a value, found '%.8s'", p->at);
    }
    p->depth--;
    return v;
}

static double parse_product(struct parser *p)
{
    double v = parse_factor(p);
    while (p->status == GLM_OK) {
        if (take(p, '*')) {
            v *= parse_factor(p);
        } else if (take(p, '/')) {
            double by = parse_factor(p);
            v = by == 0 ? fail(p, "division by zero") : v / by;
        } else {
            break;
        }
    }
    return v;
}

static double parse_sum(struct parser *p)
{
    double v = parse_product(p);
    while (p->status == GLM_OK) {
        if (take(p, '+'))
            v += parse_product(p);
        else if (take(p, '-'))
            v -= parse_product(p);
        else
            break;
    }
    return v;
}

enum glm_status glm_expression_eval(const char *expression, const struct glm_plan_param *params,
                                    uint32_t n_params, const struct glm_cost_context *context,
                                    double *out, struct glm_error *err)
{
    struct parser p = {.text = expression,
                       .at = expression,
                       .params = params,
                       .n_params = n_params,
                       .context = context,
                       .err = err};
    double v = parse_sum(&p);
    if (p.status == GLM_OK && peek(&p) != '\0')
        fail(&p, "unexpected '%.8s'", p.at);
    if (p.status == GLM_OK && !isfinite(v))
        fail(&p, "the result is not finite");
    if (p.status == GLM_OK)
        *out = v;
    return p.status;
}
