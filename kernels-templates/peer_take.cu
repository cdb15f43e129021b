/* SPDX-License-Identifier: Apache-2.0 */
/* All ranks' bytes out of this rank's inbox as they arrive (peer.h): one after the other, or their
 * sum in rank order. Where the ranks are given up, blocks leave and what they write is lost. */
#include "peer.cuh"

/* False: the ranks are given up. */
GLM_INLINE bool await(const uint64_t *flag, uint64_t n, const uint32_t *gone)
{
    while (glm_load_acquire_system(flag) < n) {
        if (glm_load_system(gone) != 0)
            return false;
        glm_pause();
    }
    return true;
}

GLM_INLINE void store(unsigned char *to, uint64_t bytes, glm_u32x4 v)
{
    if (bytes >= 16 && (uint64_t)to % 16 == 0) {
        glm_store16(to, v);
        return;
    }
    GLM_UNROLL
    for (uint32_t i = 0; i < 4; i++)
        if (4 * i < bytes)
            ((uint32_t *)to)[i] = v.v[i];
}

GLM_INLINE glm_u32x4 sum_of_ranks(const unsigned char *slots, uint64_t slot_bytes)
{
    glm_u32x4 sum = glm_load16_fresh(slots);
    GLM_UNROLL
    for (int32_t r = 1; r < GLM_WORLD; r++) {
        const glm_u32x4 next = glm_load16_fresh(slots + (uint64_t)r * slot_bytes);
        GLM_UNROLL
        for (int32_t i = 0; i < 4; i++)
            sum.v[i] = glm_f32_bits(glm_bits_f32(sum.v[i]) + glm_bits_f32(next.v[i]));
    }
    return sum;
}

GLM_KERNEL(launch)
{
    GLM_SHARED uint32_t given_up;
    unsigned char *to = (unsigned char *)launch.args[0];
    struct glm_peers *p = (struct glm_peers *)launch.args[1];
    const struct glm_peer_exchange *x = (const struct glm_peer_exchange *)launch.args[2];
    const uint64_t bytes = glm_peer_bytes(x, launch.round), n = p->epoch + 1;
    const uint64_t begin = (uint64_t)glm_block_x() * GLM_PEER_PART_BYTES;
    const uint64_t step = (uint64_t)glm_grid_x() * GLM_PEER_PART_BYTES;
    if (bytes == 0) /* no exchange: the next one has this number */
        return;
    if (glm_thread() == 0)
        given_up = 0;
    glm_barrier();
    if (glm_thread() < GLM_WORLD) {
        const uint64_t *flags = p->flags[p->rank] + (uint64_t)glm_thread() * p->n_parts;
        for (uint64_t first = begin; first < bytes; first += step)
            if (!await(flags + first / GLM_PEER_PART_BYTES, n, p->gone)) {
                given_up = 1;
                break;
            }
    }
    glm_barrier(); /* with the acquire: all threads see what came before the flags */
    if (given_up != 0)
        return;
    const unsigned char *slots = p->inbox[p->rank] + glm_peer_slot(p, n, 0);
    for (uint64_t first = begin; first < bytes; first += step) {
        const uint64_t end = glm_peer_end(first, bytes);
        for (uint64_t at = first + (uint64_t)glm_thread() * 16; at < end; at += GLM_BLOCK * 16) {
            if (x->is_sum != 0) {
                store(to + at, end - at, sum_of_ranks(slots + at, p->slot_bytes));
                continue;
            }
            GLM_UNROLL
            for (int32_t r = 0; r < GLM_WORLD; r++)
                store(to + (uint64_t)r * bytes + at, end - at,
                      glm_load16_fresh(slots + (uint64_t)r * p->slot_bytes + at));
        }
    }
    if (glm_last_block(&p->ticket, (uint32_t)glm_grid_x()) && glm_thread() == 0)
        p->epoch = n;
}
