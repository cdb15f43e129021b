/* SPDX-License-Identifier: Apache-2.0 */
/* Real ranks in one test: a checkpoint opened, its lane planned, the kernels built and an engine a
 * rank, ranks beyond the first as threads that follow rank 0. And the golden values of pico. Every
 * function fails the test with the error's text. */
#ifndef GLM_TESTS_PICO_H
#define GLM_TESTS_PICO_H

#include "runtime/engine.h"
#include "spec/cluster.h"

/* Zero fields: pico exl3, one rank, two threads (one with peers), 8 streams, window 8192, prefill
 * slices of 512, one verify row, a pool of 8 streams of 2 extents, fp32 everything, shm. */
struct pico_options {
    const char *checkpoint;
    const char *transport;
    uint32_t world, n_threads, n_streams, window, prefill_rows, verify_rows, pool_tokens;
    struct glm_formats formats; /* experts follow the checkpoint */
    bool rotate_uneven;
    bool eager; /* followers wait for the next list itself, as glmd's do, even while the test reads
                 */
    /* set: these plans, one a rank, of this checkpoint instead of a lane of `checkpoint` */
    struct glm_plan **plans;
    struct glm_checkpoint *plans_checkpoint;
    uint64_t memory_limit_bytes;
    /* gpu: on a GPU, with bf16 activations and KV: that of $GLM_TEST_GPU, else the one of
     * tests/fake. With $GLM_TEST_GPU all ranks are there, but for those that say `host`. */
    bool gpu, host;
    /* How many GPUs, from that one on, the ranks take turns on; 0: $GLM_TEST_GPUS, else 1. With one
     * a rank its exchanges are in its graphs. */
    uint32_t gpus;
    bool proxy; /* has the host run them where the GPUs could do it in each other's memory */
    bool twin;  /* engines that run no lists, for selftest.h */
};

/* NULL where pico_options.gpu works, else why it does not. */
const char *pico_gpu_missing(void);
/* The same for that many of them: $GLM_TEST_GPUS, or the fake ones. */
const char *pico_gpus_missing(uint32_t n);

struct pico;
/* The kernel cache's folder, unless $GLM_CACHE_DIR names one, and this build's sanitizers for
 * kernels. */
void pico_environment(void);
/* Is this a sanitizer's build? Kernels run many times slower there, so tests take a part of their
 * cases; which, they print. */
bool pico_slow(void);
struct pico *pico_open(const struct pico_options *options);
void pico_close(struct pico *p);
struct glm_engine *pico_engine(const struct pico *p, uint32_t rank);
const struct glm_plan *pico_plan(const struct pico *p, uint32_t rank);
const struct glm_checkpoint *pico_checkpoint(const struct pico *p);
const char *const *pico_kernels(const struct pico *p, uint32_t rank);

/* One list on all ranks; returns when every rank has done it. */
enum glm_status pico_try(struct pico *p, const struct glm_op *ops, uint32_t n_ops,
                         struct glm_round_result *result, struct glm_error *err);
struct glm_round_result pico_run(struct pico *p, const struct glm_op *ops, uint32_t n_ops);
/* A rank above 0 is gone, with its links, as if its process were, within 0.1 s; from any thread.
 * Lists end with GLM_EPEER from then on. */
void pico_kill(struct pico *p, uint32_t rank);
/* Exchanges that a rank has begun; from any thread. */
uint64_t pico_exchanges(const struct pico *p, uint32_t rank);

/* Wanted logits row i of the last list, all ranks' shards in place: [d_vocab], valid until the next
 * call. */
const float *pico_logits(struct pico *p, uint32_t out_i);
/* XXH3-128 of that row. */
struct glm_hash pico_logits_hash(struct pico *p, uint32_t out_i);
/* Hashes of a stream's state on all ranks, hashed. */
struct glm_hash pico_state_hash(struct pico *p, uint32_t stream);
#define assert_hash_equal(a, b)                     \
    do {                                            \
        struct glm_hash hash_a = (a), hash_b = (b); \
        assert_int_equal(hash_a.low, hash_b.low);   \
        assert_int_equal(hash_a.high, hash_b.high); \
    } while (0)
bool hash_equal(struct glm_hash a, struct glm_hash b);

/* Fills a prompt in slices of at most `slice` rows (a multiple of 64) into an admitted stream; of
 * the last row the logits are wanted and, with a draw, a token. Returns it (-1 without a draw). */
int32_t pico_fill(struct pico *p, uint32_t stream, const int32_t *ids, uint32_t n, uint32_t slice,
                  const struct glm_draw *draw);
void pico_admit(struct pico *p, uint32_t stream, uint32_t n_tokens);
void pico_finish(struct pico *p, uint32_t stream);
/* One decode round of one row a stream with its COMMIT; draws may be NULL. tokens in and out. */
void pico_decode(struct pico *p, const uint32_t *streams, int32_t *tokens,
                 const struct glm_draw *draws, uint32_t n);

struct glm_draw pico_greedy(void);

/* tests/golden/pico/NAME.{json,safetensors} */
struct golden;
struct golden_case {
    const char *name;
    int32_t *ids, *reply;
    uint32_t n_ids, n_reply;
    double smallest_margin;
};
struct golden *golden_open(const char *name);
void golden_free(struct golden *g);
uint32_t golden_count(const struct golden *g);
struct golden_case golden_case(const struct golden *g, uint32_t i);
/* Values of tensor CASE.NAME, or NULL when there is none; *n elements. */
const float *golden_tensor(const struct golden *g, const char *name, const char *suffix,
                           uint64_t *n);

double relative_l2(const float *got, const float *want, uint64_t n);

#endif
