/* SPDX-License-Identifier: Apache-2.0 */
/* An arena with a byte limit: everything the compiler builds (spec, geometry, plan, source) lives
 * in one and is released at once. Not thread-safe: one arena, one thread. */
#ifndef GLM_BASE_ARENA_H
#define GLM_BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

struct arena_block;
struct arena {
    struct arena_block *blocks;
    size_t limit_bytes;
    size_t used_bytes;
};

void arena_init(struct arena *a, size_t limit_bytes);
void arena_release(struct arena *a);

/* Zeroed memory aligned for any type. Running over the arena's limit is reported by NULL; with the
 * `_or_die` forms absent on purpose, callers check and answer GLM_ENOMEM. */
void *arena_alloc(struct arena *a, size_t bytes);
/* n * size with an overflow check. */
void *arena_array(struct arena *a, size_t n, size_t size);
char *arena_strndup(struct arena *a, const char *text, size_t len);
char *arena_strdup(struct arena *a, const char *text);
char *arena_printf(struct arena *a, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define ARENA_NEW(a, type)      ((type *)arena_alloc((a), sizeof(type)))
#define ARENA_ARRAY(a, n, type) ((type *)arena_array((a), (n), sizeof(type)))

#endif
