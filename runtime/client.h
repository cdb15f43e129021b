/* SPDX-License-Identifier: Apache-2.0 */
/* Asking a running lane's head, over an authenticated control connection found by the files in its
 * state folder. Used by glmctl. Every call ends within its deadline. */
#ifndef GLM_RUNTIME_CLIENT_H
#define GLM_RUNTIME_CLIENT_H

#include "spec/base/buf.h"

/* The head's status as JSON text: {"format_version", "state": "starting" | "loading" | "live" |
 * "restarting" | "stopping" | "failed", "url", "set_digest", "uptime_s", "ranks": [{"rank", "pid",
 * "state", "done_bytes", "total_bytes", "memory_bytes", "restarts", "last_error"}], "stats": {…}}.
 * Errors: GLM_ENOTFOUND when no head runs in `folder`, GLM_EPEER when it does not answer. */
enum glm_status glm_client_status(const char *folder, uint32_t deadline_ms, struct buf *json,
                                  struct glm_error *err);
/* Asks the head to stop and waits until it and its lock are gone. GLM_ENOTFOUND: nothing ran. */
enum glm_status glm_client_stop(const char *folder, uint32_t deadline_ms, struct glm_error *err);

#endif
