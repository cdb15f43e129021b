/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA driver's calls that cuda.c uses, found in libcuda.so.1 at run time. No header of a
 * toolkit is needed: these are the driver's C interface as its documentation gives it, by the names
 * of its exported symbols. */
#ifndef GLM_RUNTIME_CUDA_DRIVER_H
#define GLM_RUNTIME_CUDA_DRIVER_H

#include "runtime/cuda.h"
#include "spec/base/error.h"

#include <stddef.h>
#include <stdint.h>

enum { GLM_CUDA_MIN_DRIVER = 12000 };

/* Result codes that are told apart. */
enum {
    CUDA_OK = 0,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_NO_DEVICE = 100,
    CUDA_PEER_IS_ENABLED = 704,
};
/* Attributes of a device and of a function, and flags. */
enum {
    CUDA_DEVICE_SMS = 16,
    CUDA_DEVICE_INTEGRATED = 18,
    CUDA_DEVICE_MAJOR = 75,
    CUDA_DEVICE_MINOR = 76,
    CUDA_DEVICE_BLOCK_SHARED = 97,
    CUDA_FUNCTION_STATIC_SHARED = 1,
    CUDA_FUNCTION_DYNAMIC_SHARED = 8,
    CUDA_STREAM_NON_BLOCKING = 1,
    CUDA_CAPTURE_OF_THREAD = 1,
    CUDA_OP_WAIT_32 = 1,
    CUDA_OP_WRITE_32 = 2,
    CUDA_WAIT_EQUAL = 1,
    CUDA_SHARED_ENABLE_PEER = 1,
};

/* One operation of a batch on the memory that host and GPU share: CUstreamBatchMemOpParams. */
struct glm_cuda_mem_op {
    int operation;
    uint64_t address;
    uint64_t value;
    unsigned flags;
    uint64_t reserved[2];
};
_Static_assert(sizeof(struct glm_cuda_mem_op) == 48, "the driver's layout");

struct glm_cuda_driver {
    int (*init)(unsigned);
    int (*version)(int *);
    int (*error_name)(int, const char **);
    int (*error_text)(int, const char **);
    int (*device_count)(int *);
    int (*device_get)(int *, int);
    int (*device_name)(char *, int, int);
    int (*device_memory)(size_t *, int);
    int (*device_attribute)(int *, int, int);
    int (*context_retain)(void **, int);
    int (*context_release)(int);
    int (*context_use)(void *);
    int (*memory_info)(size_t *, size_t *);
    int (*alloc)(uint64_t *, size_t);
    int (*free)(uint64_t);
    int (*host_alloc)(void **, size_t, unsigned);
    int (*host_free)(void *);
    int (*copy_in)(uint64_t, const void *, size_t, void *);
    int (*copy_out)(void *, uint64_t, size_t, void *);
    int (*copy)(uint64_t, uint64_t, size_t, void *);
    int (*fill)(uint64_t, unsigned char, size_t, void *);
    int (*mem_ops)(void *, unsigned, struct glm_cuda_mem_op *, unsigned);
    int (*stream_new)(void **, unsigned);
    int (*stream_free)(void *);
    int (*stream_wait)(void *);
    int (*event_new)(void **, unsigned);
    int (*event_free)(void *);
    int (*event_record)(void *, void *);
    int (*event_wait)(void *);
    int (*event_milliseconds)(float *, void *, void *);
    int (*module_load)(void **, const void *);
    int (*module_unload)(void *);
    int (*module_function)(void **, void *, const char *);
    int (*function_get)(int *, int, void *);
    int (*function_set)(void *, int, int);
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  void *, void **, void **);
    int (*capture_begin)(void *, int);
    int (*capture_end)(void *, void **);
    int (*graph_make)(void **, void *, unsigned long long);
    int (*graph_free)(void *);
    int (*graph_exec_free)(void *);
    int (*graph_upload)(void *, void *);
    int (*graph_launch)(void *, void *);
    /* NULL where the driver lacks them. */
    int (*peer_can)(int *, int, int);
    int (*peer_enable)(void *, unsigned);
    int (*share)(struct glm_cuda_handle *, uint64_t);
    int (*shared_open)(uint64_t *, struct glm_cuda_handle, unsigned);
    int (*shared_close)(uint64_t);
};

/* The driver, opened once a process and initialised, with its version. GLM_EKERNEL naming the
 * package, the version or the missing call. Any thread. */
enum glm_status glm_cuda_driver_open(const struct glm_cuda_driver **out, int *version,
                                     struct glm_error *err);

#endif
