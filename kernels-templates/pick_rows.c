/* SPDX-License-Identifier: Apache-2.0 */
/* The rows whose logits are wanted, packed in the order of the round's out_rows. */
#include "prelude.h"

const uint32_t glm_kernel_abi = GLM_HOST_ABI_VERSION;

void glm_kernel(const struct glm_launch *launch, void *const *args)
{
    const act_t *x = args[0];
    act_t *y = args[1];
    int64_t first, last;
    glm_part(launch, launch->round->n_out, &first, &last);
    for (int64_t o = first; o < last; o++)
        __builtin_memcpy(y + (size_t)o * GLM_D, x + (size_t)launch->round->out_rows[o] * GLM_D,
                         GLM_D * sizeof *y);
}
