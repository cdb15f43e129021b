/* SPDX-License-Identifier: Apache-2.0 */
/* glmctl kernels dump: the emitted sources of a lane's kernels. */
#include "cli/compile.h"
#include "codegen/kernels.h"
#include "spec/base/nearest.h"

#include <string.h>

struct kernels_options {
    struct common_options common;
    int64_t rank;
    const char *kernel;
};

static const struct opt_def kernels_options[] = {
    COMMON_LANE_OPTION,
    {"rank", 'r', OPT_INT, offsetof(struct kernels_options, rank), "N", NULL,
     "rank to look at (default 0)", NULL, 0, GLM_MAX_RANKS - 1},
    {"kernel", 'k', OPT_STR, offsetof(struct kernels_options, kernel), "NAME", NULL,
     "this kernel alone; without it all", NULL, 0, 0},
    COMMON_OUTPUT_OPTION,
    COMMON_COLOR_OPTION,
    OPTIONS_END,
};

static enum glm_status emit(struct compiled *c, const struct glm_plan *plan,
                            const struct glm_plan_kernel *kernel, struct buf *out,
                            struct glm_error *err)
{
    struct glm_manifest *manifests;
    uint32_t n_manifests;
    enum glm_status status = glm_manifests_load(&c->arena, &manifests, &n_manifests, err);
    if (status != GLM_OK)
        return status;
    const struct glm_manifest *m = glm_manifest_find(manifests, n_manifests, kernel->template_name);
    if (m == NULL)
        return glm_fail(err, GLM_EPLAN, "kernel '%s' names template '%s', which is not here",
                        kernel->name, kernel->template_name);
    const struct glm_backend *backend;
    status = glm_backend_find(plan->target, &backend, err);
    return status == GLM_OK ? glm_kernel_emit(m, kernel, backend->language, plan->act, out, err)
                            : status;
}

static void write_kernel(const struct kernels_options *o, const struct glm_plan_kernel *kernel,
                         const struct buf *source, bool first, struct buf *out)
{
    if (!wants_json(&o->common)) {
        buf_printf(out, "%s/* ---- kernel %s ---- */\n%s", first ? "" : "\n", kernel->name,
                   buf_text(source));
        return;
    }
    json_member(out, first ? "{" : ", {", "name", kernel->name);
    json_member(out, ", ", "template", kernel->template_name);
    json_member(out, ", ", "source", buf_text(source));
    buf_char(out, '}');
}

static enum glm_status no_such_kernel(const struct glm_plan *plan, const struct kernels_options *o,
                                      struct glm_error *err)
{
    const char *names[256];
    size_t n = 0;
    enum glm_status status = glm_fail(err, GLM_ENOTFOUND, "rank %lld has no kernel '%.100s'",
                                      (long long)o->rank, o->kernel);
    for (uint32_t k = 0; k < plan->n_kernels && n < sizeof names / sizeof names[0]; k++)
        names[n++] = plan->kernels[k].name;
    const char *near = nearest_name(o->kernel, names, n);
    if (near != NULL)
        glm_error_hint(err, "did you mean '%s'?", near);
    else
        glm_error_hint(err, "without --kernel all %u are printed", plan->n_kernels);
    return status;
}

static enum glm_status dump(struct compiled *c, const struct kernels_options *o, struct buf *out,
                            struct glm_error *err)
{
    const struct glm_plan *plan = c->plans[o->rank];
    struct buf source = {0};
    uint32_t n_dumped = 0;
    enum glm_status status = GLM_OK;
    if (wants_json(&o->common))
        buf_printf(out, "{\"format_version\": %d, \"rank\": %lld, \"kernels\": [", OUTPUT_FORMAT,
                   (long long)o->rank);
    for (uint32_t k = 0; status == GLM_OK && k < plan->n_kernels; k++) {
        const struct glm_plan_kernel *kernel = &plan->kernels[k];
        if (o->kernel != NULL && strcmp(o->kernel, kernel->name) != 0)
            continue;
        buf_clear(&source);
        status = emit(c, plan, kernel, &source, err);
        write_kernel(o, kernel, &source, n_dumped++ == 0, out);
    }
    if (wants_json(&o->common))
        buf_str(out, "]}\n");
    if (status == GLM_OK && n_dumped == 0 && o->kernel != NULL)
        status = no_such_kernel(plan, o, err);
    buf_release(&source);
    return status;
}

static int run_dump(const void *options, const char *const *positional)
{
    const struct kernels_options *o = options;
    struct glm_error err = {0};
    struct compiled c;
    struct buf text = {0};
    int rc = compile_lane(&o->common, positional[0], &c);
    if (rc == EXIT_DONE && o->rank >= compiled_lane(&c)->n_ranks) {
        glm_fail(&err, GLM_EINVAL, "lane '%s' has ranks 0 to %u, asked for rank %lld",
                 compiled_lane(&c)->name, compiled_lane(&c)->n_ranks - 1, (long long)o->rank);
        rc = fail_usage("kernels dump", &err);
    }
    if (rc == EXIT_DONE)
        rc = dump(&c, o, &text, &err) == GLM_OK ? print_result(&text) : fail(&o->common, &err);
    buf_release(&text);
    compiled_release(&c);
    return rc;
}

const struct command command_kernels_dump = {
    .name = "kernels dump",
    .arguments = "CLUSTER|PLAN",
    .summary = "print the generated kernel sources",
    .description =
        "Prints what the kernel compiler gets: banner, one constant a line, the template's body.",
    .examples = "glmctl kernels dump clusters/demo/demo.yaml\n"
                "glmctl kernels dump clusters/demo/demo.yaml --lane tp2 --rank 1 --kernel embed",
    .options = kernels_options,
    .options_size = sizeof(struct kernels_options),
    .n_positional_min = 1,
    .n_positional_max = 1,
    .run = run_dump,
};
