/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL, opened at run time: a communicator of a lane's ranks and the gather that its exchanges are
 * made of. No header of NCCL is needed: these are its C interface as its documentation gives it.
 * Knows neither plans nor rounds.
 *
 * A communicator belongs to one thread, but for look and abort. $GLM_NCCL names another library.
 * Errors: GLM_EKERNEL with NCCL's text of what went wrong, unless a call says another. */
#ifndef GLM_RUNTIME_NCCL_H
#define GLM_RUNTIME_NCCL_H

#include "runtime/cuda.h"

/* Of what ranks make a communicator: rank 0's, told to all. */
struct glm_nccl_id {
    char bytes[128];
};

struct glm_nccl;

/* Opens the library, once a process; *version is 22703 for 2.27.3. GLM_EKERNEL naming the package
 * when it is missing, older than 2.18 or lacks a call. Any thread. */
enum glm_status glm_nccl_library(int *version, struct glm_error *err);

enum glm_status glm_nccl_new_id(struct glm_nccl_id *out, struct glm_error *err);
/* On the GPU that is current. All ranks call it; it returns when they have. */
enum glm_status glm_nccl_open(const struct glm_nccl_id *id, uint32_t rank, uint32_t world,
                              struct glm_nccl **out, struct glm_error *err);
/* The graphs that hold its operations must have been freed. NULL: nothing. */
void glm_nccl_close(struct glm_nccl *n);

/* Every rank's `bytes` into to[world][bytes], on the stream. */
enum glm_status glm_nccl_gather(struct glm_nccl *n, glm_cuda_stream s, glm_cuda_address from,
                                glm_cuda_address to, uint64_t bytes, struct glm_error *err);

/* Has it gone wrong on its own? Any thread. */
enum glm_status glm_nccl_look(struct glm_nccl *n, struct glm_error *err);
/* Ends its operations wherever they wait; returns once no graph holds one. One thread, once; after
 * it only close may be called. */
void glm_nccl_abort(struct glm_nccl *n);

#endif
