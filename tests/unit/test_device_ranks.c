/* SPDX-License-Identifier: Apache-2.0 */
/* rank_sum on the CPU: what was gathered in rows of a bucket is summed as the host's collective
 * does, or laid out, for live rows only, and planted mistakes are noticed. */
#include "kernels-templates/peer.h"
#include "tests/support/gpu.h"
#include "tests/support/simt.h"
#include "tests/support/streams.h"

#include <stdio.h>
#include <string.h>

enum { MAX_BYTES = 64 * 5000, MARK = 0xee };

/* Live rows in a bucket, wanted ones, none wanted, once; more floats than a grid has threads. */
static const struct corner {
    struct glm_peer_exchange exchange;
    uint32_t rows, outs, bucket_rows, bucket_outs;
} corners[] = {
    {{.row_bytes = 20, .per = GLM_PEER_PER_ROW}, 1, 1, 1, 1},
    {{.row_bytes = 20, .per = GLM_PEER_PER_ROW}, 3, 1, 4, 4},
    {{.row_bytes = 5000, .per = GLM_PEER_PER_ROW, .is_sum = 1}, 1, 1, 1, 1},
    {{.row_bytes = 5000, .per = GLM_PEER_PER_ROW, .is_sum = 1}, 37, 2, 64, 64},
    {{.row_bytes = 24, .per = GLM_PEER_PER_OUT}, 33, 5, 64, 64},
    {{.row_bytes = 24, .per = GLM_PEER_PER_OUT, .is_sum = 1}, 7, 0, 8, 8},
    {{.row_bytes = 40004, .per = GLM_PEER_ONCE, .is_sum = 1}, 2, 1, 2, 2},
    {{.row_bytes = 4004, .per = GLM_PEER_ONCE}, 2, 1, 2, 2},
};
enum { N_CORNERS = sizeof corners / sizeof corners[0] };

static uint64_t bytes_of(const struct glm_peer_exchange *x, uint32_t rows, uint32_t outs)
{
    const uint32_t n = x->per == GLM_PEER_PER_ROW ? rows : x->per == GLM_PEER_PER_OUT ? outs : 1;
    return n * x->row_bytes;
}

/* What rank r sent as float i: magnitudes apart, so that the order of a sum shows. */
static float element(uint32_t r, uint64_t i)
{
    struct test_random random = {(uint64_t)r * 7919 + i};
    return (float)test_random_normal(&random) * (r % 2 != 0 ? 1000.0f : 1.0f);
}

static bool is_right(const struct corner *c, uint32_t world, const unsigned char *to)
{
    const uint64_t n = bytes_of(&c->exchange, c->rows, c->outs) / 4;
    const uint64_t all = c->exchange.is_sum != 0 ? n : world * n;
    for (uint64_t i = 0; i < all; i++) {
        float want = element(c->exchange.is_sum != 0 ? 0 : (uint32_t)(i / n), i % n);
        for (uint32_t r = 1; c->exchange.is_sum != 0 && r < world; r++)
            want += element(r, i);
        if (memcmp(to + 4 * i, &want, 4) != 0)
            return false;
    }
    return to[4 * all] == MARK;
}

static bool works(struct test_device_kernel *kernel, uint32_t world)
{
    unsigned char *received = test_alloc(world * MAX_BYTES),
                  *to = test_alloc(world * MAX_BYTES + 4);
    struct glm_peer_exchange *exchange = test_alloc(sizeof *exchange);
    bool right = true;
    for (uint32_t k = 0; right && k < N_CORNERS; k++) {
        const struct corner *c = &corners[k];
        const uint64_t stride = bytes_of(&c->exchange, c->bucket_rows, c->bucket_outs);
        struct glm_round live = test_round(c->rows)->round;
        live.n_rows = (int32_t)c->rows;
        live.n_out = (int32_t)c->outs;
        memset(to, MARK, world * MAX_BYTES + 4);
        for (uint32_t r = 0; r < world; r++)
            for (uint64_t i = 0; i < stride / 4; i++) {
                const float v = element(r, i);
                memcpy(received + r * stride + 4 * i, &v, 4);
            }
        *exchange = c->exchange;
        void *const args[] = {to, received, received + stride, exchange};
        const char *fault =
            test_device_run(kernel, &live, c->bucket_rows, c->bucket_outs, args, 4, k);
        if (fault != NULL)
            print_message("%s\n", fault);
        right = fault == NULL && is_right(c, world, to);
    }
    return right;
}

static void what_was_gathered_is_summed_in_rank_order_or_laid_out(void **state)
{
    NEED_DEVICE();
    for (uint32_t world = 2; world <= GLM_PEERS; world += world < 4 ? 1 : 4) {
        char params[32];
        snprintf(params, sizeof params, "WORLD=%u", world);
        assert_true(works(test_device_kernel("rank_sum", params), world));
    }
}

static void mistakes_are_noticed(void **state)
{
    static const char *const mistakes[][2] = {
        {"(uint64_t)r * stride + i", "(uint64_t)(GLM_WORLD - 1 - r) * stride + i"},
        {"(uint64_t)r * stride + i", "(uint64_t)r * (n + 0 * stride) + i"},
        {"to[(uint64_t)r * n + i]", "to[(uint64_t)r * stride + i]"},
        {"int32_t r = 1; r < GLM_WORLD", "int32_t r = 1; r + 1 < GLM_WORLD"},
        {"i += step", "i += 2 * step"},
        {"launch.round) / 4", "launch.round) / 4 + 1"},
    };
    NEED_DEVICE();
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++)
        if (works(test_device_kernel_with("rank_sum", "WORLD=3", mistakes[i][0], mistakes[i][1]),
                  3))
            fail_msg("not noticed: %s", mistakes[i][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_gathered_is_summed_in_rank_order_or_laid_out),
        cmocka_unit_test(mistakes_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
