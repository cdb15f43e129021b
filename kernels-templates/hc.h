/* SPDX-License-Identifier: Apache-2.0 */
/* The write-back of a hyper-connection, shared by hc_mix and hc_final: what the sub-layer gave
 * joins the residual streams with the weights that the site's mix left (docs/model.md 2). */
#ifndef GLM_HC_H
#define GLM_HC_H

#include "sums.h"

#define GLM_HC_MIX (GLM_S + GLM_S * GLM_S) /* post[S], comb[S][S] */

/* 16 columns of the new streams: v[s] := post[s]·y + Σ_j comb[j][s]·v[j], j ascending; the
 * destination is comb's second index. */
GLM_INLINE void glm_hc_write(glm_f32x16 v[GLM_S], glm_f32x16 y, const float *mix)
{
    glm_f32x16 old[GLM_S];
    for (int s = 0; s < GLM_S; s++)
        old[s] = v[s];
    for (int s = 0; s < GLM_S; s++) {
        v[s] = glm_mul(glm_splat(mix[s]), y);
        for (int j = 0; j < GLM_S; j++)
            v[s] = glm_fma(glm_splat(mix[GLM_S + j * GLM_S + s]), old[j], v[s]);
        v[s] = glm_round_act16(v[s]);
    }
}

#endif
