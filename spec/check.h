/* SPDX-License-Identifier: Apache-2.0 */
/* Private to spec/: a checkpoint's tensors against its geometry. */
#ifndef GLM_SPEC_CHECK_H
#define GLM_SPEC_CHECK_H

#include "spec/checkpoint.h"

/* Decides how the experts are stored, leaves out a tower or MTP layer that has no tensor, checks
 * every tensor that the geometry expects and gives it its role. c has its tensors sorted and
 * indexed. `method` is the config's quant_method or "". Adds each problem to diags. */
void checkpoint_check(struct glm_checkpoint *c, const char *method, struct diag_list *diags);

/* The largest token id in a tokenizer.json, plus one, and the file's size.
 * Errors: GLM_ENOTFOUND when there is none, GLM_ECHECKPOINT, GLM_EIO, GLM_ENOMEM. */
enum glm_status checkpoint_token_ids(const char *path, uint32_t *n_ids, uint64_t *file_bytes,
                                     struct glm_error *err);

#endif
