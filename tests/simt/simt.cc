/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the blocks of a grid one after the other on one CPU thread, a block's threads as fibers that
 * change only where they wait for each other. Blocks, warps and lanes go in an order that the
 * launch's seed picks, so that what depends on the order shows. Linked into each kernel's object,
 * which so has its state to itself; knows nothing of kernels. */
#include "simt.h"

#include "launch.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define SIMT_EXPORT extern "C" __attribute__((visibility("default")))

struct simt_place simt_at;

extern "C" void glm_kernel(const struct glm_cuda_args &launch);
/* The linker's; absent where a kernel shares nothing, and each object's own. */
extern "C" char __start_simt_shared[] __attribute__((weak, visibility("hidden")));
extern "C" char __stop_simt_shared[] __attribute__((weak, visibility("hidden")));

SIMT_EXPORT size_t simt_shared_bytes(void)
{
    return __start_simt_shared == nullptr ? 0 : (size_t)(__stop_simt_shared - __start_simt_shared);
}

/* Puts the registers that a call keeps on the stack and goes on where `to`, a stack that was left
 * like this, had stopped. The library's ways cost a system call or a search for handlers each. */
extern "C" void simt_switch(char **from, char *to);
#if defined(__x86_64__)
enum { FRAME_BYTES = 64, FRAME_ENTRY = 48 }; /* the word behind it keeps the entry's alignment */
__asm__(".text\n"
        ".hidden simt_switch\n"
        ".globl simt_switch\n"
        "simt_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n");
#elif defined(__aarch64__)
enum { FRAME_BYTES = 160, FRAME_ENTRY = 88 };
__asm__(".text\n"
        ".hidden simt_switch\n"
        ".globl simt_switch\n"
        "simt_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x2, sp\n"
        "    str x2, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n");
#endif

namespace
{

/* Stacks are no power of two apart, or their ends would share the same few lines of the cache. */
enum { MAX_THREADS = 1024, WARP = 32, STACK_BYTES = (128 << 10) + 17 * 64 };
enum { STATIC_SHARED_BYTES = 48 << 10, SHARED_BYTES = 101376, GUARD_BYTES = 256 };

enum state : uint8_t { READY, AT_WARP, AT_BARRIER, DONE };

struct copy {
    void *to;
    const void *from;
    size_t bytes;
    uint32_t group;
};

struct copies {
    copy *list;
    uint32_t n, max, group;
};

struct warp {
    int n_ready; /* lanes that can run */
    int n_gone;  /* those at a barrier, and those that have ended */
    int n_here;  /* those that wait at the operation */
    enum simt_op op;
    int line;
};

const char *const op_names[] = {"__syncwarp", "shuffle", "shuffle", "ballot", "ldmatrix", "mma"};

const struct simt_launch *launch;
/* Of a thread: what it does, where its stack was left, what it gave to the warp's operation. */
enum state states[MAX_THREADS];
char *at[MAX_THREADS];
const void *ins[MAX_THREADS];
void *outs[MAX_THREADS];
struct copies copies[MAX_THREADS];
struct warp warps[MAX_THREADS / WARP];
uint32_t order[MAX_THREADS];
uint32_t turn; /* place in the order of the thread that runs */
bool backwards;
int n_at_barrier, n_done, barrier_line;
char *scheduler; /* where its stack was left */
char *stacks;
char fault[512]; /* empty: none */
alignas(64) char dynamic[SHARED_BYTES + GUARD_BYTES];
uint64_t random_state;

uint32_t next_random(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % n);
}

void shuffle_numbers(uint32_t *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        list[i] = i;
    if (launch->order != 0)
        for (uint32_t i = n; i > 1; i--) {
            uint32_t j = next_random(i), t = list[j];
            list[j] = list[i - 1];
            list[i - 1] = t;
        }
}

/* The next thread that can run: warps in the order of the block's, lanes of each in one order. -1:
 * there is none. */
int32_t next_ready()
{
    const uint32_t n = launch->block;
    for (uint32_t i = 0; i < n; i++) {
        turn = turn + 1 == n ? 0 : turn + 1;
        const uint32_t w = order[turn / WARP], lane = turn % WARP;
        if (warps[w].n_ready == 0) {
            i += WARP - 1 - lane;
            turn += WARP - 1 - lane;
            continue;
        }
        const uint32_t t = w * WARP + (backwards ? WARP - 1 - lane : lane);
        if (states[t] == READY)
            return (int32_t)t;
    }
    return -1;
}

/* Lets the next thread run until it is this one's turn again; where there is none the block ends.
 */
void wait_in(enum state state)
{
    const int32_t t = simt_at.thread;
    states[t] = state;
    warps[t / WARP].n_ready -= state != READY;
    const int32_t next = next_ready();
    if (next == t)
        return;
    simt_at.thread = next;
    simt_switch(&at[t], next < 0 ? scheduler : at[next]);
}

void fiber_main()
{
    glm_kernel(launch->args);
    struct warp *w = &warps[simt_at.thread / WARP];
    if (copies[simt_at.thread].n > 0)
        simt_fault("the thread ends before its copies to shared memory");
    if (w->n_here > 0)
        simt_fault("the lane ends, others of its warp wait at a %s at line %d", op_names[w->op],
                   w->line);
    if (n_at_barrier > 0)
        simt_fault("the thread ends, others wait at the barrier at line %d", barrier_line);
    w->n_gone++;
    n_done++;
    wait_in(DONE);
}

/* Every thread is about to enter the kernel. */
void start_fibers()
{
    void (*const entry)() = fiber_main;
    for (uint32_t t = 0; t < launch->block; t++) {
        states[t] = READY;
        copies[t].n = copies[t].group = 0;
        at[t] = stacks + (size_t)(t + 1) * STACK_BYTES - FRAME_BYTES;
        memset(at[t], 0, FRAME_BYTES);
        memcpy(at[t] + FRAME_ENTRY, &entry, sizeof entry);
    }
    for (uint32_t w = 0; w < launch->block / WARP; w++)
        warps[w] = {WARP, 0, 0, SIMT_SYNC, 0};
    n_at_barrier = n_done = 0;
}

/* Runs every thread to its end; false after a fault. */
bool run_block()
{
    const uint32_t n = launch->block;
    shuffle_numbers(order, n / WARP);
    start_fibers();
    turn = n - 1;
    simt_at.thread = next_ready();
    simt_switch(&scheduler, at[simt_at.thread]);
    for (uint32_t t = 0; fault[0] == '\0' && t < n; t++)
        if (states[t] != DONE)
            snprintf(fault, sizeof fault, "thread %u waits at a %s at line %d for ever", t,
                     states[t] == AT_BARRIER ? "barrier" : op_names[warps[t / WARP].op],
                     states[t] == AT_BARRIER ? barrier_line : warps[t / WARP].line);
    return fault[0] == '\0';
}

/* Shared memory holds NaN, what follows the dynamic part is known. */
void poison_shared()
{
    if (simt_shared_bytes() > 0)
        memset(__start_simt_shared, 0xff, simt_shared_bytes());
    memset(dynamic, 0xff, launch->shared_bytes);
    memset(dynamic + launch->shared_bytes, 0x3c, GUARD_BYTES);
}

bool check_guard()
{
    for (uint32_t i = 0; i < GUARD_BYTES; i++)
        if (dynamic[launch->shared_bytes + i] != 0x3c) {
            snprintf(fault, sizeof fault, "byte %u behind the dynamic shared memory was written",
                     i);
            return false;
        }
    return true;
}

bool check_launch()
{
    if (launch->block == 0 || launch->block > MAX_THREADS || launch->block % WARP != 0)
        snprintf(fault, sizeof fault, "a block of %u threads", launch->block);
    else if (simt_shared_bytes() > STATIC_SHARED_BYTES ||
             simt_shared_bytes() + launch->shared_bytes > SHARED_BYTES)
        snprintf(fault, sizeof fault, "%zu static and %u dynamic bytes of shared memory",
                 simt_shared_bytes(), launch->shared_bytes);
    return fault[0] == '\0';
}

} // namespace

void simt_fault(const char *format, ...)
{
    char *unused;
    va_list args;
    va_start(args, format);
    int n = snprintf(fault, sizeof fault, "block %d,%d,%d thread %d: ", simt_at.block[0],
                     simt_at.block[1], simt_at.block[2], simt_at.thread);
    vsnprintf(fault + n, sizeof fault - (size_t)n, format, args);
    va_end(args);
    simt_switch(&unused, scheduler);
    abort();
}

void simt_barrier(int line)
{
    struct warp *w = &warps[simt_at.thread / WARP];
    if (w->n_here > 0)
        simt_fault("it is at the barrier at line %d, others of its warp at a %s at line %d", line,
                   op_names[w->op], w->line);
    if (n_at_barrier > 0 && line != barrier_line)
        simt_fault("it is at the barrier at line %d, others at that at line %d", line,
                   barrier_line);
    for (uint32_t t = 0; n_done > 0 && t < launch->block; t++)
        if (states[t] == DONE)
            simt_fault("it is at the barrier at line %d, thread %u has ended", line, t);
    barrier_line = line;
    w->n_gone++;
    if (++n_at_barrier < (int)launch->block) {
        wait_in(AT_BARRIER);
        return;
    }
    n_at_barrier = 0;
    memset(states, READY, launch->block);
    for (uint32_t i = 0; i < launch->block / WARP; i++) {
        warps[i].n_ready = WARP;
        warps[i].n_gone = 0;
    }
    wait_in(READY); /* the order of the block decides who goes on first */
}

void simt_lanes(enum simt_op op, int line, const void *in, void *out,
                void (*compute)(const void *const in[32], void *const out[32]))
{
    const int t = simt_at.thread, first = t / WARP * WARP;
    struct warp *w = &warps[t / WARP];
    if (w->n_here > 0 && (w->op != op || w->line != line))
        simt_fault("it is at a %s at line %d, others of its warp at a %s at line %d", op_names[op],
                   line, op_names[w->op], w->line);
    for (int l = 0; w->n_gone > 0 && l < WARP; l++)
        if (states[first + l] == DONE || states[first + l] == AT_BARRIER)
            simt_fault("it is at a %s at line %d, lane %d %s", op_names[op], line, l,
                       states[first + l] == DONE ? "has ended" : "is at a barrier");
    w->op = op;
    w->line = line;
    ins[t] = in;
    outs[t] = out;
    if (++w->n_here < WARP) {
        wait_in(AT_WARP);
        return;
    }
    compute(ins + first, outs + first);
    memset(states + first, READY, WARP);
    w->n_ready = WARP;
    w->n_here = 0;
    wait_in(READY);
}

void simt_check_shared(const void *p, size_t bytes, const char *what)
{
    const char *at = (const char *)p;
    const bool is_static = at >= __start_simt_shared && at + bytes <= __stop_simt_shared;
    if (!is_static && (at < dynamic || at + bytes > dynamic + launch->shared_bytes))
        simt_fault("%s is not in shared memory", what);
}

void *simt_dynamic_shared(void)
{
    return dynamic;
}

void simt_check_aligned(const void *p, size_t to, const char *what)
{
    if ((uintptr_t)p % to != 0)
        simt_fault("%s is at an address that is no multiple of %zu", what, to);
}

/* The destination is NaN until the wait: whoever reads it before sees that. */
void simt_copy(void *shared, const void *global, size_t bytes)
{
    struct copies *c = &copies[simt_at.thread];
    if (c->n == c->max) {
        c->max = c->max == 0 ? 64 : 2 * c->max;
        c->list = (copy *)realloc(c->list, c->max * sizeof *c->list);
        if (c->list == nullptr)
            abort();
    }
    c->list[c->n++] = {shared, global, bytes, c->group};
    memset(shared, 0xff, bytes);
}

void simt_copy_commit(void)
{
    copies[simt_at.thread].group++;
}

void simt_copy_wait(uint32_t n_left)
{
    struct copies *mine = &copies[simt_at.thread];
    uint32_t n = 0;
    for (uint32_t i = 0; i < mine->n; i++) {
        const copy *c = &mine->list[i];
        if (c->group + n_left < mine->group)
            memcpy(c->to, c->from, c->bytes);
        else
            mine->list[n++] = *c;
    }
    mine->n = n;
}

/* -fsanitize=bounds calls this where an index leaves an array of known length. */
struct simt_source {
    const char *file;
    uint32_t line, column;
};
extern "C" void __ubsan_handle_out_of_bounds(const struct simt_source *at, void *index)
{
    simt_fault("index %ld is outside its array at %s:%u", (long)(intptr_t)index, at->file,
               at->line);
}

SIMT_EXPORT const char *simt_run(const struct simt_launch *l)
{
    launch = l;
    random_state = l->order;
    backwards = l->order % 3 == 2;
    fault[0] = '\0';
    if (!check_launch())
        return fault;
    if (stacks == nullptr) {
        void *p = mmap(nullptr, (size_t)MAX_THREADS * STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED)
            abort();
        stacks = (char *)p;
    }
    const uint32_t n = l->grid[0] * l->grid[1] * l->grid[2];
    uint32_t *blocks = (uint32_t *)malloc((n + 1) * sizeof *blocks);
    if (blocks == nullptr)
        abort();
    shuffle_numbers(blocks, n);
    simt_at.grid_x = (int32_t)l->grid[0];
    bool ok = true;
    for (uint32_t i = 0; ok && i < n; i++) {
        const uint32_t b = blocks[i];
        simt_at.block[0] = (int32_t)(b % l->grid[0]);
        simt_at.block[1] = (int32_t)(b / l->grid[0] % l->grid[1]);
        simt_at.block[2] = (int32_t)(b / l->grid[0] / l->grid[1]);
        poison_shared();
        ok = run_block() && check_guard();
    }
    free(blocks);
    return ok ? nullptr : fault;
}
