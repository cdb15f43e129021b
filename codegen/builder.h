/* SPDX-License-Identifier: Apache-2.0 */
/* What the blocks of the model (graph_*.c) build a rank's plan with: growing lists of weights,
 * states, buffers, kernels and blocks, and the step list that is being written. Private to codegen.
 *
 * A failed allocation or form is remembered in the builder; blocks do not check, graph.c does. */
#ifndef GLM_CODEGEN_BUILDER_H
#define GLM_CODEGEN_BUILDER_H

#include "codegen/graph.h"

enum { GLM_BUILD_MAX_PARTS = 8 };

/* What a weight's bytes are counted as in the plan's memory table. */
enum glm_weight_class {
    GLM_CLASS_EXPERTS,
    GLM_CLASS_DENSE,
    GLM_CLASS_HEAD,
    GLM_CLASS_EMBEDDING,
    GLM_CLASS_OTHER,
    GLM_N_CLASSES
};

/* Layers whose block is the same on this rank. When the uneven unit rotates, layers of different
 * shares are different sites and every name of theirs carries the suffix; else it is "". */
struct glm_site {
    const char *suffix;
    const uint32_t *layers;
    uint32_t n_layers;
    struct glm_shares shares;
};

/* A growing array in the arena. */
struct glm_list {
    void *items;
    uint32_t n, capacity;
};

struct glm_builder {
    struct arena *arena;
    struct glm_error *err;
    enum glm_status status; /* the first failure */
    const struct glm_cluster *cluster;
    const struct glm_checkpoint *checkpoint; /* NULL in a test: stored dtypes by form */
    const struct glm_lane *lane;
    const struct glm_model *model;
    uint32_t rank, world;
    struct glm_list weights, states, buffers, kernels, blocks, programs;
    struct glm_list classes;     /* enum glm_weight_class of each weight */
    struct glm_list kernel_base; /* const char *, the name each kernel was asked for by */
    struct glm_list steps;       /* the block or program that is open */
    const char *attention_suffix[GLM_MAX_LAYERS]; /* of each layer's attention site */
    const char *ffn_block[GLM_MAX_LAYERS];
};

void *glm_list_add(struct glm_builder *b, struct glm_list *list, size_t size);
#define GLM_ADD(b, list, type) ((type *)glm_list_add((b), &(b)->list, sizeof(type)))

const char *glm_text(struct glm_builder *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* `name` of this site. */
const char *glm_site_name(struct glm_builder *b, const struct glm_site *site, const char *name);

/* ---- slices ---- */

struct glm_slice glm_slice_all(uint64_t n);
/* Share of a dimension whose element is `width` rows (or columns). */
struct glm_slice glm_slice_share(struct glm_share share, uint64_t width);

/* ---- weights ---- */

/* A tensor under "model.language_model.layers.{L}." (site given) or whole name (site NULL). */
struct glm_part_def {
    const char *tensor;
    uint64_t n_rows, n_cols; /* uncut */
    struct glm_slice rows, cols;
};
struct glm_weight_def {
    const char *name;
    enum glm_weight_class class;
    const char *form;
    uint32_t n_members;                             /* 0 means 1 */
    struct glm_part_def parts[GLM_BUILD_MAX_PARTS]; /* ends at the first without tensor */
};
/* Adds the weight "layers.{L}.NAME" with the site's suffix, or NAME; returns that name. */
const char *glm_build_weight(struct glm_builder *b, const struct glm_site *site,
                             const struct glm_weight_def *def);
/* A whole vector of n elements, kept as `form`, replicated. */
const char *glm_build_vector(struct glm_builder *b, const struct glm_site *site, const char *name,
                             const char *tensor, const char *form, uint64_t n);
/* The device form of a dense matrix of this lane, decided from its uncut inputs k and the width of
 * the unit its inputs are cut by (0: not cut), so that it is the same for every TP:
 * q4 needs groups of 64, fp8 of 128; q4 falls back to fp8, fp8 to bf16 (docs/formats.md 5). */
const char *glm_build_form(enum glm_matrix_form wanted, uint64_t k, uint64_t cut_unit);

/* ---- states and buffers ---- */

const char *glm_build_state(struct glm_builder *b, const struct glm_site *site,
                            const struct glm_plan_state *state);
/* Rows of a ring that outlive the widest round: the `keep` rows before it and its verify rows, a
 * power of two, at least 32. */
uint32_t glm_ring_rows(uint32_t keep, uint32_t n_verify_rows);
/* Adds the buffer, or widens the one that has this name. Returns name. */
const char *glm_build_buffer(struct glm_builder *b, const char *name, const char *dtype,
                             uint64_t n_cols, enum glm_buffer_per per);

/* ---- kernels and steps ---- */

#define GLM_INT(name_, value_, origin_)                                  \
    {                                                                    \
        .name = (name_), .value = (int64_t)(value_), .origin = (origin_) \
    }
#define GLM_WORD(name_, text_, origin_)                       \
    {                                                         \
        .name = (name_), .text = (text_), .origin = (origin_) \
    }
#define GLM_PARAMS(...)             \
    (const struct glm_plan_param[]) \
    {                               \
        __VA_ARGS__,                \
        {                           \
            .name = NULL            \
        }                           \
    }
#define GLM_ARGS(...)     \
    (const char *const[]) \
    {                     \
        __VA_ARGS__, NULL \
    }

/* The shortest decimal that reads back as the value, with a point or an exponent. */
const char *glm_float_text(struct glm_builder *b, double value);

/* Adds a kernel, or finds the one asked for by this base name with equal parameters: sites with
 * equal shares run the same kernel. Returns its name in the plan. params end with a NULL name. */
const char *glm_build_kernel(struct glm_builder *b, const char *base, const char *template_name,
                             const struct glm_plan_param *params);
/* The kernels that convert the weights on a device, one for each pair of stored and device form: no
 * step names them. */
void glm_build_converters(struct glm_builder *b);
/* Steps of the open list. args: name, value pairs, NULL at the end; a value "@NAME" means the
 * site's "layers.{L}.NAME", a NULL value leaves the argument out. site may be NULL. */
void glm_step_kernel(struct glm_builder *b, const struct glm_site *site, const char *kernel,
                     const char *const *args);
void glm_step_sum(struct glm_builder *b, const char *from, const char *to);
void glm_step_gather(struct glm_builder *b, const char *from, const char *to);
void glm_step_block(struct glm_builder *b, const char *block, uint32_t layer);
void glm_step_mark(struct glm_builder *b, const char *mark);
/* The open list becomes a block or a program, and an empty one is opened. inputs, outputs: NULL at
 * the end. */
void glm_close_block(struct glm_builder *b, const char *name);
void glm_close_program(struct glm_builder *b, const char *name, const char *arena,
                       const char *const *inputs, const char *const *outputs);

/* y[rows, N] = x[rows, K] · W^T: kernel and step. Shape and form are the weight's. */
struct glm_matmul {
    const char *kernel;          /* base name */
    const char *x, *y;           /* buffers, with +COLUMN */
    const char *w;               /* "NAME" or "@NAME" as in args */
    uint64_t x_stride, y_stride; /* elements; 0: K and N */
    const char *out;             /* "f32"; NULL: "act" */
    const char *rows;            /* "out"; NULL: "round" */
};
void glm_step_matmul(struct glm_builder *b, const struct glm_site *site,
                     const struct glm_matmul *mm);
/* Ends a block whose result is the rank's partial sum: the exchange, when there are peers. */
void glm_step_exchange(struct glm_builder *b);
/* The buffer the next hyper-connection site reads: "partial", or "summed" with peers. */
const char *glm_exchanged(const struct glm_builder *b);

/* Gate and up, SwiGLU, down of the tensors TENSORS.{gate,up,down}_proj from u into `to` (fp32),
 * with weights, buffers and kernels named PREFIX. */
void glm_step_swiglu(struct glm_builder *b, const struct glm_site *site, const char *prefix,
                     const char *tensors, uint64_t width, struct glm_share share, const char *to);

/* ---- the blocks of the model, one a file ---- */

void glm_graph_embed(struct glm_builder *b);
void glm_graph_hc(struct glm_builder *b, const struct glm_site *all);
void glm_graph_kda(struct glm_builder *b, const struct glm_site *site);
void glm_graph_dsa(struct glm_builder *b, const struct glm_site *site);
void glm_graph_dense(struct glm_builder *b, const struct glm_site *site);
void glm_graph_moe(struct glm_builder *b, const struct glm_site *site);
void glm_graph_head(struct glm_builder *b);
void glm_graph_sample(struct glm_builder *b);
/* Steps that open and close a forward program. */
void glm_steps_embed(struct glm_builder *b);
void glm_steps_head(struct glm_builder *b);

#endif
