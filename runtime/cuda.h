/* SPDX-License-Identifier: Apache-2.0 */
/* One NVIDIA GPU through the CUDA driver, which is opened at run time: memory, kernels, launches,
 * streams, events and captured graphs. Knows neither plans nor rounds.
 *
 * Every call but glm_cuda_count, _facts_of and _open wants the calling thread to have opened the
 * device or called glm_cuda_use. Any number of threads may use one device; a stream, a graph under
 * capture and an event belong to one thread at a time. Sizes are bytes, addresses the device's.
 * What is made here is freed by its own free call, before glm_cuda_close. Errors: GLM_EKERNEL with
 * the driver's name and text of what went wrong, unless a call says another. */
#ifndef GLM_RUNTIME_CUDA_H
#define GLM_RUNTIME_CUDA_H

#include "kernels-templates/cuda_abi.h"
#include "spec/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct glm_cuda_facts {
    char name[96];
    char target[16];         /* what its kernels are compiled for: "sm_90", "sm_121a" */
    uint32_t index;          /* the driver's, as in cuda:N */
    uint32_t driver_version; /* 13000 is CUDA 13.0 */
    uint32_t major, minor;   /* compute capability */
    uint32_t n_sms;
    uint32_t block_shared_bytes; /* static and dynamic, of a block at most */
    uint64_t memory_bytes;
    bool shares_memory; /* with the host: GB10 */
};

struct glm_cuda;
typedef uint64_t glm_cuda_address;

/* GPUs that the driver shows. GLM_EKERNEL with the package to install when there is no driver, it
 * is older than CUDA 12.0, or lacks a call. $GLM_CUDA_DRIVER names another library. */
enum glm_status glm_cuda_count(uint32_t *n, struct glm_error *err);

/* Of the GPU of that index, without opening it: nothing of its memory is taken. Errors: as
 * glm_cuda_open. */
enum glm_status glm_cuda_facts_of(uint32_t index, struct glm_cuda_facts *out,
                                  struct glm_error *err);

/* The GPU of that index, current on this thread. GLM_EKERNEL when there is no such GPU or its
 * compute capability is below 8.9. Close with glm_cuda_close. */
enum glm_status glm_cuda_open(uint32_t index, struct glm_cuda **out, struct glm_error *err);
void glm_cuda_close(struct glm_cuda *c);
enum glm_status glm_cuda_use(struct glm_cuda *c, struct glm_error *err);
const struct glm_cuda_facts *glm_cuda_facts(const struct glm_cuda *c);

/* ---- Memory: the device's own, never managed; 256-byte aligned ---- */

/* GLM_ENOMEM naming `what`, the size and what is free. */
enum glm_status glm_cuda_alloc(struct glm_cuda *c, const char *what, uint64_t bytes,
                               glm_cuda_address *out, struct glm_error *err);
void glm_cuda_free(struct glm_cuda *c, glm_cuda_address address); /* 0: nothing */
/* The host's, page-locked, so that copies run beside what else the stream and the host do. */
enum glm_status glm_cuda_host_alloc(struct glm_cuda *c, const char *what, uint64_t bytes,
                                    void **out, struct glm_error *err);
void glm_cuda_host_free(struct glm_cuda *c, void *memory); /* NULL: nothing */
enum glm_status glm_cuda_memory_free(struct glm_cuda *c, uint64_t *bytes, struct glm_error *err);

/* ---- Memory of other GPUs of this host. Errors as above, also where the driver lacks the calls
 * ----
 */

/* Names an allocation to other processes: the driver's CUipcMemHandle. */
struct glm_cuda_handle {
    char bytes[64];
};
/* Of what glm_cuda_alloc gave; whole 2 MiB, so that nothing else is shown with it. */
enum { GLM_CUDA_SHARED_ALIGN = 2 << 20 };
enum glm_status glm_cuda_share(struct glm_cuda *c, glm_cuda_address address,
                               struct glm_cuda_handle *out, struct glm_error *err);
/* What another process shares, until _close. */
enum glm_status glm_cuda_shared_open(struct glm_cuda *c, const struct glm_cuda_handle *handle,
                                     glm_cuda_address *out, struct glm_error *err);
void glm_cuda_shared_close(struct glm_cuda *c, glm_cuda_address address); /* 0: nothing */
/* Lets this GPU's kernels use all memory that this process has on another, and keeps that one's
 * context until glm_cuda_close. */
enum glm_status glm_cuda_reach(struct glm_cuda *c, uint32_t index, struct glm_error *err);

/* ---- Streams and events ---- */

typedef void *glm_cuda_stream;
typedef void *glm_cuda_event;
enum glm_status glm_cuda_stream_new(struct glm_cuda *c, glm_cuda_stream *out,
                                    struct glm_error *err);
void glm_cuda_stream_free(struct glm_cuda *c, glm_cuda_stream s);
/* Until all that was put on it has run; says what went wrong in it. */
enum glm_status glm_cuda_stream_wait(struct glm_cuda *c, glm_cuda_stream s, struct glm_error *err);

/* Events measure time. */
enum glm_status glm_cuda_event_new(struct glm_cuda *c, glm_cuda_event *out, struct glm_error *err);
void glm_cuda_event_free(struct glm_cuda *c, glm_cuda_event e);
enum glm_status glm_cuda_event_record(struct glm_cuda *c, glm_cuda_event e, glm_cuda_stream s,
                                      struct glm_error *err);
/* Until both have passed; seconds from the first to the second. */
enum glm_status glm_cuda_event_seconds(struct glm_cuda *c, glm_cuda_event from, glm_cuda_event to,
                                       double *seconds, struct glm_error *err);

/* On the stream; a host buffer must live until the stream has been waited for. */
enum glm_status glm_cuda_copy_in(struct glm_cuda *c, glm_cuda_stream s, glm_cuda_address to,
                                 const void *from, uint64_t bytes, struct glm_error *err);
enum glm_status glm_cuda_copy_out(struct glm_cuda *c, glm_cuda_stream s, void *to,
                                  glm_cuda_address from, uint64_t bytes, struct glm_error *err);
enum glm_status glm_cuda_copy(struct glm_cuda *c, glm_cuda_stream s, glm_cuda_address to,
                              glm_cuda_address from, uint64_t bytes, struct glm_error *err);
enum glm_status glm_cuda_fill(struct glm_cuda *c, glm_cuda_stream s, glm_cuda_address to,
                              uint8_t byte, uint64_t bytes, struct glm_error *err);

/* The stream meets the host: it sets *bell to 1, waits until *done is 1 and sets it back to 0. Who
 * sees the bell sees all that the stream did before; what the host wrote before done is seen by all
 * that the stream does after. Both words lie in memory of glm_cuda_host_alloc. Takes no kernel's
 * place on the GPU while it waits. */
enum glm_status glm_cuda_meet(struct glm_cuda *c, glm_cuda_stream s, void *bell, void *done,
                              struct glm_error *err);

/* ---- Kernels ---- */

struct glm_cuda_kernel {
    void *module, *function;
    uint32_t dynamic_shared_bytes; /* what glm_cuda_kernel_load was told */
};

/* path: ENTRY/kernel.cubin of that digest, ours, writable by nobody else and with its recorded
 * digests (codegen/kernels.h). dynamic_shared_bytes: the most that a launch will ask for. */
enum glm_status glm_cuda_kernel_load(struct glm_cuda *c, const char *kernel, const char *path,
                                     const char *digest, uint32_t dynamic_shared_bytes,
                                     struct glm_cuda_kernel *out, struct glm_error *err);
void glm_cuda_kernel_unload(struct glm_cuda *c, struct glm_cuda_kernel *k);

struct glm_cuda_launch {
    const char *name; /* for errors */
    const struct glm_cuda_kernel *kernel;
    uint32_t grid[3], block, shared_bytes; /* the manifest's at the maxima of the bucket */
    struct glm_cuda_args args;             /* device addresses */
};
/* Puts it on the stream; allocates nothing and waits for nothing. */
enum glm_status glm_cuda_launch(struct glm_cuda *c, glm_cuda_stream s,
                                const struct glm_cuda_launch *l, struct glm_error *err);

/* ---- Graphs: what is put on a stream between begin and end is kept instead of run ---- */

typedef void *glm_cuda_graph;
enum glm_status glm_cuda_capture_begin(struct glm_cuda *c, glm_cuda_stream s,
                                       struct glm_error *err);
/* Ends the capture in any case, after a failed launch too. What the graph takes of the GPU is taken
 * here, not at its first launch. */
enum glm_status glm_cuda_capture_end(struct glm_cuda *c, glm_cuda_stream s, glm_cuda_graph *out,
                                     struct glm_error *err);
void glm_cuda_graph_free(struct glm_cuda *c, glm_cuda_graph g);
enum glm_status glm_cuda_graph_launch(struct glm_cuda *c, glm_cuda_graph g, glm_cuda_stream s,
                                      struct glm_error *err);

#endif
