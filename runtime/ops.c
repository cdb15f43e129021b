/* SPDX-License-Identifier: Apache-2.0 */
/* Operation lists to bytes and back. Owns their layout: header, operations, draws, tokens, each
 * part a multiple of 8 bytes so that reading needs no copies. Rules of a list are book.c's. */
#include "runtime/ops.h"

#include <string.h>

enum { OPS_MAGIC = 0x4f4d4c47 }; /* "GLMO" */

struct list_header {
    uint32_t magic, n_ops, n_draws, n_tokens;
};
struct list_op {
    uint32_t kind, stream, kept, n, n_tokens, out_from, has_tokens, has_draws;
};

uint32_t glm_op_outs(const struct glm_op *op)
{
    if (op->kind == GLM_OP_DECODE)
        return op->n;
    return op->kind == GLM_OP_FILL && op->out_from < op->n ? op->n - op->out_from : 0;
}

static size_t list_bytes(uint32_t n_ops, uint32_t n_draws, uint32_t n_tokens)
{
    return sizeof(struct list_header) + n_ops * sizeof(struct list_op) +
           n_draws * sizeof(struct glm_draw) + (size_t)n_tokens * sizeof(int32_t);
}

enum glm_status glm_op_list_init(struct glm_op_list *l, const struct glm_plan *plan,
                                 struct arena *arena, struct glm_error *err)
{
    *l = (struct glm_op_list){0};
    l->max_tokens = plan->limits.prefill_rows + plan->limits.n_streams * plan->limits.verify_rows;
    l->max_draws = l->max_tokens;
    l->capacity = list_bytes(GLM_MAX_OPS, l->max_draws, l->max_tokens);
    l->bytes = arena_alloc(arena, l->capacity);
    l->ops = ARENA_ARRAY(arena, GLM_MAX_OPS, struct glm_op);
    if (!l->bytes || !l->ops)
        return glm_fail(err, GLM_ENOMEM, "cannot keep operation lists of %zu bytes: out of memory",
                        l->capacity);
    return GLM_OK;
}

enum glm_status glm_ops_write(struct glm_op_list *l, const struct glm_op *ops, uint32_t n_ops,
                              struct glm_error *err)
{
    struct list_header h = {.magic = OPS_MAGIC, .n_ops = n_ops};
    if (n_ops == 0 || n_ops > GLM_MAX_OPS)
        return glm_fail(err, GLM_EINVAL, "cannot run a list of %u operations: 1 to %d are possible",
                        n_ops, GLM_MAX_OPS);
    for (uint32_t i = 0; i < n_ops; i++) {
        const struct glm_op *op = &ops[i];
        uint32_t outs = glm_op_outs(op), tokens = op->tokens ? op->n : 0;
        if (tokens > l->max_tokens - h.n_tokens || outs > l->max_draws)
            return glm_fail(err, GLM_EINVAL, "cannot run operation %u: the list's tokens exceed %u",
                            i, l->max_tokens);
        h.n_tokens += tokens;
        h.n_draws += op->draws ? outs : 0;
        if (h.n_draws > l->max_draws)
            return glm_fail(err, GLM_EINVAL, "cannot run operation %u: the list's draws exceed %u",
                            i, l->max_draws);
    }
    unsigned char *at = l->bytes + sizeof h;
    unsigned char *draws = at + n_ops * sizeof(struct list_op);
    unsigned char *tokens = draws + h.n_draws * sizeof(struct glm_draw);
    memcpy(l->bytes, &h, sizeof h);
    for (uint32_t i = 0; i < n_ops; i++) {
        const struct glm_op *op = &ops[i];
        struct list_op o = {.kind = op->kind,
                            .stream = op->stream,
                            .kept = op->kept,
                            .n = op->n,
                            .n_tokens = op->n_tokens,
                            .out_from = op->out_from,
                            .has_tokens = op->tokens != NULL,
                            .has_draws = op->draws != NULL && glm_op_outs(op) > 0};
        memcpy(at, &o, sizeof o);
        at += sizeof o;
        if (o.has_draws) {
            memcpy(draws, op->draws, glm_op_outs(op) * sizeof *op->draws);
            draws += glm_op_outs(op) * sizeof *op->draws;
        }
        if (o.has_tokens && op->n > 0) {
            memcpy(tokens, op->tokens, op->n * sizeof *op->tokens);
            tokens += op->n * sizeof *op->tokens;
        }
    }
    l->len = list_bytes(n_ops, h.n_draws, h.n_tokens);
    return GLM_OK;
}

enum glm_status glm_ops_read(struct glm_op_list *l, struct glm_error *err)
{
    struct list_header h = {0};
    if (l->len >= sizeof h)
        memcpy(&h, l->bytes, sizeof h);
    if (h.magic != OPS_MAGIC || h.n_ops == 0 || h.n_ops > GLM_MAX_OPS || h.n_draws > l->max_draws ||
        h.n_tokens > l->max_tokens || l->len != list_bytes(h.n_ops, h.n_draws, h.n_tokens))
        return glm_fail(err, GLM_EINVAL,
                        "cannot read an operation list: %zu bytes are not a list of %u operations, "
                        "%u draws and %u tokens",
                        l->len, h.n_ops, h.n_draws, h.n_tokens);
    const unsigned char *at = l->bytes + sizeof h;
    const struct glm_draw *draws = (const void *)(at + h.n_ops * sizeof(struct list_op));
    const int32_t *tokens = (const void *)(draws + h.n_draws);
    uint32_t n_draws = 0, n_tokens = 0;
    for (uint32_t i = 0; i < h.n_ops; i++, at += sizeof(struct list_op)) {
        struct list_op o;
        memcpy(&o, at, sizeof o);
        struct glm_op op = {.kind = o.kind < GLM_N_OPS ? (enum glm_op_kind)o.kind : GLM_N_OPS,
                            .stream = o.stream,
                            .kept = o.kept,
                            .n = o.n,
                            .n_tokens = o.n_tokens,
                            .out_from = o.out_from};
        uint32_t outs = glm_op_outs(&op);
        if ((o.has_tokens && o.n > h.n_tokens - n_tokens) ||
            (o.has_draws && outs > h.n_draws - n_draws))
            return glm_fail(err, GLM_EINVAL,
                            "cannot read an operation list: operation %u has more tokens or draws "
                            "than the list's %u and %u",
                            i, h.n_tokens, h.n_draws);
        if (o.has_tokens) {
            op.tokens = tokens + n_tokens;
            n_tokens += o.n;
        }
        if (o.has_draws) {
            op.draws = draws + n_draws;
            n_draws += outs;
        }
        l->ops[i] = op;
    }
    l->n_ops = h.n_ops;
    return GLM_OK;
}
