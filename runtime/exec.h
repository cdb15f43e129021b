/* SPDX-License-Identifier: Apache-2.0 */
/* The executor of a rank's programs: every program is linked once, while loading, into a flat list
 * of steps with addresses; the device runs them (device.h). Reads the plan as data and knows no
 * kernel, block or layer by name.
 *
 * Owner: the round thread. Only glm_exec_init allocates, from the arena and on the device. */
#ifndef GLM_RUNTIME_EXEC_H
#define GLM_RUNTIME_EXEC_H

#include "runtime/collective.h"
#include "runtime/device.h"
#include "runtime/memory.h"

struct glm_exec_step;

/* A program linked into one arena. */
struct glm_exec_program {
    const struct glm_plan_program *program;
    uint32_t arena_i;
    struct glm_exec_step *steps;
    uint32_t n_steps;
};

/* What runs so far touched. weight_bytes: weights read, whole or the stacked members and table rows
 * that the round's rows need; state_bytes: rows of stream planes, read or written; row_bytes: rows
 * written to the other planes. */
struct glm_exec_counts {
    uint64_t weight_bytes, state_bytes, state_read_bytes, row_bytes;
    uint64_t kernel_launches, exchange_ns;
};

struct glm_exec {
    const struct glm_plan *plan;
    const struct glm_memory *memory;
    const struct glm_states *states;
    const struct glm_manifest *manifests;
    uint32_t n_manifests;
    struct glm_collective *collective; /* NULL when world is 1 */
    struct glm_device *device;
    struct glm_exec_program *programs;
    uint32_t n_programs;
    uint64_t *member_bits; /* one bit a stacked member, for counting */
    uint32_t n_member_words;
    struct glm_exec_counts counts;
    /* Called before and after each step, with all before it done and nothing after it begun, for
     * whoever looks at what lies between; NULL: off. */
    void (*probe)(void *context, const struct glm_exec_program *program, uint32_t step_i,
                  const struct glm_round *round, bool is_done);
    void *probe_context;
};

/* The fields above `programs` are set by the caller. Links every program of the plan into every
 * arena it runs in and hands them to the device. Errors: GLM_EPLAN naming program, step and
 * argument; GLM_ENOMEM. */
enum glm_status glm_exec_init(struct glm_exec *x, struct arena *arena, struct glm_error *err);

/* NULL when there is none of that name in that arena. */
const struct glm_exec_program *glm_exec_find(const struct glm_exec *x, const char *program,
                                             int32_t arena_i);
/* Runs all steps; *ns grows by the time that they take (device.h). Errors: the device's; then the
 * round is lost. */
enum glm_status glm_exec_run(struct glm_exec *x, const struct glm_exec_program *program,
                             const struct glm_round *round, uint64_t *ns, struct glm_error *err);

/* The device's address of a buffer in an arena, NULL when the arena has it not. */
void *glm_exec_buffer(const struct glm_exec *x, uint32_t arena_i, const char *name,
                      const struct glm_plan_buffer **buffer);

#endif
