/* SPDX-License-Identifier: Apache-2.0 */
/* From a compiled lane to launch.json, and the differences between two of them. Writing the file is
 * codegen/launch.c's, starting what it says apply.c's. */
#include "cli/launch.h"

#include "spec/base/digest.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BINARY_LIMIT_BYTES = 256 << 20 };

enum glm_status launch_daemon_path(char *out, size_t size, struct glm_error *err)
{
    char self[PATH_MAX];
    const char *given = getenv("GLM_GLMD");
    if (given != NULL && *given != '\0') {
        snprintf(out, size, "%s", realpath(given, self) == NULL ? given : self);
    } else {
        ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
        if (n < 0)
            return glm_fail(err, GLM_EIO, "cannot find glmd: %s", strerror(errno));
        self[n] = '\0';
        snprintf(out, size, "%s/glmd", dirname(self));
    }
    if (access(out, X_OK) == 0)
        return GLM_OK;
    enum glm_status status =
        glm_fail(err, GLM_ENOTFOUND, "cannot run '%s': %s", out, strerror(errno));
    glm_error_hint(err, "glmd lies beside glmctl; GLM_GLMD names another place");
    return status;
}

static enum glm_status binary_digest(char digest[65], struct glm_error *err)
{
    char path[PATH_MAX];
    struct buf bytes = {0};
    enum glm_status status = launch_daemon_path(path, sizeof path, err);
    if (status == GLM_OK)
        status = glm_file_read(path, BINARY_LIMIT_BYTES, &bytes, err);
    if (status == GLM_OK)
        status = glm_sha256_hex(bytes.data, bytes.len, digest, err);
    buf_release(&bytes);
    return status;
}

static uint32_t ranks_on_host(const struct glm_cluster *c, const struct glm_lane *lane,
                              const char *host)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < lane->n_ranks; i++)
        n += strcmp(c->nodes[lane->ranks[i]].host, host) == 0;
    return n;
}

uint32_t launch_default_threads(uint32_t n_ranks)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t threads = cores < 1 || n_ranks < 1 ? 1 : (uint32_t)cores / n_ranks;
    return threads < 1 ? 1 : threads;
}

/* More than these do not load faster: the disk is the limit. */
enum { MAX_LOAD_THREADS = 16 };

static uint32_t threads_of(const struct glm_cluster *c, const struct glm_lane *lane,
                           const struct glm_node *node)
{
    const uint32_t n = launch_default_threads(ranks_on_host(c, lane, node->host));
    if (node->threads > 0)
        return node->threads;
    return node->device != GLM_DEVICE_CPU && n > MAX_LOAD_THREADS ? MAX_LOAD_THREADS : n;
}

static enum glm_status launch_rank(struct compiled *c, uint32_t rank, struct glm_launch_rank *out,
                                   struct glm_error *err)
{
    const struct glm_lane *lane = &c->cluster->lanes[c->lane_i];
    const struct glm_node *node = &c->cluster->nodes[lane->ranks[rank]];
    struct buf plan = {0};
    *out = (struct glm_launch_rank){
        .node = node->name,
        .host = node->host,
        .control = node->control,
        .device = node->device == GLM_DEVICE_CPU
                      ? "cpu"
                      : arena_printf(&c->arena, "cuda:%u", node->device_index),
        .plan_file = arena_printf(&c->arena, "rank%u.plan.json", rank),
        .threads = threads_of(c->cluster, lane, node),
        .memory_bytes = node->memory_bytes,
        .reserve_bytes = node->reserve_bytes,
    };
    enum glm_status status = glm_plan_write(c->plans[rank], &plan, err);
    if (status == GLM_OK)
        status = glm_sha256_hex(plan.data, plan.len, out->plan_digest, err);
    buf_release(&plan);
    return status;
}

static const char *absolute(struct compiled *c, const char *path)
{
    char resolved[PATH_MAX];
    if (path == NULL || *path == '\0' || strncmp(path, "synthetic:", 10) == 0 ||
        realpath(path, resolved) == NULL)
        return path;
    return arena_strdup(&c->arena, resolved);
}

enum glm_status launch_make(struct compiled *c, struct glm_launch_file *out, struct glm_error *err)
{
    const struct glm_cluster *cluster = c->cluster;
    const struct glm_lane *lane = &cluster->lanes[c->lane_i];
    *out = (struct glm_launch_file){
        .format_version = 1,
        .cluster = cluster->name,
        .lane = lane->name,
        .spec_path = absolute(c, cluster->spec_path),
        .spec_text = cluster->spec_text,
        .target = c->target,
        .checkpoint = absolute(c, cluster->checkpoint_path),
        .transport = glm_transport_text(cluster->transport),
        .listen_host = lane->listen_host,
        .listen_port = lane->listen_port,
        .served_name = cluster->served_name,
        .api_key_file = absolute(c, lane->api_key_file),
        .max_tokens = lane->max_tokens,
        .max_body_bytes = lane->max_body_bytes,
        .thinking = lane->thinking,
        .effort = lane->effort,
        .ranks = ARENA_ARRAY(&c->arena, lane->n_ranks, struct glm_launch_rank),
        .n_ranks = lane->n_ranks,
    };
    if (out->ranks == NULL)
        return glm_fail(err, GLM_ENOMEM, "out of memory");
    memcpy(out->spec_digest, cluster->spec_digest, sizeof out->spec_digest);
    memcpy(out->set_digest, c->plans[0]->set_digest, sizeof out->set_digest);
    memcpy(out->checkpoint_digest, cluster->checkpoint->digest, sizeof out->checkpoint_digest);
    enum glm_status status = binary_digest(out->binary_digest, err);
    for (uint32_t r = 0; status == GLM_OK && r < lane->n_ranks; r++)
        status = launch_rank(c, r, &out->ranks[r], err);
    return status;
}

/* ---- differences ---- */

void launch_difference_add(struct launch_differences *out, const char *what, const char *from,
                           const char *to, bool of_spec)
{
    if (out->n < LAUNCH_MAX_DIFFERENCES && what != NULL && from != NULL && to != NULL)
        out->items[out->n++] = (struct launch_difference){what, from, to, of_spec};
}

struct comparison {
    struct arena *arena;
    struct launch_differences *out;
};

static void text_differs(struct comparison *c, const char *what, const char *old, const char *new,
                         bool of_spec)
{
    const char *a = old == NULL ? "" : old, *b = new == NULL ? "" : new;
    if (strcmp(a, b) != 0)
        launch_difference_add(c->out, what, *a == '\0' ? "none" : a, *b == '\0' ? "none" : b,
                              of_spec);
}

/* Of digests the first characters are enough to tell two apart. */
static void digest_differs(struct comparison *c, const char *what, const char *old, const char *new,
                           bool of_spec)
{
    if (strcmp(old, new) != 0)
        launch_difference_add(c->out, what, arena_printf(c->arena, "%.12s", old),
                              arena_printf(c->arena, "%.12s", new), of_spec);
}

static void number_differs(struct comparison *c, const char *what, uint64_t old, uint64_t new,
                           bool of_spec)
{
    if (old != new)
        launch_difference_add(c->out, what, arena_printf(c->arena, "%llu", (unsigned long long)old),
                              arena_printf(c->arena, "%llu", (unsigned long long)new), of_spec);
}

static void compare_rank(struct comparison *c, uint32_t rank, const struct glm_launch_rank *old,
                         const struct glm_launch_rank *new)
{
    const char *node = arena_printf(c->arena, "node of rank %u", rank);
    const char *host = arena_printf(c->arena, "host of rank %u", rank);
    const char *control = arena_printf(c->arena, "control address of rank %u", rank);
    const char *device = arena_printf(c->arena, "device of rank %u", rank);
    const char *threads = arena_printf(c->arena, "threads of rank %u", rank);
    const char *memory = arena_printf(c->arena, "memory of rank %u", rank);
    const char *reserve = arena_printf(c->arena, "reserve of rank %u", rank);
    const char *plan = arena_printf(c->arena, "plan of rank %u", rank);
    text_differs(c, node, old->node, new->node, true);
    text_differs(c, host, old->host, new->host, true);
    text_differs(c, control, old->control, new->control, true);
    text_differs(c, device, old->device, new->device, true);
    number_differs(c, memory, old->memory_bytes, new->memory_bytes, true);
    number_differs(c, reserve, old->reserve_bytes, new->reserve_bytes, true);
    number_differs(c, threads, old->threads, new->threads, false);
    digest_differs(c, plan, old->plan_digest, new->plan_digest, true);
}

void launch_compare(const struct glm_launch_file *old, const struct glm_launch_file *new,
                    struct arena *arena, struct launch_differences *out)
{
    struct comparison c = {arena, out};
    text_differs(&c, "checkpoint", old->checkpoint, new->checkpoint, false);
    digest_differs(&c, "checkpoint digest", old->checkpoint_digest, new->checkpoint_digest, false);
    text_differs(&c, "kernel target", old->target, new->target, false);
    digest_differs(&c, "glmd", old->binary_digest, new->binary_digest, false);
    text_differs(&c, "served name", old->served_name, new->served_name, true);
    text_differs(&c, "transport", old->transport, new->transport, true);
    text_differs(&c, "listen host", old->listen_host, new->listen_host, true);
    number_differs(&c, "listen port", old->listen_port, new->listen_port, true);
    text_differs(&c, "API key file", old->api_key_file, new->api_key_file, true);
    number_differs(&c, "max_tokens", old->max_tokens, new->max_tokens, true);
    number_differs(&c, "body limit", old->max_body_bytes, new->max_body_bytes, true);
    text_differs(&c, "thinking", old->thinking ? "true" : "false", new->thinking ? "true" : "false",
                 true);
    text_differs(&c, "effort", old->effort, new->effort, true);
    number_differs(&c, "ranks", old->n_ranks, new->n_ranks, true);
    for (uint32_t r = 0; r < old->n_ranks && r < new->n_ranks; r++)
        compare_rank(&c, r, &old->ranks[r], &new->ranks[r]);
}
