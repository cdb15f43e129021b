/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors by name: the hash table behind glm_checkpoint_find, and the byte-order sort. */
#include "spec/names.h"

#include <xxhash.h>

#include <stdlib.h>
#include <string.h>

enum glm_status name_index_build(struct name_index *index, struct arena *arena,
                                 const struct glm_tensor *tensors, uint32_t n, uint32_t *first,
                                 uint32_t *second, struct glm_error *err)
{
    uint32_t n_slots = 16;
    while (n_slots < UINT32_MAX / 4 && n_slots / 2 < n)
        n_slots *= 2;
    *index = (struct name_index){.n_slots = n_slots, .owned = arena == NULL};
    *first = *second = 0;
    index->slots =
        arena == NULL ? calloc(n_slots, sizeof(uint32_t)) : ARENA_ARRAY(arena, n_slots, uint32_t);
    if (index->slots == NULL || n_slots / 2 < n) {
        name_index_release(index);
        return glm_fail(err, GLM_ENOMEM, "out of memory for the names of %u tensors", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        const char *name = tensors[i].name;
        uint32_t at = (uint32_t)XXH3_64bits(name, strlen(name)) & (n_slots - 1);
        while (index->slots[at] != 0) {
            uint32_t other = index->slots[at] - 1;
            if (*second == 0 && strcmp(tensors[other].name, name) == 0) {
                *first = other;
                *second = i;
            }
            at = (at + 1) & (n_slots - 1);
        }
        index->slots[at] = i + 1;
    }
    return GLM_OK;
}

void name_index_release(struct name_index *index)
{
    if (index->owned)
        free(index->slots);
    index->slots = NULL;
}

uint32_t name_index_find(const uint32_t *slots, uint32_t n_slots, const struct glm_tensor *tensors,
                         const char *name)
{
    if (n_slots == 0)
        return UINT32_MAX;
    uint32_t at = (uint32_t)XXH3_64bits(name, strlen(name)) & (n_slots - 1);
    for (; slots[at] != 0; at = (at + 1) & (n_slots - 1))
        if (strcmp(tensors[slots[at] - 1].name, name) == 0)
            return slots[at] - 1;
    return UINT32_MAX;
}

static int by_name(const void *a, const void *b)
{
    const struct glm_tensor *x = *(const struct glm_tensor *const *)a;
    const struct glm_tensor *y = *(const struct glm_tensor *const *)b;
    return strcmp(x->name, y->name);
}

enum glm_status names_sort(struct glm_tensor *tensors, uint32_t n, struct glm_error *err)
{
    if (n < 2)
        return GLM_OK;
    const struct glm_tensor **order = malloc(n * sizeof(void *));
    struct glm_tensor *copy = malloc(n * sizeof *copy);
    enum glm_status status = GLM_OK;
    if (order == NULL || copy == NULL) {
        status = glm_fail(err, GLM_ENOMEM, "out of memory for the names of %u tensors", n);
        goto out;
    }
    memcpy(copy, tensors, n * sizeof *copy);
    for (uint32_t i = 0; i < n; i++)
        order[i] = &copy[i];
    qsort(order, n, sizeof(void *), by_name);
    for (uint32_t i = 0; i < n; i++)
        tensors[i] = *order[i];
out:
    free(copy);
    free(order);
    return status;
}
