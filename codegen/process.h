/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank's process takes beside what its plan lays out: the program itself, what it exchanges
 * with, and on the head what requests may hold. Upper figures, as the rest of the memory table. */
#ifndef GLM_CODEGEN_PROCESS_H
#define GLM_CODEGEN_PROCESS_H

#include "codegen/plan.h"
#include "spec/cluster.h"

enum {
    GLM_MAX_CONNECTIONS = 512,         /* of the head's API */
    GLM_REQUEST_LEFT_BYTES = 64 << 10, /* of one that is read: what its fields may still take */
    GLM_JSON_VALUE_BYTES = 64,         /* of a body, read: a token id in a list is one value */
    GLM_RING_BYTES = 256 << 10,        /* from one rank to another, at most */
    GLM_OWNER_BYTES = 64 << 10,        /* of a message whose sum goes by owner rows */
};

/* A process, measured in /proc/PID/smaps on Debian 12, x86-64, with the demo's lanes LIVE and with
 * every stream at its window:
 *   program       9 MiB of glmd's and its libraries' pages (libcrypto 3.4, libc 1.7, libgnutls and
 *                 what libmicrohttpd brings along 2.5), 3 MiB of heap: launch document, plan, steps
 *   a kernel      28 KiB of its shared object
 *   a thread      44 KiB of stack, and its malloc arena
 *   a token id    137 bytes with the published tokenizer of 154,856 ids and 318,088 merges
 * On a GPU a CUDA context: with driver 580.159 on an H200 527 MiB of the device and 130 MiB of the
 * host once a kernel has run. A GB10 has a third of its multiprocessors and has not been measured;
 * its device takes from the same memory as the host, so a GB10 rank has both. */
enum {
    GLM_PROCESS_PROGRAM_BYTES = 12 << 20,
    GLM_PROCESS_KERNEL_BYTES = 32 << 10,
    GLM_PROCESS_THREAD_BYTES = 128 << 10,
    GLM_PROCESS_HEAD_THREADS = 8, /* API, scheduler, supervision */
    GLM_PROCESS_TOKEN_BYTES = 144,
    GLM_PROCESS_CUDA_HOST_BYTES = 130 << 20,
    GLM_PROCESS_CUDA_DEVICE_BYTES = 528 << 20,
};

/* The process of a rank with n_threads that compute, in the host's memory, and in the memory that
 * its node declares: on a GPU the two are not the same. */
uint64_t glm_process_host_bytes(const struct glm_plan *p, enum glm_device_kind device,
                                uint32_t n_threads);
uint64_t glm_process_bytes(const struct glm_plan *p, enum glm_device_kind device,
                           uint32_t n_threads);

/* The largest contribution of a rank to an exchange of its programs; at least a page. */
uint64_t glm_message_bytes(const struct glm_plan *p);
/* Rings to and from every peer, the parts that a sum gathers and, of a GPU, the page-locked bytes
 * that it sends and receives; 0 for a rank alone. */
uint64_t glm_exchange_bytes(const struct glm_plan *p);

/* Do its exchanges lie in memory of each other's GPUs where the driver allows it? Then a rank's
 * share of that memory (kernels-templates/peer.h): slots, their parts' flags, in bytes together. */
#define GLM_PEER_SEND "peer_send"
#define GLM_PEER_TAKE "peer_take"
bool glm_plan_uses_peers(const struct glm_plan *p);
struct glm_peer_room {
    uint64_t slot_bytes, n_parts, bytes;
};
struct glm_peer_room glm_peer_room(const struct glm_plan *p);

/* Do its exchanges go by NCCL? Then what a rank receives before it is summed or laid out, in its
 * GPU's memory, and what NCCL takes there for itself: 892 MiB a GPU of version 2.28.3 between two
 * H200 (bench/results). */
enum { GLM_NCCL_BYTES = 900 << 20 };
#define GLM_RANK_SUM "rank_sum"
bool glm_plan_uses_nccl(const struct glm_plan *p);
uint64_t glm_received_bytes(const struct glm_plan *p);

/* Bodies and what is read from them, over all requests: the head answers 429 beyond. Four bodies of
 * the largest size, two windows of token ids being read, and every connection with a small request
 * that waits. */
uint64_t glm_request_bytes(uint64_t max_body_bytes, uint32_t window_tokens);

#endif
