/* SPDX-License-Identifier: Apache-2.0 */
/* Finds NCCL's calls and wraps them (see the header). What is gathered is device_cuda_nccl.c's. */
#include "runtime/nccl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Gathers under capture are older; this is what distributions still have. */
enum { MIN_VERSION = 21800, NCCL_OK = 0, NCCL_IN_PROGRESS = 7, NCCL_BYTE = 0 };

struct calls {
    int (*version)(int *);
    int (*new_id)(struct glm_nccl_id *);
    int (*open)(void **, int, struct glm_nccl_id, int);
    int (*close)(void *);
    int (*abort)(void *);
    int (*async_error)(void *, int *);
    int (*gather)(const void *, void *, size_t, int, void *, void *);
    const char *(*text)(int);
};

struct glm_nccl {
    void *communicator; /* NULL: aborted */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct calls nccl;
static int nccl_version; /* 0: not opened yet */

/* The first name that the library lacks, or NULL. */
static const char *find_all(void *handle, struct calls *c)
{
    const struct {
        const char *name;
        void *pointer;
    } rows[] = {
        {"ncclGetVersion", &c->version}, {"ncclGetUniqueId", &c->new_id},
        {"ncclCommInitRank", &c->open},  {"ncclCommDestroy", &c->close},
        {"ncclCommAbort", &c->abort},    {"ncclCommGetAsyncError", &c->async_error},
        {"ncclAllGather", &c->gather},   {"ncclGetErrorString", &c->text},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        void *symbol = dlsym(handle, rows[i].name);
        memcpy(rows[i].pointer, &symbol, sizeof symbol); /* ISO C converts no object pointer */
        if (symbol == NULL)
            return rows[i].name;
    }
    return NULL;
}

/* Never closed: its threads outlive every communicator. */
static enum glm_status open_library(struct glm_error *err)
{
    const char *own = getenv("GLM_NCCL");
    const char *name = own != NULL && own[0] != '\0' ? own : "libnccl.so.2";
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    enum glm_status status = GLM_OK;
    int version = 0;
    if (handle == NULL) {
        status = glm_fail(err, GLM_EKERNEL, "cannot open NCCL: %s", dlerror());
    } else {
        const char *missing = find_all(handle, &nccl);
        if (missing != NULL)
            status =
                glm_fail(err, GLM_EKERNEL, "cannot use '%s' as NCCL: it has no %s", name, missing);
        else if (nccl.version(&version) != NCCL_OK || version < MIN_VERSION)
            status = glm_fail(err, GLM_EKERNEL,
                              "cannot use NCCL '%s': it is %d.%d, needed is %d.%d or later", name,
                              version / 10000, version % 10000 / 100, MIN_VERSION / 10000,
                              MIN_VERSION % 10000 / 100);
        if (status != GLM_OK)
            dlclose(handle);
    }
    if (status == GLM_OK)
        nccl_version = version;
    else
        glm_error_hint(err, "install the package libnccl2, name the library in GLM_NCCL, or set "
                            "fabric: { transport: shm } for GPUs of one host");
    return status;
}

enum glm_status glm_nccl_library(int *version, struct glm_error *err)
{
    pthread_mutex_lock(&lock);
    enum glm_status status = nccl_version != 0 ? GLM_OK : open_library(err);
    *version = nccl_version;
    pthread_mutex_unlock(&lock);
    return status;
}

static enum glm_status check(int result, const char *what, struct glm_error *err)
{
    if (result == NCCL_OK)
        return GLM_OK;
    return glm_fail(err, GLM_EKERNEL, "NCCL cannot %s: %s", what, nccl.text(result));
}

enum glm_status glm_nccl_new_id(struct glm_nccl_id *out, struct glm_error *err)
{
    return check(nccl.new_id(out), "make an id for ranks to meet by", err);
}

enum glm_status glm_nccl_open(const struct glm_nccl_id *id, uint32_t rank, uint32_t world,
                              struct glm_nccl **out, struct glm_error *err)
{
    struct glm_nccl *n = calloc(1, sizeof *n);
    if (n == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot open NCCL: out of memory");
    enum glm_status status = check(nccl.open(&n->communicator, (int)world, *id, (int)rank),
                                   "let this rank meet the others", err);
    if (status == GLM_OK)
        *out = n;
    else
        free(n);
    return status;
}

void glm_nccl_close(struct glm_nccl *n)
{
    if (n != NULL && n->communicator != NULL)
        nccl.close(n->communicator);
    free(n);
}

enum glm_status glm_nccl_gather(struct glm_nccl *n, glm_cuda_stream s, glm_cuda_address from,
                                glm_cuda_address to, uint64_t bytes, struct glm_error *err)
{
    return check(nccl.gather((const void *)(uintptr_t)from, (void *)(uintptr_t)to, bytes, NCCL_BYTE,
                             n->communicator, s),
                 "gather", err);
}

enum glm_status glm_nccl_look(struct glm_nccl *n, struct glm_error *err)
{
    int error = NCCL_OK;
    int result = nccl.async_error(n->communicator, &error);
    if (result == NCCL_OK && error != NCCL_IN_PROGRESS)
        result = error;
    return check(result, "exchange with the other ranks", err);
}

void glm_nccl_abort(struct glm_nccl *n)
{
    nccl.abort(n->communicator);
    n->communicator = NULL;
}
