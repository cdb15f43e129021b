/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the blocks of a grid one after the other on one CPU thread, a block's threads as fibers that
 * change only where they wait for each other. Blocks, warps and lanes go in an order that the
 * launch's seed picks, so that what depends on the order shows. Compiled together with each kernel
 * (tests/support/simt.c); knows nothing of kernels. */
#include "simt.h"

#include "launch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

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

namespace
{

enum { MAX_THREADS = 1024, WARP = 32, STACK_BYTES = 128 << 10 };
enum { STATIC_SHARED_BYTES = 48 << 10, SHARED_BYTES = 101376, GUARD_BYTES = 256 };

enum state { READY, AT_WARP, AT_BARRIER, DONE };

struct copy {
    void *to;
    const void *from;
    size_t bytes;
    uint32_t group;
};

struct fiber {
    ucontext_t start;
    jmp_buf at;
    bool started;
    enum state state;
    const void *in; /* of the warp's operation */
    void *out;
    copy *copies;
    uint32_t n_copies, max_copies, group;
};

struct warp {
    int n_here; /* lanes that wait at the operation */
    enum simt_op op;
    int line;
};

const char *const op_names[] = {"__syncwarp", "shuffle", "shuffle", "ballot", "ldmatrix", "mma"};

const struct simt_launch *launch;
struct fiber fibers[MAX_THREADS];
struct warp warps[MAX_THREADS / WARP];
uint32_t order[MAX_THREADS];
int n_at_barrier, barrier_line;
jmp_buf scheduler;
char *stacks;
char fault[512];
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

/* Gives the processor to the scheduler until it comes back here. */
void wait_in(enum state state)
{
    struct fiber *f = &fibers[simt_at.thread];
    f->state = state;
    if (_setjmp(f->at) == 0)
        _longjmp(scheduler, 1);
}

void fiber_main()
{
    struct fiber *f = &fibers[simt_at.thread];
    glm_kernel(launch->args);
    if (f->n_copies > 0)
        simt_fault("the thread ends before its copies to shared memory");
    f->state = DONE;
    if (warps[simt_at.thread / WARP].n_here > 0)
        simt_fault("the lane ends, others of its warp wait at a %s at line %d",
                   op_names[warps[simt_at.thread / WARP].op], warps[simt_at.thread / WARP].line);
    if (n_at_barrier > 0)
        simt_fault("the thread ends, others wait at the barrier at line %d", barrier_line);
    _longjmp(scheduler, 1);
}

void start_fibers()
{
    for (uint32_t t = 0; t < launch->block; t++) {
        struct fiber *f = &fibers[t];
        f->started = false;
        f->state = READY;
        f->n_copies = f->group = 0;
        getcontext(&f->start);
        f->start.uc_stack.ss_sp = stacks + (size_t)t * STACK_BYTES;
        f->start.uc_stack.ss_size = STACK_BYTES;
        f->start.uc_link = nullptr;
        makecontext(&f->start, fiber_main, 0);
    }
    memset(warps, 0, sizeof warps);
    n_at_barrier = 0;
}

void run_fiber(uint32_t t)
{
    simt_at.thread = (int32_t)t;
    if (fibers[t].started)
        _longjmp(fibers[t].at, 1);
    fibers[t].started = true;
    setcontext(&fibers[t].start);
}

/* Warps in the order of the block's, lanes of each in one order. */
uint32_t thread_at(uint32_t i)
{
    return order[i / WARP] * WARP + (launch->order % 3 == 2 ? WARP - 1 - i % WARP : i % WARP);
}

/* Runs every thread to its end; false after a fault. */
bool run_block()
{
    volatile uint32_t i = 0, n_idle = 0;
    const uint32_t n = launch->block;
    shuffle_numbers(order, n / WARP);
    start_fibers();
    switch (_setjmp(scheduler)) {
    case 2:
        return false;
    default:
        break;
    }
    while (n_idle < n) {
        const uint32_t t = thread_at(i);
        i = (i + 1) % n;
        if (fibers[t].state == READY) {
            n_idle = 0;
            run_fiber(t);
        }
        n_idle = n_idle + 1;
    }
    for (uint32_t t = 0; t < n; t++)
        if (fibers[t].state != DONE) {
            simt_at.thread = (int32_t)t;
            snprintf(fault, sizeof fault, "thread %u waits at a %s at line %d for ever", t,
                     fibers[t].state == AT_BARRIER ? "barrier" : op_names[warps[t / WARP].op],
                     fibers[t].state == AT_BARRIER ? barrier_line : warps[t / WARP].line);
            return false;
        }
    return true;
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

const char *check_launch()
{
    if (launch->block == 0 || launch->block > MAX_THREADS || launch->block % WARP != 0)
        snprintf(fault, sizeof fault, "a block of %u threads", launch->block);
    else if (simt_shared_bytes() > STATIC_SHARED_BYTES ||
             simt_shared_bytes() + launch->shared_bytes > SHARED_BYTES)
        snprintf(fault, sizeof fault, "%zu static and %u dynamic bytes of shared memory",
                 simt_shared_bytes(), launch->shared_bytes);
    else
        return nullptr;
    return fault;
}

} // namespace

void simt_fault(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = snprintf(fault, sizeof fault, "block %d,%d,%d thread %d: ", simt_at.block[0],
                     simt_at.block[1], simt_at.block[2], simt_at.thread);
    vsnprintf(fault + n, sizeof fault - (size_t)n, format, args);
    va_end(args);
    _longjmp(scheduler, 2);
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
    for (uint32_t t = 0; t < launch->block; t++)
        if (fibers[t].state == DONE)
            simt_fault("it is at the barrier at line %d, thread %u has ended", line, t);
    barrier_line = line;
    if (++n_at_barrier < (int)launch->block) {
        wait_in(AT_BARRIER);
        return;
    }
    n_at_barrier = 0;
    for (uint32_t t = 0; t < launch->block; t++)
        fibers[t].state = READY;
    wait_in(READY); /* the order of the block decides who goes on first */
}

void simt_lanes(enum simt_op op, int line, const void *in, void *out,
                void (*compute)(const void *const in[32], void *const out[32]))
{
    const int first = simt_at.thread / WARP * WARP;
    struct warp *w = &warps[first / WARP];
    struct fiber *f = &fibers[simt_at.thread];
    if (w->n_here > 0 && (w->op != op || w->line != line))
        simt_fault("it is at a %s at line %d, others of its warp at a %s at line %d", op_names[op],
                   line, op_names[w->op], w->line);
    for (int l = 0; l < WARP; l++)
        if (fibers[first + l].state == DONE || fibers[first + l].state == AT_BARRIER)
            simt_fault("it is at a %s at line %d, lane %d %s", op_names[op], line, l,
                       fibers[first + l].state == DONE ? "has ended" : "is at a barrier");
    w->op = op;
    w->line = line;
    f->in = in;
    f->out = out;
    if (++w->n_here < WARP) {
        wait_in(AT_WARP);
        return;
    }
    const void *ins[WARP];
    void *outs[WARP];
    for (int l = 0; l < WARP; l++) {
        ins[l] = fibers[first + l].in;
        outs[l] = fibers[first + l].out;
        fibers[first + l].state = READY;
    }
    w->n_here = 0;
    compute(ins, outs);
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
    struct fiber *f = &fibers[simt_at.thread];
    if (f->n_copies == f->max_copies) {
        f->max_copies = f->max_copies == 0 ? 64 : 2 * f->max_copies;
        f->copies = (copy *)realloc(f->copies, f->max_copies * sizeof *f->copies);
        if (f->copies == nullptr)
            abort();
    }
    f->copies[f->n_copies++] = {shared, global, bytes, f->group};
    memset(shared, 0xff, bytes);
}

void simt_copy_commit(void)
{
    fibers[simt_at.thread].group++;
}

void simt_copy_wait(uint32_t n_left)
{
    struct fiber *f = &fibers[simt_at.thread];
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n_copies; i++) {
        const copy *c = &f->copies[i];
        if (c->group + n_left < f->group)
            memcpy(c->to, c->from, c->bytes);
        else
            f->copies[n++] = *c;
    }
    f->n_copies = n;
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
    if (check_launch() != nullptr)
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
