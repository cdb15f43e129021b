/* SPDX-License-Identifier: Apache-2.0 */
/* The table of device forms: which planes a member has, their bytes and alignment. Sources:
 * docs/formats.md 3 (EXL3), 5 (q4, fp8); kernels-templates/README.md. */
#include "codegen/forms.h"

#include "codegen/plan.h"

#include <inttypes.h>
#include <string.h>

/* Past this a dimension is a mistake, and products of two still fit. */
#define MAX_DIMENSION (UINT64_C(1) << 31)

/* A plane has n_rows * n_cols * num / den bytes (PER_MATRIX), n * num (a vector of one side), or
 * n_rows * ceil(n_cols / den) * num (one value of num bytes a group of den columns). */
enum plane_kind { PLANE_NONE, PLANE_MATRIX, PLANE_ROWS, PLANE_COLS, PLANE_GROUPS };
struct plane {
    enum plane_kind kind;
    uint64_t num, den;
};
struct form {
    const char *name;
    uint64_t rows_unit, cols_unit; /* a share's sides are multiples of these */
    struct plane planes[GLM_FORM_MAX_PLANES];
};

static const struct form forms[] = {
    {"f32", 1, 1, {{PLANE_MATRIX, 4, 1}}},
    {"bf16", 1, 1, {{PLANE_MATRIX, 2, 1}}},
    {"bf16_t", 1, 1, {{PLANE_MATRIX, 2, 1}}},
    {"q4", 1, 64, {{PLANE_MATRIX, 1, 2}, {PLANE_GROUPS, 2, 64}, {PLANE_GROUPS, 2, 64}}},
    {"fp8", 1, 1, {{PLANE_MATRIX, 1, 1}, {PLANE_GROUPS, 4, 128}}},
};

/* "exl3:4:mcg" → its rate, 0 when it is no EXL3 form. */
static uint64_t exl3_bits(const char *form)
{
    static const char *const codebooks[] = {"mcg", "mul1", "3inst"};
    if (strncmp(form, "exl3:", 5) != 0 || form[5] < '1' || form[5] > '8' || form[6] != ':')
        return 0;
    for (size_t i = 0; i < sizeof codebooks / sizeof codebooks[0]; i++)
        if (strcmp(form + 7, codebooks[i]) == 0)
            return (uint64_t)(form[5] - '0');
    return 0;
}

static uint64_t plane_bytes(const struct plane *p, uint64_t n_rows, uint64_t n_cols)
{
    switch (p->kind) {
    case PLANE_NONE:
        return 0;
    case PLANE_MATRIX:
        return n_rows * n_cols * p->num / p->den;
    case PLANE_ROWS:
        return n_rows * p->num;
    case PLANE_COLS:
        return n_cols * p->num;
    case PLANE_GROUPS:
        return n_rows * ((n_cols + p->den - 1) / p->den) * p->num;
    }
    return 0;
}

enum glm_status glm_form_layout(const char *form, uint64_t n_rows, uint64_t n_cols,
                                struct glm_form_layout *out, struct glm_error *err)
{
    /* The trellis, then suh (inputs) and svh (outputs) in fp16. */
    const uint64_t bits = exl3_bits(form);
    const struct form exl3 = {
        "exl3", 128, 128, {{PLANE_MATRIX, bits, 8}, {PLANE_COLS, 2, 1}, {PLANE_ROWS, 2, 1}}};
    const struct form *f = bits > 0 ? &exl3 : NULL;
    for (size_t i = 0; f == NULL && i < sizeof forms / sizeof forms[0]; i++)
        if (strcmp(forms[i].name, form) == 0)
            f = &forms[i];
    if (f == NULL)
        return glm_fail(err, GLM_EPLAN,
                        "cannot lay out device form '%.64s': known are f32, bf16, bf16_t, q4, fp8 "
                        "and exl3:BITS:CODEBOOK",
                        form);
    if (n_rows > MAX_DIMENSION || n_cols > MAX_DIMENSION || n_rows % f->rows_unit != 0 ||
        n_cols % f->cols_unit != 0)
        return glm_fail(err, GLM_EPLAN,
                        "cannot hold %" PRIu64 " x %" PRIu64 " as '%.64s': rows must be a multiple "
                        "of %" PRIu64 ", columns of %" PRIu64 ", neither above %" PRIu64,
                        n_rows, n_cols, form, f->rows_unit, f->cols_unit, MAX_DIMENSION);
    struct glm_form_layout l = {0};
    for (uint32_t i = 0; n_rows > 0 && n_cols > 0 && i < GLM_FORM_MAX_PLANES; i++) {
        if (f->planes[i].kind == PLANE_NONE)
            break;
        l.n_planes++;
        l.offset[i] = l.total;
        l.bytes[i] = plane_bytes(&f->planes[i], n_rows, n_cols);
        l.total = (l.total + l.bytes[i] + GLM_FORM_ALIGN - 1) / GLM_FORM_ALIGN * GLM_FORM_ALIGN;
    }
    *out = l;
    return GLM_OK;
}

enum glm_status glm_form_bytes(const char *form, uint64_t n_rows, uint64_t n_cols, uint64_t *bytes,
                               struct glm_error *err)
{
    struct glm_form_layout layout = {0};
    enum glm_status status = glm_form_layout(form, n_rows, n_cols, &layout, err);
    if (status == GLM_OK)
        *bytes = layout.total;
    return status;
}
