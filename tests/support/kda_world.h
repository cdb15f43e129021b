/* SPDX-License-Identifier: Apache-2.0 */
/* A small world for the KDA kernels: weights, the whole inputs of some streams, their state planes,
 * and the rounds that a test runs over them. */
#ifndef GLM_TESTS_KDA_WORLD_H
#define GLM_TESTS_KDA_WORLD_H

#include "tests/support/reference_b.h"
#include "tests/support/simt.h"
#include "tests/support/streams.h"

enum kda_op { KDA_DECODE, KDA_REPLAY, KDA_PREFILL, KDA_OPS };
enum { KDA_STREAMS = 3, KDA_RING = 24, KDA_VERIFY = 16, KDA_TAPS = 4 };

/* Inputs are per stream; a stream's slot is another number than its index. */
struct kda_world {
    size_t h, d, n_tokens;
    const char *act;
    struct reference_kda weights;
    void *conv_w_bits, *o_norm_bits, *a_log_bits, *dt_bias_bits; /* what kernels are given */
    float *conv_w, *a_log, *dt_bias, *o_norm;
    float *proj[KDA_STREAMS], *b[KDA_STREAMS], *f[KDA_STREAMS], *g[KDA_STREAMS];
    size_t out_bytes; /* of a row */
    char params[KDA_OPS][320];
    struct test_kernel *kernels[KDA_OPS];
    struct test_device_kernel *device[KDA_OPS]; /* the CUDA bodies, with kda_world_device */
};

/* Where the streams of one run stand. */
struct kda_run {
    const struct kda_world *world;
    bool on_device; /* CUDA bodies on the emulator, in place of the host's */
    void *conv, *s;
    int32_t n_context[KDA_STREAMS], version[KDA_STREAMS];
    void *out[KDA_STREAMS]; /* [n_tokens][h·d] act, as rounds computed them */
};

/* decay: mean of the decay gate's input; large: fast decay. build: NULL is the default one. */
void kda_world_init(struct kda_world *w, const struct test_build *build, size_t h, size_t d,
                    size_t n_tokens, float decay, const char *act);
/* Its CUDA bodies; act is bf16. */
void kda_world_device(struct kda_world *w);
void kda_world_release(struct kda_world *w);
void kda_run_init(struct kda_run *r, const struct kda_world *w);
void kda_run_release(struct kda_run *r);

/* One decode round: n_rows[i] rows of stream i, of which n_commit[i] are kept. */
void kda_decode(struct kda_run *r, const int32_t *n_rows, const int32_t *n_commit, size_t n_padding,
                uint32_t threads);
/* The next n rows of one stream as a prefill chunk. */
void kda_prefill(struct kda_run *r, size_t stream, int32_t n, uint32_t threads);

/* The committed state [h][d][d] of a stream and the ring row of a position. */
const float *kda_state(const struct kda_run *r, size_t stream);
const void *kda_ring_row(const struct kda_run *r, size_t stream, int32_t position);
/* Whole planes and outputs, what no row wrote included, are the same. */
bool kda_same_memory(const struct kda_run *a, const struct kda_run *b);
/* State and ring rows that matter of two runs, and their outputs below n_context, are the same. */
void kda_same(const struct kda_run *a, const struct kda_run *b, size_t stream, const char *what);
/* Largest relative distance of the outputs of rows [0, n_context) and of the state from the oracle.
 */
double kda_out_distance(const struct kda_run *r, size_t stream);
double kda_state_distance(const struct kda_run *r, size_t stream);

#endif
