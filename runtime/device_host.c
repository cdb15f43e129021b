/* SPDX-License-Identifier: Apache-2.0 */
/* A rank on this machine's own memory and threads: every thread walks a program's steps, with a
 * barrier behind each. Owns the order of everything in a program: kernel, barrier, exchange. */
#include "runtime/device.h"

#include "runtime/clock.h"
#include "runtime/exec_step.h"
#include "runtime/kernel_load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct host {
    struct glm_device base;
    struct glm_exec *exec;
    struct glm_kernel_code *kernels; /* in plan order */
    uint32_t n_kernels;
    void *memory;
    size_t memory_bytes;
    unsigned char *buffers; /* of the loading threads */
    uint64_t buffer_bytes;
};

static struct host *host_of(struct glm_device *d)
{
    return (struct host *)d;
}

static void host_free(struct glm_device *d)
{
    struct host *h = host_of(d);
    glm_team_free(h->base.team);
    for (uint32_t i = 0; i < h->n_kernels; i++)
        glm_kernel_unload(&h->kernels[i]);
    free(h->kernels);
    if (h->memory)
        munmap(h->memory, h->memory_bytes);
    free(h);
}

/* Pages are mapped lazily, so what a lane never touches (spare pool extents) costs nothing. */
static enum glm_status host_alloc(struct glm_device *d, const char *what, uint64_t bytes,
                                  unsigned char **base, struct glm_error *err)
{
    struct host *h = host_of(d);
    size_t size = bytes > 0 ? (size_t)bytes : 1;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return glm_fail(err, GLM_ENOMEM, "cannot map %.1f MiB for %s: %s",
                        (double)bytes / (1024.0 * 1024.0), what, strerror(errno));
    /* Weights stream: fewer translations. Where there are no huge pages nothing is lost. */
    madvise(memory, size, MADV_HUGEPAGE);
    h->memory = memory;
    h->memory_bytes = size;
    *base = memory;
    return GLM_OK;
}

static enum glm_status host_load_kernels(struct glm_device *d, const struct glm_plan *plan,
                                         const char *const *paths, const char *const *digests,
                                         struct glm_error *err)
{
    struct host *h = host_of(d);
    (void)digests;
    h->kernels = calloc(plan->n_kernels + 1, sizeof *h->kernels);
    if (!h->kernels)
        return glm_fail(err, GLM_ENOMEM, "cannot load %u kernels: out of memory", plan->n_kernels);
    h->n_kernels = plan->n_kernels;
    enum glm_status st = GLM_OK;
    for (uint32_t i = 0; st == GLM_OK && i < plan->n_kernels; i++)
        st = glm_kernel_load(plan->kernels[i].name, paths[i], &h->kernels[i], err);
    return st;
}

static enum glm_status host_link(struct glm_device *d, struct glm_exec *x, struct glm_error *err)
{
    host_of(d)->exec = x;
    enum glm_status st = GLM_OK;
    for (uint32_t p = 0; x->collective && p < x->n_programs; p++) {
        for (uint32_t i = 0; st == GLM_OK && i < x->programs[p].n_steps; i++) {
            struct glm_exec_step *s = &x->programs[p].steps[i];
            if (s->kind == GLM_STEP_SUM || s->kind == GLM_STEP_GATHER)
                st = glm_exec_prepare_exchange(x, s, s->from, s->to, err);
        }
    }
    return st;
}

/* ---- running ---- */

struct run {
    struct host *h;
    const struct glm_exec_program *program;
    const struct glm_round *round;
    struct glm_error *err;
    enum glm_status status; /* written by thread 0 between barriers */
};

static void exchange(struct run *r, const struct glm_exec_step *s)
{
    size_t bytes =
        (size_t)glm_exec_exchange_bytes(s, (uint64_t)r->round->n_rows, (uint64_t)r->round->n_out);
    if (bytes == 0)
        return;
    if (!s->collective) {
        if (s->from != s->to)
            memcpy(s->to, s->from, bytes);
        return;
    }
    uint64_t start = glm_now_ns();
    r->status = glm_collective_run(s->collective, bytes, r->err);
    r->h->exec->counts.exchange_ns += glm_now_ns() - start;
}

static void probe(const struct run *r, uint32_t thread, uint32_t step_i, bool is_done)
{
    const struct glm_exec *x = r->h->exec;
    if (!x->probe)
        return;
    if (thread == 0)
        x->probe(x->probe_context, r->program, step_i, r->round, is_done);
    glm_team_barrier(r->h->base.team);
}

static void run_on_thread(void *context, uint32_t thread)
{
    struct run *r = context;
    struct glm_exec *x = r->h->exec;
    struct glm_team *team = r->h->base.team;
    struct glm_launch launch = {.thread = thread,
                                .n_threads = glm_team_threads(team),
                                .round = r->round,
                                .scratch = x->memory->base + x->memory->scratch,
                                .barrier = glm_team_barrier,
                                .barrier_state = team};
    for (uint32_t i = 0; i < r->program->n_steps; i++) {
        const struct glm_exec_step *s = &r->program->steps[i];
        probe(r, thread, i, false);
        switch (s->kind) {
        case GLM_STEP_KERNEL:
            if (thread == 0) /* its inputs are ready and nobody writes them */
                glm_exec_count(x, s, r->round);
            r->h->kernels[s->kernel_i].run(&launch, s->args);
            glm_team_barrier(team);
            break;
        case GLM_STEP_SUM:
        case GLM_STEP_GATHER:
            if (thread == 0)
                exchange(r, s);
            glm_team_barrier(team);
            if (r->status != GLM_OK)
                return;
            break;
        case GLM_STEP_MARK:
        case GLM_STEP_BLOCK:
            break;
        }
        probe(r, thread, i, true);
    }
}

static enum glm_status host_run(struct glm_device *d, const struct glm_exec_program *program,
                                const struct glm_round *round, uint64_t *ns, struct glm_error *err)
{
    struct run r = {.h = host_of(d), .program = program, .round = round, .err = err};
    uint64_t start = glm_now_ns();
    glm_team_run(d->team, run_on_thread, &r);
    *ns += glm_now_ns() - start;
    return r.status;
}

static enum glm_status host_run_step(struct glm_device *d, const struct glm_exec_program *program,
                                     uint32_t step_i, const struct glm_round *round,
                                     struct glm_error *err)
{
    struct glm_exec_program one = *program;
    uint64_t ns = 0;
    one.steps += step_i;
    one.n_steps = 1;
    return host_run(d, &one, round, &ns, err);
}

static enum glm_status host_wait(struct glm_device *d, struct glm_error *err)
{
    (void)d;
    (void)err;
    return GLM_OK;
}

/* ---- bytes ---- */

static void host_copy(struct glm_device *d, void *to, const void *from, uint64_t bytes)
{
    (void)d;
    memcpy(to, from, bytes);
}

static void host_fill(struct glm_device *d, void *to, uint8_t byte, uint64_t bytes)
{
    (void)d;
    memset(to, byte, bytes);
}

static enum glm_status host_put(struct glm_device *d, void *to, const void *from, uint64_t bytes,
                                struct glm_error *err)
{
    (void)err;
    host_copy(d, to, from, bytes);
    return GLM_OK;
}

static enum glm_status host_view(struct glm_device *d, const void *from, uint64_t bytes,
                                 const void **out, struct glm_error *err)
{
    (void)d;
    (void)bytes;
    (void)err;
    *out = from;
    return GLM_OK;
}

/* The threads write weights where they belong. */
static enum glm_status host_begin_load(struct glm_device *d, uint64_t buffer_bytes,
                                       uint64_t unit_bytes, struct glm_error *err)
{
    struct host *h = host_of(d);
    (void)unit_bytes;
    h->buffer_bytes = (buffer_bytes + 63) / 64 * 64;
    h->buffers = aligned_alloc(64, glm_team_threads(d->team) * h->buffer_bytes + 64);
    if (h->buffers == NULL)
        return glm_fail(err, GLM_ENOMEM,
                        "cannot load weights: out of memory for %u buffers of %llu bytes",
                        glm_team_threads(d->team), (unsigned long long)buffer_bytes);
    return GLM_OK;
}

static unsigned char *host_load_buffer(struct glm_device *d, uint32_t thread)
{
    struct host *h = host_of(d);
    return h->buffers + thread * h->buffer_bytes;
}

static void host_end_load(struct glm_device *d)
{
    struct host *h = host_of(d);
    free(h->buffers);
    h->buffers = NULL;
}

static const struct glm_device_ops host_ops = {
    .host_memory = true,
    .free = host_free,
    .alloc = host_alloc,
    .load_kernels = host_load_kernels,
    .link = host_link,
    .run = host_run,
    .run_step = host_run_step,
    .wait = host_wait,
    .copy = host_copy,
    .fill = host_fill,
    .put = host_put,
    .get = host_put,
    .view = host_view,
    .begin_load = host_begin_load,
    .load_buffer = host_load_buffer,
    .convert = NULL,
    .end_load = host_end_load,
};

enum glm_status glm_device_open_host(uint32_t n_threads, uint32_t host_threads,
                                     struct glm_device **out, struct glm_error *err)
{
    struct host *h = calloc(1, sizeof *h);
    if (!h)
        return glm_fail(err, GLM_ENOMEM, "cannot open the host as a device: out of memory");
    h->base.ops = &host_ops;
    enum glm_status st = glm_team_new(n_threads, host_threads, &h->base.team, err);
    if (st == GLM_OK)
        *out = &h->base;
    else
        free(h);
    return st;
}

void glm_device_free(struct glm_device *d)
{
    if (d)
        d->ops->free(d);
}
