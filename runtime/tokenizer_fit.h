/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a checkpoint's tokenizer can serve a plan: what it must hold so that nothing is found
 * missing once weights are loaded. */
#ifndef GLM_RUNTIME_TOKENIZER_FIT_H
#define GLM_RUNTIME_TOKENIZER_FIT_H

#include "codegen/plan.h"
#include "runtime/tokenizer.h"

/* Opens tokenizer.json of a checkpoint ("synthetic:FOLDER" too): every id that it knows is one of
 * the vocabulary, every id that may be drawn and every end id has a token, and the chat layout's
 * tokens are there. Errors: GLM_ECHECKPOINT naming file and token, GLM_ENOTFOUND, GLM_EIO. */
enum glm_status glm_tokenizer_fit(const char *checkpoint, const struct glm_plan *plan,
                                  struct glm_tokenizer **out, struct glm_error *err);

#endif
