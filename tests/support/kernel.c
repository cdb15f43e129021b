/* SPDX-License-Identifier: Apache-2.0 */
/* Builds, loads and runs single kernels for tests and benches. Leaves oracles to the tests. What
 * goes wrong here is a broken test: it prints the reason and aborts. */
#include "tests/support/kernel.h"

#include "codegen/compiler.h"
#include "codegen/kernels.h"
#include "kernels-templates/prelude.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

enum { MAX_KERNELS = 512, GUARD_BYTES = 64, ALLOC_MAGIC = 0x5a17 };

struct test_kernel {
    uint64_t key;
    const struct glm_manifest *manifest;
    char text[1024]; /* of the parameters, cut into pieces */
    struct glm_plan_param params[TEST_MAX_PARAMS];
    uint32_t n_params;
    void *handle;
    glm_host_kernel run;
};

static struct test_kernel kernels[MAX_KERNELS];
static size_t n_kernels;

static _Noreturn void broken(const char *format, ...) __attribute__((format(printf, 1, 2)));
static _Noreturn void broken(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "kernel test: ");
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

/* ---- Building ---- */

const char *test_host_target(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return "x86-64-v4";
    return "x86-64-v3";
#else
    return "armv8.2-a";
#endif
}

static const char *default_cc(void)
{
    const char *cc = getenv("GLM_HOST_CC");
    return cc && *cc ? cc : "cc";
}

/* A sanitizer's flags reach kernels as they do from glmd. */
static const char *more_flags(void)
{
    const char *flags = getenv("GLM_HOST_CFLAGS");
    return flags ? flags : "";
}

/* `make check` is one compiler; GLM_TEST_COMPILERS=1 lets tests compare several. */
static bool is_default_cc(const char *cc)
{
    return cc == NULL || strcmp(cc, default_cc()) == 0 ||
           (strcmp(cc, "gcc") == 0 && strcmp(default_cc(), "cc") == 0);
}

bool test_build_usable(const struct test_build *build)
{
    char command[256];
    if (!is_default_cc(build->cc) && getenv("GLM_TEST_COMPILERS") == NULL)
        return false;
    snprintf(command, sizeof command, "%s --version >/dev/null 2>&1",
             build->cc ? build->cc : default_cc());
    if (system(command) != 0)
        return false;
    if (!build->target || !strcmp(build->target, test_host_target()))
        return true;
    return !strcmp(build->target, "x86-64-v3") && !strcmp(test_host_target(), "x86-64-v4");
}

/* ---- Manifests ---- */

static struct arena manifest_arena;
static struct glm_manifest *manifests;
static uint32_t n_manifests;

const struct glm_manifest *test_manifest(const char *name)
{
    struct glm_error err = {0};
    if (!manifests) {
        arena_init(&manifest_arena, 64 << 20);
        if (glm_manifests_load(&manifest_arena, &manifests, &n_manifests, &err) != GLM_OK)
            broken("%s", err.message);
    }
    const struct glm_manifest *m = glm_manifest_find(manifests, n_manifests, name);
    if (!m)
        broken("there is no manifest '%s'", name);
    return m;
}

uint32_t test_params(const struct glm_manifest *m, char *text,
                     struct glm_plan_param params[TEST_MAX_PARAMS])
{
    char *save = NULL;
    uint32_t n = 0;
    for (char *p = strtok_r(text, " ", &save); p; p = strtok_r(NULL, " ", &save)) {
        char *value = strchr(p, '=');
        if (!value || n == TEST_MAX_PARAMS)
            broken("parameter '%s' has no value, or there are too many", p);
        *value++ = '\0';
        params[n] = (struct glm_plan_param){.name = p, .text = value, .origin = "test"};
        for (uint32_t i = 0; i < m->n_params; i++)
            if (!strcmp(m->params[i].name, p) && !strcmp(m->params[i].type, "int")) {
                params[n].value = strtoll(value, NULL, 10);
                params[n].text = NULL;
            }
        n++;
    }
    return n;
}

static void parse_params(struct test_kernel *k)
{
    k->n_params = test_params(k->manifest, k->text, k->params);
}

/* Every file that matches the pattern: a body may include any of them. */
static uint64_t hash_files(const char *pattern, uint64_t seed)
{
    glob_t found;
    if (glob(pattern, 0, NULL, &found) != 0)
        broken("there are no files '%s' here", pattern);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        struct buf b = {0};
        struct glm_error err = {0};
        if (glm_file_read(found.gl_pathv[i], 1 << 20, &b, &err) != GLM_OK)
            broken("%s", err.message);
        seed = XXH3_64bits_withSeed(b.data, b.len, seed);
        buf_release(&b);
    }
    globfree(&found);
    return seed;
}

/* The real build's. */
static const char *join_flags(char *text, size_t size)
{
    size_t n = 0;
    text[0] = '\0';
    for (size_t i = 0; glm_hostcc_flags[i] && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s", i ? " " : "", glm_hostcc_flags[i]);
    if (n >= size)
        broken("the compiler's flags have %zu bytes or more", size);
    return text;
}

static void compile(const struct test_object *o, const char *text, const char *so)
{
    char source[512], temporary[512], command[2048];
    snprintf(source, sizeof source, "%s.%d%s", so, (int)getpid(), o->suffix);
    snprintf(temporary, sizeof temporary, "%s.%d.tmp", so, (int)getpid());
    FILE *f = fopen(source, "w");
    if (!f || fputs(text, f) < 0 || fclose(f) != 0)
        broken("cannot write '%s': %s", source, strerror(errno));
    snprintf(command, sizeof command, "%s %s -o %s", o->command, source, temporary);
    if (system(command) != 0)
        broken("cannot compile '%s' with: %s", source, command);
    if (rename(temporary, so) != 0)
        broken("cannot rename '%s': %s", temporary, strerror(errno));
    unlink(source);
}

uint64_t test_object_key(const struct test_object *o, const char *text)
{
    uint64_t key = XXH3_64bits(text, strlen(text));
    key = XXH3_64bits_withSeed(o->command, strlen(o->command), key);
    for (int i = 0; i < 4 && o->patterns[i] != NULL; i++)
        key = hash_files(o->patterns[i], key);
    return key;
}

void test_object_make(const struct test_object *o, const char *text, char path[256])
{
    const char *folder = "./build/test-kernels";
    mkdir("build", 0777);
    mkdir(folder, 0777);
    snprintf(path, 256, "%s/%s-%016llx.so", folder, o->name,
             (unsigned long long)test_object_key(o, text));
    if (access(path, R_OK) != 0)
        compile(o, text, path);
}

void *test_object_open(const struct test_object *o, const char *text)
{
    char path[256];
    test_object_make(o, text, path);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        broken("cannot load '%s': %s", path, dlerror());
    return handle;
}

/* The kernel of this source text, compiled unless the folder has it. Takes the text. */
static struct test_kernel *load(const struct test_build *build, const char *name, struct buf *t,
                                bool *fresh)
{
    char flags[512], command[1024];
    snprintf(command, sizeof command,
             "%s %s -march=%s -Wall -Wextra -Wconversion -Wshadow -Wundef -Werror "
             "-Ikernels-templates %s",
             build->cc ? build->cc : default_cc(), join_flags(flags, sizeof flags),
             build->target ? build->target : test_host_target(), more_flags());
    const struct test_object object = {name, ".c", command, {"kernels-templates/*.h"}};
    uint64_t key = test_object_key(&object, buf_text(t));
    *fresh = false;
    for (size_t i = 0; i < n_kernels; i++)
        if (kernels[i].key == key) {
            buf_release(t);
            return &kernels[i];
        }
    if (n_kernels == MAX_KERNELS)
        broken("more than %d kernels", MAX_KERNELS);
    struct test_kernel *k = &kernels[n_kernels++];
    k->key = key;
    k->handle = test_object_open(&object, buf_text(t));
    buf_release(t);
    const uint32_t *abi = dlsym(k->handle, GLM_HOST_ABI_SYMBOL);
    void *symbol = dlsym(k->handle, GLM_HOST_KERNEL_SYMBOL);
    if (!abi || *abi != GLM_HOST_ABI_VERSION || !symbol)
        broken("'%s' does not export %s and %s", name, GLM_HOST_KERNEL_SYMBOL, GLM_HOST_ABI_SYMBOL);
    memcpy(&k->run, &symbol, sizeof k->run);
    *fresh = true;
    return k;
}

struct test_kernel *test_kernel_with(const struct test_build *build, const char *name,
                                     const char *params, const char *act)
{
    struct test_kernel draft = {.manifest = test_manifest(name)};
    snprintf(draft.text, sizeof draft.text, "%s", params);
    parse_params(&draft);
    struct glm_plan_kernel plan = {name, name, draft.params, draft.n_params};
    struct buf t = {0};
    struct glm_error err = {0};
    if (glm_kernel_emit(draft.manifest, &plan, GLM_LANGUAGE_C, act, &t, &err) != GLM_OK)
        broken("%s", err.message);
    bool fresh;
    struct test_kernel *k = load(build, name, &t, &fresh);
    if (fresh) {
        k->manifest = draft.manifest;
        snprintf(k->text, sizeof k->text, "%s", params);
        parse_params(k);
    }
    return k;
}

struct test_kernel *test_kernel_file(const struct test_build *build, const char *path,
                                     const char *constants, const char *act)
{
    char copy[512], *save = NULL;
    snprintf(copy, sizeof copy, "%s", constants);
    struct buf t = {0};
    struct glm_error err = {0};
    buf_printf(&t, "#define GLM_ACT_%s 1\n", strcmp(act, "bf16") ? "F32" : "BF16");
    for (char *p = strtok_r(copy, " ", &save); p; p = strtok_r(NULL, " ", &save)) {
        p[strcspn(p, "=")] = ' ';
        buf_printf(&t, "#define GLM_%s\n", p);
    }
    struct buf body = {0};
    if (glm_file_read(path, 1 << 20, &body, &err) != GLM_OK)
        broken("%s", err.message);
    buf_printf(&t, "#line 1 \"%s\"\n", path);
    buf_add(&t, body.data, body.len);
    buf_release(&body);
    bool fresh;
    return load(build, strrchr(path, '/') + 1, &t, &fresh);
}

struct test_kernel *test_kernel(const char *name, const char *params, const char *act)
{
    return test_kernel_with(&(struct test_build){0}, name, params, act);
}

size_t test_kernel_scratch(const struct test_kernel *k, const struct glm_round *round)
{
    if (!k->manifest)
        return 0;
    struct glm_cost_context at = {.R = round->n_rows, .O = round->n_out, .S = round->n_streams};
    at.T = 64; /* scratch may not depend on it: a rank plan knows no threads */
    double bytes = 0;
    struct glm_error err = {0};
    if (glm_expression_eval(k->manifest->scratch, k->params, k->n_params, &at, &bytes, &err) !=
        GLM_OK)
        broken("%s", err.message);
    return (size_t)bytes;
}

/* ---- Running ---- */

struct test_threads {
    uint32_t n;
    pthread_t ids[64];
    pthread_barrier_t gate, inner;
    const struct test_kernel *kernel;
    struct glm_launch launch;
    void *const *args;
    bool stop;
};

struct member {
    struct test_threads *team;
    uint32_t thread;
};

static void wait_barrier(void *barrier)
{
    pthread_barrier_wait(barrier);
}

static void run_member(struct test_threads *t, uint32_t thread)
{
    struct glm_launch launch = t->launch;
    launch.thread = thread;
    t->kernel->run(&launch, t->args);
}

static void *thread_main(void *argument)
{
    struct member m = *(struct member *)argument;
    free(argument);
    for (;;) {
        pthread_barrier_wait(&m.team->gate);
        if (m.team->stop)
            return NULL;
        run_member(m.team, m.thread);
        pthread_barrier_wait(&m.team->gate);
    }
}

struct test_threads *test_threads_new(uint32_t n_threads)
{
    struct test_threads *t = calloc(1, sizeof *t);
    if (!t || n_threads < 1 || n_threads > 64)
        broken("cannot start %u threads", n_threads);
    t->n = n_threads;
    pthread_barrier_init(&t->gate, NULL, n_threads);
    pthread_barrier_init(&t->inner, NULL, n_threads);
    for (uint32_t i = 1; i < n_threads; i++) {
        struct member *m = malloc(sizeof *m);
        if (!m)
            broken("out of memory");
        *m = (struct member){t, i};
        if (pthread_create(&t->ids[i], NULL, thread_main, m) != 0)
            broken("cannot start thread %u", i);
    }
    return t;
}

void test_threads_free(struct test_threads *t)
{
    if (!t)
        return;
    t->stop = true;
    pthread_barrier_wait(&t->gate);
    for (uint32_t i = 1; i < t->n; i++)
        pthread_join(t->ids[i], NULL);
    pthread_barrier_destroy(&t->gate);
    pthread_barrier_destroy(&t->inner);
    free(t);
}

double test_threads_run(struct test_threads *t, const struct test_kernel *k,
                        const struct glm_round *round, void *const *args, void *scratch)
{
    t->kernel = k;
    t->args = args;
    t->launch = (struct glm_launch){0, t->n, round, scratch, wait_barrier, &t->inner};
    clockid_t clock = t->n == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    struct timespec a, b;
    pthread_barrier_wait(&t->gate);
    clock_gettime(clock, &a);
    run_member(t, 0);
    pthread_barrier_wait(&t->gate);
    clock_gettime(clock, &b);
    return (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
}

void test_kernel_run(const struct test_kernel *k, const struct glm_round *round, void *const *args,
                     uint32_t n_threads)
{
    size_t bytes = test_kernel_scratch(k, round);
    void *scratch = bytes ? test_alloc(bytes) : NULL;
    struct test_threads *t = test_threads_new(n_threads);
    test_threads_run(t, k, round, args, scratch);
    test_threads_free(t);
    test_release(scratch);
}

/* ---- Memory ---- */

/* In front of every buffer. */
struct allocation {
    size_t magic, bytes;
    struct allocation *next, **self; /* of those that live */
};
enum { FRONT_BYTES = 64 };
_Static_assert(sizeof(struct allocation) <= FRONT_BYTES, "the buffer behind it stays aligned");
static struct allocation *allocations;
static pthread_mutex_t allocations_lock = PTHREAD_MUTEX_INITIALIZER;

static size_t padded_bytes(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

void *test_alloc(size_t bytes)
{
    size_t padded = padded_bytes(bytes);
    char *p = aligned_alloc(64, FRONT_BYTES + padded + GUARD_BYTES);
    if (!p)
        broken("out of memory");
    memset(p, 0xff, FRONT_BYTES + padded + GUARD_BYTES);
    memset(p + FRONT_BYTES + bytes, 0x3c, padded - bytes + GUARD_BYTES);
    struct allocation *a = (struct allocation *)(void *)p;
    pthread_mutex_lock(&allocations_lock);
    *a = (struct allocation){ALLOC_MAGIC, bytes, allocations, &allocations};
    if (allocations)
        allocations->self = &a->next;
    allocations = a;
    pthread_mutex_unlock(&allocations_lock);
    return p + FRONT_BYTES;
}

void *test_alloc_around(const void *p, size_t *bytes)
{
    void *found = NULL;
    pthread_mutex_lock(&allocations_lock);
    for (struct allocation *a = allocations; a && !found; a = a->next) {
        char *start = (char *)a + FRONT_BYTES;
        if ((const char *)p >= start && (const char *)p < start + a->bytes) {
            *bytes = a->bytes;
            found = start;
        }
    }
    pthread_mutex_unlock(&allocations_lock);
    if (!found)
        broken("a buffer is not from test_alloc");
    return found;
}

void test_release(void *memory)
{
    if (!memory)
        return;
    char *p = memory;
    struct allocation *a = (struct allocation *)(void *)(p - FRONT_BYTES);
    if (a->magic != ALLOC_MAGIC)
        broken("the bytes in front of a buffer were overwritten");
    size_t end = padded_bytes(a->bytes) + GUARD_BYTES;
    for (size_t i = a->bytes; i < end; i++)
        if (p[i] != 0x3c)
            broken("byte %zu behind a buffer of %zu was overwritten", i - a->bytes, a->bytes);
    pthread_mutex_lock(&allocations_lock);
    *a->self = a->next;
    if (a->next)
        a->next->self = a->self;
    pthread_mutex_unlock(&allocations_lock);
    free(a);
}

void test_free(void *memory)
{
    test_release(memory);
}

void test_same_bytes(const void *a, const void *b, size_t bytes, const char *what)
{
    const unsigned char *p = a, *q = b;
    for (size_t i = 0; i < bytes; i++)
        if (p[i] != q[i])
            broken("%s: byte %zu of %zu is %02x, should be %02x", what, i, bytes, p[i], q[i]);
}

/* ---- Rounds, numbers ---- */

struct test_round *test_round(uint32_t n_rows)
{
    struct test_round *r = calloc(1, sizeof *r);
    if (r) {
        r->rows = calloc(n_rows + 1, sizeof *r->rows);
        r->streams = calloc(1, sizeof *r->streams);
        r->extents = calloc(64, sizeof *r->extents);
        r->out_rows = calloc(n_rows + 1, sizeof *r->out_rows);
    }
    if (!r || !r->rows || !r->streams || !r->extents || !r->out_rows)
        broken("out of memory");
    for (uint32_t i = 0; i < n_rows; i++) {
        int32_t n = (int32_t)i;
        r->rows[i] = (struct glm_row){0, n, 0, -1, n, n};
        r->out_rows[i] = n;
    }
    for (int32_t i = 0; i < 64; i++)
        r->extents[i] = i;
    int32_t n = (int32_t)n_rows;
    r->streams[0] = (struct glm_round_stream){0, 0, 0, 0, n, n, 0, 64};
    r->round = (struct glm_round){
        .n_rows = n,
        .n_streams = 1,
        .n_out = n,
        .rows = r->rows,
        .streams = r->streams,
        .extents = r->extents,
        .out_rows = r->out_rows,
    };
    return r;
}

void test_round_free(struct test_round *r)
{
    if (!r)
        return;
    free(r->rows);
    free(r->streams);
    free(r->extents);
    free(r->out_rows);
    free(r);
}

uint64_t test_random_u64(struct test_random *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

float test_random_uniform(struct test_random *r, float low, float high)
{
    return low + (high - low) * (float)(test_random_u64(r) >> 40) * 0x1p-24f;
}

float test_random_normal(struct test_random *r)
{
    float sum = -6;
    for (int i = 0; i < 12; i++)
        sum += test_random_uniform(r, 0, 1);
    return sum;
}

size_t test_act_bytes(const char *act)
{
    return strcmp(act, "bf16") ? 4 : 2;
}

void test_act_put(void *p, size_t i, float value, const char *act)
{
    if (strcmp(act, "bf16"))
        ((float *)p)[i] = value;
    else
        ((uint16_t *)p)[i] = glm_f32_bf16(value);
}

float test_act_get(const void *p, size_t i, const char *act)
{
    return strcmp(act, "bf16") ? ((const float *)p)[i] : glm_bf16_f32(((const uint16_t *)p)[i]);
}

double test_relative_l2(const float *got, const double *want, size_t n)
{
    double error = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)got[i] - want[i];
        error += d * d;
        size += want[i] * want[i];
    }
    return isfinite(error) ? sqrt(error / (size > 0 ? size : 1)) : INFINITY;
}
