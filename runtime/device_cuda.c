/* SPDX-License-Identifier: Apache-2.0 */
/* A rank on an NVIDIA GPU: opening and closing, its memory, its kernels, bytes to and from it, and
 * loading (device_cuda.h says how programs run there). */
#include "runtime/device_cuda.h"

#include "codegen/memory.h"

#include <stdlib.h>
#include <string.h>

enum glm_status glm_gpu_enter(struct glm_gpu *g, struct glm_error *err)
{
    if (g->failed.status != GLM_OK) {
        glm_fail(err, g->failed.status, "%s", g->failed.message);
        return g->failed.status;
    }
    return glm_cuda_use(g->cuda, err);
}

/* ---- Opening and closing ---- */

static void end_load(struct glm_device *d)
{
    struct glm_gpu *g = glm_gpu_of(d);
    for (uint32_t i = 0; i < g->n_loaders; i++) {
        glm_cuda_stream_free(g->cuda, g->loaders[i].stream);
        glm_cuda_host_free(g->cuda, g->loaders[i].unit);
    }
    free(g->loaders);
    g->loaders = NULL;
    g->n_loaders = 0;
    glm_team_free(d->team);
    d->team = NULL;
}

static void gpu_free(struct glm_device *d)
{
    struct glm_gpu *g = glm_gpu_of(d);
    bool usable = g->cuda != NULL && glm_cuda_use(g->cuda, NULL) == GLM_OK;
    /* Something is on its way only after a failure: then nobody needs it. */
    if (g->proxy != NULL && !glm_proxy_is_idle(g->proxy))
        glm_collective_abort(g->exec->collective);
    if (g->watch != NULL)
        glm_watch_give_up(g->watch);
    if (usable && g->stream != NULL)
        (void)glm_cuda_stream_wait(g->cuda, g->stream, NULL);
    glm_proxy_free(g->proxy);
    if (usable) {
        end_load(d);
        glm_gpu_unlink(g);
        glm_gpu_peer_free(g);
        glm_gpu_nccl_free(g);
        for (uint32_t i = 0; i < g->n_kernels; i++)
            glm_cuda_kernel_unload(g->cuda, &g->kernels[i]);
        glm_cuda_free(g->cuda, g->memory);
        glm_cuda_stream_free(g->cuda, g->stream);
    }
    glm_cuda_close(g->cuda);
    glm_team_free(d->team);
    free(g->kernels);
    free(g->shapes);
    free(g->seen);
    free(g);
}

static enum glm_status gpu_alloc(struct glm_device *d, const char *what, uint64_t bytes,
                                 unsigned char **base, struct glm_error *err)
{
    struct glm_gpu *g = glm_gpu_of(d);
    uint64_t size = bytes > 0 ? bytes : 1;
    enum glm_status st = glm_gpu_enter(g, err);
    if (st == GLM_OK)
        st = glm_cuda_alloc(g->cuda, what, size, &g->memory, err);
    if (st == GLM_OK)
        st = glm_cuda_fill(g->cuda, g->stream, g->memory, 0, size, err);
    if (st == GLM_OK)
        st = glm_cuda_stream_wait(g->cuda, g->stream, err);
    if (st == GLM_OK)
        *base = glm_gpu_pointer(g->memory);
    return st;
}

/* ---- Kernels ---- */

static enum glm_status gpu_load_kernels(struct glm_device *d, const struct glm_plan *plan,
                                        const char *const *paths, const char *const *digests,
                                        struct glm_error *err)
{
    struct glm_gpu *g = glm_gpu_of(d);
    const struct glm_cost_context bucket = {.R = 1, .O = 1, .S = 1};
    struct arena arena;
    struct glm_manifest *manifests;
    uint32_t n_manifests;
    g->plan = plan;
    g->kernels = calloc(plan->n_kernels + 1, sizeof *g->kernels);
    g->shapes = calloc(plan->n_kernels + 1, sizeof *g->shapes);
    if (g->kernels == NULL || g->shapes == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot load %u kernels: out of memory", plan->n_kernels);
    arena_init(&arena, 16 << 20);
    enum glm_status st = glm_manifests_load(&arena, &manifests, &n_manifests, err);
    if (st == GLM_OK)
        st = glm_gpu_enter(g, err);
    for (uint32_t i = 0; st == GLM_OK && i < plan->n_kernels; i++) {
        const struct glm_plan_kernel *k = &plan->kernels[i];
        const struct glm_manifest *m = glm_manifest_find(manifests, n_manifests, k->template_name);
        if (m == NULL)
            st = glm_fail(err, GLM_EPLAN, "cannot load kernel '%s': no template '%s'", k->name,
                          k->template_name);
        else /* shared memory does not depend on the bucket */
            st = glm_manifest_shape(m, k, &bucket, &g->shapes[i], err);
        if (st == GLM_OK)
            st = glm_cuda_kernel_load(g->cuda, k->name, paths[i], digests[i],
                                      g->shapes[i].shared_bytes, &g->kernels[i], err);
        g->n_kernels += st == GLM_OK;
    }
    arena_release(&arena);
    return st;
}

/* ---- Bytes ---- */

void glm_gpu_note(struct glm_gpu *g, enum glm_status st, const struct glm_error *err)
{
    if (st != GLM_OK && g->failed.status == GLM_OK) {
        g->failed = *err;
        g->failed.status = st;
    }
}

static void gpu_copy(struct glm_device *d, void *to, const void *from, uint64_t bytes)
{
    struct glm_gpu *g = glm_gpu_of(d);
    struct glm_error err = {0};
    enum glm_status st = glm_gpu_enter(g, &err);
    if (st == GLM_OK)
        st = glm_cuda_copy(g->cuda, g->stream, glm_gpu_address(to), glm_gpu_address(from), bytes,
                           &err);
    glm_gpu_note(g, st, &err);
}

static void gpu_fill(struct glm_device *d, void *to, uint8_t byte, uint64_t bytes)
{
    struct glm_gpu *g = glm_gpu_of(d);
    struct glm_error err = {0};
    enum glm_status st = glm_gpu_enter(g, &err);
    if (st == GLM_OK)
        st = glm_cuda_fill(g->cuda, g->stream, glm_gpu_address(to), byte, bytes, &err);
    glm_gpu_note(g, st, &err);
}

static enum glm_status gpu_put(struct glm_device *d, void *to, const void *from, uint64_t bytes,
                               struct glm_error *err)
{
    struct glm_gpu *g = glm_gpu_of(d);
    enum glm_status st = glm_gpu_enter(g, err);
    if (st == GLM_OK && bytes > 0)
        st = glm_cuda_copy_in(g->cuda, g->stream, glm_gpu_address(to), from, bytes, err);
    return st == GLM_OK ? glm_gpu_wait(d, err) : st;
}

static enum glm_status gpu_get(struct glm_device *d, void *to, const void *from, uint64_t bytes,
                               struct glm_error *err)
{
    struct glm_gpu *g = glm_gpu_of(d);
    enum glm_status st = glm_gpu_enter(g, err);
    if (st == GLM_OK && bytes > 0)
        st = glm_cuda_copy_out(g->cuda, g->stream, to, glm_gpu_address(from), bytes, err);
    return st == GLM_OK ? glm_gpu_wait(d, err) : st;
}

static enum glm_status gpu_view(struct glm_device *d, const void *from, uint64_t bytes,
                                const void **out, struct glm_error *err)
{
    struct glm_gpu *g = glm_gpu_of(d);
    if (bytes > g->seen_bytes) {
        unsigned char *seen = realloc(g->seen, bytes);
        if (seen == NULL)
            return glm_fail(err, GLM_ENOMEM, "cannot look at %llu bytes of the GPU's memory",
                            (unsigned long long)bytes);
        g->seen = seen;
        g->seen_bytes = bytes;
    }
    *out = g->seen;
    return gpu_get(d, g->seen, from, bytes, err);
}

/* ---- Loading ---- */

static enum glm_status begin_load(struct glm_device *d, uint64_t buffer_bytes, uint64_t unit_bytes,
                                  struct glm_error *err)
{
    struct glm_gpu *g = glm_gpu_of(d);
    uint32_t n = glm_team_threads(d->team);
    g->loaders = calloc(n, sizeof *g->loaders);
    if (g->loaders == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot load weights: out of memory");
    g->n_loaders = n;
    uint64_t unit_room = glm_plan_align(unit_bytes);
    enum glm_status st = glm_gpu_enter(g, err);
    for (uint32_t i = 0; st == GLM_OK && i < n; i++) {
        void *memory = NULL;
        st = glm_cuda_stream_new(g->cuda, &g->loaders[i].stream, err);
        if (st == GLM_OK)
            st = glm_cuda_host_alloc(g->cuda, "weights on their way", unit_room + buffer_bytes,
                                     &memory, err);
        if (st == GLM_OK) {
            g->loaders[i].unit = memory;
            g->loaders[i].buffer = g->loaders[i].unit + unit_room;
        }
    }
    return st;
}

static unsigned char *load_buffer(struct glm_device *d, uint32_t thread)
{
    return glm_gpu_of(d)->loaders[thread].buffer;
}

static enum glm_status convert(struct glm_device *d, uint32_t thread, const char *kernel,
                               const void *unit, uint64_t bytes, uint32_t n_blocks,
                               struct glm_error *err)
{
    struct glm_gpu *g = glm_gpu_of(d);
    const struct glm_gpu_loader *l = &g->loaders[thread];
    const struct glm_plan_kernel *k = glm_plan_kernel(g->plan, kernel);
    enum glm_status st = glm_gpu_enter(g, err);
    if (st == GLM_OK && k == NULL)
        st = glm_fail(err, GLM_EPLAN, "cannot load weights: the plan has no kernel '%s'", kernel);
    if (st != GLM_OK)
        return st;
    const struct glm_launch_shape *shape = &g->shapes[k - g->plan->kernels]; /* of one block */
    struct glm_cuda_launch launch = {.name = kernel,
                                     .kernel = &g->kernels[k - g->plan->kernels],
                                     .grid = {n_blocks, shape->grid[1], shape->grid[2]},
                                     .block = shape->block,
                                     .shared_bytes = shape->shared_bytes,
                                     .args = {.args = {l->unit}}};
    memcpy(l->unit, unit, bytes);
    st = glm_cuda_launch(g->cuda, l->stream, &launch, err);
    return st == GLM_OK ? glm_cuda_stream_wait(g->cuda, l->stream, err) : st;
}

static const struct glm_device_ops gpu_ops = {
    .host_memory = false,
    .free = gpu_free,
    .alloc = gpu_alloc,
    .load_kernels = gpu_load_kernels,
    .link = glm_gpu_link,
    .run = glm_gpu_run,
    .run_step = glm_gpu_run_step,
    .wait = glm_gpu_wait,
    .copy = gpu_copy,
    .fill = gpu_fill,
    .put = gpu_put,
    .get = gpu_get,
    .view = gpu_view,
    .begin_load = begin_load,
    .load_buffer = load_buffer,
    .convert = convert,
    .end_load = end_load,
};

enum glm_status glm_device_open_cuda(uint32_t index, bool is_shared, uint32_t load_threads,
                                     struct glm_device **out, struct glm_error *err)
{
    struct glm_gpu *g = calloc(1, sizeof *g);
    if (g == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot open 'cuda:%u': out of memory", index);
    g->base.ops = &gpu_ops;
    g->is_shared = is_shared;
    enum glm_status st = glm_cuda_open(index, &g->cuda, err);
    if (st == GLM_OK)
        st = glm_cuda_stream_new(g->cuda, &g->stream, err);
    if (st == GLM_OK)
        st = glm_team_new(load_threads, 0, &g->base.team, err);
    if (st == GLM_OK)
        *out = &g->base;
    else
        gpu_free(&g->base);
    return st;
}
