/* SPDX-License-Identifier: Apache-2.0 */
/* `glmd selftest`: every kernel of an applied rank's plan on its GPU against the host's bodies, on
 * as few of its layers as launch them all. */
#ifndef GLM_RUNTIME_LANE_SELFTEST_H
#define GLM_RUNTIME_LANE_SELFTEST_H

#include "spec/base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Builds the host's kernels ($GLM_HOST_CC), loads those layers on both sides, runs, and writes a
 * line a template to `out`, or with json one object. *passed: all within what was promised. Errors:
 * those of reading, building and loading; GLM_EINVAL for a rank without a GPU. */
enum glm_status glm_lane_selftest(const char *launch_path, uint32_t rank, bool json, FILE *out,
                                  bool *passed, struct glm_error *err);

#endif
