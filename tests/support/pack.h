/* SPDX-License-Identifier: Apache-2.0 */
/* Writes safetensors checkpoints for tests: the tensors that a geometry expects, spoiled as the
 * test wants, in one file or several with an index. Data areas are holes of the right size, so that
 * a set of the full pack's size costs only its headers. */
#ifndef GLM_TESTS_PACK_H
#define GLM_TESTS_PACK_H

#include "spec/checkpoint.h"

#include <stdbool.h>

struct pack_tensor {
    char name[160];
    char dtype[16];
    uint64_t shape[GLM_MAX_DIMS];
    uint32_t n_dims;
    uint32_t file;
    bool dropped;
    bool hidden; /* in the index, in no file */
};

struct pack {
    struct pack_tensor *tensors;
    uint32_t n, capacity;
    uint32_t n_files;   /* 1: model.safetensors, without an index */
    int64_t total_size; /* of the index; -1: the true one */
};

/* All tensors of the geometry and its tower; exl3_bits 0: plain experts. Aborts without memory. */
void pack_init(struct pack *p, const struct glm_model *m, uint32_t exl3_bits, uint32_t n_files);
void pack_release(struct pack *p);
/* The tensor of that name; aborts when there is none, which is a mistake of the test. */
struct pack_tensor *pack_get(struct pack *p, const char *name);
struct pack_tensor *pack_add(struct pack *p, const char *name, const char *dtype, uint32_t n_dims,
                             uint64_t d0, uint64_t d1, uint64_t d2);
/* Headers, holes and, with several files, the index. */
void pack_write(const struct pack *p, const char *folder);

/* 8 length bytes, the header and a hole of data_bytes. */
void pack_write_raw(const char *path, const char *header, uint64_t data_bytes);
void pack_write_text(const char *folder, const char *file, const char *text);
/* A new folder below $TMPDIR or /tmp; the caller removes it. */
const char *pack_folder(char *path, size_t size);
void pack_remove_folder(const char *path);

#endif
