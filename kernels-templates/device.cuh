/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's half of the CUDA prelude: types, the kernel's entry, and every intrinsic and PTX
 * instruction that bodies use, from compute capability 8.9 on. No header of a toolkit is needed.
 * tests/simt/simt.h gives the same names on a CPU: what is added here is added there. */
#ifndef GLM_DEVICE_CUH
#define GLM_DEVICE_CUH

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;

#define GLM_INLINE static __device__ __forceinline__
#define GLM_UNROLL _Pragma("unroll")
#define GLM_LOOP   _Pragma("unroll 1") /* kept as a loop */
#define GLM_SHARED __shared__ __align__(16)
/* The entry: GLM_KERNEL(launch) { … launch.args[0] … } */
#define GLM_KERNEL(launch)                                                  \
    extern "C" __global__ void __launch_bounds__(GLM_BLOCK, GLM_MIN_BLOCKS) \
        glm_kernel(const __grid_constant__ struct glm_cuda_args launch)

struct __align__(16) glm_u32x4
{
    uint32_t v[4];
};

struct __align__(8) glm_u32x2
{
    uint32_t v[2];
};

/* GLM_SHARED_BYTES of shared memory beside what bodies declare: the manifest's launch.shared. */
extern __shared__ glm_u32x4 glm_dynamic_shared[];
GLM_INLINE void *glm_shared(void)
{
    return glm_dynamic_shared;
}

/* ---- Where a thread is ---- */

GLM_INLINE int32_t glm_thread(void)
{
    return (int32_t)threadIdx.x;
}
GLM_INLINE int32_t glm_block_x(void)
{
    return (int32_t)blockIdx.x;
}
GLM_INLINE int32_t glm_block_y(void)
{
    return (int32_t)blockIdx.y;
}
GLM_INLINE int32_t glm_block_z(void)
{
    return (int32_t)blockIdx.z;
}
/* Blocks of the grid in x. */
GLM_INLINE int32_t glm_grid_x(void)
{
    return (int32_t)gridDim.x;
}

/* ---- Numbers ---- */

GLM_INLINE uint32_t glm_f32_bits(float a)
{
    return __float_as_uint(a);
}
GLM_INLINE float glm_bits_f32(uint32_t u)
{
    return __uint_as_float(u);
}
GLM_INLINE float glm_fma1(float a, float b, float c)
{
    return __fmaf_rn(a, b, c);
}
GLM_INLINE float glm_sqrt1(float a)
{
    return __fsqrt_rn(a);
}
/* Bits that are set. */
GLM_INLINE int32_t glm_ones(uint32_t u)
{
    return __popc(u);
}
/* Two floats as bf16, the first in the low half. */
GLM_INLINE uint32_t glm_pack_bf16(float low, float high)
{
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

/* Two floats as fp16, the first in the low half. */
GLM_INLINE uint32_t glm_pack_f16(float low, float high)
{
    uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
/* a + b, and a · b + c, of two fp16 each, rounded once. */
GLM_INLINE uint32_t glm_add_f16x2(uint32_t a, uint32_t b)
{
    uint32_t r;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
GLM_INLINE uint32_t glm_fma_f16x2(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t r;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
/* a · b + c of two bf16 each, rounded once. */
GLM_INLINE uint32_t glm_fma_bf16x2(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t r;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}

/* ---- Waiting ---- */

GLM_INLINE void glm_barrier(void)
{
    __syncthreads();
}
GLM_INLINE void glm_warp_barrier(void)
{
    __syncwarp();
}
/* What this thread wrote to global memory is seen before what it writes after. */
GLM_INLINE void glm_fence(void)
{
    __threadfence();
}
/* Sets bits of a word that others set bits of too. */
GLM_INLINE void glm_mark(uint32_t *word, uint32_t bits)
{
    atomicOr(word, bits);
}
/* The counter before one was added. */
GLM_INLINE uint32_t glm_count(uint32_t *counter)
{
    return atomicAdd(counter, 1u);
}

/* ---- Between GPUs of one host, and with the host ---- */

/* All that this thread saw written is seen by whoever acquires this. */
GLM_INLINE void glm_store_release_system(uint64_t *to, uint64_t v)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(v) : "memory");
}
GLM_INLINE uint64_t glm_load_acquire_system(const uint64_t *from)
{
    uint64_t r;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(r) : "l"(from) : "memory");
    return r;
}
/* A word that changes while the kernel runs; orders nothing. */
GLM_INLINE uint32_t glm_load_system(const uint32_t *from)
{
    uint32_t r;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(r) : "l"(from) : "memory");
    return r;
}
/* Between two looks at what another changes. */
GLM_INLINE void glm_pause(void)
{
    __nanosleep(20);
}

/* ---- Lanes of a warp, all 32 of them ---- */

GLM_INLINE uint32_t glm_shuffle_xor(uint32_t v, int32_t mask)
{
    return __shfl_xor_sync(0xffffffffu, v, mask);
}
GLM_INLINE uint32_t glm_shuffle(uint32_t v, int32_t lane)
{
    return __shfl_sync(0xffffffffu, v, lane);
}
GLM_INLINE uint32_t glm_ballot(bool yes)
{
    return __ballot_sync(0xffffffffu, yes);
}

/* ---- Memory: 16 or 8 bytes, at addresses aligned so ---- */

GLM_INLINE glm_u32x2 glm_load8(const void *p)
{
    return *(const glm_u32x2 *)p;
}
GLM_INLINE glm_u32x2 glm_load8_once(const void *p)
{
    glm_u32x2 r;
    asm("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2];"
        : "=r"(r.v[0]), "=r"(r.v[1])
        : "l"(p));
    return r;
}

GLM_INLINE glm_u32x4 glm_load16(const void *p)
{
    return *(const glm_u32x4 *)p;
}
/* Constant while the kernel runs and read once: weights. */
GLM_INLINE glm_u32x4 glm_load16_once(const void *p)
{
    glm_u32x4 r;
    asm("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(r.v[0]), "=r"(r.v[1]), "=r"(r.v[2]), "=r"(r.v[3])
        : "l"(p));
    return r;
}
/* Written by another block of this launch, before a count that this block saw. */
GLM_INLINE glm_u32x4 glm_load16_fresh(const void *p)
{
    glm_u32x4 r;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r.v[0]), "=r"(r.v[1]), "=r"(r.v[2]), "=r"(r.v[3])
                 : "l"(p)
                 : "memory");
    return r;
}
GLM_INLINE float glm_load_f32_fresh(const float *p)
{
    float r;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(r) : "l"(p) : "memory");
    return r;
}
GLM_INLINE void glm_store8(void *p, glm_u32x2 v)
{
    *(glm_u32x2 *)p = v;
}
GLM_INLINE void glm_store16(void *p, glm_u32x4 v)
{
    *(glm_u32x4 *)p = v;
}

/* ---- Copies to shared memory that run beside the thread ---- */

/* 16 bytes; `shared` must not be read before the wait and a barrier. */
GLM_INLINE void glm_copy16(void *shared, const void *global)
{
    uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(global)
                 : "memory");
}
/* Closes a group of copies. */
GLM_INLINE void glm_copy_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Until at most n of this thread's newest groups are under way; n a constant. */
#define glm_copy_wait(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")

/* ---- Tensor cores ---- */

/* Four 8×8 matrices of 16-bit elements: lane l gives the address of row l % 8 of matrix l / 8, and
 * gets elements 2 (l % 4), + 1 of row l / 4 of each. */
GLM_INLINE void glm_ldmatrix4(uint32_t r[4], const void *shared)
{
    uint32_t from = (uint32_t)__cvta_generic_to_shared((void *)shared);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
}
/* d[16][8] += a[16][16] b[16][8], bf16 into fp32. Of lane l, with g = l / 4 and t = 2 (l % 4):
 * a[0..3]: rows g, g + 8, g, g + 8, columns t, t, t + 8, t + 8 and the next;
 * b[0..1]: column g, rows t and t + 8 and the next; d[0..3]: rows g, g, g + 8, g + 8, columns t,
 * t + 1, t, t + 1. */
GLM_INLINE void glm_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* The same with fp16. */
GLM_INLINE void glm_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#endif
