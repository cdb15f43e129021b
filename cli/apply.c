/* SPDX-License-Identifier: Apache-2.0 */
/* A compiled lane becomes processes. Everything that can be refused is refused before anything that
 * runs is touched; the state folder's apply.lock keeps a second glmctl out; an interruption is
 * heeded between steps, and what was started is ended again. Supervision is glmd's. */
#include "cli/apply.h"

#include "cli/capacity.h"
#include "cli/changes.h"
#include "cli/gpu.h"
#include "cli/http_client.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "codegen/kernels.h"
#include "codegen/process.h"
#include "runtime/nccl.h"
#include "runtime/state_dir.h"
#include "runtime/tokenizer_fit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LIVE_DEADLINE_S = 600,
    POLL_US = 20000,
    SMOKE_TIMEOUT_S = 60,
    END_DEADLINE_S = 15,
    LOG_LINES = 25
};

struct job {
    const struct common_options *options;
    const struct apply_request *request;
    struct compiled *c;
    const struct glm_lane *lane;
    struct buf folder, replaced_folder;
    int lock, replaced_lock;
    struct changes changes;
    struct glm_launch_file launch;
    struct lane_status status; /* once LIVE */
    double began_s;
    bool down; /* what ran before was stopped */
};

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
        if (strcmp(node->host, "local") != 0)
            return glm_fail(err, GLM_EFABRIC,
                            "rank %u is node '%s' on '%s': this version applies nodes of this host "
                            "only, others can be planned",
                            r, node->name, node->host);
    }
    if (lane->n_ranks > 1 && cluster->transport == GLM_TRANSPORT_ROCE) {
        enum glm_status status =
            glm_fail(err, GLM_EFABRIC,
                     "lane '%s' goes over '%s': this version applies shm, tcp and nccl only",
                     lane->name, glm_transport_text(cluster->transport));
        glm_error_hint(err, "fabric: { transport: shm }");
        return status;
    }
    return GLM_OK;
}

/* A GPU that is not there, or not what the spec says, was planned for; it cannot be applied. Nor
 * can a lane over NCCL where that is missing. */
static enum glm_status check_gpus(const struct compiled *c, struct glm_error *err)
{
    const struct glm_lane *lane = compiled_lane(c);
    struct glm_cuda_facts ignored;
    int version;
    enum glm_status status = GLM_OK;
    for (uint32_t r = 0; status == GLM_OK && r < lane->n_ranks; r++) {
        const struct glm_node *node = &c->cluster->nodes[lane->ranks[r]];
        if (node->device != GLM_DEVICE_CPU)
            status = gpu_facts(node, &ignored, err);
    }
    if (status == GLM_OK && glm_plan_uses_nccl(c->plans[0]))
        status = glm_nccl_library(&version, err);
    return status;
}

/* The head would say so too, but by then what runs has been stopped. */
static enum glm_status check_tokenizer(const struct compiled *c, struct glm_error *err)
{
    struct glm_tokenizer *t = NULL;
    enum glm_status status = glm_tokenizer_fit(c->cluster->checkpoint_path, c->plans[0], &t, err);
    glm_tokenizer_free(t);
    return status;
}

static enum glm_status find_replaced(struct job *j, struct glm_error *err)
{
    uint32_t lane;
    const char *name = j->request->replace;
    if (name == NULL)
        return GLM_OK;
    enum glm_status status = glm_cluster_lane(j->c->cluster, name, &lane, err);
    if (status == GLM_OK && lane == j->c->lane_i)
        return glm_fail(err, GLM_EINVAL, "lane '%s' cannot replace itself", name);
    if (status == GLM_OK)
        status = lane_folder(j->c->cluster->name, name, &j->replaced_folder, err);
    return status;
}

/* ---- the state folder ---- */

static enum glm_status open_folder(struct job *j, struct glm_error *err)
{
    struct buf logs = {0};
    buf_printf(&logs, "%s/logs", buf_text(&j->folder));
    enum glm_status status = glm_make_folders(buf_text(&logs), err);
    if (status != GLM_OK)
        glm_error_hint(err, "GLM_STATE_DIR names another state folder");
    else
        status = lane_lock(buf_text(&j->folder), &j->lock, err);
    if (status == GLM_OK && j->replaced_folder.len > 0 &&
        access(buf_text(&j->replaced_folder), F_OK) == 0)
        status = lane_lock(buf_text(&j->replaced_folder), &j->replaced_lock, err);
    buf_release(&logs);
    return status;
}

/* What `logs` shows is of this start; the one before is kept as rankN.log.1. */
static void turn_logs(const char *folder)
{
    char from[PATH_MAX], to[PATH_MAX];
    for (uint32_t r = 0; r < GLM_MAX_RANKS; r++)
        if (snprintf(from, sizeof from, "%s/logs/rank%u.log", folder, r) < (int)sizeof from &&
            snprintf(to, sizeof to, "%s.1", from) < (int)sizeof to)
            (void)rename(from, to);
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

/* ---- kernels ---- */

struct build_watch {
    struct progress progress;
    uint32_t rank, n_ranks;
    uint32_t n_kernels, n_compiled; /* of all ranks, equal ones once: what the plan says */
};

static bool on_built(void *context, uint32_t done, uint32_t total, const char *name)
{
    struct build_watch *w = context;
    progress_show(&w->progress, "kernels of rank %u of %u: %u of %u (%s)", w->rank, w->n_ranks,
                  done, total, name);
    return !signals_pending();
}

/* Is the kernel before this one of this rank, or on a rank before it? */
static bool is_known(const struct glm_launch_file *launch, uint32_t rank, uint32_t kernel)
{
    const char *digest = launch->ranks[rank].kernel_digests[kernel];
    for (uint32_t r = 0; r <= rank; r++) {
        const uint32_t n = r < rank ? launch->ranks[r].n_kernels : kernel;
        for (uint32_t k = 0; k < n; k++)
            if (strcmp(launch->ranks[r].kernel_digests[k], digest) == 0)
                return true;
    }
    return false;
}

static enum glm_status build_rank(struct job *j, uint32_t r, struct build_watch *watch,
                                  struct glm_error *err)
{
    struct arena *arena = &j->c->arena;
    struct glm_launch_rank *rank = &j->launch.ranks[r];
    struct glm_kernel_build *builds = NULL;
    char path[PATH_MAX];
    watch->rank = r;
    enum glm_status status = glm_kernels_build(j->c->plans[r], launch_default_threads(1), arena,
                                               on_built, watch, &builds, err);
    if (status != GLM_OK)
        return status;
    rank->n_kernels = j->c->plans[r]->n_kernels;
    rank->kernel_paths = ARENA_ARRAY(arena, rank->n_kernels, const char *);
    rank->kernel_digests = ARENA_ARRAY(arena, rank->n_kernels, const char *);
    if (rank->kernel_paths == NULL || rank->kernel_digests == NULL)
        return glm_fail(err, GLM_ENOMEM, "out of memory");
    for (uint32_t k = 0; k < rank->n_kernels; k++) {
        /* glmd has no current folder to speak of */
        rank->kernel_paths[k] =
            realpath(builds[k].path, path) == NULL ? builds[k].path : arena_strdup(arena, path);
        rank->kernel_digests[k] = builds[k].digest;
        if (rank->kernel_paths[k] == NULL)
            return glm_fail(err, GLM_ENOMEM, "out of memory");
        if (is_known(&j->launch, r, k))
            continue;
        watch->n_kernels++;
        watch->n_compiled += builds[k].compiled;
    }
    return GLM_OK;
}

static enum glm_status build_kernels(struct job *j, struct glm_error *err)
{
    struct build_watch watch = {.n_ranks = j->launch.n_ranks};
    struct glm_error found = {0};
    enum glm_status status = GLM_OK;
    progress_init(&watch.progress);
    for (uint32_t r = 0; status == GLM_OK && r < j->launch.n_ranks; r++)
        status = build_rank(j, r, &watch, &found);
    if (status == GLM_OK)
        status = signals_check("building kernels", err);
    else if (status != GLM_ECANCELED || signals_check("building kernels", err) == GLM_OK)
        *err = found;
    if (status == GLM_OK)
        progress_done(&watch.progress, "kernels: %u, %u compiled, %.1f s", watch.n_kernels,
                      watch.n_compiled, progress_now_s() - j->began_s);
    else
        progress_end(&watch.progress);
    return status;
}

/* ---- the daemon ---- */

static enum glm_status start_daemon(const char *folder, pid_t *pid, struct glm_error *err)
{
    char glmd[PATH_MAX], launch[PATH_MAX], log[PATH_MAX];
    enum glm_status status = launch_daemon_path(glmd, sizeof glmd, err);
    if (status != GLM_OK)
        return status;
    if (snprintf(launch, sizeof launch, "%s/launch.json", folder) >= (int)sizeof launch ||
        snprintf(log, sizeof log, "%s/logs/rank0.log", folder) >= (int)sizeof log)
        return glm_fail(err, GLM_EINVAL, "the path of state folder '%s' is too long", folder);
    char rank_option[] = "--rank", launch_option[] = "--launch", zero[] = "0";
    char *argv[] = {glmd, launch_option, launch, rank_option, zero, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t plain;
    sigfillset(&plain);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &plain);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF);
    posix_spawn_file_actions_addchdir_np(&actions, "/"); /* no file system is kept busy */
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log, O_WRONLY | O_CREAT | O_APPEND,
                                     0600);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    /* Whoever waits for the end of a pipe of ours must not wait for the lane's. */
    posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
    int rc = posix_spawn(pid, glmd, &actions, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (rc != 0)
        return glm_fail(err, GLM_EIO, "cannot start '%s': %s", glmd, strerror(rc));
    return GLM_OK;
}

static bool has_ended(pid_t pid, double deadline_s)
{
    const double until = progress_now_s() + deadline_s;
    do {
        if (waitpid(pid, NULL, WNOHANG) != 0)
            return true; /* ended now, or reaped before */
        usleep(POLL_US);
    } while (progress_now_s() < until);
    return false;
}

/* A head that we started and that is not wanted any more: asked, told, killed. The other ranks end
 * with it. */
static void end_daemon(const char *folder, pid_t pid)
{
    struct glm_error ignored = {0};
    if (has_ended(pid, 0))
        return;
    (void)lane_stop(folder, NULL, &ignored);
    if (has_ended(pid, 0))
        return;
    kill(pid, SIGTERM); /* it had not got as far as being asked */
    if (has_ended(pid, END_DEADLINE_S))
        return;
    kill(pid, SIGKILL);
    (void)has_ended(pid, END_DEADLINE_S);
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

static enum glm_status not_up(const struct job *j, const struct lane_status *s, const char *what,
                              struct glm_error *err)
{
    enum glm_status status = glm_fail(err, GLM_EPEER, "lane '%s' did not come up: %s",
                                      j->lane->name, s->error[0] != '\0' ? s->error : what);
    glm_error_hint(err, "glmctl logs %.160s --lane %.60s", j->c->cluster->spec_path, j->lane->name);
    return status;
}

/* pid: our child, 0 when somebody else started it. */
static enum glm_status wait_for_live(struct job *j, pid_t pid, struct glm_error *err)
{
    const double began = progress_now_s();
    struct progress progress;
    struct lane_status *s = &j->status;
    enum glm_status status = GLM_OK;
    char what[96];
    progress_init(&progress);
    for (;;) {
        struct glm_error ignored = {0};
        int rc = 0;
        const bool ended = pid != 0 && waitpid(pid, &rc, WNOHANG) == pid;
        (void)lane_status_read(buf_text(&j->folder), s, &ignored);
        if (lane_is_live(s))
            break;
        snprintf(what, sizeof what, "its head ended with status %d",
                 WIFEXITED(rc) ? WEXITSTATUS(rc) : 128 + WTERMSIG(rc));
        if (ended || (pid == 0 && !s->running))
            status = not_up(j, s, pid == 0 ? "its head ended" : what, err);
        snprintf(what, sizeof what, "it is still %s after %d s", s->state, LIVE_DEADLINE_S);
        if (status == GLM_OK && progress_now_s() - began > LIVE_DEADLINE_S)
            status = not_up(j, s, what, err);
        if (status == GLM_OK)
            status = signals_check("the lane was loading", err);
        if (status != GLM_OK) {
            progress_end(&progress);
            return status;
        }
        show_loading(&progress, s);
        usleep(POLL_US);
    }
    progress_done(&progress, "loaded on %u rank%s, %.1f s", s->n_ranks, s->n_ranks == 1 ? "" : "s",
                  progress_now_s() - began);
    return GLM_OK;
}

/* A real completion through every rank; LIVE is not said before. */
static enum glm_status smoke_test(const struct job *j, struct glm_error *err)
{
    struct buf where = {0}, answer = {0};
    long http_status = 0;
    buf_printf(&where, "%s/v1/completions", j->status.url);
    enum glm_status status =
        http_request(buf_text(&where), j->launch.api_key_file,
                     "{\"prompt\":[0,1,2,3],\"max_tokens\":2,\"temperature\":0}", SMOKE_TIMEOUT_S,
                     &answer, &http_status, NULL, NULL, err);
    if (status == GLM_OK && http_status != 200)
        status = glm_fail(err, GLM_EPEER, "the first completion failed with HTTP %ld: %.300s",
                          http_status, buf_text(&answer));
    buf_release(&where);
    buf_release(&answer);
    return status;
}

/* ---- results ---- */

static void banner_text(const struct job *j, struct buf *out)
{
    const struct glm_launch_file *l = &j->launch;
    const struct glm_plan_limits *limits = &j->c->plans[0]->limits;
    const struct glm_formats *f = &j->lane->formats;
    const char *spec = j->c->cluster->spec_path;
    buf_printf(out, "\n%s is LIVE on lane %s: %u rank%s", l->served_name, j->lane->name, l->n_ranks,
               l->n_ranks == 1 ? "" : "s");
    if (l->n_ranks > 1)
        buf_printf(out, " over %s", l->transport);
    buf_printf(out, ", %.1f s\n", progress_now_s() - j->began_s);
    for (uint32_t r = 0; r < j->status.n_ranks && r < l->n_ranks; r++)
        buf_printf(out, "  rank %u on %s: process %lld, %.1f MiB\n", r, l->ranks[r].node,
                   (long long)j->status.ranks[r].pid,
                   (double)j->status.ranks[r].memory_bytes / (1 << 20));
    buf_printf(out, "  %u streams, window %u tokens, pool %llu tokens\n", limits->n_streams,
               limits->window_tokens, (unsigned long long)limits->pool_tokens);
    buf_printf(out, "  experts %s, dense %s, head %s, kv %s, act %s\n",
               glm_expert_form_text(f->experts), glm_matrix_form_text(f->dense),
               glm_matrix_form_text(f->head), glm_kv_form_text(f->kv), glm_act_text(f->act));
    buf_printf(out, "  look at it: %s status %s --lane %s\n", program_name(), spec, j->lane->name);
    buf_printf(out, "  stop it:    %s stop %s --lane %s\n", program_name(), spec, j->lane->name);
}

static void result_json(const struct job *j, bool changed, struct buf *out)
{
    buf_printf(out, "{\"format_version\": %d", OUTPUT_FORMAT);
    json_member(out, ", ", "cluster", j->c->cluster->name);
    json_member(out, ", ", "lane", j->lane->name);
    buf_printf(out, ", \"changed\": %s, \"changes\": ", changed ? "true" : "false");
    changes_json(&j->changes, out);
    buf_str(out, ", \"diagnostics\": ");
    diag_render_json(&j->c->diags, out);
    buf_printf(out, ", \"seconds\": %.2f, \"ranks\": [", progress_now_s() - j->began_s);
    for (uint32_t r = 0; r < j->status.n_ranks; r++)
        buf_printf(out, "%s{\"rank\": %u, \"pid\": %lld, \"memory_bytes\": %llu}",
                   r > 0 ? ", " : "", r, (long long)j->status.ranks[r].pid,
                   (unsigned long long)j->status.ranks[r].memory_bytes);
    buf_char(out, ']');
    json_member(out, ", ", "url", j->status.url);
    buf_str(out, "}\n");
}

/* Others than this machine's users can ask it, and nobody asks them for a key. */
static bool is_open(const struct glm_lane *lane)
{
    const bool local = strncmp(lane->listen_host, "127.", 4) == 0 ||
                       strcmp(lane->listen_host, "::1") == 0 ||
                       strcmp(lane->listen_host, "localhost") == 0;
    return !local && (lane->api_key_file == NULL || *lane->api_key_file == '\0');
}

static int print_end(const struct job *j, bool changed)
{
    struct buf out = {0};
    if (changed && is_open(j->lane))
        fprintf(stderr, "warning: no API key is set: whoever reaches %s is served\n",
                j->status.url);
    if (wants_json(j->options)) {
        result_json(j, changed, &out);
    } else {
        if (changed)
            banner_text(j, &out);
        buf_printf(&out, "%s\n", j->status.url);
    }
    int rc = print_result(&out);
    buf_release(&out);
    return rc;
}

/* ---- the steps ---- */

/* Another apply started exactly this: its URL is the answer, once it is LIVE. */
static int already_there(struct job *j)
{
    struct glm_error err = {0};
    fprintf(stderr, "lane %s runs exactly this: nothing to do\n", j->lane->name);
    if (lane_status_read(buf_text(&j->folder), &j->status, &err) != GLM_OK)
        return fail(j->options, &err);
    if (!lane_is_live(&j->status) && wait_for_live(j, 0, &err) != GLM_OK)
        return fail(j->options, &err);
    return print_end(j, false);
}

static int show(const struct job *j)
{
    struct glm_error err = {0};
    struct buf text = {0};
    int rc = EXIT_DONE;
    if (wants_json(j->options))
        return EXIT_DONE;
    if (glm_plan_print(j->c->cluster, j->c->lane_i, j->c->plans, false, &text, &err) != GLM_OK)
        rc = fail(j->options, &err);
    else
        changes_text(j->c, &j->changes, &text);
    if (rc == EXIT_DONE)
        rc = print_result(&text);
    buf_release(&text);
    return rc;
}

static int ask(const struct job *j)
{
    char question[200];
    const bool runs = j->changes.kind != CHANGE_START;
    snprintf(question, sizeof question, "%s lane %.60s of %.60s%s?", runs ? "restart" : "start",
             j->lane->name, j->c->cluster->name,
             j->request->replace != NULL ? " in the place of another" : "");
    return confirm(j->options, j->request->command, j->request->yes, question);
}

static enum glm_status stop_old(struct job *j, struct glm_error *err)
{
    bool stopped = false;
    enum glm_status status = GLM_OK;
    if (j->replaced_lock >= 0)
        status = lane_stop(buf_text(&j->replaced_folder), &stopped, err);
    if (stopped)
        fprintf(stderr, "lane %s stopped: it is replaced\n", j->request->replace);
    stopped = false;
    if (status == GLM_OK)
        status = lane_stop(buf_text(&j->folder), &stopped, err);
    if (stopped && j->changes.kind != CHANGE_START)
        fprintf(stderr, "lane %s stopped: it starts anew\n", j->lane->name);
    j->down = stopped;
    return status;
}

static enum glm_status bring_up(struct job *j, struct glm_error *err)
{
    const char *folder = buf_text(&j->folder);
    pid_t pid = 0;
    enum glm_status status = capacity_check(j->c, folder, j->request->replace, err);
    if (status == GLM_OK)
        status = launch_make(j->c, &j->launch, err);
    if (status == GLM_OK)
        status = build_kernels(j, err);
    if (status == GLM_OK)
        status = stop_old(j, err);
    if (status == GLM_OK)
        status = glm_state_secret_create(folder, err);
    if (status == GLM_OK)
        status = write_plans(j->c, folder, &j->launch, err);
    if (status == GLM_OK)
        status = signals_check("the lane was being written", err);
    if (status != GLM_OK)
        return status;
    turn_logs(folder);
    status = start_daemon(folder, &pid, err);
    if (status != GLM_OK)
        return status;
    status = wait_for_live(j, pid, err);
    if (status == GLM_OK)
        status = smoke_test(j, err);
    if (status == GLM_OK)
        return GLM_OK;
    if (status != GLM_ECANCELED)
        lane_print_logs(folder, LOG_LINES);
    end_daemon(folder, pid);
    j->down = true;
    return status;
}

static int failed(const struct job *j, const struct glm_error *err)
{
    int rc = fail(j->options, err);
    if (err->status == GLM_ECANCELED)
        rc = signals_exit_status();
    if (j->down)
        fprintf(stderr, "  lane %s is stopped; next: %s apply %s --lane %s\n", j->lane->name,
                program_name(), j->c->cluster->spec_path, j->lane->name);
    else
        fprintf(stderr, "  nothing that runs was touched\n");
    return rc;
}

static int locked_steps(struct job *j)
{
    struct glm_error err = {0};
    signals_defer();
    enum glm_status status = open_folder(j, &err);
    if (status == GLM_OK) /* while we asked, somebody else may have applied it */
        status = changes_find(j->c, true, &j->changes, &err);
    if (status == GLM_OK && j->changes.kind == CHANGE_NONE && !j->request->restart)
        return already_there(j);
    if (status == GLM_OK)
        status = bring_up(j, &err);
    return status == GLM_OK ? print_end(j, true) : failed(j, &err);
}

static int steps(struct job *j)
{
    struct glm_error err = {0};
    enum glm_status status = check_can_run(j->c, &err);
    if (status == GLM_OK)
        status = check_gpus(j->c, &err);
    if (status == GLM_OK)
        status = find_replaced(j, &err);
    if (status == GLM_OK)
        status = lane_folder(j->c->cluster->name, j->lane->name, &j->folder, &err);
    if (status == GLM_OK)
        status = changes_find(j->c, true, &j->changes, &err);
    if (status == GLM_OK && j->changes.kind == CHANGE_NONE && !j->request->restart)
        return already_there(j);
    if (status == GLM_OK)
        status = capacity_check(j->c, buf_text(&j->folder), j->request->replace, &err);
    if (status == GLM_OK)
        status = check_tokenizer(j->c, &err);
    if (status != GLM_OK)
        return fail(j->options, &err);
    int rc = show(j);
    if (rc == EXIT_DONE)
        rc = ask(j);
    return rc == EXIT_DONE ? locked_steps(j) : rc;
}

int apply_lane(const struct common_options *o, const struct apply_request *request,
               struct compiled *c)
{
    struct job j = {
        .options = o,
        .request = request,
        .c = c,
        .lane = compiled_lane(c),
        .lock = -1,
        .replaced_lock = -1,
        .began_s = progress_now_s(),
    };
    int rc = steps(&j);
    if (j.lock >= 0)
        close(j.lock);
    if (j.replaced_lock >= 0)
        close(j.replaced_lock);
    buf_release(&j.folder);
    buf_release(&j.replaced_folder);
    return rc;
}
