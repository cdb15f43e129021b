/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as text for the demo's tokenizer: the ids' bytes are the text, and with and without
 * added tokens alike. */
#include "runtime/tokenizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct glm_tokenizer *t;
    if (t == NULL && glm_tokenizer_open("clusters/demo/exl3/tokenizer.json", &t, NULL) != GLM_OK)
        abort();
    for (int special = 0; special < 2; special++) {
        struct glm_ids ids = {0};
        struct buf back = {0};
        if (glm_tokenizer_encode(t, (const char *)data, size, special != 0, &ids) != GLM_OK)
            abort();
        for (size_t i = 0; i < ids.n; i++)
            if (!glm_tokenizer_bytes(t, ids.ids[i], false, &back))
                abort();
        if (back.len != size || (size > 0 && memcmp(back.data, data, size) != 0))
            abort();
        buf_release(&back);
        glm_ids_release(&ids);
    }
    return 0;
}
