/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a rank's files and holds them against each other. */
#include "runtime/lane_files.h"

#include "spec/base/digest.h"

#include <libgen.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_LIMIT_BYTES = 64 << 20 };

const struct glm_launch_rank *glm_lane_rank(const struct glm_lane_files *lane)
{
    return &lane->launch->ranks[lane->rank];
}

static enum glm_status read_plan(const char *launch_path, struct glm_lane_files *lane,
                                 struct glm_error *err)
{
    const struct glm_launch_rank *rank = glm_lane_rank(lane);
    char digest[65];
    struct buf text = {0};
    char *copy = strdup(launch_path);
    if (copy == NULL)
        return glm_fail(err, GLM_ENOMEM, "out of memory");
    const char *path = arena_printf(&lane->arena, "%s/%s", dirname(copy), rank->plan_file);
    free(copy);
    if (path == NULL)
        return glm_fail(err, GLM_ENOMEM, "out of memory");
    enum glm_status status = glm_file_read(path, FILE_LIMIT_BYTES, &text, err);
    if (status == GLM_OK)
        status = glm_sha256_hex(text.data, text.len, digest, err);
    if (status == GLM_OK && strcmp(digest, rank->plan_digest) != 0) {
        status = glm_fail(err, GLM_EPLAN,
                          "'%s' was changed: launch.json says digest %.12s, it has %.12s", path,
                          rank->plan_digest, digest);
        glm_error_hint(err, "glmctl apply %s --lane %s", lane->launch->spec_path,
                       lane->launch->lane);
    }
    if (status == GLM_OK)
        status = glm_plan_read(buf_text(&text), text.len, &lane->arena, &lane->plan, err);
    buf_release(&text);
    return status;
}

static enum glm_status check_belonging(const struct glm_lane_files *lane, struct glm_error *err)
{
    const struct glm_plan *p = lane->plan;
    const struct glm_launch_rank *rank = glm_lane_rank(lane);
    const bool for_gpu = strncmp(p->target, "sm_", 3) == 0;
    uint32_t gpu;
    if (p->rank != lane->rank || p->world != lane->launch->n_ranks)
        return glm_fail(err, GLM_EPLAN, "plan of rank %u of %u where rank %u of %u belongs",
                        p->rank, p->world, lane->rank, lane->launch->n_ranks);
    if (strcmp(p->set_digest, lane->launch->set_digest) != 0)
        return glm_fail(err, GLM_EPLAN, "plan of set %.12s where set %.12s belongs", p->set_digest,
                        lane->launch->set_digest);
    if (for_gpu != glm_launch_gpu(rank, &gpu))
        return glm_fail(err, GLM_EPLAN, "the plan is for target '%s', launch.json names device %s",
                        p->target, rank->device);
    if (p->n_kernels != rank->n_kernels)
        return glm_fail(err, GLM_EPLAN, "the plan has %u kernels, launch.json names %u",
                        p->n_kernels, rank->n_kernels);
    return GLM_OK;
}

enum glm_status glm_lane_files_read(struct glm_lane_files *lane, const char *launch_path,
                                    uint32_t rank, struct glm_error *err)
{
    struct buf text = {0};
    *lane = (struct glm_lane_files){.rank = rank};
    arena_init(&lane->arena, GLM_LANE_ARENA_BYTES);
    enum glm_status status = glm_file_read(launch_path, FILE_LIMIT_BYTES, &text, err);
    if (status == GLM_OK)
        status = glm_launch_read(buf_text(&text), text.len, &lane->arena, &lane->launch, err);
    if (status == GLM_OK && rank >= lane->launch->n_ranks)
        status = glm_fail(err, GLM_EINVAL, "'%s' has ranks 0 to %u, asked for rank %u", launch_path,
                          lane->launch->n_ranks - 1, rank);
    if (status == GLM_OK)
        status = read_plan(launch_path, lane, err);
    if (status == GLM_OK)
        status = check_belonging(lane, err);
    buf_release(&text);
    return status;
}

void glm_lane_files_release(struct glm_lane_files *lane)
{
    arena_release(&lane->arena);
}

enum glm_status glm_lane_kernels_verify(const struct glm_lane_files *lane, struct glm_error *err)
{
    const struct glm_launch_rank *rank = glm_lane_rank(lane);
    enum glm_status status = GLM_OK;
    for (uint32_t k = 0; status == GLM_OK && k < rank->n_kernels; k++)
        status = glm_kernel_verify(rank->kernel_paths[k], rank->kernel_digests[k], err);
    return status;
}

enum glm_status glm_lane_checkpoint_open(const struct glm_lane_files *lane, struct arena *arena,
                                         struct glm_checkpoint **out, struct glm_error *err)
{
    const struct glm_launch_file *launch = lane->launch;
    struct diag_list diags;
    diag_list_init(&diags, arena);
    enum glm_status status = glm_checkpoint_open(launch->checkpoint, arena, &diags, out);
    if (status != GLM_OK)
        return glm_fail(err, status, "cannot open checkpoint '%s': %s", launch->checkpoint,
                        diags.n_items > 0 ? diags.items[0].message : glm_status_text(status));
    if (strcmp((*out)->digest, launch->checkpoint_digest) == 0)
        return GLM_OK;
    status =
        glm_fail(err, GLM_ESTALE, "checkpoint '%s' changed since it was planned: %.12s, now %.12s",
                 launch->checkpoint, launch->checkpoint_digest, (*out)->digest);
    glm_error_hint(err, "glmctl apply %s --lane %s", launch->spec_path, launch->lane);
    return status;
}
