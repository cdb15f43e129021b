/* SPDX-License-Identifier: Apache-2.0 */
/* Bump allocation in blocks of at least 64 KiB, zeroed, with one limit over all blocks. */
#include "spec/base/arena.h"

#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct arena_block {
    struct arena_block *next;
    size_t size_bytes;
    size_t used_bytes;
    alignas(max_align_t) unsigned char data[];
};

enum { BLOCK_BYTES = 64 * 1024 };

void arena_init(struct arena *a, size_t limit_bytes)
{
    *a = (struct arena){.limit_bytes = limit_bytes};
}

void arena_release(struct arena *a)
{
    struct arena_block *block = a->blocks;
    while (block != NULL) {
        struct arena_block *next = block->next;
        free(block);
        block = next;
    }
    a->blocks = NULL;
    a->used_bytes = 0;
}

void *arena_alloc(struct arena *a, size_t bytes)
{
    const size_t align = alignof(max_align_t);
    if (bytes > SIZE_MAX - align)
        return NULL;
    bytes = (bytes + align - 1) / align * align;
    if (bytes > a->limit_bytes - a->used_bytes)
        return NULL;
    struct arena_block *block = a->blocks;
    if (block == NULL || block->size_bytes - block->used_bytes < bytes) {
        size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        block = calloc(1, sizeof *block + size);
        if (block == NULL)
            return NULL;
        block->size_bytes = size;
        block->next = a->blocks;
        a->blocks = block;
    }
    void *p = block->data + block->used_bytes;
    block->used_bytes += bytes;
    a->used_bytes += bytes;
    return p;
}

void *arena_array(struct arena *a, size_t n, size_t size)
{
    if (size != 0 && n > SIZE_MAX / size)
        return NULL;
    return arena_alloc(a, n * size);
}

char *arena_strndup(struct arena *a, const char *text, size_t len)
{
    char *copy = len == SIZE_MAX ? NULL : arena_alloc(a, len + 1);
    if (copy != NULL && len > 0)
        memcpy(copy, text, len);
    return copy;
}

char *arena_strdup(struct arena *a, const char *text)
{
    return arena_strndup(a, text, strlen(text));
}

char *arena_printf(struct arena *a, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = len < 0 ? NULL : arena_alloc(a, (size_t)len + 1);
    if (text != NULL)
        vsnprintf(text, (size_t)len + 1, format, again);
    va_end(again);
    return text;
}
