/* SPDX-License-Identifier: Apache-2.0 */
/* A lane as glmd runs it: the service table filled with engine, scheduler and HTTP. Its files are
 * lane_files.c's, who calls it and when is worker.c's. */
#include "runtime/serve.h"

#include "codegen/process.h"
#include "runtime/engine.h"
#include "runtime/http.h"
#include "runtime/lane_files.h"
#include "runtime/scheduler.h"
#include "runtime/tokenizer_fit.h"
#include "spec/base/digest.h"
#include "spec/base/log.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct lane {
    struct glm_lane_files files;
    struct glm_http *http;           /* rank 0, while bound */
    struct glm_tokenizer *tokenizer; /* likewise */
};

struct server {
    const struct lane *lane;
    struct glm_scheduler *scheduler;
};

/* ---- the engine of a rank ---- */

/* Threads that compute in a round; of a rank on a GPU only the one that puts programs there. */
static uint32_t all_threads(const struct glm_launch_file *launch)
{
    uint32_t n = 0, gpu;
    for (uint32_t r = 0; r < launch->n_ranks; r++)
        n += glm_launch_gpu(&launch->ranks[r], &gpu) ? 1 : launch->ranks[r].threads;
    return n;
}

/* Is another rank on the GPU of this one? */
static bool shares_gpu(const struct glm_launch_file *launch, uint32_t rank)
{
    uint32_t own, gpu, n = 0;
    if (!glm_launch_gpu(&launch->ranks[rank], &own))
        return false;
    for (uint32_t r = 0; r < launch->n_ranks; r++)
        n += glm_launch_gpu(&launch->ranks[r], &gpu) && gpu == own &&
             strcmp(launch->ranks[r].host, launch->ranks[rank].host) == 0;
    return n > 1;
}

static enum glm_status open_engine(void *context, const struct glm_open_config *config,
                                   void **engine, uint64_t *memory_bytes, struct glm_error *err)
{
    const struct lane *lane = context;
    const struct glm_launch_rank *rank = &lane->files.launch->ranks[lane->files.rank];
    struct glm_checkpoint *checkpoint;
    struct glm_engine *e = NULL;
    struct arena arena; /* headers are needed while loading only */
    arena_init(&arena, GLM_LANE_ARENA_BYTES);
    enum glm_status status = glm_lane_kernels_verify(&lane->files, err);
    if (status == GLM_OK)
        status = glm_lane_checkpoint_open(&lane->files, &arena, &checkpoint, err);
    if (status == GLM_OK) {
        struct glm_engine_config engine_config = {
            .plan = lane->files.plan,
            .checkpoint = checkpoint,
            .kernel_paths = rank->kernel_paths,
            .kernel_digests = rank->kernel_digests,
            .n_threads = rank->threads,
            .host_threads = all_threads(lane->files.launch),
            .gpu_is_shared = shares_gpu(lane->files.launch, lane->files.rank),
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
    *memory_bytes = glm_plan_total_bytes(lane->files.plan);
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
    enum glm_status status =
        glm_http_start(lane->files.launch, lane->files.plan, &lane->http, &port, err);
    if (status == GLM_OK) {
        write_url(lane->files.launch, port, url);
        status = glm_tokenizer_fit(lane->files.launch->checkpoint, lane->files.plan,
                                   &lane->tokenizer, err);
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
    enum glm_status status = glm_scheduler_new(engine, lane->files.plan, &s->scheduler, err);
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

/* ---- what the daemon is told ---- */

/* Digests that every rank must share: of its kernels' names and targets, and of its settings. */
static enum glm_status shared_digests(const struct lane *lane, struct glm_lane_info *out,
                                      struct glm_error *err)
{
    const struct glm_launch_file *l = lane->files.launch;
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
    const struct glm_launch_file *l = lane->files.launch;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    out->rank = lane->files.rank;
    out->world = l->n_ranks;
    for (uint32_t r = 0; r < l->n_ranks; r++)
        out->devices[r] = l->ranks[r].device;
    out->transport = glm_launch_links(l);
    out->control = "127.0.0.1";
    out->link_host = "127.0.0.1";
    out->max_message = (size_t)glm_message_bytes(lane->files.plan);
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
    struct lane *lane = calloc(1, sizeof *lane);
    if (lane == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot read '%s': out of memory", launch_path);
    struct glm_lane_info info = {0};
    enum glm_status status = glm_lane_files_read(&lane->files, launch_path, rank, err);
    if (status == GLM_OK)
        status = shared_digests(lane, &info, err);
    if (status != GLM_OK) {
        glm_lane_files_release(&lane->files);
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
    glm_lane_files_release(&lane->files);
    free(lane);
    info->service.context = NULL;
}
