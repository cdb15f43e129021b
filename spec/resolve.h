/* SPDX-License-Identifier: Apache-2.0 */
/* Private to spec/: what the parts of resolution share. */
#ifndef GLM_SPEC_RESOLVE_H
#define GLM_SPEC_RESOLVE_H

#include "spec/cluster.h"
#include "spec/yaml.h"

struct resolve {
    struct arena *arena;
    struct diag_list *diags;
    struct glm_cluster *c;
    const struct yaml_node *root;
    const struct yaml_node *node_at[GLM_MAX_NODES];
    const struct yaml_node *lane_at[GLM_MAX_LANES];
    bool names_good; /* every node has a valid name of its own: unknown names are then errors */
    bool lane_good[GLM_MAX_LANES]; /* its ranks are known and distinct */
    bool cables_good;              /* every cable is understood */
    bool enospace;                 /* an allocation failed */
    size_t n_checkpoint_errors;
};

/* The span of map[key], of the map itself when it is absent. */
struct src_span resolve_at(const struct yaml_node *map, const char *key);
/* map[key] when it is there and the schema accepted it. */
const struct yaml_node *resolve_get(const struct yaml_node *map, const char *key);
/* Node index by name, GLM_MAX_NODES when there is none. */
uint32_t resolve_node(const struct resolve *r, const char *name);
/* Adds spec.unknown-node with the nearest name. */
void resolve_unknown_node(struct resolve *r, struct src_span at, const char *subject,
                          const char *name);

/* path as seen from the spec's folder; borrows it. NULL: out of memory, which is noted. */
const char *resolve_path(struct resolve *r, const char *path);

/* topology.c: the cables list, then the topology and each lane's links. */
void resolve_cables(struct resolve *r);
void resolve_fabric(struct resolve *r);

/* hub.c: where a written checkpoint lies. Sets checkpoint_path and checkpoint_absent. */
enum glm_status resolve_checkpoint_path(struct resolve *r);

#endif
