/* SPDX-License-Identifier: Apache-2.0 */
/* The back end of CUDA targets: NVRTC, opened at run time, makes a cubin of exactly the target's
 * architecture; it needs neither GPU nor driver. No header of a toolkit is used: a kernel's own
 * headers are handed over in memory. The options keep the bits: no contraction of a*b+c that the
 * body did not write, IEEE division, square root and subnormals.
 * Which kernels are built, and where the result is kept, is for kernels.c and cache.c. */
#include "codegen/kernels.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MIN_MAJOR = 12, MIN_CAPABILITY = 89, MAX_ARCHS = 64, MAX_HEADERS = 64 };
enum { MAX_OUTPUT_BYTES = 64 * 1024 * 1024 };

/* NVRTC's C interface as its documentation gives it. */
typedef void *program;
struct library {
    int (*version)(int *, int *);
    int (*n_archs)(int *);
    int (*archs)(int *);
    int (*create)(program *, const char *, const char *, int, const char *const *,
                  const char *const *);
    int (*compile)(program, int, const char *const *);
    int (*log_size)(program, size_t *);
    int (*log)(program, char *);
    int (*cubin_size)(program, size_t *);
    int (*cubin)(program, char *);
    int (*destroy)(program *);
    const char *(*error_text)(int);
};

/* A symbol's address as a function pointer, which ISO C does not convert to. */
static bool find(void *handle, const char *name, void *pointer)
{
    void *symbol = dlsym(handle, name);
    memcpy(pointer, &symbol, sizeof symbol);
    return symbol != NULL;
}

static const char *find_all(void *handle, struct library *l)
{
    const struct {
        const char *name;
        void *pointer;
    } rows[] = {
        {"nvrtcVersion", &l->version},
        {"nvrtcGetNumSupportedArchs", &l->n_archs},
        {"nvrtcGetSupportedArchs", &l->archs},
        {"nvrtcCreateProgram", &l->create},
        {"nvrtcCompileProgram", &l->compile},
        {"nvrtcGetProgramLogSize", &l->log_size},
        {"nvrtcGetProgramLog", &l->log},
        {"nvrtcGetCUBINSize", &l->cubin_size},
        {"nvrtcGetCUBIN", &l->cubin},
        {"nvrtcDestroyProgram", &l->destroy},
        {"nvrtcGetErrorString", &l->error_text},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (!find(handle, rows[i].name, rows[i].pointer))
            return rows[i].name;
    return NULL;
}

static void how_to_get_it(struct glm_error *err)
{
    glm_error_hint(err, "install cuda-nvrtc-13-0 (NVIDIA's repository), libnvrtc12 (Debian) or "
                        "pip's nvidia-cuda-nvrtc, or name the library in GLM_NVRTC");
}

/* $GLM_NVRTC, else the newest soname that there is. Never closed: kernels of a later build may
 * need it, and its threads' state outlives a compile. */
static enum glm_status open_library(void **handle, const char **name, struct glm_error *err)
{
    static const char *const sonames[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
    const char *own = getenv("GLM_NVRTC");
    bool named = own != NULL && own[0] != '\0';
    char why[256] = "";
    for (size_t i = 0; i < (named ? 1 : sizeof sonames / sizeof sonames[0]); i++) {
        *name = named ? own : sonames[i];
        *handle = dlopen(*name, RTLD_NOW | RTLD_LOCAL);
        if (*handle != NULL)
            return GLM_OK;
        if (i == 0)
            snprintf(why, sizeof why, "%s", dlerror());
    }
    enum glm_status status =
        glm_fail(err, GLM_EKERNEL, "cannot open NVRTC, the CUDA compiler: %s", why);
    how_to_get_it(err);
    return status;
}

/* Major and minor number do not tell two builds apart; the library's size mostly does. */
static const char *describe(const struct library *l, int major, int minor, struct arena *arena)
{
    Dl_info info;
    struct stat st;
    union {
        int (*function)(int *, int *);
        void *address;
    } cast = {l->version};
    if (dladdr(cast.address, &info) == 0 || stat(info.dli_fname, &st) != 0)
        st.st_size = 0;
    return arena_printf(arena, "NVRTC %d.%d, a library of %lld bytes", major, minor,
                        (long long)st.st_size);
}

/* "sm_121a": compute capability and suffix; 0 when it is none of ours. */
static int capability(const char *target)
{
    char *end;
    if (strncmp(target, "sm_", 3) != 0 || target[3] < '1' || target[3] > '9')
        return 0;
    long n = strtol(target + 3, &end, 10);
    if (*end == 'a' || *end == 'f')
        end++;
    return *end == '\0' && n >= MIN_CAPABILITY && n < 1000 ? (int)n : 0;
}

static bool takes(const char *target)
{
    return capability(target) != 0;
}

static enum glm_status check_target(const struct library *l, const char *name, const char *target,
                                    struct glm_error *err)
{
    int archs[MAX_ARCHS], n = 0;
    struct buf known = {0};
    if (l->n_archs(&n) != 0 || n < 1 || n > MAX_ARCHS || l->archs(archs) != 0)
        return glm_fail(err, GLM_EKERNEL, "cannot ask %s which GPUs it compiles for", name);
    for (int i = 0; i < n; i++) {
        if (archs[i] == capability(target)) {
            buf_release(&known);
            return GLM_OK;
        }
        buf_printf(&known, "%ssm_%d", i == 0 ? "" : ", ", archs[i]);
    }
    enum glm_status status =
        glm_fail(err, GLM_EKERNEL, "cannot build kernels for target '%s': %s compiles for %s",
                 target, name, buf_text(&known));
    glm_error_hint(err, "a newer NVRTC may know it: GLM_NVRTC names the library");
    buf_release(&known);
    return status;
}

static const char *const fixed_options[] = {
    "-std=c++17",
    "-fmad=false",
    "-ftz=false",
    "-prec-div=true",
    "-prec-sqrt=true",
    "--ptxas-options=-v",
    "--ptxas-options=--warn-on-spills",
};
enum { N_FIXED = sizeof fixed_options / sizeof fixed_options[0], MAX_OPTIONS = N_FIXED + 2 };

/* From 12.9 on NVRTC keeps results of its own where there is a driver, and what it finds there
 * comes without the report of resources. */
static bool has_own_cache(int major, int minor)
{
    return major > 12 || (major == 12 && minor >= 9);
}

struct state {
    struct library library;
    const char *options[MAX_OPTIONS];
    int n_options;
};

static enum glm_status init(const char *target, struct arena *arena, struct glm_compiler *out,
                            struct glm_error *err)
{
    int major = 0, minor = 0;
    void *handle;
    const char *path;
    struct state *s = ARENA_ARRAY(arena, 1, struct state);
    struct glm_compiler cc = {.backend = &glm_backend_cuda, .target = target, .state = s};
    if (s == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot build kernels: out of memory");
    enum glm_status status = open_library(&handle, &path, err);
    if (status != GLM_OK)
        return status;
    const char *missing = find_all(handle, &s->library);
    if (missing != NULL)
        status =
            glm_fail(err, GLM_EKERNEL, "cannot use '%s' as NVRTC: it has no %s", path, missing);
    else if (s->library.version(&major, &minor) != 0 || major < MIN_MAJOR)
        status = glm_fail(err, GLM_EKERNEL,
                          "cannot use '%s': it is NVRTC %d.%d, needed is %d.0 or later", path,
                          major, minor, MIN_MAJOR);
    if (status != GLM_OK) {
        how_to_get_it(err);
        return status;
    }
    cc.name = arena_printf(arena, "NVRTC %d.%d", major, minor);
    cc.version = describe(&s->library, major, minor, arena);
    s->options[s->n_options++] = arena_printf(arena, "-arch=%s", target);
    for (size_t i = 0; i < N_FIXED; i++)
        s->options[s->n_options++] = fixed_options[i];
    if (has_own_cache(major, minor))
        s->options[s->n_options++] = "-no-cache";
    struct buf command = {0};
    buf_str(&command, "nvrtc");
    for (int i = 0; i < s->n_options; i++)
        buf_printf(&command, " %s", s->options[i] == NULL ? "" : s->options[i]);
    cc.command = command.failed ? NULL : arena_strdup(arena, command.data);
    buf_release(&command);
    if (cc.name == NULL || cc.version == NULL || s->options[0] == NULL || cc.command == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot build kernels: out of memory");
    status = check_target(&s->library, cc.name, target, err);
    if (status == GLM_OK)
        *out = cc;
    return status;
}

/* ---- What ptxas -v says ---- */

/* The number in front of a word: "… 0 bytes spill stores …". */
static uint32_t number_before(const char *log, const char *word)
{
    const char *at = strstr(log, word);
    if (at == NULL)
        return 0;
    while (at > log && at[-1] == ' ')
        at--;
    const char *end = at;
    while (at > log && at[-1] >= '0' && at[-1] <= '9')
        at--;
    return at == end ? 0 : (uint32_t)strtoul(at, NULL, 10);
}

static void read_resources(const char *log, struct glm_kernel_resources *r)
{
    *r = (struct glm_kernel_resources){
        .known = strstr(log, "registers") != NULL && strstr(log, "bytes spill stores") != NULL,
        .registers = number_before(log, "registers"),
        .shared_bytes = number_before(log, "bytes smem"),
        .stack_bytes = number_before(log, "bytes stack frame"),
        .spill_store_bytes = number_before(log, "bytes spill stores"),
        .spill_load_bytes = number_before(log, "bytes spill loads"),
    };
}

/* ---- A compile ---- */

typedef int (*size_of)(program, size_t *);
typedef int (*take)(program, char *);

/* Writes what the program holds (log, cubin) to a file, and hands the bytes over when asked to. */
static enum glm_status keep(const struct glm_compiler *cc, program p, size_of size, take get,
                            const char *folder, const char *file, struct buf *copy,
                            struct glm_error *err)
{
    size_t n = 0;
    if (size(p, &n) != 0 || n == 0 || n > MAX_OUTPUT_BYTES)
        return glm_fail(err, GLM_EKERNEL, "%s gave no %s", cc->name, file);
    char *bytes = malloc(n);
    struct buf path = {0};
    buf_printf(&path, "%s/%s", folder, file);
    enum glm_status status = GLM_OK;
    if (bytes == NULL || path.failed)
        status = glm_fail(err, GLM_ENOMEM, "cannot keep %s: out of memory", file);
    else if (get(p, bytes) != 0)
        status = glm_fail(err, GLM_EKERNEL, "%s gave no %s", cc->name, file);
    /* a text comes with its NUL */
    size_t len = status == GLM_OK && copy != NULL ? strnlen(bytes, n) : n;
    if (status == GLM_OK)
        status = glm_file_write(path.data, bytes, len, 0600, err);
    if (status == GLM_OK && copy != NULL)
        buf_add(copy, bytes, len);
    free(bytes);
    buf_release(&path);
    return status;
}

static enum glm_status compile_program(const struct glm_compiler *cc, program p, const char *folder,
                                       struct glm_kernel_resources *resources,
                                       struct glm_error *err)
{
    const struct state *s = cc->state;
    struct buf log = {0};
    int result = s->library.compile(p, s->n_options, s->options);
    enum glm_status status = keep(cc, p, s->library.log_size, s->library.log, folder, "kernel.log",
                                  &log, result == 0 ? err : NULL);
    if (result != 0)
        status = glm_fail(err, GLM_EKERNEL, "%s failed with %s", cc->name,
                          s->library.error_text(result));
    if (status == GLM_OK)
        status = keep(cc, p, s->library.cubin_size, s->library.cubin, folder,
                      glm_backend_cuda.object, NULL, err);
    read_resources(buf_text(&log), resources);
    if (status == GLM_OK && !resources->known)
        status = glm_fail(err, GLM_EKERNEL, "%s did not say what the kernel costs", cc->name);
    buf_release(&log);
    return status;
}

static enum glm_status compile(const struct glm_compiler *cc, const char *folder,
                               const struct glm_cache_file *files, uint32_t n_files,
                               struct glm_kernel_resources *resources, struct glm_error *err)
{
    const struct state *s = cc->state;
    const char *texts[MAX_HEADERS], *names[MAX_HEADERS];
    program p = NULL;
    if (n_files < 1 || n_files - 1 > MAX_HEADERS)
        return glm_fail(err, GLM_EKERNEL, "%s was given %u files", cc->name, n_files);
    for (uint32_t i = 1; i < n_files; i++) {
        texts[i - 1] = files[i].text;
        names[i - 1] = files[i].name;
    }
    int result =
        s->library.create(&p, files[0].text, files[0].name, (int)(n_files - 1), texts, names);
    if (result != 0)
        return glm_fail(err, GLM_EKERNEL, "%s took no source: %s", cc->name,
                        s->library.error_text(result));
    enum glm_status status = compile_program(cc, p, folder, resources, err);
    s->library.destroy(&p);
    return status;
}

const struct glm_backend glm_backend_cuda = {
    .language = GLM_LANGUAGE_CUDA,
    .targets = "sm_89, sm_90, sm_120a, sm_121a and later",
    .source = "kernel.cu",
    .object = "kernel.cubin",
    .takes = takes,
    .init = init,
    .compile = compile,
};
