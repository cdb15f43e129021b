/* SPDX-License-Identifier: Apache-2.0 */
/* From a file on the command line to the plans of one lane. */
#ifndef GLM_CLI_COMPILE_H
#define GLM_CLI_COMPILE_H

#include "cli/common.h"
#include "codegen/graph.h"
#include "codegen/launch.h"
#include "spec/cluster.h"

/* A spec compiled as far as the plans of one lane. */
struct compiled {
    struct arena arena;
    struct diag_list diags;
    struct glm_cluster *cluster;
    uint32_t lane_i;
    const char *target;
    struct glm_plan **plans; /* one a rank */
    /* set when the file was a saved plan: the launch document it holds */
    struct glm_launch_file *saved;
};

/* `file`: a cluster spec, "-" for standard input, or a saved plan, which is refused as stale when
 * spec, checkpoint, program or machine are no longer what it was made from. Errors are printed;
 * warnings too, on stderr, but with -o json they are left to the caller (diags). Returns an exit
 * status; on any but EXIT_DONE the struct holds only what compiled_release frees. */
int compile_lane(const struct common_options *o, const char *file, struct compiled *out);
/* As far as checkpoint, cluster and lane, without plans and warnings. Of a saved plan its spec. */
int resolve_spec(const struct common_options *o, const char *file, struct compiled *out);
void compiled_release(struct compiled *c);

/* The lane that is compiled. */
const struct glm_lane *compiled_lane(const struct compiled *c);

/* A spec or a saved plan, whole. */
enum glm_status read_input(const char *file, struct buf *text, struct glm_error *err);
/* A saved plan is JSON; a spec starts with a key, which cannot be a brace. */
bool is_saved_plan(const struct buf *text);

#endif
