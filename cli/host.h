/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine has left: memory, and whether an address can be listened on. */
#ifndef GLM_CLI_HOST_H
#define GLM_CLI_HOST_H

#include "spec/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Total and available memory: of the machine, or of the control group when that has less. */
struct host_memory {
    uint64_t total_bytes, available_bytes;
};
struct host_memory host_memory(void);

/* GLM_EBUSY when host:port is taken, naming the process where /proc tells; else as
 * glm_net_listen. */
enum glm_status host_can_listen(const char *host, uint16_t port, struct glm_error *err);

#endif
