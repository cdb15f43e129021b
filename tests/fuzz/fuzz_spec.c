/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a cluster spec: resolved, or refused with at least one diagnostic; both renderings
 * of the diagnostics are made. Checkpoints it names are looked up below an empty folder. */
#include "spec/cluster.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    struct diag_list diags;
    struct buf out = {0};
    struct glm_cluster *cluster = NULL;
    setenv("HF_HUB_CACHE", "/nonexistent", 1);
    arena_init(&arena, 64u << 20);
    diag_list_init(&diags, &arena);
    enum glm_status status = glm_cluster_parse("/nonexistent/fuzz.yaml", (const char *)data, size,
                                               &arena, &diags, &cluster);
    if (status != GLM_OK && status != GLM_ENOMEM && diags.n_errors == 0)
        abort();
    if (status == GLM_OK && (cluster == NULL || cluster->n_lanes == 0 || diags.n_errors > 0))
        abort();
    diag_render_text(&diags, true, &out);
    diag_render_json(&diags, &out);
    buf_release(&out);
    arena_release(&arena);
    return 0;
}
