/* SPDX-License-Identifier: Apache-2.0 */
/* The manifests in kernels-templates/NAME.json: a kernel's arguments, parameters, scratch, cost
 * expressions, reduction order, oracle and tolerance (schema: docs/schema/manifest.json). Templates
 * are embedded in the binary; GLM_TEMPLATES=FOLDER reads them from a folder instead.
 *
 * What a body sees of its parameters (emit.c writes them above the body):
 *   int   N = 1024      #define GLM_N 1024          usable in #if; negative values in parentheses
 *   float EPS = 1e-6    #define GLM_EPS 1e-6f       a float constant
 *   word  FORM = q4     #define GLM_FORM_q4 1       as the manifest spells the word; the other
 *                                                   words stay undefined (#if and #ifdef work)
 *   act                 #define GLM_ACT_F32 1 or GLM_ACT_BF16 1
 *   launch (CUDA)       #define GLM_BLOCK 256, GLM_MIN_BLOCKS 2, GLM_SHARED_BYTES 0
 * A body includes nothing but headers of the folder. A host body exports glm_kernel and
 * glm_kernel_abi (kernels-templates/host_abi.h), a CUDA body the entry of
 * kernels-templates/cuda_abi.h. */
#ifndef GLM_CODEGEN_MANIFEST_H
#define GLM_CODEGEN_MANIFEST_H

#include "codegen/plan.h"

struct glm_manifest_arg {
    const char *name;
    const char *dtype;     /* "act", "f32", "bf16", "i32", "form", "state", "any" */
    const char *direction; /* "in", "out", "inout" */
    const char *shape;     /* expressions, for people and for kernel tests: "R, N" */
    bool optional;
};

struct glm_manifest_param {
    const char *name;
    const char *type; /* "int", "float", "word" */
    /* int, float: numbers and ranges between commas: "1..65536", "128,256", for int also
     * "64..65536/64" (multiples of 64); word: "bf16|q4|fp8"; "" = any */
    const char *values;
    const char *help;
};

/* How the CUDA body is launched. Expressions: block, shared and rows over the parameters alone,
 * grid, scratch and tickets also over the maxima of the bucket (R, O, S, the longest context),
 * never over live counts. Where rows is given, a bucket takes several launches, and grid, scratch
 * and tickets are those of one: R is its rows, and they must not name O. */
struct glm_manifest_launch {
    const char *block;   /* threads of a block */
    const char *grid[3]; /* blocks in x, y, z */
    const char *shared;  /* dynamic shared bytes */
    const char *scratch; /* bytes, in place of the host body's */
    const char *tickets; /* counters that a launch finds zero and leaves zero */
    const char *rows;    /* the most that one launch takes; 0: all */
    uint32_t min_blocks; /* of a multiprocessor: bounds the registers */
};

struct glm_manifest {
    const char *name;
    const char *help;
    struct glm_manifest_arg *args;
    uint32_t n_args;
    struct glm_manifest_param *params;
    uint32_t n_params;
    const char *scratch;            /* expression: bytes; variables below */
    const char *read, *write, *ops; /* expressions: bytes and operations of one launch */
    const char *reduction;          /* the fixed order of its sums, in words */
    const char *oracle;
    double tolerance;
    uint32_t spill_limit_bytes;
    const struct glm_manifest_launch *launch; /* NULL: there is no CUDA body */
};

/* All manifests, parsed and checked once. Errors: GLM_EPLAN naming manifest and key. */
enum glm_status glm_manifests_load(struct arena *arena, struct glm_manifest **out, uint32_t *n,
                                   struct glm_error *err);
const struct glm_manifest *glm_manifest_find(const struct glm_manifest *all, uint32_t n,
                                             const char *name);
/* One manifest from bytes: the fuzz target. */
enum glm_status glm_manifest_parse(const char *name, const char *json, size_t len,
                                   struct arena *arena, struct glm_manifest *out,
                                   struct glm_error *err);

/* The languages of template bodies: NAME.c, NAME.cu. */
enum glm_language { GLM_LANGUAGE_C, GLM_LANGUAGE_CUDA };
const char *glm_language_suffix(enum glm_language language);

/* The source text of a template body or prelude ("matmul.c", "prelude.h"); NULL when absent. */
const char *glm_template_source(const char *file, size_t *len);

/* Run-time values that cost and scratch expressions may name beside the kernel's parameters. */
struct glm_cost_context {
    double R; /* rows of the round */
    double O; /* wanted logits rows */
    double C; /* context tokens of a row: the mean; of a bucket the most */
    double S; /* streams of the round */
    double T; /* threads of the rank */
    double U; /* distinct experts that the rows touch */
    double A; /* bytes of a stored activation; costs alone name it, scratch does not */
};
/* Evaluates + - * / min max ceil floor and parentheses over numbers, int and float parameters and
 * the variables above, also called rows, outs, context, streams, threads, experts and act: a
 * parameter C hides the variable C but not `context`. `is(FORM, q4)` is 1 when the word parameter
 * FORM is q4, else 0. Errors: GLM_EPLAN naming the expression and place; a result that is not
 * finite is one. */
enum glm_status glm_expression_eval(const char *expression, const struct glm_plan_param *params,
                                    uint32_t n_params, const struct glm_cost_context *context,
                                    double *out, struct glm_error *err);

/* A kernel's launches over a bucket in numbers: n_launches that are alike, one after the other with
 * the same scratch and tickets; first_row of the i-th is i * rows. */
struct glm_launch_shape {
    uint32_t block, grid[3], min_blocks, shared_bytes, n_tickets;
    uint32_t rows; /* that a launch takes at most; 0: all, in one launch */
    uint32_t n_launches;
    uint64_t scratch_bytes;
};
/* At the maxima of a bucket. Errors: GLM_EPLAN naming kernel, manifest and key: a block that is no
 * multiple of 32 up to 1024, a grid that no GPU takes, too much shared memory, no launch. */
enum glm_status glm_manifest_shape(const struct glm_manifest *m, const struct glm_plan_kernel *k,
                                   const struct glm_cost_context *bucket,
                                   struct glm_launch_shape *out, struct glm_error *err);

/* Checks a plan kernel against its manifest: all parameters present, in range, none unknown.
 * GLM_EPLAN naming manifest, parameter, value and allowed values. */
enum glm_status glm_manifest_check(const struct glm_manifest *m, const struct glm_plan_kernel *k,
                                   struct glm_error *err);

#endif
