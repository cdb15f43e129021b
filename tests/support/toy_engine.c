/* SPDX-License-Identifier: Apache-2.0 */
/* The toy model's plan, written out by hand, and its template folder. */
#include "tests/support/toy_engine.h"

#include "codegen/kernels.h"
#include "tests/support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))
#define KERNEL(name_, ...)                                                                      \
    {                                                                                           \
        .kind = GLM_STEP_KERNEL, .name = (name_), .args = (struct glm_plan_arg[]){__VA_ARGS__}, \
        .n_args = COUNT(((struct glm_plan_arg[]){__VA_ARGS__}))                                 \
    }

static uint32_t layer_7[] = {7};

static struct glm_plan_state states[] = {
    {.name = "layers.{L}.rows",
     .layers = layer_7,
     .n_layers = 1,
     .unit = GLM_UNIT_TOKEN,
     .per = 1,
     .versions = 1,
     .row_bytes = 8,
     .dtype = "f32",
     .rollback = "position"},
    {.name = "pairs",
     .unit = GLM_UNIT_POOL,
     .per = 4,
     .versions = 1,
     .row_bytes = 8,
     .dtype = "f32",
     .rollback = "position"},
    {.name = "acc",
     .unit = GLM_UNIT_STREAM,
     .per = 1,
     .versions = 2,
     .row_bytes = 8,
     .dtype = "f32",
     .rollback = "replay:toy_commit"},
    {.name = "last",
     .unit = GLM_UNIT_RING,
     .per = 1,
     .ring = TOY_RING,
     .keep = 3,
     .versions = 1,
     .row_bytes = 8,
     .dtype = "f32",
     .rollback = "position"},
};

static struct glm_plan_buffer buffers[] = {
    {"logits", "f32", 0, GLM_PER_OUT},   {"sums", "i32", 2, GLM_PER_ROW},
    {"replay.7", "i32", 2, GLM_PER_ROW}, {"ends", "i32", 8, GLM_PER_ONCE},
    {"cand", "i32", 2, GLM_PER_OUT},     {"cands", "i32", 0, GLM_PER_OUT},
    {"tokens", "i32", 1, GLM_PER_OUT},
};

#define STEP_ARGS(replay_)                                                             \
    {"rows", "layers.{L}.rows"}, {"pairs", "pairs"}, {"acc", "acc"}, {"last", "last"}, \
        {"weight", "weight"}, {"logits", "logits"}, {"sums", "sums"},                  \
    {                                                                                  \
        "replay", replay_                                                              \
    }

static struct glm_plan_step decode_block[] = {
    {.kind = GLM_STEP_MARK, .name = "layer"},
    KERNEL("step.decode", STEP_ARGS("replay.{L}")),
};
static struct glm_plan_step prefill_block[] = {
    {.kind = GLM_STEP_MARK, .name = "layer"},
    KERNEL("step.prefill", STEP_ARGS("-")),
};
static struct glm_plan_block blocks[] = {{"decode_block", decode_block, 2},
                                         {"prefill_block", prefill_block, 2}};

static struct glm_plan_step decode_steps[] = {
    {.kind = GLM_STEP_BLOCK, .name = "decode_block", .layer = 7},
    {.kind = GLM_STEP_MARK, .name = "end"},
};
static struct glm_plan_step prefill_steps[] = {
    {.kind = GLM_STEP_BLOCK, .name = "prefill_block", .layer = 7},
    {.kind = GLM_STEP_MARK, .name = "end"},
};
static struct glm_plan_step commit_steps[] = {
    KERNEL("commit", {"acc", "acc"}, {"replay", "replay.7"}),
};
static struct glm_plan_step sample_steps[] = {
    KERNEL("candidates", {"logits", "logits"}, {"ends", "ends"}, {"cand", "cand"}),
    {.kind = GLM_STEP_GATHER, .from = "cand", .to = "cands"},
    KERNEL("draw", {"cands", "cands"}, {"tokens", "tokens"}),
};
static struct glm_plan_step wide_steps[] = {
    KERNEL("candidates", {"logits", "logits"}, {"ends", "ends"}, {"cand", "cand"}),
    {.kind = GLM_STEP_GATHER, .from = "cand", .to = "cands"},
    KERNEL("draw.wide", {"cands", "cands"}, {"tokens", "tokens"}),
};
static const char *tokens_output[] = {"tokens"};
static struct glm_plan_program programs[] = {
    {"decode", "decode", NULL, NULL, 0, 0, decode_steps, 2},
    {"prefill", "prefill", NULL, NULL, 0, 0, prefill_steps, 2},
    {"commit", "decode", NULL, NULL, 0, 0, commit_steps, 1},
    {"sample", "decode", NULL, tokens_output, 0, 1, sample_steps, 3},
    {"sample_wide", "decode", NULL, tokens_output, 0, 1, wide_steps, 3},
};

static const uint32_t end_ids[] = {3};

static struct glm_plan_part weight_part = {.tensor = "toy.weight",
                                           .n_rows = 1,
                                           .n_cols = TOY_IDS,
                                           .rows = {.take = 1, .groups = 1, .stride = 1}};

/* Parameters live as long as the plan: one set a rank. */
struct rank_parts {
    struct glm_plan_param decode[4], prefill[4], candidates[2], draw[2], wide[2];
    struct glm_plan_kernel kernels[6];
    struct glm_plan_buffer buffers[COUNT(buffers)];
    struct glm_plan_arena arenas[2];
    struct glm_plan_weight weight;
    struct glm_plan_part part;
    struct glm_plan_memory memory;
};
static struct rank_parts parts[8];

static void plan_rank(struct glm_plan *p, struct rank_parts *x, const struct toy_options *o,
                      uint32_t rank)
{
    uint32_t share = TOY_IDS / o->world, first = share * rank;
    const struct glm_plan_param step[4] = {{"PREFILL", 0, NULL, ""},
                                           {"RING", TOY_RING, NULL, ""},
                                           {"V", share, NULL, ""},
                                           {"FIRST", first, NULL, ""}};
    memcpy(x->decode, step, sizeof step);
    memcpy(x->prefill, step, sizeof step);
    x->prefill[0].value = 1;
    memcpy(x->candidates, step + 2, sizeof x->candidates);
    x->draw[0] = x->wide[0] = (struct glm_plan_param){"WORLD", o->world, NULL, ""};
    x->draw[1] = (struct glm_plan_param){"WIDE", 0, NULL, ""};
    x->wide[1] = (struct glm_plan_param){"WIDE", 1, NULL, ""};
    const struct glm_plan_kernel kernels[6] = {
        {"step.decode", "toy_step", x->decode, 4},
        {"step.prefill", "toy_step", x->prefill, 4},
        {"commit", "toy_commit", NULL, 0},
        {"candidates", "toy_candidates", x->candidates, 2},
        {"draw", "toy_draw", x->draw, 2},
        {"draw.wide", "toy_draw", x->wide, 2},
    };
    memcpy(x->kernels, kernels, sizeof kernels);
    memcpy(x->buffers, buffers, sizeof buffers);
    x->buffers[0].n_cols = share;
    x->buffers[5].n_cols = 2 * o->world;
    uint32_t rows = o->n_streams * o->verify_rows;
    x->arenas[0] = (struct glm_plan_arena){"decode", rows, rows};
    x->arenas[1] = (struct glm_plan_arena){"prefill", 128, 128};
    x->part = weight_part;
    x->part.cols = (struct glm_slice){.first = first, .take = share, .groups = 1, .stride = share};
    x->weight = (struct glm_plan_weight){.name = "weight",
                                         .n_members = 1,
                                         .stored = "f32",
                                         .form = "f32",
                                         .n_rows = 1,
                                         .n_cols = share,
                                         .parts = &x->part,
                                         .n_parts = 1};
    struct glm_error err = {0};
    assert_int_equal(glm_form_bytes("f32", 1, share, &x->weight.bytes, &err), GLM_OK);
    x->memory = (struct glm_plan_memory){"pool", 1};
    *p = (struct glm_plan){.format_version = GLM_PLAN_FORMAT,
                           .model = "toy",
                           .rank = rank,
                           .world = o->world,
                           .target = glm_host_target(),
                           .act = "f32",
                           .d_vocab = TOY_IDS,
                           .n_valid_ids = TOY_IDS,
                           .end_ids = end_ids,
                           .n_end_ids = 1,
                           .limits = {.n_streams = o->n_streams,
                                      .n_slots = o->n_streams + o->n_kept,
                                      .window_tokens = 8192,
                                      .pool_tokens = (uint64_t)o->pool_extents * 2048,
                                      .verify_rows = o->verify_rows,
                                      .prefill_rows = 128},
                           .weights = &x->weight,
                           .n_weights = 1,
                           .states = states,
                           .n_states = COUNT(states),
                           .arenas = x->arenas,
                           .n_arenas = 2,
                           .buffers = x->buffers,
                           .n_buffers = COUNT(buffers),
                           .kernels = x->kernels,
                           .n_kernels = 6,
                           .blocks = blocks,
                           .n_blocks = COUNT(blocks),
                           .programs = programs,
                           .n_programs = COUNT(programs),
                           .memory = &x->memory,
                           .n_memory = 1};
}

static void copy_template(const char *to, const char *folder, const char *file)
{
    char *text = folder_read(folder, file, NULL);
    if (!text)
        fail_msg("no file %s/%s", folder, file);
    folder_write(to, file, text);
    free(text);
}

void toy_engine_plan(struct toy_engine *t, const struct toy_options *options)
{
    static const char *const files[] = {
        "toy.h",           "toy_step.c",       "toy_step.json",       "toy_commit.c",
        "toy_commit.json", "toy_candidates.c", "toy_candidates.json", "toy_draw.c",
        "toy_draw.json"};
    struct toy_options o = options ? *options : (struct toy_options){0};
    o.world = o.world ? o.world : 1;
    o.n_streams = o.n_streams ? o.n_streams : 4;
    o.n_kept = o.n_kept ? o.n_kept : 2;
    o.verify_rows = o.verify_rows ? o.verify_rows : 16;
    o.pool_extents = o.pool_extents ? o.pool_extents : 16;
    *t = (struct toy_engine){.templates = folder_new()};
    for (uint32_t i = 0; i < COUNT(files); i++)
        copy_template(t->templates, "tests/support/toy", files[i]);
    copy_template(t->templates, "kernels-templates", "host_abi.h");
    copy_template(t->templates, "kernels-templates", "round.h");
    setenv("GLM_TEMPLATES", t->templates, 1);
    for (uint32_t r = 0; r < o.world; r++) {
        plan_rank(&t->plans[r], &parts[r], &o, r);
        t->plan_list[r] = &t->plans[r];
    }
}

/* A synthetic checkpoint of one tensor. */
static struct glm_checkpoint *toy_checkpoint(void)
{
    static struct glm_tensor tensor = {.name = "toy.weight",
                                       .dtype = GLM_F32,
                                       .n_dims = 1,
                                       .shape = {TOY_IDS},
                                       .size_bytes = 4 * TOY_IDS,
                                       .role = "norm",
                                       .fan_in = 1};
    static const uint32_t slots[2] = {1, 1};
    static struct glm_checkpoint c = {.kind = GLM_CHECKPOINT_SYNTHETIC,
                                      .tensors = &tensor,
                                      .n_tensors = 1,
                                      .slots = slots,
                                      .n_slots = 2};
    return &c;
}

void toy_engine_open(struct toy_engine *t, const struct toy_options *options)
{
    toy_engine_plan(t, options);
    struct pico_options o = {.plans = t->plan_list,
                             .plans_checkpoint = toy_checkpoint(),
                             .world = t->plans[0].world,
                             .n_threads = options ? options->n_threads : 0,
                             .transport = options ? options->transport : NULL,
                             .memory_limit_bytes = options ? options->memory_limit_bytes : 0};
    t->set = pico_open(&o);
}

void toy_engine_close(struct toy_engine *t)
{
    pico_close(t->set);
    folder_remove(t->templates);
    unsetenv("GLM_TEMPLATES");
}
