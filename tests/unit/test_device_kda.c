/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA bodies of the KDA kernels, executed on the CPU: all that they leave behind has the bits
 * of the host bodies, states after a partly kept round those of serial rounds, chunks on the grid
 * those of one chunk, and a mistake of one planted in a copy is noticed. */
#include "tests/support/kda_world.h"

#include <string.h>

/* Beside each other: no row, one, a batch and more, a whole window; kept in full and in part. */
static const int32_t rounds[][2][KDA_STREAMS] = {
    {{1, 3, 0}, {1, 2, 0}}, {{5, 1, 2}, {5, 0, 1}},   {{0, 16, 1}, {0, 11, 1}},
    {{2, 8, 9}, {1, 8, 9}}, {{16, 0, 1}, {15, 0, 1}}, {{1, 1, 1}, {1, 1, 1}},
};
enum { N_ROUNDS = sizeof rounds / sizeof rounds[0] };

static void run_pair(const struct kda_world *w, struct kda_run *host, struct kda_run *device)
{
    kda_run_init(host, w);
    kda_run_init(device, w);
    device->on_device = true;
}

static void release_pair(struct kda_run *host, struct kda_run *device)
{
    kda_run_release(host);
    kda_run_release(device);
}

static void decode_and_commit_leave_what_the_host_leaves(void **state)
{
    static const size_t shapes[][2] = {{2, 64}, {3, 48}, {1, 128}, {1, 16}};
    NEED_DEVICE();
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct kda_world w;
        struct kda_run host, device;
        kda_world_init(&w, NULL, shapes[i][0], shapes[i][1], 48, 0, "bf16");
        kda_world_device(&w);
        run_pair(&w, &host, &device);
        for (size_t j = 0; j < N_ROUNDS; j++) {
            kda_decode(&host, rounds[j][0], rounds[j][1], j % 3, 1);
            kda_decode(&device, rounds[j][0], rounds[j][1], j % 3, 1 + (uint32_t)j);
            assert_true(kda_same_memory(&host, &device));
        }
        release_pair(&host, &device);
        kda_world_release(&w);
    }
}

static void decode_without_replay_leaves_the_same(void **state)
{
    NEED_DEVICE();
    struct kda_world w;
    struct kda_run host, device;
    kda_world_init(&w, NULL, 2, 64, 24, 0, "bf16");
    char *replay = strstr(w.params[KDA_DECODE], "REPLAY=1");
    assert_non_null(replay);
    replay[strlen("REPLAY=")] = '0';
    kda_world_device(&w);
    run_pair(&w, &host, &device);
    for (int32_t j = 0; j < 3; j++) {
        const int32_t n[] = {1 + j, 1, 2 * j};
        kda_decode(&host, n, n, 1, 1);
        kda_decode(&device, n, n, 1, 1);
        assert_true(kda_same_memory(&host, &device));
    }
    release_pair(&host, &device);
    kda_world_release(&w);
}

static void every_window_has_the_hosts_bits(void **state)
{
    NEED_DEVICE();
    struct kda_world w;
    kda_world_init(&w, NULL, 2, 64, 24, 0, "bf16");
    kda_world_device(&w);
    for (int32_t rows = 1; rows <= KDA_VERIFY; rows++) {
        struct kda_run host, device;
        const int32_t n[] = {rows, 1 + rows % 3, 0};
        run_pair(&w, &host, &device);
        for (int again = 0; again < 2; again++) {
            const int32_t keep[] = {rows / 2, 1, 0};
            kda_decode(&host, n, keep, 0, 1);
            kda_decode(&device, n, keep, 0, 1 + (uint32_t)rows);
        }
        assert_true(kda_same_memory(&host, &device));
        release_pair(&host, &device);
    }
    kda_world_release(&w);
}

/* r rows of which k are kept, then one more: everything as in rounds of one row. */
static void a_partly_kept_round_leaves_the_state_of_serial_rounds(void **state)
{
    static const int32_t windows[][2] = {{2, 1}, {3, 0}, {5, 3}, {8, 8}, {16, 7}, {16, 9}};
    NEED_DEVICE();
    struct kda_world w;
    kda_world_init(&w, NULL, 1, 64, 32, 0, "bf16");
    kda_world_device(&w);
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
        struct kda_run serial, drafted;
        const int32_t one[] = {1, 0, 0}, before = (int32_t)i % 4;
        kda_run_init(&serial, &w);
        kda_run_init(&drafted, &w);
        serial.on_device = drafted.on_device = true;
        for (int32_t j = 0; j < before + windows[i][1] + 1; j++)
            kda_decode(&serial, one, one, 0, 1);
        for (int32_t j = 0; j < before; j++)
            kda_decode(&drafted, one, one, 0, 2);
        const int32_t n[] = {windows[i][0], 4, 2}, k[] = {windows[i][1], 3, 0};
        kda_decode(&drafted, n, k, 1, 3);
        kda_decode(&drafted, one, one, 0, 1);
        kda_same(&serial, &drafted, 0, "drafted and serial rounds");
        kda_run_release(&serial);
        kda_run_release(&drafted);
    }
    kda_world_release(&w);
}

/* A chunk that ends within a group, one that goes on there, then single rows by decode. */
static void prefill_leaves_what_the_host_leaves(void **state)
{
    static const size_t shapes[][2] = {{2, 64}, {1, 48}, {1, 128}};
    static const int32_t chunks[] = {1, 21, 64, 7};
    static const float decays[] = {0, -2, 6}; /* 6: e^-5 a row in most channels */
    NEED_DEVICE();
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct kda_world w;
        struct kda_run host, device;
        kda_world_init(&w, NULL, shapes[i][0], shapes[i][1], 112, decays[i], "bf16");
        kda_world_device(&w);
        run_pair(&w, &host, &device);
        for (size_t j = 0; j < sizeof chunks / sizeof chunks[0]; j++) {
            const int32_t one[] = {0, 1, 1};
            kda_prefill(&host, 1, chunks[j], 1);
            kda_prefill(&device, 1, chunks[j], 1 + (uint32_t)j);
            kda_decode(&host, one, one, 1, 1);
            kda_decode(&device, one, one, 1, 1);
            assert_true(kda_same_memory(&host, &device));
        }
        release_pair(&host, &device);
        kda_world_release(&w);
    }
}

static void chunking_on_the_grid_changes_no_bits(void **state)
{
    static const int32_t cuts[][4] = {{64, 64, 21}, {128, 21}};
    NEED_DEVICE();
    struct kda_world w;
    struct kda_run whole;
    kda_world_init(&w, NULL, 2, 64, 160, 0, "bf16");
    kda_world_device(&w);
    kda_run_init(&whole, &w);
    whole.on_device = true;
    kda_prefill(&whole, 1, 149, 1);
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        struct kda_run cut;
        kda_run_init(&cut, &w);
        cut.on_device = true;
        for (size_t j = 0; cuts[i][j] > 0; j++) {
            const int32_t other[] = {2, 0, 1};
            kda_prefill(&cut, 1, cuts[i][j], 1 + (uint32_t)(i + j));
            kda_decode(&cut, other, other, 0, 2);
        }
        kda_same(&whole, &cut, 1, "one chunk and several");
        kda_run_release(&cut);
    }
    kda_run_release(&whole);
    kda_world_release(&w);
}

/* ---- Planted mistakes ---- */

struct mistake {
    enum kda_op op;
    const char *was, *is;
};

static const struct mistake mistakes[] = {
    {KDA_DECODE, "s->n_context + i < 0", "s->n_context + i <= 0"},
    {KDA_DECODE, "i + j - GLM_TAPS, t->at", "i + j + 1 - GLM_TAPS, t->at"},
    {KDA_DECODE, "stream->version ^ 1", "stream->version"},
    {KDA_DECODE, "n_context == 0; /*", "n_context == 1; /*"},
    {KDA_DECODE, "to[GLM_D + c] =", "to[GLM_D + c + 1] ="},
    {KDA_DECODE, "(s->n_rows - first) * 3", "(s->n_rows - first - 1) * 3"},
    {KDA_PREFILL, "stream->n_context + i) % ROWS", "stream->n_context + i + 1) % ROWS"},
    {KDA_PREFILL, "s < t; s++) {", "s < t - 1; s++) {"},
    {KDA_PREFILL, "w[s] *= by", "w[s] *= 1.0f"},
    {KDA_PREFILL, "sum[u][j % 2] = ", "sum[u][j / 2] = "},
    {KDA_PREFILL, "n_context == 0 ? 0.0f : s[", "n_context == 1 ? 0.0f : s["},
    {KDA_PREFILL, "i + n == stream->n_rows", "i + n == stream->n_rows - 1"},
    {KDA_REPLAY, "i < stream->n_commit", "i < stream->n_commit - 1"},
    {KDA_REPLAY, "2 * GLM_D + c];\n        ka", "2 * GLM_D + (c ^ 1)];\n        ka"},
};

/* Host and device from nothing, two prompts or four rounds; false once they differ. */
static bool agree(const struct kda_world *w, bool prefill)
{
    struct kda_run host, device;
    bool same = true;
    run_pair(w, &host, &device);
    for (size_t j = 0; same && j < (prefill ? 2 : 4); j++) {
        for (int i = 0; i < 2; i++) {
            struct kda_run *r = i == 0 ? &host : &device;
            if (prefill)
                kda_prefill(r, j, 35, 1);
            else
                kda_decode(r, rounds[j][0], rounds[j][1], 1, 1);
        }
        same = kda_same_memory(&host, &device);
    }
    release_pair(&host, &device);
    return same;
}

static void a_planted_mistake_is_noticed(void **state)
{
    NEED_DEVICE();
    struct kda_world w;
    kda_world_init(&w, NULL, 2, 64, 48, 0, "bf16");
    kda_world_device(&w);
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        const struct mistake *m = &mistakes[i];
        struct kda_world bad = w;
        static const char *const names[] = {"kda_decode", "kda_replay", "kda_prefill"};
        bad.device[m->op] = test_device_kernel_with(names[m->op], w.params[m->op], m->was, m->is);
        if (agree(&bad, m->op == KDA_PREFILL))
            fail_msg("%s: '%s' passes as '%s'", names[m->op], m->is, m->was);
    }
    kda_world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_and_commit_leave_what_the_host_leaves),
        cmocka_unit_test(decode_without_replay_leaves_the_same),
        cmocka_unit_test(every_window_has_the_hosts_bits),
        cmocka_unit_test(a_partly_kept_round_leaves_the_state_of_serial_rounds),
        cmocka_unit_test(prefill_leaves_what_the_host_leaves),
        cmocka_unit_test(chunking_on_the_grid_changes_no_bits),
        cmocka_unit_test(a_planted_mistake_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
