/* SPDX-License-Identifier: Apache-2.0 */
/* A small world for the sparse attention kernels: weights, the whole inputs of some streams, their
 * cache planes, and the rounds that a test runs over them: prepare, select, attend. */
#ifndef GLM_TESTS_DSA_WORLD_H
#define GLM_TESTS_DSA_WORLD_H

#include "tests/support/reference_b.h"
#include "tests/support/simt.h"
#include "tests/support/streams.h"

enum {
    DSA_STREAMS = 2,
    DSA_Q = 96,
    DSA_C = 128,
    DSA_D = 64,
    DSA_POOL = 4,
    DSA_RING = 24,
    DSA_INDEX_HEADS = 4,
    DSA_HEADS = 3,
    DSA_MAX_POOLS = 700, /* of the longest context; one number for all keeps builds few */
};
#define DSA_SCALE 0.125f

struct dsa_world {
    size_t n_tokens, topk;
    const char *act, *kv;
    float *q_norm, *kv_norm, *k_norm, *k_bias, *ape;
    void *q_norm_bits, *kv_norm_bits, *k_norm_bits, *k_bias_bits, *ape_bits;
    /* [n_tokens][Q+C], [D], [D], [index heads · D], [index heads], [heads · C] */
    float *qkv[DSA_STREAMS], *ik[DSA_STREAMS], *ig[DSA_STREAMS], *iq[DSA_STREAMS], *w[DSA_STREAMS],
        *q[DSA_STREAMS];
    struct test_kernel *prepare, *select, *attend;
    /* set: run in place of the host's */
    struct test_device_kernel *device_prepare, *device_select, *device_attend;
    int32_t bucket_context; /* of their launches */
};

struct dsa_run {
    const struct dsa_world *world;
    char *latent, *keys, *pooled;
    int32_t n_context[DSA_STREAMS];
    /* As rounds computed them, by position. */
    void *qr[DSA_STREAMS], *out[DSA_STREAMS]; /* act [n_tokens][Q], [n_tokens][heads · C] */
    int32_t *sel[DSA_STREAMS];                /* [n_tokens][1 + topk] */
};

/* build: NULL is the default one. */
void dsa_world_init(struct dsa_world *w, const struct test_build *build, size_t n_tokens,
                    size_t topk, const char *kv, const char *act);
/* Runs the CUDA bodies from here on, in that of template `name` (NULL: none) `was` replaced by
 * `is`.
 */
void dsa_world_use_device(struct dsa_world *w, const char *name, const char *was, const char *is);
void dsa_world_release(struct dsa_world *w);
void dsa_run_init(struct dsa_run *r, const struct dsa_world *w);
void dsa_run_release(struct dsa_run *r);

/* One round of n_rows[i] rows of stream i, of which n_commit[i] stay. */
void dsa_round(struct dsa_run *r, const int32_t *n_rows, const int32_t *n_commit, size_t n_padding,
               uint32_t threads);

size_t dsa_row_bytes(const struct dsa_world *w, size_t width);
const char *dsa_latent_row(const struct dsa_run *r, size_t stream, int32_t position);
const char *dsa_pooled_row(const struct dsa_run *r, size_t stream, int32_t pool);
/* A cache row as floats. */
void dsa_decode_row(const struct dsa_world *w, const char *row, size_t width, float *values);
/* Whole caches and outputs, what no row wrote included, are the same. */
bool dsa_same_memory(const struct dsa_run *a, const struct dsa_run *b);
/* Caches below n_context, and all that the rounds gave for those rows, are the same. */
void dsa_same(const struct dsa_run *a, const struct dsa_run *b, size_t stream, const char *what);

#endif
