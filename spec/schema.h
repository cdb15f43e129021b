/* SPDX-License-Identifier: Apache-2.0 */
/* Private to spec/: a spec's tree against the one field table. */
#ifndef GLM_SPEC_SCHEMA_H
#define GLM_SPEC_SCHEMA_H

#include "spec/cluster.h"
#include "spec/yaml.h"

/* Checks every key and value of the tree, adds each problem to diags, and writes values and fixed
 * defaults of plain fields into *c: nodes[i], cables[i] and lanes[i] as the lists have them.
 * Refused nodes are marked `bad`. What needs two fields at once is resolve.c's.
 * Errors: GLM_ESPEC, GLM_ENOMEM. */
enum glm_status schema_apply(struct yaml_node *root, struct arena *arena, struct diag_list *diags,
                             struct glm_cluster *c);

#endif
