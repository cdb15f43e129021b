/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the kernels of a plan: emits each source, digests it with all that decides its object,
 * answers from the cache what is there and compiles the rest, several at a time, each on a thread
 * of its own. Kernels with equal digests are one object. How a target is compiled is its back
 * end's (compiler.h), the disk cache.c's business. */
#include "codegen/kernels.h"

#include "codegen/cache.h"
#include "codegen/includes.h"
#include "codegen/json_util.h"
#include "codegen/verified.h"
#include "spec/base/digest.h"
#include "spec/base/log.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_INCLUDES = 32, MAX_JOBS = 64, MAX_LOG_BYTES = 1024 * 1024, SHOWN_LINES = 8 };
enum { SHOWN_BYTES = 640 };
#define KERNEL_CACHE_FORMAT "glmctl kernel 2"

/* One object to be: its source first, then the headers it reaches, in the order of their first use.
 */
struct object {
    const char *kernel; /* the first plan kernel that needs it */
    const struct glm_manifest *manifest;
    struct glm_cache_file files[1 + MAX_INCLUDES];
    uint32_t n_files;
    char digest[65];
    const char *entry; /* folder in the cache */
    const char *stage; /* folder while it compiles */
    const char *about; /* members of params.json */
    struct glm_kernel_resources resources;
    struct glm_error err; /* of the compiler, when status is not GLM_OK */
    enum glm_status status;
    pthread_t thread;
    struct build *build; /* while its compiler runs */
    bool done;           /* under the build's lock */
    bool cached;
    bool unverified;
};

struct build {
    const struct glm_plan *plan;
    struct arena *arena;
    struct glm_compiler cc;
    const char *cache;
    struct object *objects;
    uint32_t n_objects;
    uint32_t *object_of; /* by plan kernel */
    pthread_mutex_t lock;
    pthread_cond_t one_done;
    struct glm_error *err;
};

static enum glm_status no_memory(const struct build *b)
{
    return glm_fail(b->err, GLM_ENOMEM, "cannot build the kernels: out of memory");
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
    enum glm_status status =
        glm_kernel_emit(m, &bare, b->cc.backend->language, b->plan->act, &all, b->err);
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
    buf_json_string(&t, o->manifest->name, strlen(o->manifest->name));
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
    *o = (struct object){.kernel = k->name, .manifest = m, .n_files = 1};
    enum glm_status status =
        glm_kernel_emit(m, k, b->cc.backend->language, b->plan->act, &source, b->err);
    if (status == GLM_OK) {
        o->files[0] = (struct glm_cache_file){
            .name = b->cc.backend->source,
            .text = arena_strndup(b->arena, source.data, source.len),
            .len = source.len,
        };
        if (o->files[0].text == NULL)
            status = no_memory(b);
    }
    buf_release(&source);
    if (status == GLM_OK)
        status =
            glm_includes_add(o->kernel, b->arena, o->files, &o->n_files, 1 + MAX_INCLUDES, b->err);
    if (status == GLM_OK)
        status = digest_object(b, m, k, o);
    if (status == GLM_OK && b->cc.backend->language == GLM_LANGUAGE_CUDA)
        status = glm_body_unverified(m, b->arena, &o->unverified, b->err);
    if (status != GLM_OK)
        return status;
    o->entry = arena_printf(b->arena, "%s/%s.%s", b->cache, m->name, o->digest);
    o->about = describe(b, o, k);
    if (o->entry == NULL || o->about == NULL)
        return no_memory(b);
    if (strlen(o->entry) + sizeof "/kernel.cubin" > sizeof((struct glm_kernel_build *)0)->path)
        return glm_fail(b->err, GLM_EKERNEL,
                        "cannot build kernel '%s': the path '%.200s…' is too "
                        "long: set GLM_CACHE_DIR to a shorter one",
                        k->name, o->entry);
    return GLM_OK;
}

/* What params.json kept of the compiler's report; an entry that says nothing has none. */
static void read_resources(struct object *o)
{
    struct buf text = {0};
    struct glm_kernel_resources *r = &o->resources;
    const struct {
        const char *key;
        uint32_t *value;
    } rows[] = {{"registers", &r->registers},
                {"shared_bytes", &r->shared_bytes},
                {"stack_bytes", &r->stack_bytes},
                {"spill_store_bytes", &r->spill_store_bytes},
                {"spill_load_bytes", &r->spill_load_bytes}};
    cJSON *tree = NULL;
    if (glm_cache_about(o->entry, &text, NULL) == GLM_OK)
        tree = cJSON_ParseWithLength(buf_text(&text), text.len);
    const cJSON *found = cJSON_GetObjectItemCaseSensitive(tree, "resources");
    r->known = cJSON_IsObject(found);
    for (size_t i = 0; r->known && i < sizeof rows / sizeof rows[0]; i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(found, rows[i].key);
        r->known = cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble <= INT32_MAX;
        *rows[i].value = r->known ? (uint32_t)item->valuedouble : 0;
    }
    cJSON_Delete(tree);
    buf_release(&text);
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
        status = glm_cache_check(o->entry, o->digest, b->cc.backend->object, &o->cached, b->err);
        if (status == GLM_OK && o->cached)
            read_resources(o);
        b->n_objects++;
    }
    return status;
}

/* After the compiler's own words the first lines of its output, which name the template's own
 * lines. */
static enum glm_status compile_failed(const struct build *b, struct object *o)
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
        glm_fail(b->err, o->status, "cannot build kernel '%s': %.240s%s%.*s", o->kernel,
                 o->err.message, len == 0 ? "" : ": ", (int)len, buf_text(&text));
    if (o->err.hint[0] != '\0')
        glm_error_hint(b->err, "%s", o->err.hint);
    if (kept != NULL && len > 0) {
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

static void *compile_object(void *context)
{
    struct object *o = context;
    struct build *b = o->build;
    o->status =
        b->cc.backend->compile(&b->cc, o->stage, o->files, o->n_files, &o->resources, &o->err);
    pthread_mutex_lock(&b->lock);
    o->done = true;
    pthread_cond_signal(&b->one_done);
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

static enum glm_status start(struct build *b, struct object *o)
{
    const char *trace = getenv("GLM_KERNEL_LOG");
    enum glm_status status =
        glm_cache_stage(b->cache, o->files, o->n_files, b->arena, &o->stage, b->err);
    if (status != GLM_OK)
        return status;
    if (trace != NULL && strcmp(trace, "0") != 0 && trace[0] != '\0')
        glm_log(GLM_LOG_INFO, "compile kernel=%s folder=%s command=\"%s\"", o->kernel, o->stage,
                b->cc.command);
    o->build = b;
    int error = pthread_create(&o->thread, NULL, compile_object, o);
    if (error == 0)
        return GLM_OK;
    o->build = NULL;
    return glm_fail(b->err, GLM_ENOMEM, "cannot build kernel '%s': no thread for it: %s", o->kernel,
                    strerror(error));
}

/* Waits until one of our compilers ends. */
static struct object *wait_one(struct build *b)
{
    struct object *found = NULL;
    pthread_mutex_lock(&b->lock);
    for (;;) {
        for (uint32_t i = 0; found == NULL && i < b->n_objects; i++)
            if (b->objects[i].build != NULL && b->objects[i].done)
                found = &b->objects[i];
        if (found != NULL)
            break;
        pthread_cond_wait(&b->one_done, &b->lock);
    }
    pthread_mutex_unlock(&b->lock);
    pthread_join(found->thread, NULL);
    found->build = NULL;
    return found;
}

static enum glm_status check_spills(struct object *o)
{
    const struct glm_kernel_resources *r = &o->resources;
    uint32_t limit = o->manifest->spill_limit_bytes;
    if (r->spill_store_bytes <= limit && r->spill_load_bytes <= limit)
        return GLM_OK;
    return glm_fail(&o->err, GLM_EKERNEL,
                    "a thread spills %u bytes and loads %u of them, manifest '%s' allows %u",
                    r->spill_store_bytes, r->spill_load_bytes, o->manifest->name, limit);
}

static enum glm_status finish(const struct build *b, struct object *o)
{
    const struct glm_kernel_resources *r = &o->resources;
    const char *about = o->about;
    if (o->status == GLM_OK)
        o->status = check_spills(o);
    if (o->status != GLM_OK)
        return compile_failed(b, o);
    if (r->known)
        about = arena_printf(b->arena,
                             "%s  \"resources\": { \"registers\": %u, \"shared_bytes\": %u, "
                             "\"stack_bytes\": %u, \"spill_store_bytes\": %u, "
                             "\"spill_load_bytes\": %u },\n",
                             o->about, r->registers, r->shared_bytes, r->stack_bytes,
                             r->spill_store_bytes, r->spill_load_bytes);
    if (about == NULL)
        return no_memory(b);
    enum glm_status status =
        glm_cache_publish(o->stage, o->entry, o->digest, b->cc.backend->object, about, b->err);
    if (status == GLM_OK)
        o->stage = NULL;
    return status;
}

/* After a failure nothing new starts, and those that run are waited for. */
static enum glm_status compile(struct build *b, uint32_t n_jobs, glm_build_progress progress,
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
        struct object *o = wait_one(b);
        running--;
        if (status != GLM_OK)
            continue;
        status = finish(b, o);
        if (status == GLM_OK && progress != NULL && !progress(context, ++done, total, o->kernel))
            status = glm_fail(b->err, GLM_ECANCELED, "building kernels was cancelled");
    }
    for (uint32_t i = 0; i < b->n_objects; i++)
        if (b->objects[i].stage != NULL)
            glm_cache_remove(b->objects[i].stage);
    return status;
}

static uint64_t file_bytes(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
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
        list[i].unverified = o->unverified;
        memcpy(list[i].digest, o->digest, sizeof list[i].digest);
        snprintf(list[i].path, sizeof list[i].path, "%s/%s", o->entry, b->cc.backend->object);
        list[i].object_bytes = file_bytes(list[i].path);
        list[i].resources = o->resources;
    }
    *builds = list;
    return GLM_OK;
}

static const struct glm_backend *const backends[] = {&glm_backend_host, &glm_backend_cuda};
enum { N_BACKENDS = sizeof backends / sizeof backends[0] };

enum glm_status glm_backend_find(const char *target, const struct glm_backend **out,
                                 struct glm_error *err)
{
    for (size_t i = 0; i < N_BACKENDS; i++)
        if (backends[i]->takes(target)) {
            *out = backends[i];
            return GLM_OK;
        }
    return glm_fail(err, GLM_EKERNEL, "cannot build kernels for target '%.32s', allowed: %s, %s",
                    target, backends[0]->targets, backends[1]->targets);
}

enum glm_status glm_kernels_build(const struct glm_plan *p, uint32_t n_jobs, struct arena *arena,
                                  glm_build_progress progress, void *context,
                                  struct glm_kernel_build **builds, struct glm_error *err)
{
    struct build b = {.plan = p,
                      .arena = arena,
                      .lock = PTHREAD_MUTEX_INITIALIZER,
                      .one_done = PTHREAD_COND_INITIALIZER,
                      .err = err};
    const struct glm_backend *backend;
    /* One spare: the candidate that turns out to be a kernel met before. */
    b.objects = ARENA_ARRAY(arena, (size_t)p->n_kernels + 1, struct object);
    b.object_of = ARENA_ARRAY(arena, (size_t)p->n_kernels + 1, uint32_t);
    if (b.objects == NULL || b.object_of == NULL)
        return no_memory(&b);
    enum glm_status status = glm_backend_find(p->target, &backend, err);
    if (status == GLM_OK)
        status = backend->init(p->target, arena, &b.cc, err);
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
    char entry[sizeof((struct glm_kernel_build *)0)->path];
    const char *slash = strrchr(path, '/'), *object = NULL;
    size_t n_digest = strlen(digest), n_entry = slash == NULL ? 0 : (size_t)(slash - path);
    bool usable = false;
    for (size_t i = 0; slash != NULL && i < N_BACKENDS; i++)
        if (strcmp(slash + 1, backends[i]->object) == 0)
            object = backends[i]->object;
    if (object == NULL || n_digest != 64 || n_entry <= n_digest || n_entry >= sizeof entry ||
        memcmp(slash - n_digest, digest, n_digest) != 0)
        return glm_fail(err, GLM_EKERNEL,
                        "cannot load kernel '%s': it is not in a cache entry of digest '%.64s'",
                        path, digest);
    memcpy(entry, path, n_entry);
    entry[n_entry] = '\0';
    enum glm_status status = glm_cache_check(entry, digest, object, &usable, err);
    if (status != GLM_OK || usable)
        return status;
    status =
        glm_fail(err, GLM_EKERNEL,
                 "cannot load kernel '%s': its files do not have their recorded digests", path);
    glm_error_hint(err, "build it again: glmctl apply");
    return status;
}
