/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA converters of weights, executed on the CPU, against the host's: the same bytes of every
 * form from every stored type, for any cut, with the bytes of others untouched; elements of
 * synthetic tensors as the host makes them; and a mistake planted in a copy is noticed. */
#include "kernels-templates/load.h"
#include "runtime/forms.h"
#include "tests/support/reference_a.h"
#include "tests/support/simt.h"
#include "tests/support/streams.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One launch, over n_blocks; the unit names memory of test_alloc, which `args` holds behind it. */
static void run(const struct test_device_kernel *k, const void *unit, size_t unit_bytes,
                uint64_t n_blocks, void *const *memory, size_t n_memory)
{
    void *args[6] = {test_alloc(unit_bytes)};
    size_t n = 1;
    memcpy(args[0], unit, unit_bytes);
    for (size_t i = 0; i < n_memory; i++)
        if (memory[i] != NULL)
            args[n++] = memory[i];
    struct test_round *round = test_round(1);
    const char *why =
        test_device_run(k, &round->round, (uint32_t)n_blocks, 1, args, n, n_blocks % 3);
    if (why != NULL)
        print_message("# %s\n", why);
    test_round_free(round);
    test_release(args[0]);
}

static uint64_t count(const struct glm_slice *s)
{
    return s->take * s->groups;
}
static struct glm_load_cut cut(const struct glm_slice *s)
{
    return (struct glm_load_cut){s->first, s->take, s->stride};
}

/* ---- Rows ---- */

static const struct stored {
    const char *name;
    enum glm_dtype dtype;
    size_t bytes;
} stored[] = {{"bf16", GLM_BF16, 2}, {"f32", GLM_F32, 4}, {"f16", GLM_F16, 2}};
enum { BF16, F32, F16, N_STORED };

static const struct form {
    const char *name;
    uint64_t unit; /* columns come in multiples of it */
    bool is_wide;  /* holds what is not finite */
} forms[] = {{"f32", 1, true},
             {"bf16", 1, true},
             {"bf16_t", 1, true},
             {"q4", 64, false},
             {"fp8", 128, false}};
enum { N_FORMS = sizeof forms / sizeof forms[0] };

/* Odd addresses and groups across units; more than a piece, which ends inside a group; few and odd;
 * one group; aligned. */
static const struct glm_slice col_cuts[] = {
    {5, 96, 4, 130}, {9, 96, 12, 99}, {1, 3, 7, 11}, {3, 64, 1, 0}, {16, 128, 1, 0}};
enum { N_CUTS = sizeof col_cuts / sizeof col_cuts[0], UNCUT = 1203, UNCUT_ROWS = 12 };
static const struct glm_slice row_cuts[] = {{1, 2, 2, 5}, {9, 3, 1, 0}};
enum { PLACED = 7, FORM_ROWS = PLACED + 2 }; /* the last two are nobody's */

/* Values of all sizes; a group of zeros and one of equal ones, ties between bf16 neighbours. */
static char *new_tensor(const struct stored *s, bool is_wide)
{
    static const uint32_t odd[] = {0x7f800000u, 0xff800000u, 0x7fc12345u, 0xff812345u, 0x7f7fffffu};
    struct test_random r = {s->bytes + is_wide};
    char *t = test_alloc(UNCUT_ROWS * UNCUT * s->bytes);
    for (size_t i = 0; i < UNCUT_ROWS * UNCUT; i++) {
        const size_t row = i / UNCUT, col = i % UNCUT;
        float v = test_random_normal(&r) * (col % 200 < 100 ? 0.05f : 1.0f);
        uint32_t bits;
        if (col / 90 == row)
            v = 0;
        else if (col / 90 == row + 3)
            v = 0.7f;
        else if (col % 31 == 7)
            v *= 1e-6f;
        else if (col % 31 == 9)
            v = col % 2 != 0 ? -0.0f : 1e-41f;
        memcpy(&bits, &v, 4);
        if (col % 13 == 4)
            bits = (bits & 0xffff0000u) | 0x8000u;
        if (is_wide && col % 29 == 3)
            bits = odd[(row + col / 29) % 5];
        memcpy(&v, &bits, 4);
        const uint16_t half =
            s->dtype == GLM_F16 ? (uint16_t)test_random_u64(&r) : (uint16_t)(bits >> 16);
        if (s->dtype == GLM_F32)
            memcpy(t + 4 * i, &bits, 4);
        else
            memcpy(t + 2 * i, &half, 2);
        if (s->dtype == GLM_F16 && !is_wide) { /* any fp16 that is finite */
            const uint16_t finite = (half & 0x7c00u) == 0x7c00u ? half & 0x83ffu : half;
            memcpy(t + 2 * i, &finite, 2);
        }
    }
    return t;
}

struct rows_case {
    const struct stored *s;
    const struct form *f;
    struct glm_slice cols;
    const struct glm_synthetic_values *values; /* NULL: a tensor of bytes */
};

static uint64_t form_bytes(const struct rows_case *c)
{
    const bool turned = strcmp(c->f->name, "bf16_t") == 0;
    uint64_t bytes;
    assert_int_equal(
        glm_form_bytes(turned ? "bf16" : c->f->name, FORM_ROWS, count(&c->cols), &bytes, NULL),
        GLM_OK);
    return bytes;
}

/* Rows [first, first + n) of part p, which begins at row `base` of the form. */
static void launch_rows(const struct test_device_kernel *k, const struct rows_case *c,
                        const char *tensor, size_t p, uint64_t base, uint64_t first, uint64_t n,
                        void *out)
{
    const struct glm_slice *rows = &row_cuts[p];
    struct glm_load_rows u = {.rows = cut(rows),
                              .cols = cut(&c->cols),
                              .row = first,
                              .uncut_cols = UNCUT,
                              .n_rows = n,
                              .n_cols = count(&c->cols),
                              .out = out,
                              .form_rows = FORM_ROWS,
                              .row0 = base + first,
                              .group_rows = rows->take};
    char *source = NULL;
    if (c->values != NULL) {
        u.values = *c->values;
    } else {
        source = test_alloc(n * UNCUT * c->s->bytes);
        for (uint64_t r = 0; r < n; r++) {
            const uint64_t at =
                rows->first + (first + r) / rows->take * rows->stride + (first + r) % rows->take;
            memcpy(source + r * UNCUT * c->s->bytes, tensor + at * UNCUT * c->s->bytes,
                   UNCUT * c->s->bytes);
        }
    }
    u.source = source;
    run(k, &u, sizeof u, n, (void *[]){source, out}, 2);
    if (source != NULL)
        test_release(source);
}

/* Two parts below each other, a launch a row group; true where all bytes are the host's. */
static bool rows_agree(const struct test_device_kernel *k, const struct rows_case *c)
{
    const uint64_t n_cols = count(&c->cols), bytes = form_bytes(c);
    const bool turned = strcmp(c->f->name, "bf16_t") == 0;
    char *want = test_alloc(bytes), *got = test_alloc(bytes);
    char *tensor = c->values == NULL ? new_tensor(c->s, c->f->is_wide)
                                     : test_alloc(UNCUT_ROWS * UNCUT * c->s->bytes);
    if (c->values != NULL)
        glm_synthetic_fill(c->values, 0, UNCUT_ROWS * UNCUT, tensor);
    uint64_t base = 0;
    for (size_t p = 0; p < 2; p++) {
        const struct glm_plan_part part = {"t", UNCUT_ROWS, UNCUT, row_cuts[p], c->cols};
        struct glm_error err = {0};
        if (glm_form_place(c->f->name, &part, tensor, c->s->dtype,
                           turned ? FORM_ROWS * n_cols : FORM_ROWS, turned ? 1 : n_cols, base, want,
                           &err) != GLM_OK)
            fail_msg("%s", err.message);
        for (uint64_t g = 0; g < row_cuts[p].groups; g++)
            launch_rows(k, c, tensor, p, base, g * row_cuts[p].take, row_cuts[p].take, got);
        base += count(&row_cuts[p]);
    }
    assert_int_equal(base, PLACED);
    const bool same = memcmp(want, got, bytes) == 0;
    for (uint64_t i = 0; i < bytes && !same; i++)
        if (want[i] != got[i]) {
            print_message("# %s as %s, %llu columns: byte %llu is %02x, the host's %02x\n",
                          c->s->name, c->f->name, (unsigned long long)n_cols, (unsigned long long)i,
                          got[i] & 255, want[i] & 255);
            break;
        }
    test_release(want);
    test_release(got);
    test_release(tensor);
    return same;
}

static const struct test_device_kernel *rows_kernel(const struct stored *s, const struct form *f,
                                                    const char *was, const char *is)
{
    char params[64];
    snprintf(params, sizeof params, "STORED=%s FORM=%s", s->name, f->name);
    return test_device_kernel_with("load_rows", params, was, is);
}

static void rows_have_the_hosts_bytes_in_every_form(void **state)
{
    NEED_DEVICE();
    for (size_t s = 0; s < N_STORED; s++)
        for (size_t f = 0; f < N_FORMS; f++) {
            const struct test_device_kernel *k = rows_kernel(&stored[s], &forms[f], NULL, NULL);
            for (size_t i = 0; i < N_CUTS; i++) {
                const struct rows_case c = {&stored[s], &forms[f], col_cuts[i], NULL};
                if (count(&c.cols) % c.f->unit == 0)
                    assert_true(rows_agree(k, &c));
            }
        }
}

static void synthetic_rows_have_the_elements_that_the_host_makes(void **state)
{
    NEED_DEVICE();
    for (size_t s = 0; s < N_STORED; s++)
        for (size_t f = 0; f < N_FORMS; f++) {
            const struct test_device_kernel *k = rows_kernel(&stored[s], &forms[f], NULL, NULL);
            const struct glm_synthetic_values values = {.seed = 0x1234567890abcdefu + s,
                                                        .low = -0.3,
                                                        .step = 0.6 / 65535,
                                                        .kind = f % 2 ? GLM_SYNTHETIC_SIGNED
                                                                      : GLM_SYNTHETIC_UNIFORM,
                                                        .dtype = (int32_t)stored[s].dtype};
            const struct rows_case c = {&stored[s], &forms[f], col_cuts[0], &values};
            assert_true(rows_agree(k, &c));
        }
}

static void planted_mistakes_in_rows_are_noticed(void **state)
{
    static const struct {
        size_t s, f;
        const char *was, *is;
        bool synthetic;
    } changes[] = {
        {BF16, 1, "u->cols.take - (first + (uint64_t)c) % u->cols.take", "u->cols.take", false},
        {BF16, 1, "(j % 2 * 16) & 0xffffu", "((1 - j % 2) * 16) & 0xffffu", false},
        {F32, 0, "i < head ? i", "i <= head ? i", false},
        {F16, 0, "first += PIECE", "first += PIECE + 1", false},
        {BF16, 2, "* u->group_rows + i]", "* u->group_rows]", false},
        {BF16, 3, "of_group[i] < of_group[best]", "of_group[i] > of_group[best]", false},
        {F32, 3, "1 - 0.45 * i / 15", "1 - 0.45 * i / 16", false},
        {BF16, 3, "lane + 16 * j], scale", "lane * 4 + j], scale", false},
        {BF16, 3, "planes += glm_load_align(scales);", "planes += scales;", false},
        {F32, 4, "return glm_round_bf16(v);", "return v;", false},
        {BF16, 4, "mask = 16; mask > 0", "mask = 16; mask > 1", false},
        {F32, 1, "glm_load_at(&u->rows, u->row + r)", "glm_load_at(&u->rows, r)", true},
        {BF16, 1, "&u->values, at + (uint64_t)i", "&u->values, at + (uint64_t)c", true},
    };
    NEED_DEVICE();
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        const struct stored *s = &stored[changes[i].s];
        const struct glm_synthetic_values values = {
            .seed = 7, .low = -1, .step = 2.0 / 65535, .dtype = (int32_t)s->dtype};
        const struct test_device_kernel *k =
            rows_kernel(s, &forms[changes[i].f], changes[i].was, changes[i].is);
        bool noticed = false;
        for (size_t j = 0; j < N_CUTS && !noticed; j++) {
            const struct rows_case c = {s, &forms[changes[i].f], col_cuts[j],
                                        changes[i].synthetic ? &values : NULL};
            if (count(&c.cols) % c.f->unit == 0)
                noticed = !rows_agree(k, &c);
        }
        if (!noticed)
            fail_msg("'%s' passes as '%s'", changes[i].is, changes[i].was);
    }
}

/* ---- EXL3 ---- */

enum { INPUTS = 384, OUTPUTS = 640 };

static const struct rate {
    unsigned bits;
    const char *codebook;
} rates[] = {{1, "mul1"}, {3, "3inst"}, {4, "mcg"}, {5, "mcg"}, {6, "mul1"}, {8, "3inst"}};
enum { N_RATES = sizeof rates / sizeof rates[0] };

/* A cut both ways, one in two pieces, and the whole. */
static const struct {
    struct glm_slice rows, cols;
} exl3_cuts[] = {{{128, 128, 2, 256}, {128, 256, 1, 0}},
                 {{256, 256, 1, 0}, {0, 128, 2, 256}},
                 {{0, OUTPUTS, 1, 0}, {0, INPUTS, 1, 0}}};
enum { N_EXL3_CUTS = sizeof exl3_cuts / sizeof exl3_cuts[0] };

enum source { ALIGNED, ODD, SYNTHETIC };

struct exl3_case {
    const struct rate *rate;
    const char *form; /* "exl3", "bf16" */
    size_t cut;
    enum source source;
};

static const struct glm_synthetic_values exl3_values[] = {
    {.seed = 99, .kind = GLM_SYNTHETIC_BITS, .dtype = GLM_I16},
    {.seed = 98, .low = 0.75, .step = 0.5 / 65535, .kind = GLM_SYNTHETIC_SIGNED, .dtype = GLM_F16},
    {.seed = 97,
     .low = 0.05,
     .step = 0.02 / 65535,
     .kind = GLM_SYNTHETIC_SIGNED,
     .dtype = GLM_F16}};

/* The three tensors of a group, from one element on where the source is odd. */
static void new_group(const struct exl3_case *c, uint16_t *home[3])
{
    const size_t odd = c->source == ODD;
    const size_t n[3] = {(size_t)INPUTS * OUTPUTS / 16 * c->rate->bits, INPUTS, OUTPUTS};
    struct ref_exl3 e = ref_exl3_new(INPUTS, OUTPUTS, c->rate->bits, c->rate->codebook, 5);
    const uint16_t *from[3] = {e.trellis, e.suh, e.svh};
    for (size_t i = 0; i < 3; i++) {
        home[i] = test_alloc((n[i] + odd) * 2);
        if (c->source == SYNTHETIC)
            glm_synthetic_fill(&exl3_values[i], 0, n[i], home[i]);
        else
            memcpy(home[i] + odd, from[i], n[i] * 2);
    }
    ref_exl3_release(&e);
}

static bool exl3_agrees(const struct test_device_kernel *k, const struct exl3_case *c)
{
    const struct glm_plan_part part = {"t", OUTPUTS, INPUTS, exl3_cuts[c->cut].rows,
                                       exl3_cuts[c->cut].cols};
    const uint64_t n_rows = count(&part.rows), n_cols = count(&part.cols);
    const size_t odd = c->source == ODD;
    char name[32];
    uint16_t *home[3];
    uint64_t bytes;
    struct glm_error err = {0};
    snprintf(name, sizeof name, "exl3:%u:%s", c->rate->bits, c->rate->codebook);
    const char *form = strcmp(c->form, "exl3") == 0 ? name : c->form;
    assert_int_equal(glm_form_bytes(form, n_rows, n_cols, &bytes, NULL), GLM_OK);
    char *want = test_alloc(bytes), *got = test_alloc(bytes);
    new_group(c, home);
    const struct glm_exl3_source source = {home[0] + odd, home[1] + odd, home[2] + odd};
    if (glm_form_place_exl3(name, form, &part, &source, want, &err) != GLM_OK)
        fail_msg("%s", err.message);
    struct glm_load_exl3 u = {.rows = cut(&part.rows),
                              .cols = cut(&part.cols),
                              .uncut_rows = OUTPUTS,
                              .uncut_cols = INPUTS,
                              .n_rows = n_rows,
                              .n_cols = n_cols,
                              .out = got};
    if (c->source == SYNTHETIC) {
        u.trellis_values = exl3_values[0];
        u.suh_values = exl3_values[1];
        u.svh_values = exl3_values[2];
    } else {
        u.trellis = home[0] + odd;
        u.suh = home[1] + odd;
        u.svh = home[2] + odd;
    }
    run(k, &u, sizeof u, n_rows / 128 * (n_cols / 128), (void *[]){home[0], home[1], home[2], got},
        4);
    const bool same = memcmp(want, got, bytes) == 0;
    for (size_t i = 0; i < 3; i++)
        test_release(home[i]);
    test_release(want);
    test_release(got);
    return same;
}

static const struct test_device_kernel *exl3_kernel(const struct rate *r, const char *form,
                                                    const char *was, const char *is)
{
    char params[64];
    snprintf(params, sizeof params, "BITS=%u CODEBOOK=%s FORM=%s", r->bits, r->codebook, form);
    return test_device_kernel_with("load_exl3", params, was, is);
}

static void check_groups(const char *form)
{
    for (size_t r = 0; r < N_RATES; r++) {
        const struct test_device_kernel *k = exl3_kernel(&rates[r], form, NULL, NULL);
        for (size_t i = 0; i < N_EXL3_CUTS; i++) {
            const struct exl3_case c = {&rates[r], form, i, (enum source)((r + i) % 3)};
            if (!exl3_agrees(k, &c))
                fail_msg("%u bits, %s as %s, cut %zu, source %d", rates[r].bits, rates[r].codebook,
                         form, i, (int)c.source);
        }
    }
}

static void groups_have_the_hosts_device_form(void **state)
{
    NEED_DEVICE();
    check_groups("exl3");
}

static void groups_become_the_hosts_bf16_weights(void **state)
{
    NEED_DEVICE();
    check_groups("bf16");
}

static void planted_mistakes_in_groups_are_noticed(void **state)
{
    static const struct {
        size_t rate;
        const char *form, *was, *is;
    } changes[] = {
        {2, "exl3", "half + l % 4 * 64 + l / 4", "half + l % 4 * 64 + l / 8"},
        {1, "exl3", "r.v[i] << 16 | r.v[i] >> 16", "r.v[i]"},
        {3, "exl3", "suh[k0 + i] =", "suh[k + i] ="},
        {4, "exl3", "svh[n0 + i] =", "svh[i] ="},
        {1, "bf16", "(last + N - 1) % N", "(last + N - 1) & 31"},
        {2, "bf16", "j / 2 % 2 * 8, to", "j / 4 % 2 * 8, to"},
        {4, "bf16", "* suh[j] * svh", "* svh * suh[j]"},
        {5, "bf16", "lane / 16 == half", "lane % 2 == half"},
    };
    NEED_DEVICE();
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        const struct rate *r = &rates[changes[i].rate];
        const struct exl3_case c = {r, changes[i].form, 0, ALIGNED};
        if (exl3_agrees(exl3_kernel(r, changes[i].form, changes[i].was, changes[i].is), &c))
            fail_msg("'%s' passes as '%s'", changes[i].is, changes[i].was);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_have_the_hosts_bytes_in_every_form),
        cmocka_unit_test(synthetic_rows_have_the_elements_that_the_host_makes),
        cmocka_unit_test(planted_mistakes_in_rows_are_noticed),
        cmocka_unit_test(groups_have_the_hosts_device_form),
        cmocka_unit_test(groups_become_the_hosts_bf16_weights),
        cmocka_unit_test(planted_mistakes_in_groups_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
