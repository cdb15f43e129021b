/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU that runs CUDA bodies: what it computes, and that it notices what a GPU would leave
 * undefined. */
#include "tests/support/simt.h"
#include "tests/support/streams.h"

#include <string.h>

/* Runs one block of 64 threads over 64 floats and 64 bf16; what goes wrong or NULL. */
static const char *run(const char *body, float out[64], uint64_t order)
{
    uint16_t in[1024];
    struct test_round *r = test_round(1);
    for (int i = 0; i < 1024; i++)
        test_act_put(in, (size_t)i, (float)(i % 13) - 6, "bf16");
    uint16_t *aligned = test_alloc(sizeof in);
    memcpy(aligned, in, sizeof in);
    void *args[] = {out, aligned};
    const char *why =
        test_device_run(test_device_body("block", body), &r->round, 1, 1, args, 2, order);
    test_release(aligned);
    test_round_free(r);
    return why;
}

#define START                                                      \
    "GLM_SHARED float s[64];\n"                                    \
    "GLM_KERNEL(launch)\n{\n"                                      \
    "    float *out = (float *)launch.args[0];\n"                  \
    "    const uint16_t *in = (const uint16_t *)launch.args[1];\n" \
    "    const int t = glm_thread();\n"                            \
    "    (void)out, (void)in, (void)s;\n"

static void faults(const char *body, const char *words)
{
    float out[64] = {0};
    const char *why = run(body, out, 0);
    if (why == NULL || strstr(why, words) == NULL)
        fail_msg("'%s' is not what is said of:\n%s\nbut '%s'", words, body, why ? why : "nothing");
}

static void lanes_and_threads_exchange(void **state)
{
    float out[64];
    NEED_DEVICE();
    for (uint64_t order = 0; order < 4; order++) {
        assert_null(run(START "s[t] = (float)t;\n"
                              "glm_barrier();\n"
                              "float v = s[63 - t];\n"
                              "v += (float)glm_shuffle_xor((uint32_t)t, 3) * 100;\n"
                              "v += glm_ballot(t % 2 == 0) == 0x55555555u ? 10000.0f : 0.0f;\n"
                              "out[t] = v + (float)glm_shuffle((uint32_t)t, 5) * 0.125f;\n}\n",
                        out, order));
        for (int t = 0; t < 64; t++)
            assert_true(out[t] == (float)(63 - t + (t ^ 3) * 100 + 10000) +
                                      (float)(t / 32 * 32 + 5) * 0.125f);
    }
}

static void a_matrix_product_has_the_documented_fragments(void **state)
{
    float out[256];
    NEED_DEVICE();
    /* a[i][k] = in[16 i + k], b[k][j] = in[300 + 16 j + k], through shared memory and ldmatrix */
    assert_null(run("GLM_SHARED uint16_t s[2][256];\n"
                    "GLM_KERNEL(launch)\n{\n"
                    "    float *out = (float *)launch.args[0];\n"
                    "    const uint16_t *in = (const uint16_t *)launch.args[1];\n"
                    "    const int t = glm_thread(), l = t % 32;\n"
                    "    for (int i = t; i < 256; i += 64) {\n"
                    "        s[0][i] = in[i];\n"
                    "        s[1][i] = in[300 + i];\n"
                    "    }\n"
                    "    glm_barrier();\n"
                    "    uint32_t a[4], b[4];\n"
                    "    float d[4] = {1, 1, 1, 1};\n"
                    "    glm_ldmatrix4(a, &s[0][(l % 16) * 16 + l / 16 * 8]);\n"
                    "    glm_ldmatrix4(b, &s[1][(l % 8) * 16 + l / 8 % 2 * 8]);\n"
                    "    glm_mma_bf16(d, a, b);\n"
                    "    for (int i = 0; i < 4; i++)\n"
                    "        out[(l / 4 + i / 2 * 8) * 8 + 2 * (l % 4) + i % 2] = d[i];\n"
                    "}\n",
                    out, 1));
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            int sum = 1;
            for (int k = 0; k < 16; k++)
                sum += ((16 * i + k) % 13 - 6) * ((300 + 16 * j + k) % 13 - 6);
            assert_true(out[i * 8 + j] == (float)sum);
        }
}

static void a_copy_arrives_at_its_wait(void **state)
{
    float out[64];
    NEED_DEVICE();
#define COPIES                                                                         \
    "GLM_SHARED uint16_t h[2][512];\n" START "glm_copy16(&h[0][8 * t], in + 8 * t);\n" \
    "glm_copy_commit();\n"                                                             \
    "glm_copy16(&h[1][8 * t], in + 512 + 8 * t);\n"                                    \
    "glm_copy_commit();\n"                                                             \
    "glm_copy_wait(1);\n"
    assert_null(run(COPIES "out[t] = glm_bf16_f32(h[0][8 * t]);\n"
                           "if (glm_bf16_f32(h[1][8 * t]) == glm_bf16_f32(h[1][8 * t]))\n"
                           "    out[t] = 99;\n"
                           "glm_copy_wait(0);\n"
                           "out[t] += 100 * glm_bf16_f32(h[1][8 * t]);\n}\n",
                    out, 0));
    for (int t = 0; t < 64; t++)
        assert_true(out[t] == (float)(8 * t % 13 - 6 + 100 * ((512 + 8 * t) % 13 - 6)));
    faults(COPIES "}\n", "ends before its copies");
}

static void shared_memory_starts_as_nan(void **state)
{
    float out[64];
    NEED_DEVICE();
    assert_null(run(START "out[t] = s[t];\n}\n", out, 0));
    for (int t = 0; t < 64; t++)
        assert_true(out[t] != out[t]);
    assert_null(run(START "out[t] = ((float *)glm_shared())[t];\n}\n", out, 0));
    for (int t = 0; t < 64; t++)
        assert_true(out[t] != out[t]);
}

static void dynamic_shared_memory_is_shared_and_bounded(void **state)
{
    float out[64];
    NEED_DEVICE();
    assert_null(run(START "float *d = (float *)glm_shared();\n"
                          "d[t] = (float)t;\n"
                          "glm_barrier();\n"
                          "out[t] = d[63 - t];\n}\n",
                    out, 2));
    for (int t = 0; t < 64; t++)
        assert_true(out[t] == (float)(63 - t));
    faults(START "((float *)glm_shared())[t + 1] = 0;\n}\n", "behind the dynamic shared memory");
}

static void what_a_gpu_leaves_undefined_is_a_fault(void **state)
{
    NEED_DEVICE();
    faults(START "if (t < 32)\n    glm_barrier();\n}\n", "barrier at line");
    faults(START "if (t % 2)\n    glm_warp_barrier();\n}\n", "has ended");
    faults(START "if (t % 2)\n    glm_warp_barrier();\nelse\n    glm_ballot(true);\n}\n",
           "others of its warp at a");
    faults(START "if (t < 40)\n    glm_barrier();\nelse\n    glm_ballot(true);\n}\n",
           "is at a barrier");
    faults(START "if (t < 32)\n    glm_barrier();\nelse\n    glm_barrier();\n}\n",
           "others at that at line");
    faults(START "out[t] = s[t + 1];\n}\n", "index 64 is outside its array");
    faults(START "glm_store16(out + t, glm_load16(in + 8 * t));\n}\n", "no multiple of 16");
    faults(START "glm_copy16(out + 4 * (t % 16), in);\n}\n", "not in shared memory");
    faults("GLM_SHARED float big[20000];\n" START "out[t] = big[t];\n}\n",
           "bytes of shared memory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_and_threads_exchange),
        cmocka_unit_test(a_matrix_product_has_the_documented_fragments),
        cmocka_unit_test(a_copy_arrives_at_its_wait),
        cmocka_unit_test(shared_memory_starts_as_nan),
        cmocka_unit_test(dynamic_shared_memory_is_shared_and_bounded),
        cmocka_unit_test(what_a_gpu_leaves_undefined_is_a_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
