/* SPDX-License-Identifier: Apache-2.0 */
/* What one run of a program costs: bytes, operations and exchanges from the manifests' expressions,
 * time from a device's own figures (design 5). Owns no figure of a kernel:
 * those are its manifest's. */
#include "codegen/graph.h"
#include "codegen/memory.h"

#include <string.h>

enum { DECODE_ROWS = 64 };

struct pricing {
    const struct glm_plan *plan;
    const struct glm_cost_context *at;
    const struct glm_device_figures *figures;
    const struct glm_manifest *manifests;
    uint32_t n_manifests;
    struct glm_price *total, *per_kernel;
    uint32_t n_times; /* that the block being priced is called */
    struct glm_error *err;
};

/* GB10, from measurements that its users published (jayleaton/glm53-tensorfold-spark; exchanges:
 * one-shot RDMA between Sparks); nobody here has run one. 235 GB/s streaming, bf16 tensor
 * operations as cuBLAS reaches them. A kernel that streams from memory pays 0.73 us of gap in a
 * graph and about 1.9 us until the memory is busy: launches of 0.25 to 8 MB take 1.6 to 2.9 us
 * longer than their bytes. EXL3 decoding hides behind the reads. An exchange is 10 us to a
 * neighbour, 17 us with a relay, then (world - 1) times its bytes at 22 GB/s over both rails. */
struct glm_device_figures glm_gb10_figures(uint32_t world, enum glm_topology topology)
{
    bool relayed = topology == GLM_TOPOLOGY_RING && world > 3;
    return (struct glm_device_figures){
        .read_bytes_s = 235e9,
        .ops_s = 91e12,
        .kernel_gap_s = 2.6e-6,
        .exchange_s = relayed ? 17e-6 : 10e-6,
        .exchange_bytes_s = 22e9,
    };
}

static const struct glm_plan_param *find_param(const struct glm_plan_kernel *k, const char *name)
{
    for (uint32_t i = 0; i < k->n_params; i++) {
        if (strcmp(k->params[i].name, name) == 0)
            return &k->params[i];
    }
    return NULL;
}

/* Weights decoded from EXL3: nearly all that such a kernel reads is trellis. */
static double exl3_weights(const struct glm_plan_kernel *k, double read_bytes)
{
    const struct glm_plan_param *form = find_param(k, "FORM"), *bits = find_param(k, "BITS");
    bool exl3 = form && form->text && strcmp(form->text, "exl3") == 0;
    return exl3 && bits && bits->value > 0 ? read_bytes * 8 / (double)bits->value : 0;
}

/* The activations of a decode round never leave the cache; those of a prefill slice do. */
static double activation_bytes(const struct glm_plan *p, double n_rows)
{
    if (n_rows <= DECODE_ROWS)
        return 0;
    return strcmp(p->act, "bf16") == 0 ? 2 : 4;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* A program whose bytes all stay in the cache streams at the cache's rate. */
static double byte_rate(const struct pricing *p)
{
    const struct glm_device_figures *f = p->figures;
    bool cached = f->cache_bytes > 0 && p->total->read_bytes <= f->cache_bytes;
    return cached && f->cache_bytes_s > 0 ? f->cache_bytes_s : f->read_bytes_s;
}

static double kernel_seconds(const struct glm_price *k, const struct glm_device_figures *f,
                             double bytes_s)
{
    double t = bytes_s > 0 ? (k->read_bytes + k->write_bytes) / bytes_s : 0;
    if (f->ops_s > 0)
        t = larger(t, k->ops / f->ops_s);
    if (f->exl3_weights_s > 0)
        t = larger(t, k->exl3_weights / f->exl3_weights_s);
    return t + k->n_kernels * f->kernel_gap_s;
}

/* Bytes of a weight or of a stream's state that the step names, by the executor's rule: weights
 * whole, stacked members that rows touch, one row of a stream plane each way. */
static void price_argument(const struct pricing *p, const struct glm_manifest *m,
                           const struct glm_plan_arg *arg, struct glm_price *one)
{
    for (uint32_t i = 0; i < p->plan->n_weights; i++) {
        const struct glm_plan_weight *w = &p->plan->weights[i];
        double touched = p->at->U < w->n_members ? p->at->U : w->n_members;
        if (strcmp(w->name, arg->value) == 0)
            one->weight_bytes += (double)w->bytes * (w->n_members > 1 ? touched / w->n_members : 1);
    }
    for (uint32_t i = 0; i < p->plan->n_states; i++) {
        const struct glm_plan_state *s = &p->plan->states[i];
        if (s->unit != GLM_UNIT_STREAM || strcmp(s->name, arg->value) != 0)
            continue;
        for (uint32_t a = 0; a < m->n_args; a++) {
            bool both = strcmp(m->args[a].direction, "inout") == 0;
            if (strcmp(m->args[a].name, arg->name) == 0)
                one->state_bytes += (both ? 2 : 1) * p->at->S * (double)s->row_bytes;
        }
    }
}

/* How many launches take all rows: on a GPU several where the manifest bounds one. */
static enum glm_status count_launches(const struct pricing *p, const struct glm_manifest *m,
                                      const struct glm_plan_kernel *k, uint32_t *n)
{
    struct glm_launch_shape shape = {.n_launches = 1};
    enum glm_status st = GLM_OK;
    if (glm_plan_uses_cuda(p->plan))
        st = glm_manifest_shape(m, k, p->at, &shape, p->err);
    *n = shape.n_launches;
    return st;
}

static enum glm_status price_kernel(struct pricing *p, const struct glm_plan_step *step)
{
    const char *name = step->name;
    const struct glm_plan_kernel *k = glm_plan_kernel(p->plan, name);
    if (!k)
        return glm_fail(p->err, GLM_EPLAN, "cannot price kernel '%s': the plan has none", name);
    const struct glm_manifest *m =
        glm_manifest_find(p->manifests, p->n_manifests, k->template_name);
    if (!m)
        return glm_fail(p->err, GLM_EPLAN,
                        "cannot price kernel '%s': no manifest for template '%s'", name,
                        k->template_name);
    struct glm_price one = {0};
    const struct {
        const char *expression;
        double *to;
    } parts[] = {{m->read, &one.read_bytes}, {m->write, &one.write_bytes}, {m->ops, &one.ops}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        enum glm_status st = glm_expression_eval(parts[i].expression, k->params, k->n_params, p->at,
                                                 parts[i].to, p->err);
        if (st != GLM_OK)
            return st;
    }
    uint32_t n_launches;
    enum glm_status st = count_launches(p, m, k, &n_launches);
    if (st != GLM_OK)
        return st;
    one.exl3_weights = exl3_weights(k, one.read_bytes);
    for (uint32_t i = 0; i < step->n_args; i++)
        price_argument(p, m, &step->args[i], &one);
    if (one.weight_bytes > 2 * one.read_bytes) /* a table of which rows are picked */
        one.weight_bytes = one.read_bytes;
    struct glm_price *into[] = {p->total,
                                p->per_kernel ? &p->per_kernel[k - p->plan->kernels] : NULL};
    for (size_t i = 0; i < 2 && into[i]; i++) {
        into[i]->read_bytes += p->n_times * one.read_bytes;
        into[i]->write_bytes += p->n_times * one.write_bytes;
        into[i]->weight_bytes += p->n_times * one.weight_bytes;
        into[i]->state_bytes += p->n_times * one.state_bytes;
        into[i]->ops += p->n_times * one.ops;
        into[i]->exl3_weights += p->n_times * one.exl3_weights;
        into[i]->n_kernels += p->n_times * n_launches;
    }
    return GLM_OK;
}

/* What a rank sends to each peer. */
static enum glm_status price_exchange(struct pricing *p, const char *from)
{
    const struct glm_plan_buffer *b = glm_plan_buffer(p->plan, from);
    if (!b)
        return glm_fail(p->err, GLM_EPLAN, "cannot price an exchange: no buffer '%s'", from);
    bool half = strcmp(b->dtype, "act") == 0 && strcmp(p->plan->act, "bf16") == 0;
    double rows = b->per == GLM_PER_ROW ? p->at->R : b->per == GLM_PER_OUT ? p->at->O : 1;
    p->total->n_exchanges += p->n_times;
    p->total->exchange_bytes += p->n_times * rows * (double)b->n_cols * (half ? 2 : 4);
    return GLM_OK;
}

/* The steps that are no block calls. */
static enum glm_status price_steps(struct pricing *p, const struct glm_plan_step *steps, uint32_t n)
{
    enum glm_status st = GLM_OK;
    for (uint32_t i = 0; i < n && st == GLM_OK; i++) {
        const struct glm_plan_step *s = &steps[i];
        switch (s->kind) {
        case GLM_STEP_KERNEL:
            st = price_kernel(p, s);
            break;
        case GLM_STEP_SUM:
        case GLM_STEP_GATHER:
            st = price_exchange(p, s->from);
            break;
        case GLM_STEP_BLOCK:
        case GLM_STEP_MARK:
            break;
        }
    }
    return st;
}

/* Every layer that calls a block costs the same, so each block is priced once, times its calls. */
static enum glm_status price_walk(struct pricing *p, const struct glm_plan_program *g)
{
    p->n_times = 1;
    enum glm_status st = price_steps(p, g->steps, g->n_steps);
    uint32_t n_calls = 0, n_priced = 0;
    for (uint32_t i = 0; i < g->n_steps; i++)
        n_calls += g->steps[i].kind == GLM_STEP_BLOCK;
    for (uint32_t b = 0; b < p->plan->n_blocks && st == GLM_OK; b++) {
        const struct glm_plan_block *block = &p->plan->blocks[b];
        p->n_times = 0;
        for (uint32_t i = 0; i < g->n_steps; i++)
            p->n_times +=
                g->steps[i].kind == GLM_STEP_BLOCK && strcmp(g->steps[i].name, block->name) == 0;
        n_priced += p->n_times;
        if (p->n_times > 0)
            st = price_steps(p, block->steps, block->n_steps);
    }
    if (st == GLM_OK && n_priced != n_calls)
        st = glm_fail(p->err, GLM_EPLAN, "cannot price program '%s': it calls %u blocks, %u known",
                      g->name, n_calls, n_priced);
    return st;
}

enum glm_status glm_price_program(const struct glm_plan *plan, const char *program,
                                  const struct glm_cost_context *at,
                                  const struct glm_device_figures *figures, struct glm_price *total,
                                  struct glm_price *per_kernel, struct glm_error *err)
{
    struct glm_price sum = {0};
    struct arena arena;
    const struct glm_plan_program *g = glm_plan_program(plan, program);
    if (!g)
        return glm_fail(err, GLM_EPLAN, "cannot price program '%s': the plan has none", program);
    arena_init(&arena, (size_t)16 << 20);
    struct glm_cost_context context = *at;
    context.A = activation_bytes(plan, at->R);
    struct pricing p = {.plan = plan,
                        .at = &context,
                        .figures = figures,
                        .total = &sum,
                        .per_kernel = per_kernel,
                        .err = err};
    struct glm_manifest *manifests = NULL;
    enum glm_status st = glm_manifests_load(&arena, &manifests, &p.n_manifests, err);
    p.manifests = manifests;
    if (per_kernel)
        memset(per_kernel, 0, plan->n_kernels * sizeof *per_kernel);
    /* Each kernel's launches are alike, so their time is that of their sum; only the rate must be
     * known first. */
    struct glm_price *kernels = per_kernel;
    if (st == GLM_OK && !kernels) {
        kernels = ARENA_ARRAY(&arena, plan->n_kernels, struct glm_price);
        p.per_kernel = kernels;
        if (!kernels)
            st = glm_fail(err, GLM_ENOMEM, "cannot price program '%s': out of memory", program);
    }
    if (st == GLM_OK)
        st = price_walk(&p, g);
    if (st == GLM_OK && figures) {
        double bytes_s = byte_rate(&p);
        for (uint32_t i = 0; i < plan->n_kernels; i++) {
            kernels[i].seconds = kernel_seconds(&kernels[i], figures, bytes_s);
            kernels[i].floor_seconds =
                bytes_s > 0 ? (kernels[i].read_bytes + kernels[i].write_bytes) / bytes_s : 0;
            sum.seconds += kernels[i].seconds;
            sum.floor_seconds += kernels[i].floor_seconds;
        }
        sum.seconds += sum.n_exchanges * figures->exchange_s;
        if (figures->exchange_bytes_s > 0)
            sum.seconds += (plan->world - 1) * sum.exchange_bytes / figures->exchange_bytes_s;
    }
    if (st == GLM_OK)
        *total = sum;
    arena_release(&arena);
    return st;
}
