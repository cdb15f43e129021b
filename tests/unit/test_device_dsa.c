/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA body of dsa_prepare, executed on the CPU: after every round the caches, the ring and the
 * query inputs have the bits that the host body leaves, in every form of the cache. */
#include "tests/support/dsa_world.h"

/* Rows of each stream in a round, and those that stay; the long one overruns the ring. */
static const int32_t rounds[][2][DSA_STREAMS] = {
    {{1, 3}, {1, 3}}, {{1, 1}, {1, 0}}, {{5, 0}, {2, 0}}, {{2, 16}, {2, 9}}, {{31, 5}, {31, 5}},
};
enum { N_ROUNDS = sizeof rounds / sizeof rounds[0] };

/* A world whose prepare has a mistake, or none, against the host's: do they agree to the end? */
static bool agrees(const char *kv, const char *was, const char *is)
{
    struct dsa_world host, device;
    struct dsa_run a, b;
    bool same = true;
    dsa_world_init(&host, NULL, 60, 8, kv, "bf16");
    dsa_world_init(&device, NULL, 60, 8, kv, "bf16");
    dsa_world_use_device(&device, was, is);
    dsa_run_init(&a, &host);
    dsa_run_init(&b, &device);
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

#define NEED_DEVICE()                                             \
    do {                                                          \
        (void)state;                                              \
        if (!test_device_usable()) {                              \
            print_message("# no C++ compiler, or a sanitizer\n"); \
            skip();                                               \
        }                                                         \
    } while (0)

static void rounds_leave_the_hosts_bits_in_every_form(void **state)
{
    static const char *const forms[] = {"fp8", "bf16", "fp32"};
    NEED_DEVICE();
    for (size_t i = 0; i < 3; i++)
        if (!agrees(forms[i], NULL, NULL))
            fail_msg("%s rows differ", forms[i]);
}

static void planted_mistakes_are_noticed(void **state)
{
    static const char *const changes[][2] = {
        {"at - s->n_context;", "at - s->n_context - 1;"},
        {"s->n_context + s->n_rows - GLM_RING", "s->n_context + s->n_rows - GLM_RING + 1"},
        {"a->ape[j * GLM_D + c]", "a->ape[c]"},
        {"+ ((a & 0x7fffffu) != 0) - 8", "- 8"},
        {"row->position % GLM_POOL == GLM_POOL - 1", "row->position % GLM_POOL == GLM_POOL - 2"},
        {"take_row(raw, qkv + GLM_Q, GLM_C)", "take_row(raw, qkv + GLM_Q - 1, GLM_C)"},
    };
    NEED_DEVICE();
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++)
        if (agrees("fp8", changes[i][0], changes[i][1]))
            fail_msg("'%s' passes as '%s'", changes[i][1], changes[i][0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_leave_the_hosts_bits_in_every_form),
        cmocka_unit_test(planted_mistakes_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
