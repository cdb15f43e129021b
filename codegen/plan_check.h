/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the plan reader: bounds, and the checks that need more than one entry of a plan. Private
 * to plan_read.c, plan_check.c and launch.c. */
#ifndef GLM_CODEGEN_PLAN_CHECK_H
#define GLM_CODEGEN_PLAN_CHECK_H

#include "codegen/json_util.h"
#include "codegen/plan.h"

/* What a hostile plan may at most make us hold or walk. */
enum {
    PLAN_MAX_BYTES = 2 * 1024 * 1024,
    PLAN_MAX_WEIGHTS = 4096,
    PLAN_MAX_PARTS = 64,
    PLAN_MAX_GROUPS = 1 << 16, /* of a slice; a group is a head */
    PLAN_MAX_STATES = 1024,
    PLAN_MAX_ARENAS = 16,
    PLAN_MAX_BUFFERS = 1024,
    PLAN_MAX_KERNELS = 1024,
    PLAN_MAX_PARAMS = 48,
    PLAN_MAX_BLOCKS = 512,
    PLAN_MAX_STEPS = 4096,      /* of one block or program */
    PLAN_MAX_RUN_STEPS = 65536, /* of one program, its blocks counted out */
    PLAN_MAX_PROGRAMS = 32,
    PLAN_MAX_MEMORY = 64,
    PLAN_MAX_NAMES = 64, /* inputs or outputs of a program */
    PLAN_MAX_NAME = 160,
    PLAN_MAX_ROWS = 1 << 20, /* of an arena */
};
#define PLAN_MAX_DIMENSION   (UINT64_C(1) << 31)
#define PLAN_MAX_TOTAL_BYTES (UINT64_C(1) << 50)

/* Checks a parsed plan whose single values are already in range. Problems are recorded in r. */
void glm_plan_check(struct json_reader *r, const struct glm_plan *p);
/* One plan of a tree that holds several (a saved plan). Errors as glm_plan_read. */
enum glm_status glm_plan_from_tree(const cJSON *tree, const char *subject, struct arena *arena,
                                   struct glm_plan **out, struct glm_error *err);

#endif
