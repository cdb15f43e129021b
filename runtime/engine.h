/* SPDX-License-Identifier: Apache-2.0 */
/* The seam between serving and execution. Rank 0 hands over one operation list a round; every rank
 * runs the same list in the same order (design 6). The engine owns slots, pool extents and state
 * planes; it knows no tokenizer, no HTTP, no model.
 *
 * Owner: the round thread. Nothing here allocates after glm_engine_open. */
#ifndef GLM_RUNTIME_ENGINE_H
#define GLM_RUNTIME_ENGINE_H

#include "codegen/plan.h"
#include "kernels-templates/round.h"
#include "runtime/collective.h"
#include "spec/checkpoint.h"

#include <stdbool.h>

enum { GLM_MAX_VERIFY_ROWS = 16, GLM_MAX_OPS = 128 };

/* Operations. A list holds one FILL at most and one run of DECODEs at most. Rows that were decoded
 * must be committed (COMMIT) before their stream does anything else but FINISH, and before the next
 * DECODE of any stream. A stream is named by its index 0..limits.n_streams-1, a kept state by its
 * index 0..n_slots-n_streams-1; both chosen by the caller. */
enum glm_op_kind {
    GLM_OP_ADMIT,   /* stream, n_tokens: claim slot and extents for that many tokens; empty state */
    GLM_OP_FILL,    /* stream, tokens[n]: prefill rows from its context's end, which must lie on the
                       64-token grid; n is a multiple of 64 unless this ends the prompt. Committed
                       at once. out_from: index of the first row whose logits are wanted (n: none) */
    GLM_OP_DECODE,  /* stream, tokens[n], n <= verify_rows: one decode step; all DECODE ops that
                       follow each other run as one program. Logits wanted for every row. */
    GLM_OP_COMMIT,  /* stream, n: keep n of the rows just decoded, drop the rest (0..rows) */
    GLM_OP_MOVE,    /* stream: give it other pool extents with the same contents */
    GLM_OP_SAVE,    /* stream, kept: keep its state; the stream goes on */
    GLM_OP_RESTORE, /* stream, kept, n_tokens: claim as ADMIT, then start from that state */
    GLM_OP_DROP,    /* kept: forget it */
    GLM_OP_FINISH,  /* stream: free slot and extents */
    GLM_OP_STOP,    /* all ranks leave glm_engine_follow */
    GLM_N_OPS
};

struct glm_op {
    enum glm_op_kind kind;
    uint32_t stream, kept;
    uint32_t n;        /* tokens or rows */
    uint32_t n_tokens; /* room to claim */
    uint32_t out_from;
    const int32_t *tokens;        /* borrowed for the call */
    const struct glm_draw *draws; /* one a wanted logits row; NULL: no draw, token -1 */
};

struct glm_engine;

struct glm_engine_config {
    const struct glm_plan *plan;
    const struct glm_checkpoint *checkpoint;
    /* Of each plan kernel, in plan order: its object in the cache and, on a GPU, its digest. */
    const char *const *kernel_paths, *const *kernel_digests;
    /* On a GPU n_threads convert weights while loading and nothing runs on them after that. */
    uint32_t n_threads;
    uint32_t host_threads; /* of all ranks that share this machine's cores; 0: n_threads */
    bool on_gpu;           /* else on this machine's own memory and threads */
    uint32_t gpu;          /* its index */
    bool gpu_is_shared;    /* other ranks of the set run on it too */
    struct glm_collective *collective; /* borrowed; NULL when world is 1 */
    bool is_alone; /* a rank without its others, for selftest.h: sums and gathers are its own part
                      alone; no collective */
    uint64_t memory_limit_bytes; /* 0: none declared */
    /* progress of loading: bytes placed of bytes to place */
    void (*progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);
    void *progress_context;
};

/* Loads kernels, checks the plan's figures against the limit, lays out memory, reads weights. */
enum glm_status glm_engine_open(const struct glm_engine_config *config, struct glm_engine **out,
                                struct glm_error *err);
void glm_engine_free(struct glm_engine *e);

/* Results of one list, in order of the wanted logits rows: that of the operations. */
struct glm_round_result {
    uint32_t n_out;
    const int32_t *tokens; /* drawn token ids, -1 where no draw was asked */
};

/* Rank 0 (or the only rank): checks, sends and runs the list. Claims are all or nothing: when an
 * ADMIT, RESTORE, SAVE or MOVE does not fit the pool now, nothing of the list runs and GLM_EAGAIN
 * comes back.
 * Errors: GLM_EINVAL (a list that breaks the rules above; nothing ran), GLM_EPEER. */
enum glm_status glm_engine_run(struct glm_engine *e, const struct glm_op *ops, uint32_t n_ops,
                               struct glm_round_result *result, struct glm_error *err);
/* Other ranks: receive and run lists until STOP or an error. */
enum glm_status glm_engine_follow(struct glm_engine *e, struct glm_error *err);
/* One received list, for tests that step ranks as threads: as follow, once. *stopped on STOP. */
enum glm_status glm_engine_follow_once(struct glm_engine *e, bool *stopped, struct glm_error *err);

/* Would `n_tokens` fit now? Rank 0 only. */
bool glm_engine_fits(const struct glm_engine *e, uint32_t n_tokens);
uint64_t glm_engine_pool_tokens(const struct glm_engine *e);
uint64_t glm_engine_pool_free_tokens(const struct glm_engine *e);

/* ---- What tests and `bench` look at; never called while a list runs ---- */

/* This rank's shard of wanted logits row i of the last list, fp32: [first, first + n) of the
 * vocabulary. NULL when there is no such row or the device is lost. Valid until the next look. */
const float *glm_engine_logits(const struct glm_engine *e, uint32_t out_i, uint32_t *first,
                               uint32_t *n);
/* XXH3-128 over the live rows of every state plane of a stream, walking the state table: rows a
 * rollback dropped, spare ring rows and the other version do not count. Zero when the device is
 * lost. */
struct glm_hash {
    uint64_t low, high;
};
struct glm_hash glm_engine_state_hash(const struct glm_engine *e, uint32_t stream);
/* Called before each mark of a program with a way to look at its buffers; NULL: off. */
typedef void (*glm_mark_hook)(void *context, const struct glm_engine *e, const char *program,
                              const char *mark, uint32_t layer);
void glm_engine_set_mark_hook(struct glm_engine *e, glm_mark_hook hook, void *context);
/* A buffer of the arena that runs now, as stored; *n_cols, dtype "f32", "bf16" or "i32". Valid
 * until the next look. */
const void *glm_engine_buffer(const struct glm_engine *e, const char *name, uint64_t *n_cols,
                              const char **dtype);

/* Its executor, for selftest.h. */
struct glm_exec;
struct glm_exec *glm_engine_exec(struct glm_engine *e);

struct glm_engine_stats {
    uint64_t rounds, decode_rows, prefill_rows;
    /* As the executor touched them; weight_bytes and state_bytes are those of struct glm_price:
     * weights, and rows of stream planes both ways. */
    uint64_t weight_bytes, state_bytes;
    uint64_t bytes_read, bytes_written;
    uint64_t kernel_launches;
    uint64_t decode_ns, prefill_ns, exchange_ns;
    uint64_t memory_bytes; /* laid out by this rank */
};
struct glm_engine_stats glm_engine_stats(const struct glm_engine *e);

#endif
