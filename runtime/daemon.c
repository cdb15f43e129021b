/* SPDX-License-Identifier: Apache-2.0 */
/* From glmd's options to a supervised set (rank 0, supervise.c) or one of its ranks (rank.c). */
#include "runtime/daemon.h"

#include "runtime/launcher.h"
#include "runtime/rank.h"
#include "runtime/state_dir.h"
#include "runtime/supervise.h"
#include "spec/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

static bool take_number(const char *text, uint64_t max, uint64_t *out)
{
    char *end = NULL;
    if (text[0] < '0' || text[0] > '9')
        return false;
    unsigned long long value = strtoull(text, &end, 10);
    if (*end != '\0' || value > max)
        return false;
    *out = value;
    return true;
}

enum glm_status glm_daemon_options(int argc, char **argv, struct glm_daemon_config *config,
                                   struct glm_error *err)
{
    static const char *const names[] = {"--launch", "--rank", "--control", "--epoch"};
    enum { LAUNCH, RANK, CONTROL, EPOCH, N_NAMES };
    const char *values[N_NAMES] = {NULL};
    for (int i = 1; i < argc; i += 2) {
        int option = 0;
        while (option < N_NAMES && strcmp(argv[i], names[option]) != 0)
            option++;
        if (option == N_NAMES)
            return glm_fail(err, GLM_EINVAL, "there is no option '%.100s'", argv[i]);
        if (i + 1 >= argc)
            return glm_fail(err, GLM_EINVAL, "option '%s' needs a value", argv[i]);
        values[option] = argv[i + 1];
    }
    uint64_t rank = 0, epoch = 0;
    if (values[LAUNCH] == NULL || values[RANK] == NULL)
        return glm_fail(err, GLM_EINVAL, "options '--launch' and '--rank' are needed");
    if (!take_number(values[RANK], GLM_LINK_MAX_WORLD - 1, &rank))
        return glm_fail(err, GLM_EINVAL, "option '--rank' is '%.40s', want 0 to %d", values[RANK],
                        GLM_LINK_MAX_WORLD - 1);
    if (values[EPOCH] != NULL && !take_number(values[EPOCH], UINT64_MAX / 2, &epoch))
        return glm_fail(err, GLM_EINVAL, "option '--epoch' is '%.40s', want a number",
                        values[EPOCH]);
    config->launch_path = values[LAUNCH];
    config->rank = (uint32_t)rank;
    config->control = values[CONTROL];
    config->epoch = epoch;
    return GLM_OK;
}

static enum glm_status run_head(const struct glm_daemon_config *config,
                                const struct glm_lane_info *lane, const char *dir, bool *hung,
                                struct glm_error *err)
{
    struct glm_local_launcher local;
    glm_local_launcher_init(&local, config->program, dir, config->launch_path);
    struct glm_supervise_config head = {.dir = dir,
                                        .lane = lane,
                                        .launcher = &local.launcher,
                                        .stop_fd = config->stop_fd,
                                        .dump_stacks = config->dump_stacks};
    return glm_supervise_run(&head, hung, err);
}

static enum glm_status run_rank(const struct glm_daemon_config *config,
                                const struct glm_lane_info *lane, const char *dir, bool *hung,
                                struct glm_error *err)
{
    uint8_t secret[32];
    struct glm_head_file head = {0};
    enum glm_status status = GLM_OK;
    if (config->control == NULL || config->epoch == 0)
        status = glm_head_file_read(dir, &head, err);
    if (status == GLM_OK)
        status = glm_state_secret_read(dir, secret, err);
    if (status != GLM_OK)
        return status;
    struct glm_rank_config rank = {.lane = lane,
                                   .secret = secret,
                                   .control = config->control,
                                   .epoch = config->epoch,
                                   .stop_fd = config->stop_fd,
                                   .dump_stacks = config->dump_stacks};
    if (rank.control == NULL)
        rank.control = head.control;
    if (rank.epoch == 0)
        rank.epoch = head.epoch;
    status = glm_rank_run(&rank, hung, err);
    OPENSSL_cleanse(secret, sizeof secret);
    return status;
}

static enum glm_status folder_of(const char *path, char dir[GLM_STATE_PATH_BYTES],
                                 struct glm_error *err)
{
    const char *slash = strrchr(path, '/');
    size_t len = slash == NULL ? 0 : (size_t)(slash - path);
    if (len >= GLM_STATE_PATH_BYTES)
        return glm_fail(err, GLM_EINVAL, "cannot use launch file '%.200s…': its path is too long",
                        path);
    snprintf(dir, GLM_STATE_PATH_BYTES, "%.*s", slash == NULL ? 1 : (int)(len == 0 ? 1 : len),
             slash == NULL ? "." : path);
    return GLM_OK;
}

int glm_daemon_run(const struct glm_daemon_config *config, bool *hung)
{
    char dir[GLM_STATE_PATH_BYTES];
    struct glm_error err = {0};
    struct glm_lane_info lane = {0};
    *hung = false;
    enum glm_status status = folder_of(config->launch_path, dir, &err);
    if (status == GLM_OK)
        status = config->load(config->launch_path, config->rank, &lane, &err);
    if (status == GLM_OK) {
        status = config->rank == 0 ? run_head(config, &lane, dir, hung, &err)
                                   : run_rank(config, &lane, dir, hung, &err);
        if (!*hung)
            config->release(&lane);
    }
    if (status != GLM_OK)
        glm_log(GLM_LOG_ERROR, "glmd ends: %s%s%s", err.message, err.hint[0] == '\0' ? "" : "; ",
                err.hint);
    else
        glm_log(GLM_LOG_INFO, "glmd ends in order");
    return status == GLM_OK ? 0 : 1;
}
