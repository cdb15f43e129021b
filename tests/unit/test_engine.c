/* SPDX-License-Identifier: Apache-2.0 */
/* Operation lists over the toy model (tests/support/toy_engine.h): rules, claims, commit, moves,
 * kept states, draws, ranks. */
#include "runtime/ops.h"
#include "tests/support/toy_engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_TOKENS = 8192 };

static int32_t text[MAX_TOKENS]; /* token t of every stream's text, unless a test says otherwise */

static void write_text(void)
{
    uint32_t x = 12345;
    for (uint32_t i = 0; i < MAX_TOKENS; i++) {
        x = x * 1664525 + 1013904223;
        text[i] = (int32_t)(x >> 28);
    }
}

static int open_toy(void **state)
{
    static struct toy_engine t;
    write_text();
    toy_engine_open(&t, NULL);
    *state = &t;
    return 0;
}

static int close_toy(void **state)
{
    toy_engine_close(*state);
    return 0;
}

static struct pico *set_of(void **state)
{
    return ((struct toy_engine *)*state)->set;
}

/* A stream that has seen text[0..n): prompt in whole blocks, the rest by decode rounds of one row.
 */
static void play(struct pico *p, uint32_t stream, uint32_t n)
{
    uint32_t prompt = n / 64 * 64;
    if (prompt > 0)
        pico_fill(p, stream, text, prompt, 128, NULL);
    for (uint32_t i = prompt; i < n; i++) {
        int32_t token = text[i];
        pico_decode(p, &stream, &token, NULL, 1);
    }
}

static struct glm_hash serial_hash(struct pico *p, uint32_t n)
{
    pico_admit(p, 3, n + 1);
    play(p, 3, n);
    struct glm_hash h = pico_state_hash(p, 3);
    pico_finish(p, 3);
    return h;
}

/* ---- rules ---- */

static void check_refused(struct pico *p, const struct glm_op *ops, uint32_t n, const char *text_of)
{
    struct glm_error err = {0};
    uint64_t free_tokens = glm_engine_pool_free_tokens(pico_engine(p, 0));
    uint64_t rounds = glm_engine_stats(pico_engine(p, 0)).rounds;
    if (pico_try(p, ops, n, NULL, &err) != GLM_EINVAL)
        fail_msg("not refused as '%s': %s", text_of, err.message);
    if (!strstr(err.message, text_of))
        fail_msg("'%s' does not say '%s'", err.message, text_of);
    assert_int_equal(glm_engine_pool_free_tokens(pico_engine(p, 0)), free_tokens);
    assert_int_equal(glm_engine_stats(pico_engine(p, 0)).rounds, rounds);
}

#define OP(kind_, ...)                      \
    {                                       \
        .kind = GLM_OP_##kind_, __VA_ARGS__ \
    }
#define REFUSED(says, ...)                                                   \
    do {                                                                     \
        const struct glm_op refused[] = {__VA_ARGS__};                       \
        check_refused(p, refused, sizeof refused / sizeof refused[0], says); \
    } while (0)

static void refuses_lists_that_break_a_rule_naming_operation_and_rule(void **state)
{
    struct pico *p = set_of(state);
    static const int32_t bad_token[] = {1, TOY_IDS}, negative[] = {-1};
    pico_admit(p, 0, 300);
    REFUSED("operation 0 (ADMIT): stream 0 is already admitted",
            OP(ADMIT, .stream = 0, .n_tokens = 1));
    REFUSED("stream 4 is not below", OP(ADMIT, .stream = 4, .n_tokens = 1));
    REFUSED("room for 0 tokens", OP(ADMIT, .stream = 1));
    REFUSED("room for 8193 tokens", OP(ADMIT, .stream = 1, .n_tokens = 8193));
    REFUSED("stream 1 is not admitted", OP(FILL, .stream = 1, .n = 1, .tokens = text));
    REFUSED("0 rows are not within", OP(FILL, .stream = 0, .tokens = text));
    REFUSED("129 rows are not within 1 to 128", OP(FILL, .stream = 0, .n = 129, .tokens = text));
    REFUSED("it has no tokens", OP(FILL, .stream = 0, .n = 1));
    REFUSED("token 16 at index 1", OP(FILL, .stream = 0, .n = 2, .tokens = bad_token));
    REFUSED("token -1 at index 0", OP(DECODE, .stream = 0, .n = 1, .tokens = negative));
    REFUSED("wanted row 3 lies after",
            OP(FILL, .stream = 0, .n = 2, .out_from = 3, .tokens = text));
    REFUSED("not on the grid of 64", OP(FILL, .stream = 0, .n = 10, .tokens = text, .out_from = 10),
            OP(DECODE, .stream = 0, .n = 1, .tokens = text), OP(COMMIT, .stream = 0, .n = 1),
            OP(FILL, .stream = 0, .n = 10, .tokens = text));
    REFUSED("one FILL at most", OP(FILL, .stream = 0, .n = 64, .tokens = text),
            OP(FILL, .stream = 0, .n = 64, .tokens = text));
    REFUSED("17 rows are not within 1 to 16", OP(DECODE, .stream = 0, .n = 17, .tokens = text));
    REFUSED("one run of DECODEs", OP(DECODE, .stream = 0, .n = 1, .tokens = text),
            OP(COMMIT, .stream = 0, .n = 1), OP(DECODE, .stream = 0, .n = 1, .tokens = text));
    REFUSED("wait for COMMIT", OP(DECODE, .stream = 0, .n = 1, .tokens = text),
            OP(DECODE, .stream = 0, .n = 1, .tokens = text));
    REFUSED("wait for COMMIT", OP(DECODE, .stream = 0, .n = 1, .tokens = text),
            OP(MOVE, .stream = 0));
    REFUSED("3 rows exceed the 2", OP(DECODE, .stream = 0, .n = 2, .tokens = text),
            OP(COMMIT, .stream = 0, .n = 3));
    REFUSED("has no decoded rows", OP(COMMIT, .stream = 0, .n = 1));
    REFUSED("has no tokens yet", OP(SAVE, .stream = 0, .kept = 0));
    REFUSED("kept state 2 is not below", OP(DROP, .kept = 2));
    REFUSED("kept state 1 is empty", OP(DROP, .kept = 1));
    REFUSED("kept state 1 is empty", OP(RESTORE, .stream = 1, .kept = 1, .n_tokens = 10));
    REFUSED("nothing may follow STOP", OP(STOP, .n = 0), OP(FINISH, .stream = 0));
    struct glm_op none = OP(STOP, .n = 0);
    check_refused(p, &none, 0, "0 operations");
    none.kind = (enum glm_op_kind)99;
    check_refused(p, &none, 1, "no operation 99");
    pico_finish(p, 0);
}

static void rows_beyond_the_claimed_room_are_refused(void **state)
{
    struct pico *p = set_of(state);
    pico_admit(p, 0, 70);
    pico_fill(p, 0, text, 64, 64, NULL);
    REFUSED("7 rows after 64 tokens exceed the 70",
            OP(DECODE, .stream = 0, .n = 7, .tokens = text));
    pico_finish(p, 0);
}

static void claims_of_a_list_are_all_or_nothing(void **state)
{
    struct pico *p = set_of(state);
    struct glm_engine *e = pico_engine(p, 0);
    struct glm_error err = {0};
    assert_int_equal(glm_engine_pool_tokens(e), 16 * 2048);
    struct glm_op ops[] = {
        OP(ADMIT, .stream = 0, .n_tokens = 8192), OP(ADMIT, .stream = 1, .n_tokens = 8192),
        OP(ADMIT, .stream = 2, .n_tokens = 8192), OP(ADMIT, .stream = 3, .n_tokens = 6144)};
    pico_run(p, ops, 4);
    assert_int_equal(glm_engine_pool_free_tokens(e), 2048);
    assert_true(glm_engine_fits(e, 2048));
    assert_false(glm_engine_fits(e, 2049));
    pico_fill(p, 3, text, 64, 64, NULL);
    struct glm_hash before = pico_state_hash(p, 3);
    struct glm_op too_much[] = {OP(SAVE, .stream = 3, .kept = 0), OP(FINISH, .stream = 3),
                                OP(ADMIT, .stream = 3, .n_tokens = 8192)};
    assert_int_equal(pico_try(p, too_much, 3, NULL, &err), GLM_EAGAIN);
    assert_non_null(strstr(err.message, "operation 2 (ADMIT)"));
    assert_non_null(strstr(err.message, "needs 4 pool extents, 3 of 16 are free"));
    assert_int_equal(glm_engine_pool_free_tokens(e), 2048);
    assert_hash_equal(pico_state_hash(p, 3), before);
    struct glm_op fits[] = {OP(FINISH, .stream = 3), OP(ADMIT, .stream = 3, .n_tokens = 8192),
                            OP(FINISH, .stream = 0), OP(FINISH, .stream = 1),
                            OP(FINISH, .stream = 2), OP(FINISH, .stream = 3)};
    pico_run(p, fits, 6);
    assert_int_equal(glm_engine_pool_free_tokens(e), 16 * 2048);
}

/* ---- rounds ---- */

static void slices_of_a_prompt_do_not_change_state_or_logits(void **state)
{
    struct pico *p = set_of(state);
    struct glm_hash want_state = {0, 0}, want_logits = {0, 0};
    static const uint32_t slices[] = {128, 64};
    for (uint32_t i = 0; i < 2; i++) {
        pico_admit(p, 0, 1000);
        pico_fill(p, 0, text, 500, slices[i], NULL);
        if (i == 0) {
            want_state = pico_state_hash(p, 0);
            want_logits = pico_logits_hash(p, 0);
        }
        assert_hash_equal(pico_state_hash(p, 0), want_state);
        assert_hash_equal(pico_logits_hash(p, 0), want_logits);
        pico_finish(p, 0);
    }
}

/* r rows of which k are kept, then one more row, against serial rounds. */
static void check_commit(struct pico *p, uint32_t start, uint32_t r, uint32_t k)
{
    struct glm_hash want = serial_hash(p, start + k);
    uint32_t stream = 0;
    pico_admit(p, stream, 4096);
    play(p, stream, start);
    int32_t drafts[16];
    for (uint32_t i = 0; i < r; i++)
        drafts[i] = i < k ? text[start + i] : (text[start + i] + 5) % TOY_IDS;
    struct glm_op decode = OP(DECODE, .stream = stream, .n = r, .tokens = drafts);
    pico_run(p, &decode, 1);
    struct glm_op commit = OP(COMMIT, .stream = stream, .n = k);
    pico_run(p, &commit, 1);
    assert_hash_equal(pico_state_hash(p, stream), want);
    pico_finish(p, stream);
}

static void a_round_that_keeps_k_of_r_rows_is_k_serial_rounds(void **state)
{
    struct pico *p = set_of(state);
    static const uint32_t starts[] = {0, 64, 101};
    for (uint32_t s = 0; s < 3; s++)
        for (uint32_t r = 1; r <= 16; r += s == 0 ? 1 : 5)
            for (uint32_t k = 0; k <= r; k += s == 0 ? 1 : 3)
                check_commit(p, starts[s], r, k);
}

static void streams_of_a_round_commit_each_their_own_rows(void **state)
{
    struct pico *p = set_of(state);
    static const uint32_t starts[] = {5, 64, 130}, rows[] = {4, 16, 7}, kept[] = {2, 16, 0};
    struct glm_hash want[3];
    struct glm_op decodes[3], commits[3];
    for (uint32_t i = 0; i < 3; i++)
        want[i] = serial_hash(p, starts[i] + kept[i]);
    for (uint32_t i = 0; i < 3; i++) {
        pico_admit(p, i, 400);
        play(p, i, starts[i]);
        decodes[i] =
            (struct glm_op)OP(DECODE, .stream = i, .n = rows[i], .tokens = text + starts[i]);
        commits[2 - i] = (struct glm_op)OP(COMMIT, .stream = i, .n = kept[i]);
    }
    struct glm_round_result result = pico_run(p, decodes, 3);
    assert_int_equal(result.n_out, 4 + 16 + 7);
    assert_int_equal(result.tokens[0], -1);
    pico_run(p, commits, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_hash_equal(pico_state_hash(p, i), want[i]);
        pico_finish(p, i);
    }
}

static void a_stream_finished_before_its_commit_leaves_nothing_behind(void **state)
{
    struct pico *p = set_of(state);
    struct glm_hash want = serial_hash(p, 65);
    pico_admit(p, 0, 100);
    pico_admit(p, 1, 100);
    play(p, 1, 64);
    struct glm_op ops[] = {OP(DECODE, .stream = 0, .n = 3, .tokens = text),
                           OP(DECODE, .stream = 1, .n = 3, .tokens = text + 64),
                           OP(FINISH, .stream = 0), OP(COMMIT, .stream = 1, .n = 1)};
    pico_run(p, ops, 4);
    assert_hash_equal(pico_state_hash(p, 1), want);
    pico_finish(p, 1);
}

static void rows_of_neighbours_do_not_change_a_row(void **state)
{
    struct pico *p = set_of(state);
    struct glm_hash want[3];
    struct glm_op ops[3];
    for (uint32_t i = 0; i < 3; i++) {
        pico_admit(p, i, 400);
        play(p, i, 64 + 13 * i);
        ops[i] = (struct glm_op)OP(DECODE, .stream = i, .n = 1, .tokens = text + 64 + 13 * i);
        pico_run(p, &ops[i], 1);
        want[i] = pico_logits_hash(p, 0);
        struct glm_op drop = OP(COMMIT, .stream = i, .n = 0);
        pico_run(p, &drop, 1);
    }
    pico_run(p, ops, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_hash_equal(pico_logits_hash(p, i), want[i]);
    for (uint32_t i = 0; i < 3; i++)
        pico_finish(p, i);
}

/* ---- moves and kept states ---- */

static void a_moved_stream_goes_on_as_if_it_had_stayed(void **state)
{
    struct pico *p = set_of(state);
    struct glm_hash want = serial_hash(p, 2200);
    pico_admit(p, 0, 2300);
    pico_admit(p, 1, 10);
    for (uint32_t at = 0; at < 2176; at += 128) {
        pico_fill(p, 0, text + at, 128, 128, NULL);
        struct glm_op move[] = {OP(MOVE, .stream = 0), OP(MOVE, .stream = 1)};
        if (at % 3 == 0)
            pico_run(p, move, 2);
    }
    for (uint32_t i = 2176; i < 2200; i++) {
        uint32_t stream = 0;
        int32_t token = text[i];
        pico_decode(p, &stream, &token, NULL, 1);
        struct glm_op move = OP(MOVE, .stream = 0);
        pico_run(p, &move, 1);
    }
    assert_hash_equal(pico_state_hash(p, 0), want);
    pico_finish(p, 0);
    pico_finish(p, 1);
    assert_int_equal(glm_engine_pool_free_tokens(pico_engine(p, 0)), 16 * 2048);
}

static void check_restore(struct pico *p, uint32_t at)
{
    struct glm_engine *e = pico_engine(p, 0);
    struct glm_hash want = serial_hash(p, at + 70);
    pico_admit(p, 0, at + 1000);
    play(p, 0, at);
    struct glm_op save = OP(SAVE, .stream = 0, .kept = 1);
    uint64_t before = glm_engine_pool_free_tokens(e);
    pico_run(p, &save, 1);
    /* only a partly filled extent is copied, full ones are shared */
    assert_int_equal(before - glm_engine_pool_free_tokens(e), at % 2048 ? 2048 : 0);
    for (uint32_t i = 0; i < 70; i++) { /* the stream goes on, elsewhere than the text says */
        uint32_t stream = 0;
        int32_t token = (text[at + i] + 1) % TOY_IDS;
        pico_decode(p, &stream, &token, NULL, 1);
    }
    pico_admit(p, 1, 3000);
    play(p, 1, 200);
    pico_finish(p, 0);
    for (uint32_t twice = 0; twice < 2; twice++) {
        struct glm_op restore = OP(RESTORE, .stream = 2, .kept = 1, .n_tokens = at + 100);
        pico_run(p, &restore, 1);
        for (uint32_t i = at; i < at + 70; i++) {
            uint32_t stream = 2;
            int32_t token = text[i];
            pico_decode(p, &stream, &token, NULL, 1);
        }
        assert_hash_equal(pico_state_hash(p, 2), want);
        pico_finish(p, 2);
    }
    struct glm_op drop[] = {OP(DROP, .kept = 1), OP(FINISH, .stream = 1)};
    pico_run(p, drop, 2);
    assert_int_equal(glm_engine_pool_free_tokens(e), 16 * 2048);
}

/* Serial runs of the same length are compared, so the prompt part must be the same: at is on the
 * grid and the rest is decoded. */
static void a_restored_state_goes_on_as_if_uninterrupted(void **state)
{
    struct pico *p = set_of(state);
    static const uint32_t points[] = {64, 1984, 2048, 2112};
    for (uint32_t i = 0; i < 4; i++) {
        /* serial_hash plays whole blocks as prompt: the toy model does not tell them apart */
        check_restore(p, points[i]);
    }
}

static void a_kept_state_needs_room_for_itself(void **state)
{
    struct pico *p = set_of(state);
    pico_admit(p, 0, 200);
    play(p, 0, 128);
    struct glm_op save = OP(SAVE, .stream = 0, .kept = 0);
    pico_run(p, &save, 1);
    REFUSED("room for 127 tokens is less than the kept state's 128",
            OP(RESTORE, .stream = 1, .kept = 0, .n_tokens = 127));
    REFUSED("kept state 0 is in use", OP(SAVE, .stream = 0, .kept = 0));
    struct glm_op end[] = {OP(DROP, .kept = 0), OP(FINISH, .stream = 0)};
    pico_run(p, end, 2);
}

/* ---- draws and looking ---- */

static void undecided_draws_go_on_to_the_wider_program(void **state)
{
    struct pico *p = set_of(state);
    struct glm_draw draws[4] = {{.top_k = 1}, {.top_k = 2}, {.top_k = 1}, {.top_k = 2}};
    pico_admit(p, 0, 100);
    struct glm_op op = OP(DECODE, .stream = 0, .n = 4, .tokens = text, .draws = draws);
    struct glm_round_result result = pico_run(p, &op, 1);
    assert_int_equal(result.n_out, 4);
    for (uint32_t i = 0; i < 4; i++) {
        const float *row = pico_logits(p, i);
        int32_t best = 0;
        for (int32_t v = 1; v < TOY_IDS; v++)
            if (row[v] > row[best])
                best = v;
        assert_int_equal(result.tokens[i], best);
    }
    pico_finish(p, 0);
}

static void draws_see_the_models_end_ids(void **state)
{
    struct pico *p = set_of(state);
    pico_admit(p, 0, 4096);
    bool met = false;
    for (uint32_t i = 0; i < 60 && !met; i++) {
        struct glm_draw draws[2] = {{.top_k = 1}, {.top_k = 1, .flags = GLM_DRAW_NO_END}};
        int32_t twice[2] = {text[i], text[i]};
        struct glm_op op = OP(DECODE, .stream = 0, .n = 1, .tokens = twice, .draws = draws);
        struct glm_op keep = OP(COMMIT, .stream = 0, .n = 0);
        int32_t plain = pico_run(p, &op, 1).tokens[0];
        pico_run(p, &keep, 1);
        op.draws = draws + 1;
        int32_t masked = pico_run(p, &op, 1).tokens[0];
        keep.n = 1;
        pico_run(p, &keep, 1);
        assert_int_equal(masked, plain == 3 ? 4 : plain);
        met = plain == 3;
    }
    assert_true(met);
    pico_finish(p, 0);
}

struct seen {
    uint32_t n, layers[8];
    char marks[8][16], programs[8][16];
    uint64_t sum_cols;
};

static void on_mark(void *context, const struct glm_engine *e, const char *program,
                    const char *mark, uint32_t layer)
{
    struct seen *s = context;
    const char *dtype;
    assert_true(s->n < 8);
    s->layers[s->n] = layer;
    snprintf(s->marks[s->n], sizeof s->marks[0], "%s", mark);
    snprintf(s->programs[s->n++], sizeof s->programs[0], "%s", program);
    assert_non_null(glm_engine_buffer(e, "sums", &s->sum_cols, &dtype));
    assert_string_equal(dtype, "i32");
    assert_null(glm_engine_buffer(e, "weight", &s->sum_cols, &dtype));
}

static void marks_are_called_with_their_layer(void **state)
{
    struct pico *p = set_of(state);
    struct seen s = {0};
    pico_admit(p, 0, 100);
    glm_engine_set_mark_hook(pico_engine(p, 0), on_mark, &s);
    pico_fill(p, 0, text, 64, 64, NULL);
    glm_engine_set_mark_hook(pico_engine(p, 0), NULL, NULL);
    pico_fill(p, 0, text, 6, 64, NULL);
    assert_int_equal(s.n, 2);
    assert_string_equal(s.marks[0], "layer");
    assert_int_equal(s.layers[0], 7);
    assert_string_equal(s.marks[1], "end");
    assert_string_equal(s.programs[0], "prefill");
    pico_finish(p, 0);
}

static void stats_count_what_ran(void **state)
{
    struct pico *p = set_of(state);
    struct glm_engine_stats before = glm_engine_stats(pico_engine(p, 0));
    pico_admit(p, 0, 100);
    pico_fill(p, 0, text, 64, 64, NULL);
    uint32_t stream = 0;
    int32_t token = 1;
    pico_decode(p, &stream, &token, NULL, 1);
    struct glm_engine_stats after = glm_engine_stats(pico_engine(p, 0));
    assert_int_equal(after.rounds - before.rounds, 3);
    assert_int_equal(after.prefill_rows - before.prefill_rows, 64);
    assert_int_equal(after.decode_rows - before.decode_rows, 1);
    assert_int_equal(after.kernel_launches - before.kernel_launches, 2);
    assert_true(after.memory_bytes >= 16 * 2048 * 8);
    pico_finish(p, 0);
}

/* ---- ranks ---- */

static void ranks_draw_the_same_tokens_as_one(void **state)
{
    (void)state;
    static const char *const kinds[] = {"shm", "shm", "tcp"};
    int32_t want[20];
    for (uint32_t i = 0; i < 3; i++) {
        struct toy_engine t;
        struct toy_options o = {.world = i == 0 ? 1 : 4, .n_threads = 2, .transport = kinds[i]};
        toy_engine_open(&t, &o);
        struct glm_draw draw = {.top_k = i == 2 ? 2 : 1};
        pico_admit(t.set, 1, 300);
        int32_t token = pico_fill(t.set, 1, text, 200, 64, &draw);
        for (uint32_t k = 0; k < 20; k++) {
            uint32_t stream = 1;
            if (i == 0)
                want[k] = token;
            assert_int_equal(token, want[k]);
            pico_decode(t.set, &stream, &token, &draw, 1);
        }
        toy_engine_close(&t);
    }
}

/* ---- opening ---- */

static void refuses_what_does_not_fit_before_reading(void **state)
{
    (void)state;
    struct toy_engine t;
    struct glm_engine *e = NULL;
    struct glm_error err = {0};
    toy_engine_plan(&t, NULL);
    struct glm_engine_config config = {
        .plan = &t.plans[0], .n_threads = 1, .memory_limit_bytes = 1000};
    assert_int_equal(glm_engine_open(&config, &e, &err), GLM_ECAPACITY);
    assert_null(e);
    assert_non_null(strstr(err.message, "cannot lay out rank 0"));
    toy_engine_close(&t);
}

static void an_operation_list_survives_its_bytes(void **state)
{
    struct toy_engine *t = *state;
    struct arena arena;
    struct glm_op_list l;
    struct glm_error err = {0};
    struct glm_draw draws[2] = {{.seed = 7, .top_k = 1}, {.seed = 8}};
    const struct glm_op ops[] = {
        OP(ADMIT, .stream = 1, .n_tokens = 9),
        OP(FILL, .stream = 1, .n = 3, .out_from = 1, .tokens = text, .draws = draws),
        OP(DECODE, .stream = 0, .n = 2, .tokens = text + 9)};
    arena_init(&arena, 1 << 20);
    assert_int_equal(glm_op_list_init(&l, &t->plans[0], &arena, &err), GLM_OK);
    assert_int_equal(glm_ops_write(&l, ops, 3, &err), GLM_OK);
    assert_int_equal(glm_ops_read(&l, &err), GLM_OK);
    assert_int_equal(l.n_ops, 3);
    assert_int_equal(l.ops[0].n_tokens, 9);
    assert_memory_equal(l.ops[1].tokens, text, 12);
    assert_int_equal(l.ops[1].draws[1].seed, 8);
    assert_memory_equal(l.ops[2].tokens, text + 9, 8);
    assert_null(l.ops[2].draws);
    size_t len = l.len;
    for (l.len = 0; l.len < len; l.len++) { /* cut anywhere, it is no list */
        err = (struct glm_error){0};
        assert_int_equal(glm_ops_read(&l, &err), GLM_EINVAL);
    }
    arena_release(&arena);
}

int main(void)
{
#define TOY_TEST(name) cmocka_unit_test_setup_teardown(name, open_toy, close_toy)
    const struct CMUnitTest tests[] = {
        TOY_TEST(refuses_lists_that_break_a_rule_naming_operation_and_rule),
        TOY_TEST(rows_beyond_the_claimed_room_are_refused),
        TOY_TEST(claims_of_a_list_are_all_or_nothing),
        TOY_TEST(slices_of_a_prompt_do_not_change_state_or_logits),
        TOY_TEST(a_round_that_keeps_k_of_r_rows_is_k_serial_rounds),
        TOY_TEST(streams_of_a_round_commit_each_their_own_rows),
        TOY_TEST(a_stream_finished_before_its_commit_leaves_nothing_behind),
        TOY_TEST(rows_of_neighbours_do_not_change_a_row),
        TOY_TEST(a_moved_stream_goes_on_as_if_it_had_stayed),
        TOY_TEST(a_restored_state_goes_on_as_if_uninterrupted),
        TOY_TEST(a_kept_state_needs_room_for_itself),
        TOY_TEST(undecided_draws_go_on_to_the_wider_program),
        TOY_TEST(draws_see_the_models_end_ids),
        TOY_TEST(marks_are_called_with_their_layer),
        TOY_TEST(stats_count_what_ran),
        cmocka_unit_test(ranks_draw_the_same_tokens_as_one),
        cmocka_unit_test(refuses_what_does_not_fit_before_reading),
        TOY_TEST(an_operation_list_survives_its_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
