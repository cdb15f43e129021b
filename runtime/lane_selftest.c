/* SPDX-License-Identifier: Apache-2.0 */
/* From an applied rank's files to two engines and a report. What is compared, and how, is
 * selftest.c's. */
#include "runtime/lane_selftest.h"

#include "codegen/kernels.h"
#include "runtime/cuda.h"
#include "runtime/lane_files.h"
#include "runtime/selftest.h"
#include "runtime/threads.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

/* More threads than that do not load faster. */
enum { MAX_THREADS = 16 };
enum { POOL_TOKENS = 8 * 2048, PROMPT_ROWS = 1300, N_ROUNDS = 8 };

struct sides {
    struct glm_lane_files files;
    struct glm_checkpoint *checkpoint;
    struct glm_plan *plan; /* cut, for the GPU */
    struct glm_plan *host_plan;
    struct glm_engine *host, *gpu;
    struct glm_selftest *test;
    uint32_t gpu_index;
};

static uint32_t threads(void)
{
    return glm_cores() < MAX_THREADS ? glm_cores() : MAX_THREADS;
}

/* Of the host's memory, as it is now. */
static uint64_t free_bytes(void)
{
    return (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static enum glm_status open_host(struct sides *s, struct glm_error *err)
{
    struct arena *arena = &s->files.arena;
    struct glm_kernel_build *builds;
    enum glm_status st = glm_plan_host_twin(s->plan, glm_host_target(), arena, &s->host_plan, err);
    if (st == GLM_OK)
        st = glm_kernels_build(s->host_plan, glm_cores(), arena, NULL, NULL, &builds, err);
    if (st != GLM_OK)
        return st;
    const char **paths = ARENA_ARRAY(arena, s->host_plan->n_kernels + 1, const char *);
    if (!paths)
        return glm_fail(err, GLM_ENOMEM, "cannot open the oracle: out of memory");
    for (uint32_t i = 0; i < s->host_plan->n_kernels; i++)
        paths[i] = builds[i].path;
    struct glm_engine_config config = {.plan = s->host_plan,
                                       .checkpoint = s->checkpoint,
                                       .kernel_paths = paths,
                                       .n_threads = threads(),
                                       .memory_limit_bytes = free_bytes(),
                                       .is_alone = true};
    return glm_engine_open(&config, &s->host, err);
}

static enum glm_status open_gpu(struct sides *s, struct glm_error *err)
{
    const struct glm_launch_rank *rank = glm_lane_rank(&s->files);
    struct glm_cuda_facts facts = {0};
    enum glm_status st = glm_cuda_facts_of(s->gpu_index, &facts, err);
    if (st != GLM_OK)
        return st;
    struct glm_engine_config config = {.plan = s->plan,
                                       .checkpoint = s->checkpoint,
                                       .kernel_paths = rank->kernel_paths,
                                       .kernel_digests = rank->kernel_digests,
                                       .n_threads = threads(),
                                       .memory_limit_bytes =
                                           facts.shares_memory ? free_bytes() : facts.memory_bytes,
                                       .is_alone = true,
                                       .on_gpu = true,
                                       .gpu = s->gpu_index};
    return glm_engine_open(&config, &s->gpu, err);
}

static enum glm_status open_sides(struct sides *s, struct glm_error *err)
{
    if (!glm_launch_gpu(glm_lane_rank(&s->files), &s->gpu_index))
        return glm_fail(err, GLM_EINVAL,
                        "rank %u runs on the host, whose kernels are what a GPU's are compared "
                        "with",
                        s->files.rank);
    enum glm_status st = glm_lane_kernels_verify(&s->files, err);
    if (st == GLM_OK)
        st = glm_lane_checkpoint_open(&s->files, &s->files.arena, &s->checkpoint, err);
    if (st == GLM_OK)
        st = glm_plan_cut(s->files.plan, POOL_TOKENS, &s->files.arena, &s->plan, err);
    if (st == GLM_OK)
        st = open_host(s, err);
    if (st == GLM_OK)
        st = open_gpu(s, err);
    if (st == GLM_OK)
        st = glm_selftest_new(s->host, s->gpu, &s->test, err);
    return st;
}

static enum glm_status run_list(void *context, const struct glm_op *ops, uint32_t n_ops,
                                struct glm_round_result *result, struct glm_error *err)
{
    return glm_engine_run(context, ops, n_ops, result, err);
}

static enum glm_status compare(struct sides *s, struct glm_error *err)
{
    const struct glm_selftest_load load = {.prompt_rows = PROMPT_ROWS, .n_rounds = N_ROUNDS};
    uint32_t n;
    enum glm_status ended, st = glm_selftest_weights(s->test, err);
    if (st == GLM_OK)
        st = glm_selftest_run(s->plan, &load, run_list, s->host, err);
    if (st == GLM_OK)
        glm_selftest_rows(s->test, &n, &ended, err);
    return st == GLM_OK ? ended : st;
}

/* ---- The report ---- */

/* Kernels that no list needed: the larger sampling programs, mostly. */
static void write_others(const struct sides *s, const char *before, const char *quote,
                         const char *after, FILE *out)
{
    bool any = false;
    for (uint32_t i = 0; i < s->plan->n_kernels; i++)
        if (!glm_selftest_ran(s->test, i)) {
            fprintf(out, "%s%s%s%s", any ? ", " : before, quote, s->plan->kernels[i].name, quote);
            any = true;
        }
    if (any)
        fputs(after, out);
}

static void write_text(const struct sides *s, const struct glm_selftest_row *rows, uint32_t n,
                       FILE *out)
{
    fprintf(out, "%-14s %8s %9s %9s %11s %s\n", "template", "steps", "ulp", "rel. L2",
            "other codes", "");
    for (uint32_t i = 0; i < n; i++) {
        const struct glm_selftest_row *r = &rows[i];
        fprintf(out, "%-14s %8llu %9.3f %9.1e %11llu %s%s%s\n", r->template_name,
                (unsigned long long)r->n_steps, r->worst_ulp, r->worst_l2,
                (unsigned long long)r->n_other_codes, glm_selftest_passed(r) ? "ok" : "FAILED",
                glm_selftest_passed(r) ? "" : ": ", glm_selftest_passed(r) ? "" : r->where);
    }
    write_others(s, "not needed by any draw, so not run: ", "", "\n", out);
}

/* JSON has no infinity, which is what a NaN counts as. */
static void write_number(const char *key, double value, FILE *out)
{
    if (isfinite(value))
        fprintf(out, ", \"%s\": %.6g", key, value);
    else
        fprintf(out, ", \"%s\": null", key);
}

static void write_json(const struct sides *s, const struct glm_selftest_row *rows, uint32_t n,
                       bool passed, FILE *out)
{
    fprintf(out, "{\"format_version\": 1, \"passed\": %s, \"templates\": [",
            passed ? "true" : "false");
    for (uint32_t i = 0; i < n; i++) {
        const struct glm_selftest_row *r = &rows[i];
        struct buf where = {0};
        buf_json_string(&where, r->where, strlen(r->where));
        fprintf(out, "%s\n  {\"template\": \"%s\", \"steps\": %llu", i == 0 ? "" : ",",
                r->template_name, (unsigned long long)r->n_steps);
        write_number("ulp", r->worst_ulp, out);
        write_number("relative_l2", r->worst_l2, out);
        fprintf(out, ", \"codes\": %llu, \"other_codes\": %llu, \"passed\": %s, \"worst\": %s}",
                (unsigned long long)r->n_codes, (unsigned long long)r->n_other_codes,
                glm_selftest_passed(r) ? "true" : "false", buf_text(&where));
        buf_release(&where);
    }
    fputs("\n], \"not_run\": [", out);
    write_others(s, "", "\"", "", out);
    fputs("]}\n", out);
}

enum glm_status glm_lane_selftest(const char *launch_path, uint32_t rank, bool json, FILE *out,
                                  bool *passed, struct glm_error *err)
{
    struct sides s = {0};
    uint32_t n = 0;
    enum glm_status ended;
    enum glm_status st = glm_lane_files_read(&s.files, launch_path, rank, err);
    if (st == GLM_OK)
        st = open_sides(&s, err);
    if (st == GLM_OK)
        st = compare(&s, err);
    if (st == GLM_OK) {
        const struct glm_selftest_row *rows = glm_selftest_rows(s.test, &n, &ended, err);
        *passed = n > 0;
        for (uint32_t i = 0; i < n; i++)
            *passed = *passed && glm_selftest_passed(&rows[i]);
        if (json)
            write_json(&s, rows, n, *passed, out);
        else
            write_text(&s, rows, n, out);
    }
    glm_selftest_free(s.test);
    glm_engine_free(s.gpu);
    glm_engine_free(s.host);
    glm_lane_files_release(&s.files);
    return st;
}
