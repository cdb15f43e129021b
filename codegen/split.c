/* SPDX-License-Identifier: Apache-2.0 */
/* How a dimension is cut over ranks: whole units, remainders to the lowest ranks, no padding
 * (design 4). Owns the one table of cut dimensions; which tensor
 * is cut along which of them is the blocks' business (graph_*.c). */
#include "codegen/graph.h"

#include <stddef.h>

enum { HEAD_UNIT = 1, WIDTH_UNIT = 128, VOCAB_UNIT = 64 };

/* One cut dimension of the model. Widths go by 128 because an EXL3 share must be whole Hadamard
 * blocks and every rank's share of a dense matrix whole quantization groups. */
struct cut {
    const char *what; /* in messages */
    size_t share_at;  /* in struct glm_shares */
    uint32_t unit;
    bool by_layer; /* may rotate */
};

static const struct cut cuts[] = {
    {"attention heads", offsetof(struct glm_shares, heads), HEAD_UNIT, true},
    {"KDA heads", offsetof(struct glm_shares, kda_heads), HEAD_UNIT, true},
    {"dense MLP width", offsetof(struct glm_shares, dense), WIDTH_UNIT, true},
    {"routed expert width", offsetof(struct glm_shares, expert), WIDTH_UNIT, true},
    {"shared expert width", offsetof(struct glm_shares, shared), WIDTH_UNIT, true},
    {"vocabulary", offsetof(struct glm_shares, vocab), VOCAB_UNIT, false},
};
enum { N_CUTS = sizeof cuts / sizeof cuts[0] };

/* Elements of the cut dimension; 0: the model has no such part. In the order of `cuts`. */
static void cut_totals(const struct glm_model *m, uint32_t totals[N_CUTS])
{
    bool has_kda = false, has_dsa = m->n_mtp > 0, has_dense = false, has_moe = m->n_mtp > 0;
    for (uint32_t i = 0; i < m->n_layers; i++) {
        has_kda |= m->attention[i] == GLM_ATTENTION_KDA;
        has_dsa |= m->attention[i] == GLM_ATTENTION_DSA;
        has_dense |= m->ffn[i] == GLM_FFN_DENSE;
        has_moe |= m->ffn[i] == GLM_FFN_MOE;
    }
    totals[0] = has_dsa ? m->n_heads : 0;
    totals[1] = has_kda ? m->n_kda_heads : 0;
    totals[2] = has_dense ? m->d_dense : 0;
    totals[3] = has_moe ? m->d_expert : 0;
    totals[4] = has_moe ? m->n_shared_experts * m->d_expert : 0;
    totals[5] = m->d_vocab;
}

struct glm_share glm_split(uint32_t total, uint32_t unit, uint32_t world, uint32_t rank,
                           uint32_t rotate)
{
    uint32_t units = total / unit, each = units / world, extra = units % world;
    uint32_t first = 0, count = 0;
    for (uint32_t r = 0; r <= rank; r++) {
        first += count;
        count = each + ((r + world - rotate % world) % world < extra ? 1 : 0);
    }
    return (struct glm_share){.first = first * unit, .count = count * unit};
}

enum glm_status glm_split_check(const struct glm_model *m, const struct glm_lane *lane,
                                struct diag_list *diags)
{
    uint32_t totals[N_CUTS];
    enum glm_status st = GLM_OK;
    cut_totals(m, totals);
    for (uint32_t i = 0; i < N_CUTS; i++) {
        const struct cut *cut = &cuts[i];
        uint32_t units = totals[i] / cut->unit;
        if (totals[i] == 0)
            continue;
        if (totals[i] % cut->unit != 0) {
            diag_add(diags, DIAG_ERROR, lane->at, "lane.split-unit",
                     "use a checkpoint whose widths are whole units",
                     "lane '%s' cannot split the %s: %u is not a multiple of the unit %u",
                     lane->name, cut->what, totals[i], cut->unit);
            st = GLM_ESPEC;
        } else if (units < lane->n_ranks) {
            const char *hint =
                arena_printf(diags->arena, "name at most %u ranks in this lane", units);
            diag_add(diags, DIAG_ERROR, lane->at, "lane.split-too-fine", hint,
                     "lane '%s' cannot split the %s at TP %u: %u is %u units of %u", lane->name,
                     cut->what, lane->n_ranks, totals[i], units, cut->unit);
            st = GLM_ESPEC;
        }
    }
    return st;
}

struct glm_shares glm_layer_shares(const struct glm_model *m, const struct glm_lane *lane,
                                   uint32_t rank, uint32_t layer)
{
    uint32_t totals[N_CUTS];
    struct glm_shares shares = {0};
    cut_totals(m, totals);
    for (uint32_t i = 0; i < N_CUTS; i++) {
        struct glm_share *share = (struct glm_share *)(void *)((char *)&shares + cuts[i].share_at);
        uint32_t rotate = lane->rotate_uneven && cuts[i].by_layer ? layer : 0;
        *share = glm_split(totals[i], cuts[i].unit, lane->n_ranks, rank, rotate);
    }
    return shares;
}
