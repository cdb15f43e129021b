/* SPDX-License-Identifier: Apache-2.0 */
/* A plan cut down to a few layers. Kept are the layers on which a program first runs one of its
 * blocks, with all that runs on them and all that they hold. */
#include "codegen/plan.h"
#include "spec/model.h"

#include <stdlib.h>
#include <string.h>

struct cut {
    struct arena *arena;
    bool kept[GLM_MAX_LAYERS];
    bool failed; /* out of memory */
};

static bool is_kept(const struct cut *c, uint32_t layer)
{
    return layer < GLM_MAX_LAYERS && c->kept[layer];
}

static void choose_layers(struct cut *c, const struct glm_plan_program *g)
{
    for (uint32_t i = 0; i < g->n_steps; i++) {
        const struct glm_plan_step *s = &g->steps[i];
        bool seen = s->kind != GLM_STEP_BLOCK || s->layer >= GLM_MAX_LAYERS;
        for (uint32_t k = 0; !seen && k < i; k++)
            seen = g->steps[k].kind == GLM_STEP_BLOCK && strcmp(g->steps[k].name, s->name) == 0;
        if (!seen)
            c->kept[s->layer] = true;
    }
}

static void *copy_array(struct cut *c, const void *from, uint32_t n, size_t size)
{
    void *to = arena_array(c->arena, (size_t)n + 1, size);
    if (to && n > 0)
        memcpy(to, from, n * size);
    c->failed = c->failed || !to;
    return to;
}

/* Layers of a family that are kept; the family goes when it had some and has none now. */
static bool cut_layers(struct cut *c, const uint32_t **layers, uint32_t *n_layers)
{
    uint32_t *out = copy_array(c, *layers, *n_layers, sizeof *out), n = 0;
    bool had_some = *n_layers > 0;
    for (uint32_t i = 0; out && i < *n_layers; i++)
        if (is_kept(c, (*layers)[i]))
            out[n++] = (*layers)[i];
    *layers = out;
    *n_layers = n;
    return !had_some || n > 0;
}

static void cut_program(struct cut *c, struct glm_plan_program *g)
{
    struct glm_plan_step *out = copy_array(c, g->steps, g->n_steps, sizeof *out);
    uint32_t n = 0;
    for (uint32_t i = 0; out && i < g->n_steps; i++)
        if (g->steps[i].kind != GLM_STEP_BLOCK || is_kept(c, g->steps[i].layer))
            out[n++] = g->steps[i];
    g->steps = out;
    g->n_steps = n;
}

enum glm_status glm_plan_cut(const struct glm_plan *p, uint64_t pool_tokens, struct arena *arena,
                             struct glm_plan **out, struct glm_error *err)
{
    struct cut c = {.arena = arena};
    struct glm_plan *q = ARENA_NEW(arena, struct glm_plan);
    if (!q)
        return glm_fail(err, GLM_ENOMEM, "cannot cut a plan: out of memory");
    *q = *p;
    if (q->limits.pool_tokens > pool_tokens)
        q->limits.pool_tokens = pool_tokens;
    q->weights = copy_array(&c, p->weights, p->n_weights, sizeof *p->weights);
    q->states = copy_array(&c, p->states, p->n_states, sizeof *p->states);
    q->programs = copy_array(&c, p->programs, p->n_programs, sizeof *p->programs);
    q->n_weights = q->n_states = q->n_memory = 0;
    for (uint32_t i = 0; i < p->n_programs; i++)
        choose_layers(&c, &p->programs[i]);
    for (uint32_t i = 0; !c.failed && i < p->n_programs; i++)
        cut_program(&c, &q->programs[i]);
    for (uint32_t i = 0; !c.failed && i < p->n_weights; i++) {
        struct glm_plan_weight w = p->weights[i];
        if (cut_layers(&c, &w.layers, &w.n_layers))
            q->weights[q->n_weights++] = w;
    }
    for (uint32_t i = 0; !c.failed && i < p->n_states; i++) {
        struct glm_plan_state s = p->states[i];
        if (cut_layers(&c, &s.layers, &s.n_layers))
            q->states[q->n_states++] = s;
    }
    if (c.failed)
        return glm_fail(err, GLM_ENOMEM, "cannot cut a plan: out of memory");
    *out = q;
    return GLM_OK;
}
