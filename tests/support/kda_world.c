/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds of the KDA kernels over kept states (see the header). Strides are wider than the rows, and
 * what lies between is NaN. */
#include "tests/support/kda_world.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GAP = 5, MORE_ROWS = 3 }; /* of a device's bucket than of the round */

static const char *const op_names[] = {"kda_decode", "kda_replay", "kda_prefill"};

static int32_t slot_of(size_t stream)
{
    return (int32_t)(KDA_STREAMS - stream);
}

static size_t proj_width(const struct kda_world *w)
{
    return 3 * w->h * w->d;
}

static size_t ring_bytes(const struct kda_world *w)
{
    return (KDA_STREAMS + 1) * KDA_RING * proj_width(w) * test_act_bytes(w->act);
}

static size_t state_bytes(const struct kda_world *w)
{
    return (KDA_STREAMS + 1) * 2 * w->h * w->d * w->d * sizeof(float);
}

static float *inputs(struct test_random *random, size_t n, float scale, float shift,
                     const char *act)
{
    float *p = test_normals(random, n, scale, shift);
    test_release(test_acts(p, n, act));
    return p;
}

void kda_world_init(struct kda_world *w, const struct test_build *build, size_t h, size_t d,
                    size_t n_tokens, float decay, const char *act)
{
    static const struct test_build usual = {0};
    struct test_random random = {77 + h + d};
    size_t hd = h * d;
    *w = (struct kda_world){.h = h, .d = d, .n_tokens = n_tokens, .act = act};
    w->conv_w = test_normals(&random, 3 * hd * KDA_TAPS, 0.5f, 0.1f);
    w->a_log = test_normals(&random, h, 0.4f, 0.2f);
    w->dt_bias = test_normals(&random, hd, 0.5f, 0);
    w->o_norm = test_normals(&random, d, 0.2f, 1);
    w->conv_w_bits = test_bf16s(w->conv_w, 3 * hd * KDA_TAPS);
    w->o_norm_bits = test_bf16s(w->o_norm, d);
    w->a_log_bits = test_acts(w->a_log, h, "f32");
    w->dt_bias_bits = test_acts(w->dt_bias, hd, "f32");
    for (size_t i = 0; i < KDA_STREAMS; i++) {
        w->proj[i] = inputs(&random, n_tokens * 3 * hd, 1, 0, act);
        w->b[i] = inputs(&random, n_tokens * h, 1, 0, act);
        w->f[i] = inputs(&random, n_tokens * hd, 1.5f, decay, act);
        w->g[i] = inputs(&random, n_tokens * hd, 1, 0, act);
    }
    w->weights = (struct reference_kda){
        h, d, KDA_TAPS, -5, 1e-5, !strcmp(act, "bf16"), w->conv_w, w->a_log, w->dt_bias, w->o_norm};
    w->out_bytes = hd * test_act_bytes(act);
    snprintf(w->params[KDA_PREFILL], sizeof w->params[0],
             "H=%zu D=%zu TAPS=%d RING=%d PROJ_STRIDE=%zu F_STRIDE=%zu B_STRIDE=%zu LOWER=-5.0 "
             "NORM_EPS=1e-5 VERIFY=%d",
             h, d, KDA_TAPS, KDA_RING, 3 * hd + GAP, hd + GAP, h + GAP, KDA_VERIFY);
    snprintf(w->params[KDA_DECODE], sizeof w->params[0], "%.300s REPLAY=1", w->params[KDA_PREFILL]);
    snprintf(w->params[KDA_REPLAY], sizeof w->params[0], "H=%zu D=%zu VERIFY=%d", h, d, KDA_VERIFY);
    for (int i = 0; i < KDA_OPS; i++)
        w->kernels[i] = test_kernel_with(build ? build : &usual, op_names[i], w->params[i], act);
}

void kda_world_device(struct kda_world *w)
{
    for (int i = 0; i < KDA_OPS; i++)
        w->device[i] = test_device_kernel(op_names[i], w->params[i]);
}

void kda_world_release(struct kda_world *w)
{
    free(w->conv_w);
    free(w->a_log);
    free(w->dt_bias);
    free(w->o_norm);
    test_release(w->conv_w_bits);
    test_release(w->o_norm_bits);
    test_release(w->a_log_bits);
    test_release(w->dt_bias_bits);
    for (size_t i = 0; i < KDA_STREAMS; i++) {
        free(w->proj[i]);
        free(w->b[i]);
        free(w->f[i]);
        free(w->g[i]);
    }
}

void kda_run_init(struct kda_run *r, const struct kda_world *w)
{
    *r = (struct kda_run){.world = w};
    r->conv = test_alloc(ring_bytes(w));
    r->s = test_alloc(state_bytes(w));
    for (size_t i = 0; i < KDA_STREAMS; i++) {
        r->version[i] = (int32_t)(i % 2);
        r->out[i] = test_alloc(w->n_tokens * w->out_bytes);
    }
}

void kda_run_release(struct kda_run *r)
{
    test_release(r->conv);
    test_release(r->s);
    for (size_t i = 0; i < KDA_STREAMS; i++)
        test_release(r->out[i]);
}

/* Rows of a round with a gap behind each. */
static void *gather(const struct kda_run *r, const struct test_round *round, float *const *from,
                    size_t width, const size_t *stream_of)
{
    size_t n = (size_t)round->round.n_rows, bytes = test_act_bytes(r->world->act);
    void *p = test_alloc(n * (width + GAP) * bytes);
    for (size_t i = 0; i < n; i++) {
        const struct glm_row *row = &round->rows[i];
        if (row->stream < 0)
            continue;
        const float *values = from[stream_of[row->stream]] + (size_t)row->position * width;
        for (size_t c = 0; c < width; c++)
            test_act_put(p, i * (width + GAP) + c, values[c], r->world->act);
    }
    return p;
}

static void run_op(const struct kda_run *r, enum kda_op op, const struct test_round *round,
                   void *const *args, size_t n_args, uint32_t threads)
{
    const struct glm_round *table = &round->round;
    if (!r->on_device) {
        test_kernel_run(r->world->kernels[op], table, args, threads);
        return;
    }
    const uint32_t n_rows = (uint32_t)table->n_rows + MORE_ROWS;
    const char *why =
        test_device_run(r->world->device[op], table, n_rows, n_rows, args, n_args, threads - 1);
    if (why != NULL)
        fail_msg("%s: %s", op_names[op], why);
}

static void run_rows(struct kda_run *r, struct test_round *round, const size_t *stream_of,
                     bool prefill, uint32_t threads)
{
    const struct kda_world *w = r->world;
    size_t n = (size_t)round->round.n_rows, hd = w->h * w->d;
    void *proj = gather(r, round, w->proj, 3 * hd, stream_of);
    void *b = gather(r, round, w->b, w->h, stream_of);
    void *f = gather(r, round, w->f, hd, stream_of), *g = gather(r, round, w->g, hd, stream_of);
    void *replay = test_alloc(n * w->h * (3 * w->d + 1) * sizeof(float));
    void *out = test_alloc(n * w->out_bytes);
    void *weights[] = {w->conv_w_bits, w->a_log_bits, w->dt_bias_bits, w->o_norm_bits};
    void *decode[] = {proj,       b,          f,       g,    weights[0], weights[1],
                      weights[2], weights[3], r->conv, r->s, replay,     out};
    void *chunk[] = {proj,       b,          f,       g,    weights[0], weights[1],
                     weights[2], weights[3], r->conv, r->s, out};
    void *commit[] = {r->s, replay};
    if (prefill) {
        run_op(r, KDA_PREFILL, round, chunk, 11, threads);
    } else {
        run_op(r, KDA_DECODE, round, decode, 12, threads);
        run_op(r, KDA_REPLAY, round, commit, 2, threads);
    }
    for (size_t i = 0; i < n; i++)
        if (round->rows[i].stream >= 0)
            memcpy((char *)r->out[stream_of[round->rows[i].stream]] +
                       (size_t)round->rows[i].position * w->out_bytes,
                   (char *)out + i * w->out_bytes, w->out_bytes);
        else
            for (size_t c = 0; c < hd; c++)
                assert_float_equal(test_act_get(out, i * hd + c, w->act), 0, 0);
    test_release(proj);
    test_release(b);
    test_release(f);
    test_release(g);
    test_release(replay);
    test_release(out);
}

void kda_decode(struct kda_run *r, const int32_t *n_rows, const int32_t *n_commit, size_t n_padding,
                uint32_t threads)
{
    struct test_stream s[KDA_STREAMS];
    size_t n = 0, stream_of[KDA_STREAMS];
    for (size_t i = 0; i < KDA_STREAMS; i++)
        if (n_rows[i] > 0) {
            s[n] = (struct test_stream){slot_of(i), r->version[i], r->n_context[i], n_rows[i],
                                        n_commit[i]};
            stream_of[n++] = i;
        }
    struct test_round *round = test_streams(s, n, n_padding);
    run_rows(r, round, stream_of, false, threads);
    for (size_t i = 0; i < KDA_STREAMS; i++)
        if (n_rows[i] > 0 && n_commit[i] > 0) {
            r->n_context[i] += n_commit[i];
            r->version[i] ^= 1;
        }
    test_round_free(round);
}

void kda_prefill(struct kda_run *r, size_t stream, int32_t n, uint32_t threads)
{
    struct test_stream s = {slot_of(stream), r->version[stream], r->n_context[stream], n, n};
    struct test_round *round = test_streams(&s, 1, 0);
    run_rows(r, round, &stream, true, threads);
    r->n_context[stream] += n;
    test_round_free(round);
}

const float *kda_state(const struct kda_run *r, size_t stream)
{
    const struct kda_world *w = r->world;
    size_t row = (size_t)(slot_of(stream) * 2 + r->version[stream]);
    return (const float *)r->s + row * w->h * w->d * w->d;
}

const void *kda_ring_row(const struct kda_run *r, size_t stream, int32_t position)
{
    size_t row = (size_t)(slot_of(stream) * KDA_RING + position % KDA_RING);
    return (const char *)r->conv + row * proj_width(r->world) * test_act_bytes(r->world->act);
}

bool kda_same_memory(const struct kda_run *a, const struct kda_run *b)
{
    const struct kda_world *w = a->world;
    bool same =
        memcmp(a->s, b->s, state_bytes(w)) == 0 && memcmp(a->conv, b->conv, ring_bytes(w)) == 0;
    for (size_t i = 0; i < KDA_STREAMS; i++)
        same = same && memcmp(a->out[i], b->out[i], w->n_tokens * w->out_bytes) == 0;
    return same;
}

void kda_same(const struct kda_run *a, const struct kda_run *b, size_t stream, const char *what)
{
    const struct kda_world *w = a->world;
    int32_t n = a->n_context[stream];
    assert_int_equal(n, b->n_context[stream]);
    test_same_bytes(a->out[stream], b->out[stream], (size_t)n * w->out_bytes, what);
    test_same_bytes(kda_state(a, stream), kda_state(b, stream), w->h * w->d * w->d * sizeof(float),
                    what);
    for (int32_t p = n > KDA_TAPS - 1 ? n - (KDA_TAPS - 1) : 0; p < n; p++)
        test_same_bytes(kda_ring_row(a, stream, p), kda_ring_row(b, stream, p),
                        proj_width(w) * test_act_bytes(w->act), what);
}

/* The oracle's outputs and state after n rows. */
static void expected(const struct kda_world *w, size_t stream, size_t n, double *out, double *state)
{
    reference_kda(&w->weights, n, w->proj[stream], w->b[stream], w->f[stream], w->g[stream], out,
                  state);
}

double kda_out_distance(const struct kda_run *r, size_t stream)
{
    const struct kda_world *w = r->world;
    size_t n = (size_t)r->n_context[stream], hd = w->h * w->d;
    double *out = calloc(n * hd + 1, sizeof *out), *state = calloc(hd * w->d, sizeof *state);
    double worst = 0;
    expected(w, stream, n, out, state);
    for (size_t i = 0; i < n; i++)
        worst = fmax(worst, test_acts_distance(r->out[stream], i * hd, out + i * hd, hd, w->act));
    free(out);
    free(state);
    return worst;
}

double kda_state_distance(const struct kda_run *r, size_t stream)
{
    const struct kda_world *w = r->world;
    size_t n = (size_t)r->n_context[stream], hd = w->h * w->d;
    double *out = calloc(n * hd + 1, sizeof *out), *state = calloc(hd * w->d, sizeof *state);
    expected(w, stream, n, out, state);
    double distance = test_acts_distance(kda_state(r, stream), 0, state, hd * w->d, "f32");
    free(out);
    free(state);
    return distance;
}
