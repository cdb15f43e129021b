/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel cache on disk: entry folders TEMPLATE.DIGEST/ that are trusted only when they are ours
 * and their files still have the digests that params.json recorded when they were made. */
#ifndef GLM_CODEGEN_CACHE_H
#define GLM_CODEGEN_CACHE_H

#include "codegen/manifest.h"

#include <stdbool.h>
#include <stdint.h>

struct glm_cache_file {
    const char *name; /* "kernel.c", "prelude.h" */
    const char *text;
    size_t len;
};

/* $GLM_CACHE_DIR, else $XDG_CACHE_HOME/glmctl, else ~/.cache/glmctl; made when absent.
 * Errors: GLM_EKERNEL when it is not ours or others may write to it, GLM_EIO. */
enum glm_status glm_cache_open(struct arena *arena, const char **folder, struct glm_error *err);

/* Judges one entry folder: *usable false when there is none, when it lacks `object`, or when its
 * files do not have their recorded digests (which is logged). GLM_EKERNEL, with the rm to run as
 * hint, when the folder or a file in it belongs to somebody else or may be written by others. */
enum glm_status glm_cache_check(const char *entry, const char *digest, const char *object,
                                bool *usable, struct glm_error *err);

/* A new temporary folder inside the cache that holds the files. */
enum glm_status glm_cache_stage(const char *cache, const struct glm_cache_file *files,
                                uint32_t n_files, struct arena *arena, const char **stage,
                                struct glm_error *err);

/* Writes params.json (`about`: its members before "files"), makes everything durable and renames
 * the stage to the entry. Losing the race against another rank's equal entry is success. */
enum glm_status glm_cache_publish(const char *stage, const char *entry, const char *digest,
                                  const char *object, const char *about, struct glm_error *err);

/* An entry's params.json. */
enum glm_status glm_cache_about(const char *entry, struct buf *text, struct glm_error *err);

/* Removes a stage or entry folder and its files; nothing when it is absent. */
void glm_cache_remove(const char *folder);

/* Removes temporary folders that a killed build left more than an hour ago. */
void glm_cache_sweep(const char *cache);

#endif
