/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of process.h put together. What the plan itself lays out is memory.c's. */
#include "codegen/process.h"

#include "codegen/memory.h"
#include "kernels-templates/peer.h"

enum { SHARED_ALIGN = 2 << 20 }; /* what a driver shows to another process at least */

uint64_t glm_process_host_bytes(const struct glm_plan *p, enum glm_device_kind device,
                                uint32_t n_threads)
{
    uint64_t host = GLM_PROCESS_PROGRAM_BYTES + (uint64_t)n_threads * GLM_PROCESS_THREAD_BYTES;
    if (device == GLM_DEVICE_CPU)
        host += (uint64_t)p->n_kernels * GLM_PROCESS_KERNEL_BYTES;
    else
        host += GLM_PROCESS_CUDA_HOST_BYTES;
    if (p->rank == 0)
        host += GLM_PROCESS_HEAD_THREADS * GLM_PROCESS_THREAD_BYTES +
                (uint64_t)p->d_vocab * GLM_PROCESS_TOKEN_BYTES;
    return host;
}

uint64_t glm_process_bytes(const struct glm_plan *p, enum glm_device_kind device,
                           uint32_t n_threads)
{
    const uint64_t host = glm_process_host_bytes(p, device, n_threads);
    switch (device) {
    case GLM_DEVICE_CPU:
        return host;
    case GLM_DEVICE_GB10:
        return host + GLM_PROCESS_CUDA_DEVICE_BYTES;
    case GLM_DEVICE_CUDA: /* the node declares the GPU's memory */
        return GLM_PROCESS_CUDA_DEVICE_BYTES;
    }
    return host;
}

static uint64_t step_bytes(const struct glm_plan *p, const struct glm_plan_step *s)
{
    const struct glm_plan_buffer *from = s->from == NULL ? NULL : glm_plan_buffer(p, s->from);
    uint64_t rows = 1;
    for (uint32_t i = 0; from != NULL && from->per != GLM_PER_ONCE && i < p->n_arenas; i++) {
        const uint32_t n = from->per == GLM_PER_OUT ? p->arenas[i].n_outs : p->arenas[i].n_rows;
        rows = n > rows ? n : rows;
    }
    return from == NULL ? 0 : rows * from->n_cols * 4; /* no stored element is wider */
}

static uint64_t largest_step(const struct glm_plan *p, const struct glm_plan_step *steps,
                             uint32_t n)
{
    uint64_t largest = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t bytes = step_bytes(p, &steps[i]);
        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

uint64_t glm_message_bytes(const struct glm_plan *p)
{
    uint64_t largest = 4096;
    for (uint32_t i = 0; i < p->n_blocks + p->n_programs; i++) {
        const bool block = i < p->n_blocks;
        const uint64_t bytes = block ? largest_step(p, p->blocks[i].steps, p->blocks[i].n_steps)
                                     : largest_step(p, p->programs[i - p->n_blocks].steps,
                                                    p->programs[i - p->n_blocks].n_steps);
        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

/* A ring is a power of two; the parts of a sum are those of the larger of its two ways, an owner's
 * rounded up to whole lines of the caches; between a GPU and the links lie what a rank sends and
 * what a gather gives back. */
uint64_t glm_exchange_bytes(const struct glm_plan *p)
{
    const uint64_t message = glm_message_bytes(p);
    uint64_t ring = 4096, part = message < GLM_OWNER_BYTES ? message : GLM_OWNER_BYTES;
    if (p->world < 2)
        return 0;
    while (ring < message && ring < GLM_RING_BYTES)
        ring *= 2;
    if (part < message / p->world + 64)
        part = message / p->world + 64;
    uint64_t slots = glm_plan_uses_cuda(p) ? (1 + p->world) * message : 0;
    return 2 * (p->world - 1) * ring + p->world * part + slots;
}

bool glm_plan_uses_peers(const struct glm_plan *p)
{
    return glm_plan_kernel(p, GLM_PEER_SEND) != NULL;
}

struct glm_peer_room glm_peer_room(const struct glm_plan *p)
{
    struct glm_peer_room r = {.slot_bytes = glm_plan_align(glm_message_bytes(p))};
    r.n_parts = (r.slot_bytes + GLM_PEER_PART_BYTES - 1) / GLM_PEER_PART_BYTES;
    r.bytes = p->world * (2 * r.slot_bytes + r.n_parts * sizeof(uint64_t));
    r.bytes = (r.bytes + SHARED_ALIGN - 1) / SHARED_ALIGN * SHARED_ALIGN;
    return r;
}

bool glm_plan_uses_nccl(const struct glm_plan *p)
{
    return glm_plan_kernel(p, GLM_RANK_SUM) != NULL;
}

uint64_t glm_received_bytes(const struct glm_plan *p)
{
    return (p->world * glm_message_bytes(p) + SHARED_ALIGN - 1) / SHARED_ALIGN * SHARED_ALIGN;
}

uint64_t glm_request_bytes(uint64_t max_body_bytes, uint32_t window_tokens)
{
    return 4 * max_body_bytes + 2 * (uint64_t)window_tokens * GLM_JSON_VALUE_BYTES +
           (uint64_t)GLM_MAX_CONNECTIONS * GLM_REQUEST_LEFT_BYTES;
}
