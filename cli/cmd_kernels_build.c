/* SPDX-License-Identifier: Apache-2.0 */
/* glmctl kernels build: compiles the kernels of a lane, for this machine or for a GPU that is not
 * here, and says what each costs. */
#include "cli/compile.h"
#include "cli/launch.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "codegen/kernels.h"
#include "codegen/templates.h"
#include "spec/base/nearest.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TEMPLATES = 128 };

struct build_options {
    struct common_options common;
    const char *target;
    const char *templates;
};

static const struct opt_def build_options[] = {
    COMMON_LANE_OPTION,
    {"target", 't', OPT_STR, offsetof(struct build_options, target), "TARGET", NULL,
     "sm_121a, x86-64-v3, ...; without it what the devices are", NULL, 0, 0},
    {"template", 'T', OPT_STR, offsetof(struct build_options, templates), "NAME[,NAME...]", NULL,
     "kernels of these templates alone; without it all", NULL, 0, 0},
    COMMON_OUTPUT_OPTION,
    COMMON_COLOR_OPTION,
    OPTIONS_END,
};

/* Template names that occur in the lane, each once. */
struct names {
    const char *list[MAX_TEMPLATES];
    size_t n;
};

static void add_name(struct names *names, const char *name)
{
    for (size_t i = 0; i < names->n; i++)
        if (strcmp(names->list[i], name) == 0)
            return;
    if (names->n < MAX_TEMPLATES)
        names->list[names->n++] = name;
}

static bool is_wanted(const char *list, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, n) == 0 && (at[n] == ',' || at[n] == '\0'))
            return true;
    }
    return list == NULL;
}

/* Every name of --template must be one of the lane's. */
static enum glm_status check_wanted(struct compiled *c, const struct build_options *o,
                                    struct glm_error *err)
{
    struct names all = {.n = 0};
    for (uint32_t r = 0; r < compiled_lane(c)->n_ranks; r++)
        for (uint32_t k = 0; k < c->plans[r]->n_kernels; k++)
            add_name(&all, c->plans[r]->kernels[k].template_name);
    for (const char *at = o->templates; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        const char *name = arena_strndup(&c->arena, at, strcspn(at, ","));
        if (name == NULL)
            return glm_fail(err, GLM_ENOMEM, "out of memory");
        size_t i = 0;
        while (i < all.n && strcmp(all.list[i], name) != 0)
            i++;
        if (i < all.n)
            continue;
        enum glm_status status =
            glm_fail(err, GLM_ENOTFOUND, "lane '%s' has no kernel of template '%.100s'",
                     compiled_lane(c)->name, name);
        const char *near = nearest_name(name, all.list, all.n);
        if (near != NULL)
            glm_error_hint(err, "did you mean '%s'?", near);
        return status;
    }
    return GLM_OK;
}

static void list_names(const struct names *names, const char *separator, struct buf *out)
{
    for (size_t i = 0; i < names->n; i++)
        buf_printf(out, "%s%s", i == 0 ? "" : separator, names->list[i]);
}

/* Names all templates that have no body in the target's language, not just the first. */
static enum glm_status check_bodies(const struct glm_plan *all, enum glm_language language,
                                    struct glm_error *err)
{
    struct names present = {.n = 0}, absent = {.n = 0};
    struct buf have = {0}, lack = {0};
    for (uint32_t k = 0; k < all->n_kernels; k++) {
        char file[GLM_TEMPLATE_NAME_MAX];
        size_t len;
        const char *name = all->kernels[k].template_name;
        snprintf(file, sizeof file, "%.80s%s", name, glm_language_suffix(language));
        add_name(glm_template_source(file, &len) == NULL ? &absent : &present, name);
    }
    enum glm_status status = GLM_OK;
    if (absent.n > 0) {
        list_names(&absent, ", ", &lack);
        list_names(&present, ",", &have);
        status =
            glm_fail(err, GLM_EKERNEL, "cannot build kernels for target '%s': no %s body of %s",
                     all->target, language == GLM_LANGUAGE_CUDA ? "CUDA" : "host", buf_text(&lack));
        if (present.n > 0)
            glm_error_hint(err, "those that have one: --template %s", buf_text(&have));
    }
    buf_release(&have);
    buf_release(&lack);
    return status;
}

/* One plan that has the wanted kernels of all ranks: equal ones are built once. */
static enum glm_status gather(struct compiled *c, const struct build_options *o,
                              struct glm_plan *all, struct glm_error *err)
{
    const struct glm_backend *backend;
    uint32_t n = 0, n_ranks = compiled_lane(c)->n_ranks;
    *all = *c->plans[0];
    all->target = o->target != NULL ? o->target : c->target;
    enum glm_status status = glm_backend_find(all->target, &backend, err);
    if (status == GLM_OK)
        status = check_wanted(c, o, err);
    if (status != GLM_OK)
        return status;
    for (uint32_t r = 0; r < n_ranks; r++)
        n += c->plans[r]->n_kernels;
    all->kernels = ARENA_ARRAY(&c->arena, (size_t)n + 1, struct glm_plan_kernel);
    if (all->kernels == NULL)
        return glm_fail(err, GLM_ENOMEM, "out of memory");
    all->n_kernels = 0;
    for (uint32_t r = 0; r < n_ranks; r++)
        for (uint32_t k = 0; k < c->plans[r]->n_kernels; k++)
            if (is_wanted(o->templates, c->plans[r]->kernels[k].template_name))
                all->kernels[all->n_kernels++] = c->plans[r]->kernels[k];
    if (backend->language == GLM_LANGUAGE_CUDA && strcmp(all->act, "bf16") != 0) {
        status = glm_fail(err, GLM_EKERNEL,
                          "lane '%s' stores activations as %s, kernels for '%s' store bf16",
                          compiled_lane(c)->name, all->act, all->target);
        glm_error_hint(err, "give the lane the formats { act: bf16 }");
        return status;
    }
    return check_bodies(all, backend->language, err);
}

static bool on_built(void *context, uint32_t done, uint32_t total, const char *name)
{
    progress_show(context, "kernels: %u of %u (%s)", done, total, name);
    return !signals_pending();
}

static bool seen_before(const struct glm_kernel_build *builds, uint32_t i)
{
    for (uint32_t j = 0; j < i; j++)
        if (strcmp(builds[j].digest, builds[i].digest) == 0)
            return true;
    return false;
}

/* The templates whose CUDA bodies no GPU has passed as they are now. */
static void write_unverified(const struct glm_plan *all, const struct glm_kernel_build *builds,
                             struct buf *out)
{
    struct names templates = {.n = 0};
    for (uint32_t i = 0; i < all->n_kernels; i++)
        if (builds[i].unverified)
            add_name(&templates, all->kernels[i].template_name);
    if (templates.n == 0)
        return;
    buf_str(out, "not verified on a GPU as they are: ");
    list_names(&templates, ", ", out);
    buf_char(out, '\n');
}

static void write_text(const struct glm_plan *all, const struct glm_kernel_build *builds,
                       struct buf *out)
{
    uint32_t n = 0, n_compiled = 0;
    buf_printf(out, "%-28s %-14s %9s %9s %7s %9s\n", "kernel", "template", "registers", "shared",
               "spill", "bytes");
    for (uint32_t i = 0; i < all->n_kernels; i++) {
        const struct glm_kernel_build *b = &builds[i];
        const struct glm_kernel_resources *r = &b->resources;
        if (seen_before(builds, i))
            continue;
        n++;
        n_compiled += b->compiled;
        buf_printf(out, "%-28s %-14s ", b->name, all->kernels[i].template_name);
        if (r->known)
            buf_printf(out, "%9u %9u %7u", r->registers, r->shared_bytes, r->spill_store_bytes);
        else
            buf_printf(out, "%9s %9s %7s", "-", "-", "-");
        buf_printf(out, " %9llu\n", (unsigned long long)b->object_bytes);
    }
    buf_printf(out, "%u kernels for %s, %u compiled, %u from the cache\n", n, all->target,
               n_compiled, n - n_compiled);
    write_unverified(all, builds, out);
}

static void write_json(const struct glm_plan *all, const struct glm_kernel_build *builds,
                       struct buf *out)
{
    bool first = true;
    buf_printf(out, "{\"format_version\": %d", OUTPUT_FORMAT);
    json_member(out, ", ", "target", all->target);
    buf_str(out, ", \"kernels\": [");
    for (uint32_t i = 0; i < all->n_kernels; i++) {
        const struct glm_kernel_build *b = &builds[i];
        const struct glm_kernel_resources *r = &b->resources;
        if (seen_before(builds, i))
            continue;
        json_member(out, first ? "{" : ", {", "name", b->name);
        json_member(out, ", ", "template", all->kernels[i].template_name);
        json_member(out, ", ", "digest", b->digest);
        buf_printf(out, ", \"compiled\": %s, \"bytes\": %llu", b->compiled ? "true" : "false",
                   (unsigned long long)b->object_bytes);
        if (r->known) /* a GPU's kernels alone */
            buf_printf(out, ", \"verified\": %s", b->unverified ? "false" : "true");
        if (r->known)
            buf_printf(out,
                       ", \"registers\": %u, \"shared_bytes\": %u, \"stack_bytes\": %u, "
                       "\"spill_store_bytes\": %u, \"spill_load_bytes\": %u",
                       r->registers, r->shared_bytes, r->stack_bytes, r->spill_store_bytes,
                       r->spill_load_bytes);
        buf_char(out, '}');
        first = false;
    }
    buf_str(out, "]}\n");
}

static enum glm_status build(struct compiled *c, const struct build_options *o, struct buf *out,
                             struct glm_error *err)
{
    struct glm_plan all;
    struct glm_kernel_build *builds = NULL;
    struct progress progress;
    const double began_s = progress_now_s();
    enum glm_status status = gather(c, o, &all, err);
    if (status != GLM_OK)
        return status;
    progress_init(&progress);
    status = glm_kernels_build(&all, launch_default_threads(1), &c->arena, on_built, &progress,
                               &builds, err);
    if (status != GLM_OK) {
        progress_end(&progress);
        return status;
    }
    progress_done(&progress, "kernels: %.1f s", progress_now_s() - began_s);
    if (wants_json(&o->common))
        write_json(&all, builds, out);
    else
        write_text(&all, builds, out);
    return GLM_OK;
}

static int run_build(const void *options, const char *const *positional)
{
    const struct build_options *o = options;
    struct glm_error err = {0};
    struct compiled c;
    struct buf text = {0};
    int rc = compile_lane(&o->common, positional[0], &c);
    if (rc == EXIT_DONE) {
        signals_defer();
        rc = build(&c, o, &text, &err) == GLM_OK ? print_result(&text) : fail(&o->common, &err);
    }
    buf_release(&text);
    compiled_release(&c);
    return rc;
}

const struct command command_kernels_build = {
    .name = "kernels build",
    .arguments = "CLUSTER|PLAN",
    .summary = "compile the kernels of a lane",
    .description =
        "Compiles what the kernel cache lacks of a lane's kernels, all ranks', and prints what "
        "each\n"
        "costs. A GPU's kernels need NVRTC, not the GPU: any target can be built anywhere.",
    .examples =
        "glmctl kernels build clusters/demo/demo.yaml\n"
        "glmctl kernels build clusters/tp2-direct.yaml --target sm_121a --template swiglu,embed",
    .options = build_options,
    .options_size = sizeof(struct build_options),
    .n_positional_min = 1,
    .n_positional_max = 1,
    .run = run_build,
};
