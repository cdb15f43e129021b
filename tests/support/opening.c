/* SPDX-License-Identifier: Apache-2.0 */
/* See the header. */
#include "tests/support/opening.h"

#include "spec/check.h"

#include <time.h>

void opening_start(struct opening *f)
{
    *f = (struct opening){0};
    struct glm_error err = {0};
    arena_init(&f->arena, 512u << 20);
    diag_list_init(&f->diags, &f->arena);
    assert_int_equal(glm_file_read("clusters/demo/exl3/config.json", 1 << 20, &f->config, &err),
                     GLM_OK);
    assert_int_equal(glm_model_parse(f->config.data, f->config.len, &f->model, &err), GLM_OK);
}

void opening_stop(struct opening *f)
{
    if (f->folder[0] != '\0')
        pack_remove_folder(f->folder);
    pack_release(&f->pack);
    buf_release(&f->config);
    arena_release(&f->arena);
}

enum glm_status opening_open(struct opening *f, const char *where)
{
    return glm_checkpoint_open(where, &f->arena, &f->diags, &f->c);
}

void opening_fail(struct opening *f, const char *what)
{
    struct buf out = {0};
    diag_render_text(&f->diags, false, &out);
    fail_msg("%s\n%s", what, buf_text(&out));
}

enum glm_status opening_open_pack(struct opening *f)
{
    pack_folder(f->folder, sizeof f->folder);
    pack_write_text(f->folder, "config.json", f->config.data);
    pack_write(&f->pack, f->folder);
    return opening_open(f, f->folder);
}

double opening_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
