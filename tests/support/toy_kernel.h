/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of one toy template, `scale` (y = FACTOR * x over N floats), set as $GLM_TEMPLATES with
 * an empty kernel cache in $GLM_CACHE_DIR: building kernels without the real templates. */
#ifndef GLM_TESTS_TOY_KERNEL_H
#define GLM_TESTS_TOY_KERNEL_H

#include "codegen/plan.h"

struct toy {
    char *templates, *cache;
    struct glm_plan plan; /* toy kernels for this machine's target */
};

/* `body` NULL: the working one. */
void toy_init(struct toy *t, const char *body);
void toy_release(struct toy *t);

#endif
