/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the CUDA driver and its calls (see the header). What is done with them is cuda.c's. */
#include "runtime/cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct glm_cuda_driver driver;
static int driver_version;
static bool opened;

struct row {
    const char *name;
    void *pointer;
};

/* A function pointer out of an object pointer, which ISO C does not convert to. */
static bool find(void *handle, const struct row *r)
{
    void *symbol = dlsym(handle, r->name);
    memcpy(r->pointer, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* The first name that the library lacks, or NULL. */
static const char *find_all(void *handle, struct glm_cuda_driver *d)
{
    const struct row rows[] = {
        {"cuInit", &d->init},
        {"cuDriverGetVersion", &d->version},
        {"cuGetErrorName", &d->error_name},
        {"cuGetErrorString", &d->error_text},
        {"cuDeviceGetCount", &d->device_count},
        {"cuDeviceGet", &d->device_get},
        {"cuDeviceGetName", &d->device_name},
        {"cuDeviceTotalMem_v2", &d->device_memory},
        {"cuDeviceGetAttribute", &d->device_attribute},
        {"cuDevicePrimaryCtxRetain", &d->context_retain},
        {"cuDevicePrimaryCtxRelease_v2", &d->context_release},
        {"cuCtxSetCurrent", &d->context_use},
        {"cuMemGetInfo_v2", &d->memory_info},
        {"cuMemAlloc_v2", &d->alloc},
        {"cuMemFree_v2", &d->free},
        {"cuMemHostAlloc", &d->host_alloc},
        {"cuMemFreeHost", &d->host_free},
        {"cuMemcpyHtoDAsync_v2", &d->copy_in},
        {"cuMemcpyDtoHAsync_v2", &d->copy_out},
        {"cuMemcpyDtoDAsync_v2", &d->copy},
        {"cuMemsetD8Async", &d->fill},
        {"cuStreamBatchMemOp_v2", &d->mem_ops},
        {"cuStreamCreate", &d->stream_new},
        {"cuStreamDestroy_v2", &d->stream_free},
        {"cuStreamSynchronize", &d->stream_wait},
        {"cuEventCreate", &d->event_new},
        {"cuEventDestroy_v2", &d->event_free},
        {"cuEventRecord", &d->event_record},
        {"cuEventSynchronize", &d->event_wait},
        {"cuEventElapsedTime", &d->event_milliseconds},
        {"cuModuleLoadData", &d->module_load},
        {"cuModuleUnload", &d->module_unload},
        {"cuModuleGetFunction", &d->module_function},
        {"cuFuncGetAttribute", &d->function_get},
        {"cuFuncSetAttribute", &d->function_set},
        {"cuLaunchKernel", &d->launch},
        {"cuStreamBeginCapture_v2", &d->capture_begin},
        {"cuStreamEndCapture", &d->capture_end},
        {"cuGraphInstantiateWithFlags", &d->graph_make},
        {"cuGraphDestroy", &d->graph_free},
        {"cuGraphExecDestroy", &d->graph_exec_free},
        {"cuGraphUpload", &d->graph_upload},
        {"cuGraphLaunch", &d->graph_launch},
    };
    const struct row optional[] = {
        {"cuDeviceCanAccessPeer", &d->peer_can},   {"cuCtxEnablePeerAccess", &d->peer_enable},
        {"cuIpcGetMemHandle", &d->share},          {"cuIpcOpenMemHandle_v2", &d->shared_open},
        {"cuIpcCloseMemHandle", &d->shared_close},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (!find(handle, &rows[i]))
            return rows[i].name;
    for (size_t i = 0; i < sizeof optional / sizeof optional[0]; i++)
        find(handle, &optional[i]);
    return NULL;
}

static void how_to_get_it(struct glm_error *err)
{
    glm_error_hint(err, "install NVIDIA's driver (Ubuntu: nvidia-driver-580-open, Debian: "
                        "nvidia-driver), in a container run with --gpus all, or name the library "
                        "in GLM_CUDA_DRIVER");
}

static enum glm_status start(const char *name, struct glm_error *err)
{
    const char *error = NULL, *text = NULL;
    int version = 0;
    if (driver.version(&version) != CUDA_OK || version < GLM_CUDA_MIN_DRIVER)
        return glm_fail(err, GLM_EKERNEL,
                        "cannot use the CUDA driver '%s': it is for CUDA %d.%d, needed is %d.%d or "
                        "later",
                        name, version / 1000, version % 1000 / 10, GLM_CUDA_MIN_DRIVER / 1000,
                        GLM_CUDA_MIN_DRIVER % 1000 / 10);
    driver_version = version;
    int result = driver.init(0);
    if (result == CUDA_OK)
        return GLM_OK;
    driver.error_name(result, &error);
    driver.error_text(result, &text);
    return glm_fail(err, GLM_EKERNEL, "cannot start the CUDA driver '%s': %s: %s", name,
                    error == NULL ? "unknown error" : error, text == NULL ? "" : text);
}

/* Never closed: the driver's threads outlive every device. */
static enum glm_status open_library(struct glm_error *err)
{
    const char *own = getenv("GLM_CUDA_DRIVER");
    const char *name = own != NULL && own[0] != '\0' ? own : "libcuda.so.1";
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    enum glm_status status = GLM_OK;
    if (handle == NULL) {
        status = glm_fail(err, GLM_EKERNEL, "cannot open the CUDA driver: %s", dlerror());
    } else {
        const char *missing = find_all(handle, &driver);
        if (missing != NULL)
            status = glm_fail(err, GLM_EKERNEL, "cannot use '%s' as the CUDA driver: it has no %s",
                              name, missing);
        else
            status = start(name, err);
        if (status != GLM_OK)
            dlclose(handle);
    }
    if (status != GLM_OK)
        how_to_get_it(err);
    return status;
}

enum glm_status glm_cuda_driver_open(const struct glm_cuda_driver **out, int *version,
                                     struct glm_error *err)
{
    pthread_mutex_lock(&lock);
    enum glm_status status = opened ? GLM_OK : open_library(err);
    opened = status == GLM_OK;
    pthread_mutex_unlock(&lock);
    *out = &driver;
    *version = driver_version;
    return status;
}
