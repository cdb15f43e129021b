/* SPDX-License-Identifier: Apache-2.0 */
/* A spec's or saved plan's text becomes plans: the calls into spec/ and codegen/, and what makes a
 * saved plan stale. Nothing here looks at what runs. */
#include "cli/compile.h"

#include "cli/gpu.h"
#include "cli/launch.h"
#include "spec/base/digest.h"

#include <string.h>
#include <unistd.h>

enum { INPUT_LIMIT_BYTES = 64 << 20, ARENA_LIMIT_BYTES = 1 << 30 };

enum glm_status read_input(const char *file, struct buf *text, struct glm_error *err)
{
    const bool standard_input = strcmp(file, "-") == 0;
    return glm_file_read(standard_input ? "/dev/stdin" : file, INPUT_LIMIT_BYTES, text, err);
}

bool is_saved_plan(const struct buf *text)
{
    const char *data = buf_text(text);
    return data[strspn(data, " \t\r\n")] == '{';
}

const struct glm_lane *compiled_lane(const struct compiled *c)
{
    return &c->cluster->lanes[c->lane_i];
}

static int resolve(const struct common_options *o, const char *file, const char *text, size_t len,
                   struct compiled *c)
{
    struct glm_error err = {0};
    enum glm_status status = glm_cluster_parse(file, text, len, &c->arena, &c->diags, &c->cluster);
    if (status != GLM_OK && c->diags.n_items > 0)
        return print_diags(o, &c->diags, true);
    if (status != GLM_OK) {
        glm_fail(&err, status, "cannot compile '%s': %s", file, glm_status_text(status));
        return fail(o, &err);
    }
    status = glm_cluster_lane(c->cluster, o->lane, &c->lane_i, &err);
    return status == GLM_OK ? EXIT_DONE : fail(o, &err);
}

static int build_plans(const struct common_options *o, struct compiled *c)
{
    struct glm_error err = {0};
    const size_t n_errors = c->diags.n_errors;
    enum glm_status status = gpu_find_target(c);
    if (status == GLM_OK)
        status =
            glm_plan_build(c->cluster, c->lane_i, c->target, &c->arena, &c->diags, &c->plans, &err);
    if (status != GLM_OK && c->diags.n_errors > n_errors)
        return print_diags(o, &c->diags, true);
    if (!wants_json(o))
        print_diags(o, &c->diags, false);
    return status == GLM_OK ? EXIT_DONE : fail(o, &err);
}

static int compile_spec(const struct common_options *o, const char *file, const char *text,
                        size_t len, struct compiled *c)
{
    int rc = resolve(o, file, text, len, c);
    return rc == EXIT_DONE ? build_plans(o, c) : rc;
}

/* ---- saved plans ---- */

static int read_saved(const struct common_options *o, const char *file, const struct buf *text,
                      struct compiled *c, struct common_options *with_lane,
                      struct glm_plan ***plans)
{
    struct glm_error err = {0};
    enum glm_status status =
        glm_saved_plan_read(buf_text(text), text->len, &c->arena, &c->saved, plans, &err);
    if (status == GLM_OK && o->lane != NULL && strcmp(o->lane, c->saved->lane) != 0)
        status = glm_fail(&err, GLM_EINVAL, "'%s' is a plan of lane '%s', asked for lane '%s'",
                          file, c->saved->lane, o->lane);
    if (status != GLM_OK)
        return fail(o, &err);
    with_lane->lane = c->saved->lane;
    return EXIT_DONE;
}

/* The file that the plan was made from may be gone (the plan holds its text), but must not say
 * something else by now. */
static enum glm_status check_spec_file(const char *file, const struct glm_launch_file *saved,
                                       struct glm_error *err)
{
    struct buf text = {0};
    struct glm_error ignored = {0};
    char digest[65];
    enum glm_status status = GLM_OK;
    if (strcmp(saved->spec_path, "-") == 0 || access(saved->spec_path, F_OK) != 0)
        return GLM_OK;
    if (glm_file_read(saved->spec_path, INPUT_LIMIT_BYTES, &text, &ignored) == GLM_OK &&
        glm_sha256_hex(buf_text(&text), text.len, digest, &ignored) == GLM_OK &&
        strcmp(digest, saved->spec_digest) != 0)
        status = glm_fail(err, GLM_ESTALE,
                          "'%s' is stale: '%s' was %.12s when it was planned and is %.12s now",
                          file, saved->spec_path, saved->spec_digest, digest);
    buf_release(&text);
    return status;
}

static enum glm_status check_fresh(const char *file, struct compiled *c, struct glm_error *err)
{
    struct glm_launch_file now;
    struct launch_differences differences = {0};
    enum glm_status status = launch_make(c, &now, err);
    if (status != GLM_OK)
        return status;
    launch_compare(c->saved, &now, &c->arena, &differences);
    if (differences.n == 0)
        return GLM_OK;
    const struct launch_difference *d = &differences.items[0];
    return glm_fail(err, GLM_ESTALE, "'%s' is stale: %s was %.80s when it was planned, now %.80s",
                    file, d->what, d->from, d->to);
}

/* A saved plan carries the spec's text, which is compiled again: equal digests say that the saved
 * plans are what this program would make now. */
static int compile_saved(const struct common_options *o, const char *file, const struct buf *text,
                         struct compiled *c)
{
    struct glm_error err = {0};
    struct glm_plan **plans = NULL;
    struct common_options with_lane = *o;
    int rc = read_saved(o, file, text, c, &with_lane, &plans);
    if (rc == EXIT_DONE && check_spec_file(file, c->saved, &err) == GLM_OK)
        rc = compile_spec(&with_lane, c->saved->spec_path, c->saved->spec_text,
                          strlen(c->saved->spec_text), c);
    if (rc != EXIT_DONE)
        return rc;
    if (err.status == GLM_OK && check_fresh(file, c, &err) == GLM_OK) {
        c->plans = plans;
        return EXIT_DONE;
    }
    if (err.status == GLM_ESTALE)
        glm_error_hint(&err, "plan again: glmctl plan %.100s --lane %.60s --out %.60s",
                       c->saved->spec_path, c->saved->lane, file);
    return fail(o, &err);
}

/* ---- entries ---- */

static int open_input(const struct common_options *o, const char *file, struct buf *text,
                      struct compiled *out)
{
    struct glm_error err = {0};
    *out = (struct compiled){0};
    arena_init(&out->arena, ARENA_LIMIT_BYTES);
    diag_list_init(&out->diags, &out->arena);
    return read_input(file, text, &err) == GLM_OK ? EXIT_DONE : fail(o, &err);
}

int resolve_spec(const struct common_options *o, const char *file, struct compiled *out)
{
    struct buf text = {0};
    struct common_options with_lane = *o;
    struct glm_plan **ignored;
    int rc = open_input(o, file, &text, out);
    const bool saved = rc == EXIT_DONE && is_saved_plan(&text);
    if (saved)
        rc = read_saved(o, file, &text, out, &with_lane, &ignored);
    if (rc == EXIT_DONE && saved)
        rc = resolve(&with_lane, out->saved->spec_path, out->saved->spec_text,
                     strlen(out->saved->spec_text), out);
    else if (rc == EXIT_DONE)
        rc = resolve(o, file, buf_text(&text), text.len, out);
    buf_release(&text);
    return rc;
}

int compile_lane(const struct common_options *o, const char *file, struct compiled *out)
{
    struct buf text = {0};
    int rc = open_input(o, file, &text, out);
    if (rc == EXIT_DONE)
        rc = is_saved_plan(&text) ? compile_saved(o, file, &text, out)
                                  : compile_spec(o, file, buf_text(&text), text.len, out);
    buf_release(&text);
    return rc;
}

void compiled_release(struct compiled *c)
{
    arena_release(&c->arena);
}
