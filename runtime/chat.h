/* SPDX-License-Identifier: Apache-2.0 */
/* The GLM chat layout (docs/model.md 10): messages, tools and switches → prompt text. Request
 * JSON is read with libyajl into struct glm_json, which keeps number texts and key order. A reply's
 * ids are split in reply.h. */
#ifndef GLM_RUNTIME_CHAT_H
#define GLM_RUNTIME_CHAT_H

#include "runtime/json.h"

struct glm_chat_options {
    const struct glm_json *messages; /* array; NULL or another type: GLM_EINVAL */
    const struct glm_json *tools;    /* array or NULL */
    const struct glm_json *kwargs;   /* chat_template_kwargs object or NULL, unmapped */
    const char *effort;              /* template variable reasoning_effort; NULL: that of kwargs */
    bool thinking;                   /* false: closes the think block, keeps the effort line */
    bool no_effort_line;             /* the other convention of thinking off: leaves it out too */
    bool generation_prompt;
};
/* Appends the prompt text. A past call whose arguments are no JSON object is left out together with
 * its result, since agents resend history for ever. Errors: GLM_EINVAL with what the template
 * rejects, naming the message. */
enum glm_status glm_chat_render(const struct glm_chat_options *o, struct buf *out,
                                struct glm_error *err);

#endif
