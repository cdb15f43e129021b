/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA bodies of the delta rule, executed on the CPU: after every round the state planes, the
 * ring and the outputs have the bits that the host bodies leave, kept rows or not; and a prompt,
 * however it is cut, those of the host's decode rows. */
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

/* A world of 2 heads of d channels in which the kernel has a mistake, or none has, against the
 * host's. */
static bool agrees(size_t d, const char *name, const char *was, const char *is)
{
    struct kda_world host, device;
    kda_world_init(&host, NULL, 2, d, 40, 0, "bf16");
    kda_world_init(&device, NULL, 2, d, 40, 0, "bf16");
    kda_world_use_device(&device, name, was, is);
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
    assert_true(agrees(64, NULL, NULL, NULL));
    assert_true(agrees(128, NULL, NULL, NULL));
}

static void planted_mistakes_are_noticed(void **state)
{
    static const char *const changes[][3] = {
        {"kda_decode", "n_context + j - GLM_TAPS;", "n_context + j - GLM_TAPS + 1;"},
        {"kda_decode", "+ i + j - (GLM_TAPS - 1) >= 0", "+ i + j - (GLM_TAPS - 1) > 0"},
        {"kda_decode", "version ^ 1", "version"},
        {"kda_decode", "to[2 * GLM_D + t] = decay", "to[2 * GLM_D + t] = 1.0f"},
        {"kda_decode", "if (s->n_context == 0)", "if (s->n_context == 1)"},
        {"kda_replay", "i < s->n_commit", "i < s->n_commit - 1"},
    };
    NEED_DEVICE();
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++)
        if (agrees(64, changes[i][0], changes[i][1], changes[i][2]))
            fail_msg("'%s' passes as '%s'", changes[i][2], changes[i][1]);
}

static void a_prompt_has_the_bits_of_decode_rows_however_it_is_cut(void **state)
{
    static const int32_t cuts[][3] = {{48, 0, 0}, {1, 47, 0}, {16, 3, 29}};
    struct kda_world host, device;
    struct kda_run rows;
    NEED_DEVICE();
    kda_world_init(&host, NULL, 2, 64, 60, 0, "bf16");
    kda_world_init(&device, NULL, 2, 64, 60, 0, "bf16");
    kda_world_use_device(&device, NULL, NULL, NULL);
    kda_run_init(&rows, &host);
    for (int i = 0; i < 3; i++) {
        const int32_t n[KDA_STREAMS] = {0, 16, 0};
        kda_decode(&rows, n, n, 0, 1);
    }
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        struct kda_run prompt;
        kda_run_init(&prompt, &device);
        for (int j = 0; j < 3 && cuts[i][j] > 0; j++)
            kda_prefill(&prompt, 1, cuts[i][j], (uint32_t)j);
        kda_same(&rows, &prompt, 1, "decode rows and a prompt");
        kda_run_release(&prompt);
    }
    kda_run_release(&rows);
    kda_world_release(&host);
    kda_world_release(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_leave_the_hosts_bits),
        cmocka_unit_test(a_prompt_has_the_bits_of_decode_rows_however_it_is_cut),
        cmocka_unit_test(planted_mistakes_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
