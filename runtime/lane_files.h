/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank reads of its lane before anything starts: launch.json, its plan, and then its kernels
 * and its checkpoint, each checked against what was planned. */
#ifndef GLM_RUNTIME_LANE_FILES_H
#define GLM_RUNTIME_LANE_FILES_H

#include "codegen/launch.h"
#include "spec/checkpoint.h"

struct glm_lane_files {
    struct arena arena;
    struct glm_launch_file *launch;
    struct glm_plan *plan;
    uint32_t rank;
};

enum { GLM_LANE_ARENA_BYTES = 1 << 30 };

/* DIR/launch.json and the plan of that rank beside it. Release in any case. Errors: GLM_EINVAL for
 * a rank that the lane has not, GLM_EPLAN for files that do not belong together, GLM_EIO. */
enum glm_status glm_lane_files_read(struct glm_lane_files *l, const char *launch_path,
                                    uint32_t rank, struct glm_error *err);
void glm_lane_files_release(struct glm_lane_files *l);

const struct glm_launch_rank *glm_lane_rank(const struct glm_lane_files *l);
/* The rank's kernels are whole and ours: GLM_EKERNEL. */
enum glm_status glm_lane_kernels_verify(const struct glm_lane_files *l, struct glm_error *err);
/* In the arena. GLM_ESTALE when it changed since it was planned. */
enum glm_status glm_lane_checkpoint_open(const struct glm_lane_files *l, struct arena *arena,
                                         struct glm_checkpoint **out, struct glm_error *err);

#endif
