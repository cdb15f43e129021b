/* SPDX-License-Identifier: Apache-2.0 */
/* A lane without a model, for tests of supervision: loading counts steps, a round is a list and a
 * gather. A small JSON file in place of launch.json says how it behaves and where it goes wrong. */
#ifndef TESTS_SUPPORT_FAKE_LANE_H
#define TESTS_SUPPORT_FAKE_LANE_H

#include "runtime/serve.h"

/* Numbers in the file, with their defaults (-1: no rank):
 *   world 3, tcp 0 (else shm), port 0
 *   steps 5, step_ms 10    loading
 *   fail_rank -1           its engine does not fit: GLM_ECAPACITY
 *   crash_rank -1          kills itself while loading
 *   digest_rank -1         has another kernels digest
 *   hang_rank -1           never ends loading and reports no progress
 *   stuck_after 0          rank 0's round of that number never ends until it is aborted
 *   beat_ms dead_ms join_ms stop_ms stuck_ms back_off_ms n_restarts healthy_ms */
enum glm_status fake_lane_load(const char *launch_path, uint32_t rank, struct glm_lane_info *out,
                               struct glm_error *err);
void fake_lane_release(struct glm_lane_info *lane);

/* glmd with the fake: call it first in main() when argv[1] is "--launch". */
int fake_glmd_main(int argc, char **argv);

#endif
