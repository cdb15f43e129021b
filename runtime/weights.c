/* SPDX-License-Identifier: Apache-2.0 */
/* Walks the plan's weights and fills their memory. Owns the cutting of that work into units that
 * threads take in any order (a unit is a few rows of one tensor, or one EXL3 group) and the checks
 * of tensors against the plan. Bytes come from tensor_read.c; forms from forms.h on a host, from
 * the weight's converter on a GPU. */
#include "runtime/weights.h"

#include "kernels-templates/load.h"
#include "runtime/form_slice.h"
#include "runtime/tensor_read.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A unit's source bytes, at least one row: small, so that loading needs little beside the plan.
 * What is made on the device needs nothing. */
enum {
    EXL3_BLOCK = 128,
    CHUNK_BYTES = 1 << 20,
    MADE_BYTES = 64 << 20,
    MAX_NAME = 256,
    MAX_PARTS = 64
};

/* What a device is told of a unit. */
union load_unit {
    struct glm_load_rows rows;
    struct glm_load_exl3 exl3;
};

/* How one weight is cut into units. */
struct cut {
    bool exl3;
    uint64_t part_rows[MAX_PARTS];  /* taken rows of each part */
    uint64_t chunk_rows[MAX_PARTS]; /* of a unit */
    uint64_t n_chunks[MAX_PARTS];
    uint64_t member_units, n_units;
};

struct load {
    const struct glm_weights_load *in;
    struct glm_tensor_files files;
    struct cut *cuts; /* [n_weights] */
    uint64_t n_units, total_bytes;
    bool made;             /* the device makes the elements of a synthetic checkpoint */
    uint64_t buffer_bytes; /* of the largest unit, as stored */
    atomic_ullong next, done_bytes;
    atomic_int status; /* the first failure */
    atomic_flag failing;
    struct glm_error *err;
};

/* One unit: rows [first, first + n) of those that part takes. */
struct unit {
    const struct glm_plan_weight *w;
    const struct cut *cut;
    uint32_t layer_i, member;
    uint32_t part_i;
    uint64_t first, n;
    uint64_t row0;      /* the form's row that the first of them fills */
    unsigned char *out; /* the member's device form, the device's address */
};

static bool is_exl3(const struct glm_plan_weight *w)
{
    return strncmp(w->stored, "exl3:", 5) == 0;
}

static uint64_t trellis_bits(const struct glm_plan_weight *w)
{
    return strtoull(w->stored + 5, NULL, 10);
}

/* ---- cutting ---- */

static enum glm_status check_weight(const struct glm_plan_weight *w, struct glm_error *err)
{
    uint64_t bytes, all;
    enum glm_status st = glm_form_bytes(w->form, w->n_rows, w->n_cols, &bytes, err);
    if (st != GLM_OK)
        return st;
    if (__builtin_mul_overflow(bytes, (uint64_t)w->n_members, &all) || all != w->bytes)
        return glm_fail(err, GLM_EPLAN,
                        "cannot load weight '%s': its plan says %llu bytes, form '%s' of %u x "
                        "[%llu, %llu] has %llu",
                        w->name, (unsigned long long)w->bytes, w->form, w->n_members,
                        (unsigned long long)w->n_rows, (unsigned long long)w->n_cols,
                        (unsigned long long)(bytes * w->n_members));
    uint64_t rows = 0;
    bool ok = w->n_parts > 0 && w->n_parts <= MAX_PARTS && w->n_members > 0;
    for (uint32_t i = 0; ok && i < w->n_parts; i++) {
        const struct glm_slice *r = &w->parts[i].rows, *c = &w->parts[i].cols;
        rows += glm_slice_count(r);
        ok = glm_slice_count(c) == w->n_cols || glm_slice_count(r) == 0;
        ok = ok && (r->take == 0 ||
                    (r->groups - 1) * r->stride + r->take + r->first <= w->parts[i].n_rows);
    }
    if (!ok || rows != w->n_rows)
        return glm_fail(err, GLM_EPLAN,
                        "cannot load weight '%s': its parts do not make up [%llu, %llu]", w->name,
                        (unsigned long long)w->n_rows, (unsigned long long)w->n_cols);
    return GLM_OK;
}

static void cut_weight(struct load *l, const struct glm_plan_weight *w, struct cut *cut)
{
    uint64_t n_layers = w->n_layers > 0 ? w->n_layers : 1;
    cut->exl3 = is_exl3(w);
    for (uint32_t i = 0; i < w->n_parts; i++) {
        const struct glm_plan_part *p = &w->parts[i];
        uint64_t rows = glm_slice_count(&p->rows), row_bytes = p->n_cols * 4;
        cut->part_rows[i] = rows;
        uint64_t most = l->made ? MADE_BYTES : CHUNK_BYTES;
        uint64_t chunk = row_bytes > 0 ? most / row_bytes : 1;
        /* bf16_t transposes whole groups of rows; of an EXL3 group nothing smaller is whole. */
        uint64_t step = strcmp(w->form, "bf16_t") == 0 && p->rows.take > 0 ? p->rows.take : 1;
        chunk = chunk / step * step;
        chunk = chunk > 0 ? chunk : step;
        if (cut->exl3)
            chunk = rows > 0 ? rows : 1;
        uint64_t bytes = chunk * row_bytes;
        if (cut->exl3)
            bytes = p->n_rows * p->n_cols / 8 * trellis_bits(w) + 2 * (p->n_rows + p->n_cols) + 256;
        l->buffer_bytes = bytes > l->buffer_bytes ? bytes : l->buffer_bytes;
        cut->chunk_rows[i] = chunk;
        cut->n_chunks[i] = w->n_cols > 0 ? (rows + chunk - 1) / chunk : 0;
        cut->member_units += cut->n_chunks[i];
    }
    cut->n_units = cut->member_units * w->n_members * n_layers;
    l->n_units += cut->n_units;
    l->total_bytes += w->bytes * n_layers;
}

/* Unit number u of the whole load. */
static struct unit find_unit(const struct load *l, uint64_t u)
{
    const struct glm_plan *p = l->in->plan;
    uint32_t i = 0;
    while (u >= l->cuts[i].n_units)
        u -= l->cuts[i++].n_units;
    const struct glm_plan_weight *w = &p->weights[i];
    const struct cut *cut = &l->cuts[i];
    struct unit unit = {.w = w, .cut = cut};
    uint64_t member = u / cut->member_units;
    u %= cut->member_units;
    unit.layer_i = (uint32_t)(member / w->n_members);
    unit.member = (uint32_t)(member % w->n_members);
    while (u >= cut->n_chunks[unit.part_i])
        u -= cut->n_chunks[unit.part_i++];
    unit.first = u * cut->chunk_rows[unit.part_i];
    uint64_t left = cut->part_rows[unit.part_i] - unit.first;
    unit.n = left < cut->chunk_rows[unit.part_i] ? left : cut->chunk_rows[unit.part_i];
    unit.row0 = unit.first;
    for (uint32_t part_i = 0; part_i < unit.part_i; part_i++)
        unit.row0 += cut->part_rows[part_i];
    unit.out = l->in->memory->base + l->in->memory->weights[i] +
               unit.layer_i * glm_weight_stride(w) + unit.member * (w->bytes / w->n_members);
    return unit;
}

/* ---- tensors ---- */

static void add_text(char *out, size_t size, size_t *n, const char *text, size_t len)
{
    for (size_t i = 0; i < len && *n + 1 < size; i++)
        out[(*n)++] = text[i];
}

/* The tensor of a pattern with {L} and {E} bound, and `suffix`. */
static enum glm_status find_tensor(const struct load *l, const struct unit *u, const char *suffix,
                                   const struct glm_tensor **out, struct glm_error *err)
{
    char name[MAX_NAME], number[16];
    size_t n = 0;
    for (const char *at = u->w->parts[u->part_i].tensor; *at;) {
        bool layer = strncmp(at, "{L}", 3) == 0;
        if (!layer && strncmp(at, "{E}", 3) != 0) {
            add_text(name, sizeof name, &n, at++, 1);
            continue;
        }
        uint32_t value = u->member;
        if (layer)
            value = u->w->n_layers > 0 ? u->w->layers[u->layer_i] : 0;
        int len = snprintf(number, sizeof number, "%u", value);
        add_text(name, sizeof name, &n, number, (size_t)len);
        at += 3;
    }
    add_text(name, sizeof name, &n, suffix, strlen(suffix));
    name[n] = '\0';
    *out = glm_checkpoint_find(l->in->checkpoint, name);
    if (!*out)
        return glm_fail(err, GLM_ECHECKPOINT, "cannot load weight '%s': no tensor '%s'", u->w->name,
                        name);
    return GLM_OK;
}

static enum glm_status check_tensor(const struct unit *u, const struct glm_tensor *t,
                                    enum glm_dtype dtype, uint64_t n_elements,
                                    struct glm_error *err)
{
    uint64_t found = t->size_bytes / glm_dtype_bytes(t->dtype);
    if (t->dtype == dtype && found == n_elements)
        return GLM_OK;
    return glm_fail(err, GLM_ECHECKPOINT,
                    "cannot load weight '%s': tensor '%s' has %llu elements of %s, want %llu of %s",
                    u->w->name, t->name, (unsigned long long)found, glm_dtype_text(t->dtype),
                    (unsigned long long)n_elements, glm_dtype_text(dtype));
}

static enum glm_status find_stored(const struct load *l, const struct unit *u, const char *suffix,
                                   enum glm_dtype dtype, uint64_t n_elements,
                                   const struct glm_tensor **out, struct glm_error *err)
{
    enum glm_status st = find_tensor(l, u, suffix, out, err);
    return st == GLM_OK ? check_tensor(u, *out, dtype, n_elements, err) : st;
}

static enum glm_status stored_dtype(const struct glm_plan_weight *w, enum glm_dtype *out,
                                    struct glm_error *err)
{
    static const struct {
        const char *text;
        enum glm_dtype dtype;
    } dtypes[] = {{"bf16", GLM_BF16}, {"f32", GLM_F32}, {"f16", GLM_F16}};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        if (strcmp(w->stored, dtypes[i].text) == 0) {
            *out = dtypes[i].dtype;
            return GLM_OK;
        }
    }
    return glm_fail(err, GLM_EPLAN, "cannot load weight '%s': unknown stored form '%s'", w->name,
                    w->stored);
}

/* Taken rows [first, first + n) of a slice, read one after another into out. */
static enum glm_status read_taken(const struct load *l, const struct glm_tensor *t,
                                  const struct glm_plan_part *p, uint64_t first, uint64_t n,
                                  unsigned char *out, struct glm_error *err)
{
    uint64_t pitch = p->n_cols * glm_dtype_bytes(t->dtype);
    enum glm_status st = GLM_OK;
    for (uint64_t done = 0; st == GLM_OK && done < n;) {
        uint64_t taken = first + done, in_group = taken % p->rows.take;
        uint64_t run = p->rows.take - in_group;
        run = run < n - done ? run : n - done;
        uint64_t row = p->rows.first + taken / p->rows.take * p->rows.stride + in_group;
        st = glm_tensor_read_rows(&l->files, t, row, run, p->n_cols, &p->cols, out + done * pitch,
                                  err);
        done += run;
    }
    return st;
}

/* ---- conversion on the device ---- */

static struct glm_load_cut load_cut(const struct glm_slice *s)
{
    return (struct glm_load_cut){.first = s->first, .take = s->take, .stride = s->stride};
}

static enum glm_status convert_rows(const struct load *l, const struct unit *u, uint32_t thread,
                                    const struct glm_tensor *t, const void *source,
                                    struct glm_error *err)
{
    const struct glm_plan_part *p = &u->w->parts[u->part_i];
    const struct glm_load_rows rows = {.source = source,
                                       .values = glm_synthetic_of(t),
                                       .rows = load_cut(&p->rows),
                                       .cols = load_cut(&p->cols),
                                       .row = u->first,
                                       .uncut_cols = p->n_cols,
                                       .n_rows = u->n,
                                       .n_cols = glm_slice_count(&p->cols),
                                       .out = u->out,
                                       .form_rows = u->w->n_rows,
                                       .row0 = u->row0,
                                       .group_rows = p->rows.take};
    struct glm_device *d = l->in->device;
    return d->ops->convert(d, thread, u->w->load, &rows, sizeof rows, (uint32_t)u->n, err);
}

static enum glm_status load_rows(const struct load *l, const struct unit *u, uint32_t thread,
                                 unsigned char *buffer, struct glm_error *err)
{
    const struct glm_plan_weight *w = u->w;
    struct glm_plan_part part = w->parts[u->part_i];
    const struct glm_tensor *t = NULL;
    enum glm_dtype dtype = GLM_BF16;
    enum glm_status st = stored_dtype(w, &dtype, err);
    if (st == GLM_OK)
        st = find_stored(l, u, "", dtype, part.n_rows * part.n_cols, &t, err);
    if (st == GLM_OK && !l->made)
        st = read_taken(l, t, &part, u->first, u->n, buffer, err);
    if (st != GLM_OK)
        return st;
    if (l->in->device->ops->convert != NULL)
        return convert_rows(l, u, thread, t, l->made ? NULL : buffer, err);
    /* What was read is the whole of a smaller tensor. */
    bool grouped = strcmp(w->form, "bf16_t") == 0;
    uint64_t take = grouped ? part.rows.take : u->n;
    part.n_rows = u->n;
    part.rows = (struct glm_slice){.take = take, .groups = u->n / take, .stride = take};
    return glm_form_place(w->form, &part, buffer, dtype, w->n_rows, w->n_cols, u->row0, u->out,
                          err);
}

/* The tensors of an EXL3 group. */
struct group {
    const struct glm_tensor *trellis, *suh, *svh;
};

static enum glm_status read_scales(const struct load *l, const struct glm_tensor *t, uint64_t n,
                                   void *out, struct glm_error *err)
{
    enum glm_status st = glm_tensor_read(&l->files, t, 0, n, out, err);
    return st == GLM_OK ? glm_exl3_verify(t, out, err) : st;
}

/* A group's trellis is read where it lies in the uncut one: [inputs / 16][outputs / 16][16 bits].
 */
static enum glm_status read_trellis(const struct load *l, const struct glm_plan_part *p,
                                    const struct glm_tensor *t, uint64_t tile,
                                    unsigned char *buffer, struct glm_error *err)
{
    uint64_t n_cols = p->n_rows / 16 * tile;
    struct glm_slice outputs = {.first = p->rows.first / 16 * tile,
                                .take = p->rows.take / 16 * tile,
                                .groups = p->rows.groups,
                                .stride = p->rows.stride / 16 * tile};
    enum glm_status st = GLM_OK;
    for (uint64_t g = 0; st == GLM_OK && g < p->cols.groups; g++) {
        uint64_t row = (p->cols.first + g * p->cols.stride) / 16;
        st = glm_tensor_read_rows(&l->files, t, row, p->cols.take / 16, n_cols, &outputs,
                                  buffer + row * n_cols * 2, err);
    }
    return st;
}

static enum glm_status convert_exl3(const struct load *l, const struct unit *u, uint32_t thread,
                                    const struct group *g, const struct glm_exl3_source *source,
                                    struct glm_error *err)
{
    const struct glm_plan_part *p = &u->w->parts[u->part_i];
    const struct glm_load_exl3 unit = {.trellis = source->trellis,
                                       .suh = source->suh,
                                       .svh = source->svh,
                                       .trellis_values = glm_synthetic_of(g->trellis),
                                       .suh_values = glm_synthetic_of(g->suh),
                                       .svh_values = glm_synthetic_of(g->svh),
                                       .rows = load_cut(&p->rows),
                                       .cols = load_cut(&p->cols),
                                       .uncut_rows = p->n_rows,
                                       .uncut_cols = p->n_cols,
                                       .n_rows = u->w->n_rows,
                                       .n_cols = u->w->n_cols,
                                       .out = u->out};
    struct glm_device *d = l->in->device;
    uint64_t n_blocks = u->w->n_rows / EXL3_BLOCK * (u->w->n_cols / EXL3_BLOCK);
    return d->ops->convert(d, thread, u->w->load, &unit, sizeof unit, (uint32_t)n_blocks, err);
}

static enum glm_status load_exl3(const struct load *l, const struct unit *u, uint32_t thread,
                                 unsigned char *buffer, struct glm_error *err)
{
    const struct glm_plan_part *p = &u->w->parts[u->part_i];
    uint64_t tile = 16 * trellis_bits(u->w), n = p->n_rows / 16 * (p->n_cols / 16) * tile;
    unsigned char *suh = buffer + (n * 2 + 63) / 64 * 64;
    unsigned char *svh = suh + (p->n_cols * 2 + 63) / 64 * 64;
    struct group g = {0};
    enum glm_status st = find_stored(l, u, ".trellis", GLM_I16, n, &g.trellis, err);
    if (st == GLM_OK)
        st = find_stored(l, u, ".suh", GLM_F16, p->n_cols, &g.suh, err);
    if (st == GLM_OK)
        st = find_stored(l, u, ".svh", GLM_F16, p->n_rows, &g.svh, err);
    if (st == GLM_OK && l->made)
        return convert_exl3(l, u, thread, &g, &(struct glm_exl3_source){0}, err);
    if (st == GLM_OK)
        st = read_trellis(l, p, g.trellis, tile, buffer, err);
    if (st == GLM_OK)
        st = read_scales(l, g.suh, p->n_cols, suh, err);
    if (st == GLM_OK)
        st = read_scales(l, g.svh, p->n_rows, svh, err);
    if (st != GLM_OK)
        return st;
    const struct glm_exl3_source source = {.trellis = buffer, .suh = suh, .svh = svh};
    if (l->in->device->ops->convert != NULL)
        return convert_exl3(l, u, thread, &g, &source, err);
    return glm_form_place_exl3(u->w->stored, u->w->form, p, &source, u->out, err);
}

/* ---- loading ---- */

static void fail(struct load *l, enum glm_status st, const struct glm_error *err)
{
    if (!atomic_flag_test_and_set(&l->failing)) {
        if (l->err)
            *l->err = *err;
        atomic_store(&l->status, (int)st);
    }
}

static void load_on_thread(void *context, uint32_t thread)
{
    struct load *l = context;
    struct glm_error err = {0};
    unsigned char *buffer = l->in->device->ops->load_buffer(l->in->device, thread);
    while (atomic_load(&l->status) == GLM_OK) {
        uint64_t i = atomic_fetch_add(&l->next, 1);
        if (i >= l->n_units)
            break;
        struct unit u = find_unit(l, i);
        enum glm_status st = u.cut->exl3 ? load_exl3(l, &u, thread, buffer, &err)
                                         : load_rows(l, &u, thread, buffer, &err);
        if (st != GLM_OK) {
            fail(l, st, &err);
            break;
        }
        uint64_t bytes = u.w->bytes / u.w->n_members;
        uint64_t rows = u.w->n_rows > 0 ? u.w->n_rows : 1;
        atomic_fetch_add(&l->done_bytes, (uint64_t)((double)bytes * ((double)u.n / (double)rows)));
        if (thread == 0 && l->in->progress) {
            uint64_t done = atomic_load(&l->done_bytes);
            l->in->progress(l->in->progress_context, done < l->total_bytes ? done : l->total_bytes,
                            l->total_bytes);
        }
    }
}

enum glm_status glm_weights_load(const struct glm_weights_load *in, struct glm_error *err)
{
    const struct glm_plan *p = in->plan;
    if (p->n_weights == 0)
        return GLM_OK;
    struct glm_device *d = in->device;
    struct load l = {.in = in,
                     .err = err,
                     .made = d->ops->convert != NULL &&
                             in->checkpoint->kind == GLM_CHECKPOINT_SYNTHETIC,
                     .failing = ATOMIC_FLAG_INIT};
    l.cuts = calloc(p->n_weights, sizeof *l.cuts);
    enum glm_status st = GLM_OK;
    if (!l.cuts)
        st = glm_fail(err, GLM_ENOMEM, "cannot load %u weights: out of memory", p->n_weights);
    for (uint32_t i = 0; st == GLM_OK && i < p->n_weights; i++) {
        st = check_weight(&p->weights[i], err);
        if (st == GLM_OK)
            cut_weight(&l, &p->weights[i], &l.cuts[i]);
    }
    if (st == GLM_OK)
        st = glm_tensor_files_open(&l.files, in->checkpoint, err);
    if (st == GLM_OK) {
        st = d->ops->begin_load(d, l.made ? 0 : l.buffer_bytes, sizeof(union load_unit), err);
        if (st == GLM_OK) {
            glm_team_run(d->team, load_on_thread, &l);
            st = (enum glm_status)atomic_load(&l.status);
        }
        d->ops->end_load(d);
        if (st == GLM_OK)
            st = glm_tensor_files_check(&l.files, err);
        glm_tensor_files_close(&l.files);
    }
    free(l.cuts);
    if (st == GLM_OK && in->progress)
        in->progress(in->progress_context, l.total_bytes, l.total_bytes);
    return st;
}
