/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of a checkpoint's tensors: read from its files with pread, or made when it is synthetic.
 * Thread-safe after opening. */
#ifndef GLM_RUNTIME_TENSOR_READ_H
#define GLM_RUNTIME_TENSOR_READ_H

#include "codegen/plan.h"
#include "spec/checkpoint.h"

struct glm_tensor_files {
    const struct glm_checkpoint *checkpoint;
    int *fds; /* [n_files], -1 where not open */
    struct glm_file_time {
        int64_t seconds, nanoseconds;
    } * changed; /* [n_files] when each was last written, at opening */
};

/* Opens every file. Errors: GLM_ECHECKPOINT when one is gone or is not as long as when its header
 * was read; GLM_ENOMEM. */
enum glm_status glm_tensor_files_open(struct glm_tensor_files *f, const struct glm_checkpoint *c,
                                      struct glm_error *err);
/* GLM_ECHECKPOINT when a file was written to since opening. */
enum glm_status glm_tensor_files_check(const struct glm_tensor_files *f, struct glm_error *err);
void glm_tensor_files_close(struct glm_tensor_files *f);

/* Elements [first, first + n) of a tensor, as stored. Errors: GLM_EPLAN when they are not in it,
 * GLM_ECHECKPOINT for a short file, GLM_EIO. */
enum glm_status glm_tensor_read(const struct glm_tensor_files *f, const struct glm_tensor *t,
                                uint64_t first, uint64_t n, void *out, struct glm_error *err);

/* Rows [row, row + n_rows) of a tensor seen as a matrix of n_cols, columns as `cols` says, into
 * out + i * n_cols elements for the i-th: columns that the slice leaves out may or may not be
 * written. Columns that nearly fill the row are read together. */
enum glm_status glm_tensor_read_rows(const struct glm_tensor_files *f, const struct glm_tensor *t,
                                     uint64_t row, uint64_t n_rows, uint64_t n_cols,
                                     const struct glm_slice *cols, void *out,
                                     struct glm_error *err);

#endif
