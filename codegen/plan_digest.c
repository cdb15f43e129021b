/* SPDX-License-Identifier: Apache-2.0 */
/* Digests of plans: of the set (all rank plans in rank order, each with an empty set_digest) and of
 * one sealed plan's file. Both are over the bytes that plan_write.c writes. */
#include "codegen/plan.h"

#include "spec/base/digest.h"

#include <string.h>

enum glm_status glm_plan_set_digest(struct glm_plan *const *plans, uint32_t n, char digest[65],
                                    struct glm_error *err)
{
    struct buf all = {0};
    enum glm_status status = GLM_OK;
    for (uint32_t i = 0; status == GLM_OK && i < n; i++) {
        struct glm_plan open = *plans[i];
        open.set_digest[0] = '\0';
        status = glm_plan_write(&open, &all, err);
    }
    if (status == GLM_OK)
        status = glm_sha256_hex(buf_text(&all), all.len, digest, err);
    buf_release(&all);
    return status;
}

enum glm_status glm_plan_seal(struct glm_plan *const *plans, uint32_t n, struct glm_error *err)
{
    char digest[65];
    enum glm_status status = glm_plan_set_digest(plans, n, digest, err);
    for (uint32_t i = 0; status == GLM_OK && i < n; i++)
        memcpy(plans[i]->set_digest, digest, sizeof digest);
    return status;
}

enum glm_status glm_plan_digest(const struct glm_plan *plan, char digest[65], struct glm_error *err)
{
    struct buf text = {0};
    enum glm_status status = glm_plan_write(plan, &text, err);
    if (status == GLM_OK)
        status = glm_sha256_hex(buf_text(&text), text.len, digest, err);
    buf_release(&text);
    return status;
}
