/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds of the sparse attention kernels over kept caches (see the header). */
#include "tests/support/dsa_world.h"

#include "kernels-templates/prelude.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GAP = 3, N_IN = DSA_Q + DSA_C + DSA_D + DSA_INDEX_HEADS };

static int32_t slot_of(size_t stream)
{
    return (int32_t)(DSA_STREAMS - stream);
}

static float *inputs(struct test_random *random, size_t n, float scale, const char *act)
{
    float *p = test_normals(random, n, scale, 0);
    test_release(test_acts(p, n, act));
    return p;
}

static void prepare_params(const char *kv, char params[320])
{
    snprintf(params, 320,
             "Q=%d C=%d D=%d POOL=%d RING=%d KV=%s QKV_STRIDE=%d IK_STRIDE=%d IG_STRIDE=%d "
             "NORM_EPS=1e-5 K_EPS=1e-6",
             DSA_Q, DSA_C, DSA_D, DSA_POOL, DSA_RING, kv, N_IN + GAP, N_IN + GAP, DSA_D + GAP);
}

static void select_params(const struct dsa_world *w, char params[320])
{
    snprintf(params, 320, "H=%d D=%d POOL=%d TOPK=%zu MAXPOOLS=%d KV=%s W_STRIDE=%d",
             DSA_INDEX_HEADS, DSA_D, DSA_POOL, w->topk, DSA_MAX_POOLS, w->kv, N_IN + GAP);
}

static void attend_params(const struct dsa_world *w, char params[320])
{
    snprintf(params, 320, "H=%d C=%d POOL=%d TOPK=%zu KV=%s SCALE=0.125", DSA_HEADS, DSA_C,
             DSA_POOL, w->topk, w->kv);
}

void dsa_world_use_device(struct dsa_world *w, const char *name, const char *was, const char *is)
{
    struct {
        const char *name;
        struct test_device_kernel **kernel;
        char params[320];
    } rows[] = {{"dsa_prepare", &w->device_prepare, ""},
                {"dsa_select", &w->device_select, ""},
                {"mla_attend", &w->device_attend, ""}};
    prepare_params(w->kv, rows[0].params);
    select_params(w, rows[1].params);
    attend_params(w, rows[2].params);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        *rows[i].kernel = name != NULL && strcmp(name, rows[i].name) == 0
                              ? test_device_kernel_with(name, rows[i].params, was, is)
                              : test_device_kernel(rows[i].name, rows[i].params);
}

void dsa_world_init(struct dsa_world *w, const struct test_build *build, size_t n_tokens,
                    size_t topk, const char *kv, const char *act)
{
    static const struct test_build usual = {0};
    struct test_random random = {5 + n_tokens + topk};
    *w = (struct dsa_world){.n_tokens = n_tokens,
                            .topk = topk,
                            .act = act,
                            .kv = kv,
                            .bucket_context = DSA_MAX_POOLS * DSA_POOL};
    w->q_norm = test_normals(&random, DSA_Q, 0.2f, 1);
    w->kv_norm = test_normals(&random, DSA_C, 0.2f, 1);
    w->k_norm = test_normals(&random, DSA_D, 0.2f, 1);
    w->k_bias = test_normals(&random, DSA_D, 0.3f, 0);
    w->ape = test_normals(&random, DSA_POOL * DSA_D, 0.5f, 0);
    w->q_norm_bits = test_bf16s(w->q_norm, DSA_Q);
    w->kv_norm_bits = test_bf16s(w->kv_norm, DSA_C);
    w->k_norm_bits = test_bf16s(w->k_norm, DSA_D);
    w->k_bias_bits = test_bf16s(w->k_bias, DSA_D);
    w->ape_bits = test_bf16s(w->ape, DSA_POOL * DSA_D);
    for (size_t i = 0; i < DSA_STREAMS; i++) {
        w->qkv[i] = inputs(&random, n_tokens * (DSA_Q + DSA_C), 1, act);
        w->ik[i] = inputs(&random, n_tokens * DSA_D, 2, act);
        w->ig[i] = inputs(&random, n_tokens * DSA_D, 1, act);
        w->iq[i] = inputs(&random, n_tokens * DSA_INDEX_HEADS * DSA_D, 1, act);
        w->w[i] = inputs(&random, n_tokens * DSA_INDEX_HEADS, 1, act);
        w->q[i] = inputs(&random, n_tokens * DSA_HEADS * DSA_C, 1, act);
    }
    char params[320];
    prepare_params(kv, params);
    w->prepare = test_kernel_with(build ? build : &usual, "dsa_prepare", params, act);
    select_params(w, params);
    w->select = test_kernel_with(build ? build : &usual, "dsa_select", params, act);
    attend_params(w, params);
    w->attend = test_kernel_with(build ? build : &usual, "mla_attend", params, act);
}

void dsa_world_release(struct dsa_world *w)
{
    float *const owned[] = {w->q_norm, w->kv_norm, w->k_norm, w->k_bias, w->ape};
    void *const bits[] = {w->q_norm_bits, w->kv_norm_bits, w->k_norm_bits, w->k_bias_bits,
                          w->ape_bits};
    for (size_t i = 0; i < 5; i++) {
        free(owned[i]);
        test_release(bits[i]);
    }
    for (size_t i = 0; i < DSA_STREAMS; i++) {
        free(w->qkv[i]);
        free(w->ik[i]);
        free(w->ig[i]);
        free(w->iq[i]);
        free(w->w[i]);
        free(w->q[i]);
    }
}

size_t dsa_row_bytes(const struct dsa_world *w, size_t width)
{
    return strcmp(w->kv, "fp32") == 0   ? 4 * width
           : strcmp(w->kv, "bf16") == 0 ? 2 * width
                                        : width + 16;
}

void dsa_run_init(struct dsa_run *r, const struct dsa_world *w)
{
    *r = (struct dsa_run){.world = w};
    size_t slots = DSA_STREAMS + 1, tokens = test_extents(slots) * GLM_EXTENT_ROWS;
    r->latent = test_alloc(tokens * dsa_row_bytes(w, DSA_C));
    r->pooled = test_alloc(tokens / DSA_POOL * dsa_row_bytes(w, DSA_D));
    r->keys = test_alloc(slots * DSA_RING * 2 * DSA_D * test_act_bytes(w->act));
    for (size_t i = 0; i < DSA_STREAMS; i++) {
        r->qr[i] = test_alloc(w->n_tokens * DSA_Q * test_act_bytes(w->act));
        r->out[i] = test_alloc(w->n_tokens * DSA_HEADS * DSA_C * test_act_bytes(w->act));
        r->sel[i] = test_alloc(w->n_tokens * (1 + w->topk) * sizeof(int32_t));
    }
}

void dsa_run_release(struct dsa_run *r)
{
    test_release(r->latent);
    test_release(r->pooled);
    test_release(r->keys);
    for (size_t i = 0; i < DSA_STREAMS; i++) {
        test_release(r->qr[i]);
        test_release(r->out[i]);
        test_release(r->sel[i]);
    }
}

/* Columns [at, at + width) of rows of `stride`. */
static void fill(const struct dsa_run *r, const struct test_round *round, const size_t *stream_of,
                 void *to, size_t stride, size_t at, float *const *from, size_t width)
{
    for (int32_t i = 0; i < round->round.n_rows; i++) {
        const struct glm_row *row = &round->rows[i];
        for (size_t c = 0; row->stream >= 0 && c < width; c++)
            test_act_put(to, (size_t)i * stride + at + c,
                         from[stream_of[row->stream]][(size_t)row->position * width + c],
                         r->world->act);
    }
}

static void *offset(const struct dsa_run *r, void *p, size_t elements)
{
    return (char *)p + elements * test_act_bytes(r->world->act);
}

/* What the round gave, sorted by position; padding must be zeros and no pools. */
static void keep(struct dsa_run *r, const struct test_round *round, const size_t *stream_of,
                 const void *qr, const void *out, const int32_t *sel)
{
    const struct dsa_world *w = r->world;
    size_t bytes = test_act_bytes(w->act), n_out = DSA_HEADS * DSA_C * bytes, n_sel = 1 + w->topk;
    for (int32_t i = 0; i < round->round.n_rows; i++) {
        const struct glm_row *row = &round->rows[i];
        size_t p = (size_t)row->position, at = (size_t)i;
        if (row->stream < 0) {
            assert_int_equal(sel[at * n_sel], 0);
            for (size_t c = 0; c < DSA_HEADS * DSA_C; c++)
                assert_float_equal(test_act_get(out, at * DSA_HEADS * DSA_C + c, w->act), 0, 0);
            continue;
        }
        size_t s = stream_of[row->stream];
        memcpy((char *)r->qr[s] + p * DSA_Q * bytes, (const char *)qr + at * DSA_Q * bytes,
               DSA_Q * bytes);
        memcpy((char *)r->out[s] + p * n_out, (const char *)out + at * n_out, n_out);
        memcpy(r->sel[s] + p * n_sel, sel + at * n_sel, n_sel * sizeof *sel);
    }
}

/* One of the three by the device where it has it, else by the host. */
static void run_kernel(const struct dsa_run *r, const struct test_device_kernel *device,
                       const struct test_kernel *host, const struct test_round *round,
                       size_t n_spare, void *const *args, size_t n_args, uint32_t threads)
{
    const struct glm_cost_context bucket = {.R = (double)round->round.n_rows + (double)n_spare,
                                            .C = r->world->bucket_context,
                                            .S = round->round.n_streams};
    if (device != NULL)
        assert_null(test_device_run_in(device, &round->round, &bucket, args, n_args, threads));
    else
        test_kernel_run(host, &round->round, args, threads);
}

static void run_rows(struct dsa_run *r, struct test_round *round, const size_t *stream_of,
                     uint32_t threads)
{
    const struct dsa_world *w = r->world;
    size_t n = (size_t)round->round.n_rows, bytes = test_act_bytes(w->act), stride = N_IN + GAP;
    size_t n_iq = DSA_INDEX_HEADS * DSA_D, n_q = DSA_HEADS * DSA_C;
    void *in = test_alloc(n * stride * bytes), *ig = test_alloc(n * (DSA_D + GAP) * bytes);
    void *iq = test_alloc(n * n_iq * bytes), *q = test_alloc(n * n_q * bytes);
    void *ikn = test_alloc(n * DSA_D * bytes), *qr = test_alloc(n * DSA_Q * bytes);
    void *out = test_alloc(n * n_q * bytes), *sel = test_alloc(n * (1 + w->topk) * 4);
    fill(r, round, stream_of, in, stride, 0, w->qkv, DSA_Q + DSA_C);
    fill(r, round, stream_of, in, stride, DSA_Q + DSA_C, w->ik, DSA_D);
    fill(r, round, stream_of, in, stride, DSA_Q + DSA_C + DSA_D, w->w, DSA_INDEX_HEADS);
    fill(r, round, stream_of, ig, DSA_D + GAP, 0, w->ig, DSA_D);
    fill(r, round, stream_of, iq, n_iq, 0, w->iq, n_iq);
    fill(r, round, stream_of, q, n_q, 0, w->q, n_q);
    void *prepare[] = {in,
                       offset(r, in, DSA_Q + DSA_C),
                       ig,
                       w->q_norm_bits,
                       w->kv_norm_bits,
                       w->k_norm_bits,
                       w->k_bias_bits,
                       w->ape_bits,
                       r->latent,
                       r->keys,
                       r->pooled,
                       ikn,
                       qr};
    void *select[] = {iq, offset(r, in, DSA_Q + DSA_C + DSA_D), r->pooled, sel};
    void *attend[] = {q, r->latent, sel, out};
    run_kernel(r, w->device_prepare, w->prepare, round, 3, prepare,
               sizeof prepare / sizeof prepare[0], threads);
    run_kernel(r, w->device_select, w->select, round, 0, select, sizeof select / sizeof select[0],
               threads);
    run_kernel(r, w->device_attend, w->attend, round, 0, attend, sizeof attend / sizeof attend[0],
               threads);
    keep(r, round, stream_of, qr, out, sel);
    void *const owned[] = {in, ig, iq, q, ikn, qr, out, sel};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        test_release(owned[i]);
}

void dsa_round(struct dsa_run *r, const int32_t *n_rows, const int32_t *n_commit, size_t n_padding,
               uint32_t threads)
{
    struct test_stream s[DSA_STREAMS];
    size_t n = 0, stream_of[DSA_STREAMS];
    for (size_t i = 0; i < DSA_STREAMS; i++)
        if (n_rows[i] > 0) {
            s[n] = (struct test_stream){slot_of(i), 0, r->n_context[i], n_rows[i], n_commit[i]};
            stream_of[n++] = i;
        }
    struct test_round *round = test_streams(s, n, n_padding);
    run_rows(r, round, stream_of, threads);
    for (size_t i = 0; i < DSA_STREAMS; i++)
        r->n_context[i] += n_rows[i] > 0 ? n_commit[i] : 0;
    test_round_free(round);
}

const char *dsa_latent_row(const struct dsa_run *r, size_t stream, int32_t position)
{
    int32_t extent = test_extent(slot_of(stream), position / GLM_EXTENT_ROWS);
    size_t row = (size_t)(extent * GLM_EXTENT_ROWS + position % GLM_EXTENT_ROWS);
    return r->latent + row * dsa_row_bytes(r->world, DSA_C);
}

const char *dsa_pooled_row(const struct dsa_run *r, size_t stream, int32_t pool)
{
    const int32_t per = GLM_EXTENT_ROWS / DSA_POOL;
    int32_t extent = test_extent(slot_of(stream), pool / per);
    return r->pooled + (size_t)(extent * per + pool % per) * dsa_row_bytes(r->world, DSA_D);
}

bool dsa_same_memory(const struct dsa_run *a, const struct dsa_run *b)
{
    const struct dsa_world *w = a->world;
    const size_t slots = DSA_STREAMS + 1, tokens = test_extents(slots) * GLM_EXTENT_ROWS;
    const size_t bytes = test_act_bytes(w->act);
    bool same = memcmp(a->latent, b->latent, tokens * dsa_row_bytes(w, DSA_C)) == 0 &&
                memcmp(a->pooled, b->pooled, tokens / DSA_POOL * dsa_row_bytes(w, DSA_D)) == 0 &&
                memcmp(a->keys, b->keys, slots * DSA_RING * 2 * DSA_D * bytes) == 0;
    for (size_t i = 0; i < DSA_STREAMS; i++)
        same = same && memcmp(a->qr[i], b->qr[i], w->n_tokens * DSA_Q * bytes) == 0 &&
               memcmp(a->sel[i], b->sel[i], w->n_tokens * (1 + w->topk) * sizeof(int32_t)) == 0 &&
               memcmp(a->out[i], b->out[i], w->n_tokens * DSA_HEADS * DSA_C * bytes) == 0;
    return same;
}

void dsa_decode_row(const struct dsa_world *w, const char *row, size_t width, float *values)
{
    float scale = 1;
    if (strcmp(w->kv, "fp8") == 0)
        memcpy(&scale, row + width, sizeof scale);
    for (size_t i = 0; i < width; i++)
        if (strcmp(w->kv, "fp32") == 0)
            memcpy(&values[i], row + 4 * i, 4);
        else if (strcmp(w->kv, "bf16") == 0)
            values[i] = test_act_get(row, i, "bf16");
        else
            values[i] = glm_e4m3_f32((uint8_t)row[i]) * scale;
}

void dsa_same(const struct dsa_run *a, const struct dsa_run *b, size_t stream, const char *what)
{
    const struct dsa_world *w = a->world;
    int32_t n = a->n_context[stream];
    size_t rows = (size_t)n, bytes = test_act_bytes(w->act);
    assert_int_equal(n, b->n_context[stream]);
    for (int32_t p = 0; p < n; p++) {
        test_same_bytes(dsa_latent_row(a, stream, p), dsa_latent_row(b, stream, p),
                        dsa_row_bytes(w, DSA_C), what);
        const int32_t *sel = a->sel[stream] + (size_t)p * (1 + w->topk);
        test_same_bytes(sel, b->sel[stream] + (size_t)p * (1 + w->topk),
                        (size_t)(1 + sel[0]) * sizeof *sel, what);
    }
    for (int32_t p = 0; p < n / DSA_POOL; p++)
        test_same_bytes(dsa_pooled_row(a, stream, p), dsa_pooled_row(b, stream, p),
                        dsa_row_bytes(w, DSA_D), what);
    test_same_bytes(a->qr[stream], b->qr[stream], rows * DSA_Q * bytes, what);
    test_same_bytes(a->out[stream], b->out[stream], rows * DSA_HEADS * DSA_C * bytes, what);
}
