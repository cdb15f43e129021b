/* SPDX-License-Identifier: Apache-2.0 */
/* launch.json: everything about one applied lane that is not in the portable rank plans (design 1).
 * Written by `glmctl apply`, read by every glmd. A saved plan (`plan --out`) is one file holding
 * the launch document and all rank plans. */
#ifndef GLM_CODEGEN_LAUNCH_H
#define GLM_CODEGEN_LAUNCH_H

#include "codegen/kernels.h"
#include "spec/cluster.h"

struct glm_launch_rank {
    const char *node, *host,
        *control;          /* control: address the rank's control socket is reached at */
    const char *device;    /* what glmd opens: "cpu", "cuda:0" */
    const char *plan_file; /* beside launch.json */
    char plan_digest[65];
    uint32_t threads; /* that compute; on a GPU they read weights while loading */
    uint64_t memory_bytes, reserve_bytes;
    const char **kernel_paths; /* the object of each plan kernel, in plan order */
    const char **kernel_digests;
    uint32_t n_kernels;
};

struct glm_launch_file {
    uint32_t format_version;
    const char *cluster, *lane;
    const char *spec_path, *spec_text;
    char spec_digest[65];
    char set_digest[65];
    char binary_digest[65]; /* SHA-256 of glmd */
    const char *target;     /* host ISA or sm_* */
    const char *checkpoint; /* absolute folder or synthetic:… */
    char checkpoint_digest[65];
    const char *transport; /* "shm", "tcp" or "nccl" */
    const char *listen_host;
    uint16_t listen_port;
    const char *served_name;
    const char *api_key_file; /* "" = open */
    uint32_t max_tokens;
    uint64_t max_body_bytes;
    bool thinking;
    const char *effort;
    struct glm_launch_rank *ranks;
    uint32_t n_ranks;
};

/* JSON (schema: docs/schema/launch.json); the same file gives the same bytes. Reading refuses what
 * does not hold to the schema and a spec_text without its spec_digest: GLM_EPLAN naming the place.
 */
enum glm_status glm_launch_write(const struct glm_launch_file *l, struct buf *out,
                                 struct glm_error *err);
enum glm_status glm_launch_read(const char *json, size_t len, struct arena *arena,
                                struct glm_launch_file **out, struct glm_error *err);

/* The links of its ranks: where NCCL carries the exchanges, "shm" on one host, else "tcp". */
const char *glm_launch_links(const struct glm_launch_file *l);

/* Whether the rank is on a GPU, and its index. */
bool glm_launch_gpu(const struct glm_launch_rank *rank, uint32_t *gpu);

/* A saved plan: {"format_version", "digest", "launch": {...}, "plans": [...]}. Reading checks the
 * digests of the whole, the set, the ranks and the spec's text: a changed file is GLM_EPLAN, saying
 * which part was changed. */
enum glm_status glm_saved_plan_write(const struct glm_launch_file *l, struct glm_plan *const *plans,
                                     struct buf *out, struct glm_error *err);
enum glm_status glm_saved_plan_read(const char *json, size_t len, struct arena *arena,
                                    struct glm_launch_file **launch, struct glm_plan ***plans,
                                    struct glm_error *err);

#endif
