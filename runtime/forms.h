/* SPDX-License-Identifier: Apache-2.0 */
/* Stored form → host device form (kernels-templates/README.md, "Device forms"): a rank's slice of
 * an uncut tensor as the host kernels stream it. Pure functions over memory; reading files,
 * stacking members and placing planes is the caller's work (weights of a plan: codegen/plan.h).
 *
 * Sizes are those of glm_form_bytes. Every output byte is written, padding included. */
#ifndef GLM_RUNTIME_FORMS_H
#define GLM_RUNTIME_FORMS_H

#include "codegen/plan.h"
#include "spec/base/error.h"
#include "spec/checkpoint.h"

/* Places one part of a weight: rows [row0, row0 + rows taken) of a device form of n_rows x n_cols.
 *
 * source     the uncut tensor's bytes, row-major [part->n_rows, part->n_cols] of `dtype`
 *            (GLM_F32, GLM_BF16 or GLM_F16), any alignment
 * form       "f32", "bf16", "bf16_t", "q4" (mse ranges) or "fp8"
 * out        the member's device form, glm_form_bytes(form, n_rows, n_cols)
 * row0       first row of the form that this part fills; rows of earlier parts lie above
 *
 * bf16_t: each row group of the slice is transposed to [cols taken][rows of the group], groups one
 * after another; row0 counts rows before that.
 * q4 and fp8 quantize the values rounded to bf16, groups within the taken columns.
 * Errors: GLM_EPLAN when slice, shape or dtype do not fit the form; GLM_ENOMEM. */
enum glm_status glm_form_place(const char *form, const struct glm_plan_part *part,
                               const void *source, enum glm_dtype dtype, uint64_t n_rows,
                               uint64_t n_cols, uint64_t row0, void *out, struct glm_error *err);

/* The same for an EXL3 group, one part only, stored as "exl3:BITS:CODEBOOK": rows are outputs,
 * columns inputs, cuts in whole 128-blocks.
 *
 * form       as stored, or "bf16": the weights themselves, rounded once
 * trellis    I16 [n_cols/16, n_rows/16, 16 * BITS] of the uncut matrix
 * suh, svh   F16 [part->n_cols], [part->n_rows]
 * Errors: GLM_EPLAN (form, shape, cut), GLM_ECHECKPOINT (a non-finite scale, named by index);
 * GLM_ENOMEM. */
struct glm_exl3_source {
    const void *trellis, *suh, *svh;
};
enum glm_status glm_form_place_exl3(const char *stored, const char *form,
                                    const struct glm_plan_part *part,
                                    const struct glm_exl3_source *source, void *out,
                                    struct glm_error *err);

/* ---- Single rows: what place does, for kernel tests and the cache's rows ---- */

/* 64 values → 16 code words (nibble j of word l: value 16 j + l), bf16 scale and bias;
 * docs/formats.md 5, mse ranges. */
void glm_q4_group(const float values[64], uint16_t codes[16], uint16_t *scale, uint16_t *bias);
/* 128 values → e4m3 codes and fp32 scale; docs/formats.md 5. */
void glm_fp8_block(const float values[128], uint8_t codes[128], float *scale);

#endif
