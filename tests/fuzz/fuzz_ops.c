/* SPDX-License-Identifier: Apache-2.0 */
/* Operation lists as another rank receives them: any bytes are read, and what reads as a list is
 * applied to the books. Refused or not, the books stay whole: every extent is held as often as it
 * is counted. */
#include "runtime/book.h"
#include "runtime/ops.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct glm_plan_state states[] = {
    {.name = "rows", .unit = GLM_UNIT_TOKEN, .row_bytes = 8, .rollback = "position"},
    {.name = "late",
     .unit = GLM_UNIT_TOKEN,
     .row_bytes = 8,
     .rollback = "position",
     .position_offset = -1},
};
static struct glm_plan_arena arenas[] = {{"decode", 32, 32}, {"prefill", 128, 16}};
static struct glm_plan_program programs[] = {
    {.name = "decode", .arena = "decode"},
    {.name = "prefill", .arena = "prefill"},
    {.name = "commit", .arena = "decode"},
};
static const struct glm_plan plan = {
    .d_vocab = 100,
    .limits = {.n_streams = 4,
               .n_slots = 6,
               .window_tokens = 8192,
               .pool_tokens = 10 * 2048,
               .verify_rows = 16,
               .prefill_rows = 128},
    .states = states,
    .n_states = 2,
    .arenas = arenas,
    .n_arenas = 2,
    .programs = programs,
    .n_programs = 3,
};

static void check_books(const struct glm_book *b)
{
    uint16_t counts[16] = {0};
    uint32_t n_free = 0;
    for (uint32_t i = 0; i < b->n_streams + b->n_kept; i++) {
        const struct glm_holder *h = &b->holders[i];
        GLM_ASSERT(h->n_context + h->n_pending <= h->n_room || !h->active);
        for (uint32_t k = 0; k < h->n_extents; k++)
            counts[h->extents[k]]++;
    }
    for (uint32_t i = 0; i < b->pool.n_extents; i++) {
        GLM_ASSERT(counts[i] == b->pool.counts[i]);
        n_free += counts[i] == 0;
    }
    GLM_ASSERT(n_free == b->pool.n_free);
}

/* The input is a row of lists, each with its length in front, applied one after another as the
 * engine does: first to a copy. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    struct glm_book book, trial;
    struct glm_op_list l;
    struct glm_error err = {0};
    arena_init(&arena, 4 << 20);
    GLM_ASSERT(glm_book_init(&book, &plan, &arena, &err) == GLM_OK);
    GLM_ASSERT(glm_book_init(&trial, &plan, &arena, &err) == GLM_OK);
    GLM_ASSERT(glm_op_list_init(&l, &plan, &arena, &err) == GLM_OK);
    while (size >= 2) {
        l.len = (size_t)data[0] | (size_t)data[1] << 8;
        data += 2;
        size -= 2;
        l.len = l.len < size ? l.len : size;
        l.len = l.len < l.capacity ? l.len : l.capacity;
        memcpy(l.bytes, data, l.len);
        data += l.len;
        size -= l.len;
        err = (struct glm_error){0};
        if (glm_ops_read(&l, &err) != GLM_OK)
            continue;
        glm_book_copy(&trial, &book);
        glm_book_begin(&trial);
        enum glm_status st = GLM_OK;
        for (uint32_t i = 0; st == GLM_OK && i < l.n_ops; i++)
            st = glm_book_apply(&trial, l.ops, l.n_ops, i, NULL, &err);
        if (st == GLM_OK)
            glm_book_copy(&book, &trial);
        check_books(&book);
    }
    arena_release(&arena);
    return 0;
}
