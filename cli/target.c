/* SPDX-License-Identifier: Apache-2.0 */
/* From a cluster file to the state folder of one of its lanes. */
#include "cli/target.h"

int target_find(const struct common_options *o, const char *command, const char *file,
                struct target *out)
{
    struct glm_error err = {0};
    *out = (struct target){0};
    struct compiled *c = &out->compiled;
    if (file == NULL) {
        glm_fail(&err, GLM_EINVAL, "%s wants a cluster file", command);
        return fail_usage(command, &err);
    }
    int rc = resolve_spec(o, file, c);
    if (rc != EXIT_DONE)
        return rc;
    out->lane = &c->cluster->lanes[c->lane_i];
    if (lane_folder(c->cluster->name, out->lane->name, &out->folder, &err) != GLM_OK)
        return fail(o, &err);
    return EXIT_DONE;
}

void target_release(struct target *t)
{
    buf_release(&t->folder);
    compiled_release(&t->compiled);
}
