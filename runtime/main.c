/* SPDX-License-Identifier: Apache-2.0 */
/* glmd: options, signals and the stacks that a stuck set asks for. Everything else is daemon.c.
 * Signals reach the daemon as a pipe that turns readable; the handlers touch nothing else. */
#include "runtime/daemon.h"
#include "runtime/lane_selftest.h"
#include "spec/base/log.h"

#include <dirent.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_USAGE = 64, MAX_FRAMES = 64, STACK_WAIT_MS = 500 };

static const char usage[] =
    "usage: glmd --launch DIR/launch.json --rank N [--control HOST:PORT] [--epoch E]\n"
    "       glmd selftest --launch DIR/launch.json --rank N [-o json]\n"
    "       glmd --help | --version\n"
    "\n"
    "Runs one rank of an applied lane. `glmctl apply` starts rank 0, which starts the others.\n"
    "  --launch F    the lane's launch document; its folder is the lane's state folder\n"
    "  --rank N      which rank; 0 is the head: it supervises the others and serves the API\n"
    "  --control A   where the head is reached; ranks above 0, default from head.json\n"
    "  --epoch E     the set that the rank is started for, default from head.json\n"
    "\n"
    "`selftest` compares every kernel of the rank's plan on its GPU with this machine's own, on as "
    "few\n"
    "layers as launch them all; it needs a C compiler ($GLM_HOST_CC) and the lane stopped, or "
    "memory\n"
    "for both. Exit: 0 all as promised, 1 not.\n"
    "\n"
    "Exit: 0 stopped in order, 1 failed (the log and `glmctl status` say why), 64 usage.\n"
    "GLM_LOG=error|warn|info|trace sets how much is logged.\n";

static int stop_pipe[2] = {-1, -1};
static sem_t stack_written;

static void on_stop(int signal_number)
{
    int kept = errno;
    (void)signal_number;
    if (write(stop_pipe[1], "", 1) < 0) {
        /* full: it is readable already */
    }
    errno = kept;
}

/* Runs on the thread that was asked. backtrace() was called once before, so nothing is loaded or
 * allocated here. */
static void on_stack_wanted(int signal_number)
{
    int kept = errno;
    void *frames[MAX_FRAMES];
    (void)signal_number;
    backtrace_symbols_fd(frames, backtrace(frames, MAX_FRAMES), STDERR_FILENO);
    sem_post(&stack_written);
    errno = kept;
}

/* One thread after the other, each with a bound: one that cannot run handlers is skipped. */
static void dump_stacks(void)
{
    DIR *tasks = opendir("/proc/self/task");
    if (tasks == NULL)
        return;
    for (struct dirent *t = readdir(tasks); t != NULL; t = readdir(tasks)) {
        long id = strtol(t->d_name, NULL, 10);
        if (id <= 0)
            continue;
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += STACK_WAIT_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        glm_log(GLM_LOG_ERROR, "stack of thread %ld:", id);
        if (syscall(SYS_tgkill, getpid(), id, SIGUSR2) == 0)
            while (sem_timedwait(&stack_written, &until) != 0 && errno == EINTR)
                continue;
    }
    closedir(tasks);
}

static int install_signals(void)
{
    void *frame[1];
    struct sigaction stop = {.sa_handler = on_stop}, ignore = {.sa_handler = SIG_IGN};
    struct sigaction stack = {.sa_handler = on_stack_wanted, .sa_flags = SA_RESTART};
    (void)backtrace(frame, 1);
    if (sem_init(&stack_written, 0, 0) != 0 || pipe2(stop_pipe, O_CLOEXEC | O_NONBLOCK) != 0)
        return -1;
    sigemptyset(&stop.sa_mask);
    sigemptyset(&stack.sa_mask);
    return sigaction(SIGTERM, &stop, NULL) | sigaction(SIGINT, &stop, NULL) |
           sigaction(SIGPIPE, &ignore, NULL) | sigaction(SIGUSR2, &stack, NULL);
}

static int selftest(int argc, char **argv)
{
    struct glm_daemon_config config = {0};
    struct glm_error err = {0};
    bool json =
        argc > 2 && strcmp(argv[argc - 2], "-o") == 0 && strcmp(argv[argc - 1], "json") == 0;
    bool passed = false;
    if (glm_daemon_options(argc - (json ? 2 : 0), argv, &config, &err) != GLM_OK) {
        fprintf(stderr, "glmd: %s\n%s", err.message, usage);
        return EXIT_USAGE;
    }
    enum glm_status st =
        glm_lane_selftest(config.launch_path, config.rank, json, stdout, &passed, &err);
    if (st == GLM_OK)
        return passed ? 0 : 1;
    fprintf(stderr, "glmd: %s\n", err.message);
    if (err.hint[0] != '\0')
        fprintf(stderr, "  hint: %s\n", err.hint);
    return 1;
}

int main(int argc, char **argv)
{
    char program[4096] = "";
    struct glm_error err = {0};
    bool hung = false;
    struct glm_daemon_config config = {.program = program,
                                       .dump_stacks = dump_stacks,
                                       .load = glm_lane_load,
                                       .release = glm_lane_release};
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("glmd %s\n", GLM_VERSION);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "selftest") == 0)
        return selftest(argc - 1, argv + 1);
    if (glm_daemon_options(argc, argv, &config, &err) != GLM_OK) {
        fprintf(stderr, "glmd: %s\n%s", err.message, usage);
        return EXIT_USAGE;
    }
    glm_log_init((int)config.rank);
    if (install_signals() != 0 || readlink("/proc/self/exe", program, sizeof program - 1) < 0) {
        glm_log(GLM_LOG_ERROR, "cannot set up signals: %s", strerror(errno));
        return 1;
    }
    config.stop_fd = stop_pipe[0];
    int code = glm_daemon_run(&config, &hung);
    if (hung) /* a thread still runs over what exit handlers would free */
        _exit(code);
    return code;
}
