/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU's steps against the host's. Owns what is copied where and how two results are compared;
 * which steps there are and what they read is the plan's. */
#include "runtime/selftest.h"

#include "kernels-templates/prelude.h"
#include "runtime/exec_step.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double ulp_limit = 1, l2_limit = 1e-5;

/* Memory that a step's arguments lie in: a buffer of an arena or a state plane. */
struct region {
    unsigned char *host, *gpu;
    uint64_t bytes;
    bool is_read, is_written;
    unsigned char *before; /* the host's, when it is written */
    unsigned char *after;  /* the GPU's */
    uint64_t capacity;
};

struct glm_selftest {
    struct glm_exec *host, *gpu;
    struct glm_selftest_row *rows;
    uint32_t n_rows;
    bool *ran; /* [n_kernels] of the plan */
    struct region regions[GLM_PLAN_MAX_ARGS];
    uint32_t n_regions;
    enum glm_status status;
    struct glm_error err;
};

/* ---- Regions ---- */

static uint64_t target_bytes(const struct glm_exec *x, const struct glm_exec_program *p,
                             const struct glm_exec_target *t)
{
    if (t->plane)
        return t->plane->bytes;
    const struct glm_plan_arena *arena = &x->plan->arenas[p->arena_i];
    return glm_buffer_rows(t->buffer, arena) * t->buffer->n_cols *
           glm_buffer_element_bytes(x->plan, t->buffer);
}

static struct region *find_region(struct glm_selftest *t, const unsigned char *host)
{
    for (uint32_t i = 0; i < t->n_regions; i++)
        if (t->regions[i].host == host)
            return &t->regions[i];
    return NULL;
}

static bool make_room(struct region *r)
{
    if (r->bytes <= r->capacity)
        return true;
    free(r->before);
    free(r->after);
    r->before = malloc(r->bytes);
    r->after = malloc(r->bytes);
    r->capacity = r->before && r->after ? r->bytes : 0;
    return r->capacity != 0;
}

/* The regions of a step, those that it writes copied as they are now. */
static enum glm_status open_regions(struct glm_selftest *t, const struct glm_exec_program *p,
                                    const struct glm_exec_step *host,
                                    const struct glm_exec_step *gpu, struct glm_error *err)
{
    t->n_regions = 0;
    for (uint32_t i = 0; i < host->manifest->n_args; i++) {
        const struct glm_exec_target *target = &host->targets[i];
        const char *direction = host->manifest->args[i].direction;
        if (!target->base || target->weight || target_bytes(t->host, p, target) == 0)
            continue;
        struct region *r = find_region(t, target->base);
        if (!r) {
            r = &t->regions[t->n_regions++];
            r->host = target->base;
            r->gpu = gpu->targets[i].base;
            r->bytes = target_bytes(t->host, p, target);
            r->is_read = r->is_written = false;
        }
        r->is_read = r->is_read || strcmp(direction, "out") != 0;
        r->is_written = r->is_written || strcmp(direction, "in") != 0;
    }
    for (uint32_t i = 0; i < t->n_regions; i++) {
        struct region *r = &t->regions[i];
        if (!r->is_written)
            continue;
        if (!make_room(r))
            return glm_fail(err, GLM_ENOMEM, "cannot compare steps: out of memory");
        memcpy(r->before, r->host, r->bytes);
    }
    return GLM_OK;
}

/* Words of what was there before that the host has changed become NaN: the GPU has to write them.
 */
static void poison(struct region *r)
{
    for (uint64_t i = 0; i + 4 <= r->bytes; i += 4)
        if (memcmp(r->before + i, r->host + i, 4) != 0)
            memset(r->before + i, 0xff, 4);
}

static enum glm_status run_on_gpu(struct glm_selftest *t, const struct glm_exec_program *p,
                                  uint32_t step_i, const struct glm_round *round,
                                  struct glm_error *err)
{
    struct glm_device *d = t->gpu->device;
    const struct glm_memory *m = t->gpu->memory;
    enum glm_status st = GLM_OK;
    d->ops->fill(d, m->base + m->scratch, 0xff, m->tickets - m->scratch);
    for (uint32_t i = 0; st == GLM_OK && i < t->n_regions; i++) {
        struct region *r = &t->regions[i];
        if (r->is_written && !r->is_read)
            poison(r);
        st = d->ops->put(d, r->gpu, r->is_written ? r->before : r->host, r->bytes, err);
    }
    if (st == GLM_OK)
        st = d->ops->run_step(d, p, step_i, round, err);
    for (uint32_t i = 0; st == GLM_OK && i < t->n_regions; i++)
        if (t->regions[i].is_written)
            st = d->ops->get(d, t->regions[i].after, t->regions[i].gpu, t->regions[i].bytes, err);
    return st;
}

/* ---- Comparing ---- */

enum value { VALUE_BF16, VALUE_F32, VALUE_CODE32, VALUE_CODE8 };
static const uint64_t value_bytes[] = {2, 4, 4, 1};

/* Rows of one argument, or of a plane: of every `stride` values [first, first + n). */
struct block {
    const unsigned char *host, *gpu;
    enum value value;
    uint64_t n_rows, stride, first, n;
};

struct finding {
    double ulp, l2;
    uint64_t n_codes, n_other_codes;
    uint64_t row; /* of the last that was worse than those before */
};

static double value_at(const unsigned char *p, enum value value, uint64_t i)
{
    uint16_t half;
    float f;
    if (value == VALUE_BF16) {
        memcpy(&half, p + 2 * i, 2);
        return (double)glm_bf16_f32(half);
    }
    memcpy(&f, p + 4 * i, 4);
    return (double)f;
}

/* Unit in the last place of a bf16 of that size, which has 8 bits, the hidden one included. */
static double bf16_ulp(double size)
{
    int exponent;
    frexp(size, &exponent);
    return ldexp(1.0, exponent - 8);
}

/* A NaN is worse than anything. */
static void worsen(double *worst, double is, uint64_t row, struct finding *f)
{
    if (is <= *worst)
        return;
    *worst = isnan(is) ? INFINITY : is;
    f->row = row;
}

static void compare_floats(const struct block *b, uint64_t row, struct finding *f)
{
    uint64_t at = row * b->stride + b->first;
    double squares = 0, apart = 0, ulp = 0;
    for (uint64_t i = 0; i < b->n; i++) {
        double want = value_at(b->host, b->value, at + i);
        squares += want * want;
    }
    double rms = sqrt(squares / (double)b->n);
    for (uint64_t i = 0; i < b->n; i++) {
        double want = value_at(b->host, b->value, at + i);
        double off = fabs(value_at(b->gpu, b->value, at + i) - want);
        apart += off * off;
        off /= bf16_ulp(fmax(fmax(fabs(want), rms), 1e-30));
        ulp = off <= ulp ? ulp : off;
    }
    if (b->value == VALUE_BF16)
        worsen(&f->ulp, ulp, row, f);
    else
        worsen(&f->l2, sqrt(apart) / fmax(sqrt(squares), 1e-30), row, f);
}

static void compare_codes(const struct block *b, uint64_t row, struct finding *f)
{
    uint64_t bytes = value_bytes[b->value], at = (row * b->stride + b->first) * bytes;
    for (uint64_t i = 0; i < b->n; i++) {
        if (memcmp(b->host + at + i * bytes, b->gpu + at + i * bytes, bytes) == 0)
            continue;
        f->n_other_codes++;
        f->row = row;
    }
}

static void compare(const struct block *b, struct finding *f)
{
    bool codes = b->value == VALUE_CODE32 || b->value == VALUE_CODE8;
    for (uint64_t row = 0; row < b->n_rows; row++) {
        uint64_t at = (row * b->stride + b->first) * value_bytes[b->value];
        f->n_codes += codes ? b->n : 0;
        if (memcmp(b->host + at, b->gpu + at, b->n * value_bytes[b->value]) == 0)
            continue;
        if (codes)
            compare_codes(b, row, f);
        else
            compare_floats(b, row, f);
    }
}

/* Columns of an argument that the kernel has: the last part of its shape. */
static uint64_t columns(const struct glm_plan_kernel *k, const struct glm_manifest_arg *arg,
                        const struct glm_plan_buffer *b)
{
    const char *last = strrchr(arg->shape, ',');
    struct glm_cost_context at = {.R = 1, .O = 1, .S = 1};
    double n = 0;
    if (!last || glm_expression_eval(last + 1, k->params, k->n_params, &at, &n, NULL) != GLM_OK)
        return b->n_cols;
    return n < (double)b->n_cols ? (uint64_t)n : b->n_cols;
}

static struct block argument_block(const struct glm_selftest *t, const struct glm_exec_step *s,
                                   uint32_t arg_i, const struct region *r,
                                   const struct glm_round *round)
{
    const struct glm_exec_target *target = &s->targets[arg_i];
    struct block b = {.host = r->host, .gpu = r->after};
    if (target->plane) {
        const struct glm_plan_state *state = target->plane->state;
        b.value = strcmp(state->dtype, "f32") == 0    ? VALUE_F32
                  : strcmp(state->dtype, "bf16") == 0 ? VALUE_BF16
                                                      : VALUE_CODE8;
        b.stride = b.n = state->row_bytes / value_bytes[b.value];
        b.n_rows = r->bytes / state->row_bytes;
        return b;
    }
    const struct glm_plan_buffer *buffer = target->buffer;
    uint64_t bytes = glm_buffer_element_bytes(t->host->plan, buffer);
    b.value = bytes == 2                          ? VALUE_BF16
              : strcmp(buffer->dtype, "i32") == 0 ? VALUE_CODE32
                                                  : VALUE_F32;
    b.stride = buffer->n_cols;
    b.first = (uint64_t)((unsigned char *)target->address - target->base) / bytes;
    b.n = columns(&t->host->plan->kernels[s->kernel_i], &s->manifest->args[arg_i], buffer);
    b.n = b.n < b.stride - b.first ? b.n : b.stride - b.first;
    b.n_rows = buffer->per == GLM_PER_ROW   ? (uint64_t)round->n_rows
               : buffer->per == GLM_PER_OUT ? (uint64_t)round->n_out
                                            : 1;
    return b;
}

static struct glm_selftest_row *row_of(struct glm_selftest *t, const struct glm_manifest *m)
{
    uint32_t i = 0;
    while (i < t->n_rows && strcmp(t->rows[i].template_name, m->name) != 0)
        i++;
    if (i == t->n_rows)
        t->rows[t->n_rows++] = (struct glm_selftest_row){.template_name = m->name};
    return &t->rows[i];
}

static void compare_step(struct glm_selftest *t, const struct glm_exec_program *p,
                         const struct glm_exec_step *s, const struct glm_round *round)
{
    struct glm_selftest_row *row = row_of(t, s->manifest);
    row->n_steps++;
    t->ran[s->kernel_i] = true;
    for (uint32_t i = 0; i < s->manifest->n_args; i++) {
        struct finding f = {.ulp = row->worst_ulp, .l2 = row->worst_l2};
        if (!s->targets[i].base || s->targets[i].weight ||
            strcmp(s->manifest->args[i].direction, "in") == 0)
            continue;
        const struct region *region = find_region(t, s->targets[i].base);
        if (!region)
            continue; /* an empty one */
        struct block b = argument_block(t, s, i, region, round);
        compare(&b, &f);
        row->n_codes += f.n_codes;
        row->n_other_codes += f.n_other_codes;
        if (f.ulp <= row->worst_ulp && f.l2 <= row->worst_l2 && f.n_other_codes == 0)
            continue;
        row->worst_ulp = f.ulp;
        row->worst_l2 = f.l2;
        snprintf(row->where, sizeof row->where, "%s of %s, layer %u: %s, row %llu of %llu", s->name,
                 p->program->name, s->layer, s->manifest->args[i].name, (unsigned long long)f.row,
                 (unsigned long long)b.n_rows);
    }
}

/* ---- The probe ---- */

static void on_step(void *context, const struct glm_exec_program *p, uint32_t step_i,
                    const struct glm_round *round, bool is_done)
{
    struct glm_selftest *t = context;
    const struct glm_exec_program *there = &t->gpu->programs[p - t->host->programs];
    if (p->steps[step_i].kind != GLM_STEP_KERNEL || t->status != GLM_OK)
        return;
    if (!is_done) {
        t->status = open_regions(t, p, &p->steps[step_i], &there->steps[step_i], &t->err);
        return;
    }
    t->status = run_on_gpu(t, there, step_i, round, &t->err);
    if (t->status == GLM_OK)
        compare_step(t, p, &p->steps[step_i], round);
}

static bool same_programs(const struct glm_exec *a, const struct glm_exec *b)
{
    bool same = a->n_programs == b->n_programs;
    for (uint32_t p = 0; same && p < a->n_programs; p++) {
        const struct glm_exec_program *x = &a->programs[p], *y = &b->programs[p];
        same = x->n_steps == y->n_steps && x->arena_i == y->arena_i;
        for (uint32_t i = 0; same && i < x->n_steps; i++)
            same = x->steps[i].kind == y->steps[i].kind &&
                   x->steps[i].kernel_i == y->steps[i].kernel_i &&
                   x->steps[i].max_bytes == y->steps[i].max_bytes;
    }
    return same;
}

enum glm_status glm_selftest_new(struct glm_engine *host, struct glm_engine *gpu,
                                 struct glm_selftest **out, struct glm_error *err)
{
    struct glm_exec *x = glm_engine_exec(host), *y = glm_engine_exec(gpu);
    if (!same_programs(x, y))
        return glm_fail(err, GLM_EINVAL, "cannot compare: the host's programs are not the GPU's");
    struct glm_selftest *t = calloc(1, sizeof *t);
    if (t) {
        t->rows = calloc(x->n_manifests, sizeof *t->rows);
        t->ran = calloc(x->plan->n_kernels + 1, sizeof *t->ran);
    }
    if (!t || !t->rows || !t->ran) {
        if (t) {
            free(t->rows);
            free(t->ran);
        }
        free(t);
        return glm_fail(err, GLM_ENOMEM, "cannot compare: out of memory");
    }
    t->host = x;
    t->gpu = y;
    x->probe = on_step;
    x->probe_context = t;
    *out = t;
    return GLM_OK;
}

void glm_selftest_free(struct glm_selftest *t)
{
    if (!t)
        return;
    t->host->probe = NULL;
    for (uint32_t i = 0; i < GLM_PLAN_MAX_ARGS; i++) {
        free(t->regions[i].before);
        free(t->regions[i].after);
    }
    free(t->rows);
    free(t->ran);
    free(t);
}

enum glm_status glm_selftest_weights(struct glm_selftest *t, struct glm_error *err)
{
    enum { PIECE = 1 << 24 };
    const struct glm_plan *p = t->host->plan;
    for (uint32_t i = 0; i < p->n_weights; i++) {
        uint64_t n_layers = p->weights[i].n_layers > 0 ? p->weights[i].n_layers : 1;
        uint64_t bytes = glm_weight_stride(&p->weights[i]) * n_layers;
        const unsigned char *want = t->host->memory->base + t->host->memory->weights[i];
        const unsigned char *at = t->gpu->memory->base + t->gpu->memory->weights[i];
        for (uint64_t done = 0; done < bytes; done += PIECE) {
            uint64_t n = bytes - done < PIECE ? bytes - done : PIECE;
            const void *got;
            enum glm_status st = t->gpu->device->ops->view(t->gpu->device, at + done, n, &got, err);
            if (st != GLM_OK)
                return st;
            if (memcmp(got, want + done, n) != 0)
                return glm_fail(err, GLM_EKERNEL,
                                "weight '%s' is not the same on the GPU, from byte %llu on at the "
                                "earliest",
                                p->weights[i].name, (unsigned long long)done);
        }
    }
    return GLM_OK;
}

const struct glm_selftest_row *glm_selftest_rows(const struct glm_selftest *t, uint32_t *n,
                                                 enum glm_status *status, struct glm_error *err)
{
    *n = t->n_rows;
    *status = t->status;
    if (t->status != GLM_OK && err)
        *err = t->err;
    return t->rows;
}

bool glm_selftest_ran(const struct glm_selftest *t, uint32_t kernel_i)
{
    return t->ran[kernel_i];
}

bool glm_selftest_passed(const struct glm_selftest_row *row)
{
    return row->worst_ulp <= ulp_limit && row->worst_l2 <= l2_limit && row->n_other_codes == 0;
}
