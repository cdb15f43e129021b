/* SPDX-License-Identifier: Apache-2.0 */
/* The monotonic clock, in the units that deadlines are kept in. */
#ifndef GLM_RUNTIME_CLOCK_H
#define GLM_RUNTIME_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t glm_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t glm_now_ms(void)
{
    return glm_now_ns() / 1000000u;
}

/* Milliseconds until `deadline_ms` as poll() takes them: 0 once it has passed. */
static inline int glm_ms_until(uint64_t deadline_ms)
{
    uint64_t now = glm_now_ms();
    if (now >= deadline_ms)
        return 0;
    return deadline_ms - now > 3600000u ? 3600000 : (int)(deadline_ms - now);
}

#endif
