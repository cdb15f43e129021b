/* SPDX-License-Identifier: Apache-2.0 */
/* One NVIDIA GPU (see the header). The driver's calls are cuda_driver.c's; how a cubin comes to be,
 * and what is launched when, is not known here. */
#include "runtime/cuda.h"

#include "codegen/kernels.h"
#include "runtime/cuda_driver.h"
#include "runtime/kernel_load.h"
#include "spec/base/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_CAPABILITY = 89, MAX_CUBIN_BYTES = 64 * 1024 * 1024, MAX_REACHED = 8 };

struct glm_cuda {
    const struct glm_cuda_driver *driver;
    int device;
    void *context; /* the device's primary one */
    struct glm_cuda_facts facts;
    int reached[MAX_REACHED]; /* devices whose context this one keeps */
    uint32_t n_reached;
};

/* GLM_OK, or "cannot WHAT 'SUBJECT' on cuda:0: CUDA_ERROR_…: text". */
static enum glm_status check(const struct glm_cuda *c, int result, const char *what,
                             const char *subject, struct glm_error *err)
{
    const char *name = NULL, *text = NULL;
    if (result == CUDA_OK)
        return GLM_OK;
    c->driver->error_name(result, &name);
    c->driver->error_text(result, &text);
    return glm_fail(err, GLM_EKERNEL, "cannot %s%s%s%s on cuda:%u: %s (%d): %s", what,
                    subject == NULL ? "" : " '", subject == NULL ? "" : subject,
                    subject == NULL ? "" : "'", c->facts.index, name == NULL ? "unknown" : name,
                    result, text == NULL ? "no text" : text);
}

/* ---- The device ---- */

static int count_devices(const struct glm_cuda_driver *d, uint32_t *n)
{
    int count = 0, result = d->device_count(&count);
    *n = count > 0 ? (uint32_t)count : 0;
    return result == CUDA_NO_DEVICE ? CUDA_OK : result;
}

enum glm_status glm_cuda_count(uint32_t *n, struct glm_error *err)
{
    struct glm_cuda c = {0};
    int version;
    enum glm_status status = glm_cuda_driver_open(&c.driver, &version, err);
    return status == GLM_OK ? check(&c, count_devices(c.driver, n), "count the GPUs", NULL, err)
                            : status;
}

static enum glm_status read_facts(struct glm_cuda *c, struct glm_error *err)
{
    struct glm_cuda_facts *f = &c->facts;
    int integrated = 0;
    size_t bytes = 0;
    const struct {
        int attribute;
        void *value;
    } rows[] = {{CUDA_DEVICE_SMS, &f->n_sms},
                {CUDA_DEVICE_MAJOR, &f->major},
                {CUDA_DEVICE_MINOR, &f->minor},
                {CUDA_DEVICE_BLOCK_SHARED, &f->block_shared_bytes},
                {CUDA_DEVICE_INTEGRATED, &integrated}};
    int result = c->driver->device_name(f->name, sizeof f->name, c->device);
    for (size_t i = 0; result == CUDA_OK && i < sizeof rows / sizeof rows[0]; i++)
        result = c->driver->device_attribute(rows[i].value, rows[i].attribute, c->device);
    if (result == CUDA_OK)
        result = c->driver->device_memory(&bytes, c->device);
    f->memory_bytes = bytes;
    f->shares_memory = integrated != 0;
    /* From Blackwell's small chips on kernels use what only the exact chip has. */
    snprintf(f->target, sizeof f->target, "sm_%u%u%s", f->major % 1000, f->minor % 10,
             f->major >= 12 ? "a" : "");
    return check(c, result, "read the facts", NULL, err);
}

/* Driver, device and facts, without a context. */
static enum glm_status find_device(struct glm_cuda *c, uint32_t index, struct glm_error *err)
{
    uint32_t n = 0;
    int version;
    enum glm_status status = glm_cuda_driver_open(&c->driver, &version, err);
    if (status != GLM_OK)
        return status;
    c->facts.index = index;
    c->facts.driver_version = (uint32_t)version;
    status = check(c, count_devices(c->driver, &n), "count the GPUs", NULL, err);
    if (status == GLM_OK && index >= n) {
        status =
            glm_fail(err, GLM_EKERNEL, "cannot open 'cuda:%u': the driver shows %u GPUs", index, n);
        glm_error_hint(err, "nvidia-smi -L lists them; CUDA_VISIBLE_DEVICES hides some");
    }
    if (status == GLM_OK)
        status = check(c, c->driver->device_get(&c->device, (int)index), "open the GPU", NULL, err);
    if (status == GLM_OK)
        status = read_facts(c, err);
    if (status == GLM_OK && c->facts.major * 10 + c->facts.minor < MIN_CAPABILITY)
        status = glm_fail(err, GLM_EKERNEL,
                          "cannot use 'cuda:%u': %s has compute capability %u.%u, needed is %d.%d "
                          "or later",
                          index, c->facts.name, c->facts.major, c->facts.minor, MIN_CAPABILITY / 10,
                          MIN_CAPABILITY % 10);
    return status;
}

enum glm_status glm_cuda_facts_of(uint32_t index, struct glm_cuda_facts *out, struct glm_error *err)
{
    struct glm_cuda c = {0};
    enum glm_status status = find_device(&c, index, err);
    if (status == GLM_OK)
        *out = c.facts;
    return status;
}

enum glm_status glm_cuda_open(uint32_t index, struct glm_cuda **out, struct glm_error *err)
{
    struct glm_cuda *c = calloc(1, sizeof *c);
    if (c == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot open 'cuda:%u': out of memory", index);
    enum glm_status status = find_device(c, index, err);
    if (status == GLM_OK)
        status =
            check(c, c->driver->context_retain(&c->context, c->device), "open the GPU", NULL, err);
    if (status == GLM_OK)
        status = glm_cuda_use(c, err);
    if (status == GLM_OK)
        *out = c;
    else
        glm_cuda_close(c);
    return status;
}

void glm_cuda_close(struct glm_cuda *c)
{
    for (uint32_t i = 0; c != NULL && i < c->n_reached; i++)
        c->driver->context_release(c->reached[i]);
    if (c != NULL && c->context != NULL)
        c->driver->context_release(c->device);
    free(c);
}

enum glm_status glm_cuda_use(struct glm_cuda *c, struct glm_error *err)
{
    return check(c, c->driver->context_use(c->context), "use the GPU", NULL, err);
}

const struct glm_cuda_facts *glm_cuda_facts(const struct glm_cuda *c)
{
    return &c->facts;
}

/* ---- Memory ---- */

enum glm_status glm_cuda_memory_free(struct glm_cuda *c, uint64_t *bytes, struct glm_error *err)
{
    size_t available = 0, total = 0;
    int result = c->driver->memory_info(&available, &total);
    *bytes = available;
    return check(c, result, "ask for the free memory", NULL, err);
}

enum glm_status glm_cuda_alloc(struct glm_cuda *c, const char *what, uint64_t bytes,
                               glm_cuda_address *out, struct glm_error *err)
{
    uint64_t available = 0;
    int result = c->driver->alloc(out, bytes);
    if (result != CUDA_OUT_OF_MEMORY)
        return check(c, result, "allocate", what, err);
    glm_cuda_memory_free(c, &available, NULL);
    return glm_fail(err, GLM_ENOMEM,
                    "cannot allocate '%s' on cuda:%u: %llu bytes, of %llu are %llu free", what,
                    c->facts.index, (unsigned long long)bytes,
                    (unsigned long long)c->facts.memory_bytes, (unsigned long long)available);
}

void glm_cuda_free(struct glm_cuda *c, glm_cuda_address address)
{
    if (address != 0)
        c->driver->free(address);
}

enum glm_status glm_cuda_host_alloc(struct glm_cuda *c, const char *what, uint64_t bytes,
                                    void **out, struct glm_error *err)
{
    int result = c->driver->host_alloc(out, bytes > 0 ? bytes : 1, 0);
    if (result != CUDA_OUT_OF_MEMORY)
        return check(c, result, "allocate page-locked memory for", what, err);
    return glm_fail(err, GLM_ENOMEM, "cannot lock %llu bytes of the host's memory for '%s'",
                    (unsigned long long)bytes, what);
}

void glm_cuda_host_free(struct glm_cuda *c, void *memory)
{
    if (memory != NULL)
        c->driver->host_free(memory);
}

enum glm_status glm_cuda_copy_in(struct glm_cuda *c, glm_cuda_stream s, glm_cuda_address to,
                                 const void *from, uint64_t bytes, struct glm_error *err)
{
    return check(c, c->driver->copy_in(to, from, bytes, s), "copy to the GPU", NULL, err);
}

enum glm_status glm_cuda_copy_out(struct glm_cuda *c, glm_cuda_stream s, void *to,
                                  glm_cuda_address from, uint64_t bytes, struct glm_error *err)
{
    return check(c, c->driver->copy_out(to, from, bytes, s), "copy from the GPU", NULL, err);
}

enum glm_status glm_cuda_copy(struct glm_cuda *c, glm_cuda_stream s, glm_cuda_address to,
                              glm_cuda_address from, uint64_t bytes, struct glm_error *err)
{
    return check(c, c->driver->copy(to, from, bytes, s), "copy", NULL, err);
}

enum glm_status glm_cuda_fill(struct glm_cuda *c, glm_cuda_stream s, glm_cuda_address to,
                              uint8_t byte, uint64_t bytes, struct glm_error *err)
{
    return check(c, c->driver->fill(to, byte, bytes, s), "fill memory", NULL, err);
}

/* The driver documents that operations of a batch are enqueued in their order, that a write comes
 * after a fence of the system's scope, and that memory of cuMemHostAlloc has one address on host
 * and GPU (unified addressing). A capture keeps them as a node: NCCL's copy-engine collectives wait
 * in graphs so, and set their flags back in the same batch because a graph's values are constants.
 */
enum glm_status glm_cuda_meet(struct glm_cuda *c, glm_cuda_stream s, void *bell, void *done,
                              struct glm_error *err)
{
    const uint64_t rung = (uint64_t)(uintptr_t)bell, over = (uint64_t)(uintptr_t)done;
    struct glm_cuda_mem_op ops[] = {
        {.operation = CUDA_OP_WRITE_32, .address = rung, .value = 1},
        {.operation = CUDA_OP_WAIT_32, .address = over, .value = 1, .flags = CUDA_WAIT_EQUAL},
        {.operation = CUDA_OP_WRITE_32, .address = over, .value = 0},
    };
    return check(c, c->driver->mem_ops(s, sizeof ops / sizeof ops[0], ops, 0),
                 "let a stream meet the host", NULL, err);
}

/* ---- Memory of other GPUs ---- */

static enum glm_status lacks(const struct glm_cuda *c, const char *call, struct glm_error *err)
{
    return glm_fail(err, GLM_EKERNEL, "cannot share memory of cuda:%u: the driver has no %s",
                    c->facts.index, call);
}

enum glm_status glm_cuda_share(struct glm_cuda *c, glm_cuda_address address,
                               struct glm_cuda_handle *out, struct glm_error *err)
{
    if (c->driver->share == NULL)
        return lacks(c, "cuIpcGetMemHandle", err);
    return check(c, c->driver->share(out, address), "share memory", NULL, err);
}

enum glm_status glm_cuda_shared_open(struct glm_cuda *c, const struct glm_cuda_handle *handle,
                                     glm_cuda_address *out, struct glm_error *err)
{
    if (c->driver->shared_open == NULL || c->driver->shared_close == NULL)
        return lacks(c, "cuIpcOpenMemHandle", err);
    return check(c, c->driver->shared_open(out, *handle, CUDA_SHARED_ENABLE_PEER),
                 "open another GPU's memory", NULL, err);
}

void glm_cuda_shared_close(struct glm_cuda *c, glm_cuda_address address)
{
    if (address != 0)
        c->driver->shared_close(address);
}

enum glm_status glm_cuda_reach(struct glm_cuda *c, uint32_t index, struct glm_error *err)
{
    int can = 0, device = 0;
    void *context = NULL;
    if (c->driver->peer_can == NULL || c->driver->peer_enable == NULL)
        return lacks(c, "cuCtxEnablePeerAccess", err);
    int result = c->driver->device_get(&device, (int)index);
    if (result == CUDA_OK)
        result = c->driver->peer_can(&can, c->device, device);
    if (result == CUDA_OK && (can == 0 || c->n_reached == MAX_REACHED))
        return glm_fail(err, GLM_EKERNEL,
                        "cannot use memory of cuda:%u on cuda:%u: the driver says that they are no "
                        "peers",
                        index, c->facts.index);
    if (result == CUDA_OK)
        result = c->driver->context_retain(&context, device);
    if (result == CUDA_OK) {
        c->reached[c->n_reached++] = device;
        result = c->driver->peer_enable(context, 0);
    }
    if (result == CUDA_PEER_IS_ENABLED)
        result = CUDA_OK;
    return check(c, result, "use memory of another GPU", NULL, err);
}

/* ---- Streams and events ---- */

enum glm_status glm_cuda_stream_new(struct glm_cuda *c, glm_cuda_stream *out, struct glm_error *err)
{
    return check(c, c->driver->stream_new(out, CUDA_STREAM_NON_BLOCKING), "make a stream", NULL,
                 err);
}

void glm_cuda_stream_free(struct glm_cuda *c, glm_cuda_stream s)
{
    if (s != NULL)
        c->driver->stream_free(s);
}

enum glm_status glm_cuda_stream_wait(struct glm_cuda *c, glm_cuda_stream s, struct glm_error *err)
{
    return check(c, c->driver->stream_wait(s), "run what a stream holds", NULL, err);
}

enum glm_status glm_cuda_event_new(struct glm_cuda *c, glm_cuda_event *out, struct glm_error *err)
{
    return check(c, c->driver->event_new(out, 0), "make an event", NULL, err);
}

void glm_cuda_event_free(struct glm_cuda *c, glm_cuda_event e)
{
    if (e != NULL)
        c->driver->event_free(e);
}

enum glm_status glm_cuda_event_record(struct glm_cuda *c, glm_cuda_event e, glm_cuda_stream s,
                                      struct glm_error *err)
{
    return check(c, c->driver->event_record(e, s), "record an event", NULL, err);
}

enum glm_status glm_cuda_event_seconds(struct glm_cuda *c, glm_cuda_event from, glm_cuda_event to,
                                       double *seconds, struct glm_error *err)
{
    float milliseconds = 0;
    int result = c->driver->event_wait(to);
    if (result == CUDA_OK)
        result = c->driver->event_milliseconds(&milliseconds, from, to);
    *seconds = (double)milliseconds * 1e-3;
    return check(c, result, "measure time", NULL, err);
}

/* ---- Kernels ---- */

/* Asking for the attribute has the driver load the code now, which it would else put off to the
 * first launch: that may be under capture. */
static enum glm_status prepare(struct glm_cuda *c, const char *kernel, struct glm_cuda_kernel *k,
                               struct glm_error *err)
{
    int fixed = 0;
    int result = c->driver->module_function(&k->function, k->module, GLM_CUDA_KERNEL_SYMBOL);
    if (result == CUDA_OK)
        result = c->driver->function_get(&fixed, CUDA_FUNCTION_STATIC_SHARED, k->function);
    if (result == CUDA_OK &&
        (uint64_t)fixed + k->dynamic_shared_bytes > c->facts.block_shared_bytes)
        return glm_fail(err, GLM_EKERNEL,
                        "cannot load kernel '%s': a block wants %d static and %u dynamic bytes of "
                        "shared memory, %s has %u",
                        kernel, fixed, k->dynamic_shared_bytes, c->facts.name,
                        c->facts.block_shared_bytes);
    if (result == CUDA_OK && k->dynamic_shared_bytes > 0)
        result = c->driver->function_set(k->function, CUDA_FUNCTION_DYNAMIC_SHARED,
                                         (int)k->dynamic_shared_bytes);
    return check(c, result, "find the entry of kernel", kernel, err);
}

static enum glm_status load_module(struct glm_cuda *c, const char *kernel, const char *cubin,
                                   uint32_t dynamic_shared_bytes, struct glm_cuda_kernel *out,
                                   struct glm_error *err)
{
    struct glm_cuda_kernel k = {.dynamic_shared_bytes = dynamic_shared_bytes};
    enum glm_status status =
        check(c, c->driver->module_load(&k.module, cubin), "load kernel", kernel, err);
    if (status != GLM_OK)
        return status;
    status = prepare(c, kernel, &k, err);
    if (status == GLM_OK)
        *out = k;
    else
        c->driver->module_unload(k.module);
    return status;
}

enum glm_status glm_cuda_kernel_load(struct glm_cuda *c, const char *kernel, const char *path,
                                     const char *digest, uint32_t dynamic_shared_bytes,
                                     struct glm_cuda_kernel *out, struct glm_error *err)
{
    struct buf cubin = {0};
    enum glm_status status = glm_kernel_read(kernel, path, MAX_CUBIN_BYTES, &cubin, err);
    if (status == GLM_OK)
        status = glm_kernel_verify(path, digest, err);
    if (status == GLM_OK)
        status = load_module(c, kernel, buf_text(&cubin), dynamic_shared_bytes, out, err);
    buf_release(&cubin);
    return status;
}

void glm_cuda_kernel_unload(struct glm_cuda *c, struct glm_cuda_kernel *k)
{
    if (k->module != NULL)
        c->driver->module_unload(k->module);
    *k = (struct glm_cuda_kernel){0};
}

enum glm_status glm_cuda_launch(struct glm_cuda *c, glm_cuda_stream s,
                                const struct glm_cuda_launch *l, struct glm_error *err)
{
    struct glm_cuda_args args = l->args; /* the driver copies it before it returns */
    void *parameters[] = {&args};
    if (l->shared_bytes > l->kernel->dynamic_shared_bytes)
        return glm_fail(err, GLM_EKERNEL,
                        "cannot launch '%s': it wants %u bytes of shared memory, the kernel was "
                        "loaded for %u",
                        l->name, l->shared_bytes, l->kernel->dynamic_shared_bytes);
    return check(c,
                 c->driver->launch(l->kernel->function, l->grid[0], l->grid[1], l->grid[2],
                                   l->block, 1, 1, l->shared_bytes, s, parameters, NULL),
                 "launch", l->name, err);
}

/* ---- Graphs ---- */

enum glm_status glm_cuda_capture_begin(struct glm_cuda *c, glm_cuda_stream s, struct glm_error *err)
{
    return check(c, c->driver->capture_begin(s, CUDA_CAPTURE_OF_THREAD), "begin a capture", NULL,
                 err);
}

enum glm_status glm_cuda_capture_end(struct glm_cuda *c, glm_cuda_stream s, glm_cuda_graph *out,
                                     struct glm_error *err)
{
    void *graph = NULL, *made = NULL;
    enum glm_status status =
        check(c, c->driver->capture_end(s, &graph), "end a capture", NULL, err);
    if (status == GLM_OK)
        status = check(c, c->driver->graph_make(&made, graph, 0), "make a graph", NULL, err);
    if (graph != NULL)
        c->driver->graph_free(graph);
    if (status == GLM_OK)
        status = check(c, c->driver->graph_upload(made, s), "place a graph", NULL, err);
    if (status == GLM_OK)
        *out = made;
    else if (made != NULL)
        c->driver->graph_exec_free(made);
    return status;
}

void glm_cuda_graph_free(struct glm_cuda *c, glm_cuda_graph g)
{
    if (g != NULL)
        c->driver->graph_exec_free(g);
}

enum glm_status glm_cuda_graph_launch(struct glm_cuda *c, glm_cuda_graph g, glm_cuda_stream s,
                                      struct glm_error *err)
{
    return check(c, c->driver->graph_launch(g, s), "launch a graph", NULL, err);
}
