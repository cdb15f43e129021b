/* SPDX-License-Identifier: Apache-2.0 */
/* EXL3 against the vectors of docs/formats.md 3: the naive oracle first, then the device
 * form and the host decoder, at every rate and codebook. */
#include "runtime/forms.h"
#include "tests/support/kernel.h"
#include "tests/support/reference_a.h"

#include "kernels-templates/prelude.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const codebooks[] = {"3inst", "mcg", "mul1"};
/* docs/formats.md 3: CRC-32 of Wq of 128 x 128 layers from seed 100 + K */
static const uint32_t crcs[8][3] = {
    {0x0ac1aba7, 0xc9752e6d, 0xd986ce3a}, {0xd937603a, 0x792b8078, 0x6039b75e},
    {0x4d3aab06, 0xb7277635, 0xe713daa7}, {0x6ad54e2f, 0x3ca45a02, 0xcedd999d},
    {0xb38223cf, 0xce00e497, 0x00f3a548}, {0xeb19fd91, 0x65dc9ee5, 0xf5e0cb81},
    {0xdf350b9d, 0xbccd8d3a, 0x5537f333}, {0xa420bf1e, 0xca7b1486, 0x8bcde24d},
};

static uint32_t crc32_of(const uint16_t *v, size_t n)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < 2 * n; i++) {
        crc ^= (uint32_t)(v[i / 2] >> (i % 2 * 8)) & 0xffu;
        for (int b = 0; b < 8; b++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static struct glm_plan_part whole(size_t n, size_t k)
{
    return (struct glm_plan_part){"t", n, k, {0, n, 1, n}, {0, k, 1, k}};
}

/* The device form of a layer's slice. */
static void *place(const struct ref_exl3 *e, const struct glm_plan_part *part, char form[32])
{
    uint64_t bytes;
    snprintf(form, 32, "exl3:%u:%s", e->bits, e->codebook);
    assert_int_equal(glm_form_bytes(form, part->rows.take * part->rows.groups,
                                    part->cols.take * part->cols.groups, &bytes, NULL),
                     GLM_OK);
    void *out = test_alloc(bytes);
    struct glm_exl3_source source = {e->trellis, e->suh, e->svh};
    struct glm_error err = {0};
    if (glm_form_place_exl3(form, form, part, &source, out, &err) != GLM_OK)
        fail_msg("%s", err.message);
    return out;
}

static float *decode(const struct test_build *build, const struct ref_exl3 *e, size_t n, size_t k,
                     const void *form)
{
    char constants[128];
    snprintf(constants, sizeof constants, "N=%zu K=%zu BITS=%u CODEBOOK_%s=1", n, k, e->bits,
             e->codebook);
    struct test_kernel *kernel =
        test_kernel_file(build, "tests/kernels/exl3_decode.c", constants, "f32");
    float *w = test_alloc(n * k * sizeof *w);
    struct test_round *r = test_round(1);
    union {
        const void *in;
        void *out;
    } cast = {form};
    test_kernel_run(kernel, &r->round, (void *[]){cast.out, w}, 1);
    test_round_free(r);
    return w;
}

static uint16_t *as_f16(const double *w, size_t n)
{
    uint16_t *h = malloc(n * sizeof *h);
    assert_non_null(h);
    for (size_t i = 0; i < n; i++) {
        h[i] = glm_f32_f16((float)w[i]);
        assert_true(ref_f16(h[i]) == w[i]);
    }
    return h;
}

static void oracle_meets_the_published_checksums(void **state)
{
    (void)state;
    static double wq[128 * 128];
    for (unsigned bits = 1; bits <= 8; bits++)
        for (size_t c = 0; c < 3; c++) {
            struct ref_exl3 e = ref_exl3_new(128, 128, bits, codebooks[c], 100 + bits);
            ref_exl3_inner(&e, wq);
            uint16_t *h = as_f16(wq, 128 * 128);
            assert_int_equal(crc32_of(h, 128 * 128), crcs[bits - 1][c]);
            free(h);
            ref_exl3_release(&e);
        }
}

static void oracle_meets_the_worked_product(void **state)
{
    (void)state;
    static double wq[128 * 128];
    double x[128], y[128];
    static const double want[] = {-0.077432947, 0.071473583, 0.101989526, 0.079870035};
    struct ref_exl3 e = ref_exl3_new(128, 128, 4, "mcg", 1);
    for (int i = 0; i < 128; i++)
        x[i] = (37 * i % 64 - 31) / 32.0;
    ref_exl3_inner(&e, wq);
    uint16_t *h = as_f16(wq, 128 * 128);
    assert_int_equal(crc32_of(h, 128 * 128), 0xe3e5eb4c);
    free(h);
    ref_exl3_forward(&e, wq, x, 0, y);
    for (int i = 0; i < 4; i++)
        assert_true(fabs(y[i] - want[i]) < 1e-9);
    ref_exl3_release(&e);
}

static void decoder_meets_the_published_checksums(void **state)
{
    (void)state;
    for (unsigned bits = 1; bits <= 8; bits++)
        for (size_t c = 0; c < 3; c++) {
            char form[32];
            struct ref_exl3 e = ref_exl3_new(128, 128, bits, codebooks[c], 100 + bits);
            struct glm_plan_part part = whole(128, 128);
            void *placed = place(&e, &part, form);
            float *w = decode(&(struct test_build){0}, &e, 128, 128, placed);
            static double wide[128 * 128];
            for (size_t i = 0; i < 128 * 128; i++)
                wide[i] = (double)w[i];
            uint16_t *h = as_f16(wide, 128 * 128);
            assert_int_equal(crc32_of(h, 128 * 128), crcs[bits - 1][c]);
            free(h);
            test_release(w);
            test_release(placed);
            ref_exl3_release(&e);
        }
}

/* A whole 16-bit state space passes through tiles of rate 8 often enough to meet all values; here
 * each instruction set must decode a random layer alike. */
static void instruction_sets_and_compilers_decode_alike(void **state)
{
    (void)state;
    static const struct test_build builds[] = {{"gcc", "x86-64-v4"},
                                               {"gcc", "x86-64-v3"},
                                               {"clang", "x86-64-v4"},
                                               {"clang", "x86-64-v3"},
                                               {"gcc -DGLM_NO_FP16", "x86-64-v4"}};
    for (unsigned bits = 3; bits <= 4; bits++)
        for (size_t c = 0; c < 3; c++) {
            char form[32];
            struct ref_exl3 e = ref_exl3_new(256, 256, bits, codebooks[c], 7);
            struct glm_plan_part part = whole(256, 256);
            void *placed = place(&e, &part, form);
            float *want = decode(&(struct test_build){0}, &e, 256, 256, placed);
            for (size_t b = 0; b < sizeof builds / sizeof *builds; b++) {
                if (!test_build_usable(&builds[b]))
                    continue;
                float *w = decode(&builds[b], &e, 256, 256, placed);
                test_same_bytes(w, want, 256 * 256 * sizeof *w, "decoded weights");
                test_release(w);
            }
            test_release(want);
            test_release(placed);
            ref_exl3_release(&e);
        }
}

/* Cut from the uncut tensor, a share decodes to the matching part of the whole. */
static void shares_decode_to_parts_of_the_whole(void **state)
{
    (void)state;
    static const struct {
        struct glm_slice rows, cols;
    } cuts[] = {
        {{128, 256, 1, 0}, {0, 256, 1, 0}},
        {{0, 384, 1, 0}, {128, 128, 1, 0}},
        {{0, 128, 2, 256}, {0, 256, 1, 0}},
    };
    for (unsigned bits = 4; bits <= 5; bits++) {
        struct ref_exl3 e = ref_exl3_new(256, 384, bits, "mcg", 11);
        double *wq = calloc(256 * 384, sizeof *wq);
        assert_non_null(wq);
        ref_exl3_inner(&e, wq);
        for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
            char form[32];
            struct glm_plan_part part = {"t", 384, 256, cuts[c].rows, cuts[c].cols};
            size_t n = part.rows.take * part.rows.groups, k = part.cols.take * part.cols.groups;
            void *placed = place(&e, &part, form);
            float *w = decode(&(struct test_build){0}, &e, n, k, placed);
            const uint16_t *suh = (const uint16_t *)placed + n * k * bits / 16, *svh = suh + k;
            for (size_t i = 0; i < k; i++)
                assert_int_equal(suh[i], e.suh[part.cols.first + i]);
            for (size_t j = 0; j < n; j++) {
                size_t at =
                    part.rows.first + j / part.rows.take * part.rows.stride + j % part.rows.take;
                assert_int_equal(svh[j], e.svh[at]);
                for (size_t i = 0; i < k; i++)
                    assert_true((double)w[i * n + j] == wq[(part.cols.first + i) * 384 + at]);
            }
            test_release(w);
            test_release(placed);
        }
        free(wq);
        ref_exl3_release(&e);
    }
}

/* H over the values that lie `stride` apart. */
static void rotate(double *v, size_t stride)
{
    double t[128];
    for (unsigned i = 0; i < 128; i++) {
        t[i] = 0;
        for (unsigned j = 0; j < 128; j++)
            t[i] += (__builtin_popcount(i & j) % 2 ? -1 : 1) * v[j * stride];
    }
    for (size_t i = 0; i < 128; i++)
        v[i * stride] = t[i] / sqrt(128);
}

/* diag(suh) H Wq H diag(svh), [k][n], by the formula. */
static double *weights_of(const struct ref_exl3 *e)
{
    double *w = calloc(e->k * e->n, sizeof *w);
    assert_non_null(w);
    ref_exl3_inner(e, w);
    for (size_t n = 0; n < e->n; n++)
        for (size_t k = 0; k < e->k; k += 128)
            rotate(w + k * e->n + n, e->n);
    for (size_t k = 0; k < e->k; k++)
        for (size_t n = 0; n < e->n; n += 128)
            rotate(w + k * e->n + n, 1);
    for (size_t i = 0; i < e->k * e->n; i++)
        w[i] *= ref_f16(e->suh[i / e->n]) * ref_f16(e->svh[i % e->n]);
    return w;
}

static void weights_as_bf16_are_the_formulas(void **state)
{
    (void)state;
    for (unsigned bits = 1; bits <= 8; bits++)
        for (size_t c = 0; c < 3; c++) {
            char stored[32];
            struct ref_exl3 e = ref_exl3_new(256, 384, bits, codebooks[c], 21 + bits);
            const struct glm_plan_part part = {"t", 384, 256, {0, 128, 2, 256}, {128, 128, 1, 0}};
            const struct glm_exl3_source source = {e.trellis, e.suh, e.svh};
            double *w = weights_of(&e), largest = 0;
            uint16_t *got = test_alloc(256 * 128 * 2);
            snprintf(stored, sizeof stored, "exl3:%u:%s", bits, codebooks[c]);
            assert_int_equal(glm_form_place_exl3(stored, "bf16", &part, &source, got, NULL),
                             GLM_OK);
            for (size_t i = 0; i < 256 * 384; i++)
                largest = fmax(largest, fabs(w[i]));
            for (size_t n = 0; n < 256; n++)
                for (size_t k = 0; k < 128; k++) {
                    const double want = w[(128 + k) * 384 + n / 128 * 256 + n % 128];
                    const double off = fabs(ref_bf16(got[n * 128 + k]) - want);
                    assert_true(off <= fabs(want) / 256 + largest * 1e-6);
                }
            test_release(got);
            free(w);
            ref_exl3_release(&e);
        }
}

static void refuses_cuts_off_the_blocks_and_bad_scales(void **state)
{
    (void)state;
    struct ref_exl3 e = ref_exl3_new(256, 256, 4, "mcg", 3);
    struct glm_exl3_source source = {e.trellis, e.suh, e.svh};
    char *out = test_alloc(256 * 256);
    struct glm_plan_part part = whole(256, 256);
    static const struct glm_slice bad[] = {
        {64, 128, 1, 0}, {0, 64, 1, 0},    {0, 128, 2, 192},        {128, 256, 1, 0},
        {0, 0, 1, 0},    {0, 128, 3, 128}, {0, 128, 2, UINT64_MAX}, {UINT64_MAX, 128, 1, 0}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        part.rows = bad[i];
        assert_int_equal(glm_form_place_exl3("exl3:4:mcg", "exl3:4:mcg", &part, &source, out, NULL),
                         GLM_EPLAN);
        part = whole(256, 256);
        part.cols = bad[i];
        assert_int_equal(glm_form_place_exl3("exl3:4:mcg", "exl3:4:mcg", &part, &source, out, NULL),
                         GLM_EPLAN);
        part = whole(256, 256);
    }
    assert_int_equal(glm_form_place_exl3("exl3:9:mcg", "exl3:9:mcg", &part, &source, out, NULL),
                     GLM_EPLAN);
    static const char *const pairs[][2] = {{"exl3:4:mcg", "exl3:5:mcg"},
                                           {"exl3:4:mcg", "q4"},
                                           {"exl3:4:qtip", "bf16"},
                                           {"bf16", "bf16"},
                                           {"exl3:0:mcg", "bf16"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        assert_int_equal(glm_form_place_exl3(pairs[i][0], pairs[i][1], &part, &source, out, NULL),
                         GLM_EPLAN);
    e.svh[200] = 0x7c00;
    struct glm_error err = {0};
    assert_int_equal(glm_form_place_exl3("exl3:4:mcg", "exl3:4:mcg", &part, &source, out, &err),
                     GLM_ECHECKPOINT);
    assert_string_equal(err.message, "'t.svh' has a non-finite value at 200");
    assert_int_equal(glm_form_place_exl3("exl3:4:mcg", "bf16", &part, &source, out, NULL),
                     GLM_ECHECKPOINT);
    test_release(out);
    ref_exl3_release(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oracle_meets_the_published_checksums),
        cmocka_unit_test(oracle_meets_the_worked_product),
        cmocka_unit_test(decoder_meets_the_published_checksums),
        cmocka_unit_test(instruction_sets_and_compilers_decode_alike),
        cmocka_unit_test(shares_decode_to_parts_of_the_whole),
        cmocka_unit_test(weights_as_bf16_are_the_formulas),
        cmocka_unit_test(refuses_cuts_off_the_blocks_and_bad_scales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
