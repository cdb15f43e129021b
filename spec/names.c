/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors by name: the hash table behind glm_checkpoint_find and the byte-order sort. A full pack has
 * 150,000 names that share long prefixes, so the sort compares eight bytes at a time and no byte twice. */
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
    *index = (struct name_index){ .n_slots = n_slots, .owned = arena == NULL };
    *first = *second = 0;
    index->slots = arena == NULL ? calloc(n_slots, sizeof(uint32_t))
                                 : ARENA_ARRAY(arena, n_slots, uint32_t);
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

/* ---- sorting ---- */

struct entry {
    uint64_t key; /* the name's bytes depth .. depth + 7, the first one highest, 0 past its end */
    const struct glm_tensor *tensor;
};

static uint64_t key_at(const char *name, size_t depth)
{
    uint64_t key = 0;
    for (size_t i = 0; i < 8; i++) {
        unsigned char c = (unsigned char)name[depth + i];
        key |= (uint64_t)c << (56 - 8 * i);
        if (c == '\0')
            break;
    }
    return key;
}

static void swap(struct entry *a, struct entry *b)
{
    struct entry t = *a;
    *a = *b;
    *b = t;
}

static bool before(const struct entry *a, const struct entry *b, size_t depth)
{
    if (a->key != b->key)
        return a->key < b->key;
    return (a->key & 0xFF) != 0 &&
           strcmp(a->tensor->name + depth + 8, b->tensor->name + depth + 8) < 0;
}

static void insertion_sort(struct entry *e, size_t n, size_t depth)
{
    for (size_t i = 1; i < n; i++)
        for (size_t k = i; k > 0 && before(&e[k], &e[k - 1], depth); k--)
            swap(&e[k], &e[k - 1]);
}

/* Quicksort on eight bytes at a time. Keys at `depth` are set; names agree before it. The pivot's place
 * is hashed, so that no file can be arranged to make it slow. */
static void sort_from(struct entry *e, size_t n, size_t depth)
{
    while (n > 12) {
        uint64_t pivot = e[XXH3_64bits(&n, sizeof n) % n].key;
        size_t less = 0;
        size_t more = n;
        for (size_t i = 0; i < more;) {
            if (e[i].key < pivot)
                swap(&e[i++], &e[less++]);
            else if (e[i].key > pivot)
                swap(&e[i], &e[--more]);
            else
                i++;
        }
        size_t n_equal = more - less;
        if ((pivot & 0xFF) != 0 && n_equal > 1) { /* a 0 byte: the names end alike */
            for (size_t i = less; i < more; i++)
                e[i].key = key_at(e[i].tensor->name, depth + 8);
            sort_from(e + less, n_equal, depth + 8);
        }
        /* The smaller side by recursion, the larger one here: the stack stays short. */
        if (less < n - more) {
            sort_from(e, less, depth);
            e += more;
            n -= more;
        } else {
            sort_from(e + more, n - more, depth);
            n = less;
        }
    }
    insertion_sort(e, n, depth);
}

enum glm_status names_sort(struct glm_tensor *tensors, uint32_t n, struct glm_error *err)
{
    if (n < 2)
        return GLM_OK;
    struct entry *order = malloc(n * sizeof *order);
    struct glm_tensor *copy = malloc(n * sizeof *copy);
    enum glm_status status = GLM_OK;
    if (order == NULL || copy == NULL) {
        status = glm_fail(err, GLM_ENOMEM, "out of memory for the names of %u tensors", n);
        goto out;
    }
    memcpy(copy, tensors, n * sizeof *copy);
    for (uint32_t i = 0; i < n; i++)
        order[i] = (struct entry){ .key = key_at(copy[i].name, 0), .tensor = &copy[i] };
    sort_from(order, n, 0);
    for (uint32_t i = 0; i < n; i++)
        tensors[i] = *order[i].tensor;
out:
    free(copy);
    free(order);
    return status;
}
