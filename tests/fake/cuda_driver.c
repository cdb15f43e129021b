/* SPDX-License-Identifier: Apache-2.0 */
/* A CUDA driver without a GPU, as a library for $GLM_CUDA_DRIVER. Its memory is the host's, NaN
 * until written and guarded behind its end, and no other is taken for it; what is put on a stream
 * runs at once, on the caller's thread. A module that is an object of tests/fake/nvrtc.c runs on
 * the emulator of tests/simt, whose state is each loaded copy's own: launches of one module wait
 * for each other, others do not. A launch of any other module adds 1 to every byte of its first
 * argument's first eight. What goes wrong in a launch stays, as on a GPU, until the device's
 * context is released.
 *
 * $FAKE_CUDA holds what tests change: "gpus=2", "version=11080", "capability=80",
 * "memory=4096" (MiB), "fail=cuMemAlloc_v2", which comes last. */
#include "tests/simt/launch.h"

#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Results. */
enum {
    OK = 0,
    INVALID = 1,
    NO_MEMORY = 2,
    BAD_IMAGE = 200,
    BAD_CONTEXT = 201,
    BAD_HANDLE = 400,
    NOT_FOUND = 500,
    LAUNCH_FAILED = 719,
    NOT_SUPPORTED = 801,
    IN_CAPTURE = 900
};
enum { SMS = 16, INTEGRATED = 18, MAJOR = 75, MINOR = 76, BLOCK_SHARED = 97 }; /* of a device */
enum { STATIC_SHARED = 1, DYNAMIC_SHARED = 8 };                                /* of a function */
enum { MAX_DEVICES = 8, MEMORY_MIB = 1024, MAX_SHARED = 101376, ALIGNMENT = 256 };
enum { GUARD_BYTES = 256, GUARD = 0x3c };
enum { WAIT_TURNS = 1000000 }; /* of 50 us and more: about two minutes */

/* In front of what cuMemAlloc gives. */
struct block {
    struct device *device;
    struct block *next, **self;
    size_t bytes;
    char padding[ALIGNMENT - 4 * sizeof(void *)];
};

/* A device with its primary context. */
struct device {
    pthread_mutex_t lock;
    int n_retained;
    struct block *blocks;
    char fault[512]; /* empty: none */
};

struct module {
    pthread_mutex_t lock;
    void *handle;
    simt_run_fn run; /* NULL: not an object of the emulator */
    size_t shared_bytes;
};

/* An operation on a word that host and GPU share. */
struct mem_op {
    int operation;
    uint64_t address, value;
    unsigned flags;
    uint64_t reserved[2];
};
enum { WAIT_32 = 1, WRITE_32 = 2, WAIT_EQUAL = 1, MAX_OPS = 4 };

/* What a stream runs or a graph holds: a call, a launch, operations, a copy, or where there is no
 * source a fill. */
struct node {
    void (*call)(void *argument); /* another library's, of fakeStreamCall */
    void *argument;
    struct module *module;
    struct mem_op ops[MAX_OPS];
    unsigned n_ops;
    struct simt_launch launch;
    void *to;
    const void *from;
    size_t bytes;
    unsigned char byte;
};

struct graph {
    struct node *nodes;
    size_t n, n_max;
};

struct stream {
    struct device *device;
    struct graph *captured; /* NULL: what comes runs */
};

static struct device devices[MAX_DEVICES];
static _Thread_local struct device *current;
static _Thread_local int n_captures; /* that this thread has begun */

__attribute__((constructor)) static void make_devices(void)
{
    for (int i = 0; i < MAX_DEVICES; i++)
        pthread_mutex_init(&devices[i].lock, NULL);
}

static int setting(const char *key, int otherwise)
{
    const char *all = getenv("FAKE_CUDA"), *at = all == NULL ? NULL : strstr(all, key);
    return at == NULL ? otherwise : atoi(at + strlen(key) + 1);
}

static int fails(const char *call)
{
    const char *all = getenv("FAKE_CUDA"), *at = all == NULL ? NULL : strstr(all, "fail=");
    return at != NULL && strcmp(at + 5, call) == 0 ? INVALID : OK;
}

static size_t memory_bytes(void)
{
    return (size_t)setting("memory", MEMORY_MIB) << 20;
}

static int n_devices(void)
{
    const int n = setting("gpus", 1);
    return n < MAX_DEVICES ? n : MAX_DEVICES;
}

/* A call with its prototype. */
#define CALL(name, ...)    \
    int name(__VA_ARGS__); \
    int name(__VA_ARGS__)

static void *host(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

/* ---- The process and its devices ---- */

CALL(cuInit, unsigned flags)
{
    return flags == 0 ? fails("cuInit") : INVALID;
}
CALL(cuDriverGetVersion, int *version)
{
    *version = setting("version", 13000);
    return OK;
}

static const struct {
    int error;
    const char *name, *text;
} errors[] = {
    {INVALID, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {NO_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {BAD_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {BAD_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {BAD_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {IN_CAPTURE, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
};
enum { N_ERRORS = sizeof errors / sizeof errors[0] };

CALL(cuGetErrorName, int error, const char **name)
{
    for (size_t i = 0; i < N_ERRORS; i++)
        if (errors[i].error == error) {
            *name = errors[i].name;
            return OK;
        }
    return INVALID;
}
/* Of a failed launch what the emulator says. */
CALL(cuGetErrorString, int error, const char **text)
{
    for (size_t i = 0; i < N_ERRORS; i++)
        if (errors[i].error == error) {
            *text = error == LAUNCH_FAILED && current != NULL ? current->fault : errors[i].text;
            return OK;
        }
    return INVALID;
}

static int known(int device)
{
    return device >= 0 && device < n_devices() ? OK : INVALID;
}
CALL(cuDeviceGetCount, int *n)
{
    *n = n_devices();
    return OK;
}
CALL(cuDeviceGet, int *device, int index)
{
    *device = index;
    return known(index);
}
CALL(cuDeviceGetName, char *name, int bytes, int device)
{
    snprintf(name, (size_t)bytes, "Fake %d", device);
    return known(device);
}
CALL(cuDeviceTotalMem_v2, size_t *bytes, int device)
{
    *bytes = memory_bytes();
    return known(device);
}
CALL(cuDeviceGetAttribute, int *value, int attribute, int device)
{
    const int capability = setting("capability", 90);
    const int rows[][2] = {{SMS, 7},
                           {INTEGRATED, 0},
                           {MAJOR, capability / 10},
                           {MINOR, capability % 10},
                           {BLOCK_SHARED, MAX_SHARED}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i][0] == attribute) {
            *value = rows[i][1];
            return known(device);
        }
    return INVALID;
}

CALL(cuDevicePrimaryCtxRetain, void **context, int device)
{
    if (known(device) != OK || fails("cuDevicePrimaryCtxRetain") != OK)
        return INVALID;
    struct device *d = &devices[device];
    pthread_mutex_lock(&d->lock);
    d->n_retained++;
    pthread_mutex_unlock(&d->lock);
    *context = d;
    return OK;
}
CALL(cuDevicePrimaryCtxRelease_v2, int device)
{
    if (known(device) != OK)
        return INVALID;
    struct device *d = &devices[device];
    pthread_mutex_lock(&d->lock);
    const bool retained = d->n_retained > 0;
    if (retained && --d->n_retained == 0)
        d->fault[0] = '\0';
    pthread_mutex_unlock(&d->lock);
    return retained ? OK : BAD_CONTEXT;
}
CALL(cuCtxSetCurrent, void *context)
{
    current = context;
    return context != NULL ? OK : INVALID;
}

/* The first fault stays. */
static void set_fault(struct device *d, const char *text)
{
    pthread_mutex_lock(&d->lock);
    if (d->fault[0] == '\0')
        snprintf(d->fault, sizeof d->fault, "%s", text);
    pthread_mutex_unlock(&d->lock);
}

/* Every call that wants a context asks this first. */
static int usable(void)
{
    if (current == NULL)
        return BAD_CONTEXT;
    pthread_mutex_lock(&current->lock);
    const int result = current->n_retained == 0    ? BAD_CONTEXT
                       : current->fault[0] != '\0' ? LAUNCH_FAILED
                                                   : OK;
    pthread_mutex_unlock(&current->lock);
    return result;
}
/* And this where it must not be called by a thread that captures. */
static int outside_capture(void)
{
    return n_captures > 0 ? IN_CAPTURE : usable();
}

/* ---- Memory ---- */

CALL(cuMemGetInfo_v2, size_t *available, size_t *total)
{
    *available = memory_bytes() / 2;
    *total = memory_bytes();
    return usable();
}
/* The device's and what the host shares with it: both have one address on both sides. */
static int allocate(const char *call, size_t bytes, void **out)
{
    int result = outside_capture();
    *out = NULL;
    if (result == OK)
        result = bytes == 0 ? INVALID : fails(call);
    if (result != OK)
        return result;
    const size_t padded = (bytes + GUARD_BYTES + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct block *b =
        bytes > memory_bytes() / 2 ? NULL : aligned_alloc(ALIGNMENT, sizeof *b + padded);
    if (b == NULL)
        return NO_MEMORY;
    memset(b + 1, 0xff, bytes);
    memset((char *)(b + 1) + bytes, GUARD, GUARD_BYTES);
    b->device = current;
    b->bytes = bytes;
    pthread_mutex_lock(&current->lock);
    b->next = current->blocks;
    b->self = &current->blocks;
    if (b->next != NULL)
        b->next->self = &b->next;
    current->blocks = b;
    pthread_mutex_unlock(&current->lock);
    *out = b + 1;
    return OK;
}
/* Also after a fault. */
static int release(void *p)
{
    if (current == NULL || n_captures > 0)
        return current == NULL ? BAD_CONTEXT : IN_CAPTURE;
    if (p != NULL) {
        struct block *b = (struct block *)p - 1;
        pthread_mutex_t *lock = &b->device->lock;
        pthread_mutex_lock(lock);
        *b->self = b->next;
        if (b->next != NULL)
            b->next->self = b->self;
        pthread_mutex_unlock(lock);
        free(b);
    }
    return usable();
}
CALL(cuMemAlloc_v2, uint64_t *address, size_t bytes)
{
    void *p;
    const int result = allocate("cuMemAlloc_v2", bytes, &p);
    *address = (uint64_t)(uintptr_t)p;
    return result;
}
CALL(cuMemFree_v2, uint64_t address)
{
    return release(host(address));
}
CALL(cuMemHostAlloc, void **out, size_t bytes, unsigned flags)
{
    (void)flags;
    return allocate("cuMemHostAlloc", bytes, out);
}
CALL(cuMemFreeHost, void *p)
{
    return release(p);
}

/* Do the bytes lie in one allocation? No other memory of the host is a GPU's. */
static bool on_device(struct device *d, const void *p, size_t bytes)
{
    const char *first = p;
    bool found = false;
    pthread_mutex_lock(&d->lock);
    for (struct block *b = d->blocks; b != NULL && !found; b = b->next) {
        const char *start = (const char *)(b + 1);
        found = first >= start && first < start + b->bytes &&
                bytes <= (size_t)(start + b->bytes - first);
    }
    pthread_mutex_unlock(&d->lock);
    return found;
}

/* What was written behind the end of an allocation is seen here. */
static void check_guards(struct device *d)
{
    char text[128] = "";
    pthread_mutex_lock(&d->lock);
    for (const struct block *b = d->blocks; b != NULL; b = b->next) {
        const char *guard = (const char *)(b + 1) + b->bytes;
        if (guard[0] != GUARD || memcmp(guard, guard + 1, GUARD_BYTES - 1) != 0)
            snprintf(text, sizeof text, "bytes behind an allocation of %zu were written", b->bytes);
    }
    pthread_mutex_unlock(&d->lock);
    if (text[0] != '\0')
        set_fault(d, text);
}

/* ---- Memory of other GPUs: every address is good in the whole process, none beyond it ---- */

CALL(cuDeviceCanAccessPeer, int *can, int device, int peer)
{
    *can = device != peer && fails("cuDeviceCanAccessPeer") == OK;
    return known(device) == OK ? known(peer) : INVALID;
}
CALL(cuCtxEnablePeerAccess, void *context, unsigned flags)
{
    if (context == NULL || context == current || flags != 0)
        return INVALID;
    const int result = outside_capture();
    return result == OK ? fails("cuCtxEnablePeerAccess") : result;
}

struct ipc_handle {
    char bytes[64];
};
CALL(cuIpcGetMemHandle, struct ipc_handle *out, uint64_t address)
{
    memset(out, 0, sizeof *out);
    memcpy(out->bytes, &address, sizeof address);
    return on_device(current, host(address), 1) ? usable() : INVALID;
}
CALL(cuIpcOpenMemHandle_v2, uint64_t *address, struct ipc_handle handle, unsigned flags)
{
    (void)handle;
    *address = 0;
    return flags == 1 ? NOT_SUPPORTED : INVALID;
}
CALL(cuIpcCloseMemHandle, uint64_t address)
{
    (void)address;
    return INVALID;
}

/* ---- Modules ---- */

/* The loader wants a file; one of its own each time, since it takes a file that it knows for the
 * object that it has. */
static void *open_object(const void *image)
{
    const Elf64_Ehdr *elf = image;
    const size_t bytes = elf->e_shoff + (size_t)elf->e_shnum * elf->e_shentsize;
    const char *temporary = getenv("TMPDIR");
    char path[512];
    snprintf(path, sizeof path, "%s/glm-cuda-XXXXXX", temporary == NULL ? "/tmp" : temporary);
    const int file = mkstemp(path);
    void *handle = NULL;
    if (file < 0)
        return NULL;
    if (write(file, image, bytes) == (ssize_t)bytes)
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    close(file);
    unlink(path);
    return handle;
}

static void find(void *handle, const char *name, void *pointer)
{
    void *symbol = dlsym(handle, name);
    memcpy(pointer, &symbol, sizeof symbol);
}

CALL(cuModuleLoadData, void **out, const void *image)
{
    const int result = image == NULL ? INVALID : outside_capture();
    struct module *m = calloc(1, sizeof *m);
    if (result != OK || m == NULL) {
        free(m);
        return result != OK ? result : NO_MEMORY;
    }
    pthread_mutex_init(&m->lock, NULL);
    *out = m;
    if (memcmp(image, ELFMAG, SELFMAG) != 0) {
        m->shared_bytes = 1024;
        return fails("cuModuleLoadData");
    }
    simt_shared_fn ask = NULL;
    m->handle = open_object(image);
    if (m->handle != NULL) {
        find(m->handle, SIMT_RUN_SYMBOL, &m->run);
        find(m->handle, SIMT_SHARED_SYMBOL, &ask);
    }
    if (m->run == NULL || ask == NULL) {
        fprintf(stderr, "cuModuleLoadData: %s\n", m->handle == NULL ? dlerror() : "no emulator");
        free(m);
        return BAD_IMAGE;
    }
    m->shared_bytes = ask();
    return fails("cuModuleLoadData");
}
CALL(cuModuleUnload, void *module)
{
    struct module *m = module;
    if (m->handle != NULL)
        dlclose(m->handle);
    free(m);
    return usable();
}
CALL(cuModuleGetFunction, void **function, void *module, const char *name)
{
    *function = module;
    return strcmp(name, GLM_CUDA_KERNEL_SYMBOL) == 0 ? fails("cuModuleGetFunction") : NOT_FOUND;
}
CALL(cuFuncGetAttribute, int *value, int attribute, void *function)
{
    if (function == NULL || attribute != STATIC_SHARED)
        return INVALID;
    *value = (int)((const struct module *)function)->shared_bytes;
    return usable();
}
CALL(cuFuncSetAttribute, void *function, int attribute, int value)
{
    return function != NULL && attribute == DYNAMIC_SHARED && value > 0 ? usable() : INVALID;
}

/* ---- What runs ---- */

/* The first address of a launch that is not the device's, or NULL. */
static const char *stray(struct device *d, const struct glm_cuda_args *a, char text[64])
{
    const struct glm_round none = {0}, *r = a->round;
    if (r != NULL && !on_device(d, r, sizeof *r))
        return "the round";
    r = r == NULL ? &none : r;
    const struct {
        const void *p;
        const char *what;
    } rows[] = {{a->scratch, "the scratch"},         {a->tickets, "the tickets"},
                {r->rows, "the round's rows"},       {r->streams, "the round's streams"},
                {r->extents, "the round's extents"}, {r->out_rows, "the round's wanted rows"},
                {r->draws, "the round's draws"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].p != NULL && !on_device(d, rows[i].p, 1))
            return rows[i].what;
    for (int i = 0; i < GLM_CUDA_MAX_ARGS; i++)
        if (a->args[i] != NULL && !on_device(d, a->args[i], 1)) {
            snprintf(text, 64, "argument %d", i);
            return text;
        }
    return NULL;
}

static void launch(struct device *d, const struct node *n)
{
    unsigned char *bytes = n->launch.args.args[0];
    char text[64], why[128];
    const char *what = stray(d, &n->launch.args, text);
    if (what != NULL) {
        snprintf(why, sizeof why, "%s: not an address of this GPU", what);
        set_fault(d, why);
        return;
    }
    if (n->module->run == NULL) {
        for (int i = 0; bytes != NULL && i < 8; i++)
            bytes[i]++;
        return;
    }
    pthread_mutex_lock(&n->module->lock);
    const char *fault = n->module->run(&n->launch);
    if (fault != NULL)
        set_fault(d, fault);
    pthread_mutex_unlock(&n->module->lock);
}

/* A GPU would wait for ever; a test is told. */
static void await(struct device *d, const uint32_t *word, uint32_t value)
{
    for (uint32_t i = 0; __atomic_load_n(word, __ATOMIC_SEQ_CST) != value; i++) {
        if (i > WAIT_TURNS) {
            set_fault(d, "a stream waited too long for a word");
            return;
        }
        usleep(i < 100 ? 0 : 50);
    }
}

static void operate(struct device *d, const struct node *n)
{
    for (unsigned i = 0; i < n->n_ops; i++) {
        uint32_t *word = host(n->ops[i].address);
        if (n->ops[i].operation == WRITE_32)
            __atomic_store_n(word, (uint32_t)n->ops[i].value, __ATOMIC_SEQ_CST);
        else
            await(d, word, (uint32_t)n->ops[i].value);
    }
}

static void run(struct device *d, const struct node *n)
{
    if (n->call != NULL)
        n->call(n->argument);
    else if (n->module != NULL)
        launch(d, n);
    else if (n->n_ops > 0)
        operate(d, n);
    else if (n->from != NULL)
        memmove(n->to, n->from, n->bytes);
    else
        memset(n->to, n->byte, n->bytes);
}

/* Can this thread put something on it? */
static int ready(const struct stream *s)
{
    return s == NULL || s->device != current ? BAD_HANDLE : usable();
}

/* Runs it, or keeps it where the stream captures. */
static int put(void *stream, const struct node *n)
{
    const struct stream *s = stream;
    const int result = ready(s);
    if (result != OK)
        return result;
    struct graph *g = s->captured;
    if (g == NULL) {
        run(current, n);
        return OK;
    }
    if (g->n == g->n_max) {
        const size_t wanted = g->n_max == 0 ? 64 : 2 * g->n_max;
        struct node *more = realloc(g->nodes, wanted * sizeof *more);
        if (more == NULL)
            return NO_MEMORY;
        g->nodes = more;
        g->n_max = wanted;
    }
    g->nodes[g->n++] = *n;
    return OK;
}

/* Which side of a copy is the device's. */
enum { TO = 1, FROM = 2 };
static int copy(void *stream, void *to, const void *from, size_t bytes, int sides)
{
    const int result = ready(stream);
    if (result != OK || bytes == 0)
        return result;
    if (to == NULL || from == NULL || ((sides & TO) != 0 && !on_device(current, to, bytes)) ||
        ((sides & FROM) != 0 && !on_device(current, from, bytes)))
        return INVALID;
    return put(stream, &(struct node){.to = to, .from = from, .bytes = bytes});
}
CALL(cuMemcpyHtoDAsync_v2, uint64_t to, const void *from, size_t bytes, void *stream)
{
    return copy(stream, host(to), from, bytes, TO);
}
CALL(cuMemcpyDtoHAsync_v2, void *to, uint64_t from, size_t bytes, void *stream)
{
    return copy(stream, to, host(from), bytes, FROM);
}
CALL(cuMemcpyDtoDAsync_v2, uint64_t to, uint64_t from, size_t bytes, void *stream)
{
    return copy(stream, host(to), host(from), bytes, TO | FROM);
}
CALL(cuMemsetD8Async, uint64_t to, unsigned char byte, size_t bytes, void *stream)
{
    const int result = ready(stream);
    if (result != OK || bytes == 0)
        return result;
    return on_device(current, host(to), bytes)
               ? put(stream, &(struct node){.to = host(to), .bytes = bytes, .byte = byte})
               : INVALID;
}

CALL(cuStreamBatchMemOp_v2, void *stream, unsigned count, struct mem_op *ops, unsigned flags)
{
    struct node n = {.n_ops = count};
    const int result = ready(stream);
    if (result != OK)
        return result;
    if (count == 0 || count > MAX_OPS || flags != 0)
        return INVALID;
    for (unsigned i = 0; i < count; i++) {
        const struct mem_op *op = &ops[i];
        const bool right = (op->operation == WRITE_32 && op->flags == 0) ||
                           (op->operation == WAIT_32 && op->flags == WAIT_EQUAL);
        if (!right || op->address % 4 != 0 || !on_device(current, host(op->address), 4))
            return INVALID;
        n.ops[i] = *op;
    }
    return put(stream, &n);
}

CALL(cuLaunchKernel, void *function, unsigned x, unsigned y, unsigned z, unsigned block,
     unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters,
     void **extra)
{
    struct node n = {.module = function,
                     .launch = {.grid = {x, y, z}, .block = block, .shared_bytes = shared}};
    if (function == NULL || x == 0 || y == 0 || z == 0 || y > 65535 || z > 65535 || block == 0 ||
        block > 1024 || block_y != 1 || block_z != 1 || extra != NULL ||
        n.module->shared_bytes + shared > MAX_SHARED)
        return INVALID;
    memcpy(&n.launch.args, parameters[0], sizeof n.launch.args);
    const int result = put(stream, &n);
    return result == OK ? fails("cuLaunchKernel") : result;
}

/* For libraries that put work on streams: tests/fake/nccl.c. */
CALL(fakeStreamCall, void *stream, void (*call)(void *argument), void *argument)
{
    return put(stream, &(struct node){.call = call, .argument = argument});
}
CALL(fakeOnDevice, uint64_t address, size_t bytes)
{
    return current != NULL && on_device(current, host(address), bytes) ? OK : INVALID;
}

/* ---- Streams and events ---- */

CALL(cuStreamCreate, void **out, unsigned how)
{
    (void)how;
    const int result = usable();
    struct stream *s = calloc(1, sizeof *s);
    *out = s;
    if (s == NULL)
        return NO_MEMORY;
    s->device = current;
    return result;
}
CALL(cuStreamDestroy_v2, void *stream)
{
    free(stream);
    return usable();
}
CALL(cuStreamSynchronize, void *stream)
{
    const struct stream *s = stream;
    if (s == NULL)
        return INVALID;
    if (s->captured != NULL)
        return IN_CAPTURE;
    check_guards(s->device);
    const int result = usable();
    return result == OK ? fails("cuStreamSynchronize") : result;
}

/* All that was put before an event has run. */
CALL(cuEventCreate, void **out, unsigned how)
{
    (void)how;
    *out = malloc(1);
    return *out != NULL ? usable() : NO_MEMORY;
}
CALL(cuEventDestroy_v2, void *event)
{
    free(event);
    return usable();
}
CALL(cuEventRecord, void *event, void *stream)
{
    return event != NULL ? ready(stream) : INVALID;
}
CALL(cuEventQuery, void *event)
{
    return event != NULL ? usable() : INVALID;
}
CALL(cuEventSynchronize, void *event)
{
    return event != NULL ? usable() : INVALID;
}
CALL(cuEventElapsedTime, float *milliseconds, void *from, void *to)
{
    *milliseconds = 1.5f;
    return from != NULL && to != NULL ? usable() : INVALID;
}

/* ---- Graphs; a made one is a copy ---- */

static void free_graph(struct graph *g)
{
    if (g != NULL)
        free(g->nodes);
    free(g);
}

CALL(cuStreamBeginCapture_v2, void *stream, int mode)
{
    struct stream *s = stream;
    const int result = s == NULL || mode != 1 || s->captured != NULL ? INVALID : usable();
    if (result != OK)
        return result;
    s->captured = calloc(1, sizeof *s->captured);
    if (s->captured == NULL)
        return NO_MEMORY;
    n_captures++;
    return OK;
}
CALL(cuStreamEndCapture, void *stream, void **graph)
{
    struct stream *s = stream;
    *graph = NULL;
    if (s == NULL || s->captured == NULL)
        return INVALID;
    *graph = s->captured;
    s->captured = NULL;
    n_captures--;
    return usable();
}
CALL(cuGraphInstantiateWithFlags, void **made, void *graph, unsigned long long flags)
{
    const struct graph *from = graph;
    const int result = from == NULL || flags != 0 ? INVALID : outside_capture();
    struct graph *to = calloc(1, sizeof *to);
    *made = NULL;
    if (result != OK || to == NULL) {
        free(to);
        return result != OK ? result : NO_MEMORY;
    }
    to->nodes = calloc(from->n + 1, sizeof *to->nodes);
    if (to->nodes == NULL) {
        free(to);
        return NO_MEMORY;
    }
    to->n = from->n;
    for (size_t i = 0; i < from->n; i++)
        to->nodes[i] = from->nodes[i];
    *made = to;
    return fails("cuGraphInstantiateWithFlags");
}
CALL(cuGraphDestroy, void *graph)
{
    free_graph(graph);
    return OK;
}
CALL(cuGraphUpload, void *graph, void *stream)
{
    return graph != NULL && stream != NULL ? fails("cuGraphUpload") : INVALID;
}
CALL(cuGraphExecDestroy, void *graph)
{
    free_graph(graph);
    return OK;
}
/* For tests, of the process: graphs launched, nodes in them. */
static _Atomic unsigned long n_launched, n_nodes;
CALL(fakeGraphCounts, unsigned long *launches, unsigned long *nodes)
{
    *launches = n_launched;
    *nodes = n_nodes;
    return OK;
}

/* A fault on the way shows at the next call. */
CALL(cuGraphLaunch, void *graph, void *stream)
{
    const struct graph *g = graph;
    int result = g == NULL ? INVALID : n_captures > 0 ? IN_CAPTURE : ready(stream);
    result = result == OK ? fails("cuGraphLaunch") : result;
    n_launched += result == OK;
    n_nodes += result == OK ? g->n : 0;
    for (size_t i = 0; result == OK && i < g->n && put(stream, &g->nodes[i]) == OK; i++)
        ;
    return result;
}
