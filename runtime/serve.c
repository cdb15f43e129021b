/* SPDX-License-Identifier: Apache-2.0 */
/* A lane as glmd runs it: launch.json and the rank's plan checked against each other, and the
 * service table filled with engine, scheduler and HTTP. Who calls it and when is worker.c's. */
#include "runtime/serve.h"

#include "spec/base/digest.h"
#include "codegen/launch.h"
#include "codegen/process.h"
#include "runtime/engine.h"
#include "runtime/http.h"
#include "runtime/scheduler.h"
#include "runtime/tokenizer_fit.h"
#include "spec/base/log.h"

#include <libgen.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_LIMIT_BYTES = 64 << 20, LANE_ARENA_BYTES = 1 << 30 };

struct lane {
    struct arena arena;
    struct glm_launch_file *launch;
    struct glm_plan *plan;
    uint32_t rank;
    struct glm_http *http;           /* rank 0, while bound */
    struct glm_tokenizer *tokenizer; /* likewise */
};

struct server {
    const struct lane *lane;
    struct glm_scheduler *scheduler;
};

/* ---- the engine of a rank ---- */

static enum glm_status open_checkpoint(const struct lane *lane, struct arena *arena,
                                       struct glm_checkpoint **out, struct glm_error *err)
{
    const struct glm_launch_file *launch = lane->launch;
    struct diag_list diags;
    diag_list_init(&diags, arena);
    enum glm_status status = glm_checkpoint_open(launch->checkpoint, arena, &diags, out);
    if (status != GLM_OK)
        return glm_fail(err, status, "cannot open checkpoint '%s': %s", launch->checkpoint,
                        diags.n_items > 0 ? diags.items[0].message : glm_status_text(status));
    if (strcmp((*out)->digest, launch->checkpoint_digest) == 0)
        return GLM_OK;
    status =
        glm_fail(err, GLM_ESTALE, "checkpoint '%s' changed since it was planned: %.12s, now %.12s",
                 launch->checkpoint, launch->checkpoint_digest, (*out)->digest);
    glm_error_hint(err, "glmctl apply %s --lane %s", launch->spec_path, launch->lane);
    return status;
}

/* Threads that compute in a round; of a rank on a GPU only the one that puts programs there. */
static uint32_t all_threads(const struct glm_launch_file *launch)
{
    uint32_t n = 0, gpu;
    for (uint32_t r = 0; r < launch->n_ranks; r++)
        n += glm_launch_gpu(&launch->ranks[r], &gpu) ? 1 : launch->ranks[r].threads;
    return n;
}

static enum glm_status verify_kernels(const struct glm_launch_rank *rank, struct glm_error *err)
{
    enum glm_status status = GLM_OK;
    for (uint32_t k = 0; status == GLM_OK && k < rank->n_kernels; k++)
        status = glm_kernel_verify(rank->kernel_paths[k], rank->kernel_digests[k], err);
    return status;
}

static enum glm_status open_engine(void *context, const struct glm_open_config *config,
                                   void **engine, uint64_t *memory_bytes, struct glm_error *err)
{
    const struct lane *lane = context;
    const struct glm_launch_rank *rank = &lane->launch->ranks[lane->rank];
    struct glm_checkpoint *checkpoint;
    struct glm_engine *e = NULL;
    struct arena arena; /* headers are needed while loading only */
    arena_init(&arena, LANE_ARENA_BYTES);
    enum glm_status status = verify_kernels(rank, err);
    if (status == GLM_OK)
        status = open_checkpoint(lane, &arena, &checkpoint, err);
    if (status == GLM_OK) {
        struct glm_engine_config engine_config = {
            .plan = lane->plan,
            .checkpoint = checkpoint,
            .kernel_paths = rank->kernel_paths,
            .kernel_digests = rank->kernel_digests,
            .n_threads = rank->threads,
            .host_threads = all_threads(lane->launch),
            .collective = config->collective,
            .memory_limit_bytes = rank->memory_bytes > rank->reserve_bytes
                                      ? rank->memory_bytes - rank->reserve_bytes
                                      : 0,
            .progress = config->progress,
            .progress_context = config->progress_context,
        };
        engine_config.on_gpu = glm_launch_gpu(rank, &engine_config.gpu);
        status = glm_engine_open(&engine_config, &e, err);
    }
    arena_release(&arena);
    if (status != GLM_OK)
        return status;
    malloc_trim(0); /* what loading took and freed goes back to the system */
    *memory_bytes = glm_plan_total_bytes(lane->plan);
    *engine = e;
    return GLM_OK;
}

static enum glm_status follow(void *engine, struct glm_error *err)
{
    return glm_engine_follow(engine, err);
}

static void close_engine(void *engine)
{
    glm_engine_free(engine);
}

/* ---- the API on rank 0 ---- */

static void free_server(struct server *s)
{
    glm_scheduler_free(s->scheduler);
    free(s);
}

static void write_url(const struct glm_launch_file *launch, uint16_t port, char url[GLM_URL_BYTES])
{
    const bool v6 = strchr(launch->listen_host, ':') != NULL;
    snprintf(url, GLM_URL_BYTES, "http://%s%.200s%s:%u", v6 ? "[" : "", launch->listen_host,
             v6 ? "]" : "", port);
}

static void unbind_api(void *context)
{
    struct lane *lane = context;
    glm_http_free(lane->http);
    lane->http = NULL;
    glm_tokenizer_free(lane->tokenizer);
    lane->tokenizer = NULL;
}

/* What a client needs, before a weight is read: a broken tokenizer does not cost a load. */
static enum glm_status bind_api(void *context, char url[GLM_URL_BYTES], struct glm_error *err)
{
    struct lane *lane = context;
    uint16_t port = 0;
    enum glm_status status = glm_http_start(lane->launch, lane->plan, &lane->http, &port, err);
    if (status == GLM_OK) {
        write_url(lane->launch, port, url);
        status = glm_tokenizer_fit(lane->launch->checkpoint, lane->plan, &lane->tokenizer, err);
    }
    if (status != GLM_OK)
        unbind_api(lane);
    return status;
}

static enum glm_status start(void *context, void *engine, void **server, struct glm_error *err)
{
    const struct lane *lane = context;
    struct server *s = calloc(1, sizeof *s);
    if (s == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot start the server: out of memory");
    s->lane = lane;
    enum glm_status status = glm_scheduler_new(engine, lane->plan, &s->scheduler, err);
    if (status != GLM_OK) {
        free_server(s);
        return status;
    }
    glm_http_attach(lane->http, s->scheduler, lane->tokenizer);
    *server = s;
    return GLM_OK;
}

static void watch(void *server, struct glm_serve_watch *out)
{
    const struct server *s = server;
    const struct glm_scheduler_stats stats = glm_scheduler_stats(s->scheduler);
    *out = (struct glm_serve_watch){
        .rounds = stats.rounds_total,
        .busy = stats.step_age_s > 0,
        .broken = stats.broken,
    };
}

static void write_stats(void *server, struct buf *json)
{
    const struct server *s = server;
    const struct glm_scheduler_stats t = glm_scheduler_stats(s->scheduler);
    buf_printf(json,
               "{\"requests_running\": %u, \"requests_waiting\": %u, \"requests_total\": %llu, "
               "\"prompt_tokens_total\": %llu, \"completion_tokens_total\": %llu, "
               "\"rounds_total\": %llu, \"pool_tokens\": %llu, \"pool_free_tokens\": %llu}",
               t.running, t.waiting, (unsigned long long)t.requests_total,
               (unsigned long long)t.prompt_tokens_total,
               (unsigned long long)t.completion_tokens_total, (unsigned long long)t.rounds_total,
               (unsigned long long)t.pool_tokens, (unsigned long long)t.pool_free_tokens);
}

/* Requests end before the scheduler goes, so that each gets its error. */
static void stop(void *server, const char *why)
{
    struct server *s = server;
    glm_scheduler_stop(s->scheduler);
    glm_http_detach(s->lane->http, why);
    free_server(s);
}

/* ---- what a rank reads before it starts ---- */

static enum glm_status read_plan(const char *launch_path, struct lane *lane, struct glm_error *err)
{
    const struct glm_launch_rank *rank = &lane->launch->ranks[lane->rank];
    char digest[65];
    struct buf text = {0};
    char *copy = strdup(launch_path);
    if (copy == NULL)
        return glm_fail(err, GLM_ENOMEM, "out of memory");
    const char *path = arena_printf(&lane->arena, "%s/%s", dirname(copy), rank->plan_file);
    free(copy);
    if (path == NULL)
        return glm_fail(err, GLM_ENOMEM, "out of memory");
    enum glm_status status = glm_file_read(path, FILE_LIMIT_BYTES, &text, err);
    if (status == GLM_OK)
        status = glm_sha256_hex(text.data, text.len, digest, err);
    if (status == GLM_OK && strcmp(digest, rank->plan_digest) != 0) {
        status = glm_fail(err, GLM_EPLAN,
                          "'%s' was changed: launch.json says digest %.12s, it has %.12s", path,
                          rank->plan_digest, digest);
        glm_error_hint(err, "glmctl apply %s --lane %s", lane->launch->spec_path,
                       lane->launch->lane);
    }
    if (status == GLM_OK)
        status = glm_plan_read(buf_text(&text), text.len, &lane->arena, &lane->plan, err);
    buf_release(&text);
    return status;
}

static enum glm_status check_belonging(const struct lane *lane, struct glm_error *err)
{
    const struct glm_plan *p = lane->plan;
    const struct glm_launch_rank *rank = &lane->launch->ranks[lane->rank];
    const bool for_gpu = strncmp(p->target, "sm_", 3) == 0;
    uint32_t gpu;
    if (p->rank != lane->rank || p->world != lane->launch->n_ranks)
        return glm_fail(err, GLM_EPLAN, "plan of rank %u of %u where rank %u of %u belongs",
                        p->rank, p->world, lane->rank, lane->launch->n_ranks);
    if (strcmp(p->set_digest, lane->launch->set_digest) != 0)
        return glm_fail(err, GLM_EPLAN, "plan of set %.12s where set %.12s belongs", p->set_digest,
                        lane->launch->set_digest);
    if (for_gpu != glm_launch_gpu(rank, &gpu))
        return glm_fail(err, GLM_EPLAN, "the plan is for target '%s', launch.json names device %s",
                        p->target, rank->device);
    if (p->n_kernels != rank->n_kernels)
        return glm_fail(err, GLM_EPLAN, "the plan has %u kernels, launch.json names %u",
                        p->n_kernels, rank->n_kernels);
    return GLM_OK;
}

/* Digests that every rank must share: of its kernels' names and targets, and of its settings. */
static enum glm_status shared_digests(const struct lane *lane, struct glm_lane_info *out,
                                      struct glm_error *err)
{
    const struct glm_launch_file *l = lane->launch;
    struct buf text = {0};
    for (uint32_t r = 0; r < l->n_ranks; r++)
        for (uint32_t k = 0; k < l->ranks[r].n_kernels; k++)
            buf_printf(&text, "%s\n", l->ranks[r].kernel_digests[k]);
    enum glm_status status = glm_sha256_hex(buf_text(&text), text.len, out->kernels_digest, err);
    buf_clear(&text);
    buf_printf(&text, "%s\n%s\n%s\n%s\n%s\n", l->target, l->transport, l->checkpoint_digest,
               l->binary_digest, l->spec_digest);
    if (status == GLM_OK)
        status = glm_sha256_hex(buf_text(&text), text.len, out->settings_digest, err);
    buf_release(&text);
    return status;
}

static void fill_info(struct lane *lane, struct glm_lane_info *out)
{
    const struct glm_launch_file *l = lane->launch;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    out->rank = lane->rank;
    out->world = l->n_ranks;
    for (uint32_t r = 0; r < l->n_ranks; r++)
        out->devices[r] = l->ranks[r].device;
    out->transport = l->transport;
    out->control = "127.0.0.1";
    out->link_host = "127.0.0.1";
    out->max_message = (size_t)glm_message_bytes(lane->plan);
    out->spin = cores > 0 && all_threads(l) <= (uint32_t)cores;
    memcpy(out->set_digest, l->set_digest, sizeof out->set_digest);
    out->times = glm_supervise_defaults();
    out->service = (struct glm_service){
        .context = lane,
        .bind = bind_api,
        .unbind = unbind_api,
        .open = open_engine,
        .follow = follow,
        .close = close_engine,
        .start = start,
        .watch = watch,
        .stats = write_stats,
        .stop = stop,
    };
}

enum glm_status glm_lane_load(const char *launch_path, uint32_t rank, struct glm_lane_info *out,
                              struct glm_error *err)
{
    struct buf text = {0};
    struct lane *lane = calloc(1, sizeof *lane);
    if (lane == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot read '%s': out of memory", launch_path);
    arena_init(&lane->arena, LANE_ARENA_BYTES);
    lane->rank = rank;
    enum glm_status status = glm_file_read(launch_path, FILE_LIMIT_BYTES, &text, err);
    if (status == GLM_OK)
        status = glm_launch_read(buf_text(&text), text.len, &lane->arena, &lane->launch, err);
    if (status == GLM_OK && rank >= lane->launch->n_ranks)
        status = glm_fail(err, GLM_EINVAL, "'%s' has ranks 0 to %u, asked for rank %u", launch_path,
                          lane->launch->n_ranks - 1, rank);
    if (status == GLM_OK)
        status = read_plan(launch_path, lane, err);
    if (status == GLM_OK)
        status = check_belonging(lane, err);
    struct glm_lane_info info = {0};
    if (status == GLM_OK)
        status = shared_digests(lane, &info, err);
    buf_release(&text);
    if (status != GLM_OK) {
        arena_release(&lane->arena);
        free(lane);
        return status;
    }
    fill_info(lane, &info);
    *out = info;
    return GLM_OK;
}

void glm_lane_release(struct glm_lane_info *info)
{
    struct lane *lane = info->service.context;
    if (lane == NULL)
        return;
    arena_release(&lane->arena);
    free(lane);
    info->service.context = NULL;
}
