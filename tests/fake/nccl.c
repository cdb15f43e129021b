/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL without a GPU, as a library for $GLM_NCCL beside tests/fake/cuda_driver.c: ranks are threads
 * of this process, which meet by the id. What is put on a stream blocks its thread until all ranks
 * have come or the rank's communicator is aborted; the last one moves the bytes. As with NCCL,
 * ranks that ask for unequal sizes, or whose peer never comes, do not go on by themselves.
 *
 * $FAKE_NCCL holds what tests change: "version=21703", "fail=ncclCommInitRank". */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INTERNAL = 3, INVALID = 4, BYTE = 0, MAX_WORLD = 8 };

struct unique_id {
    char bytes[128];
};

struct operation {
    struct operation *next;
    struct communicator *of;
    const unsigned char *from;
    unsigned char *to;
    size_t bytes;
};

/* Kept for good: an aborted one's graphs may still name it. */
struct communicator {
    struct communicator *next;
    struct group *group;
    int rank;
    bool aborted;
    struct operation *operations;
};

struct group {
    struct group *next;
    struct unique_id id;
    int world, n_joined, n_arrived;
    bool broken; /* a rank left an operation */
    uint64_t turn;
    const struct operation *arrived[MAX_WORLD];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct group *groups;
static struct communicator *communicators;
static unsigned n_ids;
static unsigned long n_gathered;

#define CALL(name, ...)    \
    int name(__VA_ARGS__); \
    int name(__VA_ARGS__)

static int setting(const char *key, int otherwise)
{
    const char *all = getenv("FAKE_NCCL"), *at = all == NULL ? NULL : strstr(all, key);
    return at == NULL ? otherwise : atoi(at + strlen(key) + 1);
}

static bool fails(const char *call)
{
    const char *all = getenv("FAKE_NCCL"), *at = all == NULL ? NULL : strstr(all, "fail=");
    return at != NULL && strcmp(at + 5, call) == 0;
}

/* The fake driver's; never closed. */
static void *driver(const char *name)
{
    void *handle = dlopen(getenv("GLM_CUDA_DRIVER"), RTLD_NOW | RTLD_NOLOAD);
    return handle == NULL ? NULL : dlsym(handle, name);
}

CALL(ncclGetVersion, int *version)
{
    *version = setting("version", 22703);
    return OK;
}

const char *ncclGetErrorString(int error);
const char *ncclGetErrorString(int error)
{
    return error == INVALID ? "invalid argument" : "internal error";
}

CALL(ncclGetUniqueId, struct unique_id *out)
{
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&lock);
    snprintf(out->bytes, sizeof out->bytes, "fake %u", ++n_ids);
    pthread_mutex_unlock(&lock);
    return fails("ncclGetUniqueId") ? INTERNAL : OK;
}

static struct group *find_group(const struct unique_id *id, int world)
{
    struct group *g = groups;
    while (g != NULL && memcmp(&g->id, id, sizeof *id) != 0)
        g = g->next;
    if (g == NULL && (g = calloc(1, sizeof *g)) != NULL) {
        *g = (struct group){.next = groups, .id = *id, .world = world};
        groups = g;
    }
    return g;
}

CALL(ncclCommInitRank, void **out, int world, struct unique_id id, int rank)
{
    struct communicator *c = calloc(1, sizeof *c);
    if (c == NULL || world < 1 || world > MAX_WORLD || rank < 0 || rank >= world ||
        fails("ncclCommInitRank")) {
        free(c);
        return INVALID;
    }
    pthread_mutex_lock(&lock);
    *c =
        (struct communicator){.next = communicators, .group = find_group(&id, world), .rank = rank};
    communicators = c;
    c->group->n_joined++;
    pthread_cond_broadcast(&changed);
    while (c->group->n_joined < world)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    *out = c;
    return OK;
}

/* With the lock, all ranks waiting. */
static void gather(struct group *g)
{
    for (int to = 0; to < g->world; to++)
        for (int from = 0; from < g->world; from++)
            memmove(g->arrived[to]->to + (size_t)from * g->arrived[from]->bytes,
                    g->arrived[from]->from, g->arrived[from]->bytes);
    n_gathered++;
}

static void run(void *operation)
{
    const struct operation *o = operation;
    struct group *g = o->of->group;
    pthread_mutex_lock(&lock);
    const uint64_t turn = g->turn;
    bool equal = !g->broken;
    g->arrived[o->of->rank] = o;
    g->n_arrived++;
    for (int r = 0; equal && g->n_arrived == g->world && r < g->world; r++)
        equal = g->arrived[r]->bytes == o->bytes;
    if (equal && g->n_arrived == g->world) {
        gather(g);
        g->n_arrived = 0;
        g->turn++;
        pthread_cond_broadcast(&changed);
    }
    while (g->turn == turn && !o->of->aborted)
        pthread_cond_wait(&changed, &lock);
    g->broken = g->broken || g->turn == turn;
    pthread_mutex_unlock(&lock);
}

CALL(ncclAllGather, const void *from, void *to, size_t n, int type, void *communicator,
     void *stream)
{
    struct communicator *c = communicator;
    int (*put)(void *, void (*)(void *), void *) = NULL;
    int (*on_device)(uint64_t, size_t) = NULL;
    void *symbols[] = {driver("fakeStreamCall"), driver("fakeOnDevice")};
    struct operation *o = calloc(1, sizeof *o);
    if (symbols[0] == NULL || symbols[1] == NULL || o == NULL) {
        free(o);
        return INTERNAL;
    }
    memcpy(&put, &symbols[0], sizeof put);
    memcpy(&on_device, &symbols[1], sizeof on_device);
    if (c == NULL || type != BYTE || on_device((uint64_t)(uintptr_t)from, n) != OK ||
        on_device((uint64_t)(uintptr_t)to, n * (size_t)c->group->world) != OK) {
        free(o);
        return INVALID;
    }
    pthread_mutex_lock(&lock);
    *o = (struct operation){.next = c->operations, .of = c, .from = from, .to = to, .bytes = n};
    c->operations = o;
    pthread_mutex_unlock(&lock);
    return put(stream, run, o) == OK ? OK : INTERNAL;
}

CALL(ncclCommGetAsyncError, void *communicator, int *error)
{
    *error = OK;
    return communicator != NULL ? OK : INVALID;
}

CALL(ncclCommAbort, void *communicator)
{
    struct communicator *c = communicator;
    pthread_mutex_lock(&lock);
    c->aborted = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return OK;
}

CALL(ncclCommDestroy, void *communicator)
{
    return communicator != NULL ? OK : INVALID;
}

/* For tests: gathers that all ranks took part in. */
CALL(fakeGathers, unsigned long *n)
{
    pthread_mutex_lock(&lock);
    *n = n_gathered;
    pthread_mutex_unlock(&lock);
    return OK;
}
