/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the commands: where errors and results go, a spec compiled to plans, folders. */
#include "cli/common.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SPEC_LIMIT_BYTES = 64 << 20, ARENA_LIMIT_BYTES = 1 << 30 };

const char *const output_values[] = {"text", "json", NULL};
const char *const color_values[] = {"auto", "always", "never", NULL};

bool wants_json(const struct common_options *o)
{
    return o->output != NULL && strcmp(o->output, "json") == 0;
}

bool wants_color(const struct common_options *o, FILE *stream)
{
    if (o->color != NULL && strcmp(o->color, "auto") != 0)
        return strcmp(o->color, "always") == 0;
    const char *no_color = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    return isatty(fileno(stream)) && (no_color == NULL || *no_color == '\0') && term != NULL &&
           strcmp(term, "dumb") != 0;
}

int print_result(const struct buf *b)
{
    if (b->failed || fwrite(buf_text(b), 1, b->len, stdout) != b->len || fflush(stdout) != 0)
        return EXIT_FAILED;
    return EXIT_DONE;
}

int fail(const struct common_options *o, const struct glm_error *err)
{
    if (!wants_json(o)) {
        const bool color = wants_color(o, stderr);
        fprintf(stderr, "%serror:%s %s\n", color ? "\033[1;31m" : "", color ? "\033[0m" : "",
                err->message[0] != '\0' ? err->message : glm_status_text(err->status));
        if (err->hint[0] != '\0')
            fprintf(stderr, "  hint: %s\n", err->hint);
        return EXIT_FAILED;
    }
    struct buf out = {0};
    buf_str(&out, "{\"format_version\": 1, \"error\": {\"status\": ");
    const char *status = glm_status_text(err->status);
    buf_json_string(&out, status, strlen(status));
    buf_str(&out, ", \"message\": ");
    buf_json_string(&out, err->message, strlen(err->message));
    buf_str(&out, ", \"hint\": ");
    buf_json_string(&out, err->hint, strlen(err->hint));
    buf_str(&out, "}}\n");
    print_result(&out);
    buf_release(&out);
    return EXIT_FAILED;
}

int fail_usage(const char *command, const struct glm_error *err)
{
    fprintf(stderr, "error: %s\n", err->message);
    if (err->hint[0] != '\0')
        fprintf(stderr, "  hint: %s\n", err->hint);
    fprintf(stderr, "  see:  glmctl %s%s--help\n", command, *command != '\0' ? " " : "");
    return EXIT_USAGE;
}

static enum glm_status read_input(const char *file, struct buf *text, struct glm_error *err)
{
    const bool standard_input = strcmp(file, "-") == 0;
    return glm_file_read(standard_input ? "/dev/stdin" : file, SPEC_LIMIT_BYTES, text, err);
}

/* A saved plan is JSON, a spec is a YAML mapping that cannot start with a brace in our schema's
 * documents: the first byte that is not a space decides. */
static bool is_saved_plan(const struct buf *text)
{
    const char *data = buf_text(text);
    return data[strspn(data, " \t\r\n")] == '{';
}

static int print_diags(const struct common_options *o, const struct compiled *c, bool failed)
{
    struct buf out = {0};
    if (failed && wants_json(o)) {
        buf_str(&out, "{\"format_version\": 1, \"diagnostics\": ");
        diag_render_json(&c->diags, &out);
        buf_str(&out, "}\n");
        print_result(&out);
    } else {
        diag_render_text(&c->diags, wants_color(o, stderr), &out);
        fputs(buf_text(&out), stderr);
    }
    buf_release(&out);
    return failed ? EXIT_FAILED : EXIT_DONE;
}

static int resolve(const struct common_options *o, const char *file, const struct buf *text,
                   struct compiled *c)
{
    struct glm_error err = {0};
    enum glm_status status =
        glm_cluster_parse(file, buf_text(text), text->len, &c->arena, &c->diags, &c->cluster);
    if (status != GLM_OK && c->diags.n_items > 0)
        return print_diags(o, c, true);
    if (status != GLM_OK) {
        glm_fail(&err, status, "cannot compile '%s'", file);
        return fail(o, &err);
    }
    status = glm_cluster_lane(c->cluster, o->lane, &c->lane_i, &err);
    return status == GLM_OK ? EXIT_DONE : fail(o, &err);
}

static int build_plans(const struct common_options *o, struct compiled *c)
{
    struct glm_error err = {0};
    const struct glm_lane *lane = &c->cluster->lanes[c->lane_i];
    const struct glm_node *node = &c->cluster->nodes[lane->ranks[0]];
    c->target = node->device == GLM_DEVICE_CPU ? glm_host_target() : "sm_121a";
    const size_t n_errors = c->diags.n_errors;
    enum glm_status status =
        glm_plan_build(c->cluster, c->lane_i, c->target, &c->arena, &c->diags, &c->plans, &err);
    if (status != GLM_OK && c->diags.n_errors > n_errors)
        return print_diags(o, c, true);
    print_diags(o, c, false);
    return status == GLM_OK ? EXIT_DONE : fail(o, &err);
}

static int compile_spec(const struct common_options *o, const char *file, const struct buf *text,
                        struct compiled *c)
{
    int rc = resolve(o, file, text, c);
    return rc == EXIT_DONE ? build_plans(o, c) : rc;
}

/* A saved plan carries the spec's text, from which cluster and lane are resolved again; the plans
 * themselves are the saved ones, checked against a fresh build by apply. */
static int compile_saved(const struct common_options *o, const char *file, const struct buf *text,
                         struct compiled *c)
{
    struct glm_error err = {0};
    struct glm_plan **plans = NULL;
    if (glm_saved_plan_read(buf_text(text), text->len, &c->arena, &c->saved, &plans, &err) !=
        GLM_OK)
        return fail(o, &err);
    struct buf spec = {0};
    buf_str(&spec, c->saved->spec_text);
    struct common_options saved_options = *o;
    saved_options.lane = c->saved->lane;
    int rc = compile_spec(&saved_options, c->saved->spec_path, &spec, c);
    buf_release(&spec);
    if (rc != EXIT_DONE)
        return rc;
    if (strcmp(c->plans[0]->set_digest, plans[0]->set_digest) != 0) {
        glm_fail(&err, GLM_ESTALE,
                 "'%s' is stale: it was planned as set %.12s, spec and checkpoint now give %.12s",
                 file, plans[0]->set_digest, c->plans[0]->set_digest);
        glm_error_hint(&err, "glmctl plan %s --out %s", c->saved->spec_path, file);
        return fail(o, &err);
    }
    c->plans = plans;
    return EXIT_DONE;
}

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
    int rc = open_input(o, file, &text, out);
    if (rc == EXIT_DONE)
        rc = resolve(o, file, &text, out);
    if (rc == EXIT_DONE)
        print_diags(o, out, false);
    buf_release(&text);
    return rc;
}

int compile_lane(const struct common_options *o, const char *file, struct compiled *out)
{
    struct buf text = {0};
    int rc = open_input(o, file, &text, out);
    if (rc == EXIT_DONE)
        rc = is_saved_plan(&text) ? compile_saved(o, file, &text, out)
                                  : compile_spec(o, file, &text, out);
    buf_release(&text);
    return rc;
}

void compiled_release(struct compiled *c)
{
    arena_release(&c->arena);
}

enum glm_status lane_folder(const char *cluster, const char *lane, struct buf *out,
                            struct glm_error *err)
{
    const char *state = getenv("GLM_STATE_DIR");
    const char *xdg = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    buf_clear(out);
    if (state != NULL && *state != '\0')
        buf_str(out, state);
    else if (xdg != NULL && *xdg != '\0')
        buf_printf(out, "%s/glmctl", xdg);
    else if (home != NULL && *home != '\0')
        buf_printf(out, "%s/.local/state/glmctl", home);
    else
        return glm_fail(err, GLM_EIO,
                        "no state folder: GLM_STATE_DIR, XDG_STATE_HOME and HOME are not set");
    buf_printf(out, "/%s/%s", cluster, lane);
    return out->failed ? glm_fail(err, GLM_ENOMEM, "out of memory") : GLM_OK;
}
