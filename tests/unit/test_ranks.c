/* SPDX-License-Identifier: Apache-2.0 */
/* TP 1 to 8 agree on synthetic:small8 (act f32): relative L2 of a logits row against one rank's.
 * Another split is another order of sums, and a router or selection that hangs on less than its
 * noise may choose otherwise: rows where either has a gap below min_gap between the last that it
 * takes and the first that it leaves are left out and counted. So are the rows of a prompt from the
 * first such row on whose choice did differ, since its state is another one; a choice that differs
 * where the gap is wide is an error.
 *
 * Gaps come from what the layers leave in their buffers, of one rank. The router's logits are
 * there; the selection's scores are not, so they are computed again in double from the indexer's
 * queries, head weights, keys and gates (reference_b.c), and must select what the kernel did. */
#include "kernels-templates/synthetic.h"
#include "tests/support/pico.h"
#include "tests/support/reference_b.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const double tolerance = 1e-5, min_gap = 1e-4;
enum { N_PROMPTS = 3, MAX_IDS = 640, SLICE = 64, MAX_EXPERTS = 64, MAX_POOL = 8 };

static const uint32_t lengths[N_PROMPTS] = {40, 250, MAX_IDS};

struct rows {
    float *logits;     /* [n][d_vocab] */
    double *gap;       /* [n] the smallest of all layers' routers and selections */
    uint64_t *choices; /* [n] a hash of what router and selection chose */
};

struct watch {
    const struct glm_model *model;
    const struct glm_checkpoint *checkpoint;
    struct rows *rows;
    uint32_t first, n;
    uint64_t w_column;           /* of the head weights in dsa.in */
    float *keys[GLM_MAX_LAYERS]; /* [pool][d_index] of the prompt so far */
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

static void note_gap(struct watch *w, uint32_t r, double gap)
{
    double *least = &w->rows->gap[w->first + r];
    *least = gap < *least ? gap : *least;
}

/* Where the selection finds its head weights: "dsa.in+COLUMN" in the plan. */
static uint64_t find_w_column(const struct glm_plan *p)
{
    for (uint32_t i = 0; i < p->n_blocks; i++)
        for (uint32_t j = 0; j < p->blocks[i].n_steps; j++) {
            const struct glm_plan_step *s = &p->blocks[i].steps[j];
            for (uint32_t k = 0; s->kind == GLM_STEP_KERNEL && k < s->n_args; k++)
                if (strcmp(s->name, "dsa_select") == 0 && strcmp(s->args[k].name, "w") == 0 &&
                    strncmp(s->args[k].value, "dsa.in+", 7) == 0)
                    return strtoull(s->args[k].value + 7, NULL, 10);
        }
    fail_msg("no step gives dsa_select its w out of dsa.in");
    return 0;
}

static const float *buffer(const struct glm_engine *e, const char *name, uint64_t *n_cols)
{
    const char *dtype;
    const float *values = glm_engine_buffer(e, name, n_cols, &dtype);
    assert_non_null(values);
    assert_string_equal(dtype, "f32");
    return values;
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
    struct glm_synthetic_values s = glm_synthetic_of(t);
    glm_synthetic_fill(&s, 0, m->n_experts, bias);
    for (uint32_t r = 0; r < w->n; r++) {
        double scores[MAX_EXPERTS];
        for (uint32_t i = 0; i < m->n_experts; i++)
            scores[i] = 1 / (1 + exp(-(double)logits[r * n_cols + i])) + (double)bias[i];
        qsort(scores, m->n_experts, sizeof *scores, descending);
        double gap = scores[m->n_experts_per_token - 1] - scores[m->n_experts_per_token];
        note_gap(w, r, gap);
        uint64_t chosen = 0; /* as a set: the order of equals does not matter */
        for (uint64_t i = 0; i < n_ids; i++)
            chosen |= UINT64_C(1) << ids[r * n_ids + i];
        hash_choice(&w->rows->choices[w->first + r], chosen);
    }
}

/* The keys of the pools that this slice's rows complete; slices begin on a pool's first row. */
static void add_pool_keys(struct watch *w, const struct glm_engine *e, uint32_t layer)
{
    const struct glm_model *m = w->model;
    uint32_t d = m->d_index, pool = m->n_index_pool;
    char name[160];
    uint16_t bits[MAX_POOL * 256];
    float ape[MAX_POOL * 256];
    double key[MAX_POOL * 256], gate[MAX_POOL * 256], sum[256];
    uint64_t n_key, n_gate;
    const float *ikn = buffer(e, "dsa.ikn", &n_key), *ig = buffer(e, "dsa.ig", &n_gate);
    assert_true(pool <= MAX_POOL && d <= 256 && n_key == d && n_gate == d && SLICE % pool == 0);
    snprintf(name, sizeof name,
             "model.language_model.layers.%u.self_attn.indexer.index_kpool_compress_ape", layer);
    const struct glm_tensor *t = glm_checkpoint_find(w->checkpoint, name);
    assert_non_null(t);
    assert_int_equal(t->dtype, GLM_BF16);
    struct glm_synthetic_values s = glm_synthetic_of(t);
    glm_synthetic_fill(&s, 0, (uint64_t)pool * d, bits);
    for (uint32_t i = 0; i < pool * d; i++) {
        uint32_t wide = (uint32_t)bits[i] << 16;
        memcpy(&ape[i], &wide, sizeof wide);
    }
    for (uint32_t p = 0; p < w->n / pool; p++) {
        float *to = w->keys[layer] + (size_t)(w->first / pool + p) * d;
        for (uint32_t i = 0; i < pool * d; i++) {
            key[i] = (double)ikn[(size_t)p * pool * d + i];
            gate[i] = (double)ig[(size_t)p * pool * d + i];
        }
        reference_pool_key(sum, key, gate, ape, pool, d, false);
        for (uint32_t i = 0; i < d; i++)
            to[i] = (float)sum[i];
    }
}

static void look_at_selection(struct watch *w, const struct glm_engine *e, uint32_t layer)
{
    const struct glm_model *m = w->model;
    uint32_t take = m->n_index_topk_tokens / m->n_index_pool;
    uint64_t n_cols, n_q, n_in;
    const char *dtype;
    const int32_t *sel = glm_engine_buffer(e, "dsa.sel", &n_cols, &dtype);
    const float *iq = buffer(e, "dsa.iq", &n_q), *in = buffer(e, "dsa.in", &n_in);
    assert_true(sel && n_cols == 1 + take && n_q == (uint64_t)m->n_index_heads * m->d_index);
    add_pool_keys(w, e, layer);
    for (uint32_t r = 0; r < w->n; r++, sel += n_cols) {
        for (int32_t i = 0; i <= sel[0]; i++)
            hash_choice(&w->rows->choices[w->first + r], (uint64_t)sel[i]);
        uint32_t n = (w->first + r + 1) / m->n_index_pool;
        if (n <= take)
            continue;
        double scores[MAX_IDS], ranked[MAX_IDS];
        int32_t ids[MAX_IDS];
        reference_scores(scores, iq + r * n_q, in + r * n_in + w->w_column, w->keys[layer], n,
                         m->n_index_heads, m->d_index);
        memcpy(ranked, scores, n * sizeof *scores);
        qsort(ranked, n, sizeof *ranked, descending);
        double gap = ranked[take - 1] - ranked[take];
        note_gap(w, r, gap);
        reference_top(scores, n, take, ids);
        if (gap >= min_gap && memcmp(ids, sel + 1, take * sizeof *ids) != 0)
            fail_msg("layer %u, row %u selects what its scores do not: gap %g", layer, w->first + r,
                     gap);
    }
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
        look_at_selection(w, e, done);
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
        struct watch w = {.model = &c->model,
                          .checkpoint = c,
                          .rows = &rows[i],
                          .w_column = find_w_column(pico_plan(p, 0))};
        for (uint32_t k = 0; k < c->model.n_layers; k++)
            if (c->model.attention[k] == GLM_ATTENTION_DSA)
                assert_non_null(w.keys[k] =
                                    calloc((size_t)MAX_IDS * c->model.d_index, sizeof(float)));
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
        for (uint32_t k = 0; k < c->model.n_layers; k++)
            free(w.keys[k]);
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
            bool close = want[i].gap[k] < min_gap || got[i].gap[k] < min_gap;
            if (!differed && !close && want[i].choices[k] != got[i].choices[k])
                fail_msg("tp%u: prompt %u, row %u chooses otherwise, though its gap is %g", world,
                         i, k, want[i].gap[k]);
            differed = differed || want[i].choices[k] != got[i].choices[k];
            n_close += close;
            n_after += differed && !close;
            if (close || differed)
                continue;
            size_t at = (size_t)k * d_vocab;
            double error = relative_l2(got[i].logits + at, want[i].logits + at, d_vocab);
            worst = error > worst ? error : worst;
            n_compared++;
        }
    }
    print_message("    tp%u: %u rows, worst %.2e; left out: %u with a gap below %g, %u after "
                  "another choice of one of them\n",
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
