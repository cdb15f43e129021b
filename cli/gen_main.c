/* SPDX-License-Identifier: Apache-2.0 */
/* glmgen: writes what is generated from tables, for `make generated` alone; not installed.
 * glmgen page FILE | bash | zsh | fish | spec, to standard output. */
#include "cli/docs.h"
#include "spec/cluster.h"

#include <stdio.h>
#include <string.h>

enum { PAGE_LIMIT_BYTES = 1 << 20 };

static enum glm_status make_page(const char *file, struct buf *out, struct glm_error *err)
{
    struct buf page = {0};
    enum glm_status status = glm_file_read(file, PAGE_LIMIT_BYTES, &page, err);
    if (status == GLM_OK)
        status = docs_page(buf_text(&page), out, err);
    buf_release(&page);
    return status;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *what;
        void (*write)(struct buf *out);
    } texts[] = {{"bash", docs_bash},
                 {"zsh", docs_zsh},
                 {"fish", docs_fish},
                 {"spec", glm_schema_reference}};
    struct buf out = {0};
    struct glm_error err = {0};
    enum glm_status status = GLM_EINVAL;
    if (argc == 3 && strcmp(argv[1], "page") == 0)
        status = make_page(argv[2], &out, &err);
    for (size_t i = 0; argc == 2 && i < sizeof texts / sizeof texts[0]; i++) {
        if (strcmp(argv[1], texts[i].what) == 0) {
            texts[i].write(&out);
            status = GLM_OK;
        }
    }
    if (status == GLM_OK && fwrite(buf_text(&out), 1, out.len, stdout) != out.len)
        status = glm_fail(&err, GLM_EIO, "cannot write to standard output");
    if (status != GLM_OK)
        fprintf(stderr, "glmgen: %s\n",
                err.message[0] != '\0' ? err.message
                                       : "usage: page FILE | bash | zsh | fish | spec");
    buf_release(&out);
    return status == GLM_OK ? 0 : 1;
}
