/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's half of the CUDA prelude: the names of kernels-templates/device.cuh, so that g++
 * compiles a .cu body and simt.cc runs it, one fiber a thread. What a GPU leaves undefined is an
 * error here: lanes or threads that meet at different places, addresses that are not aligned or
 * not in shared memory, data of a copy read before its wait (it is NaN). */
#ifndef GLM_TESTS_SIMT_H
#define GLM_TESTS_SIMT_H

#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define GLM_INLINE static inline __attribute__((unused))
#define GLM_UNROLL
#define GLM_LOOP
/* One block runs at a time, so that one copy of its shared memory is enough; simt.cc fills the
 * section with NaN before every block. */
#define GLM_SHARED         static __attribute__((section("simt_shared"), used, aligned(16)))
#define GLM_KERNEL(launch) extern "C" void glm_kernel(const struct glm_cuda_args &launch)

/* ---- simt.cc ---- */

struct simt_place {
    int32_t thread, block[3], grid_x;
};
extern struct simt_place simt_at; /* of the thread that runs */

/* Ends the launch with this text and the place. */
[[noreturn]] void simt_fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
void simt_barrier(int line);
void simt_check_shared(const void *p, size_t bytes, const char *what);
void simt_check_aligned(const void *p, size_t to, const char *what);
void *simt_dynamic_shared(void);
void simt_copy(void *shared, const void *global, size_t bytes);
void simt_copy_commit(void);
void simt_copy_wait(uint32_t n_left);

/* An operation of all 32 lanes: each gives its operand and gets its result once all are here.
 * in[l], out[l]: of lane l. */
enum simt_op { SIMT_SYNC, SIMT_XOR, SIMT_SHUFFLE, SIMT_BALLOT, SIMT_LDMATRIX, SIMT_MMA };
void simt_lanes(enum simt_op op, int line, const void *in, void *out,
                void (*compute)(const void *const in[32], void *const out[32]));

/* The line of the body, or of the helper, that calls. */
#define SIMT_LINE int line = __builtin_LINE()

/* ---- device.cuh's names ---- */

struct alignas(16) glm_u32x4 {
    uint32_t v[4];
};

struct alignas(8) glm_u32x2 {
    uint32_t v[2];
};

GLM_INLINE void *glm_shared(void)
{
    return simt_dynamic_shared();
}

GLM_INLINE int32_t glm_thread(void)
{
    return simt_at.thread;
}
GLM_INLINE int32_t glm_block_x(void)
{
    return simt_at.block[0];
}
GLM_INLINE int32_t glm_block_y(void)
{
    return simt_at.block[1];
}
GLM_INLINE int32_t glm_block_z(void)
{
    return simt_at.block[2];
}
GLM_INLINE int32_t glm_grid_x(void)
{
    return simt_at.grid_x;
}

GLM_INLINE uint32_t glm_f32_bits(float a)
{
    uint32_t u;
    memcpy(&u, &a, sizeof u);
    return u;
}
GLM_INLINE float glm_bits_f32(uint32_t u)
{
    float a;
    memcpy(&a, &u, sizeof a);
    return a;
}
GLM_INLINE float glm_fma1(float a, float b, float c)
{
    return __builtin_fmaf(a, b, c);
}
GLM_INLINE float glm_sqrt1(float a)
{
    return __builtin_sqrtf(a);
}
GLM_INLINE int32_t glm_ones(uint32_t u)
{
    return __builtin_popcount(u);
}
/* fp16 as the scalars of the bodies have it, which their own test holds against IEEE. */
#include "scalar.h"
GLM_INLINE uint32_t glm_pack_f16(float low, float high)
{
    return glm_f32_f16(low) | (uint32_t)glm_f32_f16(high) << 16;
}
/* Exact before the one rounding: products and sums of fp16 that lie near each other fit a float. */
GLM_INLINE uint32_t glm_fma_f16x2(uint32_t a, uint32_t b, uint32_t c)
{
    float r[2];
    for (int i = 0; i < 2; i++)
        r[i] = glm_fma1(glm_f16_f32((uint16_t)(a >> 16 * i)), glm_f16_f32((uint16_t)(b >> 16 * i)),
                        glm_f16_f32((uint16_t)(c >> 16 * i)));
    return glm_pack_f16(r[0], r[1]);
}
GLM_INLINE uint32_t glm_add_f16x2(uint32_t a, uint32_t b)
{
    return glm_fma_f16x2(a, 0x3c003c00u, b);
}
/* As the instruction rounds: to nearest, ties to even; every NaN becomes 0x7fff. */
GLM_INLINE uint32_t simt_bf16(float a)
{
    uint32_t u = glm_f32_bits(a);
    return a != a ? 0x7fffu : (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
}
GLM_INLINE uint32_t glm_pack_bf16(float low, float high)
{
    return simt_bf16(low) | simt_bf16(high) << 16;
}

/* Exact before the one rounding wherever the sum fits a double. */
GLM_INLINE uint32_t glm_fma_bf16x2(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t r = 0;
    for (int i = 0; i < 32; i += 16) {
        const double x = (double)glm_bits_f32(a >> i << 16), y = (double)glm_bits_f32(b >> i << 16);
        r |= simt_bf16((float)(x * y + (double)glm_bits_f32(c >> i << 16))) << i;
    }
    return r;
}

GLM_INLINE void glm_barrier(SIMT_LINE)
{
    simt_barrier(line);
}
GLM_INLINE void glm_warp_barrier(SIMT_LINE)
{
    simt_lanes(SIMT_SYNC, line, nullptr, nullptr, [](const void *const *, void *const *) {});
}
GLM_INLINE void glm_fence(void)
{
}
GLM_INLINE void glm_mark(uint32_t *word, uint32_t bits)
{
    *word |= bits;
}
GLM_INLINE uint32_t glm_count(uint32_t *counter)
{
    return (*counter)++;
}

GLM_INLINE void glm_store_release_system(uint64_t *to, uint64_t v)
{
    simt_check_aligned(to, 8, "a release");
    __atomic_store_n(to, v, __ATOMIC_RELEASE);
}
GLM_INLINE uint64_t glm_load_acquire_system(const uint64_t *from)
{
    simt_check_aligned(from, 8, "an acquire");
    return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}
GLM_INLINE uint32_t glm_load_system(const uint32_t *from)
{
    return __atomic_load_n(from, __ATOMIC_RELAXED);
}
/* No other thread of the block runs meanwhile: what it waits for must come from another launch. */
GLM_INLINE void glm_pause(void)
{
    sched_yield();
}

struct simt_shuffle {
    uint32_t v;
    int32_t lane;
};
GLM_INLINE uint32_t glm_shuffle_xor(uint32_t v, int32_t mask, SIMT_LINE)
{
    simt_shuffle in = {v, mask};
    uint32_t out;
    if (mask < 0 || mask > 31)
        simt_fault("shuffle with the mask %d at line %d", mask, line);
    simt_lanes(SIMT_XOR, line, &in, &out, [](const void *const *ins, void *const *outs) {
        for (int l = 0; l < 32; l++) {
            const simt_shuffle *mine = (const simt_shuffle *)ins[l];
            *(uint32_t *)outs[l] = ((const simt_shuffle *)ins[l ^ mine->lane])->v;
        }
    });
    return out;
}
GLM_INLINE uint32_t glm_shuffle(uint32_t v, int32_t lane, SIMT_LINE)
{
    simt_shuffle in = {v, lane};
    uint32_t out;
    if (lane < 0 || lane > 31)
        simt_fault("shuffle from lane %d at line %d", lane, line);
    simt_lanes(SIMT_SHUFFLE, line, &in, &out, [](const void *const *ins, void *const *outs) {
        for (int l = 0; l < 32; l++) {
            const simt_shuffle *mine = (const simt_shuffle *)ins[l];
            *(uint32_t *)outs[l] = ((const simt_shuffle *)ins[mine->lane])->v;
        }
    });
    return out;
}
GLM_INLINE uint32_t glm_ballot(bool yes, SIMT_LINE)
{
    uint32_t out;
    simt_lanes(SIMT_BALLOT, line, &yes, &out, [](const void *const *ins, void *const *outs) {
        uint32_t all = 0;
        for (int l = 0; l < 32; l++)
            all |= (uint32_t) * (const bool *)ins[l] << l;
        for (int l = 0; l < 32; l++)
            *(uint32_t *)outs[l] = all;
    });
    return out;
}

GLM_INLINE glm_u32x2 glm_load8(const void *p)
{
    glm_u32x2 r;
    simt_check_aligned(p, 8, "a load of 8 bytes");
    memcpy(&r, p, sizeof r);
    return r;
}
GLM_INLINE glm_u32x2 glm_load8_once(const void *p)
{
    return glm_load8(p);
}
GLM_INLINE glm_u32x4 glm_load16(const void *p)
{
    glm_u32x4 r;
    simt_check_aligned(p, 16, "a load of 16 bytes");
    memcpy(&r, p, sizeof r);
    return r;
}
GLM_INLINE glm_u32x4 glm_load16_once(const void *p)
{
    return glm_load16(p);
}
GLM_INLINE glm_u32x4 glm_load16_fresh(const void *p)
{
    return glm_load16(p);
}
GLM_INLINE float glm_load_f32_fresh(const float *p)
{
    return *p;
}
GLM_INLINE void glm_store8(void *p, glm_u32x2 v)
{
    simt_check_aligned(p, 8, "a store of 8 bytes");
    memcpy(p, &v, sizeof v);
}
GLM_INLINE void glm_store16(void *p, glm_u32x4 v)
{
    simt_check_aligned(p, 16, "a store of 16 bytes");
    memcpy(p, &v, sizeof v);
}

GLM_INLINE void glm_copy16(void *shared, const void *global)
{
    simt_check_shared(shared, 16, "a copy");
    simt_check_aligned(shared, 16, "a copy's destination");
    simt_check_aligned(global, 16, "a copy's source");
    simt_copy(shared, global, 16);
}
GLM_INLINE void glm_copy_commit(void)
{
    simt_copy_commit();
}
#define glm_copy_wait(n) simt_copy_wait(n)

struct simt_matrix {
    uint32_t r[4];
};
GLM_INLINE void glm_ldmatrix4(uint32_t r[4], const void *shared, SIMT_LINE)
{
    simt_matrix out;
    simt_check_shared(shared, 16, "ldmatrix");
    simt_check_aligned(shared, 16, "ldmatrix");
    simt_lanes(SIMT_LDMATRIX, line, shared, &out, [](const void *const *ins, void *const *outs) {
        for (int l = 0; l < 32; l++)
            for (int m = 0; m < 4; m++)
                memcpy(&((simt_matrix *)outs[l])->r[m],
                       (const char *)ins[8 * m + l / 4] + 4 * (l % 4), 4);
    });
    memcpy(r, out.r, sizeof out.r);
}

struct simt_mma {
    float d[4];
    uint32_t a[4], b[2];
};
struct simt_sums {
    float d[4];
};
GLM_INLINE float simt_half_bf16(uint16_t h)
{
    return glm_bf16_f32(h);
}
GLM_INLINE float simt_half_f16(uint16_t h)
{
    return glm_f16_f32(h);
}
typedef double simt_four __attribute__((vector_size(32)));
/* Products are exact; a GPU keeps more than a float of their sum too. */
template <float half(uint16_t)> void simt_multiply(const void *const *ins, void *const *outs)
{
    alignas(32) double left[16][16], right[16][8], sums[16][8];
    for (int l = 0; l < 32; l++) {
        const simt_mma *f = (const simt_mma *)ins[l];
        const int g = l / 4, q = l % 4 * 2;
        for (int i = 0; i < 2; i++) {
            left[g][q + i] = (double)half((uint16_t)(f->a[0] >> 16 * i));
            left[g + 8][q + i] = (double)half((uint16_t)(f->a[1] >> 16 * i));
            left[g][q + 8 + i] = (double)half((uint16_t)(f->a[2] >> 16 * i));
            left[g + 8][q + 8 + i] = (double)half((uint16_t)(f->a[3] >> 16 * i));
            right[q + i][g] = (double)half((uint16_t)(f->b[0] >> 16 * i));
            right[q + 8 + i][g] = (double)half((uint16_t)(f->b[1] >> 16 * i));
            sums[g][q + i] = (double)f->d[i];
            sums[g + 8][q + i] = (double)f->d[2 + i];
        }
    }
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 8; column += 4) {
            simt_four sum, x;
            memcpy(&sum, &sums[row][column], sizeof sum);
            for (int k = 0; k < 16; k++) {
                memcpy(&x, &right[k][column], sizeof x);
                sum += left[row][k] * x;
            }
            memcpy(&sums[row][column], &sum, sizeof sum);
        }
    for (int l = 0; l < 32; l++)
        for (int i = 0; i < 2; i++) {
            ((simt_sums *)outs[l])->d[i] = (float)sums[l / 4][l % 4 * 2 + i];
            ((simt_sums *)outs[l])->d[2 + i] = (float)sums[l / 4 + 8][l % 4 * 2 + i];
        }
}
GLM_INLINE void glm_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2], SIMT_LINE)
{
    simt_mma in = {{d[0], d[1], d[2], d[3]}, {a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
    simt_sums out;
    simt_lanes(SIMT_MMA, line, &in, &out, simt_multiply<simt_half_bf16>);
    memcpy(d, out.d, sizeof out.d);
}
GLM_INLINE void glm_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2], SIMT_LINE)
{
    simt_mma in = {{d[0], d[1], d[2], d[3]}, {a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
    simt_sums out;
    simt_lanes(SIMT_MMA, line, &in, &out, simt_multiply<simt_half_f16>);
    memcpy(d, out.d, sizeof out.d);
}

#endif
