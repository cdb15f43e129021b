/* SPDX-License-Identifier: Apache-2.0 */
/* The GLM chat layout (reference/model.md (j)): messages, tools and switches → prompt text. Request
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
    bool developer_is_system;        /* false: the role is unknown and dropped, as the template does */
    bool generation_prompt;
};
/* Appends the prompt text. A past call whose arguments are no JSON object is left out together with
 * its result, since agents resend history for ever. Errors: GLM_EINVAL with what the template
 * rejects, naming the message. */
enum glm_status glm_chat_render(const struct glm_chat_options *o, struct buf *out,
                                struct glm_error *err);

/* What a client sends as the top-level reasoning_effort (reference/serving.md 4.1). */
struct glm_chat_effort {
    const char *sent;  /* "none", "minimal", … */
    const char *level; /* for glm_chat_options.effort; NULL: none */
    bool thinking;
};
/* NULL: not one of glm_chat_effort_names. */
const struct glm_chat_effort *glm_chat_effort(const char *sent);
extern const char glm_chat_effort_names[];
/* On or off: kwargs.enable_thinking, else kwargs.thinking, else the effort (NULL: none was sent),
 * else the server's default. */
bool glm_chat_thinking(const struct glm_json *kwargs, const struct glm_chat_effort *effort,
                       bool server_default);

#endif
