/* SPDX-License-Identifier: Apache-2.0 */
/* What peer_send and peer_take agree on. */
#ifndef GLM_PEER_CUH
#define GLM_PEER_CUH

#include "prelude.cuh"

#include "peer.h"

/* Of a rank in this round: the live rows', whatever the bucket. */
GLM_INLINE uint64_t glm_peer_bytes(const struct glm_peer_exchange *x, const struct glm_round *round)
{
    const int32_t rows = x->per == GLM_PEER_PER_ROW   ? round->n_rows
                         : x->per == GLM_PEER_PER_OUT ? round->n_out
                                                      : 1;
    return (uint64_t)rows * x->row_bytes;
}
/* Of the exchange of that number, in any rank's inbox. */
GLM_INLINE uint64_t glm_peer_slot(const struct glm_peers *p, uint64_t n, int32_t from)
{
    return ((n & 1) * GLM_WORLD + (uint64_t)from) * p->slot_bytes;
}
GLM_INLINE uint64_t glm_peer_end(uint64_t first, uint64_t bytes)
{
    return first + GLM_PEER_PART_BYTES < bytes ? first + GLM_PEER_PART_BYTES : bytes;
}

#endif
