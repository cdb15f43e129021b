/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA bodies of candidates and draw, executed on the CPU: the records and tokens of the host
 * bodies, bit by bit, for every way to draw and any number of ranks. */
#include "tests/support/simt.h"
#include "tests/support/streams.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct glm_draw settings[] = {
    {.temperature = 0, .top_p = 1},
    {.temperature = 0, .top_p = 1, .flags = GLM_DRAW_NO_END},
    {.temperature = 1, .top_p = 1},
    {.temperature = 0.7f, .top_p = 1, .flags = GLM_DRAW_NO_END},
    {.temperature = 1, .top_p = 0.95f, .top_k = 20},
    {.temperature = 1, .top_p = 0.9f},
    {.temperature = 2, .top_p = 0.999f, .flags = GLM_DRAW_NO_END},
    {.temperature = 1, .top_p = 1, .top_k = 7},
    {.temperature = 1, .top_p = 1, .min_p = 0.05f},
    {.temperature = 1, .top_p = 1, .top_k = 100000},
};
enum { N_ROWS = sizeof settings / sizeof settings[0] };

/* Rows of logits of one shard, of which some are equal, infinite or no number. */
struct shard {
    char params[96];
    int32_t v, c;
    int32_t *ends; /* [8] */
    float *logits;
    struct glm_draw *draws;
    struct test_round *round;
};

static struct shard new_shard(int32_t v, int32_t first, int32_t valid, int32_t c)
{
    struct shard s = {.v = v, .c = c, .round = test_round(N_ROWS)};
    s.draws = calloc(N_ROWS, sizeof *s.draws);
    s.ends = test_alloc(8 * sizeof *s.ends);
    assert_non_null(s.draws);
    struct test_random random = {(uint64_t)(v + first)};
    snprintf(s.params, sizeof s.params, "V=%d FIRST=%d VALID=%d C=%d", v, first, valid, c);
    s.logits = test_alloc((size_t)(N_ROWS * v) * 4 + 4);
    for (int32_t i = 0; i < N_ROWS * v; i++) {
        s.logits[i] = rintf(test_random_normal(&random) * 24) / 8;
        if (i % 97 == 5)
            s.logits[i] = i % 2 ? -INFINITY : NAN;
        if (i % v == 11)
            s.logits[i] = 60; /* an end id, above all others */
        if (i % v == 40 || i % v == 41)
            s.logits[i] = 50; /* equal ones after it */
    }
    for (int i = 0; i < 8; i++)
        s.ends[i] = i == 0 ? first + 11 : i == 1 ? 3 : -1;
    for (int32_t o = 0; o < N_ROWS; o++) {
        s.draws[o] = settings[o];
        s.draws[o].seed = test_random_u64(&random);
        s.draws[o].position = o * 1000;
    }
    s.round->round.draws = s.draws;
    return s;
}

static void free_shard(struct shard *s)
{
    test_release(s->logits);
    test_release(s->ends);
    free(s->draws);
    test_round_free(s->round);
}

static size_t record_bytes(const struct shard *s)
{
    return (4 + 2 * (size_t)s->c) * 4;
}

/* Records from the host body. */
static int32_t *host_records(const struct shard *s)
{
    int32_t *cand = test_alloc(N_ROWS * record_bytes(s));
    test_kernel_run(test_kernel("candidates", s->params, "bf16"), &s->round->round,
                    (void *[]){s->logits, s->ends, cand}, 1);
    return cand;
}

/* Rows [first, first + n) by the CUDA body, into records for a bucket of N_ROWS; what went wrong.
 */
static const char *device_records(const struct test_device_kernel *k, const struct shard *s,
                                  int32_t first, int32_t n, uint64_t order, int32_t *cand)
{
    struct glm_round round = s->round->round;
    round.n_out = n;
    round.draws += first;
    return test_device_run(k, &round, N_ROWS, N_ROWS,
                           (void *[]){s->logits + (size_t)first * (size_t)s->v, s->ends, cand}, 3,
                           order);
}

/* v, first, valid, c: one block and several, a short one, padding of the vocabulary, a wide offer,
 * an empty shard. */
static const int32_t shapes[][4] = {{320, 0, 320, 16},
                                    {4544, 4544, 9050, 64},
                                    {2112, 0, 2112, 4096},
                                    {320, 320, 500, 8},
                                    {0, 0, 150, 8}};

static void records_have_the_hosts_bits(void **state)
{
    NEED_DEVICE();
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct shard s = new_shard(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3]);
        const struct test_device_kernel *k = test_device_kernel("candidates", s.params);
        int32_t *want = host_records(&s), *got = test_alloc(N_ROWS * record_bytes(&s));
        const char *why = device_records(k, &s, 0, N_ROWS, i, got);
        if (why != NULL)
            fail_msg("%s: %s", s.params, why);
        for (size_t o = 0; o < N_ROWS; o++)
            test_same_bytes((char *)got + o * record_bytes(&s), (char *)want + o * record_bytes(&s),
                            record_bytes(&s), s.params);
        test_release(got);
        got = test_alloc(N_ROWS * record_bytes(&s)); /* a row alone; no other is touched */
        assert_null(device_records(k, &s, 4, 1, 9, got));
        test_same_bytes(got, (char *)want + 4 * record_bytes(&s), record_bytes(&s), s.params);
        for (size_t j = record_bytes(&s); j < N_ROWS * record_bytes(&s); j++)
            assert_int_equal(((unsigned char *)got)[j], 0xff);
        test_release(want);
        test_release(got);
        free_shard(&s);
    }
}

static void planted_mistakes_are_noticed(void **state)
{
    static const char *const changes[][2] = {
        {"n_more += w < glm_warp()", "n_more += w < glm_warp() - 1"},
        {"from[at].key >= from[i].key", "from[at].key > from[i].key"},
        {"cut->n_equal -= all_equal", "cut->n_equal -= 0 * all_equal"},
        {"i < IDS; i += 8", "i < IDS - 8; i += 8"},
        {"return a.id < b.id ? a : b", "return a.id > b.id ? a : b"},
        {"prefix |= bin << shift", "prefix |= (bin + (pass == 2)) << shift"},
    };
    NEED_DEVICE();
    struct shard s = new_shard(4544, 4544, 9050, 64);
    int32_t *want = host_records(&s);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        int32_t *got = test_alloc(N_ROWS * record_bytes(&s));
        const struct test_device_kernel *k =
            test_device_kernel_with("candidates", s.params, changes[i][0], changes[i][1]);
        if (device_records(k, &s, 0, N_ROWS, 0, got) == NULL &&
            memcmp(got, want, N_ROWS * record_bytes(&s)) == 0)
            fail_msg("'%s' passes as '%s'", changes[i][1], changes[i][0]);
        test_release(got);
    }
    test_release(want);
    free_shard(&s);
}

static void ranks_draw_the_hosts_tokens(void **state)
{
    enum { WORLD = 3, V = 704, C = 24 };
    NEED_DEVICE();
    int32_t *cands = NULL, n_tokens = 0, host[N_ROWS], *device = test_alloc(N_ROWS * 4);
    struct shard shards[WORLD];
    for (int32_t r = 0; r < WORLD; r++) {
        shards[r] = new_shard(V, r * V, WORLD * V - 50, C);
        memcpy(shards[r].draws, shards[0].draws, N_ROWS * sizeof *shards[r].draws);
        int32_t *mine = host_records(&shards[r]);
        if (cands == NULL)
            cands = test_alloc(WORLD * N_ROWS * record_bytes(&shards[0]));
        memcpy((char *)cands + (size_t)r * N_ROWS * record_bytes(&shards[0]), mine,
               N_ROWS * record_bytes(&shards[0]));
        test_release(mine);
    }
    static const char params[] = "WORLD=3 C=24 V=2112";
    const struct glm_round *round = &shards[0].round->round;
    test_kernel_run(test_kernel("draw", params, "bf16"), round, (void *[]){cands, host}, 1);
    assert_null(test_device_run(test_device_kernel("draw", params), round, 16, 16,
                                (void *[]){cands, device}, 2, 1));
    for (int32_t o = 0; o < N_ROWS; o++) {
        assert_int_equal(device[o], host[o]);
        n_tokens += host[o] >= 0;
    }
    assert_true(n_tokens > N_ROWS / 2);
    const struct test_device_kernel *wrong =
        test_device_kernel_with("draw", params, "o * record", "(o + 1) % n * record");
    assert_null(test_device_run(wrong, round, 16, 16, (void *[]){cands, device}, 2, 1));
    assert_int_not_equal(memcmp(device, host, sizeof host), 0);
    test_release(cands);
    test_release(device);
    for (int32_t r = 0; r < WORLD; r++)
        free_shard(&shards[r]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_have_the_hosts_bits),
        cmocka_unit_test(planted_mistakes_are_noticed),
        cmocka_unit_test(ranks_draw_the_hosts_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
