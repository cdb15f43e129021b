/* SPDX-License-Identifier: Apache-2.0 */
/* The names in a spec, for commands that look after what runs: a spec that was damaged while its
 * lane serves must not keep anybody from looking at that lane or stopping it. Names pass the same
 * checks as in a whole spec (they become folders); everything else is resolve.c's. */
#include "spec/resolve.h"
#include "spec/schema.h"

#include <string.h>

static void outline_lane(const struct yaml_node *map, const struct glm_lane *from,
                         struct glm_cluster *c)
{
    const struct yaml_node *name = resolve_get(map, "name");
    const struct yaml_node *ranks = resolve_get(map, "ranks");
    if (name == NULL || from->name == NULL || c->n_lanes == GLM_MAX_LANES)
        return;
    c->lanes[c->n_lanes++] = (struct glm_lane){
        .name = from->name,
        .is_default = from->is_default,
        .n_ranks = ranks == NULL || ranks->n_items > GLM_MAX_RANKS ? 0 : ranks->n_items,
        .at = from->at,
    };
}

enum glm_status glm_cluster_outline(const char *path, const char *text, size_t len,
                                    struct arena *arena, struct diag_list *diags,
                                    struct glm_cluster **out)
{
    struct yaml_node *root = NULL;
    struct diag_list found;
    struct glm_cluster *c = ARENA_NEW(arena, struct glm_cluster);
    struct glm_cluster *whole = ARENA_NEW(arena, struct glm_cluster);
    const char *copy = arena_strndup(arena, text, len);
    const char *name = arena_strdup(arena, path);
    if (c == NULL || whole == NULL || copy == NULL || name == NULL)
        return GLM_ENOMEM;
    diag_list_init(&found, arena);
    found.source = copy;
    found.source_len = len;
    enum glm_status status = yaml_read(name, copy, len, arena, &found, &root);
    if (status == GLM_ENOMEM)
        return status;
    if (root != NULL)
        schema_apply(root, arena, &found, whole);
    c->spec_path = name;
    c->name = resolve_get(root, "name") == NULL ? NULL : whole->name;
    const struct yaml_node *lanes = resolve_get(root, "lanes");
    uint32_t i = 0;
    for (const struct yaml_node *n = lanes == NULL ? NULL : lanes->first; n != NULL; n = n->next)
        outline_lane(n, &whole->lanes[i++], c);
    if (c->name == NULL || c->n_lanes == 0) {
        *diags = found;
        return GLM_ESPEC;
    }
    if (c->n_lanes == 1)
        c->lanes[0].is_default = true;
    *out = c;
    return GLM_OK;
}
