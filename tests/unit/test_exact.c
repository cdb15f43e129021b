/* SPDX-License-Identifier: Apache-2.0 */
/* A row's bits depend on its own history alone (design 4), on pico: hashes of logits rows and state
 * planes, batched against alone, chunked against whole, committed against serial, restored and
 * moved against undisturbed. */
#include "codegen/graph.h"
#include "tests/support/gpu.h"
#include "tests/support/pico.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- requests ---- */

enum { N_REQUESTS = 50, MAX_PROMPT = 700, REPLY = 10, MAX_STREAMS = 8 };

struct request {
    int32_t ids[MAX_PROMPT];
    uint32_t n_ids;
    struct glm_draw draw;        /* position is set a token */
    struct glm_hash rows[REPLY]; /* of the logits that gave each token */
    int32_t tokens[REPLY];
    struct glm_hash state;
};

static uint64_t next_random(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

/* Pieces of the golden prompts of every length, sampled at temperature 1 with and without cuts;
 * every fourth one greedy. */
static struct request *make_requests(const struct golden *g)
{
    struct request *all = calloc(N_REQUESTS, sizeof *all);
    uint64_t x = 88172645463325252u;
    assert_non_null(all);
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        struct golden_case c = golden_case(g, i % golden_count(g));
        uint32_t first = (uint32_t)(next_random(&x) % (c.n_ids / 2 + 1));
        uint32_t n = c.n_ids - first;
        n = n < MAX_PROMPT ? n : 1 + (uint32_t)(next_random(&x) % MAX_PROMPT);
        memcpy(all[i].ids, c.ids + first, n * sizeof *c.ids);
        all[i].n_ids = n;
        all[i].draw = (struct glm_draw){.seed = next_random(&x),
                                        .temperature = i % 4 == 3 ? 0.0f : 1.0f,
                                        .top_p = i % 3 == 0 ? 0.9f : 1.0f,
                                        .top_k = i % 5 == 0 ? 40 : 0,
                                        .min_p = i % 7 == 0 ? 0.05f : 0.0f};
    }
    return all;
}

static struct glm_draw draw_at(const struct request *r, uint32_t token_i)
{
    struct glm_draw d = r->draw;
    d.position = (int32_t)(r->n_ids + token_i);
    return d;
}

static void run_alone(struct pico *p, struct request *r, uint32_t stream)
{
    struct glm_draw draw = draw_at(r, 0);
    pico_admit(p, stream, r->n_ids + REPLY);
    r->tokens[0] = pico_fill(p, stream, r->ids, r->n_ids, 512, &draw);
    r->rows[0] = pico_logits_hash(p, 0);
    for (uint32_t k = 1; k < REPLY; k++) {
        r->tokens[k] = r->tokens[k - 1];
        draw = draw_at(r, k);
        pico_decode(p, &stream, &r->tokens[k], &draw, 1);
        r->rows[k] = pico_logits_hash(p, 0);
    }
    r->state = pico_state_hash(p, stream);
    pico_finish(p, stream);
}

/* ---- many at once ---- */

struct running {
    const struct request *r; /* NULL: free */
    uint32_t n_filled, n_tokens;
    int32_t token;
};

struct crowd {
    struct pico *p;
    struct running streams[MAX_STREAMS];
    uint32_t n_streams;
    uint64_t x;
    uint32_t n_mixed, n_rounds; /* lists with a FILL beside DECODEs; lists */
};

static void check_row(struct running *s, struct pico *p, uint32_t out_i, int32_t token)
{
    if (!hash_equal(pico_logits_hash(p, out_i), s->r->rows[s->n_tokens]))
        fail_msg("logits row %u of a prompt of %u tokens differs from the one alone", s->n_tokens,
                 s->r->n_ids);
    assert_int_equal(token, s->r->tokens[s->n_tokens]);
    s->token = token;
    s->n_tokens++;
}

/* One list: a prompt slice of one stream, if any fills, and a decode row of some of the others. */
static void crowd_round(struct crowd *c)
{
    struct glm_op ops[2 * MAX_STREAMS + 1];
    struct glm_draw draws[MAX_STREAMS + 1];
    uint32_t who[MAX_STREAMS + 1], n_ops = 0, n_outs = 0, n_decodes = 0;
    struct running *filling = NULL;
    for (uint32_t k = 0; k < c->n_streams && !filling; k++) {
        uint32_t s = (uint32_t)((next_random(&c->x) + k) % c->n_streams);
        if (c->streams[s].r && c->streams[s].n_filled < c->streams[s].r->n_ids)
            filling = &c->streams[s];
    }
    if (filling) {
        uint32_t left = filling->r->n_ids - filling->n_filled;
        uint32_t n = 64 * (1 + (uint32_t)(next_random(&c->x) % 8));
        n = n < left ? n : left;
        bool last = n == left;
        draws[n_outs] = draw_at(filling->r, 0);
        ops[n_ops++] = (struct glm_op){.kind = GLM_OP_FILL,
                                       .stream = (uint32_t)(filling - c->streams),
                                       .n = n,
                                       .out_from = last ? n - 1 : n,
                                       .tokens = filling->r->ids + filling->n_filled,
                                       .draws = last ? &draws[n_outs] : NULL};
        who[n_outs] = ops[0].stream;
        n_outs += last;
        filling->n_filled += n;
    }
    for (uint32_t s = 0; s < c->n_streams; s++) {
        struct running *r = &c->streams[s];
        if (!r->r || r->n_tokens == 0 || next_random(&c->x) % 5 == 0)
            continue;
        draws[n_outs] = draw_at(r->r, r->n_tokens);
        who[n_outs] = s;
        ops[n_ops++] = (struct glm_op){.kind = GLM_OP_DECODE,
                                       .stream = s,
                                       .n = 1,
                                       .tokens = &r->token,
                                       .draws = &draws[n_outs++]};
        n_decodes++;
    }
    for (uint32_t i = 0, first = n_ops - n_decodes; i < n_decodes; i++)
        ops[n_ops++] =
            (struct glm_op){.kind = GLM_OP_COMMIT, .stream = ops[first + i].stream, .n = 1};
    if (n_ops == 0)
        return;
    struct glm_round_result result = pico_run(c->p, ops, n_ops);
    assert_int_equal(result.n_out, n_outs);
    for (uint32_t i = 0; i < n_outs; i++)
        check_row(&c->streams[who[i]], c->p, i, result.tokens[i]);
    c->n_mixed += filling && n_decodes > 0;
    c->n_rounds++;
}

static void run_crowd(struct crowd *c, const struct request *all, uint32_t n)
{
    uint32_t next = 0, n_left = n;
    while (n_left > 0) {
        for (uint32_t s = 0; s < c->n_streams; s++) {
            struct running *r = &c->streams[s];
            if (r->r && r->n_tokens == REPLY) {
                if (!hash_equal(pico_state_hash(c->p, s), r->r->state))
                    fail_msg("the state after a prompt of %u tokens differs from the one alone",
                             r->r->n_ids);
                pico_finish(c->p, s);
                r->r = NULL;
                n_left--;
            }
            if (!r->r && next < n && next_random(&c->x) % 3 > 0) {
                *r = (struct running){.r = &all[next++]};
                pico_admit(c->p, s, r->r->n_ids + REPLY);
            }
        }
        crowd_round(c);
    }
}

static void check_batched(const struct pico_options *o, uint32_t n)
{
    struct golden *g = golden_open("exl3");
    struct pico *p = pico_open(o);
    struct request *all = make_requests(g);
    for (uint32_t i = 0; i < n; i++)
        run_alone(p, &all[i], i % MAX_STREAMS);
    uint32_t n_mixed = 0, n_rounds = 0;
    static const uint32_t at_once[] = {MAX_STREAMS, 3};
    for (uint32_t i = 0; i < 2; i++) {
        struct crowd c = {.p = p, .n_streams = at_once[i], .x = 0x9e3779b9u + i};
        run_crowd(&c, all, n);
        n_mixed += c.n_mixed;
        n_rounds += c.n_rounds;
    }
    print_message(
        "    %u requests alone, 8 and 3 at once; %u of %u rounds mixed prompt and decode\n", n,
        n_mixed, n_rounds);
    assert_true(n_mixed > n / 4);
    free(all);
    pico_close(p);
    golden_free(g);
}

static void batched_rows_and_states_are_those_alone(void **state)
{
    (void)state;
    check_batched(&(struct pico_options){.world = 1}, pico_slow() ? 8 : N_REQUESTS);
}

static void batched_is_alone_on_two_ranks(void **state)
{
    (void)state;
    check_batched(&(struct pico_options){.world = 2}, pico_slow() ? 4 : 12);
}

static void batched_is_alone_with_bf16_activations_and_cache(void **state)
{
    (void)state;
    check_batched(&(struct pico_options){.formats = {.act = GLM_ACT_BF16, .kv = GLM_KV_BF16}},
                  pico_slow() ? 4 : 12);
}

static void chunks_of_any_size_on_the_grid_give_the_same_state(void **state)
{
    (void)state;
    struct golden *g = golden_open("exl3");
    struct pico *p = pico_open(NULL);
    uint64_t x = 4711;
    for (uint32_t i = 0; i < golden_count(g); i++) {
        struct golden_case c = golden_case(g, i);
        if (c.n_ids < 128 || (pico_slow() && c.n_ids > 400))
            continue;
        struct glm_hash want = {0, 0}, want_row = {0, 0};
        for (uint32_t way = 0; way < 4; way++) {
            pico_admit(p, 0, c.n_ids);
            for (uint32_t at = 0, n = 0; at < c.n_ids; at += n) {
                n = way == 0 ? 512 : way == 1 ? 64 : 64 * (1 + (uint32_t)(next_random(&x) % 8));
                n = n < c.n_ids - at ? n : c.n_ids - at;
                pico_fill(p, 0, c.ids + at, n, 512, NULL);
            }
            struct glm_hash got = pico_state_hash(p, 0), row = pico_logits_hash(p, 0);
            want = way == 0 ? got : want;
            want_row = way == 0 ? row : want_row;
            assert_hash_equal(got, want);
            assert_hash_equal(row, want_row);
            pico_finish(p, 0);
        }
    }
    pico_close(p);
    golden_free(g);
}

/* ---- commit ---- */

/* Serial truth from one starting state: hashes after k rows, for k up to 17. */
enum { MAX_ROWS = 16 };
struct serial {
    uint32_t kept;
    uint32_t n_context;
    int32_t tokens[MAX_ROWS + 2];
    struct glm_hash states[MAX_ROWS + 2], rows[MAX_ROWS + 2]; /* rows[k]: logits of row k */
};

static void restore(struct pico *p, uint32_t stream, const struct serial *s)
{
    struct glm_op op = {
        .kind = GLM_OP_RESTORE, .stream = stream, .kept = s->kept, .n_tokens = s->n_context + 64};
    pico_run(p, &op, 1);
}

/* Fills ids, decodes `extra` of them on top, and keeps that state. */
static void make_serial(struct pico *p, struct serial *s, uint32_t kept, const int32_t *ids,
                        uint32_t n_prompt, uint32_t extra)
{
    uint32_t stream = 0;
    *s = (struct serial){.kept = kept, .n_context = n_prompt + extra};
    pico_admit(p, 0, n_prompt + extra + 64);
    pico_fill(p, 0, ids, n_prompt, 512, NULL);
    for (uint32_t i = 0; i < extra; i++) {
        int32_t token = ids[n_prompt + i];
        pico_decode(p, &stream, &token, NULL, 1);
    }
    struct glm_op save = {.kind = GLM_OP_SAVE, .stream = 0, .kept = kept};
    pico_run(p, &save, 1);
    s->states[0] = pico_state_hash(p, 0);
    for (uint32_t k = 0; k <= MAX_ROWS; k++) {
        s->tokens[k] = ids[n_prompt + extra + k];
        int32_t token = s->tokens[k];
        pico_decode(p, &stream, &token, NULL, 1);
        s->rows[k] = pico_logits_hash(p, 0);
        s->states[k + 1] = pico_state_hash(p, 0);
    }
    pico_finish(p, 0);
}

struct part {
    const struct serial *from;
    uint32_t r, k;
};

/* One round of several streams with r rows each, of which k are kept; then one row more of each. */
static void check_parts(struct pico *p, const struct part *parts, uint32_t n)
{
    int32_t drafts[MAX_STREAMS][MAX_ROWS];
    struct glm_op decodes[MAX_STREAMS] = {0}, commits[MAX_STREAMS] = {0};
    for (uint32_t i = 0; i < n; i++) {
        const struct part *part = &parts[i];
        restore(p, i, part->from);
        for (uint32_t t = 0; t < part->r; t++) /* a wrong draft where the kept rows end */
            drafts[i][t] = part->from->tokens[t] ^ (t >= part->k ? 1 : 0);
        decodes[i] =
            (struct glm_op){.kind = GLM_OP_DECODE, .stream = i, .n = part->r, .tokens = drafts[i]};
        commits[i] = (struct glm_op){.kind = GLM_OP_COMMIT, .stream = i, .n = part->k};
    }
    pico_run(p, decodes, n);
    for (uint32_t i = 0, out = 0; i < n; out += parts[i++].r)
        for (uint32_t t = 0; t < parts[i].k; t++)
            if (!hash_equal(pico_logits_hash(p, out + t), parts[i].from->rows[t]))
                fail_msg("row %u of %u (%u kept, %u streams) differs from the serial one", t,
                         parts[i].r, parts[i].k, n);
    pico_run(p, commits, n);
    for (uint32_t i = 0; i < n; i++) {
        if (!hash_equal(pico_state_hash(p, i), parts[i].from->states[parts[i].k]))
            fail_msg("state after %u of %u rows (%u streams) differs from the serial one",
                     parts[i].k, parts[i].r, n);
        decodes[i] = (struct glm_op){.kind = GLM_OP_DECODE,
                                     .stream = i,
                                     .n = 1,
                                     .tokens = &parts[i].from->tokens[parts[i].k]};
    }
    pico_run(p, decodes, n);
    for (uint32_t i = 0; i < n; i++)
        if (!hash_equal(pico_logits_hash(p, i), parts[i].from->rows[parts[i].k]))
            fail_msg("the row after %u of %u rows (%u streams) differs from the serial one",
                     parts[i].k, parts[i].r, n);
    for (uint32_t i = 0; i < n; i++)
        pico_finish(p, i);
}

static void check_commits(const struct pico_options *o, uint32_t step)
{
    struct golden *g = golden_open("exl3");
    struct pico *p = pico_open(o);
    struct serial serial[2];
    struct golden_case longest = golden_case(g, 0);
    for (uint32_t i = 1; i < golden_count(g); i++)
        if (golden_case(g, i).n_ids > longest.n_ids)
            longest = golden_case(g, i);
    /* A short one on odd places, and one whose rows cross an extent's end. */
    make_serial(p, &serial[0], 0, longest.ids, 64, 3);
    make_serial(p, &serial[1], 1, longest.ids, 2037, 0);
    struct part parts[MAX_STREAMS];
    uint32_t n = 0, n_rows = 0, n_checked = 0, wanted = 1, i = 0;
    for (uint32_t r = 1; r <= MAX_ROWS; r++) {
        for (uint32_t k = 0; k <= r; k++, i++) {
            if (i % step != 0)
                continue;
            if (n == wanted || n_rows + r > 64) {
                check_parts(p, parts, n);
                wanted = wanted % MAX_STREAMS + 1;
                n = 0;
                n_rows = 0;
            }
            parts[n] = (struct part){.from = &serial[(r + k + n) % 2], .r = r, .k = k};
            n++;
            n_rows += r;
            n_checked++;
        }
    }
    check_parts(p, parts, n);
    print_message("    %u pairs of rows and kept rows, 1 to %d streams\n", n_checked, MAX_STREAMS);
    pico_close(p);
    golden_free(g);
}

static void a_round_that_keeps_k_of_r_rows_is_k_serial_rounds(void **state)
{
    (void)state;
    check_commits(&(struct pico_options){.verify_rows = MAX_ROWS, .pool_tokens = 20 * 2048},
                  pico_slow() ? 11 : 1);
}

static void commits_are_serial_on_two_ranks(void **state)
{
    (void)state;
    check_commits(&(struct pico_options){.verify_rows = MAX_ROWS, .world = 2},
                  pico_slow() ? 37 : 9);
}

/* ---- kept states and moves ---- */

/* Fills the prompt from `from` on and decodes its reply's first tokens; ends with state and row. */
static void go_on(struct pico *p, uint32_t stream, const struct golden_case *c, uint32_t from,
                  bool moving, struct glm_hash *state, struct glm_hash *row)
{
    struct glm_op move = {.kind = GLM_OP_MOVE, .stream = stream};
    for (uint32_t at = from; at < c->n_ids; at += 512) {
        uint32_t n = c->n_ids - at < 512 ? c->n_ids - at : 512;
        pico_fill(p, stream, c->ids + at, n, 512, NULL);
        if (moving)
            pico_run(p, &move, 1);
    }
    for (uint32_t i = 0; i < 4; i++) {
        int32_t token = c->reply[i % c->n_reply];
        pico_decode(p, &stream, &token, NULL, 1);
        *row = pico_logits_hash(p, 0);
        if (moving)
            pico_run(p, &move, 1);
    }
    *state = pico_state_hash(p, stream);
}

static struct golden_case case_named(const struct golden *g, const char *name)
{
    for (uint32_t i = 0; i < golden_count(g); i++)
        if (strcmp(golden_case(g, i).name, name) == 0)
            return golden_case(g, i);
    fail_msg("no golden prompt '%s'", name);
    return golden_case(g, 0);
}

static void a_restored_state_goes_on_as_if_uninterrupted(void **state)
{
    (void)state;
    static const uint32_t points[] = {64, 1024, 2048, 2496};
    struct golden *g = golden_open("exl3");
    struct pico *p = pico_open(NULL);
    struct golden_case c = case_named(g, "needle_3k"), other = case_named(g, "needle_1k");
    struct glm_hash want_state, want_row, got_state, got_row;
    pico_admit(p, 0, c.n_ids + 8);
    go_on(p, 0, &c, 0, false, &want_state, &want_row);
    pico_finish(p, 0);
    for (uint32_t i = pico_slow() ? 2 : 0; i < (pico_slow() ? 3 : 4); i++) {
        pico_admit(p, 1, c.n_ids + 8);
        for (uint32_t at = 0; at < points[i]; at += 64)
            pico_fill(p, 1, c.ids + at, 64, 64, NULL);
        struct glm_op save = {.kind = GLM_OP_SAVE, .stream = 1, .kept = 0};
        pico_run(p, &save, 1);
        go_on(p, 1, &c, points[i], false, &got_state, &got_row); /* the stream itself goes on */
        assert_hash_equal(got_state, want_state);
        pico_admit(p, 2, 3000); /* other work, on both sides of the saved stream's extents */
        go_on(p, 2, &other, 0, false, &got_state, &got_row);
        pico_finish(p, 1);
        pico_admit(p, 3, 1000);
        go_on(p, 3, &other, 0, false, &got_state, &got_row);
        struct glm_op again = {
            .kind = GLM_OP_RESTORE, .stream = 5, .kept = 0, .n_tokens = c.n_ids + 8};
        pico_run(p, &again, 1);
        go_on(p, 5, &c, points[i], false, &got_state, &got_row);
        assert_hash_equal(got_state, want_state);
        assert_hash_equal(got_row, want_row);
        struct glm_op end[] = {{.kind = GLM_OP_FINISH, .stream = 5},
                               {.kind = GLM_OP_FINISH, .stream = 2},
                               {.kind = GLM_OP_FINISH, .stream = 3},
                               {.kind = GLM_OP_DROP, .kept = 0}};
        pico_run(p, end, 4);
    }
    pico_close(p);
    golden_free(g);
}

static void moving_between_rounds_changes_nothing(void **state)
{
    (void)state;
    struct golden *g = golden_open("exl3");
    struct pico *p = pico_open(NULL);
    struct golden_case c = case_named(g, "needle_3k");
    struct glm_hash want_state, want_row, got_state, got_row;
    pico_admit(p, 0, c.n_ids + 8);
    go_on(p, 0, &c, 0, false, &want_state, &want_row);
    pico_admit(p, 1, c.n_ids + 8);
    go_on(p, 1, &c, 0, true, &got_state, &got_row);
    assert_hash_equal(got_state, want_state);
    assert_hash_equal(got_row, want_row);
    pico_close(p);
    golden_free(g);
}

/* ---- bytes ---- */

struct picks {
    uint64_t n_layers, n_distinct; /* layers that route, distinct members their rows touched */
    uint32_t n_rows, n_members;
};

/* Distinct members of every layer that routes, read where the next one starts. */
static void count_picks(void *context, const struct glm_engine *e, const char *program,
                        const char *mark, uint32_t layer)
{
    struct picks *s = context;
    uint64_t n_cols;
    const char *dtype;
    (void)program;
    bool end = strcmp(mark, "hidden") == 0;
    if (!end && strcmp(mark, "layer") != 0)
        return;
    const int32_t *ids = glm_engine_buffer(e, "moe.ids", &n_cols, &dtype);
    if (layer < 3 && !end) /* pico's first layers are dense */
        return;
    uint64_t seen = 0;
    for (uint64_t i = 0; i < s->n_rows * n_cols; i++)
        seen |= UINT64_C(1) << ids[i];
    s->n_layers++;
    s->n_distinct += (uint64_t)__builtin_popcountll(seen);
}

static void check_bytes(struct pico *p, const char *program, const struct glm_op *op,
                        uint32_t n_streams)
{
    struct picks picks = {.n_rows = 0};
    struct glm_error err = {0};
    struct glm_price price;
    struct glm_op ops[MAX_STREAMS];
    for (uint32_t i = 0; i < n_streams; i++) {
        ops[i] = *op;
        ops[i].stream = i;
        picks.n_rows += op->n;
    }
    glm_engine_set_mark_hook(pico_engine(p, 0), count_picks, &picks);
    struct glm_engine_stats before = glm_engine_stats(pico_engine(p, 0));
    uint32_t n_out = pico_run(p, ops, n_streams).n_out;
    struct glm_engine_stats after = glm_engine_stats(pico_engine(p, 0));
    glm_engine_set_mark_hook(pico_engine(p, 0), NULL, NULL);
    assert_int_equal(picks.n_layers, 4);
    struct glm_cost_context at = {.R = picks.n_rows,
                                  .O = n_out,
                                  .C = 64,
                                  .S = n_streams,
                                  .T = 2,
                                  .U = (double)picks.n_distinct / (double)picks.n_layers};
    if (glm_price_program(pico_plan(p, 0), program, &at, NULL, &price, NULL, &err) != GLM_OK)
        fail_msg("%s", err.message);
    print_message("    %s, %u rows: %.0f weight and %.0f state bytes priced\n", program,
                  picks.n_rows, price.weight_bytes, price.state_bytes);
    assert_int_equal(after.weight_bytes - before.weight_bytes,
                     (uint64_t)(price.weight_bytes + 0.5));
    assert_int_equal(after.state_bytes - before.state_bytes, (uint64_t)(price.state_bytes + 0.5));
    assert_int_equal(after.kernel_launches - before.kernel_launches, price.n_kernels);
}

static void bytes_counted_are_the_bytes_priced(void **state)
{
    (void)state;
    if (test_gpu_chosen()) {
        print_message("# on a GPU the members that rows touch are not counted\n");
        skip();
    }
    struct golden *g = golden_open("exl3");
    struct pico *p = pico_open(NULL);
    struct golden_case c = case_named(g, "needle_1k");
    for (uint32_t i = 0; i < MAX_STREAMS; i++)
        pico_admit(p, i, 1000);
    check_bytes(p, "prefill",
                &(struct glm_op){.kind = GLM_OP_FILL, .n = 512, .out_from = 511, .tokens = c.ids},
                1);
    struct glm_op decode = {.kind = GLM_OP_DECODE, .n = 1, .tokens = c.ids + 512};
    check_bytes(p, "decode", &decode, 1);
    struct glm_op drop[MAX_STREAMS];
    for (uint32_t i = 0; i < MAX_STREAMS; i++)
        drop[i] = (struct glm_op){.kind = GLM_OP_COMMIT, .stream = i, .n = 0};
    pico_run(p, drop, 1);
    check_bytes(p, "decode", &decode, MAX_STREAMS);
    pico_close(p);
    golden_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batched_rows_and_states_are_those_alone),
        cmocka_unit_test(batched_is_alone_on_two_ranks),
        cmocka_unit_test(batched_is_alone_with_bf16_activations_and_cache),
        cmocka_unit_test(chunks_of_any_size_on_the_grid_give_the_same_state),
        cmocka_unit_test(a_round_that_keeps_k_of_r_rows_is_k_serial_rounds),
        cmocka_unit_test(commits_are_serial_on_two_ranks),
        cmocka_unit_test(a_restored_state_goes_on_as_if_uninterrupted),
        cmocka_unit_test(moving_between_rounds_changes_nothing),
        cmocka_unit_test(bytes_counted_are_the_bytes_priced),
    };
    cmocka_set_test_filter(getenv("GLM_TEST_ONLY")); /* a pattern of names, for slow runners */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
