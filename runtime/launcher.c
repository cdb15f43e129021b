/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher for ranks on this host: spawn, pidfd, wait. A child has its own process group, so
 * that a Ctrl-C at a terminal reaches rank 0 alone, and no descriptor of ours but its log. */
#include "runtime/launcher.h"

#include "runtime/state_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static enum glm_status open_log(const char *dir, uint32_t rank, int *fd, struct glm_error *err)
{
    char path[GLM_STATE_PATH_BYTES], name[32];
    enum glm_status status = glm_state_path(dir, "logs", path, err);
    if (status != GLM_OK)
        return status;
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return glm_fail(err, GLM_EIO, "cannot create folder '%s': %s", path, strerror(errno));
    snprintf(name, sizeof name, "logs/rank%u.log", rank);
    status = glm_state_path(dir, name, path, err);
    if (status != GLM_OK)
        return status;
    *fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (*fd < 0)
        return glm_fail(err, GLM_EIO, "cannot open log '%s': %s", path, strerror(errno));
    return GLM_OK;
}

static int spawn(const char *program, char *const argv[], int log_fd, pid_t *pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigemptyset(&none);
    int rc = posix_spawn_file_actions_init(&files);
    if (rc != 0)
        return rc;
    rc = posix_spawnattr_init(&attributes);
    if (rc == 0) {
        rc = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
        if (rc == 0)
            rc = posix_spawn_file_actions_adddup2(&files, log_fd, STDOUT_FILENO);
        if (rc == 0)
            rc = posix_spawn_file_actions_adddup2(&files, log_fd, STDERR_FILENO);
        if (rc == 0)
            rc = posix_spawnattr_setsigmask(&attributes, &none);
        if (rc == 0)
            rc = posix_spawnattr_setpgroup(&attributes, 0);
        if (rc == 0)
            rc = posix_spawnattr_setflags(&attributes,
                                          POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
        if (rc == 0)
            rc = posix_spawn(pid, program, &files, &attributes, argv, environ);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&files);
    return rc;
}

static enum glm_status local_start(void *context, uint32_t rank, const char *control,
                                   uint64_t epoch, struct glm_child *out, struct glm_error *err)
{
    struct glm_local_launcher *l = context;
    char rank_text[16], epoch_text[24], program[GLM_STATE_PATH_BYTES], launch[GLM_STATE_PATH_BYTES];
    char address[160], words[5][16] = {"--launch", "--rank", "--control", "--epoch"};
    snprintf(rank_text, sizeof rank_text, "%u", rank);
    snprintf(epoch_text, sizeof epoch_text, "%llu", (unsigned long long)epoch);
    snprintf(program, sizeof program, "%s", l->program);
    snprintf(launch, sizeof launch, "%s", l->launch_path);
    snprintf(address, sizeof address, "%s", control);
    char *argv[] = {program,  words[0], launch,   words[1],   rank_text,
                    words[2], address,  words[3], epoch_text, NULL};
    int log_fd = -1;
    enum glm_status status = open_log(l->dir, rank, &log_fd, err);
    if (status != GLM_OK)
        return status;
    pid_t pid = 0;
    int rc = spawn(l->program, argv, log_fd, &pid);
    close(log_fd);
    if (rc != 0)
        return glm_fail(err, GLM_EIO, "cannot start rank %u with '%s': %s", rank, l->program,
                        strerror(rc));
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0) {
        status = glm_fail(err, GLM_EIO, "cannot watch rank %u (pid %ld): %s", rank, (long)pid,
                          strerror(errno));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return status;
    }
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    *out = (struct glm_child){.running = true, .pid = pid, .fd = fd};
    return GLM_OK;
}

static void local_signal(void *context, const struct glm_child *child, int signal_number)
{
    (void)context;
    kill((pid_t)child->pid, signal_number);
}

static bool local_reap(void *context, struct glm_child *child, char *how, size_t capacity)
{
    (void)context;
    int status = 0;
    pid_t pid = waitpid((pid_t)child->pid, &status, WNOHANG);
    if (pid == 0 || (pid < 0 && errno == EINTR))
        return false;
    if (pid < 0)
        snprintf(how, capacity, "is gone");
    else if (WIFSIGNALED(status))
        snprintf(how, capacity, "was killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(how, capacity, "exited with %d", WEXITSTATUS(status));
    close(child->fd);
    *child = (struct glm_child){.fd = -1};
    return true;
}

void glm_local_launcher_init(struct glm_local_launcher *l, const char *program, const char *dir,
                             const char *launch_path)
{
    *l = (struct glm_local_launcher){.launcher = {.context = l,
                                                  .start = local_start,
                                                  .signal = local_signal,
                                                  .reap = local_reap},
                                     .program = program,
                                     .dir = dir,
                                     .launch_path = launch_path};
}
