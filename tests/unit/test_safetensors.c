/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of single safetensors files, whole and broken. */
#include "tests/support/opening.h"

#include <string.h>

static struct opening f;

#define A(begin, end) \
    "\"a\":{\"dtype\":\"F16\",\"shape\":[2,3],\"data_offsets\":[" begin "," end "]}"
static const struct {
    const char *header;
    uint64_t data_bytes;
    const char *message;
} headers[] = {
    {"{" A("0", "12") "}", 11,
     "tensor 'a' ends at byte 77 but the file has 76 bytes: the file is truncated"},
    {"{" A("0", "10") "}", 12, "shape [2, 3] of F16 needs 12 bytes, the file gives 10"},
    {"{" A("12", "0") "}", 12, "tensor 'a' has an invalid shape or byte range"},
    {"{" A("-1", "11") "}", 12, "tensor 'a' has an invalid shape or byte range"},
    {"{" A("0.5", "12") "}", 12, "tensor 'a' has an invalid shape or byte range"},
    {"{" A("0", "1e1") "}", 12, "tensor 'a' has an invalid shape or byte range"},
    {"{" A("18446744073709551610", "18446744073709551622") "}", 12, "invalid shape or byte range"},
    {"{" A("9223372036854775807", "9223372036854775819") "}", 12, "the file is truncated"},
    {"{" A("0", "12") ",\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[8,12]}}", 12,
     "tensors 'a' and 'b' overlap"},
    {"{\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[8,12]}," A("0", "12") "}", 12,
     "tensors 'a' and 'b' overlap"},
    {"{" A("0", "12") "," A("12", "24") "}", 24, "tensor 'a' is named twice"},
    {"{\"a\":{\"dtype\":\"F16\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,12]}}", 12,
     "tensor 'a' has an invalid shape or byte range"},
    {"{\"a\":{\"dtype\":\"F16\",\"shape\":[1,1,1,1,1,1,1],\"data_offsets\":[0,2]}}", 2,
     "invalid shape"},
    {"{\"a\":{\"dtype\":\"F16\",\"shape\":[-2],\"data_offsets\":[0,4]}}", 4,
     "invalid shape or byte range"},
    {"{\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0]}}", 4,
     "invalid shape or byte range"},
    {"{\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4,8]}}", 8,
     "invalid shape or byte range"},
    {"{\"a\":{\"dtype\":\"F16\",\"shape\":[2]}}", 4, "invalid shape or byte range"},
    {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "invalid shape or byte range"},
    {"{\"a\":{\"dtype\":\"F16\",\"shape\":2,\"data_offsets\":[0,4]}}", 4,
     "found a number where tensor 'a' has"},
    {"{\"a\":{\"dtype\":\"F16\",\"shape\":[[2]],\"data_offsets\":[0,4]}}", 4, "found a list"},
    {"{\"a\":{\"dtype\":\"F16\",\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
     "found a key twice"},
    {"{\"a\":{\"dtype\":null,\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "found null"},
    {"{\"a\":{\"dtype\":true,\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "found true"},
    {"{\"a\":[1]}", 4, "found a list"},
    {"{\"a\":5}", 4, "found a number"},
    {"{\"\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "a name that is empty"},
    {"{\"a\\u0000b\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "holds a NUL"},
    {"{\"__metadata__\":{\"a\":{}}}", 4, "found an object"},
    {"{\"a\":{\"dtype\":\"F16\"", 4, "unreadable safetensors header at byte"},
    {"{\"a\" 5}", 4, "unreadable safetensors header at byte"},
    {"{} x", 4, "unreadable safetensors header at byte"},
    {"[]", 4, "at byte 8: it does not start with '{'"},
};

static enum glm_status parse_header(const char *header, uint64_t data_bytes, struct glm_tensor **t,
                                    uint32_t *n, struct glm_error *err)
{
    uint64_t len = strlen(header);
    char bytes[1024];
    assert_true(len + 8 < sizeof bytes);
    memcpy(bytes, &len, 8);
    memcpy(bytes + 8, header, len);
    return glm_safetensors_header("m.safetensors", bytes, len + 8, len + 8 + data_bytes, &f.arena,
                                  t, n, err);
}

static void each_broken_header_is_refused_with_its_reason(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        struct glm_error err = {0};
        struct glm_tensor *tensors = NULL;
        uint32_t n = 77;
        opening_start(&f);
        enum glm_status status =
            parse_header(headers[i].header, headers[i].data_bytes, &tensors, &n, &err);
        if (status != GLM_ECHECKPOINT || strstr(err.message, headers[i].message) == NULL ||
            strncmp(err.message, "'m.safetensors'", 15) != 0 || n != 77)
            fail_msg("case %zu (%s): %d '%s'", i, headers[i].header, (int)status, err.message);
        opening_stop(&f);
    }
}

static void good_headers_keep_order_shapes_and_offsets(void **state)
{
    (void)state;
    struct glm_error err = {0};
    struct glm_tensor *t = NULL;
    uint32_t n = 0;
    opening_start(&f);
    assert_int_equal(
        parse_header("{\"__metadata__\":{\"format\":\"pt\",\"x\":\"y\"},"
                     "\"z\":{\"data_offsets\":[12,16],\"shape\":[],\"dtype\":\"I32\"},"
                     "\"a\":{\"dtype\":\"F16\",\"shape\":[2,3],\"data_offsets\":[0,12]},"
                     "\"e\":{\"dtype\":\"U8\",\"shape\":[0,9],\"data_offsets\":[12,12]}}  ",
                     20, &t, &n, &err),
        GLM_OK);
    assert_int_equal(n, 3);
    assert_string_equal(t[0].name, "z");
    assert_int_equal(t[0].n_dims, 0);
    assert_true(t[0].size_bytes == 4);
    assert_true(t[0].offset - t[1].offset == 12);
    assert_int_equal(t[1].n_dims, 2);
    assert_true(t[1].shape[1] == 3);
    assert_true(t[2].size_bytes == 0);
    assert_int_equal(parse_header("{}", 0, &t, &n, &err), GLM_OK);
    assert_int_equal(n, 0);
    opening_stop(&f);
}

static void incomplete_files_and_lfs_pointers_are_recognised(void **state)
{
    (void)state;
    static const char lfs[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\n";
    struct glm_tensor *t;
    uint32_t n;
    uint64_t huge = 200000000;
    struct glm_error err = {0};
    opening_start(&f);
    assert_int_equal(
        glm_safetensors_header("x", lfs, sizeof lfs - 1, sizeof lfs - 1, &f.arena, &t, &n, &err),
        GLM_ECHECKPOINT);
    assert_string_equal(err.message, "'x' is a Git LFS pointer, not weights");
    for (size_t len = 0; len < 8; len++) {
        err = (struct glm_error){0};
        assert_int_equal(glm_safetensors_header("x", &huge, len, len, &f.arena, &t, &n, &err),
                         GLM_ECHECKPOINT);
        assert_non_null(strstr(err.message, "not a complete safetensors file"));
    }
    err = (struct glm_error){0};
    assert_int_equal(glm_safetensors_header("x", &huge, 8, 1u << 30, &f.arena, &t, &n, &err),
                     GLM_ECHECKPOINT);
    assert_string_equal(err.message, "'x': not a complete safetensors file (header says 200000000 "
                                     "bytes, file has 1073741824)");
    assert_string_equal(err.hint, "download it again");
    opening_stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_broken_header_is_refused_with_its_reason),
        cmocka_unit_test(good_headers_keep_order_shapes_and_offsets),
        cmocka_unit_test(incomplete_files_and_lfs_pointers_are_recognised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
