/* SPDX-License-Identifier: Apache-2.0 */
/* pico against values that transformers' own implementation computed in fp32 (tests/golden/pico):
 * residual streams entering every layer, final hidden rows, logits rows, greedy replies. */
#include "tests/support/gpu.h"
#include "tests/support/pico.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const double tolerance = 1e-4; /* relative L2 of a row */
/* Below it another order of sums may pick another token; of bf16 activations or weights that the
 * reference has not, another rounding. */
static bool other_roundings;
static double min_margin(void)
{
    return test_gpu_chosen() || other_roundings ? 0.5 : 0.01;
}
static const uint32_t slow_ids = 300; /* longer prompts are left out under a sanitizer */
enum { MAX_PROMPT = 4096, SLICE = 64 };

/* Worst row of one kind over the prompts, for the summary. */
struct worst {
    char what[24], where[48];
    double error;
    uint32_t n_rows;
};
struct report {
    struct worst items[16];
    uint32_t n_items;
};

static void note(struct report *r, const char *what, const char *prompt, uint32_t row, double error)
{
    uint32_t i = 0;
    while (i < r->n_items && strcmp(r->items[i].what, what) != 0)
        i++;
    if (i == r->n_items) {
        assert_true(i < 16);
        snprintf(r->items[r->n_items++].what, sizeof r->items[0].what, "%s", what);
    }
    struct worst *w = &r->items[i];
    w->n_rows++;
    if (!(error <= w->error)) {
        w->error = error;
        snprintf(w->where, sizeof w->where, "%s row %u", prompt, row);
    }
}

static void check_report(const struct report *r)
{
    bool ok = r->n_items > 0;
    for (uint32_t i = 0; i < r->n_items; i++) {
        print_message("    %-12s %5u rows, worst %.2e (%s)\n", r->items[i].what, r->items[i].n_rows,
                      r->items[i].error, r->items[i].where);
        ok = ok && r->items[i].error <= tolerance;
    }
    assert_true(ok);
}

/* Residual streams and hidden rows of a slice, copied at marks. */
struct watch {
    const struct golden *golden;
    struct golden_case c;
    uint32_t first, n; /* rows of the slice that runs */
    struct report *report;
};

static void compare_rows(struct watch *w, const char *name, const float *got)
{
    uint64_t n;
    const float *want = golden_tensor(w->golden, w->c.name, name, &n);
    if (!want)
        return;
    uint64_t cols = n / w->c.n_ids;
    for (uint32_t i = 0; i < w->n; i++)
        note(w->report, name, w->c.name, w->first + i,
             relative_l2(got + i * cols, want + (w->first + i) * cols, cols));
}

static void on_mark(void *context, const struct glm_engine *e, const char *program,
                    const char *mark, uint32_t layer)
{
    struct watch *w = context;
    char name[24];
    uint64_t n_cols;
    const char *dtype;
    if (strcmp(program, "prefill") != 0)
        return;
    if (strcmp(mark, "layer") == 0) {
        snprintf(name, sizeof name, "hidden_%u", layer);
        compare_rows(w, name, glm_engine_buffer(e, "x", &n_cols, &dtype));
    } else if (strcmp(mark, "hidden") == 0) {
        compare_rows(w, "hidden_6", glm_engine_buffer(e, "hidden", &n_cols, &dtype));
    }
}

static void compare_logits(struct watch *w, struct pico *p, uint32_t n_out)
{
    uint64_t n;
    const float *want = golden_tensor(w->golden, w->c.name, "logits", &n);
    uint32_t d_vocab = pico_plan(p, 0)->d_vocab;
    for (uint32_t i = 0; want && i < n_out; i++)
        note(w->report, "logits", w->c.name, w->first + i,
             relative_l2(pico_logits(p, i), want + (uint64_t)(w->first + i) * d_vocab, d_vocab));
    if (w->first + w->n < w->c.n_ids)
        return;
    want = golden_tensor(w->golden, w->c.name, "logits_last", &n);
    assert_non_null(want);
    note(w->report, "logits_last", w->c.name, w->c.n_ids - 1,
         relative_l2(pico_logits(p, n_out - 1), want, d_vocab));
}

static void rows_are_those_of_the_reference(struct pico *p, const struct golden *g)
{
    struct report report = {.n_items = 0};
    for (uint32_t i = 0; i < golden_count(g); i++) {
        struct watch w = {.golden = g, .c = golden_case(g, i), .report = &report};
        uint64_t n;
        if (pico_slow() && w.c.n_ids > slow_ids)
            continue;
        pico_admit(p, 0, w.c.n_ids);
        bool all = golden_tensor(g, w.c.name, "logits", &n) != NULL;
        glm_engine_set_mark_hook(pico_engine(p, 0), all ? on_mark : NULL, &w);
        for (w.first = 0; w.first < w.c.n_ids; w.first += w.n) {
            w.n = w.c.n_ids - w.first < SLICE ? w.c.n_ids - w.first : SLICE;
            bool last = w.first + w.n == w.c.n_ids;
            struct glm_op fill = {.kind = GLM_OP_FILL,
                                  .n = w.n,
                                  .out_from = all    ? 0
                                              : last ? w.n - 1
                                                     : w.n,
                                  .tokens = w.c.ids + w.first};
            uint32_t n_out = pico_run(p, &fill, 1).n_out;
            if (n_out > 0)
                compare_logits(&w, p, n_out);
        }
        glm_engine_set_mark_hook(pico_engine(p, 0), NULL, NULL);
        pico_finish(p, 0);
    }
    check_report(&report);
}

/* Decodes case i greedily in stream `stream` from its filled prompt on; `token` is the first. */
static void check_token(const struct golden_case *c, uint32_t i, int32_t token)
{
    if (token != c->reply[i])
        fail_msg("%s: token %u of the reply is %d, want %d", c->name, i, token, c->reply[i]);
}

static bool comparable(const struct golden_case *c)
{
    return c->smallest_margin > min_margin() && !(pico_slow() && c->n_ids > slow_ids);
}

static bool comparable_case(const struct golden *g, uint32_t i)
{
    struct golden_case c = golden_case(g, i);
    return comparable(&c);
}

static void replies_one_at_a_time(struct pico *p, const struct golden *g)
{
    uint32_t n_checked = 0, n_skipped = 0;
    for (uint32_t i = 0; i < golden_count(g); i++) {
        struct golden_case c = golden_case(g, i);
        struct glm_draw draw = pico_greedy();
        uint32_t stream = i % 8;
        if (!comparable(&c)) {
            n_skipped++;
            continue;
        }
        pico_admit(p, stream, c.n_ids + c.n_reply);
        int32_t token = pico_fill(p, stream, c.ids, c.n_ids, 512, &draw);
        check_token(&c, 0, token);
        for (uint32_t k = 1; k < c.n_reply; k++) {
            pico_decode(p, &stream, &token, &draw, 1);
            check_token(&c, k, token);
        }
        pico_finish(p, stream);
        n_checked++;
    }
    print_message("    %u replies equal, %u left out for a margin below %g%s\n", n_checked,
                  n_skipped, min_margin(), pico_slow() ? " or their length under a sanitizer" : "");
    assert_true(n_checked > 0);
}

/* As many prompts at once as there are streams: a stream that ends makes room for the next. */
static void replies_together(struct pico *p, const struct golden *g)
{
    uint32_t n_streams = pico_plan(p, 0)->limits.n_streams, next = 0, n_running = 0, n_done = 0;
    struct {
        struct golden_case c;
        uint32_t n;
        int32_t token;
        bool active;
    } running[GLM_ROUND_STREAMS] = {0};
    struct glm_draw draw = pico_greedy(), draws[GLM_ROUND_STREAMS];
    while (next < golden_count(g) || n_running > 0) {
        for (uint32_t s = 0; s < n_streams && next < golden_count(g); s++) {
            if (running[s].active || !comparable_case(g, next)) {
                next += !running[s].active;
                continue;
            }
            running[s].c = golden_case(g, next++);
            running[s].n = 0;
            running[s].active = true;
            n_running++;
            pico_admit(p, s, running[s].c.n_ids + running[s].c.n_reply);
            running[s].token = pico_fill(p, s, running[s].c.ids, running[s].c.n_ids, 512, &draw);
        }
        uint32_t streams[GLM_ROUND_STREAMS], n = 0;
        int32_t tokens[GLM_ROUND_STREAMS];
        for (uint32_t s = 0; s < n_streams; s++) {
            if (!running[s].active)
                continue;
            check_token(&running[s].c, running[s].n++, running[s].token);
            if (running[s].n == running[s].c.n_reply) {
                pico_finish(p, s);
                running[s].active = false;
                n_running--;
                n_done++;
                continue;
            }
            streams[n] = s;
            draws[n] = draw;
            tokens[n++] = running[s].token;
        }
        if (n > 0)
            pico_decode(p, streams, tokens, draws, n);
        for (uint32_t i = 0; i < n; i++)
            running[streams[i]].token = tokens[i];
    }
    print_message("    %u replies equal, up to %u at once\n", n_done, n_streams);
    assert_true(n_done > 0);
}

static void check_rows(const struct pico_options *o, const char *golden)
{
    if (test_gpu_chosen()) {
        print_message("# a GPU's activations are bf16, the reference's fp32\n");
        skip();
    }
    struct golden *g = golden_open(golden);
    struct pico *p = pico_open(o);
    rows_are_those_of_the_reference(p, g);
    pico_close(p);
    golden_free(g);
}

static void check_replies(const struct pico_options *o, const char *golden)
{
    struct golden *g = golden_open(golden);
    struct pico *p = pico_open(o);
    print_message("    tp%u over %s:\n", o->world ? o->world : 1,
                  o->transport ? o->transport : "nothing");
    if (!pico_slow() || !(o->world > 1))
        replies_one_at_a_time(p, g);
    replies_together(p, g);
    pico_close(p);
    golden_free(g);
}

static void exl3_rows_are_those_of_the_reference(void **state)
{
    (void)state;
    check_rows(&(struct pico_options){.world = 1}, "exl3");
}

static void exl3_greedy_replies_are_those_of_the_reference(void **state)
{
    (void)state;
    check_replies(&(struct pico_options){.world = 1}, "exl3");
}

static void exl3_experts_decoded_to_bf16_reply_as_the_reference(void **state)
{
    (void)state;
    check_replies(&(struct pico_options){.world = 1, .decoded_experts = true}, "exl3");
    check_replies(&(struct pico_options){.world = 2, .decoded_experts = true}, "exl3");
}
/* A cache in fp8 rounds more coarsely still. */
static void replies_with_an_fp8_cache_are_those_of_the_reference(void **state)
{
    (void)state;
    struct pico_options o = {.world = 1, .formats = {.kv = GLM_KV_FP8}};
    check_replies(&o, "exl3");
    o.decoded_experts = true;
    check_replies(&o, "exl3");
}

static int expect_other_roundings(void **state)
{
    (void)state;
    other_roundings = true;
    return 0;
}
static int expect_the_references(void **state)
{
    (void)state;
    other_roundings = false;
    return 0;
}

static const char *bf16_folder(void)
{
    const char *folder = getenv("GLM_PICO_BF16");
    if (!folder || !folder[0]) {
        print_message("    skipped: $GLM_PICO_BF16 does not name the bf16 checkpoint\n");
        skip();
    }
    return folder;
}

static void bf16_rows_are_those_of_the_reference(void **state)
{
    (void)state;
    check_rows(&(struct pico_options){.checkpoint = bf16_folder()}, "bf16");
}

static void bf16_greedy_replies_are_those_of_the_reference(void **state)
{
    (void)state;
    check_replies(&(struct pico_options){.checkpoint = bf16_folder()}, "bf16");
}

static void replies_are_the_same_over_ranks(uint32_t world)
{
    check_replies(&(struct pico_options){.world = world, .transport = "shm"}, "exl3");
    check_replies(&(struct pico_options){.world = world, .transport = "tcp"}, "exl3");
}

static void two_ranks_give_the_reference_replies_over_shm_and_tcp(void **state)
{
    (void)state;
    replies_are_the_same_over_ranks(2);
}

static void three_ranks_give_the_reference_replies_over_shm_and_tcp(void **state)
{
    (void)state;
    replies_are_the_same_over_ranks(3);
}

static void four_ranks_give_the_reference_replies_over_shm_and_tcp(void **state)
{
    (void)state;
    replies_are_the_same_over_ranks(4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exl3_rows_are_those_of_the_reference),
        cmocka_unit_test(exl3_greedy_replies_are_those_of_the_reference),
        cmocka_unit_test_setup_teardown(exl3_experts_decoded_to_bf16_reply_as_the_reference,
                                        expect_other_roundings, expect_the_references),
        cmocka_unit_test_setup_teardown(replies_with_an_fp8_cache_are_those_of_the_reference,
                                        expect_other_roundings, expect_the_references),
        cmocka_unit_test(bf16_rows_are_those_of_the_reference),
        cmocka_unit_test(bf16_greedy_replies_are_those_of_the_reference),
        cmocka_unit_test(two_ranks_give_the_reference_replies_over_shm_and_tcp),
        cmocka_unit_test(three_ranks_give_the_reference_replies_over_shm_and_tcp),
        cmocka_unit_test(four_ranks_give_the_reference_replies_over_shm_and_tcp),
    };
    cmocka_set_test_filter(getenv("GLM_TEST_ONLY")); /* a pattern of names, for slow runners */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
