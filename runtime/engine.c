/* SPDX-License-Identifier: Apache-2.0 */
/* The engine behind the seam: opens a rank (kernels, memory, weights, programs) and runs operation
 * lists: tried on a copy of the books, sent to the other ranks, then done op by op. Rules are
 * book.c's, rows state.c's, programs exec.c's; here is only the order of things. */
#include "runtime/engine.h"

#include "runtime/exec_step.h"
#include "runtime/ops.h"
#include "runtime/round_table.h"
#include "runtime/weights.h"

#include <stdlib.h>
#include <string.h>

enum { ENGINE_ARENA_LIMIT = 1 << 29 };

/* Where a wanted logits row of the last list lies. */
struct out_place {
    uint32_t arena_i, row;
};

struct glm_engine {
    struct arena arena;
    const struct glm_plan *plan;
    struct glm_collective *collective;
    struct glm_book book, trial;
    struct glm_states states;
    struct glm_memory memory;
    struct glm_device *device;
    struct glm_exec exec;
    struct glm_op_list list;
    struct glm_round_table decode, prefill, commit;
    const struct glm_exec_program *decode_program, *prefill_program, *commit_program;
    uint32_t running_arena;
    struct out_place *outs; /* [max_outs] */
    int32_t *tokens;        /* [max_outs] */
    int32_t *drawn;         /* [max_outs] of one program */
    uint32_t n_out, max_outs;
    uint32_t first_id; /* of this rank's logits */
    bool lost;         /* a round was lost: planes are no longer what the books say */
    glm_mark_hook hook;
    void *hook_context;
    struct glm_engine_stats stats;
};

/* ---- opening ---- */

/* The vocabulary ids that this rank's logits start at: what its candidates are offered from. */
static void find_first_id(struct glm_engine *e)
{
    const struct glm_plan_program *g = glm_plan_program(e->plan, "sample");
    for (uint32_t i = 0; g && i < g->n_steps; i++) {
        const struct glm_plan_kernel *k =
            g->steps[i].kind == GLM_STEP_KERNEL ? glm_plan_kernel(e->plan, g->steps[i].name) : NULL;
        for (uint32_t p = 0; k && p < k->n_params; p++)
            if (strcmp(k->params[p].name, "FIRST") == 0 && !k->params[p].text)
                e->first_id = (uint32_t)k->params[p].value;
    }
}

static enum glm_status init_tables(struct glm_engine *e, struct glm_error *err)
{
    const struct glm_plan_limits *l = &e->plan->limits;
    uint32_t n_decode = e->book.n_rows_decode, n_prefill = e->book.n_outs_prefill;
    uint32_t n_extents = l->n_streams * e->book.table;
    enum glm_status st = glm_round_table_init(&e->decode, n_decode, l->n_streams, n_extents,
                                              n_decode, &e->arena, err);
    if (st == GLM_OK)
        st = glm_round_table_init(&e->commit, n_decode, l->n_streams, n_extents, 0, &e->arena, err);
    if (st == GLM_OK)
        st = glm_round_table_init(&e->prefill, l->prefill_rows, 1, e->book.table, n_prefill,
                                  &e->arena, err);
    if (st != GLM_OK)
        return st;
    e->max_outs = n_decode + n_prefill;
    e->outs = ARENA_ARRAY(&e->arena, e->max_outs, struct out_place);
    e->tokens = ARENA_ARRAY(&e->arena, e->max_outs, int32_t);
    e->drawn = ARENA_ARRAY(&e->arena, e->max_outs, int32_t);
    if (!e->outs || !e->tokens || !e->drawn)
        return glm_fail(err, GLM_ENOMEM, "cannot keep %u results: out of memory", e->max_outs);
    return GLM_OK;
}

/* `ends`: the model's end ids, then -1, wherever a program wants them. */
static enum glm_status fill_ends(struct glm_engine *e, struct glm_error *err)
{
    enum { MAX_ENDS = 64 };
    int32_t ids[MAX_ENDS];
    for (uint32_t a = 0; a < e->plan->n_arenas; a++) {
        const struct glm_plan_buffer *b;
        void *ends = glm_exec_buffer(&e->exec, a, "ends", &b);
        if (!ends)
            continue;
        if (b->per != GLM_PER_ONCE || strcmp(b->dtype, "i32") != 0 ||
            b->n_cols < e->plan->n_end_ids || b->n_cols > MAX_ENDS)
            return glm_fail(err, GLM_EPLAN, "cannot fill buffer 'ends': it does not hold %u ids",
                            e->plan->n_end_ids);
        for (uint32_t i = 0; i < b->n_cols; i++)
            ids[i] = i < e->plan->n_end_ids ? (int32_t)e->plan->end_ids[i] : -1;
        enum glm_status st =
            e->device->ops->put(e->device, ends, ids, b->n_cols * sizeof *ids, err);
        if (st != GLM_OK)
            return st;
    }
    return GLM_OK;
}

static void on_step(void *context, const struct glm_exec_program *program, uint32_t step_i,
                    const struct glm_round *round, bool is_done)
{
    struct glm_engine *e = context;
    const struct glm_exec_step *s = &program->steps[step_i];
    (void)round;
    if (s->kind == GLM_STEP_MARK && !is_done)
        e->hook(e->hook_context, e, program->program->name, s->name, s->layer);
}

static enum glm_status link_programs(struct glm_engine *e, struct glm_error *err)
{
    enum glm_status st = glm_exec_init(&e->exec, &e->arena, err);
    if (st == GLM_OK)
        st = fill_ends(e, err);
    if (st != GLM_OK)
        return st;
    e->decode_program = glm_exec_find(&e->exec, "decode", -1);
    e->prefill_program = glm_exec_find(&e->exec, "prefill", -1);
    e->commit_program = glm_exec_find(&e->exec, "commit", -1);
    if (!e->decode_program || !e->prefill_program)
        return glm_fail(err, GLM_EPLAN, "cannot run the plan: it has no program '%s'",
                        e->decode_program ? "prefill" : "decode");
    if (e->commit_program && e->commit_program->arena_i != e->decode_program->arena_i)
        return glm_fail(err, GLM_EPLAN, "cannot run the plan: 'commit' is not in decode's arena");
    e->running_arena = e->decode_program->arena_i;
    find_first_id(e);
    return GLM_OK;
}

static enum glm_status open_device(struct glm_engine *e, const struct glm_engine_config *c,
                                   struct glm_error *err)
{
    enum glm_status st =
        c->on_gpu ? glm_device_open_cuda(c->gpu, c->gpu_is_shared, c->n_threads, &e->device, err)
                  : glm_device_open_host(c->n_threads, c->host_threads, &e->device, err);
    e->states.device = e->device;
    if (st == GLM_OK)
        st = e->device->ops->load_kernels(e->device, e->plan, c->kernel_paths, c->kernel_digests,
                                          err);
    return st;
}

static enum glm_status open_parts(struct glm_engine *e, const struct glm_engine_config *c,
                                  struct glm_error *err)
{
    struct glm_manifest *manifests;
    uint32_t n_manifests;
    enum glm_status st = glm_manifests_load(&e->arena, &manifests, &n_manifests, err);
    if (st == GLM_OK)
        st = glm_book_init(&e->book, e->plan, &e->arena, err);
    if (st == GLM_OK)
        st = glm_book_init(&e->trial, e->plan, &e->arena, err);
    if (st == GLM_OK)
        st = glm_states_init(&e->states, e->plan, &e->arena, err);
    if (st == GLM_OK)
        st = glm_memory_lay_out(&e->memory, e->plan, &e->states, manifests, n_manifests,
                                c->n_threads, &e->arena, err);
    if (st == GLM_OK)
        st = glm_memory_check(&e->memory, c->memory_limit_bytes, err);
    if (st == GLM_OK)
        st = open_device(e, c, err);
    if (st == GLM_OK)
        st = init_tables(e, err);
    if (st == GLM_OK)
        st = glm_op_list_init(&e->list, e->plan, &e->arena, err);
    if (st == GLM_OK)
        st = glm_memory_take(&e->memory, &e->states, e->device, err);
    if (st != GLM_OK)
        return st;
    e->exec = (struct glm_exec){.plan = e->plan,
                                .memory = &e->memory,
                                .states = &e->states,
                                .manifests = manifests,
                                .n_manifests = n_manifests,
                                .collective = e->collective,
                                .device = e->device};
    st = link_programs(e, err);
    if (st != GLM_OK)
        return st;
    struct glm_weights_load load = {.plan = e->plan,
                                    .memory = &e->memory,
                                    .checkpoint = c->checkpoint,
                                    .device = e->device,
                                    .progress = c->progress,
                                    .progress_context = c->progress_context};
    st = glm_weights_load(&load, err);
    e->stats.memory_bytes = e->memory.bytes;
    return st;
}

enum glm_status glm_engine_open(const struct glm_engine_config *config, struct glm_engine **out,
                                struct glm_error *err)
{
    if (!config->is_alone && (config->plan->world > 1) != (config->collective != NULL))
        return glm_fail(err, GLM_EINVAL, "cannot open rank %u of %u: %s", config->plan->rank,
                        config->plan->world,
                        config->collective ? "one rank needs no collective"
                                           : "several ranks need a collective");
    struct glm_engine *e = calloc(1, sizeof *e);
    if (!e)
        return glm_fail(err, GLM_ENOMEM, "cannot open an engine: out of memory");
    arena_init(&e->arena, ENGINE_ARENA_LIMIT);
    e->plan = config->plan;
    e->collective = config->collective;
    enum glm_status st = open_parts(e, config, err);
    if (st != GLM_OK) {
        glm_engine_free(e);
        return st;
    }
    *out = e;
    return GLM_OK;
}

void glm_engine_free(struct glm_engine *e)
{
    if (!e)
        return;
    glm_device_free(e->device);
    arena_release(&e->arena);
    free(e);
}

/* ---- programs of a list ---- */

static enum glm_status run_program(struct glm_engine *e, const struct glm_exec_program *program,
                                   const struct glm_round_table *t, uint64_t *ns,
                                   struct glm_error *err)
{
    e->running_arena = program->arena_i;
    return glm_exec_run(&e->exec, program, &t->round, ns, err);
}

/* Draws the wanted rows: what a program answers with GLM_DRAW_WIDER the next one decides. */
static enum glm_status draw_tokens(struct glm_engine *e, uint32_t arena_i,
                                   const struct glm_round_table *t, int32_t *tokens, uint64_t *ns,
                                   struct glm_error *err)
{
    static const char *const names[] = {"sample", "sample_wide", "sample_all"};
    uint32_t n_out = (uint32_t)t->round.n_out, n_open = n_out;
    for (uint32_t i = 0; i < n_out; i++)
        tokens[i] = GLM_DRAW_WIDER;
    for (uint32_t s = 0; n_open > 0 && s < sizeof names / sizeof names[0]; s++) {
        const struct glm_exec_program *p = glm_exec_find(&e->exec, names[s], (int32_t)arena_i);
        if (!p)
            continue;
        const void *drawn = glm_exec_buffer(&e->exec, arena_i, p->program->outputs[0], NULL);
        enum glm_status st = run_program(e, p, t, ns, err);
        if (st == GLM_OK)
            st = e->device->ops->get(e->device, e->drawn, drawn, n_out * sizeof *e->drawn, err);
        if (st != GLM_OK)
            return st;
        n_open = 0;
        for (uint32_t i = 0; i < n_out; i++) {
            if (tokens[i] == GLM_DRAW_WIDER)
                tokens[i] = e->drawn[i];
            n_open += tokens[i] == GLM_DRAW_WIDER;
        }
    }
    if (n_open > 0)
        return glm_fail(err, GLM_EPLAN,
                        "cannot draw %u of %u tokens: no sampling program of the plan decides them",
                        n_open, n_out);
    return GLM_OK;
}

/* Runs a forward program over its table and files the wanted rows' places and tokens. ops: the
 * operations the table was made of. */
static enum glm_status run_forward(struct glm_engine *e, const struct glm_exec_program *program,
                                   const struct glm_round_table *t, const struct glm_op *ops,
                                   uint32_t n_ops, uint64_t *ns, struct glm_error *err)
{
    enum glm_status st = run_program(e, program, t, ns, err);
    if (st == GLM_OK && t->any_draw)
        st = draw_tokens(e, program->arena_i, t, e->tokens + e->n_out, ns, err);
    if (st != GLM_OK)
        return st;
    uint32_t row = 0;
    for (uint32_t i = 0; i < n_ops; i++) {
        for (uint32_t k = 0; k < glm_op_outs(&ops[i]); k++, row++) {
            if (!ops[i].draws)
                e->tokens[e->n_out] = -1;
            e->outs[e->n_out++] = (struct out_place){.arena_i = program->arena_i, .row = row};
        }
    }
    return GLM_OK;
}

/* ---- one operation each; *i is moved past what was done ---- */

struct list_run {
    struct glm_engine *e;
    const struct glm_op *ops;
    uint32_t n_ops, i;
    struct glm_error *err;
};

static enum glm_status apply(struct list_run *r, uint32_t i, struct glm_extent_copies *copies)
{
    return glm_book_apply(&r->e->book, r->ops, r->n_ops, i, copies, r->err);
}

static struct glm_holder *stream_holder(struct glm_engine *e, const struct glm_op *op)
{
    return &e->book.holders[op->stream];
}

static void copy_extents(struct glm_engine *e, uint32_t n_context,
                         const struct glm_extent_copies *copies)
{
    for (uint32_t i = 0; i < copies->n; i++)
        glm_states_copy_extent(&e->states, n_context, copies->first + i, copies->from[i],
                               copies->to[i]);
}

static enum glm_status do_decode(struct list_run *r)
{
    struct glm_engine *e = r->e;
    const struct glm_op *first = &r->ops[r->i];
    uint32_t n = 0;
    glm_round_table_clear(&e->decode);
    while (r->i < r->n_ops && r->ops[r->i].kind == GLM_OP_DECODE) {
        const struct glm_op *op = &r->ops[r->i];
        enum glm_status st = apply(r, r->i, NULL);
        if (st != GLM_OK)
            return st;
        const struct glm_holder *h = stream_holder(e, op);
        glm_round_table_add(&e->decode, op, h, h->n_context);
        r->i++;
        n++;
    }
    enum glm_status st =
        run_forward(e, e->decode_program, &e->decode, first, n, &e->stats.decode_ns, r->err);
    e->stats.decode_rows += (uint64_t)e->decode.round.n_rows;
    return st;
}

static enum glm_status do_fill(struct list_run *r)
{
    struct glm_engine *e = r->e;
    const struct glm_op *op = &r->ops[r->i];
    uint32_t n_context = stream_holder(e, op)->n_context;
    enum glm_status st = apply(r, r->i++, NULL);
    if (st != GLM_OK)
        return st;
    glm_round_table_clear(&e->prefill);
    glm_round_table_add(&e->prefill, op, stream_holder(e, op), n_context);
    st = run_forward(e, e->prefill_program, &e->prefill, op, 1, &e->stats.prefill_ns, r->err);
    e->stats.prefill_rows += op->n;
    return st;
}

/* COMMITs that follow each other are one run: only streams that keep a part of their rows need the
 * program; all rows are there already, none leaves the committed version as it was. */
static enum glm_status do_commit(struct list_run *r)
{
    struct glm_engine *e = r->e;
    glm_round_table_begin_commit(&e->commit, &e->decode);
    while (r->i < r->n_ops && r->ops[r->i].kind == GLM_OP_COMMIT) {
        const struct glm_op *op = &r->ops[r->i];
        uint32_t n_pending = op->stream < e->book.n_streams ? stream_holder(e, op)->n_pending : 0;
        enum glm_status st = apply(r, r->i++, NULL);
        if (st != GLM_OK)
            return st;
        int32_t stream_i = glm_round_table_find(&e->decode, op->stream);
        GLM_ASSERT(stream_i >= 0);
        if (op->n > 0 && op->n < n_pending)
            glm_round_table_add_commit(&e->commit, &e->decode, (uint32_t)stream_i, op->n);
    }
    if (e->commit.round.n_streams == 0 || !e->commit_program)
        return GLM_OK;
    return run_program(e, e->commit_program, &e->commit, &e->stats.decode_ns, r->err);
}

static enum glm_status do_admit(struct list_run *r)
{
    enum glm_status st = apply(r, r->i, NULL);
    if (st == GLM_OK)
        glm_states_clear_slot(&r->e->states, r->ops[r->i].stream);
    r->i++;
    return st;
}

static enum glm_status do_move(struct list_run *r)
{
    struct glm_extent_copies copies;
    enum glm_status st = apply(r, r->i, &copies);
    if (st == GLM_OK)
        copy_extents(r->e, stream_holder(r->e, &r->ops[r->i])->n_context, &copies);
    r->i++;
    return st;
}

static enum glm_status fork_state(struct list_run *r, uint32_t from, uint32_t to)
{
    struct glm_engine *e = r->e;
    struct glm_extent_copies copies;
    enum glm_status st = apply(r, r->i++, &copies);
    if (st != GLM_OK)
        return st;
    copy_extents(e, e->book.holders[from].n_context, &copies);
    glm_states_copy_slot(&e->states, from, &e->book.holders[from], to);
    return GLM_OK;
}

static enum glm_status do_save(struct list_run *r)
{
    const struct glm_op *op = &r->ops[r->i];
    return fork_state(r, op->stream, r->e->book.n_streams + op->kept);
}

static enum glm_status do_restore(struct list_run *r)
{
    const struct glm_op *op = &r->ops[r->i];
    return fork_state(r, r->e->book.n_streams + op->kept, op->stream);
}

static enum glm_status do_book(struct list_run *r)
{
    return apply(r, r->i++, NULL);
}

typedef enum glm_status (*do_op)(struct list_run *r);
static const do_op doers[GLM_N_OPS] = {do_admit, do_fill,    do_decode, do_commit, do_move,
                                       do_save,  do_restore, do_book,   do_book,   do_book};

/* ---- lists ---- */

static enum glm_status try_list(struct glm_engine *e, const struct glm_op *ops, uint32_t n_ops,
                                struct glm_error *err)
{
    glm_book_copy(&e->trial, &e->book);
    glm_book_begin(&e->trial);
    enum glm_status st = GLM_OK;
    for (uint32_t i = 0; st == GLM_OK && i < n_ops; i++)
        st = glm_book_apply(&e->trial, ops, n_ops, i, NULL, err);
    return st;
}

static enum glm_status run_list(struct glm_engine *e, const struct glm_op *ops, uint32_t n_ops,
                                struct glm_error *err)
{
    struct list_run r = {.e = e, .ops = ops, .n_ops = n_ops, .err = err};
    enum glm_status st = GLM_OK;
    e->n_out = 0;
    glm_book_begin(&e->book);
    while (st == GLM_OK && r.i < n_ops)
        st = doers[ops[r.i].kind](&r);
    if (st == GLM_OK)
        st = e->device->ops->wait(e->device, err);
    e->stats.rounds++;
    if (st != GLM_OK)
        e->lost = true;
    return st;
}

static enum glm_status check_alive(const struct glm_engine *e, struct glm_error *err)
{
    if (e->lost)
        return glm_fail(err, GLM_EPEER,
                        "cannot run operations on rank %u: an earlier round was lost",
                        e->plan->rank);
    return GLM_OK;
}

enum glm_status glm_engine_run(struct glm_engine *e, const struct glm_op *ops, uint32_t n_ops,
                               struct glm_round_result *result, struct glm_error *err)
{
    enum glm_status st = check_alive(e, err);
    if (st == GLM_OK && e->plan->rank != 0 && e->collective)
        return glm_fail(err, GLM_EINVAL, "cannot run operations on rank %u: rank 0 sends them",
                        e->plan->rank);
    if (st == GLM_OK && (n_ops == 0 || n_ops > GLM_MAX_OPS))
        return glm_fail(err, GLM_EINVAL, "cannot run a list of %u operations: 1 to %d are possible",
                        n_ops, GLM_MAX_OPS);
    if (st == GLM_OK)
        st = try_list(e, ops, n_ops, err);
    if (st == GLM_OK && e->collective) {
        st = glm_ops_write(&e->list, ops, n_ops, err);
        if (st == GLM_OK) {
            st = glm_collective_broadcast(e->collective, e->list.bytes, e->list.capacity,
                                          &e->list.len, err);
            e->lost = st != GLM_OK;
        }
    }
    if (st == GLM_OK)
        st = run_list(e, ops, n_ops, err);
    if (st == GLM_OK && result)
        *result = (struct glm_round_result){.n_out = e->n_out, .tokens = e->tokens};
    return st;
}

enum glm_status glm_engine_follow_once(struct glm_engine *e, bool *stopped, struct glm_error *err)
{
    enum glm_status st = check_alive(e, err);
    if (st == GLM_OK && (!e->collective || e->plan->rank == 0))
        return glm_fail(err, GLM_EINVAL, "cannot follow on rank %u of %u", e->plan->rank,
                        e->plan->world);
    if (st == GLM_OK)
        st = glm_collective_broadcast(e->collective, e->list.bytes, e->list.capacity, &e->list.len,
                                      err);
    if (st == GLM_OK)
        st = glm_ops_read(&e->list, err);
    if (st == GLM_OK)
        st = try_list(e, e->list.ops, e->list.n_ops, err);
    if (st == GLM_OK)
        st = run_list(e, e->list.ops, e->list.n_ops, err);
    if (st != GLM_OK)
        e->lost = true;
    else
        *stopped = e->book.list_stopped;
    return st;
}

enum glm_status glm_engine_follow(struct glm_engine *e, struct glm_error *err)
{
    bool stopped = false;
    enum glm_status st = GLM_OK;
    while (st == GLM_OK && !stopped)
        st = glm_engine_follow_once(e, &stopped, err);
    return st;
}

/* ---- looking ---- */

bool glm_engine_fits(const struct glm_engine *e, uint32_t n_tokens)
{
    return n_tokens <= e->plan->limits.window_tokens &&
           glm_book_extents(&e->book, n_tokens) <= e->book.pool.n_free;
}

uint64_t glm_engine_pool_tokens(const struct glm_engine *e)
{
    return (uint64_t)e->book.pool.n_extents * GLM_EXTENT_ROWS;
}

uint64_t glm_engine_pool_free_tokens(const struct glm_engine *e)
{
    return (uint64_t)e->book.pool.n_free * GLM_EXTENT_ROWS;
}

/* As the host can look at it; NULL when the device is lost. */
static const void *look(const struct glm_engine *e, const void *at, uint64_t bytes)
{
    const void *seen = NULL;
    return e->device->ops->view(e->device, at, bytes, &seen, NULL) == GLM_OK ? seen : NULL;
}

const float *glm_engine_logits(const struct glm_engine *e, uint32_t out_i, uint32_t *first,
                               uint32_t *n)
{
    const struct glm_plan_buffer *b;
    if (out_i >= e->n_out)
        return NULL;
    const float *logits = glm_exec_buffer(&e->exec, e->outs[out_i].arena_i, "logits", &b);
    if (!logits)
        return NULL;
    *first = e->first_id;
    *n = (uint32_t)b->n_cols;
    return look(e, logits + e->outs[out_i].row * b->n_cols, b->n_cols * sizeof *logits);
}

struct glm_hash glm_engine_state_hash(const struct glm_engine *e, uint32_t stream)
{
    struct glm_hash hash = {0};
    GLM_ASSERT(stream < e->book.n_streams);
    if (glm_states_hash(&e->states, stream, &e->book.holders[stream], &hash, NULL) != GLM_OK)
        return (struct glm_hash){0};
    return hash;
}

void glm_engine_set_mark_hook(struct glm_engine *e, glm_mark_hook hook, void *context)
{
    e->hook = hook;
    e->hook_context = context;
    e->exec.probe = hook ? on_step : NULL;
    e->exec.probe_context = e;
}

const void *glm_engine_buffer(const struct glm_engine *e, const char *name, uint64_t *n_cols,
                              const char **dtype)
{
    const struct glm_plan_buffer *b;
    const void *at = glm_exec_buffer(&e->exec, e->running_arena, name, &b);
    if (!at)
        return NULL;
    *n_cols = b->n_cols;
    *dtype = strcmp(b->dtype, "act") == 0 ? e->plan->act : b->dtype;
    uint64_t rows = glm_buffer_rows(b, &e->plan->arenas[e->running_arena]);
    return look(e, at, rows * b->n_cols * glm_buffer_element_bytes(e->plan, b));
}

struct glm_exec *glm_engine_exec(struct glm_engine *e)
{
    return &e->exec;
}

struct glm_engine_stats glm_engine_stats(const struct glm_engine *e)
{
    struct glm_engine_stats s = e->stats;
    const struct glm_exec_counts *c = &e->exec.counts;
    s.weight_bytes = c->weight_bytes;
    s.state_bytes = c->state_bytes;
    s.bytes_read = c->weight_bytes + c->state_read_bytes;
    s.bytes_written = c->state_bytes - c->state_read_bytes + c->row_bytes;
    s.kernel_launches = c->kernel_launches;
    s.exchange_ns = c->exchange_ns;
    return s;
}
