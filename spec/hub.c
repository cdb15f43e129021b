/* SPDX-License-Identifier: Apache-2.0 */
/* Which folder a written checkpoint means: a path, a built-in synthetic geometry, or a hub id
 * looked up in the local hub cache (never over the network). An absent id plans with the built-in
 * geometry of its name. */
#include "spec/geometries.h"
#include "spec/resolve.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* org/name of letters, digits, '-', '_' and '.', none starting with a dot. */
static bool is_hub_id(const char *text)
{
    const char *slash = strchr(text, '/');
    if (slash == NULL || slash == text || strchr(slash + 1, '/') != NULL || slash[1] == '\0')
        return false;
    for (const char *p = text; *p != '\0'; p++) {
        bool first = p == text || p[-1] == '/';
        if (*p != '/' && !isalnum((unsigned char)*p) && (first || strchr("-_.", *p) == NULL))
            return false;
    }
    return true;
}

/* $HF_HUB_CACHE, $HF_HOME/hub or ~/.cache/huggingface/hub; NULL without any. */
static const char *cache_folder(struct resolve *r)
{
    const char *cache = getenv("HF_HUB_CACHE");
    if (cache != NULL && cache[0] != '\0')
        return arena_strdup(r->arena, cache);
    const char *home = getenv("HF_HOME");
    if (home != NULL && home[0] != '\0')
        return arena_printf(r->arena, "%s/hub", home);
    home = getenv("HOME");
    return home == NULL ? NULL : arena_printf(r->arena, "%s/.cache/huggingface/hub", home);
}

/* models--ORG--NAME/refs/main holds the revision, snapshots/REVISION the files. */
static const char *find_snapshot(struct resolve *r, const char *id)
{
    const char *cache = cache_folder(r);
    const char *slash = strchr(id, '/');
    if (cache == NULL)
        return NULL;
    const char *folder =
        arena_printf(r->arena, "%s/models--%.*s--%s", cache, (int)(slash - id), id, slash + 1);
    const char *ref = folder == NULL ? NULL : arena_printf(r->arena, "%s/refs/main", folder);
    struct buf revision = {0};
    const char *found = NULL;
    if (ref != NULL && glm_file_read(ref, 200, &revision, NULL) == GLM_OK) {
        size_t len = strspn(buf_text(&revision), "0123456789abcdefABCDEF");
        if (len > 0)
            found = arena_printf(r->arena, "%s/snapshots/%.*s", folder, (int)len, revision.data);
    }
    buf_release(&revision);
    return found != NULL && is_folder(found) ? found : NULL;
}

/* "Mia-AiLab/GLM-5.3-Flash-EXL3-TR3-4bpw" → "glm-5.3-flash-exl3": the built-in name it contains. */
static const char *geometry_of(const char *id)
{
    const char *name = strchr(id, '/') + 1;
    if (strcasestr(name, "GLM-5.3-Flash") == NULL)
        return NULL;
    return strcasestr(name, "BF16") != NULL ? "synthetic:glm-5.3-flash-bf16"
                                            : "synthetic:glm-5.3-flash";
}

static enum glm_status take_hub_id(struct resolve *r, struct src_span at, const char *id)
{
    struct glm_cluster *c = r->c;
    c->checkpoint_path = find_snapshot(r, id);
    if (c->checkpoint_path != NULL)
        return GLM_OK;
    const char *geometry = geometry_of(id);
    char hint[400];
    snprintf(hint, sizeof hint, "download it with: hf download %.200s", id);
    if (geometry == NULL) {
        diag_add(r->diags, DIAG_ERROR, at, "checkpoint.absent", hint,
                 "'%s' is neither a folder nor in the hub cache, and there is no built-in geometry "
                 "of that name",
                 id);
        return GLM_ESPEC;
    }
    c->checkpoint_absent = true;
    c->checkpoint_path = geometry;
    diag_add(r->diags, DIAG_WARNING, at, "checkpoint.absent", hint,
             "'%s' is not in the hub cache: planned with the built-in geometry '%s'", id,
             strchr(geometry, ':') + 1);
    return GLM_OK;
}

enum glm_status resolve_checkpoint_path(struct resolve *r)
{
    static const char scheme[] = "synthetic:";
    struct glm_cluster *c = r->c;
    const struct yaml_node *written = resolve_get(yaml_get(r->root, "model"), "checkpoint");
    if (written == NULL)
        return GLM_ESPEC; /* reported by the schema */
    const char *text = written->text;
    if (strncmp(text, scheme, sizeof scheme - 1) == 0) {
        const char *name = text + sizeof scheme - 1;
        struct glm_model model;
        uint32_t bits;
        c->checkpoint_path = text;
        if (!glm_geometry_find(name, &model, &bits)) {
            const char *folder = resolve_path(r, name);
            c->checkpoint_path =
                folder == NULL ? NULL : arena_printf(r->arena, "%s%s", scheme, folder);
        }
        return c->checkpoint_path != NULL ? GLM_OK : GLM_ENOMEM;
    }
    const char *folder = resolve_path(r, text);
    if (folder == NULL)
        return GLM_ENOMEM;
    if (is_hub_id(text) && !is_folder(folder))
        return take_hub_id(r, written->at, text);
    c->checkpoint_path = folder;
    return GLM_OK;
}
