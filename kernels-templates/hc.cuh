/* SPDX-License-Identifier: Apache-2.0 */
/* The write-back of a hyper-connection, shared by hc_mix and hc_final: what the sub-layer gave
 * joins the residual streams with the weights that the site's mix left (docs/model.md 2). */
#ifndef GLM_HC_CUH
#define GLM_HC_CUH

#include "sums.cuh"

#define GLM_HC_MIX (GLM_S + GLM_S * GLM_S) /* post[S], comb[S][S] */

/* Eight columns of the new streams: v[s] := post[s]·y + Σ_j comb[j][s]·v[j], j ascending; the
 * destination is comb's second index. All rounded as stored. */
GLM_INLINE void glm_hc_write(float v[GLM_S][8], const float y[8], const float *mix)
{
    GLM_UNROLL
    for (int i = 0; i < 8; i++) {
        float old[GLM_S], branch = glm_round_act(y[i]);
        GLM_UNROLL
        for (int s = 0; s < GLM_S; s++)
            old[s] = v[s][i];
        GLM_UNROLL
        for (int s = 0; s < GLM_S; s++) {
            float sum = mix[s] * branch;
            GLM_UNROLL
            for (int j = 0; j < GLM_S; j++)
                sum = glm_fma1(mix[GLM_S + j * GLM_S + s], old[j], sum);
            v[s][i] = glm_round_act(sum);
        }
    }
}

#endif
