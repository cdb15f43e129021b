/* SPDX-License-Identifier: Apache-2.0 */
/* Cables and the shape they make: direct, triangle, ring, switch or loopback, derived from the
 * cables between the ranks of the largest lane and compared with what is declared; then whether
 * each lane's ranks are linked as its exchanges need. What the machines really have
 * is apply's to find. */
#include "spec/resolve.h"

#include <arpa/inet.h>

#include <stdio.h>
#include <string.h>

/* ---- the list of cables ---- */

enum { GB10_PORTS = 2, MAX_PORT = 7 };

/* "spark1:0" or "switch" → one end. */
static bool read_end(struct resolve *r, const struct yaml_node *n, bool second,
                     struct glm_cable_end *out)
{
    const char *colon = strrchr(n->text, ':');
    if (strcmp(n->text, "switch") == 0) {
        *out = (struct glm_cable_end){.node = GLM_SWITCH_END, .address = ""};
        if (second)
            return true;
        diag_add(r->diags, DIAG_ERROR, n->at, "spec.cable-end", "write [NODE:PORT, switch]",
                 "a cable starts at a node, found 'switch'");
        return false;
    }
    if (colon == NULL || colon[1] < '0' || colon[1] > '9' || colon[2] != '\0') {
        diag_add(r->diags, DIAG_ERROR, n->at, "spec.cable-end", "ports count from 0: spark1:0",
                 "a cable's end is NODE:PORT, found '%.60s'", n->text);
        return false;
    }
    const char *name = arena_strndup(r->arena, n->text, (size_t)(colon - n->text));
    if (name == NULL) {
        r->enospace = true;
        return false;
    }
    *out = (struct glm_cable_end){
        .node = resolve_node(r, name), .port = (uint32_t)(colon[1] - '0'), .address = ""};
    if (out->node == GLM_MAX_NODES) {
        resolve_unknown_node(r, n->at, "the cable", name);
        return false;
    }
    bool gb10 = r->c->nodes[out->node].device == GLM_DEVICE_GB10;
    uint32_t last = gb10 ? GB10_PORTS - 1 : MAX_PORT;
    if (out->port <= last)
        return true;
    diag_add(r->diags, DIAG_ERROR, n->at, "spec.cable-port", NULL,
             "port %u of node '%s' does not exist: %s has ports 0 to %u", out->port, name,
             gb10 ? "a gb10" : "a node", last);
    return false;
}

/* "10.0.12.1" or "10.0.12.1/26" → address in host order and prefix length. */
static bool read_address(const char *text, uint32_t *address, uint32_t *prefix, char *plain,
                         size_t size)
{
    const char *slash = strchr(text, '/');
    size_t len = slash != NULL ? (size_t)(slash - text) : strlen(text);
    struct in_addr in;
    *prefix = 24;
    if (len >= size)
        return false;
    memcpy(plain, text, len);
    plain[len] = '\0';
    if (inet_pton(AF_INET, plain, &in) != 1)
        return false;
    *address = ntohl(in.s_addr);
    if (slash == NULL)
        return true;
    if (sscanf(slash + 1, "%2u", prefix) != 1 ||
        strspn(slash + 1, "0123456789") != strlen(slash + 1))
        return false;
    return strlen(slash + 1) <= 2 && *prefix >= 8 && *prefix <= 30;
}

struct network {
    uint32_t address, prefix;
    const struct yaml_node *at;
    uint32_t cable;
    bool is_switch;
};

/* Whether one network holds the other's addresses. */
static bool overlap(const struct network *a, const struct network *b)
{
    uint32_t prefix = a->prefix < b->prefix ? a->prefix : b->prefix;
    return ((a->address ^ b->address) & ~(0xFFFFFFFFu >> prefix)) == 0;
}

/* The addresses of one cable; appended to seen[] after comparison with the cables before. */
static bool read_addresses(struct resolve *r, const struct yaml_node *list, uint32_t cable_i,
                           struct glm_cable *cable, struct network *seen, uint32_t *n_seen)
{
    struct glm_cable_end *ends[] = {&cable->a, &cable->b};
    bool is_switch = cable->b.node == GLM_SWITCH_END;
    uint32_t wanted = is_switch ? 1 : 2;
    if (list->n_items != wanted) {
        diag_add(r->diags, DIAG_ERROR, list->at, "spec.cable-address", NULL,
                 "this cable has %u addresses, its node ends need %u", list->n_items, wanted);
        return false;
    }
    uint32_t start = *n_seen;
    uint32_t i = 0;
    for (const struct yaml_node *n = list->first; n != NULL; n = n->next, i++) {
        char plain[32];
        struct network now = {.at = n, .cable = cable_i, .is_switch = is_switch};
        if (n->bad)
            return false;
        if (!read_address(n->text, &now.address, &now.prefix, plain, sizeof plain)) {
            diag_add(r->diags, DIAG_ERROR, n->at, "spec.cable-address", NULL,
                     "'%.60s' is not an IPv4 address, as in 192.168.12.1 or 192.168.12.1/26",
                     n->text);
            return false;
        }
        for (uint32_t j = 0; j < *n_seen; j++) {
            bool same = seen[j].address == now.address;
            bool shared = overlap(&seen[j], &now) && seen[j].cable != cable_i &&
                          !(is_switch && seen[j].is_switch);
            if (!same && !shared)
                continue;
            diag_add(r->diags, DIAG_ERROR, n->at, same ? "spec.address-twice" : "spec.subnet-twice",
                     same ? NULL : "give each cable a network of its own",
                     same ? "address '%s' is used twice"
                          : "address '%s' is in the network of another cable",
                     plain);
            diag_add(r->diags, DIAG_NOTE, seen[j].at->at, NULL, NULL, "the other one is here");
            return false;
        }
        seen[(*n_seen)++] = now;
        ends[i]->address = arena_strdup(r->arena, plain);
        r->enospace |= ends[i]->address == NULL;
    }
    const struct network *first = &seen[start];
    if (!is_switch && !overlap(&first[0], &first[1])) {
        diag_add(r->diags, DIAG_ERROR, list->at, "spec.cable-subnet", NULL,
                 "the two ends of a cable must share a network, found '%s' and '%s'",
                 first[0].at->text, first[1].at->text);
        return false;
    }
    return true;
}

static bool check_ports(struct resolve *r, const struct glm_cable *now,
                        const struct yaml_node *ends)
{
    const struct glm_cable_end *mine[] = {&now->a, &now->b};
    const struct yaml_node *at = ends->first;
    for (uint32_t side = 0; side < 2; side++, at = at->next) {
        for (uint32_t i = 0; i < r->c->n_cables; i++) {
            const struct glm_cable *other = &r->c->cables[i];
            const struct glm_cable_end *theirs[] = {&other->a, &other->b};
            for (uint32_t k = 0; k < 2; k++) {
                if (mine[side]->node == GLM_SWITCH_END || theirs[k]->node != mine[side]->node ||
                    theirs[k]->port != mine[side]->port)
                    continue;
                diag_add(r->diags, DIAG_ERROR, at->at, "spec.port-twice", NULL,
                         "port '%s' already has the cable of line %u", at->text, other->at.line);
                diag_add(r->diags, DIAG_NOTE, other->at, NULL, NULL, "the first cable is here");
                return false;
            }
        }
    }
    return true;
}

static bool read_cable(struct resolve *r, const struct yaml_node *n, struct network *seen,
                       uint32_t *n_seen)
{
    struct glm_cable cable = {.at = n->at};
    const struct yaml_node *ends = resolve_get(n, "ends");
    if (ends == NULL || ends->first->bad || ends->first->next->bad)
        return false;
    bool good = read_end(r, ends->first, false, &cable.a);
    good = read_end(r, ends->first->next, true, &cable.b) && good;
    if (!good)
        return false;
    if (cable.a.node == cable.b.node) {
        diag_add(r->diags, DIAG_ERROR, ends->at, "spec.cable-to-itself", NULL,
                 "the cable joins node '%s' to itself ('%s' and '%s')",
                 r->c->nodes[cable.a.node].name, ends->first->text, ends->first->next->text);
        return false;
    }
    good = check_ports(r, &cable, ends);
    const struct yaml_node *addresses = resolve_get(n, "addresses");
    if (addresses != NULL)
        good = read_addresses(r, addresses, r->c->n_cables, &cable, seen, n_seen) && good;
    r->c->cables[r->c->n_cables++] = cable;
    return good;
}

void resolve_cables(struct resolve *r)
{
    struct network seen[2 * GLM_MAX_CABLES] = {0};
    uint32_t n_seen = 0;
    const struct yaml_node *list = resolve_get(r->root, "cables");
    r->cables_good = r->names_good && (list != NULL || yaml_get(r->root, "cables") == NULL);
    for (const struct yaml_node *n = list != NULL ? list->first : NULL; n != NULL; n = n->next) {
        if (!r->names_good || n->bad)
            r->cables_good = false;
        else
            r->cables_good = read_cable(r, n, seen, &n_seen) && r->cables_good;
    }
}

/* ---- the topology ---- */

static bool same_host(const struct resolve *r, uint32_t a, uint32_t b)
{
    return strcmp(r->c->nodes[a].host, r->c->nodes[b].host) == 0;
}

static bool has_cable(const struct resolve *r, uint32_t a, uint32_t b)
{
    for (uint32_t i = 0; i < r->c->n_cables; i++) {
        const struct glm_cable *c = &r->c->cables[i];
        if ((c->a.node == a && c->b.node == b) || (c->a.node == b && c->b.node == a))
            return true;
    }
    return false;
}

/* Whether a and b can talk without a third node. */
static bool linked(const struct resolve *r, uint32_t a, uint32_t b)
{
    bool network = r->c->transport == GLM_TRANSPORT_TCP && r->c->n_cables == 0;
    return same_host(r, a, b) || r->c->topology == GLM_TOPOLOGY_SWITCH || network ||
           has_cable(r, a, b);
}

/* The nodes that some lane uses, in the order of the file. */
static uint32_t used_nodes(const struct resolve *r, uint32_t *nodes)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->c->n_nodes; i++) {
        bool used = false;
        for (uint32_t l = 0; l < r->c->n_lanes; l++)
            for (uint32_t k = 0; k < r->c->lanes[l].n_ranks; k++)
                used |= r->c->lanes[l].ranks[k] == i;
        if (used)
            nodes[n++] = i;
    }
    return n;
}

/* The nodes of the lane with the most ranks: the topology is theirs. */
static uint32_t largest_lane(const struct resolve *r, uint32_t *nodes)
{
    const struct glm_lane *largest = &r->c->lanes[0];
    for (uint32_t i = 1; i < r->c->n_lanes; i++)
        if (r->c->lanes[i].n_ranks > largest->n_ranks)
            largest = &r->c->lanes[i];
    for (uint32_t i = 0; i < largest->n_ranks; i++)
        nodes[i] = largest->ranks[i];
    return largest->n_ranks;
}

static struct src_span fabric_at(const struct resolve *r, const char *key)
{
    const struct yaml_node *fabric = yaml_get(r->root, "fabric");
    const struct yaml_node *cables = yaml_get(r->root, "cables");
    if (yaml_get(fabric, key) != NULL)
        return yaml_get(fabric, key)->at;
    return fabric != NULL ? fabric->key_at : cables != NULL ? cables->key_at : r->root->at;
}

/* Every used node needs a cable to the switch once one has. */
static bool check_switch(struct resolve *r, const uint32_t *nodes, uint32_t n)
{
    bool good = true;
    for (uint32_t i = 0; i < n && r->c->n_cables > 0; i++) {
        bool has = false;
        for (uint32_t k = 0; k < r->c->n_cables; k++)
            has |= r->c->cables[k].a.node == nodes[i] && r->c->cables[k].b.node == GLM_SWITCH_END;
        if (has)
            continue;
        good = false;
        diag_add(r->diags, DIAG_ERROR, fabric_at(r, "topology"), "spec.missing-cable",
                 "add { ends: [NODE:0, switch] } to 'cables'",
                 "node '%s' has no cable to the switch that the others use",
                 r->c->nodes[nodes[i]].name);
    }
    return good;
}

/* Four nodes on one cycle: each has cables to exactly two others, and the walk meets all. */
static bool is_ring(const struct resolve *r, const uint32_t *nodes, uint32_t n)
{
    if (n != 4)
        return false;
    uint32_t degree_sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t degree = 0;
        for (uint32_t k = 0; k < n; k++)
            degree += k != i && has_cable(r, nodes[i], nodes[k]);
        if (degree != 2)
            return false;
        degree_sum += degree;
    }
    return degree_sum == 8; /* four nodes of degree two are always one cycle */
}

static bool all_linked(struct resolve *r, const uint32_t *nodes, uint32_t n, bool report)
{
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = i + 1; k < n; k++) {
            if (same_host(r, nodes[i], nodes[k]) || has_cable(r, nodes[i], nodes[k]))
                continue;
            if (report)
                diag_add(r->diags, DIAG_ERROR, fabric_at(r, "topology"), "spec.missing-cable",
                         n > 3 ? "four machines without a switch are a ring: each joined to two "
                                 "others; five or more need a switch"
                               : "two machines need one cable or two, three need one for each pair",
                         "nodes '%s' and '%s' share no cable", r->c->nodes[nodes[i]].name,
                         r->c->nodes[nodes[k]].name);
            return false;
        }
    }
    return true;
}

/* false after a message: nothing further follows from the cables. */
static bool derive(struct resolve *r, const uint32_t *nodes, uint32_t n, bool declared)
{
    struct glm_cluster *c = r->c;
    enum glm_topology wanted = c->topology;
    bool one_host = true;
    for (uint32_t i = 1; i < n; i++)
        one_host &= same_host(r, nodes[0], nodes[i]);
    bool to_switch = false;
    for (uint32_t i = 0; i < c->n_cables; i++)
        to_switch |= c->cables[i].b.node == GLM_SWITCH_END;
    if (one_host) {
        c->topology = GLM_TOPOLOGY_LOOPBACK;
    } else if (to_switch || (c->n_cables == 0 && declared && wanted == GLM_TOPOLOGY_SWITCH)) {
        c->topology = GLM_TOPOLOGY_SWITCH;
    } else if (c->n_cables == 0 && c->transport == GLM_TRANSPORT_TCP) {
        c->topology = GLM_TOPOLOGY_SWITCH; /* an ordinary network joins them */
    } else if (c->n_cables == 0) {
        diag_add(r->diags, DIAG_ERROR, fabric_at(r, "transport"), "spec.no-cables",
                 "list 'cables', or say 'topology: switch'",
                 "transport '%s' needs to know how %u nodes are cabled, but there are no cables",
                 glm_transport_text(c->transport), n);
        return false;
    } else if (is_ring(r, nodes, n)) {
        c->topology = GLM_TOPOLOGY_RING;
    } else if (!all_linked(r, nodes, n, true)) {
        return false;
    } else {
        c->topology = n == 2 ? GLM_TOPOLOGY_DIRECT : GLM_TOPOLOGY_TRIANGLE;
    }
    return true;
}

/* ---- lanes on it ---- */

static bool in_ring_order(const struct resolve *r, const struct glm_lane *lane)
{
    for (uint32_t i = 0; i < lane->n_ranks; i++)
        if (!has_cable(r, lane->ranks[i], lane->ranks[(i + 1) % lane->n_ranks]))
            return false;
    return true;
}

/* From rank 0, first step to the neighbour that the lane names earlier, then along the cables. */
static void ring_order_text(const struct resolve *r, const struct glm_lane *lane, char *text,
                            size_t size)
{
    bool taken[GLM_MAX_RANKS] = {true};
    uint32_t at = 0;
    size_t len = (size_t)snprintf(text, size, "%s", r->c->nodes[lane->ranks[0]].name);
    for (uint32_t step = 1; step < lane->n_ranks && len < size; step++) {
        for (uint32_t k = 0; k < lane->n_ranks; k++) {
            if (taken[k] || !has_cable(r, lane->ranks[at], lane->ranks[k]))
                continue;
            taken[k] = true;
            at = k;
            len +=
                (size_t)snprintf(text + len, size - len, ", %s", r->c->nodes[lane->ranks[k]].name);
            break;
        }
    }
}

static void check_lane_links(struct resolve *r, uint32_t lane_i)
{
    const struct glm_lane *lane = &r->c->lanes[lane_i];
    struct src_span at = resolve_at(r->lane_at[lane_i], "ranks");
    bool whole_ring = r->c->topology == GLM_TOPOLOGY_RING && lane->n_ranks == 4;
    if (whole_ring && !in_ring_order(r, lane)) {
        char order[400];
        char hint[440];
        ring_order_text(r, lane, order, sizeof order);
        snprintf(hint, sizeof hint, "ranks: [%s]", order);
        diag_add(r->diags, DIAG_ERROR, at, "spec.ring-order", hint,
                 "lane '%s': in a ring the rank order must follow the cables", lane->name);
    }
    if (whole_ring)
        return;
    for (uint32_t i = 0; i < lane->n_ranks; i++) {
        for (uint32_t k = i + 1; k < lane->n_ranks; k++) {
            if (linked(r, lane->ranks[i], lane->ranks[k]))
                continue;
            diag_add(r->diags, DIAG_ERROR, at, "spec.missing-cable", NULL,
                     "lane '%s': ranks %u ('%s') and %u ('%s') share no cable", lane->name, i,
                     r->c->nodes[lane->ranks[i]].name, k, r->c->nodes[lane->ranks[k]].name);
            return;
        }
    }
}

static void check_own_gpus(struct resolve *r, const struct glm_lane *lane, struct src_span at)
{
    for (uint32_t i = 1; i < lane->n_ranks; i++) {
        const struct glm_node *node = &r->c->nodes[lane->ranks[i]];
        for (uint32_t k = 0; k < i; k++) {
            const struct glm_node *other = &r->c->nodes[lane->ranks[k]];
            if (!glm_node_shares_memory(node, other))
                continue;
            diag_add(r->diags, DIAG_ERROR, at, "spec.transport",
                     "give each rank a GPU of its own, or use shm",
                     "transport 'nccl' needs a GPU a rank, but nodes '%s' and '%s' of lane '%s' "
                     "share cuda:%u of host '%s'",
                     other->name, node->name, lane->name, node->device_index, node->host);
            return;
        }
    }
}

static void check_lane_transport(struct resolve *r, uint32_t lane_i)
{
    const struct glm_lane *lane = &r->c->lanes[lane_i];
    struct src_span at = fabric_at(r, "transport");
    const struct glm_node *first = &r->c->nodes[lane->ranks[0]];
    for (uint32_t i = 0; i < lane->n_ranks; i++) {
        const struct glm_node *node = &r->c->nodes[lane->ranks[i]];
        bool other_host = strcmp(node->host, first->host) != 0;
        if (r->c->transport == GLM_TRANSPORT_SHM && other_host) {
            diag_add(r->diags, DIAG_ERROR, at, "spec.transport", "use roce or tcp",
                     "transport 'shm' works within one host, but lane '%s' spans '%s' and '%s'",
                     lane->name, first->host, node->host);
            return;
        }
        if (r->c->transport == GLM_TRANSPORT_NCCL && node->device == GLM_DEVICE_CPU) {
            diag_add(r->diags, DIAG_ERROR, at, "spec.transport", "use shm or tcp",
                     "transport 'nccl' works between GPUs, but node '%s' of lane '%s' is a cpu",
                     node->name, lane->name);
            return;
        }
    }
    if (r->c->transport == GLM_TRANSPORT_NCCL)
        check_own_gpus(r, lane, at);
    if (r->c->transport == GLM_TRANSPORT_ROCE && lane->n_ranks > 1 &&
        r->c->topology == GLM_TOPOLOGY_LOOPBACK)
        diag_add(r->diags, DIAG_ERROR, at, "spec.transport", "use shm",
                 "transport 'roce' works over cables, but all ranks of lane '%s' share host '%s'",
                 lane->name, first->host);
}

static void default_transport(struct resolve *r, const uint32_t *nodes, uint32_t n)
{
    bool one_host = true;
    bool all_gpus = true;
    for (uint32_t i = 0; i < n; i++) {
        one_host &= same_host(r, nodes[0], nodes[i]);
        all_gpus &= r->c->nodes[nodes[i]].device != GLM_DEVICE_CPU;
    }
    r->c->transport = one_host   ? GLM_TRANSPORT_SHM
                      : all_gpus ? GLM_TRANSPORT_ROCE
                                 : GLM_TRANSPORT_TCP;
}

void resolve_fabric(struct resolve *r)
{
    uint32_t nodes[GLM_MAX_NODES];
    bool good = r->cables_good && r->c->n_lanes > 0;
    for (uint32_t i = 0; i < r->c->n_lanes; i++)
        good &= r->lane_good[i];
    if (!good)
        return; /* what a wrong list leads to is no error of its own */
    uint32_t n = used_nodes(r, nodes);
    const struct yaml_node *fabric = yaml_get(r->root, "fabric");
    if ((fabric != NULL && fabric->bad) ||
        (yaml_get(fabric, "transport") != NULL && resolve_get(fabric, "transport") == NULL))
        return;
    if (yaml_get(fabric, "transport") == NULL)
        default_transport(r, nodes, n);
    const struct yaml_node *said = resolve_get(fabric, "topology");
    enum glm_topology wanted = r->c->topology;
    uint32_t ranks[GLM_MAX_RANKS];
    uint32_t n_ranks = largest_lane(r, ranks);
    if (!derive(r, ranks, n_ranks, said != NULL))
        return;
    if (r->c->topology == GLM_TOPOLOGY_SWITCH && !check_switch(r, nodes, n))
        return;
    if (said != NULL && wanted != r->c->topology)
        diag_add(r->diags, DIAG_ERROR, said->at, "spec.topology", NULL,
                 "'topology' says %s, but the nodes and cables make %s", glm_topology_text(wanted),
                 glm_topology_text(r->c->topology));
    for (uint32_t i = 0; i < r->c->n_lanes; i++) {
        check_lane_transport(r, i);
        check_lane_links(r, i);
    }
}
