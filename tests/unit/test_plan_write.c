/* SPDX-License-Identifier: Apache-2.0 */
/* Writing plans: bytes that come back, defaults left out, digests that follow every byte, and the
 * byte counts of device forms. */
#include "codegen/forms.h"
#include "codegen/plan.h"

#include "tests/support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

struct fixture {
    struct arena arena;
    char *text;
    size_t len;
    struct glm_plan *plan;
    struct glm_error err;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    arena_init(&f->arena, 16 << 20);
    f->text = folder_read("tests/golden/plan", "example.plan.json", &f->len);
    *state = f;
    return glm_plan_read(f->text, f->len, &f->arena, &f->plan, &f->err) == GLM_OK ? 0 : -1;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    arena_release(&f->arena);
    free(f->text);
    free(f);
    return 0;
}

static void what_was_written_reads_and_writes_back_byte_for_byte(void **state)
{
    struct fixture *f = *state;
    struct buf out = {0};
    assert_int_equal(glm_plan_write(f->plan, &out, &f->err), GLM_OK);
    assert_int_equal(out.len, f->len);
    assert_memory_equal(out.data, f->text, f->len);
    buf_release(&out);
}

static void a_sealed_plan_comes_back_sealed(void **state)
{
    struct fixture *f = *state;
    struct buf first = {0}, second = {0};
    struct glm_plan *again;
    assert_int_equal(glm_plan_seal(&f->plan, 1, &f->err), GLM_OK);
    assert_int_equal(strlen(f->plan->set_digest), 64);
    assert_int_equal(glm_plan_write(f->plan, &first, &f->err), GLM_OK);
    assert_int_equal(glm_plan_read(first.data, first.len, &f->arena, &again, &f->err), GLM_OK);
    assert_int_equal(glm_plan_write(again, &second, &f->err), GLM_OK);
    assert_string_equal(first.data, second.data);
    assert_string_equal(again->set_digest, f->plan->set_digest);
    buf_release(&first);
    buf_release(&second);
}

static void layers_are_written_as_runs(void **state)
{
    static const struct {
        uint32_t layers[6], n;
        const char *text;
    } rows[] = {
        {{5}, 1, "\"layers\":\"5\""},
        {{0, 1}, 2, "\"layers\":\"0,1\""},
        {{0, 1, 2}, 3, "\"layers\":\"0..2\""},
        {{0, 2, 3, 4, 7, 8}, 6, "\"layers\":\"0,2..4,7,8\""},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct buf out = {0};
        f->plan->weights[1].layers = rows[i].layers;
        f->plan->weights[1].n_layers = rows[i].n;
        assert_int_equal(glm_plan_write(f->plan, &out, &f->err), GLM_OK);
        assert_non_null(strstr(out.data, rows[i].text));
        buf_release(&out);
    }
}

static void strings_are_escaped(void **state)
{
    struct fixture *f = *state;
    struct buf out = {0};
    struct glm_plan *again;
    f->plan->model = "a \"quoted\"\nname \\ \xc3\xa9";
    assert_int_equal(glm_plan_write(f->plan, &out, &f->err), GLM_OK);
    assert_int_equal(glm_plan_read(out.data, out.len, &f->arena, &again, &f->err), GLM_OK);
    assert_string_equal(again->model, f->plan->model);
    buf_release(&out);
}

static void set_digest_covers_every_plan_but_not_the_field_itself(void **state)
{
    struct fixture *f = *state;
    struct glm_plan other = *f->plan;
    struct glm_plan *set[2] = {f->plan, &other};
    char unsealed[65], sealed[65], changed[65], one[65];
    assert_int_equal(glm_plan_set_digest(set, 1, one, &f->err), GLM_OK);
    assert_int_equal(glm_plan_set_digest(set, 2, unsealed, &f->err), GLM_OK);
    assert_int_equal(glm_plan_seal(set, 2, &f->err), GLM_OK);
    assert_int_equal(glm_plan_set_digest(set, 2, sealed, &f->err), GLM_OK);
    assert_string_equal(unsealed, sealed);
    assert_string_equal(other.set_digest, sealed);
    assert_string_not_equal(one, sealed);
    other.limits.verify_rows++;
    assert_int_equal(glm_plan_set_digest(set, 2, changed, &f->err), GLM_OK);
    assert_string_not_equal(changed, sealed);
}

static void a_rank_plans_digest_is_that_of_its_file(void **state)
{
    struct fixture *f = *state;
    char digest[65];
    assert_int_equal(glm_plan_digest(f->plan, digest, &f->err), GLM_OK);
    /* sha256sum tests/golden/plan/example.plan.json */
    assert_string_equal(digest, "1beaca1f47ca1216ad4b539ebc40cf17b5af4e764c760a6edeb68e28cfa07a34");
}

static void forms_have_the_bytes_of_their_planes(void **state)
{
    static const struct {
        const char *form;
        uint64_t rows, cols, bytes;
    } rows[] = {
        {"f32", 1, 17, 128},
        {"bf16", 3, 5, 64},
        {"bf16_t", 64, 128, 16384},
        {"bf16", 0, 128, 0},
        {"q4", 10, 64, 320 + 64 + 64},
        {"q4", 256, 512, 65536 + 4096 + 4096},
        {"fp8", 3, 128, 384 + 64},
        {"fp8", 16, 320, 5120 + 192},
        {"exl3:4:mcg", 256, 128, 16384 + 256 + 512},
        {"exl3:3:mul1", 128, 128, 6144 + 256 + 256},
        {"exl3:8:3inst", 0, 256, 0},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint64_t bytes = 1;
        assert_int_equal(glm_form_bytes(rows[i].form, rows[i].rows, rows[i].cols, &bytes, &f->err),
                         GLM_OK);
        assert_int_equal(bytes, rows[i].bytes);
    }
}

static void planes_start_on_64_bytes(void **state)
{
    struct fixture *f = *state;
    struct glm_form_layout l;
    assert_int_equal(glm_form_layout("q4", 10, 64, &l, &f->err), GLM_OK);
    assert_int_equal(l.n_planes, 3);
    assert_int_equal(l.bytes[0], 320);
    assert_int_equal(l.bytes[1], 20);
    assert_int_equal(l.offset[1], 320);
    assert_int_equal(l.offset[2], 384);
    assert_int_equal(l.total, 448);
}

static void forms_refuse_shapes_they_cannot_hold(void **state)
{
    static const struct {
        const char *form;
        uint64_t rows, cols;
    } rows[] = {
        {"q4", 4, 96},
        {"exl3:4:mcg", 64, 128},
        {"exl3:4:mcg", 128, 130},
        {"exl3:0:mcg", 128, 128},
        {"exl3:4:other", 128, 128},
        {"exl3:4", 128, 128},
        {"exl3", 128, 128},
        {"i8", 1, 1},
        {"", 1, 1},
        {"f32", UINT64_C(1) << 32, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct glm_error err = {0};
        uint64_t bytes = 7;
        (void)state;
        assert_int_equal(glm_form_bytes(rows[i].form, rows[i].rows, rows[i].cols, &bytes, &err),
                         GLM_EPLAN);
        assert_int_equal(bytes, 7);
        assert_non_null(strstr(err.message, rows[i].form));
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(what_was_written_reads_and_writes_back_byte_for_byte),
        CASE(a_sealed_plan_comes_back_sealed),
        CASE(layers_are_written_as_runs),
        CASE(strings_are_escaped),
        CASE(set_digest_covers_every_plan_but_not_the_field_itself),
        CASE(a_rank_plans_digest_is_that_of_its_file),
        CASE(forms_have_the_bytes_of_their_planes),
        CASE(planes_start_on_64_bytes),
        CASE(forms_refuse_shapes_they_cannot_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
