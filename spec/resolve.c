/* SPDX-License-Identifier: Apache-2.0 */
/* A validated tree → the resolved cluster: nodes, lanes, formats against devices and checkpoint,
 * and everything that two fields decide together. Single fields were checked by schema.c; cables
 * and topology are topology.c's, the checkpoint's folder hub.c's. */
#include "spec/resolve.h"
#include "spec/schema.h"
#include "spec/base/digest.h"
#include "spec/base/nearest.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_WINDOW = 32768,
    DEFAULT_PREFILL = 512,
    DRAFTED_ROWS = 16,
    MAX_PORT_NUMBER = 65535,
};
#define GB10_RESERVE_BYTES (14ull << 30)

struct src_span resolve_at(const struct yaml_node *map, const char *key)
{
    const struct yaml_node *n = yaml_get(map, key);
    return n != NULL ? n->at : map->at;
}

const struct yaml_node *resolve_get(const struct yaml_node *map, const char *key)
{
    const struct yaml_node *n = map == NULL || map->bad ? NULL : yaml_get(map, key);
    return n == NULL || n->bad ? NULL : n;
}

uint32_t resolve_node(const struct resolve *r, const char *name)
{
    for (uint32_t i = 0; i < r->c->n_nodes; i++)
        if (r->c->nodes[i].name != NULL && strcmp(r->c->nodes[i].name, name) == 0)
            return i;
    return GLM_MAX_NODES;
}

void resolve_unknown_node(struct resolve *r, struct src_span at, const char *subject,
                          const char *name)
{
    const char *names[GLM_MAX_NODES];
    char list[600];
    char hint[120];
    size_t len = 0;
    list[0] = '\0';
    for (uint32_t i = 0; i < r->c->n_nodes; i++) {
        names[i] = r->c->nodes[i].name;
        if (len < sizeof list)
            len += (size_t)snprintf(list + len, sizeof list - len, "%s%s", i > 0 ? ", " : "",
                                    names[i]);
    }
    const char *near = nearest_name(name, names, r->c->n_nodes);
    snprintf(hint, sizeof hint, "did you mean '%s'?", near != NULL ? near : "");
    diag_add(r->diags, DIAG_ERROR, at, "spec.unknown-node", near != NULL ? hint : NULL,
             "%s names node '%.60s', but 'nodes' lists %s", subject, name, list);
}

/* ---- nodes ---- */

bool glm_device_parse(const char *text, enum glm_device_kind *kind, uint32_t *index)
{
    if (strcmp(text, "cpu") == 0 || strcmp(text, "gb10") == 0) {
        *kind = text[0] == 'c' ? GLM_DEVICE_CPU : GLM_DEVICE_GB10;
        *index = 0;
        return true;
    }
    if (strncmp(text, "cuda:", 5) != 0 || !isdigit((unsigned char)text[5]) ||
        (text[5] == '0' && text[6] != '\0'))
        return false;
    uint32_t n = 0;
    for (const char *p = text + 5; *p != '\0'; p++) {
        if (!isdigit((unsigned char)*p) || n > 99)
            return false;
        n = n * 10 + (uint32_t)(*p - '0');
    }
    *kind = GLM_DEVICE_CUDA;
    *index = n;
    return true;
}

/* It becomes an argument of ssh: no option, no blank, nothing a shell would read. */
static bool is_host(const char *text)
{
    if (text[0] == '-' || text[0] == '@' || strlen(text) > 255)
        return false;
    return strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._:@%[]") ==
           strlen(text);
}

static const char *control_of(struct resolve *r, const struct glm_node *node)
{
    const char *at = strrchr(node->host, '@');
    if (strcmp(node->host, "local") == 0)
        return "127.0.0.1";
    const char *control = arena_strdup(r->arena, at != NULL ? at + 1 : node->host);
    r->enospace |= control == NULL;
    return control != NULL ? control : "";
}

static void resolve_one_node(struct resolve *r, uint32_t i)
{
    struct glm_node *node = &r->c->nodes[i];
    const struct yaml_node *map = r->node_at[i];
    const struct yaml_node *device = resolve_get(map, "device");
    if (device != NULL && !glm_device_parse(device->text, &node->device, &node->device_index))
        diag_add(r->diags, DIAG_ERROR, device->at, "spec.device",
                 strncmp(device->text, "cuda", 4) == 0 ? "say which one: cuda:0" : NULL,
                 "'device' is '%.60s', allowed: cpu, cuda:N, gb10", device->text);
    if (node->host == NULL)
        node->host = "local";
    const struct yaml_node *host = resolve_get(map, "host");
    if (host != NULL && !is_host(host->text))
        diag_add(r->diags, DIAG_ERROR, host->at, "spec.host", "write [user@]host, or local",
                 "'%.60s' is not an ssh target", host->text);
    const struct yaml_node *control = resolve_get(map, "control");
    if (control != NULL && !is_host(control->text))
        diag_add(r->diags, DIAG_ERROR, control->at, "spec.host", NULL, "'%.60s' is not an address",
                 control->text);
    if (node->control == NULL)
        node->control = control_of(r, node);
    if (node->device == GLM_DEVICE_GB10 && yaml_get(map, "reserve") == NULL)
        node->reserve_bytes = GB10_RESERVE_BYTES;
    if (node->memory_bytes > 0 && node->reserve_bytes >= node->memory_bytes)
        diag_add(r->diags, DIAG_ERROR, resolve_at(map, "memory"), "spec.reserve", NULL,
                 "node '%s' reserves %llu MiB of %llu MiB: nothing is left for the rank",
                 node->name != NULL ? node->name : "?",
                 (unsigned long long)(node->reserve_bytes >> 20),
                 (unsigned long long)(node->memory_bytes >> 20));
}

/* A name twice, with both places. */
static bool check_name_twice(struct resolve *r, const struct yaml_node *const *maps, uint32_t n,
                             uint32_t i, const char *what)
{
    const struct yaml_node *mine = resolve_get(maps[i], "name");
    for (uint32_t k = 0; mine != NULL && k < i && k < n; k++) {
        const struct yaml_node *other = resolve_get(maps[k], "name");
        if (other == NULL || strcmp(other->text, mine->text) != 0)
            continue;
        diag_add(r->diags, DIAG_ERROR, mine->at, "spec.name-twice", NULL, "two %s are called '%s'",
                 what, mine->text);
        diag_add(r->diags, DIAG_NOTE, other->at, NULL, NULL, "the first one is here");
        return false;
    }
    return mine != NULL;
}

static void resolve_nodes(struct resolve *r)
{
    r->names_good = r->c->n_nodes > 0;
    for (uint32_t i = 0; i < r->c->n_nodes; i++) {
        if (r->node_at[i]->bad) {
            r->names_good = false;
            continue;
        }
        resolve_one_node(r, i);
        if (!check_name_twice(r, r->node_at, r->c->n_nodes, i, "nodes"))
            r->names_good = false;
        const struct yaml_node *name = resolve_get(r->node_at[i], "name");
        if (name != NULL && strcmp(name->text, "switch") == 0)
            diag_add(r->diags, DIAG_ERROR, name->at, "spec.bad-name", NULL,
                     "'switch' stands for a switch in cables and cannot name a node");
    }
}

/* ---- lanes ---- */

static void resolve_ranks(struct resolve *r, uint32_t lane_i)
{
    struct glm_lane *lane = &r->c->lanes[lane_i];
    const struct yaml_node *map = r->lane_at[lane_i];
    const struct yaml_node *list = resolve_get(map, "ranks");
    if (list == NULL || !r->names_good)
        return;
    struct src_span where[GLM_MAX_RANKS] = {{0}};
    bool good = true;
    for (const struct yaml_node *n = list->first; n != NULL; n = n->next) {
        char who[40];
        uint32_t node = n->bad ? GLM_MAX_NODES : resolve_node(r, n->text);
        uint32_t rank = lane->n_ranks;
        snprintf(who, sizeof who, "rank %u", rank);
        if (node == GLM_MAX_NODES && !n->bad)
            resolve_unknown_node(r, n->at, who, n->text);
        good &= node != GLM_MAX_NODES;
        for (uint32_t k = 0; k < rank && node != GLM_MAX_NODES; k++) {
            if (lane->ranks[k] != node)
                continue;
            good = false;
            diag_add(r->diags, DIAG_ERROR, n->at, "spec.node-twice",
                     "a node is a place for one rank; list another node on the same host",
                     "ranks %u and %u both name node '%s'", k, rank, n->text);
            diag_add(r->diags, DIAG_NOTE, where[k], NULL, NULL, "the first one is here");
            break;
        }
        where[rank] = n->at;
        lane->ranks[lane->n_ranks++] = node;
    }
    const struct yaml_node *tp = resolve_get(map, "tp");
    if (tp != NULL && strtoul(tp->text, NULL, 10) != lane->n_ranks)
        diag_add(r->diags, DIAG_ERROR, tp->at, "spec.tp", "remove 'tp', or list as many ranks",
                 "'tp' is %s, but 'ranks' has %u members", tp->text, lane->n_ranks);
    r->lane_good[lane_i] = good;
}

/* "127.0.0.1:8881", "[::1]:8881" */
static void resolve_listen(struct resolve *r, uint32_t lane_i)
{
    struct glm_lane *lane = &r->c->lanes[lane_i];
    const struct yaml_node *listen = resolve_get(r->lane_at[lane_i], "listen");
    const char *text = listen != NULL ? listen->text : "127.0.0.1:8888";
    const char *colon = strrchr(text, ':');
    uint32_t port = 0;
    size_t digits = colon != NULL ? strspn(colon + 1, "0123456789") : 0;
    bool good = digits > 0 && digits < 6 && colon[1 + digits] == '\0' && colon > text;
    for (size_t i = 0; good && i < digits; i++)
        port = port * 10 + (uint32_t)(colon[1 + i] - '0');
    size_t len = good ? (size_t)(colon - text) : 0;
    bool brackets = len > 2 && text[0] == '[' && text[len - 1] == ']';
    good = good && port <= MAX_PORT_NUMBER && (brackets || memchr(text, ':', len) == NULL);
    const char *host = good ? arena_strndup(r->arena, text + brackets, len - 2 * brackets) : NULL;
    if (good && host != NULL && is_host(host)) {
        lane->listen_host = host;
        lane->listen_port = (uint16_t)port;
        return;
    }
    r->enospace |= good && host == NULL;
    if (listen != NULL)
        diag_add(r->diags, DIAG_ERROR, listen->at, "spec.listen",
                 strspn(text, "0123456789") == strlen(text) ? "say which address: 127.0.0.1:PORT"
                                                            : NULL,
                 "'listen' must be HOST:PORT with a port up to 65535, found '%.60s'", text);
}

const char *resolve_path(struct resolve *r, const char *path)
{
    const char *slash = strrchr(r->c->spec_path, '/');
    const char *whole = path;
    if (path[0] != '/' && slash != NULL)
        whole = arena_printf(r->arena, "%.*s/%s", (int)(slash - r->c->spec_path), r->c->spec_path,
                             strncmp(path, "./", 2) == 0 ? path + 2 : path);
    r->enospace |= whole == NULL;
    return whole;
}

static void resolve_drafters(struct resolve *r, uint32_t lane_i)
{
    static const char *const known[] = {"mtp", "copy", "dflash2"};
    struct glm_lane *lane = &r->c->lanes[lane_i];
    const struct yaml_node *list = resolve_get(r->lane_at[lane_i], "drafters");
    for (const struct yaml_node *n = list != NULL ? list->first : NULL; n != NULL; n = n->next) {
        const char *name = n->bad ? "" : n->text;
        bool is_known = false;
        for (size_t i = 0; i < 3; i++)
            is_known |= strcmp(name, known[i]) == 0;
        if (n->bad)
            continue;
        if (!is_known && strchr(name, '/') == NULL) {
            const char *near = nearest_name(name, known, 3);
            char hint[80];
            snprintf(hint, sizeof hint, "did you mean '%s'?", near != NULL ? near : "");
            diag_add(
                r->diags, DIAG_ERROR, n->at, "spec.unknown-drafter", near != NULL ? hint : NULL,
                "'%.60s' is no drafter, allowed: mtp, copy, dflash2, or a folder as ./name", name);
            continue;
        }
        if (!is_known)
            name = resolve_path(r, name);
        if (name == NULL)
            return;
        for (uint32_t k = 0; k < lane->n_drafters; k++)
            if (strcmp(lane->drafters[k], name) == 0)
                diag_add(r->diags, DIAG_ERROR, n->at, "spec.drafter-twice", NULL,
                         "drafter '%.60s' is listed twice", name);
        lane->drafters[lane->n_drafters++] = name;
        if (strcmp(name, "mtp") == 0 && r->c->checkpoint != NULL &&
            r->c->checkpoint->model.n_mtp == 0)
            diag_add(r->diags, DIAG_ERROR, n->at, "spec.no-mtp", NULL,
                     "drafter 'mtp' needs the checkpoint's MTP layer, and it has none");
    }
}

static void resolve_sizes(struct resolve *r, uint32_t lane_i)
{
    struct glm_lane *lane = &r->c->lanes[lane_i];
    const struct yaml_node *map = r->lane_at[lane_i];
    const struct glm_checkpoint *checkpoint = r->c->checkpoint;
    uint32_t longest = checkpoint != NULL ? checkpoint->model.max_position / 64 * 64 : 0;
    if (yaml_get(map, "window") == NULL)
        lane->window_tokens = longest != 0 && longest < DEFAULT_WINDOW ? longest : DEFAULT_WINDOW;
    else if (longest != 0 && resolve_get(map, "window") != NULL && lane->window_tokens > longest)
        diag_add(r->diags, DIAG_ERROR, resolve_at(map, "window"), "spec.window", NULL,
                 "'window' is %u tokens, the model's longest is %u", lane->window_tokens, longest);
    bool window_good = yaml_get(map, "window") == NULL || resolve_get(map, "window") != NULL;
    if (yaml_get(map, "prefill") == NULL)
        lane->prefill_rows =
            lane->window_tokens < DEFAULT_PREFILL ? lane->window_tokens : DEFAULT_PREFILL;
    else if (window_good && lane->prefill_rows > lane->window_tokens)
        diag_add(r->diags, DIAG_ERROR, resolve_at(map, "prefill"), "spec.prefill", NULL,
                 "'prefill' is %u rows, more than the window of %u tokens", lane->prefill_rows,
                 lane->window_tokens);
    if (window_good && lane->pool_tokens != 0 && lane->pool_tokens < lane->window_tokens)
        diag_add(r->diags, DIAG_ERROR, resolve_at(map, "pool"), "spec.pool", NULL,
                 "'pool' is %u tokens, less than one window of %u", lane->pool_tokens,
                 lane->window_tokens);
    if (yaml_get(map, "verify") == NULL)
        lane->verify_rows = lane->n_drafters > 0 ? DRAFTED_ROWS : 1;
    const struct yaml_node *limits = yaml_get(map, "limits");
    if (yaml_get(limits, "max_tokens") == NULL || lane->max_tokens > lane->window_tokens)
        lane->max_tokens = lane->window_tokens;
}

/* Formats that depend on the devices and on how the checkpoint stores its experts. */
static void resolve_formats(struct resolve *r, uint32_t lane_i)
{
    struct glm_lane *lane = &r->c->lanes[lane_i];
    const struct yaml_node *formats = yaml_get(r->lane_at[lane_i], "formats");
    const struct glm_checkpoint *checkpoint = r->c->checkpoint;
    const struct glm_node *gpu = NULL;
    for (uint32_t i = 0; r->lane_good[lane_i] && i < lane->n_ranks; i++)
        if (r->c->nodes[lane->ranks[i]].device != GLM_DEVICE_CPU)
            gpu = &r->c->nodes[lane->ranks[i]];
    if (yaml_get(formats, "kv") == NULL)
        lane->formats.kv = gpu != NULL ? GLM_KV_BF16 : GLM_KV_FP32;
    if (yaml_get(formats, "act") == NULL)
        lane->formats.act = gpu != NULL ? GLM_ACT_BF16 : GLM_ACT_F32;
    const struct yaml_node *head = resolve_get(formats, "head");
    lane->formats.head =
        head != NULL && strcmp(head->text, "fp8") == 0 ? GLM_FORM_FP8 : GLM_FORM_BF16;
    if (gpu != NULL && resolve_get(formats, "kv") != NULL && lane->formats.kv == GLM_KV_FP32)
        diag_add(r->diags, DIAG_ERROR, resolve_at(formats, "kv"), "spec.format-device",
                 "use bf16 or fp8", "kv 'fp32' works on cpu, but node '%s' is a %s", gpu->name,
                 glm_device_text(gpu->device));
    if (gpu != NULL && resolve_get(formats, "act") != NULL && lane->formats.act == GLM_ACT_F32)
        diag_add(r->diags, DIAG_ERROR, resolve_at(formats, "act"), "spec.format-device", "use bf16",
                 "act 'f32' works on cpu, but node '%s' is a %s", gpu->name,
                 glm_device_text(gpu->device));
    if (checkpoint == NULL)
        return;
    enum glm_expert_form stored = checkpoint->experts_exl3 ? GLM_EXPERTS_EXL3 : GLM_EXPERTS_BF16;
    const struct yaml_node *experts = resolve_get(formats, "experts");
    if (experts == NULL)
        lane->formats.experts = stored;
    else if (lane->formats.experts == GLM_EXPERTS_EXL3 && stored != GLM_EXPERTS_EXL3)
        diag_add(r->diags, DIAG_ERROR, experts->at, "spec.experts",
                 "use bf16, or a checkpoint whose experts are EXL3",
                 "'experts' is %s, but the checkpoint stores them as %s", experts->text,
                 glm_expert_form_text(stored));
    if (lane->vision && !checkpoint->model.has_vision)
        diag_add(r->diags, DIAG_ERROR, resolve_at(r->lane_at[lane_i], "vision"), "spec.no-vision",
                 NULL, "'vision' is true, but the checkpoint has no vision tower");
}

static void resolve_one_lane(struct resolve *r, uint32_t i)
{
    struct glm_lane *lane = &r->c->lanes[i];
    const struct yaml_node *map = r->lane_at[i];
    check_name_twice(r, r->lane_at, r->c->n_lanes, i, "lanes");
    resolve_ranks(r, i);
    resolve_listen(r, i);
    resolve_drafters(r, i);
    resolve_sizes(r, i);
    resolve_formats(r, i);
    const struct yaml_node *effort = resolve_get(map, "effort");
    lane->effort = effort != NULL && strcmp(effort->text, "max") != 0 ? effort->text : "";
    lane->api_key_file = lane->api_key_file != NULL ? resolve_path(r, lane->api_key_file) : "";
}

/* A lane whose rank 0 others must reach cannot call itself 127.0.0.1. */
static void check_control(struct resolve *r, uint32_t lane_i)
{
    const struct glm_lane *lane = &r->c->lanes[lane_i];
    for (uint32_t i = 0; r->lane_good[lane_i] && i < lane->n_ranks; i++) {
        const struct glm_node *node = &r->c->nodes[lane->ranks[i]];
        bool remote = false;
        for (uint32_t k = 0; k < lane->n_ranks; k++)
            remote |= strcmp(r->c->nodes[lane->ranks[k]].host, "local") != 0;
        if (!remote || strcmp(node->host, "local") != 0 || strcmp(node->control, "127.0.0.1") != 0)
            continue;
        diag_add(
            r->diags, DIAG_ERROR, node->at, "spec.control", "add 'control: ADDRESS'",
            "node '%s' is local and lane '%s' has ranks on other hosts, which need its address",
            node->name, lane->name);
        return;
    }
}

static void resolve_default_lane(struct resolve *r)
{
    struct glm_cluster *c = r->c;
    const struct yaml_node *first = NULL;
    for (uint32_t i = 0; i < c->n_lanes; i++) {
        const struct yaml_node *said = resolve_get(r->lane_at[i], "default");
        if (said == NULL || !c->lanes[i].is_default)
            continue;
        if (first != NULL) {
            diag_add(r->diags, DIAG_ERROR, said->at, "spec.default-twice", "keep one of them",
                     "lane '%s' is a second default", c->lanes[i].name);
            diag_add(r->diags, DIAG_NOTE, first->at, NULL, NULL, "the first one is here");
        } else {
            first = said;
        }
    }
    if (c->n_lanes == 1)
        c->lanes[0].is_default = true;
}

static void resolve_lanes(struct resolve *r)
{
    for (uint32_t i = 0; i < r->c->n_lanes; i++)
        if (!r->lane_at[i]->bad)
            resolve_one_lane(r, i);
    resolve_default_lane(r);
}

/* ---- the checkpoint ---- */

static void name_model(struct resolve *r)
{
    struct glm_cluster *c = r->c;
    if (c->served_name != NULL)
        return;
    const char *text = c->checkpoint_where != NULL ? c->checkpoint_where : "";
    size_t len = strlen(text);
    while (len > 0 && text[len - 1] == '/')
        len--;
    size_t start = len;
    while (start > 0 && text[start - 1] != '/' && text[start - 1] != ':')
        start--;
    bool folder_like = len == start || strspn(text + start, ".") == len - start;
    c->served_name = folder_like ? c->name : arena_strndup(r->arena, text + start, len - start);
    r->enospace |= c->served_name == NULL && c->name != NULL;
}

static enum glm_status resolve_checkpoint(struct resolve *r)
{
    enum glm_status status = resolve_checkpoint_path(r);
    if (status != GLM_OK)
        return status;
    size_t errors = r->diags->n_errors;
    status = glm_checkpoint_open(r->c->checkpoint_path, r->arena, r->diags, &r->c->checkpoint);
    r->n_checkpoint_errors = r->diags->n_errors - errors;
    if (status == GLM_ECHECKPOINT)
        diag_add(r->diags, DIAG_NOTE, resolve_at(yaml_get(r->root, "model"), "checkpoint"), NULL,
                 NULL, "the spec names the checkpoint here");
    return status;
}

/* ---- the whole ---- */

static void collect_members(struct resolve *r)
{
    uint32_t i = 0;
    const struct yaml_node *list = resolve_get(r->root, "nodes");
    for (const struct yaml_node *n = list != NULL ? list->first : NULL; n != NULL; n = n->next)
        if (i < r->c->n_nodes)
            r->node_at[i++] = n;
    i = 0;
    list = resolve_get(r->root, "lanes");
    for (const struct yaml_node *n = list != NULL ? list->first : NULL; n != NULL; n = n->next)
        if (i < r->c->n_lanes)
            r->lane_at[i++] = n;
}

static int before(const struct diag *a, const struct diag *b)
{
    uint32_t x = a->at.line == 0 ? UINT32_MAX : a->at.line;
    uint32_t y = b->at.line == 0 ? UINT32_MAX : b->at.line;
    if (x != y)
        return x < y;
    return a->at.col < b->at.col;
}

/* Source order, each diagnostic with the notes that follow it. At most GLM_DIAG_MAX, so insertion.
 */
static void sort_diags(struct diag_list *list, size_t first)
{
    for (size_t i = first; i < list->n_items;) {
        size_t end = i + 1;
        while (end < list->n_items && list->items[end].level == DIAG_NOTE)
            end++;
        size_t to = i;
        for (size_t k = i; k > first; k--)
            if (list->items[k - 1].level != DIAG_NOTE &&
                before(&list->items[i], &list->items[k - 1]))
                to = k - 1;
        struct diag group[GLM_DIAG_MAX];
        memcpy(group, &list->items[i], (end - i) * sizeof group[0]);
        memmove(&list->items[to + (end - i)], &list->items[to], (i - to) * sizeof group[0]);
        memcpy(&list->items[to], group, (end - i) * sizeof group[0]);
        i = end;
    }
}

static enum glm_status resolve_all(struct resolve *r, struct yaml_node *root)
{
    schema_apply(root, r->arena, r->diags, r->c);
    if (root->bad)
        return GLM_ESPEC;
    r->root = root;
    collect_members(r);
    enum glm_status status = resolve_checkpoint(r);
    if (status == GLM_ENOMEM)
        return status;
    name_model(r);
    resolve_nodes(r);
    resolve_lanes(r);
    resolve_cables(r);
    resolve_fabric(r);
    for (uint32_t i = 0; i < r->c->n_lanes; i++)
        check_control(r, i);
    return r->enospace ? GLM_ENOMEM : status;
}

enum glm_status glm_cluster_parse(const char *path, const char *text, size_t len,
                                  struct arena *arena, struct diag_list *diags,
                                  struct glm_cluster **out)
{
    struct yaml_node *root = NULL;
    size_t errors = diags->n_errors;
    size_t first = diags->n_items;
    struct resolve r = {.arena = arena, .diags = diags, .c = ARENA_NEW(arena, struct glm_cluster)};
    char *copy = arena_strndup(arena, text, len);
    char *name = arena_strdup(arena, path);
    if (r.c == NULL || copy == NULL || name == NULL ||
        glm_sha256_hex(text, len, r.c->spec_digest, NULL) != GLM_OK)
        return GLM_ENOMEM;
    r.c->spec_path = name;
    r.c->spec_text = copy;
    diags->source = copy;
    diags->source_len = len;
    enum glm_status status = yaml_read(name, copy, len, arena, diags, &root);
    if (root != NULL && status != GLM_ENOMEM)
        status = resolve_all(&r, root);
    sort_diags(diags, first);
    if (status == GLM_ENOMEM)
        return status;
    if (diags->n_errors > errors)
        return diags->n_errors - errors == r.n_checkpoint_errors ? GLM_ECHECKPOINT : GLM_ESPEC;
    *out = r.c;
    return GLM_OK;
}

enum glm_status glm_cluster_load(const char *path, struct arena *arena, struct diag_list *diags,
                                 struct glm_cluster **out)
{
    struct buf text = {0};
    struct glm_error err = {0};
    enum glm_status status = glm_file_read(path, GLM_YAML_MAX_BYTES, &text, &err);
    if (status == GLM_OK) {
        status = glm_cluster_parse(path, buf_text(&text), text.len, arena, diags, out);
    } else {
        const char *name = arena_strdup(arena, path);
        diag_add(diags, DIAG_ERROR, (struct src_span){.file = name},
                 status == GLM_EINVAL ? "spec.too-large" : "spec.file", NULL, "%s", err.message);
        status = status == GLM_ENOMEM ? status : GLM_ESPEC;
    }
    buf_release(&text);
    return status;
}

/* ---- questions about a resolved cluster ---- */

enum glm_status glm_cluster_lane(const struct glm_cluster *c, const char *name, uint32_t *lane,
                                 struct glm_error *err)
{
    char list[600];
    size_t len = 0;
    list[0] = '\0';
    for (uint32_t i = 0; i < c->n_lanes; i++) {
        if (name != NULL ? strcmp(c->lanes[i].name, name) == 0 : c->lanes[i].is_default) {
            *lane = i;
            return GLM_OK;
        }
        if (len < sizeof list)
            len += (size_t)snprintf(list + len, sizeof list - len, "%s%s", i > 0 ? ", " : "",
                                    c->lanes[i].name);
    }
    if (name != NULL)
        return glm_fail(err, GLM_ENOTFOUND, "there is no lane '%.60s' in '%s': it has %s", name,
                        c->spec_path, list);
    glm_fail(err, GLM_ENOTFOUND, "'%s' has no default lane: it has %s", c->spec_path, list);
    glm_error_hint(err, "say --lane NAME, or 'default: true' in one of them");
    return GLM_ENOTFOUND;
}

void glm_node_device_text(const struct glm_node *n, char text[GLM_DEVICE_TEXT_BYTES])
{
    if (n->device == GLM_DEVICE_CUDA)
        snprintf(text, GLM_DEVICE_TEXT_BYTES, "cuda:%u", n->device_index);
    else
        snprintf(text, GLM_DEVICE_TEXT_BYTES, "%s", glm_device_text(n->device));
}

bool glm_node_shares_memory(const struct glm_node *a, const struct glm_node *b)
{
    bool a_host = a->device != GLM_DEVICE_CUDA;
    bool b_host = b->device != GLM_DEVICE_CUDA;
    return strcmp(a->host, b->host) == 0 && a_host == b_host &&
           (a_host || a->device_index == b->device_index);
}

uint64_t glm_cluster_host_bytes(const struct glm_cluster *c, const struct glm_lane *lane,
                                uint32_t node)
{
    uint64_t sum = 0;
    uint32_t n = lane != NULL ? lane->n_ranks : c->n_nodes;
    for (uint32_t i = 0; i < n; i++) {
        const struct glm_node *other = &c->nodes[lane != NULL ? lane->ranks[i] : i];
        if (!glm_node_shares_memory(&c->nodes[node], other))
            continue;
        if (other->memory_bytes == 0)
            return 0;
        sum += other->memory_bytes; /* at most 8 times 16 TiB */
    }
    return sum;
}
