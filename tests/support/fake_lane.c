/* SPDX-License-Identifier: Apache-2.0 */
/* The fake behind the service table: real links and collectives, no weights, no HTTP. */
#include "tests/support/fake_lane.h"

#include "runtime/daemon.h"
#include "runtime/net.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

struct fake_lane {
    uint32_t rank, world;
    uint16_t port;
    int listen_fd; /* of the bound API */
    int steps, step_ms, fail_rank, crash_rank, hang_rank, stuck_after;
};

struct fake_engine {
    struct fake_lane *lane;
    struct glm_collective *collective;
    struct glm_collective_step *gather;
    uint32_t own, all[GLM_LINK_MAX_WORLD];
};

struct fake_server {
    struct fake_engine *engine;
    pthread_t thread;
    atomic_bool stop, busy, broken;
    _Atomic uint64_t rounds;
};

static void pause_ms(int ms)
{
    (void)poll(NULL, 0, ms);
}

static enum glm_status fake_open(void *context, const struct glm_open_config *config, void **engine,
                                 uint64_t *memory_bytes, struct glm_error *err)
{
    struct fake_lane *lane = context;
    for (int i = 0; i <= lane->steps; i++) {
        config->progress(config->progress_context, (uint64_t)i * 100, (uint64_t)lane->steps * 100);
        pause_ms(lane->step_ms);
    }
    if ((int)lane->rank == lane->fail_rank)
        return glm_fail(err, GLM_ECAPACITY, "cannot load 'experts' (5 GiB): 4 GiB are free");
    if ((int)lane->rank == lane->crash_rank)
        raise(SIGKILL);
    while ((int)lane->rank == lane->hang_rank)
        pause_ms(1000);
    struct fake_engine *e = calloc(1, sizeof *e);
    if (e == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot open: out of memory");
    e->lane = lane;
    e->collective = config->collective;
    if (e->collective != NULL && glm_collective_prepare(e->collective, GLM_GATHER, &e->own, e->all,
                                                        sizeof e->own, &e->gather, err) != GLM_OK) {
        free(e);
        return err->status;
    }
    *memory_bytes = 1000 + lane->rank;
    *engine = e;
    return GLM_OK;
}

static void fake_close(void *engine)
{
    free(engine);
}

/* 'r': a round. 's': stop. */
static enum glm_status run_list(struct fake_engine *e, char *op, struct glm_error *err)
{
    size_t len = 1;
    if (e->collective == NULL)
        return GLM_OK;
    enum glm_status status = glm_collective_broadcast(e->collective, op, 1, &len, err);
    if (status != GLM_OK || *op != 'r')
        return status;
    e->own = 10 + e->lane->rank;
    status = glm_collective_run(e->gather, sizeof e->own, err);
    for (uint32_t i = 0; status == GLM_OK && i < e->lane->world; i++)
        if (e->all[i] != 10 + i)
            return glm_fail(err, GLM_EINVAL, "rank %u sent %u, want %u", i, e->all[i], 10 + i);
    return status;
}

static enum glm_status fake_follow(void *engine, struct glm_error *err)
{
    char op = 'r';
    enum glm_status status = GLM_OK;
    while (status == GLM_OK && op == 'r')
        status = run_list(engine, &op, err);
    return status;
}

static void *serve_rounds(void *argument)
{
    struct fake_server *s = argument;
    while (!atomic_load(&s->stop)) {
        char op = 'r';
        atomic_store(&s->busy, true);
        uint64_t round = atomic_fetch_add(&s->rounds, 1) + 1;
        while (s->engine->lane->stuck_after > 0 &&
               round >= (uint64_t)s->engine->lane->stuck_after && !atomic_load(&s->stop))
            pause_ms(5);
        if (run_list(s->engine, &op, NULL) != GLM_OK) {
            atomic_store(&s->broken, true);
            break;
        }
        atomic_store(&s->busy, false);
        pause_ms(2);
    }
    return NULL;
}

static enum glm_status fake_bind(void *context, char url[GLM_URL_BYTES], struct glm_error *err)
{
    struct fake_lane *lane = context;
    char text[GLM_NET_TEXT_BYTES];
    enum glm_status status = glm_net_listen("127.0.0.1", lane->port, &lane->listen_fd, text, err);
    if (status == GLM_OK)
        snprintf(url, GLM_URL_BYTES, "http://%s", text);
    return status;
}

static void fake_unbind(void *context)
{
    struct fake_lane *lane = context;
    close(lane->listen_fd);
}

static enum glm_status fake_start(void *context, void *engine, void **server, struct glm_error *err)
{
    (void)context;
    struct fake_server *s = calloc(1, sizeof *s);
    if (s == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot serve: out of memory");
    s->engine = engine;
    if (pthread_create(&s->thread, NULL, serve_rounds, s) != 0) {
        free(s);
        return glm_fail(err, GLM_EIO, "cannot serve: no thread");
    }
    *server = s;
    return GLM_OK;
}

static void fake_watch(void *server, struct glm_serve_watch *out)
{
    struct fake_server *s = server;
    *out = (struct glm_serve_watch){.rounds = atomic_load(&s->rounds),
                                    .busy = atomic_load(&s->busy),
                                    .broken = atomic_load(&s->broken)};
}

static void fake_stats(void *server, struct buf *json)
{
    struct fake_server *s = server;
    buf_printf(json, "{\"rounds\": %llu}", (unsigned long long)atomic_load(&s->rounds));
}

static void fake_stop(void *server, const char *why)
{
    (void)why;
    struct fake_server *s = server;
    char op = 's';
    atomic_store(&s->stop, true);
    pthread_join(s->thread, NULL);
    if (!atomic_load(&s->broken))
        run_list(s->engine, &op, NULL);
    free(s);
}

static int number(const cJSON *json, const char *key, int otherwise)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    return cJSON_IsNumber(item) ? item->valueint : otherwise;
}

static struct glm_supervise_times read_times(const cJSON *json)
{
    struct glm_supervise_times t = glm_supervise_defaults();
    t.beat_ms = (uint32_t)number(json, "beat_ms", 100);
    t.dead_ms = (uint32_t)number(json, "dead_ms", 5000);
    t.join_ms = (uint32_t)number(json, "join_ms", 20000);
    t.stop_ms = (uint32_t)number(json, "stop_ms", 5000);
    t.stuck_ms = (uint32_t)number(json, "stuck_ms", 60000);
    t.n_restarts = (uint32_t)number(json, "n_restarts", 3);
    t.healthy_ms = (uint32_t)number(json, "healthy_ms", 60000);
    for (int i = 0; i < 8; i++)
        t.back_off_ms[i] = (uint32_t)number(json, "back_off_ms", 20);
    return t;
}

enum glm_status fake_lane_load(const char *launch_path, uint32_t rank, struct glm_lane_info *out,
                               struct glm_error *err)
{
    struct buf text = {0};
    enum glm_status status = glm_file_read(launch_path, 65536, &text, err);
    struct fake_lane *lane = status == GLM_OK ? calloc(1, sizeof *lane) : NULL;
    if (lane == NULL)
        return status != GLM_OK ? status : glm_fail(err, GLM_ENOMEM, "out of memory");
    cJSON *json = cJSON_ParseWithLength(buf_text(&text), text.len);
    *lane = (struct fake_lane){.rank = rank,
                               .world = (uint32_t)number(json, "world", 3),
                               .port = (uint16_t)number(json, "port", 0),
                               .steps = number(json, "steps", 5),
                               .step_ms = number(json, "step_ms", 10),
                               .fail_rank = number(json, "fail_rank", -1),
                               .crash_rank = number(json, "crash_rank", -1),
                               .hang_rank = number(json, "hang_rank", -1),
                               .stuck_after = number(json, "stuck_after", 0)};
    *out = (struct glm_lane_info){
        .rank = rank,
        .world = lane->world,
        .transport = number(json, "tcp", 0) != 0 ? "tcp" : "shm",
        .control = "127.0.0.1",
        .link_host = "127.0.0.1",
        .max_message = 4096,
        .times = read_times(json),
        .service = {.context = lane,
                    .bind = fake_bind,
                    .unbind = fake_unbind,
                    .open = fake_open,
                    .follow = fake_follow,
                    .close = fake_close,
                    .start = fake_start,
                    .watch = fake_watch,
                    .stats = fake_stats,
                    .stop = fake_stop},
    };
    for (uint32_t r = 0; r < lane->world && r < GLM_LINK_MAX_WORLD; r++)
        out->devices[r] = r % 2 == 0 ? "cpu" : "cuda:1";
    memset(out->set_digest, 'a', GLM_DIGEST_CHARS);
    memset(out->kernels_digest, number(json, "digest_rank", -1) == (int)rank ? 'x' : 'b',
           GLM_DIGEST_CHARS);
    memset(out->settings_digest, 'c', GLM_DIGEST_CHARS);
    cJSON_Delete(json);
    buf_release(&text);
    return GLM_OK;
}

void fake_lane_release(struct glm_lane_info *lane)
{
    free(lane->service.context);
}

/* ---- The process ---- */

static int stop_pipe[2];

static void on_signal(int number_)
{
    (void)number_;
    if (write(stop_pipe[1], "", 1) < 0)
        return;
}

static void say_stacks(void)
{
    fprintf(stderr, "stacks of pid %ld\n", (long)getpid());
}

int fake_glmd_main(int argc, char **argv)
{
    struct glm_error err = {0};
    bool hung = false;
    char program[4096] = {0};
    struct glm_daemon_config config = {.program = program,
                                       .dump_stacks = say_stacks,
                                       .load = fake_lane_load,
                                       .release = fake_lane_release};
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0 || pipe(stop_pipe) != 0 ||
        glm_daemon_options(argc, argv, &config, &err) != GLM_OK)
        return 64;
    config.stop_fd = stop_pipe[0];
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    int code = glm_daemon_run(&config, &hung);
    if (hung)
        _exit(code);
    return code;
}
