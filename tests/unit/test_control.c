/* SPDX-License-Identifier: Apache-2.0 */
/* Control frames and connections: what a wrong, cut, replayed or foreign frame meets. */
#include "runtime/control.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t secret[32] = "a secret of the tests, 32 bytes";
static const uint8_t other_secret[32] = "another secret of the tests....";

enum { CAPACITY = 256 };

static size_t encode(uint8_t out[CAPACITY], enum glm_control_type type, uint64_t sequence,
                     const char *payload)
{
    struct glm_control_frame f = { .type = type, .epoch = 7, .sequence = sequence,
                                   .payload = (const uint8_t *)payload,
                                   .len = (uint32_t)strlen(payload) };
    size_t n = glm_control_encode(&f, secret, out, CAPACITY);
    assert_int_equal(n, 64 + strlen(payload));
    return n;
}

static void assert_refused(const uint8_t *bytes, size_t len, const uint8_t key[32], uint64_t last,
                           const char *message)
{
    struct glm_control_frame f;
    struct glm_error err = { 0 };
    size_t used = 99;
    assert_int_equal(glm_control_decode(bytes, len, key, last, &f, &used, &err), GLM_EINVAL);
    assert_int_equal(used, 0);
    assert_string_equal(err.message, message);
}

static void a_frame_comes_back_as_it_was_sent(void **state)
{
    (void)state;
    uint8_t bytes[CAPACITY];
    size_t n = encode(bytes, GLM_CONTROL_BEAT, 5, "{\"round\":12}"), used = 0;
    struct glm_control_frame f;
    struct glm_error err = { 0 };
    assert_int_equal(glm_control_decode(bytes, n + 3, secret, 4, &f, &used, &err), GLM_OK);
    assert_int_equal(used, n);
    assert_int_equal(f.type, GLM_CONTROL_BEAT);
    assert_int_equal(f.epoch, 7);
    assert_int_equal(f.sequence, 5);
    assert_int_equal(f.len, 12);
    assert_memory_equal(f.payload, "{\"round\":12}", 12);
    /* The layout is fixed: another build must read it. */
    static const uint8_t header[32] = { 'G', 'l', 'm', 'C', 1, 0, 0, 0, GLM_CONTROL_BEAT, 0, 0, 0,
                                        12, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 5 };
    assert_memory_equal(bytes, header, sizeof header);
}

static void a_frame_cut_anywhere_asks_for_more(void **state)
{
    (void)state;
    uint8_t bytes[CAPACITY];
    size_t n = encode(bytes, GLM_CONTROL_STOP, 1, "{}"), used = 99;
    struct glm_control_frame f;
    for (size_t len = 0; len < n; len++) {
        assert_int_equal(glm_control_decode(bytes, len, secret, 0, &f, &used, NULL), GLM_OK);
        assert_int_equal(used, 0);
    }
}

static void every_flipped_bit_is_refused(void **state)
{
    (void)state;
    uint8_t bytes[CAPACITY];
    size_t n = encode(bytes, GLM_CONTROL_STOP, 1, "{}");
    for (size_t bit = 0; bit < n * 8; bit++) {
        struct glm_control_frame f;
        size_t used = 0;
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        /* A longer claimed length waits for bytes that are not there; nothing is accepted. */
        enum glm_status status = glm_control_decode(bytes, n, secret, 0, &f, &used, NULL);
        assert_true(status == GLM_EINVAL || (status == GLM_OK && used == 0));
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

static void refusals_say_what_is_wrong(void **state)
{
    (void)state;
    uint8_t good[CAPACITY], bytes[CAPACITY];
    size_t n = encode(good, GLM_CONTROL_STATUS, 9, "x");
    assert_refused(good, n, other_secret, 0, "bad frame: its MAC is wrong, the secrets differ");
    assert_refused(good, n, secret, 9, "bad frame: sequence 9 was used, the last was 9");
    assert_refused(good, n, secret, 10, "bad frame: sequence 9 was used, the last was 10");
    assert_refused((const uint8_t *)"GET / HT", 8, secret, 0,
                   "bad frame: magic is 20544547, not 436d6c47");
    memcpy(bytes, good, n);
    bytes[4] = 2;
    assert_refused(bytes, n, secret, 0, "bad frame: version is 2, not 1");
    memcpy(bytes, good, n);
    bytes[8] = GLM_CONTROL_N_TYPES;
    assert_refused(bytes, n, secret, 0, "bad frame: type is 9, known are 0 to 8");
    memcpy(bytes, good, n);
    bytes[14] = 0x11;
    assert_refused(bytes, 32, secret, 0, "bad frame: payload of 1114113 bytes, at most 1048576");
}

static void encoding_is_bounded(void **state)
{
    (void)state;
    static uint8_t payload[GLM_CONTROL_MAX_PAYLOAD + 1], out[GLM_CONTROL_MAX_PAYLOAD + 100];
    struct glm_control_frame f = { .type = GLM_CONTROL_STATUS, .sequence = 1, .payload = payload,
                                   .len = GLM_CONTROL_MAX_PAYLOAD + 1 };
    assert_int_equal(glm_control_encode(&f, secret, out, sizeof out), 0);
    f.len = GLM_CONTROL_MAX_PAYLOAD;
    assert_int_equal(glm_control_encode(&f, secret, out, f.len + 63u), 0);
    assert_int_equal(glm_control_encode(&f, secret, out, f.len + 64u), f.len + 64u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_comes_back_as_it_was_sent),
        cmocka_unit_test(a_frame_cut_anywhere_asks_for_more),
        cmocka_unit_test(every_flipped_bit_is_refused),
        cmocka_unit_test(refusals_say_what_is_wrong),
        cmocka_unit_test(encoding_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
