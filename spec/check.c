/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint's headers against the geometry: presence, shape, dtype and the rules of EXL3 groups
 * (docs/formats.md 1). Every message names file and tensor, what was found and what was wanted.
 * Which tensors there must be comes from tensors.c; nothing here reads data. */
#include "spec/check.h"
#include "spec/names.h"

#include <stdio.h>
#include <string.h>

struct check {
    struct glm_checkpoint *c;
    struct diag_list *diags;
    uint32_t bits;         /* of the first EXL3 group met */
    const char *codebook;  /* likewise; NULL before it */
    char first_group[160]; /* its prefix, for messages about mixes */
};

static struct src_span in_file(const struct check *k, const struct glm_tensor *t)
{
    return (struct src_span){.file = t != NULL ? k->c->files[t->file] : k->c->folder};
}

static struct glm_tensor *find(const struct check *k, const char *prefix, const char *suffix)
{
    char name[192];
    int len = snprintf(name, sizeof name, "%s%s", prefix, suffix);
    if (len < 0 || (size_t)len >= sizeof name)
        return NULL;
    uint32_t i = name_index_find(k->c->slots, k->c->n_slots, k->c->tensors, name);
    return i == UINT32_MAX ? NULL : &k->c->tensors[i];
}

/* Index of the first tensor whose name starts with prefix, or UINT32_MAX; tensors are sorted. */
static uint32_t find_prefix(const struct glm_checkpoint *c, const char *prefix)
{
    size_t len = strlen(prefix);
    uint32_t low = 0;
    uint32_t high = c->n_tensors;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (strncmp(c->tensors[middle].name, prefix, len) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < c->n_tensors && strncmp(c->tensors[low].name, prefix, len) == 0;
    return found ? low : UINT32_MAX;
}

static bool ends_with(const char *text, size_t len, const char *suffix)
{
    size_t n = strlen(suffix);
    return len >= n && memcmp(text + len - n, suffix, n) == 0;
}

/* ---- how weights are stored ---- */

/* Tensors that only another quantization has; one message for all, since nothing else would fit. */
static bool refuse_foreign(struct check *k)
{
    static const struct {
        const char *suffix, *method;
    } foreign[] = {
        {".weight_scale_inv", "fp8 (128 x 128 blocks)"},
        {".weight_scale_2", "NVFP4 (ModelOpt)"},
        {".weight_packed", "compressed-tensors"},
        {".weight_scale", "NVFP4 or FP8"},
        {".scales", "MLX affine"},
    };
    for (size_t f = 0; f < sizeof foreign / sizeof foreign[0]; f++) {
        for (uint32_t i = 0; i < k->c->n_tensors; i++) {
            const struct glm_tensor *t = &k->c->tensors[i];
            if (!ends_with(t->name, strlen(t->name), foreign[f].suffix))
                continue;
            diag_add(k->diags, DIAG_ERROR, in_file(k, t), "checkpoint.quantization",
                     "serve an EXL3 pack of this model, or its BF16 release",
                     "this checkpoint is quantized with %s ('%s'), supported: EXL3 on routed "
                     "experts, or plain BF16",
                     foreign[f].method, t->name);
            return true;
        }
    }
    return false;
}

/* EXL3 outside the routed experts: packs of full scope. */
static bool refuse_full_scope(struct check *k)
{
    for (uint32_t i = 0; i < k->c->n_tensors; i++) {
        const struct glm_tensor *t = &k->c->tensors[i];
        if (!ends_with(t->name, strlen(t->name), ".trellis") ||
            strstr(t->name, ".mlp.experts.") != NULL)
            continue;
        diag_add(k->diags, DIAG_ERROR, in_file(k, t), "checkpoint.quantization",
                 "serve a pack whose routed experts alone are EXL3",
                 "'%s' is EXL3, supported: EXL3 on routed experts only, the rest BF16", t->name);
        return true;
    }
    return false;
}

static bool is_exl3(const struct glm_checkpoint *c)
{
    for (uint32_t i = 0; i < c->n_tensors; i++)
        if (ends_with(c->tensors[i].name, strlen(c->tensors[i].name), ".trellis"))
            return true;
    return false;
}

static void drop_absent_parts(struct check *k)
{
    struct glm_model *m = &k->c->model;
    char prefix[64];
    snprintf(prefix, sizeof prefix, "model.language_model.layers.%u.", m->n_layers);
    if (m->n_mtp > 0 && find_prefix(k->c, prefix) == UINT32_MAX) {
        m->n_mtp = 0;
        diag_add(k->diags, DIAG_WARNING, in_file(k, NULL), "checkpoint.no-mtp", NULL,
                 "config.json states an MTP layer, but no tensor starts with '%s': served without "
                 "it",
                 prefix);
    }
    if (m->has_vision && find_prefix(k->c, "model.visual.") == UINT32_MAX) {
        m->has_vision = false;
        m->vision = (struct glm_vision){0};
        diag_add(k->diags, DIAG_WARNING, in_file(k, NULL), "checkpoint.no-vision", NULL,
                 "config.json states a vision tower, but no tensor starts with 'model.visual.': "
                 "served without it");
    }
}

/* ---- plain tensors ---- */

static uint64_t elements(const uint64_t *shape, uint32_t n_dims)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < n_dims; i++)
        n *= shape[i];
    return n;
}

static bool same_shape(const struct glm_tensor *t, const struct glm_expected_tensor *e)
{
    if (e->flat) /* both products were bounded by the file's size and the config's ranges */
        return elements(t->shape, t->n_dims) == elements(e->shape, e->n_dims);
    return t->n_dims == e->n_dims &&
           memcmp(t->shape, e->shape, e->n_dims * sizeof e->shape[0]) == 0;
}

static void take_role(struct glm_tensor *t, const struct glm_expected_tensor *e)
{
    t->role = e->role;
    t->fan_in = e->fan_in;
    t->n_dims = e->n_dims;
    memcpy(t->shape, e->shape, sizeof t->shape);
}

static enum glm_status check_plain(void *context, const struct glm_expected_tensor *e)
{
    struct check *k = context;
    if (k->c->experts_exl3 && strstr(e->name, ".mlp.experts.") != NULL)
        return GLM_OK; /* as groups, below */
    struct glm_tensor *t = find(k, e->name, "");
    char wanted[96];
    char found[96];
    glm_shape_text(e->shape, e->n_dims, wanted, sizeof wanted);
    if (t == NULL) {
        diag_add(k->diags, DIAG_ERROR, in_file(k, NULL), "checkpoint.missing-tensor", NULL,
                 "no file holds '%s' (%s %s)", e->name, glm_dtype_text(e->dtype), wanted);
        return GLM_OK;
    }
    glm_shape_text(t->shape, t->n_dims, found, sizeof found);
    if (t->dtype != e->dtype)
        diag_add(k->diags, DIAG_ERROR, in_file(k, t), "checkpoint.dtype", NULL,
                 "tensor '%s' is %s, the model needs %s", e->name, glm_dtype_text(t->dtype),
                 glm_dtype_text(e->dtype));
    else if (!same_shape(t, e))
        diag_add(k->diags, DIAG_ERROR, in_file(k, t), "checkpoint.shape", NULL,
                 "tensor '%s' has shape %s, the model needs %s", e->name, found, wanted);
    else
        take_role(t, e);
    return GLM_OK;
}

/* ---- EXL3 groups ---- */

struct group {
    const char *prefix;
    uint64_t n_in, n_out;
    struct glm_tensor *trellis, *suh, *svh, *marker;
};

static bool check_trellis(struct check *k, const struct group *g)
{
    const struct glm_tensor *t = g->trellis;
    char found[96];
    glm_shape_text(t->shape, t->n_dims, found, sizeof found);
    if (t->dtype != GLM_I16 || t->n_dims != 3) {
        diag_add(k->diags, DIAG_ERROR, in_file(k, t), "checkpoint.exl3-trellis", NULL,
                 "'%s.trellis' must be I16 [in/16, out/16, 16*bits], found %s %s", g->prefix,
                 glm_dtype_text(t->dtype), found);
        return false;
    }
    uint64_t last = t->shape[2];
    if (last % 16 != 0 || last < 16 || last > 128) {
        diag_add(k->diags, DIAG_ERROR, in_file(k, t), "checkpoint.exl3-rate", NULL,
                 "'%s.trellis': last dimension %llu is not 16 x an integer 1..8 bits; half rates "
                 "are not supported",
                 g->prefix, (unsigned long long)last);
        return false;
    }
    uint64_t n_in = t->shape[0] * 16;
    uint64_t n_out = t->shape[1] * 16;
    if (n_in != g->n_in || n_out != g->n_out) {
        bool swapped = n_in == g->n_out && n_out == g->n_in;
        diag_add(k->diags, DIAG_ERROR, in_file(k, t), "checkpoint.exl3-shape", NULL,
                 "'%s': the trellis is %llu -> %llu, the model needs %llu -> %llu%s", g->prefix,
                 (unsigned long long)n_in, (unsigned long long)n_out, (unsigned long long)g->n_in,
                 (unsigned long long)g->n_out, swapped ? " (transposed?)" : "");
        return false;
    }
    if (n_in % 128 != 0 || n_out % 128 != 0) {
        diag_add(k->diags, DIAG_ERROR, in_file(k, t), "checkpoint.exl3-shape", NULL,
                 "'%s': %llu x %llu must be multiples of 128 (Hadamard blocks)", g->prefix,
                 (unsigned long long)n_in, (unsigned long long)n_out);
        return false;
    }
    return true;
}

static bool check_scale(struct check *k, const struct group *g, const char *suffix,
                        const struct glm_tensor *t, uint64_t n)
{
    const char *side = suffix[2] == 'u' ? "input" : "output";
    if (t == NULL) {
        char old[8];
        snprintf(old, sizeof old, ".%.2s", suffix + 1);
        bool has_old = find(k, g->prefix, old) != NULL;
        diag_add(k->diags, DIAG_ERROR, in_file(k, g->trellis), "checkpoint.exl3-scales",
                 has_old
                     ? "convert the pack with a current ExLlamaV3, which writes '.suh' and '.svh'"
                     : NULL,
                 has_old ? "'%s': %s scales are in the old sign form '%s', supported: '%s'"
                         : "'%s': EXL3 weight without %s scales ('%s' or '%s')",
                 g->prefix, side, old, suffix);
        return false;
    }
    if (t->dtype == GLM_F16 && t->n_dims == 1 && t->shape[0] == n)
        return true;
    char found[96];
    glm_shape_text(t->shape, t->n_dims, found, sizeof found);
    diag_add(k->diags, DIAG_ERROR, in_file(k, t), "checkpoint.exl3-scales", NULL,
             "'%s%s' must be F16 [%llu], found %s %s", g->prefix, suffix, (unsigned long long)n,
             glm_dtype_text(t->dtype), found);
    return false;
}

/* The codebook that the markers say, or NULL after a message. */
static const char *check_codebook(struct check *k, struct group *g)
{
    struct glm_tensor *mcg = find(k, g->prefix, ".mcg");
    struct glm_tensor *mul1 = find(k, g->prefix, ".mul1");
    if (mcg != NULL && mul1 != NULL) {
        diag_add(k->diags, DIAG_ERROR, in_file(k, g->trellis), "checkpoint.exl3-codebook", NULL,
                 "'%s' has both codebook markers, .mcg and .mul1", g->prefix);
        return NULL;
    }
    g->marker = mcg != NULL ? mcg : mul1;
    if (g->marker != NULL && (g->marker->dtype != GLM_I32 || g->marker->size_bytes != 4)) {
        char found[96];
        glm_shape_text(g->marker->shape, g->marker->n_dims, found, sizeof found);
        diag_add(k->diags, DIAG_ERROR, in_file(k, g->marker), "checkpoint.exl3-codebook", NULL,
                 "codebook marker '%s' must be one I32, found %s %s", g->marker->name,
                 glm_dtype_text(g->marker->dtype), found);
        return NULL;
    }
    return mcg != NULL ? "mcg" : mul1 != NULL ? "mul1" : "3inst";
}

/* One rate and one codebook for all experts: the kernels are specialised to them. */
static bool check_mix(struct check *k, const struct group *g, const char *codebook)
{
    uint32_t bits = (uint32_t)(g->trellis->shape[2] / 16);
    if (k->codebook == NULL) {
        k->codebook = codebook;
        k->bits = bits;
        snprintf(k->first_group, sizeof k->first_group, "%s", g->prefix);
        return true;
    }
    if (bits != k->bits) {
        diag_add(k->diags, DIAG_ERROR, in_file(k, g->trellis), "checkpoint.exl3-rate", NULL,
                 "'%s' is %u-bit EXL3, but '%s' is %u-bit: experts must share one rate", g->prefix,
                 bits, k->first_group, k->bits);
        return false;
    }
    if (strcmp(codebook, k->codebook) != 0) {
        diag_add(k->diags, DIAG_ERROR, in_file(k, g->trellis), "checkpoint.exl3-codebook", NULL,
                 "'%s' has codebook %s, but '%s' has %s: experts must share one codebook",
                 g->prefix, codebook, k->first_group, k->codebook);
        return false;
    }
    return true;
}

static void check_group(struct check *k, struct group *g)
{
    g->suh = find(k, g->prefix, ".suh");
    g->svh = find(k, g->prefix, ".svh");
    const struct glm_tensor *plain = find(k, g->prefix, ".weight");
    if (plain != NULL) {
        diag_add(k->diags, DIAG_ERROR, in_file(k, plain), "checkpoint.exl3-twice", NULL,
                 "'%s' has both a plain and an EXL3 weight", g->prefix);
        return;
    }
    bool good = check_trellis(k, g);
    good = check_scale(k, g, ".suh", g->suh, g->n_in) && good;
    good = check_scale(k, g, ".svh", g->svh, g->n_out) && good;
    const char *codebook = check_codebook(k, g);
    if (!good || codebook == NULL || !check_mix(k, g, codebook))
        return;
    struct glm_tensor *parts[] = {g->trellis, g->suh, g->svh, g->marker};
    static const char *const parts_roles[] = {"trellis", "suh", "svh"};
    for (size_t i = 0; i < 4; i++) {
        if (parts[i] == NULL)
            continue;
        parts[i]->role = i < 3 ? parts_roles[i] : k->codebook;
        parts[i]->fan_in = (uint32_t)g->n_in;
    }
    if (g->marker != NULL) { /* published as [] and as [1] */
        g->marker->n_dims = 1;
        g->marker->shape[0] = 1;
    }
}

static void report_missing(struct check *k, uint32_t layer, const char *matrix, uint32_t expert,
                           uint32_t present)
{
    char prefix[160];
    snprintf(prefix, sizeof prefix, "model.language_model.layers.%u.mlp.experts.%u.%s", layer,
             expert, matrix);
    const struct glm_tensor *scales = find(k, prefix, ".suh");
    scales = scales != NULL ? scales : find(k, prefix, ".svh");
    if (scales != NULL)
        diag_add(k->diags, DIAG_ERROR, in_file(k, scales), "checkpoint.exl3-trellis", NULL,
                 "'%s': EXL3 scales without .trellis", prefix);
    else
        diag_add(k->diags, DIAG_ERROR, in_file(k, NULL), "checkpoint.missing-tensor", NULL,
                 "layer %u expert %u has no %s.%s (%u of %u experts present)", layer, expert,
                 matrix, k->c->experts_exl3 ? "trellis" : "weight", present, k->c->model.n_experts);
}

static void check_experts(struct check *k, uint32_t layer)
{
    static const char *const matrices[] = {"gate_proj", "up_proj", "down_proj"};
    const struct glm_model *m = &k->c->model;
    for (size_t i = 0; i < 3; i++) {
        uint32_t present = 0;
        uint32_t missing = UINT32_MAX;
        for (uint32_t e = 0; e < m->n_experts; e++) {
            char prefix[160];
            snprintf(prefix, sizeof prefix, "model.language_model.layers.%u.mlp.experts.%u.%s",
                     layer, e, matrices[i]);
            struct group g = {.prefix = prefix,
                              .n_in = i < 2 ? m->d_hidden : m->d_expert,
                              .n_out = i < 2 ? m->d_expert : m->d_hidden,
                              .trellis = find(k, prefix, ".trellis")};
            if (g.trellis != NULL)
                check_group(k, &g);
            present += g.trellis != NULL;
            if (g.trellis == NULL && missing == UINT32_MAX)
                missing = e;
        }
        if (missing != UINT32_MAX)
            report_missing(k, layer, matrices[i], missing, present);
    }
}

void checkpoint_check(struct glm_checkpoint *c, const char *method, struct diag_list *diags)
{
    struct check k = {.c = c, .diags = diags};
    if (refuse_foreign(&k) || refuse_full_scope(&k))
        return;
    c->experts_exl3 = is_exl3(c);
    drop_absent_parts(&k);
    bool declared = strcmp(method, "exl3") == 0;
    if (declared != c->experts_exl3)
        diag_add(
            diags, DIAG_WARNING, in_file(&k, NULL), "checkpoint.storage", NULL,
            "config.json says the experts are %s, but their tensors are %s: the tensors decide",
            declared ? "EXL3" : "plain", c->experts_exl3 ? "EXL3" : "plain");
    const struct glm_model *m = &c->model;
    /* With any rate: check_plain passes over the experts of an EXL3 pack. */
    glm_model_tensors(m, 0, check_plain, &k);
    glm_vision_tensors(m, check_plain, &k);
    for (uint32_t layer = 0; c->experts_exl3 && layer < m->n_layers + m->n_mtp; layer++)
        if (m->ffn[layer] == GLM_FFN_MOE)
            check_experts(&k, layer);
    c->exl3_bits = k.bits;
    snprintf(c->exl3_codebook, sizeof c->exl3_codebook, "%s", k.codebook != NULL ? k.codebook : "");
}
