/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA bodies of kda_decode and kda_replay, executed on the CPU: after every round the state
 * planes, the ring and the outputs have the bits that the host bodies leave, kept rows or not. */
#include "tests/support/kda_world.h"

/* Rows of each stream in a round, and those that are kept. */
static const int32_t rounds[][2][KDA_STREAMS] = {
    {{1, 3, 0}, {1, 3, 0}}, {{5, 1, 2}, {2, 0, 1}},  {{0, 16, 1}, {0, 5, 1}},
    {{2, 2, 9}, {2, 1, 0}}, {{16, 0, 1}, {7, 0, 1}}, {{1, 1, 1}, {1, 1, 1}},
};
enum { N_ROUNDS = sizeof rounds / sizeof rounds[0] };

/* Runs both worlds; true when they agree to the end. */
static bool same_rounds(struct kda_world *host, struct kda_world *device)
{
    struct kda_run a, b;
    bool same = true;
    kda_run_init(&a, host);
    kda_run_init(&b, device);
    for (size_t i = 0; same && i < N_ROUNDS; i++) {
        kda_decode(&a, rounds[i][0], rounds[i][1], i % 3, 1);
        kda_decode(&b, rounds[i][0], rounds[i][1], i % 3, (uint32_t)i);
        same = kda_same_memory(&a, &b);
    }
    kda_run_release(&a);
    kda_run_release(&b);
    return same;
}

/* A world of 2 heads of d channels whose decode has a mistake, or none, against the host's. */
static bool agrees(size_t d, const char *was, const char *is)
{
    struct kda_world host, device;
    kda_world_init(&host, NULL, 2, d, 40, 0, "bf16");
    kda_world_init(&device, NULL, 2, d, 40, 0, "bf16");
    kda_world_use_device(&device, was, is);
    bool same = same_rounds(&host, &device);
    kda_world_release(&host);
    kda_world_release(&device);
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

static void rounds_leave_the_hosts_bits(void **state)
{
    NEED_DEVICE();
    assert_true(agrees(64, NULL, NULL));
    assert_true(agrees(128, NULL, NULL));
}

static void planted_mistakes_are_noticed(void **state)
{
    static const char *const changes[][2] = {
        {"n_context + j - GLM_TAPS;", "n_context + j - GLM_TAPS + 1;"},
        {"+ i + j - (GLM_TAPS - 1) >= 0", "+ i + j - (GLM_TAPS - 1) > 0"},
        {"s->version ^ 1", "s->version"},
        {"to[2 * GLM_D + t] = decay", "to[2 * GLM_D + t] = 1.0f"},
        {"if (s->n_context == 0)", "if (s->n_context == 1)"},
    };
    NEED_DEVICE();
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++)
        if (agrees(64, changes[i][0], changes[i][1]))
            fail_msg("'%s' passes as '%s'", changes[i][1], changes[i][0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_leave_the_hosts_bits),
        cmocka_unit_test(planted_mistakes_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
