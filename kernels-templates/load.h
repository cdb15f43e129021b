/* SPDX-License-Identifier: Apache-2.0 */
/* What one launch of a converter does: some rows of a tensor, or one EXL3 group, as stored → their
 * place in a weight's device form (README.md, "Device forms"). Filled by runtime/weights.c in
 * page-locked memory, which the GPU reads; its address is the launch's first argument. A tensor of
 * a synthetic checkpoint has no bytes: the converter makes its elements (synthetic.h). Sources lie
 * at whole elements, fast at multiples of 16 bytes. */
#ifndef GLM_LOAD_H
#define GLM_LOAD_H

#include "round.h"
#include "synthetic.h"

/* Element i of a cut is first + i / take * stride + i % take of the uncut dimension. */
struct glm_load_cut {
    uint64_t first, take, stride;
};

/* load_rows, one block a row. Without `source` row r is row rows(row + r) of the uncut tensor, and
 * its elements are numbered row-major. */
struct glm_load_rows {
    const void *source; /* [n_rows][uncut_cols], any but the cut's columns unset; or NULL */
    struct glm_synthetic_values values;
    struct glm_load_cut rows, cols;
    uint64_t row, uncut_cols;
    uint64_t n_rows, n_cols; /* placed now; of the cut, which is the form's but for bf16_t */
    void *out;               /* the member's device form */
    uint64_t form_rows;      /* all rows of it */
    uint64_t row0;           /* where the first of n_rows lies; bf16_t: a whole group's first */
    uint64_t group_rows;     /* bf16_t: rows of a group that is transposed */
};

/* load_exl3, one block 128 inputs x 128 outputs of the cut: block b is inputs
 * b % (n_cols / 128), outputs b / (n_cols / 128). Rows are outputs, columns inputs. */
struct glm_load_exl3 {
    const uint16_t *trellis;   /* [uncut_cols / 16][uncut_rows / 16][16 * BITS]; or NULL */
    const uint16_t *suh, *svh; /* [uncut_cols], [uncut_rows]; NULL with it */
    struct glm_synthetic_values trellis_values, suh_values, svh_values;
    struct glm_load_cut rows, cols;
    uint64_t uncut_rows, uncut_cols;
    uint64_t n_rows, n_cols; /* of the form */
    void *out;
};

#endif
