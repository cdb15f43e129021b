/* SPDX-License-Identifier: Apache-2.0 */
/* A lane → its rank plans: which layers share a block, the order of blocks in the forward programs,
 * the limits and arenas. The blocks themselves are graph_*.c; sizes and what fits capacity.c. */
#include "codegen/builder.h"
#include "codegen/capacity.h"
#include "codegen/compiler.h"
#include "codegen/process.h"
#include "kernels-templates/peer.h"

#include <string.h>

enum { MAX_DECODE_ROWS = 64, PREFILL_OUTS = 64, KEPT_STATES = 2 };

/* ---- sites ---- */

enum layer_kind { KIND_KDA, KIND_DSA, KIND_DENSE, KIND_MOE };

static bool layer_has(const struct glm_model *m, uint32_t layer, enum layer_kind kind)
{
    switch (kind) {
    case KIND_KDA:
        return m->attention[layer] == GLM_ATTENTION_KDA;
    case KIND_DSA:
        return m->attention[layer] == GLM_ATTENTION_DSA;
    case KIND_DENSE:
        return m->ffn[layer] == GLM_FFN_DENSE;
    case KIND_MOE:
        return m->ffn[layer] == GLM_FFN_MOE;
    }
    return false;
}

/* The shares a block of this kind depends on; the others are zero. */
static struct glm_shares shares_of(const struct glm_builder *b, uint32_t layer,
                                   enum layer_kind kind)
{
    struct glm_shares all = glm_layer_shares(b->model, b->lane, b->rank, layer);
    switch (kind) {
    case KIND_KDA:
        return (struct glm_shares){.kda_heads = all.kda_heads};
    case KIND_DSA:
        return (struct glm_shares){.heads = all.heads};
    case KIND_DENSE:
        return (struct glm_shares){.dense = all.dense};
    case KIND_MOE:
        return (struct glm_shares){.expert = all.expert, .shared = all.shared};
    }
    return all;
}

static bool shares_equal(const struct glm_shares *a, const struct glm_shares *b)
{
    return memcmp(a, b, sizeof *a) == 0; /* all uint32_t: no padding */
}

/* The layers of a kind, grouped by equal shares. Returns the number of sites, at most `world`. */
static uint32_t find_sites(struct glm_builder *b, enum layer_kind kind,
                           struct glm_site sites[GLM_MAX_RANKS])
{
    const struct glm_model *m = b->model;
    uint32_t n_sites = 0;
    for (uint32_t layer = 0; layer < m->n_layers; layer++) {
        struct glm_shares shares;
        bool known = false;
        if (!layer_has(m, layer, kind))
            continue;
        shares = shares_of(b, layer, kind);
        for (uint32_t i = 0; i < n_sites; i++)
            known |= shares_equal(&sites[i].shares, &shares);
        if (known)
            continue;
        GLM_ASSERT(n_sites < GLM_MAX_RANKS);
        uint32_t *layers = ARENA_ARRAY(b->arena, m->n_layers, uint32_t);
        struct glm_site *site = &sites[n_sites++];
        *site = (struct glm_site){.suffix = "", .layers = layers, .shares = shares};
        for (uint32_t l = layer; layers && l < m->n_layers; l++) {
            struct glm_shares other = shares_of(b, l, kind);
            if (layer_has(m, l, kind) && shares_equal(&other, &shares))
                layers[site->n_layers++] = l;
        }
    }
    for (uint32_t i = 0; n_sites > 1 && i < n_sites; i++)
        sites[i].suffix = glm_text(b, ".r%u", i);
    return n_sites;
}

/* Builds the blocks of a kind and notes for each of its layers what its block is called. */
static void build_kind(struct glm_builder *b, enum layer_kind kind)
{
    static const struct {
        const char *block;
        void (*build)(struct glm_builder *b, const struct glm_site *site);
        bool is_attention;
    } kinds[] = {
        [KIND_KDA] = {"kda", glm_graph_kda, true},
        [KIND_DSA] = {"dsa", glm_graph_dsa, true},
        [KIND_DENSE] = {"dense", glm_graph_dense, false},
        [KIND_MOE] = {"moe", glm_graph_moe, false},
    };
    struct glm_site sites[GLM_MAX_RANKS];
    uint32_t n_sites = find_sites(b, kind, sites);
    for (uint32_t i = 0; i < n_sites; i++) {
        const char **names = kinds[kind].is_attention ? b->attention_suffix : b->ffn_block;
        for (uint32_t l = 0; l < sites[i].n_layers; l++)
            names[sites[i].layers[l]] = kinds[kind].is_attention
                                            ? sites[i].suffix
                                            : glm_site_name(b, &sites[i], kinds[kind].block);
        kinds[kind].build(b, &sites[i]);
    }
}

/* ---- programs ---- */

static void forward_program(struct glm_builder *b, const char *name, const char *arena,
                            const char *kda_block)
{
    const struct glm_model *m = b->model;
    glm_steps_embed(b);
    for (uint32_t layer = 0; layer < m->n_layers; layer++) {
        const char *attention = m->attention[layer] == GLM_ATTENTION_KDA ? kda_block : "dsa";
        const struct glm_site site = {.suffix = b->attention_suffix[layer]};
        glm_step_block(b, layer == 0 ? "hc_first" : "hc_attn", layer);
        glm_step_block(b, glm_site_name(b, &site, attention), layer);
        glm_step_block(b, "hc_ffn", layer);
        glm_step_block(b, b->ffn_block[layer], layer);
    }
    glm_steps_head(b);
    glm_close_program(b, name, arena, GLM_ARGS(NULL), GLM_ARGS("hidden", "logits"));
}

/* Replays the rows that are kept where a state cannot go back by position. */
static void commit_program(struct glm_builder *b)
{
    const struct glm_model *m = b->model;
    for (uint32_t layer = 0; layer < m->n_layers; layer++) {
        const struct glm_site site = {.suffix = b->attention_suffix[layer]};
        if (m->attention[layer] == GLM_ATTENTION_KDA)
            glm_step_block(b, glm_site_name(b, &site, "kda_commit"), layer);
    }
    if (b->steps.n > 0)
        glm_close_program(b, "commit", "decode", NULL, NULL);
}

static void build_all(struct glm_builder *b)
{
    uint32_t *layers = ARENA_ARRAY(b->arena, b->model->n_layers, uint32_t);
    if (!layers) {
        b->status = glm_fail(b->err, GLM_ENOMEM, "cannot build a plan: out of memory");
        return;
    }
    for (uint32_t i = 0; i < b->model->n_layers; i++)
        layers[i] = i;
    const struct glm_site all = {.suffix = "", .layers = layers, .n_layers = b->model->n_layers};
    glm_graph_embed(b);
    glm_graph_hc(b, &all);
    for (int kind = KIND_KDA; kind <= KIND_MOE; kind++)
        build_kind(b, (enum layer_kind)kind);
    glm_graph_head(b);
    forward_program(b, "decode", "decode", "kda_decode");
    forward_program(b, "prefill", "prefill", "kda_prefill");
    if (b->lane->verify_rows > 1)
        commit_program(b);
    glm_graph_sample(b);
}

/* ---- exchanges between GPUs ---- */

/* Has every rank a GPU of one host to itself? */
static bool has_peers(const struct glm_builder *b)
{
    const struct glm_node *nodes = b->cluster->nodes;
    const uint32_t *ranks = b->lane->ranks;
    bool yes = b->world > 1 && b->world <= GLM_PEERS && b->cluster->transport == GLM_TRANSPORT_SHM;
    for (uint32_t r = 0; yes && r < b->world; r++) {
        yes = nodes[ranks[r]].device == GLM_DEVICE_CUDA &&
              strcmp(nodes[ranks[r]].host, nodes[ranks[0]].host) == 0;
        for (uint32_t other = 0; yes && other < r; other++)
            yes = !glm_node_shares_memory(&nodes[ranks[r]], &nodes[ranks[other]]);
    }
    return yes;
}

/* No step names them: sums and gathers are theirs where the driver lets the GPUs meet. */
static void build_peers(struct glm_builder *b)
{
    static const char *const names[] = {GLM_PEER_SEND, GLM_PEER_TAKE};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        glm_build_kernel(b, names[i], names[i],
                         GLM_PARAMS(GLM_INT("WORLD", b->world, "lane.ranks")));
}

static bool has_nccl(const struct glm_builder *b)
{
    return b->world > 1 && b->cluster->transport == GLM_TRANSPORT_NCCL;
}

/* ---- one rank ---- */

static uint32_t decode_rows(const struct glm_lane *lane)
{
    uint32_t rows = lane->n_streams * lane->verify_rows;
    return rows < MAX_DECODE_ROWS ? rows : MAX_DECODE_ROWS;
}

static struct glm_plan_arena *build_arenas(struct glm_builder *b)
{
    struct glm_plan_arena *arenas = ARENA_ARRAY(b->arena, 2, struct glm_plan_arena);
    uint32_t rows = decode_rows(b->lane);
    if (!arenas)
        return NULL;
    arenas[0] = (struct glm_plan_arena){.name = "decode", .n_rows = rows, .n_outs = rows};
    arenas[1] = (struct glm_plan_arena){
        .name = "prefill", .n_rows = b->lane->prefill_rows, .n_outs = PREFILL_OUTS};
    return arenas;
}

static enum glm_status build_rank(struct glm_builder *b, const char *target,
                                  struct glm_capacity_rank *out)
{
    const struct glm_model *m = b->model;
    struct glm_plan *p = ARENA_NEW(b->arena, struct glm_plan);
    struct glm_plan_arena *arenas = build_arenas(b);
    if (!p || !arenas)
        return glm_fail(b->err, GLM_ENOMEM, "cannot build a plan: out of memory");
    build_all(b);
    if (glm_backend_cuda.takes(target))
        glm_build_converters(b);
    if (has_peers(b))
        build_peers(b);
    if (has_nccl(b))
        glm_build_kernel(b, GLM_RANK_SUM, GLM_RANK_SUM,
                         GLM_PARAMS(GLM_INT("WORLD", b->world, "lane.ranks")));
    if (b->status != GLM_OK)
        return b->status;
    *p = (struct glm_plan){
        .format_version = GLM_PLAN_FORMAT,
        .model = m->name,
        .rank = b->rank,
        .world = b->world,
        .target = target,
        .act = glm_act_text(b->lane->formats.act),
        .d_vocab = m->d_vocab,
        .n_valid_ids = m->n_valid_ids,
        .end_ids = m->end_ids,
        .n_end_ids = m->n_end_ids,
        .limits = {.n_streams = b->lane->n_streams,
                   .n_slots = b->lane->n_streams + KEPT_STATES,
                   .window_tokens = b->lane->window_tokens,
                   .verify_rows = b->lane->verify_rows,
                   .prefill_rows = b->lane->prefill_rows},
        .weights = b->weights.items,
        .n_weights = b->weights.n,
        .states = b->states.items,
        .n_states = b->states.n,
        .arenas = arenas,
        .n_arenas = 2,
        .buffers = b->buffers.items,
        .n_buffers = b->buffers.n,
        .kernels = b->kernels.items,
        .n_kernels = b->kernels.n,
        .blocks = b->blocks.items,
        .n_blocks = b->blocks.n,
        .programs = b->programs.items,
        .n_programs = b->programs.n,
    };
    *out = (struct glm_capacity_rank){.plan = p,
                                      .classes = b->classes.items,
                                      .node = &b->cluster->nodes[b->lane->ranks[b->rank]]};
    return GLM_OK;
}

/* ---- the lane ---- */

static enum glm_status check_lane(const struct glm_cluster *c, const struct glm_lane *lane,
                                  struct diag_list *diags)
{
    enum glm_status st = glm_split_check(&c->checkpoint->model, lane, diags);
    if (lane->formats.experts == GLM_EXPERTS_EXL3 && !c->checkpoint->experts_exl3) {
        diag_add(diags, DIAG_ERROR, lane->at, "lane.experts-form",
                 "use bf16, or a checkpoint whose experts are EXL3",
                 "lane '%s' asks for exl3 experts, but the checkpoint stores bf16", lane->name);
        st = GLM_ESPEC;
    }
    if (lane->n_drafters > 0) {
        const char *names = lane->drafters[0];
        for (uint32_t i = 1; i < lane->n_drafters && names; i++)
            names = arena_printf(diags->arena, "%s, %s", names, lane->drafters[i]);
        diag_add(
            diags, DIAG_WARNING, lane->at, "lane.drafters-later", NULL,
            "lane '%s' names drafters (%s), which are not served yet: the plan leaves them out",
            lane->name, names ? names : "");
    }
    if (lane->vision)
        diag_add(diags, DIAG_WARNING, lane->at, "lane.vision-later", NULL,
                 "lane '%s' wants vision, which is not served yet: the plan leaves the tower out",
                 lane->name);
    return st;
}

enum glm_status glm_plan_build(const struct glm_cluster *c, uint32_t lane_i, const char *target,
                               struct arena *arena, struct diag_list *diags,
                               struct glm_plan ***plans, struct glm_error *err)
{
    const struct glm_lane *lane = &c->lanes[lane_i];
    struct glm_capacity_rank ranks[GLM_MAX_RANKS];
    if (check_lane(c, lane, diags) != GLM_OK)
        return glm_fail(err, GLM_ESPEC, "cannot plan lane '%s': its spec is not valid", lane->name);
    struct glm_plan **built = ARENA_ARRAY(arena, lane->n_ranks, struct glm_plan *);
    if (!built)
        return glm_fail(err, GLM_ENOMEM, "cannot plan lane '%s': out of memory", lane->name);
    for (uint32_t rank = 0; rank < lane->n_ranks; rank++) {
        struct glm_builder b = {.arena = arena,
                                .err = err,
                                .cluster = c,
                                .lane = lane,
                                .checkpoint = c->checkpoint,
                                .model = &c->checkpoint->model,
                                .rank = rank,
                                .world = lane->n_ranks};
        enum glm_status st = build_rank(&b, target, &ranks[rank]);
        if (st != GLM_OK)
            return st;
        built[rank] = ranks[rank].plan;
    }
    enum glm_status st = glm_capacity_settle(lane, ranks, lane->n_ranks, arena, err);
    if (st == GLM_OK)
        st = glm_plan_seal(built, lane->n_ranks, err);
    if (st == GLM_OK)
        *plans = built;
    return st;
}
