/* SPDX-License-Identifier: Apache-2.0 */
/* glmctl kernels dump: the emitted sources of a lane's kernels. */
#include "cli/common.h"

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
    COMMON_COLOR_OPTION,
    OPTIONS_END,
};

static enum glm_status dump(struct compiled *c, const struct kernels_options *o, struct buf *out,
                            struct glm_error *err)
{
    struct glm_manifest *manifests;
    uint32_t n_manifests, n_dumped = 0;
    const struct glm_plan *plan = c->plans[o->rank];
    enum glm_status status = glm_manifests_load(&c->arena, &manifests, &n_manifests, err);
    for (uint32_t k = 0; status == GLM_OK && k < plan->n_kernels; k++) {
        const struct glm_plan_kernel *kernel = &plan->kernels[k];
        if (o->kernel != NULL && strcmp(o->kernel, kernel->name) != 0)
            continue;
        const struct glm_manifest *m =
            glm_manifest_find(manifests, n_manifests, kernel->template_name);
        buf_printf(out, "%s/* ---- kernel %s ---- */\n", n_dumped++ > 0 ? "\n" : "", kernel->name);
        status = m == NULL ? glm_fail(err, GLM_EPLAN,
                                      "kernel '%s' names template '%s', which is not here",
                                      kernel->name, kernel->template_name)
                           : glm_kernel_emit(m, kernel, plan->act, out, err);
    }
    if (status != GLM_OK || n_dumped > 0)
        return status;
    status =
        glm_fail(err, GLM_ENOTFOUND, "rank %lld has no kernel '%s'", (long long)o->rank, o->kernel);
    const char *names[256];
    size_t n = 0;
    for (uint32_t k = 0; k < plan->n_kernels && n < 255; k++)
        names[n++] = plan->kernels[k].name;
    names[n] = NULL;
    const char *near = nearest_word(o->kernel, names);
    if (near != NULL)
        glm_error_hint(err, "did you mean '%s'?", near);
    return status;
}

static int run_dump(const void *options, const char *const *positional)
{
    const struct kernels_options *o = options;
    struct glm_error err = {0};
    if (positional[0] == NULL) {
        glm_fail(&err, GLM_EINVAL, "kernels dump wants a cluster file");
        return fail_usage("kernels dump", &err);
    }
    struct compiled c;
    struct buf text = {0};
    int rc = compile_lane(&o->common, positional[0], &c);
    if (rc == EXIT_DONE && o->rank >= c.cluster->lanes[c.lane_i].n_ranks) {
        glm_fail(&err, GLM_EINVAL, "lane '%s' has %u ranks, got rank %lld",
                 c.cluster->lanes[c.lane_i].name, c.cluster->lanes[c.lane_i].n_ranks,
                 (long long)o->rank);
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
    .arguments = "CLUSTER",
    .summary = "print the generated kernel sources",
    .description =
        "Prints what the kernel compiler gets: banner, one constant a line, the template's body.",
    .options = kernels_options,
    .options_size = sizeof(struct kernels_options),
    .n_positional_max = 1,
    .run = run_dump,
};
