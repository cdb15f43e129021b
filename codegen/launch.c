/* SPDX-License-Identifier: Apache-2.0 */
/* launch.json and saved plans: written for `glmctl apply` and `plan --out`, read back bounded and
 * checked. A saved plan is refused when a plan in it is not the one its digests were made from. */
#include "codegen/launch.h"

#include "spec/base/digest.h"
#include "codegen/json_util.h"
#include "codegen/plan_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    LAUNCH_FORMAT = 1,
    LAUNCH_MAX_BYTES = 4 * 1024 * 1024,
    SAVED_MAX_BYTES = LAUNCH_MAX_BYTES + GLM_MAX_RANKS * PLAN_MAX_BYTES,
    SPEC_MAX_BYTES = 1024 * 1024,
};

static void add_text(struct buf *b, const char *before, const char *key, const char *text)
{
    buf_printf(b, "%s\"%s\": ", before, key);
    buf_json_string(b, text == NULL ? "" : text, text == NULL ? 0 : strlen(text));
}

static void add_rank(struct buf *b, const struct glm_launch_rank *k, const char *indent)
{
    buf_char(b, '{');
    add_text(b, "", "node", k->node);
    add_text(b, ", ", "host", k->host);
    add_text(b, ", ", "control", k->control);
    add_text(b, ", ", "device", k->device);
    add_text(b, ", ", "plan_file", k->plan_file);
    add_text(b, ", ", "plan_digest", k->plan_digest);
    buf_printf(b,
               ", \"threads\": %u, \"memory_bytes\": %" PRIu64 ", \"reserve_bytes\": %" PRIu64
               ", \"kernels\": [",
               k->threads, k->memory_bytes, k->reserve_bytes);
    for (uint32_t i = 0; i < k->n_kernels; i++) {
        buf_printf(b, "%s\n%s      {", i == 0 ? "" : ",", indent);
        add_text(b, "", "path", k->kernel_paths[i]);
        add_text(b, ", ", "digest", k->kernel_digests[i]);
        buf_char(b, '}');
    }
    if (k->n_kernels > 0)
        buf_printf(b, "\n%s    ", indent);
    buf_str(b, "]}");
}

/* The launch document with its lines after the first indented. */
static void add_launch(struct buf *b, const struct glm_launch_file *l, const char *indent)
{
    char before[32];
    snprintf(before, sizeof before, ",\n%s  ", indent);
    buf_printf(b, "{\n%s  \"format_version\": %u", indent, l->format_version);
    add_text(b, before, "cluster", l->cluster);
    add_text(b, before, "lane", l->lane);
    add_text(b, before, "spec_path", l->spec_path);
    add_text(b, before, "spec_text", l->spec_text);
    add_text(b, before, "spec_digest", l->spec_digest);
    add_text(b, before, "set_digest", l->set_digest);
    add_text(b, before, "binary_digest", l->binary_digest);
    add_text(b, before, "target", l->target);
    add_text(b, before, "checkpoint", l->checkpoint);
    add_text(b, before, "checkpoint_digest", l->checkpoint_digest);
    add_text(b, before, "transport", l->transport);
    add_text(b, before, "listen_host", l->listen_host);
    buf_printf(b, "%s\"listen_port\": %u", before, l->listen_port);
    add_text(b, before, "served_name", l->served_name);
    add_text(b, before, "api_key_file", l->api_key_file);
    buf_printf(b, "%s\"max_tokens\": %u%s\"max_body_bytes\": %" PRIu64 "%s\"thinking\": %s", before,
               l->max_tokens, before, l->max_body_bytes, before, l->thinking ? "true" : "false");
    add_text(b, before, "effort", l->effort);
    buf_printf(b, "%s\"ranks\": [", before);
    for (uint32_t i = 0; i < l->n_ranks; i++) {
        buf_printf(b, "%s\n%s    ", i == 0 ? "" : ",", indent);
        add_rank(b, &l->ranks[i], indent);
    }
    buf_printf(b, "\n%s  ]\n%s}", indent, indent);
}

enum glm_status glm_launch_write(const struct glm_launch_file *l, struct buf *out,
                                 struct glm_error *err)
{
    add_launch(out, l, "");
    buf_char(out, '\n');
    if (out->failed)
        return glm_fail(err, GLM_ENOMEM, "cannot write the launch file: out of memory");
    return GLM_OK;
}

const char *glm_launch_links(const struct glm_launch_file *l)
{
    if (strcmp(l->transport, "nccl") != 0)
        return l->transport;
    for (uint32_t r = 1; r < l->n_ranks; r++)
        if (strcmp(l->ranks[r].host, l->ranks[0].host) != 0)
            return "tcp";
    return "shm";
}

bool glm_launch_gpu(const struct glm_launch_rank *rank, uint32_t *gpu)
{
    enum glm_device_kind kind;
    return glm_device_parse(rank->device, &kind, gpu) && kind == GLM_DEVICE_CUDA;
}

static void read_kernels(struct json_reader *r, const cJSON *object, struct glm_launch_rank *k)
{
    static const char *const keys[] = {"path", "digest", NULL};
    const cJSON *list = json_list(r, object, "kernels", PLAN_MAX_KERNELS, true, &k->n_kernels);
    k->kernel_paths = JSON_ALLOC(r, k->n_kernels, const char *);
    k->kernel_digests = JSON_ALLOC(r, k->n_kernels, const char *);
    size_t mark = json_enter(r, "kernels");
    const cJSON *item = list == NULL ? NULL : list->child;
    for (uint32_t i = 0; json_ok(r) && item != NULL; i++, item = item->next) {
        char digest[65];
        size_t inner = json_enter_item(r, i);
        if (json_object(r, item, keys)) {
            k->kernel_paths[i] = json_text(r, item, "path");
            json_digest(r, item, "digest", false, digest);
            k->kernel_digests[i] = json_text(r, item, "digest");
        }
        json_leave(r, inner);
    }
    json_leave(r, mark);
}

/* A name beside launch.json, not a path out of its folder. */
static bool plain_file(const char *name)
{
    return name[0] != '\0' && name[0] != '.' && strchr(name, '/') == NULL && strlen(name) < 256;
}

/* A gb10 is a spec's word for the GPU 0 of a machine; here stands what is opened. */
static bool known_device(const char *text)
{
    enum glm_device_kind kind;
    uint32_t index;
    return glm_device_parse(text, &kind, &index) && kind != GLM_DEVICE_GB10;
}

static void read_rank(struct json_reader *r, const cJSON *item, struct glm_launch_rank *k)
{
    static const char *const keys[] = {"node",          "host",        "control", "device",
                                       "plan_file",     "plan_digest", "threads", "memory_bytes",
                                       "reserve_bytes", "kernels",     NULL};
    if (!json_object(r, item, keys))
        return;
    k->node = json_text(r, item, "node");
    k->host = json_text(r, item, "host");
    k->control = json_text(r, item, "control");
    k->device = json_text(r, item, "device");
    k->plan_file = json_text(r, item, "plan_file");
    json_digest(r, item, "plan_digest", false, k->plan_digest);
    k->threads = (uint32_t)json_u64(r, item, "threads", 0, 4096);
    k->memory_bytes = json_u64(r, item, "memory_bytes", 0, UINT64_C(1) << 53);
    k->reserve_bytes = json_u64(r, item, "reserve_bytes", 0, UINT64_C(1) << 53);
    read_kernels(r, item, k);
    if (json_ok(r) && !known_device(k->device))
        json_fail(r, "has the device '%.64s', allowed: cpu, cuda:N", k->device);
    if (json_ok(r) && !plain_file(k->plan_file))
        json_fail(r, "has the plan file '%.64s', not a plain file name", k->plan_file);
}

static void read_ranks(struct json_reader *r, const cJSON *tree, struct glm_launch_file *l)
{
    const cJSON *list = json_list(r, tree, "ranks", GLM_MAX_RANKS, true, &l->n_ranks);
    if (json_ok(r) && l->n_ranks == 0)
        json_fail(r, "'ranks' is empty");
    l->ranks = JSON_ALLOC(r, l->n_ranks, struct glm_launch_rank);
    size_t mark = json_enter(r, "ranks");
    const cJSON *item = list == NULL ? NULL : list->child;
    for (uint32_t i = 0; json_ok(r) && item != NULL; i++, item = item->next) {
        size_t inner = json_enter_item(r, i);
        read_rank(r, item, &l->ranks[i]);
        json_leave(r, inner);
    }
    json_leave(r, mark);
}

/* The spec's text is longer than other texts may be, and must have the digest beside it. */
static void read_spec(struct json_reader *r, const cJSON *tree, struct glm_launch_file *l)
{
    char digest[65];
    const cJSON *item = json_get(r, tree, "spec_text", true);
    json_digest(r, tree, "spec_digest", false, l->spec_digest);
    if (!json_ok(r))
        return;
    size_t len = cJSON_IsString(item) ? strlen(item->valuestring) : SPEC_MAX_BYTES + 1;
    if (len > SPEC_MAX_BYTES) {
        json_fail(r, "'spec_text' is no string of at most %d bytes", SPEC_MAX_BYTES);
        return;
    }
    l->spec_text = arena_strndup(r->arena, item->valuestring, len);
    if (l->spec_text == NULL)
        json_no_memory(r);
    else if (glm_sha256_hex(l->spec_text, len, digest, NULL) != GLM_OK)
        json_no_memory(r);
    else if (strcmp(digest, l->spec_digest) != 0)
        json_fail(r, "'spec_text' has the digest %.12s…, 'spec_digest' says %.12s…", digest,
                  l->spec_digest);
}

static void read_launch(struct json_reader *r, const cJSON *tree, struct glm_launch_file *l)
{
    static const char *const keys[] = {"format_version",
                                       "cluster",
                                       "lane",
                                       "spec_path",
                                       "spec_text",
                                       "spec_digest",
                                       "set_digest",
                                       "binary_digest",
                                       "target",
                                       "checkpoint",
                                       "checkpoint_digest",
                                       "transport",
                                       "listen_host",
                                       "listen_port",
                                       "served_name",
                                       "api_key_file",
                                       "max_tokens",
                                       "max_body_bytes",
                                       "thinking",
                                       "effort",
                                       "ranks",
                                       NULL};
    if (!json_object(r, tree, keys))
        return;
    l->format_version = (uint32_t)json_u64(r, tree, "format_version", LAUNCH_FORMAT, LAUNCH_FORMAT);
    l->cluster = json_text(r, tree, "cluster");
    l->lane = json_text(r, tree, "lane");
    l->spec_path = json_text(r, tree, "spec_path");
    read_spec(r, tree, l);
    json_digest(r, tree, "set_digest", false, l->set_digest);
    json_digest(r, tree, "binary_digest", true, l->binary_digest);
    l->target = json_text(r, tree, "target");
    l->checkpoint = json_text(r, tree, "checkpoint");
    json_digest(r, tree, "checkpoint_digest", true, l->checkpoint_digest);
    l->transport = json_text(r, tree, "transport");
    l->listen_host = json_text(r, tree, "listen_host");
    l->listen_port = (uint16_t)json_u64(r, tree, "listen_port", 0, 65535);
    l->served_name = json_text(r, tree, "served_name");
    l->api_key_file = json_text(r, tree, "api_key_file");
    l->max_tokens = (uint32_t)json_u64(r, tree, "max_tokens", 1, UINT32_MAX);
    l->max_body_bytes = json_u64(r, tree, "max_body_bytes", 1, UINT64_C(1) << 40);
    json_get(r, tree, "thinking", true);
    l->thinking = json_bool_or(r, tree, "thinking", false);
    l->effort = json_text(r, tree, "effort");
    read_ranks(r, tree, l);
}

static enum glm_status launch_from_tree(const cJSON *tree, struct arena *arena,
                                        struct glm_launch_file **out, struct glm_error *err)
{
    struct json_reader r;
    json_reader_init(&r, "the launch file", GLM_EPLAN, arena, err);
    struct glm_launch_file *l = JSON_ALLOC(&r, 1, struct glm_launch_file);
    if (l != NULL)
        read_launch(&r, tree, l);
    if (json_ok(&r))
        *out = l;
    return r.status;
}

enum glm_status glm_launch_read(const char *json, size_t len, struct arena *arena,
                                struct glm_launch_file **out, struct glm_error *err)
{
    struct json_reader r;
    json_reader_init(&r, "the launch file", GLM_EPLAN, arena, err);
    cJSON *tree = json_parse(&r, json, len, LAUNCH_MAX_BYTES);
    if (tree == NULL)
        return r.status;
    enum glm_status status = launch_from_tree(tree, arena, out, err);
    cJSON_Delete(tree);
    return status;
}

/* ---- saved plans ---- */

/* All of the file; its digest covers the same bytes with an empty digest. */
static enum glm_status add_saved(const struct glm_launch_file *l, struct glm_plan *const *plans,
                                 const char *digest, struct buf *out, struct glm_error *err)
{
    enum glm_status status = GLM_OK;
    buf_printf(out, "{\n\"format_version\": %d,\n\"digest\": \"%s\",\n\"launch\": ", LAUNCH_FORMAT,
               digest);
    add_launch(out, l, "");
    buf_str(out, ",\n\"plans\": [");
    for (uint32_t i = 0; status == GLM_OK && i < l->n_ranks; i++) {
        struct buf text = {0};
        status = glm_plan_write(plans[i], &text, err);
        buf_str(out, i == 0 ? "\n" : ",\n");
        if (status == GLM_OK)
            buf_add(out, text.data, text.len - 1); /* without its last newline */
        buf_release(&text);
    }
    buf_str(out, "\n]\n}\n");
    if (status == GLM_OK && out->failed)
        status = glm_fail(err, GLM_ENOMEM, "cannot write the saved plan: out of memory");
    return status;
}

static enum glm_status saved_digest(const struct glm_launch_file *l, struct glm_plan *const *plans,
                                    char digest[65], struct glm_error *err)
{
    struct buf text = {0};
    enum glm_status status = add_saved(l, plans, "", &text, err);
    if (status == GLM_OK)
        status = glm_sha256_hex(text.data, text.len, digest, err);
    buf_release(&text);
    return status;
}

enum glm_status glm_saved_plan_write(const struct glm_launch_file *l, struct glm_plan *const *plans,
                                     struct buf *out, struct glm_error *err)
{
    char digest[65];
    enum glm_status status = saved_digest(l, plans, digest, err);
    return status == GLM_OK ? add_saved(l, plans, digest, out, err) : status;
}

/* The set's digest and each rank's must be those the launch document names. */
static enum glm_status check_digests(const struct glm_launch_file *l, struct glm_plan *const *plans,
                                     const char *whole, struct glm_error *err)
{
    char digest[65];
    for (uint32_t i = 0; i < l->n_ranks; i++) {
        if (plans[i]->rank != i || plans[i]->world != l->n_ranks)
            return glm_fail(err, GLM_EPLAN,
                            "cannot use the saved plan: plan %u is rank %u of %u, not %u of %u", i,
                            plans[i]->rank, plans[i]->world, i, l->n_ranks);
        if (strcmp(plans[i]->target, l->target) != 0)
            return glm_fail(err, GLM_EPLAN,
                            "cannot use the saved plan: plan %u is for target '%s', the launch "
                            "file for '%.32s'",
                            i, plans[i]->target, l->target);
    }
    enum glm_status status = glm_plan_set_digest(plans, l->n_ranks, digest, err);
    if (status == GLM_OK && strcmp(digest, l->set_digest) != 0)
        return glm_fail(err, GLM_EPLAN,
                        "cannot use the saved plan: its plans have the set digest %.12s…, it was "
                        "made with %.12s…: it was changed",
                        digest, l->set_digest);
    for (uint32_t i = 0; status == GLM_OK && i < l->n_ranks; i++) {
        status = glm_plan_digest(plans[i], digest, err);
        if (status == GLM_OK && strcmp(digest, l->ranks[i].plan_digest) != 0)
            return glm_fail(err, GLM_EPLAN,
                            "cannot use the saved plan: the plan of rank %u has the digest %.12s…, "
                            "it was made with %.12s…: it was changed",
                            i, digest, l->ranks[i].plan_digest);
    }
    if (status == GLM_OK)
        status = saved_digest(l, plans, digest, err);
    if (status == GLM_OK && strcmp(digest, whole) != 0)
        return glm_fail(err, GLM_EPLAN,
                        "cannot use the saved plan: it has the digest %.12s…, it was made with "
                        "%.12s…: it was changed",
                        digest, whole);
    return status;
}

static enum glm_status read_saved(struct json_reader *r, const cJSON *tree, char digest[65],
                                  struct glm_launch_file **launch, struct glm_plan ***plans)
{
    static const char *const keys[] = {"format_version", "digest", "launch", "plans", NULL};
    if (!json_object(r, tree, keys))
        return r->status;
    json_u64(r, tree, "format_version", LAUNCH_FORMAT, LAUNCH_FORMAT);
    json_digest(r, tree, "digest", false, digest);
    const cJSON *item = json_get(r, tree, "launch", true);
    if (!json_ok(r))
        return r->status;
    enum glm_status status = launch_from_tree(item, r->arena, launch, r->err);
    if (status != GLM_OK)
        return status;
    uint32_t n;
    const cJSON *list = json_list(r, tree, "plans", GLM_MAX_RANKS, true, &n);
    if (json_ok(r) && n != (*launch)->n_ranks)
        json_fail(r, "has %u plans for %u ranks", n, (*launch)->n_ranks);
    *plans = JSON_ALLOC(r, n, struct glm_plan *);
    item = list == NULL ? NULL : list->child;
    for (uint32_t i = 0; json_ok(r) && item != NULL; i++, item = item->next) {
        char subject[64];
        snprintf(subject, sizeof subject, "plan %u of the saved plan", i);
        status = glm_plan_from_tree(item, subject, r->arena, &(*plans)[i], r->err);
        if (status != GLM_OK)
            return status;
    }
    return r->status;
}

enum glm_status glm_saved_plan_read(const char *json, size_t len, struct arena *arena,
                                    struct glm_launch_file **launch, struct glm_plan ***plans,
                                    struct glm_error *err)
{
    struct json_reader r;
    struct glm_launch_file *l = NULL;
    struct glm_plan **list = NULL;
    char digest[65] = "";
    json_reader_init(&r, "the saved plan", GLM_EPLAN, arena, err);
    cJSON *tree = json_parse(&r, json, len, SAVED_MAX_BYTES);
    if (tree == NULL)
        return r.status;
    enum glm_status status = read_saved(&r, tree, digest, &l, &list);
    cJSON_Delete(tree);
    GLM_ASSERT(status != GLM_OK || (l != NULL && list != NULL));
    if (status == GLM_OK)
        status = check_digests(l, list, digest, err);
    if (status != GLM_OK)
        return status;
    *launch = l;
    *plans = list;
    return GLM_OK;
}
