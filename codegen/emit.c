/* SPDX-License-Identifier: Apache-2.0 */
/* Writes one kernel's source: banner, one constant a line with its origin, `#line`, the template's
 * body. No rank, plan name, time or path is in it, so that equal shares of different ranks give one
 * object. Where it is compiled is hostcc.c and nvrtc.c, where it is kept is cache.c. */
#include "codegen/kernels.h"

#include "spec/base/digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Text from a plan or a manifest in a comment: nothing of it may end the comment or the line. */
static void add_comment_text(struct buf *out, const char *text)
{
    for (const char *c = text; *c != '\0'; c++)
        buf_char(out, (unsigned char)*c < 0x20 || *c == '/' || *c == '\\' || *c == '?' ? '_' : *c);
}

static void add_origin(struct buf *out, const char *origin)
{
    if (origin != NULL && origin[0] != '\0') {
        buf_str(out, " /* ");
        add_comment_text(out, origin);
        buf_str(out, " */");
    }
    buf_char(out, '\n');
}

static void add_int(struct buf *out, const struct glm_plan_param *p)
{
    if (p->value < 0)
        buf_printf(out, "#define GLM_%s (%" PRId64 ")", p->name, p->value);
    else
        buf_printf(out, "#define GLM_%s %" PRId64, p->name, p->value);
}

/* "1" and "1e-6" become float constants: a point where there is neither point nor exponent. */
static void add_float(struct buf *out, const struct glm_plan_param *p)
{
    const char *point = strpbrk(p->text, ".eE") == NULL ? ".0" : "";
    if (p->text[0] == '-')
        buf_printf(out, "#define GLM_%s (%s%sf)", p->name, p->text, point);
    else
        buf_printf(out, "#define GLM_%s %s%sf", p->name, p->text, point);
}

static const struct glm_plan_param *find_param(const struct glm_plan_kernel *k, const char *name)
{
    for (uint32_t i = 0; i < k->n_params; i++)
        if (strcmp(k->params[i].name, name) == 0)
            return &k->params[i];
    return NULL;
}

/* In the manifest's order, so that a plan's order of parameters does not matter. */
static void add_constants(struct buf *out, const struct glm_manifest *m,
                          const struct glm_plan_kernel *k)
{
    for (uint32_t i = 0; i < m->n_params; i++) {
        const struct glm_plan_param *p = find_param(k, m->params[i].name);
        GLM_ASSERT(p != NULL);
        if (strcmp(m->params[i].type, "int") == 0)
            add_int(out, p);
        else if (strcmp(m->params[i].type, "float") == 0)
            add_float(out, p);
        else
            buf_printf(out, "#define GLM_%s_%s 1", p->name, p->text);
        add_origin(out, p->origin);
    }
}

const char *glm_language_suffix(enum glm_language language)
{
    return language == GLM_LANGUAGE_CUDA ? ".cu" : ".c";
}

/* What a body must know of its launch; none of it may depend on the rows of a round. */
static enum glm_status add_launch(struct buf *out, const struct glm_manifest *m,
                                  const struct glm_plan_kernel *k, struct glm_error *err)
{
    const struct glm_cost_context ones = {1, 1, 1, 1, 1, 1, 1};
    struct glm_launch_shape shape;
    enum glm_status status = glm_manifest_shape(m, k, &ones, &shape, err);
    if (status == GLM_OK)
        buf_printf(out,
                   "#define GLM_BLOCK %" PRIu32 " /* launch.block */\n"
                   "#define GLM_MIN_BLOCKS %" PRIu32 " /* launch.min_blocks */\n"
                   "#define GLM_SHARED_BYTES %" PRIu32 " /* launch.shared */\n",
                   shape.block, shape.min_blocks, shape.shared_bytes);
    return status;
}

static enum glm_status check_act(const struct glm_plan_kernel *k, enum glm_language language,
                                 const char *act, struct glm_error *err)
{
    bool bf16 = strcmp(act, "bf16") == 0;
    if (language == GLM_LANGUAGE_CUDA && !bf16)
        return glm_fail(err, GLM_EPLAN,
                        "cannot emit kernel '%s': act is '%.32s', CUDA kernels store bf16", k->name,
                        act);
    if (!bf16 && strcmp(act, "f32") != 0)
        return glm_fail(err, GLM_EPLAN, "cannot emit kernel '%s': act is '%.32s', not f32 or bf16",
                        k->name, act);
    return GLM_OK;
}

/* A file of the template: NAME with a suffix. */
static enum glm_status template_file(const struct glm_manifest *m, const struct glm_plan_kernel *k,
                                     const char *suffix, char file[96], const char **text,
                                     size_t *len, struct glm_error *err)
{
    snprintf(file, 96, "%.80s%s", m->name, suffix);
    *text = glm_template_source(file, len);
    return *text != NULL
               ? GLM_OK
               : glm_fail(err, GLM_EKERNEL, "cannot emit kernel '%s': there is no template '%s'",
                          k->name, file);
}

enum glm_status glm_kernel_emit(const struct glm_manifest *m, const struct glm_plan_kernel *k,
                                enum glm_language language, const char *act, struct buf *out,
                                struct glm_error *err)
{
    char file[96], hash[65];
    size_t manifest_len, body_len;
    const char *manifest, *body;
    enum glm_status status = glm_manifest_check(m, k, err);
    if (status == GLM_OK)
        status = check_act(k, language, act, err);
    if (status == GLM_OK)
        status = template_file(m, k, ".json", file, &manifest, &manifest_len, err);
    if (status == GLM_OK)
        status = glm_sha256_hex(manifest, manifest_len, hash, err);
    if (status == GLM_OK)
        status = template_file(m, k, glm_language_suffix(language), file, &body, &body_len, err);
    if (status != GLM_OK)
        return status;
    buf_printf(out, "/* Generated by glmctl from kernels-templates/%s: do not edit.\n", file);
    buf_str(out, " * ");
    add_comment_text(out, m->help);
    buf_printf(out, "\n * Manifest %s. */\n", hash);
    add_constants(out, m, k);
    if (language == GLM_LANGUAGE_CUDA && (status = add_launch(out, m, k, err)) != GLM_OK)
        return status;
    buf_printf(out, "#define GLM_ACT_%s 1\n", strcmp(act, "f32") == 0 ? "F32" : "BF16");
    buf_printf(out, "#line 1 \"kernels-templates/%s\"\n", file);
    buf_add(out, body, body_len);
    if (out->failed)
        return glm_fail(err, GLM_ENOMEM, "cannot emit kernel '%s': out of memory", k->name);
    return GLM_OK;
}
