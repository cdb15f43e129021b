/* SPDX-License-Identifier: Apache-2.0 */
/* Where ranks of one host, each with its own GPU, meet in each other's memory: peer_send writes
 * into it, peer_take reads from it, runtime/device_cuda_peer.c lays it out. Host and GPU.
 *
 * Every rank owns an inbox, a slot for each rank and parity, and a flag for each rank and part of a
 * slot. Exchange n (1, 2, ...) puts a rank's bytes into its slot of parity n & 1 at every rank, and
 * behind each part n into its flag. Flags only grow, so nothing is ever set back.
 *
 * Two parities are enough. Every exchange is between all ranks and of at least one part, and a
 * rank's kernels run one after the other. So when rank a sends exchange n + 2, its take of n + 1 is
 * over, which waited for rank b's send of n + 1, which began after b's take of n: nobody reads the
 * slots of n any more. And a flag that rank b waits to be n is n, or n + 1 and then n's bytes still
 * lie in the other parity.
 *
 * Two kernels, not one: no block of a send waits, and a take waits only for sends, which come
 * before it on every GPU. No grid is too large, whatever else runs. */
#ifndef GLM_PEER_H
#define GLM_PEER_H

#include "round.h"

#define GLM_PEERS           8
#define GLM_PEER_PART_BYTES 8192 /* of a slot, with one flag: the same for ranks in any bucket */

/* A rank's own, in its GPU's memory. */
struct glm_peers {
    uint64_t epoch;               /* exchanges that are over: peer_take adds to it, nobody else */
    uint64_t slot_bytes, n_parts; /* of a slot */
    const uint32_t *gone;         /* the host's: not zero, and nobody waits any more */
    unsigned char *inbox[GLM_PEERS]; /* of each rank: [2][world][slot_bytes] */
    uint64_t *flags[GLM_PEERS];      /* of each rank: [world][n_parts] */
    uint32_t rank;
    uint32_t ticket; /* zero between two launches */
};

/* What an exchange is, whatever the round. Rows are multiples of 4 bytes. */
enum { GLM_PEER_PER_ROW, GLM_PEER_PER_OUT, GLM_PEER_ONCE };
struct glm_peer_exchange {
    uint64_t row_bytes;
    int32_t per, is_sum;
};

#endif
