/* SPDX-License-Identifier: Apache-2.0 */
/* A compiled lane becomes processes. Everything that can be refused is refused before anything that
 * runs is touched; the state folder's apply.lock keeps a second apply out. Supervision is glmd's.
 */
#include "cli/apply.h"

#include "cli/http_client.h"
#include "cli/lane.h"
#include "cli/progress.h"
#include "codegen/digest.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <openssl/rand.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LIVE_DEADLINE_S = 600,
    LIVE_POLL_US = 20000,
    SMOKE_TIMEOUT_S = 60,
    LAUNCH_LIMIT_BYTES = 64 << 20,
    BINARY_LIMIT_BYTES = 256 << 20
};

/* ---- the launch document ---- */

static enum glm_status daemon_path(char *out, size_t size, struct glm_error *err)
{
    char self[PATH_MAX];
    const char *given = getenv("GLM_GLMD");
    if (given != NULL && *given != '\0') {
        snprintf(out, size, "%s", given);
    } else {
        ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
        if (n < 0)
            return glm_fail(err, GLM_EIO, "cannot find glmd: %s", strerror(errno));
        self[n] = '\0';
        snprintf(out, size, "%s/glmd", dirname(self));
    }
    if (access(out, X_OK) == 0)
        return GLM_OK;
    enum glm_status status =
        glm_fail(err, GLM_ENOTFOUND, "cannot run '%s': %s", out, strerror(errno));
    glm_error_hint(err, "glmd lies beside glmctl; GLM_GLMD names another place");
    return status;
}

static enum glm_status binary_digest(char digest[65], struct glm_error *err)
{
    char path[PATH_MAX];
    struct buf bytes = {0};
    enum glm_status status = daemon_path(path, sizeof path, err);
    if (status == GLM_OK)
        status = glm_file_read(path, BINARY_LIMIT_BYTES, &bytes, err);
    if (status == GLM_OK)
        status = glm_sha256_hex(bytes.data, bytes.len, digest, err);
    buf_release(&bytes);
    return status;
}

static uint32_t ranks_on_host(const struct glm_cluster *c, const struct glm_lane *lane,
                              const char *host)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < lane->n_ranks; i++)
        n += strcmp(c->nodes[lane->ranks[i]].host, host) == 0;
    return n;
}

static uint32_t default_threads(uint32_t n_ranks)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t threads = cores < 1 ? 1 : (uint32_t)cores / n_ranks;
    return threads < 1 ? 1 : threads;
}

static enum glm_status launch_rank(struct compiled *c, uint32_t rank, struct glm_launch_rank *out,
                                   struct glm_error *err)
{
    const struct glm_lane *lane = &c->cluster->lanes[c->lane_i];
    const struct glm_node *node = &c->cluster->nodes[lane->ranks[rank]];
    struct buf plan = {0};
    *out = (struct glm_launch_rank){
        .node = node->name,
        .host = node->host,
        .control = node->control,
        .plan_file = arena_printf(&c->arena, "rank%u.plan.json", rank),
        .threads = node->threads > 0 ? node->threads
                                     : default_threads(ranks_on_host(c->cluster, lane, node->host)),
        .memory_bytes = node->memory_bytes,
        .reserve_bytes = node->reserve_bytes,
    };
    enum glm_status status = glm_plan_write(c->plans[rank], &plan, err);
    if (status == GLM_OK)
        status = glm_sha256_hex(plan.data, plan.len, out->plan_digest, err);
    buf_release(&plan);
    return status;
}

static const char *absolute(struct compiled *c, const char *path)
{
    char resolved[PATH_MAX];
    if (path == NULL || *path == '\0' || strncmp(path, "synthetic:", 10) == 0 ||
        realpath(path, resolved) == NULL)
        return path;
    return arena_strdup(&c->arena, resolved);
}

enum glm_status apply_launch(struct compiled *c, struct glm_launch_file *out, struct glm_error *err)
{
    const struct glm_cluster *cluster = c->cluster;
    const struct glm_lane *lane = &cluster->lanes[c->lane_i];
    *out = (struct glm_launch_file){
        .format_version = 1,
        .cluster = cluster->name,
        .lane = lane->name,
        .spec_path = absolute(c, cluster->spec_path),
        .spec_text = cluster->spec_text,
        .target = c->target,
        .checkpoint = absolute(c, cluster->checkpoint_path),
        .transport = glm_transport_text(cluster->transport),
        .listen_host = lane->listen_host,
        .listen_port = lane->listen_port,
        .served_name = cluster->served_name,
        .api_key_file = absolute(c, lane->api_key_file),
        .max_tokens = lane->max_tokens,
        .max_body_bytes = lane->max_body_bytes,
        .thinking = lane->thinking,
        .effort = lane->effort,
        .ranks = ARENA_ARRAY(&c->arena, lane->n_ranks, struct glm_launch_rank),
        .n_ranks = lane->n_ranks,
    };
    if (out->ranks == NULL)
        return glm_fail(err, GLM_ENOMEM, "out of memory");
    memcpy(out->spec_digest, cluster->spec_digest, sizeof out->spec_digest);
    memcpy(out->set_digest, c->plans[0]->set_digest, sizeof out->set_digest);
    memcpy(out->checkpoint_digest, cluster->checkpoint->digest, sizeof out->checkpoint_digest);
    enum glm_status status = binary_digest(out->binary_digest, err);
    for (uint32_t r = 0; status == GLM_OK && r < lane->n_ranks; r++)
        status = launch_rank(c, r, &out->ranks[r], err);
    return status;
}

/* ---- what differs ---- */

static enum glm_status read_launch(const char *folder, struct arena *arena,
                                   struct glm_launch_file **out)
{
    struct buf path = {0}, text = {0};
    struct glm_error ignored = {0};
    buf_printf(&path, "%s/launch.json", folder);
    enum glm_status status = glm_file_read(buf_text(&path), LAUNCH_LIMIT_BYTES, &text, &ignored);
    if (status == GLM_OK)
        status = glm_launch_read(buf_text(&text), text.len, arena, out, &ignored);
    buf_release(&path);
    buf_release(&text);
    return status;
}

static bool differs(const char *what, const char *old, const char *new)
{
    if (strcmp(old == NULL ? "" : old, new == NULL ? "" : new) == 0)
        return false;
    fprintf(stderr, "  ~ %s: %.60s -> %.60s\n", what, old == NULL ? "" : old,
            new == NULL ? "" : new);
    return true;
}

static bool number_differs(const char *what, uint64_t old, uint64_t new)
{
    if (old == new)
        return false;
    fprintf(stderr, "  ~ %s: %llu -> %llu\n", what, (unsigned long long)old,
            (unsigned long long)new);
    return true;
}

static bool ranks_differ(const struct glm_launch_file *old, const struct glm_launch_file *new)
{
    bool any = number_differs("ranks", old->n_ranks, new->n_ranks);
    for (uint32_t r = 0; r < old->n_ranks && r < new->n_ranks; r++) {
        const struct glm_launch_rank *a = &old->ranks[r], *b = &new->ranks[r];
        char what[48];
        snprintf(what, sizeof what, "rank %u node", r);
        any |= differs(what, a->node, b->node);
        snprintf(what, sizeof what, "rank %u threads", r);
        any |= number_differs(what, a->threads, b->threads);
        snprintf(what, sizeof what, "rank %u plan", r);
        any |= differs(what, a->plan_digest, b->plan_digest);
    }
    return any;
}

static bool launch_differs(const struct glm_launch_file *old, const struct glm_launch_file *new)
{
    bool any = differs("checkpoint", old->checkpoint, new->checkpoint);
    any |= differs("checkpoint digest", old->checkpoint_digest, new->checkpoint_digest);
    any |= differs("served name", old->served_name, new->served_name);
    any |= differs("transport", old->transport, new->transport);
    any |= differs("listen host", old->listen_host, new->listen_host);
    any |= number_differs("listen port", old->listen_port, new->listen_port);
    any |= differs("API key file", old->api_key_file, new->api_key_file);
    any |= number_differs("max_tokens", old->max_tokens, new->max_tokens);
    any |= number_differs("body limit", old->max_body_bytes, new->max_body_bytes);
    any |= number_differs("thinking", old->thinking, new->thinking);
    any |= differs("effort", old->effort, new->effort);
    any |= differs("kernel target", old->target, new->target);
    any |= differs("glmd", old->binary_digest, new->binary_digest);
    any |= ranks_differ(old, new);
    return any;
}

bool apply_print_changes(struct compiled *c)
{
    const struct glm_lane *lane = &c->cluster->lanes[c->lane_i];
    struct buf folder = {0};
    struct glm_error err = {0};
    struct lane_status running = {0};
    struct glm_launch_file *old = NULL;
    struct glm_launch_file new;
    bool changes = true;
    if (lane_folder(c->cluster->name, lane->name, &folder, &err) == GLM_OK &&
        lane_status_read(buf_text(&folder), &running, &err) == GLM_OK && running.running &&
        read_launch(buf_text(&folder), &c->arena, &old) == GLM_OK &&
        apply_launch(c, &new, &err) == GLM_OK) {
        changes = launch_differs(old, &new);
        fprintf(stderr,
                changes ? "lane %s runs with other settings: apply restarts it\n"
                        : "lane %s already runs exactly this: no changes\n",
                lane->name);
    } else {
        fprintf(stderr, "  + lane %s is not running: apply starts %u rank%s\n", lane->name,
                lane->n_ranks, lane->n_ranks == 1 ? "" : "s");
    }
    lane_status_release(&running);
    buf_release(&folder);
    return changes;
}

/* ---- refusals ---- */

static enum glm_status check_can_run(const struct compiled *c, struct glm_error *err)
{
    const struct glm_cluster *cluster = c->cluster;
    const struct glm_lane *lane = &cluster->lanes[c->lane_i];
    if (cluster->checkpoint_absent) {
        enum glm_status status =
            glm_fail(err, GLM_ECHECKPOINT, "checkpoint '%s' is not on this machine",
                     cluster->checkpoint_where);
        glm_error_hint(err, "download it into the hub cache, or set model.checkpoint to a folder");
        return status;
    }
    for (uint32_t r = 0; r < lane->n_ranks; r++) {
        const struct glm_node *node = &cluster->nodes[lane->ranks[r]];
        if (node->device != GLM_DEVICE_CPU || strcmp(node->host, "local") != 0)
            return glm_fail(
                err, GLM_EFABRIC,
                "rank %u is node '%s' on '%s': this version applies cpu nodes of this host only, "
                "other nodes can be planned",
                r, node->name, node->host);
    }
    return GLM_OK;
}

static uint64_t available_bytes(void)
{
    FILE *f = fopen("/proc/meminfo", "re");
    char line[128];
    unsigned long long kib = 0;
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            break;
    if (f != NULL)
        fclose(f);
    return kib * 1024;
}

static enum glm_status check_memory(const struct compiled *c, const char *folder,
                                    struct glm_error *err)
{
    const struct glm_lane *lane = &c->cluster->lanes[c->lane_i];
    struct lane_status old = {0};
    struct glm_error ignored = {0};
    uint64_t need = 0, have = available_bytes();
    for (uint32_t r = 0; r < lane->n_ranks; r++)
        need += glm_plan_total_bytes(c->plans[r]);
    /* What runs in this folder is stopped first and gives its memory back. */
    if (lane_status_read(folder, &old, &ignored) == GLM_OK)
        for (uint32_t r = 0; r < old.n_ranks; r++)
            have += old.ranks[r].memory_bytes;
    lane_status_release(&old);
    if (need <= have)
        return GLM_OK;
    enum glm_status status = glm_fail(
        err, GLM_ECAPACITY, "lane '%s' needs %.2f GiB on this host, %.2f GiB are available",
        lane->name, (double)need / (1 << 30), (double)have / (1 << 30));
    glm_error_hint(err, "stop another lane, or lower lanes[].streams, window or pool_tokens");
    return status;
}

/* ---- the state folder ---- */

static enum glm_status take_lock(const char *folder, int *lock, struct glm_error *err)
{
    struct buf path = {0};
    char holder[64] = "";
    enum glm_status status = GLM_OK;
    buf_printf(&path, "%s/apply.lock", folder);
    *lock = open(buf_text(&path), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (*lock < 0) {
        status = glm_fail(err, GLM_EIO, "cannot open '%s': %s", buf_text(&path), strerror(errno));
        glm_error_hint(err, "GLM_STATE_DIR names another state folder");
    } else if (flock(*lock, LOCK_EX | LOCK_NB) != 0) {
        ssize_t n = pread(*lock, holder, sizeof holder - 1, 0);
        holder[n < 0 ? 0 : n] = '\0';
        status = glm_fail(err, GLM_EBUSY, "another apply of this lane runs: process %s", holder);
        glm_error_hint(err, "wait for it, or end it");
        close(*lock);
        *lock = -1;
    } else {
        int n = snprintf(holder, sizeof holder, "%ld", (long)getpid());
        if (ftruncate(*lock, 0) != 0 || pwrite(*lock, holder, (size_t)n, 0) != n)
            status =
                glm_fail(err, GLM_EIO, "cannot write '%s': %s", buf_text(&path), strerror(errno));
    }
    buf_release(&path);
    return status;
}

static enum glm_status write_secret(const char *folder, struct glm_error *err)
{
    struct buf path = {0};
    unsigned char secret[32];
    enum glm_status status = GLM_OK;
    buf_printf(&path, "%s/secret", folder);
    if (RAND_bytes(secret, sizeof secret) != 1)
        status = glm_fail(err, GLM_EIO, "cannot make the lane's secret");
    if (status == GLM_OK)
        status = glm_file_write(buf_text(&path), secret, sizeof secret, 0600, err);
    buf_release(&path);
    return status;
}

static enum glm_status write_plans(const struct compiled *c, const char *folder,
                                   const struct glm_launch_file *launch, struct glm_error *err)
{
    struct buf path = {0}, text = {0};
    enum glm_status status = GLM_OK;
    for (uint32_t r = 0; status == GLM_OK && r < launch->n_ranks; r++) {
        buf_clear(&path);
        buf_clear(&text);
        buf_printf(&path, "%s/%s", folder, launch->ranks[r].plan_file);
        status = glm_plan_write(c->plans[r], &text, err);
        if (status == GLM_OK)
            status = glm_file_write(buf_text(&path), text.data, text.len, 0600, err);
    }
    if (status == GLM_OK) {
        buf_clear(&path);
        buf_clear(&text);
        buf_printf(&path, "%s/launch.json", folder);
        status = glm_launch_write(launch, &text, err);
    }
    if (status == GLM_OK)
        status = glm_file_write(buf_text(&path), text.data, text.len, 0600, err);
    buf_release(&path);
    buf_release(&text);
    return status;
}

static enum glm_status make_folder(const char *folder, struct glm_error *err)
{
    struct buf logs = {0};
    buf_printf(&logs, "%s/logs", folder);
    enum glm_status status = glm_make_folders(buf_text(&logs), err);
    if (status != GLM_OK)
        glm_error_hint(err, "GLM_STATE_DIR names another state folder");
    buf_release(&logs);
    return status;
}

/* ---- kernels ---- */

struct build_watch {
    struct progress progress;
    uint32_t rank, n_ranks, n_compiled;
};

static void on_built(void *context, uint32_t done, uint32_t total, const char *name)
{
    struct build_watch *w = context;
    progress_show(&w->progress, "kernels of rank %u of %u: %u of %u (%s)", w->rank, w->n_ranks,
                  done, total, name);
}

static enum glm_status build_kernels(struct compiled *c, struct glm_launch_file *launch,
                                     struct glm_error *err)
{
    const double began = progress_now_s();
    struct build_watch watch = {.n_ranks = launch->n_ranks};
    progress_init(&watch.progress);
    uint32_t n_kernels = 0;
    for (uint32_t r = 0; r < launch->n_ranks; r++) {
        struct glm_launch_rank *rank = &launch->ranks[r];
        struct glm_kernel_build *builds = NULL;
        watch.rank = r;
        enum glm_status status = glm_kernels_build(c->plans[r], default_threads(1), &c->arena,
                                                   on_built, &watch, &builds, err);
        if (status != GLM_OK)
            return status;
        rank->n_kernels = c->plans[r]->n_kernels;
        rank->kernel_paths = ARENA_ARRAY(&c->arena, rank->n_kernels, const char *);
        rank->kernel_digests = ARENA_ARRAY(&c->arena, rank->n_kernels, const char *);
        if (rank->kernel_paths == NULL || rank->kernel_digests == NULL)
            return glm_fail(err, GLM_ENOMEM, "out of memory");
        for (uint32_t k = 0; k < rank->n_kernels; k++) {
            rank->kernel_paths[k] = builds[k].path;
            rank->kernel_digests[k] = builds[k].digest;
            watch.n_compiled += builds[k].compiled;
        }
        n_kernels += rank->n_kernels;
    }
    progress_done(&watch.progress, "kernels: %u, %u compiled, %.1f s", n_kernels, watch.n_compiled,
                  progress_now_s() - began);
    return GLM_OK;
}

/* ---- the daemon ---- */

static enum glm_status start_daemon(const char *folder, pid_t *pid, struct glm_error *err)
{
    char glmd[PATH_MAX], launch[PATH_MAX], log[PATH_MAX];
    enum glm_status status = daemon_path(glmd, sizeof glmd, err);
    if (status != GLM_OK)
        return status;
    if (snprintf(launch, sizeof launch, "%s/launch.json", folder) >= (int)sizeof launch ||
        snprintf(log, sizeof log, "%s/logs/rank0.log", folder) >= (int)sizeof log)
        return glm_fail(err, GLM_EINVAL, "the path of state folder '%s' is too long", folder);
    char rank_option[] = "--rank", launch_option[] = "--launch", zero[] = "0";
    char *argv[] = {glmd, launch_option, launch, rank_option, zero, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log, O_WRONLY | O_CREAT | O_APPEND,
                                     0600);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    int rc = posix_spawn(pid, glmd, &actions, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (rc != 0)
        return glm_fail(err, GLM_EIO, "cannot start '%s': %s", glmd, strerror(rc));
    return GLM_OK;
}

static void show_loading(struct progress *p, const struct lane_status *s)
{
    uint64_t done = 0, total = 0;
    for (uint32_t r = 0; r < s->n_ranks; r++) {
        done += s->ranks[r].done_bytes;
        total += s->ranks[r].total_bytes;
    }
    progress_show(p, "%s: %.1f of %.1f MiB placed on %u rank%s", s->running ? s->state : "starting",
                  (double)done / (1 << 20), (double)total / (1 << 20), s->n_ranks,
                  s->n_ranks == 1 ? "" : "s");
}

static enum glm_status wait_for_live(const char *folder, pid_t pid, struct lane_status *s,
                                     struct glm_error *err)
{
    const double began = progress_now_s();
    struct progress progress;
    progress_init(&progress);
    for (;;) {
        lane_status_release(s);
        struct glm_error ignored = {0};
        (void)lane_status_read(folder, s, &ignored);
        if (lane_is_live(s))
            break;
        int rc;
        if (waitpid(pid, &rc, WNOHANG) == pid)
            return glm_fail(err, GLM_EPEER, "the head ended while starting (status %d)",
                            WIFEXITED(rc) ? WEXITSTATUS(rc) : 128 + WTERMSIG(rc));
        if (progress_now_s() - began > LIVE_DEADLINE_S)
            return glm_fail(err, GLM_EPEER, "the lane was not live after %d s: it is %s",
                            LIVE_DEADLINE_S, s->running ? s->state : "not answering");
        show_loading(&progress, s);
        usleep(LIVE_POLL_US);
    }
    progress_done(&progress, "loaded on %u rank%s, %.1f s", s->n_ranks, s->n_ranks == 1 ? "" : "s",
                  progress_now_s() - began);
    return GLM_OK;
}

/* A real completion through every rank; LIVE is not said before. */
static enum glm_status smoke_test(const struct glm_launch_file *launch, const char *url,
                                  struct glm_error *err)
{
    struct buf where = {0}, answer = {0};
    long http_status = 0;
    buf_printf(&where, "%s/v1/completions", url);
    enum glm_status status =
        http_request(buf_text(&where), launch->api_key_file,
                     "{\"prompt\":[0,1,2,3],\"max_tokens\":2,\"temperature\":0}", SMOKE_TIMEOUT_S,
                     &answer, &http_status, NULL, NULL, err);
    if (status == GLM_OK && http_status != 200)
        status = glm_fail(err, GLM_EPEER, "the first completion failed with HTTP %ld: %.300s",
                          http_status, buf_text(&answer));
    buf_release(&where);
    buf_release(&answer);
    return status;
}

static void print_banner(const struct compiled *c, const struct glm_launch_file *launch,
                         const struct lane_status *s, double seconds)
{
    const struct glm_lane *lane = &c->cluster->lanes[c->lane_i];
    const struct glm_plan_limits *limits = &c->plans[0]->limits;
    printf("%s is LIVE on lane %s: %u rank%s over %s, %.1f s\n", launch->served_name, lane->name,
           launch->n_ranks, launch->n_ranks == 1 ? "" : "s", launch->transport, seconds);
    printf("  %u streams, window %u tokens, pool %llu tokens\n", limits->n_streams,
           limits->window_tokens, (unsigned long long)limits->pool_tokens);
    printf("  experts %s, dense %s, head %s, kv %s, act %s\n",
           glm_expert_form_text(lane->formats.experts), glm_matrix_form_text(lane->formats.dense),
           glm_matrix_form_text(lane->formats.head), glm_kv_form_text(lane->formats.kv),
           glm_act_text(lane->formats.act));
    printf("  look at it: glmctl status %s --lane %s    stop it: glmctl stop %s --lane %s\n",
           c->cluster->spec_path, lane->name, c->cluster->spec_path, lane->name);
    if (launch->api_key_file == NULL || *launch->api_key_file == '\0')
        fprintf(stderr, "note: no API key is set: whoever reaches %s:%u is served\n",
                launch->listen_host, launch->listen_port);
    printf("%s\n", s->url);
    fflush(stdout);
}

static enum glm_status bring_up(struct compiled *c, const char *folder, struct glm_error *err)
{
    const double began = progress_now_s();
    const struct glm_lane *lane = &c->cluster->lanes[c->lane_i];
    struct glm_launch_file launch;
    struct lane_status running = {0};
    pid_t pid;
    enum glm_status status = check_memory(c, folder, err);
    if (status == GLM_OK)
        status = apply_launch(c, &launch, err);
    if (status == GLM_OK)
        status = build_kernels(c, &launch, err);
    if (status == GLM_OK)
        status = lane_status_read(folder, &running, err);
    if (status == GLM_OK && running.running)
        status = lane_stop(folder, lane->name, err);
    if (status == GLM_OK)
        status = write_secret(folder, err);
    if (status == GLM_OK)
        status = write_plans(c, folder, &launch, err);
    if (status == GLM_OK)
        status = start_daemon(folder, &pid, err);
    if (status == GLM_OK) {
        status = wait_for_live(folder, pid, &running, err);
        if (status == GLM_OK)
            status = smoke_test(&launch, running.url, err);
        if (status != GLM_OK) {
            lane_print_logs(folder, launch.n_ranks, 25);
            struct glm_error ignored = {0};
            (void)lane_stop(folder, lane->name, &ignored);
        }
    }
    if (status == GLM_OK)
        print_banner(c, &launch, &running, progress_now_s() - began);
    lane_status_release(&running);
    return status;
}

int apply_lane(const struct common_options *o, struct compiled *c)
{
    struct glm_error err = {0};
    struct buf folder = {0};
    int lock = -1;
    enum glm_status status = check_can_run(c, &err);
    if (status == GLM_OK)
        status = lane_folder(c->cluster->name, c->cluster->lanes[c->lane_i].name, &folder, &err);
    if (status == GLM_OK)
        status = make_folder(buf_text(&folder), &err);
    if (status == GLM_OK)
        status = take_lock(buf_text(&folder), &lock, &err);
    if (status == GLM_OK)
        status = bring_up(c, buf_text(&folder), &err);
    if (lock >= 0)
        close(lock);
    buf_release(&folder);
    return status == GLM_OK ? EXIT_DONE : fail(o, &err);
}
