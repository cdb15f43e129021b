/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of operation lists, one function an operation, and the claims they make on the pool.
 * Owns streams' and kept states' bookkeeping; rows are moved by state.c, programs are run by
 * engine.c. A list is first applied to a copy of the books: what fails there has not happened. */
#include "runtime/book.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const op_texts[GLM_N_OPS] = {"ADMIT", "FILL",    "DECODE", "COMMIT", "MOVE",
                                                "SAVE",  "RESTORE", "DROP",   "FINISH", "STOP"};

const char *glm_op_text(enum glm_op_kind kind)
{
    return (unsigned)kind < GLM_N_OPS ? op_texts[kind] : "unknown";
}

/* What one rule needs to see. */
struct entry {
    struct glm_book *book;
    const struct glm_op *op;
    const struct glm_op *previous; /* NULL for the first */
    uint32_t op_i;
    struct glm_extent_copies copies;
    struct glm_error *err;
};

#define REFUSE(e, ...) (refuse((e), __VA_ARGS__), GLM_EINVAL)
static void refuse(const struct entry *e, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void refuse(const struct entry *e, const char *format, ...)
{
    char rule[256];
    va_list args;
    va_start(args, format);
    vsnprintf(rule, sizeof rule, format, args);
    va_end(args);
    glm_fail(e->err, GLM_EINVAL, "cannot run operation %u (%s): %s", e->op_i,
             glm_op_text(e->op->kind), rule);
}

static enum glm_status claim(const struct entry *e, uint32_t n, int32_t *extents)
{
    if (glm_pool_claim(&e->book->pool, n, extents))
        return GLM_OK;
    return glm_fail(e->err, GLM_EAGAIN,
                    "cannot run operation %u (%s): it needs %u pool extents, %u of %u are free",
                    e->op_i, glm_op_text(e->op->kind), n, e->book->pool.n_free,
                    e->book->pool.n_extents);
}

uint32_t glm_book_extents(const struct glm_book *b, uint32_t n_tokens)
{
    uint64_t rows = (uint64_t)n_tokens + (uint64_t)b->max_offset;
    return (uint32_t)((rows + GLM_EXTENT_ROWS - 1) / GLM_EXTENT_ROWS);
}

/* Extents whose every row of every plane lies before the context's end: nobody writes them again,
 * so holders can share them. */
static uint32_t full_extents(const struct glm_book *b, uint32_t n_context)
{
    int64_t rows = (int64_t)n_context + b->min_offset;
    return rows > 0 ? (uint32_t)(rows / GLM_EXTENT_ROWS) : 0;
}

static enum glm_status stream_of(const struct entry *e, bool active, struct glm_holder **out)
{
    if (e->op->stream >= e->book->n_streams)
        return REFUSE(e, "stream %u is not below the lane's %u", e->op->stream, e->book->n_streams);
    struct glm_holder *h = &e->book->holders[e->op->stream];
    if (h->active != active)
        return REFUSE(e, "stream %u is %s", e->op->stream,
                      active ? "not admitted" : "already admitted");
    *out = h;
    return GLM_OK;
}

/* An admitted stream without rows waiting for their COMMIT. */
static enum glm_status settled_stream(const struct entry *e, struct glm_holder **out)
{
    enum glm_status st = stream_of(e, true, out);
    if (st == GLM_OK && (*out)->n_pending > 0)
        return REFUSE(e, "stream %u has %u decoded rows that wait for COMMIT", e->op->stream,
                      (*out)->n_pending);
    return st;
}

static enum glm_status kept_of(const struct entry *e, bool active, struct glm_holder **out)
{
    if (e->op->kept >= e->book->n_kept)
        return REFUSE(e, "kept state %u is not below the plan's %u", e->op->kept, e->book->n_kept);
    struct glm_holder *h = &e->book->holders[e->book->n_streams + e->op->kept];
    if (h->active != active)
        return REFUSE(e, "kept state %u is %s", e->op->kept, active ? "empty" : "in use");
    *out = h;
    return GLM_OK;
}

static enum glm_status room_rule(const struct entry *e)
{
    uint32_t window = e->book->plan->limits.window_tokens;
    if (e->op->n_tokens == 0 || e->op->n_tokens > window)
        return REFUSE(e, "room for %u tokens is not within 1 to the window of %u", e->op->n_tokens,
                      window);
    return GLM_OK;
}

static enum glm_status tokens_rule(const struct entry *e, const struct glm_holder *h,
                                   uint32_t max_rows)
{
    const struct glm_op *op = e->op;
    if (op->n == 0 || op->n > max_rows)
        return REFUSE(e, "%u rows are not within 1 to %u", op->n, max_rows);
    if (op->n > h->n_room - h->n_context)
        return REFUSE(e, "%u rows after %u tokens exceed the %u that stream %u has room for", op->n,
                      h->n_context, h->n_room, op->stream);
    if (!op->tokens)
        return REFUSE(e, "it has no tokens");
    for (uint32_t i = 0; i < op->n; i++)
        if (op->tokens[i] < 0 || (uint32_t)op->tokens[i] >= e->book->plan->d_vocab)
            return REFUSE(e, "token %d at index %u is not in the vocabulary of %u", op->tokens[i],
                          i, e->book->plan->d_vocab);
    return GLM_OK;
}

static enum glm_status apply_admit(struct entry *e)
{
    struct glm_holder *h = NULL;
    enum glm_status st = stream_of(e, false, &h);
    if (st == GLM_OK)
        st = room_rule(e);
    if (st != GLM_OK)
        return st;
    uint32_t n = glm_book_extents(e->book, e->op->n_tokens);
    st = claim(e, n, h->extents);
    if (st != GLM_OK)
        return st;
    int32_t *extents = h->extents;
    *h = (struct glm_holder){
        .active = true, .n_room = e->op->n_tokens, .n_extents = n, .extents = extents};
    return GLM_OK;
}

static enum glm_status apply_fill(struct entry *e)
{
    struct glm_book *b = e->book;
    struct glm_holder *h = NULL;
    enum glm_status st = settled_stream(e, &h);
    if (st == GLM_OK && h->n_context % GLM_BLOCK_ROWS != 0)
        return REFUSE(e, "stream %u ends at token %u, not on the grid of %d", e->op->stream,
                      h->n_context, GLM_BLOCK_ROWS);
    if (st == GLM_OK && b->list_fills++ > 0)
        return REFUSE(e, "a list has one FILL at most");
    if (st == GLM_OK)
        st = tokens_rule(e, h, b->plan->limits.prefill_rows);
    if (st != GLM_OK)
        return st;
    if (e->op->out_from > e->op->n)
        return REFUSE(e, "its first wanted row %u lies after its %u rows", e->op->out_from,
                      e->op->n);
    if (e->op->n - e->op->out_from > b->n_outs_prefill)
        return REFUSE(e, "%u wanted rows exceed the plan's %u a slice", e->op->n - e->op->out_from,
                      b->n_outs_prefill);
    h->n_context += e->op->n;
    return GLM_OK;
}

static enum glm_status apply_decode(struct entry *e)
{
    struct glm_book *b = e->book;
    struct glm_holder *h = NULL;
    bool first = !e->previous || e->previous->kind != GLM_OP_DECODE;
    if (first && b->list_decodes++ > 0)
        return REFUSE(e, "a list has one run of DECODEs at most");
    for (uint32_t i = 0; first && i < b->n_streams; i++)
        if (b->holders[i].active && b->holders[i].n_pending > 0)
            return REFUSE(e, "stream %u has %u decoded rows that wait for COMMIT", i,
                          b->holders[i].n_pending);
    enum glm_status st = settled_stream(e, &h);
    if (st == GLM_OK)
        st = tokens_rule(e, h, b->plan->limits.verify_rows);
    if (st == GLM_OK && e->op->n > b->n_rows_decode - b->list_rows)
        return REFUSE(e, "%u rows after %u of this round exceed the plan's %u", e->op->n,
                      b->list_rows, b->n_rows_decode);
    if (st != GLM_OK)
        return st;
    b->list_rows += e->op->n;
    h->n_pending = e->op->n;
    return GLM_OK;
}

static enum glm_status apply_commit(struct entry *e)
{
    struct glm_holder *h = NULL;
    enum glm_status st = stream_of(e, true, &h);
    if (st != GLM_OK)
        return st;
    if (h->n_pending == 0)
        return REFUSE(e, "stream %u has no decoded rows", e->op->stream);
    if (e->op->n > h->n_pending)
        return REFUSE(e, "%u rows exceed the %u that stream %u decoded", e->op->n, h->n_pending,
                      e->op->stream);
    bool partial = e->op->n > 0 && e->op->n < h->n_pending;
    if (partial && (e->book->has_snapshot || !e->book->has_replay))
        return REFUSE(e, "%u of %u rows cannot be kept: the plan has no commit program", e->op->n,
                      h->n_pending);
    h->n_context += e->op->n;
    h->n_pending = 0;
    if (e->op->n > 0)
        h->version ^= 1;
    return GLM_OK;
}

static enum glm_status apply_move(struct entry *e)
{
    struct glm_book *b = e->book;
    struct glm_holder *h = NULL;
    enum glm_status st = settled_stream(e, &h);
    if (st != GLM_OK)
        return st;
    memcpy(b->old_extents, h->extents, h->n_extents * sizeof *h->extents);
    st = claim(e, h->n_extents, h->extents);
    if (st != GLM_OK)
        return st;
    for (uint32_t i = 0; i < h->n_extents; i++)
        glm_pool_drop(&b->pool, b->old_extents[i]);
    e->copies =
        (struct glm_extent_copies){.n = h->n_extents, .from = b->old_extents, .to = h->extents};
    return GLM_OK;
}

/* `to` becomes a holder of from's state: full extents shared, the others its own. */
static enum glm_status fork_holder(struct entry *e, const struct glm_holder *from,
                                   struct glm_holder *to, uint32_t n_room, uint32_t n_extents)
{
    uint32_t n_full = full_extents(e->book, from->n_context);
    uint32_t n_used = from->n_context > 0 ? glm_book_extents(e->book, from->n_context) : 0;
    GLM_ASSERT(n_full <= n_used && n_used <= n_extents && n_used <= from->n_extents);
    enum glm_status st = claim(e, n_extents - n_full, to->extents + n_full);
    if (st != GLM_OK)
        return st;
    for (uint32_t i = 0; i < n_full; i++) {
        glm_pool_share(&e->book->pool, from->extents[i]);
        to->extents[i] = from->extents[i];
    }
    int32_t *extents = to->extents;
    *to = (struct glm_holder){.active = true,
                              .n_context = from->n_context,
                              .n_room = n_room,
                              .n_extents = n_extents,
                              .extents = extents};
    e->copies = (struct glm_extent_copies){.first = n_full,
                                           .n = n_used - n_full,
                                           .from = from->extents + n_full,
                                           .to = extents + n_full};
    return GLM_OK;
}

static enum glm_status apply_save(struct entry *e)
{
    struct glm_holder *h = NULL, *kept = NULL;
    enum glm_status st = settled_stream(e, &h);
    if (st == GLM_OK)
        st = kept_of(e, false, &kept);
    if (st != GLM_OK)
        return st;
    if (h->n_context == 0)
        return REFUSE(e, "stream %u has no tokens yet", e->op->stream);
    return fork_holder(e, h, kept, h->n_context, glm_book_extents(e->book, h->n_context));
}

static enum glm_status apply_restore(struct entry *e)
{
    struct glm_holder *h = NULL, *kept = NULL;
    enum glm_status st = stream_of(e, false, &h);
    if (st == GLM_OK)
        st = kept_of(e, true, &kept);
    if (st == GLM_OK)
        st = room_rule(e);
    if (st != GLM_OK)
        return st;
    if (e->op->n_tokens < kept->n_context)
        return REFUSE(e, "room for %u tokens is less than the kept state's %u", e->op->n_tokens,
                      kept->n_context);
    return fork_holder(e, kept, h, e->op->n_tokens, glm_book_extents(e->book, e->op->n_tokens));
}

static void forget(struct glm_book *b, struct glm_holder *h)
{
    for (uint32_t i = 0; i < h->n_extents; i++)
        glm_pool_drop(&b->pool, h->extents[i]);
    *h = (struct glm_holder){.extents = h->extents};
}

static enum glm_status apply_drop(struct entry *e)
{
    struct glm_holder *kept = NULL;
    enum glm_status st = kept_of(e, true, &kept);
    if (st == GLM_OK)
        forget(e->book, kept);
    return st;
}

static enum glm_status apply_finish(struct entry *e)
{
    struct glm_holder *h = NULL;
    enum glm_status st = stream_of(e, true, &h);
    if (st == GLM_OK)
        forget(e->book, h);
    return st;
}

static enum glm_status apply_stop(struct entry *e)
{
    e->book->list_stopped = true;
    return GLM_OK;
}

typedef enum glm_status (*apply_op)(struct entry *e);
static const apply_op appliers[GLM_N_OPS] = {
    apply_admit, apply_fill,    apply_decode, apply_commit, apply_move,
    apply_save,  apply_restore, apply_drop,   apply_finish, apply_stop,
};

void glm_book_begin(struct glm_book *b)
{
    b->list_fills = 0;
    b->list_decodes = 0;
    b->list_rows = 0;
    b->list_stopped = false;
}

enum glm_status glm_book_apply(struct glm_book *b, const struct glm_op *ops, uint32_t n_ops,
                               uint32_t i, struct glm_extent_copies *copies, struct glm_error *err)
{
    GLM_ASSERT(i < n_ops);
    struct entry e = {
        .book = b, .op = &ops[i], .previous = i > 0 ? &ops[i - 1] : NULL, .op_i = i, .err = err};
    if ((unsigned)ops[i].kind >= GLM_N_OPS)
        return REFUSE(&e, "there is no operation %u", (unsigned)ops[i].kind);
    if (b->list_stopped)
        return REFUSE(&e, "nothing may follow STOP");
    enum glm_status st = appliers[ops[i].kind](&e);
    if (st == GLM_OK && copies)
        *copies = e.copies;
    return st;
}

void glm_book_copy(struct glm_book *to, const struct glm_book *from)
{
    GLM_ASSERT(to->plan == from->plan);
    glm_pool_copy(&to->pool, &from->pool);
    for (uint32_t i = 0; i < from->n_streams + from->n_kept; i++) {
        int32_t *extents = to->holders[i].extents;
        to->holders[i] = from->holders[i];
        to->holders[i].extents = extents;
        memcpy(extents, from->holders[i].extents, from->holders[i].n_extents * sizeof *extents);
    }
    to->list_fills = from->list_fills;
    to->list_decodes = from->list_decodes;
    to->list_rows = from->list_rows;
    to->list_stopped = from->list_stopped;
}

static enum glm_status check_limits(const struct glm_plan_limits *l, struct glm_error *err)
{
    if (l->n_streams == 0 || l->n_streams > GLM_ROUND_STREAMS || l->n_slots < l->n_streams)
        return glm_fail(err, GLM_EPLAN,
                        "cannot run the plan: %u streams in %u slots, 1 to %d streams are possible",
                        l->n_streams, l->n_slots, GLM_ROUND_STREAMS);
    if (l->verify_rows == 0 || l->verify_rows > GLM_MAX_VERIFY_ROWS || l->prefill_rows == 0 ||
        l->prefill_rows % GLM_BLOCK_ROWS != 0)
        return glm_fail(err, GLM_EPLAN,
                        "cannot run the plan: %u verify rows (1 to %d) and %u prefill rows (a "
                        "multiple of %d)",
                        l->verify_rows, GLM_MAX_VERIFY_ROWS, l->prefill_rows, GLM_BLOCK_ROWS);
    if (l->pool_tokens % GLM_EXTENT_ROWS != 0 || l->pool_tokens / GLM_EXTENT_ROWS > INT32_MAX ||
        l->window_tokens > INT32_MAX / 2)
        return glm_fail(err, GLM_EPLAN,
                        "cannot run the plan: a pool of %llu tokens is not whole extents of %d",
                        (unsigned long long)l->pool_tokens, GLM_EXTENT_ROWS);
    return GLM_OK;
}

static enum glm_status read_rollbacks(struct glm_book *b, struct glm_error *err)
{
    for (uint32_t i = 0; i < b->plan->n_states; i++) {
        const struct glm_plan_state *s = &b->plan->states[i];
        if (s->unit == GLM_UNIT_TOKEN || s->unit == GLM_UNIT_POOL) {
            b->min_offset = s->position_offset < b->min_offset ? s->position_offset : b->min_offset;
            b->max_offset = s->position_offset > b->max_offset ? s->position_offset : b->max_offset;
        }
        if (strcmp(s->rollback, "snapshot") == 0)
            b->has_snapshot = true;
        else if (strncmp(s->rollback, "replay:", 7) == 0 && !b->has_replay)
            return glm_fail(err, GLM_EPLAN,
                            "cannot run the plan: state '%s' rolls back by '%s', but there is no "
                            "program 'commit'",
                            s->name, s->rollback);
    }
    if (b->min_offset < -GLM_EXTENT_ROWS || b->max_offset > GLM_EXTENT_ROWS)
        return glm_fail(err, GLM_EPLAN,
                        "cannot run the plan: position offsets %d to %d exceed an extent",
                        b->min_offset, b->max_offset);
    return GLM_OK;
}

static const struct glm_plan_arena *arena_of(const struct glm_plan *p, const char *program)
{
    const struct glm_plan_program *g = glm_plan_program(p, program);
    for (uint32_t i = 0; g && i < p->n_arenas; i++)
        if (strcmp(p->arenas[i].name, g->arena) == 0)
            return &p->arenas[i];
    return NULL;
}

enum glm_status glm_book_init(struct glm_book *b, const struct glm_plan *plan, struct arena *arena,
                              struct glm_error *err)
{
    enum glm_status st = check_limits(&plan->limits, err);
    if (st != GLM_OK)
        return st;
    const struct glm_plan_limits *l = &plan->limits;
    *b = (struct glm_book){.plan = plan,
                           .n_streams = l->n_streams,
                           .n_kept = l->n_slots - l->n_streams,
                           .has_replay = l->verify_rows == 1 || glm_plan_program(plan, "commit")};
    st = read_rollbacks(b, err);
    if (st != GLM_OK)
        return st;
    const struct glm_plan_arena *decode = arena_of(plan, "decode");
    const struct glm_plan_arena *prefill = arena_of(plan, "prefill");
    if (!decode || !prefill || prefill->n_rows < l->prefill_rows || decode->n_rows < l->n_streams ||
        decode->n_rows < l->verify_rows || decode->n_outs < decode->n_rows)
        return glm_fail(err, GLM_EPLAN,
                        "cannot run the plan: its arenas do not hold %u streams' decode rows, each "
                        "wanted, and %u prefill rows",
                        l->n_streams, l->prefill_rows);
    b->n_outs_prefill = prefill->n_outs;
    b->n_rows_decode = decode->n_rows;
    b->table = glm_book_extents(b, l->window_tokens);
    uint32_t n_extents = (uint32_t)(l->pool_tokens / GLM_EXTENT_ROWS);
    uint16_t *counts = ARENA_ARRAY(arena, n_extents > 0 ? n_extents : 1, uint16_t);
    b->holders = ARENA_ARRAY(arena, l->n_slots, struct glm_holder);
    int32_t *extents = arena_array(arena, (size_t)l->n_slots + 1, b->table * sizeof *extents);
    if (!counts || !b->holders || !extents)
        return glm_fail(err, GLM_ENOMEM, "cannot keep the books of %u slots: out of memory",
                        l->n_slots);
    glm_pool_init(&b->pool, counts, n_extents);
    for (uint32_t i = 0; i < l->n_slots; i++)
        b->holders[i].extents = extents + (size_t)i * b->table;
    b->old_extents = extents + (size_t)l->n_slots * b->table;
    return GLM_OK;
}
