/* SPDX-License-Identifier: Apache-2.0 */
/* TP 1 to 8 agree on synthetic:small8 (act f32): relative L2 of a logits row against one rank's.
 * Another split is another order of sums, and a router or selection that hangs on less than its
 * noise may choose otherwise: such rows are left out and counted, as are rows after a choice that
 * differed. */
#include "tests/support/pico.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const double tolerance = 1e-5, min_gap = 1e-4;
enum { N_PROMPTS = 3, MAX_IDS = 640, SLICE = 64, MAX_EXPERTS = 64, MAX_SELECTED = 129 };

static const uint32_t lengths[N_PROMPTS] = {40, 250, MAX_IDS};

struct rows {
    float *logits;     /* [n][d_vocab] */
    double *gap;       /* [n] the smallest router gap of all layers */
    uint64_t *choices; /* [n] a hash of what router and selection chose */
};

struct watch {
    const struct glm_model *model;
    const struct glm_checkpoint *checkpoint;
    struct rows *rows;
    uint32_t first, n;
    uint32_t layer; /* that ran last */
};

static void hash_choice(uint64_t *h, uint64_t value)
{
    *h = (*h ^ value) * UINT64_C(0x100000001b3);
}

static int descending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

static void look_at_router(struct watch *w, const struct glm_engine *e, uint32_t layer)
{
    char name[128];
    uint64_t n_cols, n_ids;
    const char *dtype;
    float bias[MAX_EXPERTS];
    const struct glm_model *m = w->model;
    const float *logits = glm_engine_buffer(e, "moe.logits", &n_cols, &dtype);
    const int32_t *ids = glm_engine_buffer(e, "moe.ids", &n_ids, &dtype);
    assert_true(logits && ids && n_cols == m->n_experts && n_cols <= MAX_EXPERTS);
    snprintf(name, sizeof name, "model.language_model.layers.%u.mlp.gate.e_score_correction_bias",
             layer);
    const struct glm_tensor *t = glm_checkpoint_find(w->checkpoint, name);
    assert_non_null(t);
    struct glm_synthetic s = glm_synthetic_of(t);
    glm_synthetic_fill(&s, 0, m->n_experts, bias);
    for (uint32_t r = 0; r < w->n; r++) {
        double scores[MAX_EXPERTS];
        for (uint32_t i = 0; i < m->n_experts; i++)
            scores[i] = 1 / (1 + exp(-(double)logits[r * n_cols + i])) + (double)bias[i];
        qsort(scores, m->n_experts, sizeof *scores, descending);
        double gap = scores[m->n_experts_per_token - 1] - scores[m->n_experts_per_token];
        if (gap < w->rows->gap[w->first + r])
            w->rows->gap[w->first + r] = gap;
        uint64_t chosen = 0; /* as a set: the order of equals does not matter */
        for (uint64_t i = 0; i < n_ids; i++)
            chosen |= UINT64_C(1) << ids[r * n_ids + i];
        hash_choice(&w->rows->choices[w->first + r], chosen);
    }
}

static void look_at_selection(struct watch *w, const struct glm_engine *e)
{
    uint64_t n_cols;
    const char *dtype;
    const int32_t *sel = glm_engine_buffer(e, "dsa.sel", &n_cols, &dtype);
    assert_non_null(sel);
    for (uint32_t r = 0; r < w->n; r++)
        for (int32_t i = 0; i <= sel[r * n_cols]; i++)
            hash_choice(&w->rows->choices[w->first + r], (uint64_t)sel[r * n_cols + (uint64_t)i]);
}

static void on_mark(void *context, const struct glm_engine *e, const char *program,
                    const char *mark, uint32_t layer)
{
    struct watch *w = context;
    (void)program;
    bool end = strcmp(mark, "hidden") == 0;
    if (!end && (strcmp(mark, "layer") != 0 || layer == 0))
        return;
    uint32_t done = end ? w->model->n_layers - 1 : layer - 1;
    if (w->model->ffn[done] == GLM_FFN_MOE)
        look_at_router(w, e, done);
    if (w->model->attention[done] == GLM_ATTENTION_DSA)
        look_at_selection(w, e);
}

static void run_prompts(struct pico *p, struct rows rows[N_PROMPTS])
{
    uint32_t d_vocab = pico_plan(p, 0)->d_vocab;
    const struct glm_checkpoint *c = pico_checkpoint(p);
    uint32_t x = 1;
    for (uint32_t i = 0; i < N_PROMPTS; i++) {
        int32_t ids[MAX_IDS];
        for (uint32_t k = 0; k < lengths[i]; k++) {
            x = x * 1664525 + 1013904223;
            ids[k] = (int32_t)((x >> 8) % d_vocab);
        }
        rows[i] = (struct rows){.logits = calloc((size_t)lengths[i] * d_vocab, sizeof(float)),
                                .gap = calloc(lengths[i], sizeof(double)),
                                .choices = calloc(lengths[i], sizeof(uint64_t))};
        assert_true(rows[i].logits && rows[i].gap && rows[i].choices);
        for (uint32_t k = 0; k < lengths[i]; k++)
            rows[i].gap[k] = 1;
        struct watch w = {.model = &c->model, .checkpoint = c, .rows = &rows[i]};
        pico_admit(p, 0, lengths[i]);
        glm_engine_set_mark_hook(pico_engine(p, 0), on_mark, &w);
        for (w.first = 0; w.first < lengths[i]; w.first += w.n) {
            w.n = lengths[i] - w.first < SLICE ? lengths[i] - w.first : SLICE;
            struct glm_op fill = {.kind = GLM_OP_FILL, .n = w.n, .tokens = ids + w.first};
            uint32_t n_out = pico_run(p, &fill, 1).n_out;
            for (uint32_t k = 0; k < n_out; k++)
                memcpy(rows[i].logits + (size_t)(w.first + k) * d_vocab, pico_logits(p, k),
                       d_vocab * sizeof(float));
        }
        glm_engine_set_mark_hook(pico_engine(p, 0), NULL, NULL);
        pico_finish(p, 0);
    }
}

static void free_rows(struct rows rows[N_PROMPTS])
{
    for (uint32_t i = 0; i < N_PROMPTS; i++) {
        free(rows[i].logits);
        free(rows[i].gap);
        free(rows[i].choices);
    }
}

static void check_rows(uint32_t world, const struct rows *want, const struct rows *got,
                       uint32_t d_vocab)
{
    double worst = 0;
    uint32_t n_compared = 0, n_close = 0, n_after = 0;
    for (uint32_t i = 0; i < N_PROMPTS; i++) {
        bool differed = false;
        for (uint32_t k = 0; k < lengths[i]; k++) {
            differed = differed || want[i].choices[k] != got[i].choices[k];
            if (differed || want[i].gap[k] < min_gap) {
                n_close += !differed;
                n_after += differed;
                continue;
            }
            size_t at = (size_t)k * d_vocab;
            double error = relative_l2(got[i].logits + at, want[i].logits + at, d_vocab);
            worst = error > worst ? error : worst;
            n_compared++;
        }
    }
    print_message("    tp%u: %u rows, worst %.2e; left out: %u with a gap below %g, %u at or after "
                  "another choice\n",
                  world, n_compared, worst, n_close, min_gap, n_after);
    assert_true(worst <= tolerance);
    assert_true(n_compared > 4 * (n_close + n_after));
}

static void splits_over_1_to_8_ranks_agree(void **state)
{
    (void)state;
    struct rows want[N_PROMPTS], got[N_PROMPTS];
    for (uint32_t world = 1; world <= (pico_slow() ? 2u : 8u); world++) {
        struct pico *p = pico_open(&(struct pico_options){.checkpoint = "synthetic:small8",
                                                          .world = world,
                                                          .transport = world % 2 ? "tcp" : "shm",
                                                          .n_threads = 1,
                                                          .n_streams = 1,
                                                          .window = 2048,
                                                          .pool_tokens = 2048,
                                                          .prefill_rows = SLICE});
        run_prompts(p, world == 1 ? want : got);
        uint32_t d_vocab = pico_plan(p, 0)->d_vocab;
        pico_close(p);
        if (world > 1) {
            check_rows(world, want, got, d_vocab);
            free_rows(got);
        }
    }
    free_rows(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_over_1_to_8_ranks_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
