/* SPDX-License-Identifier: Apache-2.0 */
/* From a file on the command line to the state folder of one of its lanes. */
#include "cli/target.h"

#include "cli/compile.h"

#include <string.h>

enum { ARENA_LIMIT_BYTES = 256 << 20 };

static int of_saved_plan(const struct common_options *o, const struct buf *text, struct target *t)
{
    struct glm_error err = {0};
    struct glm_launch_file *launch;
    struct glm_plan **ignored;
    enum glm_status status =
        glm_saved_plan_read(buf_text(text), text->len, &t->arena, &launch, &ignored, &err);
    if (status == GLM_OK && o->lane != NULL && strcmp(o->lane, launch->lane) != 0)
        status = glm_fail(&err, GLM_EINVAL, "'%s' is a plan of lane '%s', asked for lane '%s'",
                          t->file, launch->lane, o->lane);
    if (status != GLM_OK)
        return fail(o, &err);
    t->cluster = launch->cluster;
    t->lane = launch->lane;
    return EXIT_DONE;
}

static int of_spec(const struct common_options *o, const struct buf *text, struct target *t)
{
    struct glm_error err = {0};
    struct diag_list diags;
    struct glm_cluster *c;
    uint32_t lane;
    diag_list_init(&diags, &t->arena);
    enum glm_status status =
        glm_cluster_outline(t->file, buf_text(text), text->len, &t->arena, &diags, &c);
    if (status != GLM_OK && diags.n_items > 0)
        return print_diags(o, &diags, true);
    if (status == GLM_OK)
        status = glm_cluster_lane(c, o->lane, &lane, &err);
    else
        glm_fail(&err, status, "cannot read '%s': %s", t->file, glm_status_text(status));
    if (status != GLM_OK)
        return fail(o, &err);
    t->cluster = c->name;
    t->lane = c->lanes[lane].name;
    return EXIT_DONE;
}

int target_find(const struct common_options *o, const char *file, struct target *out)
{
    struct glm_error err = {0};
    struct buf text = {0};
    *out = (struct target){.file = file};
    arena_init(&out->arena, ARENA_LIMIT_BYTES);
    int rc = read_input(file, &text, &err) == GLM_OK ? EXIT_DONE : fail(o, &err);
    if (rc == EXIT_DONE)
        rc = is_saved_plan(&text) ? of_saved_plan(o, &text, out) : of_spec(o, &text, out);
    if (rc == EXIT_DONE && lane_folder(out->cluster, out->lane, &out->folder, &err) != GLM_OK)
        rc = fail(o, &err);
    buf_release(&text);
    return rc;
}

void target_release(struct target *t)
{
    buf_release(&t->folder);
    arena_release(&t->arena);
}
