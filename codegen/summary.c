/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a lane's plans: shares, memory by part, links between ranks, prices of a decode
 * round and a prefill slice. */
#include "codegen/summary.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum { PRICE_CONTEXT_TOKENS = 8192 };

const char *glm_shown_checkpoint(const struct glm_cluster *c)
{
    const char *where = c->checkpoint_where, *slash = strrchr(where, '/');
    return where[0] == '/' && slash[1] ? slash + 1 : where;
}

static void widen(struct glm_range *r, uint32_t value)
{
    r->low = r->high == 0 || value < r->low ? value : r->low;
    r->high = value > r->high ? value : r->high;
}

/* Where a part of the memory table is counted; all others are weights. */
static const struct {
    const char *part;
    size_t offset;
} columns[] = {
    {"pool", offsetof(struct glm_summary_rank, pool_bytes)},
    {"streams", offsetof(struct glm_summary_rank, stream_bytes)},
    {"decode buffers", offsetof(struct glm_summary_rank, buffer_bytes)},
    {"prefill buffers", offsetof(struct glm_summary_rank, buffer_bytes)},
    {"scratch", offsetof(struct glm_summary_rank, buffer_bytes)},
    {"exchanges", offsetof(struct glm_summary_rank, process_bytes)},
    {"process", offsetof(struct glm_summary_rank, process_bytes)},
    {"requests", offsetof(struct glm_summary_rank, request_bytes)},
};

static void rank_memory(struct glm_summary_rank *r, const struct glm_plan *p)
{
    for (uint32_t i = 0; i < p->n_memory; i++) {
        size_t offset = offsetof(struct glm_summary_rank, weight_bytes);
        for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++) {
            if (strcmp(p->memory[i].part, columns[c].part) == 0)
                offset = columns[c].offset;
        }
        *(uint64_t *)((char *)r + offset) += p->memory[i].bytes;
        r->total_bytes += p->memory[i].bytes;
    }
}

static void rank_shares(struct glm_summary_rank *r, const struct glm_model *m,
                        const struct glm_lane *lane, uint32_t rank)
{
    for (uint32_t layer = 0; layer < m->n_layers; layer++) {
        struct glm_shares s = glm_layer_shares(m, lane, rank, layer);
        widen(&r->heads, s.heads.count ? s.heads.count : s.kda_heads.count);
        widen(&r->experts, s.expert.count ? s.expert.count : s.dense.count);
    }
}

/* Distinct experts that n rows touch when each row picks evenly. */
static double experts_touched(const struct glm_model *m, double n_rows)
{
    if (m->n_experts == 0)
        return 0;
    double missed = 1 - (double)m->n_experts_per_token / m->n_experts;
    return m->n_experts * (1 - pow(missed, n_rows));
}

/* Devices whose figures are known; NULL for others. */
static const struct glm_device_figures *lane_figures(const struct glm_cluster *c,
                                                     const struct glm_lane *lane,
                                                     struct glm_device_figures *space)
{
    for (uint32_t i = 0; i < lane->n_ranks; i++) {
        if (c->nodes[lane->ranks[i]].device != GLM_DEVICE_GB10)
            return NULL;
    }
    *space = glm_gb10_figures(lane->n_ranks, c->topology);
    return space;
}

/* A decode round: the forward pass and the draw. */
static enum glm_status price_round(const struct glm_plan *p, double n_rows, double context,
                                   const struct glm_model *m,
                                   const struct glm_device_figures *figures, struct glm_price *out,
                                   struct glm_error *err)
{
    struct glm_cost_context at = {.R = n_rows,
                                  .O = n_rows,
                                  .C = context,
                                  .S = n_rows,
                                  .T = 1,
                                  .U = experts_touched(m, n_rows)};
    struct glm_price forward, draw;
    enum glm_status st = glm_price_program(p, "decode", &at, figures, &forward, NULL, err);
    if (st == GLM_OK)
        st = glm_price_program(p, "sample", &at, figures, &draw, NULL, err);
    if (st != GLM_OK)
        return st;
    forward.read_bytes += draw.read_bytes;
    forward.write_bytes += draw.write_bytes;
    forward.ops += draw.ops;
    forward.n_kernels += draw.n_kernels;
    forward.n_exchanges += draw.n_exchanges;
    forward.exchange_bytes += draw.exchange_bytes;
    forward.seconds += draw.seconds;
    forward.floor_seconds += draw.floor_seconds;
    *out = forward;
    return GLM_OK;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static enum glm_status price_rank(struct glm_summary *s, uint32_t rank, const struct glm_plan *p,
                                  const struct glm_device_figures *figures, struct glm_error *err)
{
    const struct glm_model *m = &s->cluster->checkpoint->model;
    struct glm_summary_rank *r = &s->ranks[rank];
    struct glm_price all, slice;
    double rows = s->lane->prefill_rows;
    struct glm_cost_context at = {
        .R = rows, .O = 1, .C = s->context_tokens, .S = 1, .T = 1, .U = experts_touched(m, rows)};
    enum glm_status st = price_round(p, 1, s->context_tokens, m, figures, &r->decode, err);
    if (st == GLM_OK)
        st = price_round(p, s->lane->n_streams, s->context_tokens, m, figures, &all, err);
    if (st == GLM_OK)
        st = glm_price_program(p, "prefill", &at, figures, &slice, NULL, err);
    if (st != GLM_OK)
        return st;
    if (r->decode.read_bytes > s->ranks[s->busiest].decode.read_bytes)
        s->busiest = rank;
    if (!figures)
        return GLM_OK;
    /* The ranks go in step: the slowest decides. */
    s->decode_s = larger(s->decode_s, r->decode.seconds);
    s->decode_floor_s = larger(s->decode_floor_s, r->decode.floor_seconds);
    s->round_s = larger(s->round_s, all.seconds);
    s->prefill_s = larger(s->prefill_s, slice.seconds);
    s->prefill_floor_s =
        larger(s->prefill_floor_s, larger(slice.floor_seconds, slice.ops / figures->ops_s));
    return GLM_OK;
}

static uint32_t cables_between(const struct glm_cluster *c, uint32_t node_a, uint32_t node_b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_cables; i++) {
        uint32_t a = c->cables[i].a.node, b = c->cables[i].b.node;
        n += (a == node_a && b == node_b) || (a == node_b && b == node_a);
    }
    return n;
}

static void find_links(struct glm_summary *s)
{
    const struct glm_lane *lane = s->lane;
    for (uint32_t a = 0; a < lane->n_ranks; a++) {
        for (uint32_t b = a + 1; b < lane->n_ranks; b++)
            s->links[s->n_links++] = (struct glm_summary_link){
                a, b, cables_between(s->cluster, lane->ranks[a], lane->ranks[b])};
    }
}

static bool has_kernel(const struct glm_plan *p, uint32_t n, const struct glm_plan_kernel *k)
{
    for (uint32_t i = 0; i < n; i++) {
        if (glm_kernels_equal(&p->kernels[i], k))
            return true;
    }
    return false;
}

/* Kernels of all ranks that differ in more than their name: equal ones are one build. */
static uint32_t distinct_kernels(struct glm_plan *const *plans, uint32_t n_ranks)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < n_ranks; r++) {
        for (uint32_t i = 0; i < plans[r]->n_kernels; i++) {
            const struct glm_plan_kernel *k = &plans[r]->kernels[i];
            bool seen = has_kernel(plans[r], i, k);
            for (uint32_t other = 0; other < r && !seen; other++)
                seen = has_kernel(plans[other], plans[other]->n_kernels, k);
            n += !seen;
        }
    }
    return n;
}

enum glm_status glm_summarise(const struct glm_cluster *c, uint32_t lane_i,
                              struct glm_plan *const *plans, struct glm_summary *out,
                              struct glm_error *err)
{
    const struct glm_lane *lane = &c->lanes[lane_i];
    struct glm_device_figures space;
    const struct glm_device_figures *figures = lane_figures(c, lane, &space);
    struct glm_summary s = {.cluster = c,
                            .lane = lane,
                            .plan = plans[0],
                            .n_ranks = lane->n_ranks,
                            .has_figures = figures != NULL};
    s.context_tokens =
        lane->window_tokens < PRICE_CONTEXT_TOKENS ? lane->window_tokens : PRICE_CONTEXT_TOKENS;
    for (uint32_t i = 0; i < s.n_ranks; i++) {
        struct glm_summary_rank *r = &s.ranks[i];
        r->node = &c->nodes[lane->ranks[i]];
        if (r->node->memory_bytes > r->node->reserve_bytes)
            r->room_bytes = r->node->memory_bytes - r->node->reserve_bytes;
        rank_memory(r, plans[i]);
        rank_shares(r, &c->checkpoint->model, lane, i);
        enum glm_status st = price_rank(&s, i, plans[i], figures, err);
        if (st != GLM_OK)
            return st;
    }
    find_links(&s);
    s.n_kernels = distinct_kernels(plans, s.n_ranks);
    s.n_launches = s.ranks[0].decode.n_kernels;
    s.n_exchanges = s.ranks[0].decode.n_exchanges;
    *out = s;
    return GLM_OK;
}
