/* SPDX-License-Identifier: Apache-2.0 */
/* The back end of host targets: runs $GLM_HOST_CC and names this machine's target. The flags keep
 * every rank's bits equal: no contraction of a*b+c that the body did not write, no reassociation.
 * Which kernels are built, and where the result is kept, is for kernels.c and cache.c. */
#include "codegen/kernels.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#include <asm/hwcap.h>
#endif

extern char **environ;

enum { MAX_WORDS = 128, VERSION_LIMIT_BYTES = 16 * 1024 };

static const char *const host_targets[] = {"x86-64",    "x86-64-v2", "x86-64-v3",
                                           "x86-64-v4", "armv8-a",   "armv8.2-a"};

const char *const glm_hostcc_flags[] = {
    "-std=gnu17",         "-O3", "-fPIC", "-shared", "-ffp-contract=off", "-fno-math-errno",
    "-fno-trapping-math", NULL};

const char *glm_host_target(void)
{
#if defined(__x86_64__)
    /* The features that the psABI's levels add and that prelude code uses; __builtin_cpu_supports
     * also asks whether the system saves the registers. */
    unsigned a, b, c, d;
    __builtin_cpu_init();
    bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0 && (c & bit_MOVBE) != 0;
    bool lzcnt = __get_cpuid(0x80000001, &a, &b, &c, &d) != 0 && (c & bit_LZCNT) != 0;
    bool v3 = f16c && lzcnt && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
              __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512vl");
    return v4 ? "x86-64-v4" : v3 ? "x86-64-v3" : "x86-64";
#elif defined(__aarch64__)
    const unsigned long want = HWCAP_ATOMICS | HWCAP_FPHP | HWCAP_ASIMDHP | HWCAP_ASIMDRDM;
    return (getauxval(AT_HWCAP) & want) == want ? "armv8.2-a" : "armv8-a";
#else
#error "no host target for this architecture"
#endif
}

/* Appends the words of text (spaces between, no quoting) to the argv. */
static bool add_words(struct arena *arena, const char *text, const char **argv, uint32_t *n)
{
    for (;;) {
        text += strspn(text, " \t");
        size_t len = strcspn(text, " \t");
        if (len == 0)
            return true;
        if (*n >= MAX_WORDS - 1)
            return false;
        argv[*n] = arena_strndup(arena, text, len);
        if (argv[(*n)++] == NULL)
            return false;
        text += len;
    }
}

/* A compiler given by a relative path must still be found after the change of folder. */
static const char *absolute(struct arena *arena, const char *program)
{
    char path[PATH_MAX];
    if (strchr(program, '/') == NULL || program[0] == '/' || realpath(program, path) == NULL)
        return program;
    return arena_strdup(arena, path);
}

static enum glm_status fill_argv(struct arena *arena, const char *target, const char **argv,
                                 uint32_t *n_compiler, struct glm_error *err)
{
    const char *compiler = getenv("GLM_HOST_CC");
    const char *more = getenv("GLM_HOST_CFLAGS");
    uint32_t n = 0;
    bool ok = add_words(arena, compiler == NULL ? "cc" : compiler, argv, &n);
    if (ok && n == 0)
        return glm_fail(err, GLM_EKERNEL, "cannot build kernels: GLM_HOST_CC is set but empty");
    *n_compiler = n;
    argv[0] = argv[0] == NULL ? NULL : absolute(arena, argv[0]);
    for (size_t i = 0; ok && glm_hostcc_flags[i] != NULL; i++)
        ok = add_words(arena, glm_hostcc_flags[i], argv, &n);
    const char *march = arena_printf(arena, "-march=%s", target);
    ok = ok && march != NULL && add_words(arena, march, argv, &n);
    ok = ok && add_words(arena, more == NULL ? "" : more, argv, &n);
    ok = ok && add_words(arena, "-I. -o kernel.so kernel.c", argv, &n);
    if (!ok || argv[0] == NULL)
        return glm_fail(err, GLM_EKERNEL,
                        "cannot build kernels: more than %d words in GLM_HOST_CC and "
                        "GLM_HOST_CFLAGS, or no memory for them",
                        MAX_WORDS - 2);
    argv[n] = NULL;
    return GLM_OK;
}

static const char *join(struct arena *arena, const char *const *argv)
{
    struct buf b = {0};
    for (uint32_t i = 0; argv[i] != NULL; i++)
        buf_printf(&b, "%s%s", i == 0 ? "" : " ", argv[i]);
    const char *text = b.failed ? NULL : arena_strdup(arena, buf_text(&b));
    buf_release(&b);
    return text;
}

/* posix_spawn's argv is not const for historical reasons; it does not write to it. */
static int spawn(pid_t *pid, const char *const *argv, posix_spawn_file_actions_t *actions)
{
    union {
        const char *const *in;
        char *const *out;
    } cast = {argv};
    return posix_spawnp(pid, argv[0], actions, NULL, cast.out, environ);
}

static enum glm_status cannot_run(const char *program, int error, struct glm_error *err)
{
    enum glm_status status = glm_fail(err, GLM_EKERNEL, "cannot run the host compiler '%s': %s",
                                      program, strerror(error));
    glm_error_hint(err, "install a C compiler (gcc) or name one in GLM_HOST_CC");
    return status;
}

/* Reads to the end or the limit; what is more is dropped, and the compiler gets SIGPIPE. */
static void read_version(int fd, char *text, size_t size)
{
    size_t len = 0;
    while (len < size - 1) {
        ssize_t n = read(fd, text + len, size - 1 - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    text[len] = '\0';
}

static enum glm_status ask_version(struct arena *arena, const char *const *argv,
                                   uint32_t n_compiler, const char **version, struct glm_error *err)
{
    const char *ask[MAX_WORDS + 1];
    memcpy(ask, argv, n_compiler * sizeof *argv);
    ask[n_compiler] = "--version";
    ask[n_compiler + 1] = NULL;
    char *text = arena_alloc(arena, VERSION_LIMIT_BYTES);
    int ends[2];
    if (text == NULL || pipe2(ends, O_CLOEXEC) != 0)
        return glm_fail(err, text == NULL ? GLM_ENOMEM : GLM_EIO,
                        "cannot ask the host compiler for its version: %s", strerror(errno));
    posix_spawn_file_actions_t actions;
    pid_t pid;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    int error = spawn(&pid, ask, &actions);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (error == 0)
        read_version(ends[0], text, VERSION_LIMIT_BYTES);
    close(ends[0]);
    if (error != 0)
        return cannot_run(ask[0], error, err);
    int wait_status = 0;
    while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR)
        ;
    /* A wrapper's word, and an emulator's, for what is not there. */
    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 127)
        return cannot_run(ask[0], ENOENT, err);
    if (!WIFEXITED(wait_status) || WEXITSTATUS(wait_status) != 0 || text[0] == '\0')
        return glm_fail(err, GLM_EKERNEL,
                        "cannot use the host compiler '%s': '--version' failed with status %d",
                        ask[0], WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : wait_status);
    *version = text;
    return GLM_OK;
}

static bool takes(const char *target)
{
    for (size_t i = 0; i < sizeof host_targets / sizeof host_targets[0]; i++)
        if (strcmp(host_targets[i], target) == 0)
            return true;
    return false;
}

static enum glm_status init(const char *target, struct arena *arena, struct glm_compiler *out,
                            struct glm_error *err)
{
    const char **argv = ARENA_ARRAY(arena, MAX_WORDS + 1, const char *);
    if (argv == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot build kernels: out of memory");
    struct glm_compiler cc = {.backend = &glm_backend_host, .target = target, .state = argv};
    uint32_t n_compiler = 0;
    enum glm_status status = fill_argv(arena, target, argv, &n_compiler, err);
    if (status == GLM_OK)
        status = ask_version(arena, argv, n_compiler, &cc.version, err);
    if (status != GLM_OK)
        return status;
    cc.name = argv[0];
    cc.command = join(arena, argv);
    if (cc.command == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot build kernels: out of memory");
    *out = cc;
    return GLM_OK;
}

/* Without a shell; the folder is the compiler's current one. */
static enum glm_status compile(const struct glm_compiler *cc, const char *folder,
                               const struct glm_cache_file *files, uint32_t n_files,
                               struct glm_kernel_resources *resources, struct glm_error *err)
{
    const char *const *argv = cc->state;
    posix_spawn_file_actions_t actions;
    pid_t pid;
    (void)files;
    (void)n_files;
    *resources = (struct glm_kernel_resources){0};
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, folder);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "kernel.log",
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    int error = spawn(&pid, argv, &actions), wait_status = 0;
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0)
        return cannot_run(cc->name, error, err);
    while (waitpid(pid, &wait_status, 0) < 0)
        if (errno != EINTR) /* somebody else reaped it: its result is unknown */
            return glm_fail(err, GLM_EKERNEL, "%s was lost: %s", cc->name, strerror(errno));
    if (WIFSIGNALED(wait_status))
        return glm_fail(err, GLM_EKERNEL, "%s was ended by signal %d", cc->name,
                        WTERMSIG(wait_status));
    if (WEXITSTATUS(wait_status) != 0)
        return glm_fail(err, GLM_EKERNEL, "%s exited with %d", cc->name, WEXITSTATUS(wait_status));
    return GLM_OK;
}

const struct glm_backend glm_backend_host = {
    .language = GLM_LANGUAGE_C,
    .targets = "x86-64, x86-64-v2, x86-64-v3, x86-64-v4, armv8-a, armv8.2-a",
    .source = "kernel.c",
    .object = "kernel.so",
    .takes = takes,
    .init = init,
    .compile = compile,
};
