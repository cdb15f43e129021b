/* SPDX-License-Identifier: Apache-2.0 */
/* NVRTC without CUDA, as a library for $GLM_NVRTC: a kernel is compiled by the C++ compiler for
 * this machine's CPU, together with tests/simt, and the shared object is what it calls the cubin.
 * tests/fake/cuda_driver.c runs those. The same source gives the same bytes. Where a real one says
 * what a kernel costs, registers and spills are none: a CPU's are not a GPU's. FAKE_ROOT is this
 * repository's folder. */
#include "tests/simt/compile.h"
#include "tests/simt/launch.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OK = 0, NO_MEMORY = 1, INVALID = 3, COMPILATION = 6, INTERNAL = 11 };
enum { PATH_BYTES = 512, COMMAND_BYTES = 4096 };

#define FLAGS SIMT_FLAGS " -O2 -w -ffile-prefix-map=" FAKE_ROOT "/="
#define PATHS "-I'" FAKE_ROOT "' -I'" FAKE_ROOT "/kernels-templates'"

struct text {
    char *data; /* NUL behind its end */
    size_t bytes;
};

struct program {
    char folder[PATH_BYTES], source[PATH_BYTES];
    struct text log, object;
};

/* A call with its prototype. */
#define CALL(type, name, ...) \
    type name(__VA_ARGS__);   \
    type name(__VA_ARGS__)

/* ---- Files ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char home[PATH_BYTES]; /* of this process; empty where it could not be made */
static pid_t owner;
static atomic_uint n_programs;

static bool write_file(const char *folder, const char *name, const char *text)
{
    char path[2 * PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    if (f == NULL)
        return false;
    const bool written = fputs(text, f) >= 0;
    return fclose(f) == 0 && written;
}

static bool read_file(const char *path, struct text *out)
{
    struct stat st;
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return false;
    bool whole = fstat(fileno(f), &st) == 0;
    if (whole) {
        out->bytes = (size_t)st.st_size;
        out->data = malloc(out->bytes + 1);
        whole = out->data != NULL && fread(out->data, 1, out->bytes, f) == out->bytes;
    }
    if (whole)
        out->data[out->bytes] = '\0';
    fclose(f);
    return whole;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void remove_folder(const char *folder)
{
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

__attribute__((destructor)) static void remove_home(void)
{
    if (home[0] != '\0' && owner == getpid())
        remove_folder(home);
}

/* ---- The compiler ---- */

/* Runs it in the folder, its words in the folder's log. */
static bool run(const char *folder, const char *command)
{
    extern char **environ;
    char line[2 * COMMAND_BYTES];
    char *const argv[] = {(char[]){"sh"}, (char[]){"-c"}, line, NULL};
    pid_t child;
    int status = -1;
    snprintf(line, sizeof line, "cd '%s' && exec %s >log 2>&1", folder, command);
    if (posix_spawn(&child, "/bin/sh", NULL, NULL, argv, environ) != 0)
        return false;
    while (waitpid(child, &status, 0) < 0)
        ;
    return status == 0;
}

/* This process's folder, with the part of every object that is not the kernel's. */
static void make_home(void)
{
    char command[COMMAND_BYTES];
    const char *temporary = getenv("TMPDIR");
    snprintf(home, sizeof home, "%s/glm-nvrtc-XXXXXX", temporary == NULL ? "/tmp" : temporary);
    owner = getpid();
    if (mkdtemp(home) == NULL)
        home[0] = '\0';
    snprintf(command, sizeof command,
             "%s " FLAGS " " PATHS " -c '" FAKE_ROOT "/tests/simt/simt.cc' -o simt.o",
             simt_compiler());
    if (home[0] != '\0')
        run(home, command); /* where it fails, the kernel's own compile does and says why */
}

/* What the kernel shares, from the object itself. */
static size_t shared_bytes(const char *path)
{
    simt_shared_fn ask = NULL;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = handle == NULL ? NULL : dlsym(handle, SIMT_SHARED_SYMBOL);
    memcpy(&ask, &symbol, sizeof ask);
    const size_t bytes = ask == NULL ? 0 : ask();
    if (handle != NULL)
        dlclose(handle);
    return bytes;
}

static bool report(struct text *log, size_t shared)
{
    char *text = NULL;
    int n = asprintf(&text,
                     "ptxas info    : Function properties for " GLM_CUDA_KERNEL_SYMBOL "\n"
                     "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
                     "ptxas info    : Used 0 registers, %zu bytes smem\n%s",
                     shared, log->data);
    if (n < 0)
        return false;
    free(log->data);
    *log = (struct text){text, (size_t)n};
    return true;
}

/* ---- NVRTC's calls ---- */

/* The minor number is a digest of all that goes into an object beside the kernel: the kernel
 * cache, which knows a compiler by its version, then has none of another emulator's. */
CALL(int, nvrtcVersion, int *major, int *minor)
{
    static const char *const files[] = {"launch.h", "simt.h", "simt.cc"};
    uint32_t digest = 2166136261u;
    for (size_t i = 0; i < 2 + sizeof files / sizeof files[0]; i++) {
        char path[PATH_BYTES];
        struct text text = {0};
        if (i >= 2) {
            snprintf(path, sizeof path, FAKE_ROOT "/tests/simt/%s", files[i - 2]);
            read_file(path, &text);
        }
        const char *p = i == 0 ? FLAGS : i == 1 ? simt_compiler() : text.data;
        for (; p != NULL && *p != '\0'; p++)
            digest = (digest ^ (unsigned char)*p) * 16777619u;
        free(text.data);
    }
    *major = 13;
    *minor = (int)(digest >> 8);
    return OK;
}
static const int archs[] = {89, 90, 120, 121};
CALL(int, nvrtcGetNumSupportedArchs, int *n)
{
    *n = sizeof archs / sizeof archs[0];
    return OK;
}
CALL(int, nvrtcGetSupportedArchs, int *out)
{
    memcpy(out, archs, sizeof archs);
    return OK;
}

/* The source and its headers lie in the program's folder from here on. */
CALL(int, nvrtcCreateProgram, void **out, const char *source, const char *name, int n_headers,
     const char *const *headers, const char *const *names)
{
    pthread_once(&once, make_home);
    struct program *p = calloc(1, sizeof *p);
    *out = p;
    if (p == NULL || home[0] == '\0')
        return NO_MEMORY;
    snprintf(p->folder, sizeof p->folder, "%.400s/%u", home, atomic_fetch_add(&n_programs, 1));
    snprintf(p->source, sizeof p->source, "%s", name);
    bool written = mkdir(p->folder, 0700) == 0 && write_file(p->folder, name, source);
    for (int i = 0; written && i < n_headers; i++)
        written = write_file(p->folder, names[i], headers[i]);
    return written ? OK : INVALID;
}

CALL(int, nvrtcCompileProgram, void *program, int n_options, const char *const *options)
{
    struct program *p = program;
    char command[COMMAND_BYTES], path[2 * PATH_BYTES];
    (void)n_options, (void)options;
    snprintf(command, sizeof command,
             "%s " FLAGS " -I. " PATHS " -shared -s -x c++ '%s' -x none '%s/simt.o' -o object.so",
             simt_compiler(), p->source, home);
    const bool compiled = run(p->folder, command);
    snprintf(path, sizeof path, "%s/log", p->folder);
    if (!read_file(path, &p->log))
        return INTERNAL;
    if (!compiled)
        return COMPILATION;
    snprintf(path, sizeof path, "%s/object.so", p->folder);
    return read_file(path, &p->object) && report(&p->log, shared_bytes(path)) ? OK : INTERNAL;
}
CALL(int, nvrtcGetProgramLogSize, void *program, size_t *bytes)
{
    *bytes = ((struct program *)program)->log.bytes + 1;
    return OK;
}
CALL(int, nvrtcGetProgramLog, void *program, char *out)
{
    const struct text *log = &((struct program *)program)->log;
    memcpy(out, log->data == NULL ? "" : log->data, log->bytes + 1);
    return OK;
}
CALL(int, nvrtcGetCUBINSize, void *program, size_t *bytes)
{
    *bytes = ((struct program *)program)->object.bytes;
    return OK;
}
CALL(int, nvrtcGetCUBIN, void *program, char *out)
{
    const struct text *object = &((struct program *)program)->object;
    memcpy(out, object->data, object->bytes);
    return OK;
}
CALL(int, nvrtcDestroyProgram, void **program)
{
    struct program *p = *program;
    if (p == NULL)
        return OK;
    remove_folder(p->folder);
    free(p->log.data);
    free(p->object.data);
    free(p);
    *program = NULL;
    return OK;
}
CALL(const char *, nvrtcGetErrorString, int result)
{
    static const struct {
        int result;
        const char *text;
    } rows[] = {{OK, "NVRTC_SUCCESS"},
                {NO_MEMORY, "NVRTC_ERROR_OUT_OF_MEMORY"},
                {INVALID, "NVRTC_ERROR_INVALID_INPUT"},
                {COMPILATION, "NVRTC_ERROR_COMPILATION"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].result == result)
            return rows[i].text;
    return "NVRTC_ERROR_INTERNAL_ERROR";
}
