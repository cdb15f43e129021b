/* SPDX-License-Identifier: Apache-2.0 */
/* The request fields of the completion routes: one table validates and reads a body
 * (docs/api.md). */
#ifndef GLM_RUNTIME_HTTP_FIELDS_H
#define GLM_RUNTIME_HTTP_FIELDS_H

#include "runtime/json.h"
#include "runtime/reply.h"

#include <stdint.h>

/* A body as read; pointers go into its JSON tree. Absent fields keep what http_fields_init set. */
struct http_fields {
    const struct glm_json *messages, *tools, *tool_choice, *kwargs, *prompt, *stop;
    const char *model, *effort;
    double temperature, top_p, min_p;
    int64_t top_k, max_tokens, max_completion_tokens, min_tokens, seed; /* max_*: -1 absent */
    bool has_seed, stream, include_usage, ignore_end, return_token_ids, parallel_tool_calls;
    bool thinking; /* settled from kwargs, effort and the server's default */
    bool effort_none;
    double ignored_number; /* penalties: checked, without effect */
    const struct glm_json *ignored;
    const char *stops[GLM_REPLY_MAX_STOPS];
    uint32_t n_stops;
};

enum http_route_kind { HTTP_CHAT = 1, HTTP_COMPLETION = 2 };

struct http_field_error {
    const char *field; /* NULL: the body as a whole */
    const char *code;  /* "unsupported_parameter" or NULL */
    char message[512];
};

void http_fields_init(struct http_fields *f, bool thinking, const char *effort);
/* Reads a body for one kind of route; strings are made in the arena, roles in the tree are settled
 * (developer becomes system). False: *error says what. */
bool http_fields_read(struct glm_json *body, enum http_route_kind kind, struct arena *arena,
                      struct http_fields *f, struct http_field_error *error);
/* Name of the table's field i, NULL past its end. */
const char *http_fields_name(size_t i);
/* Appends the prompt text of chat fields that were read: the one place that maps fields to the
 * template. Errors: GLM_EINVAL with what the template rejects, GLM_ENOMEM. */
enum glm_status http_fields_render(const struct http_fields *f, bool generation_prompt,
                                   struct buf *out, struct glm_error *err);

#endif
