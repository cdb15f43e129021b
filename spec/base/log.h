/* SPDX-License-Identifier: Apache-2.0 */
/* One log format: UTC time, rank, level, `what key=value`. Lines go to stderr, which glmd's
 * supervisor points at the rank's log file. One message is one line: control characters in it come
 * out as \xHH, and what is longer than about 2,000 bytes is cut. Nothing logs inside a round above
 * trace. */
#ifndef GLM_BASE_LOG_H
#define GLM_BASE_LOG_H

enum glm_log_level { GLM_LOG_ERROR, GLM_LOG_WARN, GLM_LOG_INFO, GLM_LOG_TRACE };

/* rank < 0: not a rank (glmctl). Reads GLM_LOG=error|warn|info|trace once; default info. */
void glm_log_init(int rank);
void glm_log(enum glm_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
