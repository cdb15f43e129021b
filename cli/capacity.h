/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a lane fits beside what runs: memory of the machine, of its GPUs and of each node, and
 * its port. */
#ifndef GLM_CLI_CAPACITY_H
#define GLM_CLI_CAPACITY_H

#include "cli/compile.h"
#include "cli/lane.h"

/* own: the state folder of the lane, whose memory and port will be free; replace (may be NULL): a
 * lane of the same cluster that will be stopped too.
 * GLM_ECAPACITY names need, room and the lanes that hold it with their bytes; GLM_EBUSY who has the
 * port. The hint is the next command. */
enum glm_status capacity_check(const struct compiled *c, const char *own, const char *replace,
                               struct glm_error *err);

#endif
