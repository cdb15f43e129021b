/* SPDX-License-Identifier: Apache-2.0 */
/* How an exchange is answered: error objects, JSON bodies in and out, and suspending a connection
 * until there is something to write. Which answer is given is decided by http.c and the routes. */
#include "runtime/http_exchange.h"

#include "codegen/process.h"

#include <stdio.h>
#include <string.h>

enum { JSON_BYTES_A_BYTE = 64, JSON_BYTES_MIN = 256 << 10 };

static void json_or_null(const char *text, struct buf *out)
{
    if (text == NULL)
        buf_str(out, "null");
    else
        buf_json_string(out, text, strlen(text));
}

void http_error_object(const char *type, const char *code, const char *param, const char *message,
                       struct buf *out)
{
    buf_str(out, "{\"error\":{\"message\":");
    json_or_null(message, out);
    buf_str(out, ",\"type\":");
    json_or_null(type, out);
    buf_str(out, ",\"param\":");
    json_or_null(param, out);
    buf_str(out, ",\"code\":");
    json_or_null(code, out);
    buf_str(out, "}}");
}

void http_add_headers(struct MHD_Response *response)
{
    MHD_add_response_header(response, "Access-Control-Allow-Origin", "*");
}

static enum MHD_Result queue(struct http_exchange *x, unsigned status, const char *content_type,
                             struct buf *body, const char *header, const char *value)
{
    struct MHD_Response *response =
        body->failed
            ? NULL
            : MHD_create_response_from_buffer(body->len, body->data, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        buf_release(body);
        return MHD_NO;
    }
    *body = (struct buf){0}; /* the response owns the bytes now */
    MHD_add_response_header(response, "Content-Type", content_type);
    http_add_headers(response);
    if (header != NULL)
        MHD_add_response_header(response, header, value);
    if (x->closes)
        MHD_add_response_header(response, "Connection", "close");
    x->status = status;
    enum MHD_Result result = MHD_queue_response(x->connection, status, response);
    MHD_destroy_response(response);
    return result;
}

enum MHD_Result http_answer(struct http_exchange *x, unsigned status, const char *content_type,
                            struct buf *body)
{
    return queue(x, status, content_type, body, NULL, NULL);
}

enum MHD_Result http_answer_error(struct http_exchange *x, const struct http_error *e)
{
    struct buf body = {0};
    http_error_object(e->type, e->code, e->param, e->message, &body);
    return queue(x, e->status, "application/json", &body, e->header, e->header_value);
}

enum MHD_Result http_answer_invalid(struct http_exchange *x, const char *param, const char *code,
                                    const char *message)
{
    return http_answer_error(x, &(struct http_error){.status = 400,
                                                     .type = "invalid_request_error",
                                                     .code = code,
                                                     .param = param,
                                                     .message = message});
}

struct http_error http_failure(const struct glm_error *err)
{
    struct http_error e = {.status = 500, .type = "server_error", .message = err->message};
    switch ((int)err->status) {
    case GLM_ECANCELED: /* the server stops: another try may find it again */
        e.status = 503;
        e.code = "server_stopping";
        break;
    case GLM_ENOMEM:
        e.status = 503;
        e.code = "out_of_memory";
        break;
    default:
        e.code = "engine_dead";
        break;
    }
    if (e.status == 503) {
        e.header = "Retry-After";
        e.header_value = "5";
    }
    return e;
}

enum MHD_Result http_answer_failure(struct http_exchange *x, const struct glm_error *err)
{
    const struct http_error e = http_failure(err);
    return http_answer_error(x, &e);
}

bool http_parse_body(struct http_exchange *x, struct glm_json **body, enum MHD_Result *answer)
{
    /* The tree takes many times the bytes of a body of small values: that much is set aside while
     * it is made, and what it did not take goes back. */
    const uint64_t most = JSON_BYTES_MIN + (uint64_t)x->body.len * JSON_BYTES_A_BYTE;
    const uint64_t half = http_budget_bytes(x) / 2;
    const uint64_t limit = most < half ? most : half;
    if (!http_hold(x, limit)) {
        *answer = http_answer_error(x, &http_too_busy);
        return false;
    }
    struct glm_error err = {0};
    x->arena.limit_bytes = (size_t)limit;
    const enum glm_status status =
        glm_json_parse(buf_text(&x->body), x->body.len, &x->arena, body, &err);
    http_let_go(x, x->body.len);
    buf_release(&x->body);
    if (status == GLM_OK && (*body)->type == GLM_JSON_OBJECT) {
        x->arena.limit_bytes = x->arena.used_bytes + GLM_REQUEST_LEFT_BYTES;
        if (x->arena.limit_bytes < limit)
            http_let_go(x, limit - x->arena.limit_bytes);
        return true;
    }
    if (status == GLM_ENOMEM) {
        *answer = http_answer_error(x, &(struct http_error){.status = 413,
                                                            .type = "invalid_request_error",
                                                            .code = "request_too_large",
                                                            .message = "the body holds too many "
                                                                       "values to be read"});
        return false;
    }
    char message[600];
    snprintf(message, sizeof message, "the body is not JSON: %.500s", err.message);
    *answer = http_answer_invalid(x, NULL, NULL,
                                  status == GLM_OK ? "the body must be a JSON object" : message);
    return false;
}

/* ---- suspended connections ---- */

bool http_sleep(struct http_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    bool sleeps = !x->woken;
    x->woken = false;
    if (sleeps) {
        x->suspended = true;
        MHD_suspend_connection(x->connection);
    }
    pthread_mutex_unlock(&x->lock);
    return sleeps;
}

void http_wake(struct http_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    if (x->suspended) {
        x->suspended = false;
        MHD_resume_connection(x->connection);
    } else {
        x->woken = true;
    }
    pthread_mutex_unlock(&x->lock);
}
