/* SPDX-License-Identifier: Apache-2.0 */
/* Digests of CUDA bodies and their register (see the header). */
#include "codegen/verified.h"

#include "spec/base/digest.h"
#include "codegen/includes.h"
#include "codegen/templates.h"
#include "spec/base/buf.h"

#include <string.h>

enum { MAX_FILES = 33 };

enum glm_status glm_body_digest(const struct glm_manifest *m, struct arena *arena, char digest[65],
                                struct glm_error *err)
{
    struct glm_cache_file files[MAX_FILES];
    const struct glm_manifest_launch *l = m->launch;
    struct buf all = {0};
    uint32_t n = 1;
    files[0].name = arena_printf(arena, "%s.cu", m->name);
    if (files[0].name == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot digest kernel '%s': out of memory", m->name);
    files[0].text = glm_template_source(files[0].name, &files[0].len);
    if (files[0].text == NULL || l == NULL)
        return glm_fail(err, GLM_EKERNEL, "cannot digest kernel '%s': it has no CUDA body",
                        m->name);
    enum glm_status status = glm_includes_add(m->name, arena, files, &n, MAX_FILES, err);
    if (status != GLM_OK)
        return status;
    buf_printf(&all, "%s\n%s\n%s\n%s\n%s\n%s\n%s\n%s\n%u\n", l->block, l->grid[0], l->grid[1],
               l->grid[2], l->shared, l->scratch, l->tickets, l->rows, l->min_blocks);
    for (uint32_t i = 0; i < n; i++) {
        buf_printf(&all, "%s %zu\n", files[i].name, files[i].len);
        buf_add(&all, files[i].text, files[i].len);
    }
    status = all.failed
                 ? glm_fail(err, GLM_ENOMEM, "cannot digest kernel '%s': out of memory", m->name)
                 : glm_sha256_hex(all.data, all.len, digest, err);
    buf_release(&all);
    return status;
}

enum glm_status glm_body_unverified(const struct glm_manifest *m, struct arena *arena,
                                    bool *unverified, struct glm_error *err)
{
    char digest[65];
    size_t len;
    const char *text = glm_template_source(GLM_VERIFIED_FILE, &len);
    *unverified = true;
    enum glm_status status = glm_body_digest(m, arena, digest, err);
    if (status != GLM_OK || text == NULL)
        return status;
    const char *start = arena_printf(arena, "%s %s ", m->name, digest);
    if (start == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot read " GLM_VERIFIED_FILE ": out of memory");
    for (const char *line = text; line != NULL && *unverified;) {
        *unverified = strncmp(line, start, strlen(start)) != 0;
        line = strchr(line, '\n');
        line = line == NULL ? NULL : line + 1;
    }
    return GLM_OK;
}
