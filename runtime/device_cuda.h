/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of a rank on an NVIDIA GPU; nobody else includes it. device_cuda.c opens it and
 * moves bytes, device_cuda_link.c makes graphs of its programs, device_cuda_run.c runs them.
 *
 * Every program is captured as a graph for each (row bucket, context bucket) of its arena; a round
 * then copies its table to the device and launches the graphs of its bucket on one stream. A bucket
 * sets grids and how many bytes an exchange copies, and nothing else: blocks beyond the live rows
 * leave, so it changes no bits.
 *
 * Where every rank has a GPU of one host to itself and the driver lets the GPUs reach each other,
 * exchanges are kernels between the others (kernels-templates/peer.h), and the host only looks
 * whether all ranks are there (watch.h). So it is where the lane's transport is NCCL. Else they go
 * through page-locked memory and the collective's links. Where the rank has its GPU to itself they
 * lie inside the graph too, and a proxy runs them while the stream waits. Ranks that share a GPU
 * wait on the host: the driver does not see that their streams wait for each other and may put one
 * behind the other, so their programs are cut at the exchanges into several graphs. */
#ifndef GLM_RUNTIME_DEVICE_CUDA_H
#define GLM_RUNTIME_DEVICE_CUDA_H

#include "kernels-templates/peer.h"
#include "runtime/cuda.h"
#include "runtime/device.h"
#include "runtime/exec_step.h"
#include "runtime/proxy.h"
#include "runtime/watch.h"

enum {
    GLM_GPU_STAGES = 8, /* round tables on their way at once */
    GLM_GPU_SPANS = 32, /* programs between two waits */
    GLM_GPU_BUCKETS = 32,
};

/* A round table on the device, and the host's copies on their way there. */
struct glm_gpu_table {
    glm_cuda_address at;
    uint64_t rows, streams, extents, out_rows, draws, bytes; /* offsets, then the end */
    uint32_t max_rows, max_outs, max_extents;
    unsigned char *stages; /* [GLM_GPU_STAGES][bytes] page-locked */
    uint32_t n_used;       /* since the last wait */
};

/* Steps [first, end) that are one graph, or one exchange between two. */
struct glm_gpu_segment {
    uint32_t first, end;
    bool exchange;
};

struct glm_gpu_buckets {
    uint32_t n;
    uint64_t most[GLM_GPU_BUCKETS]; /* ascending */
};

struct glm_gpu_program {
    struct glm_gpu_segment *segments;
    uint32_t n_segments, n_exchanges;
    struct glm_gpu_buckets rows, contexts;
    glm_cuda_graph *graphs; /* [rows][contexts][segments]; NULL where it is an exchange */
};

/* Time between two events, and what it is added to. */
struct glm_gpu_span {
    glm_cuda_event from, to;
    uint64_t *ns;
};

/* What a loading thread has. The GPU reads stored bytes where the thread has read them to, in
 * page-locked memory, each once: there is no copy of a weight but the one that stays. */
struct glm_gpu_loader {
    glm_cuda_stream stream;
    unsigned char *unit, *buffer; /* one allocation, page-locked */
};

struct glm_gpu {
    struct glm_device base;
    struct glm_cuda *cuda;
    bool is_shared; /* other ranks run on it */
    glm_cuda_stream stream;
    glm_cuda_address memory;
    const struct glm_plan *plan;
    struct glm_cuda_kernel *kernels; /* in plan order */
    uint32_t n_kernels;
    struct glm_launch_shape *shapes; /* [n_kernels] at the bucket that is being captured */
    struct glm_exec *exec;
    struct glm_gpu_table *tables;     /* one an arena */
    struct glm_gpu_program *programs; /* one a program of exec */
    void *send, *receive;             /* page-locked, of an exchange */
    struct glm_proxy_words *words;    /* page-locked */
    struct glm_proxy *proxy;          /* NULL: the GPU is shared, runs them, or nothing to do */
    struct glm_gpu_peer *peer;        /* NULL: GPUs do not meet */
    struct glm_gpu_nccl *nccl;        /* NULL: the lane's transport is another */
    struct glm_watch *watch;          /* NULL: the host runs exchanges */
    struct glm_gpu_span spans[GLM_GPU_SPANS];
    uint32_t n_spans;
    unsigned char *seen; /* what `view` last gave */
    uint64_t seen_bytes;
    struct glm_gpu_loader *loaders;
    uint32_t n_loaders;
    struct glm_error failed; /* the first failure of what answers nothing */
};

static inline struct glm_gpu *glm_gpu_of(struct glm_device *d)
{
    return (struct glm_gpu *)d;
}

static inline glm_cuda_address glm_gpu_address(const void *p)
{
    return (glm_cuda_address)(uintptr_t)p;
}

static inline void *glm_gpu_pointer(glm_cuda_address a)
{
    return (void *)(uintptr_t)a;
}

/* Keeps the first failure: from it on every call but free answers it. */
void glm_gpu_note(struct glm_gpu *g, enum glm_status st, const struct glm_error *err);

/* Every call may come on another thread than the one before. */
enum glm_status glm_gpu_enter(struct glm_gpu *g, struct glm_error *err);

/* ---- Linking ---- */

enum glm_status glm_gpu_link(struct glm_device *d, struct glm_exec *x, struct glm_error *err);
/* What it made. The proxy has nothing to do any more. */
void glm_gpu_unlink(struct glm_gpu *g);

/* Is it one between ranks? */
bool glm_gpu_is_exchange(const struct glm_gpu *g, const struct glm_exec_step *s);
/* Launch shapes of a program's kernels at a bucket. */
enum glm_status glm_gpu_shape(struct glm_gpu *g, const struct glm_exec_program *p, uint64_t rows,
                              uint64_t outs, uint64_t context, struct glm_error *err);
/* Puts one step on the stream. rows, outs: of the bucket. */
enum glm_status glm_gpu_put_step(struct glm_gpu *g, const struct glm_exec_program *p,
                                 const struct glm_exec_step *s, uint64_t rows, uint64_t outs,
                                 struct glm_error *err);
/* Wanted rows of a bucket of that many rows. */
uint64_t glm_gpu_outs(const struct glm_gpu_table *t, uint64_t rows);

/* A kernel that no step names: the runtime puts it with its own arguments. */
struct glm_gpu_own {
    const struct glm_manifest *manifest;
    const struct glm_plan_kernel *kernel;
    const struct glm_cuda_kernel *loaded; /* NULL: the plan has none */
};
struct glm_gpu_bucket {
    uint32_t arena_i;
    uint64_t rows, outs;
};
struct glm_gpu_own glm_gpu_find_own(const struct glm_gpu *g, const char *name);
enum glm_status glm_gpu_put_own(struct glm_gpu *g, const struct glm_gpu_own *k,
                                const struct glm_gpu_bucket *bucket, void *const *args,
                                uint32_t n_args, struct glm_error *err);
/* An exchange as such a kernel sees it. */
struct glm_peer_exchange glm_gpu_describe(const struct glm_exec_step *s);

/* ---- Exchanges in memory of each other's GPUs (device_cuda_peer.c) ---- */

/* Where the plan has kernels for it: every rank opens the others' memory, or none does. g->peer
 * stays NULL, and the log says why, where the driver does not let them. The collective must be
 * idle; all ranks call it. GLM_EPEER; GLM_ENOMEM, GLM_EKERNEL for what is this rank's alone. */
enum glm_status glm_gpu_peer_open(struct glm_gpu *g, struct glm_exec *x, struct glm_error *err);
/* The stream rests. NULL: nothing. */
void glm_gpu_peer_free(struct glm_gpu *g);
/* Puts an exchange of a bucket of that many rows on the stream. */
enum glm_status glm_gpu_peer_put(struct glm_gpu *g, const struct glm_exec_program *p,
                                 const struct glm_exec_step *s, uint64_t rows, uint64_t outs,
                                 struct glm_error *err);

/* ---- Exchanges by NCCL (device_cuda_nccl.c) ---- */

/* Where the plan has its kernel. The collective must be idle; all ranks call it. GLM_EKERNEL naming
 * the package when the library is missing. */
enum glm_status glm_gpu_nccl_open(struct glm_gpu *g, struct glm_exec *x, struct glm_error *err);
/* The stream rests and its graphs are freed: NCCL waits for them. NULL: nothing. */
void glm_gpu_nccl_free(struct glm_gpu *g);
enum glm_status glm_gpu_nccl_put(struct glm_gpu *g, const struct glm_exec_program *p,
                                 const struct glm_exec_step *s, uint64_t rows, uint64_t outs,
                                 struct glm_error *err);

/* ---- Running ---- */

enum glm_status glm_gpu_run(struct glm_device *d, const struct glm_exec_program *p,
                            const struct glm_round *round, uint64_t *ns, struct glm_error *err);
enum glm_status glm_gpu_run_step(struct glm_device *d, const struct glm_exec_program *p,
                                 uint32_t step_i, const struct glm_round *round,
                                 struct glm_error *err);
enum glm_status glm_gpu_wait(struct glm_device *d, struct glm_error *err);

#endif
