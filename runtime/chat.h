/* SPDX-License-Identifier: Apache-2.0 */
/* The GLM chat layout (reference/model.md (j)): messages, tools and switches → prompt text; and a
 * reply's ids → reasoning, content and tool calls (reference/serving.md 4). Request JSON is read
 * with libyajl into struct glm_json, which keeps number texts and key order. */
#ifndef GLM_RUNTIME_CHAT_H
#define GLM_RUNTIME_CHAT_H

#include "runtime/json.h"
#include "runtime/tokenizer.h"

struct glm_chat_options {
    const struct glm_json *messages; /* array; NULL or another type: GLM_EINVAL */
    const struct glm_json *tools;    /* array or NULL */
    const struct glm_json *kwargs;   /* chat_template_kwargs object or NULL, unmapped */
    const char *effort;              /* template variable reasoning_effort or NULL */
    bool thinking;                   /* false: closes the think block, keeps the effort line */
    bool generation_prompt;
};
/* Appends the prompt text. Errors: GLM_EINVAL with what the template rejects. */
enum glm_status glm_chat_render(const struct glm_chat_options *o, struct buf *out,
                                struct glm_error *err);

/* Splits a reply as its ids arrive. Decisions are made on token ids, not text. */
struct glm_reply; 
struct glm_reply_event {
    enum { GLM_REPLY_REASONING, GLM_REPLY_CONTENT, GLM_REPLY_TOOL_CALL } kind;
    const char *text;      /* piece of reasoning or content, whole UTF-8 characters; borrowed */
    size_t len;
    const char *name;      /* tool call: its name and arguments as JSON text */
    const char *arguments;
};
struct glm_reply_options {
    bool in_reasoning;             /* from the rendered prompt: ends inside an open think block */
    const struct glm_json *tools;  /* offered tools, for names and argument types; NULL: no calls */
    bool parse_calls;
    bool raw;                      /* completions: every token's text is content */
    const char *const *stops;      /* stop strings over the content, GLM_MAX_STOPS at most */
    uint32_t n_stops;
};
enum glm_status glm_reply_new(const struct glm_tokenizer *t, const struct glm_reply_options *o,
                              struct glm_reply **out, struct glm_error *err);
void glm_reply_free(struct glm_reply *r);
/* Feeds one id; events are delivered through emit before it returns. True: a stop string matched
 * (named by glm_reply_stop), feed no more. */
typedef void (*glm_reply_emit)(void *context, const struct glm_reply_event *event);
bool glm_reply_feed(struct glm_reply *r, int32_t id, glm_reply_emit emit, void *context);
/* The reply is over; ended_by_end_id: what was held back is settled as serving.md 4.2, 4.5 say. */
void glm_reply_finish(struct glm_reply *r, bool ended_by_end_id, glm_reply_emit emit,
                      void *context);
const char *glm_reply_stop(const struct glm_reply *r);
uint32_t glm_reply_reasoning_tokens(const struct glm_reply *r);
uint32_t glm_reply_calls(const struct glm_reply *r);

#endif
