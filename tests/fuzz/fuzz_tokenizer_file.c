/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as tokenizer.json: what is accepted must encode without loss. */
#include "runtime/tokenizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = "Hello <a>'s 12345 \xff\xc3\xa9\n\n  x";
    struct glm_tokenizer *t = NULL;
    if (glm_tokenizer_parse((const char *)data, size, &t, NULL) != GLM_OK)
        return 0;
    struct glm_ids ids = {0};
    struct buf back = {0};
    if (glm_tokenizer_encode(t, text, sizeof text - 1, true, &ids) != GLM_OK)
        abort();
    for (size_t i = 0; i < ids.n; i++)
        if (!glm_tokenizer_bytes(t, ids.ids[i], false, &back))
            abort();
    if (back.len != sizeof text - 1 || memcmp(back.data, text, back.len) != 0)
        abort();
    buf_release(&back);
    glm_ids_release(&ids);
    glm_tokenizer_free(t);
    return 0;
}
