/* SPDX-License-Identifier: Apache-2.0 */
/* A CUDA driver of one GPU without a GPU, as a library for $GLM_CUDA_DRIVER: its memory is the
 * host's, what is put on a stream runs at once, and a launch adds 1 to every byte of its first
 * argument's first eight, which is all that its tests look at. $FAKE_CUDA holds what they change:
 * "version=11080", "capability=80", "memory=4096" (MiB), "fail=cuMemAlloc_v2". */
#include "kernels-templates/cuda_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID = 1, NO_MEMORY = 2, SMS = 16, INTEGRATED = 18, MAJOR = 75, MINOR = 76 };
enum { BLOCK_SHARED = 97, MAX_NODES = 64 };
enum { MEMORY_MIB = 1024 };

struct graph {
    struct glm_cuda_args nodes[MAX_NODES];
    size_t n;
};

static struct graph *captured;

static int setting(const char *key, int otherwise)
{
    const char *all = getenv("FAKE_CUDA"), *at = all == NULL ? NULL : strstr(all, key);
    return at == NULL ? otherwise : atoi(at + strlen(key) + 1);
}

static size_t memory_bytes(void)
{
    return (size_t)setting("memory", MEMORY_MIB) << 20;
}

static int fails(const char *call)
{
    const char *all = getenv("FAKE_CUDA"), *at = all == NULL ? NULL : strstr(all, "fail=");
    return at != NULL && strcmp(at + 5, call) == 0 ? INVALID : OK;
}

/* A call with its prototype. */
#define CALL(name, ...)    \
    int name(__VA_ARGS__); \
    int name(__VA_ARGS__)

CALL(cuInit, unsigned flags)
{
    return flags == 0 ? fails("cuInit") : INVALID;
}
CALL(cuDriverGetVersion, int *version)
{
    *version = setting("version", 13000);
    return OK;
}
CALL(cuGetErrorName, int error, const char **name)
{
    *name = error == NO_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_INVALID_VALUE";
    return OK;
}
CALL(cuGetErrorString, int error, const char **text)
{
    *text = error == NO_MEMORY ? "out of memory" : "invalid argument";
    return OK;
}
CALL(cuDeviceGetCount, int *n)
{
    *n = 1;
    return OK;
}
CALL(cuDeviceGet, int *device, int index)
{
    *device = index;
    return index == 0 ? OK : INVALID;
}
CALL(cuDeviceGetName, char *name, int bytes, int device)
{
    snprintf(name, (size_t)bytes, "Fake %d", device);
    return OK;
}
CALL(cuDeviceTotalMem_v2, size_t *bytes, int device)
{
    *bytes = memory_bytes();
    return device == 0 ? OK : INVALID;
}
CALL(cuDeviceGetAttribute, int *value, int attribute, int device)
{
    const int capability = setting("capability", 90);
    const int rows[][2] = {{SMS, 7},
                           {INTEGRATED, 0},
                           {MAJOR, capability / 10},
                           {MINOR, capability % 10},
                           {BLOCK_SHARED, 101376}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i][0] == attribute) {
            *value = rows[i][1];
            return device == 0 ? OK : INVALID;
        }
    return INVALID;
}
CALL(cuDevicePrimaryCtxRetain, void **context, int device)
{
    static int one;
    *context = &one;
    return device == 0 ? fails("cuDevicePrimaryCtxRetain") : INVALID;
}
CALL(cuDevicePrimaryCtxRelease_v2, int device)
{
    return device == 0 ? OK : INVALID;
}
CALL(cuCtxSetCurrent, void *context)
{
    return context != NULL ? OK : INVALID;
}
CALL(cuMemGetInfo_v2, size_t *available, size_t *total)
{
    *available = memory_bytes() / 2;
    *total = memory_bytes();
    return OK;
}
CALL(cuMemAlloc_v2, uint64_t *address, size_t bytes)
{
    void *p = bytes > memory_bytes() / 2 ? NULL : malloc(bytes);
    *address = (uint64_t)(uintptr_t)p;
    return p == NULL ? NO_MEMORY : fails("cuMemAlloc_v2");
}
CALL(cuMemFree_v2, uint64_t address)
{
    free((void *)(uintptr_t)address);
    return OK;
}
CALL(cuMemHostAlloc, void **out, size_t bytes, unsigned flags)
{
    (void)flags;
    *out = malloc(bytes);
    return *out == NULL ? NO_MEMORY : fails("cuMemHostAlloc");
}
CALL(cuMemFreeHost, void *memory)
{
    free(memory);
    return OK;
}
CALL(cuMemcpyHtoDAsync_v2, uint64_t to, const void *from, size_t bytes, void *stream)
{
    memcpy((void *)(uintptr_t)to, from, bytes);
    return stream != NULL ? OK : INVALID;
}
CALL(cuMemcpyDtoHAsync_v2, void *to, uint64_t from, size_t bytes, void *stream)
{
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return stream != NULL ? OK : INVALID;
}
CALL(cuMemcpyDtoDAsync_v2, uint64_t to, uint64_t from, size_t bytes, void *stream)
{
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    return stream != NULL ? OK : INVALID;
}
CALL(cuMemsetD8Async, uint64_t to, unsigned char byte, size_t bytes, void *stream)
{
    memset((void *)(uintptr_t)to, byte, bytes);
    return stream != NULL ? OK : INVALID;
}

/* Streams, events and modules are handles to free, no more. */
#define HANDLE(make, drop)               \
    CALL(make, void **out, unsigned how) \
    {                                    \
        (void)how;                       \
        *out = malloc(1);                \
        return *out != NULL ? OK : 1;    \
    }                                    \
    CALL(drop, void *p)                  \
    {                                    \
        free(p);                         \
        return OK;                       \
    }
HANDLE(cuStreamCreate, cuStreamDestroy_v2)
HANDLE(cuEventCreate, cuEventDestroy_v2)

CALL(cuStreamSynchronize, void *stream)
{
    return stream != NULL && captured == NULL ? fails("cuStreamSynchronize") : INVALID;
}
CALL(cuEventRecord, void *event, void *stream)
{
    return event != NULL && stream != NULL ? OK : INVALID;
}
CALL(cuEventSynchronize, void *event)
{
    return event != NULL ? OK : INVALID;
}
CALL(cuEventElapsedTime, float *milliseconds, void *from, void *to)
{
    *milliseconds = 1.5f;
    return from != NULL && to != NULL ? OK : INVALID;
}
CALL(cuModuleLoadData, void **module, const void *cubin)
{
    *module = malloc(1);
    return cubin != NULL && *module != NULL ? fails("cuModuleLoadData") : INVALID;
}
CALL(cuModuleUnload, void *module)
{
    free(module);
    return OK;
}
CALL(cuModuleGetFunction, void **function, void *module, const char *name)
{
    *function = module;
    return strcmp(name, GLM_CUDA_KERNEL_SYMBOL) == 0 ? fails("cuModuleGetFunction") : INVALID;
}
CALL(cuFuncGetAttribute, int *value, int attribute, void *function)
{
    *value = 1024;
    return function != NULL && attribute == 1 ? OK : INVALID;
}
CALL(cuFuncSetAttribute, void *function, int attribute, int value)
{
    return function != NULL && attribute == 8 && value > 0 ? OK : INVALID;
}

static void run(const struct glm_cuda_args *args)
{
    for (int i = 0; args->args[0] != NULL && i < 8; i++)
        ((unsigned char *)args->args[0])[i]++;
}

CALL(cuLaunchKernel, void *function, unsigned x, unsigned y, unsigned z, unsigned block,
     unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters,
     void **extra)
{
    if (function == NULL || x * y * z * block * block_y * block_z == 0 || shared > 101376 ||
        stream == NULL || extra != NULL)
        return INVALID;
    const struct glm_cuda_args *args = parameters[0];
    if (captured == NULL)
        run(args);
    else if (captured->n < MAX_NODES)
        captured->nodes[captured->n++] = *args;
    return fails("cuLaunchKernel");
}
CALL(cuStreamBeginCapture_v2, void *stream, int mode)
{
    captured = calloc(1, sizeof *captured);
    return stream != NULL && mode == 1 && captured != NULL ? OK : INVALID;
}
CALL(cuStreamEndCapture, void *stream, void **graph)
{
    *graph = captured;
    captured = NULL;
    return stream != NULL && *graph != NULL ? OK : INVALID;
}
CALL(cuGraphInstantiateWithFlags, void **made, void *graph, unsigned long long flags)
{
    struct graph *copy = malloc(sizeof *copy);
    if (copy == NULL || graph == NULL || flags != 0)
        return INVALID;
    memcpy(copy, graph, sizeof *copy);
    *made = copy;
    return fails("cuGraphInstantiateWithFlags");
}
CALL(cuGraphDestroy, void *graph)
{
    free(graph);
    return OK;
}
CALL(cuGraphExecDestroy, void *graph)
{
    free(graph);
    return OK;
}
CALL(cuGraphLaunch, void *graph, void *stream)
{
    const struct graph *g = graph;
    for (size_t i = 0; i < g->n; i++)
        run(&g->nodes[i]);
    return stream != NULL ? OK : INVALID;
}
