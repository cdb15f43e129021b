/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint folder's config.json and safetensors headers → model geometry and a tensor index.
 * Never tensor data. Every byte is hostile: sizes, offsets and counts are checked before use.
 * Containers, and what must be detected in them: docs/formats.md 1. */
#ifndef GLM_SPEC_CHECKPOINT_H
#define GLM_SPEC_CHECKPOINT_H

#include "spec/base/arena.h"
#include "spec/base/diag.h"
#include "spec/base/error.h"
#include "spec/model.h"

/* Stored element types, as safetensors spells them. */
/* clang-format off */
#define GLM_DTYPE_MAP(X)                                                                           \
    X(GLM_F64, "F64", 8) X(GLM_I64, "I64", 8) X(GLM_U64, "U64", 8) X(GLM_F32, "F32", 4)            \
    X(GLM_I32, "I32", 4) X(GLM_U32, "U32", 4) X(GLM_F16, "F16", 2) X(GLM_BF16, "BF16", 2)          \
    X(GLM_I16, "I16", 2) X(GLM_U16, "U16", 2) X(GLM_F8_E4M3, "F8_E4M3", 1)                         \
    X(GLM_F8_E5M2, "F8_E5M2", 1) X(GLM_F8_E8M0, "F8_E8M0", 1) X(GLM_U8, "U8", 1)                   \
    X(GLM_I8, "I8", 1) X(GLM_BOOL, "BOOL", 1)
/* clang-format on */
enum glm_dtype {
#define GLM_DTYPE_ENUM(name, text, bytes) name,
    GLM_DTYPE_MAP(GLM_DTYPE_ENUM)
#undef GLM_DTYPE_ENUM
};
uint32_t glm_dtype_bytes(enum glm_dtype dtype);
const char *glm_dtype_text(enum glm_dtype dtype);

enum { GLM_MAX_DIMS = 6 }; /* a patch embedding has 5 */

struct glm_tensor {
    const char *name;
    enum glm_dtype dtype;
    uint32_t n_dims;
    uint64_t shape[GLM_MAX_DIMS];
    uint32_t file;   /* index into files[] */
    uint64_t offset; /* bytes from the start of the file */
    uint64_t size_bytes;
    const char *role; /* as glm_expected_tensor; "" for a tensor the geometry does not ask for */
    uint32_t fan_in;
};

enum glm_checkpoint_kind { GLM_CHECKPOINT_FILES, GLM_CHECKPOINT_SYNTHETIC };

/* Owner: the compiling thread; glmd reads it while loading. Everything lives in the arena. */
struct glm_checkpoint {
    enum glm_checkpoint_kind kind;
    const char *folder;       /* NULL for a built-in synthetic geometry */
    const char *const *files; /* names inside folder, in byte order */
    const uint64_t *file_bytes;
    uint32_t n_files;
    struct glm_tensor *tensors; /* sorted by name in byte order */
    uint32_t n_tensors;
    struct glm_model model;
    bool experts_exl3;     /* routed experts are stored as EXL3 groups */
    uint32_t exl3_bits;    /* rate K of the routed experts, 1..8 */
    char exl3_codebook[8]; /* "mcg", "mul1" or "3inst" */
    char digest[65];       /* SHA-256 over config, headers, file sizes and the number of
                         token ids, hex */
    const uint32_t *slots; /* glm_checkpoint_find's hash table: tensor index + 1, 0 free */
    uint32_t n_slots;      /* a power of two */
};

/* Opens `where`: a folder, or "synthetic:NAME" ("glm-5.3-flash", "small8": experts in EXL3; with
 * "-bf16" after the name as plain weights, with ":N" behind that its first N layers alone), or
 * "synthetic:FOLDER" (geometry and storage kinds of that folder's checkpoint). Reads config and
 * every header, checks every tensor the geometry expects for presence, shape and dtype, takes the
 * number of token ids from tokenizer.json where the folder has one, adds each independent problem
 * to diags and returns GLM_ECHECKPOINT if there was one. A tower or MTP layer that the config
 * states and no tensor holds is left out of the geometry with a warning. A hub id is resolved by
 * the caller (cluster.h). */
enum glm_status glm_checkpoint_open(const char *where, struct arena *arena, struct diag_list *diags,
                                    struct glm_checkpoint **out);

/* The tensor of that name, or NULL; hashed, O(1). A synthetic checkpoint answers with the shape and
 * dtype that the geometry gives and offset 0. */
const struct glm_tensor *glm_checkpoint_find(const struct glm_checkpoint *c, const char *name);

/* One header alone, as the fuzz target and the loader use it: bytes are the whole file's first
 * header_len bytes, file_bytes its size. Sets *tensors and *n_tensors (in the arena, header order,
 * `file` 0).
 * Errors: GLM_ECHECKPOINT with a docs/formats.md 1 message naming file_name. */
enum glm_status glm_safetensors_header(const char *file_name, const void *bytes, size_t header_len,
                                       uint64_t file_bytes, struct arena *arena,
                                       struct glm_tensor **tensors, uint32_t *n_tensors,
                                       struct glm_error *err);

/* config.json → geometry. Errors: GLM_ECHECKPOINT naming the key, the value and what is supported.
 */
enum glm_status glm_model_parse(const char *json, size_t len, struct glm_model *out,
                                struct glm_error *err);

/* Calls visit (whose tensor and name live for the call only) for every tensor that the language
 * model of this geometry must have, in layer order: one table of (pattern, shape, dtype, when)
 * drives check, synthesis and the parameter count. `exl3_bits` 0: experts as plain weights. shape[]
 * as stored, [out, in]. MTP layer included. */
struct glm_expected_tensor {
    const char *name;
    uint32_t n_dims;
    uint64_t shape[GLM_MAX_DIMS];
    enum glm_dtype dtype;
    const char *role; /* key of the synthetic range table; static */
    uint32_t fan_in;  /* inputs of the matrix it belongs to: what its magnitude follows */
    bool flat;        /* published with other axes of the same element count (A_log, convs) */
};
typedef enum glm_status (*glm_expected_visit)(void *context, const struct glm_expected_tensor *t);
enum glm_status glm_model_tensors(const struct glm_model *m, uint32_t exl3_bits,
                                  glm_expected_visit visit, void *context);
/* The same for the vision tower; nothing without one. */
enum glm_status glm_vision_tensors(const struct glm_model *m, glm_expected_visit visit,
                                   void *context);

/* Parameters as docs/model.md 1 counts them. */
struct glm_parameters {
    uint64_t backbone, mtp, vision, routed_experts_layer;
};
struct glm_parameters glm_model_parameters(const struct glm_model *m);

/* Element i of an uncut tensor of a synthetic checkpoint is a hash of (name, i) mapped to the range
 * of its role (design 8): kernels-templates/synthetic.h, which whoever calls these includes.
 * Trellis words are the hash's own bits. */
struct glm_synthetic_values;
struct glm_synthetic_values glm_synthetic_of(const struct glm_tensor *t);
/* Raw bits of element i in the low bytes. Pure. */
uint64_t glm_synthetic_element(const struct glm_synthetic_values *s, uint64_t i);
/* Elements first .. first + n - 1 as stored, n * glm_dtype_bytes(dtype) bytes into out. */
void glm_synthetic_fill(const struct glm_synthetic_values *s, uint64_t first, uint64_t n,
                        void *out);

/* What only the data can show of an EXL3 group, once the loader holds a whole tensor's bytes:
 * marker value, finite and not all zero scales (docs/formats.md 1). Other roles pass.
 * Errors: GLM_ECHECKPOINT. */
enum glm_status glm_exl3_verify(const struct glm_tensor *t, const void *bytes,
                                struct glm_error *err);

#endif
