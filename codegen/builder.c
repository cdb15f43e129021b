/* SPDX-License-Identifier: Apache-2.0 */
/* The lists a rank's plan is built in and the few verbs the blocks use. Owns naming (sites, shared
 * kernels) and device forms by lane; knows no block of the model. */
#include "codegen/builder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void failed(struct glm_builder *b, enum glm_status st)
{
    if (b->status == GLM_OK)
        b->status = st;
}

static void out_of_memory(struct glm_builder *b)
{
    failed(b, glm_fail(b->err, GLM_ENOMEM,
                       "cannot build the plan of rank %u: arena limit of %zu bytes", b->rank,
                       b->arena->limit_bytes));
}

void *glm_list_add(struct glm_builder *b, struct glm_list *list, size_t size)
{
    static _Thread_local max_align_t spare[32]; /* where writes go once memory has run out */
    GLM_ASSERT(size <= sizeof spare);
    if (list->n == list->capacity) {
        uint32_t capacity = list->capacity ? 2 * list->capacity : 16;
        void *items = arena_array(b->arena, capacity, size);
        if (!items) {
            out_of_memory(b);
            return memset(spare, 0, sizeof spare);
        }
        if (list->n)
            memcpy(items, list->items, list->n * size);
        list->items = items;
        list->capacity = capacity;
    }
    return (char *)list->items + size * list->n++;
}

const char *glm_text(struct glm_builder *b, const char *format, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    GLM_ASSERT(n >= 0 && (size_t)n < sizeof text);
    const char *copy = arena_strdup(b->arena, text);
    if (!copy)
        out_of_memory(b);
    return copy ? copy : "";
}

const char *glm_site_name(struct glm_builder *b, const struct glm_site *site, const char *name)
{
    return site && site->suffix[0] ? glm_text(b, "%s%s", name, site->suffix) : name;
}

struct glm_slice glm_slice_all(uint64_t n)
{
    return (struct glm_slice){.first = 0, .take = n, .groups = 1, .stride = n};
}

struct glm_slice glm_slice_share(struct glm_share share, uint64_t width)
{
    uint64_t take = share.count * width;
    return (struct glm_slice){
        .first = share.first * width, .take = take, .groups = 1, .stride = take};
}

/* ---- weights ---- */

/* How the checkpoint stores a part: by its header, or by the device form where there is none. */
static const char *stored_as(struct glm_builder *b, const struct glm_site *site,
                             const struct glm_weight_def *def)
{
    char name[512];
    const struct glm_checkpoint *c = b->checkpoint;
    bool exl3 = c ? c->experts_exl3 : b->lane->formats.experts == GLM_EXPERTS_EXL3;
    if (def->class == GLM_CLASS_EXPERTS && exl3)
        return glm_text(b, "exl3:%u:%s", c ? c->exl3_bits : 4, c ? c->exl3_codebook : "mcg");
    if (c && c->n_tensors > 0) {
        const char *tensor = def->parts[0].tensor;
        const char *member = strstr(tensor, "{E}");
        int head = member ? (int)(member - tensor) : (int)strlen(tensor);
        if (site)
            snprintf(name, sizeof name, "model.language_model.layers.%u.%.*s%s%s", site->layers[0],
                     head, tensor, member ? "0" : "", member ? member + 3 : "");
        else
            snprintf(name, sizeof name, "%s", tensor);
        const struct glm_tensor *t = glm_checkpoint_find(c, name);
        if (t && t->dtype == GLM_F32)
            return "f32";
        if (t && t->dtype == GLM_BF16)
            return "bf16";
    }
    return strcmp(def->form, "f32") == 0 ? "f32" : "bf16";
}

const char *glm_build_weight(struct glm_builder *b, const struct glm_site *site,
                             const struct glm_weight_def *def)
{
    struct glm_plan_weight *w = GLM_ADD(b, weights, struct glm_plan_weight);
    *GLM_ADD(b, classes, enum glm_weight_class) = def->class;
    *w = (struct glm_plan_weight){
        .name = site ? glm_site_name(b, site, glm_text(b, "layers.{L}.%s", def->name)) : def->name,
        .layers = site ? site->layers : NULL,
        .n_layers = site ? site->n_layers : 0,
        .n_members = def->n_members ? def->n_members : 1,
        .stored = stored_as(b, site, def),
        .form = def->form,
    };
    while (w->n_parts < GLM_BUILD_MAX_PARTS && def->parts[w->n_parts].tensor)
        w->n_parts++;
    w->parts = ARENA_ARRAY(b->arena, w->n_parts, struct glm_plan_part);
    if (!w->parts) {
        w->n_parts = 0;
        out_of_memory(b);
        return w->name;
    }
    for (uint32_t i = 0; i < w->n_parts; i++) {
        const struct glm_part_def *from = &def->parts[i];
        w->parts[i] = (struct glm_plan_part){
            .tensor = site ? glm_text(b, "model.language_model.layers.{L}.%s", from->tensor)
                           : from->tensor,
            .n_rows = from->n_rows,
            .n_cols = from->n_cols,
            .rows = from->rows,
            .cols = from->cols,
        };
        w->n_rows += from->rows.take * from->rows.groups;
        w->n_cols = from->cols.take * from->cols.groups;
    }
    uint64_t bytes = 0;
    enum glm_status st = glm_form_bytes(w->form, w->n_rows, w->n_cols, &bytes, b->err);
    if (st != GLM_OK)
        failed(b, st);
    w->bytes = bytes * w->n_members;
    return w->name;
}

const char *glm_build_vector(struct glm_builder *b, const struct glm_site *site, const char *name,
                             const char *tensor, const char *form, uint64_t n)
{
    return glm_build_weight(b, site,
                            &(struct glm_weight_def){
                                .name = name,
                                .class = GLM_CLASS_OTHER,
                                .form = form,
                                .parts = {{tensor, 1, n, glm_slice_all(1), glm_slice_all(n)}},
                            });
}

const char *glm_build_form(enum glm_matrix_form wanted, uint64_t k, uint64_t cut_unit)
{
    if (wanted == GLM_FORM_Q4 && k % 64 == 0 && cut_unit % 64 == 0)
        return "q4";
    if (wanted != GLM_FORM_BF16 && k % 128 == 0 && cut_unit % 128 == 0)
        return "fp8";
    return "bf16";
}

/* ---- states and buffers ---- */

const char *glm_build_state(struct glm_builder *b, const struct glm_site *site,
                            const struct glm_plan_state *state)
{
    struct glm_plan_state *s = GLM_ADD(b, states, struct glm_plan_state);
    *s = *state;
    s->name = glm_site_name(b, site, glm_text(b, "layers.{L}.%s", state->name));
    s->layers = site->layers;
    s->n_layers = site->n_layers;
    return s->name;
}

uint32_t glm_ring_rows(uint32_t keep, uint32_t n_verify_rows)
{
    uint32_t rows = 32;
    while (rows < keep + n_verify_rows)
        rows *= 2;
    return rows;
}

const char *glm_build_buffer(struct glm_builder *b, const char *name, const char *dtype,
                             uint64_t n_cols, enum glm_buffer_per per)
{
    struct glm_plan_buffer *all = b->buffers.items;
    for (uint32_t i = 0; i < b->buffers.n; i++) {
        if (strcmp(all[i].name, name) != 0)
            continue;
        GLM_ASSERT(strcmp(all[i].dtype, dtype) == 0 && all[i].per == per);
        if (all[i].n_cols < n_cols)
            all[i].n_cols = n_cols;
        return name;
    }
    *GLM_ADD(b, buffers, struct glm_plan_buffer) =
        (struct glm_plan_buffer){.name = name, .dtype = dtype, .n_cols = n_cols, .per = per};
    return name;
}

/* ---- kernels ---- */

const char *glm_float_text(struct glm_builder *b, double value)
{
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    if (strstr(text, "e+") && value < 1e15 && value > -1e15)
        snprintf(text, sizeof text, "%.0f", value);
    return glm_text(b, "%s%s", text, strpbrk(text, ".en") ? "" : ".0");
}

bool glm_kernels_equal(const struct glm_plan_kernel *a, const struct glm_plan_kernel *b)
{
    if (strcmp(a->template_name, b->template_name) != 0 || a->n_params != b->n_params)
        return false;
    for (uint32_t i = 0; i < a->n_params; i++) {
        const struct glm_plan_param *p = &a->params[i], *q = &b->params[i];
        if (strcmp(p->name, q->name) != 0 || p->value != q->value || !p->text != !q->text ||
            (p->text && strcmp(p->text, q->text) != 0))
            return false;
    }
    return true;
}

const char *glm_build_kernel(struct glm_builder *b, const char *base, const char *template_name,
                             const struct glm_plan_param *params)
{
    struct glm_plan_kernel made = {.template_name = template_name};
    while (params[made.n_params].name)
        made.n_params++;
    made.params = ARENA_ARRAY(b->arena, made.n_params, struct glm_plan_param);
    if (!made.params) {
        out_of_memory(b);
        return base;
    }
    memcpy(made.params, params, made.n_params * sizeof *params);
    uint32_t n_same_base = 0;
    struct glm_plan_kernel *all = b->kernels.items;
    const char **bases = b->kernel_base.items;
    for (uint32_t i = 0; i < b->kernels.n; i++) {
        if (strcmp(bases[i], base) != 0)
            continue;
        if (glm_kernels_equal(&all[i], &made))
            return all[i].name;
        n_same_base++;
    }
    made.name = n_same_base ? glm_text(b, "%s.%u", base, n_same_base + 1) : base;
    *GLM_ADD(b, kernels, struct glm_plan_kernel) = made;
    *GLM_ADD(b, kernel_base, const char *) = base;
    return made.name;
}

static const char *build_converter(struct glm_builder *b, const struct glm_plan_weight *w)
{
    int bits = 0;
    char codebook[16] = "";
    if (sscanf(w->stored, "exl3:%d:%15s", &bits, codebook) != 2)
        return glm_build_kernel(b, glm_text(b, "load.%s.%s", w->stored, w->form), "load_rows",
                                GLM_PARAMS(GLM_WORD("STORED", w->stored, "checkpoint"),
                                           GLM_WORD("FORM", w->form, "lane.formats")));
    const char *form = strcmp(w->form, w->stored) == 0 ? "exl3" : w->form;
    return glm_build_kernel(
        b, glm_text(b, "load.exl3.%s", form), "load_exl3",
        GLM_PARAMS(GLM_INT("BITS", bits, "checkpoint"),
                   GLM_WORD("CODEBOOK", glm_text(b, "%s", codebook), "checkpoint"),
                   GLM_WORD("FORM", form, "lane.formats")));
}

void glm_build_converters(struct glm_builder *b)
{
    struct glm_plan_weight *all = b->weights.items;
    for (uint32_t i = 0; i < b->weights.n; i++)
        all[i].load = build_converter(b, &all[i]);
}

/* ---- steps ---- */

static const char *argument(struct glm_builder *b, const struct glm_site *site, const char *value)
{
    if (value[0] != '@')
        return value;
    return glm_site_name(b, site, glm_text(b, "layers.{L}.%s", value + 1));
}

void glm_step_kernel(struct glm_builder *b, const struct glm_site *site, const char *kernel,
                     const char *const *args)
{
    struct glm_plan_step *s = GLM_ADD(b, steps, struct glm_plan_step);
    *s = (struct glm_plan_step){.kind = GLM_STEP_KERNEL, .name = kernel};
    s->args = ARENA_ARRAY(b->arena, GLM_PLAN_MAX_ARGS, struct glm_plan_arg);
    if (!s->args) {
        out_of_memory(b);
        return;
    }
    for (uint32_t i = 0; args[i]; i += 2) {
        GLM_ASSERT(s->n_args < GLM_PLAN_MAX_ARGS);
        if (args[i + 1])
            s->args[s->n_args++] =
                (struct glm_plan_arg){.name = args[i], .value = argument(b, site, args[i + 1])};
    }
}

void glm_step_sum(struct glm_builder *b, const char *from, const char *to)
{
    *GLM_ADD(b, steps, struct glm_plan_step) =
        (struct glm_plan_step){.kind = GLM_STEP_SUM, .from = from, .to = to};
}

void glm_step_gather(struct glm_builder *b, const char *from, const char *to)
{
    *GLM_ADD(b, steps, struct glm_plan_step) =
        (struct glm_plan_step){.kind = GLM_STEP_GATHER, .from = from, .to = to};
}

void glm_step_block(struct glm_builder *b, const char *block, uint32_t layer)
{
    *GLM_ADD(b, steps, struct glm_plan_step) =
        (struct glm_plan_step){.kind = GLM_STEP_BLOCK, .name = block, .layer = layer};
}

void glm_step_mark(struct glm_builder *b, const char *mark)
{
    *GLM_ADD(b, steps, struct glm_plan_step) =
        (struct glm_plan_step){.kind = GLM_STEP_MARK, .name = mark};
}

void glm_close_block(struct glm_builder *b, const char *name)
{
    *GLM_ADD(b, blocks, struct glm_plan_block) =
        (struct glm_plan_block){.name = name, .steps = b->steps.items, .n_steps = b->steps.n};
    b->steps = (struct glm_list){0};
}

static const char **copy_names(struct glm_builder *b, const char *const *names, uint32_t *n)
{
    uint32_t count = 0;
    while (names && names[count])
        count++;
    const char **copy = count ? ARENA_ARRAY(b->arena, count, const char *) : NULL;
    if (count && !copy) {
        out_of_memory(b);
        count = 0;
    }
    for (uint32_t i = 0; i < count; i++)
        copy[i] = names[i];
    *n = count;
    return copy;
}

void glm_close_program(struct glm_builder *b, const char *name, const char *arena,
                       const char *const *inputs, const char *const *outputs)
{
    struct glm_plan_program *p = GLM_ADD(b, programs, struct glm_plan_program);
    *p = (struct glm_plan_program){
        .name = name, .arena = arena, .steps = b->steps.items, .n_steps = b->steps.n};
    p->inputs = copy_names(b, inputs, &p->n_inputs);
    p->outputs = copy_names(b, outputs, &p->n_outputs);
    b->steps = (struct glm_list){0};
}

static const struct glm_plan_weight *built_weight(const struct glm_builder *b, const char *name)
{
    const struct glm_plan_weight *all = b->weights.items;
    for (uint32_t i = 0; i < b->weights.n; i++) {
        if (strcmp(all[i].name, name) == 0)
            return &all[i];
    }
    GLM_BUG("a matmul names a weight that was not built");
}

void glm_step_matmul(struct glm_builder *b, const struct glm_site *site,
                     const struct glm_matmul *mm)
{
    const struct glm_plan_weight *w = built_weight(b, argument(b, site, mm->w));
    const char *name = mm->w[0] == '@' ? mm->w + 1 : mm->w;
    const char *kernel = glm_build_kernel(
        b, mm->kernel, "matmul",
        GLM_PARAMS(GLM_INT("N", w->n_rows, glm_text(b, "rows of %s", name)),
                   GLM_INT("K", w->n_cols, glm_text(b, "columns of %s", name)),
                   GLM_WORD("FORM", w->form, glm_text(b, "form of %s", name)),
                   GLM_INT("X_STRIDE", mm->x_stride ? mm->x_stride : w->n_cols, "buffer x"),
                   GLM_INT("Y_STRIDE", mm->y_stride ? mm->y_stride : w->n_rows, "buffer y"),
                   GLM_WORD("OUT", mm->out ? mm->out : "act", "buffer y"),
                   GLM_WORD("ROWS", mm->rows ? mm->rows : "round", "program")));
    glm_step_kernel(b, site, kernel, GLM_ARGS("x", mm->x, "w", mm->w, "y", mm->y));
}

const char *glm_exchanged(const struct glm_builder *b)
{
    return b->world > 1 ? "summed" : "partial";
}

void glm_step_exchange(struct glm_builder *b)
{
    if (b->world > 1)
        glm_step_sum(b, "partial", "summed");
}
