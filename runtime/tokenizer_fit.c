/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizer against plan. How the file is read and what of it is supported is tokenizer_file.c's.
 */
#include "runtime/tokenizer_fit.h"

#include "runtime/toolcall.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Tokens by which the chat layout marks roles and thinking; tool calls' are glm_mark_text. */
static const char *const layout[] = {
    "[gMASK]",       "<sop>",           "<|system|>", "<|user|>",
    "<|assistant|>", "<|observation|>", "<think>",    "</think>",
};

static enum glm_status want_token(const struct glm_tokenizer *t, const char *path, const char *text,
                                  struct glm_error *err)
{
    if (glm_tokenizer_added(t, text) >= 0)
        return GLM_OK;
    return glm_fail(err, GLM_ECHECKPOINT,
                    "cannot use '%s': it has no added token '%s', which the chat layout needs",
                    path, text);
}

static enum glm_status check(const struct glm_tokenizer *t, const char *path,
                             const struct glm_plan *p, struct glm_error *err)
{
    struct buf bytes = {0};
    enum glm_status status = GLM_OK;
    if (glm_tokenizer_size(t) > p->d_vocab)
        status = glm_fail(err, GLM_ECHECKPOINT,
                          "cannot use '%s': it has ids up to %u, the model's vocabulary is %u",
                          path, glm_tokenizer_size(t) - 1, p->d_vocab);
    else if (glm_tokenizer_size(t) != p->n_valid_ids)
        status = glm_fail(err, GLM_ESTALE,
                          "cannot use '%s': it has ids up to %u, the plan was made for %u", path,
                          glm_tokenizer_size(t) - 1, p->n_valid_ids - 1);
    for (uint32_t i = 0; status == GLM_OK && i < p->n_end_ids; i++)
        if (!glm_tokenizer_bytes(t, (int32_t)p->end_ids[i], false, &bytes))
            status = glm_fail(err, GLM_ECHECKPOINT,
                              "cannot use '%s': it has no token %u, which ends a reply", path,
                              p->end_ids[i]);
    buf_release(&bytes);
    for (size_t i = 0; status == GLM_OK && i < sizeof layout / sizeof layout[0]; i++)
        status = want_token(t, path, layout[i], err);
    for (size_t i = 0; status == GLM_OK && i < GLM_N_MARKS; i++)
        status = want_token(t, path, glm_mark_text[i], err);
    return status;
}

enum glm_status glm_tokenizer_fit(const char *checkpoint, const struct glm_plan *plan,
                                  struct glm_tokenizer **out, struct glm_error *err)
{
    static const char synthetic[] = "synthetic:";
    char path[PATH_MAX];
    struct glm_tokenizer *t = NULL;
    if (strncmp(checkpoint, synthetic, sizeof synthetic - 1) == 0)
        checkpoint += sizeof synthetic - 1;
    if (snprintf(path, sizeof path, "%s/tokenizer.json", checkpoint) >= (int)sizeof path)
        return glm_fail(err, GLM_EINVAL, "the path of checkpoint '%s' is too long", checkpoint);
    enum glm_status status = glm_tokenizer_open(path, &t, err);
    if (status == GLM_OK)
        status = check(t, path, plan, err);
    if (status != GLM_OK) {
        glm_tokenizer_free(t);
        return status;
    }
    *out = t;
    return GLM_OK;
}
