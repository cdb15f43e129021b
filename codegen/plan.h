/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's plan as data (design 1): weights, state, buffers, kernels, blocks and programs. Built by
 * graph.h from a resolved cluster, written and read as JSON (schema: docs/schema/rank-plan.json),
 * executed by the runtime, which knows nothing else of the model.
 *
 * Names of weights, states and buffers share one namespace. `{L}` in a name is the layer index
 * that a block call binds; `{E}` in a tensor name counts the members that a family stacks. */
#ifndef GLM_CODEGEN_PLAN_H
#define GLM_CODEGEN_PLAN_H

#include "spec/base/arena.h"
#include "spec/base/buf.h"
#include "spec/base/error.h"

enum { GLM_PLAN_FORMAT = 1, GLM_PLAN_MAX_ARGS = 24 };

/* A strided choice of rows or columns of an uncut tensor: `groups` groups of `take` elements, group
 * g starting at first + g * stride. A plain range is one group. take 0: the rank has no share. */
struct glm_slice {
    uint64_t first, take, groups, stride;
};

/* One tensor's contribution to a weight; parts are stacked along rows. */
struct glm_plan_part {
    const char *tensor; /* checkpoint name, `{L}`, `{E}` in it; EXL3: the prefix without suffix */
    uint64_t n_rows, n_cols; /* uncut shape [out, in]; vectors are [1, n] */
    struct glm_slice rows, cols;
};

/* Device forms (planes in codegen/forms.h, converters in runtime/form_*.c):
 * f32, bf16, bf16_t (each part transposed), q4, fp8, and exl3 with rate and codebook, spelled as
 * the stored form is: "exl3:4:mcg". */
struct glm_plan_weight {
    const char *name;       /* "layers.{L}.kda.in" */
    const uint32_t *layers; /* values of {L}; n_layers 0: no placeholder */
    uint32_t n_layers;
    uint32_t n_members; /* stacked members {E}; 1 when there is none */
    const char *stored; /* "bf16", "f32", "exl3:4:mcg" */
    const char *form;   /* device form */
    const char *load;   /* the kernel that makes it of the stored form (kernels-templates/load.h);
                           NULL on a host, whose converters are runtime/forms.h */
    uint64_t n_rows, n_cols; /* of one member on this rank, all parts stacked: [out, in] */
    uint64_t bytes;          /* one layer's weight, all members, device form */
    struct glm_plan_part *parts;
    uint32_t n_parts;
};

enum glm_state_unit { GLM_UNIT_TOKEN, GLM_UNIT_POOL, GLM_UNIT_STREAM, GLM_UNIT_RING };

/* Planes of rows that belong to streams. Address of a row, from the plane's base:
 *   token   (extent of position * 2048 + position % 2048) * row_bytes
 *   pool    the same over position / per, extents of 2048 / per rows
 *   stream  (slot * versions + version) * row_bytes
 *   ring    (slot * ring + position % ring) * row_bytes */
struct glm_plan_state {
    const char *name; /* "layers.{L}.latent" */
    const uint32_t *layers;
    uint32_t n_layers;
    enum glm_state_unit unit;
    uint32_t per;      /* pool: tokens a row (4) */
    uint32_t ring;     /* ring: rows */
    uint32_t keep;     /* ring: rows before the context's end that still matter */
    uint32_t versions; /* stream: 1, or 2 when a round writes beside the committed version */
    uint64_t row_bytes;
    const char *dtype;       /* "f32", "bf16", "fp8" */
    bool split;              /* each rank holds its own share; else every rank holds all */
    int32_t position_offset; /* row of position p is p + offset */
    const char *rollback;    /* "position", "replay:KERNEL", "snapshot" */
};

enum glm_buffer_per { GLM_PER_ROW, GLM_PER_OUT, GLM_PER_ONCE };

/* Activations. Allocated once per arena that uses them: n * cols elements, n the arena's rows,
 * outs or 1. */
struct glm_plan_buffer {
    const char *name;
    const char *dtype; /* "act", "f32", "i32" */
    uint64_t n_cols;
    enum glm_buffer_per per;
};

struct glm_plan_arena {
    const char *name; /* "decode", "prefill" */
    uint32_t n_rows, n_outs;
};

struct glm_plan_param {
    const char *name;
    int64_t value;
    const char *text;   /* set for float and word parameters; then value is unused */
    const char *origin; /* where it comes from, for the emitted comment: "model.d_hidden" */
};

struct glm_plan_kernel {
    const char *name; /* unique in the plan: "mm.kda.in" */
    const char *template_name;
    struct glm_plan_param *params;
    uint32_t n_params;
};

enum glm_step_kind {
    GLM_STEP_KERNEL,
    GLM_STEP_SUM,
    GLM_STEP_GATHER,
    GLM_STEP_BLOCK,
    GLM_STEP_MARK
};

/* One step. kernel: args by the manifest's names, each "NAME" or "BUFFER+COLUMN" or "-" (null).
 * sum: adds `from` of all ranks in rank order into `to`, fp32. gather: `to` = ranks' `from` in
 * rank order. block: runs the block with {L} = layer. mark: a named place between steps, where a
 * prefill may be suspended (design 1 cuts) and a test may look at buffers. */
struct glm_plan_arg {
    const char *name;
    const char *value;
};
struct glm_plan_step {
    enum glm_step_kind kind;
    const char *name; /* kernel, block or mark */
    struct glm_plan_arg *args;
    uint32_t n_args;
    const char *from, *to;
    uint32_t layer;
};

struct glm_plan_block {
    const char *name;
    struct glm_plan_step *steps;
    uint32_t n_steps;
};

/* decode, prefill, commit, sample, sample_wide, sample_all. A program that a lane does not need
 * is absent. The design's `load` is the list of weights: in their order, each by its converter. */
struct glm_plan_program {
    const char *name;
    const char *arena;
    const char **inputs, **outputs; /* buffer names */
    uint32_t n_inputs, n_outputs;
    struct glm_plan_step *steps;
    uint32_t n_steps;
};

struct glm_plan_limits {
    uint32_t n_streams;
    uint32_t n_slots; /* streams + kept states */
    uint32_t window_tokens;
    uint64_t pool_tokens;  /* multiple of 2048 */
    uint32_t verify_rows;  /* of a stream in a round */
    uint32_t prefill_rows; /* multiple of 64 */
};

struct glm_plan_memory {
    const char *part; /* "experts", "dense", "head", "embedding", "other weights", "pool",
                         "streams", "decode buffers", "prefill buffers", "scratch", "exchanges",
                         "process", "requests" */
    uint64_t bytes;
};

struct glm_plan {
    uint32_t format_version;
    char set_digest[65]; /* SHA-256 over all rank plans of the set with this field empty */
    const char *model;   /* its name, for people */
    uint32_t rank, world;
    const char *target; /* "x86-64-v3", "x86-64-v4", "armv8.2-a", "sm_121a", … */
    const char *act;    /* "f32" or "bf16" */
    uint32_t d_vocab;
    uint32_t n_valid_ids; /* ids a draw may return: those below this */
    const uint32_t *end_ids;
    uint32_t n_end_ids;
    struct glm_plan_limits limits;
    struct glm_plan_weight *weights;
    uint32_t n_weights;
    struct glm_plan_state *states;
    uint32_t n_states;
    struct glm_plan_arena *arenas;
    uint32_t n_arenas;
    struct glm_plan_buffer *buffers;
    uint32_t n_buffers;
    struct glm_plan_kernel *kernels;
    uint32_t n_kernels;
    struct glm_plan_block *blocks;
    uint32_t n_blocks;
    struct glm_plan_program *programs;
    uint32_t n_programs;
    struct glm_plan_memory *memory;
    uint32_t n_memory;
};

/* JSON, one weight, state, buffer, kernel or step a line; the same plan gives the same bytes. */
enum glm_status glm_plan_write(const struct glm_plan *p, struct buf *out, struct glm_error *err);

/* Reads and checks a rank plan: every name resolves, every slice lies in its tensor, every count is
 * bounded, a block calls no block and is only called with layers that all it names have, bytes are
 * those of the device form. Hostile input gets GLM_EPLAN naming the place. */
enum glm_status glm_plan_read(const char *json, size_t len, struct arena *arena,
                              struct glm_plan **out, struct glm_error *err);

/* Sets set_digest in all plans of one set. */
enum glm_status glm_plan_seal(struct glm_plan *const *plans, uint32_t n, struct glm_error *err);
/* Computes the digest that the set should carry, hex into digest[65]. */
enum glm_status glm_plan_set_digest(struct glm_plan *const *plans, uint32_t n, char digest[65],
                                    struct glm_error *err);
/* SHA-256 of the bytes that glm_plan_write gives for a sealed plan: of its file. */
enum glm_status glm_plan_digest(const struct glm_plan *plan, char digest[65],
                                struct glm_error *err);

/* The same rank with as few layers as still launch every kernel in every program, and a pool of at
 * most pool_tokens (a multiple of 2048): what a self-test runs where all of it would not fit beside
 * its oracle. The model that it computes is another one, and its memory table is empty. Shares p's
 * strings; in the arena. Errors: GLM_ENOMEM. */
enum glm_status glm_plan_cut(const struct glm_plan *p, uint64_t pool_tokens, struct arena *arena,
                             struct glm_plan **out, struct glm_error *err);

/* A GPU's plan for a host of that target: the same but for the kernels that no step names, which
 * convert weights and meet other GPUs. Steps' kernels keep their index. Shares p's memory; in the
 * arena. GLM_ENOMEM. */
enum glm_status glm_plan_host_twin(const struct glm_plan *p, const char *target,
                                   struct arena *arena, struct glm_plan **out,
                                   struct glm_error *err);

const struct glm_plan_kernel *glm_plan_kernel(const struct glm_plan *p, const char *name);
const struct glm_plan_program *glm_plan_program(const struct glm_plan *p, const char *name);
const struct glm_plan_block *glm_plan_block(const struct glm_plan *p, const char *name);
const struct glm_plan_buffer *glm_plan_buffer(const struct glm_plan *p, const char *name);
uint64_t glm_plan_total_bytes(const struct glm_plan *p);

/* Bytes of one member in a device form, a multiple of 64; 0 when a dimension is 0.
 * Errors: GLM_EPLAN for an unknown form or a shape it cannot hold. */
enum glm_status glm_form_bytes(const char *form, uint64_t n_rows, uint64_t n_cols, uint64_t *bytes,
                               struct glm_error *err);

#endif
