/* SPDX-License-Identifier: Apache-2.0 */
/* What a tokenizer holds, shared by the two files that make it (tokenizer_file.c) and use it
 * (tokenizer.c), and by nobody else. */
#ifndef GLM_RUNTIME_TOKENIZER_FILE_H
#define GLM_RUNTIME_TOKENIZER_FILE_H

#include "runtime/bpe.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum { GLM_TOKENIZER_MAX_ADDED = 4096, GLM_TOKENIZER_MAX_FILE_BYTES = 256 << 20 };

struct glm_added_token {
    char *text;
    size_t len;
    int32_t id;
    bool special;
};

struct glm_tokenizer {
    struct glm_bpe bpe;
    struct glm_added_token *added; /* [n_added] by first byte, the longest first */
    uint32_t n_added;
    uint32_t added_first[257]; /* range of added tokens by first byte */
    uint8_t *special;          /* [bpe.n_ids] */
    pcre2_code *regex;         /* NULL: a text is one pre-token */
    pcre2_match_context *limits;
};

#endif
