/* SPDX-License-Identifier: Apache-2.0 */
/* What glmctl asks of a running lane, through rank 0's control connection. dir: the lane's state
 * folder. Both bound their time. */
#ifndef GLM_RUNTIME_CLIENT_H
#define GLM_RUNTIME_CLIENT_H

#include "spec/base/buf.h"

/* JSON {format_version, state, pid, url, set_digest, epoch, uptime_s, restarts, error,
 * ranks: [{rank, pid, state, device, done_bytes, total_bytes, memory_bytes, round, restarts,
 * last_error}], stats: {…}} into *json.
 *   GLM_OK        rank 0 answered, whatever its state
 *   GLM_ENOTFOUND nothing runs here and nothing failed: never applied, or stopped
 *   GLM_EPEER     rank 0 is gone, or failed, or does not answer; *json then holds the same keys
 *                 from head.json with state "failed", no ranks and the reason in error */
enum glm_status glm_client_status(const char *dir, struct buf *json, struct glm_error *err);

/* Stops the lane in order and returns once rank 0 has ended and freed its ports. What a failed one
 * left is cleared. GLM_ENOTFOUND: nothing runs here. GLM_EBUSY: it still runs after deadline_ms. */
enum glm_status glm_client_stop(const char *dir, uint32_t deadline_ms, struct glm_error *err);

#endif
