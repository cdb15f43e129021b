/* SPDX-License-Identifier: Apache-2.0 */
/* Rank plans and saved plans from hostile bytes. What is accepted must write, and what was written
 * must read and write back to the same bytes. */
#include "codegen/launch.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void round_trip(const struct glm_plan *p, struct arena *arena)
{
    struct buf first = {0}, second = {0};
    struct glm_plan *again = NULL;
    if (glm_plan_write(p, &first, NULL) != GLM_OK)
        goto out;
    enum glm_status status = glm_plan_read(first.data, first.len, arena, &again, NULL);
    if (status == GLM_ENOMEM)
        goto out;
    GLM_ASSERT(status == GLM_OK);
    GLM_ASSERT(glm_plan_write(again, &second, NULL) == GLM_OK);
    GLM_ASSERT(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
out:
    buf_release(&first);
    buf_release(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct arena arena;
    struct glm_plan *p = NULL, **plans = NULL;
    struct glm_launch_file *l = NULL;
    struct glm_error err = {0};
    arena_init(&arena, 64 << 20);
    if (glm_plan_read(text, size, &arena, &p, &err) == GLM_OK)
        round_trip(p, &arena);
    err = (struct glm_error){0};
    (void)glm_launch_read(text, size, &arena, &l, &err);
    err = (struct glm_error){0};
    (void)glm_saved_plan_read(text, size, &arena, &l, &plans, &err);
    arena_release(&arena);
    return 0;
}
