/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA bodies of dsa_prepare, dsa_select and mla_attend, executed on the CPU: after every round
 * the caches, the ring, the query inputs, the selections and the outputs have the bits that the
 * host bodies leave, in every form of the cache. */
#include "tests/support/dsa_world.h"

/* Rows of each stream in a round, and those that stay; the long one overruns the ring. */
static const int32_t rounds[][2][DSA_STREAMS] = {
    {{1, 3}, {1, 3}}, {{1, 1}, {1, 0}}, {{5, 0}, {2, 0}}, {{2, 16}, {2, 9}}, {{31, 5}, {31, 5}},
};
enum { N_ROUNDS = sizeof rounds / sizeof rounds[0] };

/* n_before rows of both streams, a multiple of 64. */
static void run_before(struct dsa_run *r, int32_t n_before)
{
    static const int32_t rows[DSA_STREAMS] = {64, 64};
    for (int32_t i = 0; i < n_before; i += 64)
        dsa_round(r, rows, rows, 0, 1);
}

/* n_before rows of both streams by the host, then the rounds by both: do they agree to the end? A
 * kernel of the device's has a mistake, or none has. */
static bool agrees(const char *kv, size_t topk, int32_t n_before, const char *name, const char *was,
                   const char *is)
{
    struct dsa_world host, device;
    struct dsa_run a, b;
    const size_t n_tokens = (size_t)n_before + 60;
    bool same = true;
    dsa_world_init(&host, NULL, n_tokens, topk, kv, "bf16");
    dsa_world_init(&device, NULL, n_tokens, topk, kv, "bf16");
    dsa_run_init(&a, &host);
    dsa_run_init(&b, &device);
    run_before(&a, n_before);
    run_before(&b, n_before);
    dsa_world_use_device(&device, name, was, is);
    for (size_t i = 0; same && i < N_ROUNDS; i++) {
        dsa_round(&a, rounds[i][0], rounds[i][1], i % 2, 1);
        dsa_round(&b, rounds[i][0], rounds[i][1], i % 2, (uint32_t)i + 1);
        same = dsa_same_memory(&a, &b);
    }
    dsa_run_release(&a);
    dsa_run_release(&b);
    dsa_world_release(&host);
    dsa_world_release(&device);
    return same;
}

static void rounds_leave_the_hosts_bits_in_every_form(void **state)
{
    static const char *const forms[] = {"fp8", "bf16", "fp32"};
    NEED_DEVICE();
    for (size_t i = 0; i < 3; i++)
        if (!agrees(forms[i], 8, 0, NULL, NULL, NULL))
            fail_msg("%s rows differ", forms[i]);
}

/* Some 600 keys of a row: two chunks to be merged. */
static void long_contexts_are_merged_in_the_hosts_order(void **state)
{
    NEED_DEVICE();
    assert_true(agrees("fp8", 150, 640, NULL, NULL, NULL));
    assert_false(agrees("fp8", 150, 640, "mla_attend", "acc[i] * x", "acc[i]"));
}

/* Rows of both streams behind a context of two spans of pools and two chunks of keys: each alone,
 * in the smallest grid that its context allows. */
enum { N_BEFORE = 1088, N_TOKENS = N_BEFORE + 90, N_TOPK = 150 };
static const int32_t many_rows[DSA_STREAMS] = {90, 45};

static void run_rows_alone(struct dsa_world *w, struct dsa_run *r)
{
    dsa_world_init(w, NULL, N_TOKENS, N_TOPK, "fp8", "bf16");
    dsa_run_init(r, w);
    run_before(r, N_BEFORE);
    dsa_world_use_device(w, NULL, NULL, NULL);
    for (size_t s = 0; s < DSA_STREAMS; s++)
        for (int32_t i = 0; i < many_rows[s]; i++) {
            const int32_t one[DSA_STREAMS] = {s == 0, s == 1};
            w->bucket_context = r->n_context[s] + 1;
            dsa_round(r, one, one, 0, 1);
        }
}

/* All of them in one round, of three launches, in the largest grid. */
static bool together_they_agree(const struct dsa_run *alone, const char *name, const char *was,
                                const char *is)
{
    struct dsa_world w;
    struct dsa_run r;
    dsa_world_init(&w, NULL, N_TOKENS, N_TOPK, "fp8", "bf16");
    dsa_run_init(&r, &w);
    run_before(&r, N_BEFORE);
    dsa_world_use_device(&w, name, was, is);
    dsa_round(&r, many_rows, many_rows, 0, 2);
    const bool same = dsa_same_memory(alone, &r);
    dsa_run_release(&r);
    dsa_world_release(&w);
    return same;
}

static void rows_of_several_launches_have_the_bits_of_a_row_alone(void **state)
{
    static const char *const changes[][3] = {
        {"dsa_select", "launch.first_row + place;", "place;"},
        {"mla_attend", "launch.first_row + place;", "place;"},
        {"mla_attend", "(act_t *)launch.args[3],",
         "(act_t *)launch.args[3] - (size_t)launch.first_row * GLM_H * GLM_C,"},
    };
    struct dsa_world w;
    struct dsa_run alone;
    NEED_DEVICE();
    run_rows_alone(&w, &alone);
    assert_true(together_they_agree(&alone, NULL, NULL, NULL));
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++)
        if (together_they_agree(&alone, changes[i][0], changes[i][1], changes[i][2]))
            fail_msg("'%s' passes as '%s'", changes[i][2], changes[i][1]);
    dsa_run_release(&alone);
    dsa_world_release(&w);
}

static void planted_mistakes_are_noticed(void **state)
{
    static const char *const changes[][3] = {
        {"dsa_prepare", "at - s->n_context;", "at - s->n_context - 1;"},
        {"dsa_prepare", "s->n_context + s->n_rows - GLM_RING",
         "s->n_context + s->n_rows - GLM_RING + 1"},
        {"dsa_prepare", "a->ape[j * GLM_D + c]", "a->ape[c]"},
        {"dsa_prepare", "+ ((a & 0x7fffffu) != 0) - 8", "- 8"},
        {"dsa_prepare", "take_row(raw, qkv + GLM_Q, GLM_C)",
         "take_row(raw, qkv + GLM_Q - 1, GLM_C)"},
        {"dsa_select", "(row->position + 1) / GLM_POOL", "row->position / GLM_POOL"},
        {"dsa_select", "a->n <= GLM_TOPK", "a->n <= GLM_TOPK + 1"},
        {"dsa_select", "h < GLM_H; h++) {", "h < GLM_H - 1; h++) {"},
        {"mla_attend", "n_pools * GLM_POOL + n_seen % GLM_POOL", "n_pools * GLM_POOL"},
        {"mla_attend", "glm_lane() % 16 + 16)", "glm_lane() % 16 + 15)"},
        {"mla_attend", "j < n; j++) {", "j < n - 1; j++) {"},
    };
    NEED_DEVICE();
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++)
        if (agrees("fp8", 8, 0, changes[i][0], changes[i][1], changes[i][2]))
            fail_msg("'%s' passes as '%s'", changes[i][2], changes[i][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_leave_the_hosts_bits_in_every_form),
        cmocka_unit_test(long_contexts_are_merged_in_the_hosts_order),
        cmocka_unit_test(rows_of_several_launches_have_the_bits_of_a_row_alone),
        cmocka_unit_test(planted_mistakes_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
