/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the kernels of a plan: emits each source, digests it with all that decides its object,
 * answers from the cache what is there and runs compilers for the rest, several at a time. Kernels
 * with equal digests are one object. The compiler is hostcc.c's, the disk cache.c's business. */
#include "codegen/kernels.h"

#include "codegen/cache.h"
#include "spec/base/digest.h"
#include "codegen/hostcc.h"
#include "spec/base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

enum { MAX_INCLUDES = 32, MAX_JOBS = 64, MAX_LOG_BYTES = 1024 * 1024, SHOWN_LINES = 8 };
enum { SHOWN_BYTES = 640, POLL_NS = 1000000 };
#define KERNEL_CACHE_FORMAT "glmctl host kernel 1"

/* One object to be: kernel.c first, then the headers it reaches, in the order of their first use.
 */
struct object {
    const char *kernel; /* the first plan kernel that needs it */
    const char *template_name;
    struct glm_cache_file files[1 + MAX_INCLUDES];
    uint32_t n_files;
    char digest[65];
    const char *entry; /* folder in the cache */
    const char *stage; /* folder while it compiles */
    const char *about; /* members of params.json */
    pid_t pid;         /* > 0: its compiler runs */
    bool cached;
};

struct build {
    const struct glm_plan *plan;
    struct arena *arena;
    struct glm_hostcc cc;
    const char *cache;
    struct object *objects;
    uint32_t n_objects;
    uint32_t *object_of; /* by plan kernel */
    struct glm_error *err;
};

static enum glm_status no_memory(const struct build *b)
{
    return glm_fail(b->err, GLM_ENOMEM, "cannot build the kernels: out of memory");
}

/* The quoted name of an #include line that starts at text, or false. */
static bool include_name(const char *text, const char *end, char name[100])
{
    static const char word[] = "include";
    while (text < end && (*text == ' ' || *text == '\t'))
        text++;
    if (text == end || *text++ != '#')
        return false;
    while (text < end && (*text == ' ' || *text == '\t'))
        text++;
    if ((size_t)(end - text) < sizeof word || memcmp(text, word, sizeof word - 1) != 0)
        return false;
    text += sizeof word - 1;
    while (text < end && (*text == ' ' || *text == '\t'))
        text++;
    if (text == end || *text++ != '"')
        return false;
    const char *close = memchr(text, '"', (size_t)(end - text));
    size_t len = close == NULL ? 0 : (size_t)(close - text);
    if (len == 0 || len >= 100)
        return false;
    memcpy(name, text, len);
    name[len] = '\0';
    return true;
}

static enum glm_status add_include(const struct build *b, struct object *o, const char *from,
                                   const char *name)
{
    for (uint32_t i = 0; i < o->n_files; i++)
        if (strcmp(o->files[i].name, name) == 0)
            return GLM_OK;
    if (o->n_files == 1 + MAX_INCLUDES)
        return glm_fail(b->err, GLM_EKERNEL, "cannot build kernel '%s': more than %d headers",
                        o->kernel, MAX_INCLUDES);
    struct glm_cache_file *file = &o->files[o->n_files];
    file->text = glm_template_source(name, &file->len);
    if (file->text == NULL)
        return glm_fail(b->err, GLM_EKERNEL,
                        "cannot build kernel '%s': '%s' includes '%s', which is no template file",
                        o->kernel, from, name);
    file->name = arena_strdup(b->arena, name);
    if (file->name == NULL)
        return no_memory(b);
    o->n_files++;
    return GLM_OK;
}

/* All headers that the sources reach; the list grows while it is walked. */
static enum glm_status add_includes(const struct build *b, struct object *o)
{
    for (uint32_t i = 0; i < o->n_files; i++) {
        const char *text = o->files[i].text, *end = text + o->files[i].len;
        while (text < end) {
            const char *line_end = memchr(text, '\n', (size_t)(end - text));
            char name[100];
            line_end = line_end == NULL ? end : line_end;
            if (include_name(text, line_end, name)) {
                enum glm_status status = add_include(b, o, o->files[i].name, name);
                if (status != GLM_OK)
                    return status;
            }
            text = line_end < end ? line_end + 1 : end;
        }
    }
    return GLM_OK;
}

/* All that decides the object. Origins are comments and left out: the same matrix shape in two
 * places of the model is one object, whose kernel.c names the origins of the first. */
static enum glm_status digest_object(const struct build *b, const struct glm_manifest *m,
                                     const struct glm_plan_kernel *k, struct object *o)
{
    struct buf all = {0};
    struct glm_plan_kernel bare = *k;
    bare.params = ARENA_ARRAY(b->arena, (size_t)k->n_params + 1, struct glm_plan_param);
    if (bare.params == NULL)
        return no_memory(b);
    for (uint32_t i = 0; i < k->n_params; i++) {
        bare.params[i] = k->params[i];
        bare.params[i].origin = NULL;
    }
    buf_printf(&all, KERNEL_CACHE_FORMAT "\n%s\n%s\n%zu\n%s\n", b->cc.target, b->cc.command,
               strlen(b->cc.version), b->cc.version);
    enum glm_status status = glm_kernel_emit(m, &bare, b->plan->act, &all, b->err);
    for (uint32_t i = 1; i < o->n_files; i++) {
        buf_printf(&all, "\n%s %zu\n", o->files[i].name, o->files[i].len);
        buf_add(&all, o->files[i].text, o->files[i].len);
    }
    if (status == GLM_OK && all.failed)
        status = no_memory(b);
    if (status == GLM_OK)
        status = glm_sha256_hex(all.data, all.len, o->digest, b->err);
    buf_release(&all);
    return status;
}

/* What params.json tells a person: the digest already covers all of it. */
static const char *describe(const struct build *b, const struct object *o,
                            const struct glm_plan_kernel *k)
{
    struct buf t = {0};
    const char *first_line = b->cc.version;
    buf_str(&t, "  \"template\": ");
    buf_json_string(&t, o->template_name, strlen(o->template_name));
    buf_str(&t, ",\n  \"target\": ");
    buf_json_string(&t, b->cc.target, strlen(b->cc.target));
    buf_str(&t, ",\n  \"command\": ");
    buf_json_string(&t, b->cc.command, strlen(b->cc.command));
    buf_str(&t, ",\n  \"compiler\": ");
    buf_json_string(&t, first_line, strcspn(first_line, "\n"));
    buf_str(&t, ",\n  \"params\": {");
    for (uint32_t i = 0; i < k->n_params; i++) {
        const struct glm_plan_param *p = &k->params[i];
        buf_str(&t, i == 0 ? " " : ", ");
        buf_json_string(&t, p->name, strlen(p->name));
        buf_str(&t, ": ");
        if (p->text == NULL)
            buf_printf(&t, "%lld", (long long)p->value);
        else
            buf_json_string(&t, p->text, strlen(p->text));
    }
    buf_str(&t, " },\n");
    const char *text = t.failed ? NULL : arena_strdup(b->arena, t.data);
    buf_release(&t);
    return text;
}

static enum glm_status emit_object(const struct build *b, const struct glm_manifest *m,
                                   const struct glm_plan_kernel *k, struct object *o)
{
    struct buf source = {0};
    *o = (struct object){.kernel = k->name, .template_name = m->name, .n_files = 1};
    enum glm_status status = glm_kernel_emit(m, k, b->plan->act, &source, b->err);
    if (status == GLM_OK) {
        o->files[0] = (struct glm_cache_file){
            .name = "kernel.c",
            .text = arena_strndup(b->arena, source.data, source.len),
            .len = source.len,
        };
        if (o->files[0].text == NULL)
            status = no_memory(b);
    }
    buf_release(&source);
    if (status == GLM_OK)
        status = add_includes(b, o);
    if (status == GLM_OK)
        status = digest_object(b, m, k, o);
    if (status != GLM_OK)
        return status;
    o->entry = arena_printf(b->arena, "%s/%s.%s", b->cache, m->name, o->digest);
    o->about = describe(b, o, k);
    if (o->entry == NULL || o->about == NULL)
        return no_memory(b);
    if (strlen(o->entry) + sizeof "/kernel.so" > sizeof((struct glm_kernel_build *)0)->path)
        return glm_fail(b->err, GLM_EKERNEL,
                        "cannot build kernel '%s': the path '%.200s…' is too "
                        "long: set GLM_CACHE_DIR to a shorter one",
                        k->name, o->entry);
    return GLM_OK;
}

/* Fills objects[] and object_of[], equal digests once. */
static enum glm_status collect(struct build *b)
{
    struct glm_manifest *manifests;
    uint32_t n_manifests;
    enum glm_status status = glm_manifests_load(b->arena, &manifests, &n_manifests, b->err);
    for (uint32_t i = 0; status == GLM_OK && i < b->plan->n_kernels; i++) {
        const struct glm_plan_kernel *k = &b->plan->kernels[i];
        const struct glm_manifest *m = glm_manifest_find(manifests, n_manifests, k->template_name);
        struct object *o = &b->objects[b->n_objects];
        if (m == NULL)
            return glm_fail(b->err, GLM_EKERNEL,
                            "cannot build kernel '%s': there is no template '%s'", k->name,
                            k->template_name);
        status = emit_object(b, m, k, o);
        uint32_t j = 0;
        while (status == GLM_OK && strcmp(b->objects[j].digest, o->digest) != 0)
            j++;
        b->object_of[i] = j;
        if (status != GLM_OK || j < b->n_objects)
            continue;
        status = glm_cache_check(o->entry, o->digest, &o->cached, b->err);
        b->n_objects++;
    }
    return status;
}

/* The first lines of the compiler's output, which name the template's own lines. */
static enum glm_status compile_failed(const struct build *b, struct object *o, int wait_status)
{
    struct buf path = {0}, text = {0};
    const char *kept = arena_printf(b->arena, "%s.failed", o->entry);
    buf_printf(&path, "%s/kernel.log", o->stage);
    if (!path.failed)
        glm_file_read(path.data, MAX_LOG_BYTES, &text, NULL);
    size_t len = 0;
    for (unsigned line = 0; len < text.len && len < SHOWN_BYTES; len++)
        if (text.data[len] == '\n' && ++line == SHOWN_LINES)
            break;
    enum glm_status status =
        WIFEXITED(wait_status)
            ? glm_fail(b->err, GLM_EKERNEL, "cannot build kernel '%s': %s exited with %d: %.*s",
                       o->kernel, b->cc.argv[0], WEXITSTATUS(wait_status), (int)len,
                       buf_text(&text))
            : glm_fail(b->err, GLM_EKERNEL, "cannot build kernel '%s': %s was ended by signal %d",
                       o->kernel, b->cc.argv[0], WTERMSIG(wait_status));
    if (kept != NULL) {
        glm_cache_remove(kept);
        if (rename(o->stage, kept) == 0) {
            o->stage = NULL;
            glm_error_hint(b->err, "the source and the compiler's output are in %.200s", kept);
        }
    }
    buf_release(&path);
    buf_release(&text);
    return status;
}

static enum glm_status start(const struct build *b, struct object *o)
{
    const char *trace = getenv("GLM_KERNEL_LOG");
    enum glm_status status =
        glm_cache_stage(b->cache, o->files, o->n_files, b->arena, &o->stage, b->err);
    if (status != GLM_OK)
        return status;
    if (trace != NULL && strcmp(trace, "0") != 0 && trace[0] != '\0')
        glm_log(GLM_LOG_INFO, "compile kernel=%s folder=%s command=\"%s\"", o->kernel, o->stage,
                b->cc.command);
    return glm_hostcc_start(&b->cc, o->stage, &o->pid, b->err);
}

/* Waits until one of our compilers ends; other children of the process are left alone. */
static struct object *wait_one(const struct build *b, int *wait_status)
{
    const struct timespec pause = {.tv_nsec = POLL_NS};
    for (;;) {
        for (uint32_t i = 0; i < b->n_objects; i++) {
            struct object *o = &b->objects[i];
            if (o->pid <= 0)
                continue;
            pid_t pid = waitpid(o->pid, wait_status, WNOHANG);
            if (pid == 0 || (pid < 0 && errno == EINTR))
                continue;
            if (pid < 0) /* somebody else reaped it: its result is unknown */
                *wait_status = SIGKILL;
            o->pid = 0;
            return o;
        }
        nanosleep(&pause, NULL);
    }
}

static enum glm_status finish(const struct build *b, struct object *o, int wait_status)
{
    if (!WIFEXITED(wait_status) || WEXITSTATUS(wait_status) != 0)
        return compile_failed(b, o, wait_status);
    enum glm_status status = glm_cache_publish(o->stage, o->entry, o->digest, o->about, b->err);
    if (status == GLM_OK)
        o->stage = NULL;
    return status;
}

/* After a failure nothing new starts, and those that run are waited for. */
static enum glm_status compile(const struct build *b, uint32_t n_jobs, glm_build_progress progress,
                               void *context)
{
    uint32_t next = 0, running = 0, done = 0, total = 0;
    enum glm_status status = GLM_OK;
    for (uint32_t i = 0; i < b->n_objects; i++)
        total += b->objects[i].cached ? 0 : 1;
    n_jobs = n_jobs == 0 ? 1 : n_jobs > MAX_JOBS ? MAX_JOBS : n_jobs;
    for (;;) {
        while (status == GLM_OK && running < n_jobs && next < b->n_objects) {
            struct object *o = &b->objects[next++];
            if (o->cached)
                continue;
            status = start(b, o);
            running += status == GLM_OK ? 1 : 0;
        }
        if (running == 0)
            break;
        int wait_status = 0;
        struct object *o = wait_one(b, &wait_status);
        running--;
        if (status != GLM_OK)
            continue;
        status = finish(b, o, wait_status);
        if (status == GLM_OK && progress != NULL && !progress(context, ++done, total, o->kernel))
            status = glm_fail(b->err, GLM_ECANCELED, "building kernels was cancelled");
    }
    for (uint32_t i = 0; i < b->n_objects; i++)
        if (b->objects[i].stage != NULL)
            glm_cache_remove(b->objects[i].stage);
    return status;
}

static enum glm_status answer(const struct build *b, struct glm_kernel_build **builds)
{
    uint32_t n = b->plan->n_kernels;
    struct glm_kernel_build *list = ARENA_ARRAY(b->arena, n == 0 ? 1 : n, struct glm_kernel_build);
    if (list == NULL)
        return no_memory(b);
    for (uint32_t i = 0; i < n; i++) {
        const struct object *o = &b->objects[b->object_of[i]];
        list[i].name = b->plan->kernels[i].name;
        list[i].compiled = !o->cached;
        memcpy(list[i].digest, o->digest, sizeof list[i].digest);
        snprintf(list[i].path, sizeof list[i].path, "%s/kernel.so", o->entry);
    }
    *builds = list;
    return GLM_OK;
}

enum glm_status glm_kernels_build(const struct glm_plan *p, uint32_t n_jobs, struct arena *arena,
                                  glm_build_progress progress, void *context,
                                  struct glm_kernel_build **builds, struct glm_error *err)
{
    struct build b = {.plan = p, .arena = arena, .err = err};
    /* One spare: the candidate that turns out to be a kernel met before. */
    b.objects = ARENA_ARRAY(arena, (size_t)p->n_kernels + 1, struct object);
    b.object_of = ARENA_ARRAY(arena, (size_t)p->n_kernels + 1, uint32_t);
    if (b.objects == NULL || b.object_of == NULL)
        return no_memory(&b);
    enum glm_status status = glm_hostcc_init(p->target, arena, &b.cc, err);
    if (status == GLM_OK)
        status = glm_cache_open(arena, &b.cache, err);
    if (status != GLM_OK)
        return status;
    glm_cache_sweep(b.cache);
    status = collect(&b);
    if (status == GLM_OK)
        status = compile(&b, n_jobs, progress, context);
    return status == GLM_OK ? answer(&b, builds) : status;
}

enum glm_status glm_kernel_verify(const char *path, const char *digest, struct glm_error *err)
{
    static const char file[] = "/kernel.so";
    char entry[sizeof((struct glm_kernel_build *)0)->path];
    size_t len = strlen(path), n_digest = strlen(digest);
    size_t n_entry = len < sizeof file ? 0 : len - (sizeof file - 1);
    bool usable = false;
    if (n_digest != 64 || n_entry <= n_digest || n_entry >= sizeof entry ||
        strcmp(path + n_entry, file) != 0 ||
        memcmp(path + n_entry - n_digest, digest, n_digest) != 0)
        return glm_fail(err, GLM_EKERNEL,
                        "cannot load kernel '%s': it is not in a cache entry of digest '%.64s'",
                        path, digest);
    memcpy(entry, path, n_entry);
    entry[n_entry] = '\0';
    enum glm_status status = glm_cache_check(entry, digest, &usable, err);
    if (status != GLM_OK || usable)
        return status;
    status =
        glm_fail(err, GLM_EKERNEL,
                 "cannot load kernel '%s': its files do not have their recorded digests", path);
    glm_error_hint(err, "build it again: glmctl apply");
    return status;
}
