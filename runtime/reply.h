/* SPDX-License-Identifier: Apache-2.0 */
/* Splits a reply as its ids arrive into reasoning, content and tool calls
 * (docs/model.md 11; docs/api.md). Decisions are made on token ids, not text. One reply, one
 * thread. */
#ifndef GLM_RUNTIME_REPLY_H
#define GLM_RUNTIME_REPLY_H

#include "runtime/json.h"
#include "runtime/tokenizer.h"

enum { GLM_REPLY_MAX_STOPS = 16, GLM_REPLY_MAX_STOP_BYTES = 4096 };

struct glm_reply;
enum glm_reply_kind { GLM_REPLY_REASONING, GLM_REPLY_CONTENT, GLM_REPLY_TOOL_CALL };
struct glm_reply_event {
    enum glm_reply_kind kind;
    const char *text; /* piece of reasoning or content, whole UTF-8 characters; borrowed */
    size_t len;
    /* The model answered inside a think block it never closed: the whole reasoning once more, as
     * content. A reply that is not streamed has it as content only. */
    bool repeats_reasoning;
    const char *name; /* tool call: its name and arguments as compact JSON text */
    const char *arguments;
    size_t arguments_len;
};
struct glm_reply_options {
    bool in_reasoning;            /* the prompt ends inside an open think block */
    const struct glm_json *tools; /* offered tools, for names and argument types, borrowed until
                                     free; NULL: no calls */
    bool parse_calls;
    bool raw;                 /* completions: every token's text is content, special ones too */
    const char *const *stops; /* stop strings over the content, GLM_REPLY_MAX_STOPS at most, each
                                 of 1..GLM_REPLY_MAX_STOP_BYTES; copied */
    uint32_t n_stops;
};
/* Errors: GLM_EINVAL for stops out of range, GLM_ENOMEM. t is borrowed until free. */
enum glm_status glm_reply_new(const struct glm_tokenizer *t, const struct glm_reply_options *o,
                              struct glm_reply **out, struct glm_error *err);
void glm_reply_free(struct glm_reply *r);

/* Feeds one id; events are delivered through emit before it returns. The end id that finished the
 * reply is not fed. True: a stop string matched (named by glm_reply_stop), feed no more. */
typedef void (*glm_reply_emit)(void *context, const struct glm_reply_event *event);
bool glm_reply_feed(struct glm_reply *r, int32_t id, glm_reply_emit emit, void *context);
/* The reply is over; ended_by_end_id: what was held back is settled as docs/model.md 11 says.
 * True: a stop string matched in what was held back. */
bool glm_reply_finish(struct glm_reply *r, bool ended_by_end_id, glm_reply_emit emit,
                      void *context);
/* The stop string that matched, or NULL. */
const char *glm_reply_stop(const struct glm_reply *r);
uint32_t glm_reply_reasoning_tokens(const struct glm_reply *r);
uint32_t glm_reply_calls(const struct glm_reply *r);
/* Memory ran out on the way: what was delivered is not the whole reply. */
bool glm_reply_failed(const struct glm_reply *r);

#endif
